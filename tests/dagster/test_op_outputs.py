"""Outputs of ops: each has a table of its own, or raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_dagster import DuckLakeIOManager, DuckLakeResource
from tests.dagster.conftest import QUIET
from tests.dagster.test_io_manager import cause

Run = Callable[..., dg.ExecuteInProcessResult]


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": list(values)})


def held(table: pa.Table) -> list[int]:
    return sorted(table["n"].to_pylist())


def execute(job: dg.JobDefinition, lake: DuckLakeResource, instance: dg.DagsterInstance, **how: Any) -> dg.ExecuteInProcessResult:
    manager = DuckLakeIOManager(lake=lake, default_frame="arrow")
    resolved = dg.Definitions(jobs=[job], resources={"io_manager": manager}).resolve_job_def(job.name)
    return resolved.execute_in_process(instance=instance, run_config=QUIET, raise_on_error=False, **how)


def graph_asset(*metadata: dict[str, Any]) -> dg.AssetsDefinition:
    @dg.op(out=dg.Out(metadata=metadata[0]))
    def a1() -> pa.Table:
        return numbers(1)

    @dg.op(out=dg.Out(metadata=metadata[1]))
    def a2() -> pa.Table:
        return numbers(2)

    @dg.op
    def joined(x: pa.Table, y: pa.Table) -> pa.Table:
        return pa.table({"x": held(x), "y": held(y)})

    @dg.graph_asset
    def both() -> pa.Table:
        return joined(a1(), a2())

    return both


def test_ops_of_a_graph_asset_need_tables_of_their_own(run: Run, lake_resource: DuckLakeResource) -> None:
    text = cause(run([graph_asset({}, {})], raise_on_error=False))
    assert "both.a" in text
    assert "dg.Out(metadata={'table': '...'})" in text
    assert lake_resource.connect().tables() == []
    asset = graph_asset({"table": "first"}, {"table": "second"})
    for _ in range(2):
        run([asset])
        assert lake_resource.connect().table("both").scan().to_arrow().to_pylist() == [{"x": 1, "y": 2}]


def test_a_graph_asset_with_two_ops_of_one_table_raises(run: Run) -> None:
    text = cause(run([graph_asset({"table": "one"}, {"table": "one"})], raise_on_error=False))
    assert "would overwrite rows of table main.one" in text


def test_ops_of_a_job_need_tables_of_their_own(lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    seen: list[list[int]] = []

    def job(name: str, **metadata: Any) -> dg.JobDefinition:
        @dg.op(out=dg.Out(metadata=metadata))
        def made() -> pa.Table:
            return numbers(1)

        @dg.op
        def used(rows: pa.Table) -> None:
            seen.append(held(rows))

        @dg.job(name=name)
        def build() -> None:
            used(made())

        return build

    assert "made.result belongs to an op" in cause(execute(job("j"), lake_resource, instance))
    assert execute(job("j", table="t"), lake_resource, instance).success
    assert execute(job("j", table="t"), lake_resource, instance).success
    assert seen == [[1], [1]]
    assert "j:made.result wrote" in cause(execute(job("k", table="t"), lake_resource, instance))


def dynamic_job(seen: list[list[int]], parts: dict[str, Any], grown: dict[str, Any]) -> dg.JobDefinition:
    @dg.op(out=dg.DynamicOut(metadata=parts))
    def split():
        for number in (1, 2, 3):
            yield dg.DynamicOutput(numbers(number), mapping_key=f"k{number}")

    @dg.op(out=dg.Out(metadata=grown))
    def grow(part: pa.Table) -> pa.Table:
        return numbers(*(10 * n for n in held(part)))

    @dg.op
    def collect(parts: list[pa.Table]) -> None:
        seen.extend(held(part) for part in parts)

    @dg.job
    def mapped() -> None:
        collect(split().map(grow).collect())

    return mapped


def test_mapped_outputs_have_their_own_tables(lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    seen: list[list[int]] = []
    assert "belongs to an op" in cause(execute(dynamic_job(seen, {}, {}), lake_resource, instance))
    result = execute(dynamic_job(seen, {"table": "parts"}, {"table": "grown"}), lake_resource, instance)
    assert "'table': 'parts_{mapping_key}'" in cause(result)
    assert lake_resource.connect().tables() == []
    job = dynamic_job(seen, {"table": "part_{mapping_key}"}, {"table": "{mapping_key}_grown"})
    assert execute(job, lake_resource, instance).success
    assert sorted(seen) == [[10], [20], [30]]
    assert [info.table for info in lake_resource.connect().tables()] == [
        "main.k1_grown", "main.k2_grown", "main.k3_grown", "main.part_k1", "main.part_k2", "main.part_k3",
    ]  # fmt: skip


def test_a_graph_backed_multi_asset_keeps_its_outputs_apart(run: Run, lake_resource: DuckLakeResource) -> None:
    def build(metadata: dict[str, Any]) -> dg.AssetsDefinition:
        @dg.op(out=dg.Out(metadata=metadata))
        def base() -> pa.Table:
            return numbers(1, 2)

        @dg.op
        def one(rows: pa.Table) -> pa.Table:
            return rows.slice(0, 1)

        @dg.op
        def other(rows: pa.Table) -> pa.Table:
            return rows.slice(1, 1)

        @dg.graph_multi_asset(outs={"left": dg.AssetOut(), "right": dg.AssetOut()})
        def halves():
            rows = base()
            return {"left": one(rows), "right": other(rows)}

        return halves

    assert "base.result belongs to an op" in cause(run([build({})], raise_on_error=False))
    run([build({"table": "base"})])
    lake = lake_resource.connect()
    assert [held(lake.table(name).scan().to_arrow()) for name in ("base", "left", "right")] == [[1, 2], [1], [2]]


@pytest.mark.parametrize("key", ["table", "schema"])
def test_a_table_named_by_run_metadata_alone_raises(run: Run, key: str) -> None:
    @dg.asset
    def things(context) -> pa.Table:
        context.add_output_metadata({key: "elsewhere"})
        return numbers(1)

    assert "at run time, but inputs read only the definition" in cause(run([things], raise_on_error=False))
