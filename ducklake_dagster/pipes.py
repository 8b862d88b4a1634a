"""Commit for a run from an external process of Dagster Pipes, and report the commit to the run."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ducklake_core.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    import dagster as dg
    from dagster_pipes import PipesContext

    from ducklake_core import CommitOptions, DuckLake, WriteResult


# Key in the extras of Pipes. Both processes use it, so it must not change between versions of this library.
_RUN = "ducklake_materialising_run"


def pipes_extras(context: dg.AssetExecutionContext | dg.OpExecutionContext) -> dict[str, str]:
    """Return extras that identify the run for the external process: ``client.run(context=context, extras=pipes_extras(context), ...)``.

    A process that is lost after its commit then does not commit again when the run is retried or re-executed from failure: both commits
    have the same id. Re-executing all steps is a new materialisation.

    Args:
        context: Context of the asset or op that starts the process.

    Raises:
        UsageError: The context is not the context of an asset or op.
    """
    from dagster import AssetExecutionContext, OpExecutionContext

    from ducklake_dagster.assets.provenance import materialising_run

    if not isinstance(context, (AssetExecutionContext, OpExecutionContext)):
        raise _wrong("context", "the context of the asset or op that starts the process", context)
    ops = getattr(context, "op_execution_context", context)
    return {_RUN: materialising_run(context.instance, context.run, ops.get_step_execution_context().step.key)}


def pipes_commit(pipes: PipesContext, *, asset_key: str | None = None) -> CommitOptions:
    """Return commit options that name the run: ``lake.write(name, frame, **pipes_commit(pipes))``.

    The commit sensor then recognises the commit as one of this Dagster instance. A process that is started again for the same run and
    partition does not commit twice; with :func:`pipes_extras`, this holds for a run that resumes the first, too. Outside of a run, the
    options are empty.

    Args:
        pipes: Context of the process, from ``open_dagster_pipes()``.
        asset_key: Asset, such as ``"sales/orders"``; needed when the step has several.

    Raises:
        UsageError: ``pipes`` is not a context of Pipes, or the step does not make the asset.
    """
    _reject_no_context(pipes)
    if _is_outside(pipes):
        return {}
    key = _asset_key(pipes, asset_key)
    partitions = _partitions(pipes)
    # The id is that of the materialisation, not of the attempt: a process that is started again finds the first commit by it.
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

    Outside of a run, nothing is reported.

    Args:
        pipes: Context of the process, from ``open_dagster_pipes()``.
        lake: The lake that was written to.
        result: The commit: the result of ``lake.write``, or one of ``tx.result.writes``.
        asset_key: Asset; needed when the step has several.
        metadata: Additional metadata, which overrides the metadata of the commit.

    Raises:
        UsageError: An argument has another type, or the commit belongs to another lake.
    """
    from ducklake_core import DuckLake, WriteResult

    _reject_no_context(pipes)
    if not isinstance(lake, DuckLake):
        raise _wrong("lake", "the DuckLake that was written to", lake)
    if not isinstance(result, WriteResult):
        raise _wrong("result", "the result of a write to one table, or one of tx.result.writes of a transaction", result)
    if metadata is not None and not isinstance(metadata, Mapping):
        raise _wrong("metadata", "a mapping", metadata)
    _reject_other_lake(lake, result)
    if _is_outside(pipes):
        return
    facts = {**_commit(result), **_table(lake, result), **(metadata or {})}
    pipes.report_asset_materialization(metadata=facts, asset_key=asset_key)


def _wrong(what: str, wanted: str, found: object) -> UsageError:
    return UsageError(f"{what} must be {wanted}, not {found!r}", parameter=what)


def _reject_no_context(pipes: object) -> None:
    from dagster_pipes import PipesContext

    if not isinstance(pipes, PipesContext) and not _is_outside(pipes):
        raise _wrong("pipes", "the PipesContext that open_dagster_pipes() returns", pipes)


def _is_outside(pipes: object) -> bool:
    """Return whether no run has started this process. Pipes then returns a mock whose calls do nothing."""
    # Without unittest.mock in sys.modules there is no mock, so the import is never paid for here.
    mock = sys.modules.get("unittest.mock")
    return mock is not None and isinstance(pipes, mock.NonCallableMock)


def _asset_key(pipes: PipesContext, asset_key: object) -> str:
    """Return the asset of the commit, and reject one that the step does not make: Dagster would reject it only after the commit."""
    if asset_key is None:
        return pipes.asset_key
    if not isinstance(asset_key, str) or not asset_key:
        raise _wrong("asset_key", "a string such as 'sales/orders'", asset_key)
    known = pipes.asset_keys if pipes.is_asset_step else ()
    if known and asset_key not in known:
        raise UsageError(f"The step does not make asset {asset_key}: asset_key must be one of {', '.join(known)}", parameter="asset_key")
    return asset_key


def _reject_other_lake(lake: DuckLake, result: WriteResult) -> None:
    """Reject a commit of another lake, unless its snapshot was expired in the meantime."""
    # Every lake counts its snapshots from 0, so the id alone proves nothing; time and extra_info identify the commit.
    try:
        found = lake.at(result.snapshot_id).snapshot
    except NotFoundError:
        if result.snapshot_id <= lake.snapshot().id:
            return
        found = None
    if found is None or (found.time, found.extra_info) != (result.snapshot.time, result.snapshot.extra_info):
        raise UsageError(
            f"the commit of {result.table} is not snapshot {result.snapshot_id} of this lake. Pass report_ducklake_write the lake that was "
            "written to",
            parameter="lake",
        )


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
        # Another client dropped the table or expired the snapshot since. The commit exists, so the rest is still reported.
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
