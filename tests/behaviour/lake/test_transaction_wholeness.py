"""Transactions that would leave a partial result are rejected or undone as a whole."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.commit.committer import Committer
from ducklake_core.errors import CommitConflictError, NotFoundError, UsageError
from tests.support.oracle import LakeAddress, attached

COLUMNS = pa.schema([("x", pa.int64())])


def values(small: DuckLake, table: str) -> list[int]:
    return sorted(small.table(table).scan().to_arrow().column("x").to_pylist())


def test_a_schema_with_views_or_macros_stays(small: DuckLake, sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        duck.run("CREATE SCHEMA s", "CREATE VIEW s.v AS SELECT 1 AS one", "CREATE SCHEMA m", "CREATE MACRO m.plus(x) AS x + 1")
    for schema in ("s", "m"):
        with pytest.raises(UsageError, match="Drop these first"):
            small.drop_schema(schema)
    with attached(sqlite_address) as duck:
        assert duck.value("SELECT one FROM s.v") == 1


def test_a_schema_is_not_dropped_under_what_the_transaction_puts_into_it(small: DuckLake, sqlite_address: LakeAddress) -> None:
    small.create_schema("s")
    small.create_table("s.old", COLUMNS)
    with small.transaction() as tx:
        tx.create_table("s.new", COLUMNS)
        with pytest.raises(UsageError, match="contains old, new"):
            tx.drop_schema("s")
    with small.transaction() as tx:
        tx.append("s.new", pa.table({"x": [1]}))
        with pytest.raises(UsageError, match="Drop these first"):
            tx.drop_schema("s")
    with small.transaction() as tx:
        tx.drop_table("s.new")
        tx.drop_schema("s", cascade=True)
        with pytest.raises(NotFoundError):
            tx.create_table("s.late", COLUMNS)
    small.create_schema("s")
    small.create_table("s.old", COLUMNS)
    with small.transaction() as tx:
        tx.drop_table("s.old")
        tx.drop_schema("s")
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT table_name FROM information_schema.tables WHERE table_catalog = 'lake'") == []


def test_a_failed_call_deletes_nothing_when_its_error_is_caught(small: DuckLake) -> None:
    small.write("t", pa.table({"x": [1, 2]}))
    with small.transaction() as tx:
        with pytest.raises(UsageError, match="does not satisfy"):
            tx.overwrite("t", pa.table({"x": [5]}), where="x = 1")
        with pytest.raises(UsageError, match="does not satisfy"):
            tx.write("new", pa.table({"x": [5]}), mode="overwrite", where="x = 1")
        tx.append("t", pa.table({"x": [7]}))
    assert values(small, "t") == [1, 2, 7]
    assert not small.has_table("new")


@pytest.mark.parametrize("form", [pa.Table.to_reader, pa.Table.combine_chunks, lambda table: table.to_batches()[0]])
def test_rows_without_columns_raise(small: DuckLake, form: Callable[[pa.Table], object]) -> None:
    small.write("t", pa.table({"x": [1, 2]}))
    rows = pa.table({"x": [1, 2]}).select([])
    with pytest.raises(UsageError, match=r"pyarrow .* without columns"):
        small.write("t", form(rows), mode="overwrite")
    assert values(small, "t") == [1, 2]
    assert small.snapshot().id == 1


def test_names_that_differ_in_more_than_ascii_case_are_different_tables(small: DuckLake, sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        duck.run('CREATE TABLE "Ä" (x BIGINT)', 'CREATE TABLE "ä" (x BIGINT)')
    with small.transaction() as tx:
        tx.append("Ä", pa.table({"x": [1]}))
        tx.append("ä", pa.table({"x": [2]}))
    small.write("ä", pa.table({"x": [3]}))
    assert (values(small, "Ä"), values(small, "ä")) == ([1], [2, 3])


def test_an_earlier_run_that_commits_while_the_base_is_read_is_found(small: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    small.write("t", pa.table({"x": [1]}))
    earlier = DuckLake.connect(small.database.address.url.render_as_string(hide_password=False))
    find = Committer.find_commit

    def after_the_other(self: Committer, commit_id: str) -> object:
        found = find(self, commit_id)
        monkeypatch.setattr(Committer, "find_commit", find)
        earlier.write("t", pa.table({"x": [2]}), commit_id="step")
        return found

    monkeypatch.setattr(Committer, "find_commit", after_the_other)
    assert small.write("t", pa.table({"x": [2]}), commit_id="step").repeated
    assert values(small, "t") == [1, 2]


def test_a_repeated_write_to_a_dropped_table(small: DuckLake) -> None:
    first = small.write("t", pa.table({"x": [1]}), commit_id="step")
    small.drop_table("t")
    again = small.write("T", pa.table({"x": [1]}), commit_id="step")
    assert (again.repeated, again.table, again.table_id, again.snapshot_id) == (True, "main.t", first.table_id, first.snapshot_id)
    small.write("t", pa.table({"x": [2]}))
    assert small.write("t", pa.table({"x": [1]}), commit_id="step").table_id == first.table_id
    assert values(small, "t") == [2]


def test_a_failed_call_made_of_others_is_undone(small: DuckLake) -> None:
    """set_sorted_by alters the table, and then checks the keys; the table was touched before."""
    small.write("t", pa.table({"x": [2, 1]}))
    with small.transaction() as tx:
        tx.set_comment("t", "touched")
        with pytest.raises(UsageError, match="DuckDB rejects"):
            tx.set_sorted_by("t", ["nope(x)"])
        tx.append("t", pa.table({"x": [6, 5]}))
    assert small.table("t").sort_keys == ()
    assert values(small, "t") == [1, 2, 5, 6]


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("scope", ["table", "schema"])
def test_options_of_what_another_writer_drops(small: DuckLake, sqlite_address: LakeAddress, scope: str, writes: bool) -> None:
    small.sql("CREATE SCHEMA s; CREATE TABLE s.t (a INTEGER); CREATE TABLE other (a INTEGER)")

    def run() -> None:
        with small.transaction() as tx:
            tx.set_option("target_file_size", 5000, **{scope: "s.t" if scope == "table" else "s"})
            if writes:
                tx.append("other", pa.table({"a": pa.array([1], pa.int32())}))
            with attached(sqlite_address) as duck:
                duck.run("DROP TABLE s.t", *(["DROP SCHEMA s"] if scope == "schema" else []))

    with pytest.raises(CommitConflictError, match=f"set an option of {scope} .* another transaction has dropped it"):
        run()
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT count(*) FROM __ducklake_metadata_lake.ducklake_metadata WHERE scope IS NOT NULL") == [(0,)]
        assert duck.rows("FROM other") == []
