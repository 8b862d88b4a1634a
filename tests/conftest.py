"""Fixtures that every test folder shares."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import hypothesis
import pytest

from ducklake_core.catalog.reading import files
from ducklake_core.format import options
from ducklake_core.format.versions import DEFAULT_VERSION
from tests import selection
from tests.support import durations, versions
from tests.support.folders import folder_in_memory
from tests.support.oracle import LakeAddress, Oracle, attached, file_lake, sqlite_lake
from tests.support.postgres import PostgresServer, start_server
from tests.support.servers import running_servers

_ROOM_FOR_TESTS = 8 << 30
_FOLDERS_WITHOUT_FAST = {Path(__file__).parent / name for name in selection.NOT_FAST}

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


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def lake_address(request: pytest.FixtureRequest, tmp_path: Path) -> LakeAddress:
    """A place for a new lake, on either kind of catalog database: a file, or a server; nothing is created yet."""
    return _new_place(request, tmp_path)


@pytest.fixture(params=["sqlite", "postgresql", "duckdb", "mysql"])
def every_lake_address(request: pytest.FixtureRequest, tmp_path: Path) -> LakeAddress:
    """Likewise on all catalog databases. Folders that test what differs between them make this their ``lake_address``."""
    return _new_place(request, tmp_path)


def _new_place(request: pytest.FixtureRequest, folder: Path) -> LakeAddress:
    if request.param not in selection.ASKED_FOR_BY:
        return file_lake(request.param, folder)
    server: PostgresServer | MySQLServer = request.getfixturevalue(selection.ASKED_FOR_BY[request.param])
    return server.lake(folder)


@pytest.fixture
def sqlite_address(tmp_path: Path) -> LakeAddress:
    """A place for a new lake with a SQLite catalog, for what does not depend on the database."""
    return sqlite_lake(tmp_path)


_PRUNED_BY_THE_DATABASE = (
    "tests/unit/catalog",
    "tests/behaviour/scan",
    "tests/behaviour/foreign_files",
    "tests/property/hostile_catalogs/test_pruning_in_sql",
)
_PRUNED_EITHER_WAY = "tests/property"


@pytest.fixture(autouse=True)
def _the_database_prunes(request: pytest.FixtureRequest) -> Iterator[None]:
    """In tests about conditions, however few the files are, and in half of the random ones; others are pruned as users' are."""
    few, name = files.FEW_FILES, request.node.nodeid
    either = name.startswith(_PRUNED_EITHER_WAY) and crc32(name.encode()) % 2 == 0
    if either or name.startswith(_PRUNED_BY_THE_DATABASE):
        files.FEW_FILES = 0
    yield
    files.FEW_FILES = few


@pytest.fixture
def oracle() -> Callable[..., AbstractContextManager[Oracle]]:
    """``with oracle(address, "DATA_INLINING_ROW_LIMIT 0") as duck:`` gives DuckDB attached to the lake."""
    return attached


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
    """The one Spark session of this worker: two local cores, UTC, few shuffle partitions."""
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
def connect() -> Iterator[str]:
    """The address of the one Spark Connect server of this worker."""
    from tests.support.connect import connect_server

    with connect_server() as address:
        yield address


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast", action="store_true", help="leave out what takes seconds, further variants, and all that uses Spark or a server"
    )
    parser.addoption("--shuffle", metavar="SEED", type=int, help="take the test files in a random order, the same for the same seed")
    parser.addoption(
        "--lake-version",
        choices=["1.0", "1.1"],
        default="1.0",
        help="of the lakes that tests make without saying which; for a DuckDB that does not know it they get the form of the one before",
    )
    parser.addoption("--chaos-seconds", metavar="SECONDS", type=float, default=30, help="duration of each run of tests/chaos")
    parser.addoption("--chaos-seeds", metavar="SEEDS", default="1", help="seeds of the runs of tests/chaos, separated by commas")
    parser.addoption("--durations-report", metavar="FILE", help="write where the time went, as Markdown")


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
    # Whoever ends the run ends its servers as well, which are no longer in its process group. Dagster gives SIGTERM what SIGINT has, which
    # a shell's background jobs ignore.
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Fast tests are looked for where there are some: reading all files takes each worker ten seconds."""
    return True if config.getoption("fast") and collection_path in _FOLDERS_WITHOUT_FAST else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the tests of this run."""
    selection.mark_slow_variants(items)
    selection.mark_mysql_variants(items)
    selection.mark_repeated_catalogs(items, fast=config.getoption("fast"))
    selection.mark_all_but_some(items)
    if config.getoption("lake_version") != DEFAULT_VERSION.name:
        config.hook.pytest_deselected(items=versions.leave_out(items))
    if config.getoption("fast"):
        config.hook.pytest_deselected(items=selection.keep_fast(items))
    if (seed := config.getoption("shuffle")) is not None:
        selection.shuffle_files(items, seed)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say how to get the same order again, and what is left out."""
    seed = config.getoption("shuffle")
    told = [] if seed is None else [f"files in the order of --shuffle {seed}"]
    if (version := config.getoption("lake_version")) != DEFAULT_VERSION.name:
        told += [f"not on lakes of {version}: {part} ({reason})" for part, reason in versions.LEFT_OUT.items()]
    return told


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> Iterator[object]:
    """The choice of fast tests is complete: none of them reaches a server by a way that the choice does not see."""
    if request.config.getoption("fast") and fixturedef.argname in selection.SERVERS:
        pytest.fail(f"{os.environ['PYTEST_CURRENT_TEST']} is taken for a fast test and uses {fixturedef.argname}: see tests/selection.py")
    return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if (file := config.getoption("durations_report")) and not hasattr(config, "workerinput"):
        reports = [report for group in terminalreporter.stats.values() for report in group if isinstance(report, pytest.TestReport)]
        Path(file).write_text(durations.as_markdown(reports))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[pytest.TestReport]:
    """A failure tells which servers there were and what they said last."""
    report: pytest.TestReport = yield
    if report.failed and (found := running_servers()):
        report.sections.append(("Servers of this worker", found))
    return report


def pytest_collection_finish() -> None:
    """What thousands of tests and the libraries are made of stays: the collector need not walk it, nor forked children copy it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
