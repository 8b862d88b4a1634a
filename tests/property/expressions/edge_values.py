"""A table with columns of every type that expressions take, full of the values at which engines part."""

# ruff: noqa: E501, RUF001 - lists of awkward values and forms

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from random import Random

import duckdb
import pyarrow as pa

from ducklake_core.format.expressions.comparison import integer_range, round_to_float32
from ducklake_core.format.types.data_types import INTEGERS, INTERVAL, PRIMITIVES, DataType, DecimalType, Field, ListType, StructType
from ducklake_core.format.types.schema import Schema, to_arrow_schema, with_ids
from ducklake_core.format.values.arrow_cast import from_values
from ducklake_core.format.values.value_text import Interval, to_cast_text

ROWS = 250
_P = PRIMITIVES
LEAVES: dict[str, tuple[DataType, str]] = {
    "i8": (_P["int8"], "TINYINT"), "i16": (_P["int16"], "SMALLINT"), "i": (_P["int32"], "INTEGER"), "i2": (_P["int32"], "INTEGER"),
    "j": (_P["int64"], "BIGINT"), "h": (_P["int128"], "HUGEINT"), "u8": (_P["uint8"], "UTINYINT"), "u16": (_P["uint16"], "USMALLINT"),
    "u32": (_P["uint32"], "UINTEGER"), "u64": (_P["uint64"], "UBIGINT"), "uh": (_P["uint128"], "UHUGEINT"),
    "f": (_P["float32"], "FLOAT"), "g": (_P["float64"], "DOUBLE"), "g2": (_P["float64"], "DOUBLE"),
    "m": (DecimalType(precision=4, scale=1), "DECIMAL(4,1)"), "n": (DecimalType(precision=9, scale=2), "DECIMAL(9,2)"),
    "o": (DecimalType(precision=18, scale=3), "DECIMAL(18,3)"), "p": (DecimalType(precision=38, scale=0), "DECIMAL(38,0)"),
    "q": (DecimalType(precision=38, scale=10), "DECIMAL(38,10)"), "w": (DecimalType(precision=5, scale=5), "DECIMAL(5,5)"),
    "b": (_P["boolean"], "BOOLEAN"), "s": (_P["varchar"], "VARCHAR"), "r": (_P["varchar"], "VARCHAR"), "blank": (_P["varchar"], "VARCHAR"),
    "d": (_P["date"], "DATE"), "e": (_P["date"], "DATE"), "ti": (_P["time"], "TIME"), "ts": (_P["timestamp"], "TIMESTAMP"),
    "ts_s": (_P["timestamp_s"], "TIMESTAMP_S"), "ts_ms": (_P["timestamp_ms"], "TIMESTAMP_MS"), "ts_ns": (_P["timestamp_ns"], "TIMESTAMP_NS"),
    "tz": (_P["timestamptz"], "TIMESTAMPTZ"), "x": (_P["blob"], "BLOB"), "id": (_P["uuid"], "UUID"), "js": (_P["json"], "JSON"),
    "iv": (INTERVAL, "INTERVAL"),
}  # fmt: skip
"""Columns with values of their own: the type in the library and in DuckDB."""
SCHEMA = with_ids(
    Schema(
        columns=(
            *(Field(name=name, type=data_type) for name, (data_type, _) in LEAVES.items()),
            Field(name="st", type=StructType(fields=(Field(name="a", type=_P["int32"]), Field(name="T", type=_P["varchar"])))),
            Field(name="li", type=ListType(element=Field(name="element", type=_P["int32"]))),
        )
    )
)
DUCKDB_TYPES = {name: sql for name, (_, sql) in LEAVES.items()}
TYPE_NAMES: dict[str, DataType] = {sql: data_type for data_type, sql in LEAVES.values()}

