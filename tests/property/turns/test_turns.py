"""Random histories by us and by a second implementation, on both versions: what each reads at every snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.property.turns.play import Turns
from tests.support.oracle import LakeAddress, file_lake

pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")  # of the second implementation
_CATALOGS = ["sqlite", "postgresql", "duckdb"]


def _place(kind: str, folder: Path, request: pytest.FixtureRequest) -> LakeAddress:
    found: LakeAddress = request.getfixturevalue("postgres").lake(folder) if kind == "postgresql" else file_lake(kind, folder)
    return found


@pytest.mark.parametrize(
    ("kind", "version", "seed"), [("sqlite", "1.1", 1), ("sqlite", "1.0", 2), ("postgresql", "1.1", 3), ("duckdb", "1.1", 4)]
)
def test_short_histories(kind: str, version: str, seed: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    Turns(_place(kind, tmp_path, request), version, seed).play(10)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("kind", _CATALOGS)
@pytest.mark.parametrize("seed", range(100, 106))
def test_long_histories(kind: str, version: str, seed: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    Turns(_place(kind, tmp_path, request), version, seed).play(40)
