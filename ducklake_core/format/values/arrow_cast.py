"""Cast Arrow data to the exact types of a table, at every level, and reject values that a lake cannot store."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from decimal import Context, Decimal
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.errors import SchemaError, UnsupportedFeatureError
from ducklake_core.format.types.data_types import (
    DATE,
    GEOMETRY,
    INT128,
    INTEGERS,
    INTERVAL,
    JSON,
    UINT128,
    VARIANT,
    DataType,
    DecimalType,
    Field,
    ListType,
    MapType,
    PrimitiveType,
    StructType,
    children_of,
)
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import (
    HUGE_INTEGER,
    VARIANT_STORAGE,
    ArrowArray,
    ArrowField,
    ArrowType,
    Schema,
    is_list,
    to_arrow_schema,
    to_arrow_type,
)
from ducklake_core.format.types.text import shown
from ducklake_core.format.values.value_text import Interval, from_cast_text, from_text, interval_text, parse_interval
from ducklake_core.format.values.wkb import check_geometries

Data = TypeVar("Data", pa.RecordBatch, pa.Table)

_HUGE_BOUNDS = {"int128": (-(2**127), 2**127 - 1), "uint128": (0, 2**128 - 1)}
_DECIMALS: dict[int, Callable[[int, int], ArrowType]] = {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128, 256: pa.decimal256}
"""Makers of Arrow's types of decimals, by their bits."""
_HUGE_TYPES = (INT128, UINT128)
_WIDE = Context(prec=400)
_INFINITE_DATE = 2**31 - 1
_INFINITE_TIMESTAMP = 2**63 - 1

_WIDE_TYPES = Context(prec=100)
_INFINITE = 2**63 - 1
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_FIRST_NANOSECOND = -9223286400 * 10**9
_DAY_SECONDS = 86_400
_DAY_MICROSECONDS = _DAY_SECONDS * 10**6
_LONGEST_DURATION = (2**63 - 1) // 1000
_INTERVAL_PARTS = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])


def cast_to(data: Data, schema: Schema, *, physical: bool = True, exact: bool = False) -> Data:
    """Return the same rows with exactly the columns of a schema, in its order.

    Columns and struct fields are found by name without regard to case.  A column that the data lacks gets the
    column's default, or NULL.

    Args:
        data: A record batch or a table.
        schema: The columns wanted.
        physical: Whether to give the form that is written to Parquet, or the one that readers get.
        exact: Reject numbers and times that the column's type would round, and read NaN as NULL where the type has no NaN, see
            :func:`~ducklake_core.format.values.arrow_cast.fit_leaf`. Otherwise values are rounded as SQL casts round them.

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
    """Return whether :func:`cast_to` passes data of an Arrow schema on as it is, without reading its values.

    Args:
        arrow_schema: The data's schema.
        schema: The columns wanted.
        physical: As for :func:`cast_to`.
    """
    wanted = to_arrow_schema(schema, physical=physical)
    if arrow_schema.names != wanted.names or arrow_schema.types != wanted.types:
        return False
    return not any(not column.nullable or _needs_conversion(column.type, physical=physical) for column in schema)


def cast_array(array: ArrowArray, field: Field, *, physical: bool = False, exact: bool = False) -> ArrowArray:
    """Return the same values in the Arrow type of a column or nested node; children are found by name.

    Args:
        array: The values.
        field: The column or nested node; values of an expression have an empty name.
        physical: As for :func:`cast_to`.
        exact: As for :func:`cast_to`.

    Raises:
        SchemaError: A value that does not fit.
    """
    where = f"column {field.name!r}: " if field.name else ""
    details = {"column": field.name} if field.name else {}
    try:
        return _cast(array, field.type, field.name, physical=physical, exact=exact)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, ArithmeticError, ValueError) as error:
        if isinstance(error, SchemaError):
            if "column" not in error.details:
                error.message = f"{where}{error.message}"
                error.details |= details
            raise
        raise SchemaError(f"{where}{_misfit(array, field, error)}", **details) from error


_OUT_OF_RANGE = re.compile(r"Integer value (-?\d+) not in range: (-?\d+) to (-?\d+)")


def _misfit(array: ArrowArray, field: Field, error: Exception) -> str:
    """Return why values do not fit a type, where possible without the words of the library that found it."""
    if found := _OUT_OF_RANGE.search(str(error)):
        return f"{found[1]} is not a value of type {field.type}, which has values from {found[2]} to {found[3]}"
    if "UUID string" in str(error):
        return "a string is not a uuid, such as '123e4567-e89b-12d3-a456-426614174000'"
    return f"values of Arrow type {array.type} do not fit {field.type}: {error}"


def constant_array(text: str | None, field: Field, length: int, *, physical: bool = False) -> ArrowArray:
    """Return an array that repeats one value, given as the catalog's text (a default, a partition value); None is NULL.

    Args:
        text: The value as a cast text, see :func:`~ducklake_core.format.values.value_text.to_cast_text`; None is NULL.
        field: The column.
        length: Length of the array.
        physical: As for :func:`cast_to`.
    """
    arrow_type = to_arrow_type(field.type, physical=physical)
    if text is None:
        return null_array(length, arrow_type)
    if not field.is_leaf:
        raise UnsupportedFeatureError(f"column {field.name!r} of type {field.type} has a default, which is not supported for nested types")
    one = from_values([from_cast_text(text, field.type)], field.type, physical=physical)
    repeated: ArrowArray = pa.nulls(length, pa.int32()).fill_null(0)
    return pc.take(one, repeated)


def null_array(length: int, arrow_type: ArrowType) -> ArrowArray:
    """Return NULLs of a type that can be written: required children, such as a variant's metadata, have values below a NULL as well."""
    if not pa.types.is_struct(arrow_type):
        return pa.nulls(length, arrow_type)
    fields = list(arrow_type)
    children = [null_array(length, field.type) if field.nullable else pa.repeat(pa.scalar(b"", field.type), length) for field in fields]
    return pa.StructArray.from_arrays(children, fields=fields, mask=pa.repeat(pa.scalar(True), length))


