"""Planning on PostgreSQL over 100,000 data files with statistics of 10 columns, compared with DuckDB's answer to the same query.

Run with ``python -m benchmarks.bench_plan``; ``BENCH_FILES`` is the number of files. DuckDB makes the lake, and rows of its catalog
are made more in the database: each like DuckDB's, in the order of its inserts. All files have the path of one real file, which is the one
that the predicate keeps. ducklake_core is measured without an index, as DuckDB leaves it, and with those of ``lake.create_indexes()``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import sqlalchemy as sa

from benchmarks.harness import Result, compare, report, servers
from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, attached
from tests.support.postgres import start_server

FILES = int(os.environ.get("BENCH_FILES", "100000"))
COLUMNS = 10
ROWS = 1000
WANTED = FILES // 2
RANGE = f"c0 >= {WANTED * ROWS} AND c0 < {(WANTED + 1) * ROWS}"
TWO_RANGES = f"{RANGE} AND c1 >= {WANTED * ROWS + 10}"

_FILES = f"""
INSERT INTO ducklake_data_file SELECT f.data_file_id + n, f.table_id, f.begin_snapshot, NULL, NULL, f.path, f.path_is_relative,
f.file_format, f.record_count, f.file_size_bytes, f.footer_size, n * {ROWS}, NULL, f.encryption_key, NULL, NULL
FROM ducklake_data_file f, generate_series(1, {FILES - 1}) n ORDER BY n
"""
_STATISTICS = f"""
INSERT INTO ducklake_file_column_stats SELECT s.data_file_id + n, s.table_id, s.column_id, s.column_size_bytes, s.value_count,
s.null_count, ((n * {ROWS})::bigint)::text, ((n * {ROWS} + {ROWS - 1})::bigint)::text, s.contains_nan, s.extra_stats
FROM ducklake_file_column_stats s, generate_series(1, {FILES - 1}) n ORDER BY n, s.column_id
"""


def make_lake(address: LakeAddress) -> None:
    """A lake of DuckDB's whose table has many files in the catalog, one on disk."""
    start = WANTED * ROWS
    columns = ", ".join(f"n AS c{column}" for column in range(COLUMNS))
    with attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(f"CREATE TABLE t AS SELECT {columns} FROM range({start}, {start + ROWS}) r(n)")
    engine = sa.create_engine(address.url)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE ducklake_file_column_stats SET min_value = '0', max_value = '{ROWS - 1}'")
        connection.exec_driver_sql(_FILES)
        connection.exec_driver_sql(_STATISTICS)
        connection.exec_driver_sql(f"UPDATE ducklake_table_column_stats SET min_value = '0', max_value = '{FILES * ROWS - 1}'")
        connection.exec_driver_sql(f"UPDATE ducklake_table_stats SET record_count = {FILES * ROWS}, next_row_id = {FILES * ROWS}")
        connection.exec_driver_sql(f"UPDATE ducklake_snapshot SET next_file_id = {FILES + 1}")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")
    engine.dispose()


def run() -> list[Result]:
    """A range over one column and over two, planned and read; and the memory of a process that plans all files."""
    server = start_server()
    servers.append(server.handle.get_pid())
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as folder:
        plain = server.lake(Path(folder) / "lake")
        make_lake(plain)
        address = server.lake(Path(folder) / "lake", plain)
        DuckLake.connect(address.url).create_indexes()
        lake, indexed = (DuckLake.connect(lake.url) for lake in (plain, address))
        with attached(plain) as duck:
            for name, where in (("one column", RANGE), ("two columns", TWO_RANGES)):
                query = f"SELECT count(*) FROM t WHERE {where}"

                def plan(where: str = where) -> None:
                    assert len(lake.table("t").scan(where=where).plan().plan.tasks) == 1

                def plan_indexed(where: str = where) -> None:
                    assert len(indexed.table("t").scan(where=where).plan().plan.tasks) == 1

                def read(where: str = where) -> None:
                    assert lake.table("t").scan(where=where).to_arrow().num_rows in (ROWS, ROWS - 10)

                def query(query: str = query) -> None:
                    assert duck.value(query) in (ROWS, ROWS - 10)

                results.append(
                    compare(
                        f"range over {name}, {FILES:,} files",
                        {"plan": plan, "plan and read": read, "plan, with indexes": plan_indexed, "DuckDB": query},
                        baseline="DuckDB",
                        promised_ratio=0.5,
                    )
                )
        print(f"peak memory of a process that plans one file of {FILES:,}: {_peak(plain, RANGE):,} MB")
        print(f"peak memory of a process that plans all {FILES:,} files: {_peak(plain, ''):,} MB")
    server.stop()
    return results


def _peak(address: LakeAddress, where: str) -> int:
    done = subprocess.run([sys.executable, "-m", __spec__.name, address.url, where], check=True, capture_output=True, text=True)
    return int(done.stdout)


def _plan_alone(url: str, where: str) -> None:
    assert len(DuckLake.connect(url).table("t").scan(where=where or None).plan().plan.tasks) == (1 if where else FILES)
    print(_peak_megabytes())


def _peak_megabytes() -> int:
    """Most memory that this program ever held: the kernel's own figure, which does not count what the process was before its exec."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) // 1024


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _plan_alone(*sys.argv[1:])
    else:
        report(*run())
