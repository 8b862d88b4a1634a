"""Connections to the catalog do not add up over runs and sensor ticks of one process."""

from __future__ import annotations

import gc
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_dagster import DuckLakeIOManager, DuckLakeResource, LocalStorage, PostgresCatalog, build_commit_sensor
from tests.dagster.conftest import QUIET
from tests.support.parameters import slow
from tests.support.postgres import PostgresServer


def sessions(server: PostgresServer, database: str) -> int:
    import psycopg

    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND application_name = 'ducklake-core'"
    with psycopg.connect(f"host={server.socket} user={server.user} dbname=postgres") as connection:
        row = connection.execute(query, [database]).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("times", [4, slow(200)])
def test_runs_and_ticks_share_connections(postgres: PostgresServer, tmp_path: Path, instance: dg.DagsterInstance, times: int) -> None:
    database = postgres.new_database()
    catalog = PostgresCatalog(host=postgres.socket, database=database, user=postgres.user)
    lake = DuckLakeResource(catalog=catalog, storage=LocalStorage(data_path=f"{tmp_path}/files/"), create_if_missing=True)

    @dg.asset
    def things() -> pa.Table:
        return pa.table({"n": [1]})

    sensor = build_commit_sensor(assets=[things])
    manager = DuckLakeIOManager(lake=lake, default_frame="arrow")
    # What only the garbage collector closes would hide behind when it runs.
    gc.disable()
    try:
        for _ in range(times):
            assert dg.materialize([things], resources={"io_manager": manager, "lake": lake}, instance=instance, run_config=QUIET).success
            sensor.evaluate_tick(dg.build_sensor_context(instance=instance, resources={"lake": lake}))
        assert sessions(postgres, database) <= 2
    finally:
        gc.enable()


def test_a_recreated_lake_at_the_same_address_is_another_one(tmp_path: Path) -> None:
    from ducklake_dagster import SqliteCatalog

    def resource(**how: bool) -> DuckLakeResource:
        catalog, storage = SqliteCatalog(path=f"{tmp_path}/lake.sqlite"), LocalStorage(data_path=f"{tmp_path}/files/")
        return DuckLakeResource(catalog=catalog, storage=storage, create_if_missing=True, **how)

    resource().connect().write("t", pa.table({"n": [1]}))
    (tmp_path / "lake.sqlite").unlink()
    lake = resource(encrypted=True).connect()
    assert lake.info.encrypted
    assert lake.tables() == []
