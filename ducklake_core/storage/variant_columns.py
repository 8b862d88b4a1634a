"""Columns of variants while their file is written: shredded as their first row group suggests, with statistics of their fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ducklake_core.errors import CorruptFileError
from ducklake_core.format.files.statistics import FieldStatistics, to_json, truncate_bounds
from ducklake_core.format.types.data_types import FLOATS, VARCHAR, VARIANT
from ducklake_core.format.types.schema import ArrowArray, Schema
from ducklake_core.format.values.leaf_values import order_key, python_values, to_text
from ducklake_core.format.values.variant_encoding import VariantBuffer
from ducklake_core.format.values.variant_shredding import (
    Elements,
    Fields,
    Leaf,
    Path,
    Shape,
    Shredder,
    Unshredded,
    choose_shape,
    shredded_field,
)


@dataclass(slots=True)
class _Tally:
    """Running statistics of the values of one path."""

    leaf: Leaf
    entries: int = 0
    values: int = 0
    is_complete: bool = True
    has_nan: bool = False
    bounds: tuple[object, object] | None = None

    def add(self, values: ArrowArray, entries: int, outside: bool) -> None:
        self.entries += entries
        self.values += len(values)
        # A value of another type stays in the encoded column, so bounds of the typed column would leave it out.
        self.is_complete &= not outside
        if not self.is_complete:
            return
        kind = self.leaf.type
        if isinstance(values, pa.ExtensionArray):
            values = values.storage
        if kind in FLOATS:
            nan = pc.is_nan(values)
            if pc.any(nan).as_py():
                self.has_nan = True
                values = values.filter(pc.invert(nan))
        if not len(values):
            return
        found: Any = pc.min_max(values)
        arrow = values.type
        low, high = (python_values(pa.array([found[side]], arrow), kind)[0] for side in ("min", "max"))
        if kind in FLOATS:
            # As in Parquet: the bounds hold whichever zero it is.
            low, high = -0.0 if low == 0 else low, 0.0 if high == 0 else high
        self.bounds = (
            (low, high) if self.bounds is None else (min(self.bounds[0], low, key=order_key), max(self.bounds[1], high, key=order_key))
        )

    def statistics(self, path: Path, size: int) -> FieldStatistics | None:
        """Return the statistics of the path; None where some values are outside of the typed column."""
        if not self.is_complete:
            return None
        kind = self.leaf.type
        low, high = (None, None) if self.bounds is None else (to_text(self.bounds[0], kind), to_text(self.bounds[1], kind))
        kept = truncate_bounds(low, high, kind)
        if kept.exact_min is not None or kept.exact_max is not None:
            # As in DuckDB: no bounds of long strings. Those with a NUL cannot be stored everywhere.
            low = high = None
        return FieldStatistics(
            path=path,
            type=kind,
            entries=self.entries,
            null_count=self.entries - self.values,
            min_value=low,
            max_value=high,
            contains_nan=self.has_nan if kind in FLOATS else None,
            column_size_bytes=size,
        )


@dataclass(slots=True)
class _Column:
    """One column of variants."""

    place: int
    shape: Shape
    tallies: dict[Path, _Tally] = field(default_factory=dict)
    is_known: bool = True

    def report(self, path: Path, leaf: Leaf, values: ArrowArray, entries: int, outside: bool) -> None:
        self.tallies.setdefault(path, _Tally(leaf)).add(values, entries, outside)


class VariantColumns:
    """The top-level columns of variants in one file. Those inside of other values stay as they are: DuckDB writes none there.

    Args:
        schema: The file's columns.
        first: Its first row group, from which it is chosen what is shredded.
    """

    def __init__(self, schema: Schema, first: pa.Table) -> None:
        self._columns: dict[int, _Column] = {}
        for place, column in enumerate(schema):
            if column.type == VARIANT:
                self._columns[column.id] = _Column(place, _shape(first.column(place)))

    def arrow_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the file's Arrow schema, from that of plain variants."""
        for column in self._columns.values():
            if not isinstance(column.shape, Unshredded):
                schema = schema.set(column.place, shredded_field(column.shape, schema.field(column.place)))
        return schema

    def shredded(self, row_group: pa.Table) -> pa.Table:
        """Return the rows with the columns of the file; they are counted into the statistics."""
        for column in self._columns.values():
            if not isinstance(column.shape, Unshredded):
                before = row_group.field(column.place)
                array: ArrowArray = pa.concat_arrays(row_group.column(column.place).chunks)
                after = shredded_field(column.shape, before)
                row_group = row_group.set_column(column.place, after, _shredded(array, column, after.type))
        return row_group

    def leaf_count(self, column_id: int) -> int:
        """Return Parquet leaves of a column, also of one below other values."""
        column = self._columns.get(column_id)
        return 2 if column is None else 1 + sum(1 for _ in _leaves(column.shape))

    def dictionary_paths(self, schema: Schema) -> list[str]:
        """Return dotted Parquet paths of leaves that may repeat: dictionaries of names, and strings."""
        return [path for path, leaf in self._paths(schema) if path.endswith(".metadata") or (leaf is not None and leaf.type == VARCHAR)]

    def bounded_paths(self, schema: Schema) -> list[str]:
        """Return the paths of leaves whose bounds the footer holds: all but floats, as in other columns, and dictionaries of names."""
        return [path for path, leaf in self._paths(schema) if not path.endswith(".metadata") and (leaf is None or leaf.type not in FLOATS)]

    def _paths(self, schema: Schema) -> Iterator[tuple[str, Leaf | None]]:
        for column in self._columns.values():
            name = schema.columns[column.place].name
            yield f"{name}.metadata", None
            for path, leaf in _leaves(column.shape):
                # Names with dots would stand for other paths.
                if not any("." in (step or "") for step in (name, *path)):
                    steps = "".join(".typed_value.list.element" if step is None else f".typed_value.{step}" for step in path)
                    yield f"{name}{steps}.{'value' if leaf is None else 'typed_value'}", leaf

    def extra_stats(self, column_id: int, chunks: Sequence[Sequence[pq.ColumnChunkMetaData]]) -> str | None:
        """Return the statistics of the fields of a column, as the catalog stores them.

        Args:
            column_id: The column.
            chunks: Column chunks of its leaves, for each row group.
        """
        column = self._columns.get(column_id)
        if column is None or not column.is_known:
            return None
        sizes: dict[Path, int] = {}
        for position, (path, leaf) in enumerate(_leaves(column.shape), 1):
            if leaf is not None:
                sizes[path] = sum(group[position].total_compressed_size for group in chunks)
        found = [tally.statistics(path, sizes.get(path, 0)) for path, tally in column.tallies.items()]
        return to_json([one for one in found if one is not None])


