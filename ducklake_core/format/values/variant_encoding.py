"""Encode and decode the binary form of variants (Parquet: Variant Binary Encoding)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from ducklake_core.errors import CorruptFileError
from ducklake_core.format.types.schema import ArrowArray

NULL = b"\x00"
"""The value of a variant that is null; DuckDB does not distinguish it from SQL NULL."""
EMPTY_METADATA = b"\x11\x00\x00"
_SORTED = 0x10
_MAX_DEPTH = 64
_MAX_SHORT = 255
_MAX_DIGITS = 38
_MICROSECONDS_OF_A_DAY = 86_400_000_000
_DECIMALS = (8, 9, 10)
_SIZE_BY_TYPE = {0: 0, 1: 0, 2: 0, 3: 1, 4: 2, 5: 4, 6: 8, 7: 8, 8: 5, 9: 9, 10: 17, 11: 4, 12: 8, 13: 8, 14: 4, 17: 8, 19: 8, 20: 16}
"""Bytes after the first, by the number of a type, of types that have always as many and that DuckDB keeps as they are."""

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
_SIZES = np.array([0, 0, 0, 1, 2, 4, 8, 8, 5, 9, 17, 4, 8, 8, 4, 0, 0, 8, 8, 8, 16], np.int64)
_PADDING = 32


# Layout of a value. The lower two bits of the first byte are its basic type, the upper six depend on it:
#
#   0  primitive       number of the type    content, of a size that the type determines
#   1  short string    length, up to 63      UTF-8
#   2  object          widths                count, ids of the names, offsets, values
#   3  array           widths                count, offsets, values
#
# The widths are the bytes of an offset and of an id (1 to 4), and whether the count has four bytes. Offsets count from the first
# value; there is one more than there are values, the end of the last one. Ids are sorted by the names that they stand for, values
# may be in any order.

# Primitive values: the type's number in the upper six bits of the first byte.
TRUE, FALSE = b"\x04", b"\x08"
INT8, INT16, INT32, INT64, FLOAT64, DECIMAL4, DECIMAL8, DECIMAL16 = (bytes([number << 2]) for number in range(3, 11))
DATE, TIMESTAMPTZ, TIMESTAMP, FLOAT32, BINARY, STRING, TIME, TIMESTAMPTZ_NS, TIMESTAMP_NS, UUID = (
    bytes([number << 2]) for number in range(11, 21)
)

_SHORT_STRING, _OBJECT, _ARRAY = 1, 2, 3


def field_names(metadata: bytes) -> tuple[str, ...]:
    """Return the names in a metadata dictionary, in the order of their numbers.

    >>> field_names(bytes.fromhex("1102000102") + b"az")
    ('a', 'z')

    Raises:
        CorruptFileError: The bytes are not the metadata of a variant.
    """
    if not metadata or metadata[0] & 0x0F != 1:
        raise CorruptFileError(f"{metadata[:20]!r} is not the metadata of a variant")
    width = (metadata[0] >> 6) + 1
    count = int.from_bytes(metadata[1 : 1 + width], "little")
    start = 1 + width * (count + 2)
    ends = _numbers(metadata, 1 + width, count + 1, width)
    try:
        names = tuple(metadata[start + first : start + last].decode() for first, last in pairwise(ends))
    except UnicodeDecodeError as error:
        raise CorruptFileError("a variant has a field name that is not UTF-8") from error
    if len(metadata) < start + (ends[-1] if ends else 0):
        raise CorruptFileError("the metadata of a variant is cut off")
    return names


def plain_metadata(metadata: bytes) -> bytes:
    """Return the same dictionary, marked as sorted only when its names are: DuckDB marks all of them.

    >>> plain_metadata(bytes.fromhex("1102000102") + b"za").hex(), plain_metadata(b"\\x11\\x00\\x00").hex()
    ('01020001027a61', '110000')
    """
    names = [name.encode() for name in field_names(metadata)]
    rightly = all(first < second for first, second in pairwise(names))
    return metadata if rightly or not metadata[0] & _SORTED else bytes([metadata[0] & ~_SORTED]) + metadata[1:]


def string(text: bytes) -> bytes:
    """Return the value of a string.

    >>> string(b"abc"), string(b"x" * 64)[:6]
    (b'\\rabc', b'@@\\x00\\x00\\x00x')
    """
    return string_start(len(text)) + text


def string_start(length: int) -> bytes:
    """Return the bytes in front of a string's text of ``length`` bytes."""
    return bytes([length << 2 | _SHORT_STRING]) if length < 64 else STRING + length.to_bytes(4, "little")


