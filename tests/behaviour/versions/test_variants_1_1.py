"""Variants among inlined rows of version 1.1: DuckDB reads their bytes, a second implementation reads the rows, all operations work."""

from __future__ import annotations

from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from ducklakepy.expressions import col
from sqlalchemy import column, select, table, text

from ducklake_core import DuckLake
from ducklake_core.catalog.inlined.cells import join_variant, parse_leaf
from ducklake_core.errors import DuckLakeError, UnsupportedFeatureError
from ducklake_core.format.types.data_types import BLOB, VARIANT
from ducklake_core.format.types.schema import VARIANT_STORAGE
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


def _strings(values: list[Any]) -> list[str | None]:
    """Variants as DuckDB decodes their bytes."""
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
    return dict(zip(found["a"].to_pylist(), _strings(_together(found["v"].to_pylist())), strict=True))


def _cells(lake: DuckLake) -> list[Any]:
    """The physical cells of variants, in the order of their rows."""
    ((name,),) = stored(lake, "inlined_data_tables", "table_name")
    source = table(name, column("v"), column("_ducklake_row_id"), schema=lake.database.tables.schema)
    with lake.database.read() as connection:
        return list(connection.execute(select(source.c.v).order_by(source.c["_ducklake_row_id"])).scalars())


def test_small_writes_of_variants_stay_in_the_catalog(lake_address: LakeAddress) -> None:
    lake, values = _lake(lake_address), _variants()
    written = lake.write("t", _rows(lake, values))
    assert (written.rows_inlined, written.files_added) == (len(values), 0)
    wanted = dict(enumerate(_strings(_together(values))))
    assert _read(lake) == wanted
    if lake_address.backend != "duckdb":
        assert _strings(_cells(lake)) == list(wanted.values())
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


def test_both_implementations_read_the_same_variants(both: LakeAddress) -> None:
    lake, values = _lake(both), _variants()
    lake.write("t", _rows(lake, values))
    with second_implementation(both) as catalog:
        catalog.load_table("main.t").append(pa.table({"a": [50], "v": pa.array([values[20]], VARIANT_STORAGE)}))
        catalog.load_table("main.t").delete(col("a") == 3)
    lake.table("t").update({"a": "51"}, where="a = 50")
    with second_implementation(both) as catalog:
        found = catalog.load_table("main.t").to_arrow()
    by_second = dict(zip(found["a"].to_pylist(), _strings(_together(found["v"].to_pylist())), strict=True))
    assert stored(lake, "data_file", "data_file_id") == []
    assert by_second == _read(lake)
    assert set(by_second) == {*range(len(values)), 51} - {3}
    lake.flush_inlined_data()
    with second_implementation(both) as catalog:
        found = catalog.load_table("main.t").to_arrow()
    assert dict(zip(found["a"].to_pylist(), _strings(_together(found["v"].to_pylist())), strict=True)) == _read(lake) == by_second
    assert faults(lake) == []


_UNREADABLE: list[Variant] = [
    {"metadata": b"\x01\0\0", "value": bytes([18 << 2]) + bytes(8)},  # nanoseconds in a time zone
    {"metadata": b"\x01\0\0", "value": b"\x0c\x07\x08"},  # a byte too many
    {"metadata": b"\x01\0\0\xff", "value": b"\x0c\x07"},
    {"metadata": b"\x01\0\0", "value": b"\x02\x01\x05\x00\x02\x0c\x01"},  # a name that is not there
    {"metadata": b"\x01\0\0", "value": b"\x54"},  # a type that is not there
    {"metadata": b"\x01\0\0", "value": b"\x05\xff"},  # not UTF-8
]


def test_variants_that_duckdb_cannot_read_go_to_files(sqlite_address: LakeAddress) -> None:
    lake = _lake(sqlite_address)
    for variant in _UNREADABLE:
        assert variant is not None
        assert not is_readable_variant(**variant)
        assert lake.write("t", _rows(lake, [variant])).rows_inlined == 0
    assert lake.table("t").scan(columns=["v"]).to_arrow()["v"].to_pylist() == _UNREADABLE


def test_lakes_of_1_0_keep_variants_in_files_until_they_are_migrated(lake_address: LakeAddress) -> None:
    lake, values = _lake(lake_address, "1.0"), _variants()
    assert lake.write("t", _rows(lake, values)).rows_inlined == 0
    before = _read(lake)
    lake.migrate("1.1")
    assert _read(lake) == before
    assert lake.write("t", _rows(lake, values[:2], first=100)).rows_inlined == 2
    assert _read(lake) == before | {100: before[0], 101: before[1]}
    assert faults(lake) == []


