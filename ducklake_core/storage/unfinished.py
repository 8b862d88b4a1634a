"""Uploads that nobody finished: parts of an object that no listing of files shows, and that are paid for all the same.

Only S3 keeps them until somebody aborts them. Google forgets an upload after a week, Azure the blocks of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from ducklake_core.errors import StorageError
from ducklake_core.format.files.locations import protocol_of, spelled_like
from ducklake_core.storage.filesystems import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedUpload:
    """An upload to S3 that was begun and neither finished nor aborted.

    Attributes:
        path: The file that it would become, in the form of the prefix that was asked for.
        upload_id: The store's name of the upload; there may be several for one path.
        started: When it was begun (UTC).
    """

    path: str
    upload_id: str
    started: datetime


def unfinished_uploads(storage: Storage, prefix: str) -> Iterator[UnfinishedUpload]:
    """All of them below a directory; none where the store forgets them by itself.

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
    """Give an upload up, so that the store deletes its parts; None when it is gone now, or why it is not."""
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
