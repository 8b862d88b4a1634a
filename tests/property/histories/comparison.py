"""Reads of the library compared with the oracle's: rows as strings in both directions, counts, and listings."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from random import Random

import duckdb
import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType

from ducklake_core import DuckLake
from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.changes import parse_changes
from ducklake_core.format.types.names import split_name
from ducklake_core.table import Table
from tests.property.histories.conditions import condition
from tests.property.histories.sketch import Column, TableSketch
from tests.support.oracle import Oracle, quoted, sql_type

VIRTUAL = ("rowid", "snapshot_id", "filename")


def at_snapshot(at: int | datetime | None) -> str:
    if at is None:
        return ""
    return f" AT (VERSION => {at})" if isinstance(at, int) else f" AT (TIMESTAMP => TIMESTAMPTZ '{at.isoformat()}')"


def remember(duck: Oracle, name: str, query: str) -> list[Column]:
    """Keep a query's rows in a temporary table, out of reach of the lake's statistics; gives its columns."""
    duck.connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")
    return columns_of(duck, name)


def columns_of(duck: Oracle, source: str) -> list[Column]:
    return [Column(column[0], column[1]) for column in duck.connection.execute(f"SELECT * FROM {source} LIMIT 0").description]


def _as_text(column: Column, wanted: DuckDBPyType, *, signed_zeros: bool) -> str:
    zero = "" if signed_zeros or wanted.id not in ("double", "float") else " + 0"
    return f"CAST(CAST({column.sql} AS {wanted}){zero} AS VARCHAR)"


def differences(duck: Oracle, by_library: str, by_duckdb: str, *, signed_zeros: bool = True) -> list[tuple[object, ...]]:
    """Return rows that one of two relations has more often: the surplus (negative: the library misses it), and the row."""
    wanted = columns_of(duck, by_duckdb)
    held = columns_of(duck, by_library)
    assert [c.name for c in held] == [c.name for c in wanted]
    # DuckDB takes no variants from Arrow; those of files are compared where variants are tested.
    both = [pair for pair in zip(held, wanted, strict=True) if pair[0].kind == "variant" or pair[1].kind != "variant"]
    held, wanted = [pair[0] for pair in both], [pair[1] for pair in both]
    # Struct fields are compared by position as well, so their names are compared apart, with the types.
    mine, other = (
        ", ".join(f"{_as_text(a, b.type, signed_zeros=signed_zeros)} AS c{n}" for n, (a, b) in enumerate(zip(columns, wanted, strict=True)))
        for columns in (held, wanted)
    )
    names = ", ".join(f"c{n}" for n in range(len(wanted)))
    return duck.rows(
        f"SELECT sum(side) AS surplus, {names} "
        f"FROM (SELECT 1 AS side, {mine} FROM {by_library} UNION ALL SELECT -1, {other} FROM {by_duckdb}) "
        f"GROUP BY {names} HAVING sum(side) <> 0 ORDER BY ALL LIMIT 8"
    )


def register(duck: Oracle, name: str, table: pa.Table) -> None:
    """Register a table with the oracle; decimals that it cannot import from Arrow become strings."""
    for index, field in enumerate(table.schema):
        if pa.types.is_decimal256(field.type):
            table = table.set_column(index, field.name, table.column(index).cast(pa.string()))
    duck.connection.register(name, table)


def compare_table(duck: Oracle, lake: DuckLake, table: TableSketch, at: int | datetime | None, draw: Random, conditions: int) -> None:
    """Columns, rows, row ids, counts, and rows under conditions, of one table at one snapshot."""
    source = f"{table.sql}{at_snapshot(at)}"
    hidden = ", ".join(f'{name} AS "${name}"' for name in VIRTUAL)
    by_duckdb = remember(duck, "by_duckdb", f"SELECT *, {hidden} FROM {source}")
    wanted = by_duckdb[: -len(VIRTUAL)]
    opened = lake.table(table.sql, at=at)
    assert [c.name for c in wanted] == list(opened.schema.names), "column names"
    assert [duckdb.sqltype(sql_type(field.type)) for field in opened.schema] == [c.type for c in wanted], "column types"
    found = opened.scan(columns=[*opened.schema.names, *VIRTUAL]).to_arrow()
    register(duck, "by_library", found.rename_columns([*opened.schema.names, *(f"${name}" for name in VIRTUAL)]))
    try:
        unequal = differences(duck, "by_library", "by_duckdb")
        assert unequal == [], f"rows (surplus of the library, row, rowid, snapshot_id, filename): {unequal}"
    finally:
        duck.connection.unregister("by_library")
    if draw.random() < 0.5:
        assert opened.scan().count() == len(found), "count"
    there = TableSketch(table.schema, table.name, tuple(wanted))
    for _ in range(conditions):
        compare_condition(duck, opened, condition(draw, there), draw)


def compare_condition(duck: Oracle, opened: Table, where: str, draw: Random) -> None:
    """Compare row ids under a condition with the rows that :func:`compare_table` kept."""
    try:
        by_library = opened.scan(columns=["rowid"], where=where).to_arrow().column("rowid").to_pylist()
    except UnsupportedFeatureError as error:
        assert "to_spark" in str(error), error
        return
    except Exception as error:
        error.add_note(f"WHERE {where}")
        raise
    by_duckdb = [row[0] for row in duck.rows(f'SELECT "$rowid" FROM by_duckdb WHERE {where}')]
    assert Counter(by_library) == Counter(by_duckdb), f"row ids WHERE {where}"
    if draw.random() < 0.3:
        assert opened.scan(where=where).count() == len(by_duckdb), f"count WHERE {where}"


def compare_listing(duck: Oracle, lake: DuckLake) -> None:
    """Snapshots with their changes, schemas, tables and their row counts."""
    by_duckdb = duck.rows("SELECT snapshot_id, snapshot_time, schema_version, author, commit_message FROM lake.snapshots() ORDER BY 1")
    by_library = lake.snapshots()
    assert [(s.id, s.time, s.schema_version, s.author, s.message) for s in by_library] == by_duckdb, "snapshots"
    for snapshot in by_library:
        assert parse_changes(snapshot.changes).unknown == (), snapshot
    names = duck.rows("SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'lake' ORDER BY ALL")
    infos = {split_name(info.table): info for info in lake.tables()}
    assert sorted(infos) == names, "tables"
    for (schema, name), info in infos.items():
        counted = duck.value(f"SELECT count(*) FROM (SELECT rowid FROM {quoted(schema)}.{quoted(name)})")
        assert info.row_count == counted, f"row count of {info.table}"


def reads_twice(duck: Oracle, at: int | datetime) -> bool:
    """Return True where a flush of DuckDB left two delete files of a data file, whose rows DuckDB then reads twice."""
    meta = "__ducklake_metadata_lake"
    moment = (
        str(at)
        if isinstance(at, int)
        else f"(SELECT max(snapshot_id) FROM {meta}.ducklake_snapshot WHERE snapshot_time <= '{at.isoformat()}')"
    )
    live = f"begin_snapshot <= {moment} AND (end_snapshot IS NULL OR end_snapshot > {moment})"
    files = f"SELECT data_file_id FROM {meta}.ducklake_delete_file WHERE {live} GROUP BY data_file_id HAVING count(*) > 1"
    return bool(duck.value(f"SELECT count(*) FROM ({files})"))


def tables_at(duck: Oracle, snapshot: int) -> list[TableSketch]:
    """Tables that a snapshot has, from the catalog's own rows."""
    meta = "__ducklake_metadata_lake"
    live = "{0}.begin_snapshot <= {1} AND ({0}.end_snapshot IS NULL OR {1} < {0}.end_snapshot)"
    query = (
        f"SELECT s.schema_name, t.table_name FROM {meta}.ducklake_table t JOIN {meta}.ducklake_schema s USING (schema_id) "
        f"WHERE {live.format('t', snapshot)} AND {live.format('s', snapshot)} ORDER BY ALL"
    )
    return [TableSketch(str(schema), str(name), ()) for schema, name in duck.rows(query)]
