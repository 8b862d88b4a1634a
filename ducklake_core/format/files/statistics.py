"""Statistics of files and tables: bounds, variant fields and geometries (specification: Statistics)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, TypeAlias

import numpy as np

from ducklake_core.errors import CorruptFileError, DuckLakeError, SchemaError
from ducklake_core.format.files.data_files import ColumnStatistics, WrittenFile
from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.types.data_types import BLOB, FLOATS, JSON, VARCHAR, DataType, Field, StructType
from ducklake_core.format.types.schema import ArrowArray, Schema, parse_leaf_type
from ducklake_core.format.values.value_text import from_text, order_key
from ducklake_core.format.values.wkb import geometry_parts

Path: TypeAlias = tuple[str | None, ...]
_ROOT = "root"
_ELEMENT = "element"

BOUND_BYTES = 256
"""Longest string or blob that is kept whole as a bound."""
COMPARED_AS_TEXT = frozenset({"varchar", "json", "blob", "uuid", "interval"})
"""Types whose table-wide bounds DuckDB compares as strings."""
_SURROGATES = range(0xD800, 0xE000)
_PART_OF_BYTE = re.compile(r"\\x?[0-9A-Fa-f]?$")
# "[" and "~" are followed by a backslash and DEL, which the text of a blob does not have.
_LAST_SMALL_CHARACTER = re.compile(r"((?:\\x..|[^\\])*)([ -Z\]-}])")

_AXES = "xyzm"
_STEP = Decimal("0.000001")
_EXACT = Context(prec=400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bounds of one column in one file; fields as in :class:`~ducklake_core.format.files.data_files.ColumnStatistics`."""

    min_value: str | None
    max_value: str | None
    exact_min: str | None = None
    exact_max: str | None = None


def truncate_bounds(minimum: str | None, maximum: str | None, data_type: DataType) -> Bounds:
    """Return the bounds to store for a file, from the full strings of its minimum and maximum.

    Long strings and blobs become a prefix for the minimum and a greater string for the maximum; where no greater one
    can be made there are no bounds at all.  A bound with a NUL character is left out.  Where something is left out or
    cut, ``exact_min`` and ``exact_max`` hold bounds in full length (without NUL, which PostgreSQL cannot store).

    >>> truncate_bounds("a", "b", VARCHAR)
    Bounds(min_value='a', max_value='b', exact_min=None, exact_max=None)
    >>> cut = truncate_bounds("é" * 200, "a" * 255 + "é", VARCHAR)
    >>> len(cut.min_value), cut.max_value == "a" * 254 + "b", len(cut.exact_min), len(cut.exact_max)
    (128, True, 200, 256)

    Args:
        minimum: The least value as statistics text, in full length; None for unknown.
        maximum: The greatest value in the same form.
        data_type: Type of the column.
    """
    if minimum is None or maximum is None or data_type not in (VARCHAR, JSON, BLOB):
        return Bounds(min_value=minimum, max_value=maximum)
    low: str | None
    if data_type == BLOB:
        low, high = _cut_blob(minimum), _greater_blob(maximum)
    else:
        low, high = _cut_text(minimum), _greater_text(maximum)
    # DuckDB stores both bounds or none.
    if high is None:
        low = None
    low, high = (bound if bound is None or "\0" not in bound else None for bound in (low, high))
    if (low, high) == (minimum, maximum):
        return Bounds(min_value=low, max_value=high)
    # U+0001 is the character after NUL, so a string that ends with it is an upper bound of all strings with NUL there.
    exact_max = maximum if "\0" not in maximum else maximum.partition("\0")[0] + "\x01"
    return Bounds(min_value=low, max_value=high, exact_min=minimum.partition("\0")[0], exact_max=exact_max)


def shortened_minimum(text: str, data_type: DataType) -> str:
    """Return a lower bound of at most 256 bytes (512 characters for blobs) for the minimum of a table.

    >>> shortened_minimum("a" * 300, VARCHAR) == "a" * 256, shortened_minimum("a", VARCHAR)
    (True, 'a')
    """
    if data_type == BLOB:
        return _cut_blob_text(text)
    return _cut_text(text) if data_type in (VARCHAR, JSON) else text


