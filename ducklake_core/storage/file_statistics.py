"""Collect column statistics of a file while it is written."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ducklake_core.format.files.data_files import ROW_ID_FIELD_ID, SNAPSHOT_ID_FIELD_ID, ColumnStatistics
from ducklake_core.format.files.statistics import GeometryStatistics, geometry_statistics, merged_geometry_statistics, truncate_bounds
from ducklake_core.format.types.data_types import BLOB, FLOATS, GEOMETRY, JSON, NULL, VARCHAR, VARIANT, Field, ListType, MapType, StructType
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.arrow_cast import list_values
from ducklake_core.format.values.leaf_values import order_key, stat_value, to_text

if TYPE_CHECKING:
    from ducklake_core.storage.variant_columns import VariantColumns


_UNTRUSTED_LENGTH = 4096
"""Parquet writers leave out the bounds of a column chunk that holds a longer one."""
_SYSTEM_COLUMNS = frozenset({ROW_ID_FIELD_ID, SNAPSHOT_ID_FIELD_ID})


def user_columns(schema: Schema) -> Schema:
    """Return the columns of a file's schema that belong to the table, which are those that have statistics."""
    return Schema(columns=tuple(column for column in schema if column.id not in _SYSTEM_COLUMNS))


@dataclass(slots=True)
class _Floats:
    """Statistics of one leaf of floats; their bounds leave NaN out."""

    values: int = 0
    nan: bool = False
    bounds: tuple[float, float] | None = None

    def add(self, values: pa.ChunkedArray) -> None:
        self.values += len(values) - values.null_count
        total = pc.sum(values).as_py()
        # The sum of values with a NaN is one, as is that of both infinities; a sum takes less than looking at each value.
        if total is not None and math.isnan(total):
            nan = pc.is_nan(values)
            if pc.any(nan).as_py():
                self.nan = True
                values = values.filter(pc.invert(nan))
        found = pc.min_max(values)
        low, high = found["min"].as_py(), found["max"].as_py()
        if low is None:
            return
        # As in Parquet: the bounds hold whichever zero it is.
        low, high = -0.0 if low == 0 else low, 0.0 if high == 0 else high
        self.bounds = (low, high) if self.bounds is None else (min(self.bounds[0], low), max(self.bounds[1], high))


