"""Clean up after one write: its files are found by the write id in their names (see format/paths.py)."""

from __future__ import annotations

from contextlib import suppress

from ducklake_core.errors import DuckLakeError
from ducklake_core.format import paths
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.unfinished import abort_upload, unfinished_uploads


def sweep(storage: Storage, directory: str, write_id: str, *, keep: frozenset[str] = frozenset()) -> None:
    """Delete the data files and delete files of one write, such as those of task attempts that failed or lost, finished or half sent.

    Never raises for the store's sake: what cannot be listed or deleted stays behind as an orphan.

    Args:
        storage: How to reach the files.
        directory: Full path of the table's directory, with a trailing slash.
        write_id: Mark of the write.
        keep: Paths below the directory that stay.
    """
    # Names are unique, while a listing may spell the directory in another way (file://, doubled slashes).
    kept = {_name(path) for path in keep}
    with suppress(DuckLakeError):
        found = [file.path for file in storage.list(directory) if paths.write_id_of(file.path) == write_id]
        storage.delete(path for path in found if _name(path) not in kept)
    with suppress(DuckLakeError):
        for upload in unfinished_uploads(storage, directory):
            if paths.write_id_of(upload.path) == write_id:
                abort_upload(storage, upload)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
