"""Run the demo from an empty folder to a maintained lake, in this process and on one Spark session."""

from __future__ import annotations

import os
import shutil
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
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
        # The resource may name environment variables, which Dagster reads when a run begins; here there is none.
        opened: DuckLakeResource = self.project.lake.process_config_and_initialize()
        return opened.connect()

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

    def chapter(self, name: str, text: str) -> None:
        """Print the heading of a chapter, and a sentence about it."""
        self.console.print()
        self.console.print(Rule(f"[bold]{name}", style="cyan"))
        self.console.print(text)

    def title(self, text: str) -> None:
        """Print the heading of a new part."""
        self.console.print(f"\n[bold cyan]{text}")


def _clear() -> None:
    CATALOG.unlink(missing_ok=True)
    for place in (FILES, DAGSTER_HOME):
        shutil.rmtree(place, ignore_errors=True)
    DAGSTER_HOME.mkdir(parents=True)
    (DAGSTER_HOME / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")


def main() -> None:
    """Run the whole demo on a new lake. A lake that environment variables name must be empty."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 140
    started = time.monotonic()
    _clear()
    os.environ["DAGSTER_HOME"] = str(DAGSTER_HOME)
    os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")
    with dg.DagsterInstance.get() as instance:
        demo = Demo(console, instance)
        for chapter in (chapters.ingest, chapters.model, chapters.quality, chapters.maintain, chapters.share):
            chapter(demo)
    console.print(f"[dim]{time.monotonic() - started:.0f} s in all. `make ui` opens the project in Dagster.")
