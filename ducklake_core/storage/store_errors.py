"""Classify errors of stores: the store's error code, whether the error is permanent or transient, and what to do."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass

from ducklake_core.storage.timeouts import TimeLimitError

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
_UNREACHABLE = "check that the store is reachable and retry; docs/object-stores.md lists the storage options for timeouts"
_PERMANENT = (
    (_BUCKET, "the bucket or container does not exist: create it, or correct the data path"),
    (_KEYS, "the store does not accept the credentials: correct the keys in storage_options, or in the environment"),
    (_RIGHTS, "the store does not allow it: give these credentials the right to do so"),
    (_REGION, "the bucket is in another region: set the region in storage_options"),
)
_TRANSIENT = ((_EXPIRED, _RENEW), (_THROTTLED, "retry later, with fewer writers at a time"), (_SILENT, _UNREACHABLE))
_MAX_CAUSES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreErrorKind:
    """Classification of one error.

    Attributes:
        code: Error code of the store, such as ``NoSuchBucket``, or name of the operating system's error, such as ``EACCES``; None when
            neither is known.
        permanent: Whether the same call fails again until the store, the path or the credentials change.
        transient: Whether the same call may succeed later: timeouts, throttling and expired credentials. Unknown errors are neither.
        advice: What to do, None when the error does not tell.
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
