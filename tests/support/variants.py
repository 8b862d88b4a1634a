"""Random variants: as Python values with types, in the Parquet encoding, and as SQL of DuckDB."""

from __future__ import annotations

import random
import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from ducklake_core.format.types.data_types import VARIANT, Field
from ducklake_core.format.types.schema import to_arrow_field
from ducklake_core.format.values import variant_encoding as encoding

NAMES = (
    "a", "b", "ünï", "x.y", 'q"uote', "it's", "with space", "select", "element", "value", "typed_value", "metadata", "日本",
    "a_much_longer_name",
)  # fmt: skip


@dataclass(frozen=True)
class Value:
    """One value: ``kind`` is the first byte of its encoding, or a name; ``held`` what it holds."""

    kind: str
    held: Any = None


_PACKED = {
    "TINYINT": (encoding.INT8, "<b"), "SMALLINT": (encoding.INT16, "<h"), "INTEGER": (encoding.INT32, "<i"),
    "BIGINT": (encoding.INT64, "<q"), "FLOAT": (encoding.FLOAT32, "<f"), "DOUBLE": (encoding.FLOAT64, "<d"),
}  # fmt: skip
_MICROS = {"DATE": encoding.DATE, "TIME": encoding.TIME, "TIMESTAMP": encoding.TIMESTAMP, "TIMESTAMPTZ": encoding.TIMESTAMPTZ}
KINDS = ("null", "BOOLEAN", *_PACKED, "DECIMAL", *_MICROS, "TIMESTAMP_NS", "BLOB", "VARCHAR", "UUID")


def random_value(dice: random.Random, depth: int = 0, kinds: Sequence[str] = KINDS, names: Sequence[str] = NAMES) -> Value:
    """Any value, nested less the deeper it lies."""
    shape = dice.random()
    if depth < 3 and shape < 0.35:
        chosen = dice.sample(names, dice.randint(0, min(4, len(names))))
        return Value("object", {name: random_value(dice, depth + 1, kinds, names) for name in chosen})
    if depth < 3 and shape < 0.5:
        return Value("array", [random_value(dice, depth + 1, kinds, names) for _ in range(dice.randint(0, 3))])
    return random_primitive(dice, dice.choice(kinds))


def random_primitive(dice: random.Random, kind: str) -> Value:
    """A value of one type."""
    match kind:
        case "BOOLEAN":
            return Value(kind, dice.random() < 0.5)
        case "TINYINT" | "SMALLINT" | "INTEGER" | "BIGINT":
            bits = {"TINYINT": 7, "SMALLINT": 15, "INTEGER": 31, "BIGINT": 63}[kind]
            return Value(kind, dice.choice([0, 1, -1, -(2**bits), 2**bits - 1, dice.randint(-(2**bits), 2**bits - 1)]))
        case "FLOAT" | "DOUBLE":
            return Value(kind, dice.choice([0.0, -0.0, 1.5, -2.25, float("inf"), float("-inf"), float("nan"), dice.randint(-99, 99) / 4]))
        case "DECIMAL":
            return Value(kind, (dice.choice([9, 18, 38]), 2, dice.randint(-999_999, 999_999)))
        case "DATE":
            return Value(kind, dice.randint(-10_000, 30_000))
        case "TIME":
            return Value(kind, dice.randint(0, 86_399_999_999))
        case "TIMESTAMP" | "TIMESTAMPTZ":
            return Value(kind, dice.randint(-(10**15), 2 * 10**15))
        case "TIMESTAMP_NS":
            return Value(kind, dice.randint(-(10**18), 2 * 10**18))
        case "BLOB":
            return Value(kind, dice.randbytes(dice.choice([0, 1, 16, 70])))
        case "VARCHAR":
            return Value(kind, dice.choice(["", "x", "ünï", "'quoted'", "x" * 63, "x" * 64, "é" * 200, str(dice.random())]))
        case "UUID":
            return Value(kind, dice.randbytes(16))
        case _:
            return Value("null")


def names_in(value: Value) -> set[str]:
    """All field names of a value."""
    if value.kind == "object":
        return set(value.held).union(*map(names_in, value.held.values())) if value.held else set()
    return set().union(*map(names_in, value.held)) if value.kind == "array" and value.held else set()


def metadata_of(names: Sequence[str]) -> bytes:
    """A dictionary of names, in the order given."""
    encoded_names = [name.encode() for name in names]
    ends = [0]
    for text in encoded_names:
        ends.append(ends[-1] + len(text))
    width = encoding._width(max(ends[-1], len(encoded_names)))
    numbers = b"".join(number.to_bytes(width, "little") for number in [len(encoded_names), *ends])
    return bytes([1 | (width - 1) << 6]) + numbers + b"".join(encoded_names)


