"""Random Parquet files of several writers: all types, encodings and codecs, with footers as old and careless writers leave them."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from thrift.Thrift import TType

from ducklake_core.storage.encryption.compact import Items, Struct
from tests.support.parquet_bytes import (
    CHILDREN,
    COLUMN_ORDERS,
    CONVERTED,
    LOGICAL,
    MAX,
    MIN,
    NULL_COUNT,
    NUM_ROWS,
    OLD_MAX,
    OLD_MIN,
    ROW_GROUPS,
    SCHEMA,
    STATISTICS,
    TYPE,
    change_footer,
    chunks_of,
)

OTHER_WRITERS = Path(__file__).parents[2] / "fixtures" / "foreign_files"
CREATED_BY = 6


@dataclass(frozen=True)
class Sample:
    """A generated file.

    Attributes:
        path: Where it is.
        writer: What wrote it.
        description: Its columns, options and changes, for messages.
    """

    path: Path
    writer: str
    description: str


def sample(seed: int, folder: Path) -> Sample:
    """Write the file of a seed."""
    chance = random.Random(seed)
    writer = list(WRITERS)[seed % len(WRITERS)]
    path = folder / f"{seed}_{writer}.parquet"
    description = WRITERS[writer](path, chance)
    if chance.random() < 0.4:
        name = chance.choice(list(CHANGES))
        change_footer(path, CHANGES[name])
        description += f"; changed: {name}"
    return Sample(path, writer, description)


def _some(values: Sequence[Any], chance: random.Random, rows: int) -> list[Any]:
    """Return values in random order, with or without NULL, as runs or mixed."""
    pool = [*values, *([None] if chance.random() < 0.7 else [])]
    match chance.randrange(4):
        case 0:
            return [pool[i * len(pool) // rows] for i in range(rows)]
        case 1:
            return [chance.choice(values)] * rows
        case 2 if None in pool:
            return [None] * rows if chance.random() < 0.3 else [chance.choice((None, values[0])) for _ in range(rows)]
        case _:
            return [chance.choice(pool) for _ in range(rows)]


def _integers(bits: int, *, signed: bool) -> list[int]:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return [low, 0, 1, 7, high // 2 + 1, high]


WORDS = ["", "a", "ab", "ä" * 40, "z\x00z", "\U0001f986", "it's", "x" * 300]
BYTES = [b"", b"\x00", b"abc", b"\xff" * 20, bytes(range(40))]
MOMENTS = [0, 1, -1, 1_700_000_000, -2_000_000_000, 253_402_300_799]
DAYS = [0, 1, -1, 19_000, -25_000, 2_932_896]
FLOATS = [0.0, -0.0, 1.5, -2.25, 1e30, float("inf"), float("-inf"), float("nan")]


def _decimals(precision: int, scale: int) -> list[Decimal]:
    top = 10**precision - 1
    return [Decimal(number).scaleb(-scale) for number in (0, 1, -1, 5, top // 3, top, -top)] if precision <= 28 else _wide(precision, scale)


def _wide(precision: int, scale: int) -> list[Decimal]:
    return [Decimal((sign, tuple(map(int, str(10**precision - 1))), -scale)) for sign in (0, 1)] + [Decimal(1).scaleb(-scale)]


def _leaf_types() -> Iterator[tuple[pa.DataType, list[Any]]]:
    for bits in (8, 16, 32, 64):
        for signed in (True, False):
            yield getattr(pa, f"{'' if signed else 'u'}int{bits}")(), _integers(bits, signed=signed)
    yield pa.bool_(), [True, False]
    yield pa.float16(), [np.float16(value) for value in (0.0, 1.5, -2.25, 65504)]
    for floating in (pa.float32(), pa.float64()):
        yield floating, FLOATS
    for text in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        yield text, WORDS
    for binary in (pa.binary(), pa.large_binary(), pa.binary_view()):
        yield binary, BYTES
    yield pa.binary(5), [b"abcde", b"\x00" * 5, b"\xff" * 5]
    yield pa.uuid(), [bytes(16), bytes(range(16)), b"\xff" * 16]
    yield pa.json_(), ['{"a": 1}', "[1, null]", "null"]
    for precision, scale in ((1, 0), (4, 2), (9, 9), (10, 0), (18, 3), (19, 2), (38, 10)):
        yield pa.decimal128(precision, scale), _decimals(precision, scale)
    yield pa.decimal32(7, 2), _decimals(7, 2)
    yield pa.decimal64(15, 4), _decimals(15, 4)
    yield pa.decimal256(30, 5), _wide(30, 5)
    yield pa.decimal256(60, 5), _wide(40, 5)
    yield pa.date32(), DAYS
    yield pa.date64(), [day * 86_400_000 for day in DAYS]
    for unit, factor in (("s", 1), ("ms", 10**3)):
        yield pa.time32(unit), [0, factor, 86_399 * factor]
    for unit, factor in (("us", 10**6), ("ns", 10**9)):
        yield pa.time64(unit), [0, 1000, 86_399 * factor]
    for unit, factor in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        moments = [second * factor for second in (MOMENTS[:5] if unit == "ns" else MOMENTS)]
        for zone in (None, "UTC", "Europe/Berlin", "+02:30"):
            yield pa.timestamp(unit, zone), moments
        yield pa.duration(unit), [0, factor, -5 * factor, 10**6 * factor]
    yield pa.null(), [None]
    yield pa.month_day_nano_interval(), [pa.MonthDayNano([1, 2, 3000])]


LEAVES: list[tuple[pa.DataType, list[Any]]] = list(_leaf_types())


def column(chance: random.Random, rows: int, depth: int = 0) -> pa.Array:
    """Return a random column of any type."""
    kind = chance.randrange(16) if depth < 3 else 15
    if kind > 5:
        data_type, values = chance.choice(LEAVES)
        return as_array(data_type, _some(values, chance, rows))
    sizes = [chance.choice((0, 1, 1, 2, 3)) for _ in range(rows)]
    mask = pa.array([chance.random() < 0.2 for _ in range(rows)], pa.bool_()) if chance.random() < 0.7 else None
    offsets = pa.array([sum(sizes[:i]) for i in range(rows + 1)], pa.int32())
    match kind:
        case 0 | 1:
            return pa.ListArray.from_arrays(offsets, column(chance, sum(sizes), depth + 1), mask=mask)
        case 2:
            return pa.LargeListArray.from_arrays(offsets.cast(pa.int64()), column(chance, sum(sizes), depth + 1), mask=mask)
        case 3:
            if chance.random() < 0.5:
                return pa.FixedSizeListArray.from_arrays(column(chance, rows * 2, depth + 1), 2)
            return pa.ListViewArray.from_arrays(offsets[:-1], pa.array(sizes, pa.int32()), column(chance, sum(sizes), depth + 1))
        case 4:
            keys = pa.array([str(place) for size in sizes for place in range(size)])
            return pa.MapArray.from_arrays(offsets, keys, column(chance, sum(sizes), depth + 1))
        case _:
            names = chance.choice((["x"], ["x", "y"], ["a b", "list", "element"]))
            return pa.StructArray.from_arrays([column(chance, rows, depth + 1) for _ in names], names, mask=mask)


def as_array(data_type: pa.DataType, values: list[Any]) -> pa.Array:
    """Return an array of any type from its values, which are numbers for dates and times."""
    if isinstance(data_type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(data_type, pa.array(values, data_type.storage_type))
    if pa.types.is_dictionary(data_type):
        return pa.array(values, data_type.value_type).dictionary_encode()
    if (pa.types.is_temporal(data_type) and not pa.types.is_interval(data_type)) or pa.types.is_duration(data_type):
        width = pa.int32() if data_type.bit_width == 32 else pa.int64()
        return pa.array(values, width).cast(data_type)
    return pa.array(values, data_type)


def by_pyarrow(path: Path, chance: random.Random) -> str:
    """Write a file with pyarrow."""
    rows = chance.choice((0, 1, 7, 50, 200))
    columns = [column(chance, rows) for _ in range(chance.randint(1, 4))]
    if chance.random() < 0.5:
        columns = [array for array in columns if not pa.types.is_nested(array.type)] or columns
    fields = [
        pa.field(f"c{place}", array.type, nullable=bool(array.null_count) or array.type == pa.null() or chance.random() < 0.7)
        for place, array in enumerate(columns)
    ]
    options: dict[str, Any] = {
        "version": chance.choice(("1.0", "2.4", "2.6")),
        "data_page_version": chance.choice(("1.0", "2.0")),
        "compression": chance.choice(("none", "snappy", "gzip", "brotli", "zstd", "lz4")),
        "row_group_size": chance.choice((None, 3, 40)),
        "use_dictionary": chance.random() < 0.5,
        "write_statistics": chance.random() < 0.8,
        "store_schema": chance.random() < 0.6,
        "write_page_index": chance.random() < 0.3,
        "write_page_checksum": chance.random() < 0.3,
        "store_decimal_as_integer": chance.random() < 0.4,
        "use_compliant_nested_type": chance.random() < 0.7,
        "data_page_size": chance.choice((None, 50)),
        "max_rows_per_page": chance.choice((None, 9)),
        "use_deprecated_int96_timestamps": chance.random() < 0.2,
        "write_time_adjusted_to_utc": chance.random() < 0.2,
        "flavor": chance.choice((None, None, None, "spark")),
    }
    if not options["use_dictionary"]:
        encodings = {field.name: chance.choice(_encodings(field.type)) for field in fields if not pa.types.is_nested(field.type)}
        options["column_encoding"] = {name: encoding for name, encoding in encodings.items() if encoding} or None
    if options["version"] == "1.0" and chance.random() < 0.3:
        options |= {"coerce_timestamps": "ms", "allow_truncated_timestamps": True}
    options = {name: value for name, value in options.items() if value is not None}
    schema = pa.schema(fields)
    try:
        pq.write_table(pa.table(columns, schema=schema), path, **options)
    except (pa.ArrowException, OSError):
        # Not every type has a form in every version of the format, nor every encoding.
        options.pop("column_encoding", None)
        options |= {"version": "2.6", "use_deprecated_int96_timestamps": False}
        kept = [place for place, field in enumerate(fields) if _is_writable(pa.table([columns[place]], schema=pa.schema([field])), options)]
        kept_table = pa.table([columns[place] for place in kept], schema=pa.schema([fields[place] for place in kept]))
        pq.write_table(kept_table if kept else pa.table({"c0": pa.array([1] * rows)}), path, **options)
    return f"{', '.join(map(str, schema.types))} {options}"


def _is_writable(table: pa.Table, options: dict[str, Any]) -> bool:
    try:
        pq.write_table(table, pa.BufferOutputStream(), **options)
    except (pa.ArrowException, OSError):
        return False
    return True


def _encodings(data_type: pa.DataType) -> tuple[str | None, ...]:
    if pa.types.is_boolean(data_type):
        return None, "PLAIN", "RLE"
    if pa.types.is_floating(data_type):
        return None, "PLAIN", "BYTE_STREAM_SPLIT"
    if pa.types.is_integer(data_type) or pa.types.is_temporal(data_type):
        return None, "PLAIN", "DELTA_BINARY_PACKED"
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        return None, "PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"
    return (None,)


POLARS_TYPES: list[tuple[Any, list[Any]]] = [
    *((getattr(pl, f"{kind}{bits}"), _integers(bits, signed=kind == "Int")) for kind in ("Int", "UInt") for bits in (8, 16, 32, 64)),
    (pl.Int128, _integers(128, signed=True)), (pl.UInt128, _integers(128, signed=False)), (pl.Float32, FLOATS), (pl.Float64, FLOATS),
    (pl.Float16, [0.0, 1.5]), (pl.String, WORDS), (pl.Binary, BYTES), (pl.Boolean, [True, False]), (pl.Null, [None]),
    (pl.Date, [dt.date(1970, 1, 1), dt.date(9999, 12, 31)]), (pl.Time, [dt.time(0), dt.time(23, 59, 59)]),
    *((pl.Datetime(unit, zone), [dt.datetime(1970, 1, 1), dt.datetime(2200, 1, 1)])  # noqa: DTZ001 - the column has the zone
      for unit in ("ms", "us", "ns") for zone in (None, "UTC", "Asia/Tokyo")),
    *((pl.Duration(unit), [dt.timedelta(0), dt.timedelta(days=-5)]) for unit in ("ms", "us", "ns")),
    (pl.Decimal(10, 2), _decimals(10, 2)), (pl.Decimal(38, 0), _wide(38, 0)), (pl.Categorical, ["a", "b"]),
    (pl.Enum(["x", "y"]), ["x", "y"]),
    (pl.List(pl.Int64), [[], [1, None]]), (pl.Array(pl.Int16, 2), [[1, 2], [3, None]]),
    (pl.List(pl.Struct({"x": pl.String})), [[], [{"x": "a"}]]),
    (pl.Struct({"x": pl.Int64, "y": pl.List(pl.String)}), [{"x": 1, "y": ["a"]}, {"x": None, "y": None}]),
]  # fmt: skip


def by_polars(path: Path, chance: random.Random) -> str:
    """Write a file with polars."""
    rows = chance.choice((0, 1, 7, 100))
    chosen = [chance.choice(POLARS_TYPES) for _ in range(chance.randint(1, 4))]
    series = [pl.Series(f"c{place}", _some(values, chance, rows), kind) for place, (kind, values) in enumerate(chosen)]
    options: dict[str, Any] = {
        "compression": chance.choice(("zstd", "snappy", "gzip", "brotli", "lz4", "uncompressed")),
        "statistics": chance.choice((True, False, "full", {"min": True, "max": False}, {"min": False, "max": False, "null_count": True})),
        "row_group_size": chance.choice((None, 5)),
        "data_page_size": chance.choice((None, 60)),
    }
    pl.DataFrame(series).write_parquet(path, **options)
    return f"{[one.dtype for one in series]} {options}"


DUCKDB_VALUES = [
    "range::TINYINT", "(range * 3)::USMALLINT", "range::UBIGINT", "(range - 5)::HUGEINT * 10::HUGEINT ** 20", "range::UHUGEINT",
    "range::DECIMAL(4, 1)", "(range / 7)::DECIMAL(18, 6)", "(range - 3)::DECIMAL(38, 10)", "(range / 3)::FLOAT",
    "CASE WHEN range % 5 = 0 THEN 'nan'::DOUBLE ELSE range END", "range % 2 = 0", "'text ' || range", "''", "encode('ä' || range)",
    "DATE '1969-12-25' + range::INTEGER", "TIME '23:00:00' + to_seconds(range)", "TIMETZ '10:00:00+02'",
    "TIMESTAMP '1969-12-31 23:59:58.123456' + to_seconds(range)", "(TIMESTAMP '2020-01-01' + to_seconds(range))::TIMESTAMP_S",
    "(TIMESTAMP '2020-01-01' + to_seconds(range))::TIMESTAMP_MS", "(TIMESTAMP '2020-01-01' + to_seconds(range))::TIMESTAMP_NS",
    "TIMESTAMPTZ '2020-01-01 00:00:00+00' + to_seconds(range)", "to_months(range::INTEGER) + to_seconds(range)", "gen_random_uuid()",
    "('{\"a\": ' || range || '}')::JSON", "('e' || range % 3)::ENUM('e0', 'e1', 'e2')", "bin(range)::BIT", "[range, NULL]",
    "array_value(range, range + 1)", "{'x': range, 'y': [range::VARCHAR]}", "MAP {range: 'v'}", "[[{'p': range}, NULL], NULL, []]", "NULL",
    "union_value(num := range)", "range::INTEGER::VARIANT", "DATE 'infinity'", "TIMESTAMP '-infinity'", "range::VARCHAR::BIGNUM",
    "TIME_NS '10:00:00.123456789'",
]  # fmt: skip


def by_duckdb(path: Path, chance: random.Random) -> str:
    """Write a file with DuckDB."""
    rows = chance.choice((0, 1, 10, 3000))
    wanted = [chance.choice(DUCKDB_VALUES) for _ in range(chance.randint(1, 4))]
    if rows > 10:
        wanted = [one.replace("TINYINT", "INTEGER").replace("DECIMAL(4, 1)", "DECIMAL(9, 1)") for one in wanted]
        wanted = [one for one in wanted if "TIME '" not in one and "VARIANT" not in one] or ["range"]
    columns = [
        f"CASE WHEN range % {chance.choice((3, 7))} > 0 THEN {one} END"
        if chance.random() < 0.5 and "VARIANT" not in one and "array" not in one
        else one
        for one in wanted
    ]
    query = f"SELECT {', '.join(f'{one} AS c{place}' for place, one in enumerate(columns))} FROM range({rows})"
    options = [
        f"COMPRESSION {chance.choice(('zstd', 'snappy', 'gzip', 'brotli', 'lz4', 'uncompressed'))}",
        f"PARQUET_VERSION {chance.choice(('V1', 'V2'))}",
        *([f"DICTIONARY_SIZE_LIMIT {chance.choice((1, 1000))}"] if chance.random() < 0.5 else []),
        *(["ROW_GROUP_SIZE 2048"] if chance.random() < 0.5 else []),
        *(["FIELD_IDS 'auto'"] if chance.random() < 0.1 else []),
    ]
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet, {', '.join(options)})")
    return f"{wanted} {options}"


def by_pandas(path: Path, chance: random.Random) -> str:
    """Write a file with pandas, whose metadata and index go into it."""
    rows = chance.choice((0, 1, 9, 60))
    columns: dict[str, Any] = {
        "object": pd.Series(_some(["a", "b"], chance, rows), dtype=object),
        "nullable": pd.array(_some([1, 2, 3], chance, rows), dtype="Int32"),
        "text": pd.array(_some(["x", "yy"], chance, rows), dtype="string"),
        "category": pd.Categorical(_some(["k", "l"], chance, rows), categories=["l", "k"], ordered=True),
        "float": np.array([np.nan if value is None else value for value in _some(FLOATS, chance, rows)], dtype="float64"),
        "moment": pd.Series(_some([pd.Timestamp("2020-01-01"), pd.Timestamp("1700-01-01")], chance, rows), dtype="datetime64[ns]"),
        "zoned": pd.Series(_some([pd.Timestamp("2020-01-01", tz="US/Eastern")], chance, rows), dtype="datetime64[us, US/Eastern]"),
        "delta": pd.Series(_some([pd.Timedelta(days=1), pd.Timedelta(seconds=-1)], chance, rows), dtype="timedelta64[ns]"),
        "flag": pd.array(_some([True, False], chance, rows), dtype="boolean"),
        "decimal": pd.Series(_some([Decimal("1.50"), Decimal(-2)], chance, rows), dtype=object),
        "date": pd.Series(_some([dt.date(2020, 1, 1)], chance, rows), dtype=object),
        "list": pd.Series(_some([[1, 2], []], chance, rows), dtype=object),
        "dict": pd.Series(_some([{"x": 1}], chance, rows), dtype=object),
        "period": pd.period_range("2020-01", periods=rows, freq="M"),
    }
    names = chance.sample(sorted(columns), chance.randint(1, 5))
    frame = pd.DataFrame({name: columns[name] for name in names})
    options: dict[str, Any] = {"index": chance.choice((None, True)), "compression": chance.choice(("snappy", "gzip", None))}
    frame.to_parquet(path, engine="pyarrow", **options)
    return f"{names} {options}"


def by_another(path: Path, chance: random.Random) -> str:
    """Copy a file of a writer that is not installed (``tests/fixtures/make_foreign_files.py``)."""
    chosen = chance.choice(sorted(OTHER_WRITERS.glob("*.parquet")))
    path.write_bytes(chosen.read_bytes())
    return chosen.name


WRITERS: dict[str, Callable[[Path, random.Random], str]] = {
    "pyarrow": by_pyarrow,
    "polars": by_polars,
    "duckdb": by_duckdb,
    "pandas": by_pandas,
    "other": by_another,
}


def _statistics(tree: Struct) -> Iterator[Struct]:
    for place in range(_leaf_count(tree)):
        for chunk in chunks_of(tree, place):
            statistics = chunk.struct(STATISTICS)
            if statistics is not None:
                yield statistics


def _leaf_count(tree: Struct) -> int:
    return sum(1 for element in tree.structs(SCHEMA) if TYPE in element)


def no_statistics(tree: Struct) -> None:
    """Some writers write none."""
    for place in range(_leaf_count(tree)):
        for chunk in chunks_of(tree, place):
            chunk.drop(STATISTICS)


def no_null_counts(tree: Struct) -> None:
    for statistics in _statistics(tree):
        statistics.drop(NULL_COUNT)


def deprecated_bounds(tree: Struct) -> None:
    """As parquet-mr until 1.8 and other writers of that time."""
    for statistics in _statistics(tree):
        for new, old in ((MIN, OLD_MIN), (MAX, OLD_MAX)):
            if new in statistics:
                statistics[old] = statistics[new]
        statistics.drop(MIN, MAX, 7, 8)
    tree.drop(COLUMN_ORDERS)


def swapped_bounds(tree: Struct) -> None:
    for statistics in _statistics(tree):
        if MIN in statistics and MAX in statistics:
            statistics[MIN], statistics[MAX] = statistics[MAX], statistics[MIN]


def null_counts(value: int) -> Callable[[Struct], None]:
    def change(tree: Struct) -> None:
        for statistics in _statistics(tree):
            statistics[NULL_COUNT] = (TType.I64, value)

    return change


def only_minimum(tree: Struct) -> None:
    for statistics in _statistics(tree):
        statistics.drop(MAX, OLD_MAX)


def rows_of_file(value: int) -> Callable[[Struct], None]:
    return lambda tree: tree.update({NUM_ROWS: (TType.I64, value)})


def no_annotations(*fields: int) -> Callable[[Struct], None]:
    def change(tree: Struct) -> None:
        for element in tree.structs(SCHEMA):
            if TYPE in element:
                element.drop(*fields)

    return change


def other_orders(tree: Struct) -> None:
    """As the orders that were added to the format later."""
    for place, order in enumerate(tree.structs(COLUMN_ORDERS)):
        order.clear()
        order[2 + place % 2] = (TType.STRUCT, Struct())


def no_arrow_schema(tree: Struct) -> None:
    tree.drop(5)


def leaves_with_no_children(tree: Struct) -> None:
    for element in tree.structs(SCHEMA):
        if TYPE in element:
            element[CHILDREN] = (TType.I32, 0)


def old_parquet_mr(tree: Struct) -> None:
    deprecated_bounds(tree)
    tree[CREATED_BY] = (TType.STRING, b"parquet-mr version 1.8.1 (build 4aba4dae7bb0d4edbcf7923ae1339f28fd3f7fcf)")
    for element in tree.structs(SCHEMA):
        element.drop(LOGICAL)
    tree.drop(5)


def no_writer(tree: Struct) -> None:
    tree.drop(CREATED_BY)


def unknown_type(tree: Struct) -> None:
    """A type that a later version of the format adds."""
    for element in tree.structs(SCHEMA):
        if LOGICAL in element and TYPE in element:
            element[LOGICAL] = (TType.STRUCT, Struct({2555: (TType.STRUCT, Struct())}))
            element.drop(CONVERTED)
    tree.drop(5)


def fields_of_the_future(tree: Struct) -> None:
    """Fields that no reader knows are left out."""
    for group in tree.structs(ROW_GROUPS):
        group[99] = (TType.LIST, Items(TType.STRING, [b"later"]))
    for statistics in _statistics(tree):
        statistics[9] = (TType.I64, 3)


CHANGES: dict[str, Callable[[Struct], None]] = {
    "no statistics": no_statistics,
    "no null counts": no_null_counts,
    "deprecated bounds": deprecated_bounds,
    "swapped bounds": swapped_bounds,
    "null counts below 0": null_counts(-1),
    "null counts above the rows": null_counts(2**40),
    "only minima": only_minimum,
    "no rows in the footer": rows_of_file(0),
    "more rows in the footer": rows_of_file(10**9),
    "no logical types": no_annotations(LOGICAL),
    "no converted types": no_annotations(CONVERTED),
    "no annotations": no_annotations(LOGICAL, CONVERTED),
    "other orders": other_orders,
    "no Arrow schema": no_arrow_schema,
    "leaves with 0 children": leaves_with_no_children,
    "parquet-mr 1.8": old_parquet_mr,
    "no writer": no_writer,
    "unknown logical types": unknown_type,
    "unknown fields": fields_of_the_future,
}
"""Changes of footers. Bounds that fit the type but leave out values are none of them: only the rows would show that."""
