"""The IO manager on a PostgreSQL catalog: written by runs, replaced by DuckDB in between, read back by both."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg.conninfo
import pyarrow as pa

from ducklake_dagster import DuckLakeIOManager, DuckLakeResource, LocalStorage, PostgresCatalog, ducklake_metadata
from tests.support.postgres import PostgresServer

DAYS = dg.DailyPartitionsDefinition("2026-03-27", end_date="2026-04-01")


def build_numbers(context) -> pa.Table:  # type: ignore[no-untyped-def]
    days = [date.fromisoformat(key) for key in context.partition_keys]
    return pa.table({"day": pa.array(days, pa.date32()), "n": pa.array([day.day for day in days], pa.int32())})


def test_runs_and_duckdb_share_a_lake_on_postgresql(postgres: PostgresServer, tmp_path: Path, oracle: Callable[..., Any]) -> None:
    address = postgres.lake(tmp_path)
    where = psycopg.conninfo.conninfo_to_dict(address.attach.removeprefix("ducklake:postgres:"))
    catalog = PostgresCatalog(host=str(where["host"]), database=str(where["dbname"]), user=str(where["user"]))
    lake = DuckLakeResource(catalog=catalog, storage=LocalStorage(data_path=address.data_path), create_if_missing=True)
    metadata = ducklake_metadata(partition_expr="day", partition_by=["month(day)"])
    numbers = dg.asset(name="numbers", partitions_def=DAYS, metadata=metadata)(build_numbers)

    @dg.asset(partitions_def=DAYS)
    def doubled(numbers: pa.Table) -> None:
        assert numbers.column("n").to_pylist() == [28]

    with dg.DagsterInstance.ephemeral() as instance:
        resources = {"io_manager": DuckLakeIOManager(lake=lake, default_frame="arrow")}
        for key in ("2026-03-27", "2026-03-28", "2026-03-28"):
            assert dg.materialize([numbers], resources=resources, instance=instance, partition_key=key).success
        with oracle(address) as duck:
            duck.run("INSERT INTO numbers VALUES (DATE '2026-03-28', 99)", "DELETE FROM numbers WHERE n = 99")
            assert duck.rows("SELECT * FROM numbers ORDER BY n") == [(date(2026, 3, 27), 27), (date(2026, 3, 28), 28)]
        selected = dg.materialize(
            [numbers, doubled], selection=[doubled], resources=resources, instance=instance, partition_key="2026-03-28"
        )
        assert selected.success
    assert [snapshot.author for snapshot in lake.connect().snapshots()] == [None, "dagster", "dagster", "dagster", None, None]
