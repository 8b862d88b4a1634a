"""Unsupported inputs raise before any change, with their kind and a supported alternative."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import nanoarrow
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import UsageError
from tests.support.oracle import LakeAddress

LATER = datetime(2020, 1, 1, 5)  # noqa: DTZ001 - a timestamp without a zone
ONE_COLUMN = "it is one column without a name"
REJECTED: dict[str, tuple[Callable[[], Any], str]] = {
    "nothing": (lambda: None, "cannot write a NoneType: pass Arrow data"),
    "text": (lambda: "rows.parquet", "cannot write a str: pass Arrow data"),
    "path": (lambda: Path("rows.parquet"), r"cannot write a pathlib\.\w*Path: pass Arrow data"),
    "no names": (lambda: [{}, {}], "cannot write a list of empty dicts without columns"),
    "rows of strings": (lambda: [{"a": 1}, "b"], "row 1 has type str"),
    "rows of rows": (lambda: [[1, 2]], "row 0 has type list"),
    "numbers as names": (lambda: [{"a": 1}, {1: 1}], "row 1 has column name 1, which is not a string"),
    "mixed values": (lambda: [{"a": 1}, {"a": 2}, {"a": "x"}], r"list of dicts: column 'a': row 2 \('x'\)"),
    "any object": (lambda: [{"a": None}, {"a": object()}], r"list of dicts: column 'a': row 1 "),
    "large and mixed": (lambda: [{"a": 2**70}, {"a": "x"}], "column 'a' mixes integers of more than 64 bits"),
    "dict of columns": (lambda: {"a": [1]}, r"cannot write a dict: pass a table of columns, such as pyarrow\.table"),
    "batches": (lambda: iter([pa.record_batch({"a": [1]})]), r"cannot write a list_iterator: .*RecordBatchReader\.from_batches"),
    "Arrow array": (lambda: pa.array([1]), f"cannot write a pyarrow Int64Array: {ONE_COLUMN}"),
    "chunked array": (lambda: pa.chunked_array([[1]]), f"cannot write a pyarrow ChunkedArray: {ONE_COLUMN}"),
    "nanoarrow array": (lambda: nanoarrow.Array([1], nanoarrow.int32()), ONE_COLUMN),
    "pandas Series": (lambda: pd.Series([1], name="a"), f"cannot write a pandas Series: {ONE_COLUMN}"),
    "polars Series": (lambda: pl.Series("a", [1]), f"cannot write a polars Series: {ONE_COLUMN}"),
    "lazy frame without columns": (pl.LazyFrame, "cannot write a polars LazyFrame without columns"),
    "stream without columns": (
        lambda: pa.table({"a": [1, 2]}).select([]).to_reader(),
        "cannot write a pyarrow RecordBatchReader without columns",
    ),
    "rows without columns": (lambda: pa.table({"a": [1, 2]}).select([]), "cannot write a pyarrow Table without columns"),
    "pandas without columns": (lambda: pd.DataFrame(index=range(3)), "cannot write a pandas DataFrame without columns"),
    "named index": (
        lambda: pd.DataFrame({"a": [1], "b": [2]}).groupby("b").sum(),
        r"pandas DataFrame whose index is named \(b\)\. Convert the index to columns with reset_index\(\)",
    ),
    "mixed pandas": (lambda: pd.DataFrame({"a": [1, "x"]}), r"pandas DataFrame: column 'a' of type object: row 1 \('x'\)"),
    "mixed pandas, missing": (lambda: pd.DataFrame({"a": [math.nan, "x", 1]}), r"column 'a' of type object: row 2 \(1\)"),
    "infinite decimals, pandas": (lambda: pd.DataFrame({"a": [Decimal("inf")]}), r"column 'a' of type object: row 0 \(Infinity\)"),
    "surrogates, pandas": (lambda: pd.DataFrame({"a": ["\ud800"]}), r"column 'a' .*can't encode character '\\ud800'"),
    "strings and bytes, pandas": (lambda: pd.DataFrame({"a": ["x", b"x"]}), "column 'a' mixes strings and bytes"),
    "strings and bytes": (lambda: [{"a": [b"x"]}, {"a": ["x"]}], "column 'a' mixes strings and bytes"),
    "some zones, pandas": (
        lambda: pd.DataFrame({"a": [LATER.replace(tzinfo=None), LATER.replace(tzinfo=UTC), None]}, dtype=object),
        "column 'a' mixes timestamps with and without a time zone",
    ),
    "some zones": (
        lambda: [{"a": {"t": LATER.replace(tzinfo=UTC)}}, {"a": {"t": LATER.replace(tzinfo=None)}}],
        "column 'a' mixes timestamps with and without a time zone",
    ),
    "dates and times, pandas": (
        lambda: pd.DataFrame({"a": [None, date(2020, 1, 1), LATER]}),
        "pandas DataFrame: column 'a' mixes dates and timestamps",
    ),
    "dates and times": (lambda: [{"a": date(2020, 1, 1)}, {"a": LATER}], "dicts: column 'a' mixes dates and timestamps"),
    "dates and times in lists": (lambda: [{"a": [date(2020, 1, 1), LATER]}], "column 'a' mixes dates and timestamps"),
    "time with a zone": (lambda: [{"a": time(1, 2, tzinfo=UTC)}], "column 'a' has times with a time zone"),
    "time with a zone, pandas": (lambda: pd.DataFrame({"a": [{"x": time(1, tzinfo=UTC)}]}), "column 'a' has times with a time zone"),
    "integers and strings, pandas": (
        lambda: pd.DataFrame({"a": [2**70, "x"]}),
        "pandas DataFrame: column 'a' mixes integers of more than 64 bits",
    ),
    "objects, polars": (lambda: pl.DataFrame({"a": [object()]}), "polars DataFrame: column 'a' has type Object"),
    "twice": (lambda: pd.DataFrame([[1, 2]], columns=["a", "a"]), "cannot write a pandas DataFrame: Duplicate column names"),
}


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.write("t", [{"a": 1}])
    return lake


@pytest.mark.parametrize("name", REJECTED)
def test_unsupported_inputs_raise_in_every_operation(name: str, lake: DuckLake) -> None:
    make, message = REJECTED[name]
    table = lake.table("t")
    operations: dict[str, Callable[[Any], object]] = {
        "write": lambda data: lake.write("t", data),
        "append": table.append,
        "overwrite": table.overwrite,
        "upsert": lambda data: table.upsert(data, on="a"),
        "merge": lambda data: table.merge(data, on="a").when_not_matched_insert("all").execute(),
        "create_table_as": lambda data: lake.create_table_as("new", data),
    }
    for operation in operations.values():
        with pytest.raises(UsageError, match=message):
            operation(make())
    assert lake.snapshot().id == 1
    assert table.scan().to_arrow().to_pylist() == [{"a": 1}]


@pytest.mark.parametrize("make", [*(REJECTED[name][0] for name in ("nothing", "path", "named index", "Arrow array")), list, pl.DataFrame])
def test_inputs_without_columns_create_no_table(make: Callable[[], Any], lake: DuckLake) -> None:
    with pytest.raises(UsageError):
        lake.create_table("new", make())
    with pytest.raises(UsageError):
        lake.create_table_as("new", make())
    assert not lake.has_table("new")


def test_columns_of_arrow_schemas_of_other_libraries_are_taken(lake: DuckLake) -> None:
    lake.create_table("of_polars", pl.Schema({"a": pl.Int16, "b": pl.List(pl.String)}))
    lake.create_table("of_nanoarrow", nanoarrow.struct({"a": nanoarrow.int16()}))
    assert [str(column.type) for column in lake.table("of_polars").schema] == ["int16", "list<varchar>"]
    assert lake.table("of_nanoarrow").schema.names == ("a",)


def test_rows_as_dicts_may_name_different_columns(lake: DuckLake) -> None:
    lake.write("new", [{"a": 1}, {"b": "x", "a": None}, {"b": None, "c": 2**63}, {"d": -(2**100)}])
    assert [str(column.type) for column in lake.table("new").schema] == ["int64", "varchar", "uint64", "int128"]
    assert lake.table("new").scan().to_arrow().column("c").to_pylist() == [None, None, 2**63, None]
    assert int(lake.table("new").scan().to_arrow().column("d").to_pylist()[3]) == -(2**100)


def test_labels_of_rows_without_a_name_are_no_column(lake: DuckLake) -> None:
    frame = pd.DataFrame({"a": [5, 6, 7]})
    lake.table("t").overwrite(frame[frame.a > 5])
    assert lake.table("t").scan().to_arrow().to_pylist() == [{"a": 6}, {"a": 7}]
