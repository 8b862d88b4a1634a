"""Print the results of the demo."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from dagster import ExecuteInProcessResult
from rich.console import Console
from rich.table import Table

from ducklake_core import DuckLake
from ducklake_dagster import SqliteCatalog
from ducklake_dagster.assets.provenance import dagster_facts
from ducklake_dagster.config.resources import DuckLakeResource
from examples.flights.places import CATALOG, FILES


def run_line(console: Console, what: str, result: ExecuteInProcessResult, seconds: float) -> None:
    """Print one line for the run, one for each table, and one for each check."""
    console.print(f"[green]✓[/] {what}  [dim]run {result.run_id[:8]}, {seconds:.1f} s")
    shown: set[tuple[str, object]] = set()
    for event in result.get_asset_materialization_events():
        metadata = {key: value.value for key, value in event.materialization.metadata.items()}
        snapshot, table = metadata["ducklake/snapshot_id"], event.materialization.asset_key.to_user_string()
        if (table, snapshot) not in shown:
            shown.add((table, snapshot))
            # In a run of several partitions the numbers of the commit have other names than those of a partition.
            whole = "ducklake/commit_" if "ducklake/commit_rows_added" in metadata else "ducklake/"
            added, deleted, files = metadata[f"{whole}rows_added"], metadata[f"{whole}rows_deleted"], metadata["ducklake/files_added"]
            new = f"{files} new file{'' if files == 1 else 's'}"
            console.print(f"    {table:<16} snapshot {snapshot:>3}  +{added:,} rows  -{deleted:,} rows  {new}")
    for check in result.get_asset_check_evaluations():
        mark = "[green]passed[/]" if check.passed else f"[yellow]{check.severity.value}[/]"
        console.print(f"    [dim]check[/] {check.asset_key.to_user_string()}.{check.check_name}: {mark} [dim]{check.description}")


def maintenance_lines(console: Console, result: ExecuteInProcessResult, seconds: float) -> None:
    """Print the metadata of each step: files that were merged, and sums."""
    console.print(f"[green]✓[/] maintenance job  [dim]run {result.run_id[:8]}, {seconds:.1f} s")
    for event in result.get_step_success_events():
        step = str(event.step_key)
        for output in result.events_for_node(step):
            if output.event_type_value == "STEP_OUTPUT":
                report = output.step_output_data.metadata.get("report")
                lines = str(report.value).splitlines() if report is not None else []
                for line in [line for line in lines if ": merged" in line or line.startswith("done flush")] + lines[-1:]:
                    console.print(f"    {step:<21} {line}")


def snapshots(console: Console, lake: DuckLake) -> None:
    """Print the newest snapshots with their authors and runs."""
    table = Table("snapshot", "time (UTC)", "author", "message", "run", title="The newest snapshots", title_justify="left")
    for snapshot in lake.snapshots(last=12):
        run = str(dagster_facts(snapshot).get("run_id", ""))[:8]
        row = (str(snapshot.id), f"{snapshot.time:%H:%M:%S}", snapshot.author, snapshot.message, run)
        table.add_row(*(text or "" for text in row))
    console.print(table)


def events(console: Console, tick: Any) -> None:
    """Print the reports of a sensor."""
    for event in tick.asset_events:
        console.print(f"  {type(event).__name__} of {event.asset_key.to_user_string()}: {event.description}")
    console.print(f"  [dim]{tick.skip_message}")


def requests(console: Console, tick: Any) -> None:
    """Print the runs that a sensor requests."""
    for request in tick.run_requests or ():
        steps = [step.replace("_", " ") for step, how in request.run_config["ops"].items() if how["config"].get("enabled")]
        console.print(f"  the maintenance sensor requests to {' and '.join(steps)} of {request.tags.get('ducklake/table', 'the lake')}")


def tables(console: Console, lake: DuckLake) -> None:
    """Print the contents of the tables."""
    table = Table("table", "partitioned by", title="Tables", title_justify="left")
    for heading in ("rows", "files", "bytes", "delete files"):
        table.add_column(heading, justify="right")
    for info in (lake.table_info(listed.table) for listed in lake.tables()):
        numbers = (info.row_count, info.file_count, info.file_size_bytes, info.delete_file_count)
        table.add_row(info.table, ", ".join(info.partition_by), *(f"{number:,}" for number in numbers))
    console.print(table)


def query(console: Console, lake: DuckLake) -> None:
    """Print the answer to a question, computed with Arrow from the files of one partition."""
    rows = lake.table("flights_weather").scan(["visib", "dep_delay"], where="origin = 'LGA' AND dep_delay IS NOT NULL").to_arrow()
    poor = pc.less(rows["visib"], pa.scalar(3))
    table = Table("visibility at LaGuardia", title="Delays and weather, January and February", title_justify="left")
    table.add_column("departures", justify="right")
    table.add_column("mean delay, minutes", justify="right")
    for name, condition in (("below 3 miles", poor), ("3 miles and more", pc.invert(poor))):
        chosen = rows.filter(condition)
        table.add_row(name, f"{chosen.num_rows:,}", f"{pc.mean(chosen['dep_delay']).as_py():.1f}")
    console.print(table)


def duckdb_query(console: Console, lake: DuckLakeResource) -> None:
    """Print how DuckDB opens the lake, and the answer of a query there if the lake is in local files and DuckDB can load its extensions."""
    if not isinstance(lake.catalog, SqliteCatalog):
        console.print("  In DuckDB: INSTALL ducklake; ATTACH 'ducklake:postgres:dbname=...' AS lake; FROM lake.carrier_ranks;")
        return
    attach = f"ATTACH 'ducklake:sqlite:{CATALOG}' AS lake (DATA_PATH '{FILES}/')"
    select = "SELECT carrier, count(*) AS days FROM lake.carrier_ranks WHERE rank = 1 GROUP BY carrier ORDER BY days DESC LIMIT 3"
    console.print(f"  In DuckDB: INSTALL ducklake; {attach};\n    {select};", soft_wrap=True)
    try:
        import duckdb
    except ImportError:
        return
    with duckdb.connect() as connection:
        try:
            connection.execute("INSTALL ducklake; INSTALL sqlite")
        except duckdb.Error as error:
            console.print(f"  [dim]not run here: {error}")
            return
        connection.execute(attach)
        for carrier, days in connection.execute(select).fetchall():
            console.print(f"  {carrier} was the most punctual carrier on {days} days")
