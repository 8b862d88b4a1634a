"""Guarantees of maintenance: bounds stay, interrupted deletions continue, and one bad table stops no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from ducklake_core import Progress
from ducklake_core.cli.app import app
from ducklake_core.cli.session import FOUND
from ducklake_core.maintenance import cleanup, orphans
from tests.behaviour.maintenance.lakes import NOW, files_on_disk
from tests.faults.upkeep import plant_orphan
from tests.property.hostile_catalogs.lake import DamagedLake
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import slow, spread


@pytest.mark.parametrize("operation", spread(["merge_adjacent_files", "rewrite_data_files", "flush_inlined_data"], 1))
def test_bounds_of_a_table_are_never_narrowed(sqlite_address: LakeAddress, operation: str) -> None:
    """DuckDB leaves out files of earlier snapshots by the table's bounds of today."""
    lake = lake_of_files(sqlite_address)
    lake.write("t", pa.table({"n": range(100)}))
    lake.write("t", pa.table({"n": range(100, 200)}))
    lake.write("u", pa.table({"n": [0]}))
    then = lake.snapshot().id
    lake.set_option("data_inlining_row_limit", 10 if operation == "flush_inlined_data" else 0)
    if operation == "flush_inlined_data":
        lake.write("t", pa.table({"n": [500]}))
        then = lake.snapshot().id
        lake.table("t").delete("n = 500")
    elif operation == "rewrite_data_files":
        lake.table("t").delete("n >= 40")
    wanted = 500 if operation == "flush_inlined_data" else 177
    result = getattr(lake, operation)("t", **({"delete_threshold": 0.0} if operation == "rewrite_data_files" else {}))
    assert [step.outcome for step in result.steps] == ["done"]
    assert lake.table("t", at=then).scan(where=f"n = {wanted}").count() == 1
    assert lake.check(level="rows").findings == ()
    lake.close()
    with attached(sqlite_address) as duck:
        assert duck.value(f"SELECT count(*) FROM t AT (VERSION => {then}) WHERE n = {wanted}") == 1


def _stop_at(done: int) -> Any:
    def stop(progress: Progress) -> None:
        if progress.phase == "delete files" and progress.done == done:
            raise KeyboardInterrupt

    return stop


@pytest.mark.parametrize("operation", ["delete_orphaned_files", "cleanup_old_files"])
def test_deletions_that_were_interrupted_go_on(sqlite_address: LakeAddress, operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lake_of_files(sqlite_address)
    for start in range(5):
        lake.write("merged", pa.table({"n": range(start, start + 10)}))
    if operation == "cleanup_old_files":
        lake.merge_adjacent_files()
        files = [Path(file.path) for file in lake.cleanup_old_files(cleanup_all=True, min_age=NOW, dry_run=True).files]
    else:
        files = [plant_orphan(sqlite_address, number) for number in range(5)]
    monkeypatch.setattr(orphans, "_BATCH", 2)
    monkeypatch.setattr(cleanup, "_BATCH", 2)
    run = getattr(lake, operation)
    with pytest.raises(KeyboardInterrupt):
        run(cleanup_all=True, min_age=NOW, progress=_stop_at(2))
    assert sum(file.exists() for file in files) == 3
    assert len(run(cleanup_all=True, min_age=NOW).files) == 3
    assert not any(file.exists() for file in files)
    assert lake.table("merged").scan().count() == 50
    assert lake.check(level="rows").findings == ()
    lake.close()


def test_a_live_file_of_an_unknown_scheme_is_no_orphan(sqlite_address: LakeAddress) -> None:
    """Names are compared, not whole paths, so that no spelling of a place makes files look unneeded."""
    lake = lake_of_files(sqlite_address)
    lake.write("t", pa.table({"n": range(10)}))
    (file,) = lake.table("t").list_files()
    name = Path(file.path).name
    DamagedLake(sqlite_address).edit(f"UPDATE ducklake_data_file SET path = 'weird+scheme://there/{name}', path_is_relative = 0")
    assert lake.delete_orphaned_files(cleanup_all=True, min_age=NOW).files == ()
    assert Path(file.path).exists()
    lake.close()


FAULTS = ("missing file", "corrupt footer", "unknown type")
COMMANDS = ("merge", "rewrite --delete-threshold 0", "flush", "checkpoint", "check --level footers")


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        (command, fault) if row % len(FAULTS) == column else slow(command, fault)
        for row, command in enumerate(COMMANDS)
        for column, fault in enumerate(FAULTS)
    ],
)
def test_one_bad_table_is_reported_with_exit_code_1(sqlite_address: LakeAddress, command: str, fault: str) -> None:
    lake = lake_of_files(sqlite_address)
    for name in ("bad", "good"):
        for start in (0, 50):
            lake.write(name, pa.table({"n": range(start, start + 50)}))
        if command.startswith("rewrite"):
            lake.table(name).delete("n >= 60")
        lake.set_option("data_inlining_row_limit", 10, table=name)
        lake.write(name, pa.table({"n": [1]}))
    number, spoiled = lake.table("bad").state.id, DamagedLake(sqlite_address)
    if fault == "unknown type":
        spoiled.edit(f"UPDATE ducklake_column SET column_type = 'int7' WHERE table_id = {number}")
    elif command == "flush":
        # An inlined value that is none: a flush reads no file.
        table = spoiled.value(
            f"SELECT table_name FROM ducklake_inlined_data_tables WHERE table_name LIKE 'ducklake_inlined_data_{number}_%'"
        )
        spoiled.edit(f"UPDATE {table} SET n = 'none'")
    else:
        file = Path(lake.table("bad").list_files()[-1].path)
        held = file.read_bytes()
        file.unlink() if fault == "missing file" else file.write_bytes(held[:-20] + bytes(20))
    lake.close()
    before = files_on_disk(sqlite_address)
    result = CliRunner().invoke(app, [*command.split(), "--json"], env={"DUCKLAKE_URL": sqlite_address.url})
    assert result.exit_code == FOUND, result.output
    reported = json.loads(result.stdout)
    if command.startswith("check "):
        code = {"missing file": "file-missing", "corrupt footer": "footer-unreadable", "unknown type": "type-unknown"}[fault]
        assert [(one["code"], one["table"]) for one in reported["findings"]] == [(code, "main.bad")]
        return
    failed = [step for step in reported["steps"] if step["outcome"] == "failed"]
    assert {step["target"] for step in failed} == {"main.bad"}
    assert all(step["reason"] for step in failed)
    assert {step["target"] for step in reported["steps"] if step["outcome"] == "done"} >= {"main.good"}
    left = {name for name in files_on_disk(sqlite_address) - before if "/bad/" in name}
    assert not left or command == "checkpoint", "a failed operation leaves no file; a checkpoint has flushed before"