_DAY = 86_400_000_000
_FLOATS = [
    0.0, -0.0, 1.0, -1.0, 0.1, -0.5, 0.5, 1.5, 2.5, -2.5, 1e-5, 5e-324, -5e-324, 2.2250738585072014e-308, 1e-45, 3.4028234663852886e38, 1e39,
    1.7976931348623157e308, -1.7976931348623157e308, float("nan"), float("inf"), float("-inf"), 126.5, -128.5, 254.5, -127.5,
    2147483646.5, 2147483648.0, -2147483648.5, 9223372036854775807.0, -9223372036854775808.0, 18446744073709551615.0, 9007199254740993.0,
    1e15, 1e16, 123456789.125, 16777217.0, 1e18, 1e38, 1.7014118346046923e38, -1.7014118346046923e38, 0.005, 1.005, 99999.995, 12345.678,
]  # fmt: skip
_INSTANTS = [
    0, -1, 1, _DAY, -_DAY, 1_704_153_601_500_000, 2**63 - 1, -(2**63) + 1, 2**63 - 2, -63_517_788_000_000_000, 1_582_934_400_000_000,
    951_782_400_000_000, -62_135_596_800_000_000, 253_402_300_799_999_999, -9_223_372_022_400_000_000, 1_609_459_199_999_999, 499_999, 500_500,
]  # fmt: skip
_DAYS = [
    0, -1, 1, 19_723, 18_321, 2**31 - 1, -(2**31) + 1, -735_160, -719_162, -719_163, 2_932_896, 2_932_897, 106_751_991, -106_751_991,
    106_751_992, 2**31 - 2, -(2**31) + 4, 10_956,
]  # fmt: skip
BLANKS = " \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
"""Every space of Unicode's category Zs."""
_NEAR_BLANKS = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f\x85\u180e\u200b\u2028\u2029\u2060\ufeff"
_PADDED = [f"{space}x{space}{space}" for space in BLANKS + _NEAR_BLANKS] + [f"{space}7{space}" for space in BLANKS + _NEAR_BLANKS]
STRINGS = [
    "", "a", "ab", "abc", "Abc", "ABC", "b", "a-b-c", "zz", " ", "  pad  ", "a\0b", "\0", "e\u0301", "é", "\u0301", "ß", "ẞ", "İ", "ı", "ſ", "ŉ", "ﬁ", "Σας", "ὈΔΥΣΣΕΎΣ",
    "ǆ", "ǅ", "Ǆ", "ﬀ", "\u0345", "ᾳ", "ᾼ", "Ꮳ", "ꭰ", "Ა", "ა", "𐐀", "𐐨", "𝄞", "🦆", "\U0010ffff", "\uffff", "%", "_", "a%b'c", "x\\y", "it's", "{0}", "１２", "１.５", "٣", "²", "Ⅷ",
    "0", "-0", "7", "+7", "-12", "007", "1.5", "-1.5", "2.5", ".5", "5.", "-.5", "1e3", "1E3", "1.5e1", "1e-2", "1e400", "-1e400", "1e", "1_000", "_1", "1__0", "0x1F", "0b11",
    "127", "128", "-128", "-129", "255", "256", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "18446744073709551615",
    "170141183460469231731687303715884105727", "170141183460469231731687303715884105728", "340282366920938463463374607431768211455",
    "99999999999999999999999999999999999999", "0.00000000000000000000000000000000000001", "123456789.123456789", "1.005", "0.5", "126.5", "127.5", "-128.5",
    "nan", "NaN", "-nan", "inf", "-inf", "Inf", "infinity", "Infinity", "-infinity", "+inf", "true", "TRUE", "t", "T", "yes", "Y", "y", "no", "f", "False", "on", "off", "NULL", "null",
    "2020-02-29", "2020-02-30", "2019-02-29", "2020-2-9", "2020/02/29", "20200229", "0044-03-15 (BC)", "0000-01-01", "-0001-01-01", "10000-01-01", "5881580-07-10", "epoch", "today",
    "2020-02-29 12:34:56.789123456", "2020-02-29T12:34:56Z", "2020-02-29 12:34", "2020-02-29 12:34:56+05:30", "2020-02-29 12:34:56 UTC", "2020-02-29 24:00:00", "2020-02-29 23:59:60",
    "1969-12-31 23:59:59.9999999", "294247-01-10 04:00:54", "294247-01-10 04:00:54.775807", "12:34:56", "12:34:56.1234567", "24:00:00", "23:59:59.9999999", "1:2:3", "12:34", "25:00:00",
    "00000000-0000-0000-0000-000000000001", "FFFFFFFF-0000-4000-8000-000000000000", "{12345678-1234-1234-1234-123456789abc}", "12345678123412341234123456789abc", "1234-5678",
    "\\x00\\xFF", "\\xg", "\\x", "é\\x41", '{"a": 1}', "[1, 2]", '"x"', "{", "1 day", "1 month 2 days", "01:00:00", "-1 year", "x" * 300,
    *_PADDED,
]  # fmt: skip
_BLOBS = [b"", b"a", b"\x00", b"\xff\xfe", b"\\x41", b"ab\n", "é".encode(), b'"', b"'"]
_IDS = [
    "00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000001", "80000000-0000-0000-0000-000000000000",
    "7fffffff-ffff-ffff-ffff-ffffffffffff", "ffffffff-ffff-4fff-bfff-ffffffffffff", "12345678-1234-1234-1234-123456789abc",
]  # fmt: skip
_INTERVALS = [
    Interval(months=m, days=d, microseconds=u) for m, d, u in ((0, 0, 0), (1, 0, 0), (0, 30, 0), (-13, 2, -1), (0, 0, _DAY), (12, -5, 500))
]


