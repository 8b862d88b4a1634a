"""An executor is lost in the middle of a file: its tasks run again elsewhere, and no row is there twice."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, attached

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_rows_are_there_once(sqlite_address: LakeAddress, tmp_path: Path) -> None:
    folder = tmp_path / "marks"
    folder.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.lost_executor", sqlite_address.url, sqlite_address.data_path, str(folder)],
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert "WRITTEN" in done.stdout, done.stdout[-2000:] + done.stderr[-6000:]
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT count(*), count(DISTINCT k), count(DISTINCT rowid), sum(k) FROM t") == [
            (66_000, 66_000, 66_000, 2_177_967_000)
        ]
        assert duck.rows("SELECT count(*) FROM t WHERE owner = -1 AND k % 600 = 0") == [(110,)]
    lake = DuckLake.connect(sqlite_address.url)
    left = lake.delete_orphaned_files(older_than=timedelta(0), min_age=timedelta(0), dry_run=True)
    # What the killed executor left in the middle was swept when the write ended.
    assert left.files == (), str(left)
