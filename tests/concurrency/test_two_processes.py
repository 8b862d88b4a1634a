"""We and DuckDB write the same table at the same time, each in processes of its own."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from ducklake_core import DuckLake
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress, attached, sqlite_lake

ROUNDS = 6

LIBRARY_WRITER = """
import sys
import pyarrow as pa
from ducklake_core import DuckLake
url, number, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
lake = DuckLake.connect(url)
for step in range(rounds):
    keys = [number * 1000 + step * 10 + i for i in range(5)]
    data = pa.table({"k": pa.array(keys, pa.int64()), "owner": pa.array([number] * 5, pa.int32())})
    lake.table("t").append(data)
    if step % 2 == 0:
        slice_of_mine = pa.table({"k": pa.array([step], pa.int64()), "owner": pa.array([number], pa.int32())})
        lake.table("slices").overwrite(slice_of_mine, where=f"owner = {number}")
lake.close()
"""
DUCKDB_WRITER = """
import sys
from tests.support.oracle import LakeAddress, attached
address, rounds = LakeAddress(*sys.argv[1:5]), int(sys.argv[5])
with attached(address, "DATA_INLINING_ROW_LIMIT 3") as duck:
    duck.run("SET ducklake_max_retry_count = 100")
    for step in range(rounds):
        rows = 5 if step % 2 else 2
        duck.run(f"INSERT INTO t SELECT 900000 + {step} * 10 + range, 9 FROM range({rows})")
"""


def _start(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, text=True, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2])


def _finish(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        _, errors = process.communicate(timeout=250)
        assert process.returncode == 0, errors


def _prepare(address: LakeAddress) -> DuckLake:
    lake = lake_of_files(address)
    empty = pa.schema([("k", pa.int64()), ("owner", pa.int32())])
    lake.create_table("t", empty)
    lake.create_table("slices", empty)
    return lake


def _check_history(lake: DuckLake) -> None:
    snapshots = lake.snapshots()
    assert [snapshot.id for snapshot in snapshots] == list(range(len(snapshots)))
    for before, after in itertools.pairwise(snapshots):
        assert after.time >= before.time
        assert after.next_file_id >= before.next_file_id


def test_the_library_and_duckdb_on_postgresql(postgres: Any, tmp_path: Path) -> None:
    address: LakeAddress = postgres.lake(tmp_path)
    lake = _prepare(address)
    library_writers = [_start(LIBRARY_WRITER, address.url, number, ROUNDS) for number in (1, 2)]
    duckdb_writer = _start(DUCKDB_WRITER, address.url, address.attach, address.data_path, address.backend, ROUNDS)
    _finish([*library_writers, duckdb_writer])
    with attached(address) as duck:
        expected = 2 * ROUNDS * 5 + sum(5 if step % 2 else 2 for step in range(ROUNDS))
        assert duck.rows("SELECT count(*), count(DISTINCT k), count(DISTINCT rowid) FROM t") == [(expected, expected, expected)]
        assert duck.rows("SELECT owner, k FROM slices ORDER BY owner") == [(1, ROUNDS - 2), (2, ROUNDS - 2)]
        read_rows = lake.table("t").scan(columns=["k", "rowid"]).to_arrow().sort_by("rowid").to_pydict()
        assert duck.rows("SELECT k, rowid FROM t ORDER BY rowid") == list(zip(read_rows["k"], read_rows["rowid"], strict=True))
    _check_history(lake)
    lake.close()


def test_three_library_writers_on_sqlite(tmp_path: Path) -> None:
    # DuckDB does not retry a locked SQLite catalog, so only our own writers can share one.
    address = sqlite_lake(tmp_path)
    lake = _prepare(address)
    _finish([_start(LIBRARY_WRITER, address.url, number, ROUNDS) for number in (1, 2, 3)])
    with attached(address) as duck:
        expected = 3 * ROUNDS * 5
        assert duck.rows("SELECT count(*), count(DISTINCT k), max(rowid) FROM t") == [(expected, expected, expected - 1)]
        assert duck.value("SELECT count(*) FROM slices") == 3
    _check_history(lake)
    lake.close()
