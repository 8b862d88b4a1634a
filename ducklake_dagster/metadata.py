"""Metadata that Dagster shows about a table: that of the very snapshot that an output became, and of an asset's definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import dagster as dg

from ducklake_core.errors import NotFoundError
from ducklake_dagster.audits import Audit, stored_audits
from ducklake_dagster.naming import KEY_PREFIX, MAPPING_KEY, name_list, table_address
from ducklake_dagster.write_settings import (
    ConcurrentAppends,
    MissingColumns,
    OutOfSlice,
    SchemaEvolution,
    WhenMatched,
    WhenNotMatched,
    WhenNotMatchedBySource,
    WriteMode,
    refuse_wrong_choices,
)

if TYPE_CHECKING:
    from ducklake_core import DuckLake, Schema, Table, TableInfo, WriteResult
    from ducklake_dagster.partition_numbers import PartitionNumbers
    from ducklake_dagster.slice_predicate import SlicePredicate
    from ducklake_dagster.table_output import TableOutput


def ducklake_metadata(  # noqa: PLR0913 - one call says everything about one asset
    *,
    table: str | None = None,
    schema: str | None = None,
    partition_expr: str | Mapping[str, str] | None = None,
    partition_by: str | Sequence[str] = (),
    sort_by: str | Sequence[str] = (),
    write_mode: WriteMode | None = None,
    upsert_keys: str | Sequence[str] = (),
    merge_keys: str | Sequence[str] = (),
    when_matched: WhenMatched | None = None,
    when_not_matched: WhenNotMatched | None = None,
    when_not_matched_by_source: WhenNotMatchedBySource | None = None,
    delete_when: str | None = None,
    schema_evolution: SchemaEvolution | None = None,
    missing_columns: MissingColumns | None = None,
    out_of_slice: OutOfSlice | None = None,
    shared: bool | None = None,
    concurrent_appends: ConcurrentAppends | None = None,
    audits: Mapping[str, Audit] | None = None,
) -> dict[str, Any]:
    """Definition metadata of an asset, spelled as :class:`DuckLakeIOManager` reads it. What is not given is left to the manager.

    Args:
        table: Table name, when it is not the last part of the asset key.
        schema: DuckLake schema, ``sales.europe`` for one in another; ``{key_prefix}`` stands for the asset key before its last part.
        partition_expr: Column that partition keys are about, or ``{dimension: column}``; ``CAST(column AS DATE)`` and
            ``date_trunc('month', column)`` stand for the column, if the partitions are whole days or months.
        partition_by: Partition key or keys of the table. A table that has others gets them in the commit of the next write, for new files.
        sort_by: Sort order of new files, such as ``["day", "amount DESC"]``, likewise.
        write_mode: ``overwrite``, ``append``, ``upsert`` or ``merge``.
        upsert_keys: Key column or columns of an upsert.
        merge_keys: Column or columns by which rows of a merge match.
        when_matched: What a merge does with a row of the table that a row of the frame matches: ``update``, ``ignore`` or ``delete``.
        when_not_matched: What it does with a row of the frame that matches none: ``insert`` or ``ignore``.
        when_not_matched_by_source: What it does with a row of the run's partitions that no row of the frame matches: ``keep`` or
            ``delete``.
        delete_when: SQL over the frame's columns as ``s.column``: matched rows for which it is true are deleted, others left out.
        schema_evolution: ``strict``, ``additive`` or, for an unpartitioned asset, ``replace``.
        missing_columns: ``error``, ``null`` or ``auto``, which is ``error`` with ``strict`` and ``null`` with ``additive``.
        out_of_slice: ``error`` or ``filter``.
        shared: Whether an overwrite may replace rows that another asset wrote to the same table.
        concurrent_appends: ``fail`` or ``replace``: what an overwrite does with rows that another writer commits to the run's partitions
            while it is made.
        audits: What must be so before rows are committed, by name: a SQL condition that is true for every row of the run's partitions as
            the commit would leave them (of the table, without partitions), or a function (of a module) of a
            :class:`ducklake_core.Scan` of those rows that returns whether it is so. A write that fails one leaves the table as it was.

    Raises:
        UsageError: A value that a setting cannot have.
    """
    lists = {"partition_by": partition_by, "sort_by": sort_by, "upsert_keys": upsert_keys, "merge_keys": merge_keys}
    settings = {
        "table": table,
        "schema": schema,
        "partition_expr": partition_expr,
        **{name: list(name_list(name, value)) or None for name, value in lists.items()},
        "write_mode": write_mode,
        "when_matched": when_matched,
        "when_not_matched": when_not_matched,
        "when_not_matched_by_source": when_not_matched_by_source,
        "delete_when": delete_when,
        "schema_evolution": schema_evolution,
        "missing_columns": missing_columns,
        "out_of_slice": out_of_slice,
        "shared": shared,
        "concurrent_appends": concurrent_appends,
        "audits": stored_audits(audits) if audits is not None else None,
    }
    if table and schema and KEY_PREFIX not in schema and MAPPING_KEY not in table:
        # With one of them alone, the asset key or the manager says the other.
        settings["dagster/table_name"] = str(table_address([table], settings, None))
    settings["dagster/storage_kind"] = "ducklake"
    found = {name: value for name, value in settings.items() if value is not None}
    refuse_wrong_choices(found, "ducklake_metadata")
    return found


def commit_metadata(
    lake: DuckLake, output: TableOutput, predicate: SlicePredicate | None, result: WriteResult, *, seconds: float
) -> dict[str, Any]:
    """Metadata of one output, all of it about the very snapshot that it became.

    Args:
        lake: The lake.
        output: What was written; ``predicate`` is its slice.
        result: The commit.
        seconds: From planning to the end of the commit.
    """
    metadata = {
        "dagster/storage_kind": "ducklake",
        "Query": _query(result, predicate),
        "ducklake/write_mode": output.settings.write_mode,
        "ducklake/write_seconds": round(seconds, 3),
        **_commit_numbers(result, of_several=len(output.partition_keys) > 1),
        **_table_facts(lake, result),
    }
    if len(output.partition_keys) == 1 and output.settings.write_mode == "overwrite" and not result.repeated:
        metadata["dagster/partition_row_count"] = result.rows_added
    return metadata


def _table_facts(lake: DuckLake, result: WriteResult) -> dict[str, Any]:
    """Metadata of the table at the snapshot, under the name that it has there; none when the snapshot was expired in the meantime.

    The commit is made: a run must not fail any more because others go on with the lake.
    """
    try:
        table = lake.table(result.table, at=result.snapshot_id)
        info = table.info()
    except NotFoundError:
        return {}
    facts: dict[str, Any] = {
        "dagster/row_count": info.row_count,
        "dagster/size_bytes": info.file_size_bytes,
        "dagster/column_schema": column_schema(table, info),
        "dagster/table_name": table.name,
        "dagster/uri": table.state.path,
        "ducklake/table_files": info.file_count,
        "ducklake/inlined_rows": info.inlined_row_count,
    }
    if info.file_count:
        facts["ducklake/avg_file_bytes"] = info.file_size_bytes // info.file_count
    return facts


def partition_metadata(output: TableOutput, numbers: PartitionNumbers) -> dict[str, Any]:
    """Metadata of one partition of a run that had several."""
    facts: dict[str, Any] = {"ducklake/rows_added": numbers.rows}
    if numbers.bytes is not None:
        facts["ducklake/bytes_added"] = numbers.bytes
    if output.settings.write_mode == "overwrite":
        facts["dagster/partition_row_count"] = numbers.rows
    return facts


def _commit_numbers(result: WriteResult, *, of_several: bool) -> dict[str, Any]:
    """Numbers of a commit. Dagster shows them on each partition of the run, so those of several are named as the commit's."""
    rows = "ducklake/commit_" if of_several else "ducklake/"
    numbers: dict[str, Any] = {
        "ducklake/snapshot_id": result.snapshot_id,
        "ducklake/schema_version": result.snapshot.schema_version,
        f"{rows}rows_added": result.rows_added,
        f"{rows}rows_deleted": result.rows_deleted,
        **({f"{rows}rows_updated": result.rows_updated} if result.rows_updated else {}),
        "ducklake/files_added": result.files_added,
        "ducklake/files_removed": result.files_removed,
        "ducklake/delete_files_added": result.delete_files_added,
        f"{rows}bytes_added": result.bytes_added,
        "ducklake/commit_attempts": result.attempts,
    }
    if result.schema_changes:
        numbers["ducklake/schema_changes"] = "\n".join(result.schema_changes)
    if result.repeated:
        numbers["ducklake/repeated"] = True
    return numbers


