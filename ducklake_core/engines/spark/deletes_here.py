"""Deleted positions that the driver reads when it plans, so that no task of Spark reads delete files before the data.

Bounded by what the catalog counts: more than that is left to executors.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ducklake_core.engines.arrow.file_reader import readers_of
from ducklake_core.format.files.data_files import DataFile, DeleteFile
from ducklake_core.planning.plan import FileTask
from ducklake_core.storage.delete_files import DeletedPositions, deleted_positions
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.recent_deletes import process_memory

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
    if max(len(files), sum(len(file.delete_files) for file in files)) > MOST_FILES or positions > MOST_POSITIONS:
        return None
    pairs = [(one, file) for file in files for one in file.delete_files]
    # Held here meanwhile, as what is read now may push out of the memory what was remembered.
    found = {(one.path, file.path): process_memory.recall(storage, one, file) for one, file in pairs}
    unread = [(one, file) for one, file in pairs if found[one.path, file.path] is None]
    if unread:
        with ThreadPoolExecutor(readers_of(unread[0][0].path), thread_name_prefix="ducklake-deletes") as threads:
            for (one, file), positions_of in zip(
                unread, threads.map(lambda pair: process_memory.read(storage, *pair), unread), strict=True
            ):
                found[one.path, file.path] = positions_of

    def read(_: Storage, one: DeleteFile, file: DataFile) -> DeletedPositions:
        known = found[one.path, file.path]
        assert known is not None
        return known

    return [deleted_positions(storage, file, snapshot_id, read=read) for file in files]
