"""A stream that a failed call has looked into is still written whole."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError

FAILURES: list[dict[str, Any]] = [
    {},
    {"mode": "upsert", "on": ["zzz"], "schema_evolution": "additive"},
    {"mode": "overwrite", "where": "nonsense > 1", "schema_evolution": "additive"},
]


def _stream() -> pa.RecordBatchReader:
    batches = [pa.record_batch({"a": [number], "b": [number]}) for number in range(3)]
    return pa.RecordBatchReader.from_batches(batches[0].schema, iter(batches))


@pytest.mark.parametrize("count", range(1, 4))
def test_writes(small: DuckLake, count: int) -> None:
    small.create_table("t", {"a": "int64"})
    stream = _stream()
    for arguments in FAILURES[:count]:
        with pytest.raises(DuckLakeError):
            small.write("t", stream, **arguments)
    small.write("t", stream, schema_evolution="additive")
    assert small.table("t").to_arrow().sort_by("a").to_pylist() == [{"a": number, "b": number} for number in range(3)]


def test_merges(small: DuckLake) -> None:
    small.create_table("t", {"a": "int64", "b": "int64"})
    stream = _stream()
    for wrong in ("c", "nonono"):
        with pytest.raises(DuckLakeError):
            small.table("t").merge(stream, on=wrong).when_not_matched_insert().execute()
    small.table("t").merge(stream, on="a").when_not_matched_insert().execute()
    assert small.table("t").scan().count() == 3


def test_upserts_do_not_take_fields_away(small: DuckLake) -> None:
    small.write("t", pa.table({"k": [1], "s": [{"a": 1, "b": 2}]}))
    for arguments in ({}, {"missing_columns": "null"}, {"schema_evolution": "additive"}):
        with pytest.raises(DuckLakeError, match=r"lacks .*s\.b"):
            small.write("t", pa.table({"k": [1], "s": [{"a": 5}]}), mode="upsert", on=["k"], **arguments)
    assert small.table("t").to_arrow().to_pylist() == [{"k": 1, "s": {"a": 1, "b": 2}}]


@pytest.mark.parametrize("read_at", [-1, 10**6])
def test_read_at_is_a_snapshot_of_the_lake(small: DuckLake, read_at: int) -> None:
    small.write("t", pa.table({"a": [1]}))
    with pytest.raises(DuckLakeError, match="read_at"):
        small.table("t").overwrite(pa.table({"a": [2]}), read_at=read_at)


def test_short_floats_of_streams_fit_integers(small: DuckLake) -> None:
    small.create_table("t", {"a": "int32"})
    small.write("t", pa.table({"a": pa.array([2.0], pa.float16())}).to_reader())
    with pytest.raises(DuckLakeError, match="not a whole number"):
        small.write("t", pa.table({"a": pa.array([2.5], pa.float16())}).to_reader())
    assert small.table("t").to_arrow()["a"].to_pylist() == [2]