@dataclass(slots=True)
class StatisticsCollector:
    """Collects the statistics that the footer lacks, one row group at a time, and returns all statistics at the end.

    Attributes:
        schema: The file's columns, system columns included.
    """

    schema: Schema
    _floats: dict[int, _Floats] = field(default_factory=dict, init=False)
    _geometries: dict[int, GeometryStatistics] = field(default_factory=dict, init=False)
    _long_bounds: dict[tuple[int, int], tuple[object, object]] = field(default_factory=dict, init=False)
    _row_groups: int = field(default=0, init=False)

    def observe(self, row_group: pa.Table) -> None:
        """Read one row group, once: floats, geometries, and bounds of strings that are too long for the footer."""
        number = self._row_groups
        self._row_groups += 1
        for column, values in zip(self.schema, row_group.columns, strict=True):
            if not any(_needs_a_look(leaf) for leaf in column.leaves()):
                continue
            arrays: dict[int, tuple[Field, list[pa.Array]]] = {}
            for chunk in values.chunks:
                for leaf, array in leaf_arrays(chunk, column):
                    arrays.setdefault(leaf.id, (leaf, []))[1].append(array)
            for leaf, parts in arrays.values():
                self._observe_leaf(number, leaf, parts)

    def _observe_leaf(self, number: int, leaf: Field, parts: list[pa.Array]) -> None:
        """Read one leaf of a row group, which is in one or more parts."""
        if leaf.type in FLOATS:
            self._floats.setdefault(leaf.id, _Floats()).add(pa.chunked_array(parts))
        elif leaf.type == GEOMETRY:
            before = self._geometries.get(leaf.id, GeometryStatistics())
            self._geometries[leaf.id] = merged_geometry_statistics([before, *map(geometry_statistics, parts)])
        elif _is_bytes(leaf):
            values = pa.chunked_array([array.storage if isinstance(array, pa.ExtensionArray) else array for array in parts])
            if _has_untrusted(values):
                # Of all values: the footer has bounds of the whole row group, or none.
                found = pc.min_max(values)
                self._long_bounds[(number, leaf.id)] = (found["min"].as_py(), found["max"].as_py())

    def finish(self, metadata: pq.FileMetaData, variants: VariantColumns | None = None) -> tuple[ColumnStatistics, ...]:
        """Return statistics of all leaves of user columns, from the finished file's footer.

        Args:
            metadata: The footer.
            variants: The file's columns of variants, if any.
        """
        found: list[ColumnStatistics] = []
        position = 0
        for leaf in self.schema.leaves():
            if leaf.id not in _SYSTEM_COLUMNS:
                is_variant = leaf.type == VARIANT
                found.append(self._variant(metadata, position, leaf, variants) if is_variant else self._leaf(metadata, position, leaf))
            # A shredded variant has many Parquet leaves, which shift the positions of all later columns.
            position += _leaf_count(leaf, variants)
        return tuple(found)

    def _variant(self, metadata: pq.FileMetaData, position: int, leaf: Field, variants: VariantColumns | None) -> ColumnStatistics:
        """Return the statistics of a variant over all of its leaves; as in DuckDB, NULL counts as a value too."""
        groups = range(metadata.num_row_groups)
        places = range(position, position + _leaf_count(leaf, variants))
        chunks = [[metadata.row_group(number).column(place) for place in places] for number in groups]
        return ColumnStatistics(
            column_id=leaf.id,
            column_size_bytes=sum(chunk.total_compressed_size for group in chunks for chunk in group),
            value_count=sum(group[0].num_values for group in chunks),
            null_count=0,
            extra_stats=None if variants is None else variants.extra_stats(leaf.id, chunks),
        )

    def _leaf(self, metadata: pq.FileMetaData, position: int, leaf: Field) -> ColumnStatistics:
        chunks = [metadata.row_group(number).column(position) for number in range(metadata.num_row_groups)]
        # Parquet counts a slot for every NULL or empty parent, and so does DuckDB.
        slots = sum(chunk.num_values for chunk in chunks)
        if leaf.type == NULL:
            # Such columns have no statistics in footers, and need none.
            size = sum(chunk.total_compressed_size for chunk in chunks)
            return ColumnStatistics(column_id=leaf.id, column_size_bytes=size, value_count=0, null_count=slots)
        floats = self._floats.get(leaf.id, _Floats()) if leaf.type in FLOATS else None
        values = sum(chunk.statistics.num_values for chunk in chunks) if floats is None else floats.values
        bounds = self._bounds(chunks, leaf) if floats is None else floats.bounds
        low, high = (None, None) if bounds is None else (to_text(bounds[0], leaf.type), to_text(bounds[1], leaf.type))
        kept = truncate_bounds(low, high, leaf.type)
        return ColumnStatistics(
            column_id=leaf.id,
            column_size_bytes=sum(chunk.total_compressed_size for chunk in chunks),
            value_count=values,
            null_count=slots - values,
            min_value=kept.min_value,
            max_value=kept.max_value,
            contains_nan=None if floats is None else floats.nan,
            exact_min=kept.exact_min,
            exact_max=kept.exact_max,
            extra_stats=self._box(leaf) if leaf.type == GEOMETRY else None,
        )

    def _box(self, leaf: Field) -> str | None:
        found = self._geometries.get(leaf.id, GeometryStatistics())
        return found.to_json() if found.is_finite else None

    def _bounds(self, chunks: list[pq.ColumnChunkMetaData], leaf: Field) -> tuple[object, object] | None:
        """Return the least and the greatest value; None when there is no value, or no bounds are known for some of them."""
        if leaf.type == GEOMETRY:
            # The order of their bytes is none of geometries.
            return None
        pairs: list[tuple[object, object]] = []
        for number, chunk in enumerate(chunks):
            long_bounds = self._long_bounds.get((number, leaf.id))
            found = chunk.statistics
            if long_bounds is not None:
                raw: tuple[object, object] = tuple(b.encode() if isinstance(b, str) else b for b in long_bounds)  # type: ignore[assignment]
            elif found.has_min_max:
                raw = (found.min_raw, found.max_raw)
            elif found.num_values:
                return None
            else:
                continue
            low, high = stat_value(raw[0], leaf.type), stat_value(raw[1], leaf.type)
            if low is None or high is None:
                return None
            pairs.append((low, high))
        if not pairs:
            return None
        return min((low for low, _ in pairs), key=order_key), max((high for _, high in pairs), key=order_key)


