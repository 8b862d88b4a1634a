"""The moment that an input reads: a time, one snapshot for a run, the state after a run, or changes since."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_core.errors import UsageError
from ducklake_dagster import DuckLakeIOManager, DuckLakeResource, ducklake_input, ducklake_metadata
from tests.dagster.conftest import QUIET

Run = Callable[..., dg.ExecuteInProcessResult]
DAYS = dg.DailyPartitionsDefinition("2026-03-27", end_date="2026-03-30")
SOURCE = dg.AssetSpec("source", metadata={"table": "source", "schema": "main"})


def ints(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def reader(seen: list[Any], **settings: Any) -> dg.AssetsDefinition:
    @dg.asset(ins={"source": dg.AssetIn(metadata=ducklake_input(**settings))})
    def read(source: pa.Table) -> pa.Table:
        seen.append(source.to_pylist())
        return ints(len(seen))

    return read


def test_as_of_a_time(run: Run, lake_resource: DuckLakeResource) -> None:
    lake = lake_resource.connect()
    lake.write("source", ints(1))
    time.sleep(0.01)
    between = datetime.now(UTC)
    time.sleep(0.01)
    lake.write("source", ints(2))
    seen: list[Any] = []
    for moment in (between, between.isoformat()):
        run([SOURCE, reader(seen, as_of=moment)])
    assert seen == [[{"n": 1}]] * 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"as_of": "2026-03-01T00:00:00"}, "must be a time with a zone"),
        ({"as_of": "yesterday"}, "must be a time with a zone"),
        ({"snapshot": 1, "changes": "beginning"}, "^ducklake_input: snapshot and changes both select the snapshot"),
        ({"changes": "always"}, "must be 'last_materialization' or 'beginning'"),
        ({"snapshot": True}, "must be a snapshot id"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ducklake_input(**settings)


def test_one_snapshot_for_all_inputs_of_a_run(run: Run, lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    lake = lake_resource.connect()
    lake.write("source", ints(1))
    seen: dict[str, Any] = {}

    @dg.asset(deps=[])
    def first(source: pa.Table) -> pa.Table:
        seen["first"] = source.num_rows
        lake.write("source", ints(2))
        return ints(5)

    @dg.asset
    def second(source: pa.Table, first: pa.Table) -> None:
        seen["second"] = source.num_rows
        seen["own"] = first.to_pylist()

    run([SOURCE, first])
    seen.clear()
    lake.write("source", ints(3))
    result = run([SOURCE, first, second], io={"pin_reads": True})
    # The first one's commit came after the pin, and is what the run itself made.
    assert seen == {"first": 3, "second": 3, "own": [{"n": 5}]}
    events = [one.event_specific_data for one in result.all_events if one.event_type_value == "ENGINE_EVENT"]
    logs = instance.all_logs(result.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
    pins = [log for log in logs if log.dagster_event and "read snapshot" in (log.dagster_event.message or "")]
    assert len(pins) == 1, events
    read = {
        key: value.value["snapshot"]
        for event in result.get_asset_materialization_events()
        for key, value in event.materialization.metadata.items()
        if key.startswith("ducklake/read/")
    }
    assert read["ducklake/read/first"] > read["ducklake/read/source"]
    seen.clear()
    run([SOURCE, first, second], io={"pin_reads": True})
    assert seen["first"] == seen["second"] == 4


def test_the_first_pin_wins(lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    """Two steps in two processes pin at once: both read what was logged first."""
    lake = lake_resource.connect()
    lake.write("source", ints(1))
    lake.write("source", ints(2))

    @dg.asset
    def read(context, source: pa.Table) -> None:
        assert source.num_rows == 1

    class Behind(DuckLakeIOManager):
        def load_input(self, context: dg.InputContext) -> Any:
            from dagster._core.events import EngineEventData

            from ducklake_dagster.io.read_points import lake_identity

            step = context.step_context
            step.instance.report_engine_event(
                "another process",
                dagster_run=step.dagster_run,
                engine_event_data=EngineEventData(metadata={"ducklake/pinned_snapshot": 1, "ducklake/lake": lake_identity(lake)}),
            )
            return super().load_input(context)

    manager = Behind(lake=lake_resource, default_frame="arrow", pin_reads=True)
    assert dg.materialize([SOURCE, read], instance=instance, resources={"io_manager": manager}, run_config=QUIET).success


@dg.asset(partitions_def=DAYS, metadata=ducklake_metadata(partition_expr="day"))
def daily(context) -> pa.Table:
    n = int(context.run.tags["n"])
    return pa.table({"day": pa.array([date.fromisoformat(context.partition_key)], pa.date32()), "n": [n]})


def test_as_of_a_run(run: Run) -> None:
    runs = [run([daily], partition_key="2026-03-28", tags={"n": str(number)}).run_id for number in (1, 2)]
    run([daily], partition_key="2026-03-27", tags={"n": "3"})
    seen: list[Any] = []

    def reading(run_id: str) -> dg.AssetsDefinition:
        @dg.asset(partitions_def=DAYS, ins={"daily": dg.AssetIn(metadata=ducklake_input(run_id=run_id, columns="n"))})
        def read(daily: pa.Table) -> None:
            seen.append(daily.to_pylist())

        return read

    for run_id in runs:
        one = reading(run_id)
        run([daily, one], selection=[one], partition_key="2026-03-28")
    assert seen == [[{"n": 1}], [{"n": 2}]]
    one = reading(runs[0])
    with pytest.raises(dg.Failure, match=r"did not materialise partitions 2026-03-27 of daily"):
        run([daily, one], selection=[one], partition_key="2026-03-27")
    one = reading("nothing")
    with pytest.raises(dg.Failure, match="run nothing did not materialise daily"):
        run([daily, one], selection=[one], partition_key="2026-03-28")


def kinds(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return sorted((row["change_type"], row["n"]) for row in rows)


def test_changes_since_the_last_materialization(run: Run, lake_resource: DuckLakeResource) -> None:
    lake = lake_resource.connect()
    lake.write("source", ints(1, 2))
    lake.write("source", ints(3))
    seen: list[Any] = []
    read = reader(seen, changes="last_materialization")
    run([SOURCE, read])
    assert kinds(seen[0]) == [("insert", 1), ("insert", 2), ("insert", 3)]
    assert list(seen[0][0]) == ["snapshot_id", "rowid", "change_type", "n"]
    run([SOURCE, read])
    assert seen[1] == []
    table = lake.table("source")
    table.delete("n = 1")
    table.update({"n": "n * 10"}, where="n = 2")
    lake.write("source", ints(4))
    run([SOURCE, read])
    assert kinds(seen[2]) == [("delete", 1), ("insert", 4), ("update_postimage", 20), ("update_preimage", 2)]
    repeated = reader(seen, changes="beginning", columns="n", where="n < 10")
    run([SOURCE, repeated])
    assert kinds(seen[3]) == [("insert", 3), ("insert", 4)]
    run([SOURCE, read])
    assert seen[4] == []


def test_changes_of_a_failed_step_come_again(run: Run, lake_resource: DuckLakeResource) -> None:
    lake = lake_resource.connect()
    lake.write("source", ints(1))
    seen: list[Any] = []
    broken = True

    @dg.asset(ins={"source": dg.AssetIn(metadata=ducklake_input(changes="last_materialization"))})
    def read(source: pa.Table) -> None:
        seen.append(source.to_pylist())
        if broken:
            raise dg.Failure("no")

    assert not run([SOURCE, read], raise_on_error=False).success
    lake.write("source", ints(2))
    broken = False
    run([SOURCE, read])
    assert [kinds(rows) for rows in seen] == [[("insert", 1)], [("insert", 1), ("insert", 2)]]


def test_changes_of_an_attempt_that_committed_are_those_of_its_retry(run: Run, lake_resource: DuckLakeResource) -> None:
    """The first attempt commits and is lost; the retry must not claim to have read what came in between."""
    lake = lake_resource.connect()
    lake.write("source", ints(1))
    attempts: list[int] = []

    class Lossy(DuckLakeIOManager):
        def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
            super().handle_output(context, obj)
            if len(attempts) == 1:
                lake.write("source", ints(2))
                raise RuntimeError("lost after the commit")

    @dg.asset(
        ins={"source": dg.AssetIn(metadata=ducklake_input(changes="last_materialization", columns="n"))},
        metadata=ducklake_metadata(write_mode="append"),
        retry_policy=dg.RetryPolicy(max_retries=1),
    )
    def copied(source: pa.Table) -> pa.Table:
        attempts.append(source.num_rows)
        return source.select(["n"])

    manager = Lossy(lake=lake_resource, default_frame="arrow")
    for _ in range(2):
        run([SOURCE, copied], resources={"io_manager": manager})
    assert sorted(lake.table("copied").scan().to_arrow()["n"].to_pylist()) == [1, 2]
    assert attempts == [1, 1, 1]


def test_changes_without_history_raise(run: Run, lake_resource: DuckLakeResource) -> None:
    lake = lake_resource.connect()
    lake.write("source", ints(1))
    seen: list[Any] = []
    read = reader(seen, changes="last_materialization")
    run([SOURCE, read])
    lake.drop_table("source")
    lake.write("source", ints(9))
    with pytest.raises(dg.Failure, match=r"main\.source was dropped and re-created since it was last read.*changes='beginning'"):
        run([SOURCE, read])
    run([SOURCE, reader(seen, changes="beginning")])
    for _ in range(3):
        lake.write("source", ints(10))
    lake.expire_snapshots(keep_last=1, older_than="0 seconds", min_age="0 seconds")
    with pytest.raises(dg.Failure, match="later snapshots were expired"):
        run([SOURCE, read])


def test_changes_by_partition(run: Run, lake_resource: DuckLakeResource) -> None:
    seen: list[Any] = []

    @dg.asset(partitions_def=DAYS, ins={"daily": dg.AssetIn(metadata=ducklake_input(changes="last_materialization", columns="n"))})
    def read(daily: pa.Table) -> None:
        seen.append(kinds(daily.to_pylist()))

    for day, n in (("2026-03-27", 1), ("2026-03-28", 2)):
        run([daily], partition_key=day, tags={"n": str(n)})
        run([daily, read], selection=[read], partition_key=day)
    run([daily], partition_key="2026-03-27", tags={"n": "3"})
    run([daily, read], selection=[read], partition_key="2026-03-28")
    run([daily, read], selection=[read], partition_key="2026-03-27")
    assert seen == [[("insert", 1)], [("insert", 2)], [], [("delete", 1), ("insert", 3)]]
    with pytest.raises(dg.Failure, match="needs a run with one partition"):
        run(
            [daily, read],
            selection=[read],
            tags={"dagster/asset_partition_range_start": "2026-03-27", "dagster/asset_partition_range_end": "2026-03-28"},
        )


@pytest.mark.parametrize("frame", ["pandas", "polars", "stream"])
def test_changes_in_other_frames(run: Run, lake_resource: DuckLakeResource, frame: str) -> None:
    import pandas as pd
    import polars as pl

    lake_resource.connect().write("source", ints(1))
    kind = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "stream": pa.RecordBatchReader}[frame]
    seen: list[Any] = []

    def body(source):  # type: ignore[no-untyped-def]
        seen.append(pa.table(source) if frame != "pandas" else pa.Table.from_pandas(source))

    body.__annotations__ = {"source": kind, "return": None}
    read = dg.asset(name="read", ins={"source": dg.AssetIn(metadata=ducklake_input(changes="last_materialization"))})(body)
    run([SOURCE, read])
    lake_resource.connect().write("source", ints(2))
    run([SOURCE, read])
    assert [kinds(table.to_pylist()) for table in seen] == [[("insert", 1)], [("insert", 2)]]
