"""The same steps by DuckDB and by ducklake_core leave the same metadata, row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from tests.support.catalog_dump import dump_catalog
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.parameters import spread

ROWS = pa.table(
    {
        "a": pa.array(range(40), pa.int32()),
        "s": pa.array([None if i % 7 == 0 else f"text {i}" for i in range(40)]),
        "f": pa.array([float("nan") if i == 3 else (i + 1) / 4 for i in range(40)]),
    }
)
COLUMNS = "a INTEGER, s VARCHAR, f DOUBLE"
DATA = (
    "SELECT range::INT AS a, CASE WHEN range % 7 <> 0 THEN 'text ' || range END AS s, "
    "CASE WHEN range = 3 THEN 'nan'::DOUBLE ELSE (range + 1) / 4 END AS f FROM range({}, {})"
)

Steps = tuple[Callable[[Oracle], None], Callable[[DuckLake], None]]


def _schema_and_table() -> Steps:
    def own(lake: DuckLake) -> None:
        lake.create_schema("Raw data")
        lake.create_schema("raw")
        lake.create_table("raw.t", ROWS.schema)
        lake.create_table('"Raw data"."odd.na""me"', ROWS.schema)

    return lambda duck: duck.run(
        'CREATE SCHEMA "Raw data"',
        "CREATE SCHEMA raw",
        f"CREATE TABLE raw.t ({COLUMNS})",
        f'CREATE TABLE "Raw data"."odd.na""me" ({COLUMNS})',
    ), own


def _nested_table() -> Steps:
    item = pa.struct([("x", pa.int64()), ("tags", pa.list_(pa.string()))])
    schema = pa.schema([("id", pa.int64()), ("items", pa.list_(item)), ("by_name", pa.map_(pa.string(), pa.decimal128(9, 2)))])
    columns = "id BIGINT, items STRUCT(x BIGINT, tags VARCHAR[])[], by_name MAP(VARCHAR, DECIMAL(9,2))"
    return lambda duck: duck.run(f"CREATE TABLE t ({columns})"), lambda lake: lake.create_table("t", schema) and None


def _append_twice() -> Steps:
    def own(lake: DuckLake) -> None:
        lake.create_table("t", ROWS.schema)
        lake.table("t").append(ROWS.slice(0, 20))
        lake.table("t").append(ROWS.slice(20, 20))

    return lambda duck: duck.run(
        f"CREATE TABLE t ({COLUMNS})", f"INSERT INTO t {DATA.format(0, 20)}", f"INSERT INTO t {DATA.format(20, 40)}"
    ), own


def _create_with_rows() -> Steps:
    return lambda duck: duck.run(f"CREATE TABLE t AS {DATA.format(0, 40)}"), lambda lake: lake.write("t", ROWS) and None


def _overwrite_all() -> Steps:
    def own(lake: DuckLake) -> None:
        lake.write("t", ROWS)
        lake.table("t").overwrite(ROWS.slice(0, 30))

    return lambda duck: duck.run(
        f"CREATE TABLE t AS {DATA.format(0, 40)}", "BEGIN", "DELETE FROM t", f"INSERT INTO t {DATA.format(0, 30)}", "COMMIT"
    ), own


def _overwrite_some() -> Steps:
    def own(lake: DuckLake) -> None:
        lake.write("t", ROWS)
        lake.table("t").overwrite(ROWS.slice(0, 20), where="a < 20")
        lake.table("t").overwrite(ROWS.slice(25, 5), where="a >= 25")

    return lambda duck: duck.run(
        f"CREATE TABLE t AS {DATA.format(0, 40)}",
        "BEGIN", "DELETE FROM t WHERE a < 20", f"INSERT INTO t {DATA.format(0, 20)}", "COMMIT",
        "BEGIN", "DELETE FROM t WHERE a >= 25", f"INSERT INTO t {DATA.format(25, 30)}", "COMMIT",
    ), own  # fmt: skip


def _drop() -> Steps:
    def own(lake: DuckLake) -> None:
        lake.create_schema("dropped")
        lake.write("dropped.t", ROWS)
        lake.drop_schema("dropped", cascade=True)
        lake.write("t", ROWS)
        lake.drop_table("t")

    return lambda duck: duck.run(
        "CREATE SCHEMA dropped", f"CREATE TABLE dropped.t AS {DATA.format(0, 40)}", "DROP SCHEMA dropped CASCADE",
        f"CREATE TABLE t AS {DATA.format(0, 40)}", "DROP TABLE t",
    ), own  # fmt: skip


def _partitioned() -> Steps:
    def own(lake: DuckLake) -> None:
        with lake.transaction() as tx:
            tx.create_table("t", ROWS.schema, partition_by=["bucket(2, a)", "s"])
        lake.table("t").append(ROWS.slice(0, 2))

    return lambda duck: duck.run(
        "BEGIN", f"CREATE TABLE t ({COLUMNS})", "ALTER TABLE t SET PARTITIONED BY (bucket(2, a), s)", "COMMIT",
        f"INSERT INTO t {DATA.format(0, 2)}",
    ), own  # fmt: skip


def _delete_rows() -> Steps:
    def own(lake: DuckLake) -> None:
        lake.write("t", ROWS)
        lake.table("t").delete("a < 4 OR a = 30")
        lake.table("t").delete("a >= 35")
        lake.table("t").delete(None)

    return lambda duck: duck.run(
        f"CREATE TABLE t AS {DATA.format(0, 40)}", "DELETE FROM t WHERE a < 4 OR a = 30", "DELETE FROM t WHERE a >= 35", "DELETE FROM t",
    ), own  # fmt: skip


def _add_column() -> Steps:
    def own(lake: DuckLake) -> None:
        lake.write("t", ROWS.slice(0, 20))
        added = pa.array([[{"x": i}] for i in range(20, 40)], pa.list_(pa.struct([("x", pa.int64())])))
        lake.write("t", ROWS.slice(20).append_column("more", added), schema_evolution="additive")

    return lambda duck: duck.run(
        f"CREATE TABLE t AS {DATA.format(0, 20)}",
        "BEGIN",
        "ALTER TABLE t ADD COLUMN more STRUCT(x BIGINT)[]",
        f"INSERT INTO t SELECT *, [{{'x': a::BIGINT}}] FROM ({DATA.format(20, 40)})",
        "COMMIT",
    ), own


STEPS = {
    "delete rows": _delete_rows,
    "add column": _add_column,
    "schema and table": _schema_and_table,
    "nested table": _nested_table,
    "append twice": _append_twice,
    "create with rows": _create_with_rows,
    "overwrite all": _overwrite_all,
    "overwrite some": _overwrite_some,
    "drop": _drop,
    "partitioned": _partitioned,
}
# Intended differences, by step: metadata table and column, and the reason. Each must really differ.
DIVERGENCES: dict[str, dict[str, str]] = {
    "delete rows": {
        "snapshot.next_file_id": "ducklake_core moves it with every change of rows, because it is the key of cached statistics"
    },
    "partitioned": {
        "snapshot_changes.changes_made": "DuckDB logs the creation and the ALTER, ducklake_core only the creation",
        "table_column_stats.min_value": "DuckDB forgets bounds when one file of a commit holds only NULLs",
        "table_column_stats.max_value": "the same; its next insert then restarts them and loses rows in filters",
    },
}


@pytest.mark.parametrize("name", spread(STEPS, 3))
@pytest.mark.parametrize("inlining", [False, True], ids=["no inlining", "inlining"])
def test_same_metadata(two_lakes: tuple[LakeAddress, LakeAddress], name: str, *, inlining: bool) -> None:
    by_duckdb, own = two_lakes
    limit = 1 if inlining else 0
    steps_of_duckdb, own_steps = STEPS[name]()
    with attached(by_duckdb) as duck:
        duck.run(f"CALL lake.set_option('data_inlining_row_limit', {limit})")
        steps_of_duckdb(duck)
    lake = DuckLake.create(own.url, data_path=own.data_path)
    lake.set_option("data_inlining_row_limit", limit)
    own_steps(lake)
    lake.close()
    expected = dump_catalog(by_duckdb)
    found = dump_catalog(own, expected)
    assert set(found) == set(expected)
    for table in expected:
        left_out = {column.partition(".")[2] for column in DIVERGENCES.get(name, {}) if column.partition(".")[0] == table}
        assert _without(found[table], left_out) == _without(expected[table], left_out), table
        for column in left_out:
            assert [row[column] for row in found[table]] != [row[column] for row in expected[table]], column


def _without(rows: list[dict[str, Any]], columns: set[str]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in columns} for row in rows]
