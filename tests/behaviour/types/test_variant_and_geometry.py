"""Variants, shredded or not, and geometries: as DuckDB shows them, in Arrow and in Spark, read and written."""

from __future__ import annotations

import json
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import VariantVal

from ducklake_core import DuckLake
from ducklake_core.engines.arrow.decoding import reassemble
from ducklake_core.errors import CorruptFileError, SchemaError
from ducklake_core.format.types.schema import VARIANT_STORAGE, to_arrow_schema
from ducklake_core.format.values import variant_encoding as encoding
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.scans import open_lake

# Every type that DuckDB can put into a variant of a file; each is shredded, because all values are of the type.
UNIFORM = {
    "bool": ["true", "false"],
    "i8": ["(-128)::TINYINT", "127::TINYINT"],
    "i16": ["(-300)::SMALLINT"],
    "i32": ["70000"],
    "i64": ["5000000000::BIGINT"],
    "u8": ["200::UTINYINT"],
    "u32": ["4294967295::UINTEGER"],
    "f": ["1.5::FLOAT"],
    "d": ["-2.5e300::DOUBLE"],
    "dec": ["1.25::DECIMAL(9,2)", "-9999999.99::DECIMAL(9,2)"],
    "dec18": ["-1.250::DECIMAL(18,3)"],
    "dec38": ["12345678901234567890.123::DECIMAL(38,3)", "-0.001::DECIMAL(38,3)"],
    "date": ["DATE '2020-01-01'"],
    "ts": ["TIMESTAMP '2020-01-01 00:00:00.5'"],
    "tz": ["TIMESTAMPTZ '2020-01-01 00:00:00+00'"],
    "v": ["'abc'", "''", "repeat('x', 63)", "repeat('x', 64)", "repeat('é', 200)"],
    "blob": ["'\\xAA\\x00'::BLOB"],
    "uuid": ["'550e8400-e29b-41d4-a716-446655440000'::UUID"],
    "json": ["'{\"a\":1}'::JSON"],
    "list": ["[1, 2, NULL]", "[]::INTEGER[]"],
    "lists": ["[['a'], [], NULL, ['b', NULL]]"],
    "map": ["MAP {'a': 1}"],
    "struct": ["{'x': 1, 'y': {'z': NULL, 'b': 'q'}}", "{'x': NULL, 'y': NULL}"],
    "long_list": ["range(300)"],
}
MIXED = [
    "'null'::JSON", "{'a': 1, 'z': 'x'}", "{'a': 'q'}", "{'a': 5, 'n': {'x': []}, 'big': NULL}", "'[1, \"a\", {\"k\": 1}]'::JSON",
    '\'{"a": [1, "x", {"b": null}], "z": 1.5, "e": {}, "ünï": 1}\'::JSON', "'x'", "MAP {}", "{'a': 1, 'z': 'y'}", "1", "true",
]  # fmt: skip


def as_json(value: dict[str, bytes] | None) -> Any:
    return None if value is None else json.loads(VariantVal(value["value"], value["metadata"]).toJson(), parse_float=Decimal)


def referenced(duck: Oracle, table: str) -> list[Any]:
    rows = duck.rows(f"SELECT CAST(CAST(c AS JSON) AS VARCHAR) FROM {table} ORDER BY rowid")
    return [None if text is None else json.loads(str(text), parse_float=Decimal) for (text,) in rows]


@pytest.fixture
def variants(sqlite_address: LakeAddress) -> LakeAddress:
    with attached(sqlite_address) as duck:
        for name, values in {**UNIFORM, "mixed": MIXED}.items():
            duck.run(f"CREATE TABLE v_{name} (i INTEGER, c VARIANT)")
            duck.run(f"INSERT INTO v_{name} VALUES {', '.join(f'({i}, ({value})::VARIANT)' for i, value in enumerate([*values, 'NULL']))}")
    return sqlite_address


