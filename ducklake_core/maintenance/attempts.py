"""Repeat a short catalog transaction while other writers are in the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tenacity import RetryError, Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from ducklake_core.catalog.database import classify
from ducklake_core.errors import CatalogError, CommitRetriesExhaustedError

T = TypeVar("T")

_ATTEMPTS = 12


def run_write(attempt: Callable[[], T], what: str) -> T:
    """Run a transaction that may be repeated as a whole, until it commits.

    Only for transactions that find nothing left to do when an earlier attempt did commit.

    Raises:
        CommitRetriesExhaustedError: Other writers were in the way every time.
    """
    retrying = Retrying(
        retry=retry_if_exception(lambda error: classify(error) in ("retry", "unavailable", "outcome-unknown")),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.05, max=2),
    )
    try:
        return retrying(attempt)
    except RetryError as error:
        last = error.last_attempt.exception()
        cause = last.message if isinstance(last, CatalogError) else str(last)
        raise CommitRetriesExhaustedError(f"could not {what} in {_ATTEMPTS} attempts ({cause}); try again later") from last
