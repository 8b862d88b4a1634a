"""Definitions of tables, views and schemas: reads through them, rejected definitions, and concurrent changes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import (
    AlreadyExistsError,
    CommitConflictError,
    DuckLakeError,
    NotFoundError,
    SchemaError,
    UnsupportedFeatureError,
    UsageError,
)
from ducklake_core.transaction import Transaction
from tests.support.oracle import LakeAddress, attached

HOSTILE = 'we"ird, na.me ü'
QUOTED = '"we""ird, na.me ü"'


def new_lake(address: LakeAddress) -> DuckLake:
    return DuckLake.create(address.url, data_path=address.data_path)


def meanwhile(small: DuckLake, change: Callable[[Transaction], object], other_change: Callable[[], object]) -> None:
    """Make a change in a transaction, before whose commit another change is committed."""
    with small.transaction() as tx:
        change(tx)
        other_change()


def ints(*values: int | None, name: str = "a") -> pa.Table:
    return pa.table({name: pa.array(values, pa.int32())})


def test_old_rows_through_alterations(sqlite_address: LakeAddress) -> None:
    small = new_lake(sqlite_address)
    table = small.create_table("t", {"a": "int32", "s": "struct(x int32)", "former": "varchar", "when": "date"})
    struct = pa.array([{"x": 1}, None], pa.struct([("x", pa.int32())]))
    days = pa.array([date(1969, 12, 31), None])
    table.append(pa.table({"a": pa.array([1, 2], pa.int32()), "s": struct, "former": ["old", "older"], "when": days}))
    before = small.snapshot().id
    with small.transaction() as tx:
        tx.drop_column("t", "former")
        tx.add_column("t", "former", "int64", default=5)
        tx.add_column("t", "s.y", "varchar", default="yes")
        tx.rename_column("t", "s.x", "z")
        tx.set_column_type("t", "s.z", "int64")
        tx.set_column_type("t", "a", "decimal(38,2)")
        tx.set_column_type("t", "when", "timestamp")
        tx.rename_column("t", "a", "b c")
        tx.set_default("t", "former", 6)
        tx.rename_table("t", HOSTILE)
        rest = pa.table({"b c": pa.array([3], pa.int32()), "s": pa.array([{"z": 9, "y": "no"}])})
        tx.append(QUOTED, rest, missing_columns="null")
    assert small.snapshot().id == before + 1
    with attached(sqlite_address) as duck:
        wanted = duck.arrow(f"FROM {QUOTED} ORDER BY 1").to_pylist()
        assert duck.rows(f"SELECT former, a FROM t AT (VERSION => {before}) ORDER BY 2") == [("old", 1), ("older", 2)]
    assert small.table(QUOTED).scan().to_arrow().sort_by("b c").to_pylist() == wanted
    assert [row["former"] for row in wanted] == [5, 5, 6]
    assert [row["s"] for row in wanted] == [{"z": 1, "y": "yes"}, None, {"z": 9, "y": "no"}]
    assert small.table("t", at=before).scan(["former"]).to_arrow().to_pydict() == {"former": ["old", "older"]}


def test_keys_set_in_the_transaction_hold_for_its_rows(sqlite_address: LakeAddress) -> None:
    small = new_lake(sqlite_address)
    small.set_option("data_inlining_row_limit", 0)
    small.create_table("t", {"a": "int32"}).append(ints(1, 2))
    with small.transaction() as tx:
        tx.set_partitioned_by("t", ["a"])
        tx.append("t", ints(1, 2, 2))
    files = small.table("t").list_files()
    assert sorted(file.record_count for file in files) == [1, 2, 2]
    assert sorted(len(file.partition_values) for file in files) == [0, 1, 1]
    small.table("t").reset_partitioned_by()
    small.table("t").append(ints(7, 8))
    assert small.table("t").partition_spec is None
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT a FROM t WHERE a = 2 ORDER BY 1") == [(2,), (2,), (2,)]
        assert duck.value("SELECT sum(a) FROM t") == 23


def test_table_made_of_its_own_rows(sqlite_address: LakeAddress) -> None:
    small = new_lake(sqlite_address)
    small.write("t", ints(3, None, 1))
    old = small.table("t")
    result = small.create_table_as("t", old.scan(where="a IS NOT NULL").to_reader(), or_replace=True)
    assert result.created_table
    assert result.rows_added == 2
    assert old.scan().to_arrow().num_rows == 3
    with attached(sqlite_address) as duck:
        assert duck.rows("FROM t ORDER BY 1") == [(1,), (3,)]
    with pytest.raises(AlreadyExistsError, match="Table t already exists"):
        small.create_table_as("t", ints(1))


def test_duckdb_reads_views(lake_address: LakeAddress) -> None:
    small = new_lake(lake_address)
    small.create_schema("s")
    small.write("t", ints(1, 2, 3))
    small.write(f"s.{QUOTED}", ints(2, 3, 4))
    small.create_view("plain", "SELECT a FROM t WHERE a > 1 -- the rest", columns=["x"])
    small.create_view(
        "s.joined", f"WITH q AS (FROM {'main.t'}) SELECT q.a, count(*) AS n FROM q JOIN {QUOTED} AS o USING (a) GROUP BY ALL;"
    )
    small.create_view("s.above", "SELECT (SELECT max(a) FROM joined) AS m, (SELECT count(*) FROM t) AS n")
    small.set_comment("plain", "two rows")
    with attached(lake_address) as duck:
        for schema in ("main", "s"):
            duck.run(f"USE lake.{schema}")
            assert duck.rows("FROM lake.main.plain ORDER BY 1") == [(2,), (3,)]
            assert duck.rows("FROM lake.s.joined ORDER BY 1") == [(2, 1), (3, 1)]
            assert duck.rows("FROM lake.s.above") == [(3, 3)]
        assert duck.value("SELECT comment FROM duckdb_views() WHERE view_name = 'plain'") == "two rows"
        duck.run("USE lake.main", "CREATE OR REPLACE VIEW plain AS SELECT 1 AS one")
    assert small.view("plain").sql == "SELECT 1 AS one"
    assert small.view("plain").comment is None


@pytest.mark.parametrize(
    ("sql", "error", "text"),
    [
        ("SELECT 1; SELECT 2", UsageError, "one SELECT"),
        ("DROP TABLE t", UsageError, "one SELECT"),
        ("SELECT * FROM nothing", NotFoundError, "main.nothing"),
        ("SELECT * FROM other.main.t", UsageError, "schema.table"),
        ("SELECT * FROM 'file.parquet'", NotFoundError, "not a table of the lake"),
        ("SELECT $1 FROM t", UsageError, "parameters"),
        ("SELECT '{DUCKLAKE_CATALOG}'", UsageError, "readers would replace"),
        ("SELECT FROM WHERE", UnsupportedFeatureError, "cannot parse"),
    ],
)
def test_invalid_views_raise(small: DuckLake, sql: str, error: type[DuckLakeError], text: str) -> None:
    small.write("t", ints(1))
    with pytest.raises(error, match=text):
        small.create_view("v", sql)
    assert small.views() == []


def test_names_are_shared_by_tables_and_views(small: DuckLake) -> None:
    small.write("t", ints(1))
    small.create_view("v", "FROM t")
    for attempt in (
        lambda: small.create_view("T", "SELECT 1"),
        lambda: small.create_view("t", "SELECT 1", or_replace=True),
        lambda: small.create_table("V", {"a": "int32"}),
        lambda: small.create_table("v", {"a": "int32"}, or_replace=True),
        lambda: small.rename_table("t", "v"),
        lambda: small.rename_view("v", "t"),
    ):
        with pytest.raises(AlreadyExistsError):
            attempt()
    with small.transaction() as tx:
        tx.rename_table("t", "old")
        tx.rename_view("v", "t")
        with pytest.raises(NotFoundError):
            tx.drop_table("t")
        tx.create_table("v", {"b": "int32"})
    assert [table.name for table in (small.table("old"), small.table("v"))] == ["main.old", "main.v"]
    assert small.view("t").name == "main.t"


def test_invalid_alterations_raise(small: DuckLake) -> None:
    table = small.create_table("t", {"a": "int32", "b": "varchar", "s": "struct(x int32)", "l": "int32[]"}, partition_by=["a"])
    table.set_sorted_by(["lower(b)"])
    table = table.refresh()
    at = small.snapshot().id
    rejected: list[tuple[type[DuckLakeError], str, Callable[[], Any]]] = [
        (UsageError, "partitioned by", lambda: table.drop_column("a")),
        (UsageError, "sorted by", lambda: table.drop_column("B")),
        (SchemaError, "only field", lambda: table.drop_column("s.x")),
        (SchemaError, "part of a list", lambda: table.rename_column("l.element", "e")),
        (SchemaError, "not a struct", lambda: table.add_column("a.b", "int32")),
        (NotFoundError, "'nope'", lambda: table.rename_column("nope", "x")),
        (AlreadyExistsError, "without regard to case", lambda: table.add_column("A", "int32")),
        (AlreadyExistsError, "without regard to case", lambda: table.rename_column("a", "B")),
        (SchemaError, "cannot change from int32 to int16", lambda: table.set_column_type("a", "int16")),
        (SchemaError, "cannot change", lambda: table.set_column_type("s", "int32")),
        (UsageError, "not a value of type int8", lambda: table.add_column("n", "int8", default=3000)),
        (UnsupportedFeatureError, "cannot have a default", lambda: table.set_default("l", "[1]")),
        (UnsupportedFeatureError, "that there is none", lambda: table.set_default("b", "NULL")),
        (UsageError, "without columns", lambda: table.set_default("a", expression="b")),
        (UsageError, "is not NOT NULL", lambda: table.drop_not_null("a")),
        (SchemaError, "only a top-level column", lambda: table.set_not_null("s.x")),
        (UsageError, "only dates", lambda: table.set_partitioned_by(["month(b)"])),
        (UnsupportedFeatureError, "transform week is not supported", lambda: table.set_partitioned_by(["week(a)"])),
        (NotFoundError, r"no column 'week\(a\)'", lambda: table.set_partitioned_by(['"week(a)"'])),
        (NotFoundError, "does not have", lambda: table.set_sorted_by(["nope DESC"])),
        (UsageError, "not one sort key", lambda: table.set_sorted_by(["a, b"])),
        (UsageError, "list of names", lambda: table.set_sorted_by(7)),
        (UsageError, "list of partition keys", lambda: table.set_partitioned_by([])),
        (UsageError, "cannot be written", lambda: small.table("t", at=at).drop_column("b")),
    ]
    for error, text, attempt in rejected:
        with pytest.raises(error, match=text) as caught:
            attempt()
        assert "main.t" in str(caught.value) or error is UsageError, text
    assert small.snapshot().id == at
    assert table.add_column("a", "int32", if_not_exists=True) is None
    assert table.reset_sorted_by() is not None
    assert table.reset_sorted_by() is None


def test_not_null_is_proven_and_kept(lake_address: LakeAddress) -> None:
    small = new_lake(lake_address)
    small.write("t", ints(1, 2))
    small.write("t", ints(None))
    table = small.table("t")
    with pytest.raises(SchemaError, match=r"'a' of main\.t has NULL in it"):
        table.set_not_null("a")
    table.delete("a IS NULL")
    table.set_not_null("a")
    for rows in (ints(None), ints(3, name="b")):
        with pytest.raises(SchemaError):
            table.append(rows, schema_evolution="additive")
    table.append(ints(4))
    with attached(lake_address) as duck:
        with pytest.raises(duckdb.Error, match="NOT NULL"):
            duck.run("INSERT INTO t VALUES (NULL)")
        assert duck.value("SELECT sum(a) FROM t") == 7
        duck.run("ALTER TABLE t ALTER a DROP NOT NULL", "INSERT INTO t VALUES (NULL)")
    with pytest.raises(SchemaError, match="has NULL in it"):
        small.table("t").set_not_null("a")
    with small.transaction() as tx:
        tx.delete("t", "a IS NULL")
        tx.set_not_null("t", "a")
    assert not small.table("t").schema.column("a").nullable


def test_not_null_against_rows_that_come_meanwhile(small: DuckLake) -> None:
    """DuckDB commits both: its table then holds NULL in a NOT NULL column."""
    small.write("t", ints(1))
    with pytest.raises(SchemaError, match="has NULL in it at snapshot 2"):
        meanwhile(small, lambda tx: tx.set_not_null("t", "a"), lambda: small.write("t", ints(None)))
    assert small.table("t").schema.column("a").nullable
    small.table("t").delete("a IS NULL")
    with small.transaction() as tx:
        tx.set_not_null("t", "a")
        small.write("t", ints(5))
    assert not small.table("t").schema.column("a").nullable


def test_alterations_by_two_are_both_made(small: DuckLake) -> None:
    small.write("t", ints(1))
    with small.transaction() as tx:
        tx.add_column("t", "b", "int32", default=2)
        tx.set_comment("t", "own")
        small.table("t").add_column("c", "int32", default=3)
        small.table("t").append(ints(7))
    assert small.table("t").scan().to_arrow().sort_by("a").to_pylist() == [{"a": 1, "c": 3, "b": 2}, {"a": 7, "c": 3, "b": 2}]
    assert [column.id for column in small.table("t").schema] == [1, 2, 3]


def test_conflicting_alterations_raise(small: DuckLake) -> None:
    small.write("t", ints(1))
    with pytest.raises(CommitConflictError, match=r"alter table main\.t .* altered it in snapshot 2"):
        meanwhile(small, lambda tx: tx.add_column("t", "b", "int32"), lambda: small.table("t").add_column("B", "int64"))
    with pytest.raises(CommitConflictError, match=r"altered it in snapshot 3"):
        meanwhile(
            small,
            lambda tx: (tx.add_column("t", "c", "int32"), tx.append("t", ints(2), missing_columns="null")),
            lambda: small.table("t").add_column("d", "int64"),
        )
    with pytest.raises(CommitConflictError, match="dropped it"):
        meanwhile(small, lambda tx: tx.add_column("t", "c", "int32"), lambda: small.drop_table("t"))


def test_rename_and_drop_do_not_leave_a_table_without_columns(small: DuckLake) -> None:
    small.write("t", ints(1))
    with pytest.raises(CommitConflictError, match=r"drop table main\.t .* renamed it"):
        meanwhile(small, lambda tx: tx.drop_table("t"), lambda: small.rename_table("t", "u"))
    with pytest.raises(CommitConflictError, match=r"rename table main\.u to v .* dropped it"):
        meanwhile(small, lambda tx: tx.rename_table("u", "v"), lambda: small.drop_table("u"))
    with pytest.raises(NotFoundError):
        small.table("v")
    small.create_view("w", "SELECT 1 AS a")
    with pytest.raises(CommitConflictError, match=r"rename view main\.w to x .* dropped it"):
        meanwhile(small, lambda tx: tx.rename_view("w", "x"), lambda: small.drop_view("w"))
    assert small.views() == []


def test_creators_of_one_name(small: DuckLake) -> None:
    with pytest.raises((AlreadyExistsError, CommitConflictError)):
        meanwhile(small, lambda tx: tx.create_table("t", {"a": "int32"}), lambda: small.create_table("T", {"b": "int32"}))
    with pytest.raises((AlreadyExistsError, CommitConflictError)):
        meanwhile(small, lambda tx: tx.create_view("v", "SELECT 1"), lambda: small.create_view("V", "SELECT 2"))
    with pytest.raises((AlreadyExistsError, CommitConflictError)):
        meanwhile(small, lambda tx: tx.create_view("w", "SELECT 1"), lambda: small.create_table("w", {"a": "int32"}))
    small.create_schema("s")
    with pytest.raises(CommitConflictError, match="created a view in this schema"):
        meanwhile(small, lambda tx: tx.drop_schema("s"), lambda: small.create_view("s.v", "SELECT 2"))
    assert small.table("t").schema.names == ("b",)


def test_dropped_schemas_take_macros_along(sqlite_address: LakeAddress) -> None:
    small = new_lake(sqlite_address)
    with attached(sqlite_address) as duck:
        duck.run("CREATE SCHEMA s", "CREATE MACRO s.m(x) AS x", "CREATE MACRO s.tm(x) AS TABLE SELECT x", "CREATE MACRO keep() AS 1")
    with pytest.raises(UsageError, match="contains m, tm"):
        small.drop_schema("s")
    dropped = small.drop_schema("s", cascade=True)
    assert dropped is not None
    assert dropped.changes.split(",")[0].startswith("dropped_schema:")
    assert "dropped_scalar_macro:" in dropped.changes
    assert "dropped_table_macro:" in dropped.changes
    assert [macro.name for macro in small.macros()] == ["keep"]
    with attached(sqlite_address) as duck:
        assert duck.value("SELECT keep()") == 1
        duck.run("CREATE SCHEMA s", "CREATE MACRO s.m(x) AS x + 1")
