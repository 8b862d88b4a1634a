"""Of very many snapshots, files and tables people see the first and last few; programs get all."""

from __future__ import annotations

import os
import re
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.maintenance.merge import MergeResult, TableMerge
from ducklake_core.maintenance.migrate import MigrationResult
from tests.support.command import Run, answer
from tests.support.oracle import LakeAddress

_NOW = "--older-than '0 days' --min-age '0 days'"


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    """Forty snapshots: of each of nineteen tables one that makes it and one that drops it."""
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    for number in range(19):
        lake.write(f"t{number}", pa.table({"a": range(20)}), inline=False)
        lake.drop_table(f"t{number}")
    lake.write("t", pa.table({"a": range(20)}), inline=False)
    return lake


def test_snapshots_and_files(lake: DuckLake, run: Run) -> None:
    assert len(lake.snapshots()) == 40
    lake.holds.add("audit", 19)
    for line in (f"plan expire {_NOW}", f"expire {_NOW} --dry-run"):
        printed = run(line).stdout.splitlines()
        snapshots = [one for one in printed if one.startswith("would expire snapshot ")]
        assert [int(one.split()[3]) for one in snapshots] == [0, 1, 2, 36, 37, 38]
        time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
        assert re.fullmatch(rf"\.\.\. 32 more snapshots: 3 to 18, 20 to 35, of {time} to {time}", printed[3])
        assert [one for one in printed if "more dropped tables" in one] == ["... 12 more dropped tables"]
        assert len([one for one in printed if re.fullmatch(r"\.\.\. 12 more files \(\d+\.\d KiB\)", one)]) == 1
        assert len(printed) == 23
        assert re.fullmatch(r"would expire 38 snapshots; 18 files \(.*\) would be scheduled for deletion", printed[-1])
        planned = answer(run(f"{line} --json"))
        assert (len(planned["snapshots"]), len(planned["files"])) == (38, 18)
    done = run(f"expire {_NOW}").stdout.splitlines()
    assert len(done) == 23
    assert done[-1].startswith("expired 38 snapshots")
    for line in (f"plan cleanup {_NOW}", f"cleanup {_NOW}"):
        assert len(answer(run(f"plan cleanup {_NOW} --json"))["files"]) == 18
        printed = run(line).stdout.splitlines()
        assert (len(printed), printed[3]) == (8, "... 12 more files")
    assert list(lake) == ["main.t"]


def test_orphans(lake: DuckLake, run: Run) -> None:
    for _ in range(12):
        path = Path(lake.info.data_path, f"ducklake-{uuid4()}.parquet")
        path.write_bytes(b"stray")
        os.utime(path, (1e9, 1e9))
    printed = run(f"plan orphans {_NOW}").stdout.splitlines()
    assert (len(printed), printed[3]) == (8, "... 6 more files (30 B)")
    assert len(answer(run(f"plan orphans {_NOW} --json"))["files"]) == 12


def test_tables_of_a_round(lake: DuckLake, run: Run) -> None:
    for number in range(10):
        for _ in range(2 if number < 8 else 1):
            lake.write(f"u{number}", pa.table({"a": range(20)}), inline=False)
    printed = run("plan checkpoint").stdout.splitlines()
    assert "... 5 more: flush_inlined_data, skipped" in printed
    assert len([one for one in printed if re.match(r"merge_adjacent_files main.u\d: planned, merge small files", one)]) == 6
    assert any(re.match(r"\.\.\. 2 more: merge_adjacent_files, planned \(4 files, 80 rows", one) for one in printed)
    assert printed[-1] == "steps: 8 planned, 26 skipped"
    assert "... 2 more tables with merged files" in run("plan merge").stdout.splitlines()
    done = run("merge").stdout.splitlines()
    assert len([one for one in done if re.match(r"main\.u\d +merged 2 files \(.*\) into 1 \(", one)]) == 8
    assert done[-1].startswith("nothing to do: 3 tables (")
    assert run("merge").stdout.startswith("nothing to do: 11 tables (")


def test_groups_of_one_table_and_failures() -> None:
    table = TableMerge(table="main.t", groups=tuple(f"group {number}" for number in range(1000)))
    result = MergeResult(dry_run=True, tables=(table,))
    assert len(result.lines()) == 1001
    assert result.brief_lines()[2:5] == ["main.t: would merge group 2", "... 994 more groups of main.t", "main.t: would merge group 997"]
    failing = TableMerge(table="main.f", failures=("the disk is full",))
    idle = tuple(TableMerge(table=f"main.t{number}", skipped="it is new") for number in range(1000))
    printed = MergeResult(dry_run=False, tables=(*idle[:500], failing, table, *idle[500:])).brief_lines()
    assert len(printed) == 7 + 7 + 1 + 1
    assert printed[-2] == "main.f: FAILED, the disk is full"


def test_files_that_lose_their_history() -> None:
    result = MigrationResult(dry_run=True, former="1.0", version="1.1", steps=("one",), forgotten=tuple(map(str, range(100))))
    assert (len(result.lines()), len(result.brief_lines())) == (102, 9)