def binary_start(length: int) -> bytes:
    """Return the bytes in front of a binary of ``length`` bytes."""
    return BINARY + length.to_bytes(4, "little")


def array(elements: Sequence[bytes]) -> bytes:
    """Return the value of an array.

    >>> array([NULL, string(b"a")]).hex()
    '0302000103000561'
    """
    width = _width(sum(map(len, elements)))
    (start,) = array_starts([len(elements)], width)
    return b"".join([start, _offsets(elements, width), *elements])


def array_starts(counts: Iterable[int], width: int) -> list[bytes]:
    """Return the bytes in front of the offsets of arrays; either all counts are at most 255, or all are larger."""
    return [
        bytes([_ARRAY | (width - 1) << 2 | (count > _MAX_SHORT) << 4]) + count.to_bytes(4 if count > _MAX_SHORT else 1, "little")
        for count in counts
    ]


def object_(fields: Mapping[str, bytes], metadata: bytes) -> bytes:
    """Return the value of an object.

    Args:
        fields: Values by name.
        metadata: The dictionary that must hold the names.

    >>> object_({"z": NULL, "a": string(b"x")}, bytes.fromhex("1102000102") + b"za").hex()
    '02020100000203057800'

    Raises:
        CorruptFileError: A name that the dictionary lacks.
    """
    names = list(fields)
    return encoded_object(fields, dict(zip(names, name_numbers(names, metadata), strict=True)))


def encoded_object(fields: Mapping[str, bytes], numbers: Mapping[str, int]) -> bytes:
    """Return the same with the number of each name."""
    names = sorted(fields, key=str.encode)
    values = [fields[name] for name in names]
    width = _width(sum(map(len, values)))
    return b"".join([object_start([numbers[name] for name in names], width), _offsets(values, width), *values])


def name_numbers(names: Sequence[str], metadata: bytes) -> list[int]:
    """Return the numbers of names in a dictionary.

    Raises:
        CorruptFileError: A name that the dictionary lacks.
    """
    numbers = {name: number for number, name in enumerate(field_names(metadata))}
    missing = [name for name in names if name not in numbers]
    if missing:
        raise CorruptFileError(f"a variant has fields {missing} that its metadata does not name")
    return [numbers[name] for name in names]


def object_start(ids: Sequence[int], width: int) -> bytes:
    """Return the bytes in front of an object's offsets, which have ``width`` bytes each."""
    id_width = _width(max(ids, default=0))
    large = len(ids) > _MAX_SHORT
    header = bytes([_OBJECT | (width - 1) << 2 | (id_width - 1) << 4 | large << 6])
    return b"".join([header, len(ids).to_bytes(4 if large else 1, "little"), *(number.to_bytes(id_width, "little") for number in ids)])


def object_fields(value: bytes, metadata: bytes) -> dict[str, bytes] | None:
    """Return the fields of an object, still encoded; None when the value is not an object.

    >>> object_fields(bytes.fromhex("02020100000203057800"), bytes.fromhex("1102000102") + b"za")
    {'a': b'\\x05x', 'z': b'\\x00'}

    Raises:
        CorruptFileError: The value is cut off, or refers to a missing name.
    """
    if not value or value[0] & 3 != _OBJECT:
        return None
    width, id_width = (value[0] >> 2 & 3) + 1, (value[0] >> 4 & 3) + 1
    count_width = 4 if value[0] & 0x40 else 1
    count = int.from_bytes(value[1 : 1 + count_width], "little")
    ids = _numbers(value, 1 + count_width, count, id_width)
    offsets = _numbers(value, 1 + count_width + count * id_width, count + 1, width)
    start = 1 + count_width + count * id_width + (count + 1) * width
    names = field_names(metadata)
    # Values may lie in any order: each ends where the next one in the binary begins.
    ends = dict(pairwise(sorted(set(offsets))))
    try:
        return {names[number]: value[start + offset : start + ends[offset]] for number, offset in zip(ids, offsets, strict=False)}
    except (IndexError, KeyError) as error:
        raise CorruptFileError("a variant refers to a field name or value that it does not have") from error


