"""The files below a directory, in each kind of store, as they are found: nothing is held that grows with their number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import fsspec

from ducklake_core.format.files.locations import canonical_protocol, spelled_like
from ducklake_core.storage.local_files import files_below

_S3_PAGE_KEYS = 1000
_WITH_BUCKETS = frozenset({"gs", "abfs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file found by :meth:`Storage.list`: full path in the form of the prefix, bytes, time of last change (UTC)."""

    path: str
    size: int
    modified: datetime | None


def list_local(directory: str) -> Iterator[StoredFile]:
    """On local disk."""
    for entry in files_below(directory):
        facts = entry.stat()
        yield StoredFile(path=entry.path, size=facts.st_size, modified=datetime.fromtimestamp(facts.st_mtime, UTC))


def list_directories(filesystem: fsspec.AbstractFileSystem, inside: str, prefix: str) -> Iterator[StoredFile]:
    """In a store whose package lists a directory at a time."""
    bucket = inside.strip("/").partition("/")[0]
    if canonical_protocol(prefix.partition("://")[0].lower()) in _WITH_BUCKETS:
        # Raises for a bucket or container that does not exist, which is more than an empty directory.
        filesystem.info(bucket)
    pending = [inside.rstrip("/")]
    while pending:
        directory = pending.pop()
        # Not the package's walk, which takes a directory that cannot be read for an empty one.
        with suppress(FileNotFoundError):
            for info in filesystem.ls(directory, detail=True):
                name = str(info["name"]).rstrip("/")
                if info["type"] != "directory":
                    yield StoredFile(path=spelled_like(prefix, name), size=int(info["size"] or 0), modified=_modified(info))
                elif name != directory:
                    pending.append(name)


def list_s3(filesystem: Any, inside: str, prefix: str) -> Iterator[StoredFile]:
    """In S3, whatever directories they are in: their package would hold a whole directory, and the store answers once for each."""
    bucket, key, _ = filesystem.split_path(inside)
    directory = f"{key.rstrip('/')}/" if key else ""
    after: dict[str, str] = {}
    while True:
        # A missing directory is an empty page; a missing bucket is an error.
        page = filesystem.call_s3("list_objects_v2", filesystem.req_kw, Bucket=bucket, Prefix=directory, MaxKeys=_S3_PAGE_KEYS, **after)
        for found in page.get("Contents") or ():
            # Some tools make an object of no bytes for a directory.
            if not found["Key"].endswith("/"):
                yield StoredFile(path=spelled_like(prefix, f"{bucket}/{found['Key']}"), size=found["Size"], modified=_modified(found))
        if not page.get("IsTruncated"):
            return
        before, after = after, {"ContinuationToken": page.get("NextContinuationToken") or ""}
        if after == before or not after["ContinuationToken"]:
            raise OSError(f"the store says that there are more objects below {inside}, but not how to go on")


def _modified(info: Mapping[str, Any]) -> datetime | None:
    """The time of last change under whichever name the store's package gives it."""
    for name in ("LastModified", "last_modified", "mtime", "updated", "created"):
        match info.get(name):
            case datetime() as moment:
                return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            case int() | float() as seconds:
                return datetime.fromtimestamp(seconds, UTC)
            case str() as text:
                return datetime.fromisoformat(text)
            case _:
                pass
    return None
