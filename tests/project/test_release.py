"""What `make release-check` says of the changelog and of the lowest versions."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)


def test_versions_of_the_changelog_have_dates(tmp_path: Path) -> None:
    done = run(".ci/release_check.py", str(tmp_path), "changelog")
    assert (done.returncode, done.stdout) == (0, "checked: changelog\n"), done.stderr


def test_environments_are_made_outside_of_the_project() -> None:
    done = run(".ci/release_check.py", str(ROOT / "build"), "changelog")
    assert done.returncode != 0
    assert "outside of the project" in done.stderr


def test_every_dependency_has_a_lowest_version() -> None:
    bounds = run(".ci/lowest.py").stdout.split()
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert len(bounds) == len(named)
    assert "psycopg==3.2.1" in bounds