_NESTED = {
    "l": "list<variant>",
    "s": "struct<v: variant, x: varchar>",
    "m": "map<varchar, variant>",
    "d": "list<struct<v: variant, l: list<variant>>>",
}
_IN_DUCKDB = {
    "l": "BLOB[]",
    "s": "STRUCT(v BLOB, x VARCHAR)",
    "m": "MAP(VARCHAR, BLOB)",
    "d": "STRUCT(v BLOB, l BLOB[])[]",
}


def _nested_lake(address: LakeAddress) -> DuckLake:
    lake = new_lake(address)
    lake.set_option("data_inlining_row_limit", 100)
    lake.create_table("n", {"a": "int64", **_NESTED})
    return lake


def _nested_rows(lake: DuckLake) -> pa.Table:
    """Every variant at every depth, and strings with all characters that have a meaning in nested values."""
    (odd,) = _duckdb().execute("SELECT variant_to_parquet_variant(']}[{,:=\\''\" NULL()'::VARIANT)").fetchall()[0]
    values = [*_variants(), odd]
    schema = lake.table("n").scan().to_arrow().schema
    columns: list[list[Any]] = [
        list(range(len(values) + 1)),
        [*([value, None, value] for value in values), None],
        [*({"v": value, "x": "it's"} for value in values), None],
        [*([("k", value), ("l]", value)] for value in values), None],
        [*([{"v": value, "l": [value, value]}, None] for value in values), []],
    ]
    arrays = [pa.array(one, field.type) for one, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _shown(value: object) -> object:
    """A nested value with variants as DuckDB shows them."""
    if isinstance(value, dict):
        return _strings(_together([value]))[0] if value.keys() == {"metadata", "value"} else {k: _shown(v) for k, v in value.items()}
    return [_shown(item) for item in value] if isinstance(value, list | tuple) else value


def _read_nested(lake: DuckLake, at: int | None = None) -> list[object]:
    return [_shown(row) for row in lake.table("n", at=at).scan().to_arrow().sort_by("a").to_pylist()]


def test_nested_variants_stay_in_the_catalog(lake_address: LakeAddress) -> None:
    """As DuckDB 2.0 has them: the text of the bytes, in the text of what is around them (in DuckDB files its own variants)."""
    lake = _nested_lake(lake_address)
    rows = _nested_rows(lake)
    written = lake.write("n", rows)
    assert (written.rows_inlined, written.files_added) == (rows.num_rows, 0)
    wanted = [_shown(row) for row in rows.to_pylist()]
    assert _read_nested(lake) == wanted
    lake.table("n").update({"a": "a + 1000"}, where="a = 20")
    lake.table("n").delete("a in (0, 1)")
    lake.table("n").add_column("later", "int32")
    lake.table("n").drop_column("later")
    lake.write("n", rows.slice(0, 2))
    assert stored(lake, "data_file", "data_file_id") == []
    earlier = {snapshot.id: _read_nested(lake, snapshot.id) for snapshot in lake.snapshots()[-4:]}
    lake.flush_inlined_data()
    assert len(stored(lake, "data_file", "data_file_id")) > 0
    assert {at: _read_nested(lake, at) for at in earlier} == earlier
    assert faults(lake) == []


def test_both_implementations_read_the_same_nested_variants(both: LakeAddress) -> None:
    """DuckDB parses the stored strings into the written values."""
    lake = _nested_lake(both)
    rows = _nested_rows(lake)
    lake.write("n", rows)
    wanted = [_shown(row) for row in rows.to_pylist()]
    with second_implementation(both) as catalog:
        assert [_shown(row) for row in catalog.load_table("main.n").to_arrow().sort_by("a").to_pylist()] == wanted
    ((name,),) = stored(lake, "inlined_data_tables", "table_name")
    source = table(name, *(column(one) for one in ("a", *_NESTED)), schema=lake.database.tables.schema)
    with lake.database.read() as connection:
        cells = connection.execute(select(source).order_by(source.c.a)).all()
    for place, (one, data_type) in enumerate(_IN_DUCKDB.items(), start=1):
        query = f"SELECT CAST(t AS {data_type}) FROM (SELECT unnest(CAST(? AS VARCHAR[])) AS t)"
        found = [value for (value,) in _duckdb().execute(query, [[cell[place] for cell in cells]]).fetchall()]
        assert [_of_bytes(value) for value in found] == [_bytes_of(row[one]) for row in rows.to_pylist()], one


def _of_bytes(value: object) -> object:
    """A value as DuckDB parses a string: maps as pairs."""
    return list(value.items()) if isinstance(value, dict) and {"k", "l]"} == set(value) else value


def _bytes_of(value: object) -> object:
    """A nested value with the bytes of its variants."""
    if isinstance(value, dict):
        return join_variant(value) if value.keys() == {"metadata", "value"} else {k: _bytes_of(v) for k, v in value.items()}
    if isinstance(value, tuple):
        return tuple(_bytes_of(item) for item in value)
    return [_bytes_of(item) for item in value] if isinstance(value, list) else value


def test_nested_variants_of_duckdb_are_read(both: LakeAddress) -> None:
    lake, values = _nested_lake(both), _variants()
    ((name,),) = stored(lake, "inlined_data_tables", "table_name")
    strings = [to_cast_text(one, BLOB) for one in _together(values)[20:22]]
    cells = {
        "l": "[{}]".format(", ".join("'{}'".format(one.replace("\\", "\\\\").replace("'", "\\'")) for one in strings)),
        "s": f"{{'v': {to_cast_text(_together(values)[0], BLOB)}, 'x': 'it\\'s'}}",
    }
    with lake.database.write() as connection:
        where = f'"{lake.database.tables.schema}".' if lake.database.tables.schema else ""
        row = f'INSERT INTO {where}"{name}" VALUES (1, {lake.snapshot().id}, NULL, 2, :l, :s, NULL, NULL)'
        connection.execute(text(row), cells)
    with second_implementation(both) as catalog:
        by_second = catalog.load_table("main.n").to_arrow().to_pylist()
    own = DuckLake.connect(both.url).table("n").scan().to_arrow().to_pylist()
    for (found,) in (own, by_second):
        assert _strings(_together(found["l"])) == _strings(_together(values[20:22]))
        assert found["s"]["x"] == "it's"
        assert _strings(_together([found["s"]["v"]])) == ["7"]
    lake.flush_inlined_data()
    assert lake.table("n").scan().to_arrow().to_pylist() == own


def test_nested_variants_that_duckdb_cannot_read_go_to_files(sqlite_address: LakeAddress) -> None:
    lake = _nested_lake(sqlite_address)
    schema = lake.table("n").scan().to_arrow().schema
    for number, variant in enumerate(_UNREADABLE):
        columns: list[list[Any]] = [[number], [[variant]], [None], [None], [None]]
        arrays = [pa.array(one, field.type) for one, field in zip(columns, schema, strict=True)]
        assert lake.write("n", pa.Table.from_arrays(arrays, schema=schema)).rows_inlined == 0
    assert lake.table("n").scan().to_arrow().sort_by("a")["l"].to_pylist() == [[variant] for variant in _UNREADABLE]


def test_inlined_variants_leave_no_table_bounds(lake_address: LakeAddress) -> None:
    """DuckDB writes the minimum and maximum and reads neither; the fields' statistics, which it reads, both libraries clear."""
    lake, values = _lake(lake_address), _variants()
    lake.set_option("data_inlining_row_limit", 0)
    lake.write("t", _rows(lake, values[:3]))
    columns = ("column_id", "contains_null", "min_value", "max_value", "min_is_exact", "max_is_exact")
    with lake.database.write() as connection:
        stats = lake.database.tables["table_column_stats"]
        connection.execute(stats.update().where(stats.c.column_id == 2).values(min_value="-300", max_value="70000"))
    lake.set_option("data_inlining_row_limit", 10)
    lake = DuckLake.connect(lake_address.url)
    assert lake.write("t", _rows(lake, [values[13]], first=10)).rows_inlined == 1
    assert stored(lake, "table_column_stats", *columns)[1] == (2, False, None, None, None, None)
    assert stored(lake, "table_column_stats", "column_id", "extra_stats")[1] == (2, None)
    assert lake.table("t").scan(where="v IS NOT NULL").count() == 4
    assert faults(lake) == []


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


def test_strings_that_are_no_variants() -> None:
    for broken in ("", "\\x01", "\\xZZ", "abc"):
        with pytest.raises(DuckLakeError):
            parse_leaf(broken, VARIANT)
    assert parse_leaf("\\x01\\x00\\x00\\x0C\\x07", VARIANT) == {"metadata": b"\x01\0\0", "value": b"\x0c\x07"}
