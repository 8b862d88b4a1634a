"""Progress of operations, reported to a callback and drawn on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_core import DuckLake, Progress
from ducklake_core.maintenance import request as module
from tests.behaviour.maintenance.lakes import NOW, files_on_disk
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import spread

PARTS = 3


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    """Tables a and b with files to merge and to rewrite, and table i with inlined rows."""
    lake = lake_of_files(sqlite_address)
    for name in ("a", "b"):
        for start in (0, 100):
            rows = pa.table({"part": [n % PARTS for n in range(30)], "n": [start + n for n in range(30)]})
            lake.write(name, rows, partition_by=["part"])
    lake.write("i", pa.table({"n": range(30)}))
    lake.set_option("data_inlining_row_limit", 100)
    lake.write("i", pa.table({"n": range(5)}))
    return lake


def _last_of_each_phase(reported: list[Progress]) -> dict[str, Progress]:
    return {one.phase: one for one in reported}


OPERATIONS: dict[str, tuple[Callable[[DuckLake, Callable[[Progress], object]], object], dict[str, tuple[int, str]]]] = {
    "merge_adjacent_files": (lambda lake, to: lake.merge_adjacent_files(progress=to), {"merge files": (2 * PARTS, "groups")}),
    "rewrite_data_files": (
        lambda lake, to: lake.rewrite_data_files(delete_threshold=0, progress=to),
        {"rewrite files": (PARTS, "groups")},
    ),
    "flush_inlined_data": (lambda lake, to: lake.flush_inlined_data(progress=to), {"flush rows": (1, "tables")}),
    "expire_snapshots": (
        lambda lake, to: lake.expire_snapshots(older_than=NOW, min_age=NOW, progress=to),
        {"forget snapshots": (6, "snapshots")},
    ),
    "cleanup_old_files": (
        lambda lake, to: lake.merge_adjacent_files() and lake.cleanup_old_files(cleanup_all=True, min_age=NOW, progress=to),
        {"delete files": (4 * PARTS, "files")},
    ),
    "delete_orphaned_files": (
        lambda lake, to: lake.delete_orphaned_files(cleanup_all=True, min_age=NOW, every_parquet=True, progress=to),
        {"list files": (4 * PARTS + 2, "files"), "delete files": (1, "files")},
    ),
    "check": (
        lambda lake, to: lake.check(level="rows", progress=to),
        {
            "read the catalog": (0, "tables"),
            "open each data file": (4 * PARTS + 1, "files"),
            "open each delete file": (PARTS, "files"),
            "list files": (4 * PARTS + 1 + PARTS, "files"),
            "read rows": (4 * PARTS + 1, "files"),
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_report_progress(lake: DuckLake, operation: str) -> None:
    if operation == "delete_orphaned_files":
        Path(lake.info.data_path, "orphan.parquet").write_bytes(b"1234567")
    if operation in ("rewrite_data_files", "check"):
        lake.set_option("data_inlining_row_limit", 0)
        lake.table("a").delete("n >= 100 AND n < 115")
    reported: list[Progress] = []
    size = sum(file.file_size_bytes for name in "ab" for file in lake.table(name).list_files())
    run, phases = OPERATIONS[operation]
    run(lake, reported.append)
    assert {one.verb for one in reported} == {operation}
    last = _last_of_each_phase(reported)
    assert {phase: (one.done, one.unit) for phase, one in last.items()} == phases
    for phase, one in last.items():
        assert phase in ("read the catalog", "list files") or (one.total, one.seconds_left) == (one.done, 0), phase
    seconds = [one.seconds for one in reported]
    assert seconds == sorted(seconds)
    if operation == "merge_adjacent_files":
        assert (last["merge files"].rows, last["merge files"].table) == (120, "main.b")
        assert last["merge files"].bytes == size
        first = reported[0]
        assert (first.done, first.total, first.seconds_left) == (0, 2 * PARTS, None)
    if operation == "flush_inlined_data":
        assert (last["flush rows"].rows, last["flush rows"].table) == (5, "main.i")
    lake.close()


def test_a_checkpoint_reports_each_operation(lake: DuckLake) -> None:
    reported: list[Progress] = []
    lake.checkpoint(progress=reported.append)
    assert list(dict.fromkeys(one.verb for one in reported)) == ["flush_inlined_data", "merge_adjacent_files", "delete_orphaned_files"]
    lake.close()


def test_time_left_goes_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    reported: list[Progress] = []
    meter = module.ProgressMeter(reported.append)
    now = 105.0
    meter.begin("merge_adjacent_files", "merge files", "groups", 2, work=100)
    now = 115.0
    meter.advance(rows=7, size=20, work=20, table="main.t")
    assert (reported[-1].seconds, reported[-1].seconds_left) == (15.0, 40.0)
    assert str(reported[-1]) == "merge_adjacent_files main.t: 1 of 2 groups, 7 rows, 20 B in 15 s, 40 s left (merge files)"
    meter.extend(3, work=100)
    assert (reported[-1].total, reported[-1].seconds_left) == (5, 90.0)


@pytest.mark.parametrize("partial", spread([False, True], 1))
def test_a_callback_that_raises_ends_the_operation(lake: DuckLake, sqlite_address: LakeAddress, partial: bool) -> None:
    before, newest, rows = files_on_disk(sqlite_address), lake.snapshot().id, lake.table("a").scan().count()

    def stop(progress: Progress) -> None:
        if progress.done == 2:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        lake.merge_adjacent_files("a", partial_progress=partial, progress=stop)
    assert lake.snapshot().id == newest + (2 if partial else 0)
    assert len(files_on_disk(sqlite_address) - before) == (2 if partial else 0)
    assert lake.table("a").scan().count() == rows
    assert lake.check(level="rows").findings == ()
    lake.close()


def test_a_repair_records_author_and_message(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t AS SELECT i AS a FROM range(100) r(i)", "DELETE FROM t WHERE a >= 40")
        duck.run("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.1)")
    lake = DuckLake.connect(sqlite_address.url)
    found = lake.check(repair=True, author="night", message="repaired", extra_info={"ticket": 7})
    made = lake.snapshot()
    assert found.repair_snapshot_id == made.id
    assert (made.author, made.message) == ("night", "repaired")
    assert '"ticket": 7' in str(made.extra_info)
    lake.close()


def _all_of(terminal: int) -> bytes:
    found = b""
    # A terminal whose program has ended is an error to read from.
    with suppress(OSError):
        while chunk := os.read(terminal, 65536):
            found += chunk
    return found


@pytest.mark.slow
def test_bars_are_drawn_on_a_terminal_alone(lake: DuckLake, sqlite_address: LakeAddress) -> None:
    lake.close()
    command = [sys.executable, "-m", "ducklake_core.cli", "check", "--level", "rows"]
    environment = {**os.environ, "DUCKLAKE_URL": sqlite_address.url, "TERM": "xterm", "COLUMNS": "160"}
    own, by_duckdb = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=by_duckdb, env=environment, text=True) as child:
        os.close(by_duckdb)
        drawn = _all_of(own)
        assert child.stdout is not None
        assert "nothing found" in child.stdout.read()
    os.close(own)
    assert "read rows" in drawn.decode()
    assert "13/13 files" in drawn.decode()
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, env=environment, check=True)
    assert done.stderr == ""
