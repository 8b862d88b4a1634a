"""Options, timeouts and paths of stores, and a classification of their errors."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.files.paths import AzurePath, local_part, printable

_SECRET_PART = re.compile(r"(?:AccountKey|SharedAccessSignature|(?<![a-z])sig)=([^;&]+)", re.IGNORECASE)

ATTEMPTS = 2

_PERMANENT_ERRNOS = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP}
)
_BUCKET = frozenset({"NoSuchBucket", "ContainerNotFound", "InvalidBucketName", "FilesystemNotFound"})
_KEYS = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "AuthorizationHeaderMalformed", "AuthenticationFailed", "InvalidAuthenticationInfo",
     "NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "NoAuthenticationInformation", "ClientAuthenticationError",
     "DefaultCredentialsError", "RefreshError", "401", "Unauthorized", "NotSignedUp"}
)  # fmt: skip
_RIGHTS = frozenset(
    {"AccessDenied", "AllAccessDisabled", "AccountProblem", "AccountIsDisabled", "AuthorizationFailure", "AuthorizationPermissionMismatch",
     "InsufficientAccountPermissions", "PublicAccessNotPermitted", "403", "Forbidden"}
)  # fmt: skip
_REGION = frozenset({"PermanentRedirect", "IllegalLocationConstraintException", "301"})
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"})
_THROTTLED = frozenset(
    {"SlowDown", "ServerBusy", "TooManyRequests", "Throttling", "ThrottlingException", "RequestLimitExceeded", "429", "503"}
)
_SILENT = frozenset(
    {"RequestTimeout", "ServiceUnavailable", "OperationTimedOut", "InternalError", "ConnectTimeoutError", "ReadTimeoutError",
     "EndpointConnectionError", "ConnectionClosedError", "ServiceRequestError", "ServiceResponseError", "408", "500", "502", "504"}
)  # fmt: skip
_SILENT_ERRNOS = frozenset({errno.ETIMEDOUT, errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH, errno.ENETUNREACH})
_CLASSES = _KEYS | _SILENT
# Azure reports an expired signature under the code of a wrong one, and some packages drop the code.
_EXPIRED_MESSAGES = ("token has expired", "Signature not valid in the specified time")
_BOTOCORE_MESSAGE = re.compile(r"An error occurred \((\w+)\)")
_RENEW = "renew the credentials, or leave them out so that the provider chain of the store renews them"
_UNREACHABLE = "check that the store is reachable and retry; for longer time limits, set call_timeout or read_timeout in storage_options"
_PERMANENT = (
    (_BUCKET, "the bucket or container does not exist: create it, or correct the data path"),
    (_KEYS, "the store does not accept the credentials: correct the keys in storage_options, or in the environment"),
    (_RIGHTS, "the store does not allow it: give these credentials the right to do so"),
    (_REGION, "the bucket is in another region: set the region in storage_options"),
)
_TRANSIENT = ((_EXPIRED, _RENEW), (_THROTTLED, "retry later, with fewer writers at a time"), (_SILENT, _UNREACHABLE))
_MAX_CAUSES = 10


def is_no_path(path: str) -> bool:
    """Return whether no file can be called like that, as the operating system has no bytes for it.

    >>> is_no_path("/lake/x"), is_no_path("/lake/x\\0y"), is_no_path("/lake/\\ud800")
    (False, True, True)
    """
    try:
        return b"\0" in os.fsencode(path)
    except UnicodeEncodeError:
        return True


def identity(path: str) -> tuple[int, int] | None:
    """Return a key that all paths of one file share, through links and letter case; None for a missing file."""
    with suppress(OSError, ValueError):
        found = os.stat(local_part(path))
        return found.st_dev, found.st_ino
    return None


def opened(path: str) -> pa.NativeFile | None:
    """Return a file for random reads, or None after any error."""
    with suppress(OSError, ValueError):
        return pafs.LocalFileSystem().open_input_file(local_part(path))
    return None


def was_unlinked(path: str) -> bool:
    """Delete a file. Return False after any error."""
    with suppress(OSError, ValueError):
        os.unlink(local_part(path))
        return True
    return False


def remove_empty_directories(directory: str) -> None:
    """Remove the empty directories below a directory."""
    for root, _, _ in os.walk(directory, topdown=False):
        if root.rstrip("/") != directory.rstrip("/"):
            # It is not empty.
            with suppress(OSError):
                os.rmdir(root)


def files_below(directory: str) -> Iterator[os.DirEntry[str]]:
    """Yield all files below a directory, sorted within each directory; none if it is missing. Links to directories count as files."""
    pending = [directory]
    while pending:
        try:
            # A directory may be deleted while the ones around it are listed.
            entries = sorted(os.scandir(pending.pop()), key=lambda entry: entry.name)
        except FileNotFoundError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
            else:
                yield entry


def with_account(options: Mapping[str, Any], path: AzurePath) -> dict[str, Any]:
    """Return options with the account that the path names, where neither they nor the environment name one."""
    named = ("account_name", "connection_string")
    known = any(options.get(name) or os.environ.get(f"AZURE_STORAGE_{name.upper()}") for name in named)
    return {**options} if known or not path.account else {**options, "account_name": path.account}


def check_account(filesystem: Any, path: AzurePath, full_path: str) -> None:
    """Reject a path that names a file of one account in another, where a file of that name may be as well.

    Raises:
        UnsupportedFeatureError: The path names an account that is not the file system's.
    """
    mine = getattr(filesystem.service_client, "account_name", None)
    if path.account and mine and path.account != mine.lower():
        raise UnsupportedFeatureError(
            f"{printable(full_path)} is in the account {path.account}, but the storage options are for the account {mine}; connect with "
            "options of its own account",
            path=printable(full_path),
        )


def secret_parts(text: str) -> Iterator[str]:
    """Yield secrets within a connection string or a signature, as errors may show them without the rest.

    >>> list(secret_parts("AccountName=me;AccountKey=a2V5LWtleQ==;")), list(secret_parts("?sv=1&sig=a%2Fb"))
    (['a2V5LWtleQ=='], ['a%2Fb', 'a/b'])
    """
    for found in _SECRET_PART.findall(text):
        yield found
        yield from secret_parts(found)
        if unquote(found) != found:
            yield unquote(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreErrorKind:
    """Classification of one error.

    Attributes:
        code: Error code of the store, such as ``NoSuchBucket``, or name of the operating system's error, such as ``EACCES``; None when
            neither is known.
        permanent: Whether the same call fails again until the store, the path or the credentials change.
        transient: Whether the same call may succeed later: timeouts, throttling and expired credentials. Unknown errors are neither.
        advice: What to do, None when the error does not state it.
    """

    code: str | None = None
    permanent: bool = False
    transient: bool = False
    advice: str | None = None


def classify_store_error(error: BaseException) -> StoreErrorKind:
    """Classify an error of a file system or of a store's package, by its code or class.

    >>> classify_store_error(NotADirectoryError(errno.ENOTDIR, "Not a directory")).code
    'ENOTDIR'
    >>> classify_store_error(TimeoutError()).transient
    True
    """
    causes = _causes(error)
    codes = [code for one in causes if (code := _code(one)) is not None]
    # Before the codes: an expired signature has the code of wrong keys, which would be permanent.
    if any(message in str(one) for one in causes for message in _EXPIRED_MESSAGES):
        return StoreErrorKind(code=codes[0] if codes else None, transient=True, advice=_RENEW)
    for code in codes:
        for known, advice in _PERMANENT:
            if code in known:
                return StoreErrorKind(code=code, permanent=True, advice=advice)
        for known, advice in _TRANSIENT:
            if code in known:
                return StoreErrorKind(code=code, transient=True, advice=advice)
    number = next((one.errno for one in causes if isinstance(one, OSError) and one.errno), None)
    code = codes[0] if codes else None if number is None else errno.errorcode.get(number, str(number))
    if number in _SILENT_ERRNOS or any(isinstance(one, TimeoutError | ConnectionError | TimeLimitError) for one in causes):
        return StoreErrorKind(code=code, transient=True, advice=_UNREACHABLE)
    return StoreErrorKind(code=code, permanent=not codes and number in _PERMANENT_ERRNOS)


def _causes(error: BaseException) -> list[BaseException]:
    """Return an error and what caused it: packages wrap the store's answer in errors of Python."""
    found: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in found and len(found) < _MAX_CAUSES:
        found.append(one)
        one = one.__cause__ or one.__context__
    return found


