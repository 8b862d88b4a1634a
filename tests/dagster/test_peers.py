"""Known failures of other IO managers (with the issue numbers of those libraries), each as a case that works here.

The stock ``DbIOManager`` of Dagster, dagster-deltalake, dagster-delta, dagster-iceberg and the PySpark managers of DuckDB and Snowflake
fail, or change more than the run's partitions, in these situations. What other modules test already is listed with their names in
``peers.md``, whose every name is a test.
"""

# No `from __future__ import annotations`: Dagster resolves the annotations of assets that are made in functions here.
import ast
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_dagster import DuckLakeResource
from tests.support.oracle import LakeAddress, attached

Run = Callable[..., dg.ExecuteInProcessResult]
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
ROOT = Path(__file__).parents[2]
DAYS = dg.DailyPartitionsDefinition("2026-03-01", end_date="2026-03-06")
LETTERS = dg.StaticPartitionsDefinition(["a", "b", "c", "d"])
BOTH = dg.MultiPartitionsDefinition({"day": DAYS, "letter": LETTERS})
EXPR = {"day": "day", "letter": "letter"}


def between(start: str, end: str) -> dict[str, str]:
    """Tags of one run over a range."""
    return {RANGE_START: start, RANGE_END: end}


def rows_of(keys: Sequence[str], generation: int = 1) -> pa.Table:
    """A row for each key, of one dimension or of both."""
    parts = [key.split("|") for key in keys]
    columns = {"n": pa.array([generation] * len(keys), pa.int32())}
    names = ["day", "letter"] if parts and len(parts[0]) > 1 else ["day" if parts and parts[0][0].startswith("20") else "letter"]
    for index, name in enumerate(names):
        values = [part[index] for part in parts]
        columns[name] = pa.array([date.fromisoformat(value) for value in values]) if name == "day" else pa.array(values)
    return pa.table(columns)


def asset(definition: Any, expr: Any, generation: int = 1, **how: Any) -> dg.AssetsDefinition:
    """An asset that writes a row for each key of its run."""
    metadata = {"partition_expr": expr, **how.pop("metadata", {})}

    @dg.asset(name="numbers", partitions_def=definition, metadata=metadata, **how)
    def build(context: dg.AssetExecutionContext) -> pa.Table:
        return rows_of(context.partition_keys, generation)

    return build


def stored(lake: DuckLakeResource, *columns: str) -> list[tuple[Any, ...]]:
    table = lake.connect().table("numbers").scan(list(columns)).to_arrow()
    return sorted(tuple(row[name] for name in columns) for row in table.to_pylist())


class TestSlices:
    """Rows that a run replaces."""

    def test_times_as_strings_leave_the_other_days(self, run: Run, lake_resource: DuckLakeResource) -> None:
        """dagster#34064: a predicate that could not be built was taken for no predicate."""

        def build(generation: int) -> dg.AssetsDefinition:
            @dg.asset(name="numbers", partitions_def=DAYS, metadata={"partition_expr": "day"})
            def numbers(context: dg.AssetExecutionContext) -> pa.Table:
                return pa.table({"day": context.partition_keys, "n": [generation] * len(context.partition_keys)})

            return numbers

        run([build(1)], tags=between("2026-03-01", "2026-03-04"))
        run([build(2)], tags=between("2026-03-02", "2026-03-03"))
        days = [("2026-03-01", 1), ("2026-03-02", 2), ("2026-03-03", 2), ("2026-03-04", 1)]
        assert stored(lake_resource, "day", "n") == days

    def test_a_range_that_ends_before_it_starts_changes_nothing(self, run: Run, lake_resource: DuckLakeResource) -> None:
        """The stock manager: "there are (0) key ranges associated with this output"."""
        run([asset(BOTH, EXPR)], tags=between("2026-03-01|a", "2026-03-05|d"))
        before = lake_resource.connect().snapshot().id
        run([asset(BOTH, EXPR, 2)], tags=between("2026-03-02|c", "2026-03-03|b"), raise_on_error=False)
        assert {n for _, n in stored(lake_resource, "day", "n")} == {1}
        assert lake_resource.connect().snapshot().id == before

    @pytest.mark.parametrize("mode", ["overwrite", "merge"])
    def test_a_run_without_partitions_replaces_no_partition(self, run: Run, lake_resource: DuckLakeResource, mode: str) -> None:
        """Every other manager takes a partitioned asset in a run that names no partition for an unpartitioned one: all rows went."""
        run([asset(DAYS, "day")], tags=between("2026-03-01", "2026-03-05"))
        merges = {"write_mode": "merge", "merge_keys": ["day"], "when_not_matched_by_source": "delete"}

        @dg.asset(name="numbers", partitions_def=DAYS, metadata={"partition_expr": "day", **(merges if mode == "merge" else {})})
        def numbers() -> pa.Table:
            return rows_of(["2026-03-02"], 2)

        result = run([numbers], raise_on_error=False)
        (failure,) = [event for event in result.all_events if event.is_step_failure]
        assert "has no partitions" in str(failure.step_failure_data)
        assert len(stored(lake_resource, "day")) == 5

    def test_a_dimension_without_a_column_raises(self, run: Run) -> None:
        """The stock manager's check tested the wrong variable, and ``None in ('b')`` reached the database."""
        result = run([asset(BOTH, {"day": "day"})], partition_key="2026-03-02|b", raise_on_error=False)
        (failure,) = [event for event in result.all_events if event.is_step_failure]
        assert "'letter'" in str(failure.step_failure_data)

    def test_a_write_that_fails_keeps_the_rows_that_it_would_have_replaced(self, run: Run, lake_resource: DuckLakeResource) -> None:
        """Delete and insert were two commits (dagster#14091, pyiceberg#3577): what failed in between had lost rows."""
        run([asset(DAYS, "day")], tags=between("2026-03-01", "2026-03-03"))

        def rows() -> Iterator[pa.RecordBatch]:
            yield from rows_of(["2026-03-02"] * 50_000, 2).to_batches()
            raise ConnectionError("the source is gone")

        @dg.asset(name="numbers", partitions_def=DAYS, metadata={"partition_expr": "day"})
        def failing() -> pa.RecordBatchReader:
            return pa.RecordBatchReader.from_batches(rows_of(["2026-03-02"]).schema, rows())

        before = lake_resource.connect().snapshot().id
        assert not run([failing], partition_key="2026-03-02", raise_on_error=False).success
        assert [n for _, n in stored(lake_resource, "day", "n")] == [1, 1, 1]
        assert lake_resource.connect().snapshot().id == before


