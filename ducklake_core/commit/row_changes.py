"""Turns actions on rows and files into catalog rows: data files, deletes, compaction."""

from __future__ import annotations

from dataclasses import replace

from ducklake_core.catalog.changes import DeleteRows, EndInlinedRows, InlinePositions, InsertInlinedRows
from ducklake_core.commit.actions import (
    AddDeleteFiles,
    AddFiles,
    AppendFiles,
    EndFiles,
    EndInlined,
    InlineDeletes,
    InsertInlined,
    MergeFiles,
    StagedDeleteFile,
)
from ducklake_core.commit.file_rows import (
    data_file_row,
    delete_file_row,
    mapping_row,
    name_rows,
    partition_value_rows,
    scheduled_row,
    statistics_rows,
    variant_rows,
)
from ducklake_core.commit.snapshot_builder import SnapshotBuilder
from ducklake_core.format.files.data_files import WrittenFile


def append_files(builder: SnapshotBuilder, action: AppendFiles) -> None:
    """New data files with their statistics, and row ids from the head on."""
    if not action.files:
        return
    table_id = builder.real_id(action.table_id)
    partition_id = _partition_id(builder, action, table_id)
    for place, file in enumerate(action.files):
        row_id_start = builder.totals_of(table_id).add(file, action.schema)
        file_id = builder.file_id(_local(action, place))
        row = data_file_row(file, file_id, table_id, builder.snapshot_id, row_id_start=row_id_start, partition_id=partition_id)
        insert_file(builder, file, file_id, table_id, row)
    builder.log("inserted_into_table", table_id)


def add_files(builder: SnapshotBuilder, action: AddFiles) -> None:
    """Files of other writers, with the mappings that find their columns."""
    table_id = builder.real_id(action.table_id)
    partition_id = _partition_id(builder, action, table_id)
    mapping_ids = _new_mappings(builder, action)
    for place, (added, mapping_id) in enumerate(action.files):
        file = added.file
        row_id_start = builder.totals_of(table_id).add(replace(file, statistics=(*file.statistics, *added.absent)), action.schema)
        file_id = builder.file_id(_local(action, place))
        row = data_file_row(
            file,
            file_id,
            table_id,
            builder.snapshot_id,
            row_id_start=row_id_start,
            partition_id=partition_id,
            mapping_id=mapping_ids[mapping_id],
            path_is_relative=added.path_is_relative,
        )
        insert_file(builder, file, file_id, table_id, row)
    builder.log("inserted_into_table", table_id)


def insert_inlined(builder: SnapshotBuilder, action: InsertInlined) -> None:
    """Rows in the table of inlined rows that has the columns of today; without one it is made."""
    if not action.rows.record_count:
        return
    table_id = builder.real_id(action.table_id)
    row_ids = builder.totals_of(table_id).add_inlined(action.rows, action.schema, action.row_ids)
    builder.inlined_inserts.append(
        InsertInlinedRows(
            table_name=_inlined_table(builder, table_id, action),
            columns=action.schema.columns,
            rows=action.rows,
            row_ids=row_ids,
            begin_snapshot=builder.snapshot_id,
        )
    )
    builder.log("inlined_insert", table_id)
    builder.data_changed = True


def _inlined_table(builder: SnapshotBuilder, table_id: int, action: InsertInlined) -> str:
    if table_id in builder.inlined_tables:
        return builder.inlined_tables[table_id]
    newest = builder.head.inlined_tables.get(table_id, action.inlined_table)
    # Columns may have changed while inlining was off, which leaves a table without them behind.
    if newest is None or newest.schema_version < action.columns_version:
        name = builder.new_inlined_table(table_id, action.schema)
        # DuckDB takes the columns of such rows from the table as it was at this version.
        builder.new_schema_version(table_id)
        return name
    return newest.name


def end_files(builder: SnapshotBuilder, action: EndFiles) -> None:
    """The end of whole data files."""
    if not action.data_file_ids:
        return
    builder.end("data_file", {"data_file_id": action.data_file_ids})
    log_moving(builder, "deleted_from_table", action.table_id)
    builder.data_changed = True


def add_delete_files(builder: SnapshotBuilder, action: AddDeleteFiles) -> None:
    """New delete files; those that they replace are forgotten and scheduled for deletion."""
    if not action.files:
        return
    replaced = [file for file in action.files if file.replaces is not None]
    if replaced:
        builder.endings.append(DeleteRows(table="delete_file", where={"delete_file_id": tuple(f.replaces for f in replaced)}))
    for file in replaced:
        _schedule(builder, file)
    table_id = builder.real_id(action.table_id)
    for file in action.files:
        hidden = file if file.data_file_id >= 0 else replace(file, data_file_id=builder.local_files[action.table_id, file.data_file_id])
        builder.insert("delete_file", **delete_file_row(hidden, builder.file_id(), table_id, builder.snapshot_id))
    # What was never there before is no loss.
    if any(file.data_file_id >= 0 for file in action.files):
        log_moving(builder, "deleted_from_table", table_id)


