"""New lakes: on the catalog databases that a test names, or on SQLite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress


@pytest.fixture
def lake(lake_address: LakeAddress) -> Iterator[DuckLake]:
    """A new lake, on the catalog databases of the test."""
    made = DuckLake.create(lake_address.url, data_path=lake_address.data_path)
    yield made
    made.close()


@pytest.fixture
def small(sqlite_address: LakeAddress) -> Iterator[DuckLake]:
    """A lake for tests that do not depend on the database."""
    made = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    yield made
    made.close()
