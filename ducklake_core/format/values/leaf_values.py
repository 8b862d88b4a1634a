"""Values of leaf columns: their Python forms, and where they come from: strings of the catalog, Arrow arrays, Parquet statistics.

==============================================  =========================================================================
DuckLake type                                   Python form
==============================================  =========================================================================
boolean                                         bool
int8 ... uint128                                int
decimal                                         Decimal
float32, float64                                float (NaN and infinities included)
date                                            int, days since 1970-01-01; infinities are +-(2**31 - 1)
time, timetz                                    int, microseconds since midnight; timetz in UTC
time_ns                                         int, nanoseconds since midnight
timestamp, timestamp_s, timestamp_ms, ...tz     int, microseconds since 1970-01-01 (UTC); infinities are +-(2**63 - 1)
timestamp_ns                                    int, nanoseconds
varchar, json                                   str
uuid                                            str, lower case with dashes (sorts like the bytes)
blob                                            bytes
variant                                         dict of the binaries ``metadata`` and ``value``
interval                                        :class:`~ducklake_core.format.values.value_text.Interval`
==============================================  =========================================================================
"""

from __future__ import annotations

import uuid
from decimal import Decimal

import pyarrow as pa

from ducklake_core.errors import CorruptFileError
from ducklake_core.format.types.data_types import TIME_NS, TIMESTAMP_NS, DataType, DecimalType, PrimitiveType
from ducklake_core.format.types.schema import ArrowArray
from ducklake_core.format.values.temporal import INFINITE_UNITS
from ducklake_core.format.values.value_text import Interval, decimal_text, from_cast_text, from_text, order_key, to_cast_text, to_text

__all__ = ["from_cast_text", "from_text", "order_key", "python_values", "stat_text", "stat_value", "to_cast_text", "to_text"]

_UNITS_PER_MICROSECOND = {"s": (1_000_000, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}


def stat_value(raw: object, data_type: DataType) -> object | None:
    """Return a Parquet minimum or maximum in its Python form, None where it does not bound the values.

    Args:
        raw: ``min_raw`` or ``max_raw`` of pyarrow's column chunk statistics: the physical value of a file written in
            the physical form (see format/types/schema.py).
        data_type: The column's type.

    >>> from ducklake_core.format.types.data_types import *
    >>> stat_value(-1, UINT32), stat_value(b"ab", VARCHAR), stat_value(7, TIMESTAMP_MS)
    (4294967295, 'ab', 7000)
    >>> stat_value(b"\\x96", DecimalType(precision=9, scale=2)), stat_value(150, DecimalType(precision=9, scale=2))
    (Decimal('-1.06'), Decimal('1.50'))
    """
    match data_type, raw:
        # Files hold other types in place of these, whose order is not that of the values.
        case PrimitiveType(name="int128" | "uint128" | "interval" | "timetz" | "variant" | "geometry"), _:
            return None
        case PrimitiveType(name="boolean"), _:
            return bool(raw)
        # Parquet's physical integers are signed; the mask restores the unsigned value from the same bits.
        case PrimitiveType(name="uint8" | "uint16" | "uint32"), int():
            return raw & 0xFFFFFFFF
        case PrimitiveType(name="uint64"), int():
            return raw & 0xFFFFFFFFFFFFFFFF
        case PrimitiveType(name="timestamp_ms"), int():
            # Infinity is the same number in every unit, so it is not scaled.
            return raw * 1000 if abs(raw) != INFINITE_UNITS else raw
        case PrimitiveType(name="uuid"), bytes():
            return str(uuid.UUID(bytes=raw))
        case PrimitiveType(name="varchar" | "json"), bytes():
            return raw.decode()
        case DecimalType(), int():
            return Decimal(decimal_text(raw, data_type))
        # Decimals of many digits are big-endian two's complement.
        case DecimalType(), bytes():
            return Decimal(decimal_text(int.from_bytes(raw, "big", signed=True), data_type))
        case _, bool() | int() | float() | bytes():
            return raw
        case _:
            raise CorruptFileError(f"Parquet statistics of a column of type {data_type} hold {raw!r}")


def stat_text(raw: object, data_type: DataType) -> str | None:
    """Return the statistics text, in full length, of a Parquet minimum or maximum; None where it does not bound the values.

    >>> from ducklake_core.format.types.data_types import *
    >>> stat_text(19737, DATE), stat_text(True, BOOLEAN), stat_text(b"\\x00\\x01", INTERVAL)
    ('2024-01-15', '1', None)
    """
    value = stat_value(raw, data_type)
    return None if value is None else to_text(value, data_type)


def python_values(array: ArrowArray, data_type: DataType) -> list[object]:
    """Return the values of an Arrow array of a leaf column, logical or physical, in their Python forms; None for NULL."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in python_values(chunk, data_type)]
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    arrow = array.type
    if pa.types.is_date32(arrow):
        return list(array.cast(pa.int32()).to_pylist())
    if pa.types.is_timestamp(arrow) or pa.types.is_time(arrow):
        return _in_units(array, "ns" if data_type in (TIME_NS, TIMESTAMP_NS) else "us")
    match data_type:
        case PrimitiveType(name="uuid") if pa.types.is_fixed_size_binary(arrow):
            return [None if v is None else str(uuid.UUID(bytes=v)) for v in array.to_pylist()]
        case PrimitiveType(name="int128" | "uint128"):
            return [None if v is None else int(v) for v in array.to_pylist()]
        case PrimitiveType(name="interval") if pa.types.is_interval(arrow):
            return [
                None if v is None else Interval(months=v.months, days=v.days, microseconds=v.nanoseconds // 1000) for v in array.to_pylist()
            ]
        case _:
            return list(array.to_pylist())


def _in_units(array: ArrowArray, unit: str) -> list[object]:
    arrow = array.type
    numbers: list[object] = array.cast(pa.int32() if pa.types.is_time32(arrow) else pa.int64()).to_pylist()
    if arrow.unit == unit:
        return numbers
    many, per = _UNITS_PER_MICROSECOND[arrow.unit]
    factor = many * (1000 if unit == "ns" else 1)
    return [v if not isinstance(v, int) or abs(v) == INFINITE_UNITS else v * factor // per for v in numbers]
