"""Statistics of variants and geometries that DuckDB wrote are kept, widened or marked unknown, and filters find all rows."""

from __future__ import annotations

import json
import struct
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.format.files.statistics import geometry_statistics, read_geometry_statistics
from ducklake_core.format.types.data_types import GEOMETRY, INT32, VARIANT, Field
from ducklake_core.format.types.schema import Schema, to_arrow_schema
from ducklake_core.format.values.wkb import check_geometries
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.parameters import on_all_catalogs, spread

FILES = "DATA_INLINING_ROW_LIMIT 0"
SHAPES = (
    *("POINT(1 2)", "POINT EMPTY", "LINESTRING EMPTY", "POINT Z (1 2 3)", "POINT M (1 2 3)", "POINT ZM (9 8 7 6)", "POINT(NaN 3)"),
    *("LINESTRING(3 4, 5 6)", "LINESTRING(NaN 3, 4 NaN)", "POLYGON((0 0,1 0,1 2,0 2,0 0),(0.2 0.2,0.4 0.2,0.4 0.4,0.2 0.2))"),
    *("MULTIPOINT(1 2, 3 4)", "MULTILINESTRING((1 2, 3 4),(-5 6, 7 8))", "MULTIPOLYGON(((0 0,1 0,1 1,0 0)),((5 5,6 5,6 6,5 5)))"),
    *("GEOMETRYCOLLECTION(POINT(1 2), LINESTRING(3 4, 5 6))", "GEOMETRYCOLLECTION EMPTY", "LINESTRING ZM (1 2 3 4, -5 6 7 -8)"),
    *("POINT(1e300 -1e300)", "POINT(-0.0 1e16)", "GEOMETRYCOLLECTION Z (GEOMETRYCOLLECTION Z (POINT Z (1 2 3)))"),
)


def point(x: float, y: float) -> bytes:
    return bytes.fromhex("0101000000") + struct.pack("<dd", x, y)


def rows(numbers: list[int], shapes: list[bytes | None], fields: list[int | None]) -> pa.Table:
    """Rows for a table of an integer, a geometry and a variant."""
    values = [None if f is None else {"metadata": b"\x11\0\0", "value": b"\x14" + struct.pack("<i", f)} for f in fields]
    columns = to_arrow_schema(Schema(columns=(Field(name="i", type=INT32), Field(name="g", type=GEOMETRY), Field(name="v", type=VARIANT))))
    arrays = [pa.array(given, field.type) for given, field in zip((numbers, shapes, values), columns, strict=True)]
    return pa.table(arrays, schema=columns)


def statistics(address: LakeAddress, table: str, column: int) -> tuple[object, ...] | None:
    """The table's ``contains_null`` and ``extra_stats`` of a column, None for no row."""
    lake = DuckLake.connect(address.url)
    with lake.reader() as reader:
        newest = reader.latest_snapshot().id
        found = reader.column_statistics(reader.table("main", table, newest).id, newest).get(column)
    return None if found is None else (bool(found.contains_null), found.extra_stats)


def near(duck: Oracle, x: float, y: float) -> int:
    """Return the number of geometries that DuckDB finds near a point."""
    ring = f"{x - 1} {y - 1},{x + 1} {y - 1},{x + 1} {y + 1},{x - 1} {y + 1},{x - 1} {y - 1}"
    return int(str(duck.value(f"SELECT count(*) FROM t WHERE g && 'POLYGON(({ring}))'::GEOMETRY")))


@on_all_catalogs
def test_appends_keep_and_widen(lake_address: LakeAddress) -> None:
    with attached(lake_address, FILES) as duck:
        duck.run("CREATE TABLE t (i INTEGER, g GEOMETRY, v VARIANT)")
        duck.run("INSERT INTO t SELECT range, ('POINT(' || range || ' 1)')::GEOMETRY, {'a': range::INT}::VARIANT FROM range(10)")
    lake = DuckLake.connect(lake_address.url)
    before = statistics(lake_address, "t", 2)
    lake.table("t").append(rows([10], [None], [1]))
    # NULLs do not change boxes; the fields of a variant of another writer are unknown.
    assert before is not None
    assert statistics(lake_address, "t", 2) == (True, before[1])
    assert statistics(lake_address, "t", 3) == (False, None)
    lake.table("t").append(rows([11], [point(500.5, -7.25)], [2]))
    found = statistics(lake_address, "t", 2)
    assert found is not None
    held = json.loads(str(found[1]))
    assert {name: held["bbox"][name] for name in ("xmin", "xmax", "ymin", "ymax")} == {"xmin": 0, "xmax": 500.5, "ymin": -7.25, "ymax": 1}
    assert held["types"] == ["point"]
    with attached(lake_address, FILES) as duck:
        assert (near(duck, 0, 1), near(duck, 500, -7), near(duck, 200, 0)) == (2, 1, 0)
        duck.run("INSERT INTO t VALUES (12, 'POINT(900 900)'::GEOMETRY, {'a': 77}::VARIANT)")
        duck.run("INSERT INTO t VALUES (13, 'POINT(901 900)'::GEOMETRY, {'a': 78}::VARIANT)")
        assert (near(duck, 0, 1), near(duck, 500, -7), near(duck, 900, 900)) == (2, 1, 2)
        assert duck.rows("SELECT count(*), count(*) FILTER (v IS NULL) FROM t") == [(14, 0)]
        assert duck.rows("SELECT count(*) FROM t WHERE v.a::INT = 77") == [(1,)]


