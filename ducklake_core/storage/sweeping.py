"""Clean up after one write: its files are found by the write id in their names (see format/files/paths.py)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from ducklake_core.errors import DuckLakeError
from ducklake_core.format.files import paths
from ducklake_core.format.files.locations import protocol_of
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.unfinished import abort_upload, unfinished_uploads
from ducklake_core.storage.uploads import wait_briefly

NamedFiles: TypeAlias = Callable[[Sequence[str]], Collection[str]]
"""Tells which of some paths the catalog names. Raises a ``DuckLakeError`` when it cannot be asked."""


def sweep(
    storage: Storage,
    directory: str,
    write_id: str,
    *,
    named: NamedFiles | None = None,
    keep: Iterable[str] = (),
) -> None:
    """Delete the data files and delete files of one write, such as those of task attempts that failed or lost, finished or half sent.

    Files that the catalog names are never deleted, whatever they are called, nor are files older than the write.
    Never raises for the sake of the store or the catalog: what cannot be listed, asked about or deleted stays behind as an orphan.

    Args:
        storage: How to reach the files.
        directory: Full path of the table's directory, with a trailing slash.
        write_id: The write.
        named: Asks the catalog; without it files are told by their names alone, which is enough where nothing was committed yet.
        keep: Paths below the directory that stay.
    """
    # Names are unique, while a listing may spell the directory in another way (file://, doubled slashes).
    kept = {_name(path) for path in keep}
    with suppress(DuckLakeError):
        found = [file.path for file in storage.list(directory) if paths.is_of_write(file.path, write_id) and _name(file.path) not in kept]
        live = frozenset(named(found)) if named is not None and found else frozenset()
        storage.delete(path for path in found if path not in live)
    with suppress(DuckLakeError):
        for upload in unfinished_uploads(storage, directory):
            if paths.is_of_write(upload.path, write_id):
                abort_upload(storage, upload)


def sweep_after_error(
    storage: Storage, directory: str, write_id: str, *, named: NamedFiles | None = None, keep: Iterable[str] = ()
) -> None:
    """Sweep the files of a write that failed or was interrupted, and wait for an object store at most 10 seconds."""
    work = partial(sweep, storage, directory, write_id, named=named, keep=tuple(keep))
    if protocol_of(directory) == "file":
        work()
    else:
        wait_briefly(work)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
