"""In which forms texts and blobs leave pyarrow's decoder: those that take the least time to make, until rows have been left out.

Texts with offsets of 64 bits are decoded in 0.85 of the time of those of 32, and texts that the file has in dictionaries, as such, in a
third of it (docs/decisions/0090-texts-are-decoded-in-cheap-forms.md). They are made plain when the rows that nobody wants are gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_MOST_BYTES = 2**31 - 1
"""As many bytes of texts can an Arrow array have whose offsets are of 32 bits."""

_IN_DICTIONARY = frozenset({"PLAIN_DICTIONARY", "RLE_DICTIONARY"})
_LEVELS = frozenset({"RLE", "BIT_PACKED"})
_LENGTH_BYTES = 4
"""Bytes that a text takes beside its own where it is not in a dictionary."""


@dataclass(frozen=True, slots=True)
class TextForms:
    """Forms of the top-level columns of texts and blobs.

    Attributes:
        dictionaries: Names of columns that are decoded as Arrow dictionaries.
        wide: Whether the others are decoded with offsets of 64 bits.
    """

    dictionaries: tuple[str, ...] = ()
    wide: bool = False


PLAIN = TextForms()


class TextColumns:
    """The columns of texts and blobs among those that are read of a file.

    Args:
        metadata: The file's footer.
        schema: Its Arrow schema, in plain forms; the columns' names are distinct and without dots.
        places: The columns that are read.
    """

    def __init__(self, metadata: pq.FileMetaData, schema: pa.Schema, places: Sequence[int]) -> None:
        names = {schema.names[place] for place in places}
        plain_names = {name for name in names if schema.field(name).type in (pa.string(), pa.binary())}
        leaves = [(number, metadata.schema.column(number)) for number in range(metadata.num_columns)]
        self._metadata = metadata
        self._leaves = [(number, leaf.path) for number, leaf in leaves if leaf.path in plain_names and leaf.physical_type == "BYTE_ARRAY"]
        # A reader decodes all columns with the same offsets, those inside of others too.
        others = {leaf.path.partition(".")[0] for _, leaf in leaves if leaf.physical_type == "BYTE_ARRAY"} & names
        self._wide = others <= plain_names

    def forms(self, groups: Sequence[int]) -> TextForms:
        """The forms for some row groups that are decoded one after the other."""
        if not self._leaves:
            return PLAIN
        chosen = tuple(name for leaf, name in self._leaves if all(self._has_few_values(group, leaf) for group in groups))
        return TextForms(chosen, self._wide)

    def _has_few_values(self, group: int, leaf: int) -> bool:
        """Whether a column chunk has its values in a dictionary: where it has some of them beside it, decoding as a dictionary is slow."""
        chunk = self._metadata.row_group(group).column(leaf)
        if not chunk.has_dictionary_page:
            return False
        beside = set(chunk.encodings) - _IN_DICTIONARY - _LEVELS
        # Of most writers a dictionary itself counts as plain.
        return not beside or (beside == {"PLAIN"} and chunk.total_uncompressed_size < _LENGTH_BYTES * chunk.num_values)


def plain(array: pa.Array[Any], wanted: pa.DataType) -> pa.Array[Any]:
    """Values in the form that the file's schema gives them.

    >>> plain(pa.array(["a", None, "a"]).dictionary_encode(), pa.string()).to_pylist()
    ['a', None, 'a']
    """
    if pa.types.is_dictionary(array.type) and not pa.types.is_dictionary(wanted):
        array = array.dictionary_decode()
    elif not (pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)):
        return array
    return array if array.type.equals(wanted) else array.cast(wanted)


def side_by_side(parts: Sequence[Iterator[pa.RecordBatch]], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Batches of all columns from those of some: wherever one of the parts has a batch end, one ends.

    Args:
        parts: Batches of different columns of the same rows.
        names: The columns in the order to return.
    """
    waiting = [next(part, None) for part in parts]
    while batches := [batch for batch in waiting if batch is not None]:
        if len(batches) < len(parts):
            # One of them has fewer rows: whoever counts them finds that out.
            return
        count = min(batch.num_rows for batch in batches)
        arrays = {name: array for batch in batches for name, array in zip(batch.schema.names, batch.columns, strict=True)}
        yield pa.RecordBatch.from_arrays([arrays[name].slice(0, count) for name in names], list(names))
        waiting = [batch.slice(count) if batch.num_rows > count else next(part, None) for batch, part in zip(batches, parts, strict=True)]


def fitting(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch, in as many parts as it takes for each text column's plain form to have room in one array."""
    if batch.num_rows > 1 and any(_may_be_too_long(array) for array in batch.columns):
        middle = batch.num_rows // 2
        yield from fitting(batch.slice(0, middle))
        yield from fitting(batch.slice(middle))
    else:
        yield batch


def _may_be_too_long(array: pa.Array[Any]) -> bool:
    if not pa.types.is_dictionary(array.type):
        return bool(array.nbytes > _MOST_BYTES)
    values = array.dictionary
    if values.nbytes * len(array) <= _MOST_BYTES or not len(values):
        return False
    return bool(pc.max(pc.binary_length(values)).as_py() * len(array) > _MOST_BYTES)