def shortened_maximum(text: str, data_type: DataType) -> str | None:
    """Return an upper bound of about 256 bytes (512 characters for blobs) for the maximum of a table, or None where there is none.

    It is the bound that a file has, or else one with a greater character that is not ASCII: most strings without ASCII have one.

    >>> shortened_maximum("a" * 300, VARCHAR) == "a" * 255 + "b", shortened_maximum("é" * 200, VARCHAR) == "é" * 127 + "ê"
    (True, True)
    """
    if data_type == BLOB:
        return _greater_blob_text(text)
    if data_type not in (VARCHAR, JSON):
        return text
    greater = _greater_text(text)
    kept = _cut_text(text).rstrip("\U0010ffff")
    if greater is not None or not kept:
        return greater
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(following if following != _SURROGATES.start else _SURROGATES.stop)


def _cut_blob_text(text: str) -> str:
    r"""Return the start of a blob's text, hexadecimal or with bytes as ``\xFF``, without a part of such a byte at the end."""
    return text if len(text) <= 2 * BOUND_BYTES else _PART_OF_BYTE.sub("", text[: 2 * BOUND_BYTES])


def _greater_blob_text(text: str) -> str | None:
    r"""Return a greater string of a blob, in the order of strings by which DuckDB merges the bounds of blobs.

    >>> _greater_blob_text("FF" * 300) == "F" * 511 + "G", _greater_blob_text("a[" + r"\xFF" * 300), _greater_blob_text(r"\xFF" * 300)
    (True, 'b', None)
    """
    cut = _cut_blob_text(text)
    if cut == text:
        return text
    found = _LAST_SMALL_CHARACTER.match(cut)
    return None if found is None else found[1] + chr(ord(found[2]) + 1)


def _cut_text(text: str) -> str:
    # Cutting within a character leaves an incomplete end, which "ignore" drops.
    return text.encode()[:BOUND_BYTES].decode(errors="ignore")


def _greater_text(text: str) -> str | None:
    cut = _cut_text(text)
    if len(cut) == len(text):
        return text
    # Only ASCII is incremented, and never to DEL or beyond, so that the text stays valid UTF-8.
    place = next((i for i in range(len(cut) - 1, -1, -1) if ord(cut[i]) < 0x7F), None)
    return None if place is None else cut[:place] + chr(ord(cut[place]) + 1)


def _cut_blob(text: str) -> str:
    return text[: 2 * BOUND_BYTES]


def _greater_blob(text: str) -> str | None:
    cut = bytes.fromhex(_cut_blob(text))
    if 2 * len(cut) == len(text):
        return text
    kept = cut.rstrip(b"\xff")
    return (kept[:-1] + bytes([kept[-1] + 1])).hex().upper() if kept else None


def verify_written_file(file: WrittenFile, schema: Schema, partition_spec: PartitionSpec | None = None) -> None:
    """Check what a writer reports before it becomes catalog rows, because wrong statistics lose rows without a trace.

    Args:
        file: The report.
        schema: The columns that the file was written with.
        partition_spec: The keys it was written with, None for none.

    Raises:
        CorruptFileError: A leaf without statistics, or with statistics that contradict the row count, the type or each
            other; a size that cannot be; partition values that are not one per key.
    """
    keys = len(partition_spec.fields) if partition_spec is not None else 0
    if len(file.partition_values) != keys:
        raise _fault(file, f"it has {len(file.partition_values)} partition values for {keys} keys")
    if file.record_count < 0 or not 0 < file.footer_size < file.file_size_bytes:
        raise _fault(file, f"{file.record_count} rows, {file.file_size_bytes} bytes, footer of {file.footer_size} bytes")
    by_id = {statistics.column_id: statistics for statistics in file.statistics}
    leaves = dict(_leaves(schema))
    if set(by_id) != {leaf.id for leaf in leaves} or len(by_id) != len(file.statistics):
        raise _fault(file, f"statistics are for columns {sorted(s.column_id for s in file.statistics)}, not for the leaves of the table")
    for leaf, one_per_row in leaves.items():
        _verify_column(file, leaf, by_id[leaf.id], one_per_row=one_per_row)


def _leaves(schema: Schema) -> Iterator[tuple[Field, bool]]:
    for column in schema:
        yield from _leaves_below(column, one_per_row=True)