def _absent(column: Field, arrow_type: ArrowType, length: int, *, physical: bool) -> ArrowArray:
    if column.default is not None and column.default_is_expression:
        raise UnsupportedFeatureError(
            f"column {column.name!r} is missing in the data and its default is the expression {column.default}. Add the column to the data",
            column=column.name,
        )
    if column.default is None and not column.nullable:
        raise SchemaError(f"column {column.name!r} is NOT NULL and has no default, but the data lacks it", column=column.name)
    if column.default is None:
        return null_array(length, arrow_type)
    return constant_array(column.default, column, length, physical=physical)


def _cast_column(column: ArrowArray, field: Field, arrow_type: ArrowType, *, physical: bool, exact: bool) -> ArrowArray:
    if column.type == arrow_type and not _needs_conversion(field.type, physical=physical):
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


def _needs_conversion(data_type: DataType, *, physical: bool) -> bool:
    """Return whether data of the type's own Arrow type may hold values that the type does not have.

    These are integers of 39 digits and, in physical form, binaries and strings that no reader could read.
    """
    checked = data_type in _HUGE_TYPES or (physical and data_type in (VARIANT, GEOMETRY, INTERVAL))
    return checked or any(_needs_conversion(child.type, physical=physical) for child in children_of(data_type))


def _cast(array: ArrowArray, data_type: DataType, path: str, *, physical: bool, exact: bool) -> ArrowArray:
    arrow_type = to_arrow_type(data_type, physical=physical)
    if array.type == arrow_type and not _needs_conversion(data_type, physical=physical):
        return array
    if pa.types.is_null(array.type):
        return null_array(len(array), arrow_type)
    if pa.types.is_dictionary(array.type):
        return _cast(decoded_dictionary(array), data_type, path, physical=physical, exact=exact)
    if pa.types.is_run_end_encoded(array.type):
        return _cast(_decoded_runs(array), data_type, path, physical=physical, exact=exact)
    match data_type:
        case StructType():
            return _cast_struct(array, data_type, arrow_type, path, physical=physical, exact=exact)
        case ListType(element=element):
            return _cast_list(array, element, arrow_type, path, physical=physical, exact=exact)
        case MapType():
            return _cast_map(array, data_type, arrow_type, path, physical=physical, exact=exact)
        case _:
            _check_container(not array.type.num_fields or data_type == VARIANT, array, data_type, path)
            cast = fit_leaf if exact else cast_leaf
            return cast(array, data_type, physical=physical)


