"""The lake resource: addresses, secrets, creation, pickling."""

from __future__ import annotations

import inspect
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_core.catalog.database.url import parse_catalog_url
from ducklake_core.errors import CatalogUnavailableError, DuckLakeError, UsageError
from ducklake_dagster import (
    AzureStorage,
    DuckDBCatalog,
    DuckLakeComponent,
    DuckLakeIOManager,
    DuckLakeMaintenanceComponent,
    DuckLakeResource,
    DuckLakeTablesComponent,
    GCSStorage,
    LocalStorage,
    MySQLCatalog,
    PostgresCatalog,
    S3Storage,
    SqliteCatalog,
)
from tests.support.oracle import LakeAddress, attached
from tests.support.postgres import PostgresServer

SECRET = "p@ss/w:rd 'x"


def secretive() -> DuckLakeResource:
    return DuckLakeResource(
        catalog=PostgresCatalog(host="db", database="la ke", user="u@x", password=SECRET, options={"sslmode": "require"}),
        storage=S3Storage(data_path="s3://bucket/lake/", access_key_id=SECRET, secret_access_key=SECRET, region="eu-west-1"),
    )


def test_addresses_are_quoted_and_options_named_as_fsspec_names_them() -> None:
    resource = secretive()
    assert resource.catalog.url() == ("postgresql+psycopg://u%40x:p%40ss%2Fw%3Ard%20%27x@/la%20ke?host=db&port=5432&sslmode=require")
    s3 = {"key": SECRET, "secret": SECRET, "client_kwargs": {"region_name": "eu-west-1"}}
    assert resource.storage_options() == {"s3": s3}
    catalog = SqliteCatalog(path="x.sqlite")
    azure = AzureStorage(data_path="abfss://c/x/", account_name="a", account_key=SECRET)
    assert set(DuckLakeResource(catalog=catalog, storage=azure).storage_options()) == {"abfs", "abfss", "az"}
    google = GCSStorage(data_path="gs://b/x/", project="p")
    assert DuckLakeResource(catalog=catalog, storage=google).storage_options()["gs"] == {"project": "p"}
    assert DuckLakeResource(catalog=catalog, storage=LocalStorage(data_path="files/")).storage_options() == {}


@pytest.mark.parametrize("kind", [SqliteCatalog, DuckDBCatalog])
def test_paths_are_no_addresses(kind: type[SqliteCatalog | DuckDBCatalog], tmp_path: Path) -> None:
    path = str(tmp_path / "50%20 off?#ä.lake")
    assert parse_catalog_url(kind(path=path).url()).url.database == path


def test_options_of_a_storage_are_those_of_its_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("S3_SECRET", SECRET)
    options = {"client_kwargs": {"verify": False}, "endpoint_url": "https://other/", "secret": dg.EnvVar("S3_SECRET"), "profile": "p"}
    storage = S3Storage(data_path="s3://b/", region="eu", endpoint_url="https://host/", options=options)
    made = DuckLakeResource(catalog=SqliteCatalog(path="l"), storage=storage)
    kwargs = {"region_name": "eu", "verify": False}
    expected = {"endpoint_url": "https://other/", "client_kwargs": kwargs, "secret": SECRET, "profile": "p"}
    assert made.storage_options() == {"s3": expected}
    # Dagster itself puts the values of variables into fields alone.
    assert made.process_config_and_initialize().storage_options() == {"s3": expected}
    monkeypatch.delenv("S3_SECRET")
    with pytest.raises(UsageError, match="environment variable S3_SECRET in an option of the storage is not set"):
        made.process_config_and_initialize().storage_options()
    with pytest.raises(DuckLakeError, match=r"local has no options\. Remove key"):
        DuckLakeResource(catalog=SqliteCatalog(path="l"), storage=LocalStorage(options={"key": "x"})).storage_options()


