"""The leaf values of Arrow columns, in the order of Parquet's leaf columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ducklake_core.format.types.data_types import Field, ListType, MapType, StructType


def leaf_arrays(array: pa.Array, field: Field) -> Iterator[tuple[Field, pa.Array]]:
    """Every leaf of a column with the values that are really there: nothing below NULL or empty parents.

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
            yield from leaf_arrays(array.flatten(), element)
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
    """Every leaf of a column with its dotted path in a Parquet schema.

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
