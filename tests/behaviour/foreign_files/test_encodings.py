"""One column in every encoding, compression and physical type that other writers use, against DuckDB; and shapes of files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from ducklake_core.errors import DuckLakeError, SchemaError
from tests.behaviour.foreign_files.added import add, check, numbered, put, register
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.parameters import slow
from tests.support.scans import assert_same_rows, open_lake

FILES = "DATA_INLINING_ROW_LIMIT 0"


@dataclass(frozen=True)
class Case:
    """A column of the table, and what a file holds for it."""

    column: str
    held: pa.Array
    options: dict[str, Any] = field(default_factory=dict)
    name: str = ""

    def __str__(self) -> str:
        return f"{self.held.type} as {self.column} {self.name} {self.options}"


SMALL = pa.array([1, None, 0, 1], pa.int64())
TEXT = pa.array(["a", "ab", None, "abc", "ab", "ä" * 300])
SECONDS = pa.array([0, None, 1_500_000_000, -1], pa.int64())
MONEY = [Decimal("1.25"), None, Decimal("-3.10")]


def encodings() -> Iterator[Case]:
    plain = {"use_dictionary": False}
    numbers = pa.array([1, None, -5, 7, 2**31 - 1] * 50, pa.int32())
    for version in ("1.0", "2.0"):
        for encoding in ("PLAIN", "DELTA_BINARY_PACKED"):
            yield Case("integer", numbers, {**plain, "data_page_version": version, "column_encoding": encoding})
        yield Case("integer", numbers, {"data_page_version": version})
        for encoding in ("DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"):
            yield Case("varchar", TEXT, {**plain, "data_page_version": version, "column_encoding": encoding})
    for data_type in (pa.float32(), pa.float64()):
        floats = pa.array([1.5, None, float("nan"), float("-inf")], data_type)
        yield Case("double", floats, {**plain, "column_encoding": "BYTE_STREAM_SPLIT"})
    for compression in ("NONE", "SNAPPY", "GZIP", "BROTLI", "ZSTD", "LZ4"):
        yield Case("varchar", TEXT, {"compression": compression})
    # Without an annotation it is a BLOB to DuckDB, whose text has escapes.
    for form in (pa.dictionary(pa.int8(), pa.string()), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()):
        yield Case("varchar", TEXT.cast(form))
    yield Case("blob", pa.array([b"abcd", None], pa.large_binary()))
    yield Case("blob", pa.array([b"abcd", None], pa.binary(4)))


def numbers() -> Iterator[Case]:
    integers = (pa.int8(), pa.int16(), pa.uint8(), pa.uint16(), pa.uint32(), pa.int64(), pa.uint64())
    for form in (*integers, pa.float32(), pa.float64(), pa.decimal128(19, 0), pa.bool_(), pa.string()):
        for column in ("integer", "bigint", "double", "varchar"):
            yield Case(column, SMALL.cast(form))
        if form != pa.bool_():
            yield Case("decimal(10,2)", SMALL.cast(form))
    yield Case("float", pa.array([1.5, None], pa.float16()))
    yield Case("hugeint", pa.array([2**64 - 1], pa.uint64()))
    yield Case("float", pa.array([0.5, 0.0], pa.float64()))
    for precision in (5, 18, 38):
        for as_integer in (True, False):
            held = pa.array(MONEY, pa.decimal128(precision, 2))
            yield Case(f"decimal({precision},2)", held, {"store_decimal_as_integer": as_integer})
    yield Case("decimal(18,4)", pa.array(MONEY, pa.decimal128(5, 2)))
    yield Case("decimal(18,1)", pa.array([Decimal("1.20")], pa.decimal128(5, 2)))
    yield Case("varchar", pa.array([1e20, 1.5, float("nan"), 123456789.0, 1e-7], pa.float64()))
    yield Case("varchar", pa.array(MONEY, pa.decimal128(5, 2)))


def moments() -> Iterator[Case]:
    for unit, scale in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        held = pa.array([None if second is None else second * scale for second in SECONDS.to_pylist()], pa.int64())
        for zone in (None, "UTC", "Europe/Berlin"):
            moment = held.cast(pa.timestamp(unit, zone))
            # DuckDB has no cast from nanoseconds to the two others.
            coarse = () if unit == "ns" else ("timestamp_ms", "timestamp_s")
            for column in ("timestamp", "timestamptz", "timestamp_ns", *coarse):
                yield Case(column, moment)
            yield Case("timestamptz" if zone else "timestamp", moment, {"use_deprecated_int96_timestamps": True})
    far = pa.array([datetime(1600, 1, 1), datetime(3000, 1, 1)], pa.timestamp("us"))  # noqa: DTZ001 - the column has no zone
    yield Case("timestamp", far, {"use_deprecated_int96_timestamps": True}, "int96 beyond nanoseconds")
    yield Case("varchar", far)
    yield Case("date", pa.array([date(2020, 1, 1)], pa.date64()))
    yield Case("timestamp", pa.array([date(2020, 1, 1)], pa.date32()))
    yield Case("date", pa.array([datetime(2020, 1, 1)], pa.timestamp("us")))  # noqa: DTZ001
    yield Case("time", pa.array([5000], pa.time32("ms")))
    yield Case("time", pa.array([5000], pa.time64("ns")))
    yield Case("uuid", pa.array([bytes(range(16)), None], pa.binary(16)))
    yield Case("uuid", pa.array(["b8888f6d-9c7f-4026-b8e2-722c695e2053"]))
    yield Case("json", pa.array(['{"a": 1}']))
    yield Case("integer", pa.nulls(3))


CASES = [*encodings(), *numbers(), *moments()]


def make(duck: Oracle, address: LakeAddress, cases: list[Case], folder: Path) -> None:
    for number, case in enumerate(cases):
        duck.run(f"CREATE TABLE t{number} (a {case.column})")
    for number, case in enumerate(cases):
        path = put(folder / f"{number}.parquet", numbered(pa.table({"a": case.held}), a=1), **case.options)
        register(address, f"t{number}", path, len(case.held))


@pytest.mark.parametrize("cases", [CASES[::16], slow(CASES)], ids=["a sixteenth", "all"])
def test_every_form_of_a_column(sqlite_address: LakeAddress, tmp_path: Path, cases: list[Case]) -> None:
    with attached(sqlite_address, FILES) as duck:
        make(duck, sqlite_address, cases, tmp_path)
    wrong = []
    with attached(sqlite_address) as duck:
        lake = open_lake(sqlite_address)
        for number, case in enumerate(cases):
            strings = [str(row[0]) for row in duck.rows(f"SELECT DISTINCT CAST(a AS VARCHAR) FROM t{number} WHERE a IS NOT NULL LIMIT 2")]
            # DuckDB pushes comparisons of JSON into Arrow, which has none.
            strings = [] if case.column == "json" else strings
            equal = [f"a = CAST('{text}' AS {case.column})" for text in strings]
            try:
                assert_same_rows(duck, lake.scan(f"t{number}").to_arrow(), f"SELECT * FROM t{number}")
                # What pruning and row groups leave out was not to be found.
                for where in ("a IS NULL", *equal):
                    assert_same_rows(duck, lake.scan(f"t{number}", where=where).to_arrow(), f"SELECT * FROM t{number} WHERE {where}")
            except (AssertionError, DuckLakeError, duckdb.Error) as error:
                wrong.append(f"{case}: {str(error)[:300]}")
    assert wrong == []


MISFITS = [
    Case("bigint", pa.array([2**64 - 1], pa.uint64())),
    Case("integer", pa.array([2**32 - 1], pa.uint32())),
    Case("integer", pa.array(["x"])),
    Case("integer[]", pa.array([1])),
    Case("integer", pa.array([[1]])),
    Case("struct(x integer)", pa.array([[1]])),
]


def test_what_does_not_fit_is_an_error(sqlite_address: LakeAddress, tmp_path: Path) -> None:
    with attached(sqlite_address, FILES) as duck:
        make(duck, sqlite_address, MISFITS, tmp_path)
    lake = open_lake(sqlite_address)
    for number, case in enumerate(MISFITS):
        with pytest.raises(SchemaError) as caught:
            lake.scan(f"t{number}").to_arrow()
        assert all(part in str(caught.value) for part in (f"{number}.parquet", f"main.t{number}", "'a'")), f"{case}: {caught.value}"


def test_byte_stream_split_integers(sqlite_address: LakeAddress, tmp_path: Path) -> None:
    """DuckDB rejects them."""
    held = pa.array([1, None, -5], pa.int32())
    case = Case("integer", held, {"use_dictionary": False, "column_encoding": "BYTE_STREAM_SPLIT"})
    with attached(sqlite_address, FILES) as duck:
        make(duck, sqlite_address, [case], tmp_path)
    assert open_lake(sqlite_address).scan("t0").to_arrow().column("a").to_pylist() == held.to_pylist()


NESTED = "l INTEGER[], s STRUCT(x INTEGER, y VARCHAR[]), m MAP(VARCHAR, INTEGER[]), r STRUCT(p INTEGER)[][]"
ROWS = """SELECT CASE WHEN range % 5 > 0 THEN [range::INTEGER, NULL] END AS l, {'x': range::INTEGER, 'y': ['a', NULL]} AS s,
    MAP {'k': [range::INTEGER]} AS m, [[{'p': range::INTEGER}, NULL], NULL, []] AS r FROM range(20)"""


@pytest.mark.slow
def test_legacy_nesting_by_other_engines(
    lake_address: LakeAddress, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's old layout (two-level lists, bag.array_element, INT96, fixed decimals), page version 2, and any name of a list's child."""
    columns = """i INTEGER NOT NULL, d DECIMAL(9,2), ts TIMESTAMP, two INTEGER[], three INTEGER[],
        s STRUCT(x INTEGER, y VARCHAR[]), m MAP(VARCHAR, INTEGER)"""
    frame = spark.sql(
        "SELECT int(id) i, decimal(id) / 4 d, timestamp_seconds(id) ts, array(int(id), 7) two, array(int(id), null) three, "
        "named_struct('x', int(id), 'y', array('a', null)) s, map('k', int(id)) m FROM range(50)"
    )
    frame = frame.withColumn("d", frame.d.cast("decimal(9,2)"))
    legacy = {"spark.sql.parquet.writeLegacyFormat": "true", "spark.sql.parquet.outputTimestampType": "INT96"}
    for name, value in legacy.items():
        spark.conf.set(name, value)
    try:
        frame.coalesce(1).write.parquet(str(tmp_path / "legacy"))
        frame.coalesce(1).write.option("parquet.writer.version", "v2").parquet(str(tmp_path / "v2"))
    finally:
        for name in legacy:
            spark.conf.unset(name)
    # INT96 is a TIMESTAMP to DuckDB; what Spark writes else is one with a zone.
    frame.drop("ts").coalesce(1).write.parquet(str(tmp_path / "plain"))
    with attached(lake_address, FILES) as duck:
        duck.run(f"CREATE TABLE old ({columns})", f"CREATE TABLE plain ({columns})", f"CREATE TABLE n ({NESTED})")
        for table, way in (("old", "legacy"), ("old", "v2"), ("plain", "plain")):
            (path,) = (tmp_path / way).glob("*.parquet")
            add(duck, table, path, "allow_missing => true")
        nested = duck.arrow(ROWS)
        for compliant in (True, False):
            add(duck, "n", put(tmp_path / f"{compliant}.parquet", nested, use_compliant_nested_type=compliant))
        whole = pa.array([[1, 2], []], pa.list_(pa.field("odd", pa.int32(), nullable=False)))
        strict = nested.slice(0, 2).set_column(0, pa.field("l", whole.type, nullable=False), whole)
        add(duck, "n", put(tmp_path / "required.parquet", strict, use_compliant_nested_type=False))
    with attached(lake_address) as duck:
        lake = open_lake(lake_address)
        for table in ("plain", "n"):
            check(duck, lake, table)
        assert_same_rows(duck, lake.scan("plain").to_spark(spark).toArrow(), "SELECT * FROM plain")
        # DuckDB breaks down on the lists of the old layout that it has added itself.
        start = datetime(1970, 1, 1)  # noqa: DTZ001 - the column has no zone
        wanted = [
            {"i": i, "d": Decimal(i) / 4, "ts": start + timedelta(seconds=i), "two": [i, 7], "three": [i, None]}
            | {"s": {"x": i, "y": ["a", None]}, "m": [("k", i)]}
            for i in range(50)
        ]
        scan = lake.scan("old")
        for found in (scan.to_arrow(), scan.to_spark(spark).toArrow()):
            assert found.sort_by("i").to_pylist() == [row for row in wanted for _ in range(2)]


