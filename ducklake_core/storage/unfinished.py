"""Clean up after interrupted writes: files by write id, and unfinished multipart uploads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeAlias

from ducklake_core.errors import DuckLakeError, StorageError
from ducklake_core.format.files import paths
from ducklake_core.format.files.paths import protocol_of, spelled_like
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.uploads import wait_briefly

NamedFiles: TypeAlias = Callable[[Sequence[str]], Collection[str]]
"""Return those of some paths that the catalog names. Raises a ``DuckLakeError`` when it cannot be queried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedUpload:
    """An upload to S3 that was begun and neither finished nor aborted.

    Attributes:
        path: The file that it would become, in the form of the prefix that was requested.
        upload_id: The store's name of the upload; there may be several for one path.
        started: When it was begun (UTC).
    """

    path: str
    upload_id: str
    started: datetime


def unfinished_uploads(storage: Storage, prefix: str) -> Iterator[UnfinishedUpload]:
    """Yield all of them below a directory; none where the store forgets them by itself.

    Raises:
        StorageError: The store does not answer, does not know the question, or does not allow it.
    """
    if protocol_of(prefix) != "s3":
        return
    with storage.reporting("list the unfinished uploads below", prefix):
        filesystem, inside = storage.filesystem(prefix)
        bucket, key, _ = filesystem.split_path(inside)
    directory = f"{key.rstrip('/')}/" if key else ""
    after: dict[str, str] = {}
    while True:
        with storage.reporting("list the unfinished uploads below", prefix):
            try:
                page = filesystem.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=directory, **after)
            except FileNotFoundError:
                # What some servers say of a bucket that has none.
                return
        for found in page.get("Uploads") or ():
            yield UnfinishedUpload(
                path=spelled_like(prefix, f"{bucket}/{found['Key']}"), upload_id=found["UploadId"], started=found["Initiated"]
            )
        before, after = after, {"KeyMarker": page.get("NextKeyMarker"), "UploadIdMarker": page.get("NextUploadIdMarker")}
        if not page.get("IsTruncated") or before == after:
            return


def abort_upload(storage: Storage, upload: UnfinishedUpload) -> str | None:
    """Give an upload up, so that the store deletes its parts; None when it is aborted now, or why it is not."""
    try:
        with storage.reporting("abort the upload of", upload.path):
            filesystem, inside = storage.filesystem(upload.path)
            bucket, key, _ = filesystem.split_path(inside)
            try:
                filesystem.call_s3("abort_multipart_upload", Bucket=bucket, Key=key, UploadId=upload.upload_id)
            except FileNotFoundError:
                return None
    except StorageError as error:
        return error.message
    return None


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
    Never raises for the sake of the store or the catalog: what cannot be listed, looked up or deleted stays behind as an orphan.

    Args:
        storage: How to reach the files.
        directory: Full path of the table's directory, with a trailing slash.
        write_id: The write.
        named: Queries the catalog; without it files are recognized by their names alone, which is enough where nothing was committed yet.
        keep: Paths below the directory that stay.
    """
    # Names are unique, while a listing may spell the directory in another way (file://, doubled slashes).
    kept = {_name(path) for path in keep}
    with suppress(DuckLakeError):
        found = [file.path for file in storage.list(directory) if paths.is_of_write(file.path, write_id) and _name(file.path) not in kept]
        # Read after the listing: a commit in between names files, and named files stay.
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
