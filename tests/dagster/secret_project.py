"""A project whose resources hold a secret in every form, loaded by a code server; see test_secrets_in_graphql."""

from typing import Any

import dagster as dg
import pyarrow as pa

from ducklake_dagster import (
    AzureStorage,
    DuckLakeIOManager,
    DuckLakeResource,
    GCSStorage,
    LocalStorage,
    PostgresCatalog,
    S3Storage,
    SqliteCatalog,
    build_commit_sensor,
    build_maintenance_job,
)
from tests.dagster.test_secrets import FORMS, SECRET

HIDDEN = dg.EnvVar("LAKE_SECRET")
LOCAL = LocalStorage(data_path="files/")
SQLITE = SqliteCatalog(path="lake.sqlite")
VARIABLES = {
    "catalog": DuckLakeResource(catalog=PostgresCatalog(host="h", database="d", password=HIDDEN), storage=LOCAL),
    "address": DuckLakeResource(catalog=dg.EnvVar("LAKE_ADDRESS"), storage=LOCAL),
    "s3": DuckLakeResource(
        catalog=SQLITE, storage=S3Storage(data_path="s3://b/", access_key_id=HIDDEN, secret_access_key=HIDDEN, session_token=HIDDEN)
    ),
    "gcs": DuckLakeResource(catalog=SQLITE, storage=GCSStorage(data_path="gs://b/", token=HIDDEN)),
    "azure": DuckLakeResource(
        catalog=SQLITE, storage=AzureStorage(data_path="abfss://b/", account_key=HIDDEN, connection_string=HIDDEN, sas_token=HIDDEN)
    ),
}
# No server listens there, so that the error message is covered too.
unreachable = PostgresCatalog(host="127.0.0.1", port=1, user="u", database="d", password=SECRET, options={"connect_timeout": "2"})
lake = DuckLakeResource(catalog=unreachable, storage=S3Storage(data_path="s3://b/", secret_access_key=SECRET))


@dg.asset
def things() -> pa.Table:
    """Cannot be stored."""
    return pa.table({"n": [1]})


@dg.op
def use(context: dg.OpExecutionContext, at_launch: DuckLakeResource) -> None:
    """Connects with the configuration of the launchpad."""
    at_launch.connect()


@dg.job
def launched() -> None:
    """Has a resource that is configured at launch."""
    use()


resources: dict[str, Any] = {f"form_{number}": make() for number, make in enumerate(FORMS.values())}
resources |= {f"variable_{name}": made for name, made in VARIABLES.items()}
resources |= {f"manager_{name}": DuckLakeIOManager(lake=made) for name, made in list(resources.items())}
resources |= {"lake": lake, "io_manager": DuckLakeIOManager(lake=lake), "at_launch": DuckLakeResource.configure_at_launch()}

defs = dg.Definitions(
    assets=[things],
    jobs=[build_maintenance_job(), launched],
    sensors=[build_commit_sensor(assets=[things])],
    resources=resources,
    executor=dg.in_process_executor,
)