def _leaves_below(field: Field, *, one_per_row: bool) -> Iterator[tuple[Field, bool]]:
    if field.is_leaf:
        yield field, one_per_row
    for child in field.children:
        yield from _leaves_below(child, one_per_row=one_per_row and isinstance(field.type, StructType))


def _verify_column(file: WrittenFile, leaf: Field, found: ColumnStatistics, *, one_per_row: bool) -> None:
    name, values, nulls = leaf.name, found.value_count, found.null_count
    if values is not None and nulls is not None and one_per_row and values + nulls != file.record_count:
        raise _fault(file, f"column {name!r} has {values} values and {nulls} NULLs in {file.record_count} rows")
    if min(values or 0, nulls or 0, found.column_size_bytes) < 0:
        raise _fault(file, f"column {name!r} has a negative count or size")
    if values == 0 and (found.min_value, found.max_value) != (None, None):
        raise _fault(file, f"column {name!r} has bounds but no values")
    if (found.contains_nan is not None) != (leaf.type in FLOATS):
        raise _fault(file, f"column {name!r} of type {leaf.type} has contains_nan {found.contains_nan}")
    if found.min_value is not None and found.max_value is not None:
        _verify_bounds(file, leaf, found.min_value, found.max_value)


def _verify_bounds(file: WrittenFile, leaf: Field, minimum: str, maximum: str) -> None:
    try:
        low, high = (order_key(from_text(text, leaf.type)) for text in (minimum, maximum))
    except SchemaError as error:
        raise _fault(file, f"bounds of column {leaf.name!r} are no values of type {leaf.type}: {error.message}") from error
    if low > high:
        raise _fault(file, f"column {leaf.name!r} has minimum {minimum!r} above maximum {maximum!r}")


