"""Geometries as well-known binary (WKB): what is none is refused before it is in a file that nobody can read."""

from __future__ import annotations

import struct

import pyarrow.compute as pc

from ducklake_core.errors import SchemaError
from ducklake_core.format.arrow_types import ArrowArray

_POINT, _LINE, _POLYGON = 1, 2, 3
_COLLECTIONS = (4, 5, 6, 7)
_WIDTHS = {0: 2, 1: 3, 2: 3, 3: 4}
_DEEPEST = 64
# Little-endian points: the start of the binary, and how many bytes it has.
_POINTS = {b"\x01" + (_POINT + 1000 * kind).to_bytes(4, "little"): 5 + 8 * width for kind, width in _WIDTHS.items()}


def check_geometries(array: ArrowArray) -> None:
    """Refuse binaries that are no geometries: two-dimensional ones, with Z, M or both, without a reference system.

    Raises:
        SchemaError: One of them is none.
    """
    starts, lengths = pc.binary_slice(array, 0, 5), pc.binary_length(array)
    plain: ArrowArray = array.is_null()
    for start, length in _POINTS.items():
        # Nearly all geometries are points, which need no look at each.
        plain = pc.or_(plain, pc.and_(pc.fill_null(pc.equal(starts, start), False), pc.fill_null(pc.equal(lengths, length), False)))
    for value in array.filter(pc.invert(plain)).to_pylist():
        if not is_geometry(value):
            raise SchemaError(f"{value[:24].hex()} begins no geometry in well-known binary (WKB)")


def is_geometry(value: bytes) -> bool:
    """Whether a binary is exactly one geometry.

    >>> point = bytes.fromhex("0101000000") + bytes(16)
    >>> is_geometry(point), is_geometry(point + b"x"), is_geometry(bytes.fromhex("010400000001000000") + point), is_geometry(b"")
    (True, False, True, False)
    """
    try:
        return _end(memoryview(value), 0, 0) == len(value)
    except (struct.error, ValueError):
        return False


def _end(data: memoryview, start: int, depth: int) -> int:
    """Where the geometry that begins at a place ends."""
    order = {0: ">", 1: "<"}.get(data[start] if start < len(data) else -1)
    if order is None or depth > _DEEPEST:
        raise ValueError("no byte order, or too deep")
    (code,) = struct.unpack_from(f"{order}I", data, start + 1)
    kind, width = code % 1000, _WIDTHS.get(code // 1000)
    if width is None:
        raise ValueError("no such dimensions")
    position = start + 5
    if kind == _POINT:
        return _within(data, position + 8 * width)
    (count,) = struct.unpack_from(f"{order}I", data, position)
    position += 4
    if kind == _LINE:
        return _within(data, position + 8 * width * count)
    if kind != _POLYGON and kind not in _COLLECTIONS:
        raise ValueError("no such geometry")
    for _ in range(count):
        if kind == _POLYGON:
            (points,) = struct.unpack_from(f"{order}I", data, position)
            position = _within(data, position + 4 + 8 * width * points)
        else:
            position = _end(data, position, depth + 1)
    return position


def _within(data: memoryview, end: int) -> int:
    if end > len(data):
        raise ValueError("it was cut")
    return end
