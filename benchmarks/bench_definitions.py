"""Measure the load of a code location with an asset, checks and sensors for each table of a lake in PostgreSQL.

Run with ``python -m benchmarks.bench_definitions``. ``BENCH_TABLES`` is the number of tables, 500 by default.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa

from ducklake_core import DuckLake
from tests.support.postgres import start_server

TABLES = int(os.environ.get("BENCH_TABLES", "500"))
_PROJECT = """
import os
import dagster as dg
from ducklake_dagster import (
    ColumnBounds, DuckLakeResource, Freshness, LocalStorage, RowCount, build_check_sensor, build_commit_sensor, build_lake_checks,
    load_table_specs,
)

lake = DuckLakeResource(catalog=os.environ["LAKE"], storage=LocalStorage())
assets = load_table_specs(lake)
checks = [RowCount(minimum=1), ColumnBounds(bounds={"n": (0, 10)}), Freshness(max_age="1 day")]
defs = dg.Definitions(
    assets=assets,
    asset_checks=build_lake_checks(assets=assets, checks=checks),
    sensors=[build_commit_sensor(assets=assets), build_check_sensor(assets=assets, checks=checks)],
    resources={"lake": lake},
)
"""
# The code server loads the location and sends a snapshot of it; the web server and the daemon read this snapshot; a run process builds
# the definitions again.
_MEASURE = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import dagster as dg
import ducklake_dagster
from dagster._core.code_pointer import FileCodePointer
from dagster._core.definitions.reconstruct import initialize_repository_def_from_pointer, reconstruct_repository_def_from_pointer
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster_shared.serdes import deserialize_value, serialize_value
from sqlalchemy import Engine, event

statements = []
# Dagster's own instance is a SQLite database.
event.listen(Engine, "before_cursor_execute", lambda *found: statements.extend([found[2]] if found[0].dialect.name == "postgresql" else []))
pointer = FileCodePointer(sys.argv[1], "defs")
results = []

def measure(what, call):
    statements.clear()
    started = time.process_time()
    found = call()
    print(json.dumps({"benchmark": "definitions", "call": what, "cpu_seconds": round(time.process_time() - started, 2),
                      "statements": len(statements)}))
    return found

loaded = measure("code server", lambda: initialize_repository_def_from_pointer(pointer))
text = measure("snapshot of the code server", lambda: serialize_value(RepositorySnap.from_def(loaded)))
measure("web server and daemon", lambda: deserialize_value(text, RepositorySnap))
del sys.modules["project"]
measure("run process", lambda: reconstruct_repository_def_from_pointer(pointer, loaded.repository_load_data))
"""


def main() -> None:
    """Create a lake of many tables, and measure the processes of a deployment in one process of its own."""
    server = start_server()
    with tempfile.TemporaryDirectory() as home:
        url = server.lake(Path(home)).url
        columns = pa.schema([("day", pa.date32()), ("n", pa.int64()), *((f"c{number}", pa.string()) for number in range(10))])
        with DuckLake.create(url, data_path=f"{home}/files/").transaction() as tx:
            for number in range(TABLES):
                tx.create_table(f"t{number}", columns, partition_by=["day"])
        project = Path(home) / "project.py"
        project.write_text(_PROJECT)
        environment = {**os.environ, "LAKE": url}
        done = subprocess.run([sys.executable, "-c", _MEASURE, str(project)], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        for line in done.stdout.splitlines():
            print(json.dumps({**json.loads(line), "tables": TABLES}))


if __name__ == "__main__":
    main()
