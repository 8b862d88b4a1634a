"""Default timeouts and retry counts of object stores, and the errors that are worth a retry."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from typing import Any

CONNECT_SECONDS, READ_SECONDS, CALL_SECONDS = 10, 15, 120
ATTEMPTS = 2

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
    """A call took longer than its limit. No TimeoutError, which packages of stores retry."""


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


_EXPIRED = ("ExpiredToken", "token has expired", "TokenRefreshRequired", "AuthenticationFailed: Signature not valid in the specified time")
_THROTTLED = ("SlowDown", "reduce your request rate", "ServerBusy", "TooManyRequests", "Throttling", "RequestLimitExceeded")
_TIMED_OUT = ("RequestTimeout", "ConnectTimeout", "ReadTimeout", "EndpointConnectionError", "ServiceUnavailable", "OperationTimedOut")
_STATUS = {429: "throttled", 503: "throttled", 408: "silent", 500: "silent", 502: "silent", 504: "silent"}
_TIMEOUT_ERRNOS = {errno.ETIMEDOUT, errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH, errno.ENETUNREACH}
_ADVICE = {
    "expired": "renew the credentials, or leave them out so that the provider chain of the store renews them",
    "throttled": "retry later, with fewer writers at a time",
    "silent": "check that the store is reachable and retry; the storage options for timeouts are in docs/object-stores.md",
}


def retry_advice(error: BaseException) -> str | None:
    """Return what to do about a store's error that may pass: timeouts, throttling, expired credentials; None for any other error."""
    return next((_ADVICE[kind] for one in _chain(error) if (kind := _kind(one)) is not None), None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    found: BaseException | None = error
    while found is not None and found not in seen:
        seen.append(found)
        yield found
        found = found.__cause__ or found.__context__


def _kind(error: BaseException) -> str | None:
    text = f"{type(error).__name__}: {error}"
    if any(word in text for word in _EXPIRED):
        return "expired"
    if any(word in text for word in _THROTTLED):
        return "throttled"
    if isinstance(error, TimeoutError | ConnectionError | TimeLimitError) or any(word in text for word in _TIMED_OUT):
        return "silent"
    if isinstance(error, OSError) and error.errno in _TIMEOUT_ERRNOS:
        return "silent"
    status = getattr(error, "status_code", None) or getattr(error, "code", None)
    return _STATUS.get(status) if isinstance(status, int) else None
