"""Overwrites and upserts that change the table's columns in the same commit: old rows are judged as the new columns see them."""

from __future__ import annotations

import pyarrow as pa

from ducklake_core import DuckLake


def test_a_condition_on_a_widened_column(small: DuckLake) -> None:
    small.write("t", pa.table({"d": pa.array([1, 2], pa.int32())}))
    data = pa.table({"d": pa.array([2**40])})
    small.write("t", data, mode="overwrite", where="d = 1099511627776 OR d = 1", schema_evolution="additive")
    assert sorted(small.table("t").scan().to_arrow().column("d").to_pylist()) == [2, 2**40]


def test_a_condition_on_a_new_column_leaves_older_rows_alone(small: DuckLake) -> None:
    small.write("t", pa.table({"v": [1, 2]}))
    small.write("t", pa.table({"v": [9], "n": ["x"]}), mode="overwrite", where="n = 'x'", schema_evolution="additive")
    assert sorted(small.table("t").scan().to_arrow().column("v").to_pylist()) == [1, 2, 9]


def test_buckets_of_the_former_type_do_not_prune(small: DuckLake) -> None:
    small.create_table("t", pa.schema([("k", pa.int32())]), partition_by=["bucket(16, k)"])
    small.write("t", pa.table({"k": pa.array(range(40), pa.int32())}))
    for key in range(40):
        data = pa.table({"k": pa.array([key], pa.float64())})
        small.write("t", data, mode="overwrite", where=f"k = {key}::DOUBLE", schema_evolution="additive")
    assert sorted(small.table("t").scan().to_arrow().column("k").to_pylist()) == list(range(40))


def test_keys_wider_than_the_column_was(small: DuckLake) -> None:
    small.write("t", pa.table({"k": pa.array([1, 2], pa.int32())}))
    small.write("t", pa.table({"k": pa.array([2, 2**40], pa.int64())}), mode="upsert", on=["k"], schema_evolution="additive")
    assert sorted(small.table("t").scan().to_arrow().column("k").to_pylist()) == [1, 2, 2**40]