def test_a_data_path_may_be_left_to_the_catalog_or_overridden(tmp_path: Path, instance: Any) -> None:
    where = SqliteCatalog(path=str(tmp_path / "lake.sqlite"))

    def lake(**how: Any) -> DuckLakeResource:
        overriding = how.pop("override_data_path", False)
        return DuckLakeResource(catalog=where, storage=LocalStorage(**how), override_data_path=overriding)

    with pytest.raises(DuckLakeError, match="create_if_missing"):
        lake().connect()
    DuckLakeResource(catalog=where, storage=LocalStorage(data_path=f"{tmp_path}/files/"), create_if_missing=True).connect()

    @dg.asset
    def things(lake: DuckLakeResource) -> pa.Table:
        assert lake.connect().info.data_path == f"{tmp_path}/files/"
        return pa.table({"n": range(100)})

    assert dg.materialize([things], resources={"lake": lake(), "io_manager": DuckLakeIOManager(lake=lake())}, instance=instance).success
    (tmp_path / "files").rename(tmp_path / "moved")
    with pytest.raises(DuckLakeError, match="set override_data_path"):
        lake(data_path=f"{tmp_path}/moved/").connect()
    moved = lake(data_path=f"{tmp_path}/moved/", override_data_path=True)
    assert moved.connect().table("things").scan().count() == 100
    assert moved.connect().table("things").scan().to_arrow().num_rows == 100
    assert lake().connect().info.data_path == f"{tmp_path}/files/"


def test_a_lake_is_created_only_when_allowed(tmp_path: Path) -> None:
    where: dict[str, Any] = {
        "catalog": SqliteCatalog(path=str(tmp_path / "deep" / "lake.sqlite")),
        "storage": LocalStorage(data_path=f"{tmp_path}/files/"),
    }
    with pytest.raises(DuckLakeError):
        DuckLakeResource(**where).connect()
    assert not (tmp_path / "deep").exists()
    created = DuckLakeResource(**where, create_if_missing=True)
    assert created.connect() is created.connect()
    assert DuckLakeResource(**where).connect().snapshots()[0].id == 0
    where["catalog"] = SqliteCatalog(path=str(tmp_path / "encrypted.sqlite"))
    assert DuckLakeResource(**where, create_if_missing=True, encrypted=True).connect().info.encrypted


def test_a_lake_in_a_duckdb_file(tmp_path: Path, instance: Any) -> None:
    where: dict[str, Any] = {
        "catalog": DuckDBCatalog(path=str(tmp_path / "deep" / "lake.ducklake")),
        "storage": LocalStorage(data_path=f"{tmp_path}/files/"),
    }
    with pytest.raises(DuckLakeError):
        DuckLakeResource(**where).connect()
    lake = DuckLakeResource(**where, create_if_missing=True)

    @dg.asset
    def things() -> pa.Table:
        return pa.table({"n": [1, 2]})

    @dg.asset
    def sums(things: pa.Table) -> pa.Table:
        return pa.table({"n": [sum(things.column("n").to_pylist())]})

    assert dg.materialize([things, sums], resources={"lake": lake, "io_manager": DuckLakeIOManager(lake=lake)}, instance=instance).success
    again = pickle.loads(pickle.dumps(lake)).connect()
    assert again.table("sums").scan().to_arrow().to_pylist() == [{"n": 3}]
    address = LakeAddress(again.info.data_path, f"ducklake:{tmp_path}/deep/lake.ducklake", f"{tmp_path}/files/", "duckdb")
    with attached(address) as duck:
        assert duck.rows("SELECT n FROM things ORDER BY n") == [(1,), (2,)]


def test_a_lake_in_postgresql_is_created_once(postgres: PostgresServer, tmp_path: Path) -> None:
    catalog = PostgresCatalog(host=postgres.socket, database=postgres.new_database(), user=postgres.user)
    resources = [
        DuckLakeResource(catalog=catalog, storage=LocalStorage(data_path=f"{tmp_path}/files/"), create_if_missing=True) for _ in range(2)
    ]
    assert [resource.connect().snapshot().id for resource in resources] == [0, 0]


def test_an_unreachable_catalog_is_not_taken_for_a_missing_lake() -> None:
    catalog = PostgresCatalog(host="127.0.0.1", port=1, database="lake", password=SECRET)
    resource = DuckLakeResource(catalog=catalog, storage=LocalStorage(data_path="files/"), create_if_missing=True)
    with pytest.raises(CatalogUnavailableError) as failure:
        resource.connect()
    assert SECRET not in str(failure.value)


@pytest.mark.parametrize("kind", [SqliteCatalog, DuckDBCatalog])
def test_an_inaccessible_catalog_is_not_taken_for_a_missing_one(kind: type[SqliteCatalog | DuckDBCatalog]) -> None:
    assert not kind(path="x" * 300).is_missing()


def test_resources_travel_to_other_processes(lake_resource: DuckLakeResource) -> None:
    lake_resource.connect()
    assert pickle.loads(pickle.dumps(lake_resource)).connect().snapshot().id == 0


