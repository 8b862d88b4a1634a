"""A Spark Connect server of its own, for tests whose sessions are Connect: one server serves many client processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark

ROOT = Path(__file__).parents[2]
_SECONDS_TO_START = 120


@contextmanager
def connect_server(log: Path) -> Iterator[str]:
    """Start a server with two local cores; gives its ``sc://`` address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
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
    with log.open("wb") as output:
        server = subprocess.Popen([*command, "spark-internal"], env=_environment(), stdout=output, stderr=subprocess.STDOUT)
        try:
            _wait_for(server, port, log)
            yield f"sc://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(30)


def run_client(script: str, *arguments: str) -> Any:
    """Run Python text in a process of its own; gives what it prints, as JSON, after the word ANSWERS."""
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=_environment(), capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("ANSWERS ")).removeprefix("ANSWERS "))


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
    return {**kept, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}


def _wait_for(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + _SECONDS_TO_START
    while time.monotonic() < until and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError(f"the Connect server did not start: {log.read_text(errors='replace')[-4000:]}")
