"""Stores that executors reach, and that make them slow at the wrong moment."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ducklake_core.storage.filesystems import Storage


@dataclass(frozen=True)
class Hanging(Storage):
    """Writes of a file start 0.7 s after they were reported, and then hang until the process ends."""

    folder: str = ""

    def open_output(self, path: str) -> pa.NativeFile:
        Path(self.folder, "begun").touch()
        time.sleep(0.7)
        sink = super().open_output(path)
        sink.write(b"PAR1")
        time.sleep(280)
        return sink