def test_scripts_read_environment_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lake() -> DuckLakeResource:
        storage = LocalStorage(data_path=dg.EnvVar("LAKE_FILES"))
        return DuckLakeResource(catalog=dg.EnvVar("LAKE_ADDRESS"), storage=storage, create_if_missing=True)

    monkeypatch.setenv("LAKE_FILES", f"{tmp_path}/files/")
    with pytest.raises(UsageError, match=r"environment variable LAKE_ADDRESS of DuckLakeResource is not set"):
        lake().connect()
    monkeypatch.setenv("LAKE_ADDRESS", f"sqlite:///{tmp_path}/lake.sqlite")
    assert lake().connect().info.data_path == f"{tmp_path}/files/"
    assert lake().connect_to_existing().info.data_path == f"{tmp_path}/files/"
    with pytest.raises(UsageError, match="environment variable NO_PORT"):
        DuckLakeResource(
            catalog=PostgresCatalog(host="h", database="d", user="u", port=dg.EnvVar.int("NO_PORT")), storage=LocalStorage()
        ).connect()


def test_importing_the_package_loads_no_engine_and_no_database() -> None:
    program = (
        "import sys, ducklake_dagster\n"
        "heavy = {'pyspark', 'duckdb', 'sqlalchemy', 'psycopg', 'pyarrow'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "from ducklake_dagster import *\n"
        "heavy = {'pyspark', 'duckdb', 'sqlalchemy', 'psycopg', 'sqlglot', 'pyarrow', 'pandas', 'fsspec'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_definitions_cost_little_more_than_dagster_itself() -> None:
    program = (
        "import sys, dagster as dg\n"
        "before = len(sys.modules)\n"
        "from ducklake_dagster import *\n"
        "lake = DuckLakeResource(catalog=SqliteCatalog(path='l'), storage=S3Storage(data_path='s3://b/', secret_access_key='x'))\n"
        "@dg.asset(metadata=ducklake_metadata(partition_by='month(day)'))\n"
        "def things() -> None: ...\n"
        "job = build_maintenance_job()\n"
        "dg.Definitions(assets=[things], asset_checks=build_row_count_change_checks(assets=[things]), jobs=[job],\n"
        "    schedules=[build_maintenance_schedule(job)], sensors=[build_commit_sensor(assets=[things]), build_compaction_sensor()],\n"
        "    resources={'io_manager': DuckLakeIOManager(lake=lake), 'lake': lake}).get_repository_def()\n"
        "print(before, len(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    # Modules rather than seconds: they do not depend on what else the machine does.
    assert after <= 1.5 * before, f"{after} modules are loaded, {before} by dagster alone"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("sqlite:///lake.sqlite", SqliteCatalog(path="lake.sqlite")),
        ("sqlite:////a b/ü?.sqlite".replace("?", "%3F"), SqliteCatalog(path="/a b/ü?.sqlite")),
        ("duckdb:///lake.ducklake", DuckDBCatalog(path="lake.ducklake")),
        ("duckdb:////x/lake.db?metadata_schema=a%20b", DuckDBCatalog(path="/x/lake.db", metadata_schema="a b")),
        ("postgresql://db/lake", PostgresCatalog(host="db", database="lake")),
        ("mariadb://db/lake", MySQLCatalog(host="db", database="lake")),
        (
            "mysql+pymysql://u%40x:p%40ss%2Fw%3Ard%20%27x@db:6000/la%20ke?ssl_mode=required&unix_socket=%2Frun%2Fs",
            MySQLCatalog(
                host="db",
                port=6000,
                database="la ke",
                user="u@x",
                password=SECRET,
                options={"ssl_mode": "required", "unix_socket": "/run/s"},
            ),
        ),
        (
            "postgresql+psycopg://u%40x:p%40ss%2Fw%3Ard%20%27x@/la%20ke?host=/run/pg&port=6000&sslmode=require&metadata_schema=s",
            PostgresCatalog(
                host="/run/pg",
                port=6000,
                database="la ke",
                user="u@x",
                password=SECRET,
                metadata_schema="s",
                options={"sslmode": "require"},
            ),
        ),
    ],
)
def test_catalogs_as_addresses(address: str, expected: object) -> None:
    resource = DuckLakeResource(catalog=address, storage=LocalStorage(data_path="files/"))
    assert resource.catalog == expected
    assert pickle.loads(pickle.dumps(resource)).catalog == expected
    assert SECRET not in repr(resource)


