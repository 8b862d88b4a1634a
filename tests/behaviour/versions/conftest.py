"""All catalog databases for lakes of version 1.1."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.ducklakepy_lake import BACKENDS
from tests.support.oracle import LakeAddress
from tests.support.parameters import new_address, spread


@pytest.fixture(params=spread(BACKENDS, 1))
def both(request: pytest.FixtureRequest, tmp_path: Path) -> LakeAddress:
    """A place that both implementations can use as it is."""
    return new_address(request, request.param, tmp_path)
