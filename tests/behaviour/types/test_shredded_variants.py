"""Shredded variants: fields in columns of their own, their statistics in catalogs, and filters of both engines that use them."""

from __future__ import annotations

import random
import re
import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ducklake_core import DuckLake
from ducklake_core.engines.arrow.decoding import reassemble
from ducklake_core.errors import CorruptFileError, SchemaError, UnsupportedFeatureError
from ducklake_core.format.files.statistics import merged_field_statistics, parse_path, read_field_statistics, to_json
from ducklake_core.format.types.schema import ArrowArray
from ducklake_core.format.values.variant_encoding import VariantBuffer
from ducklake_core.format.values.variant_shredding import Shape, Shredder, choose_shape, shredded_field
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.variants import KINDS, NAMES, Value, comparable, random_value, sql, variant_array, variant_table

FILES = "DATA_INLINING_ROW_LIMIT 0"
NULL = (b"\0", b"")


def integer(number: int) -> Value:
    return Value("INTEGER", number)


def text(held: str) -> Value:
    return Value("VARCHAR", held)


def record(**fields: Value) -> Value:
    return Value("object", fields)


def shredded(array: ArrowArray, shape: Shape) -> pa.StructArray:
    """Plain variants as a file holds them."""
    buffer = VariantBuffer(array)
    parts = Shredder(buffer, lambda *_: None).parts(buffer.root(), shape, len(array))
    wanted = shredded_field(shape, pa.field("v", pa.null())).type
    fields = [wanted.field(place) for place in range(wanted.num_fields)]
    return pa.StructArray.from_arrays([pc.fill_null(array.field("metadata"), b""), *parts], fields=fields, mask=pc.invert(array.is_valid()))