@pytest.mark.parametrize(
    "address",
    [
        "oracle://u:hush-hush@h/d", "mysql://u:hush-hush@h/d?metadata_schema=x", "hush-hush", "postgresql://u:hush-hush@h:port/d",
        "sqlite:///", "sqlite:////hush-hush%FF.sqlite", "ducklake:postgres:password=hush-hush",
    ],
)  # fmt: skip
def test_invalid_addresses_raise_without_their_secrets(address: str) -> None:
    with pytest.raises(UsageError, match="address of the catalog") as caught:
        DuckLakeResource(catalog=address, storage=LocalStorage(data_path="files/"))
    assert "hush-hush" not in f"{caught.value!r} {caught.value.__cause__!r}"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: S3Storage(data_path="s3://b/", bucket="b"), "S3Storage has no field bucket. Its fields are access_key_id, data_path"),  # type: ignore[call-arg]
        (lambda: SqliteCatalog(path="l", pth="x"), "SqliteCatalog has no field pth (did you mean 'path'?)"),  # type: ignore[call-arg]
        (lambda: resource_of(LocalStorage(), create_if_mising=True), "no field create_if_mising (did you mean 'create_if_missing'?)"),
        (lambda: DuckLakeIOManager(lake=resource_of(LocalStorage()), write_mod="append"), "(did you mean 'write_mode'?)"),  # type: ignore[call-arg]
        (lambda: DuckLakeIOManager(lake=resource_of(LocalStorage()), write_mode="appnd"), "DuckLakeIOManager: write_mode must be 'ov"),  # type: ignore[arg-type]
        (lambda: resource_of(LocalStorage(), create_if_missing="maybe"), "DuckLakeResource: create_if_missing must be a valid boolean"),
        (DuckLakeResource, "DuckLakeResource: catalog is required; storage is required"),
        (lambda: DuckLakeResource(catalog=None, storage=LocalStorage()), "catalog must be SqliteCatalog,"),  # type: ignore[arg-type]
        (lambda: resource_of({"kind": "s3", "bucket": "b", "secret_access_key": SECRET}), "S3Storage has no field bucket"),
        (lambda: resource_of("files/"), "storage must be LocalStorage,"),
        (lambda: DuckLakeResource(catalog="sqlite:///l"), "Use LocalStorage() for a lake that exists"),  # type: ignore[arg-type,call-arg]
        (lambda: resource_of(S3Storage(data_path="/files/")), "data_path of S3Storage must be s3://, not a directory"),
        (lambda: resource_of(LocalStorage(data_path="gs://b/")), "data_path of LocalStorage must be a directory or file://, not gs://"),
        (lambda: resource_of(LocalStorage(data_path="s3://b/")), "data_path of LocalStorage must be a directory or file://, not s3://"),
    ],
)  # fmt: skip
def test_unknown_fields_of_a_resource_raise(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        make()
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)


def test_catalog_and_storage_may_be_mappings(tmp_path: Path) -> None:
    lake = DuckLakeResource(
        catalog={"kind": "sqlite", "path": str(tmp_path / "lake.sqlite")},  # type: ignore[arg-type]
        storage={"kind": "local", "data_path": str(tmp_path / "files")},  # type: ignore[arg-type]
        create_if_missing=True,
    )
    assert (lake.catalog, lake.storage.kind) == (SqliteCatalog(path=str(tmp_path / "lake.sqlite")), "local")

    @dg.asset(name="things")
    def build() -> pa.Table:
        return pa.table({"n": [1]})

    assert dg.materialize([build], resources={"io_manager": DuckLakeIOManager(lake=lake)}).success
    for storage in ({"data_path": "files"}, {"kind": "locl"}, {"kind": []}, {}):
        with pytest.raises(UsageError, match=r"storage has no kind\. Set kind to one of local, s3, gcs, azure"):
            DuckLakeResource(catalog="sqlite:///lake.sqlite", storage=storage)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="S3Storage has no field secret"):
        DuckLakeResource(catalog="sqlite:///lake.sqlite", storage={"kind": "s3", "secret": "x"})  # type: ignore[arg-type]


def resource_of(storage: Any, **settings: Any) -> DuckLakeResource:
    return DuckLakeResource(catalog=SqliteCatalog(path="l"), storage=storage, **settings)


@pytest.mark.parametrize(
    "kind", [DuckLakeResource, DuckLakeIOManager, DuckLakeMaintenanceComponent, DuckLakeComponent, DuckLakeTablesComponent]
)
def test_descriptions_on_pages_have_no_markup_that_dagster_shows_as_it_is(kind: type) -> None:
    assert not re.findall(r":\w+:`|::$", inspect.getdoc(kind) or "", re.MULTILINE)
