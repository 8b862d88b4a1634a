"""Write files to object stores atomically, and list the files below a directory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import fsspec
import pyarrow as pa

from ducklake_core.format.files.paths import canonical_protocol, spelled_like
from ducklake_core.storage.stores import files_below

_MAX_WAIT = 10.0  # seconds
_MAX_THREADS = 64
_unfinished: list[threading.Thread] = []

_S3_PAGE_KEYS = 1000
_WITH_BUCKETS = frozenset({"gs", "abfs"})


def wait_briefly(*work: Callable[[], object]) -> None:
    """Run clean-up in daemon threads and wait for it at most 10 seconds: a store that does not answer must not block the caller.

    Clean-up that takes longer continues in the background, and until it has ended, later calls do not wait at all, and do nothing once 64
    threads are running. Files that remain are orphans, which ``delete_orphaned_files`` deletes.

    Args:
        work: Functions whose errors do not matter to the caller, who has an error to report already.
    """
    _unfinished[:] = [thread for thread in _unfinished if thread.is_alive()]
    # A store that answers nothing must not collect threads without end in a long process.
    if len(_unfinished) + len(work) > _MAX_THREADS:
        return
    wait = 0.0 if _unfinished else _MAX_WAIT
    threads = [threading.Thread(target=_suppressing, args=(one,), name="clean-up", daemon=True) for one in work]
    for thread in threads:
        thread.start()
    end = time.monotonic() + wait
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    _unfinished.extend(thread for thread in threads if thread.is_alive())


def _suppressing(work: Callable[[], object]) -> None:
    with suppress(Exception):
        work()


class Upload(pa.PythonFile):  # type: ignore[misc]
    """A new object. What fails while it is written or closed gives it up, as :meth:`discard` does."""

    _whole: _Whole

    @classmethod
    def of(cls, file: Any) -> Upload:
        """Return the upload that ends in a file of fsspec's, opened for writing."""
        whole = _Whole(file)
        made = cls(whole, mode="w")
        made._whole = whole
        return made

    def discard(self) -> None:
        """Give the upload up: no object appears, and no parts stay. What is written from then on goes nowhere.

        Does nothing once the file is closed.
        """
        self._whole.discard()


def discard(sink: pa.NativeFile) -> None:
    """Make sure that no object comes of a file when it is closed."""
    if isinstance(sink, Upload):
        sink.discard()


class _Whole:
    """The file object that pyarrow writes to."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._given_up = False
        self.closed = False

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        return int(self._file.tell())

    def flush(self) -> None:
        """Do nothing: parts are sent when they are large enough."""

    def write(self, data: Any) -> int:
        if self._given_up:
            return len(data)
        try:
            return int(self._file.write(data))
        except BaseException:
            self.discard()
            raise

    def close(self) -> None:
        if not (self.closed or self._given_up):
            try:
                self._file.close()
            except BaseException:
                self.discard()
                raise
        self.closed = True

    def discard(self) -> None:
        if self.closed or self._given_up:
            return
        self._given_up = True
        # What cannot be given up is left to the store's own rules for old uploads.
        wait_briefly(self._abort)
        # Or its package would finish it as soon as it is collected.
        with suppress(AttributeError):
            self._file.closed = True

    def _abort(self) -> None:
        self._file.discard()

    # A file that is neither closed nor discarded, as after an error in between, must not become an object.
    def __del__(self) -> None:
        self.discard()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file found by :meth:`Storage.list`: full path in the form of the prefix, bytes, time of last change (UTC)."""

    path: str
    size: int
    modified: datetime | None


def list_local(directory: str) -> Iterator[StoredFile]:
    """List files on local disk."""
    for entry in files_below(directory):
        facts = entry.stat()
        yield StoredFile(path=entry.path, size=facts.st_size, modified=datetime.fromtimestamp(facts.st_mtime, UTC))


def list_directories(filesystem: fsspec.AbstractFileSystem, inside: str, prefix: str) -> Iterator[StoredFile]:
    """List files in a store whose package lists a directory at a time."""
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
    """List files in S3 without regard to directories: s3fs would hold a whole directory, and make a request for each."""
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
            raise OSError(f"the store reports more objects below {inside}, but no token to continue the listing")


def _modified(info: Mapping[str, Any]) -> datetime | None:
    """Return the time of last change under whichever name the store's package gives it."""
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
