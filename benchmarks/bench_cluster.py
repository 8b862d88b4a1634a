"""Write, upsert, delete, compact and read rows with executors in other processes: seconds, and memory of the driver.

Run with ``python -m benchmarks.bench_cluster``. ``BENCH_MASTERS`` lists masters by commas: ``local-cluster`` (four workers) and
``standalone`` (a Spark master and two workers on 127.0.0.1); workers have one core and 2 GB. ``BENCH_ROWS`` is the number of rows, of 8
columns; the driver processes a tenth of them first, as a warm-up. The catalog is in PostgreSQL, the files are on the local disk, and DuckDB
checks the rows at the end. Memory is the largest resident memory during a job, of the driver's Python and Java processes.
Promised: the driver's Python process grows by less than 50 MB from a tenth of the rows to all.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark

from benchmarks.bench_write import COLUMNS
from benchmarks.lakes import new_lake
from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, attached
from tests.support.postgres import start_server
from tests.support.servers import serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


ROWS = int(os.environ.get("BENCH_ROWS", "1000000"))
SIZES = (ROWS // 10, ROWS)
MASTERS = os.environ.get("BENCH_MASTERS", "local-cluster,standalone").split(",")
PROMISED_MB = 50
_WORKERS = {"local-cluster": 4, "standalone": 2}
_TASK_ROWS = 250_000
_SPARK = Path(pyspark.__file__).parent


@contextmanager
def master_of(kind: str, folder: Path) -> Iterator[str]:
    """Start a master and its workers, and yield the address for sessions.

    Args:
        kind: ``local-cluster``, which a session starts itself, or ``standalone``.
        folder: Directory for the files of the workers.
    """
    workers = _WORKERS[kind]
    if kind == "local-cluster":
        yield f"local-cluster[{workers},1,2048]"
        return
    environment = os.environ | {"SPARK_HOME": str(_SPARK), "SPARK_DAEMON_MEMORY": "512m", "SPARK_LOCAL_DIRS": str(folder)}

    def command(role: str, arguments: tuple[str, ...], port: int) -> list[str]:
        program = [str(_SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{role.lower()}.{role}"]
        return [*program, "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0", *arguments]

    with ExitStack() as stack:
        master = stack.enter_context(serving("Spark master", partial(command, "Master", ()), environment=environment))
        address = f"spark://127.0.0.1:{master.port}"
        for number in range(workers):
            arguments = ("--cores", "1", "--memory", "2g", "--work-dir", str(folder / f"worker-{number}"), address)
            stack.enter_context(serving(f"Spark worker {number}", partial(command, "Worker", arguments), environment=environment))
        yield address


@contextmanager
def session_on(master: str) -> Iterator[SparkSession]:
    """Start a session whose jobs wait for all workers of the master, and stop it at the end."""
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master(master)
        .appName("bench-cluster")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.cores", "1")
        .config("spark.executor.memory", "2g")
        .config("spark.executorEnv.PYTHONPATH", os.environ.get("PYTHONPATH", str(Path.cwd())))
        .config("spark.sql.shuffle.partitions", "8")
        .config("spark.scheduler.minRegisteredResourcesRatio", "1")
        .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "120s")
        .getOrCreate()
    )
    # Workers of local-cluster keep the files of an application in Spark's own directory.
    files = _SPARK / "work" / session.sparkContext.applicationId
    try:
        yield session
    finally:
        session.stop()
        shutil.rmtree(files, ignore_errors=True)
        with suppress(OSError):
            files.parent.rmdir()


def jobs(session: SparkSession, lake: DuckLake, name: str, rows: int) -> Mapping[str, Callable[[], object]]:
    """Return the jobs on a table by name, in their order.

    The upsert replaces every 200th row and adds as many rows with new keys; the delete takes each row whose key ends in 007.
    """
    frame = session.range(0, rows, 1, max(8, rows // _TASK_ROWS)).selectExpr(*COLUMNS)
    keys = session.range(rows // 100).selectExpr(f"if(id % 2 = 0, id * 100, {rows} + id) as id")
    changed = keys.selectExpr(*COLUMNS[:-1], "cast(-1 as decimal(12,2)) as amount")
    every_column = [f"max({column})" for column in frame.columns]

    def merge() -> None:
        result = lake.merge_adjacent_files(name, spark=session)
        assert result.files_merged > 1, result

    def rewrite() -> None:
        result = lake.rewrite_data_files(name, delete_threshold=0, spark=session)
        assert result.files_rewritten, result

    return {
        "write": lambda: lake.write(name, frame),
        "upsert 1 %": lambda: lake.table(name).upsert(changed, on="id"),
        "delete 0.1 %": lambda: lake.table(name).delete("id % 1000 = 7", spark=session),
        "merge_adjacent_files": merge,
        "rewrite_data_files": rewrite,
        "read": lambda: lake.table(name).to_spark(session).selectExpr("count(*)", *every_column).collect(),
    }


def drive(master: str, kind: str, url: str) -> None:
    """Run the jobs as the driver, on a table for each size, and print a line for each job and for the growth."""
    with session_on(master) as session, DuckLake.connect(url) as lake:
        context: Any = session.sparkContext
        processes = {"python_mb": os.getpid(), "java_mb": int(context._jvm.java.lang.ProcessHandle.current().pid())}
        few, many = (peaks(kind, jobs(session, lake, table_name(rows), rows), rows, processes) for rows in SIZES)
    growth = {name: many[name] - few[name] for name in processes}
    tell(kind, f"growth of the driver from {SIZES[0]:,} rows", SIZES[1], **growth, promised_python_mb=PROMISED_MB)


def peaks(kind: str, calls: Mapping[str, Callable[[], object]], rows: int, processes: Mapping[str, int]) -> dict[str, float]:
    """Run jobs, print their seconds and the peaks of processes, and return the largest peak of each process, in MB."""
    largest: dict[str, float] = dict.fromkeys(processes, 0)
    for call, run in calls.items():
        for process in processes.values():
            forget_peak(process)
        started = time.perf_counter()
        run()
        seconds = time.perf_counter() - started
        found = {name: peak_mb(process) for name, process in processes.items()}
        tell(kind, call, rows, seconds=seconds, **found)
        largest = {name: max(largest[name], found[name]) for name in processes}
    return largest


def forget_peak(process: int) -> None:
    """Start the measurement of the peak of a process again."""
    Path(f"/proc/{process}/clear_refs").write_text("5")


def peak_mb(process: int) -> float:
    """Return the most resident memory of a process since ``forget_peak``, in MB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return round(int(found[1]) / 1024, 1)


