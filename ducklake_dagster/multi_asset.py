"""Commit several assets of one step in one snapshot: readers see all of them changed, or none."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import dagster as dg

from ducklake_core import folded
from ducklake_core.errors import UsageError
from ducklake_dagster.assets.provenance import AUTHOR, joint_provenance
from ducklake_dagster.config.errors import shown_failures
from ducklake_dagster.io.audits import RESULTS, AuditResult, audit_metadata, passed_audits, reject_failed
from ducklake_dagster.io.commit import OutputCommit, WrittenOutput
from ducklake_dagster.io.outputs import TableOutput, plan_output
from ducklake_dagster.io_manager import (
    DuckLakeIOManager,
    add_metadata_of_partitions,
    branch_settings,
    default_settings,
    metadata_of_commit,
    writing_lake,
)
from ducklake_dagster.partitions.predicates import SlicePredicate

if TYPE_CHECKING:
    from ducklake_core import DuckLake, Snapshot, Transaction


@dataclass(frozen=True, kw_only=True)
class _Part:
    """One asset of the step."""

    key: dg.AssetKey
    context: dg.OutputContext
    output: TableOutput
    missing: tuple[str, ...]
    predicate: SlicePredicate | None
    commit: OutputCommit


def materialize_together(context: dg.AssetExecutionContext, frames: Mapping[str | dg.AssetKey, Any]) -> Iterator[dg.MaterializeResult[Any]]:
    """Write several assets of a ``@dg.multi_asset`` in one commit, and yield the results that the asset function must yield.

    Tables, partitions, write modes and all other settings come from the :class:`DuckLakeIOManager` and the metadata of the assets, as if
    the function had returned each frame. Downstream assets load the tables as usual. When one frame does not fit, an audit fails or the
    worker is lost, no asset is written. A retry of the step, or a run that resumes from failure, finds the commit by its id and does not
    write again.

    Example:

        @dg.multi_asset(specs=[dg.AssetSpec("orders"), dg.AssetSpec("lines")])
        def sales(context: dg.AssetExecutionContext):
            yield from materialize_together(context, {"orders": orders, "lines": lines})

    Args:
        context: Context of the step.
        frames: Frames by asset key, one for each asset that the run materialises.

    Raises:
        dg.Failure: The write failed, and nothing was committed; a retry policy runs the step again unless the error is permanent.
    """
    started = time.monotonic()
    step = context.get_step_execution_context()
    found = {dg.AssetKey.from_coercible(key): frame for key, frame in frames.items()}
    subject = ", ".join(sorted(key.to_user_string() for key in found))
    with shown_failures(subject, "asset"):
        _reject_assets(context, found)
        contexts = {key: _output_context(context, key) for key in found}
        manager = _manager(contexts, step)
        manager.reject_overridden()
        lake = writing_lake(manager).connect()
        parts = [_part(contexts[key], key, frame, manager, lake) for key, frame in found.items()]
        _reject_one_table_twice(parts)
        written = _commit(lake, parts, branch=manager.branch or None)
    for part in parts:
        metadata = metadata_of_commit(
            part.context, lake, part.output, part.predicate, written[part.key], part.missing, seconds=time.monotonic() - started
        )
        add_metadata_of_partitions(part.context, lake, part.output, written[part.key].result)
        yield dg.MaterializeResult(asset_key=part.key, metadata=metadata)


def _commit(lake: DuckLake, parts: Sequence[_Part], branch: str | None) -> dict[dg.AssetKey, WrittenOutput]:
    # One transaction for all assets, whose id depends on run, step, assets and partitions:
    #
    #   the id is committed already   -> an earlier attempt wrote everything: stage nothing, report its snapshot
    #   otherwise                     -> stage every asset, audit every asset, commit: one snapshot, or none
    #
    # tx.repeated is known when the block begins. tx.result.repeated is known after it: another attempt of the same step, whose worker
    # was believed lost, may have committed in the meantime.
    tables = {part.key.to_user_string(): str(part.output.address) for part in parts}
    audits = sorted({name for part in parts for name in part.output.audits})
    origin = joint_provenance(parts[0].context, tables, parts[0].output.partition_keys, branch=branch, audits=audits)
    audited: dict[dg.AssetKey, list[AuditResult]] = {}
    writers = {part.key.to_user_string(): part.commit.writers for part in parts}
    with lake.transaction(author=AUTHOR, message=origin.message, extra_info=origin.with_writers(writers), commit_id=origin.commit_id) as tx:
        if tx.repeated is None:
            for part in parts:
                with shown_failures(str(part.output.address)), part.output.explaining():
                    part.commit.stage(tx)
            # Audits come last: they read the staged rows, and any other failure should come before that cost.
            audited |= {part.key: _audited(part, tx) for part in parts}
    if tx.repeated is not None or tx.result.repeated:
        return {part.key: _repeated(part, lake, tx.result.snapshot) for part in parts}
    results = {folded(result.table): result for result in tx.result.writes}
    written = {part.key: part.commit.written(results[folded(part.output.address.sql)]) for part in parts}
    return {part.key: _with_audits(written[part.key], audited[part.key]) for part in parts}


def _audited(part: _Part, tx: Transaction) -> list[AuditResult]:
    if not part.output.audits or part.output.creates_nothing:
        return []
    results = part.output.audit(tx, part.predicate)
    reject_failed(part.context, results, str(part.output.address), part.output.subject)
    return results


def _repeated(part: _Part, lake: DuckLake, snapshot: Snapshot | None) -> WrittenOutput:
    assert snapshot is not None
    passed = [result for result in passed_audits(snapshot) if result.name in part.output.audits]
    return _with_audits(part.commit.repeated(lake, snapshot), passed)


def _with_audits(written: WrittenOutput, results: Sequence[AuditResult]) -> WrittenOutput:
    return replace(written, notes={**written.notes, RESULTS: audit_metadata(results)}) if results else written


def _part(context: dg.OutputContext, key: dg.AssetKey, frame: Any, manager: DuckLakeIOManager, lake: DuckLake) -> _Part:
    output = plan_output(
        context, frame, default_settings(manager), manager.schema_, comments=manager.comments, branch=branch_settings(manager)
    )
    with shown_failures(str(output.address)):
        if output.settings.needs_absence:
            raise UsageError(
                f"asset {output.subject} has write_mode {output.settings.write_mode!r}, which materialize_together does not support. Use "
                "'overwrite', 'append', 'upsert' or 'merge'",
                asset=output.subject,
            )
        table = output.table(lake)
        # A frame without rows takes the columns of the table, so it lacks none of them below.
        output = output.settled(table)
        missing, predicate = output.missing_columns(table), output.predicate(table)
        commit = output.commit(table, output.rows(predicate), predicate)
    return _Part(key=key, context=context, output=output, missing=missing, predicate=predicate, commit=commit)


def _output_context(context: dg.AssetExecutionContext, key: dg.AssetKey) -> dg.OutputContext:
    """Return the context that Dagster would pass to the asset's IO manager."""
    # Private API: Dagster has no public way to this context before the asset function has returned.
    from dagster._core.execution.plan.outputs import StepOutputHandle

    step = context.get_step_execution_context()
    name = context.assets_def.get_output_name_for_asset_key(key)
    found: dg.OutputContext = step.get_output_context(StepOutputHandle(step.step.key, name))
    return found


