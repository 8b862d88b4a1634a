"""The five chapters of the demo: ingest, model, test, maintain, and share with DuckDB and others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pyarrow as pa
import yaml

from examples.flights import fleet, report
from examples.flights.places import CATALOG, FILES

if TYPE_CHECKING:
    from examples.flights.run import Demo


def ingest(demo: Demo) -> None:
    """Load raw files: reference tables, two months of flights in one run, then day by day."""
    demo.chapter("1. Ingest", "Load the raw CSV files of a year of flights into tables of a lake.")
    flights = demo.project.flight_assets.flights

    demo.title("Small reference tables, with pyarrow")
    demo.materialize(demo.project.reference, "reference tables")

    demo.title("Two months of flights, with Spark: 59 partitions, one run, one commit")
    demo.backfill([flights], "2013-01-01", "2013-02-28")

    demo.title("Three more days, each in a run of its own")
    for day in ("2013-03-01", "2013-03-02", "2013-03-03"):
        demo.materialize([flights], day, partition_key=day)

    demo.title("One of these days again: its rows are replaced, not doubled")
    before = demo.lake.table_info("flights").row_count
    demo.materialize([flights], "2013-03-02 again", partition_key="2013-03-02")
    after = demo.lake.table_info("flights").row_count
    demo.console.print(f"  flights had {before:,} rows before and has {after:,} rows after")
    if before != after:
        raise RuntimeError("re-materialising a day changed the number of rows")


def model(demo: Demo) -> None:
    """Derive tables: joined, aggregated, ranked, upserted, and built from changes alone."""
    demo.chapter("2. Model", "Derive tables that analysts need from the raw ones.")
    assets = demo.project.flight_assets

    demo.title("Delays by carrier (Spark), the carriers ranked by them (polars), and the latest state of each route (an upsert)")
    demo.backfill([assets.carrier_delays, assets.carrier_ranks, assets.routes], "2013-01-01", "2013-03-03")

    demo.title("Flights joined with the weather of their hour: partitions by day and airport")
    demo.backfill([assets.flights_weather], "2013-01-01|EWR", "2013-02-28|LGA")

    demo.title("A history of changes: each run reads only what changed since the last one")
    for what, carrier in (("first run, all carriers", ""), ("after a carrier was added", "ZZ")):
        if carrier:
            rows = pa.table({"carrier": [carrier], "name": ["Chartered by hand"]})
            demo.lake.table("airlines").append(rows, author="analyst", message="a carrier that was missing")
        before = demo.lake.table_info("carrier_changes").row_count if demo.lake.has_table("carrier_changes") else 0
        demo.run([fleet.carrier_changes], raise_on_error=True)
        count = demo.lake.table_info("carrier_changes").row_count - before
        demo.console.print(f"  {what}: {count} {'change' if count == 1 else 'changes'}")


def quality(demo: Demo) -> None:
    """Test data before and after the commit, and test code in a branch."""
    demo.chapter("3. Test", "Keep bad rows out, stop runs on bad tables, and try new code without touching production.")
    _audits(demo)
    _checks(demo)
    _branch(demo)


def maintain(demo: Demo) -> None:
    """Read the history, and clean up."""
    demo.chapter("4. Maintain", "See who changed what, and keep the lake small.")

    demo.title("Every commit is a snapshot with an author and, if Dagster made it, its run")
    report.snapshots(demo.console, demo.lake)

    demo.title("Maintenance: a sensor finds tables that need it, and a job does the work")
    report.requests(demo.console, demo.tick(demo.project.defs.resolve_sensor_def("ducklake_maintenance_sensor")))
    # Nothing else works on this lake, so the age floors that protect readers and writers may be zero.
    now = {"older_than_days": 0.0, "min_age_hours": 0.0}
    demo.maintain({"expire_snapshots": {**now, "keep_last": 5}, "cleanup_old_files": now, "delete_orphaned_files": {"enabled": False}})
    report.tables(demo.console, demo.lake)


def share(demo: Demo) -> None:
    """Let DuckDB and other writers work on the same tables, and follow what they change."""
    demo.chapter("5. Share", "Analysts query the same tables in DuckDB, and others write to them. Dagster follows.")

    demo.title("A query: are flights later when visibility is poor?")
    report.query(demo.console, demo.lake)
    report.duckdb_query(demo.console, demo.project.lake.process_config_and_initialize())

    demo.title("An analyst corrects a row; the sensor reports the commit to Dagster")
    seen = demo.tick(demo.project.commit_sensor).cursor
    demo.lake.table("airlines").update({"name": "'Chartered Airways'"}, where="carrier = 'ZZ'", author="analyst", message="its new name")
    report.events(demo.console, demo.tick(demo.project.commit_sensor, seen))

    _partner(demo)
    _component(demo)


def _audits(demo: Demo) -> None:
    """Show that rows which fail an audit never become visible."""
    demo.title("Audits run before the commit: rows that fail one never become visible")
    demo.materialize([fleet.fleet], "fleet, with audits")
    planes = demo.lake.table("planes")
    before = demo.lake.table("fleet").snapshot_id, demo.lake.table_info("fleet").row_count
    planes.append(
        pa.table({"tailnum": ["N00000"], "seats": pa.array([-1], pa.int64())}),
        missing_columns="null",
        author="analyst",
        message="a plane without seats",
    )
    failed = demo.run([fleet.fleet])
    failure = failed.failure_data_for_node("fleet")
    description = failure.user_failure_data.description if failure is not None and failure.user_failure_data is not None else None
    if failed.success or demo.lake.table_info("fleet").row_count != before[1]:
        raise RuntimeError("rows that fail an audit were committed")
    demo.console.print(f"  [yellow]rejected:[/] {description}")
    planes.delete("tailnum = 'N00000'", author="analyst", message="a mistake")


def _checks(demo: Demo) -> None:
    """Show a check that fails, and the asset that waits for it."""
    demo.title("Checks run after the commit: if a blocking one fails, downstream assets are not computed")
    for has_charters in (False, True):
        if has_charters:
            demo.lake.table("airlines").append(pa.table({"carrier": ["YY"], "name": ["Charters & Co."]}), author="analyst")
        result = demo.run([fleet.charters, fleet.charter_names])
        (found,) = result.get_asset_check_evaluations()
        verdict = "passed" if found.passed else "failed"
        after = "was made" if result.asset_materializations_for_node("charter_names") else "was not made"
        case = "with a charter airline" if has_charters else "without charter airlines"
        demo.console.print(f"  {case}: charters.{found.check_name} {verdict} ({found.description}), charter_names {after}")
        if found.passed != has_charters or result.success != found.passed:
            raise RuntimeError("a blocking check did not stop the downstream asset")


def _partner(demo: Demo) -> None:
    """Show tables of another writer as assets, and a sensor that requests a run of the asset that reads them."""
    from ducklake_dagster import build_commit_sensor, load_table_specs

    demo.title("Tables that a partner writes are assets too, and a sensor runs what reads them")
    demo.lake.write("partner.bookings", pa.table({"flight": [1545], "seats": [2]}), author="partner", comment="Seats that were sold")
    demo.lake.create_view("partner.groups", "SELECT flight, seats FROM partner.bookings WHERE seats > 1", author="partner")
    specs = load_table_specs(demo.lake, include="partner.*")
    for spec in specs:
        reads = ", ".join(dep.asset_key.to_user_string() for dep in spec.deps)
        text = spec.description or (f"a view of {reads}" if reads else "")
        demo.console.print(f"  {spec.key.to_user_string()}: {text}")
    sensor = build_commit_sensor(name="partner", assets=specs[:1], request_runs=[fleet.booking_report])
    defs = dg.Definitions(assets=[*specs, fleet.booking_report], sensors=[sensor])
    # The first tick only notes the newest snapshot; commits after it are reported.
    first = sensor.evaluate_tick(dg.build_sensor_context(instance=demo.instance, resources={"lake": demo.lake_resource}, definitions=defs))
    demo.lake.table("partner.bookings").append(pa.table({"flight": [1714], "seats": [4]}), author="partner")
    tick = sensor.evaluate_tick(
        dg.build_sensor_context(instance=demo.instance, resources={"lake": demo.lake_resource}, definitions=defs, cursor=first.cursor)
    )
    for request in tick.run_requests or ():
        demo.console.print(f"  the sensor requests a run of {', '.join(key.to_user_string() for key in request.asset_selection or ())}")


def _branch(demo: Demo) -> None:
    """Run the same project in a branch next to production, and publish the branch."""
    from ducklake_dagster import DuckLakeIOManager

    demo.title("A branch reads production and writes next to it")
    manager = DuckLakeIOManager(lake=demo.lake_resource, default_frame="arrow", branch="trial")
    before = demo.lake.table("fleet").info()
    demo.run([fleet.fleet], resources={**demo.project.resources, "io_manager": manager}, raise_on_error=True)
    for info in demo.lake.tables("main__trial"):
        demo.console.print(f"  {info.table}: {info.row_count:,} rows; production has its {before.row_count:,} as before")
    demo.lake.write("fleet", demo.lake.table("main__trial.fleet"), mode="overwrite", author="analyst", message="publish the branch trial")
    demo.console.print(f"  published in one commit, snapshot {demo.lake.snapshot().id}: production has the rows of the branch")
    demo.lake.drop_schema("main__trial", cascade=True, author="dagster", message="the branch is published")


def _component(demo: Demo) -> None:
    """Load the same lake from YAML."""
    from ducklake_dagster import DuckLakeComponent

    demo.title("The same lake in YAML, as a component")
    for name, default in (("LAKE_CATALOG", f"sqlite:///{CATALOG}"), ("LAKE_DATA_PATH", f"{FILES}/")):
        os.environ.setdefault(name, default)
    kind = "s3" if os.environ["LAKE_DATA_PATH"].startswith("s3://") else "local"
    text = Path(__file__).with_name(f"lake_{kind}.yaml").read_text()
    loaded = DuckLakeComponent.from_attributes_dict(attributes=yaml.safe_load(text)["attributes"])
    demo.console.print("".join(f"  [dim]{line}\n" for line in text.splitlines()[1:]), end="")
    demo.console.print(f"  The component's lake has {len(loaded.resource().process_config_and_initialize().connect().tables())} tables.")
