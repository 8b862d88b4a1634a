"""Bounds of columns in data files of several tables: by the files' statistics and their partition values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ducklake_core.catalog import changed_files
from ducklake_core.catalog.changed_files import Definition
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.format.expressions.value_range import ValueRange, range_of
from ducklake_core.format.files.data_files import ColumnStatistics
from ducklake_core.format.layout.partition_pruning import partition_statistics
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.schema import Schema


class FileRanges:
    """Bounds and counts of wanted columns in data files, read in two statements.

    Args:
        reader: Catalog.
        files: Rows of ``ducklake_data_file``.
        known: Definitions of their tables.
        columns: Wanted columns by table id; None for a column that does not exist.
        with_floats: Whether columns of floats have bounds too, in files that surely have no NaN.
    """

    def __init__(
        self,
        reader: CatalogReader,
        files: Sequence[Any],
        known: Mapping[int, Definition],
        columns: Mapping[int, Sequence[Field | None]],
        *,
        with_floats: bool = False,
    ) -> None:
        self._with_floats = with_floats
        self._known = known
        self._columns = columns
        in_question = [row for row in files if any(columns.get(row.table_id, ()))]
        self._values = changed_files.partition_values(reader, [row for row in in_question if row.partition_id is not None])
        wanted = {field.id for row in in_question for field in columns[row.table_id] if field is not None}
        self._bounds = changed_files.file_bounds(reader, in_question, wanted)
        self._files = {row.data_file_id: row for row in files}

    def has_columns(self, table_id: int) -> bool:
        """Whether bounds of a table's columns are wanted."""
        return bool(self._columns.get(table_id))

    def of(self, table_id: int, data_file_id: int) -> tuple[ValueRange, ...]:
        """Bounds in a file, one for each wanted column of its table; a file that is not known has none."""
        fields = self._columns.get(table_id, ())
        if not fields:
            return ()
        row = self._files.get(data_file_id)
        if row is None or not any(fields):
            return tuple(ValueRange() for _ in fields)
        by_partition = self._by_partition(row, fields)
        return tuple(self._range(row, field, by_partition) if field is not None else ValueRange() for field in fields)

    def null_counts(self, table_id: int, data_file_id: int) -> tuple[int | None, ...]:
        """NULLs in a file, one for each wanted column; None where the catalog does not say."""
        return tuple(
            None if field is None else _number(getattr(self._bounds.get((data_file_id, field.id)), "null_count", None))
            for field in self._columns.get(table_id, ())
        )

    def _range(self, row: Any, field: Field, by_partition: Mapping[int, ColumnStatistics]) -> ValueRange:
        stored = self._bounds.get((row.data_file_id, field.id))
        known = None
        if stored is not None:
            known = ColumnStatistics(
                column_id=field.id,
                column_size_bytes=0,
                value_count=_number(stored.value_count),
                null_count=_number(stored.null_count),
                min_value=stored.min_value if isinstance(stored.min_value, str) else None,
                max_value=stored.max_value if isinstance(stored.max_value, str) else None,
                contains_nan=None if stored.contains_nan is None else bool(stored.contains_nan),
            )
        sources = {"statistics": known, "partition": by_partition.get(field.id)}
        return range_of(field, sources, row.record_count, with_floats=self._with_floats)

    def _by_partition(self, row: Any, fields: Sequence[Field | None]) -> Mapping[int, ColumnStatistics]:
        spec = self._known[row.table_id].specs.get(row.partition_id) if row.partition_id is not None else None
        values = self._values.get(row.data_file_id, {})
        if spec is None or sorted(values) != list(range(len(spec.fields))):
            return {}
        texts = [values[index] for index in range(len(spec.fields))]
        if not all(text is None or isinstance(text, str) for text in texts):
            return {}
        schema = Schema(columns=tuple(field for field in fields if field is not None))
        return partition_statistics(spec, texts, schema, row.record_count)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None
