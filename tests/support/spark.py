"""The Spark session that tests share."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession


def local_session(memory: str = "1g") -> SparkSession:
    """A classic session on two local cores, quiet, in UTC."""
    # Workers have to find the packages of this interpreter, not those of the first python3 on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return (
        SparkSession.builder.master("local[2]")
        .appName("ducklake-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", memory)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
