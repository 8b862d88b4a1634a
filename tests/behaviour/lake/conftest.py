"""New lakes: on the catalog databases that a test names, or on SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress
from tests.support.parameters import new_address


@pytest.fixture
def lake(lake_address: LakeAddress) -> Iterator[DuckLake]:
    """A new lake, on the catalog databases of the test."""
    made = DuckLake.create(lake_address.url, data_path=lake_address.data_path)
    yield made
    made.close()


@pytest.fixture
def small(sqlite_address: LakeAddress) -> Iterator[DuckLake]:
    """A lake for what does not depend on the database."""
    made = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    yield made
    made.close()


@pytest.fixture
def two_lakes(lake_address: LakeAddress, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[LakeAddress, LakeAddress]:
    """One lake for DuckDB and one for ducklake_core, on the same kind of database."""
    folder = tmp_path / "duckdb"
    folder.mkdir()
    return new_address(request, lake_address.backend, folder), lake_address
