"""Delete files of a task that failed after writing them, and was tried again: in a session of its own, as retries need one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_delete_files_of_failed_attempts_are_swept(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.retried_tasks", str(tmp_path)],
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert "RETRIED AND CHECKED" in done.stdout, done.stdout[-2000:] + done.stderr[-6000:]
