"""Access to files: local disk through pyarrow itself, object stores through fsspec."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import fsspec
import pyarrow as pa
import pyarrow.fs as pafs

from ducklake_core.errors import DuckLakeError, NotFoundError, StorageError, StoreUnavailableError, UnsupportedFeatureError, UsageError
from ducklake_core.format.files.paths import azure_path, canonical_protocol, is_relative_to_process, local_part, printable, protocol_of
from ducklake_core.format.types.text import similar_in_brackets
from ducklake_core.storage.stores import (
    check_account,
    classify_store_error,
    identity,
    is_no_path,
    opened,
    remove_empty_directories,
    secret_parts,
    was_unlinked,
    with_account,
    with_timeouts,
)
from ducklake_core.storage.uploads import StoredFile, Upload, list_directories, list_local, list_s3, wait_briefly

__all__ = ["Deletion", "Storage", "StorageOptions", "canonical_protocol", "printable", "protocol_of"]

Found = TypeVar("Found")

_EXTRAS = {"s3": "s3", "gs": "gcs", "abfs": "azure"}
_AT_ONCE = 16
_LOCAL_FILES = 16
_MISSING = "it is missing"
# These answer from remembered listings whether a file is there, and other writers make files all the time.
_UNREMEMBERED = {"use_listings_cache": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageOptions:
    """Options of object stores by protocol.

    Without options, each store uses its own chain of credential providers (environment, profile, instance role). Prefer it for long
    jobs, because it renews credentials that expire. Options are sent to executors; their values are masked in every repr and message.

    Attributes:
        by_protocol: fsspec arguments by protocol, such as ``{"s3": {"endpoint_url": ...}}``. Aliases such as ``s3a`` count as their store.
    """

    by_protocol: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        # Values may be secrets, so no message repeats them.
        given: object = self.by_protocol
        if not isinstance(given, Mapping) or not all(isinstance(key, str) and isinstance(one, Mapping) for key, one in given.items()):
            raise UsageError(
                "storage_options must be a mapping from protocols to mappings of options, such as {'s3': {'key': ..., 'secret': ...}}",
                parameter="storage_options",
            )

    def for_protocol(self, protocol: str) -> dict[str, Any]:
        """Return the arguments of one protocol; empty without options."""
        wanted = canonical_protocol(protocol)
        return {
            name: value
            for given, options in self.by_protocol.items()
            if canonical_protocol(given) == wanted
            for name, value in options.items()
        }

    def redact(self, text: str) -> str:
        """Return a string with every option value of six or more characters masked, also in percent-encoded form.

        >>> StorageOptions(by_protocol={"s3": {"key": "AKIA-me", "secret": "hush-hush"}}).redact("denied: hush-hush")
        'denied: ***'
        """
        secrets = {spelled for secret in _strings(self.by_protocol) for spelled in (secret, quote(secret), quote(secret, safe=""))}
        for secret in sorted(secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def __repr__(self) -> str:
        names = {protocol: sorted(options) for protocol, options in self.by_protocol.items()}
        return f"StorageOptions({names})"


def _strings(value: object) -> Iterator[str]:
    match value:
        case str() if len(value) >= 6:
            yield value
            yield from secret_parts(value)
        case Mapping():
            for inner in value.values():
                yield from _strings(inner)
        case list() | tuple():
            for inner in value:
                yield from _strings(inner)
        case _:
            pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """The outcome of :meth:`Storage.delete`.

    Attributes:
        deleted: Deleted paths.
        missing: Paths that did not exist, which counts as success.
        failed: Paths that could not be deleted, each with the reason.
    """

    deleted: tuple[str, ...]
    missing: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Access to the files of a lake. It is picklable, so that executors use the same stores as the driver."""

    options: StorageOptions = field(default_factory=StorageOptions)

    def filesystem(self, path: str) -> tuple[fsspec.AbstractFileSystem, str]:
        """Return the fsspec file system of a path, and the path inside it.

        Raises:
            UnsupportedFeatureError: The package for that protocol is not installed.
            StorageError: The package rejects the options.
        """
        protocol = protocol_of(path)
        options = self.options.for_protocol(protocol)
        azure = azure_path(path) if protocol == "abfs" else None
        if azure is not None:
            options = with_account(options, azure)
        try:
            kind = _class_of(protocol)
        except (ImportError, ValueError) as error:
            extra = _EXTRAS.get(protocol)
            advice = f"install ducklake-dagster[{extra}]" if extra else "install an fsspec package for it"
            near = similar_in_brackets(protocol, _EXTRAS)
            raise UnsupportedFeatureError(
                f"paths that begin with {protocol}://{near} cannot be opened on this machine: {advice}", protocol=protocol
            ) from error
        with self.reporting("reach the store of", path):
            filesystem = kind(**(_UNREMEMBERED | with_timeouts(protocol, options) if protocol in _EXTRAS else options))
        if azure is not None:
            check_account(filesystem, azure, path)
            return filesystem, azure.inner
        # Packages do not know every name of their protocol.
        known = f"{protocol}://{path.partition('://')[2]}" if protocol in _EXTRAS else path
        return filesystem, str(kind._strip_protocol(known))  # noqa: SLF001 - fsspec's documented way has no public name

    def open_input(self, path: str) -> pa.NativeFile:
        """Return the file for random reads.

        Raises:
            NotFoundError: There is no such file.
            StorageError: The file cannot be opened.
        """
        # Errors are classified only after a failure: the context manager that does it costs as much as opening a local file.
        if protocol_of(path) == "file" and (file := opened(path)) is not None:
            return file
        with self._reading("open", path):
            if protocol_of(path) == "file":
                return pafs.LocalFileSystem().open_input_file(local_part(path))
            filesystem, inside = self.filesystem(path)
            # pyarrow's own wrapper checks first whether the path is a file, and takes a store that does not answer for a no.
            return pa.PythonFile(_confirmed(filesystem, lambda: filesystem.open(inside, "rb")), mode="r")

    def open_output(self, path: str) -> pa.NativeFile:
        """Return a new file for writing. On local disk, missing directories are created.

        To abandon an unfinished file, call :func:`ducklake_core.storage.uploads.discard`.

        Raises:
            StorageError: The file cannot be created.
        """
        with self.reporting("create", path):
            if protocol_of(path) == "file":
                inside = local_part(path)
                # A purge may remove an empty directory before the file is created.
                with suppress(FileNotFoundError):
                    return _new_local(inside)
                return _new_local(inside)
            filesystem, inside = self.filesystem(path)
            return Upload.of(filesystem.open(inside, "wb"))

    def size(self, path: str) -> int:
        """Return the size of a file in bytes.

        Raises:
            NotFoundError: There is no such file.
            StorageError: The store does not answer.
        """
        with self._reading("check the size of", path):
            if protocol_of(path) == "file":
                return Path(local_part(path)).stat().st_size
            filesystem, inside = self.filesystem(path)
            return int(_confirmed(filesystem, lambda: filesystem.size(inside)))

    def exists(self, path: str) -> bool:
        """Return whether a file (or, on local disk, a directory) has the path.

        Raises:
            StorageError: The store does not answer.
        """
        with self.reporting("look for", path):
            if protocol_of(path) == "file":
                return Path(local_part(path)).exists()
            filesystem, inside = self.filesystem(path)
            return bool(filesystem.exists(inside))

    def identity(self, path: str) -> object | None:
        """Return a key that all paths of one local file share. None for missing files and for object stores."""
        return identity(path) if protocol_of(path) == "file" else None

    def list(self, prefix: str) -> Iterator[StoredFile]:
        """Yield all files below a directory; none if it is missing. S3 is listed page by page, other stores by directory.

        Raises:
            StorageError: The store does not answer, or a directory cannot be read.
        """
        found = list_local(local_part(prefix)) if protocol_of(prefix) == "file" else self._list_remote(prefix)
        while True:
            with self.reporting("list", prefix):
                file = next(found, None)
            if file is None:
                return
            yield file

    def _list_remote(self, prefix: str) -> Iterator[StoredFile]:
        filesystem, inside = self.filesystem(prefix)
        # Another writer's files may be newer than what a package remembers of a listing.
        filesystem.invalidate_cache()
        listed = list_s3 if protocol_of(prefix) == "s3" else list_directories
        yield from listed(filesystem, inside, prefix)

    def delete(self, paths: Iterable[str]) -> Deletion:
        """Delete files. A missing file counts as success, and a failure does not stop the others."""
        every = list(paths)
        # A disk keeps one thread waiting most of the time; giving a thread a path takes as long as the disk does.
        is_local = all(protocol_of(path) == "file" for path in every)
        size = max(_LOCAL_FILES, -(-len(every) // _AT_ONCE)) if is_local else 1
        parts = [every[start : start + size] for start in range(0, len(every), size)]
        if len(parts) > 1:
            with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(parts)), thread_name_prefix="deletes") as pool:
                outcomes = [one for part in pool.map(lambda part: [*map(self._outcome, part)], parts) for one in part]
        else:
            outcomes = [*map(self._outcome, every)]
        found = list(zip(every, outcomes, strict=True))
        return Deletion(
            deleted=tuple(path for path, outcome in found if outcome is None),
            missing=tuple(path for path, outcome in found if outcome is _MISSING),
            failed=tuple((path, outcome) for path, outcome in found if outcome is not None and outcome is not _MISSING),
        )

    def remove_empty_directories(self, path: str) -> None:
        """Remove the empty directories below a directory, on local disk only: object stores have none.

        Raises:
            StorageError: A directory cannot be read.
        """
        if protocol_of(path) == "file":
            with self.reporting("remove empty directories of", path):
                remove_empty_directories(local_part(path))

    def discard(self, paths: Iterable[str]) -> None:
        """Delete uncommitted files after an error or an interruption.

        Waits at most 10 seconds for an object store, and ignores failures: ``delete_orphaned_files`` finds the files.
        """
        every = list(paths)
        # Local deletes are fast and certain; those in a store run in the background if it does not answer in time.
        remote = [path for path in every if protocol_of(path) != "file"]
        self.delete(path for path in every if protocol_of(path) == "file")
        shares = [remote[start::_AT_ONCE] for start in range(min(_AT_ONCE, len(remote)))]
        wait_briefly(*(partial(list, map(self._outcome, share)) for share in shares))

    def _outcome(self, path: str) -> str | None:
        """Return None for a file that is deleted now, ``_MISSING``, or why it is still there."""
        if self._unlinked(path):
            return None
        try:
            with self._reading("delete", path):
                self._delete_one(path)
        except NotFoundError:
            return _MISSING
        except (StorageError, UnsupportedFeatureError) as error:
            return error.message
        return None

    def _unlinked(self, path: str) -> bool:
        """Return whether a local file was deleted just now; :meth:`_delete_one` finds out why not, as classifying errors is slow."""
        return protocol_of(path) == "file" and was_unlinked(path)

    def _delete_one(self, path: str) -> None:
        if protocol_of(path) == "file":
            Path(local_part(path)).unlink()
            return
        filesystem, inside = self.filesystem(path)
        # Stores answer a delete of nothing with success, so only a check before the delete distinguishes the two.
        if not filesystem.exists(inside):
            raise FileNotFoundError(path)
        filesystem.rm_file(inside)

    @contextmanager
    def reporting(self, action: str, path: str) -> Iterator[None]:
        """Convert errors of stores inside the block to a StorageError that names the path and masks secrets.

        Args:
            action: Attempted operation for the message, such as "write" or "list".
            path: Path of the operation.
        """
        try:
            yield
        except Exception as error:
            if not _from_store(error) and not (isinstance(error, ValueError) and is_no_path(path)):
                raise
            reason = self.options.redact(f"{type(error).__name__}: {error}")
            where = self.options.redact(printable(path))
            kind = classify_store_error(error)
            advice = kind.advice or _option_advice(error) or _ADVICE.get(type(error).__name__, _COMMON_ADVICE)
            message = f"cannot {action} {where}: {reason}; {advice}"
            raised = StoreUnavailableError if kind.transient else StorageError
            reported = raised(message, path=where, store_error=kind.code, permanent=kind.permanent)
            cause = self._cause(error)
            try:
                raise reported from cause
            except StorageError:
                # Python stores the handled error as the context, even when another cause is given.
                reported.__context__ = cause
                raise

    @contextmanager
    def _reading(self, action: str, path: str) -> Iterator[None]:
        with self.reporting(action, path):
            try:
                yield
            except FileNotFoundError as error:
                if classify_store_error(error).permanent:
                    # The bucket is missing, and not only the file.
                    raise
                raise NotFoundError(f"there is no file {printable(path)}{_searched_place(path)}", path=printable(path)) from error

    def _cause(self, error: BaseException) -> BaseException | None:
        # An error whose text, or whose own cause, holds a secret would carry it into the traceback.
        seen: list[BaseException] = []
        pending = [error]
        while pending:
            one = pending.pop()
            text = f"{one!r}{one}"
            if self.options.redact(text) != text:
                return None
            seen.append(one)
            pending += [other for other in (one.__cause__, one.__context__) if other is not None and other not in seen]
        return error


