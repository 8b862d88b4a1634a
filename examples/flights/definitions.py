"""Define the project as ``dagster dev`` loads it: assets, checks, maintenance and the two resources.

The lake is in local files. For PostgreSQL and S3, set ``LAKE_CATALOG`` to the address of the database, such as
``postgresql://etl:secret@db/lake``, ``LAKE_DATA_PATH`` to a URL such as ``s3://bucket/lake/``, and ``S3_ACCESS_KEY_ID``,
``S3_SECRET_ACCESS_KEY``, ``S3_REGION`` and, for stores other than Amazon's, ``S3_ENDPOINT_URL``.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from ducklake_dagster import (
    AddressCatalog,
    DeleteRatio,
    DuckLakeIOManager,
    DuckLakeResource,
    LocalStorage,
    RowCount,
    S3Storage,
    SnapshotBacklog,
    SqliteCatalog,
    Triggers,
    build_audit_checks,
    build_check_sensor,
    build_commit_sensor,
    build_lake_checks,
    build_maintenance_defs,
    build_null_fraction_checks,
    build_row_count_change_checks,
    with_table_metadata,
)
from examples.flights import assets as flight_assets
from examples.flights import fleet
from examples.flights.places import CATALOG, FILES

# Before Spark starts: its Python workers must find the same packages as this process.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

SPARK_CONFIG = {
    "spark.master": "local[2]",
    "spark.app.name": "ducklake-demo",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# A lake in local files, unless these variables name a PostgreSQL database and a place on S3.
has_address = "LAKE_CATALOG" in os.environ
catalog = AddressCatalog(address=dg.EnvVar("LAKE_CATALOG")) if has_address else SqliteCatalog(path=str(CATALOG))
data_path = os.environ.get("LAKE_DATA_PATH", f"{FILES}/")
storage: LocalStorage | S3Storage = LocalStorage(data_path=data_path)
if data_path.startswith("s3://"):
    storage = S3Storage(
        data_path=data_path,
        access_key_id=dg.EnvVar("S3_ACCESS_KEY_ID"),
        secret_access_key=dg.EnvVar("S3_SECRET_ACCESS_KEY"),
        region=dg.EnvVar("S3_REGION"),
        endpoint_url=os.environ.get("S3_ENDPOINT_URL"),
    )

lake = DuckLakeResource(catalog=catalog, storage=storage, create_if_missing=True)
# A Spark Connect server where the variable of PySpark names one.
remote = os.environ.get("SPARK_REMOTE")
spark = LazyPySparkResource(spark_config={"spark.remote": remote} if remote else SPARK_CONFIG)

reference = [flight_assets.airlines, flight_assets.airports, flight_assets.planes, flight_assets.weather]
partitioned = [flight_assets.flights, flight_assets.carrier_delays, flight_assets.carrier_ranks, flight_assets.flights_weather]
fleet_assets = [fleet.fleet, fleet.carrier_changes, fleet.charters, fleet.charter_names, fleet.booking_report]
all_assets = [*reference, *partitioned, flight_assets.routes, *fleet_assets]

# booking_report stores no table, so there is nothing to watch or maintain.
stored = [asset for asset in all_assets if asset is not fleet.booking_report]

storage_checks = [DeleteRatio(maximum=0.5), SnapshotBacklog(maximum=1000)]
checks = [
    *build_row_count_change_checks(assets=partitioned, max_drop=0.1),
    *build_null_fraction_checks(assets=[flight_assets.flights], columns={"day": 0.0, "carrier": 0.0, "dep_delay": 0.05}),
    *build_lake_checks(assets=partitioned, checks=storage_checks),
    *build_lake_checks(assets=[fleet.charters], checks=[RowCount(minimum=1, severity=dg.AssetCheckSeverity.ERROR, blocking=True)]),
    *build_audit_checks(assets=[fleet.fleet]),
]
resources = {"io_manager": DuckLakeIOManager(lake=lake, spark=spark), "lake": lake, "spark": spark}

commit_sensor = build_commit_sensor(assets=stored)
check_sensor = build_check_sensor(assets=partitioned, checks=storage_checks)

defs = with_table_metadata(
    dg.Definitions.merge(
        # Not at module scope: Dagster loads the one Definitions object that it finds there.
        build_maintenance_defs(
            expire_older_than=timedelta(days=7), keep_last=20, triggers=Triggers(small_files=3, inlined_rows=2), assets=stored
        ),
        dg.Definitions(
            assets=all_assets,
            asset_checks=checks,
            sensors=[commit_sensor, check_sensor],
            resources=resources,
            # One process, so that all steps of a run share one Spark session.
            executor=dg.in_process_executor,
        ),
    )
)
