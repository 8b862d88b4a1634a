"""Sets of keys: which rows of a batch have their key among those of an upsert's source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.engines.arrow.comparable import hashable
from ducklake_core.errors import SchemaError, UnsupportedFeatureError
from ducklake_core.format.types.arrow_types import NO_KEY_TYPES
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.arrow_cast import cast_to

_FOUND = "found"
_MOST_PLACES = 1 << 22
"""So far apart may the integers of a batch be for a table of all between them, a byte for each."""


@dataclass(frozen=True, slots=True)
class KeySet:
    """Keys as columns of the table; made by :func:`key_set`.

    Attributes:
        schema: The key columns, with the table's types.
        keys: One row per distinct key, in comparable Arrow types; ascending where the key is one column of integers.
    """

    schema: Schema
    keys: pa.Table

    def contains(self, batch: pa.RecordBatch) -> pa.Array[Any]:
        """For each row of a batch that begins with the key columns, whether its key is in the set; a NULL key never is."""
        columns = [_comparable(column) for column in batch.columns[: len(self.schema)]]
        if len(columns) == 1:
            return _among(columns[0], self.keys.column(0).combine_chunks())
        names = self.keys.column_names
        rows = pa.table([*columns, pa.array(range(batch.num_rows), pa.int64())], names=[*names, _FOUND])
        # Joins of Arrow do not match NULLs with each other, which is what SQL means too.
        matched = rows.join(self.keys, keys=names, join_type="left semi").column(_FOUND)
        return pc.is_in(rows.column(_FOUND).combine_chunks(), value_set=matched.combine_chunks())


def key_set(source: pa.Table, on: Sequence[str], table: Schema) -> KeySet:
    """The keys of a source.

    Args:
        source: Rows with at least the key columns.
        on: Names of the key columns.
        table: The table's columns; keys are compared in their types.

    Raises:
        SchemaError: NULL in a key, or two rows with the same key: which one should win is not said.
        UnsupportedFeatureError: A key column of a nested type.
        NotFoundError: No such column in the table.
    """
    schema = table.select(on)
    for column in schema:
        if not column.is_leaf or column.type in NO_KEY_TYPES:
            raise UnsupportedFeatureError(f"column {column.name!r} of type {column.type} cannot be a key", column=column.name)
    by_name = {folded(name): name for name in source.column_names}
    missing = [column.name for column in schema if folded(column.name) not in by_name]
    if missing:
        raise SchemaError(f"the data has no column {missing[0]!r}, which is part of the key", column=missing[0])
    held = cast_to(source.select([by_name[folded(column.name)] for column in schema]), schema, physical=False, exact=True)
    columns = [_comparable(column.combine_chunks()) for column in held.columns]
    for column, values in zip(schema, columns, strict=True):
        if values.null_count:
            raise SchemaError(f"key column {column.name!r} has NULL in the data; rows without a key cannot be matched", column=column.name)
    keys = pa.table(columns, names=[f"key{index}" for index in range(len(columns))])
    distinct = keys.group_by(keys.column_names).aggregate([]) if len(keys) else keys
    if len(distinct) != len(keys):
        raise SchemaError(
            f"the data has {len(keys) - len(distinct)} rows whose key ({', '.join(schema.names)}) occurs more than once", columns=list(on)
        )
    found = distinct.select(keys.column_names)
    return KeySet(schema, found.sort_by("key0") if len(columns) == 1 and _is_small_integer(columns[0].type) else found)


def _is_small_integer(data_type: pa.DataType) -> bool:
    """Whether 64 bits with a sign hold its values."""
    return bool(pa.types.is_integer(data_type) and data_type != pa.uint64())


def _among(values: pa.Array[Any], keys: pa.Array[Any]) -> pa.Array[Any]:
    """Whether each value is a key; NULL never is. Integers that lie close together are looked up in a table instead of hashed.

    >>> _among(pa.array([5, None, 7]), pa.array([1, 5])).to_pylist()
    [True, False, False]
    """
    if not _is_small_integer(values.type) or values.null_count == len(values):
        return pc.is_in(values, value_set=keys)
    bounds = pc.min_max(values).as_py()
    low, high = bounds["min"], bounds["max"]
    numbers = keys.to_numpy().astype(np.int64, copy=False)
    near = numbers[np.searchsorted(numbers, low) : np.searchsorted(numbers, high, side="right")]
    if not len(near):
        return pa.repeat(pa.scalar(False), len(values))
    if high - low > _MOST_PLACES:
        return pc.is_in(values, value_set=pa.array(near, values.type))
    is_key = np.zeros(high - low + 1, dtype=bool)
    is_key[near - low] = True
    found = is_key[values.fill_null(low).to_numpy().astype(np.int64, copy=False) - low]
    return pa.array(found) if not values.null_count else pc.and_(pa.array(found), values.is_valid())


def _comparable(array: pa.Array[Any]) -> pa.Array[Any]:
    """The same values in a type that Arrow's set operations know."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return hashable(array)
