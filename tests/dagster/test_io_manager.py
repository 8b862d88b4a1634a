"""The IO manager beyond the matrix: loading, precedence of settings, retries, metadata, errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from typing import Any, Optional

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_dagster import DuckLakeResource, ducklake_input, ducklake_metadata

Run = Callable[..., dg.ExecuteInProcessResult]
DAYS = dg.DailyPartitionsDefinition("2026-03-27", timezone="Europe/Berlin", end_date="2026-04-01")
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


def cause(result: dg.ExecuteInProcessResult) -> str:
    """Return the message of the error that failed a run, the first one of several."""
    failure = next(event for event in result.all_events if event.is_step_failure)
    error = failure.step_failure_data.error
    while error and error.cause:
        error = error.cause
    return error.message if error else ""


def daily_numbers(context: dg.AssetExecutionContext) -> pa.Table:
    days = [date.fromisoformat(key) for key in context.partition_keys]
    return pa.table({"day": pa.array(days, pa.date32()), "n": pa.array([day.day for day in days], pa.int32())})


@pytest.fixture
def numbers() -> dg.AssetsDefinition:
    @dg.asset(name="numbers", partitions_def=DAYS, metadata=ducklake_metadata(partition_expr="day", partition_by=["month(day)"]))
    def build(context) -> pa.Table:
        return daily_numbers(context)

    return build


@pytest.fixture
def full(run: Run, numbers: dg.AssetsDefinition) -> dg.AssetsDefinition:
    """The asset with all of its partitions in the lake."""
    run([numbers], tags={RANGE_START: "2026-03-27", RANGE_END: "2026-03-31"})
    return numbers


class Seen:
    """Collects what a downstream asset was given."""

    def __init__(self) -> None:
        self.table: Any = None

    def asset(self, **how: Any) -> dg.AssetsDefinition:
        seen = self

        @dg.asset(name="reader", **how)
        def reader(numbers: pa.Table) -> None:
            seen.table = numbers

        return reader

    @property
    def days(self) -> list[int]:
        return sorted(self.table["n"].to_pylist())


SPECIFIC = dg.SpecificPartitionsPartitionMapping


@pytest.mark.parametrize(
    ("keys", "days"),
    [(["2026-03-28"], [28]), (["2026-03-28", "2026-03-29"], [28, 29]), (["2026-03-27", "2026-03-29", "2026-03-31"], [27, 29, 31])],
)
def test_any_upstream_partitions_are_loaded(run: Run, full: dg.AssetsDefinition, keys: list[str], days: list[int]) -> None:
    seen = Seen()
    run([full, reader := seen.asset(ins={"numbers": dg.AssetIn(partition_mapping=SPECIFIC(keys))})], selection=[reader])
    assert seen.days == days


def test_no_upstream_partitions_give_an_empty_frame_with_the_tables_types(run: Run, full: dg.AssetsDefinition) -> None:
    seen = Seen()
    before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1, allow_nonexistent_upstream_partitions=True)
    reader = seen.asset(partitions_def=DAYS, ins={"numbers": dg.AssetIn(partition_mapping=before)})
    run([full, reader], selection=[reader], partition_key="2026-03-27")
    assert seen.table.num_rows == 0
    assert seen.table.schema.field("day").type == pa.date32()
    run([full, reader], selection=[reader], partition_key="2026-03-30")
    assert seen.days == [29]


def test_an_asset_may_read_its_own_past_from_the_first_partition_on(run: Run, lake_resource: DuckLakeResource) -> None:
    past = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1, allow_nonexistent_upstream_partitions=True)

    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"}, ins={"total": dg.AssetIn(partition_mapping=past)})
    def total(context, total: pa.Table) -> pa.Table:
        before = sum(total["n"].to_pylist()) if total.num_rows else 0
        return pa.table({"day": [date.fromisoformat(context.partition_key)], "n": [before + 1]})

    for key in DAYS.get_partition_keys()[:3]:
        run([total], partition_key=key)
    assert sorted(lake_resource.connect().table("total").scan(["n"]).to_arrow()["n"].to_pylist()) == [1, 2, 3]


def test_input_metadata_narrows_columns_rows_and_snapshot(run: Run, full: dg.AssetsDefinition, lake_resource: DuckLakeResource) -> None:
    seen, first = Seen(), lake_resource.connect().snapshot().id
    lake_resource.connect().table("numbers").delete("n = 31")
    wanted = ducklake_input(columns="n", where="n > 28", snapshot=first)
    run([full, reader := seen.asset(ins={"numbers": dg.AssetIn(metadata=wanted)})], selection=[reader])
    assert seen.table.schema.names == ["n"]
    assert seen.days == [29, 30, 31]
    del wanted["ducklake/snapshot"]
    run([full, reader := seen.asset(ins={"numbers": dg.AssetIn(metadata=wanted)})], selection=[reader])
    assert seen.days == [29, 30]


def test_optional_annotations_and_load_asset_value(
    run: Run, full: dg.AssetsDefinition, instance: dg.DagsterInstance, lake_resource: Any
) -> None:
    seen: list[Any] = []

    @dg.asset
    def reader(numbers: Optional[pa.Table]) -> None:  # noqa: UP045
        seen.append(numbers)

    run([full, reader], selection=[reader])
    assert seen[0].num_rows == 5
    from ducklake_dagster import DuckLakeIOManager

    defs = dg.Definitions(assets=[full], resources={"io_manager": DuckLakeIOManager(lake=lake_resource), "lake": lake_resource})
    assert defs.load_asset_value("numbers", python_type=pa.Table, instance=instance, partition_key="2026-03-28")["n"].to_pylist() == [28]


def test_run_time_metadata_beats_asset_metadata_beats_the_manager(run: Run, lake_resource: DuckLakeResource) -> None:
    extra: dict[str, Any] = {}

    @dg.asset(metadata={"write_mode": "append", "table": "renamed"})
    def things(context) -> pa.Table:
        context.add_output_metadata(extra)
        return pa.table({"n": [1]})

    def count() -> int:
        return lake_resource.connect().table_info("stage.renamed").row_count

    run([things], io={"schema": "stage", "write_mode": "overwrite"})
    run([things], io={"schema": "stage", "write_mode": "overwrite"})
    assert count() == 2
    extra["write_mode"] = "overwrite"
    run([things], io={"schema": "stage"})
    assert count() == 1
    extra["write_mode"] = "upsert"
    extra["upsert_keys"] = ["n"]
    run([things], io={"schema": "stage"})
    assert count() == 1


def test_the_users_metadata_is_left_alone(run: Run) -> None:
    @dg.asset
    def things(context) -> pa.Table:
        context.add_output_metadata({"dagster/row_count": 7, "mine": "x"})
        return pa.table({"n": [1, 2]})

    (event,) = run([things]).get_asset_materialization_events()
    metadata = {key: value.value for key, value in event.materialization.metadata.items()}
    assert (metadata["dagster/row_count"], metadata["mine"], metadata["ducklake/rows_added"]) == (7, "x", 2)


def test_metadata_is_that_of_the_commits_own_snapshot(run: Run, numbers: dg.AssetsDefinition, lake_resource: DuckLakeResource) -> None:
    result = run([numbers], partition_key="2026-03-28")
    (event,) = result.get_asset_materialization_events()
    metadata = {key: value.value for key, value in event.materialization.metadata.items()}
    newest = lake_resource.connect().snapshot()
    assert metadata["ducklake/snapshot_id"] == newest.id
    assert metadata["dagster/partition_row_count"] == 1
    assert metadata["dagster/table_name"] == "main.numbers"
    assert metadata["Query"].endswith("""WHERE (("day" >= DATE '2026-03-28' AND "day" < DATE '2026-03-29'))""")
    schema = metadata["dagster/column_schema"]
    assert [(column.name, column.type) for column in schema.columns] == [("day", "date"), ("n", "int32")]
    assert list(schema.constraints.other) == ["partitioned by month(day)"]
    assert (newest.author, newest.message) == ("dagster", "numbers [2026-03-28]")
    facts = json.loads(newest.extra_info or "")["dagster"]
    assert (facts["run_id"], facts["asset_key"], facts["partition_keys"]) == (result.run_id, "numbers", ["2026-03-28"])


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_retried_step_commits_once(run: Run, lake_resource: DuckLakeResource, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from ducklake_dagster import io_manager

    real, failures = io_manager.commit_metadata, iter([True])

    def lose_the_process_after_the_commit(*args: Any, **kwargs: Any) -> dict[str, Any]:
        if next(failures, False):
            raise ConnectionError("lost after the commit")
        return real(*args, **kwargs)

    monkeypatch.setattr(io_manager, "commit_metadata", lose_the_process_after_the_commit)

    @dg.asset(metadata={"write_mode": mode}, retry_policy=dg.RetryPolicy(max_retries=1))
    def events() -> pa.Table:
        return pa.table({"n": [1, 2]})

    (event,) = run([events]).get_asset_materialization_events()
    lake = lake_resource.connect()
    assert event.materialization.metadata["ducklake/repeated"].value is True
    assert (lake.table_info("events").row_count, len(lake.snapshots())) == (2, 2)
    run([events])
    assert lake.table_info("events").row_count == (4 if mode == "append" else 2)


def test_invalid_settings_raise_before_anything_is_written(run: Run, lake_resource: DuckLakeResource) -> None:
    def failing(frame: Any, partitions: Any = None, io: dict[str, Any] | None = None, **metadata: Any) -> str:
        @dg.asset(name="bad", partitions_def=partitions, metadata=metadata)
        def bad() -> Any:
            return frame

        how = {"partition_key": partitions.get_partition_keys()[0]} if partitions else {}
        return cause(run([bad], raise_on_error=False, io=io, **how))

    table = pa.table({"n": [1]})
    assert "partition_expr" in failing(table, DAYS)
    assert "'day', but partition_expr needs it. Its columns are n" in failing(table, DAYS, partition_expr="day")
    assert "int64, which does not support time partitions" in failing(table, DAYS, partition_expr="n")
    assert "no upsert_keys. Set upsert_keys" in failing(table, write_mode="upsert")
    assert "must be one of overwrite, append, upsert, merge, error, ignore, not 'replace'" in failing(table, write_mode="replace")
    assert "must be a name or a list of names" in failing(table, partition_by=[1])
    assert "returned dict, which cannot be written" in failing({"n": [1]})
    assert "annotate it with '-> None'" in failing(None)
    assert lake_resource.connect().tables() == []


def test_a_missing_table_and_a_bad_annotation_are_named(run: Run, numbers: dg.AssetsDefinition) -> None:
    @dg.asset
    def reader(numbers: pa.Table) -> None: ...

    result = run([numbers, reader], selection=[reader], raise_on_error=False)
    assert "numbers" in cause(result)

    @dg.asset
    def counter(numbers: int) -> None: ...

    assert "Annotate it as pyspark.sql.DataFrame, pandas.DataFrame" in cause(
        run([numbers, counter], selection=[counter], raise_on_error=False)
    )


@pytest.mark.parametrize("meanwhile", ["renamed", "expired"])
def test_a_commit_is_never_failed_by_its_metadata(
    run: Run, lake_resource: DuckLakeResource, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    from ducklake_core.commit.committer import Committer
    from ducklake_dagster import io_manager

    @dg.asset(metadata={"write_mode": "append"})
    def things() -> pa.Table:
        return pa.table({"n": [1]})

    run([things])
    other, commit, describe = lake_resource.connect(), Committer.commit, io_manager.commit_metadata

    def commit_after_a_rename(committer: Committer, transaction: Any) -> Any:
        if transaction.author == "dagster" and not other.has_table("moved"):
            other.rename_table("things", "moved")
        return commit(committer, transaction)

    def describe_after_expiry(lake: Any, output: Any, predicate: Any, result: Any, **rest: Any) -> dict[str, Any]:
        other.write("elsewhere", pa.table({"n": [1]}))
        other.expire_snapshots(versions=[result.snapshot_id], min_age="0 days")
        return describe(lake, output, predicate, result, **rest)

    if meanwhile == "renamed":
        monkeypatch.setattr(Committer, "commit", commit_after_a_rename)
    else:
        monkeypatch.setattr(io_manager, "commit_metadata", describe_after_expiry)
    (event,) = run([things]).asset_materializations_for_node("things")
    assert event.metadata["ducklake/rows_added"].value == 1
    if meanwhile == "renamed":
        assert event.metadata["dagster/table_name"].value == "main.moved"
        assert event.metadata["ducklake/commit_attempts"].value == 2
    else:
        assert "dagster/row_count" not in event.metadata
    assert other.table("moved" if meanwhile == "renamed" else "things").scan().count() == 2


@pytest.mark.parametrize(
    "settings", [{"write_mode": "append"}, {"out_of_slice": "filter"}, {"write_mode": "append", "out_of_slice": "filter"}]
)
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_nanoseconds_belong_to_the_partition_that_they_lie_in(
    run: Run, lake_resource: DuckLakeResource, settings: dict[str, str], zone: str | None
) -> None:
    hours = dg.DailyPartitionsDefinition("1969-12-30", timezone="UTC", end_date="1970-01-03")
    day = 86_400 * 10**9
    inside, outside = [-1, -day, -999], [0, -day - 1]

    @dg.asset(name="moments", partitions_def=hours, metadata=ducklake_metadata(partition_expr="at", **settings))
    def build(context) -> pa.Table:
        given = [*inside, *(outside if settings.get("out_of_slice") == "filter" else [])]
        return pa.table({"at": pa.array(given, pa.int64()).view(pa.timestamp("ns", zone))})

    lake = lake_resource.connect()
    lake.create_table("moments", {"at": "timestamp_ns"})
    if zone is None:
        run([build], partition_key="1969-12-31")
        assert sorted(lake.table("moments").scan().to_arrow().column("at").cast(pa.int64()).to_pylist()) == sorted(inside)
    else:
        result = run([build], partition_key="1969-12-31", raise_on_error=False)
        assert "timestamptz" in cause(result), "with a zone it does not fit the table, which the error names"
