"""Tries and pauses of work on a catalog."""

from __future__ import annotations

import random

import pytest
from tenacity import RetryError

from ducklake_core.catalog.database.failures import COMMIT_RETRIES, MAINTENANCE_RETRIES, REPLAN_RETRIES, RetryPolicy
from ducklake_core.errors import CatalogUnavailableError, CommitConflictError


def test_pauses_grow_up_to_the_longest() -> None:
    policy = RetryPolicy(tries=9, first_pause=0.1, growth=2.0, longest_pause=0.5, jitter=0.0)
    assert [policy.pause(failures) for failures in (1, 2, 3, 4, 60)] == pytest.approx([0.1, 0.2, 0.4, 0.5, 0.5])


@pytest.mark.parametrize("policy", [COMMIT_RETRIES, REPLAN_RETRIES, MAINTENANCE_RETRIES], ids=["commit", "replan", "maintenance"])
def test_jitter_is_the_share_left_to_chance(policy: RetryPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    for failures in range(1, policy.tries + 1):
        whole = min(policy.first_pause * policy.growth ** (failures - 1), policy.longest_pause)
        monkeypatch.setattr(random, "uniform", lambda least, _: least)
        assert policy.pause(failures) == pytest.approx(whole * (1 - policy.jitter))
        monkeypatch.setattr(random, "uniform", lambda _, most: most)
        assert policy.pause(failures) == pytest.approx(whole)


def test_only_the_failures_that_are_named_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[int] = []
    monkeypatch.setattr(RetryPolicy, "pause", lambda _, failures: pauses.append(failures) or 0.0)
    calls: list[Exception] = []

    def fail(error: Exception) -> None:
        calls.append(error)
        raise error

    policy = RetryPolicy(tries=3, first_pause=1.0, growth=1.0, longest_pause=1.0, jitter=0.0)
    with pytest.raises(RetryError):
        policy.retrying("retry")(fail, CatalogUnavailableError("busy", failure="retry"))
    assert (len(calls), pauses[:2]) == (3, [1, 2])
    for error in (CatalogUnavailableError("away", failure="unavailable"), CommitConflictError("conflict"), ValueError("broken")):
        calls.clear()
        with pytest.raises(type(error)):
            policy.retrying("retry")(fail, error)
        assert len(calls) == 1
