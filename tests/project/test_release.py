"""Rules of `make release-check` for the changelog and the lowest versions."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import ducklake_core
import ducklake_dagster

ROOT = Path(__file__).parents[2]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)


def test_versions_of_the_changelog_have_dates(tmp_path: Path) -> None:
    done = run(".ci/release_check.py", str(tmp_path), "changelog")
    assert (done.returncode, done.stdout) == (0, "checked: changelog\n"), done.stderr


def test_fragments_have_a_type_and_end_in_a_sentence() -> None:
    towncrier = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
    types = "|".join(one["directory"] for one in towncrier["type"])
    assert (ROOT / towncrier["template"]).exists()
    for fragment in (ROOT / towncrier["directory"]).iterdir():
        if fragment.name not in towncrier["ignore"]:
            assert re.fullmatch(rf"[a-z0-9-]+\.({types})\.md", fragment.name), f"{fragment.name}: use <topic>.<type>.md with one of {types}"
            assert fragment.read_text().rstrip().endswith(".")


def test_the_version_stands_in_one_place() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert pyproject["project"]["dynamic"] == ["version"]
    assert pyproject["tool"]["hatch"]["version"]["path"] == "ducklake_core/__init__.py"
    assert ducklake_dagster.__version__ == ducklake_core.__version__
    assigned = [path for path in ROOT.glob("ducklake_*/**/*.py") if re.search(r"^__version__ = ", path.read_text(), re.MULTILINE)]
    assert assigned == [ROOT / "ducklake_core" / "__init__.py"]


def test_environments_are_made_outside_of_the_project() -> None:
    done = run(".ci/release_check.py", str(ROOT / "build"), "changelog")
    assert done.returncode != 0
    assert "outside of the project" in done.stderr


def test_dependencies_have_a_lowest_version_that_installs() -> None:
    bounds = dict(line.split("==") for line in run(".ci/lowest.py").stdout.split())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    tested = [one for extra in extras if extra not in {"duckdb", "dev"} for one in extras[extra]]
    named = {re.split(r"[\[<>=]", one)[0] for one in [*project["dependencies"], *tested]}
    assert bounds.keys() == named - {"ducklake-dagster"}
    assert bounds["psycopg"] == "3.2.1"
    of_tests = dict(one.split(">=") for one in extras["dev"] if re.fullmatch(r"[^=]+>=[0-9.]+", one))
    assert {name: bounds[name] for name in bounds.keys() & of_tests} == {name: of_tests[name] for name in bounds.keys() & of_tests}
