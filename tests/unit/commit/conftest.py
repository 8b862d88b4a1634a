"""These tests run on every catalog database."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.oracle import LakeAddress
from tests.support.parameters import CATALOGS, new_address


@pytest.fixture(params=CATALOGS)
def lake_address(request: pytest.FixtureRequest, tmp_path: Path) -> LakeAddress:
    """The address of a new lake, on every catalog database."""
    return new_address(request, request.param, tmp_path)
