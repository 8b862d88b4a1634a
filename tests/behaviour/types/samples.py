"""One wide row set with every leaf type, as a column of its own and inside lists, maps and structs, and its values as strings."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.format.types.data_types import (
    BLOB,
    INT128,
    INTERVAL,
    TIME_NS,
    UINT128,
    VARCHAR,
    DataType,
    Field,
    ListType,
    MapType,
    StructType,
)
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.leaf_values import python_values, to_cast_text
from tests.unit.format.samples import SAMPLES, SQL_TYPES, in_files_of_duckdb

TYPES: dict[DataType, str] = {**SQL_TYPES, TIME_NS: "TIME_NS"}
FILE_TYPES = tuple(SQL_TYPES)
"""DuckDB cannot write TIME_NS to a file."""

LOSSY_IN_FILES = (INT128, UINT128)
"""DuckDB writes these as DOUBLE, and cannot read the largest of them again."""

_MORE: dict[DataType, list[str]] = {
    VARCHAR: ["a,b", "[x]", "{'a': 1}", "back\\slash", "it's", "a\nb", "NULL", "x" * 300, " lead", "(p)", "k=v"],
    BLOB: ["\\x00\\x01,"],
    TIME_NS: ["00:00:00.000000001", "10:00:00.123456789", "24:00:00"],
}


def strings_of(data_type: DataType, *, in_file: bool) -> list[str]:
    """The samples of a type."""
    if in_file and data_type in LOSSY_IN_FILES:
        return ["0", "10", "12345678901234567", "123456789012345678901", "1" + "0" * 37 + "1"]
    if in_file and data_type == INTERVAL:
        # In files of DuckDB they are unsigned, and end at milliseconds.
        return ["00:00:00", "400 days", "1000:00:00.001", "3 years 2 months 1 day 03:00:00.5"]
    plain = [] if data_type == TIME_NS else in_files_of_duckdb(data_type) if in_file else SAMPLES[data_type]
    return [*plain, *_MORE.get(data_type, ())]


def constant(text: str | None, sql: str) -> str:
    """A sample as SQL."""
    return f"NULL::{sql}" if text is None else f"'{text.replace(chr(39), chr(39) * 2)}'::{sql}"


def rows_of(columns: list[list[str]]) -> str:
    """SQL of the rows, short columns filled up with NULL; the last row is NULL throughout."""
    length = 1 + max(len(column) for column in columns)
    return ", ".join(f"({', '.join(column[i] if i < len(column) else 'NULL' for column in columns)})" for i in range(length))


def strings(array: Any, field: Field) -> list[Any]:
    """The values of an Arrow column as strings of their leaves, in lists, pairs and dicts."""
    if isinstance(array, pa.ChunkedArray):
        return [text for chunk in array.chunks for text in strings(chunk, field)]
    match field.type:
        case ListType(element=element):
            items = iter(strings(array.flatten(), element))
            return [None if n is None else [next(items) for _ in range(n)] for n in _lengths(array)]
        case MapType(key=key, value=value):
            entries = array.cast(pa.list_(pa.struct([pa.field("key", array.type.key_type), pa.field("value", array.type.item_type)])))
            pairs = entries.flatten()
            items = iter(zip(strings(pairs.field(0), key), strings(pairs.field(1), value), strict=True))
            return [None if n is None else [next(items) for _ in range(n)] for n in _lengths(entries)]
        case StructType(fields=fields):
            children = [strings(array.field(i), child) for i, child in enumerate(fields)]
            there = array.is_valid().to_pylist()
            rows = zip(*children, strict=True)
            return [
                dict(zip((child.name for child in fields), row, strict=True)) if valid else None
                for row, valid in zip(rows, there, strict=True)
            ]
        case leaf:
            return [None if value is None else to_cast_text(value, leaf) for value in python_values(array, leaf)]


def _lengths(array: Any) -> list[int | None]:
    return list(pc.list_value_length(array).to_pylist())


def table_strings(table: pa.Table, schema: Schema) -> dict[str, list[Any]]:
    """All columns of a table as strings, by name."""
    return {column.name: strings(table.column(column.name), column) for column in schema}
