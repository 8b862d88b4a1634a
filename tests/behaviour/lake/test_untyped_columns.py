"""Columns without a type of their own: all NULL in this frame, whatever the table's type is."""

from __future__ import annotations

from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, attached


def test_a_column_of_nulls_fits_every_column(small: DuckLake, sqlite_address: LakeAddress) -> None:
    types = {"s": pa.string(), "d": pa.date32(), "n": pa.decimal128(10, 2), "l": pa.list_(pa.int32()), "r": pa.struct([("x", pa.string())])}
    small.create_table("t", pa.schema([("id", pa.int32()), *types.items()]))
    nulls = {name: pa.nulls(2) for name in types}
    small.table("t").append(pa.table({"id": pa.array([1, 2], pa.int32()), **nulls}))

    assert small.table("t").scan(columns=list(types)).to_arrow().to_pylist() == [dict.fromkeys(types)] * 2
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT * FROM t ORDER BY id") == [(1, *[None] * 5), (2, *[None] * 5)]


NOTHING: list[dict[str, Any]] = [{"k": 1, "a": None, "l": [None], "e": [], "s": {"x": None, "y": [{"z": None}]}}]
FRAMES = {"pandas": pd.DataFrame(NOTHING), "pyarrow": pa.Table.from_pylist(NOTHING), "polars": pl.DataFrame(NOTHING)}


@pytest.mark.parametrize("kind", [*FRAMES, "list"])
def test_nulls_in_lists_and_structs_fit_every_type(small: DuckLake, sqlite_address: LakeAddress, kind: str) -> None:
    """Lists that are all empty have no element type in pyarrow, and fit a column of lists of strings."""
    struct = pa.struct([("Y", pa.list_(pa.struct([("z", pa.decimal128(5, 2))]))), ("x", pa.date32())])
    types = {"k": pa.int64(), "a": pa.string(), "l": pa.list_(pa.string()), "e": pa.list_(pa.list_(pa.bool_())), "s": struct}
    small.create_table("typed", pa.schema(list(types.items())))
    frame = FRAMES.get(kind, NOTHING)
    for mode in ("append", "overwrite", "append", "upsert"):
        small.write("typed", frame, mode=mode, on=["k"] if mode == "upsert" else ())  # type: ignore[arg-type]
    small.write("typed", frame, mode="append")
    small.table("typed").update({"a": "'x'", "k": "2"})
    small.table("typed").merge(frame, on=["k"]).when_not_matched_insert().execute()
    small.table("typed").merge(frame, on=["k"]).when_matched_update().execute()
    with attached(sqlite_address) as duck:
        row = ([None], [], {"Y": [{"z": None}], "x": None})
        assert duck.rows("FROM typed ORDER BY k") == [(1, None, *row), (2, "x", *row), (2, "x", *row)]


@pytest.mark.parametrize("kind", FRAMES)
def test_a_new_column_of_nulls_has_the_type_that_duckdb_gives_it(small: DuckLake, sqlite_address: LakeAddress, kind: str) -> None:
    small.write("own", FRAMES[kind])
    with attached(sqlite_address) as duck:
        duck.connection.register("nothing", FRAMES[kind])
        duck.run("CREATE TABLE by_duckdb AS FROM nothing")
        types = [duck.rows(f"SELECT column_name, column_type FROM (DESCRIBE {table})") for table in ("own", "by_duckdb")]
        struct = "STRUCT(x INTEGER, y STRUCT(z INTEGER)[])"
        assert types[0] == types[1] == [("k", "BIGINT"), ("a", "INTEGER"), ("l", "INTEGER[]"), ("e", "INTEGER[]"), ("s", struct)]