def _fault(file: WrittenFile, reason: str) -> CorruptFileError:
    return CorruptFileError(f"the report on written file {file.path!r} cannot be right: {reason}", path=file.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldStatistics:
    """Statistics of one field.

    Attributes:
        path: Names of fields from the variant down; None is the element of an array.
        type: Of all its values.
        entries: Values, and entries of rows that have none.
        null_count: The latter.
        min_value: Least value as statistics text; None when there is none, or it is not known.
        max_value: Greatest value, like ``min_value``.
        contains_nan: For floats alone.
        column_size_bytes: Compressed bytes of the column of its own; 0 where it has none.
    """

    path: Path
    type: DataType
    entries: int | None
    null_count: int | None
    min_value: str | None = None
    max_value: str | None = None
    contains_nan: bool | None = None
    column_size_bytes: int = 0

    @property
    def value_count(self) -> int | None:
        """Return the number of values."""
        return None if self.entries is None or self.null_count is None else self.entries - self.null_count


def path_text(path: Path) -> str:
    """Return a path as the catalog spells it.

    >>> path_text(()), path_text(("a", "b.c")), path_text((None, 'q"x'))
    ('root', '"a"."b.c"', 'element."q""x"')
    """
    return ".".join(_ELEMENT if name is None else '"' + name.replace('"', '""') + '"' for name in path) or _ROOT


def parse_path(text: str) -> Path:
    """Return the path that the catalog spells.

    >>> parse_path("root"), parse_path('"a"."b.c"'), parse_path('element."q""x"')
    ((), ('a', 'b.c'), (None, 'q"x'))

    Raises:
        ValueError: It is none.
    """
    if text == _ROOT:
        return ()
    found: list[str | None] = []
    rest = text
    while True:
        if rest.startswith(_ELEMENT):
            found.append(None)
            rest = rest[len(_ELEMENT) :]
        elif rest.startswith('"'):
            name, rest = _quoted(rest)
            found.append(name)
        else:
            raise ValueError(f"{text!r} is no path of a variant")
        if not rest:
            return tuple(found)
        if not rest.startswith("."):
            raise ValueError(f"{text!r} is no path of a variant")
        rest = rest[1:]


def _quoted(text: str) -> tuple[str, str]:
    """Return a quoted name, and what follows."""
    place = 1
    while True:
        place = text.find('"', place)
        if place < 0:
            raise ValueError(f"{text!r} is no path of a variant")
        if not text.startswith('""', place):
            return text[1:place].replace('""', '"'), text[place + 1 :]
        place += 2


def to_json(fields: Sequence[FieldStatistics]) -> str | None:
    """Return the text for the catalog; None for no field, as DuckDB writes it."""
    return json.dumps([_entry(field) for field in fields], ensure_ascii=False, separators=(",", ":")) if fields else None


def _entry(field: FieldStatistics) -> dict[str, object]:
    found: dict[str, object | None] = {
        "field_name": path_text(field.path),
        "shredded_type": str(field.type),
        "null_count": field.null_count,
        "min": field.min_value,
        "max": field.max_value,
        "num_values": field.entries,
        "contains_nan": field.contains_nan,
        "column_size_bytes": field.column_size_bytes,
        # DuckDB writes true for fields without a value too.
        "any_valid": True,
    }
    return {name: value for name, value in found.items() if value is not None}


def read_field_statistics(text: object) -> tuple[FieldStatistics, ...]:
    """Return the entries in a cell of the catalog; those that cannot be read are left out, and so are unknown."""
    if not isinstance(text, str):
        return ()
    try:
        held: Any = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    entries = [_read(entry) for entry in held] if isinstance(held, list) else []
    return tuple(entry for entry in entries if entry is not None)


def field_statistics(text: object, path: Path) -> FieldStatistics | None:
    """Return the statistics of one field in a cell of the catalog, None where it has none."""
    return next((field for field in read_field_statistics(text) if field.path == path), None)


def _read(held: Any) -> FieldStatistics | None:
    try:
        path, found = parse_path(held["field_name"]), parse_leaf_type(held["shredded_type"])
        counts = [held.get("num_values"), held.get("null_count")]
        bounds = [held.get("min"), held.get("max")]
        nan, size = held.get("contains_nan"), held.get("column_size_bytes", 0)
    except (DuckLakeError, ValueError, TypeError, KeyError, AttributeError):
        return None
    if not all(count is None or (isinstance(count, int) and count >= 0) for count in (*counts, size)):
        return None
    if not all(bound is None or isinstance(bound, str) for bound in bounds) or not (nan is None or isinstance(nan, bool)):
        return None
    return FieldStatistics(
        path=path, type=found, entries=counts[0], null_count=counts[1], min_value=bounds[0], max_value=bounds[1], contains_nan=nan,
        column_size_bytes=size or 0,
    )  # fmt: skip


def merged_field_statistics(parts: Iterable[Sequence[FieldStatistics]]) -> tuple[FieldStatistics, ...]:
    """Return the statistics of all parts together: those of the fields that every part has, with one type."""
    merged: dict[Path, FieldStatistics] | None = None
    for part in parts:
        found = {field.path: field for field in part}
        if merged is None:
            merged = found
            continue
        pairs = [(before, found[path]) for path, before in merged.items() if path in found]
        merged = {before.path: _merged(before, new) for before, new in pairs if before.type == new.type}
    return tuple((merged or {}).values())


def _merged(one: FieldStatistics, other: FieldStatistics) -> FieldStatistics:
    """Return the statistics of both sides; a side without values adds no bounds."""
    # A side without values has no bounds, and would make the merged bounds unknown.
    sides = [side for side in (one, other) if side.value_count != 0]
    low = _extreme([side.min_value for side in sides], one.type, least=True)
    high = _extreme([side.max_value for side in sides], one.type, least=False)
    return replace(
        one,
        entries=None if one.entries is None or other.entries is None else one.entries + other.entries,
        null_count=None if one.null_count is None or other.null_count is None else one.null_count + other.null_count,
        min_value=low,
        max_value=high,
        contains_nan=None if None in (one.contains_nan, other.contains_nan) else bool(one.contains_nan or other.contains_nan),
        column_size_bytes=one.column_size_bytes + other.column_size_bytes,
    )


def _extreme(strings: Sequence[str | None], data_type: DataType, *, least: bool) -> str | None:
    known = [text for text in strings if text is not None]
    # One unknown bound makes the merged bound unknown: a wrong one would prune rows.
    if len(known) < len(strings) or not known:
        return None
    try:
        return (min if least else max)(known, key=lambda text: order_key(from_text(text, data_type)))
    except (DuckLakeError, ValueError, ArithmeticError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometryStatistics:
    """Statistics of some geometries; without any field set, there is none but NULL.

    Attributes:
        bounds: Least and greatest coordinate by axis, for the axes ``x``, ``y``, ``z`` and ``m`` that any geometry has.
        types: Names of the types of geometry, such as ``point`` and ``polygon_z``.
    """

    bounds: tuple[tuple[str, float, float], ...] = ()
    types: frozenset[str] = frozenset()

    @property
    def is_finite(self) -> bool:
        """Return whether the catalog can store the bounds; DuckDB cannot store infinite ones."""
        return all(math.isfinite(bound) for _, low, high in self.bounds for bound in (low, high))

    def to_json(self) -> str:
        """Return the text for the catalog, in the form that DuckDB reads.

        Bounds have six decimals there. They are rounded outwards: rounded to the nearest they would leave geometries outside.

        >>> GeometryStatistics(bounds=(("x", -1.0000004, 2.0000004), ("y", 0.5, 0.5)), types=frozenset({"point"})).to_json()[:83]
        '{"bbox": {"xmin": -1.000001, "xmax": 2.000001, "ymin": 0.500000, "ymax": 0.500000, '
        """
        found = {axis: (low, high) for axis, low, high in self.bounds}
        strings = []
        for axis in _AXES:
            low, high = found.get(axis, (None, None))
            strings += [f'"{axis}min": {_text(low, ROUND_FLOOR)}', f'"{axis}max": {_text(high, ROUND_CEILING)}']
        types = ", ".join(json.dumps(name) for name in sorted(self.types))
        return f'{{"bbox": {{{", ".join(strings)}}}, "types": [{types}]}}'


def read_geometry_statistics(text: str | None) -> GeometryStatistics | None:
    """Return the statistics in a cell of the catalog; None for what is none, which counts as unknown.

    >>> read_geometry_statistics(GeometryStatistics(types=frozenset({"point"})).to_json())
    GeometryStatistics(bounds=(), types=frozenset({'point'}))
    """
    if text is None:
        return None
    try:
        held: Any = json.loads(text)
        box, types = held["bbox"], held["types"]
        pairs = [(axis, box[f"{axis}min"], box[f"{axis}max"]) for axis in _AXES]
        bounds = tuple((axis, float(low), float(high)) for axis, low, high in pairs if low is not None and high is not None)
        return GeometryStatistics(bounds=bounds, types=frozenset(map(str, types)))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def geometry_statistics(array: ArrowArray) -> GeometryStatistics:
    """Return the bounds and types of an array of WKB; coordinates that are NaN, as those of empty points, have no bounds."""
    found: dict[str, tuple[float, float]] = {}
    types: set[str] = set()
    for name, axes, vertices in geometry_parts(array):
        types.add(name)
        # NaN in x or y marks an empty point. NaN in z or m only leaves this axis without a value.
        known = vertices[~np.isnan(vertices[:, :2]).any(axis=1)]
        for place, axis in enumerate(axes):
            values = known[:, place]
            values = values[~np.isnan(values)]
            if len(values):
                low, high = found.get(axis, (math.inf, -math.inf))
                found[axis] = (min(low, float(values.min())), max(high, float(values.max())))
    return GeometryStatistics(bounds=_ordered(found), types=frozenset(types))


def merged_geometry_statistics(parts: Iterable[GeometryStatistics]) -> GeometryStatistics:
    """Return the bounds and types of all parts together."""
    found: dict[str, tuple[float, float]] = {}
    types: set[str] = set()
    for part in parts:
        types |= part.types
        for axis, low, high in part.bounds:
            before = found.get(axis, (math.inf, -math.inf))
            found[axis] = (min(before[0], low), max(before[1], high))
    return GeometryStatistics(bounds=_ordered(found), types=frozenset(types))


def _ordered(found: dict[str, tuple[float, float]]) -> tuple[tuple[str, float, float], ...]:
    return tuple((axis, *found[axis]) for axis in _AXES if axis in found)


def _text(bound: float | None, rounding: str) -> str:
    return "null" if bound is None else f"{Decimal(bound).quantize(_STEP, rounding=rounding, context=_EXACT):f}"
