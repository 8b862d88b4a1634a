"""Measure ducklake_dagster on a PostgreSQL catalog: statements and milliseconds of ticks, checks and commits; connections; imports.

Run with ``python -m benchmarks.bench_dagster``. Milliseconds are processor time of this process, medians of ``BENCH_ROUNDS``.
"""

# No `from __future__ import annotations`: Dagster compares the annotation of `context` with its classes.

import json
import logging
import os
import resource as system
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.large_lake import make_large_lake
from ducklake_dagster import (
    ColumnBounds,
    DuckLakeIOManager,
    DuckLakeResource,
    Freshness,
    LocalStorage,
    NullFraction,
    PostgresCatalog,
    RowCount,
    RowCountChange,
    SmallFiles,
    build_commit_sensor,
    build_lake_checks,
    ducklake_metadata,
)
from ducklake_dagster.io.read_points import lake_identity
from tests.support.postgres import PostgresServer, start_server

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "7"))
TABLES = int(os.environ.get("BENCH_TABLES", "50"))
COMMITS = int(os.environ.get("BENCH_COMMITS", "200"))
START = date(2016, 1, 1)
DAYS = dg.DailyPartitionsDefinition(START.isoformat(), end_date=(START + timedelta(days=3650)).isoformat())
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
CHECKS = [
    RowCount(minimum=1),
    RowCountChange(max_drop=0.5),
    NullFraction(limits={"n": 0.0}),
    ColumnBounds(bounds={"n": (0, 10)}),
    Freshness(max_age="1 day"),
    SmallFiles(max_ratio=1.0),
]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measurement."""

    what: str
    statements: float
    milliseconds: float


@contextmanager
def counted() -> Iterator[list[int]]:
    """Statements that are sent to the catalog within the block; SQLAlchemy and pipelined commits both go through psycopg's cursors."""
    count, real = [0], psycopg.Cursor.execute

    def execute(self: Any, *args: Any, **named: Any) -> Any:
        count[0] += 1
        return real(self, *args, **named)

    psycopg.Cursor.execute = execute  # type: ignore[method-assign]
    try:
        yield count
    finally:
        psycopg.Cursor.execute = real  # type: ignore[method-assign]


def figure(what: str, work: Callable[[], object], before: Callable[[], object] = lambda: None, rounds: int = ROUNDS) -> Figure:
    """Medians over rounds, after one to warm up."""
    times, statements = [], []
    for number in range(rounds + 1):
        before()
        with counted() as count:
            started = time.process_time()
            work()
            elapsed = time.process_time() - started
        if number:
            times.append(1000 * elapsed)
            statements.append(count[0])
    return Figure(what=what, statements=statistics.median(statements), milliseconds=round(statistics.median(times), 1))


def days(numbers: range) -> pa.Table:
    """A row for each day."""
    return pa.table({"day": pa.array([START + timedelta(days=n) for n in numbers], pa.date32()), "n": [n % 10 for n in numbers]})


@dg.asset(partitions_def=DAYS, metadata=ducklake_metadata(partition_expr="day", partition_by=["month(day)"]))
def daily(context: dg.AssetExecutionContext) -> pa.Table:
    """A row for each day of the run."""
    places = [(date.fromisoformat(key) - START).days for key in context.partition_keys]
    return days(range(places[0], places[-1] + 1))


@dg.asset
def plain() -> pa.Table:
    """Without partitions."""
    return pa.table({"n": list(range(10))})


def ticks(lake: DuckLakeResource, instance: dg.DagsterInstance) -> Iterator[Figure]:
    """Ticks of the commit sensor."""
    sensor = build_commit_sensor(assets=[daily, plain])
    cursor: list[str | None] = [None]

    def tick() -> None:
        context = dg.build_sensor_context(instance=instance, resources={"lake": lake}, cursor=cursor[0])
        cursor[0] = sensor.evaluate_tick(context).cursor

    def others(count: int) -> Callable[[], None]:
        def commit() -> None:
            for number in range(count):
                lake.connect().write("daily", days(range(number * 17 % 3650, number * 17 % 3650 + 1)), mode="append", inline=False)

        return commit

    tick()
    yield figure("tick, nothing new", tick)
    yield figure("tick, one commit of others", tick, others(1))
    yield figure(f"tick, {COMMITS} commits of others on 3,650 partitions", tick, others(COMMITS), rounds=2)