def is_readable_variant(metadata: bytes, value: bytes) -> bool:
    """Return whether DuckDB reads a variant from these bytes and returns it unchanged.

    DuckDB fails in every query of a table in which it cannot read one cell, has no timestamps with a time zone in nanoseconds, and
    reads whatever follows a dictionary as the value.

    >>> is_readable_variant(EMPTY_METADATA, INT8 + b"a"), is_readable_variant(EMPTY_METADATA, INT8), is_readable_variant(b"", NULL)
    (True, False, False)
    """
    try:
        names = field_names(metadata)
        return len(metadata) == _metadata_size(metadata) and _end(value, 0, len(value), len(names), 0) == len(value)
    except CorruptFileError:
        return False


def _metadata_size(metadata: bytes) -> int:
    width = (metadata[0] >> 6) + 1
    count = int.from_bytes(metadata[1 : 1 + width], "little")
    return 1 + width * (count + 2) + _numbers(metadata, 1 + width * (count + 1), 1, width)[0]


def _end(value: bytes, start: int, limit: int, names: int, depth: int) -> int:
    """Return the end of the value that begins at ``start``.

    Raises:
        CorruptFileError: The value is invalid, ends later than it may, or is nested too deep.
    """
    if start >= limit or depth > _MAX_DEPTH:
        raise CorruptFileError("a variant is cut off, or too deep")
    kind, number = value[start] & 3, value[start] >> 2
    if kind in (_OBJECT, _ARRAY):
        end = _container_end(value, start, limit, names, depth)
    elif kind == _SHORT_STRING:
        end = start + 1 + number
        _check_text(value[start + 1 : end])
    elif number in (BINARY[0] >> 2, STRING[0] >> 2):
        end = start + 5 + _numbers(value, start + 1, 1, 4)[0]
        _check_text(value[start + 5 : end] if number == STRING[0] >> 2 else b"")
    else:
        end = start + 1 + _primitive_size(value[start + 1 : start + 18], number)
    if end > limit:
        raise CorruptFileError("a variant is cut off")
    return end


def _container_end(value: bytes, start: int, limit: int, names: int, depth: int) -> int:
    kind, detail = value[start] & 3, value[start] >> 2
    count_width = 4 if detail & (0x10 if kind == _OBJECT else 0x04) else 1
    width, id_width = (detail & 3) + 1, (detail >> 2 & 3) + 1 if kind == _OBJECT else 0
    count = _numbers(value, start + 1, 1, count_width)[0]
    after = start + 1 + count_width
    ids = _numbers(value, after, count, id_width) if id_width else []
    offsets = _numbers(value, after + count * id_width, count + 1, width)
    first = after + count * id_width + (count + 1) * width
    if len(set(ids)) < len(ids) or any(number >= names for number in ids):
        raise CorruptFileError("a variant refers to a field name that it does not have, or twice to one")
    end = first + offsets[-1]
    if end > limit:
        raise CorruptFileError("a variant is cut off")
    # Values follow one another without gaps, in any order: DuckDB reads no byte twice and leaves none out.
    place = first
    for offset in sorted(offsets[:-1]):
        if first + offset != place:
            raise CorruptFileError("a variant has values that overlap, or lie apart")
        place = _end(value, place, end, names, depth + 1)
    if place != end:
        raise CorruptFileError("a variant has more bytes than values")
    return end


def _primitive_size(following: bytes, number: int) -> int:
    if number not in _SIZE_BY_TYPE:
        raise CorruptFileError("a variant holds a value of a type that DuckDB does not have")
    size = _SIZE_BY_TYPE[number]
    if number in _DECIMALS:
        digits = int.from_bytes(following[1:size], "little", signed=True)
        if following[:1] > bytes([_MAX_DIGITS]) or abs(digits) >= 10**_MAX_DIGITS:
            raise CorruptFileError("a variant holds a decimal of too many digits")
    elif number == TIME[0] >> 2 and not 0 <= int.from_bytes(following[:size], "little", signed=True) < _MICROSECONDS_OF_A_DAY:
        raise CorruptFileError("a variant holds a time outside of a day")
    return size


