"""Folders for tests."""

from __future__ import annotations

import shutil
from pathlib import Path


def folder_in_memory(free_bytes: int) -> Path | None:
    """Return a folder in memory with this many free bytes, if there is one: tests rarely depend on a disk."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and shutil.disk_usage(memory).free >= free_bytes else None