@pytest.mark.parametrize("seed", range(40))
def test_values_come_back(seed: int) -> None:
    """Also in a shape that was chosen from other rows."""
    dice = random.Random(seed)
    kinds = dice.choice([KINDS, ("INTEGER", "null"), ("VARCHAR",), ("TINYINT", "INTEGER", "VARCHAR"), ("DECIMAL", "null"), ("DOUBLE",)])
    names = dice.choice([NAMES, NAMES[:2], NAMES[:1]])
    values = [None if dice.random() < 0.1 else random_value(dice, 0, kinds, names) for _ in range(dice.choice([1, 3, 30, 100]))]
    array = variant_array(values)
    part = VariantBuffer(array.slice(0, max(1, len(values) // dice.choice([1, 3]))))
    found = shredded(array, choose_shape(part, part.root()))
    found.validate(full=True)
    back = reassemble(found)
    back.validate(full=True)
    assert comparable(back) == [None if value == NULL else value for value in comparable(array)]


def test_bytes_that_are_no_variant() -> None:
    good = variant_array([record(a=integer(1), b=text("x"))]).to_pylist()[0]
    value = good["value"]
    bad = [value[:cut] for cut in range(1, len(value))] + [value + b"x", b"\xfc", b"\x02\x01\x09\x00\x01\x00"]
    for one in bad:
        array = pa.array([{**good, "value": one}], variant_array([]).type)
        buffer = VariantBuffer(array)
        with pytest.raises(CorruptFileError):
            _chosen(buffer)


def _chosen(buffer: VariantBuffer) -> Shape:
    return choose_shape(buffer, buffer.root())


def test_values_in_any_order() -> None:
    values = [text("abc"), integer(7), text(""), record(a=integer(1)), text("x" * 70)]
    buffer = VariantBuffer(variant_array(values))
    plain = [row["value"] for row in variant_array(values).to_pylist()]
    for order in ([0, 1, 2, 3, 4], [4, 1, 0], [2, 2, 3], [3], []):
        assert buffer.encoded(buffer.root().where(np.array(order, np.int64))).to_pylist() == [plain[place] for place in order]


def test_long_strings_take_no_more_memory_than_their_size() -> None:
    buffer = VariantBuffer(variant_array([text("x" * 100_000)] * 50))
    slots = buffer.root()
    tracemalloc.start()
    buffer.strings(slots, pa.string())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000, "numpy's share, in addition to Arrow's: positions of bytes would take many times the bytes"


CASES: dict[str, list[Value | None]] = {
    "integers": [integer(1), integer(2), None],
    "objects": [record(a=integer(1), b=text("x")), record(a=integer(2)), None, record(a=Value("null"), b=text("y"))],
    "mixed": [record(a=integer(1)), integer(7), text("x")],
    "lists": [Value("array", [integer(1), integer(2)]), Value("array", []), None],
    "nested": [Value("object", {"n": Value("object", {"x.y": integer(1), 'q"': Value("DOUBLE", 2.5)})}), record(n=Value("object", {}))],
    "lists_of_objects": [Value("array", [record(k=integer(1)), record(k=integer(2))]), Value("array", [record(k=integer(3))])],
    "numbers": [Value("DOUBLE", 1.5), Value("DOUBLE", float("nan"))],
    "dates": [Value("DATE", 18262), Value("DATE", -5)],
    "times": [Value("TIMESTAMP", 1_500_000), Value("TIMESTAMP", -1)],
    "binaries": [Value("BLOB", b"\xaa\0"), Value("BLOB", b"b")],
    "truths": [Value("BOOLEAN", True), Value("BOOLEAN", False)],
    "long_strings": [text("é" * 300), text("z")],
    "nothing": [None, None],
}


def statistics_of(duck: Oracle, table: str) -> Any:
    """The catalog's statistics of a table's variants, without sizes."""
    metadata = "__ducklake_metadata_lake.main"
    (number,) = duck.rows(f"SELECT table_id FROM {metadata}.ducklake_table WHERE table_name = '{table}'")[0]
    of_table = f"WHERE table_id = {number} AND column_id = 2"
    columns = "variant_path, shredded_type, value_count, null_count, min_value, max_value, contains_nan, extra_stats"
    files = duck.rows(f"SELECT {columns} FROM {metadata}.ducklake_file_variant_stats {of_table}")
    counts = duck.rows(f"SELECT value_count, null_count, min_value, extra_stats FROM {metadata}.ducklake_file_column_stats {of_table}")
    whole = duck.rows(f"SELECT contains_null, extra_stats FROM {metadata}.ducklake_table_column_stats {of_table}")
    without = [(*row[:-1], _without_sizes(row[-1])) for row in (*counts, *whole)]
    return sorted(files, key=str), without


def _without_sizes(cell: object) -> list[str]:
    fields = [] if cell is None else str(cell)[2:-2].split("},{")
    return sorted(re.sub(r'"column_size_bytes":\d+,', "", field) for field in fields)


def test_catalogs_equal_those_of_duckdb(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address, FILES) as duck:
        for name, values in CASES.items():
            rows = ", ".join(f"({number}, {sql(value)})" for number, value in enumerate(values))
            duck.run(f"CREATE TABLE {name} (i BIGINT, v VARIANT)", f"INSERT INTO {name} VALUES {rows}")
    lake = DuckLake.connect(sqlite_address.url)
    for name, values in CASES.items():
        lake.create_table(f"{name}_too", {"i": "int64", "v": "variant"}).append(variant_table(values))
    with attached(sqlite_address, FILES) as duck:
        for name in CASES:
            assert statistics_of(duck, f"{name}_too") == statistics_of(duck, name), name
            shown = [duck.rows(f"SELECT i, v::VARCHAR FROM {table} ORDER BY i") for table in (name, f"{name}_too")]
            assert shown[0] == shown[1], name


CONDITIONS = {
    "v.a = 150": 1, "v.a::INT = 150": 1, "v.a > 350": 1, "v.a = 150.5": 1, "v.a IN (5, 150)": 2, "v['a'] < 3": 1, "v.n.d >= 399": 1,
    "v.l[1] = 7": 1, "v.zz = 1": 4, "v.zz IS NULL": 4, "NOT (v.a = 150)": 4, "v.a = 5000": 0, "v.s = 'k7'": 4, "v.s = 'q'": 0,
    "v.a::BIGINT > 10 AND v.a::BIGINT < 12": 1, "variant_extract(v, 'a') = 7": 1, "try_cast(v.s AS INTEGER) = 3": 4,
    "v.a = 150 OR i = 3": 2,
    "g && 'POINT(150 1)'::GEOMETRY": 1, "g && 'POLYGON((0 0, 10 0, 10 5, 0 5, 0 0))'::GEOMETRY": 1, "g && 'POINT EMPTY'::GEOMETRY": 0,
}  # fmt: skip


def test_files_are_left_out(sqlite_address: LakeAddress) -> None:
    """Check files of both libraries; DuckDB excludes a whole table by statistics of ducklake_core."""
    value = "{'a': n::INTEGER, 's': 'k' || n, 'n': {'d': n::DOUBLE}, 'l': [n]}::VARIANT"
    with attached(sqlite_address, FILES) as duck:
        for name in ("by_duckdb", "own_rows"):
            duck.run(f"CREATE TABLE {name} (i BIGINT, v VARIANT, g GEOMETRY)")
        for n in range(0, 400, 100):
            rows = f"SELECT n, {value}, ('POINT(' || n || ' 1)')::GEOMETRY FROM (SELECT range + {n} AS n FROM range(100))"
            duck.run(f"INSERT INTO by_duckdb {rows}")
    lake = DuckLake.connect(sqlite_address.url)
    for n in range(0, 400, 100):
        lake.table("own_rows").append(lake.table("by_duckdb").scan(where=f"i >= {n} AND i < {n + 100}").to_arrow())
    with attached(sqlite_address, FILES) as duck:
        for where, files in CONDITIONS.items():
            expected = [i for (i,) in duck.rows(f"SELECT i FROM by_duckdb WHERE {where} ORDER BY i")]
            assert [i for (i,) in duck.rows(f"SELECT i FROM own_rows WHERE {where} ORDER BY i")] == expected, where
            for name in ("by_duckdb", "own_rows"):
                scan = lake.table(name).scan(columns=["i"], where=where)
                assert scan.to_arrow().column("i").to_pylist() == expected, (where, name)
                if "v.s = 'k7'" not in where:
                    assert f"files:    {files} of 4" in str(scan.plan()), (where, name)
        for where in ("v.a::INT = 5000", "g && 'POINT(1500 1)'::GEOMETRY"):
            for name in ("by_duckdb", "own_rows"):
                assert "EMPTY_RESULT" in str(duck.rows(f"EXPLAIN SELECT * FROM {name} WHERE {where}")), (where, name)
        late = variant_table([record(a=integer(9000))]).set_column(0, "i", pa.array([9000]))
        lake.table("own_rows").append(late, missing_columns="null")
        duck.run("INSERT INTO own_rows VALUES (9001, {'a': 9001::INTEGER}::VARIANT, NULL)")
        lake.table("own_rows").delete(where="v.a = 150")
        for number, count in ((9000, 1), (9001, 1), (150, 0), (151, 1), (70_000, 0)):
            assert duck.rows(f"SELECT count(*) FROM own_rows WHERE v.a::INT = {number}") == [(count,)]
            assert lake.table("own_rows").scan(where=f"v.a::INT = {number}").to_arrow().num_rows == count


def test_st_intersects_leaves_files_out(small: DuckLake) -> None:
    table = small.create_table("t", {"g": "geometry"})
    for x in (b"\0" * 8, b"\0\0\0\0\0\0Y@"):
        table.append(pa.table({"g": pa.array([bytes.fromhex("0101000000") + x + bytes(8)])}))
    for shape in ("'POINT(100 0)'::GEOMETRY", "st_geomfromtext('POINT(100 0)')", "st_makeenvelope(99, -1, 101, 1)"):
        scan = small.table("t").scan(where=f"st_intersects(g, {shape})")
        assert "files:    1 of 2" in str(scan.plan())
        assert scan.to_arrow().num_rows == 1


def test_values_that_do_not_compare(small: DuckLake) -> None:
    table = small.create_table("t", {"i": "int64", "v": "variant"})
    table.append(variant_table([record(a=integer(1)), record(a=text("1")), record(b=integer(1)), None]))
    with pytest.raises(SchemaError, match="cannot be compared"):
        small.table("t").scan(where="v.a = 1").to_arrow()
    assert small.table("t").scan(where="v.a::INTEGER = 1").to_arrow().column("i").to_pylist() == [0, 1]
    assert small.table("t").scan(where="v.a IS NULL").to_arrow().column("i").to_pylist() == [2, 3]


@pytest.mark.parametrize(
    ("inside", "expected"), [("v.a::INTEGER", 1), ("v['a']::INTEGER", 1), ("v IS NULL", False), ("v::VARCHAR", "{'a': 1}")]
)
def test_queries_in_process_read_variants(sqlite_address: LakeAddress, inside: str, expected: object) -> None:
    with DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path) as lake:
        lake.create_table("t", {"i": "int64", "v": "variant"}).append(variant_table([record(a=integer(1))]))
        lake.create_view("w", f"SELECT i, {inside} AS a FROM t")
        for query in (lambda: lake.sql(f"SELECT i, {inside} AS a FROM t").to_arrow(), lambda: lake.view("w").to_arrow()):
            assert query().to_pylist() == [{"i": 0, "a": expected}]


def test_fields_whose_names_differ_in_letters_alone(sqlite_address: LakeAddress) -> None:
    """DuckDB loses one of them where it shreds; see docs/reference/differences.md."""
    rows = "SELECT 1 AS i, {'a': 1}::VARIANT AS v UNION ALL SELECT 2, {'A': 2}::VARIANT UNION ALL SELECT 3, {'a': 3}::VARIANT"
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(f"CREATE TABLE by_duckdb AS {rows}", "CREATE TABLE own_rows (i INTEGER, v VARIANT)")
    lake = DuckLake.connect(sqlite_address.url)
    lake.set_option("data_inlining_row_limit", 0)
    lake.sql(f"INSERT INTO own_rows {rows}")
    with attached(sqlite_address) as duck:
        reported = {name: duck.value(f"SELECT list(v::VARCHAR ORDER BY i) FROM {name}") for name in ("by_duckdb", "own_rows")}
    assert reported == {"by_duckdb": ["{'a': 1}", "{}", "{'a': 3}"], "own_rows": ["{'a': 1}", "{'A': 2}", "{'a': 3}"]}


def test_bytes_that_are_no_variant_are_written_as_they_are(small: DuckLake) -> None:
    """The first row group shreds, a later one cannot: the fields then have no statistics."""
    small.create_table("t", {"i": "int64", "v": "variant"})
    small.set_option("parquet_row_group_size", 2)
    rows = variant_table([record(a=integer(n)) for n in range(4)])
    broken = rows.column("v").to_pylist()
    broken[3] = {**broken[3], "value": broken[3]["value"] + b"x"}
    rows = rows.set_column(1, rows.schema.field("v"), pa.array(broken, rows.schema.field("v").type))
    small.table("t").append(rows)
    assert small.table("t").scan().to_arrow().column("v").to_pylist() == broken
    assert "files:    1 of 1" in str(small.table("t").scan(columns=["i"], where="v.a = 99").plan())


def test_fields_are_shredded_by_their_types(small: DuckLake, tmp_path: Any) -> None:
    small.create_table("t", {"i": "int64", "v": "variant"})
    wide = [Value("object", {f"f{n}": integer(n) for n in range(row, row + 150)}) for row in range(0, 300, 100)]
    small.table("t").append(variant_table(wide))
    (path,) = small.table("t").scan(columns=["filename"]).to_arrow().column("filename").unique().to_pylist()
    typed = pq.read_schema(path).field("v").type.field("typed_value").type
    # Most frequent first: fields of two of the rows before those of one.
    assert typed.num_fields == 200
    assert {f"f{n}" for n in (100, 149, 200, 249)} <= {typed.field(place).name for place in range(200)}
    assert comparable(small.table("t").scan().to_arrow().column("v")) == comparable(variant_array(wide))


@pytest.mark.parametrize(
    "cell", [None, "", "{}", "[1]", '[{"field_name": "a"}]', '[{"field_name": "root", "shredded_type": "x"}]', "[" * 9999]
)
def test_invalid_statistics_are_unknown(cell: str | None) -> None:
    assert read_field_statistics(cell) == ()


@pytest.mark.parametrize("path", ["", "a", '"a', '"a"b', '"a".', "elementary"])
def test_invalid_paths(path: str) -> None:
    with pytest.raises(ValueError, match="is no path"):
        parse_path(path)


def test_merged_statistics_contain_fields_that_all_parts_have() -> None:
    one = '[{"field_name":"\\"a\\"","shredded_type":"int32","null_count":0,"min":"2","max":"10","num_values":5,"any_valid":true}]'
    other = one.replace('"min":"2"', '"min":"-1"').replace('"max":"10"', '"max":"9"')
    both = merged_field_statistics([read_field_statistics(one), read_field_statistics(other)])
    assert [(field.min_value, field.max_value, field.entries) for field in both] == [("-1", "10", 10)]
    assert to_json(merged_field_statistics([read_field_statistics(one), read_field_statistics(one.replace("int32", "int8"))])) is None
    assert to_json(merged_field_statistics([read_field_statistics(one), ()])) is None


@pytest.mark.slow
def test_filters_in_spark(small: DuckLake, sqlite_address: LakeAddress, spark: Any) -> None:
    """Arrow evaluates them on executors; and what Spark writes is shredded there."""
    small.create_table("t", {"i": "int64", "v": "variant", "g": "geometry"})
    for low in (0, 100):
        small.table("t").append(
            spark.sql(
                f"SELECT id AS i, parse_json(concat('{{\"a\": ', id, ', \"s\": \"k', id, '\"}}')) AS v, "
                f"CAST(NULL AS BINARY) AS g FROM range({low}, {low + 100}, 1, 1)"
            )
        )
    for where, count, files in (("v.a = 150", 1, 1), ("v.a::BIGINT < 3", 3, 1), ("v.s = 'q'", 0, 0), ("g && 'POINT(1 1)'::GEOMETRY", 0, 0)):
        scan = small.table("t").scan(where=where)
        assert scan.to_spark(spark).count() == count, where
        assert f"files:    {files} of 2" in str(scan.plan()), where
    with pytest.raises(UnsupportedFeatureError, match="together with conditions"):
        small.table("t").scan(where="v.a = 150 AND month(make_date(i, 1, 1)) = 1").to_spark(spark).count()
    with attached(sqlite_address, FILES) as duck:
        assert duck.rows("SELECT count(*), sum(v.a::INTEGER) FROM t WHERE v.a::INTEGER >= 150") == [(50, sum(range(150, 200)))]
