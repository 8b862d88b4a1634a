"""Another writer gives a table's name to another table: a write goes to what has the name at the commit's base, or nowhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import CommitConflictError
from ducklake_core.staging import context
from ducklake_core.transaction import Transaction
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import on_postgresql, spread

ROW = pa.table({"a": pa.array([1], pa.int32())})
OTHER = pa.table({"a": pa.array([2], pa.int32())})
SWAP = ("ALTER TABLE t RENAME TO t_old", "CREATE TABLE t (a INTEGER)")
MANY = pa.table({"a": pa.array(range(40), pa.int32())})


@pytest.fixture
def hot(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> DuckLake:
    """A lake that has just been written to, so that the next append builds on what was seen then, however slow the machine is."""
    monkeypatch.setattr(context, "RECENT_SECONDS", 3600.0)
    lake.create_table("t", ROW.schema)
    lake.write("t", ROW)
    lake.write("t", ROW)
    return lake


@pytest.mark.parametrize("rows", [OTHER, MANY], ids=["inlined", "file"])
@pytest.mark.parametrize("by_object", [False, True], ids=["by name", "by object"])
def test_an_append_after_a_swap(hot: DuckLake, lake_address: LakeAddress, rows: pa.Table, *, by_object: bool) -> None:
    table = hot.table("t")
    with attached(lake_address) as duck:
        hot.write("t", ROW)
        duck.run(*SWAP)
        result = table.append(rows) if by_object else hot.write("t", rows)
        assert sorted(duck.rows("FROM t")) == [(a,) for a in rows["a"].to_pylist()]
        assert duck.rows("FROM t_old") == [(1,)] * 3
    new = hot.table("t")
    assert (result.table, result.table_id) == ("main.t", new.state.id)
    assert result.attempts == 2
    assert new.scan().to_arrow() == rows
    assert hot.table("t_old").scan().count() == 3


def test_a_table_whose_name_was_dropped(hot: DuckLake, lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        hot.write("t", ROW)
        duck.run("ALTER TABLE t RENAME TO t_old")
        assert hot.write("t", OTHER).created_table
        assert duck.rows("FROM t") == [(2,)]
        assert duck.rows("FROM t_old") == [(1,)] * 3


CALLS: dict[str, Callable[[Transaction], None]] = {
    "append": lambda tx: tx.append("t", OTHER),
    "append to a file": lambda tx: tx.append("t", MANY),
    "overwrite": lambda tx: tx.overwrite("t", MANY),
    "upsert": lambda tx: tx.upsert("t", ROW, on=["a"]),
    "delete": lambda tx: tx.delete("t", "a = 1"),
    "delete of rows in files": lambda tx: tx.delete("t", "a = 7"),
    "update": lambda tx: tx.update("t", {"a": "a + 1"}, where="a = 7"),
    "merge": lambda tx: tx.merge("t", ROW, on=["a"]).when_matched_delete().execute(),
}


@pytest.mark.parametrize("call", spread(CALLS, 4))
def test_a_swap_while_a_transaction_is_open(hot: DuckLake, lake_address: LakeAddress, call: str) -> None:
    hot.write("t", MANY)
    files = _files(lake_address)
    with attached(lake_address) as duck:
        before = sorted(duck.rows("FROM t"))

        def swapped_meanwhile() -> None:
            with hot.transaction() as tx:
                CALLS[call](tx)
                duck.run(*SWAP)

        with pytest.raises(CommitConflictError, match=r"table main\.t .* renamed it"):
            swapped_meanwhile()
        assert sorted(duck.rows("FROM t_old")) == before
        assert duck.rows("FROM t") == []
    assert _files(lake_address) == files


@on_postgresql
@pytest.mark.parametrize("call", spread(CALLS, 2))
def test_a_rename_while_a_transaction_is_open(hot: DuckLake, lake_address: LakeAddress, call: str) -> None:
    """The rows go to the table under its new name, which the result reports."""
    hot.write("t", MANY)
    expected = _after(hot, call)
    with attached(lake_address) as duck:
        with hot.transaction() as tx:
            CALLS[call](tx)
            duck.run(SWAP[0])
        (written,) = tx.result.writes
        assert (written.table, written.attempts) == ("main.t_old", 2)
        assert sorted(duck.rows("FROM t_old")) == expected
    at = hot.table(written.table, at=written.snapshot_id)
    assert sorted(at.scan().to_arrow()["a"].to_pylist()) == [a for (a,) in expected]


def test_a_rename_and_later_another_table_of_that_name(hot: DuckLake, lake_address: LakeAddress) -> None:
    """The requested name counts, not the name that the table had when the transaction was planned again."""
    with attached(lake_address) as duck:

        def renamed_meanwhile() -> None:
            with hot.transaction() as tx:
                tx.append("t", OTHER)
                duck.run(SWAP[0])
                _before_attempts(tx, lambda number: duck.run("DELETE FROM t_old", SWAP[1]) if number == 2 else None)

        with pytest.raises(CommitConflictError):
            renamed_meanwhile()
        assert duck.rows("FROM t_old") == []
        assert duck.rows("FROM t") == []


def test_options_set_by_another_client_are_effective_at_once(hot: DuckLake, lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        for limit, inlined in ((0, 0), (10, 1), (0, 0)):
            hot.write("t", ROW)
            duck.run(f"CALL lake.set_option('data_inlining_row_limit', {limit})")
            result = hot.write("t", ROW)
            assert (result.rows_added, result.rows_inlined, result.attempts) == (1, inlined, 2)


def test_a_quick_append_takes_one_attempt(hot: DuckLake) -> None:
    assert [hot.write("t", ROW).attempts for _ in range(3)] == [1, 1, 1]


def _before_attempts(tx: Transaction, do: Callable[[int], None]) -> None:
    """Have something done before each attempt to commit, counted from 1."""
    committer, numbers = tx._coordinator._committer, iter(range(1, 99))
    commit = committer.commit

    def counted(transaction: Any) -> Any:
        do(next(numbers))
        return commit(transaction)

    committer.commit = counted  # type: ignore[method-assign]


def _files(address: LakeAddress) -> set[Path]:
    return set(Path(address.data_path).rglob("*.parquet"))


def _after(lake: DuckLake, call: str) -> list[tuple[object, ...]]:
    """The rows after a call, from a table that has the same ones."""
    lake.write("twin", lake.table("t").scan().to_arrow())

    class Renaming:
        def __init__(self, tx: Transaction) -> None:
            self.tx = tx

        def __getattr__(self, operation: str) -> Any:
            return lambda _name, *rest, **options: getattr(self.tx, operation)("twin", *rest, **options)

    with lake.transaction() as tx:
        CALLS[call](Renaming(tx))  # type: ignore[arg-type]
    rows = sorted((a,) for a in lake.table("twin").scan().to_arrow()["a"].to_pylist())
    lake.drop_table("twin")
    return rows
