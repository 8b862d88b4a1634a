"""Attempts and pauses of work on a catalog."""

from __future__ import annotations

import math
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ducklake_core import DuckLake
from ducklake_core.catalog.database import failures
from ducklake_core.catalog.database.failures import COMMIT_RETRIES, MAINTENANCE_RETRIES, REPLAN_RETRIES, Attempts, CallRetries, RetryPolicy
from ducklake_core.errors import CatalogUnavailableError, CommitConflictError, CommitRetriesExhaustedError
from ducklake_core.maintenance.groups import run_write

POLICIES = {"commit": COMMIT_RETRIES, "replan": REPLAN_RETRIES, "maintenance": MAINTENANCE_RETRIES}
BUSY = CatalogUnavailableError("busy", failure="retry")
READ_BY_OTHERS = CatalogUnavailableError("read by others", failure="retry", blocked_by="readers")


def paused(policy: RetryPolicy, error: Exception | None = None) -> list[float]:
    """The pauses of work that fails in every attempt."""
    pauses: list[float] = []
    attempts = policy.attempts(sleep=pauses.append)
    while attempts.again(error):
        pass
    assert attempts.number == len(pauses) + 1
    return pauses


def test_pauses_grow_up_to_the_maximum() -> None:
    policy = RetryPolicy(max_attempts=6, first_pause=0.1, growth=2.0, max_pause=0.5)
    assert paused(policy) == pytest.approx([0.1, 0.2, 0.4, 0.5, 0.5])


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_jitter_is_the_random_share_of_a_pause(policy: RetryPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    for failures_so_far in range(1, 60):
        whole = min(policy.first_pause * policy.growth ** (failures_so_far - 1), policy.max_pause)
        monkeypatch.setattr(random, "uniform", lambda least, _: least)
        assert policy.pause(failures_so_far) == pytest.approx(whole * (1 - policy.jitter))
        monkeypatch.setattr(random, "uniform", lambda _, most: most)
        assert policy.pause(failures_so_far) == pytest.approx(whole)


@pytest.mark.parametrize(("name", "seconds"), [("commit", 30), ("replan", 30), ("maintenance", 15)])
def test_all_pauses_together_have_the_documented_bound(name: str, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda _, most: most)
    policy = POLICIES[name]
    pauses = paused(policy, BUSY)
    assert len(pauses) + 1 == policy.max_attempts
    assert seconds * 0.8 < sum(pauses) <= seconds


class Clock:
    """A clock that stands still unless a test, or a pause, moves it."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(failures, "time", clock)
    return clock


def seconds_until_the_limit(attempts: Attempts, clock: Clock, error: Exception) -> float:
    """Attempt work that takes 2 seconds and fails, until there is no next attempt."""
    began = clock.now
    clock.sleep(2)
    while attempts.again(error):
        clock.sleep(2)
    return clock.now - began


def test_no_attempt_begins_after_the_limit_of_seconds(clock: Clock) -> None:
    policy = RetryPolicy(max_seconds=10.0, first_pause=1.0, max_pause=1.0)
    assert seconds_until_the_limit(policy.attempts(sleep=clock.sleep), clock, BUSY) == 11.0
    assert seconds_until_the_limit(policy.attempts(max_seconds=0.0, sleep=clock.sleep), clock, BUSY) == 2.0


def test_all_commits_of_a_call_share_one_limit_of_seconds(clock: Clock) -> None:
    """Commits that lose some attempts before each conflict wait no longer than one commit that loses all of them; other work is free."""
    policy = RetryPolicy(max_attempts=25, max_seconds=300.0, first_pause=2.0, max_pause=2.0)
    commits, lost, may_go_on = policy.attempts(sleep=clock.sleep), 0, True
    while may_go_on:
        commits.begin()
        for _ in range(5):
            clock.sleep(10)
            lost += 1
            may_go_on = commits.again(BUSY)
            if not may_go_on:
                break
        clock.sleep(1000)
    assert (lost, commits.waited) == (26, 25 * 12 + 10)
    assert clock.now > 5000


def test_open_readers_are_waited_for_ten_seconds(clock: Clock) -> None:
    for policy in (COMMIT_RETRIES, MAINTENANCE_RETRIES):
        assert 10 <= seconds_until_the_limit(policy.attempts(sleep=clock.sleep), clock, READ_BY_OTHERS) < 14
        assert seconds_until_the_limit(policy.attempts(sleep=clock.sleep), clock, BUSY) > 24


@pytest.mark.parametrize("policy", [COMMIT_RETRIES, MAINTENANCE_RETRIES], ids=["commit", "maintenance"])
def test_waits_for_other_writers_do_not_count_as_waits_for_readers(policy: RetryPolicy, clock: Clock) -> None:
    attempts = policy.attempts(sleep=clock.sleep)
    for _ in range(5):
        clock.sleep(5)
        assert attempts.again(BUSY)
    assert attempts.again(READ_BY_OTHERS)
    clock.sleep(failures.READERS_SECONDS)
    assert not attempts.again(READ_BY_OTHERS)


def test_only_failures_that_may_pass_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetryPolicy, "pause", lambda *_: 0.0)
    calls: list[Exception] = []

    def fail(error: Exception) -> Callable[[], None]:
        def work() -> None:
            calls.append(error)
            raise error

        return work

    for failure in ("retry", "unavailable", "outcome-unknown"):
        calls.clear()
        with pytest.raises(CommitRetriesExhaustedError, match=r"Could not set an option in 12 attempts: busy\. Try again later"):
            run_write(fail(CatalogUnavailableError("busy", failure=failure)), "set an option")
        assert len(calls) == 12
    for error in (CatalogUnavailableError("rejected", failure="fatal"), CommitConflictError("conflict"), ValueError("broken")):
        calls.clear()
        with pytest.raises(type(error)):
            run_write(fail(error), "set an option")
        assert len(calls) == 1


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[DuckLake]:
    with DuckLake.create(f"sqlite:///{tmp_path / 'lake.sqlite'}", data_path=str(tmp_path / "files")) as lake:
        lake.create_table("t", {"a": "int"})
        yield lake


def test_a_statement_that_meets_conflicts_in_every_plan_is_planned_sixty_times(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of the transaction and runs of the statement have one limit: they do not multiply."""
    monkeypatch.setattr(RetryPolicy, "pause", lambda *_: 0.0)
    commits = []

    def conflict(_self: object, _transaction: object) -> None:
        commits.append(1)
        raise CommitConflictError("another writer was first")

    monkeypatch.setattr("ducklake_core.commit.committer.Committer.commit", conflict)
    with pytest.raises(CommitConflictError, match="another writer was first"):
        lake.sql("INSERT INTO t VALUES (1)")
    assert len(commits) == REPLAN_RETRIES.max_attempts


def never_free() -> None:
    raise BUSY


WAITS: dict[str, Callable[[], object]] = {
    "pause": lambda: RetryPolicy(first_pause=60.0, max_pause=60.0).attempts().again(BUSY),
    "maintenance": lambda: run_write(never_free, "set an option"),
}


@pytest.mark.parametrize("wait", list(WAITS))
def test_ctrl_c_ends_a_wait_at_once(wait: str) -> None:
    threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        WAITS[wait]()
    assert time.monotonic() - began < 2


def test_each_call_counts_its_own_attempts() -> None:
    one, two = CallRetries(), CallRetries()
    one.commits.begin()
    assert (one.commits.total, two.commits.total) == (1, 0)
    assert math.isinf(REPLAN_RETRIES.max_seconds)
