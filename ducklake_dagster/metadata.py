"""What Dagster shows about a table: metadata of the very snapshot that an output became, and of an asset's definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from ducklake_core.format.names import DEFAULT_SCHEMA
from ducklake_dagster.naming import TableAddress

if TYPE_CHECKING:
    from ducklake_core import DuckLake, Table, TableInfo, WriteResult
    from ducklake_dagster.slice_predicate import SlicePredicate
    from ducklake_dagster.table_output import TableOutput
    from ducklake_dagster.write_settings import OutOfSlice, SchemaEvolution, WriteMode


def ducklake_metadata(
    *,
    table: str | None = None,
    schema: str | None = None,
    partition_expr: str | Mapping[str, str] | None = None,
    partition_by: Sequence[str] = (),
    write_mode: WriteMode | None = None,
    upsert_keys: Sequence[str] = (),
    schema_evolution: SchemaEvolution | None = None,
    out_of_slice: OutOfSlice | None = None,
) -> dict[str, Any]:
    """Definition metadata of an asset, spelled as :class:`DuckLakeIOManager` reads it. What is not given is left to the manager.

    Args:
        table: Table name, when it is not the last part of the asset key.
        schema: DuckLake schema.
        partition_expr: Column that partition keys are about, or ``{dimension: column}``.
        partition_by: Partition keys of the table, used when the first write creates it.
        write_mode: ``overwrite``, ``append`` or ``upsert``.
        upsert_keys: Key columns of an upsert.
        schema_evolution: ``strict`` or ``additive``.
        out_of_slice: ``error`` or ``filter``.
    """
    settings = {
        "table": table,
        "schema": schema,
        "partition_expr": partition_expr,
        "partition_by": list(partition_by) or None,
        "write_mode": write_mode,
        "upsert_keys": list(upsert_keys) or None,
        "schema_evolution": schema_evolution,
        "out_of_slice": out_of_slice,
    }
    if table:
        settings["dagster/table_name"] = str(TableAddress(schema=schema or DEFAULT_SCHEMA, table=table))
    settings["dagster/storage_kind"] = "ducklake"
    return {name: value for name, value in settings.items() if value is not None}


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
    table = lake.table(output.address.sql, at=result.snapshot_id)
    info = lake.table_info(output.address.sql, at=result.snapshot_id)
    metadata = {
        "dagster/row_count": info.row_count,
        "dagster/size_bytes": info.file_size_bytes,
        "dagster/column_schema": column_schema(table, info),
        "dagster/table_name": table.name,
        "dagster/uri": table.state.path,
        "dagster/storage_kind": "ducklake",
        "Query": _query(output.address, result.snapshot_id, predicate),
        "ducklake/write_mode": output.settings.write_mode,
        "ducklake/write_seconds": round(seconds, 3),
        **_commit_numbers(result, info),
    }
    # Dagster shows an output's metadata on every partition of the run, so a count can be a partition's only when there is one.
    if len(output.partition_keys) == 1 and output.settings.write_mode == "overwrite" and not result.repeated:
        metadata["dagster/partition_row_count"] = result.rows_added
    return metadata


def _commit_numbers(result: WriteResult, info: TableInfo) -> dict[str, Any]:
    numbers: dict[str, Any] = {
        "ducklake/snapshot_id": result.snapshot_id,
        "ducklake/schema_version": result.snapshot.schema_version,
        "ducklake/rows_added": result.rows_added,
        "ducklake/rows_deleted": result.rows_deleted,
        "ducklake/files_added": result.files_added,
        "ducklake/files_removed": result.files_removed,
        "ducklake/delete_files_added": result.delete_files_added,
        "ducklake/bytes_added": result.bytes_added,
        "ducklake/table_files": info.file_count,
        "ducklake/inlined_rows": info.inlined_row_count,
        "ducklake/commit_attempts": result.attempts,
    }
    if info.file_count:
        numbers["ducklake/avg_file_bytes"] = info.file_size_bytes // info.file_count
    if result.schema_changes:
        numbers["ducklake/schema_changes"] = "\n".join(result.schema_changes)
    if result.repeated:
        numbers["ducklake/repeated"] = True
    return numbers


def _query(address: TableAddress, snapshot_id: int, predicate: SlicePredicate | None) -> str:
    condition = f" WHERE {predicate.to_sql()}" if predicate else ""
    return f"FROM {address.sql} AT (VERSION => {snapshot_id}){condition}"


def column_schema(table: Table, info: TableInfo) -> dg.TableSchema:
    """The table's columns with the catalog's types, nullability and comments; partition keys as a table constraint."""
    columns = [
        dg.TableColumn(
            name=column.name,
            type=str(column.type),
            description=table.state.column_comments.get(column.id),
            constraints=dg.TableColumnConstraints(nullable=column.nullable),
        )
        for column in table.schema
    ]
    layout = [f"partitioned by {', '.join(info.partition_by)}"] if info.partition_by else []
    return dg.TableSchema(columns=columns, constraints=dg.TableConstraints(other=layout))