def _check_text(text: bytes) -> None:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise CorruptFileError("a variant holds a string that is not UTF-8") from error


def _numbers(data: bytes, start: int, count: int, width: int) -> list[int]:
    if len(data) < start + count * width:
        raise CorruptFileError("a variant is cut off")
    return [int.from_bytes(data[place : place + width], "little") for place in range(start, start + count * width, width)]


def _width(largest: int) -> int:
    return max(1, (largest.bit_length() + 7) // 8)


def _offsets(values: Sequence[bytes], width: int) -> bytes:
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value))
    return b"".join(end.to_bytes(width, "little") for end in ends)


# Types by the number that the encoding gives them; those of an object, an array and a short string have none there.
NULL_TYPE, TRUE_TYPE, FALSE_TYPE, BINARY_TYPE, STRING_TYPE, OBJECT_TYPE, ARRAY_TYPE = 0, 1, 2, 15, 16, 32, 33


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """The values at one path.

    Attributes:
        places: Which of the parent's slots each belongs to, ascending; for the root, its row.
        starts: Where each begins in the buffer.
        ends: Where each ends.
        dictionaries: The number of its row's dictionary of names.
        kinds: Its type.
    """

    places: Numbers
    starts: Numbers
    ends: Numbers
    dictionaries: Numbers
    kinds: Numbers

    def __len__(self) -> int:
        return len(self.places)

    def moved(self, places: Numbers) -> Slots:
        """Return the same values at other places."""
        return replace(self, places=places)

    def where(self, chosen: np.ndarray) -> Slots:
        """Return the values for which a mask is true, or those at some positions."""
        return Slots(
            places=self.places[chosen],
            starts=self.starts[chosen],
            ends=self.ends[chosen],
            dictionaries=self.dictionaries[chosen],
            kinds=self.kinds[chosen],
        )


