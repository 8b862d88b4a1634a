"""Commits against real catalogs: races, retries, and connections lost at COMMIT."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.failures import RetryPolicy
from ducklake_core.catalog.database.statements import Statements
from ducklake_core.catalog.database.writer_queue import LeaseRequest
from ducklake_core.commit.committer import Committed, Committer
from ducklake_core.errors import (
    CatalogUnavailableError,
    CommitConflictError,
    CommitOutcomeUnknownError,
    CommitRetriesExhaustedError,
    UsageError,
)
from ducklake_core.format.changes import commit_id_of
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import spread
from tests.unit.commit.handmade import HandmadeLake

QUICK = RetryPolicy(max_attempts=4, first_pause=0.001, growth=1.5, max_pause=0.002, jitter=0.5)


@pytest.fixture
def lake(lake_address: LakeAddress) -> Iterator[HandmadeLake]:
    handmade = HandmadeLake(lake_address)
    yield handmade
    handmade.database.close()


class FaultyDatabase(Database):
    """A database whose write transactions go wrong at COMMIT, as planned: ``after`` the commit, ``before`` it, or not at all."""

    def __init__(self, real: Database, faults: list[str]) -> None:
        super().__init__(real.address)
        self.faults = faults

    @contextmanager
    def commit(self, *lease: LeaseRequest) -> Iterator[Statements]:
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "down":
            raise CatalogUnavailableError("no route to host", failure="unavailable")
        lost = CatalogUnavailableError("server closed the connection", failure="outcome-unknown")
        with super().commit(*lease) as statements:
            yield statements
            if fault == "before":
                raise lost
        if fault == "after":
            raise lost


def test_expired_history_raises(lake: HandmadeLake) -> None:
    committer = Committer(lake.database)
    base = committer.commit(lake.staged(lake.create())).snapshot
    with attached(lake.address) as duck:
        duck.run("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)", "CALL ducklake_expire_snapshots('lake', versions => [2])")
    with pytest.raises(CommitConflictError, match=r"snapshot 2.*expired"):
        committer.commit(lake.staged(lake.append(2), base=base))


def test_a_commit_lost_before_it_arrived_is_retried(lake: HandmadeLake) -> None:
    Committer(lake.database).commit(lake.staged(lake.create()))
    faulty = FaultyDatabase(lake.database, ["before"])
    committed = Committer(faulty, attempts=QUICK.attempts()).commit(lake.staged(lake.append(1)))
    assert (committed.attempts, committed.repeated, committed.snapshot.id) == (2, False, 2)
    assert lake.latest().id == 2


def test_commit_lost_after_it_arrived_is_found_again(lake: HandmadeLake) -> None:
    Committer(lake.database).commit(lake.staged(lake.create()))
    faulty = FaultyDatabase(lake.database, ["after"])
    transaction = lake.staged(lake.append(1))
    committed = Committer(faulty, attempts=QUICK.attempts()).commit(transaction)
    assert (committed.repeated, committed.snapshot.id) == (False, 2)
    assert commit_id_of(lake.latest().extra_info) == transaction.commit_id
    assert lake.latest().id == 2


@pytest.mark.parametrize("ending", ["before", "after"])
def test_the_outcome_is_unknown_while_the_catalog_is_unreachable(lake: HandmadeLake, ending: str) -> None:
    Committer(lake.database).commit(lake.staged(lake.create()))
    faulty = FaultyDatabase(lake.database, [ending, "down", "down", "down"])
    transaction = lake.staged(lake.append(1))
    with pytest.raises(CommitOutcomeUnknownError, match=transaction.commit_id):
        Committer(faulty, attempts=QUICK.attempts()).commit(transaction)
    found = Committer(lake.database).find_commit(transaction.commit_id)
    assert (found is not None) == (ending == "after")


def test_unreachable_catalog_is_a_sure_failure(lake: HandmadeLake) -> None:
    Committer(lake.database).commit(lake.staged(lake.create()))
    faulty = FaultyDatabase(lake.database, ["down"] * 9)
    with pytest.raises(CommitRetriesExhaustedError, match=r"4 attempts.*no route to host"):
        Committer(faulty, attempts=QUICK.attempts()).commit(lake.staged(lake.append(1)))
    assert lake.latest().id == 1


def test_an_unanswered_commit_that_another_commit_has_overtaken_surely_failed(lake: HandmadeLake) -> None:
    Committer(lake.database).commit(lake.staged(lake.create()))

    def overtake(_seconds: float) -> None:
        if lake.latest().id == 1:
            Committer(lake.database).commit(lake.staged(lake.append(9)))

    faulty = FaultyDatabase(lake.database, ["before"])
    committed = Committer(faulty, attempts=QUICK.attempts(sleep=overtake)).commit(lake.staged(lake.append(1)))
    assert committed.snapshot.id == 3


@pytest.mark.parametrize("ending", spread(["before", "after"], 1))
def test_an_unanswered_commit_whose_snapshot_was_expired_is_unknown(lake: HandmadeLake, ending: str) -> None:
    """The snapshot with its id may have been this commit: it is not committed again."""
    Committer(lake.database).commit(lake.staged(lake.create()))

    def expire(_seconds: float) -> None:
        if lake.latest().id < 4:
            with attached(lake.address) as duck:
                duck.run("INSERT INTO t VALUES (8)", "INSERT INTO t VALUES (9)", "CALL ducklake_expire_snapshots('lake', versions => [2])")

    faulty = FaultyDatabase(lake.database, [ending])
    transaction = lake.staged(lake.append(1))
    with pytest.raises(CommitOutcomeUnknownError, match="snapshot 2 has been expired") as caught:
        Committer(faulty, attempts=QUICK.attempts(sleep=expire)).commit(transaction)
    assert caught.value.details == {"commit_id": transaction.commit_id, "snapshot_id": 2}
    with attached(lake.address) as duck:
        assert duck.value("SELECT count(*) FROM t WHERE a = 1") == (ending == "after")
    committer = Committer(lake.database)
    for arguments in ({}, {"snapshot_id": 2}):
        with pytest.raises(CommitOutcomeUnknownError, match="expired"):
            committer.find_commit_or_raise(transaction.commit_id, **arguments)
    assert committer.find_commit_or_raise(transaction.commit_id, 1) is None
    assert committer.find_commit_or_raise(transaction.commit_id, 9) is None


def test_expired_is_not_never(lake: HandmadeLake) -> None:
    committer = Committer(lake.database)
    created = committer.commit(lake.staged(lake.create(), commit_id="first")).snapshot
    assert committer.find_commit_or_raise("never") is None
    committer.commit(lake.staged(lake.append(1), commit_id="second"))
    with attached(lake.address) as duck:
        duck.run(f"CALL ducklake_expire_snapshots('lake', versions => [{created.id}])")
    found = committer.find_commit_or_raise("second")
    assert found is not None
    assert found.id == created.id + 1
    for commit_id in ("first", "never"):
        with pytest.raises(CommitOutcomeUnknownError, match="1 of 3 snapshots have expired"):
            committer.find_commit_or_raise(commit_id)


def test_the_base_must_be_a_snapshot_of_this_history(lake: HandmadeLake) -> None:
    committer = Committer(lake.database)
    committer.commit(lake.staged(lake.create()))
    base = lake.latest()
    for other in (
        replace(base, time=base.time - timedelta(microseconds=1)),
        replace(base, extra_info=None),
        replace(base, changes='created_schema:"x"'),
        replace(base, next_file_id=7),
        replace(base, id=base.id + 1),
    ):
        with pytest.raises(CommitConflictError, match="catalog was replaced") as caught:
            committer.commit(lake.staged(lake.append(1), base=other))
        assert caught.value.details["rule"] == "base-gone"
    assert lake.latest() == base
    assert committer.commit(lake.staged(lake.append(1), base=replace(base, author="who", message="whatever"))).snapshot.id == 2


def test_nothing_to_do_is_no_snapshot(lake: HandmadeLake) -> None:
    with pytest.raises(UsageError, match="contains no changes"):
        Committer(lake.database).commit(lake.staged())


def test_many_writers_lose_nothing(lake: HandmadeLake) -> None:
    base = Committer(lake.database).commit(lake.staged(lake.create())).snapshot
    done: list[Committed] = []

    def write(number: int) -> None:
        database = Database(lake.database.address)
        for part in range(5):
            append = lake.append(*range(number * 100 + part * 10, number * 100 + part * 10 + 3))
            done.append(Committer(database).commit(lake.staged(append, base=base)))
        database.close()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(committed.snapshot.id for committed in done) == list(range(2, 22))
    with attached(lake.address) as duck:
        assert duck.rows("SELECT count(*), count(DISTINCT a), count(DISTINCT rowid), max(rowid) FROM t") == [(60, 60, 60, 59)]
