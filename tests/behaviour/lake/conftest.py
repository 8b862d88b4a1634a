"""Pairs of lakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.oracle import LakeAddress
from tests.support.parameters import new_address


@pytest.fixture
def two_lakes(lake_address: LakeAddress, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[LakeAddress, LakeAddress]:
    """One lake for DuckDB and one for ducklake_core, on the same kind of database."""
    folder = tmp_path / "duckdb"
    folder.mkdir()
    return new_address(request, lake_address.backend, folder), lake_address
