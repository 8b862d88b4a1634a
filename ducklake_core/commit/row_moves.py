"""Turns flushes and rewrites into catalog rows: what earlier snapshots show stays as it is."""

from __future__ import annotations

from collections.abc import Iterable

from ducklake_core.catalog.changes import DeleteRows, RemoveInlinedDeletes, RemoveInlinedRows, UnregisterInlinedTable
from ducklake_core.commit.file_rows import data_file_row, gathered_delete_row, scheduled_row
from ducklake_core.commit.moved_rows import CumulativeDeletes, FlushInlined, GatheredDeletes, RewriteFiles
from ducklake_core.commit.row_changes import insert_file, log_moving
from ducklake_core.commit.snapshot_builder import SnapshotBuilder


def flush_inlined(builder: SnapshotBuilder, action: FlushInlined) -> None:
    """Files for inlined rows, delete files for inlined deletes; both leave the catalog."""
    table_id = action.table_id
    for flushed in action.files:
        builder.totals_of(table_id).add_moved(flushed.output)
        file_id = builder.file_id()
        row = data_file_row(
            flushed.output,
            file_id,
            table_id,
            flushed.begin_snapshot,
            row_id_start=flushed.row_id_start,
            partition_id=flushed.partition_id,
            partial_max=flushed.partial_max,
        )
        insert_file(builder, flushed.output, file_id, table_id, row)
        if flushed.deletes is not None:
            _insert_deletes(builder, flushed.deletes, file_id, table_id, flushed.deletes.end_snapshot)
    _gather(builder, action.gathered, table_id)
    for name in action.inlined_tables:
        is_all = action.until == builder.head.snapshot.id
        builder.endings.append(RemoveInlinedRows(table_name=name, until=action.until, is_all=is_all))
    for name in action.superseded:
        builder.endings.append(UnregisterInlinedTable(table_id=table_id, table_name=name))
        # Sessions of DuckDB find the tables of inlined rows that they have seen until the schema version moves.
        builder.schema_changed = True
    if action.deletes_of:
        builder.endings.append(RemoveInlinedDeletes(table_id=table_id, file_ids=action.deletes_of, until=action.until))
    builder.data_changed = True
    if action.gathered:
        builder.log("deleted_from_table", table_id)
    builder.log("inline_flush", table_id)


def rewrite_files(builder: SnapshotBuilder, action: RewriteFiles) -> None:
    """New files from this snapshot on; their sources and the deletes of them end with it."""
    table_id = action.table_id
    gathered = tuple(source.gathered for source in action.sources if source.gathered is not None)
    _gather(builder, gathered, table_id, ends_now=True)
    held = tuple(deletes.data_file_id for deletes in gathered)
    if held:
        builder.endings.append(RemoveInlinedDeletes(table_id=table_id, file_ids=held, until=builder.head.snapshot.id))
    sources = tuple(source.data_file_id for source in action.sources)
    for table in ("delete_file", "data_file"):
        builder.end(table, {"data_file_id": sources})
    for output, partition_id in action.outputs:
        file_id = builder.file_id()
        row = data_file_row(output, file_id, table_id, builder.snapshot_id, row_id_start=None, partition_id=partition_id)
        insert_file(builder, output, file_id, table_id, row)
    builder.data_changed = True
    log_moving(builder, "rewrite_delete", table_id)


def _gather(builder: SnapshotBuilder, gathered: Iterable[GatheredDeletes], table_id: int, *, ends_now: bool = False) -> None:
    """One delete file of a data file in place of all that there are, which earlier snapshots do not need any more either."""
    for deletes in gathered:
        if deletes.replaced:
            ids = tuple(delete_file_id for delete_file_id, _, _ in deletes.replaced)
            builder.endings.append(DeleteRows(table="delete_file", where={"delete_file_id": ids}))
        for delete_file_id, path, is_relative in deletes.replaced:
            builder.insert("files_scheduled_for_deletion", **scheduled_row(delete_file_id, path, is_relative, builder.head.now))
        end = builder.snapshot_id if ends_now else deletes.file.end_snapshot
        _insert_deletes(builder, deletes.file, deletes.data_file_id, table_id, end)


def _insert_deletes(builder: SnapshotBuilder, deletes: CumulativeDeletes, data_file_id: int, table_id: int, end: int | None) -> None:
    builder.insert("delete_file", **gathered_delete_row(deletes, builder.file_id(), data_file_id, table_id, end))
