"""Deleted positions that the driver reads when it plans, so that no task of Spark reads delete files before the data.

Bounded by what the catalog counts: more than that is left to executors.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ducklake_core.engines.arrow.file_reader import readers_of
from ducklake_core.planning.plan import FileTask
from ducklake_core.storage.delete_files import deleted_positions
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.recent_deletes import recent_deletes

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
    unread = [(one, file) for file in files for one in file.delete_files if not recent_deletes.has(storage, one, file)]
    if len(unread) > 1:
        with ThreadPoolExecutor(readers_of(unread[0][0].path), thread_name_prefix="ducklake-deletes") as threads:
            for _ in threads.map(lambda pair: recent_deletes.read(storage, *pair), unread):
                pass
    return [deleted_positions(storage, file, snapshot_id, read=recent_deletes.read) for file in files]
