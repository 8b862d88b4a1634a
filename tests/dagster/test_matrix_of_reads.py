"""Inputs of every kind of partitions, selection and frame: exactly the rows of the selected keys."""

# No `from __future__ import annotations`: Dagster resolves the annotations of assets that are made in functions here.
import itertools
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_dagster import DuckLakeResource
from tests.dagster.test_matrix import CONNECT, FRAMES, KINDS, OTHER_FRAMES, Bench, Kind, Row, Run, frame, rows_for, spark_frame
from tests.support.connect import run_tests

ANNOTATIONS = {"arrow": "pyarrow.Table", "pandas": "pandas.DataFrame", "polars": "polars.DataFrame"}


def annotation(frames: str) -> Any:
    """The type of a kind of frames."""
    module, _, name = ANNOTATIONS.get(frames, "pyspark.sql.DataFrame").rpartition(".")
    return getattr(import_module(module), name)


def selections(kind: Kind) -> dict[str, Sequence[str]]:
    """Return selections of keys: one, a range or a rectangle, with gaps, and none."""
    if kind.definition is None:
        return {"all": kind.keys}
    return {"single": [kind.single], "several": kind.chosen, "gaps": kind.keys[::2], "none": []}


def rows_in(given: Any) -> list[dict[str, Any]]:
    """Return the rows of a frame."""
    return (given.toArrow() if hasattr(given, "toArrow") else pa.table(given)).to_pylist()


def cells() -> list[Any]:
    """Each kind of frames with each kind of partitions."""
    here = [frames for frames in ("arrow", *OTHER_FRAMES) if (frames == "connect") == CONNECT]
    return [pytest.param(frames, kind, id=f"{frames}-{kind}") for frames, kind in itertools.product(here, KINDS)]


@pytest.mark.slow
@pytest.mark.parametrize(("frames", "kind"), cells())
def test_every_selection(
    request: pytest.FixtureRequest, run: Run, lake_resource: DuckLakeResource, instance: dg.DagsterInstance, frames: str, kind: str
) -> None:
    instance.add_dynamic_partitions("customers", list(KINDS["dynamic"].keys))
    convert = FRAMES[frames] if frames in FRAMES else spark_frame(request, frames)
    bench = Bench(run, lake_resource, KINDS[kind], "overwrite", convert)
    rows = rows_for(bench.kind, bench.kind.keys, 1)
    written = bench.asset(convert(frame(bench.kind, rows)), "overwrite")
    bench.materialize(written, "every")
    names, given, found = ["id", *bench.kind.columns, "amount"], annotation(frames), dict[str, list[Row]]()

    def reader(selection: str, keys: Sequence[str]) -> dg.AssetsDefinition:
        mapping = dg.SpecificPartitionsPartitionMapping(keys) if bench.kind.definition else None

        @dg.asset(name=selection, ins={"things": dg.AssetIn(partition_mapping=mapping)})
        def read(things: given) -> None:
            assert isinstance(things, given)
            found[selection] = sorted(tuple(row[name] for name in names) for row in rows_in(things))

        return read

    wanted = selections(bench.kind)
    readers = [reader(selection, keys) for selection, keys in wanted.items()]
    bench.run_assets([written, *readers], selection=readers)
    values = {selection: {bench.kind.values(key) for key in keys} for selection, keys in wanted.items()}
    assert found == {selection: sorted(row for row in rows if row[1:-1] in mine) for selection, mine in values.items()}
    assert len(found.get("none", [])) == 0


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_every_selection_of_connect_frames(connect: str) -> None:
    """In a process that has no other Spark."""
    run_tests(__file__, "connect-", connect)
