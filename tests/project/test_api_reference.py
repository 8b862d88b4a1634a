"""`make docs`: a page for each public name, and words on each of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_reference_is_complete(tmp_path: Path) -> None:
    program = [sys.executable, "-W", "ignore", str(ROOT / ".ci" / "api_reference.py"), str(tmp_path)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    import ducklake_core
    import ducklake_dagster

    for package in (ducklake_core, ducklake_dagster):
        assert {page.stem for page in (tmp_path / package.__name__).glob("*.md")} == set(package.__all__)
    index = (tmp_path / "README.md").read_text()
    assert "- [DuckLakeIOManager](ducklake_dagster/DuckLakeIOManager.md): Store the frames that assets return in DuckLake tables" in index
    page = (tmp_path / "ducklake_core" / "Transaction.md").read_text()
    assert "## guard" in page
    assert "Make the commit fail if another writer changes rows" in page
    manager = (tmp_path / "ducklake_dagster" / "DuckLakeResource.md").read_text()
    assert "## connect" in manager
    # Inherited from Dagster, which documents it.
    assert "## from_resource_context" not in manager
