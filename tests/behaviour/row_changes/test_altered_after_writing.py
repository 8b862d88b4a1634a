"""Tables whose columns, keys or order are altered after rows were written to them in the same transaction."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import SchemaError
from ducklake_core.staging.arguments import MissingColumns
from ducklake_core.transaction import Transaction
from tests.behaviour.row_changes.altered import FEW, frame, read, rows_of
from tests.behaviour.row_changes.conftest import Twins
from tests.support.catalog_dump import dump_catalog
from tests.support.oracle import LakeAddress
from tests.support.parameters import slow

Step = tuple[Callable[[Transaction], Any], str]


def append(*keys: int, missing_columns: MissingColumns = "error") -> Step:
    values = ", ".join(f"({key}, 'b{key}')" for key in keys)
    return (lambda tx: tx.append("t", frame(*keys), missing_columns=missing_columns)), f"INSERT INTO t (a, b) VALUES {values}"


def append_table(columns: dict[str, Any], values: str) -> Step:
    return (lambda tx: tx.append("t", pa.table(columns))), f"INSERT INTO t ({', '.join(columns)}) VALUES {values}"


def delete(where: str) -> Step:
    return (lambda tx: tx.delete("t", where)), f"DELETE FROM t WHERE {where}"


def update(column: str, value: str, where: str) -> Step:
    return (lambda tx: tx.update("t", {column: value}, where=where)), f"UPDATE t SET {column} = {value} WHERE {where}"


def alter(operation: str, *given: Any, sql: str, **named: Any) -> Step:
    return (lambda tx: getattr(tx, operation)("t", *given, **named)), f"ALTER TABLE t {sql}"


ADD = alter("add_column", "z", "int32", default=7, sql="ADD COLUMN z INTEGER DEFAULT 7")
SEQUENCES: dict[str, tuple[Step, ...]] = {
    "add": (append(3, 4), ADD, append(5), update("z", "a", "a = 1"), delete("z = 7 AND a = 4")),
    "add null": (
        append(3),
        alter("add_column", "z", "int64", sql="ADD COLUMN z BIGINT"),
        append(4, 5, missing_columns="null"),
        delete("z IS NULL AND a = 4"),
    ),
    "drop": (append(3), update("b", "'u'", "a = 1"), alter("drop_column", "b", sql="DROP COLUMN b"), delete("a = 2")),
    "drop and add": (
        append(3),
        alter("drop_column", "b", sql="DROP COLUMN b"),
        alter("add_column", "b", "varchar", default="x", sql="ADD COLUMN b VARCHAR DEFAULT 'x'"),
        append(4),
        delete("b = 'x' AND a = 2"),
    ),
    "rename": (
        append(3),
        alter("rename_column", "b", "c", sql="RENAME COLUMN b TO c"),
        append_table({"a": pa.array([4], pa.int32()), "c": ["d"]}, "(4, 'd')"),
        update("c", "c || '!'", "a = 1"),
    ),
    "type": (
        append(3),
        alter("set_column_type", "a", "int64", sql="ALTER COLUMN a TYPE BIGINT"),
        append_table({"a": pa.array([30_000_000_000], pa.int64()), "b": ["d"]}, "(30000000000, 'd')"),
        delete("a > 4 AND a < 10"),
    ),
    "type of a float": (
        append(3),
        alter("set_column_type", "a", "float64", sql="ALTER COLUMN a TYPE DOUBLE"),
        append_table({"a": pa.array([4.5]), "b": ["d"]}, "(4.5, 'd')"),
    ),
    "not null": (append(3), delete("a = 1"), alter("set_not_null", "b", sql="ALTER COLUMN b SET NOT NULL"), append(4)),
    "default": (
        append(3),
        alter("set_default", "b", "q", sql="ALTER COLUMN b SET DEFAULT 'q'"),
        append_table({"a": pa.array([4], pa.int32())}, "(4)"),
    ),
}
# DuckDB's bounds are NULL where a type changed, and include deleted rows; and it makes unused tables of inlined rows.
APART = {"table_column_stats": ("min_value", "max_value", "contains_null"), "snapshot_changes": ("changes_made",)}


@pytest.mark.parametrize("limit", [0, 10])
@pytest.mark.parametrize("sequence", [name if name in ("add", "type") else slow(name) for name in SEQUENCES])
def test_sequences_equal_those_of_duckdb(twins: Twins, sequence: str, limit: int) -> None:
    twins.both(
        f"CALL lake.set_option('data_inlining_row_limit', {limit})",
        "CREATE TABLE t (a INTEGER, b VARCHAR)",
        "INSERT INTO t VALUES (1, 'b1'), (2, 'b2'), (9, 'b9')",
    )
    twins.by_duckdb.run("BEGIN")
    with twins.lake.transaction() as tx:
        for own, by_duckdb in SEQUENCES[sequence]:
            own(tx)
            twins.by_duckdb.run(by_duckdb)
            assert read(tx.table("t")) == rows_of(twins.by_duckdb), by_duckdb
            assert tx.table("t").count() == len(rows_of(twins.by_duckdb))
    twins.by_duckdb.run("COMMIT")
    assert read(twins.lake.table("t")) == rows_of(twins.own) == rows_of(twins.by_duckdb)
    twins.same_catalog(apart_from={**APART, **dict.fromkeys(FILES, ("data_file_id", "delete_file_id"))})
    twins.both("CALL ducklake_flush_inlined_data('lake')", "CALL ducklake_merge_adjacent_files('lake')")
    assert read(twins.lake.table("t")) == rows_of(twins.own) == rows_of(twins.by_duckdb)
    twins.lake.merge_adjacent_files()
    assert read(twins.lake.table("t")) == rows_of(twins.own) == rows_of(twins.by_duckdb)


FILES = ("data_file", "delete_file", "file_column_stats", "file_partition_value", "files_scheduled_for_deletion")


@FEW
def test_fields(twins: Twins, limit: int) -> None:
    """DuckDB rejects some while rows for the catalog are staged, and shows a dropped field again."""
    lake = twins.lake
    twins.both(f"CALL lake.set_option('data_inlining_row_limit', {limit})", "CREATE TABLE t (a INTEGER)", "INSERT INTO t VALUES (1)")
    kind = pa.struct([("x", pa.int32()), ("y", pa.string())])
    with lake.transaction() as tx:
        tx.add_column("t", "s", "struct(x int32, y varchar)")
        tx.append("t", pa.table({"a": pa.array([2, 3], pa.int32()), "s": pa.array([{"x": 1, "y": "y, 'q'"}, None], kind)}))
        tx.add_column("t", "s.z", "int32", default=5)
        tx.drop_column("t", "s.x")
        assert read(tx.table("t")) == ["(1, None)", repr((2, {"y": "y, 'q'", "z": 5})), "(3, None)"]
        tx.set_column_type("t", "s", "struct(y varchar, z int64, l int32[])")
        tx.rename_column("t", "s.y", "why")
        tx.update("t", {"s": "NULL"}, where="a = 3")
        seen = read(tx.table("t"))
    assert read(lake.table("t")) == rows_of(twins.own) == seen
    assert seen == ["(1, None)", repr((2, {"why": "y, 'q'", "z": 5, "l": None})), "(3, None)"]


@pytest.mark.parametrize("limit", [0, 10])
def test_partition_keys_and_sort_order(twins: Twins, limit: int) -> None:
    """DuckDB rejects them while rows for the catalog are staged, names a spec that does not exist, and breaks down on RESET."""
    twins.both(f"CALL lake.set_option('data_inlining_row_limit', {limit})", "CREATE TABLE t (a INTEGER, b VARCHAR)")
    lake, keys = twins.lake, [*range(20)]
    with lake.transaction() as tx:
        tx.append("t", frame(*keys))
        tx.append("t", frame(100))
        tx.set_partitioned_by("t", ["a"])
        tx.append("t", frame(1, 2))
        tx.append("t", frame(*range(200, 212)))
        tx.set_sorted_by("t", ["a DESC"])
        tx.set_partitioned_by("t", ["bucket(4, b)"])
        tx.append("t", frame(*range(300, 320)))
        tx.overwrite("t", frame(201, 201), where="a = 201")
        tx.delete("t", "a IN (3, 202, 303)")
        tx.reset_partitioned_by("t")
        tx.append("t", frame(*range(400, 420)))
        tx.set_partitioned_by("t", ["b"])
        seen = read(tx.table("t"))
        assert tx.table("t").scan(where="a = 201").count() == 2
    assert read(lake.table("t")) == rows_of(twins.own) == seen
    assert twins.own.value("SELECT count(*) FROM t WHERE b = 'b203'") == 1
    dump = dump_catalog(twins.own.address)
    specs = {row["partition_id"] for row in dump["partition_info"]}
    assert {row["partition_id"] for row in dump["data_file"]} <= {None, *specs}
    twins.own.run(
        "INSERT INTO t VALUES (500, 'b500')", "CALL ducklake_flush_inlined_data('lake')", "CALL ducklake_merge_adjacent_files('lake')"
    )
    assert read(lake.table("t")) == rows_of(twins.own) == sorted([*seen, "(500, 'b500')"])


@pytest.mark.parametrize("limit", [0, 10])
def test_a_column_that_comes_and_goes(twins: Twins, limit: int) -> None:
    """Its id stays taken by the files that have it: DuckDB gives it to the next column, which then shows the old values."""
    twins.both(f"CALL lake.set_option('data_inlining_row_limit', {limit})", "CREATE TABLE t (a INTEGER)", "INSERT INTO t VALUES (1)")
    lake = twins.lake
    z = {"z": pa.array([8], pa.int64())}
    twins.by_duckdb.run("BEGIN", "ALTER TABLE t ADD COLUMN z INTEGER DEFAULT 7", "INSERT INTO t VALUES (2, 8)")
    twins.by_duckdb.run("ALTER TABLE t DROP COLUMN z", "COMMIT", "ALTER TABLE t ADD COLUMN w INTEGER DEFAULT 1")
    with lake.transaction() as tx:
        tx.create_table("n", frame().schema)
        tx.append("n", frame(1, 2))
        tx.drop_column("n", "b")
        tx.add_column("n", "c", "int64", default=5)
        tx.append("n", pa.table({"a": pa.array([3], pa.int32())}))
        tx.add_column("t", "z", "int32", default=7)
        tx.append("t", pa.table({"a": pa.array([2], pa.int32()), "z": pa.array([7], pa.int32())}))
        tx.set_column_type("t", "z", "int64")
        tx.append("t", pa.table({"a": pa.array([3], pa.int32()), **z}))
        assert read(tx.table("t")) == ["(1, 7)", "(2, 7)", "(3, 8)"]
        tx.drop_column("t", "z")
        assert read(tx.table("t")) == ["(1,)", "(2,)", "(3,)"]
    assert read(lake.table("t")) == rows_of(twins.own) == ["(1,)", "(2,)", "(3,)"]
    assert read(lake.table("n")) == rows_of(twins.own, "n") == ["(1, 5)", "(2, 5)", "(3, 5)"]
    assert twins.own.rows("SELECT a FROM n WHERE c = 5 ORDER BY a") == [(1,), (2,), (3,)]
    twins.own.run("ALTER TABLE t ADD COLUMN w INTEGER DEFAULT 1")
    lake.table("n").add_column("w", "int32", default=1)
    assert read(lake.table("t")) == rows_of(twins.own) == ["(1, 1)", "(2, 1)", "(3, 1)"]
    assert read(lake.table("n")) == rows_of(twins.own, "n") == ["(1, 5, 1)", "(2, 5, 1)", "(3, 5, 1)"]
    if not limit:
        assert rows_of(twins.by_duckdb) == ["(1, 1)", "(2, 8)"]


@FEW
def test_nulls_that_are_staged(twins: Twins, limit: int) -> None:
    twins.both(f"CALL lake.set_option('data_inlining_row_limit', {limit})", "CREATE TABLE t (a INTEGER, b VARCHAR)")
    twins.both("INSERT INTO t VALUES (1, NULL), (2, 'b2')")
    lake = twins.lake
    with lake.transaction() as tx:
        tx.append("t", pa.table({"a": pa.array([3, 4], pa.int32()), "b": ["b3", None]}))
        with pytest.raises(SchemaError, match=r"'b' of main\.t has NULL"):
            tx.set_not_null("t", "b")
        tx.delete("t", "a = 1")
        with pytest.raises(SchemaError, match=r"'b' of main\.t has NULL"):
            tx.set_not_null("t", "b")
        tx.update("t", {"b": "'b4'"}, where="a = 4")
        tx.set_not_null("t", "b")
        with pytest.raises(SchemaError, match="b"):
            tx.append("t", pa.table({"a": pa.array([5], pa.int32()), "b": pa.array([None], pa.string())}))
        tx.create_table("n", frame().schema)
        tx.append("n", pa.table({"a": pa.array([1], pa.int32()), "b": pa.array([None], pa.string())}))
        with pytest.raises(SchemaError, match=r"'b' of main\.n has NULL"):
            tx.set_not_null("n", "b")
    assert read(lake.table("t")) == rows_of(twins.own) == ["(2, 'b2')", "(3, 'b3')", "(4, 'b4')"]
    assert not lake.table("t").schema.column("b").nullable


@pytest.mark.parametrize(
    ("before", "after", "values"),
    [
        ("decimal(9,2)", "decimal(15,3)", [Decimal(n) / 4 for n in range(12)]),
        ("date", "timestamp", [date(2024, 1, 1 + n) for n in range(12)]),
    ],
)
def test_files_in_buckets_of_a_type_that_ended_with_the_transaction(
    sqlite_address: LakeAddress, before: str, after: str, values: list[Any]
) -> None:
    """The bucket of a value depends on its type: files lose their buckets, and no row is lost."""
    with DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path) as lake:
        lake.create_table("t", {"a": before}, partition_by=["bucket(4, a)"])
        with lake.transaction() as tx:
            for value in values:
                tx.append("t", [{"a": value}] * 20, inline=False)
            tx.set_column_type("t", "a", after)
            assert [tx.table("t").scan(where=f"a = '{value}'").count() for value in values] == [20] * len(values)
        assert [lake.table("t").scan(where=f"a = '{value}'").count() for value in values] == [20] * len(values)
        assert lake.check(level="rows").by_code == {}