def edges_of(data_type: DataType) -> Sequence[object]:
    """Values of a leaf type in their Python forms, those at its borders among them."""
    if data_type in INTEGERS:
        low, high = integer_range(data_type)
        near = (
            0, 1, 2, 3, 7, -1, -2, -7, 10, 100, 127, 128, -128, 255, 32767, 65535, 2**31 - 1, -(2**31), 2**32, 2**53 + 1, 2**62, 2**64 - 1,
            10**18, 10**37,
        )  # fmt: skip
        return [low, high, low + 1, high - 1, low // 2, high // 2 + 1, *(value for value in near if low <= value <= high)]
    if isinstance(data_type, DecimalType):
        limit = 10**data_type.precision - 1
        near = (0, 1, -1, 5, -5, 15, 25, 49, 50, 51, -50, 99, 100, -150, 12345, 10**8, 5 * 10**9, 15 * 10**9, 10**17, 2**63, 10**30)
        steps = (limit, -limit, limit // 2, *(value for value in near if abs(value) <= limit))
        return [Decimal(step).scaleb(-data_type.scale) if len(str(step)) < 28 else Decimal(f"{step}e-{data_type.scale}") for step in steps]
    return _BY_NAME[str(data_type)]


_BY_NAME: dict[str, Sequence[object]] = {
    "float32": [round_to_float32(value) for value in _FLOATS], "float64": _FLOATS, "boolean": [True, False], "varchar": STRINGS, "date": _DAYS,
    "time": [0, 1, _DAY, _DAY - 1, 36_000_500_000, 45_296_789_000], "timestamp": _INSTANTS, "timestamptz": [value for value in _INSTANTS if value != 2**63 - 2],
    "timestamp_s": [value // 1_000_000 * 1_000_000 if abs(value) < 2**62 else value for value in _INSTANTS if abs(value) < 2**62 or abs(value) == 2**63 - 1],
    "timestamp_ms": [value // 1000 * 1000 if abs(value) < 2**62 else value for value in _INSTANTS if abs(value) < 2**62 or abs(value) == 2**63 - 1],
    "timestamp_ns": [0, -1, 1, 999, -999, 1_704_153_600_123_456_789, 2**63 - 1, -(2**63) + 1, 2**63 - 2, -9_223_286_400_000_000_000, 10**18, -(10**18) + 1],
    "blob": _BLOBS, "uuid": _IDS, "json": ['{"a": 1}', "[1, null]", '"x"', "null", "5", ' {"b" : 2}'], "interval": _INTERVALS,
}  # fmt: skip


@cache
def edge_columns(seed: int = 11) -> dict[str, list[object]]:
    """The values of every leaf column: each edge at least once where there are rows enough, NULLs between them."""
    draw, columns = Random(seed), {}
    for name, (data_type, _) in LEAVES.items():
        edges = [*BLANKS, *_NEAR_BLANKS, *_PADDED] if name == "blank" else list(edges_of(data_type))
        draw.shuffle(edges)
        values = (edges + draw.choices(edges, k=max(0, ROWS - len(edges))))[:ROWS]
        columns[name] = [None if draw.random() < 0.06 else value for value in values]
    return columns


@cache
def edge_batch() -> pa.RecordBatch:
    """The table as one Arrow batch in logical form."""
    arrow = to_arrow_schema(SCHEMA)
    arrays = [from_values(values, LEAVES[name][0]) for name, values in edge_columns().items()]
    structs = [None if row % 5 == 2 else {"a": None if row % 4 == 3 else row, "T": STRINGS[row % len(STRINGS)]} for row in range(ROWS)]
    lists = [None if row % 5 == 1 else [row, None][: row % 3] for row in range(ROWS)]
    arrays += [pa.array(structs, arrow.field("st").type), pa.array(lists, arrow.field("li").type)]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)


def _constant(value: object, data_type: DataType, sql: str) -> str:
    if value is None:
        return "NULL"
    text = to_cast_text(value, data_type).replace("'", "''").replace("\0", "' || chr(0) || '")
    return f"CAST(('{text}') AS {sql})"


def load(connection: duckdb.DuckDBPyConnection, table: str = "t") -> None:
    """The same rows as a table in DuckDB, with ``row`` before the columns."""
    columns = edge_columns()
    described = ", ".join(f'"{name}" {sql}' for name, (_, sql) in LEAVES.items())
    connection.execute(f'CREATE TABLE {table} ("row" INTEGER, {described}, st STRUCT(a INTEGER, "T" VARCHAR), li INTEGER[])')
    rows = []
    for row in range(ROWS):
        cells = [_constant(values[row], *LEAVES[name]) for name, values in columns.items()]
        text = _constant(STRINGS[row % len(STRINGS)], _P["varchar"], "VARCHAR")
        cells.append("NULL" if row % 5 == 2 else f"{{'a': {'NULL' if row % 4 == 3 else row}, 'T': {text}}}")
        cells.append("NULL" if row % 5 == 1 else f"[{', '.join([str(row), 'NULL'][: row % 3])}]")
        rows.append(f"({row}, {', '.join(cells)})")
    for start in range(0, ROWS, 20):
        connection.execute(f"INSERT INTO {table} VALUES {', '.join(rows[start : start + 20])}")
