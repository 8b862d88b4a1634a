"""New lakes for tests of faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.oracle import LakeAddress
from tests.support.postgres import PostgresServer


@pytest.fixture
def address(postgres: PostgresServer, tmp_path: Path) -> LakeAddress:
    """The address of a new lake on PostgreSQL."""
    return postgres.lake(tmp_path)
