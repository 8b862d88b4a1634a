"""Measure limits: time and memory of the driver for each file.

Run with ``python -m benchmarks.bench_far plans`` (in process) or ``files`` (on Spark). ``BENCH_FILES`` is a list of sizes, by commas.
Every measurement is a process of its own, which prints a line of JSON. The files are one file of 1,000 rows under many names.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from benchmarks.harness import now
from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, attached, sqlite_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = [int(count) for count in os.environ.get("BENCH_FILES", "1000,10000,100000").split(",")]
FILE_ROWS = 1000
_LINKS = 10_000
"""Names that one file of the disk is given: file systems have a limit."""


def make(address: LakeAddress, count: int) -> None:
    """A table of many files, each with a name and rows of its own in the catalog."""
    with attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(
            f"CREATE TABLE t AS SELECT n AS id, n % 1000 AS category, n / 7 AS measure, 'name-' || n AS name FROM range({FILE_ROWS}) r(n)"
        )
    (first,) = Path(address.data_path).rglob("*.parquet")
    numbers = f"(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {count - 1}) SELECT n FROM s) s"
    columns = {
        "data_file": "1000 + s.n, o.table_id, o.begin_snapshot, NULL, NULL, replace(o.path, '.parquet', printf('%08d.parquet', s.n)), "
        "o.path_is_relative, o.file_format, o.record_count, o.file_size_bytes, o.footer_size, s.n * 1000, NULL, NULL, NULL, NULL",
        "file_column_stats": "1000 + s.n, o.table_id, o.column_id, o.column_size_bytes, o.value_count, o.null_count, o.min_value, "
        "o.max_value, o.contains_nan, o.extra_stats",
    }
    engine = sa.create_engine(address.url)
    with engine.begin() as connection:
        for name, copied in columns.items():
            connection.exec_driver_sql(f"INSERT INTO ducklake_{name} SELECT {copied} FROM ducklake_{name} o, {numbers}")
        connection.exec_driver_sql(f"UPDATE ducklake_snapshot SET next_file_id = {1001 + count}")
    engine.dispose()
    content = first.read_bytes()
    for number in range(1, count):
        if number % _LINKS == 1:
            source = first.with_name(first.name.replace(".parquet", f"{number:08d}.parquet"))
            source.write_bytes(content)
        else:
            os.link(source, first.with_name(first.name.replace(".parquet", f"{number:08d}.parquet")))


def most_memory(process: int | str = "self") -> int:
    """The most bytes that a process ever held."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def plan_only(url: str) -> dict[str, object]:
    """Plan in this process: seconds, bytes that the plan holds and that planning held at most, and bytes of a task for executors."""
    table = DuckLake.connect(url).table("t")
    table.scan(where="id < 0").plan()
    seconds, plan = timed(lambda: table.scan().plan().plan)
    count = len(plan.tasks)
    shipped = sum(len(pickle.dumps(task, pickle.HIGHEST_PROTOCOL)) for task in plan.tasks[:1000]) / min(1000, count)
    del plan
    tracemalloc.start()
    again = table.scan().plan()
    held, most = tracemalloc.get_traced_memory()
    found = {"files": len(again.plan.tasks), "plan": seconds, "microseconds a file": seconds / count * 1e6}
    return {**found, "bytes a file": held / count, "at most": most / count, "task bytes": shipped}


def on_spark(url: str) -> dict[str, object]:
    """Make the frame, and count it by Spark's reader."""
    from tests.support.spark import local_session

    session = local_session()
    table = DuckLake.connect(url).table("t")
    table.scan(where="id < 0").to_spark(session).count()
    before, heap = most_memory(), java_heap(session)
    made, frame = timed(lambda: table.to_spark(session))
    held = java_heap(session) - heap
    counted, rows = timed(frame.count)
    found = {"frame": made, "count": counted, "rows": rows, "python": most_memory() - before, "java": held}
    session.stop()
    return found


def java_heap(session: SparkSession) -> int:
    """Bytes of live objects in the driver's Java process."""
    java: Any = session.sparkContext._jvm
    java.java.lang.System.gc()
    runtime = java.java.lang.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory())


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds by the clock of the harness (``BENCH_CLOCK``), and the result."""
    began = now()
    found = run()
    return round(now() - began, 4), found


def child(*arguments: str) -> None:
    """Run a measurement in a process of its own, which prints what it finds."""
    subprocess.run([sys.executable, "-m", __spec__.name, *arguments], check=True)


def run(what: str) -> None:
    """All sizes of one kind."""
    for count in FILES:
        with tempfile.TemporaryDirectory() as folder:
            address = sqlite_lake(Path(folder))
            make(address, count)
            child("plan" if what == "plans" else "spark", address.url, str(count))


def main(what: str, *arguments: str) -> None:
    """Measure, or run the children that do."""
    match what, arguments:
        case "plan", (url, _):
            tell(what, arguments[1:], plan_only(url))
        case "spark", (url, _):
            tell(what, arguments[1:], on_spark(url))
        case _:
            run(what)


def tell(what: str, size: tuple[str, ...], found: dict[str, object]) -> None:
    """A line for one measurement."""
    print(json.dumps({"benchmark": f"far {what}", "size": [int(one) for one in size], **found}), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if len(sys.argv) > 1:
        main(*sys.argv[1:])
    else:
        for kind in ("plans", "files"):
            run(kind)
