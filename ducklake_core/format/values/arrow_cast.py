"""Bringing Arrow data to the exact Arrow types of a table: by name, at every level, without losing a value.

The writer casts to the physical form, readers cast what is in a file to the logical form (see format/types/arrow_types.py).
Columns that have the right type already are passed on without a copy.
"""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.errors import SchemaError, UnsupportedFeatureError
from ducklake_core.format.types.arrow_types import ArrowArray, ArrowType, is_list, to_arrow_schema, to_arrow_type
from ducklake_core.format.types.data_types import (
    GEOMETRY,
    INT128,
    INTERVAL,
    UINT128,
    VARIANT,
    DataType,
    Field,
    ListType,
    MapType,
    StructType,
    children_of,
)
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values import leaf_cast
from ducklake_core.format.values.value_text import from_cast_text

Data = TypeVar("Data", pa.RecordBatch, pa.Table)


def cast_to(data: Data, schema: Schema, *, physical: bool = True, exact: bool = False) -> Data:
    """The same rows with exactly the columns of a schema, in its order.

    Columns and struct fields are found by name without regard to case.  A column that the data lacks gets the
    column's default, or NULL.

    Args:
        data: A record batch or a table.
        schema: The columns wanted.
        physical: Whether to give the form that is written to Parquet, or the one that readers get.
        exact: Reject numbers and times that the column's type would round, and read NaN as NULL where the type has no NaN, see
            :func:`~ducklake_core.format.values.leaf_cast.fit_leaf`. Otherwise values are rounded as SQL casts round them.

    Raises:
        SchemaError: A column that the schema does not have, a value that does not fit its type, or NULL (also by
            absence) in a NOT NULL column.
        UnsupportedFeatureError: A missing column whose default is an expression.
    """
    by_name = _positions(data.schema.names, "the data")
    arrow_schema = to_arrow_schema(schema, physical=physical)
    columns: list[ArrowArray] = []
    for column, arrow_field in zip(schema, arrow_schema, strict=True):
        position = by_name.pop(folded(column.name), None)
        if position is None:
            columns.append(_absent(column, arrow_field.type, data.num_rows, physical=physical))
            continue
        cast = _cast_column(data.column(position), column, arrow_field.type, physical=physical, exact=exact)
        if not column.nullable and cast.null_count:
            raise SchemaError(f"column {column.name!r} is NOT NULL, but the data has NULL in it", column=column.name)
        columns.append(cast)
    if by_name:
        names = [data.schema.names[position] for position in by_name.values()]
        raise SchemaError(f"the data has columns {names} that the table does not have: {list(schema.names)}", columns=names)
    return type(data).from_arrays(columns, schema=arrow_schema)


def is_exact(arrow_schema: pa.Schema, schema: Schema, *, physical: bool = True) -> bool:
    """Whether :func:`cast_to` passes data of an Arrow schema on as it is, without a look at its values."""
    wanted = to_arrow_schema(schema, physical=physical)
    if arrow_schema.names != wanted.names or arrow_schema.types != wanted.types:
        return False
    return not any(not column.nullable or (physical and _is_looked_at(column.type)) for column in schema)


def cast_array(array: ArrowArray, field: Field, *, physical: bool = False, exact: bool = False) -> ArrowArray:
    """The same values in the Arrow type of a column or nested node; children are found by name.

    Args:
        array: The values.
        field: The column or nested node.
        physical: As for :func:`cast_to`.
        exact: As for :func:`cast_to`.

    Raises:
        SchemaError: A value that does not fit.
    """
    try:
        return _cast(array, field.type, field.name, physical=physical, exact=exact)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, ArithmeticError, ValueError) as error:
        if isinstance(error, SchemaError):
            if "column" not in error.details:
                error.message = f"column {field.name!r}: {error.message}"
                error.details["column"] = field.name
            raise
        message = f"column {field.name!r}: values of Arrow type {array.type} do not fit {field.type}: {error}"
        raise SchemaError(message, column=field.name) from error


