"""From what a Parquet file holds to what the table's column is: match nodes by field id, fill in, cast.

Old files keep the types and the nodes that the table had when they were written, and DuckDB stores some types in
forms of its own (interval in 12 bytes, int128 as DOUBLE), so every node is brought to the logical Arrow type by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.engines.arrow.rounding import from_file
from ducklake_core.engines.arrow.variant import reassemble
from ducklake_core.errors import SchemaError, UnsupportedFeatureError
from ducklake_core.format.types.arrow_types import FIELD_ID_KEY, is_list, to_arrow_field, to_arrow_type
from ducklake_core.format.types.data_types import VARIANT, Field, ListType, MapType, PrimitiveType, StructType
from ducklake_core.format.values.arrow_cast import constant_array


def field_id(field: pa.Field[Any]) -> int | None:
    """The field id of a file's node, None when it has none."""
    text = (field.metadata or {}).get(FIELD_ID_KEY)
    return int(text) if text is not None and int(text) >= 0 else None


def conform(array: pa.Array[Any], source: pa.Field[Any], target: Field) -> pa.Array[Any]:
    """Values of a file's column as the logical Arrow type of the table's column.

    Args:
        array: The values.
        source: The file's field, with the table's ids on everything below it that is a column of the table (engines/arrow/columns.py).
        target: The table's column.

    Raises:
        SchemaError: A value cannot be cast to the column's type.
        UnsupportedFeatureError: The keys of a map carry no id.
    """
    if same_shape(source, target) and array.type.equals(source.type, check_metadata=True):
        return array
    if pa.types.is_dictionary(array.type) or pa.types.is_run_end_encoded(array.type):
        array = pc.cast(array, array.type.value_type)
    match target.type:
        case PrimitiveType(name="variant"):
            return reassemble(array)
        case StructType() if pa.types.is_struct(array.type):
            return _struct(array, source, target)
        case MapType() if pa.types.is_map(array.type):
            return _map(array, source, target)
        case ListType() if is_list(array.type):
            return _list(array, source, target)
        case StructType() | MapType() | ListType():
            raise SchemaError(f"column {target.name!r} is {target.type}, but a file holds {array.type}", column=target.name)
        case _:
            return from_file(array, target)


def same_shape(source: pa.Field[Any], target: Field) -> bool:
    """Whether a file's node is the table's node, unchanged: same type, and below it the same ids in the same order."""
    if any(node.type == VARIANT for node in target.walk()):
        return False
    wanted = to_arrow_field(target)
    # Arrow's equality of types covers names and metadata of children, and so their field ids.
    return bool(source.type.equals(wanted.type, check_metadata=True)) and not pa.types.is_dictionary(source.type)


def constant(target: Field, length: int) -> pa.Array[Any]:
    """The column of rows that are older than it: its initial default, or NULL."""
    return constant_array(target.initial_default, target, length)


def _children(fields: list[pa.Field[Any]], arrays: list[pa.Array[Any]], targets: tuple[Field, ...], length: int) -> list[pa.Array[Any]]:
    # A node without an id below a file's column is no column of the table: DuckDB gives NULL for it as well.
    by_id = {field_id(field): index for index, field in reversed(list(enumerate(fields)))}
    found = [(target, by_id.get(target.id)) for target in targets]
    return [constant(target, length) if index is None else conform(arrays[index], fields[index], target) for target, index in found]


def _struct(array: pa.Array[Any], source: pa.Field[Any], target: Field) -> pa.Array[Any]:
    fields = [source.type.field(i) for i in range(source.type.num_fields)]
    arrays = [array.field(i) for i in range(array.type.num_fields)]
    children = _children(fields, arrays, target.children, len(array))
    wanted = to_arrow_type(target.type)
    return pa.StructArray.from_arrays(children, fields=[wanted.field(i) for i in range(wanted.num_fields)], mask=_null_mask(array))


def _list(array: pa.Array[Any], source: pa.Field[Any], target: Field) -> pa.Array[Any]:
    element = source.type.value_field
    values_ = array.flatten()
    (child,) = _children([element], [values_], target.children, len(values_))
    return pa.ListArray.from_arrays(_offsets(array), child, type=to_arrow_type(target.type), mask=_null_mask(array))


def _map(array: pa.Array[Any], source: pa.Field[Any], target: Field) -> pa.Array[Any]:
    key, item = source.type.key_field, source.type.item_field
    if target.children[0].id not in (field_id(key), field_id(item)):
        raise UnsupportedFeatureError(f"the keys of the map {target.name!r} carry no field id, so they cannot be found", column=target.name)
    # Arrow's map arrays forget their slice in keys and items; as a list of structs they do not.
    entries = array.cast(pa.list_(pa.struct([pa.field("key", array.type.key_type), pa.field("value", array.type.item_type)])))
    pairs = entries.flatten()
    keys, items = _children([key, item], [pairs.field(0), pairs.field(1)], target.children, len(pairs))
    return pa.MapArray.from_arrays(_offsets(entries), keys, items, type=to_arrow_type(target.type), mask=_null_mask(array))


def _offsets(array: pa.Array[Any]) -> pa.Array[Any]:
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())


def _null_mask(array: pa.Array[Any]) -> pa.Array[Any] | None:
    return pc.is_null(array) if array.null_count else None
