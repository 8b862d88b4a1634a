"""Tell the parts of the demo that need no Spark: audits, changes, a partner who writes too, a branch, and YAML."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pyarrow as pa
import yaml

from examples.flights import fleet
from examples.flights.places import HOME

if TYPE_CHECKING:
    from examples.flights.run import Demo


def audits(demo: Demo) -> None:
    """Show that rows which fail an audit never become visible."""
    demo.title("Write, audit, publish: rows that fail an audit stay invisible")
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


def checks(demo: Demo) -> None:
    """Show a check that fails, and the asset that waits for it."""
    demo.title("A blocking check: downstream assets wait until it passes")
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


def changes(demo: Demo) -> None:
    """Show an asset that reads only the changes since it last ran."""
    demo.title("Read only the changes since the last run")
    for what, rename in (("all carriers, the first time", False), ("after one was renamed", True)):
        if rename:
            demo.lake.table("airlines").update({"name": "'Chartered Airways'"}, where="carrier = 'ZZ'", author="analyst")
        before = demo.lake.table_info("carrier_changes").row_count if demo.lake.has_table("carrier_changes") else 0
        demo.run([fleet.carrier_changes], raise_on_error=True)
        demo.console.print(f"  {what}: {demo.lake.table_info('carrier_changes').row_count - before} changes")


def partner(demo: Demo) -> None:
    """Show tables of another writer as assets, and a sensor that requests a run of the asset that reads them."""
    from ducklake_dagster import build_commit_sensor, load_table_specs

    demo.title("Tables of a partner: external assets, and a sensor that runs the assets that read them")
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


def branch(demo: Demo) -> None:
    """Run the same project in a branch next to production, and publish the branch."""
    from ducklake_dagster import DuckLakeIOManager

    demo.title("A branch: read production, write to a copy, with one setting")
    manager = DuckLakeIOManager(lake=demo.lake_resource, default_frame="arrow", branch="trial")
    before = demo.lake.table("fleet").info()
    demo.run([fleet.fleet], resources={**demo.project.resources, "io_manager": manager}, raise_on_error=True)
    for info in demo.lake.tables("main__trial"):
        demo.console.print(f"  {info.table}: {info.row_count:,} rows; production has its {before.row_count:,} as before")
    demo.lake.write("fleet", demo.lake.table("main__trial.fleet"), mode="overwrite", author="analyst", message="publish the branch trial")
    demo.console.print(f"  published in one commit, snapshot {demo.lake.snapshot().id}: production has the rows of the branch")
    demo.lake.drop_schema("main__trial", cascade=True, author="dagster", message="the branch is published")


def component(demo: Demo) -> None:
    """Load the same lake from YAML."""
    from ducklake_dagster import DuckLakeComponent

    demo.title("The same lake as a component in YAML")
    os.environ["DUCKLAKE_DEMO_HOME"] = str(HOME)
    text = Path(__file__).with_name("lake.yaml")
    loaded = DuckLakeComponent.from_attributes_dict(attributes=yaml.safe_load(text.read_text())["attributes"])
    demo.console.print("".join(f"  [dim]{line}\n" for line in text.read_text().splitlines()[1:]), end="")
    demo.console.print(f"  has {len(loaded.resource().connect().tables())} tables")
