"""Default timeouts and retry counts of object stores."""

from __future__ import annotations

from collections.abc import Mapping
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
