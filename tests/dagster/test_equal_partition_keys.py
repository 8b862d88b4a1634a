"""Partition keys that are two spellings of one value are rejected: each partition would replace the rows of the other."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from itertools import combinations
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_core.errors import UsageError
from ducklake_dagster import DuckLakeIOManager, DuckLakeResource, LocalStorage, SqliteCatalog, validate
from ducklake_dagster.partitions.predicates import reject_equal_keys

Run = Callable[..., dg.ExecuteInProcessResult]
DAY = date(2026, 3, 1)


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    (event,) = [event for event in result.all_events if event.is_step_failure]
    return str(event.step_failure_data.user_failure_data.description)


def asset_of(partitions: dg.PartitionsDefinition[str], value: Any, expr: object = "k", **metadata: Any) -> dg.AssetsDefinition:
    @dg.asset(name="things", partitions_def=partitions, metadata={"partition_expr": expr, **metadata})
    def build() -> pa.Table:
        return pa.table({"k": [value]})

    return build


@pytest.mark.parametrize(
    ("keys", "value", "expr"),
    [(["1", "01"], 1, "k"), (["+7", "8", "7"], 7, "k"), (["1_0", "10"], 10, "k"), (["2026-03-01", "20260301"], DAY, "k"),
     (["2026-03-01", "20260301"], DAY, "CAST(k AS DATE)")],
)  # fmt: skip
def test_static_keys_of_one_value_are_rejected_before_anything_is_written(
    run: Run, lake_resource: DuckLakeResource, keys: list[str], value: Any, expr: str
) -> None:
    result = run([asset_of(dg.StaticPartitionsDefinition(keys), value, expr)], partition_key=keys[-1], raise_on_error=False)
    message = failure_of(result)
    assert "things" in message
    assert all(repr(key) in message for key in keys if key != "8")
    assert not lake_resource.connect().has_table("things")


def test_keys_that_differ_only_as_strings_are_accepted_by_a_varchar_column(run: Run, lake_resource: DuckLakeResource) -> None:
    partitions = dg.StaticPartitionsDefinition(["1", "01"])
    for key in ("1", "01"):
        assert run([asset_of(partitions, key)], partition_key=key).success
    assert sorted(lake_resource.connect().table("things").scan().to_arrow()["k"].to_pylist()) == ["01", "1"]


def test_keys_with_leading_zeros_are_accepted_where_each_is_a_value_of_its_own(run: Run) -> None:
    assert run([asset_of(dg.StaticPartitionsDefinition([f"{month:02}" for month in range(1, 13)]), 2)], partition_key="02").success


def test_dynamic_keys_of_one_value_are_rejected_by_the_write_that_meets_them(run: Run, instance: dg.DagsterInstance) -> None:
    partitions = dg.DynamicPartitionsDefinition(name="numbers")
    instance.add_dynamic_partitions("numbers", ["1", "2"])
    assert run([asset_of(partitions, 1)], partition_key="1").success
    instance.add_dynamic_partitions("numbers", ["01"])
    message = failure_of(run([asset_of(partitions, 1)], partition_key="01", raise_on_error=False))
    assert "'1' and '01'" in message


def test_each_dimension_of_several_is_checked(run: Run) -> None:
    partitions = dg.MultiPartitionsDefinition(
        {"a": dg.StaticPartitionsDefinition(["x", "y"]), "b": dg.StaticPartitionsDefinition(["5", "05"])}
    )

    @dg.asset(name="things", partitions_def=partitions, metadata={"partition_expr": {"a": "a", "b": "b"}})
    def build() -> pa.Table:
        return pa.table({"a": ["x"], "b": [5]})

    message = failure_of(run([build], partition_key=dg.MultiPartitionKey({"a": "x", "b": "5"}), raise_on_error=False))
    assert "'5' and '05'" in message
    assert "column 'b'" in message


@pytest.mark.parametrize(
    ("expr", "declared", "keys"),
    [("k", "INTEGER", ["1", "01"]), ("K", "bigint", ["1", "01"]), ("k", "DATE", ["2026-03-01", "2026-W09-7"]),
     ("CAST(k AS DATE)", None, ["2026-03-01", "20260301"])],
)  # fmt: skip
def test_validation_rejects_them_where_the_type_is_declared(expr: str, declared: str | None, keys: list[str]) -> None:
    schema = dg.TableSchema(columns=[dg.TableColumn("k", declared)]) if declared else None
    metadata = {"dagster/column_schema": schema} if schema else {}
    resource = DuckLakeResource(catalog=SqliteCatalog(path="/nowhere/lake.sqlite"), storage=LocalStorage(data_path="/nowhere/files/"))

    def defs(partition_keys: list[str]) -> dg.Definitions:
        asset = asset_of(dg.StaticPartitionsDefinition(partition_keys), 1, expr, **metadata)
        return dg.Definitions(assets=[asset], resources={"io_manager": DuckLakeIOManager(lake=resource)})

    validate(defs(keys[:1]))
    with pytest.raises(UsageError) as caught:
        validate(defs(keys))
    assert all(repr(key) in str(caught.value) for key in keys)


INTEGERS = ["0", "-0", "00", "+0", "1", "01", " 1", "1 ", "+1", "-1", "-01", "10", "1_0", "٣", "3", "x", ""]
DATES = ["2026-03-01", "20260301", "2026-W09-7", "2026W097", "2026-03-02", "2026-3-1", "x"]


@pytest.mark.parametrize(
    ("type_name", "spellings", "read"), [("int64", INTEGERS, int), ("uint8", INTEGERS, int), ("date", DATES, date.fromisoformat)]
)
def test_every_pair_of_spellings_is_rejected_exactly_when_both_read_as_one_value(
    type_name: str, spellings: list[str], read: Callable[[str], Any]
) -> None:
    def value(key: str) -> Any:
        try:
            return read(key)
        except ValueError:
            return key

    for one, other in combinations(spellings, 2):
        if value(one) != value(other):
            reject_equal_keys([one, other], None, type_name, "k", subject="things")
            continue
        with pytest.raises(UsageError) as caught:
            reject_equal_keys([one, other], None, type_name, "k", subject="things")
        assert caught.value.details["keys"] == (one, other)


@pytest.mark.parametrize(
    ("column", "keys", "text"),
    [
        (pa.array([True]), ["true", "TRUE"], "the same boolean (True)"),
        (pa.array(["1.0"]).cast(pa.decimal128(9, 2)), ["1.0", "1.00"], "the same decimal(9,2) (1.00)"),
        (pa.array([0], pa.timestamp("us")), ["1970-01-01 00:00:00", "1970-01-01"], "the same timestamp"),
        (pa.array([0], pa.timestamp("us", "UTC")), ["1970-01-01 00:00:00+00:00", "1970-01-01 01:00:00+01:00"], "the same timestamptz"),
        (pa.array([0], pa.timestamp("us", "UTC")), ["1970-01-01"], "not all valid as timestamptz"),
        (pa.array([1.0]), ["1.0"], "Use a column of type varchar, boolean"),
        (pa.array([b"1"]), ["1"], "Use a column of type varchar, boolean"),
    ],
)
def test_keys_of_types_with_many_spellings(run: Run, column: pa.Array, keys: list[str], text: str) -> None:
    @dg.asset(name="things", partitions_def=dg.StaticPartitionsDefinition(keys), metadata={"partition_expr": "k"})
    def build() -> pa.Table:
        return pa.table({"k": column})

    assert text in failure_of(run([build], partition_key=keys[0], raise_on_error=False))
