"""The session that Spark takes for the active one, and a folder of the test's own for notes of writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession


@pytest.fixture
def spark(spark: SparkSession) -> SparkSession:
    """The session of this test run, made the active one: a writer looks there for data sources, and other tests open sessions."""
    module = spark.sparkContext._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
    module.setActiveSession(spark._jsparkSession)
    return spark


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The driver's directory for temporary files."""
    folder = tmp_path / "notes"
    folder.mkdir()
    monkeypatch.setattr("ducklake_core.spark_source.writing._DIRECTORY", str(folder))
    return folder


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds that an abort waits for tasks that Spark has not ended yet: fewer than in earnest, as here there are none."""
    monkeypatch.setattr("ducklake_core.spark_source.writing.UNSEEN_WAIT", 0.01)
    return 0.01
