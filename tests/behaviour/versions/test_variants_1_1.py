"""Variants among inlined rows of version 1.1: DuckDB reads their bytes, a second implementation reads the rows, all verbs work."""

from __future__ import annotations

from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from ducklakepy.expressions import col
from sqlalchemy import column, select, table, text

from ducklake_core import DuckLake
from ducklake_core.catalog.inlined.nested_text import parse_leaf
from ducklake_core.errors import DuckLakeError, UnsupportedFeatureError
from ducklake_core.format.types.arrow_types import VARIANT_STORAGE
from ducklake_core.format.types.data_types import BLOB, VARIANT
from ducklake_core.format.values.value_text import to_cast_text
from ducklake_core.format.values.variant_encoding import is_readable_variant
from tests.support.ducklakepy_lake import faults, new_lake, second_implementation, stored
from tests.support.oracle import LakeAddress

Variant = dict[str, bytes] | None

_SQL = (
    "7::TINYINT", "-300::SMALLINT", "70000", "5000000000::BIGINT", "1.5::FLOAT", "-2.5e300::DOUBLE", "-1.250::DECIMAL(18,3)", "true",
    "12345678901234567890.123::DECIMAL(38,3)", "DATE '2020-01-01'", "TIMESTAMP '2020-01-01 00:00:00.5'", "TIME '12:34:56.789'",
    "TIMESTAMPTZ '2020-01-01 00:00:00+00'", "''", "repeat('é', 200)", "'\\xAA\\x00'::BLOB", "'550e8400-e29b-41d4-a716-446655440000'::UUID",
    "[1, 2, NULL]", "[]::INTEGER[]", "range(300)", "{'z': 1, 'a': {'b': ['x', NULL]}}", "TIMESTAMP_NS '2020-01-01 00:00:00.123456789'",
)  # fmt: skip


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


@cache
def _variants() -> list[Variant]:
    """Those of DuckDB, and NULL."""
    query = f"SELECT {', '.join(f'variant_to_parquet_variant(({one})::VARIANT)' for one in _SQL)}"
    return [*_duckdb().execute(query).fetchall()[0], None]


def _texts(values: list[Any]) -> list[str | None]:
    """What DuckDB shows of the bytes of variants."""
    query = "SELECT CAST(variant_bytes_to_variant(b) AS VARCHAR) FROM (SELECT unnest(CAST(? AS BLOB[])) AS b)"
    return [text for (text,) in _duckdb().execute(query, [values]).fetchall()]


def _together(values: list[Variant]) -> list[bytes | None]:
    return [None if one is None else one["metadata"] + one["value"] for one in values]


def _rows(lake: DuckLake, values: list[Variant], first: int = 0, name: str = "t") -> pa.Table:
    schema = lake.table(name).scan().to_arrow().schema
    numbers = pa.array(range(first, first + len(values)), pa.int64())
    return pa.Table.from_arrays([numbers, pa.array(values, VARIANT_STORAGE)], schema=schema)


def _lake(address: LakeAddress, version: str = "1.1") -> DuckLake:
    lake = DuckLake.create(address.url, data_path=address.data_path, version=version)  # type: ignore[arg-type]
    lake.set_option("data_inlining_row_limit", 100)
    lake.create_table("t", {"a": "int64", "v": "variant"})
    return lake


def _read(lake: DuckLake, at: int | None = None) -> dict[int, str | None]:
    found = lake.table("t", at=at).scan().to_arrow()
    return dict(zip(found["a"].to_pylist(), _texts(_together(found["v"].to_pylist())), strict=True))


def _cells(lake: DuckLake) -> list[Any]:
    """The physical cells of variants, in the order of their rows."""
    ((name,),) = stored(lake, "inlined_data_tables", "table_name")
    source = table(name, column("v"), column("_ducklake_row_id"), schema=lake.database.tables.schema)
    with lake.database.read() as connection:
        return list(connection.execute(select(source.c.v).order_by(source.c["_ducklake_row_id"])).scalars())


