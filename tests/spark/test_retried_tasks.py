"""Delete files of a task that failed after writing them, and was tried again: in a session of its own, as retries need one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.spark import run_program

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_delete_files_of_failed_attempts_are_swept(tmp_path: Path) -> None:
    run_program("tests.spark.retried_tasks", str(tmp_path), prints="RETRIED AND CHECKED")
