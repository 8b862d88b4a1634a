"""Deleted positions that the driver reads when it plans, so that no task of Spark reads delete files before the data.

Bounded by what the catalog counts: more than that is left to executors. What was read is remembered, as far as it fits: no file is
ever written again under the same name.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import numpy as np

from ducklake_core.engines.arrow.file_reader import readers_of
from ducklake_core.format.files.data_files import DataFile, DeleteFile
from ducklake_core.planning.plan import FileTask
from ducklake_core.storage.delete_files import DeletedPositions, deleted_positions, read_deletes_of
from ducklake_core.storage.filesystems import Storage

MOST_FILES = 4096
"""Data files, and delete files, that the driver looks at for one plan at most: 0.4 ms of processor time for each delete file."""
MOST_POSITIONS = 2_000_000
"""Deleted positions that it holds meanwhile, of eight bytes each."""


def read_here(tasks: Sequence[FileTask], snapshot_id: int, storage: Storage) -> list[np.ndarray] | None:
    """The deleted positions of each file, ascending; None where they are too many for the driver.

    Raises:
        NotFoundError: A delete file is gone.
        CorruptFileError: It is not one, or not of its data file.
    """
    files = [task.file for task in tasks]
    positions = sum(len(file.inlined_deletes) + sum(one.delete_count for one in file.delete_files) for file in files)
    named = [one for file in files for one in file.delete_files]
    if max(len(files), len(named)) > MOST_FILES or positions > MOST_POSITIONS:
        return None
    unread = [(one, file) for file in files for one in file.delete_files if not _recent.has(storage, one, file)]
    if len(unread) > 1:
        with ThreadPoolExecutor(readers_of(unread[0][0].path), thread_name_prefix="ducklake-deletes") as threads:
            for _ in threads.map(lambda pair: _recent.read(storage, *pair), unread):
                pass
    return [deleted_positions(storage, file, snapshot_id, read=_recent.read) for file in files]


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
            while self._held > self._most or len(self._found) > MOST_FILES:
                self._held -= len(self._found.popitem(last=False)[1].positions)
        return found


_recent = RecentDeleteFiles(MOST_POSITIONS)
