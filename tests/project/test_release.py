"""What `make release-check` says of the changelog and of the lowest versions."""

from __future__ import annotations

import re
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


def test_what_users_install_has_a_lowest_version_that_tests_can_have() -> None:
    bounds = dict(line.split("==") for line in run(".ci/lowest.py").stdout.split())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    tested = [one for extra in extras if extra not in {"duckdb", "dev"} for one in extras[extra]]
    assert len(bounds) == len([*project["dependencies"], *tested])
    assert bounds["psycopg"] == "3.2.1"
    of_tests = dict(one.split(">=") for one in extras["dev"] if re.fullmatch(r"[^=]+>=[0-9.]+", one))
    assert {name: bounds[name] for name in bounds.keys() & of_tests} == {name: of_tests[name] for name in bounds.keys() & of_tests}
