"""Secrets in any form do not reach Dagster's pages: everything that the code server sends is searched."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.remote_representation.external_data import RepositorySnap

from ducklake_core.errors import UsageError
from ducklake_dagster import (
    AzureStorage,
    DuckLakeIOManager,
    DuckLakeResource,
    GCSStorage,
    LocalStorage,
    PostgresCatalog,
    S3Storage,
    SqliteCatalog,
    build_maintenance_job,
)

SECRET = "hush-hush"
LOCAL = LocalStorage(data_path="files/")
SQLITE = SqliteCatalog(path="lake.sqlite")
FORMS: dict[str, Callable[[], DuckLakeResource]] = {
    "catalog": lambda: DuckLakeResource(
        catalog=PostgresCatalog(host="h", database="d", password=SECRET), storage=LocalStorage(data_path="files/")
    ),
    "catalog as a mapping": lambda: DuckLakeResource(
        catalog={"postgres": {"database": "d", "password": SECRET}}, storage=LOCAL
    ),
    "options": lambda: DuckLakeResource(
        catalog=PostgresCatalog(database="d", options={"sslpassword": SECRET, "sslmode": "require"}), storage=LOCAL
    ),
    "address": lambda: DuckLakeResource(catalog=f"postgresql+psycopg://u:{SECRET}@h/d", storage=LOCAL),
    "address with a parameter": lambda: DuckLakeResource(catalog=f"postgresql://h/d?password={SECRET}", storage=LOCAL),
    "S3": lambda: DuckLakeResource(
        catalog=SQLITE, storage=S3Storage(data_path="s3://b/", access_key_id=SECRET, secret_access_key=SECRET, session_token=SECRET)
    ),
    "S3 endpoint": lambda: DuckLakeResource(
        catalog=SQLITE, storage=S3Storage(data_path=f"s3://u:{SECRET}@b/x/", endpoint_url=f"https://u:{SECRET}@host/")
    ),
    "S3 options": lambda: DuckLakeResource(
        catalog=SQLITE,
        storage=S3Storage(data_path="s3://b/", options={"secret": SECRET, "s3_additional_kwargs": {"SSECustomerKey": SECRET}}),
    ),
    "headers": lambda: DuckLakeResource(
        catalog=SQLITE,
        storage=S3Storage(
            data_path="s3://b/",
            options={"client_kwargs": {"headers": {"Authorization": SECRET}, "proxies": [f"http://me:{SECRET}@proxy"]}, "tokens": [SECRET]},
        ),
    ),
    "GCS": lambda: DuckLakeResource(catalog=SQLITE, storage=GCSStorage(data_path="gs://b/", token=SECRET)),
    "Azure": lambda: DuckLakeResource(
        catalog=SQLITE,
        storage=AzureStorage(data_path="abfss://b/", account_key=SECRET, connection_string=SECRET, sas_token=SECRET),
    ),
    "storage as a mapping": lambda: DuckLakeResource(
        catalog=SQLITE, storage={"azure": {"data_path": "abfss://b/", "sas_token": SECRET}}
    ),
    "allowed paths": lambda: DuckLakeResource(catalog=SQLITE, storage=LOCAL, allowed_paths=f"s3://u:{SECRET}@b/"),
}  # fmt: skip


def definitions(lake: Any) -> dg.Definitions:
    @dg.asset
    def things() -> pa.Table:
        return pa.table({"n": [1]})

    @dg.op(required_resource_keys={"lake"})
    def work(context) -> None: ...

    @dg.job
    def job() -> None:
        work()

    resources = {"lake": lake, "io_manager": DuckLakeIOManager(lake=lake)}
    return dg.Definitions(assets=[things], jobs=[job, build_maintenance_job()], resources=resources)


def sent_by(defs: dg.Definitions) -> str:
    """Return all that a code server sends to the web server and the daemon, as one string."""
    repository = defs.get_repository_def()
    snap = RepositorySnap.from_def(repository)
    parts = [dg.serialize_value(snap)]
    for job in repository.get_all_jobs():
        parts += [dg.serialize_value(job.get_job_snapshot()), dg.serialize_value(job.get_config_schema_snapshot())]
    return "\n".join(parts)


@pytest.mark.parametrize("form", FORMS)
def test_no_secret_is_sent_to_the_web_server(form: str) -> None:
    lake = FORMS[form]()
    text = sent_by(definitions(lake))
    assert SECRET not in text
    assert "********" in text
    assert SECRET not in repr(lake)
    used = (lake.catalog.url(), lake.storage_options(), lake._allowed_paths(), lake.storage.fsspec_options())
    assert SECRET in repr(used) or form == "S3 endpoint"
    again = pickle.loads(pickle.dumps(lake))
    assert (again.catalog.url(), again.storage_options(), again._allowed_paths(), again.storage.fsspec_options()) == used


def test_other_values_than_secrets_are_shown() -> None:
    text = sent_by(definitions(FORMS["options"]()))
    assert "require" in text
    variable = DuckLakeResource(catalog=PostgresCatalog(database="d", password=dg.EnvVar("PGPASSWORD")), storage=LOCAL)
    assert "PGPASSWORD" in sent_by(definitions(variable))


def test_an_address_from_the_environment_works_and_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instance: dg.DagsterInstance
) -> None:
    lake = DuckLakeResource(catalog=dg.EnvVar("LAKE_ADDRESS"), storage=LocalStorage(data_path=f"{tmp_path}/files/"), create_if_missing=True)
    monkeypatch.setenv("LAKE_ADDRESS", f"sqlite:///{tmp_path}/lake.sqlite")
    text = sent_by(definitions(lake))
    assert str(tmp_path / "lake.sqlite") not in text
    assert "LAKE_ADDRESS" in text

    @dg.asset
    def things() -> pa.Table:
        return pa.table({"n": [1]})

    assert dg.materialize([things], resources={"lake": lake, "io_manager": DuckLakeIOManager(lake=lake)}, instance=instance).success
    assert (tmp_path / "lake.sqlite").exists()


def test_a_secret_value_arrives_where_it_is_used_in_a_run(instance: dg.DagsterInstance) -> None:
    seen: list[Any] = []

    @dg.asset
    def things(lake: DuckLakeResource) -> None:
        seen.append((lake.catalog.url(), lake.storage_options()))

    storage = S3Storage(data_path="s3://b/", secret_access_key=SECRET)
    lake = DuckLakeResource(catalog=PostgresCatalog(host="h", database="d", user="u", password=SECRET), storage=storage)
    dg.materialize([things], resources={"lake": lake}, instance=instance)
    ((url, options),) = seen
    assert f"u:{SECRET}@" in url
    assert options == {"s3": {"secret": SECRET}}


@pytest.mark.parametrize("shown", ["********", "******** (password 99999)"])
def test_a_mask_copied_from_a_page_is_no_password(shown: str) -> None:
    catalog = PostgresCatalog(host="h", database="d", password=shown)
    with pytest.raises(UsageError, match="placeholder for a secret, and this process does not know the secret"):
        catalog.url()


def test_secrets_of_a_sqlite_path_are_left_alone() -> None:
    assert SqliteCatalog(path="a:b@c").path == "a:b@c"
