"""A lake to spoil, on each catalog database; made once and copied for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from ducklake_core import DuckLake
from tests.property.hostile_catalogs.spoiled import SpoiledLake, build, file_copy, sqlite_copy
from tests.support.oracle import LakeAddress, file_lake, sqlite_lake
from tests.support.parameters import slow
from tests.support.postgres import PostgresServer


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> LakeAddress:
    """The untouched lake, its catalog in SQLite."""
    return build(sqlite_lake(tmp_path_factory.mktemp("hostile-sqlite")))


@pytest.fixture(scope="session")
def postgres_template(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> LakeAddress:
    """The untouched lake, its catalog in PostgreSQL."""
    return build(postgres.lake(tmp_path_factory.mktemp("hostile-postgres"), keep=True))


@pytest.fixture(scope="session")
def duckdb_template(tmp_path_factory: pytest.TempPathFactory) -> LakeAddress:
    """The untouched lake, its catalog in a DuckDB file."""
    return build(file_lake("duckdb", tmp_path_factory.mktemp("hostile-duckdb")))


@pytest.fixture(params=["sqlite", slow("postgresql"), slow("duckdb")])
def spoiled(request: pytest.FixtureRequest, tmp_path: Path) -> SpoiledLake:
    """A copy of the lake that the test may spoil, on each catalog database."""
    if request.param != "postgresql":
        return file_copy(request.getfixturevalue(f"{request.param}_template"), file_lake(request.param, tmp_path))
    server: PostgresServer = request.getfixturevalue("postgres")
    template: LakeAddress = request.getfixturevalue("postgres_template")
    address = server.lake(tmp_path, template=template)
    return SpoiledLake(address).moved_from(template)


@pytest.fixture
def spoiled_sqlite(sqlite_template: LakeAddress, tmp_path: Path) -> SpoiledLake:
    """The copy in SQLite, for what only its untyped cells can hold."""
    return sqlite_copy(sqlite_template, tmp_path)


@pytest.fixture(scope="session")
def template_1_1(tmp_path_factory: pytest.TempPathFactory) -> LakeAddress:
    """The untouched lake in version 1.1, its catalog in SQLite."""
    address = build(sqlite_lake(tmp_path_factory.mktemp("hostile-1-1")))
    with DuckLake.connect(address.url) as lake:
        lake.migrate("1.1")
    return address


@pytest.fixture
def spoiled_1_1(template_1_1: LakeAddress, tmp_path: Path) -> SpoiledLake:
    """The copy in version 1.1."""
    return sqlite_copy(template_1_1, tmp_path)
