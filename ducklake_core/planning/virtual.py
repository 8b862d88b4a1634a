"""Virtual columns: what every row has although no column of the table holds it, under DuckDB's names.

A column of the table hides the virtual one of the same name.
"""

from __future__ import annotations

from ducklake_core.format.expressions import pruning
from ducklake_core.format.expressions.predicates import Predicate
from ducklake_core.format.files.data_files import ColumnStatistics, DataFile
from ducklake_core.format.types.data_types import INT64, UINT64, VARCHAR, Field
from ducklake_core.format.types.schema import Schema

# Ids of columns in a catalog are positive.
ROW_ID = Field(id=-1, name="rowid", type=INT64)
SNAPSHOT_ID = Field(id=-2, name="snapshot_id", type=INT64)
FILE_NAME = Field(id=-3, name="filename", type=VARCHAR)
FILE_ROW_NUMBER = Field(id=-4, name="file_row_number", type=INT64)
FILE_INDEX = Field(id=-5, name="file_index", type=UINT64)
VIRTUAL_SCHEMA = Schema(columns=(ROW_ID, SNAPSHOT_ID, FILE_NAME, FILE_ROW_NUMBER, FILE_INDEX))
"""All virtual columns.

``rowid``: the row's id, which survives updates and compaction. ``snapshot_id``: the snapshot that added this version of the
row. ``filename``: full path of the data file. ``file_row_number``: the row's position in it. ``file_index``: number of the
file within one scan. For an inlined row, ``filename`` is the catalog table that holds it and ``file_row_number`` its row id.
"""
VIRTUAL_COLUMNS = VIRTUAL_SCHEMA.names


def with_virtual(table: Schema) -> Schema:
    """The columns that a predicate on a table may name: its own, and the virtual ones that they do not hide."""
    return Schema(columns=(*table.columns, *(column for column in VIRTUAL_SCHEMA if table.find(column.name) is None)))


def needed_virtual(predicate: Predicate | None) -> tuple[str, ...]:
    """Names of the virtual columns that a predicate reads."""
    ids = frozenset() if predicate is None else pruning.columns(predicate)
    return tuple(column.name for column in VIRTUAL_SCHEMA if column.id in ids)


def virtual_statistics(file: DataFile) -> dict[int, ColumnStatistics]:
    """The bounds of a file's virtual columns, in the form of column statistics."""
    newest = file.begin_snapshot if file.partial_max is None else file.partial_max
    # Only files as they were first written hold no snapshot ids of their own; rewritten ones are dated anew but hold older ids.
    plain = file.partial_max is None and file.row_id_start is not None
    return {
        SNAPSHOT_ID.id: _statistics(SNAPSHOT_ID, file, low=str(newest) if plain else None, high=str(max(newest, file.begin_snapshot))),
        FILE_NAME.id: _statistics(FILE_NAME, file, low=file.path, high=file.path),
    }


def _statistics(column: Field, file: DataFile, *, low: str | None, high: str) -> ColumnStatistics:
    return ColumnStatistics(
        column_id=column.id, column_size_bytes=0, value_count=file.record_count, null_count=0, min_value=low, max_value=high
    )