def constant_array(text: str | None, field: Field, length: int, *, physical: bool = False) -> ArrowArray:
    """An array that repeats one value, given as the catalog's text (a default, a partition value); None is NULL."""
    arrow_type = to_arrow_type(field.type, physical=physical)
    if text is None:
        return null_array(length, arrow_type)
    if not field.is_leaf:
        raise UnsupportedFeatureError(f"column {field.name!r} of type {field.type} has a default, which is not supported for nested types")
    one = leaf_cast.from_values([from_cast_text(text, field.type)], field.type, physical=physical)
    repeated: ArrowArray = pa.nulls(length, pa.int32()).fill_null(0)
    return pc.take(one, repeated)


def null_array(length: int, arrow_type: ArrowType) -> ArrowArray:
    """NULLs of a type that can be written: parts that must not be NULL, such as a variant's metadata, are not, below a NULL either."""
    if not pa.types.is_struct(arrow_type):
        return pa.nulls(length, arrow_type)
    fields = list(arrow_type)
    children = [null_array(length, field.type) if field.nullable else pa.repeat(pa.scalar(b"", field.type), length) for field in fields]
    return pa.StructArray.from_arrays(children, fields=fields, mask=pa.repeat(pa.scalar(True), length))


def _absent(column: Field, arrow_type: ArrowType, length: int, *, physical: bool) -> ArrowArray:
    if column.default is not None and column.default_is_expression:
        raise UnsupportedFeatureError(
            f"column {column.name!r} is missing in the data and its default is the expression {column.default}; give the column a value",
            column=column.name,
        )
    if column.default is None and not column.nullable:
        raise SchemaError(f"column {column.name!r} is NOT NULL and has no default, but the data lacks it", column=column.name)
    if column.default is None:
        return null_array(length, arrow_type)
    return constant_array(column.default, column, length, physical=physical)


def _cast_column(column: ArrowArray, field: Field, arrow_type: ArrowType, *, physical: bool, exact: bool) -> ArrowArray:
    if column.type == arrow_type and not (physical and _is_looked_at(field.type)):
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([cast_array(chunk, field, physical=physical, exact=exact) for chunk in column.chunks], arrow_type)
    return cast_array(column, field, physical=physical, exact=exact)


