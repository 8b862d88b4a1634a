"""Frames without rows: their columns do not matter, they add nothing, and an overwrite deletes what it would replace."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import NotFoundError, SchemaError, UsageError
from tests.support.oracle import LakeAddress, attached

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTHING = pa.schema([])
OTHER = pa.schema([("zz", pa.date32()), ("n", pa.string())])
UNTYPED: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pd.DataFrame({"d": [], "s": []}),
    "pandas without columns": pd.DataFrame,
    "pandas of a list": lambda: pd.DataFrame([]),
    "filtered pandas": lambda: pd.DataFrame({"d": ["x"], "n": [1.5]}).query("n > 2"),
    "Arrow": lambda: pa.Table.from_pylist([]),
    "Arrow nulls": lambda: pa.table({"d": pa.nulls(0), "n": pa.array([], pa.int64())}),
    "list": list,
    "polars": pl.DataFrame,
    "polars nulls": lambda: pl.DataFrame({"d": []}),
    "stream": lambda: pa.RecordBatchReader.from_batches(NOTHING, []),
}
TYPED: dict[str, Callable[[], Any]] = {
    "other Arrow": OTHER.empty_table,
    "other polars": lambda: pl.DataFrame(schema={"zz": pl.Date, "n": pl.String}),
    "other stream": lambda: OTHER.empty_table().to_reader(),
    "stream of batches": lambda: pa.RecordBatchReader.from_batches(OTHER, iter([pa.RecordBatch.from_pylist([], schema=OTHER)] * 3)),
}
EVERY = {**UNTYPED, **TYPED}
ROWS = [{"d": "a", "n": 1}, {"d": "a", "n": 2}, {"d": "b", "n": 3}]


def new_lake(address: LakeAddress, **how: Any) -> DuckLake:
    return DuckLake.create(address.url, data_path=address.data_path, **how)


def rows(small: DuckLake, name: str = "t") -> list[Any]:
    return sorted(small.table(name).scan().to_arrow().to_pylist(), key=lambda row: row["n"])


@pytest.mark.parametrize("name", UNTYPED)
def test_without_rows_and_types_no_table_is_created(name: str, small: DuckLake) -> None:
    for how in ({}, {"mode": "overwrite"}, {"mode": "upsert", "on": ["d"]}, {"schema_evolution": "additive"}):
        done = small.write("s.t", UNTYPED[name](), **how)  # type: ignore[arg-type]
        assert (done.committed, done.created_table, done.table, done.table_id, done.rows_added) == (False, False, "s.t", 0, 0)
    with small.transaction() as tx:
        tx.write("s.t", UNTYPED[name]())
        tx.write("other", [{"a": 1}])
    assert [(write.table, write.committed) for write in tx.result.writes] == [("main.other", True), ("s.t", False)]
    assert list(small) == ["main.other"]
    assert [schema.name for schema in small.schemas()] == ["main"]
    with pytest.raises(NotFoundError):
        small.write("t", UNTYPED[name](), create=False)


@pytest.mark.parametrize("name", TYPED)
def test_columns_that_all_have_types_create_a_table(name: str, small: DuckLake) -> None:
    done = small.write("t", TYPED[name]())
    assert (done.committed, done.created_table) == (True, True)
    assert [str(column.type) for column in small.table("t").schema] == ["date", "varchar"]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("inline", [True, False])
def test_frames_without_rows_fit_every_table(name: str, inline: bool, small: DuckLake) -> None:
    small.write("t", ROWS, partition_by=["d"], inline=inline)
    table, make = small.table("t"), EVERY[name]
    for evolution in ("strict", "additive"):
        how: Any = {"schema_evolution": evolution}
        for done in (
            table.append(make(), **how),
            table.append(make(), missing_columns="error", **how),
            table.upsert(make(), on="d", **how),
            table.overwrite(make(), partitions="in_data", **how),
            table.overwrite(make(), where="d = 'none'", **how),
        ):
            assert not done.committed
    assert rows(small) == ROWS
    assert small.table("t").schema == table.schema
    assert table.overwrite(make(), where="n = 1").rows_deleted == 1
    assert table.overwrite(make(), partitions=[{"d": "b"}]).rows_deleted == 1
    assert rows(small) == ROWS[1:2]
    assert table.overwrite(make(), schema_evolution="additive").rows_deleted == 1
    assert rows(small) == []
    assert small.table("t").schema == table.schema


@pytest.mark.parametrize("name", EVERY)
def test_merges_of_sources_without_rows(name: str, small: DuckLake) -> None:
    small.write("t", ROWS)
    table, make = small.table("t"), EVERY[name]
    assert not table.merge(make(), on="d").when_matched_update().when_not_matched_insert().execute().committed
    flagged = table.merge(make(), on="d").when_matched_delete(where="s.op = 'D'").when_not_matched_insert({"d": "s.d"})
    assert flagged.when_not_matched_by_source_delete(where="t.n = 3").execute().rows_deleted == 1
    assert table.merge(make(), on="d").when_not_matched_by_source_update({"n": "t.n + 10"}).execute().rows_updated == 2
    assert [row["n"] for row in rows(small)] == [11, 12]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_on_every_catalog(lake_address: LakeAddress, version: str) -> None:
    small = new_lake(lake_address, version=version)
    small.write("t", ROWS)
    small.table("t").append([])
    small.table("t").overwrite(pd.DataFrame(), where="d = 'a'")
    small.write("t2", pd.DataFrame({"d": []}))
    assert rows(small) == ROWS[2:]
    if version == "1.0":
        with attached(lake_address) as duck:
            assert duck.rows("FROM t") == [("b", 3)]


def test_rows_without_columns_are_no_frame_without_rows(small: DuckLake) -> None:
    small.write("t", ROWS)
    two = pa.table({"a": [1, 2]}).select([])
    for make in (lambda: two, two.to_reader, lambda: pd.DataFrame(index=[0, 1]), lambda: [{}, {}]):
        for evolution in ("strict", "additive"):
            with pytest.raises(UsageError, match="without columns"):
                small.write("t", make(), mode="overwrite", schema_evolution=evolution, missing_columns="null")
    assert rows(small) == ROWS


def test_a_stream_that_was_read_raises(small: DuckLake) -> None:
    small.write("t", ROWS)
    table = small.table("t")
    for stream in (pa.Table.from_pylist([ROWS[0], ROWS[0]]).to_reader,):
        with pytest.raises((UsageError, SchemaError)):
            table.merge(stream(), on="d").when_matched_update().when_not_matched_by_source_delete().execute()
        with pytest.raises((UsageError, SchemaError)):
            table.upsert(stream(), on="d")
    assert rows(small) == ROWS


def test_a_stream_that_did_not_fit_still_has_all_rows(small: DuckLake) -> None:
    small.write("t", ROWS[:1])
    table = small.table("t")
    stream = pa.table({"d": ["b", "c"], "n": [2, 3], "new": ["x", "y"]}).to_reader(max_chunksize=1)
    for rejected in (
        lambda: table.append(stream),
        lambda: small.write("t", stream, mode="overwrite"),
        lambda: table.merge(stream, on="none").when_not_matched_insert().execute(),
    ):
        with pytest.raises((SchemaError, NotFoundError)):
            rejected()
    table.append(stream, schema_evolution="additive")
    assert [row["new"] for row in rows(small)] == [None, "x", "y"]
    table.append(stream, schema_evolution="additive")
    assert len(rows(small)) == 3


def test_a_stream_whose_first_batches_are_empty_keeps_its_rows(small: DuckLake) -> None:
    schema = pa.schema([("d", pa.string()), ("n", pa.int64()), ("new", pa.string())])
    batches = [pa.RecordBatch.from_pylist([], schema=schema), pa.RecordBatch.from_pylist([{"d": "x", "n": 1, "new": "y"}], schema=schema)]
    small.write("t", ROWS[:1])
    small.write("t", pa.RecordBatchReader.from_batches(schema, iter([*batches, *batches])), schema_evolution="additive")
    assert [row["new"] for row in rows(small)] == [None, "y", "y"]


@pytest.mark.slow
def test_of_spark(small: DuckLake, spark: SparkSession) -> None:
    for ddl in ("", "zz date, n string", "d string, n bigint", "d string, n void"):
        frame = spark.createDataFrame([], ddl)
        small.write("t", ROWS, mode="overwrite")
        schema = small.table("t").schema
        for evolution in ("strict", "additive"):
            for how in ({"mode": "append"}, {"mode": "upsert", "on": ["d"]}, {"mode": "overwrite", "where": "d = 'none'"}):
                assert not small.write("t", frame, schema_evolution=evolution, **how).committed  # type: ignore[arg-type]
        merge = small.table("t").merge(frame, on="d").when_matched_update().when_not_matched_insert()
        assert merge.when_not_matched_by_source_delete(where="t.n = 3").execute().rows_deleted == 1
        assert small.write("t", frame, mode="overwrite", where="d = 'a'").rows_deleted == 2
        assert rows(small) == []
        assert small.table("t").schema == schema
    assert not small.write("new", spark.createDataFrame([], "")).created_table
    assert not small.write("new", spark.createDataFrame([], "a int, b void")).created_table
    assert small.write("new", spark.createDataFrame([], "a int")).created_table
    with pytest.raises(UsageError, match="Spark DataFrame without columns"):
        small.table("t").overwrite(spark.range(3).select())