@pytest.mark.takes_seconds
def test_small_writes_of_variants_stay_in_the_catalog(lake_address: LakeAddress) -> None:
    lake, values = _lake(lake_address), _variants()
    written = lake.write("t", _rows(lake, values))
    assert (written.rows_inlined, written.files_added) == (len(values), 0)
    wanted = dict(enumerate(_texts(_together(values))))
    assert _read(lake) == wanted
    if lake_address.backend != "duckdb":
        assert _texts(_cells(lake)) == list(wanted.values())
    assert lake.table("t").scan(where="v IS NULL").to_arrow()["a"].to_pylist() == [len(_SQL)]
    lake.table("t").update({"a": "a + 100"}, where="a = 20")
    lake.table("t").delete("a in (0, 1)")
    lake.table("t").add_column("later", "int32")
    lake.table("t").drop_column("later")
    lake.write("t", _rows(lake, values[5:7], first=200))
    assert stored(lake, "data_file", "data_file_id") == []
    wanted = {a: shown for a, shown in wanted.items() if a not in (0, 1, 20)} | {120: wanted[20], 200: wanted[5], 201: wanted[6]}
    assert _read(lake) == wanted
    earlier = {snapshot.id: _read(lake, snapshot.id) for snapshot in lake.snapshots()[-3:]}
    lake.flush_inlined_data()
    assert len(stored(lake, "data_file", "data_file_id")) > 0
    assert {at: _read(lake, at) for at in earlier} == earlier
    assert _read(lake) == wanted
    assert faults(lake) == []


@pytest.mark.takes_seconds
def test_both_read_each_others_variants(both: LakeAddress) -> None:
    lake, values = _lake(both), _variants()
    lake.write("t", _rows(lake, values))
    with second_implementation(both) as catalog:
        catalog.load_table("main.t").append(pa.table({"a": [50], "v": pa.array([values[20]], VARIANT_STORAGE)}))
        catalog.load_table("main.t").delete(col("a") == 3)
    lake.table("t").update({"a": "51"}, where="a = 50")
    with second_implementation(both) as catalog:
        found = catalog.load_table("main.t").to_arrow()
    theirs = dict(zip(found["a"].to_pylist(), _texts(_together(found["v"].to_pylist())), strict=True))
    assert stored(lake, "data_file", "data_file_id") == []
    assert theirs == _read(lake)
    assert set(theirs) == {*range(len(values)), 51} - {3}
    lake.flush_inlined_data()
    with second_implementation(both) as catalog:
        found = catalog.load_table("main.t").to_arrow()
    assert dict(zip(found["a"].to_pylist(), _texts(_together(found["v"].to_pylist())), strict=True)) == _read(lake) == theirs
    assert faults(lake) == []


_UNREADABLE: list[Variant] = [
    {"metadata": b"\x01\0\0", "value": bytes([18 << 2]) + bytes(8)},  # nanoseconds in a time zone
    {"metadata": b"\x01\0\0", "value": b"\x0c\x07\x08"},  # a byte too many
    {"metadata": b"\x01\0\0\xff", "value": b"\x0c\x07"},
    {"metadata": b"\x01\0\0", "value": b"\x02\x01\x05\x00\x02\x0c\x01"},  # a name that is not there
    {"metadata": b"\x01\0\0", "value": b"\x54"},  # a type that is not there
    {"metadata": b"\x01\0\0", "value": b"\x05\xff"},  # not UTF-8
]


def test_what_duckdb_would_not_read_goes_to_files(sqlite_address: LakeAddress) -> None:
    lake = _lake(sqlite_address)
    for variant in _UNREADABLE:
        assert variant is not None
        assert not is_readable_variant(**variant)
        assert lake.write("t", _rows(lake, [variant])).rows_inlined == 0
    assert lake.table("t").scan(columns=["v"]).to_arrow()["v"].to_pylist() == _UNREADABLE


