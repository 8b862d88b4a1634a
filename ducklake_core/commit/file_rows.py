"""Catalog rows of files (specification: ducklake_data_file, ducklake_file_column_stats, ducklake_delete_file)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ducklake_core.commit.actions import StagedDeleteFile
from ducklake_core.commit.moved_rows import CumulativeDeletes
from ducklake_core.format.files.added_files import mapping_rows
from ducklake_core.format.files.data_files import WrittenFile
from ducklake_core.format.files.encryption_key import EncryptionKey
from ducklake_core.format.files.name_mapping import MappedColumn
from ducklake_core.format.files.variant_statistics import path_text, read_field_statistics


def data_file_row(
    file: WrittenFile,
    file_id: int,
    table_id: int,
    begin_snapshot: int,
    *,
    row_id_start: int | None,
    partition_id: int | None,
    partial_max: int | None = None,
    mapping_id: int | None = None,
    path_is_relative: bool = True,
) -> dict[str, object]:
    """The row of a data file."""
    return {
        "data_file_id": file_id,
        "table_id": table_id,
        "begin_snapshot": begin_snapshot,
        "end_snapshot": None,
        "file_order": None,
        "path": file.path,
        "path_is_relative": path_is_relative,
        "file_format": "parquet",
        "record_count": file.record_count,
        "file_size_bytes": file.file_size_bytes,
        "footer_size": file.footer_size,
        "row_id_start": row_id_start,
        "partition_id": partition_id,
        "encryption_key": _key_text(file.encryption_key),
        "mapping_id": mapping_id,
        "partial_max": partial_max,
        "row_group_count": file.row_group_count,
    }


def statistics_rows(file: WrittenFile, file_id: int, table_id: int) -> list[dict[str, object]]:
    """The statistics rows of a data file, one per leaf column."""
    return [
        {
            "data_file_id": file_id,
            "table_id": table_id,
            "column_id": column.column_id,
            "column_size_bytes": column.column_size_bytes,
            "value_count": column.value_count,
            "null_count": column.null_count,
            "min_value": column.min_value,
            "max_value": column.max_value,
            "contains_nan": column.contains_nan,
            "extra_stats": column.extra_stats,
            "min_is_exact": None if column.min_value is None else column.exact_min is None and column.min_is_exact is not False,
            "max_is_exact": None if column.max_value is None else column.exact_max is None and column.max_is_exact is not False,
        }
        for column in file.statistics
    ]


def variant_rows(file: WrittenFile, file_id: int, table_id: int) -> list[dict[str, object]]:
    """The rows of a data file for the fields of its variants, of which something is known."""
    return [
        {
            "data_file_id": file_id,
            "table_id": table_id,
            "column_id": column.column_id,
            "variant_path": path_text(field.path),
            "shredded_type": str(field.type),
            "column_size_bytes": field.column_size_bytes,
            "value_count": field.value_count,
            "null_count": field.null_count,
            "min_value": field.min_value,
            "max_value": field.max_value,
            "contains_nan": field.contains_nan,
            "extra_stats": None,
        }
        for column in file.statistics
        if column.extra_stats is not None and column.extra_stats.startswith("[")
        for field in read_field_statistics(column.extra_stats)
    ]


def partition_value_rows(file: WrittenFile, file_id: int, table_id: int) -> list[dict[str, object]]:
    """The partition values of a data file, one row per key."""
    return [
        {"data_file_id": file_id, "table_id": table_id, "partition_key_index": index, "partition_value": value}
        for index, value in enumerate(file.partition_values)
    ]


def delete_file_row(file: StagedDeleteFile, delete_file_id: int, table_id: int, snapshot_id: int) -> dict[str, object]:
    """The row of a delete file.

    A cumulative file (three columns) begins with its oldest delete and says in ``partial_max`` that the commit's own are
    the newest; a first delete (two columns) begins with the commit.
    """
    cumulative = file.assumed_snapshot is not None
    return {
        "delete_file_id": delete_file_id,
        "table_id": table_id,
        "begin_snapshot": snapshot_id if file.min_snapshot is None else min(file.min_snapshot, snapshot_id),
        "end_snapshot": None,
        "data_file_id": file.data_file_id,
        "path": file.path,
        "path_is_relative": True,
        "format": file.format,
        "delete_count": file.delete_count,
        "file_size_bytes": file.file_size_bytes,
        "footer_size": file.footer_size,
        "encryption_key": _key_text(file.encryption_key),
        "partial_max": snapshot_id if cumulative else None,
        "row_group_count": file.row_group_count,
    }


def gathered_delete_row(
    file: CumulativeDeletes, delete_file_id: int, data_file_id: int, table_id: int, end_snapshot: int | None
) -> dict[str, object]:
    """The row of a delete file whose deletes are all of earlier snapshots."""
    return {
        "delete_file_id": delete_file_id,
        "table_id": table_id,
        "begin_snapshot": file.min_snapshot,
        "end_snapshot": end_snapshot,
        "data_file_id": data_file_id,
        "path": file.path,
        "path_is_relative": True,
        "format": file.format,
        "delete_count": file.delete_count,
        "file_size_bytes": file.file_size_bytes,
        "footer_size": file.footer_size,
        "encryption_key": _key_text(file.encryption_key),
        "partial_max": file.max_snapshot,
        "row_group_count": file.row_group_count,
    }


def scheduled_row(file_id: int, path: str, path_is_relative: bool, now: datetime) -> dict[str, object]:
    """The row that hands a file over to cleanup. The path is relative to the data path, not to the table."""
    return {"data_file_id": file_id, "path": path, "path_is_relative": path_is_relative, "schedule_start": now}


def _key_text(key: EncryptionKey | None) -> str | None:
    return None if key is None else key.base64_text


def mapping_row(mapping_id: int, table_id: int) -> dict[str, object]:
    """The row of a name mapping."""
    return {"mapping_id": mapping_id, "table_id": table_id, "type": "map_by_name"}


def name_rows(columns: Sequence[MappedColumn], mapping_id: int) -> list[dict[str, object]]:
    """The rows of a mapping's columns."""
    return [
        {
            "mapping_id": mapping_id,
            "column_id": row.number,
            "source_name": row.source_name,
            "target_field_id": row.field_id,
            "parent_column": row.parent,
            "is_partition": row.in_path,
        }
        for row in mapping_rows(columns)
    ]
