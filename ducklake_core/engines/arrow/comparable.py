"""Arrow columns in forms that compare as DuckDB compares their types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.expressions.comparison import Domain, domain_of
from ducklake_core.format.types.arrow_types import HUGE_INTEGER
from ducklake_core.format.types.data_types import BOOLEAN, DATE, INT128, TIMESTAMP_NS, UINT64, UINT128, DataType, DecimalType

_INFINITY = 2**63 - 1
_MICROSECONDS_A_DAY = 86_400_000_000


def comparable(array: pa.Array, data_type: DataType) -> pa.Array:
    """Plain storage of a leaf column whose order is the type's order: days, units of time (see format/values/leaf_values.py), bytes.

    Raises:
        UnsupportedFeatureError: A type whose values cannot be ordered here.
    """
    if domain_of(data_type) is None:
        raise UnsupportedFeatureError(f"values of type {data_type} cannot be compared here; scan with .to_spark() instead")
    plain: Any = array.storage if isinstance(array, pa.ExtensionArray) else array
    if pa.types.is_dictionary(plain.type):
        plain = plain.dictionary_decode()
    arrow = plain.type
    if data_type in (INT128, UINT128):
        return plain if arrow == HUGE_INTEGER else plain.cast(HUGE_INTEGER)
    if pa.types.is_date32(arrow):
        return plain.view(pa.int32())
    if pa.types.is_timestamp(arrow):
        return _units(plain.view(pa.int64()), arrow.unit, "ns" if data_type == TIMESTAMP_NS else "us")
    if pa.types.is_time(arrow):
        return plain.cast(pa.time64("us")).view(pa.int64())
    if pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow):
        return plain.cast(pa.string())
    if pa.types.is_large_binary(arrow) or pa.types.is_binary_view(arrow):
        return plain.cast(pa.binary())
    return plain


def hashable(array: Any) -> Any:
    """Equal values in equal form, of a type that Arrow's set operations know: one NaN for all of them, one zero for both."""
    if pa.types.is_floating(array.type):
        return pc.if_else(pc.is_nan(array), pa.scalar(float("nan"), array.type), pc.add(array, pa.scalar(0.0, array.type)))
    return array.cast(pa.string()) if pa.types.is_decimal256(array.type) else array


def in_domain(array: pa.Array, data_type: DataType, domain: Domain) -> pa.Array:
    """Numbers as the floats that ``domain`` asks for; other columns as :func:`comparable`."""
    plain = comparable(array, data_type)
    if domain not in ("float32", "float64"):
        return plain
    target = pa.float32() if domain == "float32" else pa.float64()
    if pa.types.is_decimal(plain.type):
        # Arrow's own cast of decimals to floats is not always the nearest float.
        return plain.cast(pa.string()).cast(target)
    if pa.types.is_boolean(plain.type):
        plain = plain.cast(pa.int8())
    return plain.cast(target, safe=False)


def unified(left: pa.Array, left_type: DataType, right: pa.Array, right_type: DataType, domain: Domain) -> tuple[pa.Array, pa.Array]:
    """Two columns in one comparable form."""
    if domain == "exact" and left_type != right_type:
        return _exact(comparable(left, left_type), left_type, comparable(right, right_type), right_type)
    if domain == "point in time" and left_type != right_type:
        unit = "ns" if TIMESTAMP_NS in (left_type, right_type) else "us"
        return _instants(comparable(left, left_type), left_type, unit), _instants(comparable(right, right_type), right_type, unit)
    return in_domain(left, left_type, domain), in_domain(right, right_type, domain)


def _exact(left: pa.Array, left_type: DataType, right: pa.Array, right_type: DataType) -> tuple[pa.Array, pa.Array]:
    left, right = (a.cast(pa.int8()) if t == BOOLEAN else a for a, t in ((left, left_type), (right, right_type)))
    if all(pa.types.is_integer(a.type) for a in (left, right)) and UINT64 not in (left_type, right_type):
        return left.cast(pa.int64()), right.cast(pa.int64())
    whole, scale = (max(pair) for pair in zip(_digits(left_type), _digits(right_type), strict=True))
    if whole + scale > 76:
        raise UnsupportedFeatureError(f"{left_type} and {right_type} have no common type here; scan with .to_spark() instead")
    common = pa.decimal256(76, scale)
    return left.cast(common), right.cast(common)


def _digits(data_type: DataType) -> tuple[int, int]:
    if isinstance(data_type, DecimalType):
        return data_type.precision - data_type.scale, data_type.scale
    return (39, 0) if data_type in (INT128, UINT128) else (20, 0)


def _instants(array: pa.Array, data_type: DataType, unit: str) -> pa.Array:
    if data_type == DATE:
        return _scaled(array.cast(pa.int64()), _MICROSECONDS_A_DAY * (1000 if unit == "ns" else 1))
    return _units(array, "ns" if data_type == TIMESTAMP_NS else "us", unit)


def _units(array: pa.Array, unit: str, wanted: str) -> pa.Array:
    steps = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
    if steps[unit] < steps[wanted]:
        # Nanoseconds in a column of microseconds: nothing writes that, and rounding would change comparisons.
        raise UnsupportedFeatureError(f"timestamps in {unit} stand where {wanted} belong")
    return _scaled(array, steps[unit] // steps[wanted])


def _scaled(array: pa.Array, factor: int) -> pa.Array:
    """Multiplied; what does not fit 64 bits, infinities among it, becomes infinite."""
    if factor == 1:
        return array
    numbers = np.asarray(array.fill_null(0))
    limit = _INFINITY // factor
    scaled = np.where(numbers > limit, _INFINITY, np.where(numbers < -limit, -_INFINITY, numbers * factor))
    return pc.if_else(array.is_null(), pa.scalar(None, pa.int64()), pa.array(scaled))