def inline_deletes(builder: SnapshotBuilder, action: InlineDeletes) -> None:
    """Rows of data files that the catalog hides."""
    if not action.files:
        return
    files = tuple((file.data_file_id, file.positions) for file in action.files)
    builder.inlined_inserts.append(InlinePositions(table_id=action.table_id, files=files, begin_snapshot=builder.snapshot_id))
    # DuckDB logs the first alone. Its compaction looks at the second, and would bring the rows back; its delete files look at
    # the third, and one of the same row makes it show the file's other deleted rows.
    for change in ("inlined_delete", "deleted_from_table", "inlined_insert"):
        builder.log(change, action.table_id)


def end_inlined(builder: SnapshotBuilder, action: EndInlined) -> None:
    """The end of inlined rows."""
    for table_name, row_ids in action.rows:
        builder.endings.append(EndInlinedRows(table_name=table_name, row_ids=row_ids, end_snapshot=builder.snapshot_id))
    if action.rows:
        builder.log("inlined_delete", action.table_id)
        builder.data_changed = True


def merge_files(builder: SnapshotBuilder, action: MergeFiles) -> None:
    """Merged data files in place of their sources, which are forgotten and, unless others name them, scheduled for deletion."""
    for merge in action.merges:
        sources = [file_id for file_id, _, _ in merge.sources]
        builder.forgotten_files += sources
        for source_id, path, is_relative in merge.sources:
            if source_id not in merge.shared:
                builder.insert("files_scheduled_for_deletion", **scheduled_row(source_id, path, is_relative, builder.head.now))
        file_id = builder.file_id()
        row = data_file_row(
            merge.output,
            file_id,
            action.table_id,
            merge.begin_snapshot,
            row_id_start=merge.row_id_start,
            partition_id=merge.partition_id,
            partial_max=merge.partial_max,
        )
        insert_file(builder, merge.output, file_id, action.table_id, row)
    if action.merges:
        log_moving(builder, "merge_adjacent", action.table_id)


def log_moving(builder: SnapshotBuilder, change: str, table_id: int) -> None:
    """Log what DuckDB's deletes in the catalog, and its flushes, must not be committed on top of.

    It looks for neither deletes of files nor merges there, and would hide rows twice, show deleted ones, or give a file a second
    delete file. It does look for flushes.
    """
    builder.log(change, table_id)
    builder.log("inline_flush", table_id)


def _schedule(builder: SnapshotBuilder, file: StagedDeleteFile) -> None:
    assert file.replaces is not None
    assert file.replaces_path is not None
    row = scheduled_row(file.replaces, file.replaces_path, file.replaces_path_is_relative, builder.head.now)
    builder.insert("files_scheduled_for_deletion", **row)


def _new_mappings(builder: SnapshotBuilder, action: AddFiles) -> dict[int, int]:
    """The id of every mapping of the action by its id there; new ones come before the files."""
    ids: dict[int, int] = {}
    for mapping in action.mappings:
        ids[mapping.id] = mapping.id if mapping.id >= 0 else builder.file_id()
        if mapping.id < 0:
            builder.insert("column_mapping", **mapping_row(ids[mapping.id], builder.real_id(action.table_id)))
            builder.insert_all("name_mapping", name_rows(mapping.columns, ids[mapping.id]))
    return ids


def _local(action: AppendFiles | AddFiles, place: int) -> tuple[int, int] | None:
    return (action.table_id, action.local_ids[place]) if action.local_ids else None


def _partition_id(builder: SnapshotBuilder, action: AppendFiles | AddFiles, table_id: int) -> int | None:
    spec = action.partition_spec
    return None if spec is None else spec.id or builder.new_specs[table_id]


def insert_file(builder: SnapshotBuilder, file: WrittenFile, file_id: int, table_id: int, row: dict[str, object]) -> None:
    """The rows of a data file: its own, its statistics and its partition values."""
    builder.insert("data_file", **row)
    builder.insert_all("file_column_stats", statistics_rows(file, file_id, table_id))
    builder.insert_all("file_variant_stats", variant_rows(file, file_id, table_id))
    builder.insert_all("file_partition_value", partition_value_rows(file, file_id, table_id))