def _cast_struct(array: ArrowArray, data_type: StructType, arrow_type: ArrowType, path: str, *, physical: bool, exact: bool) -> ArrowArray:
    _check_container(pa.types.is_struct(array.type), array, data_type, path)
    by_name = _positions([array.type.field(i).name for i in range(array.type.num_fields)], f"column {path!r}")
    children = []
    # Children of NULL structs are not values, and must not be checked.
    converts = array.null_count and _needs_conversion(data_type, physical=True)
    held = array.flatten() if converts else [array.field(i) for i in range(array.type.num_fields)]
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


def decoded_dictionary(array: ArrowArray) -> ArrowArray:
    """Return the values of a dictionary array, such as a categorical column; pyarrow decodes no views, which Polars makes."""
    views = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    values = array.dictionary
    if values.type in views:
        array = pa.DictionaryArray.from_arrays(array.indices, values.cast(views[values.type]))
    return array.dictionary_decode()


def _decoded_runs(array: ArrowArray) -> ArrowArray:
    """Return the values of a run-end encoded array; pyarrow decodes numbers only, and without regard to slices."""
    rows = np.arange(array.offset, array.offset + len(array))
    return array.values.take(pa.array(np.searchsorted(np.asarray(array.run_ends), rows, side="right")))


def list_values(array: ArrowArray) -> ArrowArray:
    """Return the elements of all lists in an array.

    pyarrow's ``flatten`` raises an error for NULL lists of structs that contain an extension type, such as UUIDs.
    """
    return array.values.slice(0, 0) if array.null_count == len(array) else array.flatten()


def list_offsets(array: ArrowArray) -> ArrowArray:
    """Return where each list begins and ends among :func:`list_values`."""
    lengths: ArrowArray = pc.list_value_length(array).fill_null(0)
    ends: ArrowArray = pc.cumulative_sum(lengths)
    return pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])


def null_mask(array: ArrowArray) -> ArrowArray | None:
    """Return which values are NULL; None if none is."""
    return array.is_null() if array.null_count else None


def map_entries(array: ArrowArray) -> ArrowArray:
    """Return maps as lists of structs, because ``keys`` and ``items`` of a slice of maps are those of the whole array."""
    return array.cast(pa.list_(pa.struct([pa.field("key", array.type.key_type), pa.field("value", array.type.item_type)])))


def _without_view(array: ArrowArray) -> ArrowArray:
    # pyarrow's own cast leaves out the last offset and gives an invalid array.
    return pa.ListArray.from_arrays(list_offsets(array), list_values(array), mask=array.is_null())


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


def cast_leaf(array: ArrowArray, data_type: DataType, *, physical: bool) -> ArrowArray:
    """Return the same values in the Arrow type of a leaf.

    Args:
        array: The values.
        data_type: The leaf type wanted.
        physical: As for :func:`cast_to`.

    Raises:
        SchemaError: A value is outside the type's range.
        pyarrow.ArrowInvalid: A value that does not fit; the caller names the column.
    """
    target = to_arrow_type(data_type, physical=physical)
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    match data_type:
        case PrimitiveType(name="null"):
            return _to_null(array)
        case PrimitiveType(name="int128" | "uint128" as name):
            return _to_huge(array, name, target)
        case PrimitiveType(name="interval"):
            return _to_interval(array, target)
        case PrimitiveType(name="variant"):
            return _to_variant(array)
        case PrimitiveType(name="geometry"):
            return _to_geometry(array)
        case PrimitiveType(name="uuid"):
            return _to_uuid(array, target)
        case PrimitiveType(name="time" | "time_ns" | "timetz") if is_text(array.type):
            # Arrow has no text for 24:00:00, and none for offsets.
            return pc.take(*_over_distinct(array, lambda text: from_text(text, data_type), target))
        case PrimitiveType(name="float32" | "float64") if pa.types.is_integer(array.type):
            return array.cast(target, safe=False)  # rounds, as in SQL
        case PrimitiveType(name="float32" | "float64") if pa.types.is_decimal(array.type):
            # Arrow's own cast of decimals to floats is not always the nearest float.
            return array.cast(pa.string()).cast(target)
        case DecimalType():
            return _to_decimal(array, data_type).cast(target)
        case PrimitiveType() if pa.types.is_temporal(target):
            return cast_temporal(array, target)
        case _:
            return array.cast(target)


