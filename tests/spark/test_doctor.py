"""``ducklake doctor --spark``: an executor is checked like this process, and each failing probe gives advice."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ducklake_core.cli import doctor
from ducklake_core.cli.app import app
from ducklake_core.engines.spark.probe import ExecutorProbe
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress

NAMES = ["spark session", "executor", "storage, from an executor", "storage, writing from an executor"]


def probes(address: LakeAddress, code: int) -> dict[str, dict[str, str]]:
    result = CliRunner().invoke(app, ["doctor", "--spark", "--json"], env={"DUCKLAKE_URL": address.url})
    assert result.exit_code == code, result.output
    return {probe["name"]: probe for probe in json.loads(result.stdout)}


def test_executors_are_checked(sqlite_address: LakeAddress, spark: SparkSession) -> None:
    lake = lake_of_files(sqlite_address)
    assert {name: probes(sqlite_address, 0)[name]["outcome"] for name in NAMES} == dict.fromkeys(NAMES, "ok")
    lake.write("t", pa.table({"n": range(30)}))
    found = probes(sqlite_address, 0)
    assert {name: found[name]["outcome"] for name in NAMES} == dict.fromkeys(NAMES, "ok")
    assert "the first file exists" in found["storage, from an executor"]["message"]
    assert not list(Path(sqlite_address.data_path).rglob("*.tmp"))
    # The session was there before, and still is.
    assert spark.range(3).count() == 3
    Path(lake.table("t").list_files()[0].path).unlink()
    lost = probes(sqlite_address, 1)["storage, from an executor"]
    assert lost["outcome"] == "failed"
    assert "there is no file" in lost["message"]
    assert "credentials" in lost["advice"]
    lake.close()


def test_executors_with_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "installed", lambda names: {"pyarrow": "23.0.1", "s3fs": "2026.1"})
    monkeypatch.setattr(doctor.platform, "python_version", lambda: "3.12.4")
    assert doctor._same_packages(ExecutorProbe(python="3.12.9", packages={"pyarrow": "23.0.1", "s3fs": "2026.1"})).outcome == "ok"
    probe = doctor._same_packages(ExecutorProbe(python="3.11.2", packages={"pyarrow": "20.0.0"}))
    assert probe.outcome == "warning"
    assert probe.message == (
        "Python 3.11 on the executor, 3.12 in this process; pyarrow 20.0.0 on the executor, 23.0.1 in this process; "
        "s3fs is missing on the executor, 2026.1 in this process"
    )
    assert probe.advice is not None


def test_java_is_that_of_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    probe = doctor.java()
    assert (probe.outcome, "which has no bin/java" in probe.message) == ("warning", True)
    java.parent.mkdir()
    for version, outcome in (("1.8.0_392", "warning"), ("17.0.2", "ok"), ("25", "ok")):
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        java.chmod(0o755)
        assert doctor.java().outcome == outcome
