"""Build the ops of maintenance: each runs one operation of the lake and reports what it did."""

# No `from __future__ import annotations`: Dagster reads the annotations of config classes.
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import dagster as dg
from pydantic import Field, create_model

from ducklake_core import folded
from ducklake_core.errors import DuckLakeError
from ducklake_dagster.assets.provenance import AUTHOR
from ducklake_dagster.assets.tables import asset_tables, other_schemas_text
from ducklake_dagster.maintenance.snapshot_pins import Pins, expire_unpinned, find_pins

if TYPE_CHECKING:
    from ducklake_core import DuckLake, MaintenanceResult, TableInfo
    from ducklake_dagster.assets.tables import AssetTable


MaintenanceVerb: TypeAlias = Literal[
    "flush_inlined_data",
    "expire_snapshots",
    "merge_adjacent_files",
    "rewrite_data_files",
    "cleanup_old_files",
    "delete_orphaned_files",
]
"""Name of a maintenance step: the operation of the lake that it runs. Steps run in this order."""
Assets: TypeAlias = Iterable[dg.AssetsDefinition | dg.AssetSpec]
_MAX_LINES = 100
_FAILURES = "failures"
_TABLE_FACTS = ("files_merged", "files_rewritten", "files_created", "bytes_read", "rows", "deletes", "bytes_written")
_SECONDS = "Seconds after which the step begins no other work. Default: no limit."


class _StepConfig(dg.Config):
    enabled: bool = Field(default=True, description="Run this step. Default: true.")
    dry_run: bool = Field(default=False, description="Only report what the step would do. Default: false.")


class _TablesConfig(_StepConfig):
    tables: list[str] = Field(
        default_factory=list, description="Tables as table or schema.table, with * and ? as wildcards. Default: all tables."
    )
    max_seconds: float | None = Field(default=None, gt=0, description=_SECONDS)


class _FilesConfig(_TablesConfig):
    max_input_bytes: int | None = Field(default=None, ge=1, description="Maximum size in bytes of the files to read. Default: no limit.")
    max_files: int | None = Field(default=None, ge=1, description="Maximum number of files to read. Default: no limit.")


class FlushConfig(_TablesConfig):
    """Configuration of flushing inlined rows."""

    max_rows: int | None = Field(
        default=None, ge=1, description="Number of flushed rows after which no other table is begun. Default: no limit."
    )


class MergeConfig(_FilesConfig):
    """Configuration of merging small files."""

    spark_above_bytes: int | None = Field(
        default=None,
        ge=0,
        description="Size in bytes of the files to merge from which Spark merges them. Default: never. Needs a job with spark_key.",
    )


class RewriteConfig(_FilesConfig):
    """Configuration of rewriting files without their deleted rows."""

    delete_threshold: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Fraction (0 to 1) of deleted rows at which a file is rewritten. Default: the option of the lake.",
    )


class _AgeConfig(_StepConfig):
    min_age_hours: float = Field(
        default=1.0, ge=0, description="Minimum age in hours of snapshots and files that are removed: younger ones may be in use."
    )
    longest_run_hours: float = Field(
        default=168.0,
        ge=0,
        description="Age in hours after which an unfinished run counts as lost and no longer protects snapshots and files.",
    )


class ExpireConfig(_AgeConfig):
    """Configuration of snapshot expiry."""

    older_than_days: float = Field(default=7.0, ge=0, description="Age in days at which snapshots expire.")
    keep_last: int = Field(default=1, ge=1, description="Number of newest snapshots that never expire.")


class _DeletionConfig(_AgeConfig):
    max_files: int | None = Field(
        default=None, ge=1, description="Maximum number of files to delete; the next run deletes the others. Default: no limit."
    )
    max_seconds: float | None = Field(default=None, gt=0, description=_SECONDS)


class CleanupConfig(_DeletionConfig):
    """Configuration of file cleanup."""

    older_than_days: float = Field(default=2.0, ge=0, description="Days after which an unneeded file is deleted.")


