"""Define the component of a lake's maintenance: a job, a schedule, and a sensor that requests runs when they are needed."""

# No `from __future__ import annotations`: Dagster reads the annotations of components.
from collections.abc import Mapping, Sequence
from typing import Annotated, get_args

import dagster as dg
from pydantic import Field

from ducklake_dagster.components.lake import MaintenanceScaffolder, lake_component
from ducklake_dagster.maintenance.jobs import POOL, MaintenanceLimits, Triggers, build_maintenance_defs
from ducklake_dagster.maintenance.steps import MaintenanceVerb

_NIGHTLY = "H 3 * * *"


class LimitSettings(dg.Model, dg.Resolvable):
    """Limits of one run, as in :class:`MaintenanceLimits`."""

    max_input_bytes: Annotated[int | None, Field(description="Bytes of files that merging reads, and that rewriting reads.")] = None
    max_files: Annotated[int | None, Field(description="Number of files that merging reads, and that rewriting reads.")] = None
    max_rows: Annotated[int | None, Field(description="Inlined rows after which flushing begins no further table.")] = None
    max_deleted_files: Annotated[int | None, Field(description="Files that each step of deletion deletes.")] = None
    max_seconds: Annotated[float | None, Field(description="Seconds after which a step begins nothing further.")] = None


class TriggerSettings(dg.Model, dg.Resolvable):
    """From when on the sensor asks for a run; those of :class:`Triggers`."""

    small_files: Annotated[int | None, Field(description="Files of a table that can be merged.")] = None
    delete_ratio: Annotated[float | None, Field(description="Part of the rows in files that deletes hide.")] = None
    inlined_rows: Annotated[int | None, Field(description="Rows of a table that the catalog itself holds.")] = None
    snapshots: Annotated[int | None, Field(description="Snapshots of the lake.")] = None
    scheduled_files: Annotated[int | None, Field(description="Files that wait for their deletion.")] = None
    small_file_bytes: Annotated[int | None, Field(description="Size below which a file is small.")] = None
    minimum_interval_seconds: Annotated[int, Field(description="Seconds between evaluations.")] = 300


@dg.scaffold_with(MaintenanceScaffolder)
class DuckLakeMaintenanceComponent(dg.Component, dg.Model, dg.Resolvable):
    """All maintenance of a DuckLake, as ``build_maintenance_defs`` makes it: flush, expire, merge, rewrite, delete.

    Schedule and sensor ship stopped.
    """

    lake: Annotated[str, Field(description="Folder of the DuckLakeComponent below defs.")]
    name: Annotated[str, Field(description="Name of the job.")] = "ducklake_maintenance"
    tables: Annotated[Sequence[str], Field(description="Tables to flush, merge and rewrite, with * and ?; all when empty.")] = ()
    steps: Annotated[Sequence[MaintenanceVerb], Field(description="Steps, in their order.")] = get_args(MaintenanceVerb)
    expire_older_than: Annotated[str, Field(description="Age from which snapshots are expired.", examples=["7 days"])] = "7 days"
    keep_last: Annotated[int, Field(description="Newest snapshots that are kept whatever their age.")] = 1
    cleanup_older_than: Annotated[str, Field(description="Time since a file became unneeded.", examples=["2 days"])] = "2 days"
    orphans_older_than: Annotated[str, Field(description="Age of files that the catalog does not know.", examples=["7 days"])] = "7 days"
    delete_threshold: Annotated[float | None, Field(description="Part of a file's rows that must be deleted to rewrite it.")] = None
    limits: Annotated[LimitSettings | None, Field(description="How much one run does at most; no limits when left out.")] = None
    triggers: Annotated[TriggerSettings | None, Field(description="From when on a sensor asks for a run; no sensor when left out.")] = None
    spark_key: Annotated[str | None, Field(description="Resource key of something with a spark_session.")] = None
    spark_above_bytes: Annotated[int | None, Field(description="Bytes to merge from which Spark does the work.")] = None
    dry_run: Annotated[bool, Field(description="Only report.")] = False
    pool: Annotated[str | None, Field(description="Dagster pool of the steps.")] = POOL
    run_tags: Annotated[Mapping[str, str], Field(description="Tags of the runs.")] = {}
    cron_schedule: Annotated[str | None, Field(description="When the job runs; no schedule when empty.")] = _NIGHTLY
    execution_timezone: Annotated[str | None, Field(description="Time zone of the schedule.")] = None

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return tags by which tools group components."""
        return dg.ComponentTypeSpec(description="Maintenance of a DuckLake.", tags=["ducklake", "lakehouse"])

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build job, schedule and sensor."""
        defs = build_maintenance_defs(
            name=self.name,
            lake_key=lake_component(context, self.lake).resource_key,
            tables=list(self.tables),
            steps=list(self.steps),
            expire_older_than=self.expire_older_than,
            keep_last=self.keep_last,
            cleanup_older_than=self.cleanup_older_than,
            orphans_older_than=self.orphans_older_than,
            delete_threshold=self.delete_threshold,
            limits=MaintenanceLimits(**self.limits.model_dump()) if self.limits is not None else None,
            triggers=Triggers(**self.triggers.model_dump()) if self.triggers is not None else None,
            spark_key=self.spark_key,
            spark_above_bytes=self.spark_above_bytes,
            dry_run=self.dry_run,
            pool=self.pool,
            run_tags=self.run_tags,
            cron_schedule=self.cron_schedule or _NIGHTLY,
            execution_timezone=self.execution_timezone,
        )
        return defs if self.cron_schedule else dg.Definitions(jobs=defs.jobs, sensors=defs.sensors)