@pytest.mark.takes_seconds
def test_lakes_of_1_0_keep_variants_in_files_until_they_are_migrated(lake_address: LakeAddress) -> None:
    lake, values = _lake(lake_address, "1.0"), _variants()
    assert lake.write("t", _rows(lake, values)).rows_inlined == 0
    before = _read(lake)
    lake.migrate("1.1")
    assert _read(lake) == before
    assert lake.write("t", _rows(lake, values[:2], first=100)).rows_inlined == 2
    assert _read(lake) == before | {100: before[0], 101: before[1]}
    assert faults(lake) == []


def test_nested_variants_of_others_are_read_and_ours_go_to_files(both: LakeAddress) -> None:
    """DuckDB writes no variants inside of other values to files, so it could not flush them."""
    lake, values = new_lake(both), _variants()
    lake.create_table("n", {"a": "int64", "l": "list<variant>", "s": "struct<v: variant, x: varchar>"})
    schema = lake.table("n").scan().to_arrow().schema
    data = [[1], [values[20:22]], [{"v": values[0], "x": "it's"}]]
    rows = pa.Table.from_arrays([pa.array(one, field.type) for one, field in zip(data, schema, strict=True)], schema=schema)
    assert lake.write("n", rows).files_added == 1
    ((name,),) = stored(lake, "inlined_data_tables", "table_name")
    texts = [to_cast_text(one, BLOB) for one in _together(values)[20:22]]
    cells = {
        "l": "[{}]".format(", ".join("'{}'".format(one.replace("\\", "\\\\").replace("'", "\\'")) for one in texts)),
        "s": f"{{'v': {to_cast_text(_together(values)[0], BLOB)}, 'x': 'it\\'s'}}",
    }
    with lake.database.write() as connection:
        where = f'"{lake.database.tables.schema}".' if lake.database.tables.schema else ""
        connection.execute(text(f'INSERT INTO {where}"{name}" VALUES (1, 2, NULL, 2, :l, :s)'), cells)
    with second_implementation(both) as catalog:
        theirs = catalog.load_table("main.n").to_arrow().sort_by("a").to_pylist()
    ours = DuckLake.connect(both.url).table("n").scan().to_arrow().sort_by("a").to_pylist()
    assert [row["a"] for row in ours] == [row["a"] for row in theirs] == [1, 2]
    for found in (ours, theirs):
        assert _texts(_together(found[1]["l"])) == _texts(_together(found[0]["l"])) == _texts(_together(values[20:22]))
        assert found[1]["s"]["x"] == "it's"
        assert _texts(_together([found[1]["s"]["v"]])) == ["7"]
    lake.flush_inlined_data()
    assert lake.table("n").scan().to_arrow().sort_by("a").to_pylist() == ours


_BROKEN = [b"", b"\x01", b"\x02\0\0\x0c\x07", b"\x01\0\0", b"\x01\x01\0\x05a", b"\x41\xff\xff\0\0", b"\x01\x01\0\x01\xff\x04"]


def test_cells_that_are_no_variants(sqlite_address: LakeAddress) -> None:
    lake, values = _lake(sqlite_address), _variants()
    lake.write("t", _rows(lake, values[:2]))
    ((name,),) = stored(lake, "inlined_data_tables", "table_name")
    for cell in _BROKEN:
        with lake.database.write() as connection:
            connection.execute(text(f'UPDATE "{name}" SET v = :cell WHERE _ducklake_row_id = 1'), {"cell": cell})
        with pytest.raises(UnsupportedFeatureError, match=r"column 'v' of main\.t has an inlined value"):
            lake.table("t").scan().to_arrow()
    assert lake.table("t").scan(columns=["a"]).count() == 2


def test_texts_that_are_no_variants() -> None:
    for broken in ("", "\\x01", "\\xZZ", "abc"):
        with pytest.raises(DuckLakeError):
            parse_leaf(broken, VARIANT)
    assert parse_leaf("\\x01\\x00\\x00\\x0C\\x07", VARIANT) == {"metadata": b"\x01\0\0", "value": b"\x0c\x07"}
