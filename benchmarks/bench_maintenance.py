"""Maintenance operations compared with DuckDB's, on copies of lakes that DuckDB built, catalog in SQLite.

Run with ``python -m benchmarks.bench_maintenance``, or with names of rows after it: ``merge``, ``tables``, ``cleanup``, ``expire``,
``flush``, ``spark``, ``memory``. On Spark the rival is Spark itself, which reads the same files and writes one. Every run has a copy of
the lake to itself, which is made and opened before the clock starts. ``BENCH_LAKES`` is a folder in which the lakes that DuckDB built stay
for the next time; ``BENCH_CLOCK=processor`` counts processor time.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

from benchmarks.harness import Result, compare, report
from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, Oracle, attached, sqlite_lake

FILES = int(os.environ.get("BENCH_FILES", "1000"))
FILE_ROWS = int(os.environ.get("BENCH_FILE_ROWS", "10000"))
TABLES = int(os.environ.get("BENCH_TABLES", "200"))
SNAPSHOTS = int(os.environ.get("BENCH_SNAPSHOTS", "10000"))
INLINED = int(os.environ.get("BENCH_INLINED", "100000"))
ROWS = int(os.environ.get("BENCH_ROWS", "10000000"))
ORPHANS = int(os.environ.get("BENCH_ORPHANS", "100000"))
LAKES = os.environ.get("BENCH_LAKES", "")
SPARK_ROWS = int(os.environ.get("BENCH_SPARK_ROWS", "5000000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
NOW = timedelta(0)
_SMALL = 5  # files of a small table
_COLUMNS = "i AS a, i / 7 AS b, 'value ' || i AS c"


def opened(stack: ExitStack, address: LakeAddress) -> tuple[DuckLake, Oracle]:
    """A lake in both engines, with connections that have been used."""
    lake = stack.enter_context(DuckLake.connect(address.url))
    lake.snapshots()
    duck = stack.enter_context(attached(address))
    duck.rows("FROM ducklake_table_info('lake')")
    return lake, duck


class Twins:
    """Copies of a lake, one for each run."""

    def __init__(self, folder: Path, build: Callable[[Oracle], None], options: str = "DATA_INLINING_ROW_LIMIT 0") -> None:
        self._folder = folder
        self._original = Path(LAKES) / folder.name if LAKES else folder / "original"
        if not self._original.exists():
            self._original.mkdir(parents=True)
            with attached(sqlite_lake(self._original), options) as duck:
                build(duck)
        self._stack = ExitStack()

    def renew(self) -> None:
        """Give the next run its copy."""
        self._stack.close()
        copy = self._folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self._original, copy)
        address = sqlite_lake(copy)
        with sqlite3.connect(copy / "catalog.sqlite") as catalog:
            catalog.execute("UPDATE ducklake_metadata SET value = ? WHERE key = 'data_path'", (address.data_path,))
        catalog.close()
        os.sync()
        self.address = address
        self.lake, self.duck = opened(self._stack, address)

    def compare(self, name: str, core: Callable[[DuckLake], object], duckdb: str | Callable[[Oracle], object], promised: float) -> Result:
        """Compare an operation with a statement of DuckDB, or with other work on the same lake."""
        contenders = {
            "ducklake_core": lambda: core(self.lake),
            "DuckDB": lambda: self.duck.run(duckdb) if isinstance(duckdb, str) else duckdb(self.duck),
        }
        try:
            return compare(name, contenders, baseline="DuckDB", promised_ratio=promised, rounds=ROUNDS, before_each=self.renew)
        finally:
            self.close()

    def close(self) -> None:
        """Close the copy."""
        self._stack.close()


def small_files(files: int, rows: int) -> Callable[[Oracle], None]:
    """A table of three columns, each file with a snapshot of its own."""

    def build(duck: Oracle) -> None:
        duck.run(f"CREATE TABLE t AS SELECT {_COLUMNS} FROM range(0) r(i)")
        for number in range(files):
            duck.connection.execute(f"INSERT INTO t SELECT {_COLUMNS} FROM range({number * rows}, {(number + 1) * rows}) r(i)")

    return build


def many_tables(duck: Oracle) -> None:
    """Tables of a few small files each."""
    for file in range(_SMALL):
        statement = "INSERT INTO {}" if file else "CREATE TABLE {} AS"
        duck.connection.execute("BEGIN")
        for number in range(TABLES):
            duck.connection.execute(f"{statement.format(f't{number}')} SELECT {_COLUMNS} FROM range(100) r(i)")
        duck.connection.execute("COMMIT")


def unneeded_files(duck: Oracle) -> None:
    """Files that a merge has scheduled for deletion."""
    small_files(FILES, 10)(duck)
    duck.run("CALL ducklake_merge_adjacent_files('lake')")
    assert duck.value("SELECT count(*) FROM ducklake_cleanup_old_files('lake', cleanup_all => true, dry_run => true)") == FILES


def many_snapshots(duck: Oracle) -> None:
    """Appends of one row; every tenth goes to a file, and every hundredth takes the place of all rows."""
    duck.run("CREATE TABLE t (a BIGINT)", "CREATE TABLE inlined (a BIGINT)", "CALL lake.set_option('data_inlining_row_limit', 10)")
    duck.run("CALL lake.set_option('data_inlining_row_limit', 0, table_name => 't')")
    for number in range(SNAPSHOTS):
        if number % 100 == 99:
            duck.connection.execute("DELETE FROM t")
        else:
            duck.connection.execute(f"INSERT INTO {'inlined' if number % 10 else 't'} VALUES ({number})")


def inlined_rows(duck: Oracle, count: int = INLINED) -> None:
    """Rows in the catalog, a thousand of each snapshot: DuckDB takes minutes to send very many at once."""
    duck.run(f"CREATE TABLE t AS SELECT {_COLUMNS} FROM range(0) r(i)")
    for start in range(0, count, 1000):
        duck.connection.execute(f"INSERT INTO t SELECT {_COLUMNS} FROM range({start}, {start + 1000}) r(i)")


def merge(folder: Path) -> list[Result]:
    """Many files of one table."""
    name = f"merge {FILES:,} files of {FILE_ROWS:,} rows"
    return [Twins(folder, small_files(FILES, FILE_ROWS)).compare(name, _merge, "CALL ducklake_merge_adjacent_files('lake')", 1.2)]


def _merge(lake: DuckLake) -> None:
    result = lake.merge_adjacent_files()
    assert result.files_merged, result


def tables(folder: Path) -> list[Result]:
    """Few files of many tables."""
    name = f"merge {_SMALL} files of each of {TABLES} tables"
    return [Twins(folder, many_tables).compare(name, _merge, "CALL ducklake_merge_adjacent_files('lake')", 1.0)]


def cleanup(folder: Path) -> list[Result]:
    """Files that no snapshot needs."""

    def core(lake: DuckLake) -> None:
        assert len(lake.cleanup_old_files(cleanup_all=True, min_age=NOW).files) == FILES

    statement = "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)"
    return [Twins(folder, unneeded_files).compare(f"delete {FILES:,} unneeded files", core, statement, 1.0)]


def expire(folder: Path) -> list[Result]:
    """All snapshots but the newest."""

    def core(lake: DuckLake) -> None:
        assert len(lake.expire_snapshots(older_than=NOW, min_age=NOW).snapshots) >= SNAPSHOTS

    statement = "CALL ducklake_expire_snapshots('lake', older_than => now())"
    return [Twins(folder, many_snapshots).compare(f"expire {SNAPSHOTS:,} snapshots", core, statement, 1.0)]


def flush(folder: Path) -> list[Result]:
    """Rows of many snapshots that are in the catalog, also read."""

    def core(lake: DuckLake) -> None:
        assert lake.flush_inlined_data().rows_flushed == INLINED

    def read(lake: DuckLake) -> None:
        assert lake.table("t").to_arrow().num_rows == INLINED

    twins = Twins(folder, inlined_rows, "DATA_INLINING_ROW_LIMIT 1000")
    return [
        twins.compare(f"read {INLINED:,} inlined rows", read, lambda duck: duck.arrow("FROM t"), 3.0),
        twins.compare(f"flush {INLINED:,} inlined rows", core, "CALL ducklake_flush_inlined_data('lake')", 1.0),
    ]


def spark(folder: Path) -> list[Result]:
    """Few small files, and many rows, merged by executors."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from tests.support.spark import local_session

    session = local_session()
    results = []
    for files, rows in ((20, 1000), (200, SPARK_ROWS // 200)):
        place = folder / f"spark-{files}"
        place.mkdir()
        twins = Twins(place, small_files(files, rows))

        def core(twins: Twins = twins) -> None:
            assert twins.lake.merge_adjacent_files(spark=session).files_merged

        def plain(twins: Twins = twins, place: Path = place) -> None:
            read = session.read.parquet(f"{twins.lake.info.data_path}main/t")
            read.coalesce(1).write.mode("overwrite").parquet(str(place / "plain"))

        contenders = {"ducklake_core": core, "Spark reads and writes": plain}
        name = f"merge {files} files of {rows:,} rows on Spark"
        results.append(
            compare(name, contenders, baseline="Spark reads and writes", promised_ratio=1, rounds=ROUNDS, before_each=twins.renew)
        )
        twins.close()
    session.stop()
    return results


def memory(folder: Path) -> list[Result]:
    """Print how much the resident memory of a separate process grows in operations on very many rows or files."""
    files = 20
    with attached(sqlite_lake(folder), "DATA_INLINING_ROW_LIMIT 0") as duck:
        small_files(files, ROWS // files)(duck)
    merged = "assert lake.merge_adjacent_files(max_file_size=1 << 40).files_merged"
    _report(f"memory while {ROWS:,} rows of {files} files are merged", grown(folder, merged), 1000)
    with attached(sqlite_lake(folder)) as duck:
        duck.run("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    for number in range(ORPHANS):
        (folder / "files" / "main" / "t" / f"ducklake-01900000-0000-7000-8000-{number:012x}.parquet").touch()
    listed = "assert len(lake.delete_orphaned_files(cleanup_all=True, min_age='0 seconds', dry_run=True).files) == " + str(ORPHANS)
    _report(f"memory while {ORPHANS:,} orphans are listed", grown(folder, listed), 200)
    place = folder / "inlined"
    place.mkdir()
    with attached(sqlite_lake(place), "DATA_INLINING_ROW_LIMIT 1000") as duck:
        inlined_rows(duck, ROWS // 10)
    flushed = f"assert lake.flush_inlined_data().rows_flushed == {ROWS // 10}"
    _report(f"memory while {ROWS // 10:,} inlined rows are flushed", grown(place, flushed))
    return []


def _report(what: str, megabytes: int, promised: int | None = None) -> None:
    print(json.dumps({"benchmark": what, "MB more": megabytes} | ({} if promised is None else {"promised": promised})), flush=True)


def grown(folder: Path, statement: str) -> int:
    """Return the peak memory, in MB, that a statement adds to a process that has opened the lake and imported the operations."""
    # Not ru_maxrss, which begins with what the process held that started this one.
    program = (
        "import re, pathlib, ducklake_core.maintenance.checkpoint, pyarrow.parquet\n"
        "def most():\n"
        "    return int(re.search(r'VmHWM:\\s+(\\d+)', pathlib.Path('/proc/self/status').read_text())[1])\n"
        f"lake = ducklake_core.DuckLake.connect({sqlite_lake(folder).url!r})\n"
        "lake.snapshots()\n"
        "before = most()\n"
        f"{statement}\n"
        "print((most() - before) // 1024)\n"
    )
    return int(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)


BENCHMARKS = {"merge": merge, "tables": tables, "cleanup": cleanup, "expire": expire, "flush": flush, "spark": spark, "memory": memory}


def run(names: Sequence[str] = ()) -> None:
    """Print the rows that are asked for, or all of them, as they are measured."""
    for name in names or BENCHMARKS:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / name
            place.mkdir()
            report(*BENCHMARKS[name](place))


if __name__ == "__main__":
    run(sys.argv[1:])