class TestInputs:
    """Rows that a run reads."""

    def test_gaps_of_an_input(self, run: Run) -> None:
        """The stock manager fails on keys that do not follow one another."""
        numbers = asset(DAYS, "day")
        run([numbers], tags=between("2026-03-01", "2026-03-05"))
        gaps = dg.SpecificPartitionsPartitionMapping(["2026-03-01", "2026-03-03", "2026-03-05"])
        seen = []

        @dg.asset(ins={"some": dg.AssetIn("numbers", partition_mapping=gaps)})
        def reader(some: pa.Table) -> None:
            seen.append(sorted(day.day for day in some["day"].to_pylist()))

        run([numbers, reader], selection=[reader])
        assert seen == [[1, 3, 5]]

    def test_one_dimension_of_two(self, run: Run) -> None:
        """dagster#17838: a day of a table of days and letters."""
        numbers = asset(BOTH, EXPR)
        run([numbers], tags=between("2026-03-01|a", "2026-03-03|d"))
        seen = []

        @dg.asset(partitions_def=DAYS)
        def reader(numbers: pa.Table) -> None:
            seen.append(sorted((row["day"].day, row["letter"]) for row in numbers.to_pylist()))

        run([numbers, reader], selection=[reader], partition_key="2026-03-02")
        assert seen == [[(2, letter) for letter in "abcd"]]

    def test_a_foreign_table_is_an_input_by_its_spec(self, run: Run, lake_resource: DuckLakeResource) -> None:
        """Schema, table and partition column from an `AssetSpec`; dagster-iceberg wrote one name and read another."""
        lake_resource.connect().write("raw.numbers", rows_of(["2026-03-01", "2026-03-02"]))
        spec = dg.AssetSpec("outside", partitions_def=DAYS, metadata={"schema": "raw", "table": "numbers", "partition_expr": "day"})
        seen = []

        @dg.asset(partitions_def=DAYS)
        def reader(outside: pa.Table) -> None:
            seen.append([day.day for day in outside["day"].to_pylist()])

        run([spec, reader], selection=[reader], partition_key="2026-03-02")
        assert seen == [[2]]