def test_variants_equal_those_of_duckdb(variants: LakeAddress) -> None:
    lake = open_lake(variants)
    with attached(variants) as duck:
        for name in (*UNIFORM, "mixed"):
            if name == "uuid":
                continue  # Spark's decoder in Python does not know it; see the next test.
            found = lake.scan(f"v_{name}", columns=["c"]).to_arrow()
            assert found.schema.field("c").type == VARIANT_STORAGE
            assert found.schema.field("c").metadata[b"ARROW:extension:name"] == b"arrow.parquet.variant"
            found.validate(full=True)
            own = [as_json(value) for value in found.column("c").to_pylist()]
            by_duckdb = referenced(duck, f"v_{name}")
            if name in ("dec38", "tz", "ts", "blob"):
                # Numbers of JSON and strings of times differ in form; their values are compared in the next test.
                assert [value is None for value in own] == [value is None for value in by_duckdb]
                continue
            assert own == by_duckdb, name


def test_values_of_variants(variants: LakeAddress) -> None:
    lake = open_lake(variants)

    def python_values(name: str) -> list[Any]:
        values = lake.scan(f"v_{name}", columns=["c"]).to_arrow().column("c").to_pylist()
        return [VariantVal(value["value"], value["metadata"]).toPython() for value in values if value is not None]

    (by_bytes, _) = lake.scan("v_uuid", columns=["c"]).to_arrow().column("c").to_pylist()
    assert by_bytes == {"metadata": b"\x11\x00\x00", "value": b"\x50" + uuid.UUID("550e8400-e29b-41d4-a716-446655440000").bytes}
    assert python_values("dec38") == [Decimal("12345678901234567890.123"), Decimal("-0.001")]
    assert python_values("blob") == [b"\xaa\x00"]
    assert [str(value) for value in python_values("ts")] == ["2020-01-01 00:00:00.500000"]
    assert [str(value) for value in python_values("tz")] == ["2020-01-01 00:00:00+00:00"]
    assert python_values("dec") == [Decimal("1.25"), Decimal("-9999999.99")]
    assert [len(value) for value in python_values("v")] == [3, 0, 63, 64, 200]


def test_null_variants_are_found(variants: LakeAddress) -> None:
    """The catalog counts them as values, so nothing may be left out by these counts."""
    lake = open_lake(variants)
    for where, rows in (("c IS NULL", [0, 11]), ("c IS NOT NULL", list(range(1, 11)))):
        assert lake.scan("v_mixed", columns=["i"], where=where).to_arrow().column("i").to_pylist() == rows
        with attached(variants) as duck:
            assert [i for (i,) in duck.rows(f"SELECT i FROM v_mixed WHERE {where} ORDER BY i")] == rows


def test_variants_in_spark(variants: LakeAddress, spark: Any) -> None:
    frame = open_lake(variants).scan("v_mixed").to_spark(spark)
    assert frame.schema["c"].dataType.simpleString() == "variant"
    rows = frame.selectExpr("to_json(c) AS c", "variant_get(c, '$.z', 'string') AS z").collect()
    with attached(variants) as duck:
        assert [None if row.c is None else json.loads(row.c, parse_float=Decimal) for row in rows] == referenced(duck, "v_mixed")
    assert [row.z for row in rows][1:6] == ["x", None, None, None, "1.5"]


def shredded(value: list[bytes | None], typed: pa.Array[Any], names: bytes) -> pa.StructArray:
    metadata = pa.array([names] * len(value), pa.binary())
    return pa.StructArray.from_arrays([metadata, pa.array(value, pa.binary()), typed], ["metadata", "value", "typed_value"])


def group(value: list[bytes | None], typed: pa.Array[Any] | None = None) -> pa.StructArray:
    arrays = [pa.array(value, pa.binary()), *([] if typed is None else [typed])]
    return pa.StructArray.from_arrays(arrays, ["value", "typed_value"][: len(arrays)])


NAMES = b"\x11\x03\x00\x01\x02\x03abc"


