"""Where tests write."""

from __future__ import annotations

import shutil
from pathlib import Path


def folder_in_memory(free_bytes: int) -> Path | None:
    """A folder in memory, where there is one with so many bytes of room: what is tested seldom depends on waiting for a disk."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and shutil.disk_usage(memory).free >= free_bytes else None
