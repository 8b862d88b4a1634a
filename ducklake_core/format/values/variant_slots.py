"""Values of many variants at once, path by path: where each begins and ends in one buffer, and of which type it is.

Python takes microseconds for a value; here each step looks at one path of all rows. An object's fields become slots of their own::

    row 0  {"a": 1, "b": "x"}       children of the root     a: slots 0, 2     b: slot 0
    row 1  7                        (objects only)
    row 2  {"a": 2}

Values are walked before anything of them is used: bytes that are no variant raise CorruptFileError, as does whatever lies outside
of the value that it belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from ducklake_core.errors import CorruptFileError
from ducklake_core.format.types.arrow_types import ArrowArray
from ducklake_core.format.values.variant_encoding import encoded_object, field_names

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

# Types by the number that the encoding gives them; those of an object, an array and a short string have none there.
NULL, TRUE, FALSE, BINARY, STRING, OBJECT, ARRAY = 0, 1, 2, 15, 16, 32, 33
_SIZES = np.array([0, 0, 0, 1, 2, 4, 8, 8, 5, 9, 17, 4, 8, 8, 4, 0, 0, 8, 8, 8, 16], np.int64)
_PADDING = 32


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
        """The same values at other places."""
        return replace(self, places=places)

    def where(self, chosen: np.ndarray) -> Slots:
        """Those for which a mask is true, or at some positions."""
        return Slots(
            places=self.places[chosen],
            starts=self.starts[chosen],
            ends=self.ends[chosen],
            dictionaries=self.dictionaries[chosen],
            kinds=self.kinds[chosen],
        )


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
        """The variants themselves.

        Raises:
            CorruptFileError: One of them is no value, or is not as long as its bytes.
        """
        found = self._slots(self._rows, self._starts, self._dictionaries, self._ends)
        if np.any(found.ends != self._ends):
            raise CorruptFileError("a variant has more bytes than values")
        return found

    def fields(self, objects: Slots) -> Mapping[str, Slots]:
        """The fields of objects by name; places are positions in ``objects``.

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
        """The elements of arrays in their order, and how many each array has; places are positions in ``arrays``."""
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
        """Bytes of values of one size: a row of ``width`` for each, after the first ``skipped``."""
        at = slots.starts[:, None] + np.arange(skipped, skipped + width)
        return np.ascontiguousarray(self._data[at])

    def encoded(self, slots: Slots) -> pa.BinaryArray:
        """The values as they are encoded."""
        return self._gathered(slots.starts, slots.ends, pa.binary())

    def texts(self, slots: Slots, arrow: pa.DataType) -> ArrowArray:
        """The content of strings or binaries."""
        is_short = (self._data[slots.starts] & 3) == 1
        return self._gathered(slots.starts + np.where(is_short, 1, 5), slots.ends, arrow)

    def object_at(self, objects: Slots, place: int, fields: Mapping[str, bytes]) -> bytes:
        """An object of encoded values, by the dictionary of one of some slots."""
        begin, end = self._begins[objects.dictionaries[place] : objects.dictionaries[place] + 2]
        return encoded_object(fields, {self._names[name]: number for number, name in enumerate(self._table[begin:end].tolist())})

    def _gathered(self, starts: Numbers, ends: Numbers, arrow: pa.DataType) -> ArrowArray:
        if np.all(starts[1:] >= ends[:-1]):
            return self._windows(starts, ends, arrow)
        # Elements may lie in another order than that of their array, and in one another.
        lengths = ends - starts
        owner, place = _ragged(lengths)
        data = self._data[starts[owner] + place]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return pa.Array.from_buffers(arrow, len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(data)])

    def _windows(self, starts: Numbers, ends: Numbers, arrow: pa.DataType) -> ArrowArray:
        """Parts of the buffer that follow one another: every second one of those that their bounds cut it into."""
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
        kinds = np.where(basic == 0, number, np.array([0, STRING, OBJECT, ARRAY])[basic])
        kinds[kinds == FALSE] = TRUE
        if np.any((basic == 0) & (number >= len(_SIZES))):
            raise CorruptFileError("a variant holds a value of an unknown type")
        sizes = 1 + np.where(basic == 0, _SIZES[np.minimum(number, len(_SIZES) - 1)], number)
        long = np.flatnonzero((basic == 0) & ((number == BINARY) | (number == STRING)))
        sizes[long] = 5 + self._numbers(starts[long] + 1, 4)
        ends = starts + sizes
        found = Slots(places=places, starts=starts, ends=ends, dictionaries=dictionaries, kinds=kinds)
        for kind in (OBJECT, ARRAY):
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
            id_width = (header >> 4 & 3) + 1 if kind == OBJECT else 0
            counts, after = self._counts(slots.starts[chosen], 4 if header & (0x40 if kind == OBJECT else 0x10) else 1)
            base = after + counts * id_width
            ends[chosen] = base + (counts + 1) * width + self._numbers(base + counts * width, width)
        return ends

    def _by_header(self, slots: Slots) -> list[tuple[int, np.ndarray]]:
        headers = self._data[slots.starts]
        return [(int(header), np.flatnonzero(headers == header)) for header in np.unique(headers)]

    def _counts(self, starts: Numbers, width: int) -> tuple[Numbers, Numbers]:
        counts, after = self._numbers(starts + 1, width), starts + 1 + width
        # Each has an offset of a byte at least: more than there are bytes are none, and would take all memory.
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
    """For so many items of each: whose each item is, and its number among them.

    >>> [part.tolist() for part in _ragged(np.array([2, 0, 1]))]
    [[0, 0, 2], [0, 1, 0]]
    """
    owners = np.repeat(np.arange(len(counts)), counts)
    return owners, np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
