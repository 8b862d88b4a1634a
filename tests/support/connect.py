"""A Spark Connect server of its own, for tests whose sessions are Connect: one server serves many client processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark

from tests.support.servers import serving

ROOT = Path(__file__).parents[2]


@contextmanager
def connect_server() -> Iterator[str]:
    """Start a server with two local cores; gives its ``sc://`` address."""
    with serving("Spark Connect", _command, environment=_environment()) as server:
        yield f"sc://127.0.0.1:{server.port}"


def _command(port: int) -> list[str]:
    settings = {
        "spark.connect.grpc.binding.port": port,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": 2,
    }
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    return [*command, "spark-internal"]


def run_client(script: str, *arguments: str) -> Any:
    """Run Python code in a process of its own, and return the JSON that it prints after the word ANSWERS."""
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=_environment(), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("ANSWERS ")).removeprefix("ANSWERS "))


def run_tests(file: str, chosen: str, remote: str) -> None:
    """Run the tests of a file whose names contain a string, slow ones too, in a process with sessions of a Connect server."""
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-q", "-m", "slow or not slow", "-k", chosen, file]
    environment = {**os.environ, "SPARK_REMOTE": remote}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:]


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
    return {**kept, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