def _leaf_count(leaf: Field, variants: VariantColumns | None) -> int:
    if leaf.type != VARIANT:
        return 1
    return 2 if variants is None else variants.leaf_count(leaf.id)


def _needs_a_look(leaf: Field) -> bool:
    return leaf.type in FLOATS or leaf.type == GEOMETRY or _is_bytes(leaf)


def _has_untrusted(values: pa.ChunkedArray) -> bool:
    """Return whether one of the values is so long that the footer may lack bounds."""
    longest = pc.max(pc.binary_length(values)).as_py() if values.nbytes > _UNTRUSTED_LENGTH else None
    return longest is not None and longest > _UNTRUSTED_LENGTH


def _is_bytes(leaf: Field) -> bool:
    return leaf.type in (VARCHAR, JSON, BLOB)


def leaf_arrays(array: pa.Array, field: Field) -> Iterator[tuple[Field, pa.Array]]:
    """Yield every leaf of a column with its values, without those below NULL or empty parents.

    Args:
        array: The column in its physical Arrow type.
        field: The table's column.
    """
    match field.type:
        case StructType(fields=fields):
            # flatten() lets the NULLs of the struct through to its children; field() would not.
            for child, values in zip(fields, array.flatten(), strict=True):
                yield from leaf_arrays(values, child)
        case ListType(element=element):
            yield from leaf_arrays(list_values(array), element)
        case MapType(key=key, value=value):
            keys, values = _entries(array)
            yield from leaf_arrays(keys, key)
            yield from leaf_arrays(values, value)
        case _:
            yield field, array


def _entries(array: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    # keys and items of a map array forget its slice, and keep entries that lie under a NULL map.
    if array.null_count:
        array = array.filter(array.is_valid())
    offsets = np.asarray(array.offsets)
    start, length = int(offsets[0]), int(offsets[-1] - offsets[0])
    return array.keys.slice(start, length), array.items.slice(start, length)


def parquet_paths(field: Field, prefix: str = "") -> Iterator[tuple[Field, str]]:
    """Yield every leaf of a column with its dotted path in a Parquet schema.

    >>> from ducklake_core.format.types.data_types import INT32, VARCHAR
    >>> tags = ListType(element=Field(name="element", type=VARCHAR))
    >>> pair = StructType(fields=(Field(name="x", type=INT32), Field(name="t", type=tags)))
    >>> [path for _, path in parquet_paths(Field(name="a", type=pair))]
    ['a.x', 'a.t.list.element']
    """
    path = f"{prefix}{field.name}"
    match field.type:
        case StructType(fields=fields):
            for child in fields:
                yield from parquet_paths(child, f"{path}.")
        case ListType(element=element):
            yield from parquet_paths(element, f"{path}.list.")
        case MapType(key=key, value=value):
            yield from parquet_paths(key, f"{path}.key_value.")
            yield from parquet_paths(value, f"{path}.key_value.")
        case _:
            yield field, path