def _new_local(inside: str) -> pa.NativeFile:
    Path(inside).parent.mkdir(parents=True, exist_ok=True)
    return pafs.LocalFileSystem().open_output_stream(inside)


def _searched_place(path: str) -> str:
    """Name the working directory for a relative path, and what to do where the lake was written from another one."""
    if not is_relative_to_process(path):
        return ""
    try:
        directory = f"the working directory {Path.cwd()}"
    except OSError:
        directory = "the working directory, which was deleted"
    return (
        f" in {directory}: the data_path of this lake is relative. If the files were written from another directory, run there, or connect "
        "with override_data_path=True and the absolute data_path"
    )


def _class_of(protocol: str) -> Any:
    """Return the class of a protocol's file systems."""
    kind = fsspec.get_filesystem_class(protocol)
    if protocol != "s3":
        return kind
    from ducklake_core.storage.limited_s3 import LimitedS3FileSystem

    return LimitedS3FileSystem


_COMMON_ADVICE = "check the path, the permissions and the credentials"
_ADVICE = {
    "FlexibleChecksumError": "if the server answers parts of an object with the checksum of the whole one, as some other makes do, set the "
    "storage option config_kwargs={'response_checksum_validation': 'when_required'}"
}


def _option_advice(error: Exception) -> str | None:
    """Return what to do about a storage option that the package of the store does not know."""
    unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error)) if isinstance(error, TypeError) else None
    return None if unknown is None else f"correct or remove {unknown[1]!r} in storage_options"


_STORE_PACKAGES = frozenset({"aiobotocore", "aiohttp", "azure", "adlfs", "botocore", "fsspec", "gcsfs", "google", "s3fs"})


def _from_store(error: Exception) -> bool:
    """Return whether an error comes from a store rather than from this library or a mistake in it."""
    if isinstance(error, DuckLakeError):
        return False
    if isinstance(error, OSError | pa.ArrowException) or type(error).__module__.partition(".")[0] in _STORE_PACKAGES:
        return True
    # adlfs raises RuntimeError for a failed upload, and ValueError for options that it cannot work with.
    *_, (last, _) = traceback.walk_tb(error.__traceback__)
    return str(last.f_globals.get("__name__")).partition(".")[0] in _STORE_PACKAGES


def _confirmed(filesystem: fsspec.AbstractFileSystem, check: Callable[[], Found]) -> Found:
    """Return the answer, after a second request if a file is missing: gateways of overloaded stores answer 404 for a moment."""
    try:
        return check()
    except FileNotFoundError:
        filesystem.invalidate_cache()
        return check()
