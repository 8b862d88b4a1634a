"""Transactions that would leave a partial result are rejected or undone as a whole."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.commit.committer import Committer
from ducklake_core.errors import NotFoundError, UsageError
from tests.support.oracle import LakeAddress, Oracle

OracleFactory = Callable[..., AbstractContextManager[Oracle]]
COLUMNS = pa.schema([("x", pa.int64())])


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    return DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)


def values(lake: DuckLake, table: str) -> list[int]:
    return sorted(lake.table(table).scan().to_arrow().column("x").to_pylist())


def test_a_schema_with_views_or_macros_stays(lake: DuckLake, sqlite_address: LakeAddress, oracle: OracleFactory) -> None:
    with oracle(sqlite_address) as duck:
        duck.run("CREATE SCHEMA s", "CREATE VIEW s.v AS SELECT 1 AS one", "CREATE SCHEMA m", "CREATE MACRO m.plus(x) AS x + 1")
    for schema in ("s", "m"):
        with pytest.raises(UsageError, match="drop them first"):
            lake.drop_schema(schema)
    with oracle(sqlite_address) as duck:
        assert duck.value("SELECT one FROM s.v") == 1


def test_a_schema_is_not_dropped_under_what_the_transaction_puts_into_it(
    lake: DuckLake, sqlite_address: LakeAddress, oracle: OracleFactory
) -> None:
    lake.create_schema("s")
    lake.create_table("s.old", COLUMNS)
    with lake.transaction() as tx:
        tx.create_table("s.new", COLUMNS)
        with pytest.raises(UsageError, match="has old, new in it"):
            tx.drop_schema("s")
    with lake.transaction() as tx:
        tx.append("s.new", pa.table({"x": [1]}))
        with pytest.raises(UsageError, match="drop them first"):
            tx.drop_schema("s")
    with lake.transaction() as tx:
        tx.drop_table("s.new")
        tx.drop_schema("s", cascade=True)
        with pytest.raises(NotFoundError):
            tx.create_table("s.late", COLUMNS)
    lake.create_schema("s")
    lake.create_table("s.old", COLUMNS)
    with lake.transaction() as tx:
        tx.drop_table("s.old")
        tx.drop_schema("s")
    with oracle(sqlite_address) as duck:
        assert duck.rows("SELECT table_name FROM information_schema.tables WHERE table_catalog = 'lake'") == []


def test_a_failed_call_deletes_nothing_when_its_error_is_caught(lake: DuckLake) -> None:
    lake.write("t", pa.table({"x": [1, 2]}))
    with lake.transaction() as tx:
        with pytest.raises(UsageError, match="outside"):
            tx.overwrite("t", pa.table({"x": [5]}), where="x = 1")
        with pytest.raises(UsageError, match="outside"):
            tx.write("new", pa.table({"x": [5]}), mode="overwrite", where="x = 1")
        tx.append("t", pa.table({"x": [7]}))
    assert values(lake, "t") == [1, 2, 7]
    assert not lake.has_table("new")


@pytest.mark.parametrize("form", [pa.Table.to_reader, pa.Table.combine_chunks, lambda table: table.to_batches()[0]])
def test_rows_without_columns_raise(lake: DuckLake, form: Callable[[pa.Table], object]) -> None:
    lake.write("t", pa.table({"x": [1, 2]}))
    rows = pa.table({"x": [1, 2]}).select([])
    with pytest.raises(UsageError, match=r"pyarrow .* without columns"):
        lake.write("t", form(rows), mode="overwrite")
    assert values(lake, "t") == [1, 2]
    assert lake.snapshot().id == 1


def test_names_that_differ_in_more_than_ascii_case_are_different_tables(
    lake: DuckLake, sqlite_address: LakeAddress, oracle: OracleFactory
) -> None:
    with oracle(sqlite_address) as duck:
        duck.run('CREATE TABLE "Ä" (x BIGINT)', 'CREATE TABLE "ä" (x BIGINT)')
    with lake.transaction() as tx:
        tx.append("Ä", pa.table({"x": [1]}))
        tx.append("ä", pa.table({"x": [2]}))
    lake.write("ä", pa.table({"x": [3]}))
    assert (values(lake, "Ä"), values(lake, "ä")) == ([1], [2, 3])


def test_an_earlier_run_that_commits_while_the_base_is_read_is_found(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.write("t", pa.table({"x": [1]}))
    earlier = DuckLake.connect(lake.database.address.url.render_as_string(hide_password=False))
    find = Committer.find_commit

    def after_the_other(self: Committer, commit_id: str) -> object:
        found = find(self, commit_id)
        monkeypatch.setattr(Committer, "find_commit", find)
        earlier.write("t", pa.table({"x": [2]}), commit_id="step")
        return found

    monkeypatch.setattr(Committer, "find_commit", after_the_other)
    assert lake.write("t", pa.table({"x": [2]}), commit_id="step").repeated
    assert values(lake, "t") == [1, 2]


def test_a_repeated_write_to_a_dropped_table(lake: DuckLake) -> None:
    first = lake.write("t", pa.table({"x": [1]}), commit_id="step")
    lake.drop_table("t")
    again = lake.write("T", pa.table({"x": [1]}), commit_id="step")
    assert (again.repeated, again.table, again.table_id, again.snapshot_id) == (True, "main.t", first.table_id, first.snapshot_id)
    lake.write("t", pa.table({"x": [2]}))
    assert lake.write("t", pa.table({"x": [1]}), commit_id="step").table_id == first.table_id
    assert values(lake, "t") == [2]