def _shape(values: pa.ChunkedArray[Any]) -> Shape:
    try:
        buffer = VariantBuffer(pa.concat_arrays(values.chunks))
        return choose_shape(buffer, buffer.root())
    except CorruptFileError:
        # Files hold what they are given: the reader reports what is wrong with it.
        return Unshredded()


def _shredded(array: ArrowArray, column: _Column, arrow: pa.DataType) -> ArrowArray:
    there = array.is_valid()
    metadata = pc.fill_null(array.field("metadata"), b"")
    try:
        buffer = VariantBuffer(array)
        parts = Shredder(buffer, column.report).parts(buffer.root(), column.shape, len(array))
    except CorruptFileError:
        # A damaged variant is written as it is, and the column gets no statistics of fields.
        column.is_known = False
        value = pc.if_else(there, array.field("value"), pa.scalar(None, pa.binary()))
        parts = [value, pa.nulls(len(array), arrow.field("typed_value").type)]
    fields = [arrow.field(place) for place in range(arrow.num_fields)]
    return pa.StructArray.from_arrays([metadata, *parts], fields=fields, mask=pc.invert(there))


def _leaves(shape: Shape, path: Path = ()) -> Iterator[tuple[Path, Leaf | None]]:
    """Yield Parquet leaves below a column or a group, in their order: the encoded values, which have no leaf, and then what is typed."""
    yield path, None
    match shape:
        case Leaf():
            yield path, shape
        case Fields(fields=fields):
            for name, child in fields:
                yield from _leaves(child, (*path, name))
        case Elements(element=element):
            yield from _leaves(element, (*path, None))
        case Unshredded():
            pass
