"""All catalog databases for lakes of version 1.1."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.ducklakepy_lake import BACKENDS
from tests.support.oracle import LakeAddress, file_lake


@pytest.fixture
def lake_address(every_lake_address: LakeAddress) -> LakeAddress:
    """On every catalog database."""
    return every_lake_address


@pytest.fixture
def everywhere(every_lake_address: LakeAddress) -> LakeAddress:
    """A place that both implementations can use, a DuckDB file by a copy of the catalog."""
    return every_lake_address


@pytest.fixture(params=BACKENDS)
def both(request: pytest.FixtureRequest, tmp_path: Path) -> LakeAddress:
    """A place that both implementations can use as it is."""
    found: LakeAddress = (
        request.getfixturevalue("postgres").lake(tmp_path) if request.param == "postgresql" else file_lake("sqlite", tmp_path)
    )
    return found
