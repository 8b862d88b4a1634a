"""A lake, and a folder of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from ducklake_core import DuckLake
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "elsewhere").mkdir()
    return tmp_path / "elsewhere"


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    created = lake_of_files(sqlite_address)
    created.set_option("data_inlining_row_limit", 0)
    return created
