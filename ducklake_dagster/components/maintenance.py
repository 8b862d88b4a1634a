"""The maintenance of a lake in YAML: job, schedule, and a sensor that compacts."""

# No `from __future__ import annotations`: Dagster reads the annotations of components.
from collections.abc import Sequence
from typing import Annotated

import dagster as dg
from pydantic import Field

from ducklake_dagster.components.scaffolders import MaintenanceScaffolder
from ducklake_dagster.components.tables import lake_component
from ducklake_dagster.maintenance import POOL, build_compaction_sensor, build_maintenance_job, build_maintenance_schedule


class CompactionSettings(dg.Model, dg.Resolvable):
    """Settings of the sensor; those of :func:`build_compaction_sensor`."""

    name: Annotated[str, Field(description="Name of the sensor.")] = "ducklake_compaction"
    min_files: Annotated[int, Field(description="Files that can be merged from which a run is worth it.")] = 8
    minimum_interval_seconds: Annotated[int, Field(description="Seconds between evaluations.")] = 300


@dg.scaffold_with(MaintenanceScaffolder)
class DuckLakeMaintenanceComponent(dg.Component, dg.Model, dg.Resolvable):
    """Maintenance of a DuckLake: merge small files, expire snapshots, delete what nothing needs.

    Schedule and sensor ship stopped.
    """

    lake: Annotated[str, Field(description="Folder of the DuckLakeComponent below defs.")]
    name: Annotated[str, Field(description="Name of the job.")] = "ducklake_maintenance"
    tables: Annotated[Sequence[str], Field(description="Tables to merge files of; all when empty.")] = ()
    expire_older_than: Annotated[str, Field(description="Age from which snapshots are expired.", examples=["7 days"])] = "7 days"
    keep_last: Annotated[int, Field(description="Newest snapshots that are kept whatever their age.")] = 1
    cleanup_older_than: Annotated[str, Field(description="Time since a file became unneeded.", examples=["2 days"])] = "2 days"
    dry_run: Annotated[bool, Field(description="Only report.")] = False
    pool: Annotated[str | None, Field(description="Dagster pool of the steps.")] = POOL
    cron_schedule: Annotated[str | None, Field(description="When the job runs; no schedule when empty.")] = "0 3 * * *"
    execution_timezone: Annotated[str | None, Field(description="Time zone of the schedule.")] = None
    compaction: Annotated[CompactionSettings | None, Field(description="The sensor that merges files; none when left out.")] = None

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Tags by which tools group components."""
        return dg.ComponentTypeSpec(description="Maintenance of a DuckLake.", tags=["ducklake", "lakehouse"])

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Job, schedule and sensor."""
        lake_key = lake_component(context, self.lake).resource_key
        job = build_maintenance_job(
            name=self.name,
            lake_key=lake_key,
            tables=list(self.tables),
            expire_older_than=self.expire_older_than,
            keep_last=self.keep_last,
            cleanup_older_than=self.cleanup_older_than,
            dry_run=self.dry_run,
            pool=self.pool,
        )
        schedules = []
        if self.cron_schedule:
            schedules = [build_maintenance_schedule(job, cron_schedule=self.cron_schedule, execution_timezone=self.execution_timezone)]
        sensors = []
        if self.compaction is not None:
            sensors = [build_compaction_sensor(lake_key=lake_key, tables=list(self.tables), pool=self.pool, **self.compaction.model_dump())]
        return dg.Definitions(jobs=[job], schedules=schedules, sensors=sensors)
