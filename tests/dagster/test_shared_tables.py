"""Two assets of one table: rows of another asset are overwritten only when metadata allows it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_dagster import DuckLakeIOManager, DuckLakeResource, LocalStorage, ducklake_metadata
from ducklake_dagster.io import commit
from ducklake_dagster.io.outputs import TableOutput
from tests.dagster.conftest import QUIET
from tests.dagster.test_io_manager import cause
from tests.support.oracle import LakeAddress
from tests.support.parameters import on_postgresql

Run = Callable[..., dg.ExecuteInProcessResult]


def asset(key: list[str], value: int, partitions: dg.PartitionsDefinition[str] | None = None, **metadata: Any) -> dg.AssetsDefinition:
    @dg.asset(key=key, partitions_def=partitions, metadata=ducklake_metadata(**metadata))
    def build(context) -> pa.Table:
        days = [date.fromisoformat(key) for key in context.partition_keys] if partitions else [date(2026, 1, 1)]
        return pa.table({"day": pa.array(days, pa.date32()), "n": [value] * len(days)})

    return build


def values(lake: DuckLakeResource, table: str) -> list[int]:
    return sorted(lake.connect().table(table).scan(["n"]).to_arrow()["n"].to_pylist())


def test_two_assets_of_one_table_raise(run: Run, lake_resource: DuckLakeResource) -> None:
    a, b = asset(["a", "same"], 1), asset(["b", "same"], 2)
    schema = {"schema": "s"}
    run([a], io=schema)
    text = cause(run([b], io=schema, raise_on_error=False))
    assert "b/same would overwrite rows of table s.same that a/same wrote" in text
    assert "shared=True" in text
    assert values(lake_resource, "s.same") == [1]
    run([a], io=schema)
    run([b])
    assert values(lake_resource, "b.same") == [2]
    run([asset(["b", "same"], 2, shared=True)], io=schema)
    assert values(lake_resource, "s.same") == [2]


DAYS = dg.StaticPartitionsDefinition(["2026-01-01", "2026-01-02"])
FIRST, SECOND = DAYS.get_partition_keys()


def failure_of(run: Run, made: dg.AssetsDefinition, **how: Any) -> str:
    return cause(run([made], raise_on_error=False, **how))


def test_rows_of_earlier_assets_are_protected(run: Run, lake_resource: DuckLakeResource) -> None:
    """Only the last writer counted: an asset that had appended could overwrite earlier rows of another one."""
    run([asset(["q"], 1, table="t")])
    run([asset(["w"], 2, table="t", write_mode="append")])
    assert "w would overwrite rows of table main.t that q wrote" in failure_of(run, asset(["w"], 3, table="t"))
    assert "q would overwrite rows of table main.t that w wrote" in failure_of(run, asset(["q"], 3, table="t"))
    run([asset(["x"], 3, table="t", write_mode="append")])
    assert "that q and 1 others wrote" in failure_of(run, asset(["w"], 3, table="t"))
    assert values(lake_resource, "t") == [1, 2, 3]
    run([asset(["w"], 4, table="t", shared=True)])
    run([asset(["w"], 5, table="t")])
    assert values(lake_resource, "t") == [5]
    assert "that w wrote" in failure_of(run, asset(["q"], 3, table="t"))


def test_assets_overwrite_slices_of_their_own(run: Run, lake_resource: DuckLakeResource) -> None:
    where = {"table": "t", "partition_expr": "day"}
    a, b = asset(["a"], 1, DAYS, **where), asset(["b"], 2, DAYS, **where)
    for made, key in ((a, FIRST), (b, SECOND), (a, FIRST), (b, SECOND)):
        run([made], partition_key=key)
    assert values(lake_resource, "t") == [1, 2]
    assert "b would overwrite rows of table main.t that a wrote" in failure_of(run, b, partition_key=FIRST)
    assert "that a wrote" in failure_of(run, asset(["b"], 2, table="t"))
    run([asset(["b"], 2, DAYS, **where, write_mode="append")], partition_key=FIRST)
    assert "a would overwrite rows of table main.t that b wrote" in failure_of(run, a, partition_key=FIRST)
    run([asset(["c"], 3, DAYS, **where, write_mode="upsert", upsert_keys="day")], partition_key=SECOND)
    assert "that b and 1 others wrote" in failure_of(run, a, partition_key=SECOND)
    # A slice that was replaced on purpose has no rows of other assets.
    run([asset(["a"], 4, DAYS, **where, shared=True)], partition_key=FIRST)
    run([asset(["a"], 5, DAYS, **where)], partition_key=FIRST)
    assert values(lake_resource, "t") == [3, 5]


@on_postgresql
def test_maintenance_and_expiry_keep_the_owner_of_rows(lake_address: LakeAddress) -> None:
    lake_resource = DuckLakeResource(
        catalog=lake_address.url, storage=LocalStorage(data_path=lake_address.data_path), create_if_missing=True
    )

    def run(assets: Any, **how: Any) -> dg.ExecuteInProcessResult:
        return dg.materialize(assets, resources={"io_manager": DuckLakeIOManager(lake=lake_resource)}, run_config=QUIET, **how)

    where = {"table": "t", "partition_expr": "day"}
    a, b = asset(["a"], 1, DAYS, **where), asset(["b"], 2, DAYS, **where)
    run([a], partition_key=FIRST)
    run([b], partition_key=SECOND)
    run([asset(["a"], 3, DAYS, **where, write_mode="append")], partition_key=FIRST)
    lake = lake_resource.connect()
    newest = lake.snapshot().id
    lake.flush_inlined_data()
    lake.merge_adjacent_files()
    lake.table("t").delete("n = 3")
    lake.rewrite_data_files(delete_threshold=0.1)
    lake.expire_snapshots(
        versions=[snapshot.id for snapshot in lake.snapshots() if snapshot.id not in (newest, lake.snapshot().id)], min_age="0 days"
    )
    assert "b would overwrite" in failure_of(run, b, partition_key=FIRST)
    assert "a would overwrite" in failure_of(run, asset(["a"], 4, table="t"))
    run([b], partition_key=SECOND)
    assert values(lake_resource, "t") == [1, 2]
    lake.set_comment("t", "newer")
    lake.expire_snapshots(versions=[snapshot.id for snapshot in lake.snapshots()][:-1], min_age="0 days")
    run([b], partition_key=FIRST)
    assert values(lake_resource, "t") == [2, 2], "the writer is unknown by now"


@pytest.fixture
def others(run: Run, monkeypatch: pytest.MonkeyPatch) -> list[dg.AssetsDefinition]:
    """Assets to write during the next write, after it has read the table."""
    real, waiting = TableOutput.commit, list[dg.AssetsDefinition]()

    def commit(*args: Any) -> Any:
        found = real(*args)
        if waiting:
            run([waiting.pop()])
        return found

    monkeypatch.setattr(TableOutput, "commit", commit)
    return waiting


def test_concurrent_commits_count(run: Run, lake_resource: DuckLakeResource, others: list[dg.AssetsDefinition]) -> None:
    run([asset(["w"], 1, table="t")])
    others.append(asset(["q"], 2, table="t", write_mode="append"))
    run([asset(["w"], 3, table="t", write_mode="append")])
    assert values(lake_resource, "t") == [1, 2, 3]
    assert "w would overwrite rows of table main.t that q wrote" in failure_of(run, asset(["w"], 4, table="t"))


def test_an_overwrite_reports_replaced_rows_of_concurrent_commits(
    run: Run, lake_resource: DuckLakeResource, others: list[dg.AssetsDefinition]
) -> None:
    run([asset(["w"], 1, table="t")])
    others.append(asset(["q"], 2, table="t", write_mode="append"))
    result = run([asset(["w"], 3, table="t", concurrent_appends="replace")])
    assert values(lake_resource, "t") == [3]
    (event,) = result.get_asset_materialization_events()
    assert event.materialization.metadata["ducklake/replaced_meanwhile"].value == "q (snapshot 2)"
    others.append(asset(["q"], 4, table="t", write_mode="append"))
    (event,) = run([asset(["w"], 5, table="t", shared=True, concurrent_appends="replace")]).get_asset_materialization_events()
    assert "ducklake/replaced_meanwhile" not in event.materialization.metadata


def test_an_overwrite_fails_when_rows_of_its_slice_come_while_it_is_made(
    run: Run, lake_resource: DuckLakeResource, others: list[dg.AssetsDefinition]
) -> None:
    run([asset(["w"], 1, table="t")])
    others.append(asset(["q"], 2, table="t", write_mode="append"))
    result = run([asset(["w"], 3, table="t")], raise_on_error=False)
    failure = result.failure_data_for_node("w")
    assert failure is not None
    assert failure.user_failure_data is not None
    message = str(failure.user_failure_data.description)
    assert "main.t was not committed: another writer added or changed rows" in message
    assert "concurrent_appends='replace'" in message
    assert failure.user_failure_data.metadata["error_code"].value == "commit-conflict"
    assert values(lake_resource, "t") == [1, 2]


def test_a_record_is_found_before_any_number_of_commits_of_pipes(
    run: Run, lake_resource: DuckLakeResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "_FEW_COMMITS", 2)
    run([asset(["q"], 1, table="t")])
    frame = pa.table({"day": pa.array([None], pa.date32()), "n": [7]})
    facts = {"dagster": {"asset_key": "w", "pipes": True}}
    for _ in range(3):
        lake_resource.connect().write("t", frame, mode="append", author="dagster", extra_info=facts)
    assert "that q wrote" in failure_of(run, asset(["w"], 2, table="t"))


def test_commits_without_information_about_earlier_ones(run: Run, lake_resource: DuckLakeResource) -> None:
    lake = lake_resource.connect()
    frame = pa.table({"day": pa.array([None], pa.date32()), "n": [7]})

    def write(**facts: Any) -> None:
        lake.write("t", frame, mode="append", author="dagster", extra_info={"dagster": facts})

    run([asset(["q"], 1, table="t")])
    for _ in range(3):
        write(asset_key="w", pipes=True)
    assert "that q wrote" in failure_of(run, asset(["w"], 2, table="t"))
    assert "that w wrote" in failure_of(run, asset(["q"], 2, table="t"))
    # Of an earlier version of the library, and of anybody.
    for facts in (
        {},
        {"table_writers": 3},
        {"table_writers": {"slices": 3}},
        {"table_writers": {"at": "x", "slices": {"q": 7}, "wrote": [1]}},
    ):
        write(asset_key="q", **facts)
        assert "that q wrote" in failure_of(run, asset(["w"], 2, table="t"))
    write(asset_key="q")
    run([asset(["q"], 2, table="t")])
    assert values(lake_resource, "t") == [2]


def test_the_last_asset_counts_after_foreign_commits(run: Run, lake_resource: DuckLakeResource, sqlite_address: LakeAddress) -> None:
    run([asset(["a"], 1, table="t")])
    lake = lake_resource.connect()
    lake.set_comment("t", "by hand")
    lake.write("t", pa.table({"day": pa.array([None], pa.date32()), "n": [7]}))
    for number in range(3):
        lake.write("other", pa.table({"n": [number]}), author="dagster")
    assert "that a wrote" in cause(run([asset(["b"], 2, table="t")], raise_on_error=False))
    run([asset(["a"], 3, table="t")])
    lake.drop_table("t")
    run([asset(["b"], 2, table="t")])
    assert values(lake_resource, "t") == [2]


def test_commit_information_does_not_grow_with_partitions(run: Run, lake_resource: DuckLakeResource) -> None:
    days = dg.DailyPartitionsDefinition("2016-01-01", end_date="2016-04-01")
    keys = days.get_partition_keys()
    between = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]}
    run([asset(["a"], 1, days, table="t", partition_expr="day")], tags=between)
    run([asset(["a"], 1, days, table="t", partition_expr="day")], partition_key=keys[7])
    message = json.loads(lake_resource.connect().snapshot().extra_info or "")["dagster"]["table_writers"]
    days_written = {"type": "date", "in": [["2016-01-01", "2016-04-01"]]}
    assert message == {
        "at": 1,
        "wrote": {"day": {"type": "date", "in": [["2016-01-08", "2016-01-09"]]}},
        "slices": {"a": {"day": days_written}},
    }
