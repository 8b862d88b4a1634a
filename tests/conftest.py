"""Fixtures that every test folder shares."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.oracle import LakeAddress, Oracle, attached, sqlite_lake
from tests.support.postgres import PostgresServer, start_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The PostgreSQL server of this test run."""
    server = start_server()
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def lake_address(request: pytest.FixtureRequest, tmp_path: Path) -> LakeAddress:
    """A place for a new lake, on each catalog database; nothing is created yet."""
    if request.param == "sqlite":
        return sqlite_lake(tmp_path)
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.lake(tmp_path)


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share the Spark session go to one worker when the run is spread over several."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
