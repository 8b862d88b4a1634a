"""A run of maintenance that is killed between groups: what it committed stays, the rest are orphans, and the next run carries on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from tests.behaviour.maintenance.lakes import NOW, files_on_disk, readings
from tests.support.oracle import LakeAddress
from tests.support.parameters import slow

ROOT = Path(__file__).parents[2]
PARTS = 4

# Stops for good when the files of the third group are written.
CHILD = """
import sys, time
from ducklake_core import DuckLake
from ducklake_core.maintenance import merge, rewrite

def stopping(real):
    calls = []
    def work(task, **how):
        written = real(task, **how)
        calls.append(task)
        if len(calls) == 3:
            print("written", flush=True)
            time.sleep(600)
        return written
    return work

merge.merge_files = stopping(merge.merge_files)
rewrite.rewrite_files = stopping(rewrite.rewrite_files)
lake = DuckLake.connect(sys.argv[1])
if sys.argv[2] == "merge":
    lake.merge_adjacent_files("t", partial_progress=True)
else:
    lake.rewrite_data_files("t", delete_threshold=0.0, partial_progress=True)
"""


@pytest.mark.parametrize("operation", ["rewrite", slow("merge")])
def test_a_killed_run_is_carried_on(sqlite_address: LakeAddress, operation: str) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    for start in (0, 100):
        rows = pa.table({"part": [n % PARTS for n in range(40)], "n": [start + n for n in range(40)]})
        lake.write("t", rows, partition_by=["part"], inline=False)
    if operation == "rewrite":
        lake.set_option("data_inlining_row_limit", 0)
        lake.table("t").delete("n % 8 < 4")
    before, newest, on_disk = readings(sqlite_address), lake.snapshot().id, files_on_disk(sqlite_address)
    lake.close()
    command = [sys.executable, "-c", CHILD, sqlite_address.url, operation]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "written\n"
        child.send_signal(signal.SIGKILL)
    lake = DuckLake.connect(sqlite_address.url)
    assert lake.snapshot().id == newest + 2
    made = files_on_disk(sqlite_address) - on_disk
    assert len(made) == 3
    (rest,) = (lake.merge_adjacent_files("t") if operation == "merge" else lake.rewrite_data_files("t", delete_threshold=0.0)).tables
    assert len(rest.groups) == PARTS - 2
    orphans = lake.delete_orphaned_files(older_than=NOW, min_age=NOW).files
    assert len(orphans) == 1
    assert {Path(file.path).name for file in orphans} <= {Path(name).name for name in made}
    assert lake.check(level="rows").findings == ()
    last = lake.snapshot().id
    lake.close()
    after = readings(sqlite_address)
    assert {key: after[key] for key in before} == before
    assert after[last, '"main"."t"'] == before[newest, '"main"."t"']
