"""Variants of a Parquet file as plain (metadata, value) pairs, put together where the writer shredded them (Parquet: Variant Shredding).

A shredded group has ``value``, the binary of what did not fit the chosen type, and ``typed_value``, what did. Of both at once only an
object may be made: its shredded fields, and in ``value`` the others.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.errors import CorruptFileError
from ducklake_core.format.types.arrow_types import VARIANT_STORAGE, is_list
from ducklake_core.format.values import variant_encoding as encoding
from ducklake_core.format.values.value_text import unscaled

Values = list[bytes | None]
"""Encoded values, None where there is none."""


def reassemble(array: pa.Array[Any]) -> pa.StructArray:
    """Variants as :data:`~ducklake_core.format.types.arrow_types.VARIANT_STORAGE`; a null variant is NULL, as in DuckDB.

    Args:
        array: The file's group: ``metadata``, ``value``, and ``typed_value`` when it is shredded.

    Raises:
        CorruptFileError: The group or a value is not a variant.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if not pa.types.is_struct(array.type) or array.type.get_field_index("metadata") < 0:
        raise CorruptFileError(f"a file holds {array.type} where a variant is expected")
    parts = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    metadata = parts["metadata"].cast(pa.binary())
    if pc.any(pc.and_(metadata.is_null(), array.is_valid())).as_py():
        raise CorruptFileError("a file holds a variant without metadata")
    values = _binary(parts.get("value"), len(array))
    if "typed_value" in parts and parts["typed_value"].null_count < len(array):
        names = [name or encoding.EMPTY_METADATA for name in metadata.to_pylist()]
        values = pa.array(_group(values, parts["typed_value"], names), pa.binary())
    missing = pc.fill_null(pc.equal(values, encoding.NULL), True)
    return pa.StructArray.from_arrays(
        [_plain_metadata(metadata), pc.fill_null(values, encoding.NULL)],
        fields=[VARIANT_STORAGE.field(0), VARIANT_STORAGE.field(1)],
        mask=missing if pc.any(missing).as_py() else None,
    )


def _binary(array: pa.Array[Any] | None, length: int) -> pa.Array[Any]:
    return pa.nulls(length, pa.binary()) if array is None else array.cast(pa.binary())


def _plain_metadata(metadata: pa.Array[Any]) -> pa.Array[Any]:
    encoded = metadata.dictionary_encode()
    plain = pa.array([encoding.plain_metadata(each) for each in encoded.dictionary.to_pylist()], pa.binary())
    return pc.fill_null(pc.take(plain, encoded.indices), encoding.EMPTY_METADATA)


def _group(values: pa.Array[Any], typed: pa.Array[Any], names: Sequence[bytes]) -> Values:
    """The encoded values of one shredded group, None where it holds neither ``value`` nor ``typed_value``."""
    rests: Values = values.to_pylist()
    if pa.types.is_struct(typed.type):
        return _objects(rests, typed, names)
    shredded = _arrays(typed, names) if is_list(typed.type) else _primitives(typed)
    if any(one is not None and other is not None for one, other in zip(rests, shredded, strict=True)):
        raise CorruptFileError("a file holds a variant that is shredded and not shredded at once")
    return [rest if one is None else one for rest, one in zip(rests, shredded, strict=True)]


def _members(group: pa.Array[Any], names: Sequence[bytes]) -> Values:
    """A group below ``typed_value``: a field or an element."""
    parts = dict(zip((field.name for field in group.type), group.flatten(), strict=True))
    values = _binary(parts.get("value"), len(group))
    return _group(values, parts["typed_value"], names) if "typed_value" in parts else values.to_pylist()


def _objects(rests: Values, typed: pa.Array[Any], names: Sequence[bytes]) -> Values:
    fields = [(field.name, _members(child, names)) for field, child in zip(typed.type, typed.flatten(), strict=True)]
    there = typed.is_valid().to_pylist()
    return [_object(row, rest, fields, names[row]) if there[row] else rest for row, rest in enumerate(rests)]