# Columns of numbers instead of Python objects: a value is one row of Slots, and each step reads one byte or number of all values at once.
class VariantBuffer:
    """The values of an array of plain variants.

    Args:
        array: Structs of the binaries ``metadata`` and ``value``; what is NULL has no slot.

    Raises:
        CorruptFileError: A dictionary cannot be read.
    """

    def __init__(self, array: ArrowArray) -> None:
        values = array.field("value")
        there = array.is_valid().to_numpy(zero_copy_only=False)
        offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
        held = values.buffers()[2]
        raw = np.frombuffer(held, np.uint8) if held is not None else np.empty(0, np.uint8)
        first, last = (int(offsets[0]), int(offsets[-1])) if len(values) else (0, 0)
        self._data = np.concatenate([raw[first:last], np.zeros(_PADDING, np.uint8)])
        self._size = last - first
        self._rows = np.flatnonzero(there)
        self._starts, self._ends = (offsets[:-1] - first)[there], (offsets[1:] - first)[there]
        self._read_names(array.field("metadata"), there)

    def _read_names(self, metadata: ArrowArray, there: np.ndarray) -> None:
        encoded = metadata.filter(pa.array(there)).dictionary_encode()
        numbers: dict[str, int] = {}
        table: list[int] = []
        begins = [0]
        for dictionary in encoded.dictionary.to_pylist():
            table += [numbers.setdefault(name, len(numbers)) for name in field_names(dictionary)]
            begins.append(len(table))
        self._names = list(numbers)
        # One table of all dictionaries, one after the other.
        self._table, self._begins = np.array(table, np.int64), np.array(begins, np.int64)
        self._dictionaries = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)

    def root(self) -> Slots:
        """Return the variants themselves.

        Raises:
            CorruptFileError: One of them is not a value, or is not as long as its bytes.
        """
        found = self._slots(self._rows, self._starts, self._dictionaries, self._ends)
        if np.any(found.ends != self._ends):
            raise CorruptFileError("a variant has more bytes than values")
        return found

    def fields(self, objects: Slots) -> Mapping[str, Slots]:
        """Return the fields of objects by name; places are positions in ``objects``.

        Raises:
            CorruptFileError: An object is cut off, or refers to a name or value that it does not have.
        """
        owners, ids, starts = [], [], []
        for header, chosen in self._by_header(objects):
            width, id_width = (header >> 2 & 3) + 1, (header >> 4 & 3) + 1
            counts, after = self._counts(objects.starts[chosen], 4 if header & 0x40 else 1)
            owner, place = _ragged(counts)
            ids.append(self._numbers(after[owner] + place * id_width, id_width))
            base = after + counts * id_width
            first = base + (counts + 1) * width
            starts.append(first[owner] + self._numbers(base[owner] + place * width, width))
            owners.append(chosen[owner])
        if not owners:
            return {}
        place, number, start = np.concatenate(owners), np.concatenate(ids), np.concatenate(starts)
        names = self._named(objects.dictionaries[place], number)
        order = np.lexsort((place, names))
        place, names, start = place[order], names[order], start[order]
        if np.any((names[1:] == names[:-1]) & (place[1:] == place[:-1])):
            raise CorruptFileError("a variant has a field twice")
        found = self._slots(place, start, objects.dictionaries[place], objects.ends[place])
        edges = np.flatnonzero(np.diff(names, prepend=-1, append=-1))
        return {self._names[int(names[low])]: found.where(np.arange(low, high)) for low, high in pairwise(edges)}

    def elements(self, arrays: Slots) -> tuple[Slots, Numbers]:
        """Return the elements of arrays in their order, and how many each array has; places are positions in ``arrays``."""
        lengths = np.zeros(len(arrays), np.int64)
        owners, starts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for header, chosen in self._by_header(arrays):
            width = (header >> 2 & 3) + 1
            counts, base = self._counts(arrays.starts[chosen], 4 if header & 0x10 else 1)
            lengths[chosen] = counts
            owner, place = _ragged(counts)
            first = base + (counts + 1) * width
            starts.append(first[owner] + self._numbers(base[owner] + place * width, width))
            owners.append(chosen[owner])
        place, start = np.concatenate(owners), np.concatenate(starts)
        order = np.argsort(place, kind="stable")
        place, start = place[order], start[order]
        return self._slots(place, start, arrays.dictionaries[place], arrays.ends[place]), lengths

    def fixed(self, slots: Slots, width: int, skipped: int = 1) -> np.ndarray:
        """Return the bytes of values of one size: a row of ``width`` for each, after the first ``skipped``."""
        at = slots.starts[:, None] + np.arange(skipped, skipped + width)
        return np.ascontiguousarray(self._data[at])

    def encoded(self, slots: Slots) -> pa.BinaryArray:
        """Return the values in their encoded form."""
        return self._gathered(slots.starts, slots.ends, pa.binary())

    def strings(self, slots: Slots, arrow: pa.DataType) -> ArrowArray:
        """Return the content of strings or binaries."""
        is_short = (self._data[slots.starts] & 3) == 1
        return self._gathered(slots.starts + np.where(is_short, 1, 5), slots.ends, arrow)

    def object_at(self, objects: Slots, place: int, fields: Mapping[str, bytes]) -> bytes:
        """Return an object of encoded values, by the dictionary of one of some slots."""
        begin, end = self._begins[objects.dictionaries[place] : objects.dictionaries[place] + 2]
        return encoded_object(fields, {self._names[name]: number for number, name in enumerate(self._table[begin:end].tolist())})

    def _gathered(self, starts: Numbers, ends: Numbers, arrow: pa.DataType) -> ArrowArray:
        if np.all(starts[1:] >= ends[:-1]):
            return self._windows(starts, ends, arrow)
        # Elements may be stored in another order than that of their array, and may overlap.
        lengths = ends - starts
        owner, place = _ragged(lengths)
        data = self._data[starts[owner] + place]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return pa.Array.from_buffers(arrow, len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(data)])

    def _windows(self, starts: Numbers, ends: Numbers, arrow: pa.DataType) -> ArrowArray:
        """Return the parts of the buffer that follow one another: every second one of those that their bounds cut it into."""
        bounds = np.stack([starts, ends], axis=1).reshape(-1)
        count = max(len(bounds) - 1, 0)
        cut = pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(self._data)])
        chosen: ArrowArray = cut.take(pa.array(np.arange(0, count, 2))).cast(pa.binary())
        return pa.Array.from_buffers(arrow, len(chosen), chosen.buffers(), offset=chosen.offset)

    def _slots(self, places: Numbers, starts: Numbers, dictionaries: Numbers, limits: Numbers) -> Slots:
        if np.any(starts >= limits):
            raise CorruptFileError("a variant is cut off")
        headers = self._data[starts].astype(np.int64)
        basic, number = headers & 3, headers >> 2
        kinds = np.where(basic == 0, number, np.array([0, STRING_TYPE, OBJECT_TYPE, ARRAY_TYPE])[basic])
        kinds[kinds == FALSE_TYPE] = TRUE_TYPE
        if np.any((basic == 0) & (number >= len(_SIZES))):
            raise CorruptFileError("a variant holds a value of an unknown type")
        sizes = 1 + np.where(basic == 0, _SIZES[np.minimum(number, len(_SIZES) - 1)], number)
        long = np.flatnonzero((basic == 0) & ((number == BINARY_TYPE) | (number == STRING_TYPE)))
        sizes[long] = 5 + self._numbers(starts[long] + 1, 4)
        ends = starts + sizes
        found = Slots(places=places, starts=starts, ends=ends, dictionaries=dictionaries, kinds=kinds)
        for kind in (OBJECT_TYPE, ARRAY_TYPE):
            nested = np.flatnonzero(kinds == kind)
            if len(nested):
                ends[nested] = self._container_ends(found.where(nested), kind)
        if np.any(ends > limits):
            raise CorruptFileError("a variant is cut off")
        return found

    def _container_ends(self, slots: Slots, kind: int) -> Numbers:
        ends = np.zeros(len(slots), np.int64)
        for header, chosen in self._by_header(slots):
            width = (header >> 2 & 3) + 1
            id_width = (header >> 4 & 3) + 1 if kind == OBJECT_TYPE else 0
            counts, after = self._counts(slots.starts[chosen], 4 if header & (0x40 if kind == OBJECT_TYPE else 0x10) else 1)
            base = after + counts * id_width
            ends[chosen] = base + (counts + 1) * width + self._numbers(base + counts * width, width)
        return ends

    def _by_header(self, slots: Slots) -> list[tuple[int, np.ndarray]]:
        headers = self._data[slots.starts]
        return [(int(header), np.flatnonzero(headers == header)) for header in np.unique(headers)]

    def _counts(self, starts: Numbers, width: int) -> tuple[Numbers, Numbers]:
        counts, after = self._numbers(starts + 1, width), starts + 1 + width
        # Every element has an offset of at least one byte. A larger count is damage, and would allocate all memory.
        if np.any(counts > self._size - starts):
            raise CorruptFileError("a variant is cut off")
        return counts, after

    def _named(self, dictionaries: Numbers, ids: Numbers) -> Numbers:
        at = self._begins[dictionaries] + ids
        if np.any(at >= self._begins[dictionaries + 1]):
            raise CorruptFileError("a variant refers to a field name that it does not have")
        names: Numbers = self._table[at]
        return names

    def _numbers(self, at: Numbers, width: int) -> Numbers:
        if np.any(at + width > self._size):
            raise CorruptFileError("a variant is cut off")
        found: Numbers = self._data[at].astype(np.int64)
        for byte in range(1, width):
            found |= self._data[at + byte].astype(np.int64) << (8 * byte)
        return found


def _ragged(counts: Numbers) -> tuple[Numbers, Numbers]:
    """Return, for ``counts`` items of each owner, the owner of every item and its number among the owner's items.

    >>> [part.tolist() for part in _ragged(np.array([2, 0, 1]))]
    [[0, 0, 2], [0, 1, 0]]
    """
    owners = np.repeat(np.arange(len(counts)), counts)
    return owners, np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