def fit_leaf(array: ArrowArray, data_type: DataType, *, physical: bool) -> ArrowArray:
    """Return the same values in the Arrow type of a leaf, or an error: no value is rounded.

    NaN stands for a missing value where the type has no NaN, as pandas has no other one for numbers. A decimal and a floating-point number
    are the same value when casting one to the other and back returns it: 0.1 fits ``decimal(10,2)``, 0.125 does not.

    >>> from ducklake_core.format.types.data_types import DATE, FLOAT32, INT64
    >>> fit_leaf(pa.array([1.0, float("nan"), None]), INT64, physical=False).to_pylist()
    [1, None, None]
    >>> fit_leaf(pa.array([2**53 + 1]), PrimitiveType(name="float64"), physical=False)
    Traceback (most recent call last):
    ducklake_core.errors.SchemaError: 9007199254740993 cannot be stored exactly as float64 [schema]

    Args:
        array: The values.
        data_type: The leaf type wanted.
        physical: As for :func:`cast_to`.

    Raises:
        SchemaError: A value that the type does not have.
        pyarrow.ArrowInvalid: The same; the caller names the column.
    """
    if pa.types.is_float16(array.type):
        # Arrow has no functions of short floats; each of their values is a float32.
        array = array.cast(pa.float32())
    held = array.type
    to_float = isinstance(data_type, PrimitiveType) and data_type.name in ("float32", "float64")
    if pa.types.is_floating(held) and not to_float:
        array = pc.if_else(pc.fill_null(pc.is_nan(array), False), pa.scalar(None, held), array)
        if array.null_count == len(array):
            return pa.nulls(len(array), to_arrow_type(data_type, physical=physical))
        if isinstance(data_type, DecimalType):
            return _checked(array, _decimals_of(array, data_type), data_type)
        if data_type not in INTEGERS:
            raise SchemaError(f"{_first(array)} is a number, but the column is {data_type}")
        _check_whole(array, data_type)
        if data_type in _HUGE_TYPES:
            array = array.cast(pa.decimal256(76, 0))
    is_number = pa.types.is_integer(held) or pa.types.is_floating(held) or pa.types.is_decimal(held)
    cast = cast_leaf(array, data_type, physical=physical)
    if (to_float and is_number) or (pa.types.is_timestamp(held) and data_type == DATE):
        return _checked(array, cast, data_type)
    return cast


def _check_whole(array: ArrowArray, data_type: DataType) -> None:
    whole = pc.equal(pc.floor(array), array)
    wrong = pc.invert(pc.fill_null(pc.and_(whole, pc.is_finite(array)), True))
    if pc.any(wrong).as_py():
        raise SchemaError(f"{_first(array.filter(wrong))} is not a whole number, but the column is {data_type}")


def _decimals_of(array: ArrowArray, data_type: DecimalType) -> ArrowArray:
    """Return floating-point numbers as the nearest decimals of a type."""
    try:
        return array.cast(to_arrow_type(data_type))
    except pa.ArrowInvalid as error:
        raise SchemaError(f"a value between {pc.min(array)} and {pc.max(array)} is out of the range of {data_type}") from error


def _checked(array: ArrowArray, cast: ArrowArray, data_type: DataType) -> ArrowArray:
    """Return the cast values, once casting them back has returned every value.

    Raises:
        SchemaError: A value was rounded.
    """
    if cast.type == array.type:
        return cast
    if pa.types.is_decimal(array.type) and pa.types.is_floating(cast.type):
        # Floats of decimals beyond their digits overflow on the way back.
        back: Any = pa.array([_rounded(value, array.type.scale) for value in cast.to_pylist()], pa.decimal256(76, array.type.scale))
        same = pc.equal(back, array.cast(back.type))
    elif pa.types.is_floating(cast.type) and pa.types.is_integer(array.type):
        same = pc.equal(cast.cast(pa.float64()).cast(pa.decimal256(76, 0), safe=False), array.cast(pa.decimal256(76, 0)))
    elif pa.types.is_decimal(cast.type):
        back = cast.cast(pa.string()).cast(pa.float64())
        same = pc.equal(back.cast(array.type, safe=False), array)
    elif pa.types.is_floating(array.type) and pa.types.is_floating(cast.type):
        # 0.1 is the same number in both widths, as its digits are: languages have floats of 64 bits, whatever the column has.
        digits = pc.equal(cast.cast(pa.string()).cast(pa.float64()).cast(array.type), array)
        same = pc.or_(pc.or_(pc.equal(cast.cast(array.type), array), digits), pc.is_nan(array))
    else:
        same = pc.equal(cast.cast(array.type, safe=False), array)
    wrong = pc.invert(pc.fill_null(same, True))
    if pc.any(wrong).as_py():
        raise SchemaError(f"{_first(array.filter(wrong))} cannot be stored exactly as {data_type}")
    return cast


