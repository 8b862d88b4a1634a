"""A commit id stands for one operation: it is done once, found again, and rejected for any other operation."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake, col
from ducklake_core.catalog.database.failures import RetryPolicy
from ducklake_core.commit.committer import Committer
from ducklake_core.commit.request import not_among, operation, without_details
from ducklake_core.errors import CatalogUnavailableError, CommitOutcomeUnknownError, UsageError
from ducklake_core.transaction import Transaction
from tests.support.oracle import LakeAddress, attached

ROW = pa.table({"a": pa.array([1], pa.int32())})
FIVE = pa.table({"a": pa.array([5], pa.int32())})


@pytest.fixture
def tables(small: DuckLake) -> DuckLake:
    for name in ("a", "b"):
        small.create_table(name, ROW.schema)
    return small


WORK: dict[str, Callable[[Transaction], None]] = {
    "append main.a": lambda tx: tx.append("A", ROW),
    "append main.b": lambda tx: tx.append("b", ROW),
    "overwrite main.a": lambda tx: tx.overwrite("main.a", ROW),
    "upsert main.a": lambda tx: tx.upsert("a", ROW, on=["a"]),
    "delete main.a": lambda tx: tx.delete("a", "a = 1"),
    "update main.a": lambda tx: tx.update("a", {"a": "2"}),
    "merge main.a": lambda tx: tx.merge("a", FIVE, on=["a"]).when_not_matched_insert().execute(),
    "restore main.a": lambda tx: tx.restore("a", at=2),
    "alter main.a": lambda tx: tx.add_column("a", "n", "int32"),
    "rename main.a": lambda tx: tx.rename_table("a", "z"),
    "drop main.a": lambda tx: tx.drop_table("a"),
    "comment main.a": lambda tx: tx.set_comment("a", "text"),
    "create main.c": lambda tx: tx.create_table("c", ROW.schema),
    "create schema a": lambda tx: tx.create_schema("a"),
    "create view main.v": lambda tx: tx.create_view("v", "SELECT a FROM a"),
    "create macro main.m": lambda tx: tx.create_macro("m", {"x": "x + 1"}),
}


@pytest.mark.parametrize("done", WORK)
def test_every_operation_is_distinguished_from_every_other(tables: DuckLake, done: str) -> None:
    tables.write("a", pa.table({"a": pa.array([1, 3], pa.int32())}))
    tables.write("a", pa.table({"a": pa.array([3], pa.int32())}), mode="overwrite", where="a = 3")
    with tables.transaction(commit_id="q-0") as tx:
        WORK[done](tx)
    committed = tables.snapshot()
    assert [without_details(one) for one in json.loads(committed.extra_info or "")["commit_operation"]] == [done]
    for kind, work in WORK.items():

        def again(work: Callable[[Transaction], None] = work) -> Transaction:
            with tables.transaction(commit_id="q-0") as tx:
                work(tx)
            return tx

        if kind == done:
            assert again().result.repeated
        else:
            with pytest.raises(UsageError, match=f"'q-0' belongs to other work.*{kind}"):
                again()
    assert tables.snapshot() == committed


DIFFERENT: dict[str, tuple[Callable[[Transaction], object], Callable[[Transaction], object]]] = {
    "delete": (lambda tx: tx.delete("a", "a = 1"), lambda tx: tx.delete("a", "a = 2")),
    "delete by values": (lambda tx: tx.delete("a", col("a").isin({1, 3})), lambda tx: tx.delete("a", col("a").isin({1}))),
    "update": (lambda tx: tx.update("a", {"a": "2"}, where="a = 1"), lambda tx: tx.update("a", {"a": "3"}, where="a = 1")),
    "overwrite": (lambda tx: tx.overwrite("a", ROW, where="a = 1"), lambda tx: tx.overwrite("a", ROW, where="a < 2")),
    "upsert": (lambda tx: tx.upsert("a", ROW, on="a"), lambda tx: tx.upsert("a", ROW, on=["a", "b"])),
    "merge": (
        lambda tx: tx.merge("a", FIVE, on="a").when_not_matched_insert().execute(),
        lambda tx: tx.merge("a", FIVE, on="a").when_matched_delete().execute(),
    ),
    "restore": (lambda tx: tx.restore("a", at=2), lambda tx: tx.restore("a", at=1)),
    "add column": (lambda tx: tx.add_column("a", "n", "int32"), lambda tx: tx.add_column("a", "m", "int32")),
    "drop column": (lambda tx: tx.add_column("a", "n", "int32"), lambda tx: tx.drop_column("a", "n")),
    "comment": (lambda tx: tx.set_comment("a", "text"), lambda tx: tx.set_comment("a", "other")),
    "rename": (lambda tx: tx.rename_table("a", "z"), lambda tx: tx.rename_table("a", "y")),
    "view": (lambda tx: tx.create_view("v", "SELECT a FROM a"), lambda tx: tx.create_view("v", "SELECT a FROM b")),
    "macro": (lambda tx: tx.create_macro("m", {"x": "x + 1"}), lambda tx: tx.create_macro("m", {"x": "x + 2"})),
}


@pytest.mark.parametrize("kind", DIFFERENT)
def test_the_same_operation_on_other_rows_or_columns_raises(tables: DuckLake, kind: str) -> None:
    """A loop over days with one id for all of them must not lose all days but the first."""
    tables.write("a", pa.table({"a": pa.array([1, 3], pa.int32())}))
    first, second = DIFFERENT[kind]

    def run(work: Callable[[Transaction], object]) -> Transaction:
        with tables.transaction(commit_id="q-0") as tx:
            work(tx)
        return tx

    run(first)
    committed = tables.snapshot()
    assert run(first).result.repeated
    with pytest.raises(UsageError, match=r"'q-0' belongs to other work.* with these arguments"):
        run(second)
    assert tables.snapshot() == committed


def test_snapshots_without_operation_details_still_match() -> None:
    stored = ["delete main.a"]
    assert not_among(stored, [operation("delete", "a", details=("a = 1",))]) is None
    assert not_among(stored, [operation("delete", "b", details=("a = 1",))]) is not None


def test_two_runs_at_once_with_one_id_and_two_tables(tables: DuckLake) -> None:
    """The second finds the first's commit only when it commits itself."""

    def both() -> None:
        with tables.transaction(commit_id="q-0") as tx:
            tx.append("b", ROW)
            tables.write("a", ROW, commit_id="q-0")

    with pytest.raises(UsageError, match="belongs to other work"):
        both()
    assert tables.table("b").scan().count() == 0


