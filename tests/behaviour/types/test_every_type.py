"""Every type in files and inlined, alone and nested, read value by value as DuckDB shows it."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.catalog.inlined.cells import parse_leaf
from ducklake_core.engines.spark.scan_schema import TYPES_CONF
from ducklake_core.errors import SchemaError, UsageError
from ducklake_core.format.types.data_types import (  # fmt: skip
    BLOB,
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    INT128,
    JSON,
    TIME,
    TIME_NS,
    TIMESTAMP,
    TIMESTAMP_NS,
    TIMESTAMP_S,
    TIMESTAMPTZ,
    TIMETZ,
    UINT128,
    VARCHAR,
    DataType,
    DecimalType,
    Field,
    ListType,
    MapType,
    StructType,
)
from ducklake_core.format.values.arrow_cast import cast_array, from_values
from ducklake_core.scan import Scan
from tests.behaviour.types.samples import FILE_TYPES, LOSSY_IN_FILES, TYPES, constant, rows_of, strings, strings_of, table_strings
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.parameters import on_all_catalogs, spread
from tests.support.scans import assert_same_rows, open_lake


def fill(duck: Oracle, table: str, types: tuple[DataType, ...], *, in_file: bool) -> None:
    """Columns c0, c1 ... of the types with all samples."""
    columns = ", ".join(f"c{i} {TYPES[data_type]}" for i, data_type in enumerate(types))
    samples = [[constant(text, TYPES[data_type]) for text in strings_of(data_type, in_file=in_file)] for data_type in types]
    duck.run(f"CREATE TABLE {table} ({columns})", f"INSERT INTO {table} VALUES {rows_of(samples)}")


def fill_nested(duck: Oracle, table: str, types: tuple[DataType, ...], *, in_file: bool) -> None:
    """Columns l0, m0, s0, d0, l1 ...: all samples in a list, as values of a map, in a struct, and in structs in lists in structs."""
    columns, values = [], []
    for i, data_type in enumerate(types):
        sql = TYPES[data_type]
        samples = [constant(text, sql) for text in (*strings_of(data_type, in_file=in_file), None)]
        columns += [f"l{i} {sql}[]", f"m{i} MAP(INTEGER, {sql})", f"s{i} STRUCT(x {sql})", f"d{i} STRUCT(y STRUCT(x {sql}[])[])"]
        pairs = ", ".join(f"{n}: {sample}" for n, sample in enumerate(samples))
        values.append([f"[{', '.join(samples)}]", "[]"])
        values.append([f"MAP {{{pairs}}}", "MAP {}"])
        values.append([f"{{'x': {sample}}}" for sample in samples])
        values.append([f"{{'y': [{{'x': [{', '.join(samples)}]}}, NULL, {{'x': NULL}}, {{'x': []}}]}}", "{'y': NULL}"])
    duck.run(f"CREATE TABLE {table} ({', '.join(columns)})", f"INSERT INTO {table} VALUES {rows_of(values)}")


def expected(duck: Oracle, types: tuple[DataType, ...], *, in_file: bool) -> dict[str, list[Any]]:
    """Values that DuckDB was given, or that it has stored if it loses digits of the type."""
    found: dict[str, list[Any]] = {}
    for i, data_type in enumerate(types):
        if in_file and data_type in LOSSY_IN_FILES:
            rows = duck.rows(f"SELECT CAST(c{i} AS VARCHAR) FROM files ORDER BY rowid")
            found[f"c{i}"] = [text for (text,) in rows if text is not None]
        else:
            samples = strings_of(data_type, in_file=in_file)
            found[f"c{i}"] = [duck.value(f"SELECT CAST({constant(text, TYPES[data_type])} AS VARCHAR)") for text in samples]
    return found


def without_nulls(values: list[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def check_leaves(own: dict[str, list[Any]], wanted: dict[str, list[Any]], types: tuple[DataType, ...]) -> None:
    for i, data_type in enumerate(types):
        assert without_nulls(own[f"c{i}"]) == wanted[f"c{i}"], data_type
        assert own[f"c{i}"][-1] is None, data_type


def check_nested(own: dict[str, list[Any]], wanted: dict[str, list[Any]], types: tuple[DataType, ...]) -> None:
    for i, data_type in enumerate(types):
        values = [*wanted[f"c{i}"], None]
        assert without_nulls(own[f"l{i}"]) == [values, []], data_type
        assert without_nulls(own[f"m{i}"]) == [[(str(n), value) for n, value in enumerate(values)], []], data_type
        assert without_nulls(own[f"s{i}"]) == [{"x": value} for value in values], data_type
        inner = [{"x": values}, None, {"x": None}, {"x": []}]
        assert without_nulls(own[f"d{i}"]) == [{"y": inner}, {"y": None}], data_type


def scanned(scan: Scan) -> dict[str, list[Any]]:
    return table_strings(scan.to_arrow(), scan.plan().plan.schema)


def test_files(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        fill(duck, "files", FILE_TYPES, in_file=True)
        fill_nested(duck, "nested", FILE_TYPES, in_file=True)
        wanted = expected(duck, FILE_TYPES, in_file=True)
    lake = open_lake(sqlite_address)
    check_leaves(scanned(lake.scan("files")), wanted, FILE_TYPES)
    check_nested(scanned(lake.scan("nested")), wanted, FILE_TYPES)


@on_all_catalogs
def test_inlined(lake_address: LakeAddress) -> None:
    # DuckDB cannot create such a column in PostgreSQL.
    types = tuple(t for t in TYPES if t != TIME_NS or lake_address.backend == "sqlite")
    if lake_address.backend == "duckdb":
        # DuckDB cannot inline the largest values in lists into its own files.
        types = tuple(t for t in types if t != UINT128)
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 1000") as duck:
        fill(duck, "inlined", types, in_file=False)
        fill_nested(duck, "nested", types, in_file=False)
        wanted = expected(duck, types, in_file=False)
        assert duck.rows("FROM ducklake_list_files('lake', 'inlined') UNION ALL FROM ducklake_list_files('lake', 'nested')") == []
    lake = open_lake(lake_address)
    check_leaves(scanned(lake.scan("inlined")), wanted, types)
    check_nested(scanned(lake.scan("nested")), wanted, types)


def test_integers_that_duckdb_loses(sqlite_address: LakeAddress) -> None:
    """As DOUBLE, the largest value is past the end of its type: no value is made up for it."""
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t (h UHUGEINT)", "INSERT INTO t VALUES (340282366920938463463374607431768211455)")
        with pytest.raises(duckdb.ConversionException):
            duck.rows("FROM t")
    with pytest.raises(SchemaError, match="out of the range of uint128"):
        open_lake(sqlite_address).scan("t").to_arrow()


NATIVE = (BOOLEAN, INT8, INT16, INT32, INT64, FLOAT32, FLOAT64, DATE, TIMESTAMP, TIMESTAMP_S, TIMESTAMPTZ, VARCHAR, JSON, BLOB)


@pytest.mark.parametrize("in_file", spread([True, False], 1))
def test_spark(sqlite_address: LakeAddress, spark: Any, in_file: bool) -> None:
    types = FILE_TYPES if in_file else tuple(TYPES)
    with attached(sqlite_address, f"DATA_INLINING_ROW_LIMIT {0 if in_file else 1000}") as duck:
        fill(duck, "files", types, in_file=in_file)
        fill_nested(duck, "nested", types, in_file=in_file)
        wanted = expected(duck, types, in_file=in_file)
    lake = open_lake(sqlite_address)
    for table, check in (("files", check_leaves), ("nested", check_nested)):
        check(from_spark(lake.scan(table), spark), wanted, types)
    if in_file:
        # Files of these types alone are read by Spark itself.
        some = [data_type for data_type in types if data_type in NATIVE or isinstance(data_type, DecimalType)]
        numbers = [types.index(data_type) for data_type in some]
        for table, check, letters in (("files", check_leaves, "c"), ("nested", check_nested, "lmsd")):
            scan = lake.scan(table, columns=[f"{letter}{number}" for number in numbers for letter in letters])
            assert [task.native_obstacle for task in scan.plan().plan.tasks] == [None]
            found = from_spark(scan, spark)
            renumbered = {f"{letter}{n}": found[f"{letter}{number}"] for n, number in enumerate(numbers) for letter in letters}
            check(renumbered, {f"c{n}": wanted[f"c{number}"] for n, number in enumerate(numbers)}, tuple(some))


def from_spark(scan: Scan, spark: Any) -> dict[str, list[Any]]:
    arrow = scan.to_spark(spark).toArrow()
    return {column.name: strings(_logical(arrow.column(column.name), column), column) for column in scan.plan().plan.schema}


def _logical(column: Any, field: Field) -> Any:
    """A column from Spark in the Arrow type of the table's column: nothing may have been lost on the way."""
    return pa.chunked_array([cast_array(_from_exact(chunk, field), field) for chunk in column.chunks])


