"""Everyday calls in process: ducklake_core, ducklakepy and DuckDB on a lake that DuckDB made in SQLite, others on their formats.

Run with ``python -m benchmarks.bench_peers``; needs ducklakepy, and takes deltalake and pyiceberg where they are installed
(``make bench`` installs them; ``pip install '.[bench]'``).
Processor seconds of all threads count, the least of several rounds; a cold process is one that imports, opens the lake and reads,
measured with all of that.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import sqlalchemy as sa
from rich.console import Console
from rich.table import Table

from benchmarks.bench_maintenance import Twins, small_files
from benchmarks.bench_selective import made_rows
from benchmarks.harness import least_processor_time
from benchmarks.peer_tables import by_call, core_calls, deltas, duckdbs, ducklakepys, icebergs, installed, made_by_duckdb
from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, Oracle, attached, sqlite_lake

ROWS = int(os.environ.get("BENCH_ROWS", "2000000"))
FILES = int(os.environ.get("BENCH_FILES", "10000"))
MERGED = int(os.environ.get("BENCH_MERGED", "1000"))
CORE = "ducklake_core"
NAMES = (CORE, "ducklakepy", "DuckDB", "delta-rs", "pyiceberg")


def ducklakepy_catalog(address: LakeAddress) -> Any:
    """The lake as ducklakepy opens it."""
    from ducklakepy import DuckLakeCatalog

    return DuckLakeCatalog("lake", url=address.url, data_path=address.data_path)


def make(address: LakeAddress) -> None:
    """A table of changed rows, and one of many files that are all the same file."""
    with attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(
            f"CREATE TABLE t AS SELECT n AS a, n % 1000 AS k, random() AS v, 'text ' || n AS b FROM range({ROWS}) r(n)",
            "DELETE FROM t WHERE k = 7",
            "UPDATE t SET v = 0 WHERE k = 8",
            "CREATE TABLE many AS SELECT n AS a, 'x' AS b FROM range(10) r(n)",
        )
        file = duck.value("SELECT max(data_file_id) FROM __ducklake_metadata_lake.ducklake_data_file")
    numbers = f"(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {FILES - 1}) SELECT n FROM s) s"
    columns = {
        "data_file": "1000 + s.n, o.table_id, o.begin_snapshot, NULL, NULL, o.path, o.path_is_relative, o.file_format, o.record_count, "
        "o.file_size_bytes, o.footer_size, s.n * 10, NULL, NULL, NULL, NULL",
        "file_column_stats": "1000 + s.n, o.table_id, o.column_id, o.column_size_bytes, o.value_count, o.null_count, o.min_value, "
        "o.max_value, o.contains_nan, o.extra_stats",
    }
    engine = sa.create_engine(address.url)
    with engine.begin() as connection:
        for name, copied in columns.items():
            source = f"ducklake_{name} o, {numbers} WHERE o.data_file_id = {file}"
            connection.exec_driver_sql(f"INSERT INTO ducklake_{name} SELECT {copied} FROM {source}")
        connection.exec_driver_sql(f"UPDATE ducklake_snapshot SET next_file_id = {1000 + FILES}")
    engine.dispose()


def contenders(address: LakeAddress, duck: Oracle, folder: Path) -> dict[str, dict[str, Callable[[], object]]]:
    """Each call as each of them would write it; a peer that has no such call is left out."""
    lake, catalog = DuckLake.connect(address.url), ducklakepy_catalog(address)
    rows = f"read {ROWS:,} changed rows"
    calls: dict[str, dict[str, Callable[[], object]]] = {
        "open a table, warm": {CORE: lambda: lake.table("t"), "ducklakepy": lambda: catalog.load_table("main.t")},
        "count after deletes": {
            CORE: lambda: lake.table("t").scan().count(),
            "ducklakepy": lambda: catalog.load_table("main.t").scan().count(),
            "DuckDB": lambda: duck.value("SELECT count(*) FROM t"),
        },
        rows: {
            CORE: lambda: lake.table("t").scan().to_arrow(),
            "ducklakepy": lambda: catalog.load_table("main.t").to_arrow(),
            "DuckDB": lambda: duck.arrow("FROM t"),
        },
        f"plan {FILES:,} files, all kept": {
            CORE: lambda: lake.table("many").scan().plan(),
            "ducklakepy": lambda: list(catalog.load_table("main.many").scan().plan_files()),
        },
    }
    before, changed = _versions_of_rows(lake)
    for name, reads in other_formats(folder, before, changed).items():
        for call, read in zip(("open a table, warm", "count after deletes", rows), reads, strict=True):
            calls[call][name] = read
    return calls


def _versions_of_rows(lake: DuckLake) -> tuple[pa.Table, pa.Table]:
    """The rows before anything was changed, and those that an update changed."""
    return lake.table("t", at=1).scan().to_arrow(), lake.table("t").scan(where="k = 8").to_arrow()


def other_formats(folder: Path, rows: pa.Table, changed: pa.Table) -> dict[str, tuple[Callable[[], object], ...]]:
    """Open, count and read the same rows and changes in other table formats whose libraries are installed."""
    found: dict[str, tuple[Callable[[], object], ...]] = {}
    with suppress(ImportError):
        import deltalake

        place = str(folder / "delta")
        deltalake.write_deltalake(place, rows)
        deltalake.DeltaTable(place).delete("k = 7 OR k = 8")
        deltalake.write_deltalake(place, changed, mode="append")

        def read_delta() -> pa.Table:
            return pa.table(deltalake.QueryBuilder().register("t", deltalake.DeltaTable(place)).execute("SELECT * FROM t").read_all())

        def count_delta() -> object:
            return pa.table(
                deltalake.QueryBuilder().register("t", deltalake.DeltaTable(place)).execute("SELECT count(*) FROM t").read_all()
            )

        found["delta-rs"] = (lambda: deltalake.DeltaTable(place), count_delta, read_delta)
    with suppress(ImportError):
        from pyiceberg.catalog.sql import SqlCatalog

        iceberg = SqlCatalog("peers", uri=f"sqlite:///{folder}/iceberg.sqlite", warehouse=f"file://{folder}/iceberg")
        iceberg.create_namespace("main")
        table = iceberg.create_table("main.t", schema=rows.schema)
        table.append(rows)
        table.delete("k == 7 or k == 8")
        table.append(changed.cast(rows.schema))
        found["pyiceberg"] = (
            lambda: iceberg.load_table("main.t"),
            lambda: iceberg.load_table("main.t").scan().count(),
            lambda: iceberg.load_table("main.t").scan().to_arrow(),
        )
    return found


def cold(url: str, data_path: str, side: str) -> None:
    """In a process of its own: import, open and read; prints rows and the process's processor seconds."""
    address = LakeAddress(url, "", data_path, "sqlite")
    rows = (
        DuckLake.connect(url).table("t").to_arrow()
        if side == "ducklake_core"
        else ducklakepy_catalog(address).load_table("main.t").to_arrow()
    ).num_rows
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps([rows, used.ru_utime + used.ru_stime]))


