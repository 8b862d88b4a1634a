"""Check geometries in well-known binary (WKB), and read their coordinates: an invalid one would make a file unreadable."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.errors import SchemaError
from ducklake_core.format.types.schema import ArrowArray

_Box: TypeAlias = tuple[float, float, float, float]
_POINT, _LINE, _POLYGON = 1, 2, 3
_COLLECTIONS = (4, 5, 6, 7)
# Thousands of a type's code are its dimensions (ISO): 1000 adds z, 2000 adds m, 3000 adds both.
_WIDTHS = {0: 2, 1: 3, 2: 3, 3: 4}
_DEEPEST = 64
_KINDS = ("point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection")
_DIMENSIONS = {0: "xy", 1: "xyz", 2: "xym", 3: "xyzm"}
# Little-endian points: the start of the binary, and how many bytes it has.
_POINTS = {b"\x01" + (_POINT + 1000 * kind).to_bytes(4, "little"): 5 + 8 * width for kind, width in _WIDTHS.items()}


def check_geometries(array: ArrowArray) -> None:
    """Reject binaries that are not geometries: two-dimensional ones, with Z, M or both, without a reference system.

    Raises:
        SchemaError: A value is not a geometry.
    """
    starts, lengths = pc.binary_slice(array, 0, 5), pc.binary_length(array)
    plain: ArrowArray = array.is_null()
    for start, length in _POINTS.items():
        # Nearly all geometries are points, which are checked all at once.
        plain = pc.or_(plain, pc.and_(pc.fill_null(pc.equal(starts, start), False), pc.fill_null(pc.equal(lengths, length), False)))
    for value in array.filter(pc.invert(plain)).to_pylist():
        if not is_geometry(value):
            raise SchemaError(f"{value[:24].hex()} is not the beginning of a geometry in well-known binary (WKB)")


def is_geometry(value: bytes) -> bool:
    """Return whether a binary is exactly one geometry.

    >>> point = bytes.fromhex("0101000000") + bytes(16)
    >>> is_geometry(point), is_geometry(point + b"x"), is_geometry(bytes.fromhex("010400000001000000") + point), is_geometry(b"")
    (True, False, True, False)
    """
    try:
        return _end(memoryview(value), 0, 0) == len(value)
    except (struct.error, ValueError):
        return False


def overlaps(array: ArrowArray, box: _Box | None) -> pa.BooleanArray:
    """Return whether the box about each geometry shares a place with another box; NULL for NULL.

    Args:
        array: Binaries that :func:`check_geometries` accepts, or NULL.
        box: Least x and y, greatest x and y; None shares no place with any.
    """
    found = [value is not None and box is not None and _meets(_box(value), box) for value in array.to_pylist()]
    return pa.array(found, mask=array.is_null().to_numpy(zero_copy_only=False))


def _meets(one: _Box | None, other: _Box) -> bool:
    return one is not None and one[0] <= other[2] and other[0] <= one[2] and one[1] <= other[3] and other[1] <= one[3]


def _box(value: bytes) -> _Box | None:
    parts: list[tuple[int, np.ndarray]] = []
    _end(memoryview(value), 0, 0, parts)
    vertices = np.concatenate([vertices.reshape(-1, _WIDTHS[kind])[:, :2] for kind, vertices in parts] or [np.empty((0, 2))])
    known = vertices[~np.isnan(vertices).any(axis=1)]
    if not len(known):
        return None
    (low_x, low_y), (high_x, high_y) = known.min(axis=0), known.max(axis=0)
    return low_x, low_y, high_x, high_y


def geometry_parts(array: ArrowArray) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield the coordinates of geometries, many at once.

    Args:
        array: Binaries that :func:`check_geometries` accepts, or NULL.

    Yields:
        Name of a type of geometry as DuckDB spells it, such as ``point_zm``; the dimensions of the coordinates, such as ``xyzm``; and
        one row of coordinates for each vertex of geometries of that type, none for an empty one.
    """
    starts, lengths = pc.binary_slice(array, 0, 5), pc.binary_length(array)
    others: ArrowArray = array.is_valid()
    for start, length in _POINTS.items():
        alike: ArrowArray = pc.and_(pc.fill_null(pc.equal(starts, start), False), pc.fill_null(pc.equal(lengths, length), False))
        points = array.filter(alike)
        if len(points):
            code = int.from_bytes(start[1:], "little")
            offsets = np.frombuffer(points.buffers()[1], np.int32)[points.offset :]
            raw = np.frombuffer(points.buffers()[2], np.uint8)[offsets[0] : offsets[len(points)]]
            vertices = np.ascontiguousarray(raw.reshape(len(points), length)[:, 5:]).view("<f8")
            yield _type_name(code), _DIMENSIONS[code // 1000], vertices
            others = pc.and_(others, pc.invert(alike))
    for value in array.filter(others).to_pylist():
        found: list[tuple[int, np.ndarray]] = []
        order = "<" if value[0] else ">"
        (code,) = struct.unpack_from(f"{order}I", value, 1)
        _end(memoryview(value), 0, 0, found)
        yield _type_name(code), _DIMENSIONS[code // 1000], np.empty((0, _WIDTHS[code // 1000]))
        for dimensions, vertices in found:
            yield _type_name(code), _DIMENSIONS[dimensions], vertices.reshape(-1, _WIDTHS[dimensions])


def _type_name(code: int) -> str:
    suffix = _DIMENSIONS[code // 1000][2:]
    return f"{_KINDS[code % 1000 - 1]}{'_' if suffix else ''}{suffix}"


def _end(data: memoryview, start: int, depth: int, found: list[tuple[int, np.ndarray]] | None = None) -> int:
    """Return the end of the geometry that begins at ``start``, and add its coordinates to ``found``, with the code of their dimensions."""
    # A geometry is a byte order, a code, and then a point, a counted list of points, or counted geometries, each with an order and a code
    # of its own.
    order = {0: ">", 1: "<"}.get(data[start] if start < len(data) else -1)
    if order is None or depth > _DEEPEST:
        raise ValueError("no byte order, or too deep")
    (code,) = struct.unpack_from(f"{order}I", data, start + 1)
    kind, width = code % 1000, _WIDTHS.get(code // 1000)
    if width is None:
        raise ValueError("no such dimensions")
    position = start + 5

    def take(end: int) -> int:
        if found is not None:
            found.append((code // 1000, np.frombuffer(data[position:end], f"{order}f8")))
        return _within(data, end)

    if kind == _POINT:
        return take(position + 8 * width)
    (count,) = struct.unpack_from(f"{order}I", data, position)
    position += 4
    if kind == _LINE:
        return take(position + 8 * width * count)
    if kind != _POLYGON and kind not in _COLLECTIONS:
        raise ValueError("no such geometry")
    for _ in range(count):
        if kind == _POLYGON:
            (points,) = struct.unpack_from(f"{order}I", data, position)
            position += 4
            position = take(position + 8 * width * points)
        else:
            position = _end(data, position, depth + 1, found)
    return position


def _within(data: memoryview, end: int) -> int:
    if end > len(data):
        raise ValueError("it was cut")
    return end