def _manager(contexts: Mapping[dg.AssetKey, dg.OutputContext], step: Any) -> DuckLakeIOManager:
    from dagster._core.execution.plan.outputs import StepOutputHandle

    managers = [step.get_io_manager(StepOutputHandle(step.step.key, context.name)) for context in contexts.values()]
    # One transaction has one lake and one branch, so one object must store all of the assets.
    manager = managers[0]
    if not isinstance(manager, DuckLakeIOManager) or any(other is not manager for other in managers):
        raise UsageError(
            "materialize_together commits all assets with one DuckLakeIOManager, but these assets have different IO managers. Set the same "
            "io_manager_key on all of them",
            assets=tuple(key.to_user_string() for key in contexts),
        )
    return manager


def _reject_assets(context: dg.AssetExecutionContext, frames: Mapping[dg.AssetKey, Any]) -> None:
    selected = context.selected_asset_keys
    strange = sorted(key.to_user_string() for key in frames if key not in selected)
    missing = sorted(key.to_user_string() for key in selected if key not in frames)
    if strange or missing:
        names = ", ".join(sorted(key.to_user_string() for key in selected))
        # Dagster would report an asset that the function does not yield as materialised.
        fault = f"but not of {', '.join(strange)}" if strange else f"but frames has none of {', '.join(missing)}"
        raise UsageError(
            f"materialize_together needs one frame for each asset that this step materialises ({names}), {fault}",
            assets=tuple(strange or missing),
        )


def _reject_one_table_twice(parts: Sequence[_Part]) -> None:
    seen: dict[str, dg.AssetKey] = {}
    for part in parts:
        other = seen.setdefault(folded(part.output.address.sql), part.key)
        if other != part.key:
            raise UsageError(
                f"{other.to_user_string()} and {part.key.to_user_string()} are one table, {part.output.address}, and one commit "
                "writes a table once. Set another table or schema in the metadata of one of them",
                table=str(part.output.address),
            )
