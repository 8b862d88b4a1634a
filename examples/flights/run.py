"""Run the demo from an empty folder to a maintained lake, in this process and on one Spark session."""

from __future__ import annotations

import os
import shutil
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
import pyarrow as pa
from rich.console import Console
from rich.rule import Rule

from ducklake_core import DuckLake
from ducklake_dagster.config.resources import DuckLakeResource
from examples.flights import chapters, report
from examples.flights.places import CATALOG, DAGSTER_HOME, FILES

QUIET = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


class Demo:
    """Runs steps one after another and prints what they did."""

    def __init__(self, console: Console, instance: dg.DagsterInstance) -> None:
        # Dagster's warnings about preview APIs would hide the demo's own output.
        warnings.simplefilter("ignore")
        # Imported only now, since warnings already come while definitions are built.
        from examples.flights import definitions

        self.console = console
        self.instance = instance
        self.project = definitions

    @property
    def lake_resource(self) -> DuckLakeResource:
        """Return the resource of the demo's lake."""
        return self.project.lake

    @property
    def lake(self) -> DuckLake:
        """Return the demo's lake."""
        return self.project.lake.connect()

    def materialize(self, assets: Sequence[dg.AssetsDefinition], what: str, **how: Any) -> None:
        """Materialise some assets with their checks in one run, and print the result."""
        started = time.monotonic()
        keys = {key for asset in assets for key in asset.keys}
        checks = [check for check in self.project.checks if any(key.asset_key in keys for key in check.check_keys)]
        selection = dg.AssetSelection.assets(*assets)
        result = dg.materialize(
            [*self.project.all_assets, *checks],
            selection=selection | dg.AssetSelection.checks_for_assets(*assets),
            resources=self.project.resources,
            instance=self.instance,
            run_config=QUIET,
            **how,
        )
        report.run_line(self.console, what, result, time.monotonic() - started)

    def run(self, assets: Sequence[dg.AssetsDefinition], **how: Any) -> dg.ExecuteInProcessResult:
        """Materialise some assets with their checks in one run, which may fail, and print nothing."""
        silent = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
        settings = {"resources": self.project.resources, "instance": self.instance, "run_config": silent, "raise_on_error": False, **how}
        selection = dg.AssetSelection.assets(*assets)
        return dg.materialize([*self.project.all_assets, *self.project.checks], selection=selection, **settings)

    def backfill(self, assets: Sequence[dg.AssetsDefinition], first: str, last: str) -> None:
        """Materialise a range of partitions in one run."""
        self.materialize(assets, f"backfill {first} to {last} in one run", tags={RANGE_START: first, RANGE_END: last})

    def maintain(self, config: Mapping[str, Mapping[str, object]]) -> None:
        """Run the maintenance job once, and print the result."""
        started = time.monotonic()
        job = self.project.defs.resolve_job_def("ducklake_maintenance")
        ops = {op: {"config": dict(values)} for op, values in config.items()}
        result = job.execute_in_process(instance=self.instance, run_config={**QUIET, "ops": ops})
        report.maintenance_lines(self.console, result, time.monotonic() - started)

    def tick(self, sensor: dg.SensorDefinition, cursor: str | None = None) -> Any:
        """Evaluate a sensor once and store its events, as the daemon does."""
        context = dg.build_sensor_context(instance=self.instance, cursor=cursor, resources={"lake": self.project.lake})
        tick = sensor.evaluate_tick(context)
        for event in tick.asset_events:
            self.instance.report_runless_asset_event(event)
        return tick

    def title(self, text: str) -> None:
        """Print the heading of a new part."""
        self.console.print(Rule(f"[bold]{text}", align="left", style="cyan"))


def _clear() -> None:
    CATALOG.unlink(missing_ok=True)
    for place in (FILES, DAGSTER_HOME):
        shutil.rmtree(place, ignore_errors=True)
    DAGSTER_HOME.mkdir(parents=True)
    (DAGSTER_HOME / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")


def _story(demo: Demo) -> None:
    assets = demo.project.flight_assets
    daily = [assets.flights, assets.carrier_delays, assets.routes]

    demo.title("Reference tables and weather: pyarrow, no Spark")
    demo.materialize(demo.project.reference, "reference tables")

    demo.title("Two months of flights: one run, one commit for each table")
    demo.backfill(daily, "2013-01-01", "2013-02-28")
    demo.backfill([assets.flights_weather], "2013-01-01|EWR", "2013-02-28|LGA")

    demo.title("Three more days, one by one")
    for day in ("2013-03-01", "2013-03-02", "2013-03-03"):
        demo.materialize(daily, day, partition_key=day)

    demo.title("The same day again: rows are replaced, not doubled")
    before = demo.lake.table_info("flights").row_count
    demo.materialize([assets.flights], "2013-03-02 again", partition_key="2013-03-02")
    after = demo.lake.table_info("flights").row_count
    demo.console.print(f"  flights had {before:,} rows before and has {after:,} rows after")
    if before != after:
        raise RuntimeError("re-materialising a day changed the number of rows")

    demo.title("Snapshots and their authors")
    report.snapshots(demo.console, demo.lake)

    demo.title("Another client commits, and the sensor reports it to Dagster")
    seen = demo.tick(demo.project.commit_sensor).cursor
    by_hand = pa.table({"carrier": ["ZZ"], "name": ["Chartered by hand"]})
    demo.lake.table("airlines").append(by_hand, author="analyst", message="a carrier that was missing")
    report.events(demo.console, demo.tick(demo.project.commit_sensor, seen))

    chapters.audits(demo)
    chapters.checks(demo)
    chapters.changes(demo)
    chapters.partner(demo)
    chapters.branch(demo)
    chapters.component(demo)

    demo.title("Maintenance: flush inlined rows, merge small files, expire old snapshots, delete unneeded files")
    report.requests(demo.console, demo.tick(demo.project.defs.resolve_sensor_def("ducklake_maintenance_sensor")))
    # Nothing else works on this lake, so the age floors that protect readers and writers may be zero.
    now = {"older_than_days": 0.0, "min_age_hours": 0.0}
    demo.maintain({"expire_snapshots": {**now, "keep_last": 5}, "cleanup_old_files": now, "delete_orphaned_files": {"enabled": False}})


def main() -> None:
    """Run the whole demo on a new lake."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 140
    started = time.monotonic()
    _clear()
    os.environ["DAGSTER_HOME"] = str(DAGSTER_HOME)
    os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")
    with dg.DagsterInstance.get() as instance:
        demo = Demo(console, instance)
        _story(demo)
        demo.title("The lake")
        report.tables(console, demo.lake)
        report.query(console, demo.lake)
        report.other_doors(console)
    console.print(f"[dim]{time.monotonic() - started:.0f} s in all. The lake is in {CATALOG.parent}.")
