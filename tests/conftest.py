"""Fixtures that every test folder shares."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.oracle import LakeAddress, Oracle, attached, file_lake, sqlite_lake
from tests.support.postgres import PostgresServer, start_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.azure import AzureServer
    from tests.support.object_stores import ObjectStore
    from tests.support.s3 import S3Server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The PostgreSQL server of this test run."""
    server = start_server()
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def lake_address(request: pytest.FixtureRequest, tmp_path: Path) -> LakeAddress:
    """A place for a new lake, on either kind of catalog database: a file, or a server; nothing is created yet."""
    return _new_place(request, tmp_path)


@pytest.fixture(params=["sqlite", "postgresql", "duckdb"])
def every_lake_address(request: pytest.FixtureRequest, tmp_path: Path) -> LakeAddress:
    """Likewise on all catalog databases. Folders that test what differs between them make this their ``lake_address``."""
    return _new_place(request, tmp_path)


def _new_place(request: pytest.FixtureRequest, folder: Path) -> LakeAddress:
    if request.param != "postgresql":
        return file_lake(request.param, folder)
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.lake(folder)


@pytest.fixture
def sqlite_address(tmp_path: Path) -> LakeAddress:
    """A place for a new lake with a SQLite catalog, for what does not depend on the database."""
    return sqlite_lake(tmp_path)


@pytest.fixture
def oracle() -> Callable[..., AbstractContextManager[Oracle]]:
    """``with oracle(address, "DATA_INLINING_ROW_LIMIT 0") as duck:`` gives DuckDB attached to the lake."""
    return attached


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of this test run: two local cores, UTC, few shuffle partitions."""
    from tests.support.spark import local_session

    session = local_session()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The S3 server of this test run, with one bucket. Tests that write into it have a directory each."""
    from tests.support.s3 import s3_server

    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def azure() -> Iterator[AzureServer]:
    """The server of Azure's blob storage of this test run, with one container. Tests that write into it have a directory each."""
    from tests.support.azure import azure_server

    with azure_server() as server:
        yield server


@pytest.fixture(scope="session")
def gcs() -> Iterator[str]:
    """The address of the emulator of Google Cloud Storage of this test run, with one bucket."""
    from tests.support.gcs import gcs_server

    with gcs_server() as endpoint:
        yield endpoint


@pytest.fixture(params=["s3", "azure", "gcs"])
def store(request: pytest.FixtureRequest) -> ObjectStore:
    """Each object store in turn."""
    from tests.support import object_stores

    store: ObjectStore = getattr(object_stores, f"{request.param}_store")(request.getfixturevalue(request.param))
    return store


@pytest.fixture(scope="session")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the one Spark Connect server of this test run."""
    from tests.support.connect import connect_server

    with connect_server(tmp_path_factory.mktemp("connect") / "server.log") as address:
        yield address


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share a Spark session or server go to one worker when the run is spread over several; dear variants are slow."""
    for item in items:
        for mark in item.iter_markers("slow_on"):
            if set(mark.args) & {str(value) for value in item.callspec.params.values()}:
                item.add_marker(pytest.mark.slow)
        for shared in ("spark", "connect"):
            if shared in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group(shared))
