"""The first line of a failed step is the library's message, and permanent errors are not retried."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dagster as dg
import psycopg
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import CatalogError, CatalogUnavailableError, StorageError
from ducklake_core.storage.stores import classify_store_error
from ducklake_dagster import DuckLakeIOManager, DuckLakeResource, LocalStorage, MySQLCatalog, PostgresCatalog, S3Storage, SqliteCatalog
from ducklake_dagster.config.errors import shown_failures
from tests.dagster.conftest import QUIET
from tests.support.postgres import PostgresServer
from tests.support.s3 import BUCKET, S3Server

Described = tuple[str, dict[str, Any], int]


def shown(lake: DuckLakeResource, *, retries: int = 1, frame: Callable[[], Any] = lambda: pa.table({"n": [1]})) -> Described:
    """The first line and the metadata of the step's failure, and how often the asset was computed."""
    computed: list[int] = []

    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=retries))
    def things() -> Any:
        computed.append(1)
        return frame()

    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            [things], resources={"io_manager": DuckLakeIOManager(lake=lake)}, run_config=QUIET, instance=instance, raise_on_error=False
        )
    (event,) = [event for event in result.all_events if event.is_step_failure]
    failure = event.step_failure_data.user_failure_data
    assert failure is not None
    assert failure.description
    metadata = {key: value.value for key, value in failure.metadata.items()}
    assert metadata["documentation"] == "docs/how-to/dagster/troubleshooting.md"
    return failure.description.splitlines()[0], metadata, len(computed)


@contextmanager
def password_user(server: PostgresServer) -> Iterator[None]:
    """Require a password of one user, and reject another one."""
    with psycopg.connect(f"host={server.socket} user={server.user} dbname=postgres", autocommit=True) as connection:
        connection.execute("CREATE ROLE with_password LOGIN PASSWORD 'right'")
        connection.execute("CREATE ROLE rejected LOGIN")
        row = connection.execute("SHOW hba_file").fetchone()
        assert row is not None
        file = Path(row[0])
        before = file.read_text()
        file.write_text(f"local all with_password scram-sha-256\nlocal all rejected reject\n{before}")
        connection.execute("SELECT pg_reload_conf()")
        time.sleep(0.3)
        try:
            yield
        finally:
            file.write_text(before)
            connection.execute("SELECT pg_reload_conf()")
            connection.execute("DROP ROLE with_password")
            connection.execute("DROP ROLE rejected")


def test_logins_and_databases_that_postgresql_rejects_are_permanent_errors(postgres: PostgresServer, tmp_path: Path) -> None:
    storage = LocalStorage(data_path=str(tmp_path / "files"))
    with password_user(postgres):
        for user, password, database, state in (
            ("with_password", "wrong", "postgres", "28P01"),
            ("with_password", None, "postgres", "28P01"),
            ("rejected", None, "postgres", "28000"),
            ("no_such_role", None, "postgres", "28000"),
            (postgres.user, None, "no_such_database", "3D000"),
        ):
            catalog = PostgresCatalog(host=postgres.socket, user=user, password=password, database=database)
            began = time.monotonic()
            first, metadata, computed = shown(DuckLakeResource(catalog=catalog, storage=storage, create_if_missing=True))
            assert computed == 1, first
            assert time.monotonic() - began < 4
            assert first.startswith("table main.things: The database")
            assert ("does not exist" if state == "3D000" else "rejected the login") in first
            assert "wrong" not in first
            assert (metadata["table"], metadata["error_code"], metadata["sqlstate"]) == ("main.things", "catalog", state)