def _rounded(value: float | None, scale: int) -> Decimal | None:
    return None if value is None else Decimal(repr(value)).quantize(Decimal(1).scaleb(-scale), context=_WIDE)


def _first(array: ArrowArray) -> object:
    return array.drop_null()[0].as_py()


def from_values(values: Sequence[object], data_type: DataType, *, physical: bool = False) -> ArrowArray:
    """Return an array of values in their Python forms (see format/values/leaf_values.py); None is NULL.

    Args:
        values: The values; None is NULL.
        data_type: Their leaf type.
        physical: As for :func:`cast_to`.
    """
    array: ArrowArray
    match data_type:
        case PrimitiveType(name="interval"):
            strings = [None if v is None else interval_text(v) for v in values if v is None or isinstance(v, Interval)]
            array = pa.array(strings, pa.string())
        case PrimitiveType(name="uuid"):
            array = pa.array([None if v is None else uuid.UUID(str(v)).bytes for v in values], pa.binary(16))
        case PrimitiveType(name="int128" | "uint128"):
            array = pa.array([None if v is None else str(v) for v in values], pa.string())
        case PrimitiveType(name="date"):
            array = pa.array(values, pa.int32()).cast(pa.date32())
        case PrimitiveType(name=name) if name.startswith("time"):
            unit = "ns" if name.endswith("_ns") else "us"
            stored: ArrowType = pa.timestamp(unit) if name.startswith("timestamp") else pa.time64(unit)
            array = pa.array(values, pa.int64()).view(stored)
        case _:
            storage = pa.string() if data_type == JSON else to_arrow_type(data_type)
            array = pa.array(values, storage)
    return cast_leaf(array, data_type, physical=physical)


def _to_null(array: ArrowArray) -> ArrowArray:
    if array.null_count < len(array):
        raise SchemaError("a column of type null can only contain NULL")
    return pa.nulls(len(array))


def _to_decimal(array: ArrowArray, data_type: DecimalType) -> ArrowArray:
    """Return the numbers as decimals that have no more digits before the point than the type has; other values as they are."""
    if pa.types.is_integer(array.type):
        return array.cast(pa.decimal256(20 + data_type.scale, data_type.scale))
    if not pa.types.is_decimal(array.type):
        return array
    # Arrow does not see that a number leaves its 128 bits while digits are added behind the point.
    digits = max(1, data_type.precision - data_type.scale + array.type.scale)
    return array.cast(_DECIMALS[array.type.bit_width](digits, array.type.scale)) if digits < array.type.precision else array


def _to_variant(array: ArrowArray) -> ArrowArray:
    """Return the two binaries of unshredded variants, whatever their order is; a null variant is NULL."""
    arrow = array.type
    places = {arrow.field(place).name: place for place in range(arrow.num_fields)} if pa.types.is_struct(arrow) else {}
    if set(places) != {"metadata", "value"}:
        raise SchemaError(f"a variant is a struct of the binaries metadata and value, not {arrow}")
    parts = {name: array.field(place).cast(pa.binary()) for name, place in places.items()}
    # First bytes: the version of the encoding, and a null variant.
    version: ArrowArray = pc.is_in(
        pc.binary_slice(parts["metadata"], 0, 1), pa.array([bytes([16 * n + 1]) for n in range(16)], pa.binary())
    )
    is_null: ArrowArray = pc.or_kleene(array.is_null(), pc.fill_null(pc.equal(parts["value"], b"\0"), False))
    missing: ArrowArray = pc.or_(parts["value"].is_null(), pc.equal(pc.fill_null(pc.binary_length(parts["value"]), 0), 0))
    broken: ArrowArray = pc.and_(pc.invert(is_null), pc.or_(missing, pc.invert(pc.fill_null(version, False))))
    if pc.any(broken).as_py():
        raise SchemaError("a value is not a variant: its metadata is not of version 1 of the encoding, or it has no value")
    # Nothing may be NULL below a variant, NULL or not.
    plain = [pc.if_else(is_null, pa.scalar(b"", pa.binary()), parts[name]) for name in ("metadata", "value")]
    fields = [VARIANT_STORAGE.field(place) for place in range(2)]
    return pa.StructArray.from_arrays(plain, fields=fields, mask=is_null)


