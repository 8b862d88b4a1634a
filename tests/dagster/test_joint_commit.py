"""Several assets of one step in one snapshot: all of them or none, once however often the step is tried."""

# No `from __future__ import annotations`: Dagster resolves the annotations of assets that are made in functions here.
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_dagster import DuckLakeResource, ducklake_metadata, materialize_together, multi_asset
from tests.dagster.test_io_manager import cause
from tests.support.oracle import LakeAddress, attached

Run = Callable[..., dg.ExecuteInProcessResult]
DAYS = dg.DailyPartitionsDefinition("2026-03-01", end_date="2026-04-01")
RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
FRAMES: dict[str, Any] = {}


def together(retries: int = 0, names: tuple[str, ...] = ("orders", "lines"), **metadata: dict[str, Any]) -> dg.AssetsDefinition:
    specs = [dg.AssetSpec(name, metadata=metadata.get(name, {})) for name in names]

    @dg.multi_asset(specs=specs, name="sales", can_subset=True, retry_policy=dg.RetryPolicy(max_retries=retries))
    def sales(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        yield from materialize_together(context, FRAMES)

    return sales


def numbers(*values: Any) -> pa.Table:
    return pa.table({"n": list(values)})


def stored(lake: DuckLakeResource, table: str) -> list[Any]:
    return sorted(lake.connect().table(table).scan().to_arrow()["n"].to_pylist())


def test_one_snapshot_has_both_and_assets_load_them(run: Run, lake_resource: DuckLakeResource, sqlite_address: LakeAddress) -> None:
    seen: list[Any] = []

    @dg.asset
    def total(orders: pa.Table, lines: pa.Table) -> None:
        seen.append((orders["n"].to_pylist(), lines["n"].to_pylist()))

    FRAMES.clear()
    FRAMES.update(orders=numbers(1), lines=numbers(2, 3))
    result = run([together(), total])
    events = {event.asset_key.path[-1]: event.materialization.metadata for event in result.get_asset_materialization_events()}
    assert {events[name]["ducklake/snapshot_id"].value for name in FRAMES} == {1}
    assert [events[name]["dagster/row_count"].value for name in FRAMES] == [1, 2]
    assert seen == [([1], [2, 3])]
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT commit_message, author FROM lake.snapshots() WHERE snapshot_id = 1") == [("lines, orders", "dagster")]
        assert duck.rows("SELECT (SELECT sum(n) FROM lake.orders), (SELECT sum(n) FROM lake.lines)") == [(1, 5)]
    # Some of them are one commit too, and another asset does not get at their rows.
    FRAMES.pop("orders")
    run([together()], selection=["lines"])
    assert lake_resource.connect().snapshot().id == 2

    @dg.asset(name="other", metadata=ducklake_metadata(table="orders"))
    def other() -> pa.Table:
        return numbers(9)

    assert "that orders wrote (as of snapshot 1)" in cause(run([other], raise_on_error=False))


def test_partitions_are_replaced_in_all_of_them(run: Run, lake_resource: DuckLakeResource) -> None:
    metadata = ducklake_metadata(partition_expr="day")
    specs = [dg.AssetSpec(name, metadata=metadata, partitions_def=DAYS) for name in ("a", "b")]

    @dg.multi_asset(specs=specs)
    def both(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        days = pa.array([date.fromisoformat(key) for key in context.partition_keys], pa.date32())
        rows = pa.table({"day": days, "n": [int(context.run.tags["n"])] * len(days)})
        yield from materialize_together(context, {"a": rows, "b": rows})

    result = run([both], tags={RANGE[0]: "2026-03-01", RANGE[1]: "2026-03-03", "n": "1"})
    events = result.get_asset_materialization_events()
    assert len(events) == 6
    assert {event.materialization.metadata["dagster/partition_row_count"].value for event in events} == {1}
    run([both], partition_key="2026-03-02", tags={"n": "2"})
    assert lake_resource.connect().snapshot().id == 2
    assert (stored(lake_resource, "a"), stored(lake_resource, "b")) == ([1, 1, 2], [1, 1, 2])


def test_a_step_retried_after_its_commit_writes_once(run: Run, lake_resource: DuckLakeResource, monkeypatch: pytest.MonkeyPatch) -> None:
    real, lost = multi_asset.metadata_of_commit, []

    def lose(*args: Any, **named: Any) -> dict[str, Any]:
        if not lost:
            lost.append(1)
            raise ConnectionError("lost after the commit")
        return real(*args, **named)

    monkeypatch.setattr(multi_asset, "metadata_of_commit", lose)
    FRAMES.clear()
    FRAMES.update(orders=numbers(1), lines=numbers(2))
    appends = ducklake_metadata(write_mode="append", audits={"positive": "n > 0"})
    result = run([together(retries=1, orders=appends, lines=appends)])
    assert (stored(lake_resource, "orders"), stored(lake_resource, "lines")) == ([1], [2])
    for event in result.get_asset_materialization_events():
        shown = event.materialization.metadata
        assert shown["ducklake/repeated"].value is True
        assert shown["ducklake/snapshot_id"].value == 1
        assert shown["ducklake/audits"].value == {"positive": {"passed": True, "failing_rows": None}}
    # Another run is another materialisation.
    run([together(orders=appends, lines=appends)])
    assert (stored(lake_resource, "orders"), stored(lake_resource, "lines")) == ([1, 1], [2, 2])


@pytest.mark.parametrize("fault", ["frame", "audit"])
def test_a_failure_in_one_asset_changes_none(run: Run, lake_resource: DuckLakeResource, fault: str) -> None:
    FRAMES.clear()
    FRAMES.update(orders=numbers(1), lines=numbers(2))
    audited = {"lines": ducklake_metadata(audits={"positive": "n > 0"})}
    run([together(**audited)])
    FRAMES.update(orders=numbers(5), lines=numbers(-1) if fault == "audit" else numbers("x"))
    text = cause(run([together(**audited)], raise_on_error=False))
    assert ("positive: 1 row failed" if fault == "audit" else "does not fit main.lines: column 'n'") in text
    assert (stored(lake_resource, "orders"), stored(lake_resource, "lines")) == ([1], [2])
    assert lake_resource.connect().snapshot().id == 1


def test_a_branch_takes_all_of_them(run: Run, lake_resource: DuckLakeResource) -> None:
    FRAMES.clear()
    FRAMES.update(orders=numbers(1), lines=numbers(2))
    run([together()])
    FRAMES.update(orders=numbers(3))
    result = run([together()], io={"branch": "dev"})
    assert {event.materialization.metadata["ducklake/branch"].value for event in result.get_asset_materialization_events()} == {"dev"}
    assert (stored(lake_resource, "orders"), stored(lake_resource, "main__dev.orders")) == ([1], [3])


def test_invalid_outputs_raise(run: Run, lake_resource: DuckLakeResource) -> None:
    def text_of(frames: dict[str, Any], **how: Any) -> str:
        FRAMES.clear()
        FRAMES.update(frames)
        return cause(run([together(**how)], raise_on_error=False))

    assert "(lines, orders), but not of strangers" in text_of({"strangers": numbers(1)})
    assert "but frames has none of lines, orders" in text_of({})
    assert "but frames has none of lines" in text_of({"orders": numbers(1)})
    same = ducklake_metadata(table="sales")
    both = {"orders": numbers(1), "lines": numbers(2)}
    assert "orders and lines are one table, main.sales" in text_of(both, orders=same, lines=same)
    specs = [dg.AssetSpec("orders").with_io_manager_key("io_manager"), dg.AssetSpec("lines").with_io_manager_key("files")]

    @dg.multi_asset(specs=specs)
    def mixed(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        yield from materialize_together(context, both)

    failing = run([mixed], raise_on_error=False, resources={"files": dg.mem_io_manager})
    assert "with one DuckLakeIOManager" in cause(failing)
    assert not lake_resource.connect().has_table("orders")


def test_names_that_only_ascii_would_make_one(run: Run, lake_resource: DuckLakeResource) -> None:
    """DuckDB keeps both tables, and so does the lake."""
    names = {"upper": "Ä", "lower": "ä"}
    FRAMES.clear()
    FRAMES.update(upper=numbers(1), lower=numbers(2))
    asset = together(0, tuple(names), **{key: ducklake_metadata(table=name) for key, name in names.items()})
    assert run([asset]).success
    assert [stored(lake_resource, f'"{name}"') for name in names.values()] == [[1], [2]]
