"""Classify what stores raise: the store's own error code, whether repeating the call may help, and what to do."""

from __future__ import annotations

import errno
from dataclasses import dataclass

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
_ADVICE = (
    (_BUCKET, "the bucket or container does not exist: create it, or correct the data path"),
    (_KEYS, "the store does not accept the credentials: correct the keys in storage_options, or in the environment"),
    (_RIGHTS, "the store does not allow it: give these credentials the right to do so"),
    (_REGION, "the bucket is in another region: set the region in storage_options"),
)
_MAX_CAUSES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreErrorKind:
    """Classification of one error.

    Attributes:
        code: Error code of the store, such as ``NoSuchBucket``, or name of the operating system's error, such as ``EACCES``; None when
            neither is known.
        permanent: Whether the same call fails again until somebody changes the store, the path or the credentials.
        advice: What to do, None when the code does not tell.
    """

    code: str | None = None
    permanent: bool = False
    advice: str | None = None


def classify_store_error(error: BaseException) -> StoreErrorKind:
    """Classify an error of a file system or of a store's package, by its code and never by its text.

    >>> classify_store_error(NotADirectoryError(errno.ENOTDIR, "Not a directory")).code
    'ENOTDIR'
    >>> classify_store_error(TimeoutError()).permanent
    False
    """
    codes = [code for one in _causes(error) if (code := _code(one)) is not None]
    for code in codes:
        for known, advice in _ADVICE:
            if code in known:
                return StoreErrorKind(code=code, permanent=True, advice=advice)
    if codes:
        return StoreErrorKind(code=codes[0])
    number = next((one.errno for one in _causes(error) if isinstance(one, OSError) and one.errno), None)
    if number is None:
        return StoreErrorKind()
    return StoreErrorKind(code=errno.errorcode.get(number, str(number)), permanent=number in _PERMANENT_ERRNOS)


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
    if type(error).__module__.partition(".")[0] == "gcsfs" and getattr(error, "code", None):
        return str(error.code)  # type: ignore[attr-defined]
    return type(error).__name__ if type(error).__name__ in _KEYS else None
