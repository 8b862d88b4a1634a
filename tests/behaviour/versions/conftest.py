"""All catalog databases for lakes of version 1.1."""

from __future__ import annotations

import pytest

from tests.support.oracle import LakeAddress


@pytest.fixture
def lake_address(every_lake_address: LakeAddress) -> LakeAddress:
    """On every catalog database."""
    return every_lake_address
