"""These tests run on every catalog database."""

from __future__ import annotations

import pytest

from tests.support.oracle import LakeAddress


@pytest.fixture
def lake_address(every_lake_address: LakeAddress) -> LakeAddress:
    """A place for a new lake, on every catalog database."""
    return every_lake_address
