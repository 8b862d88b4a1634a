"""Integers of any width in columns of any other: accepted when they fit, as by DuckDB, and rejected with column and row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import SchemaError
from ducklake_core.format.types.data_types import INTEGERS, DataType, DecimalType
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import spread
from tests.unit.format.samples import SQL_TYPES

EDGES = (0, 1, -1, 127, 128, -128, -129, 255, 256, 32767, 32768, 65535, 65536, 2**31 - 1, 2**31, -(2**31) - 1, 2**32, 2**63 - 1, -(2**63))
TARGETS: tuple[DataType, ...] = (*INTEGERS, DecimalType(precision=4, scale=2))


@pytest.mark.parametrize("inline", spread([True, False], 1), ids=["inlined", "in files"])
def test_a_value_is_taken_when_duckdb_takes_it(inline: bool, small: DuckLake, sqlite_address: LakeAddress) -> None:
    wanted = {data_type: [value for value in EDGES if _duckdb_takes(value, data_type)] for data_type in TARGETS}
    assert any(len(values) < len(EDGES) for values in wanted.values())
    with small.transaction() as tx:
        for number, data_type in enumerate(TARGETS):
            tx.create_table(f"t{number}", {"v": data_type})
            for value in EDGES:
                if value in wanted[data_type]:
                    continue
                with pytest.raises(SchemaError, match=r"row 0: column 'v'"):
                    tx.append(f"t{number}", pa.table({"v": pa.array([value], pa.int64())}), inline=inline)
            tx.append(f"t{number}", pa.table({"v": pa.array(wanted[data_type], pa.int64())}), inline=inline)
    with attached(sqlite_address) as duck:
        for number, data_type in enumerate(TARGETS):
            assert [int(row[0]) for row in duck.rows(f"SELECT v FROM lake.t{number} ORDER BY v")] == sorted(wanted[data_type]), data_type  # type: ignore[call-overload]


def _duckdb_takes(value: int, data_type: DataType) -> bool:
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t (v {SQL_TYPES[data_type]})")
        try:
            connection.execute("INSERT INTO t SELECT ?::BIGINT", [value])
        except duckdb.ConversionException:
            return False
        return True


FRAMES: tuple[Callable[[list[int]], Any], ...] = (
    lambda values: [{"n": value, "k": 0} for value in values],
    lambda values: pd.DataFrame({"n": values, "k": 0}),
    lambda values: pl.DataFrame({"n": values, "k": [0] * len(values)}),
    lambda values: pa.table({"n": values, "k": [0] * len(values)}).to_reader(max_chunksize=50_000),
)


@pytest.mark.parametrize("make", FRAMES, ids=["dicts", "pandas", "polars", "reader"])
@pytest.mark.parametrize("sorted_by", [None, "n"])
def test_the_first_row_that_does_not_fit_is_named_and_nothing_is_written(
    make: Callable[[list[int]], Any], sorted_by: str | None, small: DuckLake
) -> None:
    small.create_table("t", {"k": "int32", "n": "int32"})
    if sorted_by:
        small.table("t").set_sorted_by([sorted_by])
    values = list(range(200_000))
    values[150_007] = 2**31
    values[150_009] = -(2**40)
    with pytest.raises(SchemaError, match=r"main\.t: row 150007: column 'n'.*2147483648") as caught:
        small.table("t").append(make(values))
    assert caught.value.details["row"] == 150_007
    assert caught.value.details["column"] == "n"
    assert small.table("t").scan().count() == 0
    values[150_007] = values[150_009] = 7
    small.table("t").append(make(values))
    assert small.table("t").scan().count() == 200_000


def test_the_row_of_any_other_value_is_named_as_well(small: DuckLake) -> None:
    small.create_table("t", {"u": "uuid", "n": "int32"})
    small.table("t").set_not_null("n")
    with pytest.raises(SchemaError, match=r"row 1: column 'u'"):
        small.table("t").append([{"u": "00000000-0000-0000-0000-000000000000", "n": 1}, {"u": "no uuid", "n": 1}])
    with pytest.raises(SchemaError, match=r"row 2: column 'n' is NOT NULL"):
        small.table("t").append([{"n": 1}, {"n": 2}, {"n": None}], missing_columns="null")


def test_integers_within_lists_and_structs_fit(small: DuckLake) -> None:
    small.create_table("t", {"l": "int32[]", "s": "struct(a int16)"})
    small.table("t").append([{"l": [1, None], "s": {"a": 5}}, {"l": None, "s": None}])
    with pytest.raises(SchemaError, match=r"row 1: column 'l'"):
        small.table("t").append([{"l": [1]}, {"l": [1, 2**31]}], missing_columns="null")
    assert small.table("t").scan().to_arrow().to_pylist() == [{"l": [1, None], "s": {"a": 5}}, {"l": None, "s": None}]


def test_an_upsert_finds_rows_by_integers_of_another_width(small: DuckLake) -> None:
    small.create_table("t", {"k": "int16", "v": "varchar"})
    small.table("t").append([{"k": 1, "v": "a"}, {"k": 2, "v": "b"}])
    small.table("t").upsert([{"k": 2, "v": "B"}, {"k": 3, "v": "c"}], on="k")
    assert sorted(map(tuple, (row.values() for row in small.table("t").scan().to_arrow().to_pylist()))) == [(1, "a"), (2, "B"), (3, "c")]


def test_pandas_counts_nanoseconds_and_a_column_of_microseconds_takes_those_it_can_hold(small: DuckLake) -> None:
    small.create_table("t", {"at": "timestamp"})
    small.table("t").append(pd.DataFrame({"at": [pd.Timestamp("2024-01-15 10:30:00.123456")]}).astype("datetime64[ns]"))
    with pytest.raises(SchemaError, match=r"row 0: column 'at'"):
        small.table("t").append(pd.DataFrame({"at": [pd.Timestamp("2024-01-15 10:30:00.123456789")]}))
    assert small.table("t").scan().to_arrow().column("at").cast(pa.string()).to_pylist() == ["2024-01-15 10:30:00.123456"]


def test_a_column_widens_only_for_values_that_it_does_not_have(small: DuckLake) -> None:
    small.create_table("t", {"n": "int32", "x": "float32"})
    small.table("t").append([{"n": 1, "x": 0.5}], schema_evolution="additive")
    assert [str(column.type) for column in small.table("t").schema] == ["int32", "float32"]
    small.table("t").append([{"n": 2**40, "x": 1e300}], schema_evolution="additive")
    assert [str(column.type) for column in small.table("t").schema] == ["int64", "float64"]
    small.create_table("other", {"n": "int32"})
    small.table("other").append(pa.table({"n": [1]}), schema_evolution="additive")
    assert [str(column.type) for column in small.table("other").schema] == ["int32"]
    small.table("other").append(pa.table({"n": [2**40]}), schema_evolution="additive")
    assert [str(column.type) for column in small.table("other").schema] == ["int64"]


def test_numbers_of_python_are_stored_in_the_width_of_the_column_or_rejected(small: DuckLake) -> None:
    small.create_table("t", {"x": "float32"})
    small.table("t").append([{"x": 0.1}, {"x": float("inf")}])
    with pytest.raises(SchemaError, match=r"1e\+300 cannot be stored exactly as float32"):
        small.table("t").append([{"x": 1e300}])
    assert small.table("t").scan().to_arrow().column("x").to_pylist() == pa.array([0.1, float("inf")], pa.float32()).to_pylist()