class TestSchemas:
    """Columns and layouts."""

    def frame_of(self, rows: pa.Table, **metadata: Any) -> dg.AssetsDefinition:
        @dg.asset(name="numbers", metadata=metadata)
        def numbers() -> pa.Table:
            return rows

        return numbers

    def test_columns_that_a_frame_lacks_stay(self, run: Run, lake_resource: DuckLakeResource) -> None:
        """dagster-iceberg's `schema_update_mode="update"` dropped them; a new column had no way in at all (dagster#13098)."""
        evolving = {"schema_evolution": "additive", "write_mode": "append"}
        run([self.frame_of(pa.table({"a": [1], "b": [1]}), **evolving)])
        run([self.frame_of(pa.table({"a": [2], "c": [2]}), **evolving)])
        assert stored(lake_resource, "a", "b", "c") == [(1, 1, None), (2, None, 2)]

    def test_types_are_compared_too(self, run: Run, lake_resource: DuckLakeResource) -> None:
        """dagster-iceberg compared names alone."""
        run([self.frame_of(pa.table({"a": pa.array([1], pa.int32())}), schema_evolution="additive")])
        result = run([self.frame_of(pa.table({"a": ["one"]}), schema_evolution="additive")], raise_on_error=False)
        assert not result.success
        assert stored(lake_resource, "a") == [(1,)]

    def test_a_layout_set_by_another_client_stays(self, run: Run, lake_resource: DuckLakeResource, sqlite_address: LakeAddress) -> None:
        """ci#287: partition fields of other clients were removed, and a layout was guessed from the kind of partitions."""
        weekly = dg.WeeklyPartitionsDefinition("2026-03-01", end_date="2026-03-15")

        @dg.asset(name="numbers", partitions_def=weekly, metadata={"partition_expr": "day"})
        def numbers() -> pa.Table:
            return rows_of(["2026-03-02", "2026-03-03"])

        run([numbers], partition_key="2026-03-01")
        assert lake_resource.connect().table("numbers").partition_spec is None
        with attached(sqlite_address) as duck:
            duck.run("ALTER TABLE lake.numbers SET PARTITIONED BY (n, month(day))")
        run([numbers], partition_key="2026-03-01")
        spec = lake_resource.connect().table("numbers").partition_spec
        assert spec is not None
        assert len(spec.fields) == 2


class TestReports:
    """Metadata, names, and what is left alone."""

    def test_the_standard_keys_hold_the_tables_types_and_numbers_that_plot(self, run: Run) -> None:
        """`num_rows`, `table_columns`, 64-bit ids and counts in a JSON string show in no column, chip or plot (dagster#21954)."""
        result = run([asset(DAYS, "day")], partition_key="2026-03-02")
        metadata = result.get_asset_materialization_events()[0].materialization.metadata
        schema = metadata["dagster/column_schema"].value
        assert {column.name: column.type for column in schema.columns} == {"n": "int32", "day": "date"}
        plotted = ("dagster/row_count", "dagster/partition_row_count", "dagster/size_bytes", "ducklake/snapshot_id", "ducklake/rows_added")
        assert all(isinstance(metadata[name].value, int) and metadata[name].value < 2**53 for name in plotted)

    def test_the_programs_logging_stays_as_it_is(self, run: Run) -> None:
        """dagster-delta sets the root logger to DEBUG."""
        root = logging.getLogger()
        before = (root.level, list(root.handlers))
        run([asset(DAYS, "day")], partition_key="2026-03-02")
        assert (root.level, list(root.handlers)) == before


def test_sessions_are_neither_changed_nor_stopped_and_plans_run_once(
    spark: Any, run: Run, lake_resource: DuckLakeResource, tmp_path: Path
) -> None:
    """`builder.config(...).getOrCreate()` changed shared sessions; with `isEmpty()`, `count()` and the write, plans ran thrice."""
    from pyspark.sql import DataFrame

    def counted(rows: Any) -> Any:
        for number, part in enumerate(rows):
            (tmp_path / f"ran-{id(part)}-{number}-{datetime.now(UTC).timestamp()}").touch()
            yield part

    @dg.asset(partitions_def=LETTERS, metadata={"partition_expr": "letter"})
    def numbers() -> DataFrame:
        rows = spark.createDataFrame([(1, "a")], "n INT, letter STRING").coalesce(1)
        return rows.mapInArrow(counted, "n INT, letter STRING")

    before = dict(spark.conf.getAll)
    run([numbers], partition_key="a")
    assert stored(lake_resource, "letter") == [("a",)]
    assert len(list(tmp_path.glob("ran-*"))) == 1
    assert dict(spark.conf.getAll) == before
    assert spark.range(1).count() == 1


def test_every_failure_of_the_list_has_a_test_that_exists() -> None:
    listed = re.findall(r"`(test_\w+)\.py::(?:(\w+)::)?(test_\w+)`", Path(__file__).with_name("peers.md").read_text())
    assert len(listed) > 30
    for file, scratch, name in listed:
        tree = ast.parse((ROOT / "tests" / "dagster" / f"{file}.py").read_text())
        inside = tree if not scratch else next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == scratch)
        assert name in {node.name for node in inside.body if isinstance(node, ast.FunctionDef)}, (file, scratch, name)