class OrphansConfig(_DeletionConfig):
    """Configuration of orphaned file deletion."""

    older_than_days: float = Field(
        default=7.0,
        ge=0,
        description=(
            "Days since the last change after which a file that is not in the catalog is deleted; must be longer than any write takes."
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Work:
    """One running step.

    Attributes:
        lake: The lake.
        context: The op.
        session: Returns a Spark session; None for a job without Spark.
        facts: Metadata in addition to the numbers of the result.
        failures: Errors that did not stop the step; the job fails at its end.
    """

    lake: "DuckLake"
    context: dg.OpExecutionContext
    session: Callable[[], Any] | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def commit(self) -> dict[str, Any]:
        """Return the commit options of the step."""
        run = self.context.run
        facts = {"run_id": run.run_id, "job": run.job_name, "step_key": str(self.context.op_handle), "maintenance": True}
        return {"author": AUTHOR, "extra_info": {"dagster": facts}}

    def tables(self, config: _TablesConfig) -> list[str] | None:
        """Return the tables to maintain, None for all; note names of missing tables as failures."""
        from ducklake_core import TablePattern

        found = []
        for name in config.tables:
            with noted(self.failures, name):
                if not TablePattern.parse(name).has_wildcards:
                    self.lake.table(name)
                found.append(name)
        # An empty list when every named table is missing: None would maintain all tables instead.
        return found if config.tables else None


def _flush(work: Work, config: FlushConfig) -> "MaintenanceResult":
    return work.lake.flush_inlined_data(
        tables=work.tables(config), max_rows=config.max_rows, max_seconds=config.max_seconds, dry_run=config.dry_run, **work.commit()
    )


def _merge(work: Work, config: MergeConfig) -> "MaintenanceResult":
    how: dict[str, Any] = {"tables": work.tables(config), "max_input_bytes": config.max_input_bytes, "max_files": config.max_files}
    session = None
    if config.spark_above_bytes is not None and work.session is not None and not config.dry_run:
        # Starting Spark takes longer than merging little in this process, so the plan is made first.
        planned = sum(table.bytes_read for table in work.lake.merge_adjacent_files(**how, dry_run=True).tables)
        session = work.session() if planned >= config.spark_above_bytes else None
        work.facts["with_spark"] = session is not None
    return work.lake.merge_adjacent_files(**how, max_seconds=config.max_seconds, spark=session, dry_run=config.dry_run, **work.commit())


def _rewrite(work: Work, config: RewriteConfig) -> "MaintenanceResult":
    return work.lake.rewrite_data_files(
        tables=work.tables(config),
        delete_threshold=config.delete_threshold,
        max_input_bytes=config.max_input_bytes,
        max_files=config.max_files,
        max_seconds=config.max_seconds,
        dry_run=config.dry_run,
        **work.commit(),
    )


def _expire(work: Work, config: ExpireConfig) -> "MaintenanceResult":
    result, spared = expire_unpinned(
        work.lake,
        _pins(work, config),
        older_than=timedelta(days=config.older_than_days),
        keep_last=config.keep_last,
        min_age=timedelta(hours=config.min_age_hours),
        dry_run=config.dry_run,
    )
    work.facts.update({"snapshots": len(result.snapshots), "files": len(result.files), "tables": len(result.tables)})
    work.facts["held"] = len(result.held)
    work.facts["kept_for_runs"] = len(spared)
    if spared:
        work.facts["kept_snapshots"] = dg.MetadataValue.json({str(number): reason for number, reason in list(spared.items())[:_MAX_LINES]})
    return result


def _cleanup(work: Work, config: CleanupConfig) -> "MaintenanceResult":
    result = work.lake.cleanup_old_files(**_deletions(work, config, config.older_than_days))
    work.facts["left"] = sum(count for _, count in result.left)
    work.facts.update({"files": len(result.files), "missing": len(result.missing), "kept": len(result.kept), "failed": len(result.failed)})
    if result.failed:
        work.failures.append(f"{len(result.failed)} files could not be deleted; the next run tries again")
    return result


def _orphans(work: Work, config: OrphansConfig) -> "MaintenanceResult":
    result = work.lake.delete_orphaned_files(**_deletions(work, config, config.older_than_days))
    work.facts["left"] = sum(count for _, count in result.left)
    work.facts.update({"files": len(result.files), "kept": len(result.kept), "failed": len(result.failed), "uploads": len(result.uploads)})
    if result.failed:
        work.failures.append(f"{len(result.failed)} orphaned files could not be deleted; the next run tries again")
    return result


def _deletions(work: Work, config: _DeletionConfig, days: float) -> dict[str, Any]:
    return {
        "older_than": _bound(work, config, days),
        "min_age": timedelta(hours=config.min_age_hours),
        "max_files": config.max_files,
        "max_seconds": config.max_seconds,
        "dry_run": config.dry_run,
    }


def _pins(work: Work, config: _AgeConfig) -> Pins:
    return find_pins(work.lake, work.context.instance, work.context.run_id, longest=timedelta(hours=config.longest_run_hours))


def _bound(work: Work, config: _AgeConfig, days: float) -> datetime | timedelta:
    """Return the age; or, when an unfinished run may still need younger files, the time when that run began."""
    pins, age = _pins(work, config), timedelta(days=days)
    bound = datetime.now(UTC) - age
    if pins.latest(bound) == bound:
        return age
    work.facts["kept_for_run"] = pins.run_id
    return pins.latest(bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    config: type[_StepConfig]
    run: Callable[[Work, Any], "MaintenanceResult"]
    text: str


STEPS: Mapping[MaintenanceVerb, _Step] = {
    "flush_inlined_data": _Step(
        config=FlushConfig, run=_flush, text="Moves inlined rows from the catalog to files, with one snapshot for each table."
    ),
    "expire_snapshots": _Step(config=ExpireConfig, run=_expire, text="Expires old snapshots of the lake."),
    "merge_adjacent_files": _Step(
        config=MergeConfig, run=_merge, text="Merges small files into larger ones; small tables share a snapshot."
    ),
    "rewrite_data_files": _Step(
        config=RewriteConfig, run=_rewrite, text="Rewrites files with many deleted rows, with one snapshot for each table."
    ),
    "cleanup_old_files": _Step(config=CleanupConfig, run=_cleanup, text="Deletes files that no snapshot needs any more."),
    "delete_orphaned_files": _Step(config=OrphansConfig, run=_orphans, text="Deletes files of lost writers, which are not in the catalog."),
}


def step_op(
    job: str, step: MaintenanceVerb, defaults: Mapping[str, Any], *, lake_key: str, spark_key: str | None, pool: str | None
) -> dg.OpDefinition:
    """Build the op of a step. Its name begins with the name of the job, because op names are unique in a project.

    Args:
        job: Name of the job.
        step: The operation.
        defaults: Settings that the run config does not override.
        lake_key: Resource key of the lake.
        spark_key: Resource key of a resource with a ``spark_session``.
        pool: Dagster pool.
    """
    kind = STEPS[step]
    keys = {lake_key} | ({spark_key} if spark_key is not None and step == "merge_adjacent_files" else set())

    def compute(context: dg.OpExecutionContext, config: Any) -> None:
        session = (lambda: getattr(context.resources, spark_key).spark_session) if spark_key in keys else None
        work = Work(lake=getattr(context.resources, lake_key).connect(), context=context, session=session)
        if not config.enabled:
            context.add_output_metadata({"enabled": False})
            return
        results = []
        with noted(work.failures, step.replace("_", " ")):
            results.append(kind.run(work, config))
        _finish(work, results, dry_run=config.dry_run)

    # Dagster takes the config class from the annotation, and it is known only here: its defaults are those of the job.
    compute.__annotations__ = {"context": dg.OpExecutionContext, "config": _with_defaults(kind.config, defaults), "return": None}
    after = {"after": dg.In(dg.Nothing)}
    return dg.op(name=f"{job}__{step}", required_resource_keys=keys, pool=pool, ins=after, description=kind.text)(compute)


def _with_defaults(config: type[_StepConfig], defaults: Mapping[str, Any]) -> type[_StepConfig]:
    """Return the same config with other defaults: a run that changes one setting must keep the others, above all ``dry_run``."""
    fields: dict[str, Any] = {}
    for name, found in config.model_fields.items():
        if name in defaults:
            own = copy(found)
            own.default, own.default_factory = defaults[name], None
            fields[name] = (found.annotation, own)
    return create_model(config.__name__, __base__=config, **fields)


def outcome_op(job: str, lake_key: str, assets: Assets, schema: str | None) -> dg.OpDefinition:
    """Build the last op of a job: it observes assets, and fails with the errors of the steps before."""
    tables = asset_tables(assets, schema)

    @dg.op(
        name=f"{job}__outcome",
        required_resource_keys={lake_key},
        ins={"after": dg.In(dg.Nothing)},
        description="Observes the tables of assets, and fails with the errors of the steps before.",
    )
    def outcome(context: dg.OpExecutionContext) -> None:
        # From the event log, since the steps of a run may be separate processes, and pass no data to each other.
        failures: list[str] = []
        for log in context.instance.all_logs(context.run_id, of_type=dg.DagsterEventType.STEP_OUTPUT):
            event = log.dagster_event
            found = event.step_output_data.metadata.get(_FAILURES) if event else None
            if event and found is not None:
                failures += [f"{event.step_key}: {failure}" for failure in found.value]  # type: ignore[union-attr]
        with noted(failures, "observing the tables"):
            lake = getattr(context.resources, lake_key).connect()
            for observation in table_observations(lake, tables, f"After {job}"):
                context.log_event(observation)
            if tables and (elsewhere := other_schemas_text(lake, tables)):
                context.log.warning("%s", elsewhere)
        if failures:
            raise dg.Failure("\n".join(failures), allow_retries=False)

    return outcome


@contextmanager
def noted(failures: list[str], what: str) -> Iterator[None]:
    """Note an error of the lake as a failure instead of raising it, so that it does not stop the other steps and tables."""
    try:
        yield
    except DuckLakeError as error:
        failures.append(f"{what}: {error}")


def _finish(work: Work, results: "Sequence[MaintenanceResult]", *, dry_run: bool) -> None:
    """Report the results and failures of a step; the job's last step raises the failures after all steps have run."""
    metadata: dict[str, Any] = {"dry_run": dry_run, "report": _report(results), **work.facts}
    for result in results:
        work.failures.extend(getattr(result, "failures", ()))
        for table in getattr(result, "tables", ()):
            if any(step.outcome in ("done", "planned") and step.target == getattr(table, "table", None) for step in result.steps):
                facts = {name: getattr(table, name, 0) for name in _TABLE_FACTS}
                metadata |= {f"{table.table}/{name}": number for name, number in facts.items() if number}
    for failure in work.failures:
        work.context.log.error("%s", failure)
    if work.failures:
        metadata[_FAILURES] = dg.MetadataValue.json(list(work.failures))
    work.context.log.info("%s", metadata["report"])
    work.context.add_output_metadata(metadata)


def _report(results: "Sequence[MaintenanceResult]") -> str:
    lines = [line for result in results for line in result.lines()]
    return "\n".join([*lines[:_MAX_LINES], f"... and {len(lines) - _MAX_LINES} lines more"] if len(lines) > _MAX_LINES else lines)


def table_observations(lake: "DuckLake", tables: "Sequence[AssetTable]", did: str) -> Iterator[dg.AssetObservation]:
    """Yield an observation of every asset whose table exists.

    Args:
        lake: The lake after maintenance.
        tables: Assets.
        did: Description of the events.
    """
    if not tables:
        return
    known = {folded(info.table): info for info in lake.tables()}
    snapshots = lake.health().snapshot_count
    for table in tables:
        info = known.get(folded(table.address.sql))
        if info is not None:
            yield dg.AssetObservation(asset_key=table.key, description=did, metadata=_numbers(info, snapshots))


def _numbers(info: "TableInfo", snapshots: int) -> dict[str, Any]:
    # Rows in files, deleted ones included.
    stored = info.row_count - info.inlined_row_count + info.deleted_row_count
    return {
        "dagster/row_count": info.row_count,
        "dagster/size_bytes": info.file_size_bytes,
        "ducklake/snapshot_id": info.snapshot_id,
        "ducklake/table_files": info.file_count,
        "ducklake/avg_file_bytes": info.file_size_bytes // info.file_count if info.file_count else 0,
        "ducklake/delete_files": info.delete_file_count,
        "ducklake/delete_ratio": round(info.deleted_row_count / stored, 6) if stored > 0 else 0.0,
        "ducklake/inlined_rows": info.inlined_row_count,
        "ducklake/lake_snapshots": snapshots,
    }