def encoded(value: Value, metadata: bytes) -> bytes:
    """A value in the Parquet encoding."""
    match value.kind:
        case "null":
            return encoding.NULL
        case "BOOLEAN":
            return encoding.TRUE if value.held else encoding.FALSE
        case "DECIMAL":
            precision, scale, digits = value.held
            kind, width = {9: (encoding.DECIMAL4, 4), 18: (encoding.DECIMAL8, 8), 38: (encoding.DECIMAL16, 16)}[precision]
            return kind + bytes([scale]) + int(digits).to_bytes(width, "little", signed=True)
        case "DATE":
            return encoding.DATE + struct.pack("<i", value.held)
        case "TIME" | "TIMESTAMP" | "TIMESTAMPTZ":
            return _MICROS[value.kind] + struct.pack("<q", value.held)
        case "TIMESTAMP_NS":
            return encoding.TIMESTAMP_NS + struct.pack("<q", value.held)
        case "BLOB":
            return encoding.binary_start(len(value.held)) + bytes(value.held)
        case "VARCHAR":
            return encoding.string(str(value.held).encode())
        case "UUID":
            return encoding.UUID + bytes(value.held)
        case "object":
            return encoding.object_({name: encoded(one, metadata) for name, one in value.held.items()}, metadata)
        case "array":
            return encoding.array([encoded(one, metadata) for one in value.held])
        case kind:
            header, form = _PACKED[kind]
            return header + struct.pack(form, value.held)


def variant_array(values: Sequence[Value | None]) -> pa.Array[Any]:
    """Values as plain variants; None is NULL."""
    found: list[dict[str, bytes] | None] = []
    for value in values:
        if value is None:
            found.append(None)
            continue
        metadata = metadata_of(sorted(names_in(value), key=str.encode))
        found.append({"metadata": metadata, "value": encoded(value, metadata)})
    return pa.array(found, to_arrow_field(Field(name="v", type=VARIANT)).type)


def variant_table(values: Sequence[Value | None]) -> pa.Table:
    """Rows with a number ``i`` and a variant ``v``."""
    field = to_arrow_field(Field(name="v", type=VARIANT))
    columns = pa.schema([pa.field("i", pa.int64()), field])
    return pa.Table.from_arrays([pa.array(range(len(values)), pa.int64()), variant_array(values)], schema=columns)


def decoded(metadata: bytes, value: bytes) -> Any:
    """A value as what can be compared: integers of any width, and decimals of any precision, are the same."""
    fields = encoding.object_fields(value, metadata)
    if fields is not None:
        return {name: decoded(metadata, one) for name, one in fields.items()}
    if value[0] & 3 == 3:
        return [decoded(metadata, one) for one in _elements(value)]
    if value[0] & 3 == 1:
        return ("VARCHAR", value[1:])
    kind, rest = value[:1], value[1:]
    if kind in (encoding.STRING, encoding.BINARY):
        return ("VARCHAR" if kind == encoding.STRING else "BLOB", rest[4:])
    if kind in (encoding.INT8, encoding.INT16, encoding.INT32, encoding.INT64):
        return ("INTEGER", int.from_bytes(rest, "little", signed=True))
    if kind in (encoding.DECIMAL4, encoding.DECIMAL8, encoding.DECIMAL16):
        return ("DECIMAL", rest[0], int.from_bytes(rest[1:], "little", signed=True))
    return (kind, rest)


def _elements(value: bytes) -> list[bytes]:
    header = value[0] >> 2
    width, count_width = (header & 3) + 1, 4 if header & 4 else 1
    count = int.from_bytes(value[1 : 1 + count_width], "little")
    first = 1 + count_width
    ends = [int.from_bytes(value[first + n * width : first + (n + 1) * width], "little") for n in range(count + 1)]
    start = first + (count + 1) * width
    return [value[start + low : start + high] for low, high in pairwise(ends)]


def comparable(rows: pa.ChunkedArray[Any] | pa.Array[Any]) -> list[Any]:
    """Variants as what can be compared; None for NULL."""
    return [None if row is None else decoded(row["metadata"], row["value"]) for row in rows.to_pylist()]


def sql(value: Value | None) -> str:
    """A value as DuckDB's SQL, a VARIANT."""
    if value is None or value.kind == "null":
        return "NULL::VARIANT"
    return f"({_sql(value)})::VARIANT"


def _sql(value: Value) -> str:
    held = value.held
    match value.kind:
        case "BOOLEAN":
            return str(held).lower()
        case "FLOAT" | "DOUBLE":
            return f"'{held!r}'::{value.kind}"
        case "DECIMAL":
            precision, scale, digits = held
            return f"'{digits / 10**scale:.{scale}f}'::DECIMAL({precision},{scale})"
        case "DATE":
            return f"(DATE '1970-01-01' + {held})::DATE"
        case "TIME":
            return f"(TIME '00:00:00' + to_microseconds({held}))::TIME"
        case "TIMESTAMP":
            return f"make_timestamp({held})"
        case "TIMESTAMPTZ":
            return f"make_timestamp({held})::TIMESTAMPTZ"
        case "TIMESTAMP_NS":
            return f"make_timestamp_ns({held})"
        case "BLOB":
            return "'" + "".join(f"\\x{byte:02X}" for byte in held) + "'::BLOB"
        case "VARCHAR":
            return "'" + str(held).replace("'", "''") + "'"
        case "UUID":
            return f"'{uuid.UUID(bytes=held)}'::UUID"
        case "object" if not held:
            return "'{}'::JSON"
        case "object":
            return "{" + ", ".join(f"'{name.replace(chr(39), chr(39) * 2)}': {sql(one)}" for name, one in held.items()) + "}"
        case "array":
            return "[" + ", ".join(map(sql, held)) + "]" + ("" if held else "::INTEGER[]")
        case kind:
            return f"({held})::{kind}"