def _to_geometry(array: ArrowArray) -> ArrowArray:
    found = array.cast(pa.binary())
    check_geometries(found)
    return found


def is_text(arrow: ArrowType) -> bool:
    """Return whether values of an Arrow type are strings."""
    return bool(pa.types.is_string(arrow) or pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow))


def has_part(arrow: ArrowType, matches: Callable[[ArrowType], bool]) -> bool:
    """Return whether an Arrow type, or one that it is made of, matches."""
    if isinstance(arrow, pa.BaseExtensionType):
        return matches(arrow) or has_part(arrow.storage_type, matches)
    if pa.types.is_dictionary(arrow):
        return has_part(arrow.value_type, matches)
    return matches(arrow) or any(has_part(arrow.field(place).type, matches) for place in range(arrow.num_fields))


def with_parts(arrow: ArrowType, replace: Callable[[ArrowType], ArrowType]) -> ArrowType:
    """Return an Arrow type with other types in place of some, at any depth."""

    def replaced(field: ArrowField) -> ArrowField:
        return field.with_type(with_parts(field.type, replace))

    if pa.types.is_list(arrow):
        return pa.list_(replaced(arrow.value_field))
    if pa.types.is_struct(arrow):
        return pa.struct([replaced(arrow.field(place)) for place in range(arrow.num_fields)])
    if pa.types.is_map(arrow):
        return pa.map_(replaced(arrow.key_field), replaced(arrow.item_field))
    return replace(arrow)


def parts(array: ArrowArray, matches: Callable[[ArrowType], bool]) -> Iterator[ArrowArray]:
    """Yield the leaves with matching types of an array: of elements, entries, fields, dictionaries, and the storage of extension types.

    >>> [leaf.to_pylist() for leaf in parts(pa.array([{"a": ["x", None], "b": 1}, None]), is_text)]
    [['x', None]]
    """
    if isinstance(array, pa.ChunkedArray):
        for chunk in array.chunks:
            yield from parts(chunk, matches)
        return
    arrow = array.type
    if not has_part(arrow, matches):
        return
    if matches(arrow):
        yield array
    elif isinstance(arrow, pa.BaseExtensionType):
        yield from parts(array.storage, matches)
    elif pa.types.is_dictionary(arrow):
        yield from parts(array.dictionary, matches)
    elif pa.types.is_run_end_encoded(arrow):
        yield from parts(array.values, matches)
    elif pa.types.is_struct(arrow):
        for child in array.flatten():
            yield from parts(child, matches)
    else:
        yield from parts(list_values(map_entries(array) if pa.types.is_map(arrow) else array), matches)


def check_text(array: ArrowArray) -> None:
    """Raise ``ArrowInvalid`` for a string that is not UTF-8, at any depth."""
    for strings in parts(array, is_text):
        strings.validate(full=True)


def _over_distinct(array: ArrowArray, convert: Callable[[Any], object], target: ArrowType) -> tuple[ArrowArray, ArrowArray]:
    # Values repeat more often than not, and Python code is slow: it sees each distinct value once.
    encoded = (array.cast(pa.string()) if is_text(array.type) else array).dictionary_encode()
    return pa.array([convert(value.as_py()) for value in encoded.dictionary], target), encoded.indices


def _to_huge(array: ArrowArray, name: str, target: ArrowType) -> ArrowArray:
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    wide = array.cast(pa.string()).cast(HUGE_INTEGER) if is_text(array.type) else array.cast(HUGE_INTEGER)
    low, high = _HUGE_BOUNDS[name]
    bounds: Any = pc.min_max(wide).as_py()
    if bounds["min"] is not None and not low <= bounds["min"] <= bounds["max"] <= high:
        raise SchemaError(f"a value between {bounds['min']} and {bounds['max']} is out of the range of {name}")
    return wide if target == HUGE_INTEGER else wide.cast(target)


def _to_interval(array: ArrowArray, target: ArrowType) -> ArrowArray:
    as_text = pa.types.is_string(target)
    if as_text and is_text(array.type):
        return pc.take(*_over_distinct(array, lambda text: interval_text(parse_interval(text)), target))
    if pa.types.is_duration(array.type):
        array = array.cast(pa.duration("us"))
    values = (_interval_of(value, array.type) for value in array)
    plain = (None if v is None else interval_text(v) if as_text else (v.months, v.days, v.microseconds * 1000) for v in values)
    return pa.array(list(plain), target)


