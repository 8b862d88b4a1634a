"""Frames against tables: promotions of DuckDB, the rows that it writes, and errors."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import duckdb
import pytest

from ducklake_core.errors import SchemaError
from ducklake_core.format.evolution.reconciliation import reconcile, widens
from ducklake_core.format.types.data_types import (
    FLOAT64,
    INT16,
    INT32,
    INT64,
    INTERVAL,
    JSON,
    PRIMITIVES,
    TIMETZ,
    UINT8,
    UINT32,
    UUID,
    VARCHAR,
    DataType,
    DecimalType,
    Field,
    ListType,
    MapType,
    StructType,
)
from ducklake_core.format.types.schema import Schema, type_text, with_ids
from tests.support.oracle import attached, sqlite_lake

SQL_NAMES = {
    "boolean": "BOOLEAN", "int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "int128": "HUGEINT",
    "uint8": "UTINYINT", "uint16": "USMALLINT", "uint32": "UINTEGER", "uint64": "UBIGINT", "uint128": "UHUGEINT", "float32": "FLOAT",
    "float64": "DOUBLE", "date": "DATE", "time": "TIME", "timetz": "TIMETZ", "timestamp": "TIMESTAMP", "timestamp_s": "TIMESTAMP_S",
    "timestamp_ms": "TIMESTAMP_MS", "timestamp_ns": "TIMESTAMP_NS", "timestamptz": "TIMESTAMPTZ", "interval": "INTERVAL",
    "varchar": "VARCHAR", "json": "JSON", "blob": "BLOB", "uuid": "UUID",
}  # fmt: skip
DECIMALS = [DecimalType(precision=p, scale=s) for p, s in ((3, 0), (4, 2), (5, 0), (10, 2), (10, 4), (18, 0), (20, 0), (38, 2))]
ALL_TYPES: list[DataType] = [*(PRIMITIVES[name] for name in SQL_NAMES), *DECIMALS]
WIDEST_DECIMAL = DecimalType(precision=38, scale=2)


def sql_name(data_type: DataType) -> str:
    return SQL_NAMES.get(str(data_type), type_text(data_type))


def stricter_than_duckdb(source: DataType, target: DataType) -> bool:
    """Return True for promotions of DuckDB that lose digits or turn values into JSON strings; frames never make them."""
    if target == JSON:
        return source != VARCHAR
    wide = [PRIMITIVES["int128"], PRIMITIVES["uint128"], DecimalType(precision=10, scale=4)]
    return target == WIDEST_DECIMAL and source in wide


def test_the_same_types_widen_as_in_duckdb(tmp_path: Path) -> None:
    with attached(sqlite_lake(tmp_path)) as duck:
        duck.run(f"CREATE TABLE t ({', '.join(f'c{i} {sql_name(t)}' for i, t in enumerate(ALL_TYPES))})")
        duck.run("BEGIN")
        for i, source in enumerate(ALL_TYPES):
            for target in ALL_TYPES:
                if source == target:
                    continue
                try:
                    duck.run(f"ALTER TABLE t ALTER c{i} TYPE {sql_name(target)}")
                    accepted = True
                except duckdb.Error as problem:
                    accepted = "widening type promotions" not in str(problem)
                if accepted:
                    duck.run("ROLLBACK", "BEGIN")
                expected = accepted and not stricter_than_duckdb(source, target)
                assert widens(source, target) == expected, (str(source), str(target), accepted)
        duck.run("ROLLBACK")


def struct(*fields: Field) -> StructType:
    return StructType(fields=fields)


TABLE = with_ids(
    Schema(
        columns=(
            Field(name="a", type=INT32),
            Field(name="s", type=struct(Field(name="x", type=INT32), Field(name="y", type=struct(Field(name="p", type=INT32))))),
            Field(name="li", type=ListType(element=Field(name="element", type=INT32))),
            Field(name="l", type=ListType(element=Field(name="element", type=struct(Field(name="q", type=INT32))))),
            Field(name="m", type=MapType(key=Field(name="key", type=VARCHAR), value=Field(name="value", type=INT32))),
        )
    )
)
FRAME = Schema(
    columns=(
        Field(name="N", type=struct(Field(name="u", type=INT32), Field(name="w", type=ListType(element=Field(name="item", type=VARCHAR))))),
        Field(name="A", type=INT64),
        Field(name="s", type=struct(Field(name="z", type=INT64), Field(name="Y", type=struct(Field(name="p", type=INT16))))),
        Field(name="li", type=ListType(element=Field(name="item", type=INT64))),
        Field(
            name="l", type=ListType(element=Field(name="element", type=struct(Field(name="q", type=INT32), Field(name="e", type=INT32))))
        ),
    )
)
STATEMENTS = [
    "ALTER TABLE t ALTER a TYPE BIGINT",
    "ALTER TABLE t ADD COLUMN s.z BIGINT",
    "ALTER TABLE t ALTER li TYPE BIGINT[]",
    "ALTER TABLE t ADD COLUMN l.element.e INTEGER",
    'ALTER TABLE t ADD COLUMN "N" STRUCT(u INTEGER, w VARCHAR[])',
]


def test_rows_are_those_that_duckdb_writes(tmp_path: Path) -> None:
    with attached(sqlite_lake(tmp_path)) as duck:
        duck.run(
            "CREATE TABLE t (a INTEGER, s STRUCT(x INTEGER, y STRUCT(p INTEGER)), li INTEGER[], l STRUCT(q INTEGER)[],"
            " m MAP(VARCHAR, INTEGER))"
        )
        duck.run(*STATEMENTS)
    catalog = sqlite3.connect(tmp_path / "catalog.sqlite")
    written = catalog.execute("SELECT column_id, column_name, column_type, parent_column FROM ducklake_column WHERE begin_snapshot > 1")
    ended = catalog.execute("SELECT column_id FROM ducklake_column WHERE end_snapshot IS NOT NULL")
    expected_rows, expected_ended = sorted(written.fetchall()), sorted(row[0] for row in ended.fetchall())
    catalog.close()

    found = reconcile(TABLE, FRAME, "additive", 1 + max(TABLE.by_id()))
    names = {"item": "element"}
    rows = sorted((node.id, names.get(node.name, node.name), type_text(node.type), parent) for node, parent in found.added)
    assert rows == expected_rows
    assert sorted(found.ended) == expected_ended
    assert set(found.schema.by_id()) == set(TABLE.by_id()) | {node.id for node, _ in found.added}
    assert [node.id for node, _ in found.added if node.id > 12] == sorted(node.id for node, _ in found.added if node.id > 12)
    assert found.schema.names == ("a", "s", "li", "l", "m", "N")
    assert all(node.nullable for node, _ in found.added)


def test_strict_lists_every_change_of_the_table() -> None:
    with pytest.raises(SchemaError, match="additive") as caught:
        reconcile(TABLE, FRAME, "strict", 20)
    text = str(caught.value)
    for part in ("'s.z' is new (int64)", "'l.element.e' is new", "'N' is new"):
        assert part in text
    # Integers of another width may fit, which the writer finds out.
    for part in ("'a'", "'li.element'"):
        assert part not in text


@pytest.mark.parametrize("mode", ["strict", "additive"])
def test_incompatible_types_always_raise(mode: str) -> None:
    frame = Schema(columns=(Field(name="a", type=VARCHAR), Field(name="s", type=INT32)))
    with pytest.raises(SchemaError, match=r"'a' is int32 in the table and varchar in the data; column 's' is struct"):
        reconcile(TABLE, frame, mode, 20)  # type: ignore[arg-type]


def test_narrower_frames_missing_columns_and_other_orders_change_nothing() -> None:
    table = with_ids(
        Schema(columns=(Field(name="a", type=FLOAT64), Field(name="b", type=VARCHAR), Field(name="c", type=INT64, nullable=False)))
    )
    frame = Schema(columns=(Field(name="C", type=INT16), Field(name="a", type=INT32)))
    found = reconcile(table, frame, "strict", 4)
    assert (found.schema, found.added, found.ended, found.differences) == (table, (), (), ())


def test_types_that_engines_lack_are_substituted() -> None:
    table = with_ids(
        Schema(
            columns=(
                Field(name="small", type=UINT8), Field(name="wide", type=UINT32), Field(name="id", type=UUID),
                Field(name="i", type=INTERVAL), Field(name="t", type=TIMETZ), Field(name="j", type=JSON),
            )
        )
    )  # fmt: skip
    carried = [INT16, INT64, VARCHAR, VARCHAR, PRIMITIVES["time"], VARCHAR]
    frame = Schema(columns=tuple(Field(name=c.name, type=t) for c, t in zip(table, carried, strict=True)))
    for mode in ("strict", "additive"):
        assert reconcile(table, frame, mode, 9).schema is table
