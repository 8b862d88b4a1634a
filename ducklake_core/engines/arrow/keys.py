"""Sets of keys: which rows of a batch have their key among those of an upsert's source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.errors import SchemaError, UnsupportedFeatureError
from ducklake_core.format.types.arrow_types import NO_KEY_TYPES
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.arrow_cast import cast_to

_FOUND = "found"


@dataclass(frozen=True, slots=True)
class KeySet:
    """Keys as columns of the table; made by :func:`key_set`.

    Attributes:
        schema: The key columns, with the table's types.
        keys: One row per distinct key, in comparable Arrow types.
    """

    schema: Schema
    keys: pa.Table

    def contains(self, batch: pa.RecordBatch) -> pa.Array[Any]:
        """For each row of a batch that begins with the key columns, whether its key is in the set; a NULL key never is."""
        columns = [_comparable(column) for column in batch.columns[: len(self.schema)]]
        if len(columns) == 1:
            return pc.is_in(columns[0], value_set=self.keys.column(0).combine_chunks())
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
    held = cast_to(source.select([by_name[folded(column.name)] for column in schema]), schema, physical=False)
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
    return KeySet(schema, distinct.select(keys.column_names))


def _comparable(array: pa.Array[Any]) -> pa.Array[Any]:
    """The same values in a type that Arrow's set operations know."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_floating(array.type):
        # -0.0 equals 0.0 for SQL, but not for hashing.
        return pc.add(array, pa.scalar(0.0, array.type))
    if pa.types.is_decimal256(array.type):
        return array.cast(pa.string())
    return array
