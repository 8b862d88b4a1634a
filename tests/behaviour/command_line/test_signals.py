"""A command that is interrupted, or ended by an orchestrator, reports it by its exit code and leaves no file behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress

_WAITS = """
import sys, time
from ducklake_core.catalog.database.connections import Database
from ducklake_core.cli import main

is_waiting = sys.argv.pop()

def commit(*_):
    open(is_waiting, "w").close()
    time.sleep(60)

Database.commit = commit
main()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_merge_that_is_ended(sqlite_address: LakeAddress, tmp_path: Path, number: signal.Signals, code: int) -> None:
    with DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path) as lake:
        for _ in range(3):
            lake.write("t", pa.table({"n": range(100)}), inline=False)
        files, last = set(Path(sqlite_address.data_path).rglob("*.parquet")), lake.snapshot().id
        is_waiting = tmp_path / "waiting"
        command = [sys.executable, "-c", _WAITS, "merge", "t", str(is_waiting)]
        environment = {**os.environ, "DUCKLAKE_URL": sqlite_address.url}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            deadline = time.monotonic() + 60
            while not is_waiting.exists():
                assert running.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert len(set(Path(sqlite_address.data_path).rglob("*.parquet")) - files) == 1
            running.send_signal(number)
            out, errors = running.communicate(timeout=60)
        assert (running.returncode, out, errors) == (code, "", "")
        assert set(Path(sqlite_address.data_path).rglob("*.parquet")) == files
        assert lake.snapshot().id == last
