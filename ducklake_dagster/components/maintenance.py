"""Define the component of a lake's maintenance: a job, a schedule, and a sensor that requests runs when they are needed."""

# No `from __future__ import annotations`: Dagster reads the annotations of components.
from collections.abc import Mapping, Sequence
from typing import Annotated, get_args

import dagster as dg
from pydantic import Field

from ducklake_dagster.components.checks import ResolvedChecks
from ducklake_dagster.components.lake import MaintenanceScaffolder, lake_component
from ducklake_dagster.maintenance.jobs import POOL, MaintenanceLimits, Triggers, build_maintenance_defs
from ducklake_dagster.maintenance.steps import MaintenanceVerb

_NIGHTLY = "H 3 * * *"


class LimitSettings(dg.Model, dg.Resolvable):
    """Limits of one run, as in :class:`MaintenanceLimits`."""

    max_input_bytes: Annotated[
        int | None, Field(description="Maximum size in bytes of the files that a merge or rewrite step reads. Default: no limit.")
    ] = None
    max_files: Annotated[
        int | None, Field(description="Maximum number of files that a merge or rewrite step reads. Default: no limit.")
    ] = None
    max_rows: Annotated[
        int | None, Field(description="Number of inlined rows after which the flush step begins no other table. Default: no limit.")
    ] = None
    max_deleted_files: Annotated[
        int | None, Field(description="Maximum number of files that each deletion step deletes. Default: no limit.")
    ] = None
    max_seconds: Annotated[float | None, Field(description="Seconds after which a step begins no other work. Default: no limit.")] = None


class TriggerSettings(dg.Model, dg.Resolvable):
    """Conditions under which the sensor requests a run, as in :class:`Triggers`. A condition that is left out never requests a run."""

    small_files: Annotated[int | None, Field(description="Number of files of a table that can be merged.")] = None
    delete_ratio: Annotated[float | None, Field(description="Fraction (0 to 1) of deleted rows in the files of a table.")] = None
    inlined_rows: Annotated[int | None, Field(description="Number of rows of a table that are inlined in the catalog.")] = None
    snapshots: Annotated[int | None, Field(description="Number of snapshots of the lake.")] = None
    scheduled_files: Annotated[int | None, Field(description="Number of files that are scheduled for deletion.")] = None
    small_file_bytes: Annotated[
        int | None, Field(description="Size in bytes below which a file is small. Default: every file that can be merged.")
    ] = None
    minimum_interval_seconds: Annotated[int, Field(description="Minimum number of seconds between evaluations.")] = 300


@dg.scaffold_with(MaintenanceScaffolder)
class DuckLakeMaintenanceComponent(dg.Component, dg.Model, dg.Resolvable):
    """All maintenance of a DuckLake, as in ``build_maintenance_defs``: flush, expire, merge, rewrite and delete.

    The schedule and the sensor are stopped by default.
    """

    lake: Annotated[str, Field(description="Folder of the DuckLakeComponent below defs.")]
    name: Annotated[str, Field(description="Name of the job.")] = "ducklake_maintenance"
    tables: Annotated[
        Sequence[str], Field(description="Tables to flush, merge and rewrite, with * and ? as wildcards. Default: all tables.")
    ] = ()
    steps: Annotated[Sequence[MaintenanceVerb], Field(description="Steps to run, in this order. Default: all steps.")] = get_args(
        MaintenanceVerb
    )
    expire_older_than: Annotated[str, Field(description="Age at which snapshots expire.", examples=["7 days"])] = "7 days"
    keep_last: Annotated[int, Field(description="Number of newest snapshots that never expire.")] = 1
    cleanup_older_than: Annotated[str, Field(description="Time after which unneeded files are deleted.", examples=["2 days"])] = "2 days"
    orphans_older_than: Annotated[
        str, Field(description="Age at which files that are not in the catalog are deleted.", examples=["7 days"])
    ] = "7 days"
    delete_threshold: Annotated[
        float | None, Field(description="Fraction (0 to 1) of deleted rows at which a file is rewritten. Default: the option of the lake.")
    ] = None
    limits: Annotated[LimitSettings | None, Field(description="Limits of one run. Default: no limits.")] = None
    triggers: Annotated[
        TriggerSettings | None, Field(description="Conditions under which a sensor requests a run. Default: no sensor.")
    ] = None
    spark_key: Annotated[str | None, Field(description="Resource key of a resource with a spark_session. Default: no Spark.")] = None
    spark_above_bytes: Annotated[int | None, Field(description="Size in bytes of the files to merge from which Spark merges them.")] = None
    dry_run: Annotated[bool, Field(description="Only report what a run would do.")] = False
    pool: Annotated[str | None, Field(description="Dagster pool of the steps.")] = POOL
    run_tags: Annotated[Mapping[str, str], Field(description="Tags of the runs.")] = {}
    assets: Annotated[
        Sequence[str],
        Field(description="Keys of assets that are tables. A run ends with an observation of each.", examples=[["sales/orders"]]),
    ] = ()
    checks: ResolvedChecks = ()
    cron_schedule: Annotated[
        str | None, Field(description="Cron schedule of the job; H stands for a fixed minute. Empty: no schedule.")
    ] = _NIGHTLY
    execution_timezone: Annotated[str | None, Field(description="Time zone of the schedule. Default: UTC.")] = None

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return tags by which tools group components."""
        return dg.ComponentTypeSpec(description="Maintenance of a DuckLake.", tags=["ducklake", "lakehouse"])

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the job, the schedule and the sensor."""
        lake = lake_component(context, self.lake)
        schema = lake.io_manager.table_schema if lake.io_manager is not None else None
        defs = build_maintenance_defs(
            name=self.name,
            lake_key=lake.resource_key,
            assets=[dg.AssetSpec(dg.AssetKey.from_user_string(key)) for key in self.assets],
            checks=self.checks,
            schema=schema.get_value() if isinstance(schema, dg.EnvVar) else schema,
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
        return defs if self.cron_schedule else dg.Definitions(jobs=defs.jobs, sensors=defs.sensors, asset_checks=defs.asset_checks)