def check(address: LakeAddress, rows: int) -> None:
    """Compare a table that DuckDB reads from the lake with the rows that the jobs produce, column by column."""
    columns = (
        "count(*), sum(id), sum(category), count(measure), bit_xor(hash(name)), bit_xor(hash(code)), "
        "sum(epoch_us(moment)), sum(day - date '2013-01-01'), sum(amount)"
    )
    expected = f"""
        SELECT i AS id, i % 1000 AS category, 1 AS measure, 'name-' || i % 5000 AS name, sha1(i::VARCHAR)[:16] AS code,
            make_timestamptz(1600000000000000 + i * 1000000) AS moment, date '2013-01-01' + (i % 365)::INTEGER AS day,
            CASE WHEN i >= {rows} OR i % 200 = 0 THEN -1 ELSE i % 100000 END::DECIMAL(12, 2) AS amount
        FROM (FROM range({rows}) r(i) UNION ALL SELECT {rows} + i FROM range(1, {rows // 100}, 2) r(i)) WHERE i % 1000 <> 7"""
    with attached(address) as duck:
        (found,), (made,) = duck.rows(f"SELECT {columns} FROM {table_name(rows)}"), duck.rows(f"SELECT {columns} FROM ({expected})")
        assert found == made, (found, made)
        files = duck.rows(f"SELECT file_count, delete_file_count FROM ducklake_table_info('lake') WHERE table_name = '{table_name(rows)}'")
    print(f"DuckDB reads {found[0]:,} rows with the expected values; data files and delete files: {files}", flush=True)


def table_name(rows: int) -> str:
    """Return the name of the table for a size."""
    return f"rows_{rows}"


def measure(kind: str, address: LakeAddress, folder: Path) -> None:
    """Run the jobs on a master of their own, and check their tables."""
    new_lake(address).close()
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(folder)}
    with master_of(kind, folder) as master:
        subprocess.run([sys.executable, "-m", __spec__.name, master, kind, address.url], env=environment, check=True)
    for rows in SIZES:
        check(address, rows)


def tell(kind: str, call: str, rows: int, **figures: float) -> None:
    """Print a line for machines."""
    found = {name: round(value, 2) for name, value in figures.items()}
    print(json.dumps({"benchmark": "cluster", "backend": kind, "call": call, "size": rows, **found}), flush=True)


def run() -> None:
    """Measure each master on a lake of its own."""
    if ROWS % 10_000:
        raise SystemExit("BENCH_ROWS must be a multiple of 10,000")
    server = start_server()
    try:
        for kind in MASTERS:
            with tempfile.TemporaryDirectory(prefix="bench-cluster-") as folder:
                measure(kind, server.lake(Path(folder)), Path(folder))
    finally:
        server.stop()


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if len(sys.argv) > 1:
        drive(*sys.argv[1:])
    else:
        run()