def _query(result: WriteResult, predicate: SlicePredicate | None) -> str:
    condition = f" WHERE {predicate.shown()}" if predicate else ""
    return f"FROM {result.table} AT (VERSION => {result.snapshot_id}){condition}"


def column_schema(table: Table, info: TableInfo) -> dg.TableSchema:
    """The table's columns with the catalog's types, nullability and comments; partition keys as a table constraint."""
    return table_schema(table.schema, table.state.column_comments, info.partition_by)


def table_schema(schema: Schema, comments: Mapping[int, str], partition_by: Sequence[str]) -> dg.TableSchema:
    """The same, of a table that is not open.

    Args:
        schema: Its columns.
        comments: Comments by column id.
        partition_by: Partition keys as a user writes them.
    """
    columns = tuple((column.name, str(column.type), column.nullable, comments.get(column.id)) for column in schema)
    return _table_schema(columns, tuple(partition_by))


@lru_cache(maxsize=4096)
def _table_schema(columns: tuple[tuple[str, str, bool, str | None], ...], partition_by: tuple[str, ...]) -> dg.TableSchema:
    """Made once for all tables with these columns, and all events of a table: Dagster takes a while to look at each column."""
    layout = [f"partitioned by {', '.join(partition_by)}"] if partition_by else []
    shown = [
        dg.TableColumn(name=name, type=kind, description=comment, constraints=dg.TableColumnConstraints(nullable=nullable))
        for name, kind, nullable, comment in columns
    ]
    return dg.TableSchema(columns=shown, constraints=dg.TableConstraints(other=layout))
