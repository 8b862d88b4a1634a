"""A dry run returns the plan that a run executes, step by step, for every operation; the command prints the same."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from ducklake_core import DuckLake, MaintenanceResult, MaintenanceStep
from ducklake_core.cli.app import app
from ducklake_core.cli.maintaining import PLANNED, planned
from tests.behaviour.maintenance.lakes import NOW, catalog_rows, files_on_disk
from tests.support.oracle import LakeAddress

_AGE = {"older_than": NOW, "min_age": NOW}
OPERATIONS: dict[str, tuple[Callable[..., MaintenanceResult], dict[str, Any], str]] = {
    "flush_inlined_data": (DuckLake.flush_inlined_data, {}, "flush"),
    "merge_adjacent_files": (DuckLake.merge_adjacent_files, {"tables": ["*.*", "x*"], "max_files": 4}, "merge '*.*' 'x*' --max-files 4"),
    "rewrite_data_files": (DuckLake.rewrite_data_files, {"delete_threshold": 0.5}, "rewrite --delete-threshold 0.5"),
    "expire_snapshots": (DuckLake.expire_snapshots, _AGE, "expire --older-than '0 days' --min-age '0 days'"),
    "cleanup_old_files": (DuckLake.cleanup_old_files, _AGE, "cleanup --older-than '0 days' --min-age '0 days'"),
    "delete_orphaned_files": (DuckLake.delete_orphaned_files, _AGE, "orphans --older-than '0 days' --min-age '0 days'"),
}


@pytest.fixture
def lake(lake_address: LakeAddress) -> DuckLake:
    """Two tables with work for every operation, one of them with a missing file, a held snapshot, and orphans of two kinds."""
    lake = DuckLake.create(lake_address.url, data_path=lake_address.data_path)
    for name in ("a", "b"):
        for number in range(4):
            lake.write(name, pa.table({"id": pa.array(range(number * 20, number * 20 + 20), pa.int64())}), inline=False)
        lake.set_option("data_inlining_row_limit", 0, table=name)
        lake.table(name).delete("id BETWEEN 20 AND 38")
        lake.unset_option("data_inlining_row_limit", table=name)
        lake.write(name, pa.table({"id": pa.array([-1], pa.int64())}))
    lake.write("dropped", pa.table({"id": pa.array(range(20), pa.int64())}), inline=False)
    lake.holds.add("kept", 2)
    lake.drop_table("dropped")
    for name in ("ducklake-0199b5a0-0000-7000-8000-000000000000.parquet", "ducklake-0199b5a0-0000-7000-8000-000000000001.parquet"):
        Path(lake.info.data_path, name).write_bytes(b"stray")
    return lake


def carried_out(step: MaintenanceStep) -> MaintenanceStep:
    """The step when it is done. Ages count from the moment of the call, which is another one."""
    return replace(step, outcome="done" if step.outcome == "planned" else step.outcome, reason=timeless(step.reason))


def timeless(reason: str) -> str:
    return re.sub(r"older than .* UTC", "older than then", reason)


def test_a_run_executes_its_plan(lake: DuckLake, lake_address: LakeAddress) -> None:
    for name, (operation, arguments, line) in OPERATIONS.items():
        rows, files = catalog_rows(lake_address), files_on_disk(lake_address)
        plan = operation(lake, **arguments, dry_run=True)
        reported = CliRunner().invoke(app, shlex.split(f"plan {line} --json"), env={"DUCKLAKE_URL": lake_address.url})
        assert (catalog_rows(lake_address), files_on_disk(lake_address)) == (rows, files), f"a dry run of {name} changes nothing"
        assert [timeless(one["reason"]) for one in json.loads(reported.stdout)["steps"]] == [
            timeless(step.reason) for step in plan.steps
        ], name
        done = operation(lake, **arguments)
        assert [*map(carried_out, done.steps)] == [*map(carried_out, plan.steps)], name
        assert any(step.outcome == "done" for step in done.steps), name
        assert done.failed_steps == (), name
    lake.close()


def test_plans_have_the_options_of_their_operations(lake: DuckLake, lake_address: LakeAddress) -> None:
    env = {"DUCKLAKE_URL": lake_address.url, "COLUMNS": "200"}
    for command in PLANNED:
        strings = [CliRunner().invoke(app, [*words, command.__name__, "--help"], env=env).stdout for words in ([], ["plan"])]
        options = [{word for word in text.replace(",", " ").split() if word.startswith("--")} for text in strings]
        assert options[0] - options[1] == {"--dry-run"}
        assert options[1] <= options[0]
    result = CliRunner().invoke(app, ["plan", "checkpoint", "a*"], env=env)
    assert result.exit_code == 0
    assert "merge_adjacent_files main.a: planned, " in result.stdout
    assert "main.b" not in result.stdout
    assert CliRunner().invoke(app, ["plan", "flush", "--dry-run"], env=env).exit_code == 2
    assert [planned(command).__name__ for command in PLANNED] == [command.__name__ for command in PLANNED]
    lake.close()