def _code(error: BaseException) -> str | None:
    response = getattr(error, "response", None)
    if isinstance(response, dict) and isinstance(response.get("Error"), dict):
        # botocore
        return str(response["Error"].get("Code", "")) or None
    named = getattr(error, "error_code", None)
    if named:
        # azure: an enumeration whose value is the code
        return str(getattr(named, "value", named))
    if type(error).__name__ in _CLASSES:
        return type(error).__name__
    status = getattr(error, "status_code", None) or (type(error).__module__.startswith("gcsfs") and getattr(error, "code", None))
    if status:
        return str(status)
    found = _BOTOCORE_MESSAGE.search(str(error))
    return found and found[1]


CONNECT_SECONDS, READ_SECONDS, CALL_SECONDS = 10, 15, 120

_S3_CONFIG = {
    "connect_timeout": CONNECT_SECONDS,
    "read_timeout": READ_SECONDS,
    "retries": {"mode": "standard", "total_max_attempts": 2},
}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "s3": {"call_timeout": CALL_SECONDS, "call_attempts": ATTEMPTS},
    "gs": {"requests_timeout": READ_SECONDS},
    "abfs": {"connection_timeout": CONNECT_SECONDS, "read_timeout": READ_SECONDS},
}


class TimeLimitError(OSError):
    """A call took longer than its limit. It is not a TimeoutError, because packages of stores retry those."""


def with_timeouts(protocol: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with defaults for timeouts and retries that they do not set.

    >>> with_timeouts("gs", {"project": "p"}), with_timeouts("gs", {"requests_timeout": 5})
    ({'requests_timeout': 15, 'project': 'p'}, {'requests_timeout': 5})
    >>> with_timeouts("s3", {"config_kwargs": {"read_timeout": 3}})["config_kwargs"]["read_timeout"]
    3
    """
    found = _DEFAULTS.get(protocol, {}) | dict(options)
    if protocol == "s3":
        found["config_kwargs"] = _S3_CONFIG | dict(options.get("config_kwargs") or {})
    return found
