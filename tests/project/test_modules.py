"""The shape of the packages: short modules, and a root of which every file is imported by users."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_LINES = 400
MOST_AT_ROOT = 12


@pytest.mark.parametrize("package", ["ducklake_core", "ducklake_dagster"])
def test_modules_are_short(package: str) -> None:
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in (ROOT / package).rglob("*.py")}
    assert lines
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}


def test_files_at_the_root_are_few() -> None:
    assert len(list((ROOT / "ducklake_core").glob("*.py"))) <= MOST_AT_ROOT
