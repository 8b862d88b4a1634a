"""Rows over many interleaved partition values, in process: ``DuckLake.write`` against DuckDB's INSERT, and the most memory.

Run with ``python -m benchmarks.bench_partitions``. The rows come as a stream, so that the memory is the writer's own.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb
import pyarrow as pa
from rich.console import Console

from benchmarks.harness import Result, compare, report
from ducklake_core import DuckLake
from tests.support.oracle import attached, sqlite_lake

ROWS = int(os.environ.get("BENCH_ROWS", "1000000"))
VALUES = int(os.environ.get("BENCH_VALUES", "1000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
MANY_ROWS = int(os.environ.get("BENCH_MANY_ROWS", "10000000"))
MANY_VALUES = int(os.environ.get("BENCH_MANY_VALUES", "10000"))


def columns(values: int) -> str:
    """Eight mixed columns; ``p``, the key, changes with every row."""
    return (
        f"i AS id, (i * 7919 % {values})::INTEGER AS p, 'name-' || (i % 5000) AS name, (i % 1000)::DOUBLE * 1.7 AS measure, "
        "TIMESTAMP '2020-01-01' + to_seconds(i) AS moment, DATE '2013-01-01' + (i % 365)::INTEGER AS day, "
        "(i % 100000)::DECIMAL(12,2) AS amount, md5(i::VARCHAR) AS code"
    )


def stream(rows: int, values: int) -> pa.RecordBatchReader:
    """The rows, computed while they are written."""
    return duckdb.connect().execute(f"SELECT {columns(values)} FROM range({rows}) r(i)").to_arrow_reader(65_536)


def in_duckdb(folder: Path) -> int:
    """Write the rows with DuckDB; the number of files."""
    folder.mkdir()
    with attached(sqlite_lake(folder), "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(f"CREATE TABLE t AS SELECT {columns(VALUES)} FROM range(0) r(i)", "ALTER TABLE t SET PARTITIONED BY (p)")
        duck.run(f"INSERT INTO t SELECT {columns(VALUES)} FROM range({ROWS}) r(i)")
        return int(str(duck.value("SELECT count(*) FROM ducklake_list_files('lake', 't')")))


def in_core(folder: Path, rows: int = ROWS, values: int = VALUES) -> int:
    """Write the rows with this library; the number of files."""
    folder.mkdir()
    lake = DuckLake.create(f"sqlite:///{folder}/catalog.sqlite", data_path=f"{folder}/files/")
    data = stream(rows, values)
    lake.create_table("t", data.schema, partition_by=["p"])
    return lake.write("t", data).files_added


def most_memory(rows: int, values: int) -> tuple[int, float]:
    """Files of a write in a process of its own, and the most MB that the process held; the rows are computed there as well."""
    program = (
        "import pathlib, sys, tempfile\nfrom benchmarks.bench_partitions import in_core\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    files = in_core(pathlib.Path(folder) / 'lake', int(sys.argv[1]), int(sys.argv[2]))\n"
        "status = pathlib.Path('/proc/self/status').read_text()\n"
        "print(files, status.split('VmHWM:')[1].split()[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(rows), str(values)], capture_output=True, text=True, check=True)
    # DuckDB may have shown its progress before.
    files, kilobytes = done.stdout.split()[-2:]
    return int(files), int(kilobytes) / 1000


def run() -> Result:
    """Alternate the two, then the large write once."""
    with tempfile.TemporaryDirectory() as folder:
        numbers, files = itertools.count(), {"DuckLake.write": 0, "DuckDB's INSERT": 0}

        def core() -> None:
            files["DuckLake.write"] = in_core(Path(folder) / str(next(numbers)))

        def duckdb() -> None:
            files["DuckDB's INSERT"] = in_duckdb(Path(folder) / str(next(numbers)))

        result = compare(
            f"{ROWS:,} rows over {VALUES:,} values",
            {"DuckLake.write": core, "DuckDB's INSERT": duckdb},
            baseline="DuckDB's INSERT",
            promised_ratio=1.0,
            rounds=ROUNDS,
            warm_up=0 if ROUNDS == 1 else 1,
        )
    print(files)
    if MANY_ROWS:
        made, megabytes = most_memory(MANY_ROWS, MANY_VALUES)
        Console().print(f"{MANY_ROWS:,} rows over {MANY_VALUES:,} values: {made:,} files, most memory {megabytes:,.0f} MB")
    return result


if __name__ == "__main__":
    report(run())
