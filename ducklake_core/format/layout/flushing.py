"""Decide whether DuckDB can flush inlined rows: it must find the deleted ones again in the files that it writes.

DuckDB writes all versions of inlined rows to files, sorted and split as the table's keys require, and then queries the catalog's database
for the positions of the deleted ones. That database compares what it stores: numbers as text, text as bytes. If the
order differs there, or nothing is found, DuckDB deletes the wrong rows, or none.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.files.inlined_rows import InlinedRows
from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.layout.sorting import SortKey, sort_orders
from ducklake_core.format.types.data_types import DataType, PrimitiveType
from ducklake_core.format.types.schema import Schema

_PLAIN = frozenset(string.ascii_letters + string.digits + string.punctuation + " ") - frozenset("'\"\\")
"""Characters that are the same in text and in DuckDB's text of bytes."""

_DAYS = (-719_162, 2_932_896)
"""The years 1 to 9999, whose strings sort as they do."""
_MICROSECONDS_OF_A_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushRule:
    """Decide whether DuckDB's flush of a table succeeds, by the columns that it reads and by how the catalog stores them.

    Attributes:
        sorted_by: Names of the columns that the table is sorted by; None for any other expression.
        sorting_types: Types whose stored form sorts as their values do; dates and times of day apart.
        text_as_bytes: Whether text is kept as bytes.
    """

    sorted_by: tuple[str | None, ...]
    sorting_types: frozenset[str]
    text_as_bytes: bool

    def allows(self, rows: InlinedRows, schema: Schema, spec: PartitionSpec | None) -> bool:
        """Return whether DuckDB can flush the rows, should some of them be deleted."""
        # Two ways for DuckDB to delete the wrong rows: it finds a partition by the string of its key, where the database stores bytes,
        # or it counts positions in an order that the database does not have.
        columns = {column.name: (column.type, values) for column, values in zip(schema, rows.columns, strict=True)}
        if self.text_as_bytes and spec is not None:
            names = {column.id: column.name for column in schema}
            if not all(_is_found(*columns[names[field.column_id]]) for field in spec.fields if field.column_id in names):
                return False
        return all(name is not None and self._sorts(*columns[name]) for name in self.sorted_by)

    def _sorts(self, data_type: DataType, values: Sequence[object]) -> bool:
        kind = data_type.name if isinstance(data_type, PrimitiveType) else "decimal"
        match kind:
            case "timestamp_ns":
                return True
            case "date":
                return _within(values, _DAYS)
            case "timestamp" | "timestamp_s" | "timestamp_ms" | "timestamptz":
                first, last = _DAYS
                return _within(values, (first * _MICROSECONDS_OF_A_DAY, (last + 1) * _MICROSECONDS_OF_A_DAY - 1))
            case _:
                return kind in self.sorting_types


def flush_rule(keys: Sequence[SortKey], schema: Schema, *, sorting_types: frozenset[str], text_as_bytes: bool) -> FlushRule:
    """Return the rule for a table with these sort keys.

    Args:
        keys: Sort keys of the table.
        schema: Its columns.
        sorting_types: Names of the types whose stored form sorts as their values do.
        text_as_bytes: Whether the catalog's database stores strings as bytes.
    """

    def column(key: SortKey) -> str | None:
        try:
            return sort_orders([key], schema, "")[0].column
        except UnsupportedFeatureError:
            return None

    return FlushRule(sorted_by=tuple(column(key) for key in keys), sorting_types=sorting_types, text_as_bytes=text_as_bytes)


def _is_found(data_type: DataType, values: Sequence[object]) -> bool:
    """Return whether a partition is found by a key of these values."""
    kinds: dict[str, Callable[[object], bool]] = {
        "varchar": lambda value: _PLAIN.issuperset(str(value)),
        "blob": lambda value: isinstance(value, bytes) and _PLAIN.issuperset(value.decode("latin-1")),
        "json": lambda _value: False,
    }
    is_plain = kinds.get(data_type.name) if isinstance(data_type, PrimitiveType) else None
    return is_plain is None or all(value is None or is_plain(value) for value in values)


def _within(values: Sequence[object], limits: tuple[int, int]) -> bool:
    return all(value is None or (isinstance(value, int) and limits[0] <= value <= limits[1]) for value in values)