@on_all_catalogs
def test_null_variants_make_field_statistics_unknown(lake_address: LakeAddress) -> None:
    with attached(lake_address, FILES) as duck:
        duck.run("CREATE TABLE t (i INTEGER, g GEOMETRY, v VARIANT)", "INSERT INTO t SELECT 1, NULL, {'a': 5}::VARIANT FROM range(5)")
    DuckLake.connect(lake_address.url).table("t").append(rows([2], [None], [None]))
    with attached(lake_address, FILES) as duck:
        assert duck.rows("SELECT count(*) FROM t WHERE v.a IS NULL") == [(1,)]


@on_all_catalogs
def test_a_table_that_begins_with_nulls(lake: DuckLake, lake_address: LakeAddress) -> None:
    """DuckDB takes bounds that are missing for none, and forgets the rows before its second insert."""
    lake.create_table("t", {"i": "int32", "g": "geometry", "v": "variant"})
    lake.table("t").append(rows([0], [None], [None]))
    with attached(lake_address, FILES) as duck:
        for number in (1, 2, 3):
            duck.run(f"INSERT INTO t VALUES ({number}, 'POINT({number * 100} 0)'::GEOMETRY, {{'a': {number}}}::VARIANT)")
        assert [near(duck, place, 0) for place in (100, 200, 300)] == [1, 1, 1]
        assert [duck.value(f"SELECT count(*) FROM t WHERE v.a::INT = {number}") for number in (1, 2, 3)] == [1, 1, 1]


def test_files_have_boxes(small: DuckLake, sqlite_address: LakeAddress) -> None:
    small.create_table("t", {"i": "int32", "g": "geometry", "v": "variant"})
    for number in range(3):
        small.table("t").append(rows([number], [point(number * 100, 0)], [number]))
    with attached(sqlite_address, FILES) as duck:
        metadata = "__ducklake_metadata_lake.main"
        boxes = duck.rows(f"SELECT extra_stats FROM {metadata}.ducklake_file_column_stats WHERE column_id = 2 ORDER BY data_file_id")
        assert [json.loads(str(text))["bbox"]["xmax"] for (text,) in boxes] == [0, 100, 200]
        assert [near(duck, place, 0) for place in (0, 100, 200, 300)] == [1, 1, 1, 0]
    small.merge_adjacent_files()
    with attached(sqlite_address, FILES) as duck:
        assert [near(duck, place, 0) for place in (0, 100, 200, 300)] == [1, 1, 1, 0]


def test_bounds_that_the_catalog_cannot_hold(small: DuckLake, sqlite_address: LakeAddress) -> None:
    """Infinite coordinates, and more than six digits: never less than the rows."""
    small.create_table("t", {"i": "int32", "g": "geometry", "v": "variant"})
    small.table("t").append(rows([1, 2], [point(1.0000004, 0), point(0.9999996, 0)], [None, None]))
    line = "LINESTRING({0} -1, {0} 1)"
    with attached(sqlite_address, FILES) as duck:
        for x in ("1.0000004", "0.9999996"):
            assert duck.rows(f"SELECT i FROM t WHERE g && '{line.format(x)}'::GEOMETRY") == [(1 if x[0] == "1" else 2,)]
    small.table("t").append(rows([3], [point(float("inf"), 0)], [None]))
    assert statistics(sqlite_address, "t", 2) is None
    with attached(sqlite_address, FILES) as duck:
        assert duck.rows("SELECT count(*) FROM t") == [(3,)]
        assert near(duck, 1, 0) >= 2


@pytest.mark.parametrize("column", spread(["g GEOMETRY", "g GEOMETRY[]"], 1))
def test_boxes_are_those_of_duckdb(sqlite_address: LakeAddress, column: str) -> None:
    nested = column.endswith("[]")
    with attached(sqlite_address, FILES) as duck:
        for number, shape in enumerate(SHAPES):
            value = f"'{shape}'::GEOMETRY"
            duck.run(f"CREATE TABLE t{number} ({column})", f"INSERT INTO t{number} VALUES ({f'[{value}, NULL]' if nested else value})")
        made = "[g]" if nested else "g"
        values = ", ".join(f"('{shape}'::GEOMETRY)" for shape in SHAPES)
        duck.run(f"CREATE TABLE t{len(SHAPES)} ({column})", f"INSERT INTO t{len(SHAPES)} SELECT {made} FROM (VALUES {values}) t(g)")
    lake = DuckLake.connect(sqlite_address.url)
    for number in range(len(SHAPES) + 1):
        by_duckdb = lake.table(f"t{number}")
        lake.create_table(f"u{number}", by_duckdb.schema.to_arrow()).append(by_duckdb.scan().to_arrow())
        leaf = next(by_duckdb.schema.leaves()).id
        assert statistics(sqlite_address, f"u{number}", leaf) == statistics(sqlite_address, f"t{number}", leaf), number


def test_either_byte_order_and_slices() -> None:
    little, big = point(3, -4), b"\0" + struct.pack(">I", 1) + struct.pack(">dd", 30, 40)
    array: Any = pa.array([point(1000, 1000), little, None, big, little], pa.binary()).slice(1)
    check_geometries(array)
    assert geometry_statistics(array).bounds == (("x", 3.0, 30.0), ("y", -4.0, 40.0))


@pytest.mark.parametrize("text", [None, "", "{}", "[]", '{"bbox": 3, "types": []}', '{"bbox": {"xmin": "a"}, "types": []}', "[" * 100_000])
def test_invalid_boxes_are_unknown(text: str | None) -> None:
    assert read_geometry_statistics(text) is None