def test_a_block_that_does_less_the_second_time(small: DuckLake) -> None:
    def run() -> Transaction:
        with small.transaction(commit_id="step") as tx:
            if not small.has_table("t"):
                tx.create_table("t", ROW.schema)
            tx.append("t", ROW)
        return tx

    assert [run().result.repeated for _ in range(2)] == [False, True]


def test_many_operations_are_one_short_string(small: DuckLake) -> None:
    def run(count: int) -> Transaction:
        with small.transaction(commit_id="step") as tx:
            for number in range(count):
                tx.create_table(f"t{number}", ROW.schema)
        return tx

    assert not run(100).result.repeated
    assert len(small.snapshot().extra_info or "") < 200
    assert run(100).result.repeated
    assert run(70).result.repeated
    with pytest.raises(UsageError, match="belongs to other work"):
        run(101)


def test_commit_ids_of_earlier_releases_still_match(small: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    from ducklake_core.staging import publish as publication

    with monkeypatch.context() as patch:
        patch.setattr(
            publication, "stored_extra_info", lambda commit_id, *_rest, **_kept: json.dumps({"commit_id": commit_id, "writer": "w"})
        )
        first = small.write("a", ROW, commit_id="q-0")
    for name in ("a", "b"):
        again = small.write(name, ROW, commit_id="q-0")
        assert (again.repeated, again.snapshot_id) == (True, first.snapshot_id)


@pytest.mark.parametrize("commit_id", ["", " ", 7])
def test_invalid_commit_ids_raise(small: DuckLake, commit_id: Any) -> None:
    small.create_table("t", ROW.schema)
    for call in (
        lambda: small.write("t", ROW, commit_id=commit_id),
        lambda: small.table("t").append(ROW, commit_id=commit_id),
        lambda: small.transaction(commit_id=commit_id),
        lambda: small.find_commit(commit_id),
    ):
        with pytest.raises(UsageError, match=r"commit.id"):
            call()
    assert small.table("t").scan().count() == 0


@pytest.mark.parametrize("key", ["commit_id", "commit_writer", "commit_operation"])
@pytest.mark.parametrize("as_string", [False, True])
def test_reserved_keys_of_extra_info_raise(small: DuckLake, key: str, *, as_string: bool) -> None:
    extra = {key: "mine"}
    with pytest.raises(UsageError, match=key):
        small.write("t", ROW, extra_info=json.dumps(extra) if as_string else extra)


@pytest.mark.parametrize("commit_id", [None, "step"])
def test_a_writer_key_in_extra_info_is_not_the_writer_of_a_commit(
    lake: DuckLake, commit_id: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to be taken for the name of another run, whose commit it was; then files of the lake were deleted."""
    monkeypatch.setattr(RetryPolicy, "pause", lambda *_: 0.0)
    lake.set_option("data_inlining_row_limit", 0)
    lake.create_table("t", ROW.schema)
    commit, lost = type(lake.database).commit, ["yes"]

    def answerless(database: Any, *arguments: Any) -> Any:
        from contextlib import contextmanager

        @contextmanager
        def committing() -> Any:
            with commit(database, *arguments) as statements:
                yield statements
            if lost:
                raise CatalogUnavailableError("server closed the connection", failure=lost.pop() and "outcome-unknown")

        return committing()

    monkeypatch.setattr(type(lake.database), "commit", answerless)
    result = lake.write("t", ROW, extra_info={"writer": "etl"}, commit_id=commit_id)
    assert (result.repeated, result.attempts) == (False, 2)
    assert lake.table("t").scan().to_arrow() == ROW
    assert json.loads(result.snapshot.extra_info or "")["writer"] == "etl"


def test_another_run_may_have_been_expired_meanwhile(tables: DuckLake, sqlite_address: LakeAddress) -> None:
    """The expired snapshot may have been that of the same run, so the operation is not repeated."""
    before = tables.snapshot().id

    def overtaken() -> None:
        with tables.transaction(commit_id="step") as tx:
            tx.delete("a", "a = 1")
            tx.append("a", ROW)
            tables.write("a", ROW, commit_id="step")
            with attached(sqlite_address) as duck:
                duck.run("INSERT INTO b VALUES (1)", f"CALL ducklake_expire_snapshots('lake', versions => [{before + 1}])")

    with pytest.raises(CommitOutcomeUnknownError, match="expired while this write was running"):
        overtaken()
    assert tables.table("a").scan().count() == 1


def test_attempts_of_all_plans_are_added_up(tables: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    tables.write("a", ROW)
    commit, overtakers = Committer.commit, [1, 2, 3]

    def overtaken(committer: Committer, transaction: Any) -> Any:
        if overtakers and transaction.author == "me":
            overtakers.pop()
            tables.table("a").delete(None)
            tables.write("a", ROW)
        return commit(committer, transaction)

    monkeypatch.setattr(Committer, "commit", overtaken)
    assert tables.table("a").update({"a": "a + 1"}, author="me").attempts == 4


def test_an_unanswered_commit_that_was_expired(lake: DuckLake, lake_address: LakeAddress, monkeypatch: Any) -> None:
    """The rows are there once, and no file with them is deleted."""
    from tests.unit.commit.test_committer import FaultyDatabase

    lake.set_option("data_inlining_row_limit", 0)
    lake.create_table("t", ROW.schema)

    def expire(*_: object) -> float:
        with attached(lake_address) as duck:
            duck.run(*["INSERT INTO t VALUES (5)"] * 2, "CALL ducklake_expire_snapshots('lake', versions => [2])")
        return 0.0

    monkeypatch.setattr(RetryPolicy, "pause", expire)
    monkeypatch.setattr(lake, "_database", FaultyDatabase(lake.database, ["after"]))
    with pytest.raises(CommitOutcomeUnknownError, match="expired") as caught:
        lake.write("t", ROW, commit_id="step")
    with pytest.raises(CommitOutcomeUnknownError):
        lake.find_commit("step", snapshot_id=int(str(caught.value.details["snapshot_id"])))
    assert sorted(lake.table("t").scan().to_arrow()["a"].to_pylist()) == [1, 5, 5]


def test_an_entry_that_outlived_its_snapshot(tables: DuckLake, sqlite_address: LakeAddress) -> None:
    """Its mention of the id was taken for nothing, and a retried step would have written its rows twice."""
    written = tables.write("a", ROW, commit_id="step")
    tables.write("a", FIVE)
    with closing(sqlite3.connect(sqlite_address.url.removeprefix("sqlite:///"))) as catalog, catalog:
        catalog.execute("DELETE FROM ducklake_snapshot WHERE snapshot_id = ?", (written.snapshot_id,))
    with pytest.raises(CommitOutcomeUnknownError, match="expired"):
        tables.find_commit("step")
    assert tables.find_commit("step", snapshot_id=written.snapshot_id + 1) is None
