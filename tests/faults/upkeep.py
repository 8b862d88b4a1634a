"""A lake with work for every maintenance operation, the operations, and invariants after each of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.oracle import LakeAddress
from tests.support.scans import Shown, shown

NOW = timedelta(0)

OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "merge": lambda lake: lake.merge_adjacent_files(),
    "merge group by group": lambda lake: lake.merge_adjacent_files(partial_progress=True, max_concurrency=2),
    "rewrite": lambda lake: lake.rewrite_data_files(delete_threshold=0.0),
    "rewrite clustered": lambda lake: lake.rewrite_data_files("merged", cluster_by=["n", "part"]),
    "flush": lambda lake: lake.flush_inlined_data(),
    "expire": lambda lake: lake.expire_snapshots(older_than=NOW, min_age=NOW, keep_last=4),
    "cleanup": lambda lake: lake.cleanup_old_files(cleanup_all=True, min_age=NOW),
    "orphans": lambda lake: lake.delete_orphaned_files(older_than="1 day"),
    "checkpoint": lambda lake: lake.checkpoint(min_age=NOW),
    "check": lambda lake: lake.check(level="rows"),
    "repair": lambda lake: lake.check(level="rows", repair=True),
}


def prepare(address: LakeAddress, operation: str) -> None:
    """Tables merged (small files, two partitions), deleted (deletes in files and inlined) and inlined (rows, some of them ended)."""
    from ducklake_core import DuckLake

    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.set_option("data_inlining_row_limit", 0)
    for start in (0, 100, 200):
        rows = pa.table({"part": [n % 2 for n in range(20)], "n": [(start + n) * 7919 % 1000 for n in range(20)]})
        lake.write("merged", rows, partition_by=["part"])
    lake.write("deleted", pa.table({"n": range(100)}))
    lake.table("deleted").delete("n < 30")
    lake.set_option("data_inlining_row_limit", 10)
    lake.table("deleted").delete("n = 50")
    for start in (0, 10):
        lake.write("inlined", pa.table({"n": range(start, start + 5)}))
    lake.table("inlined").delete("n = 3")
    lake.set_option("expire_older_than", "0 seconds")
    if operation in ("cleanup", "checkpoint"):
        lake.write("old", pa.table({"n": range(30)}))
        lake.drop_table("old")
        lake.set_option("data_inlining_row_limit", 0, table="deleted")
        lake.rewrite_data_files("deleted", delete_threshold=0.0)
        lake.expire_snapshots(older_than=NOW, min_age=NOW, keep_last=4)
    if operation == "orphans":
        for number in range(4):
            plant_orphan(address, number)
    if operation == "repair":
        _spoil(lake)
    lake.close()


def plant_orphan(address: LakeAddress, number: int) -> Path:
    """A file of a writer that was killed two days ago."""
    file = Path(address.data_path) / "main" / "merged" / f"ducklake-0198c1f2-0000-7000-8000-{number:012x}.parquet"
    file.write_bytes(b"PAR1 and nothing more")
    old = file.stat().st_mtime - 2 * 86_400
    os.utime(file, (old, old))
    return file


def _spoil(lake: Any) -> None:
    from sqlalchemy import update

    with lake.database.write() as connection:
        bounds, count = lake.database.tables["table_column_stats"], lake.database.tables["table_stats"]
        connection.execute(update(bounds).values(max_value="1"))
        connection.execute(update(count).values(record_count=1))


def nothing_is_lost(lake: Any, before: Shown) -> None:
    """Every snapshot that is left reads as before, and the newest as the newest did."""
    after = shown(lake)
    left = {snapshot.id for snapshot in lake.snapshots()}
    newest, last = max(left), max(number for number, _ in before)
    for (number, name), rows in before.items():
        if number in left:
            assert after[number, name] == rows, f"{name} at {number}"
    assert {name: rows for (number, name), rows in after.items() if number == newest} == {
        name: rows for (number, name), rows in before.items() if number == last
    }


def is_sound(lake: Any) -> None:
    """Assert that a check finds only orphaned files, and that a sweep leaves no other file."""
    from tests.faults.checks import named_files

    assert set(lake.check(level="rows").by_code) <= {"orphaned-file"}, str(lake.check(level="rows"))
    lake.delete_orphaned_files(cleanup_all=True, min_age=NOW)
    on_disk = {path.name for path in Path(lake.info.data_path).rglob("*.parquet")}
    assert on_disk <= named_files(lake)
    assert set(lake.check(level="rows").by_code) == set(), str(lake.check(level="rows"))


def run_and_die(url: str, operation: str, step: int, output: Path | None = None) -> None:
    """Run an operation in this process and die at a step; with fewer steps return, after writing them to ``output``."""
    from ducklake_core import DuckLake
    from tests.faults.work import dying_at

    lake = DuckLake.connect(url)
    with dying_at(step) as steps:
        OPERATIONS[operation](lake)
        taken = list(steps)
    lake.close()
    if output is not None:
        output.write_text(json.dumps(taken))
