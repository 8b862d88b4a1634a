"""The page on a Spark job, run by the command that it ends with: the package comes to driver and executors as a zip file."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ducklake_core import DuckLake
from tests.support.pages import DOCS, ROOT, blocks

pytestmark = pytest.mark.spark

PAGE = DOCS / "tutorials/spark-job.md"
# Read before the page's code, on the driver and by a task.
FROM_THE_ZIP = """
import ducklake_core
from pyspark.sql import SparkSession

def place(_):
    import ducklake_core
    return ducklake_core.__file__

places = SparkSession.builder.getOrCreate().sparkContext.parallelize([1], 1).map(place).collect()
assert all("ducklake_core.zip" in one for one in (ducklake_core.__file__, *places)), (ducklake_core.__file__, places)
"""


@pytest.mark.slow
def test_the_job_is_submitted(tmp_path: Path) -> None:
    shutil.make_archive(str(tmp_path / "ducklake_core"), "zip", ROOT, "ducklake_core")
    (tmp_path / "job.py").write_text(FROM_THE_ZIP + "\n".join(blocks(PAGE, "python")))
    ((_, *arguments),) = (shlex.split(line) for line in blocks(PAGE, "sh"))
    settings = [
        "--master", "local[2]", "--driver-memory", "1g", "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1",
    ]  # fmt: skip
    submit = [str(Path(sys.executable).parent / "spark-submit"), *settings, *arguments]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(submit, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert DuckLake.connect(f"sqlite:///{tmp_path}/lake.sqlite").table("flights").scan().count() == 1001
