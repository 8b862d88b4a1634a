"""Fixtures that every test folder shares."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from ducklake_core.catalog.reading import files
from ducklake_core.format import options
from ducklake_core.format.versions import DEFAULT_VERSION
from tests.support import versions
from tests.support.folders import folder_in_memory
from tests.support.oracle import LakeAddress, sqlite_lake
from tests.support.parameters import SQLITE_THEN_SLOW, STORES, new_address
from tests.support.postgres import PostgresServer, start_server
from tests.support.servers import running_servers

_ROOM_FOR_TESTS = 8 << 30
_USES_SPARK = {"spark", "connect"}

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.azure import AzureServer
    from tests.support.mysql import MySQLServer
    from tests.support.object_stores import ObjectStore
    from tests.support.s3 import S3Server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The PostgreSQL server of this test run."""
    server = start_server()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def mysql() -> Iterator[MySQLServer]:
    """The server of MySQL catalogs of this test run."""
    from tests.support.mysql import mysql_server

    with mysql_server() as server:
        yield server


@pytest.fixture(params=SQLITE_THEN_SLOW)
def lake_address(request: pytest.FixtureRequest, tmp_path: Path) -> LakeAddress:
    """The address of a new lake, which does not exist yet. Where the catalog database matters, a folder or test names more of them."""
    return new_address(request, request.param, tmp_path)


@pytest.fixture
def sqlite_address(tmp_path: Path) -> LakeAddress:
    """A place for a new lake with a SQLite catalog, for what does not depend on the database."""
    return sqlite_lake(tmp_path)


@pytest.fixture
def pruned_by_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database prunes files, however few they are; without this, the library prunes the few files of a test itself."""
    monkeypatch.setattr(files, "FEW_FILES", 0)


@pytest.fixture(scope="session")
def lake_version(request: pytest.FixtureRequest) -> str:
    """The version of lakes whose tests do not say which."""
    version: str = request.config.getoption("lake_version")
    return version


@pytest.fixture
def without_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library does not find DuckDB; the oracle has it."""
    from ducklake_core.engines import duckdb_instance as instance

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(instance, "import_module", missing)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of this worker: two local cores, UTC, few shuffle partitions.

    Executors write the small frames of tests too, as they write large ones; the fixture ``local_writes`` changes that.
    """
    from ducklake_core.engines.spark import write
    from tests.support.spark import local_session

    session = local_session()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write, "LOCAL_LEAVES", frozenset())
        yield session
    session.stop()


@pytest.fixture
def local_writes(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process writes small local frames of Spark, as outside of tests."""
    from ducklake_core.engines.spark import write

    monkeypatch.setattr(write, "LOCAL_LEAVES", frozenset({"LocalRelation", "Range", "OneRowRelation"}))


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


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> ObjectStore:
    """Each object store in turn."""
    from tests.support import object_stores

    store: ObjectStore = getattr(object_stores, f"{request.param}_store")(request.getfixturevalue(request.param))
    return store


@pytest.fixture(scope="session")
def connect() -> Iterator[str]:
    """The address of the one Spark Connect server of this worker."""
    from tests.support.connect import connect_server

    with connect_server() as address:
        yield address


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", metavar="SEED", type=int, help="take the test files in a random order, the same for the same seed")
    parser.addoption(
        "--lake-version",
        choices=["1.0", "1.1"],
        default="1.0",
        help="of the lakes that tests make without saying which; for a DuckDB that does not know it they get the form of the one before",
    )
    parser.addoption("--chaos-seconds", metavar="SECONDS", type=float, default=30, help="duration of each run of tests/chaos")
    parser.addoption("--chaos-seeds", metavar="SEEDS", default="1", help="seeds of the runs of tests/chaos, separated by commas")


def pytest_configure(config: pytest.Config) -> None:
    # Files of a few bytes make many files of few rows; users cannot ask for them.
    options.MIN_TARGET_FILE_SIZE = 1
    # Time limits of single examples say how loaded a machine is; what failed can be run again from what is printed.
    hypothesis.settings.register_profile("tests", deadline=None, print_blob=True, suppress_health_check=[hypothesis.HealthCheck.too_slow])
    hypothesis.settings.load_profile("tests")
    versions.choose(config.getoption("lake_version"))
    # Each test makes and commits to databases of its own, and every commit would wait for the disk several times.
    if (memory := folder_in_memory(_ROOM_FOR_TESTS)) is not None:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))
    # Java as short work wants it: its optimising compiler and its collector's threads took more than half of the processor time of tests.
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    # The process that ends the run also ends its servers, which are no longer in its process group. Dagster gives SIGTERM the handler of
    # SIGINT, which a shell's background jobs ignore.
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what starts Spark, and choose the version and the order of this run."""
    for item in items:
        if not _USES_SPARK.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.spark)
    if config.getoption("lake_version") != DEFAULT_VERSION.name:
        config.hook.pytest_deselected(items=versions.leave_out(items))
    if (seed := config.getoption("shuffle")) is not None:
        paths = sorted({item.path for item in items})
        random.Random(seed).shuffle(paths)
        items.sort(key=lambda item: paths.index(item.path))


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say how to get the same order again, and what is left out."""
    seed = config.getoption("shuffle")
    lines = [] if seed is None else [f"files in the order of --shuffle {seed}"]
    if (version := config.getoption("lake_version")) != DEFAULT_VERSION.name:
        lines += [f"not on lakes of {version}: {part} ({reason})" for part, reason in versions.LEFT_OUT.items()]
    return lines


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[pytest.TestReport]:
    """Show the servers of a failed test and the last lines of their logs."""
    report: pytest.TestReport = yield
    if report.failed and (found := running_servers()):
        report.sections.append(("Servers of this worker", found))
    return report


def pytest_collection_finish() -> None:
    """Keep the objects of tests and libraries out of the collector, so that forked children do not copy them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