def _from_exact(array: Any, field: Field) -> Any:
    """Longs of nanoseconds as timestamps; strings of integers are cast by themselves."""
    match field.type:
        case ListType(element=element):
            values = _from_exact(array.values, element)
            return pa.ListArray.from_arrays(array.offsets, values, mask=array.is_null())
        case MapType(value=value):
            return pa.MapArray.from_arrays(array.offsets, array.keys, _from_exact(array.items, value), mask=array.is_null())
        case StructType(fields=fields):
            parts = [_from_exact(array.field(place), child) for place, child in enumerate(fields)]
            return pa.StructArray.from_arrays(parts, names=[child.name for child in fields], mask=array.is_null())
        case leaf if leaf == TIMESTAMP_NS:
            assert array.type == pa.int64()
            return array.view(pa.timestamp("ns"))
        case leaf if leaf in (TIME, TIMETZ, TIME_NS):
            return from_values([None if text is None else parse_leaf(text, leaf) for text in array.to_pylist()], leaf)
        case leaf:
            assert (leaf in (INT128, UINT128)) <= pa.types.is_string(array.type)
            return array


def test_values_that_spark_cannot_hold_raise() -> None:
    from ducklake_core.engines.spark.types import to_spark_form

    def converted(values: list[int], stored: pa.DataType, wanted: pa.DataType) -> pa.RecordBatch:
        held = pa.array(values, pa.int64()).view(stored)
        return to_spark_form(pa.record_batch([held], names=["c"]), pa.schema([pa.field("c", wanted)]))

    for stored, value in ((pa.time64("us"), 86_400_000_000), (pa.time64("ns"), 86_400_000_000_000), (pa.time64("ns"), 1)):
        with pytest.raises(SchemaError, match="column 'c' has a value that Spark does not support"):
            converted([value], stored, pa.time64("ns"))
    with pytest.raises(SchemaError, match="Spark does not support"):
        converted([1], pa.timestamp("ns"), pa.timestamp("us"))
    huge = pa.array(["1" + "0" * 38]).cast(pa.decimal256(39, 0))
    with pytest.raises(SchemaError, match="Spark does not support"):
        to_spark_form(pa.record_batch([huge], names=["c"]), pa.schema([pa.field("c", pa.decimal128(38, 0))]))
    infinite = 2**63 - 1
    for unit in ("s", "ms", "ns"):
        kept = converted([infinite, -infinite, 0], pa.timestamp(unit), pa.timestamp("us"))
        assert kept.column(0).view(pa.int64()).to_pylist() == [infinite, -infinite, 0]
    as_long = converted([123_456_789, infinite], pa.timestamp("ns"), pa.int64())
    assert as_long.column(0).to_pylist() == [123_456_789, infinite]