def _interval_of(value: Any, arrow: ArrowType) -> Interval | None:
    if not value.is_valid:
        return None
    if pa.types.is_duration(arrow):
        if abs(value.value) > _LONGEST_DURATION:
            raise SchemaError(
                f"a duration of {value.value // _DAY_MICROSECONDS:,} days is longer than 106,751 days, the longest that Arrow reads"
            )
        return Interval(months=0, days=0, microseconds=value.value)
    plain = value.as_py()
    if isinstance(plain, str):
        return parse_interval(plain)
    if isinstance(plain, bytes):  # Parquet INTERVAL: three little-endian numbers, the last in milliseconds
        months, days, milliseconds = (int.from_bytes(plain[i : i + 4], "little") for i in (0, 4, 8))
        return Interval(months=months, days=days, microseconds=milliseconds * 1000)
    microseconds, rest = divmod(plain.nanoseconds, 1000)
    if rest:
        raise SchemaError(f"interval {plain} has nanoseconds; DuckLake keeps microseconds")
    return Interval(months=plain.months, days=plain.days, microseconds=microseconds)


def _to_uuid(array: ArrowArray, target: ArrowType) -> ArrowArray:
    if is_text(array.type):
        array = pc.take(*_over_distinct(array, lambda text: uuid.UUID(text).bytes, pa.binary(16)))
    return array.cast(pa.binary(16)).cast(target)


def cast_temporal(array: ArrowArray, target: ArrowType) -> ArrowArray:
    """Return dates, times and timestamps in another unit; what does not fit is an error, and infinities stay what they are.

    >>> cast_temporal(pa.array([1, 2**63 - 1]).view(pa.timestamp("s")), pa.timestamp("us")).view(pa.int64()).to_pylist()
    [1000000, 9223372036854775807]

    Raises:
        pyarrow.ArrowInvalid: A value that does not fit.
    """
    if not pa.types.is_timestamp(target) or not (pa.types.is_timestamp(array.type) or pa.types.is_date32(array.type)):
        return array.cast(target)
    infinite = _infinities(array)
    if not pc.any(infinite).as_py():
        return array.cast(target)
    # Infinite dates and timestamps are extreme integers in every unit, so they must not be scaled.
    finite = pc.if_else(infinite, pa.scalar(None, array.type), array).cast(target)
    positive: ArrowArray = pc.greater(array.cast(pa.int32() if pa.types.is_date(array.type) else pa.int64()), pa.scalar(0))
    extremes: ArrowArray = pc.if_else(positive, pa.scalar(_INFINITE_TIMESTAMP), pa.scalar(-_INFINITE_TIMESTAMP)).cast(target)
    return pc.if_else(infinite, extremes, finite)


def _infinities(array: ArrowArray) -> ArrowArray:
    extreme = _INFINITE_DATE if pa.types.is_date(array.type) else _INFINITE_TIMESTAMP
    numbers: ArrowArray = array.cast(pa.int32() if pa.types.is_date(array.type) else pa.int64())
    return pc.fill_null(pc.equal(pc.abs(numbers), pa.scalar(extreme, numbers.type)), pa.scalar(False))


_FIRST_SECOND, _LAST_MICROSECOND = -9223372022400, 2**63 - 2


