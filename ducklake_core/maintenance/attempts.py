"""Repeat a short catalog transaction while other writers are in the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tenacity import RetryError

from ducklake_core.catalog.database.retries import MAINTENANCE_RETRIES
from ducklake_core.errors import CatalogError, CommitRetriesExhaustedError

T = TypeVar("T")


def run_write(attempt: Callable[[], T], what: str) -> T:
    """Run a transaction that may be repeated as a whole, until it commits.

    Only for transactions that find nothing left to do when an earlier attempt did commit.

    Raises:
        CommitRetriesExhaustedError: Other writers were in the way every time.
    """
    policy = MAINTENANCE_RETRIES
    try:
        return policy.retrying("retry", "unavailable", "outcome-unknown")(attempt)
    except RetryError as error:
        last = error.last_attempt.exception()
        cause = last.message if isinstance(last, CatalogError) else str(last)
        raise CommitRetriesExhaustedError(
            f"could not {what} in {error.last_attempt.attempt_number} attempts ({cause}); try again later"
        ) from last