@pytest.mark.slow
def test_files_without_ids(lake_address: LakeAddress, tmp_path: Path, spark: SparkSession) -> None:
    """By position when any column lacks an id, as DuckDB; nested values are NULL then."""
    pair = pa.table({"b": pa.array([1, 2], pa.int32()), "a": pa.array([10, 20], pa.int32())})
    deep = pa.table({"s": pa.array([{"x": 1}, None], pa.struct([("x", pa.int32())])), "l": pa.array([[1], []], pa.list_(pa.int32()))})
    three = pair.append_column("c", pa.array([7, 8], pa.int32()))
    forms = {
        "none": pair,
        "one without": numbered(pair, a=1, b=None),
        "one without, others in order of another table": numbered(three, a=1, b=2, c=None),
        "extra without": numbered(pair, a=1, b=2).append_column("x", pa.array([5, 6], pa.int32())),
        "fewer": pair.select(["a"]),
        "twice the same id": numbered(three, b=1, a=1, c=2),
        "other order": numbered(pair, a=1, b=2),
        "unknown ids": numbered(three, a=9, b=2, c=10),
        "one name twice": pa.table([pair.column(0), pair.column(1)], names=["a", "a"]),
    }
    with attached(lake_address, FILES) as duck:
        duck.run("CREATE TABLE t (a INTEGER, b INTEGER, c INTEGER DEFAULT 9)", "CREATE TABLE deep (s STRUCT(x INTEGER), l INTEGER[])")
        duck.run("CREATE TABLE half (s STRUCT(x INTEGER), l INTEGER[])")
    for name, data in forms.items():
        register(lake_address, "t", put(tmp_path / f"{name}.parquet", data), 2)
    register(lake_address, "deep", put(tmp_path / "deep.parquet", deep), 2)
    register(lake_address, "half", put(tmp_path / "half.parquet", numbered(deep, s=1, l=3)), 2)
    with attached(lake_address) as duck:
        duck.run("ALTER TABLE t RENAME COLUMN a TO renamed", "ALTER TABLE t ADD COLUMN d INTEGER DEFAULT 4")
        lake = open_lake(lake_address)
        for table in ("t", "deep", "half"):
            check(duck, lake, table)
        assert_same_rows(duck, lake.scan("t").to_spark(spark).toArrow(), "SELECT * FROM t")


