"""The root of a package holds only what users import."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_AT_ROOT = 12


def test_files_at_the_root_are_few() -> None:
    assert len(list((ROOT / "ducklake_core").glob("*.py"))) <= MAX_AT_ROOT