@on_all_catalogs
def test_floats_keep_every_bit(lake_address: LakeAddress) -> None:
    """NaN, infinities and the sign of zero."""
    special = ["nan", "inf", "-inf", "-0.0", "1e-45", "-1.5"]
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 1000") as duck:
        for table in ("inlined", "flushed"):
            rows = ", ".join(f"('{text}', '{text}', ['{text}'], {{'x': '{text}'}})" for text in special)
            duck.run(f"CREATE TABLE {table} (f FLOAT, d DOUBLE, l DOUBLE[], s STRUCT(x FLOAT))", f"INSERT INTO {table} VALUES {rows}")
        duck.run("CREATE TABLE files AS SELECT f, d, l, {'x': f} AS s FROM flushed, range(1000)", "DELETE FROM flushed")
        wanted, doubles = ([duck.value(f"SELECT CAST('{text}'::{sql} AS VARCHAR)") for text in special] for sql in ("FLOAT", "DOUBLE"))
    inlined, files = (scanned(open_lake(lake_address).scan(table)) for table in ("inlined", "files"))
    assert inlined == {"f": wanted, "d": doubles, "l": [[text] for text in doubles], "s": [{"x": text} for text in wanted]}
    assert {name: sorted({str(value) for value in values}) for name, values in files.items()} == {
        name: sorted({str(value) for value in values}) for name, values in inlined.items()
    }