def test_a_server_that_is_away_is_retried_and_shown_with_metadata(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        catalog = PostgresCatalog(host="127.0.0.1", port=taken.getsockname()[1], user="u", database="d")
        first, metadata, computed = shown(DuckLakeResource(catalog=catalog, storage=LocalStorage(data_path=str(tmp_path))))
    assert first.startswith("table main.things: The catalog postgresql")
    assert "cannot be reached" in first
    assert (metadata["error_code"], computed) == ("catalog-unavailable", 2)


def test_a_full_postgresql_server_is_retried(postgres: PostgresServer) -> None:
    name = postgres.new_database()
    with psycopg.connect(f"host={postgres.socket} user={postgres.user} dbname=postgres", autocommit=True) as connection:
        connection.execute("CREATE ROLE crowded LOGIN CONNECTION LIMIT 0")
        try:
            url = f"postgresql+psycopg://crowded@/{name}?host={quote(postgres.socket, safe='')}"
            with pytest.raises(CatalogUnavailableError) as caught:
                DuckLake.connect(url)
        finally:
            connection.execute("DROP ROLE crowded")
    assert caught.value.details["sqlstate"] == "53300"


@pytest.mark.parametrize("catalog_kind", ["sqlite", "duckdb"])
def test_directories_that_cannot_be_created_are_permanent_errors(tmp_path: Path, catalog_kind: str) -> None:
    from ducklake_dagster import DuckDBCatalog

    (tmp_path / "file").write_text("")
    kinds = {"sqlite": SqliteCatalog, "duckdb": DuckDBCatalog}
    inside = str(tmp_path / "file" / "lakes" / "lake.db")
    lake = DuckLakeResource(catalog=kinds[catalog_kind](path=inside), storage=LocalStorage(data_path=str(tmp_path)), create_if_missing=True)
    first, metadata, computed = shown(lake)
    assert "Cannot create directory" in first
    assert (metadata["error_code"], computed) == ("catalog", 1)


def test_a_data_path_that_cannot_be_created_is_a_permanent_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    storage = LocalStorage(data_path=str(tmp_path / "file" / "data"))
    lake = DuckLakeResource(catalog=SqliteCatalog(path=str(tmp_path / "lake.sqlite")), storage=storage, create_if_missing=True)
    first, metadata, computed = shown(lake, frame=lambda: pa.table({"n": list(range(1000))}))
    assert "cannot create" in first
    assert (metadata["error_code"], metadata["store_error"], computed) == ("storage", "ENOTDIR", 1)


@pytest.mark.slow
def test_buckets_and_keys_that_a_store_rejects_are_permanent_errors(s3: S3Server, tmp_path: Path) -> None:
    for bucket, key, codes in (
        ("no-such-bucket", None, {"NoSuchBucket"}),
        (BUCKET, "wrong-key", {"InvalidAccessKeyId", "AccessDenied", "403"}),
    ):
        options = dict(s3.options()["s3"])
        if key is not None:
            options["key"] = key
        lake = DuckLakeResource(
            catalog=SqliteCatalog(path=str(tmp_path / f"{bucket}.sqlite")),
            storage=S3Storage(data_path=f"s3://{bucket}/lake/", options=options),
            create_if_missing=True,
        )
        first, metadata, computed = shown(lake, frame=lambda: pa.table({"n": list(range(1000))}))
        assert metadata["store_error"] in codes
        assert (metadata["error_code"], computed) == ("storage", 1)
        assert "s3://" in first


def test_errors_of_a_frame_that_is_computed_while_it_is_written_are_shown_first(lake_resource: DuckLakeResource) -> None:
    def broken() -> pa.RecordBatchReader:
        def batches() -> Iterator[pa.RecordBatch]:
            raise ZeroDivisionError("division by zero")
            yield

        return pa.RecordBatchReader.from_batches(pa.schema({"n": pa.int64()}), batches())

    first, metadata, computed = shown(lake_resource, frame=broken)
    assert "main.things" in first
    assert "division by zero" in first
    assert computed == 2, "the asset's own errors are retried"
    assert metadata["table"] == "main.things"


def test_a_missing_java_names_what_to_install() -> None:
    with pytest.raises(dg.Failure) as caught, shown_failures("main.t"):
        raise RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.")
    assert str(caught.value.description).startswith("table main.t: Java 17 or newer is needed: install a JDK and set JAVA_HOME")
    assert caught.value.metadata["documentation"].value == "docs/how-to/dagster/troubleshooting.md"


def test_mysql_errors_of_login_and_database_name_what_to_do() -> None:
    import pymysql
    from sqlalchemy.exc import OperationalError

    from ducklake_core.catalog.database.failures import classify, wrapped

    for number, words in (
        (1045, "rejected the login"),
        (1044, "rejected the login"),
        (1698, "rejected the login"),
        (1049, "does not exist"),
    ):
        error = wrapped(OperationalError(None, None, pymysql.err.OperationalError(number, "no")), "mysql://db/lake", ())
        assert words in error.message
        assert type(error) is CatalogError
        assert classify(error) == "fatal"
    assert MySQLCatalog(database="lake").url()


class _AnswerError(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}}


@pytest.mark.parametrize("code", ["NoSuchBucket", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "403"])
def test_store_codes_that_a_retry_does_not_change(code: str) -> None:
    wrapped = OSError("wrapped")
    wrapped.__cause__ = _AnswerError(code)
    kind = classify_store_error(wrapped)
    assert (kind.code, kind.permanent) == (code, True)
    assert kind.advice


@pytest.mark.parametrize("code", ["SlowDown", "InternalError", "RequestTimeout", "503", "ServiceUnavailable", "ExpiredToken"])
def test_store_codes_that_a_retry_may_change(code: str) -> None:
    kind = classify_store_error(_AnswerError(code))
    assert (kind.code, kind.permanent) == (code, False)


def test_pickled_store_errors_keep_their_class() -> None:
    import pickle

    from ducklake_dagster.config.errors import may_pass

    for permanent in (True, False):
        error = pickle.loads(pickle.dumps(StorageError("x", store_error="AccessDenied", permanent=permanent)))
        assert may_pass(error) is not permanent
