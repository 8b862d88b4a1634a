"""A checkpoint runs every operation in DuckDB's order, by the options of the lake, and continues after failures."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import bench_busy_lake
from ducklake_core.errors import StorageError
from ducklake_core.lake import DuckLake
from ducklake_core.maintenance import checkpoint
from tests.behaviour.maintenance.lakes import NOW, readings
from tests.support.oracle import LakeAddress, attached, sqlite_lake
from tests.support.postgres import PostgresServer

ORDER = [
    "flush_inlined_data", "expire_snapshots", "merge_adjacent_files", "rewrite_data_files", "cleanup_old_files", "delete_orphaned_files",
]  # fmt: skip


def write(address: LakeAddress) -> None:
    """Three tables of one shape, each with work for every operation, and one bad file in the second."""
    with attached(address) as duck:
        for name in ("a", "b", "c"):
            duck.run(
                f"CREATE TABLE {name} (id INTEGER)",
                f"INSERT INTO {name} SELECT range FROM range(20)",
                f"INSERT INTO {name} SELECT range FROM range(20, 40)",
                f"INSERT INTO {name} SELECT range FROM range(40, 60)",
                f"DELETE FROM {name} WHERE id BETWEEN 40 AND 58",
                f"INSERT INTO {name} VALUES (100)",
            )


def test_the_round(lake_address: LakeAddress) -> None:
    write(lake_address)
    lake = DuckLake.connect(lake_address.url)
    lake.set_option("auto_compact", False, table="c")
    last = lake.snapshot().id
    before = {name: rows for (snapshot, name), rows in readings(lake_address).items() if snapshot == last}
    plan = lake.checkpoint(dry_run=True)
    assert lake.snapshot().id == last
    done = lake.checkpoint()
    for result in (plan, done):
        assert [one.verb for one in result.verbs] == ORDER
        assert result.failed_steps == ()
        assert {step.target for step in result.skipped_steps if step.reason == "option auto_compact is false"} == {"main.c"}
        assert [step.verb for step in result.skipped_steps if step.reason == "option expire_older_than is not set"] == ["expire_snapshots"]
    planned = {(step.verb, step.target, step.files, step.rows) for step in plan.steps if step.outcome == "planned"}
    assert planned == {
        *(("flush_inlined_data", f"main.{name}", 0, 1) for name in ("a", "b")),
        *(("merge_adjacent_files", f"main.{name}", 2, 40) for name in ("a", "b")),
        # With the small files next to it, which the merge before it takes in a run.
        *(("rewrite_data_files", f"main.{name}", 3, 41) for name in ("a", "b")),
    }
    # What was flushed is merged in the same round.
    assert {(step.verb, step.target) for step in done.steps if step.outcome == "done"} == {
        (operation, target) for operation, target, _, _ in planned
    }
    assert lake.snapshot().id > last
    lake.set_option("expire_older_than", "0 seconds")
    lake.set_option("delete_older_than", "0 seconds")
    rejected = {step.verb: step.reason for step in lake.checkpoint().failed_steps}
    for operation, option in zip(("expire", "cleanup", "delete"), ("expire_older_than", *["delete_older_than"] * 2), strict=True):
        (reason,) = (rejected.pop(name) for name in list(rejected) if name.startswith(operation))
        assert reason.startswith(f"the option {option} (0 seconds) selects items younger than min_age (1 hour)"), reason
    assert rejected == {}
    swept = lake.checkpoint(min_age=NOW)
    assert swept.failed_steps == ()
    assert {step.verb for step in swept.steps if step.outcome == "done"} == {"expire_snapshots", "cleanup_old_files"}
    lake.close()
    after = readings(lake_address)
    assert {name: rows for (_, name), rows in after.items()} == before


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_busy_lake_stays_flat(request: pytest.FixtureRequest, tmp_path: Path, backend: str) -> None:
    server = request.getfixturevalue("postgres") if backend == "postgresql" else None
    address = sqlite_lake(tmp_path) if server is None else server.lake(tmp_path)
    with DuckLake.create(address.url, data_path=address.data_path) as lake:
        days = list(bench_busy_lake.simulate(lake, Path(address.data_path), tables=3, days=8, changes=10))
        assert lake.check(level="rows").findings == ()
        # Files with other columns than the newest ones are not merged with these.
        assert max(day.data_files for day in days) <= 2 * 3
        assert max(day.data_files_kept for day in days) <= 3 * 3
        assert max(day.delete_files for day in days) <= 2 * 3
        assert max(day.inlined_tables for day in days) <= 3 + 1
        assert sum(day.rewritten for day in days) < 2 * sum(day.ingested for day in days)
        last = lake.snapshot().id
        own = {name: lake.table(name).to_arrow().sort_by("id").to_pylist() for name in ("t0", "t1", "t2")}
    for (snapshot, name), rows in readings(address).items():
        if snapshot == last:
            assert [row[1] for row in sorted(rows, key=lambda row: row[1])] == [row["id"] for row in own[name.split('"')[3]]]


@pytest.mark.slow
def test_a_busy_lake_stays_flat_next_to_duckdb(postgres: PostgresServer, tmp_path: Path) -> None:
    """The simulation compares the rows that both engines read with the ledgers of both."""
    address = postgres.lake(tmp_path)
    with DuckLake.create(address.url, data_path=address.data_path) as lake:
        days = list(bench_busy_lake.simulate(lake, Path(address.data_path), tables=3, days=4, changes=10, duckdb_at=address))
    assert all(day.duckdb is not None and day.duckdb.changes for day in days)
    # DuckDB adds files to a table after it was merged in every other night.
    assert max(day.data_files for day in days) <= 4 * 3
    assert max(day.delete_files for day in days) <= 3 * 3
    assert max(day.inlined_tables for day in days) <= 3 * 3


def test_a_failing_operation_does_not_stop_the_checkpoint(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    write(sqlite_address)
    lake = DuckLake.connect(sqlite_address.url)

    def broken(*_: object, **__: object) -> None:
        raise StorageError("the store is away")

    monkeypatch.setattr(checkpoint, "merge_adjacent_files", broken)
    done = lake.checkpoint()
    assert [(step.verb, step.reason) for step in done.failed_steps] == [("merge_adjacent_files", "the store is away [storage]")]
    assert {step.verb for step in done.steps if step.outcome == "done"} == {"flush_inlined_data", "rewrite_data_files"}
    assert "merge_adjacent_files: FAILED, the store is away" in str(done)
    lake.close()