def check_values(array: ArrowArray, path: str) -> None:
    """Raise for a value that cannot be stored.

    >>> check_values(pa.array([86_400_000_000], pa.int64()).view(pa.time64("us")), "t")
    >>> check_values(pa.array([90_000_000_000], pa.int64()).view(pa.time64("us")), "t")
    Traceback (most recent call last):
    ducklake_core.errors.SchemaError: column 't': a time of 90000000000 us is not between 00:00:00 and 24:00:00 [schema]

    Args:
        array: The values of a column, or of a node below it, in an Arrow type that a column has.
        path: Name of the column, and of the fields down to the node.

    Raises:
        SchemaError: A time that is not within a day, a date or timestamp outside of DuckDB's range, a decimal with more digits than its
            type has, or a map with NULL as a key or with a key twice. The message names the column and the value.
    """
    if isinstance(array, pa.ChunkedArray):
        for chunk in array.chunks:
            check_values(chunk, path)
        return
    arrow = array.type
    if isinstance(arrow, pa.BaseExtensionType) or not len(array):
        return
    if pa.types.is_time(arrow):
        limit = _DAY_SECONDS * _UNITS[arrow.unit]
        name = f"a time of {{}} {arrow.unit} is not between 00:00:00 and 24:00:00"
        _check_range(_integers(array), 0, limit, path, name)
    elif pa.types.is_date32(arrow):
        _check_range(_integers(array), -(2**31) + 1, 2**31 - 1, path, "a date {} days after 1970-01-01 is out of range")
    elif pa.types.is_timestamp(arrow):
        unit = _UNITS[arrow.unit]
        first = _FIRST_NANOSECOND if arrow.unit == "ns" else _FIRST_SECOND * unit
        last = _LAST_MICROSECOND if arrow.unit == "ns" else _LAST_MICROSECOND * unit // 10**6
        name = f"a timestamp {{}} {arrow.unit} after 1970-01-01 is out of range"
        _check_range(_integers(array), first, last, path, name, infinite=True)
    elif pa.types.is_interval(arrow):
        known = array.drop_null()
        parts_of = np.frombuffer(known.buffers()[1], _INTERVAL_PARTS, len(known), known.offset * _INTERVAL_PARTS.itemsize)
        if np.any(parts_of["nanoseconds"] % 1000):
            raise SchemaError(f"column {path!r}: an interval has nanoseconds, but DuckLake keeps microseconds", column=path)
    elif pa.types.is_decimal(arrow):
        most = Decimal(10**arrow.precision - 1).scaleb(-arrow.scale, _WIDE_TYPES)
        _check_range(array, -most, most, path, f"{{}} has more digits than decimal({arrow.precision},{arrow.scale})")
    elif pa.types.is_nested(arrow):
        _check_nested(array, path)


def _integers(array: ArrowArray) -> ArrowArray:
    return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())


def _check_range(values: ArrowArray, first: Any, last: Any, path: str, message: str, *, infinite: bool = False) -> None:
    bounds: Any = pc.min_max(values).as_py()
    low, high = bounds["min"], bounds["max"]
    if low is None or (low >= first and high <= last):
        return
    if infinite:
        values = values.filter(pc.invert(pc.is_in(values, pa.array([-_INFINITE, _INFINITE], values.type))))
        bounds = pc.min_max(values).as_py()
        low, high = bounds["min"], bounds["max"]
        if low is None or (low >= first and high <= last):
            return
    raise SchemaError(f"column {path!r}: {message.format(low if low < first else high)}", column=path)


def _check_nested(array: ArrowArray, path: str) -> None:
    arrow = array.type
    if pa.types.is_map(arrow):
        _check_keys(array, path)
        entries = list_values(map_entries(array))
        check_values(entries.field(0), f"{path}.key")
        check_values(entries.field(1), f"{path}.value")
    elif pa.types.is_struct(arrow):
        # Children of NULL structs are not values.
        for field, child in zip(arrow, array.flatten(), strict=True):
            if _is_checked(field.type):
                check_values(child, f"{path}.{field.name}")
    elif is_list(arrow) and _is_checked(arrow.value_type):
        check_values(list_values(array), f"{path}.element")


def _is_checked(arrow: pa.DataType) -> bool:
    """Return whether values of a type may be out of range."""
    if pa.types.is_nested(arrow):
        return True
    return bool(pa.types.is_temporal(arrow) or pa.types.is_decimal(arrow))


def _check_keys(array: ArrowArray, path: str) -> None:
    """Raise for a map with NULL as a key, or with one key twice."""
    plain = map_entries(array)
    keys = list_values(plain).field(0)
    if keys.null_count:
        raise SchemaError(f"column {path!r} has a map with a NULL key", column=path)
    if len(keys) < 2 or pa.types.is_nested(keys.type):
        return
    if isinstance(keys, pa.ExtensionArray):
        keys = keys.storage
    if pa.types.is_decimal256(keys.type):
        keys = keys.cast(pa.string())
    rows = pa.table({"row": pc.list_parent_indices(plain), "key": keys})
    counts = rows.group_by(["row", "key"]).aggregate([([], "count_all")])
    if len(counts) < len(rows):
        (twice,) = counts.filter(pc.greater(counts.column("count_all"), 1)).slice(0, 1).column("key").to_pylist()
        raise SchemaError(f"column {path!r} has a map with the key {shown(twice)} twice", column=path)