def ticks_of_a_large_lake(server: PostgresServer, folder: Path, instance: dg.DagsterInstance) -> Iterator[Figure]:
    """Ticks that begin at snapshots of a lake of 1,000 tables and 10,000 snapshots; each snapshot changed one table."""
    address = server.lake(folder)
    make_large_lake(address, tables=1000, snapshots=10_000, files=10_000)
    lake = DuckLakeResource(catalog=address.url, storage=LocalStorage()).process_config_and_initialize()  # type: ignore[arg-type]
    newest, catalog = lake.connect().snapshot().id, lake_identity(lake.connect())
    for assets, since in ((1, newest), (1, 2), (999, newest), (999, newest - 1), (999, 2)):
        specs = [dg.AssetSpec(f"other{number}") for number in range(1, assets + 1)]
        sensor = build_commit_sensor(assets=specs, max_snapshots_per_tick=20_000)
        cursor = json.dumps({"v": 2, "catalog": catalog, "snapshot": since})

        def tick(sensor: dg.SensorDefinition = sensor, cursor: str = cursor) -> None:
            sensor.evaluate_tick(dg.build_sensor_context(instance=instance, resources={"lake": lake}, cursor=cursor))

        yield figure(f"tick over {newest - since:,} snapshots of 1,000 tables, {assets} assets", tick)


def checks(lake: DuckLakeResource, instance: dg.DagsterInstance) -> Iterator[Figure]:
    """Batches of checks."""
    for count in (1, TABLES):
        specs = [dg.AssetSpec(f"table_{number}") for number in range(count)]
        for spec in specs:
            lake.connect().write(spec.key.path[-1], pa.table({"n": [1, 2, 3]}))
        batch = build_lake_checks(assets=specs, checks=CHECKS)

        def run(batch: Any = batch, specs: Any = specs) -> None:
            chosen = dg.AssetSelection.all_asset_checks()
            found = dg.materialize([*specs, *batch], selection=chosen, resources={"lake": lake}, instance=instance, run_config=QUIET)
            assert len(found.get_asset_check_evaluations()) == len(CHECKS) * len(specs)

        yield figure(f"{len(CHECKS)} checks of {count} tables, with Dagster's run", run)


def commits(lake: DuckLakeResource, instance: dg.DagsterInstance) -> Iterator[Figure]:
    """Materialisations, compared with the same run that stores nothing."""
    manager = DuckLakeIOManager(lake=lake, default_frame="arrow")
    for name, io in (("in memory", dg.mem_io_manager), ("in the lake", manager)):

        def run(io: Any = io) -> None:
            dg.materialize([plain], resources={"io_manager": io}, instance=instance, run_config=QUIET)

        yield figure(f"run of an asset of 10 rows, kept {name}", run)

    def one_day() -> None:
        dg.materialize([daily], partition_key="2016-03-01", resources={"io_manager": manager}, instance=instance, run_config=QUIET)

    yield figure("run that replaces one day of 3,650", one_day)


def imports() -> Iterator[Figure]:
    """Processor time of fresh processes that import."""
    definitions = "from ducklake_dagster import DuckLakeIOManager, DuckLakeResource, build_lake_checks, build_commit_sensor"
    for what in ("import dagster", definitions):
        times = []
        for _ in range(ROUNDS):
            before = system.getrusage(system.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", what], check=True)
            after = system.getrusage(system.RUSAGE_CHILDREN)
            times.append(1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
        yield Figure(what=what.partition(",")[0], statements=0, milliseconds=round(statistics.median(times), 1))


def sessions(server: PostgresServer, database: str) -> int:
    """Connections of this process to the catalog."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND application_name = 'ducklake-core'"
    with psycopg.connect(f"host={server.socket} user={server.user} dbname=postgres") as connection:
        row = connection.execute(query, [database]).fetchone()
    return int(row[0]) if row else 0


def main() -> None:
    """Print a table for people and one JSON line a figure for machines."""
    warnings.simplefilter("ignore")
    logging.disable()
    server = start_server()
    try:
        with tempfile.TemporaryDirectory() as folder, dg.DagsterInstance.ephemeral() as instance:
            database = server.new_database()
            lake = DuckLakeResource(
                catalog=PostgresCatalog(host=server.socket, database=database, user=server.user),
                storage=LocalStorage(data_path=str(Path(folder) / "files") + "/"),
                create_if_missing=True,
            )
            lake.connect().write("daily", days(range(3650)), partition_by=["month(day)"])
            lake.connect().write("plain", pa.table({"n": [1]}))
            figures = [*commits(lake, instance), *checks(lake, instance), *ticks(lake, instance), *imports()]
            open_now = sessions(server, database)
            figures += ticks_of_a_large_lake(server, Path(folder), instance)
    finally:
        server.stop()
    table = Table("what", "statements", "milliseconds of processor time")
    for one in figures:
        table.add_row(one.what, f"{one.statements:g}", f"{one.milliseconds:g}")
    Console(width=140).print(table)
    print(f"connections at the end: {open_now}")
    for one in figures:
        print(json.dumps({"benchmark": "dagster", **asdict(one)}))


if __name__ == "__main__":
    main()
