"""Streams for libraries that lack some of Arrow's types: what they have instead, or a refusal by the column's name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.types.arrow_types import ArrowType

if TYPE_CHECKING:
    from ducklake_core.engines.arrow.readable import Readable

_WIDEST = 38


def with_narrow_decimals(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """The rows with integers of 128 bits as decimals of 38 digits, which are the widest ones of DuckDB and Polars.

    Raises:
        UnsupportedFeatureError: While it is read, a value of 39 digits.
    """
    return _with_types(reader, pa.decimal128(_WIDEST, 0))


def with_integer_strings(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return the rows with 128-bit integers as strings: no other type that Arrow and DuckDB share holds 39 digits."""
    return _with_types(reader, pa.string())


def _with_types(reader: pa.RecordBatchReader, wanted: ArrowType) -> pa.RecordBatchReader:
    schema = pa.schema([field.with_type(_replaced(field.type, wanted)) for field in reader.schema], reader.schema.metadata)
    if schema.types == reader.schema.types:
        return reader

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            yield pa.RecordBatch.from_arrays(
                [_cast(column, field) for column, field in zip(batch.columns, schema, strict=True)], schema=schema
            )

    return pa.RecordBatchReader.from_batches(schema, batches())


def check_intervals(schema: pa.Schema, library: str) -> None:
    """Refuse columns of intervals, also inside others.

    Raises:
        UnsupportedFeatureError: There is one.
    """
    for field in schema:
        if _has_interval(field.type):
            message = f"column {field.name!r} has intervals, for which {library} has no type: leave the column out, or use to_arrow()"
            raise UnsupportedFeatureError(message, column=field.name)


def _has_interval(kind: ArrowType) -> bool:
    if pa.types.is_interval(kind):
        return True
    return any(_has_interval(kind.field(place).type) for place in range(kind.num_fields))


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        message = f"column {field.name!r} has integers of 39 digits, which only Arrow holds: use to_arrow()"
        raise UnsupportedFeatureError(message, column=field.name) from error


def _replaced(kind: ArrowType, wanted: ArrowType) -> ArrowType:
    """Return a type with another one in place of 128-bit integers, at any depth."""
    types = pa.types
    if types.is_decimal256(kind) and not kind.scale:
        return wanted
    if types.is_list(kind):
        return pa.list_(_replaced_field(kind.value_field, wanted))
    if types.is_struct(kind):
        return pa.struct([_replaced_field(kind.field(place), wanted) for place in range(kind.num_fields)])
    if types.is_map(kind):
        return pa.map_(_replaced_field(kind.key_field, wanted), _replaced_field(kind.item_field, wanted))
    return kind


def _replaced_field(field: pa.Field, wanted: ArrowType) -> pa.Field:
    return field.with_type(_replaced(field.type, wanted))


class NarrowStream:
    """What can be streamed again and again, with decimals of at most 38 digits."""

    def __init__(self, rows: Readable) -> None:
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A new stream of the rows."""
        return with_narrow_decimals(self._rows.to_reader()).__arrow_c_stream__(requested_schema)