def _in_a_cold_process(address: LakeAddress, side: str) -> tuple[int, float]:
    command = [sys.executable, "-m", __spec__.name, address.url, address.data_path, side]
    found = [json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(3)]
    return found[0][0], min(seconds for _, seconds in found)


def changing(folder: Path) -> dict[str, dict[str, float]]:
    """The least processor seconds of writing, looking for and changing rows, each library in a table of its own."""
    rows, starts, values = made_rows(), itertools.count(1), {name: itertools.count(1) for name in NAMES}
    folder.mkdir()

    def changed() -> pa.Table:
        number = next(starts)
        old = np.random.default_rng(number).choice(ROWS, 5000, replace=False)
        return rows.slice(0, 10_000).set_column(0, "id", pa.array(np.concatenate([old, np.arange(5000) + ROWS + number * 5000])))

    def value(name: str) -> Callable[[], int]:
        return lambda: next(values[name])

    one = rows.slice(0, 1)
    with ExitStack() as stack:
        lakes = [stack.enter_context(made_by_duckdb(folder / name, rows)) for name in NAMES[:3]]
        sides = {
            CORE: core_calls(lakes[0][0], rows, one, changed, value(CORE)),
            "ducklakepy": ducklakepys(lakes[1][0], rows, one, changed, value("ducklakepy")),
            "DuckDB": duckdbs(lakes[2][1], rows, one, changed, value("DuckDB")),
            "delta-rs": installed(lambda: deltas(folder, rows, one, changed, value("delta-rs"))),
            "pyiceberg": installed(lambda: icebergs(folder, rows, one, value("pyiceberg"))),
        }
        return {call: least_processor_time(ways, rounds=3) for call, ways in by_call(sides).items()}


def run() -> None:
    """One table of all calls and contenders, and a line for each for machines."""
    table = Table("call, milliseconds of processor time", *NAMES)
    with tempfile.TemporaryDirectory() as folder:
        address = sqlite_lake(Path(folder))
        make(address)
        found: dict[str, dict[str, float]] = {}
        with attached(address) as duck:
            for call, ways in contenders(address, duck, Path(folder)).items():
                found[call] = least_processor_time(ways)
        found |= changing(Path(folder) / "changing")
        found[f"merge {MERGED:,} files of 1,000 rows"] = merges(Path(folder) / "merges")
        (our_rows, our_seconds), (their_rows, their_seconds) = (
            _in_a_cold_process(address, side) for side in ("ducklake_core", "ducklakepy_catalog")
        )
        assert our_rows == their_rows, (our_rows, their_rows)
        found[f"a cold process reads {ROWS:,} changed rows"] = {CORE: our_seconds, "ducklakepy": their_seconds}
    for call, seconds in found.items():
        ratio = round(seconds[CORE] / seconds["ducklakepy"], 2)
        print(json.dumps({"benchmark": "peers", "call": call, **seconds, "ratio to ducklakepy": ratio}), flush=True)
        table.add_row(call, *(f"{seconds[name] * 1000:.1f}" if name in seconds else "" for name in NAMES))
    Console(width=140).print(table)


class _Merged(Twins):
    """Copies of a lake of small files, open in all three libraries; each run merges the files to one."""

    peer: Any = None

    def renew(self) -> None:
        self.close()
        super().renew()
        self.peer = ducklakepy_catalog(self.address)
        self.peer.snapshots()

    def close(self) -> None:
        if self.peer is not None:
            assert len(self.lake.table("t").scan().plan().plan.tasks) == 1
            self.peer.close()
            self.peer = None
        super().close()

    def by_us(self) -> None:
        self.lake.merge_adjacent_files()

    def by_ducklakepy(self) -> None:
        self.peer.merge_adjacent_files()

    def by_duckdb(self) -> None:
        self.duck.run("CALL ducklake_merge_adjacent_files('lake')")


def merges(folder: Path) -> dict[str, float]:
    """The least processor seconds of merging small files, each time of a copy of a lake that DuckDB built."""
    folder.mkdir()
    twins = _Merged(folder, small_files(MERGED, 1000))
    ways = {CORE: twins.by_us, "ducklakepy": twins.by_ducklakepy, "DuckDB": twins.by_duckdb}
    found = least_processor_time(ways, before_each=twins.renew)
    twins.close()
    return found


if __name__ == "__main__":
    if len(sys.argv) > 1:
        cold(*sys.argv[1:])
    else:
        run()