EXACT = (
    "CREATE TABLE t (i INTEGER, h HUGEINT, c TIMESTAMP_NS, d TIME_NS, l TIMESTAMP_NS[], s STRUCT(u UHUGEINT))",
    """INSERT INTO t VALUES (1, '170141183460469231731687303715884105727', '2024-01-15 10:30:00.123456789', '00:00:00.000000001',
        ['1969-12-31 23:59:59.999999999', NULL], {'u': '340282366920938463463374607431768211455'}),
        (2, 9, '2020-01-01', '24:00:00', NULL, NULL),
        (3, 10, '2021-01-01', NULL, NULL, {'u': 5})""",
)


def test_exact_types_in_spark_are_the_default(sqlite_address: LakeAddress, spark: Any) -> None:
    """Every value is read, and conditions that Spark evaluates compare numbers and times, not strings and longs."""
    with attached(sqlite_address) as duck:
        duck.run(*EXACT)
    lake = open_lake(sqlite_address)
    first, second, third = lake.scan("t").to_spark(spark).sort("i").collect()
    assert tuple(first)[1:] == (str(2**127 - 1), 1705314600123456789, "00:00:00.000000001", [-1, None], (str(2**128 - 1),))
    assert tuple(second)[1:] == ("9", 1577836800000000000, "24:00:00.000000000", None, None)
    scan = lake.scan("t", columns=["h", "c", "i"], where="abs(h) < 10 + 0 OR year(c) = 2021 AND i > 2")
    with pytest.raises(Exception, match="Spark does not support"):
        # The condition is one for Spark alone, and its nearest types cannot hold the first row.
        scan.to_spark(spark).collect()
    rest = [("9", 1577836800000000000, 2), ("10", 1609459200000000000, 3)]
    with attached(sqlite_address) as duck:
        duck.run("DELETE FROM t WHERE i = 1")
    scan = open_lake(sqlite_address).scan("t", columns=["h", "c", "i"], where="abs(h) < 10 + 0 OR year(c) = 2021 AND i > 2")
    assert sorted(map(tuple, scan.to_spark(spark).collect()), key=lambda row: row[2]) == rest
    with attached(sqlite_address) as duck:
        duck.run("INSERT INTO t SELECT 4, 4, TIMESTAMP_NS '2022-01-01 00:00:00', NULL, NULL, NULL")
    lake = DuckLake.connect(sqlite_address.url)
    feed = lake.table("t").insertions(lake.snapshot().id, where="abs(h) < 10 + 0", columns=["c", "h", "rowid"])
    assert [tuple(row) for row in feed.to_spark(spark).collect()] == [(1640995200000000000, "4", 3)]
    assert lake.table("t").scan().to_spark(spark).count() == 3
    assert third["s"]["u"] == "5"


def test_nearest_types_in_spark_on_request(sqlite_address: LakeAddress, spark: Any) -> None:
    with attached(sqlite_address) as duck:
        duck.run(*EXACT)
    lake = open_lake(sqlite_address)
    spark.conf.set(TYPES_CONF, "nearest")
    try:
        frame = lake.scan("t", where="i = 3", columns=["h", "c", "d"]).to_spark(spark)
        assert [field.dataType.simpleString() for field in frame.schema][:3] == ["decimal(38,0)", "timestamp_ntz", "time(6)"]
        assert len(frame.filter("h + 1 = 11").select("h", "c").collect()) == 1
        with pytest.raises(Exception, match="Spark does not support"):
            lake.scan("t").to_spark(spark).collect()
        spark.conf.set(TYPES_CONF, "some")
        with pytest.raises(UsageError, match="Set it to 'exact' or 'nearest'"):
            lake.scan("t").to_spark(spark)
    finally:
        spark.conf.unset(TYPES_CONF)


@on_all_catalogs
def test_nul_characters(lake_address: LakeAddress) -> None:
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 10") as duck:
        for table, rows in (("inlined", 1), ("files", 20)):
            duck.run(f"CREATE TABLE {table} (c VARCHAR, d BLOB)")
            duck.run(f"INSERT INTO {table} SELECT 'a' || chr(0) || 'b', '\\x00a'::BLOB FROM range({rows})")
            for where in ("c = 'a'", "c > 'a'", "c LIKE 'a%'"):
                assert_same_rows(duck, open_lake(lake_address).scan(table, where=where).to_arrow(), f"SELECT * FROM {table} WHERE {where}")
            found = open_lake(lake_address).scan(table).to_arrow()
            assert found.to_pylist() == [{"c": "a\0b", "d": b"\0a"}] * rows
