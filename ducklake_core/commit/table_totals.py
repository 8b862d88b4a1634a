"""Table-wide counts and bounds, carried forward batch by batch (specification: ducklake_table_stats, ducklake_table_column_stats)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ducklake_core.catalog.changes import CatalogChange, DeleteRows, InsertRows, UpdateEach, UpdateRows
from ducklake_core.commit.column_bounds import merge_column
from ducklake_core.format.files.data_files import ColumnStatistics, WrittenFile
from ducklake_core.format.files.inlined_rows import InlinedRows
from ducklake_core.format.state import TableColumnStatistics, TableStatistics
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.schema import Schema


class TableTotals:
    """One table's statistics while a commit adds files and rows to it.

    Args:
        table_id: The real id.
        before: Its statistics at the head, None when it never had rows.
        columns: Its column statistics at the head.
        first_row_id: Where the row ids of a new table begin.
    """

    def __init__(
        self, table_id: int, before: TableStatistics | None, columns: Iterable[TableColumnStatistics], first_row_id: int = 0
    ) -> None:
        self._table_id = table_id
        self._before = before
        self._columns = {column.column_id: column for column in columns}
        self._record_count = before.record_count if before else 0
        self._next_row_id = before.next_row_id if before else first_row_id
        self._file_size_bytes = before.file_size_bytes if before else 0
        self._batches: list[dict[int, ColumnStatistics]] = []
        self._moved = False
        self._with_null: dict[int, TableColumnStatistics] = {}
        self._schema: Schema | None = None
        self._leaves: dict[int, Field] = {}
        self._lacking: set[int] = set()

    def add(self, file: WrittenFile, schema: Schema) -> int | None:
        """Count one more file in.

        Returns:
            Its first row id, None for a file that embeds its row ids. DuckDB gives such a file fresh ids; they are left out here as well,
            but not entered: DuckDB 1.5.5 drops embedded row ids when it merges files whose ``row_id_start`` follow each other.
        """
        row_id_start = self._next_row_id
        self._next_row_id += file.record_count
        self._record_count += file.record_count
        self._file_size_bytes += file.file_size_bytes
        self._count_in(file.statistics, schema)
        return None if file.row_ids_embedded else row_id_start

    def add_moved(self, file: WrittenFile) -> None:
        """Count the bytes of a file in whose rows are counted already.

        Its NULLs may not be: below lists and structs a file has them where there is no list or struct, which inlined rows have not.
        """
        self._file_size_bytes += file.file_size_bytes
        self._moved = True
        for column in file.statistics:
            known = self._columns.get(column.column_id)
            if column.null_count and known is not None and known.contains_null is False:
                self._columns[column.column_id] = self._with_null[column.column_id] = replace(known, contains_null=True)

    def add_inlined(self, rows: InlinedRows, schema: Schema, row_ids: tuple[int, ...] | None = None) -> Sequence[int]:
        """Count rows in the catalog in.

        Returns:
            Their row ids: those given, which are no new ones, or the next.
        """
        first = self._next_row_id
        self._record_count += rows.record_count
        self._count_in(rows.statistics, schema)
        if row_ids is not None:
            return row_ids
        self._next_row_id += rows.record_count
        return range(first, self._next_row_id)

    def _count_in(self, statistics: Iterable[ColumnStatistics], schema: Schema) -> None:
        if schema is not self._schema:
            leaves = {leaf.id: leaf for leaf in schema.leaves()}
            if self._schema is not None:
                # Columns may change between two files of a transaction; what rows have in columns that their file lacks is not counted.
                self._lacking |= self._leaves.keys() ^ leaves.keys()
            self._schema = schema
            self._leaves |= leaves
        self._batches.append({column.column_id: column for column in statistics})

    def changes(self) -> Iterator[CatalogChange]:
        """The statistics rows to write."""
        totals = {"record_count": self._record_count, "next_row_id": self._next_row_id, "file_size_bytes": self._file_size_bytes}
        if self._before is None:
            yield InsertRows(table="table_stats", rows=({"table_id": self._table_id, **totals},))
        elif self._batches or self._moved:
            yield UpdateRows(table="table_stats", where={"table_id": self._table_id}, values=totals)
        if self._with_null:
            rows = tuple(map(_row, self._with_null.values()))
            yield UpdateEach(table="table_column_stats", key=("table_id", "column_id"), rows=rows)
        yield from self._column_changes()

    def _column_changes(self) -> Iterator[CatalogChange]:
        inserted: list[dict[str, object]] = []
        updated: list[dict[str, object]] = []
        removed: list[int] = []
        for leaf in self._leaves.values():
            batch = [batch[leaf.id] for batch in self._batches if leaf.id in batch]
            old = self._columns.get(leaf.id)
            if old is None and (self._before is not None or leaf.id in self._lacking):
                # DuckDB never makes up a missing row, and neither do we: bounds over this batch alone would lose older rows.
                continue
            merged = merge_column(old, batch, leaf.type, self._table_id, leaf.id)
            if merged is None:
                removed.append(leaf.id)
            elif old is None:
                inserted.append(_row(merged))
            elif merged != old:
                updated.append(_row(merged))
        if removed and self._before is not None:
            yield DeleteRows(table="table_column_stats", where={"table_id": self._table_id, "column_id": tuple(removed)})
        if inserted:
            yield InsertRows(table="table_column_stats", rows=tuple(inserted))
        if updated:
            yield UpdateEach(table="table_column_stats", key=("table_id", "column_id"), rows=tuple(updated))


def _row(column: TableColumnStatistics) -> dict[str, object]:
    return {
        "table_id": column.table_id,
        "column_id": column.column_id,
        "contains_null": column.contains_null,
        "contains_nan": column.contains_nan,
        "min_value": column.min_value,
        "max_value": column.max_value,
        "extra_stats": column.extra_stats,
        "min_is_exact": column.min_is_exact,
        "max_is_exact": column.max_is_exact,
    }