def test_objects_that_are_shredded_in_part() -> None:
    rest = encoding.object_({"c": encoding.string(b"rest")}, NAMES)
    typed = pa.StructArray.from_arrays(
        [group([None, encoding.NULL, None], pa.array([1, None, None], pa.int64())), group([None, None, encoding.string(b"v")])], ["a", "b"]
    )
    found = reassemble(shredded([rest, None, rest], typed, NAMES))
    assert [as_json(value) for value in found.to_pylist()] == [{"a": 1, "c": "rest"}, {"a": None}, {"b": "v", "c": "rest"}]
    assert [as_json(value) for value in reassemble(shredded([rest, None, rest], typed, NAMES).slice(1, 2)).to_pylist()] == [
        {"a": None},
        {"b": "v", "c": "rest"},
    ]
    lacking = shredded([None] * 3, typed, encoding.EMPTY_METADATA)
    with pytest.raises(CorruptFileError, match="does not name"):
        reassemble(lacking)
    twice = encoding.object_({"a": encoding.NULL}, NAMES)
    with pytest.raises(CorruptFileError, match="both shredded and not shredded"):
        reassemble(shredded([twice, None, None], typed, NAMES))


def test_values_that_are_no_variants() -> None:
    both = shredded([encoding.TRUE], pa.array([1], pa.int32()), NAMES)
    with pytest.raises(CorruptFileError, match="both shredded and not shredded"):
        reassemble(both)
    with pytest.raises(CorruptFileError, match="uint16"):
        reassemble(shredded([None], pa.array([1], pa.uint16()), NAMES))
    with pytest.raises(CorruptFileError, match="not the metadata"):
        reassemble(shredded([None], pa.array([1], pa.int32()), b"\x02"))
    with pytest.raises(CorruptFileError, match="instead of a variant"):
        reassemble(pa.array([1]))


def test_null_groups_and_null_values_are_null() -> None:
    plain = pa.StructArray.from_arrays(
        [pa.array([NAMES] * 3, pa.binary()), pa.array([encoding.NULL, encoding.TRUE, None], pa.binary())],
        ["metadata", "value"],
        mask=pa.array([False, False, True]),
    )
    assert [as_json(value) for value in reassemble(plain).to_pylist()] == [None, True, None]


SHAPES = ["POINT(1 2)", "POINT EMPTY", "LINESTRING Z (0 0 1, 3 4 5)", "GEOMETRYCOLLECTION(POINT(1 1), POLYGON((0 0,1 0,1 1,0 0)))"]


@pytest.fixture
def shapes(lake_address: LakeAddress) -> LakeAddress:
    with attached(lake_address) as duck:
        duck.run("CREATE TABLE t (i INTEGER, c GEOMETRY, l GEOMETRY[])")
        rows = ", ".join(f"({i}, '{text}'::GEOMETRY, ['{text}'::GEOMETRY, NULL])" for i, text in enumerate(SHAPES))
        duck.run(f"INSERT INTO t VALUES {rows}, (99, NULL, NULL)")
    return lake_address


def test_geometries_are_well_known_binary(shapes: LakeAddress) -> None:
    found = open_lake(shapes).scan("t").to_arrow()
    for field in (found.schema.field("c"), found.schema.field("l").type.value_field):
        assert field.type == pa.binary()
        assert field.metadata[b"ARROW:extension:name"] == b"geoarrow.wkb"
    with attached(shapes) as duck:
        assert found.column("c").to_pylist() == [wkb for (wkb,) in duck.rows("SELECT ST_AsWKB(c) FROM t ORDER BY i")]
        assert found.column("l").to_pylist()[0] == [found.column("c").to_pylist()[0], None]
        duck.connection.register("own", found)
        assert duck.rows("SELECT typeof(c) FROM own LIMIT 1") == [("GEOMETRY",)]
        duck.connection.unregister("own")
    assert open_lake(shapes).scan("t", columns=["i"], where="c IS NULL").to_arrow().column("i").to_pylist() == [99]


def test_geometries_in_spark(shapes: LakeAddress, spark: Any) -> None:
    own = open_lake(shapes).scan("t").to_arrow()
    rows = open_lake(shapes).scan("t").to_spark(spark).collect()
    assert [row.c for row in rows] == own.column("c").to_pylist()
    assert [row.l for row in rows] == own.column("l").to_pylist()


def same_twice(duck: Oracle, table: str) -> None:
    """Every row of DuckDB is there once more, written by this library, and shows the same."""
    shown = duck.rows(f"SELECT i, count(*), count(DISTINCT c::VARCHAR), count(c) FROM {table} GROUP BY i ORDER BY i")
    assert all(row[1:] in ((2, 1, 2), (2, 0, 0)) for row in shown)