def _positions(names: list[str], where: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for position, name in enumerate(names):
        if found.setdefault(folded(name), position) != position:
            raise SchemaError(f"{where} has two columns called {name!r}: names are compared without regard to case", column=name)
    return found


def _is_looked_at(data_type: DataType) -> bool:
    """Whether there are binaries or texts that nobody could read if they were not what the type says."""
    return data_type in (VARIANT, GEOMETRY, INT128, UINT128, INTERVAL) or any(_is_looked_at(child.type) for child in children_of(data_type))


def _cast(array: ArrowArray, data_type: DataType, path: str, *, physical: bool, exact: bool) -> ArrowArray:
    arrow_type = to_arrow_type(data_type, physical=physical)
    if array.type == arrow_type and not (physical and _is_looked_at(data_type)):
        return array
    if pa.types.is_null(array.type):
        return null_array(len(array), arrow_type)
    if pa.types.is_dictionary(array.type):
        return _cast(array.dictionary_decode(), data_type, path, physical=physical, exact=exact)
    if pa.types.is_run_end_encoded(array.type):
        return _cast(array.cast(array.type.value_type), data_type, path, physical=physical, exact=exact)
    match data_type:
        case StructType():
            return _cast_struct(array, data_type, arrow_type, path, physical=physical, exact=exact)
        case ListType(element=element):
            return _cast_list(array, element, arrow_type, path, physical=physical, exact=exact)
        case MapType():
            return _cast_map(array, data_type, arrow_type, path, physical=physical, exact=exact)
        case _:
            _check_container(not array.type.num_fields or data_type == VARIANT, array, data_type, path)
            cast = leaf_cast.fit_leaf if exact else leaf_cast.cast_leaf
            return cast(array, data_type, physical=physical)


def _cast_struct(array: ArrowArray, data_type: StructType, arrow_type: ArrowType, path: str, *, physical: bool, exact: bool) -> ArrowArray:
    _check_container(pa.types.is_struct(array.type), array, data_type, path)
    by_name = _positions([array.type.field(i).name for i in range(array.type.num_fields)], f"column {path!r}")
    children = []
    # What stands below NULL structs is no value: it must not be looked at.
    held = array.flatten() if array.null_count and _is_looked_at(data_type) else [array.field(i) for i in range(array.type.num_fields)]
    for field in data_type.fields:
        position = by_name.pop(folded(field.name), None)
        if position is None:
            children.append(null_array(len(array), to_arrow_type(field.type, physical=physical)))
        else:
            children.append(_cast(held[position], field.type, f"{path}.{field.name}", physical=physical, exact=exact))
    if by_name:
        names = [f"{path}.{array.type.field(position).name}" for position in by_name.values()]
        raise SchemaError(f"the data has fields {names} that the table does not have", columns=names)
    fields = [arrow_type.field(i) for i in range(arrow_type.num_fields)]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _cast_list(array: ArrowArray, element: Field, arrow_type: ArrowType, path: str, *, physical: bool, exact: bool) -> ArrowArray:
    _check_container(is_list(array.type), array, ListType(element=element), path)
    if pa.types.is_list_view(array.type) or pa.types.is_large_list_view(array.type):
        array = _without_view(array)
    elif pa.types.is_large_list(array.type):
        # pyarrow's own cast gives an invalid array where the values are of an extension type.
        array = pa.ListArray.from_arrays(array.offsets.cast(pa.int32()), array.values, mask=array.is_null())
    elif not pa.types.is_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    array = _compact(array, len(array.values))
    values = _cast(array.values, element.type, f"{path}.element", physical=physical, exact=exact)
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(arrow_type, len(array), [validity, offsets], array.null_count, 0, [values])


def _without_view(array: ArrowArray) -> ArrowArray:
    # pyarrow's own cast leaves out the last offset and gives an invalid array.
    lengths: ArrowArray = pc.list_value_length(array).fill_null(0)
    ends: ArrowArray = pc.cumulative_sum(lengths)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])
    return pa.ListArray.from_arrays(offsets, array.flatten(), mask=array.is_null())


def _cast_map(array: ArrowArray, data_type: MapType, arrow_type: ArrowType, path: str, *, physical: bool, exact: bool) -> ArrowArray:
    _check_container(pa.types.is_map(array.type), array, data_type, path)
    array = _compact(array, len(array.keys))
    keys = _cast(array.keys, data_type.key.type, f"{path}.key", physical=physical, exact=exact)
    if keys.null_count:
        raise SchemaError(f"column {path!r} has a map with a NULL key", column=path)
    items = _cast(array.items, data_type.value.type, f"{path}.value", physical=physical, exact=exact)
    entries = pa.StructArray.from_arrays([keys, items], fields=[arrow_type.key_field, arrow_type.item_field])
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(arrow_type, len(array), [validity, offsets], array.null_count, 0, [entries])


def _compact(array: ArrowArray, values: int) -> ArrowArray:
    # A slice shares the values of the whole array: without this, casting slice after slice casts all of them each time, and values
    # of other rows that do not fit would be found in it.
    return pa.concat_arrays([array]) if array.offset or not len(array) or array.offsets[-1].as_py() != values else array


def _check_container(fits: bool, array: ArrowArray, data_type: DataType, path: str) -> None:
    if not fits:
        raise SchemaError(f"column {path!r} has type {data_type}, but the data has Arrow type {array.type}", column=path)
