"""For the far side of Dagster Pipes: a process outside of Dagster commits for a run, and tells the run what it committed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ducklake_core.errors import NotFoundError

if TYPE_CHECKING:
    import dagster as dg
    from dagster_pipes import PipesContext

    from ducklake_core import CommitOptions, DuckLake, WriteResult


_RUN = "ducklake_materialising_run"


def pipes_extras(context: dg.AssetExecutionContext | dg.OpExecutionContext) -> dict[str, str]:
    """What the far side must know of the run: ``client.run(context=context, extras=pipes_extras(context), ...)``.

    With it a process that was lost after its commit commits nothing more when the run is re-executed from failure, or retried: its commit
    has the id of the first one. Re-executing all steps is a new materialisation.
    """
    from ducklake_dagster.provenance import materialising_run

    ops = getattr(context, "op_execution_context", context)
    return {_RUN: materialising_run(context.instance, context.run, ops.get_step_execution_context().step.key)}


def pipes_commit(pipes: PipesContext, *, asset_key: str | None = None) -> CommitOptions:
    """What a commit says about the run that it is made for: ``lake.write(name, frame, **pipes_commit(pipes))``.

    The commit sensor then knows the commit as Dagster's own, and a process that is started again for the same run and partition commits
    once; with :func:`pipes_extras` also for a run that resumes it.

    Args:
        pipes: The process's context.
        asset_key: Asset, where several are in scope.
    """
    key = asset_key or pipes.asset_key
    partitions = _partitions(pipes)
    parts = json.dumps([pipes.extras.get(_RUN, pipes.run_id), key, partitions])
    facts: dict[str, Any] = {"run_id": pipes.run_id, "job": pipes.job_name, "asset_key": key, "pipes": True}
    if partitions:
        facts["partition_keys"] = partitions
    return {
        "author": "dagster",
        "message": f"{key} [{'...'.join(partitions)}]" if partitions else key,
        "extra_info": {"dagster": {name: fact for name, fact in facts.items() if fact is not None}},
        "commit_id": hashlib.sha256(parts.encode()).hexdigest()[:32],
    }


def report_ducklake_write(
    pipes: PipesContext,
    lake: DuckLake,
    result: WriteResult,
    *,
    asset_key: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Report that an asset was materialised by a commit, with the metadata that :class:`DuckLakeIOManager` attaches.

    Args:
        pipes: The process's context.
        lake: The lake.
        result: The commit, as ``lake.write`` or one of ``tx.result.writes`` gave it.
        asset_key: Asset, where several are in scope.
        metadata: More metadata, which wins.
    """
    facts = {**_commit(result), **_table(lake, result), **(metadata or {})}
    pipes.report_asset_materialization(metadata=facts, asset_key=asset_key)


def _partitions(pipes: PipesContext) -> list[str]:
    if not pipes.is_partition_step:
        return []
    found = pipes.partition_key_range
    return [found["start"]] if found["start"] == found["end"] else [found["start"], found["end"]]


def _commit(result: WriteResult) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "dagster/storage_kind": "ducklake",
        "ducklake/snapshot_id": result.snapshot_id,
        "ducklake/schema_version": result.snapshot.schema_version,
        "ducklake/rows_added": result.rows_added,
        "ducklake/rows_deleted": result.rows_deleted,
        "ducklake/files_added": result.files_added,
        "ducklake/files_removed": result.files_removed,
        "ducklake/delete_files_added": result.delete_files_added,
        "ducklake/bytes_added": result.bytes_added,
        "ducklake/commit_attempts": result.attempts,
    }
    if result.repeated:
        facts["ducklake/repeated"] = True
    return facts


def _table(lake: DuckLake, result: WriteResult) -> dict[str, Any]:
    try:
        table = lake.table(result.table, at=result.snapshot_id)
        info = table.info()
    except NotFoundError:
        # Others went on with the lake; the commit is made.
        return {}
    comments = table.column_comments
    columns = [
        {
            "name": column.name,
            "type": str(column.type),
            "description": comments.get(column.name),
            "constraints": {"nullable": column.nullable},
        }
        for column in table.schema
    ]
    return {
        "dagster/row_count": info.row_count,
        "dagster/size_bytes": info.file_size_bytes,
        "dagster/table_name": table.name,
        "dagster/uri": table.state.path,
        "dagster/column_schema": {"raw_value": {"columns": columns}, "type": "table_schema"},
        "ducklake/table_files": info.file_count,
        "ducklake/inlined_rows": info.inlined_row_count,
    }