def _object(row: int, rest: bytes | None, fields: list[tuple[str, Values]], metadata: bytes) -> bytes:
    found = {name: value for name, values in fields if (value := values[row]) is not None}
    if rest is not None:
        others = encoding.object_fields(rest, metadata)
        if others is None or any(name in others for name, _ in fields):
            raise CorruptFileError("a file holds a variant with a field that is shredded and not shredded at once")
        found |= others
    return encoding.object_(found, metadata)


def _arrays(typed: pa.Array[Any], names: Sequence[bytes]) -> Values:
    lengths = pc.fill_null(pc.list_value_length(typed), 0).to_pylist()
    elements = _members(typed.flatten(), [name for name, length in zip(names, lengths, strict=True) for _ in range(length)])
    found: Values = []
    start = 0
    for length, there in zip(lengths, typed.is_valid().to_pylist(), strict=True):
        # An element that is missing altogether stands for null.
        found.append(encoding.array([each or encoding.NULL for each in elements[start : start + length]]) if there else None)
        start += length
    return found


def _primitives(typed: pa.Array[Any]) -> Values:
    if isinstance(typed, pa.ExtensionArray):
        typed = typed.storage
    encode = _encoder(typed.type)
    if pa.types.is_string(typed.type) or pa.types.is_large_string(typed.type):
        # As bytes, because nothing says that another writer's strings are UTF-8.
        typed = typed.cast(pa.binary())
    elif pa.types.is_temporal(typed.type):
        typed = typed.view(pa.int32() if pa.types.is_date32(typed.type) else pa.int64())
    return [None if value is None else encode(value) for value in typed.to_pylist()]


_PACKED: dict[pa.DataType, tuple[bytes, str]] = {
    pa.int8(): (encoding.INT8, "<b"),
    pa.int16(): (encoding.INT16, "<h"),
    pa.int32(): (encoding.INT32, "<i"),
    pa.int64(): (encoding.INT64, "<q"),
    pa.float32(): (encoding.FLOAT32, "<f"),
    pa.float64(): (encoding.FLOAT64, "<d"),
    pa.date32(): (encoding.DATE, "<i"),
    pa.time64("us"): (encoding.TIME, "<q"),
    pa.timestamp("us"): (encoding.TIMESTAMP, "<q"),
    pa.timestamp("ns"): (encoding.TIMESTAMP_NS, "<q"),
    pa.timestamp("us", "UTC"): (encoding.TIMESTAMPTZ, "<q"),
    pa.timestamp("ns", "UTC"): (encoding.TIMESTAMPTZ_NS, "<q"),
}


def _encoder(arrow: pa.DataType) -> Callable[[Any], bytes]:
    if arrow in _PACKED:
        kind, form = _PACKED[arrow]
        return lambda value: kind + struct.pack(form, value)
    if pa.types.is_boolean(arrow):
        return lambda value: encoding.TRUE if value else encoding.FALSE
    if pa.types.is_string(arrow) or pa.types.is_large_string(arrow):
        return encoding.string
    if pa.types.is_fixed_size_binary(arrow) and arrow.byte_width == 16:
        return lambda value: encoding.UUID + (value.bytes if isinstance(value, uuid.UUID) else value)
    if pa.types.is_binary(arrow) or pa.types.is_large_binary(arrow):
        return lambda value: encoding.sized(encoding.BINARY, value)
    if isinstance(arrow, pa.Decimal128Type | pa.Decimal32Type | pa.Decimal64Type):
        kind, width = _decimal_form(arrow.precision)
        scale = arrow.scale
        return lambda value: kind + bytes([scale]) + unscaled(Decimal(value), scale).to_bytes(width, "little", signed=True)
    raise CorruptFileError(f"a file holds a variant that is shredded as {arrow}, which variants cannot hold")


def _decimal_form(precision: int) -> tuple[bytes, int]:
    if precision <= 9:
        return encoding.DECIMAL4, 4
    return (encoding.DECIMAL8, 8) if precision <= 18 else (encoding.DECIMAL16, 16)
