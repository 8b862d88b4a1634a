"""A program of its own in which an executor dies while it writes; run by test_lost_executor.

Usage: ``python -m tests.faults.lost_executor catalog-url data-path folder storage-options-as-json``
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ducklake_core.storage.filesystems import Storage, StorageOptions


@dataclass(frozen=True)
class KillsItsExecutor(Storage):
    """The first process that begins a second file of some kind kills the JVM that it works for, in the middle of the file."""

    folder: str = ""
    suffix: str = ".parquet"

    def open_output(self, path: str) -> pa.NativeFile:
        mine = Path(self.folder, f"{os.getpid()}{self.suffix}")
        done = Path(self.folder, f"killed{self.suffix}")
        if path.endswith(self.suffix) and mine.exists() and not done.exists():
            done.touch()
            sink = super().open_output(path)
            # More than one part of an upload.
            sink.write(b"PAR1 and nothing more" + bytes(12 * 2**20))
            daemon = os.getppid()
            executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(executor, signal.SIGKILL)
            os._exit(1)
        mine.touch()
        return super().open_output(path)


def main(url: str, data_path: str, folder: str, storage_options: str) -> None:
    from pyspark.sql import SparkSession

    from ducklake_core import DuckLake

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.executor.memory", "512m").config("spark.executorEnv.PYTHONPATH", os.getcwd())
    session = builder.config("spark.sql.shuffle.partitions", "6").config("spark.driver.memory", "1g").getOrCreate()

    options = StorageOptions(by_protocol=json.loads(storage_options))
    lake = DuckLake.create(url, data_path=data_path, storage_options=options.by_protocol)
    lake.set_option("data_inlining_row_limit", 0)
    lake._storage = KillsItsExecutor(options=options, folder=folder)
    frame = session.range(0, 60_000, 1, 8).selectExpr("id as k", "cast(id % 7 as int) as owner")
    written = lake.write("t", frame)
    assert Path(folder, "killed.parquet").exists()
    assert written.rows_added == 60_000
    for start in range(60_000, 66_000, 1000):
        lake.write("t", session.range(start, start + 1000, 1, 1).selectExpr("id as k", "cast(id % 7 as int) as owner"))
    lake._storage = KillsItsExecutor(options=options, folder=folder, suffix="-delete.parquet")
    lake.write("t", session.range(0, 66_000, 600).selectExpr("id as k", "cast(-1 as int) as owner"), mode="upsert", on=["k"])
    assert Path(folder, "killed-delete.parquet").exists()
    session.stop()
    print("WRITTEN")


if __name__ == "__main__":
    main(*sys.argv[1:])
