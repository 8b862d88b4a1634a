"""Values are fitted to the table's types where they are exactly the same, and stored values never change."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import SchemaError
from tests.support.oracle import LakeAddress, attached

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Mode = Literal["strict", "additive"]

COLUMNS = {
    "id": "int64", "d": "decimal(19,2)", "i": "int32", "s": "varchar", "ts": "timestamp", "day": "date", "f": "float32", "l": "int64[]",
}  # fmt: skip
FIRST = {
    "id": 9007199254740993, "d": Decimal("1.25"), "i": 7, "s": "x", "ts": datetime(1600, 1, 1), "day": date(2020, 1, 1), "f": 1.5,  # noqa: DTZ001 - the type has no zone
    "l": [9007199254740993],
}  # fmt: skip
MISSING = pd.to_datetime(pd.Series([None]))


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.create_table("t", COLUMNS)
    lake.table("t").append([FIRST])
    return lake


def _types(lake: DuckLake, name: str = "t") -> list[str]:
    return [str(column.type) for column in lake.table(name).schema]


def _pandas(**columns: Any) -> pd.DataFrame:
    missing = {"id": [None], "d": [None], "i": [np.nan], "s": [np.nan], "ts": MISSING, "day": MISSING, "f": [None], "l": [None]}
    return pd.DataFrame({**missing, **columns})


@pytest.mark.parametrize("mode", ["strict", "additive"])
def test_pandas_frames_with_missing_values_fit(lake: DuckLake, mode: Mode) -> None:
    before = _types(lake)
    frame = pd.DataFrame({
        "id": [1, None], "d": [0.1, None], "i": [2.0, None], "s": [np.nan, np.nan], "ts": pd.to_datetime(["2020-01-01 00:00:01.5", None]),
        "day": pd.to_datetime(["2020-01-02", None]), "f": [0.1, None], "l": [[1.0, None], None],
    })  # fmt: skip
    assert frame["id"].dtype == "float64"
    lake.table("t").append(frame, schema_evolution=mode)
    assert _types(lake) == before
    first, second, third = lake.table("t").scan().to_arrow().to_pylist()
    assert first == FIRST
    assert second == {
        "id": 1, "d": Decimal("0.10"), "i": 2, "s": None, "ts": datetime(2020, 1, 1, 0, 0, 1, 500000), "day": date(2020, 1, 2),  # noqa: DTZ001 - the type has no zone
        "f": float(np.float32(0.1)), "l": [1, None],
    }  # fmt: skip
    assert third == dict.fromkeys(COLUMNS)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": [1.5]}, "row 0: column 'id': 1.5 is not a whole number, but the column is int64"),
        ({"d": [0.125]}, r"row 0: column 'd': 0.125 cannot be stored exactly as decimal\(19,2\)"),
        ({"i": [2.0**40]}, "row 0: column 'i': .*1099511627776"),
        ({"s": [1.0]}, "column 's' is varchar in the table and float64 in the data. Cast the data, or change the column"),
        ({"ts": pd.to_datetime(["2020-01-01 00:00:01.0000005"])}, "row 0: column 'ts': .*1577836801000000500"),
        ({"day": pd.to_datetime(["2020-01-02 01:00"])}, "row 0: column 'day': 2020-01-02 01:00:00 cannot be stored exactly as date"),
        ({"l": [[1.5]]}, "row 0: column 'l': 1.5 is not a whole number"),
        ({"id": ["a"]}, "column 'id' is int64 in the table and varchar in the data"),
    ],
)
@pytest.mark.parametrize("mode", ["strict", "additive"])
def test_other_values_are_rejected_with_column_row_and_value(lake: DuckLake, mode: Mode, columns: dict[str, Any], message: str) -> None:
    before = lake.snapshot().id
    with pytest.raises(SchemaError, match=message):
        lake.table("t").append(_pandas(**columns), schema_evolution=mode)
    assert lake.snapshot().id == before
    assert lake.table("t").scan().to_arrow().to_pylist() == [FIRST]


@pytest.mark.parametrize("mode", ["strict", "additive"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_without_a_zone_are_utc_in_timestamptz_columns(small: DuckLake, sqlite_address: LakeAddress, mode: Mode, unit: str) -> None:
    small.create_table("z", {"at": "timestamptz"})
    small.table("z").append(pd.DataFrame({"at": pd.to_datetime(["1965-01-02", None]).astype(f"datetime64[{unit}]")}), schema_evolution=mode)
    assert _types(small, "z") == ["timestamptz"]
    first = int(pd.Timestamp("1965-01-02").timestamp()) * 10**6
    with attached(sqlite_address) as duck:
        assert duck.rows('SELECT epoch_us("at") FROM lake.z ORDER BY "at"') == [(first,), (None,)]
    with pytest.raises(SchemaError, match="row 0: column 'at'"):
        small.table("z").append(pd.DataFrame({"at": pd.Series([1], dtype="datetime64[ns]")}), schema_evolution=mode)


@pytest.mark.parametrize("operation", ["append", "overwrite", "upsert"])
@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.string()])
def test_names_given_twice_are_rejected(small: DuckLake, operation: str, kind: pa.DataType) -> None:
    small.create_table("t", {"id": "int64"})
    twice = pa.Table.from_arrays([pa.array([None], kind)] * 2, names=["id", "id"])
    with pytest.raises(SchemaError, match="'id' twice"):
        getattr(small.table("t"), operation)(twice, **({"on": "id"} if operation == "upsert" else {}))


def test_a_column_widens_only_to_a_type_with_all_of_its_values(lake: DuckLake) -> None:
    table = lake.table("t")
    table.append(_pandas(f=[1e300]), schema_evolution="additive")
    assert _types(lake)[6] == "float64"
    table.append(pl.DataFrame({**{name: None for name in COLUMNS if name != "i"}, "i": [2**40]}), schema_evolution="additive")
    assert _types(lake)[2] == "int64"
    assert lake.table("t").scan(where="id = 9007199254740993").to_arrow().to_pylist() == [FIRST]


@pytest.mark.parametrize("operation", ["upsert", "merge"])
def test_keys_are_fitted_before_they_are_compared(lake: DuckLake, operation: str) -> None:
    """As a float, 9007199254740992 would be equal to 9007199254740993."""
    frame = pd.DataFrame({"id": [9007199254740992.0, np.nan]}).iloc[:1]
    for name in COLUMNS:
        if name != "id":
            frame[name] = pd.Series([None], dtype=object)
    if operation == "upsert":
        lake.table("t").upsert(frame, on="id")
    else:
        lake.table("t").merge(frame, on=["id"]).when_matched_update().when_not_matched_insert().execute()
    assert sorted(lake.table("t").scan(["id"]).to_arrow().column("id").to_pylist()) == [9007199254740992, 9007199254740993]


VALUES: dict[str, tuple[object, object]] = {
    "s": (None, "x"), "n": (np.nan, "x"), "d": (None, date(2020, 1, 1)), "l": (None, [1, 2]), "st": (None, {"a": 1}),
}  # fmt: skip


@pytest.mark.parametrize("inlined", [True, False])
def test_a_column_of_nulls_takes_the_type_of_its_first_values(small: DuckLake, sqlite_address: LakeAddress, inlined: bool) -> None:
    small.write("t", pd.DataFrame({"id": [1, 2], **{name: [nothing] * 2 for name, (nothing, _) in VALUES.items()}}), inline=inlined)
    small.set_comment("t", "a text", column="s")
    frame = pd.DataFrame({"id": [3], **{name: [value] for name, (_, value) in VALUES.items()}})
    with pytest.raises(
        SchemaError, match=r"column 's' is int32 without values in the table, and varchar in the data.*schema_evolution='additive'"
    ):
        small.table("t").append(frame)
    small.table("t").append(frame, schema_evolution="additive", inline=inlined)
    table = small.table("t")
    assert {column.name: str(column.type) for column in table.schema} == {
        "id": "int64", "s": "varchar", "n": "varchar", "d": "date", "l": "list<int64>", "st": "struct<a: int64>",
    }  # fmt: skip
    assert table.column_comments == {"s": "a text"}
    assert table.scan(where="id = 3").to_arrow().to_pylist() == [{"id": 3, **{name: value for name, (_, value) in VALUES.items()}}]
    assert small.table("t", at=1).scan(["id", "s"]).to_arrow().to_pylist() == [{"id": 1, "s": None}, {"id": 2, "s": None}]
    with pytest.raises(SchemaError, match="column 's' is varchar in the table and int64 in the data"):
        small.table("t").append(pd.DataFrame({"id": [3], "s": [5]}), schema_evolution="additive")
    small.close()
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT id, s, d, l FROM lake.t ORDER BY id") == [
            (1, None, None, None), (2, None, None, None), (3, "x", date(2020, 1, 1), [1, 2]),
        ]  # fmt: skip
        duck.run("INSERT INTO lake.t (id, s) VALUES (4, 'four')", "UPDATE lake.t SET s = 'one' WHERE id = 1")
        duck.run("CALL ducklake_flush_inlined_data('lake')", "CALL ducklake_merge_adjacent_files('lake')")
    small = DuckLake.connect(sqlite_address.url)
    found = small.table("t").scan(["id", "s"]).to_arrow().to_pylist()
    assert sorted((row["id"], row["s"]) for row in found) == [(1, "one"), (2, None), (3, "x"), (4, "four")]
    assert small.check(level="rows").findings == ()


NUMBERS: dict[str, pa.Array[Any]] = {
    "float64": pa.array([1.5]), "decimal(4,3)": pa.array([Decimal("1.125")]), "decimal(20,3)": pa.array([Decimal("12345678901234567.125")]),
    "uint64": pa.array([2**64 - 1], pa.uint64()), "int64": pa.array([9007199254740993]), "timestamp": pa.array([datetime(1600, 1, 1)]),  # noqa: DTZ001 - the type has no zone
}  # fmt: skip
FLOATS = ("float64", "decimal(4,3)")
"""Types whose values above a column of float64 holds."""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("expected", list(NUMBERS))
@pytest.mark.parametrize("nothing", [None, np.nan])
def test_a_column_of_nulls_takes_numbers_that_its_first_type_does_not_have(
    small: DuckLake, sqlite_address: LakeAddress, nothing: Any, expected: str, stream: bool
) -> None:
    small.write("t", pd.DataFrame({"id": [1], "v": [nothing]}))
    first = small.snapshot().id
    rows = pa.table({"id": [2], "v": NUMBERS[expected]})
    value = rows.column("v")[0].as_py()
    fits = nothing is not None and expected in FLOATS
    if not stream and not fits:
        with pytest.raises(SchemaError, match="schema_evolution='additive' would change the table"):
            small.table("t").append(rows)
    small.table("t").append(rows.to_reader() if stream else rows, schema_evolution="additive")
    assert small.table("t").scan().to_arrow().to_pylist() == [{"id": 1, "v": None}, {"id": 2, "v": value}]
    assert _types(small) == ["int64", "float64" if fits and not stream else expected]
    assert small.table("t", at=first).scan().to_arrow().to_pylist() == [{"id": 1, "v": None}]
    small.close()
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT * FROM lake.t ORDER BY id") == [(1, None), (2, value)]
        assert duck.rows(f"SELECT * FROM lake.t AT (VERSION => {first})") == [(1, None)]


def test_a_table_without_rows_keeps_the_types_that_it_was_created_with(small: DuckLake) -> None:
    small.create_table("t", {"id": "int64", "price": "decimal(9,2)", "n": "int32"})
    for columns in ({"price": [0.125], "n": [1]}, {"price": [0.5], "n": ["a"]}):
        with pytest.raises(SchemaError):
            small.table("t").append(pa.table({"id": [1], **columns}), schema_evolution="additive")
    small.table("t").append(pa.table({"id": [1], "price": [0.5], "n": [1.0]}).to_reader(), schema_evolution="additive")
    assert _types(small) == ["int64", "decimal(9,2)", "int32"]


def test_a_column_of_nulls_stays_when_another_writer_adds_values(sqlite_address: LakeAddress) -> None:
    from ducklake_core.errors import CommitConflictError

    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.write("t", pa.table({"id": [1], "v": pa.array([None], pa.int32())}))
    tx = lake.transaction()
    tx.__enter__()
    tx.append("t", pa.table({"id": [2], "v": ["x"]}), schema_evolution="additive")
    lake.table("t").append(pa.table({"id": [3], "v": pa.array([3], pa.int32())}))
    with pytest.raises(CommitConflictError):
        tx.__exit__(None, None, None)
    assert sorted(lake.table("t").scan(["v"]).to_arrow().column("v").to_pylist(), key=str) == [3, None]


@pytest.mark.parametrize("mode", ["strict", "additive"])
def test_spark_frames_fit_by_value(lake: DuckLake, spark: SparkSession, mode: Mode) -> None:
    before = _types(lake)
    rows: Callable[..., Any] = spark.createDataFrame
    columns = "id double, d double, i double, s string, ts timestamp_ntz, day date, f float, l array<double>"
    frame = rows([(1.0, 0.1, 2.0, None, None, None, 0.5, [1.0]), (float("nan"), None, None, None, None, None, None, None)], columns)
    lake.table("t").append(frame, schema_evolution=mode)
    assert _types(lake) == before
    found = lake.table("t").scan(["id", "d", "i", "l"], where="id = 1 OR id IS NULL").to_arrow().to_pylist()
    assert {"id": 1, "d": Decimal("0.10"), "i": 2, "l": [1]} in found
    assert len(found) == 2
    with pytest.raises(SchemaError, match=r"1\.5 is not a whole number, but the column is int64"):
        lake.table("t").append(rows([(1.5, 0.1, 2.0, None, None, None, 0.5, [1.0])], columns), schema_evolution=mode)


def test_a_column_of_nulls_takes_the_numbers_of_a_spark_frame(small: DuckLake, spark: SparkSession) -> None:
    small.create_table("t", {"id": "int64", "v": "int32", "w": "int32"})
    small.table("t").append(pa.table({"id": [1], "v": [None], "w": [None]}))
    frame = spark.createDataFrame([(2, 1.5, 4)], "id long, v double, w short")
    small.table("t").append(frame, schema_evolution="additive")
    assert {column.name: str(column.type) for column in small.table("t").schema} == {"id": "int64", "v": "float64", "w": "int32"}
    found = small.table("t").scan(["id", "v", "w"]).to_arrow().sort_by("id").to_pylist()
    assert found == [{"id": 1, "v": None, "w": None}, {"id": 2, "v": 1.5, "w": 4}]
