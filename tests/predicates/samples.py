"""A table with a column of every comparable type, values with their odd corners, and conditions on them."""

from __future__ import annotations

import math
from decimal import Decimal

import duckdb
import pyarrow as pa
from hypothesis import strategies as st

from ducklake_core.format.arrow_types import to_arrow_schema
from ducklake_core.format.comparison import integer_range, round_to_float32
from ducklake_core.format.leaf_cast import from_values
from ducklake_core.format.schema import Schema, with_ids
from ducklake_core.format.types import PRIMITIVES, DataType, DecimalType, Field, StructType

TYPES: dict[str, tuple[DataType, str]] = {
    "i8": (PRIMITIVES["int8"], "TINYINT"),
    "i32": (PRIMITIVES["int32"], "INTEGER"),
    "i64": (PRIMITIVES["int64"], "BIGINT"),
    "i128": (PRIMITIVES["int128"], "HUGEINT"),
    "u8": (PRIMITIVES["uint8"], "UTINYINT"),
    "u64": (PRIMITIVES["uint64"], "UBIGINT"),
    "f32": (PRIMITIVES["float32"], "FLOAT"),
    "f64": (PRIMITIVES["float64"], "DOUBLE"),
    "dec": (DecimalType(precision=9, scale=2), "DECIMAL(9,2)"),
    "dec38": (DecimalType(precision=38, scale=6), "DECIMAL(38,6)"),
    "flag": (PRIMITIVES["boolean"], "BOOLEAN"),
    "day": (PRIMITIVES["date"], "DATE"),
    "clock": (PRIMITIVES["time"], "TIME"),
    "ts": (PRIMITIVES["timestamp"], "TIMESTAMP"),
    "ts_s": (PRIMITIVES["timestamp_s"], "TIMESTAMP_S"),
    "ts_ms": (PRIMITIVES["timestamp_ms"], "TIMESTAMP_MS"),
    "ts_ns": (PRIMITIVES["timestamp_ns"], "TIMESTAMP_NS"),
    "tz": (PRIMITIVES["timestamptz"], "TIMESTAMPTZ"),
    "text": (PRIMITIVES["varchar"], "VARCHAR"),
    'we"ird, näme': (PRIMITIVES["blob"], "BLOB"),
    "id": (PRIMITIVES["uuid"], "UUID"),
}
SCHEMA = with_ids(
    Schema(
        columns=(
            *(Field(name=name, type=data_type) for name, (data_type, _) in TYPES.items()),
            Field(
                name="Box", type=StructType(fields=(Field(name="n", type=PRIMITIVES["int32"]), Field(name="T", type=PRIMITIVES["varchar"])))
            ),
        )
    )
)
_DAY = 86_400_000_000
_MICROS = st.one_of(
    st.sampled_from([0, -1, 1, _DAY, -_DAY, 1_704_153_601_500_000, -(2**63) + 1, 2**63 - 1, -63_517_788_000_000_000]),
    st.integers(-(10**17), 10**17),
)
_FLOATS = st.one_of(
    st.sampled_from([0.0, -0.0, 0.1, 1.5, -2.0, 16777216.0, 1e300, math.nan, math.inf, -math.inf]), st.floats(width=32, allow_nan=False)
)
_IDS = st.sampled_from(
    ["00000000-0000-0000-0000-000000000001", "80000000-0000-0000-0000-000000000000", "ffffffff-0000-4000-8000-000000000000"]
)
_TEXTS = st.one_of(st.sampled_from(["", "a", "ab", "abc", "b", "Z", "é", "𝄞", "a%", "it's", "x\\y"]), st.text("abé\uffff𝄞", max_size=3))


def values_of(name: str) -> st.SearchStrategy[object]:
    """Values of a column in their Python form."""
    data_type, sql = TYPES[name]
    match sql:
        case "FLOAT":
            return _FLOATS.map(round_to_float32)
        case "DOUBLE":
            return _FLOATS
        case "BOOLEAN":
            return st.booleans()
        case "DATE":
            return st.one_of(st.sampled_from([0, -1, 19_723, 2**31 - 1, -(2**31) + 1, -735_160]), st.integers(-800_000, 100_000))
        case "TIME":
            return st.one_of(st.sampled_from([0, _DAY, 36_000_500_000]), st.integers(0, _DAY))
        case "TIMESTAMP" | "TIMESTAMPTZ":
            return _MICROS
        case "TIMESTAMP_S":
            return st.integers(-(10**11), 10**11).map(lambda v: v * 1_000_000)
        case "TIMESTAMP_MS":
            return st.integers(-(10**13), 10**13).map(lambda v: v * 1000)
        case "TIMESTAMP_NS":
            return st.integers(-(10**18), 10**18)
        case "VARCHAR":
            return _TEXTS
        case "BLOB":
            return st.binary(max_size=3)
        case "UUID":
            return _IDS
        case _ if isinstance(data_type, DecimalType):
            limit, scale = 10**data_type.precision - 1, data_type.scale
            steps = st.one_of(st.sampled_from([0, 150, -150, limit, -limit]), st.integers(-1000, 1000))
            return steps.map(lambda v: Decimal(f"{v}e-{scale}"))
        case _:
            low, high = integer_range(data_type)
            return st.one_of(st.sampled_from([low, high, 0, 1, 2, 5]), st.integers(max(low, -10), min(high, 10)))


def table_of(columns: dict[str, list[object]]) -> pa.Table:
    """The columns as an Arrow table in logical form, with a struct beside them whose parent is NULL in every third row."""
    fields = {field.name: field for field in SCHEMA}
    arrays = {name: from_values(values, fields[name].type) for name, values in columns.items()}
    count = len(next(iter(columns.values())))
    box = [None if i % 3 == 2 else {"n": None if i % 4 == 3 else i, "T": "ab"[: i % 3]} for i in range(count)]
    arrow = to_arrow_schema(SCHEMA)
    arrays["Box"] = pa.array(box, arrow.field("Box").type)
    return pa.table([arrays[name] for name in arrays], schema=pa.schema([arrow.field(name) for name in arrays]))


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def load(connection: duckdb.DuckDBPyConnection, columns: dict[str, list[object]], table: pa.Table) -> None:
    """The same rows as table ``t`` in DuckDB, with the columns' own types."""
    fields = {field.name: field for field in SCHEMA}
    plain = {name: from_values(values, fields[name].type, physical=True) for name, values in columns.items()}
    plain["id"] = pa.array([None if v is None else str(v) for v in columns["id"]], pa.string())
    plain["Box"] = table.column("Box")
    connection.register("plain", pa.table(plain))
    casts = ", ".join(f"CAST({quoted(name)} AS {TYPES[name][1]}) AS {quoted(name)}" for name in columns)
    connection.execute(f'CREATE OR REPLACE TABLE t AS SELECT {casts}, "Box" FROM plain')
    connection.unregister("plain")
