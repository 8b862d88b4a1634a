"""The first write of a Spark session: ``DuckLake.write`` into a new lake, its making included, against Spark's own Parquet writer.

Run with ``python -m benchmarks.bench_first_write``. Every measurement is a process of its own, in which a session was made
and has run nothing; ``DuckLake.write, Spark warm`` comes after Spark has written the same rows once, and so shows what is not
Spark's own beginning.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from benchmarks.harness import Result, report

ROWS = int(os.environ.get("BENCH_ROWS", "5000000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
CORE, CORE_WARM, SPARKS = "DuckLake.write", "DuckLake.write, Spark warm", "df.write.parquet"


def first(contender: str) -> float:
    """Seconds of the first write of a new session in this process."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from benchmarks.bench_write import frame
    from ducklake_core import DuckLake
    from tests.support.spark import local_session

    session = local_session()
    with tempfile.TemporaryDirectory() as folder:
        if contender == CORE_WARM:
            frame(session, ROWS).write.parquet(f"{folder}/warm")
        started = time.perf_counter()
        if contender == SPARKS:
            frame(session, ROWS).write.parquet(f"{folder}/spark")
        else:
            lake = DuckLake.create(f"sqlite:///{folder}/catalog.sqlite", data_path=f"{folder}/files/")
            assert lake.write("t", frame(session, ROWS)).rows_added == ROWS
        seconds = time.perf_counter() - started
        session.stop()
    return seconds


def run() -> Result:
    """Alternate processes."""
    seconds: dict[str, list[float]] = {CORE: [], CORE_WARM: [], SPARKS: []}
    for _ in range(ROUNDS):
        for contender, found in seconds.items():
            command = [sys.executable, "-m", "benchmarks.bench_first_write", contender]
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found.append(float(printed.split()[-1]))
    return Result(f"first write, {ROWS:,} rows", SPARKS, {name: tuple(found) for name, found in seconds.items()}, 1.2)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(first(sys.argv[1]))
    else:
        report(run())
