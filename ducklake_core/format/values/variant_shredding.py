"""Choose the parts of variants that become separate columns of a file, from the values (Parquet: Variant Shredding).

=====================  ==============================================================================================
most values are        ``typed_value``
=====================  ==============================================================================================
one primitive type     a column of that type; integers of several widths make the widest of them
objects                a group of all their fields, each shredded by itself
arrays                 a list of elements, shredded in the same way
nothing of these       none: all stays in ``value``
=====================  ==============================================================================================

What is of another type stays in ``value``, encoded as before. The choice is DuckDB's, but for integers, and for what DuckDB does
not shred at all because one part of it has no type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from ducklake_core.errors import CorruptFileError
from ducklake_core.format.types.data_types import (
    BLOB,
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NS,
    TIMESTAMPTZ,
    UUID,
    VARCHAR,
    DecimalType,
    PrimitiveType,
)
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import ArrowArray, ArrowField, to_arrow_type
from ducklake_core.format.values import variant_encoding as encoding
from ducklake_core.format.values.variant_encoding import (
    ARRAY_TYPE,
    BINARY_TYPE,
    NULL_TYPE,
    OBJECT_TYPE,
    STRING_TYPE,
    TRUE_TYPE,
    Numbers,
    Slots,
    VariantBuffer,
)

MAX_LEAVES = 200
"""Of objects with more fields than this only the most frequent become columns."""
_MAX_DEPTH = 16
_INTEGERS: Mapping[int, PrimitiveType] = {3: INT8, 4: INT16, 5: INT32, 6: INT64}
_DECIMALS = {8: 9, 9: 18, 10: 38}
_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A column of one type."""

    type: PrimitiveType | DecimalType
    kinds: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """A group of the fields of objects, by name."""

    fields: tuple[tuple[str, Shape], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Elements:
    """A list of the elements of arrays."""

    element: Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Unshredded:
    """Nothing: all values stay as they are encoded."""


Shape: TypeAlias = Leaf | Fields | Elements | Unshredded
"""Columns for the values at one path."""

Path: TypeAlias = tuple[str | None, ...]
"""Names of fields from the variant down; None is the element of an array."""

Report: TypeAlias = Callable[[Path, Leaf, ArrowArray, int, bool], None]
"""Takes the values of one path that have a column of their own: path, column, values, entries of the column in the file, and whether
some value of the path lies outside of the column."""


def choose_shape(buffer: VariantBuffer, slots: Slots) -> Shape:
    """Return the shape that suits some values.

    Raises:
        CorruptFileError: A value is not a variant.
    """
    return _Chooser(buffer).shape(slots, 0)


class _Chooser:
    def __init__(self, buffer: VariantBuffer) -> None:
        self._buffer = buffer
        # Columns that may still be made, counted over the whole tree.
        self._left = MAX_LEAVES

    def shape(self, slots: Slots, depth: int) -> Shape:
        counts = np.bincount(slots.kinds, minlength=ARRAY_TYPE + 1)
        # DuckDB shreds values that are all null as INTEGER, which is the encoding's type 5.
        if counts[NULL_TYPE] == len(slots):
            self._left -= 1
            return Leaf(type=INT32, kinds=(5,))
        leaf, most = self._leaf(slots, counts)
        objects, arrays = int(counts[OBJECT_TYPE]), int(counts[ARRAY_TYPE])
        if max(objects, arrays) > most:
            if depth >= _MAX_DEPTH:
                return Unshredded()
            return self._fields(slots, depth) if objects >= arrays else self._elements(slots, depth)
        self._left -= leaf is not None
        return leaf or Unshredded()

    def _leaf(self, slots: Slots, counts: Numbers) -> tuple[Leaf | None, int]:
        integers = tuple(kind for kind in _INTEGERS if counts[kind])
        found: list[tuple[int, Leaf | None]] = [(int(counts[TRUE_TYPE]), Leaf(type=BOOLEAN, kinds=(TRUE_TYPE,)))]
        if integers:
            found.append((int(counts[list(integers)].sum()), Leaf(type=_INTEGERS[integers[-1]], kinds=integers)))
        for kind, one in ((14, FLOAT32), (7, FLOAT64)):
            found.append((int(counts[kind]), Leaf(type=one, kinds=(kind,))))
        found.append((int(counts[list(_DECIMALS)].sum()), self._decimal(slots, counts)))
        for kind, one in _OTHERS.items():
            found.append((int(counts[kind]), Leaf(type=one, kinds=(kind,))))
        known = [(count, leaf) for count, leaf in found if leaf is not None and count]
        most = max((count for count, _ in known), default=0)
        return next((leaf for count, leaf in known if count == most), None), most

    def _decimal(self, slots: Slots, counts: Numbers) -> Leaf | None:
        kinds = tuple(kind for kind in _DECIMALS if counts[kind])
        if not kinds:
            return None
        scales = np.unique(self._buffer.fixed(slots.where(np.isin(slots.kinds, kinds)), 1))
        precision = _DECIMALS[kinds[-1]]
        if len(scales) > 1 or scales[0] > precision:
            return None
        return Leaf(type=DecimalType(precision=precision, scale=int(scales[0])), kinds=kinds)

    def _fields(self, slots: Slots, depth: int) -> Shape:
        found = self._buffer.fields(slots.where(slots.kinds == OBJECT_TYPE))
        taken: set[str] = set()
        fields: dict[str, Shape] = {}
        for name in sorted(found, key=lambda name: (-len(found[name]), name)):
            # Fields of groups are found without regard to case, and by strings that end at a NUL.
            if self._left <= 0 or folded(name) in taken or "\0" in name:
                continue
            taken.add(folded(name))
            fields[name] = self.shape(found[name], depth + 1)
        return Fields(fields=tuple(sorted(fields.items()))) if fields else Unshredded()

    def _elements(self, slots: Slots, depth: int) -> Shape:
        elements, _ = self._buffer.elements(slots.where(slots.kinds == ARRAY_TYPE))
        return Elements(element=self.shape(elements, depth + 1))


_OTHERS: Mapping[int, PrimitiveType] = {
    11: DATE, 17: TIME, 13: TIMESTAMP, 19: TIMESTAMP_NS, 12: TIMESTAMPTZ, BINARY_TYPE: BLOB, STRING_TYPE: VARCHAR, 20: UUID,
}  # fmt: skip
_SIMPLE: Mapping[int, PrimitiveType] = {TRUE_TYPE: BOOLEAN, 14: FLOAT32, 7: FLOAT64, **_OTHERS}


def column_types(buffer: VariantBuffer, slots: Slots) -> Iterator[tuple[PrimitiveType | DecimalType | None, Numbers]]:
    """Yield types that columns of some values would have, with the positions of the values of each; None for those that have none."""
    for kinds in (tuple(_INTEGERS), *((kind,) for kind in range(TRUE_TYPE, ARRAY_TYPE + 1) if kind not in _INTEGERS)):
        chosen = np.flatnonzero(np.isin(slots.kinds, kinds))
        if not len(chosen):
            continue
        if kinds[0] in _DECIMALS:
            scales = buffer.fixed(slots.where(chosen), 1)[:, 0]
            for scale in np.unique(scales).tolist():
                yield DecimalType(precision=max(_DECIMALS[kinds[0]], scale), scale=scale), chosen[scales == scale]
        else:
            yield INT64 if kinds[0] in _INTEGERS else _SIMPLE.get(kinds[0]), chosen


def shredded_field(shape: Shape, field: ArrowField) -> ArrowField:
    """Return the Arrow field of a column of variants in a file, when they have a shape."""
    parts = [pa.field("metadata", pa.binary(), nullable=False), *_parts(shape)]
    return field.with_type(pa.struct(parts))


def _parts(shape: Shape) -> list[ArrowField]:
    typed = _typed_type(shape)
    value = pa.field("value", pa.binary())
    return [value] if typed is None else [value, pa.field("typed_value", typed)]


def _typed_type(shape: Shape) -> pa.DataType | None:
    match shape:
        case Leaf(type=found):
            return to_arrow_type(found, physical=True)
        case Fields(fields=fields):
            return pa.struct([pa.field(name, pa.struct(_parts(child)), nullable=False) for name, child in fields])
        case Elements(element=element):
            return pa.list_(pa.field("element", pa.struct(_parts(element)), nullable=False))
        case Unshredded():
            return None


class Shredder:
    """Makes columns of the values of one array.

    Args:
        buffer: The values.
        report: Takes each column's values.
    """

    def __init__(self, buffer: VariantBuffer, report: Report) -> None:
        self._buffer = buffer
        self._report = report

    def parts(self, slots: Slots, shape: Shape, length: int) -> list[ArrowArray]:
        """Return ``value`` and, where the shape has one, ``typed_value``, of so many rows.

        Raises:
            CorruptFileError: A value is not a variant.
        """
        return self._group((), slots, shape, length, 0)

    def _group(self, path: Path, slots: Slots, shape: Shape, length: int, phantoms: int) -> list[ArrowArray]:
        """Return the parts of ``length`` slots; the column also has ``phantoms`` entries for lists without an element."""
        match shape:
            case Leaf():
                return self._leaf(path, slots, shape, length, phantoms)
            case Fields():
                return self._fields(path, slots, shape, length, phantoms)
            case Elements():
                return self._elements(path, slots, shape, length, phantoms)
            case Unshredded():
                return [self._rest(slots, length)]

    def _leaf(self, path: Path, slots: Slots, shape: Leaf, length: int, phantoms: int) -> list[ArrowArray]:
        fits = np.isin(slots.kinds, shape.kinds)
        if isinstance(shape.type, DecimalType):
            fits[fits] = self._buffer.fixed(slots.where(fits), 1)[:, 0] == shape.type.scale
        inside, outside = slots.where(fits), slots.where(~fits)
        values = typed_values(self._buffer, inside, shape.type)
        self._report(path, shape, values, length + phantoms, bool(np.any(outside.kinds != NULL_TYPE)))
        return [self._rest(outside, length), _placed(values, inside.places, length)]

    def _fields(self, path: Path, slots: Slots, shape: Fields, length: int, phantoms: int) -> list[ArrowArray]:
        is_object = slots.kinds == OBJECT_TYPE
        objects = slots.where(is_object)
        found = self._buffer.fields(objects)
        children = []
        for name, child in shape.fields:
            fields = found.get(name)
            own = slots.where(np.empty(0, np.int64)) if fields is None else fields.moved(objects.places[fields.places])
            parts = self._group((*path, name), own, child, length, phantoms)
            children.append(pa.StructArray.from_arrays(parts, fields=_parts(child)))
        there = np.zeros(length, bool)
        there[objects.places] = True
        wanted = _typed_type(shape)
        assert wanted is not None
        typed = pa.StructArray.from_arrays(
            children, fields=[wanted.field(place) for place in range(wanted.num_fields)], mask=pa.array(~there)
        )
        names = {name for name, _ in shape.fields}
        others = {name: fields for name, fields in found.items() if name not in names}
        # A partially shredded object keeps in ``value`` exactly the fields that have no column (Parquet: Variant Shredding).
        return [self._rest(slots.where(~is_object), length, self._remainders(objects, others)), typed]

    def _remainders(self, objects: Slots, others: Mapping[str, Slots]) -> Mapping[int, bytes]:
        """Return the objects of the fields that have no columns, encoded, by the place of the object."""
        fields: dict[int, dict[str, bytes]] = {}
        for name, slots in others.items():
            for place, value in zip(slots.places.tolist(), self._buffer.encoded(slots).to_pylist(), strict=True):
                fields.setdefault(place, {})[name] = value
        return {int(objects.places[place]): self._buffer.object_at(objects, place, values) for place, values in fields.items()}

    def _elements(self, path: Path, slots: Slots, shape: Elements, length: int, phantoms: int) -> list[ArrowArray]:
        is_array = slots.kinds == ARRAY_TYPE
        arrays = slots.where(is_array)
        elements, counts = self._buffer.elements(arrays)
        lengths = np.zeros(length, np.int64)
        lengths[arrays.places] = counts
        own = elements.moved(np.arange(len(elements)))
        # Parquet has one entry for a list without elements in every column below it, which statistics count.
        empty = phantoms + int(np.count_nonzero(lengths == 0))
        parts = self._group((*path, None), own, shape.element, len(elements), empty)
        there = np.zeros(length, bool)
        there[arrays.places] = True
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        values = pa.StructArray.from_arrays(parts, fields=_parts(shape.element))
        typed = pa.ListArray.from_arrays(offsets, values, type=_typed_type(shape), mask=pa.array(~there))
        return [self._rest(slots.where(~is_array), length), typed]

    def _rest(self, slots: Slots, length: int, remainders: Mapping[int, bytes] | None = None) -> ArrowArray:
        found = _placed(self._buffer.encoded(slots), slots.places, length)
        if not remainders:
            return found
        places = np.array(sorted(remainders), np.int64)
        values = pa.array([remainders[int(place)] for place in places], pa.binary())
        indices = np.arange(length)
        indices[places] = length + np.arange(len(places))
        return pa.concat_arrays([found, values]).take(pa.array(indices))


def _placed(values: ArrowArray, places: Numbers, length: int) -> ArrowArray:
    """Return an array of a length that has the values at some places, and NULL elsewhere."""
    if len(places) == length:
        return values
    indices = np.full(length, -1, np.int64)
    indices[places] = np.arange(len(places))
    return values.take(pa.array(indices, mask=indices < 0))


_NUMPY: Mapping[PrimitiveType, str] = {
    INT8: "<i1", INT16: "<i2", INT32: "<i4", INT64: "<i8", FLOAT32: "<f4", FLOAT64: "<f8", DATE: "<i4",
    TIME: "<i8", TIMESTAMP: "<i8", TIMESTAMP_NS: "<i8", TIMESTAMPTZ: "<i8",
}  # fmt: skip


def typed_values(buffer: VariantBuffer, slots: Slots, wanted: PrimitiveType | DecimalType) -> ArrowArray:
    """Return the values of types that a column can have, as an Arrow array without NULLs.

    Args:
        buffer: The variants.
        slots: The values, all of types that the column can have.
        wanted: Type of the column.

    Raises:
        CorruptFileError: A text that is not UTF-8, a decimal of too many digits, a time outside of a day.
    """
    arrow = to_arrow_type(wanted, physical=True)
    if isinstance(wanted, DecimalType):
        return _decimals(buffer, slots, wanted)
    if wanted == BOOLEAN:
        return pa.array(buffer.fixed(slots, 1, 0)[:, 0] == encoding.TRUE[0])
    if wanted == UUID:
        storage = pa.Array.from_buffers(pa.binary(16), len(slots), [None, pa.py_buffer(buffer.fixed(slots, 16).tobytes())])
        return pa.ExtensionArray.from_storage(arrow, storage)
    if wanted in (VARCHAR, BLOB):
        strings = buffer.strings(slots, arrow)
        try:
            strings.validate(full=True)
        except pa.ArrowInvalid as error:
            raise CorruptFileError("a variant holds a string that is not UTF-8") from error
        return strings
    numbers = np.empty(len(slots), _NUMPY[wanted])
    for kind in np.unique(slots.kinds):
        chosen = slots.kinds == kind
        held = _NUMPY[_INTEGERS[int(kind)]] if int(kind) in _INTEGERS else _NUMPY[wanted]
        numbers[chosen] = buffer.fixed(slots.where(chosen), np.dtype(held).itemsize).view(held)[:, 0]
    if wanted == TIME and np.any((numbers < 0) | (numbers > _DAY)):
        raise CorruptFileError("a variant holds a time outside of a day")
    return pa.Array.from_buffers(arrow, len(slots), [None, pa.py_buffer(numbers.tobytes())])


def _decimals(buffer: VariantBuffer, slots: Slots, wanted: DecimalType) -> ArrowArray:
    digits = np.zeros((len(slots), 2), "<i8")
    for kind, width in ((8, 4), (9, 8), (10, 16)):
        chosen = slots.kinds == kind
        held = buffer.fixed(slots.where(chosen), width, 2)
        if width == 16:
            digits[chosen] = held.view("<i8")
        else:
            low = held.view(f"<i{width}")[:, 0].astype("<i8")
            digits[chosen] = np.stack([low, low >> 63], axis=1)
    found: ArrowArray = pa.Array.from_buffers(
        pa.decimal128(wanted.precision, wanted.scale), len(slots), [None, pa.py_buffer(digits.tobytes())]
    )
    try:
        found.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CorruptFileError("a variant holds a decimal of too many digits") from error
    return found
