"""Every kind of frame is written and loaded, by partitions too; what is not Spark starts no JVM."""

# No `from __future__ import annotations`: Dagster resolves the annotations of assets that are made in functions here.
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ducklake_core.errors import UsageError
from ducklake_dagster import DuckLakeIOManager, DuckLakeResource
from tests.dagster.test_io_manager import cause

Run = Callable[..., dg.ExecuteInProcessResult]
DAYS = dg.DailyPartitionsDefinition("2026-03-27", end_date="2026-04-01")
SCHEMA = pa.schema([("day", pa.date32()), ("n", pa.int64()), ("name", pa.string())])


class Exporter:
    """A frame of an unknown library, which only exports a stream."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.rows.__arrow_c_stream__(requested_schema)


def batches(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    for number in range(rows.num_rows):
        yield from rows.slice(number, 1).to_batches()


MAKE: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda rows: rows,
    "batch": lambda rows: rows.combine_chunks().to_batches()[0],
    "stream": lambda rows: pa.RecordBatchReader.from_batches(rows.schema, batches(rows)),
    "pandas": lambda rows: rows.to_pandas(),
    "polars": pl.DataFrame,
    "lazy polars": lambda rows: pl.DataFrame(rows).lazy(),
    "exporter": Exporter,
}
READ: dict[Any, Callable[[Any], list[dict[str, Any]]]] = {
    pa.Table: lambda rows: rows.to_pylist(),
    pa.RecordBatchReader: lambda rows: rows.read_all().to_pylist(),
    pd.DataFrame: lambda rows: rows.to_dict("records"),
    pl.DataFrame: lambda rows: rows.to_dicts(),
    pl.LazyFrame: lambda rows: rows.collect().to_dicts(),
}


def rows_of(days: list[int]) -> pa.Table:
    return pa.table({"day": [date(2026, 3, day) for day in days], "n": days, "name": [f"d{day}" for day in days]}, SCHEMA)


def asset(kind: str, days: list[int], **metadata: Any) -> dg.AssetsDefinition:
    @dg.asset(name="numbers", partitions_def=DAYS, metadata={"partition_expr": "day", **metadata})
    def build() -> Any:
        return MAKE[kind](rows_of(days))

    return build


def stored(lake: DuckLakeResource) -> list[int]:
    return sorted(lake.connect().table("numbers").scan().to_arrow()["n"].to_pylist())


QUICK = ("stream", "pandas", "polars")


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow) for kind in MAKE])
def test_partitions_are_written_and_rows_outside_are_rejected_or_left_out(run: Run, lake_resource: DuckLakeResource, kind: str) -> None:
    range_of_two = {"dagster/asset_partition_range_start": "2026-03-28", "dagster/asset_partition_range_end": "2026-03-29"}
    run([asset(kind, [28, 29])], tags=range_of_two)
    run([asset(kind, [29, 29])], partition_key="2026-03-29")
    assert stored(lake_resource) == [28, 29, 29]
    upsert = {"write_mode": "upsert", "upsert_keys": ["n"]}
    for how in ({}, {"write_mode": "append"}, upsert):
        text = cause(run([asset(kind, [29, 30], **how)], partition_key="2026-03-29", raise_on_error=False))
        assert "outside the partitions of this run" in text
        assert "out_of_slice" in text
    assert stored(lake_resource) == [28, 29, 29]
    run([asset(kind, [28, 30], out_of_slice="filter", **upsert)], partition_key="2026-03-30")
    run([asset(kind, [28, 31], out_of_slice="filter")], partition_key="2026-03-31")
    assert stored(lake_resource) == [28, 29, 29, 30, 31]


@pytest.mark.parametrize("wanted", READ)
def test_inputs_are_loaded_by_annotation(run: Run, lake_resource: DuckLakeResource, wanted: Any) -> None:
    seen: list[Any] = []
    schema = dg.TableSchema(columns=[dg.TableColumn("day", "date"), dg.TableColumn("n", "bigint"), dg.TableColumn("name", "varchar")])

    @dg.asset(
        partitions_def=DAYS,
        metadata={"partition_expr": "day", "dagster/column_schema": schema},
        ins={"numbers": dg.AssetIn(partition_mapping=dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1))},
    )
    def numbers(context, numbers: wanted) -> pa.Table:
        found = READ[wanted](numbers)
        columns = pa.table(numbers).column_names if isinstance(numbers, pa.Table) else None
        seen.append((type(numbers) is wanted or isinstance(numbers, wanted), columns, [row["name"] for row in found]))
        return rows_of([int(context.partition_key[-2:])])

    run([numbers], partition_key="2026-03-27")
    run([numbers], partition_key="2026-03-28")
    named = SCHEMA.names if wanted is pa.Table else None
    assert seen == [(True, named, []), (True, named, ["d27"])], "the first partition has the declared columns and no rows"
    assert stored(lake_resource) == [27, 28]


def test_a_frame_with_labels_raises(run: Run) -> None:
    @dg.asset
    def labelled() -> pd.DataFrame:
        return pd.DataFrame({"n": [1]}, index=pd.Index([7], name="key"))

    assert "whose index is named (key)" in cause(run([labelled], raise_on_error=False))


def test_a_project_without_spark_starts_no_jvm(tmp_path: Path) -> None:
    program = (
        "import sys, dagster as dg, pandas as pd, pyarrow as pa\n"
        "from ducklake_dagster import *\n"
        f"lake = DuckLakeResource(catalog=SqliteCatalog(path={str(tmp_path / 'l')!r}), storage=LocalStorage(data_path={str(tmp_path)!r}),\n"
        "    create_if_missing=True)\n"
        "@dg.asset\n"
        "def numbers(): return pd.DataFrame({'n': [1, 2]})\n"
        "@dg.asset\n"
        "def unannotated(numbers):\n"
        "    assert isinstance(numbers, pa.Table), type(numbers)\n"
        "    return numbers\n"
        "dg.materialize([numbers, unannotated], resources={'io_manager': DuckLakeIOManager(lake=lake)})\n"
        "assert 'pyspark' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.LazyFrame], ids=["pandas", "lazy polars"])
def test_one_frame_per_partition(run: Run, lake_resource: DuckLakeResource, frame: Any) -> None:
    lake_resource.connect().write("numbers", rows_of([28, 29]))
    source = dg.AssetSpec("numbers", partitions_def=DAYS, metadata={"partition_expr": "day"})
    found: list[Any] = []

    @dg.asset
    def by_key(numbers: dict[str, frame]) -> None:
        found.append({key: READ[frame](rows) for key, rows in numbers.items()})

    @dg.asset
    def in_order(numbers: list[frame]) -> None:
        found.append([len(READ[frame](rows)) for rows in numbers])

    run([source, by_key, in_order], selection=[by_key, in_order])
    rows = next(one for one in found if isinstance(one, dict))
    assert list(rows) == DAYS.get_partition_keys()
    assert [row["n"] for row in rows["2026-03-28"]] == [28]
    assert next(one for one in found if isinstance(one, list)) == [int(key in ("2026-03-28", "2026-03-29")) for key in rows]


def test_a_lazy_polars_input_reads_one_snapshot_when_its_query_runs(run: Run, lake_resource: DuckLakeResource) -> None:
    lake_resource.connect().write("numbers", rows_of([28, 29]))

    @dg.asset
    def later(numbers: pl.LazyFrame) -> pl.LazyFrame:
        lake_resource.connect().table("numbers").append(rows_of([30]))
        assert "numbers" in numbers.explain(), "the plan reads the table"
        return numbers.filter(pl.col("n") > 28).select("n")

    run([dg.AssetSpec("numbers"), later], selection=[later])
    assert lake_resource.connect().table("later").to_arrow().to_pylist() == [{"n": 29}]


def test_one_frame_per_partition_needs_partitions(run: Run, lake_resource: DuckLakeResource) -> None:
    lake_resource.connect().write("numbers", rows_of([28]))

    @dg.asset
    def reader(numbers: dict[str, pa.Table]) -> None: ...

    result = run([dg.AssetSpec("numbers"), reader], selection=[reader], raise_on_error=False)
    assert "annotated as a dict of frames, one per partition, but it has no partitions" in str(cause(result))


def test_contexts_of_unit_tests_need_no_names(lake_resource: DuckLakeResource) -> None:
    manager = DuckLakeIOManager(lake=lake_resource, default_frame="arrow")
    output = dg.build_output_context(asset_key="numbers")
    manager.handle_output(output, rows_of([28]))
    assert manager.load_input(dg.build_input_context(upstream_output=output, asset_key=dg.AssetKey("numbers"))).num_rows == 1
    part = dg.build_output_context(
        asset_key="numbers", partition_key="2026-03-29", asset_partitions_def=DAYS, definition_metadata={"partition_expr": "day"}
    )
    manager.handle_output(part, rows_of([29]))
    assert stored(lake_resource) == [28, 29]


def test_variables_of_the_environment_are_rejected_where_definitions_need_the_value(lake_resource: DuckLakeResource) -> None:
    with pytest.raises(UsageError, match=r"write_mode of DuckLakeIOManager cannot be dg.EnvVar\('MODE'\).*Use os.environ\['MODE'\]"):
        DuckLakeIOManager(lake=lake_resource, write_mode=dg.EnvVar("MODE"))  # type: ignore[arg-type]