def test_dropped_columns_do_not_shift_positions(sqlite_address: LakeAddress, tmp_path: Path) -> None:
    """DuckDB counts positions among the columns of the snapshot that is read, and shows values under other names."""
    data = pa.table({name: pa.array([number], pa.int32()) for number, name in enumerate("abc")})
    with attached(sqlite_address, FILES) as duck:
        duck.run("CREATE TABLE t (a INTEGER, b INTEGER, c INTEGER)")
    register(sqlite_address, "t", put(tmp_path / "f.parquet", data), 1)
    with attached(sqlite_address) as duck:
        duck.run("ALTER TABLE t DROP COLUMN a", "ALTER TABLE t ADD COLUMN a INTEGER DEFAULT 5")
    lake = open_lake(sqlite_address)
    first, dropped, added = lake.snapshots()[-3:]
    assert lake.scan("t", first).to_arrow().to_pylist() == [{"a": 0, "b": 1, "c": 2}]
    assert lake.scan("t", dropped).to_arrow().to_pylist() == [{"b": 1, "c": 2}]
    assert lake.scan("t", added).to_arrow().to_pylist() == [{"b": 1, "c": 2, "a": 5}]


def test_maps_without_ids_raise(sqlite_address: LakeAddress, tmp_path: Path) -> None:
    with attached(sqlite_address, FILES) as duck:
        duck.run("CREATE TABLE t (m MAP(VARCHAR, INTEGER))")
    data = pa.table({"m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32()))})
    register(sqlite_address, "t", put(tmp_path / "f.parquet", data), 1)
    with pytest.raises(NotImplementedError, match=r"f\.parquet of table main\.t.*'m'"):
        open_lake(sqlite_address).scan("t").to_arrow()


def test_few_and_many_row_groups(lake_address: LakeAddress, tmp_path: Path) -> None:
    data = numbered(pa.table({"a": pa.array(range(3000), pa.int32()), "b": pa.array([None, "x", "y"] * 1000)}), a=1, b=2)
    with attached(lake_address, FILES) as duck:
        duck.run("CREATE TABLE t (a INTEGER, b VARCHAR)")
    register(lake_address, "t", put(tmp_path / "empty.parquet", data.slice(0, 0)), 0)
    with pq.ParquetWriter(tmp_path / "none.parquet", data.schema):
        pass
    register(lake_address, "t", tmp_path / "none.parquet", 0)
    register(lake_address, "t", put(tmp_path / "many.parquet", data, row_group_size=1), 3000)
    required = pa.schema([f.with_nullable(f.name != "a") for f in data.schema])
    register(lake_address, "t", put(tmp_path / "required.parquet", data.slice(0, 5).cast(required)), 5)
    with attached(lake_address) as duck:
        duck.run("DELETE FROM t WHERE a % 7 = 0")
        lake = open_lake(lake_address)
        check(duck, lake)
        for where in ("a = 2999", "a BETWEEN 10 AND 20 AND b IS NULL", "b = 'x' AND a < 9"):
            assert_same_rows(duck, lake.scan("t", where=where).to_arrow(), f"SELECT * FROM t WHERE {where}")
