"""A stream that a failed call has looked into is still written whole."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError
from tests.support.oracle import LakeAddress

FAILURES: list[dict[str, Any]] = [
    {},
    {"mode": "upsert", "on": ["zzz"], "schema_evolution": "additive"},
    {"mode": "overwrite", "where": "nonsense > 1", "schema_evolution": "additive"},
]


def _stream() -> pa.RecordBatchReader:
    batches = [pa.record_batch({"a": [number], "b": [number]}) for number in range(3)]
    return pa.RecordBatchReader.from_batches(batches[0].schema, iter(batches))


@pytest.mark.parametrize("count", range(1, 4))
def test_writes(sqlite_address: LakeAddress, count: int) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.create_table("t", {"a": "int64"})
    stream = _stream()
    for arguments in FAILURES[:count]:
        with pytest.raises(DuckLakeError):
            lake.write("t", stream, **arguments)
    lake.write("t", stream, schema_evolution="additive")
    assert lake.table("t").to_arrow().sort_by("a").to_pylist() == [{"a": number, "b": number} for number in range(3)]


def test_merges(sqlite_address: LakeAddress) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.create_table("t", {"a": "int64", "b": "int64"})
    stream = _stream()
    for wrong in ("c", "nonono"):
        with pytest.raises(DuckLakeError):
            lake.table("t").merge(stream, on=wrong).when_not_matched_insert().execute()
    lake.table("t").merge(stream, on="a").when_not_matched_insert().execute()
    assert lake.table("t").scan().count() == 3


def test_upserts_do_not_take_fields_away(sqlite_address: LakeAddress) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.write("t", pa.table({"k": [1], "s": [{"a": 1, "b": 2}]}))
    for arguments in ({}, {"missing_columns": "null"}, {"schema_evolution": "additive"}):
        with pytest.raises(DuckLakeError, match=r"lacks .*s\.b"):
            lake.write("t", pa.table({"k": [1], "s": [{"a": 5}]}), mode="upsert", on=["k"], **arguments)
    assert lake.table("t").to_arrow().to_pylist() == [{"k": 1, "s": {"a": 1, "b": 2}}]


@pytest.mark.parametrize("read_at", [-1, 10**6])
def test_read_at_is_a_snapshot_of_the_lake(sqlite_address: LakeAddress, read_at: int) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.write("t", pa.table({"a": [1]}))
    with pytest.raises(DuckLakeError, match="read_at"):
        lake.table("t").overwrite(pa.table({"a": [2]}), read_at=read_at)


def test_short_floats_of_streams_fit_integers(sqlite_address: LakeAddress) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.create_table("t", {"a": "int32"})
    lake.write("t", pa.table({"a": pa.array([2.0], pa.float16())}).to_reader())
    with pytest.raises(DuckLakeError, match="not a whole number"):
        lake.write("t", pa.table({"a": pa.array([2.5], pa.float16())}).to_reader())
    assert lake.table("t").to_arrow()["a"].to_pylist() == [2]
