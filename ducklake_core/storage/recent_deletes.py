"""Delete files that were read last are remembered, as far as they fit: no file is ever written again under the same name."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TypeAlias

from ducklake_core.format.files.data_files import DataFile, DeleteFile
from ducklake_core.storage.delete_files import DeletedPositions, read_deletes_of
from ducklake_core.storage.filesystems import Storage

_MOST_FILES = 4096
_MOST_POSITIONS = 2_000_000
"""Of 8 bytes each, or 16 with the snapshots that deleted them."""

Key: TypeAlias = tuple[Storage, str, int, str, int]


def _key(storage: Storage, delete_file: DeleteFile, file: DataFile) -> Key:
    return storage, delete_file.path, delete_file.file_size_bytes, file.path, file.record_count


class RecentDeleteFiles:
    """What is in the delete files that were read last, of so many positions at most. Safe to share between threads."""

    def __init__(self, most: int) -> None:
        self._most, self._held, self._lock = most, 0, threading.Lock()
        self._found: OrderedDict[Key, DeletedPositions] = OrderedDict()

    def has(self, storage: Storage, delete_file: DeleteFile, file: DataFile) -> bool:
        """Whether reading it would open no file."""
        return _key(storage, delete_file, file) in self._found

    def read(self, storage: Storage, delete_file: DeleteFile, file: DataFile) -> DeletedPositions:
        """As :func:`~ducklake_core.storage.delete_files.read_deletes_of`."""
        key = _key(storage, delete_file, file)
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
                return found
        found = read_deletes_of(storage, delete_file, file)
        with self._lock:
            if key not in self._found:
                self._found[key] = found
                self._held += len(found.positions)
            while self._held > self._most or len(self._found) > _MOST_FILES:
                self._held -= len(self._found.popitem(last=False)[1].positions)
        return found

    def clear(self) -> None:
        """Forget all of them, for who writes a file again under its name, as no writer does."""
        with self._lock:
            self._found.clear()
            self._held = 0


recent_deletes = RecentDeleteFiles(_MOST_POSITIONS)
"""Those of this process."""