def test_variants_are_written(variants: LakeAddress) -> None:
    lake = DuckLake.connect(variants.url)
    for name in (*UNIFORM, "mixed"):
        table = lake.table(f"v_{name}")
        rows = table.scan().to_arrow()
        written = table.append(rows)
        assert (written.files_added, written.rows_inlined) == (1, 0)
        assert lake.table(f"v_{name}").scan().to_arrow().num_rows == 2 * rows.num_rows
    with attached(variants) as duck:
        for name in (*UNIFORM, "mixed"):
            same_twice(duck, f"v_{name}")
            duck.run(f"INSERT INTO v_{name} VALUES (99, 'more'::VARIANT)", f"DELETE FROM v_{name} WHERE i = 0")
            assert duck.rows(f"SELECT count(*) FROM v_{name} WHERE c::VARCHAR = 'more'") == [(1,)]
    lake.table("v_mixed").update({"i": "i + 1000"})
    assert lake.table("v_mixed").merge(pa.table({"i": [1001]}), on=["i"]).when_matched_delete().execute().rows_deleted == 2
    with attached(variants) as duck:
        assert duck.rows("SELECT count(*) FROM v_mixed WHERE i < 1000 OR i = 1001") == [(0,)]


def test_geometries_are_written(shapes: LakeAddress) -> None:
    lake = DuckLake.connect(shapes.url)
    table = lake.table("t")
    rows = table.scan().to_arrow()
    table.append(rows)
    # A plain binary is a geometry where the table has one.
    point = pa.table({"i": pa.array([200], pa.int32()), "c": pa.array([bytes.fromhex("0000000001") + bytes(16)])})
    table.append(point, missing_columns="null")
    with attached(shapes) as duck:
        assert duck.rows("SELECT c::VARCHAR FROM t WHERE i = 200") == [("POINT (0 0)",)]
        duck.run("DELETE FROM t WHERE i = 200")
        same_twice(duck, "t")
        assert duck.rows("SELECT DISTINCT typeof(c), typeof(l) FROM t") == [("GEOMETRY", "GEOMETRY[]")]
        duck.run("INSERT INTO t VALUES (7000, 'POINT(1000 1000)'::GEOMETRY, NULL)")
        assert duck.rows("SELECT count(*) FROM t WHERE c::VARCHAR = 'POINT (1000 1000)'") == [(1,)]


def test_nested_and_encrypted(sqlite_address: LakeAddress) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path, encrypted=True)
    lake.create_table("t", {"v": "variant", "l": "list<variant>", "s": "struct<v: variant, g: geometry>", "m": "map<varchar, geometry>"})
    columns = pa.schema([field.with_nullable(True) for field in to_arrow_schema(lake.table("t").schema)])
    number = {"metadata": bytes.fromhex("110000"), "value": b"\x0c\x2a"}
    point = bytes.fromhex("0101000000") + bytes(16)
    rows = [
        {"v": number, "l": [number, None], "s": {"v": number, "g": point}, "m": [("a", point), ("b", None)]},
        {"v": None, "l": [], "s": {"v": None, "g": None}, "m": []},
        {"v": None, "l": None, "s": None, "m": None},
    ]
    lake.table("t").append(pa.Table.from_pylist(rows, schema=columns))
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT v::VARCHAR, l::VARCHAR, s::VARCHAR, m::VARCHAR FROM t") == [
            ("42", "[42, NULL]", "{'v': 42, 'g': 'POINT (0 0)'}", "{a='POINT (0 0)', b=NULL}"),
            (None, "[]", "{'v': NULL, 'g': NULL}", "{}"),
            (None, None, None, None),
        ]
    assert lake.table("t").scan().to_arrow().to_pylist() == rows


