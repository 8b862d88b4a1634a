"""How often work on a catalog is tried again when others are in the way, and how long it waits in between."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ducklake_core.catalog.database.failures import Failure, classify, is_blocked_by_readers

if TYPE_CHECKING:
    from tenacity import RetryCallState, Retrying


READERS_SECONDS = 10.0
"""Maximum seconds for which a write to a SQLite file waits for open read transactions, in all of its attempts. DuckDB waits 5 seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """A limit of tries, and pauses between them that grow up to a longest one.

    Attributes:
        tries: How often the work is done at most, the first time included.
        first_pause: Seconds to wait after the first failure, before jitter.
        growth: By how much each pause is longer than the one before.
        longest_pause: Seconds that no pause exceeds.
        jitter: Share of a pause that is left to chance, so that writers who met once do not meet again:
            with 0.5 half to all of it is waited, with 1 nothing to all of it.
    """

    tries: int
    first_pause: float
    growth: float
    longest_pause: float
    jitter: float

    def pause(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row (1 after the first)."""
        whole = min(self.first_pause * self.growth ** (failures - 1), self.longest_pause)
        return whole * random.uniform(1.0 - self.jitter, 1.0)  # noqa: S311

    def retrying(self, *failures: Failure) -> Retrying:
        """A loop that repeats a call while it fails in one of these ways; after the last try it raises tenacity's ``RetryError``."""
        from tenacity import Retrying, retry_if_exception, stop_after_attempt

        def readers_stay(state: RetryCallState) -> bool:
            error = state.outcome.exception() if state.outcome is not None else None
            return is_blocked_by_readers(error) and (state.seconds_since_start or 0) >= READERS_SECONDS

        return Retrying(
            retry=retry_if_exception(lambda error: classify(error) in failures),
            stop=lambda state: stop_after_attempt(self.tries)(state) or readers_stay(state),
            wait=lambda state: self.pause(state.attempt_number),
        )


COMMIT_RETRIES = RetryPolicy(tries=25, first_pause=0.02, growth=1.5, longest_pause=2.0, jitter=0.5)
"""Attempts of one commit: short transactions that lose against another writer, or find the database away."""

REPLAN_RETRIES = RetryPolicy(tries=60, first_pause=0.03, growth=1.5, longest_pause=0.5, jitter=0.7)
"""Plans of one transaction, which finds its rows again after each conflict: that takes long by itself, so pauses stay short."""

MAINTENANCE_RETRIES = RetryPolicy(tries=12, first_pause=0.05, growth=2.0, longest_pause=2.0, jitter=1.0)
"""Transactions of maintenance verbs and settings, which nobody waits for."""
