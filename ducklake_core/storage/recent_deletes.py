"""Delete files that were read last are remembered, as far as they fit: no file is ever written again under the same name."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import TypeAlias

from ducklake_core.format.files.data_files import DataFile, DeleteFile
from ducklake_core.storage.delete_files import DeletedPositions, read_deletes_of
from ducklake_core.storage.filesystems import Storage

_MOST_FILES = 4096
_MOST_POSITIONS = 2_000_000
"""Of 8 bytes each, or 16 with the snapshots that deleted them."""
_SHARE = 4
"""A file of more than one position in so many is not remembered: it would push out all others."""

_Key: TypeAlias = tuple[Storage, str, int, str, int]


def _key(storage: Storage, delete_file: DeleteFile, file: DataFile) -> _Key:
    return storage, delete_file.path, delete_file.file_size_bytes, file.path, file.record_count


class RecentDeleteFiles:
    """What is in the delete files that were read last, of so many positions at most. Safe to share between threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.forget()

    def forget(self) -> None:
        """Hold nothing; with a lock of its own, as a forked child needs it: a thread of the parent may hold the other one for ever."""
        self._lock = threading.Lock()
        self._held = 0
        self._found: OrderedDict[_Key, DeletedPositions] = OrderedDict()

    def recall(self, storage: Storage, delete_file: DeleteFile, file: DataFile) -> DeletedPositions | None:
        """What is remembered of a delete file of this data file, None if nothing is."""
        key = _key(storage, delete_file, file)
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
            return found

    def read(self, storage: Storage, delete_file: DeleteFile, file: DataFile) -> DeletedPositions:
        """As :func:`~ducklake_core.storage.delete_files.read_deletes_of`."""
        known = self.recall(storage, delete_file, file)
        if known is not None:
            return known
        found = read_deletes_of(storage, delete_file, file)
        if len(found.positions) * _SHARE <= self._most:
            self._remember(_key(storage, delete_file, file), found)
        return found

    def _remember(self, key: _Key, found: DeletedPositions) -> None:
        with self._lock:
            if key not in self._found:
                self._found[key] = found
                self._held += len(found.positions)
            while self._held > self._most or len(self._found) > _MOST_FILES:
                self._held -= len(self._found.popitem(last=False)[1].positions)


process_memory = RecentDeleteFiles(_MOST_POSITIONS)
"""What this process remembers."""
os.register_at_fork(after_in_child=process_memory.forget)