def test_invalid_variants_and_geometries_raise(small: DuckLake) -> None:
    small.create_table("t", {"v": "variant", "g": "geometry", "n": "struct<g: geometry>"})
    columns = pa.schema([field.with_nullable(True) for field in to_arrow_schema(small.table("t").schema)])
    point = bytes.fromhex("0101000000") + bytes(16)
    bad_shapes = (
        *(b"", b"\1", point[:-1], point + b"x", b"\2" + point[1:], bytes.fromhex("0163000000") + bytes(16)),
        *(bytes.fromhex("0102000000ff000000"), bytes.fromhex("0101000020e6100000") + bytes(16), bytes.fromhex("0103000000ffffffff")),
    )
    for shape in bad_shapes:
        for row in ({"g": shape}, {"n": {"g": shape}}):
            with pytest.raises(SchemaError, match="is not the beginning of a geometry"):
                small.table("t").append(pa.Table.from_pylist([row, {"g": point}], schema=columns))
    for metadata, value in ((b"", b"\x0c\x2a"), (b"\x12\0\0", b"\x0c\x2a"), (b"\x11\0\0", b"")):
        with pytest.raises(SchemaError, match="is not a variant"):
            small.table("t").append(pa.Table.from_pylist([{"v": {"metadata": metadata, "value": value}}], schema=columns))
    with pytest.raises(SchemaError, match="'v'"):
        small.table("t").append(pa.table({"v": [b"x"]}), missing_columns="null")
    assert small.snapshot().id == 1


@pytest.mark.slow
def test_written_by_spark(small: DuckLake, sqlite_address: LakeAddress, spark: Any) -> None:
    small.create_table("t", {"i": "int64", "v": "variant", "g": "geometry", "l": "list<variant>"})
    frame = spark.sql(
        'SELECT id AS i, CASE WHEN id % 5 > 0 THEN parse_json(concat(\'{"a": \', id, \', "b": [1, "x", null]}\')) END AS v, '
        "CASE WHEN id % 3 > 0 THEN unhex('0101000000000000000000F03F0000000000000040') END AS g, array(parse_json('1'), NULL) AS l "
        "FROM range(0, 100, 1, 2)"
    )
    assert small.table("t").append(frame).rows_added == 100
    assert small.write("u", frame.select("i", "v")).created_table
    small.table("t").update({"i": "i + 1000"}, where="i < 10", spark=spark)
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT count(*), count(v), count(g), sum(v.a::INT) FROM t") == [(100, 80, 66, 4000)]
        assert duck.rows("SELECT v::VARCHAR, g::VARCHAR, l::VARCHAR FROM t WHERE i = 1001") == [
            ("{'a': 1, 'b': [1, x, NULL]}", "POINT (1 2)", "[1, NULL]")
        ]
        assert duck.rows("SELECT count(v), sum(v.a::INT) FROM u") == [(80, 4000)]


def test_they_are_merged(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE g (c GEOMETRY)", *["INSERT INTO g VALUES ('POINT(1 2)'::GEOMETRY)"] * 3)
        duck.run("CREATE TABLE plain (a INTEGER)", *["INSERT INTO plain SELECT range FROM range(100)"] * 3)
    lake = DuckLake.connect(sqlite_address.url)
    result = lake.merge_adjacent_files()
    assert (result.files_created, result.failures) == (2, ())
    assert lake.table("g").scan().to_arrow().num_rows == 3
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT DISTINCT c::VARCHAR FROM g") == [("POINT (1 2)",)]


def test_rows_without_a_variant(small: DuckLake, sqlite_address: LakeAddress) -> None:
    """Columns that a frame lacks are NULL, also where a variant has parts that must not be."""
    table = small.create_table("t", {"a": "int32", "v": "variant", "s": "struct(x int32, v variant)", "l": "variant[]"})
    assert table.schema.to_arrow().names == ["a", "v", "s", "l"]
    x = pa.array([{"x": 1}, None], pa.struct([("x", pa.int32())]))
    table.append(pa.table({"a": pa.array([1, 2], pa.int32())}), missing_columns="null")
    table.append(pa.table({"a": pa.array([3, 4], pa.int32()), "s": x}), missing_columns="null")
    expected = [(1, None, None, None), (2, None, None, None), (3, None, {"x": 1, "v": None}, None), (4, None, None, None)]
    assert sorted(tuple(row.values()) for row in small.table("t").scan().to_arrow().to_pylist()) == expected
    with attached(sqlite_address) as duck:
        assert sorted(duck.rows("SELECT * FROM t")) == expected
