"""Reject values that Arrow can carry and DuckLake cannot store: times, dates, decimals out of range, and maps with a key twice.

DuckDB 1.5.5 rejects or misreads such values, in files and inlined, and then nobody can read the column. Every write checks its rows here,
before it decides between a file and the catalog, so that both take the same values.
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.errors import SchemaError
from ducklake_core.format.types.arrow_types import ArrowArray, is_list
from ducklake_core.format.types.message_text import shown

_WIDE = Context(prec=100)
_INFINITE = 2**63 - 1
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_FIRST_SECOND, _LAST_MICROSECOND = -9223372022400, 2**63 - 2
_FIRST_NANOSECOND = -9223286400 * 10**9
_DAY_SECONDS = 86_400


def check_values(array: ArrowArray, path: str) -> None:
    """Raise for a value that cannot be stored.

    >>> check_values(pa.array([86_400_000_000], pa.int64()).view(pa.time64("us")), "t")
    >>> check_values(pa.array([90_000_000_000], pa.int64()).view(pa.time64("us")), "t")
    Traceback (most recent call last):
    ducklake_core.errors.SchemaError: column 't': a time of 90000000000 us is not between 00:00:00 and 24:00:00 [schema]

    Args:
        array: The values of a column, or of a node below it, in an Arrow type that a column has.
        path: Name of the column, and of the fields down to the node.

    Raises:
        SchemaError: A time that is not within a day, a date or timestamp outside of DuckDB's range, a decimal with more digits than its
            type has, or a map with NULL as a key or with a key twice. The message names the column and the value.
    """
    if isinstance(array, pa.ChunkedArray):
        for chunk in array.chunks:
            check_values(chunk, path)
        return
    arrow = array.type
    if isinstance(arrow, pa.BaseExtensionType) or not len(array):
        return
    if pa.types.is_time(arrow):
        limit = _DAY_SECONDS * _UNITS[arrow.unit]
        name = f"a time of {{}} {arrow.unit} is not between 00:00:00 and 24:00:00"
        _check_range(_integers(array), 0, limit, path, name)
    elif pa.types.is_date32(arrow):
        _check_range(_integers(array), -(2**31) + 1, 2**31 - 1, path, "a date {} days after 1970-01-01 is out of range")
    elif pa.types.is_timestamp(arrow):
        unit = _UNITS[arrow.unit]
        first = _FIRST_NANOSECOND if arrow.unit == "ns" else _FIRST_SECOND * unit
        last = _LAST_MICROSECOND if arrow.unit == "ns" else _LAST_MICROSECOND * unit // 10**6
        name = f"a timestamp {{}} {arrow.unit} after 1970-01-01 is out of range"
        _check_range(_integers(array), first, last, path, name, infinite=True)
    elif pa.types.is_decimal(arrow):
        most = Decimal(10**arrow.precision - 1).scaleb(-arrow.scale, _WIDE)
        _check_range(array, -most, most, path, f"{{}} has more digits than decimal({arrow.precision},{arrow.scale})")
    elif pa.types.is_nested(arrow):
        _check_nested(array, path)


def _integers(array: ArrowArray) -> ArrowArray:
    return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())


def _check_range(values: ArrowArray, first: Any, last: Any, path: str, message: str, *, infinite: bool = False) -> None:
    bounds: Any = pc.min_max(values).as_py()
    low, high = bounds["min"], bounds["max"]
    if low is None or (low >= first and high <= last):
        return
    if infinite:
        values = values.filter(pc.invert(pc.is_in(values, pa.array([-_INFINITE, _INFINITE], values.type))))
        bounds = pc.min_max(values).as_py()
        low, high = bounds["min"], bounds["max"]
        if low is None or (low >= first and high <= last):
            return
    raise SchemaError(f"column {path!r}: {message.format(low if low < first else high)}", column=path)


def _check_nested(array: ArrowArray, path: str) -> None:
    arrow = array.type
    if pa.types.is_map(arrow):
        _check_keys(array, path)
        entries = array.cast(pa.list_(pa.struct([pa.field("key", arrow.key_type), pa.field("value", arrow.item_type)]))).flatten()
        check_values(entries.field(0), f"{path}.key")
        check_values(entries.field(1), f"{path}.value")
    elif pa.types.is_struct(arrow):
        # What stands below NULL structs is no value.
        for field, child in zip(arrow, array.flatten(), strict=True):
            if _is_checked(field.type):
                check_values(child, f"{path}.{field.name}")
    elif is_list(arrow) and _is_checked(arrow.value_type):
        check_values(array.flatten(), f"{path}.element")


def _is_checked(arrow: pa.DataType) -> bool:
    """Return whether values of a type may be out of range."""
    if pa.types.is_nested(arrow):
        return True
    return bool(pa.types.is_temporal(arrow) or pa.types.is_decimal(arrow))


def _check_keys(array: ArrowArray, path: str) -> None:
    """Raise for a map with NULL as a key, or with one key twice."""
    plain = array.cast(pa.list_(pa.struct([pa.field("key", array.type.key_type), pa.field("value", array.type.item_type)])))
    keys = plain.flatten().field(0)
    if keys.null_count:
        raise SchemaError(f"column {path!r} has a map with a NULL key", column=path)
    if len(keys) < 2 or pa.types.is_nested(keys.type):
        return
    if isinstance(keys, pa.ExtensionArray):
        keys = keys.storage
    if pa.types.is_decimal256(keys.type):
        keys = keys.cast(pa.string())
    rows = pa.table({"row": pc.list_parent_indices(plain), "key": keys})
    counts = rows.group_by(["row", "key"]).aggregate([([], "count_all")])
    if len(counts) < len(rows):
        (twice,) = counts.filter(pc.greater(counts.column("count_all"), 1)).slice(0, 1).column("key").to_pylist()
        raise SchemaError(f"column {path!r} has a map with the key {shown(twice)} twice", column=path)
