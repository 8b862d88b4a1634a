"""A table with a column of every comparable type, values with their odd corners, and conditions on them."""

from __future__ import annotations

import math
from decimal import Decimal
from random import Random

import duckdb
import pyarrow as pa

from ducklake_core.format.expressions.comparison import integer_range, round_to_float32
from ducklake_core.format.types.data_types import PRIMITIVES, DataType, DecimalType, Field, StructType
from ducklake_core.format.types.schema import Schema, to_arrow_schema, with_ids
from ducklake_core.format.values.arrow_cast import from_values

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
_FLOATS = [0.0, -0.0, 0.1, 1.5, -2.0, 16777216.0, 1e300, math.nan, math.inf, -math.inf, 3.25, 1e-30]
_INSTANTS = [0, -1, 1, _DAY, -_DAY, 1_704_153_601_500_000, -(2**63) + 1, 2**63 - 1, -63_517_788_000_000_000]
_DAYS = [0, -1, 19_723, 2**31 - 1, -(2**31) + 1, -735_160]
_IDS = ["00000000-0000-0000-0000-000000000001", "80000000-0000-0000-0000-000000000000", "ffffffff-0000-4000-8000-000000000000"]
_STRINGS = ["", "a", "ab", "abc", "b", "Z", "é", "𝄞", "\uffff", "a%", "it's", "x\\y"]


def value_of(name: str, draw: Random) -> object:
    """A value of a column in its Python form: half of them corners, half of them near them."""
    data_type, sql = TYPES[name]
    corner = draw.random() < 0.5
    match sql:
        case "FLOAT":
            return round_to_float32(draw.choice(_FLOATS) if corner else draw.uniform(-2, 2))
        case "DOUBLE":
            return draw.choice(_FLOATS) if corner else draw.uniform(-2, 2)
        case "BOOLEAN":
            return corner
        case "DATE":
            return draw.choice(_DAYS) if corner else draw.randint(19_715, 19_730)
        case "TIME":
            return draw.choice([0, _DAY, 36_000_500_000]) if corner else draw.randint(0, _DAY)
        case "TIMESTAMP" | "TIMESTAMPTZ":
            return draw.choice(_INSTANTS) if corner else draw.randint(1_704_100_000_000_000, 1_704_200_000_000_000)
        case "TIMESTAMP_S":
            return draw.choice([0, -1, 1_704_153_600]) * 1_000_000 if corner else draw.randint(-(10**11), 10**11) * 1_000_000
        case "TIMESTAMP_MS":
            return draw.choice([0, -1, 1_704_153_600_000]) * 1000 if corner else draw.randint(-(10**13), 10**13) * 1000
        case "TIMESTAMP_NS":
            return draw.choice([0, -1, 1_704_153_600_123_456_789]) if corner else draw.randint(-(10**18), 10**18)
        case "VARCHAR":
            return draw.choice(_STRINGS) if corner else "".join(draw.choices("abé\uffff𝄞", k=draw.randint(0, 3)))
        case "BLOB":
            return draw.randbytes(draw.randint(0, 2))
        case "UUID":
            return draw.choice(_IDS)
        case _ if isinstance(data_type, DecimalType):
            limit = 10**data_type.precision - 1
            steps = draw.choice([0, 150, -150, limit, -limit]) if corner else draw.randint(-300, 300)
            return Decimal(f"{steps}e-{data_type.scale}")
        case _:
            low, high = integer_range(data_type)
            return draw.choice([low, high, 0, 1, 2, 5]) if corner else draw.randint(max(low, -4), min(high, 4))


def table_of(columns: dict[str, list[object]]) -> pa.Table:
    """The columns as an Arrow table in logical form, with a struct next to them whose parent is NULL in every third row."""
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
