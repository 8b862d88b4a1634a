"""Columns of Polars and pandas whose Arrow form other libraries do not read keep their values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError, SchemaError
from ducklake_core.format.types.data_types import INT128, TIMESTAMP, TIMESTAMP_NS, UINT128, VARCHAR
from tests.support.oracle import LakeAddress, attached

TEXT = pl.Categorical
CATEGORIES = pl.DataFrame(
    {"k": ["a", "b", None], "e": ["lo", "hi", None], "l": [["x"], None, []], "s": [{"q": "x"}, {"q": None}, None], "n": [1, 2, 3]},
    schema={"k": TEXT, "e": pl.Enum(["lo", "hi"]), "l": pl.List(TEXT), "s": pl.Struct({"q": TEXT}), "n": pl.Int64},
)


@pytest.mark.parametrize("limit", [0, 10], ids=["files", "inlined"])
def test_categories_of_polars_are_strings(small: DuckLake, sqlite_address: LakeAddress, limit: int) -> None:
    small.set_option("data_inlining_row_limit", limit)
    wanted = CATEGORIES.to_dicts()
    small.write("t", CATEGORIES)
    assert small.table("t").schema.column("k").type == VARCHAR
    assert small.table("t").to_polars().sort("n").to_dicts() == wanted
    table = small.table("t")
    table.set_partitioned_by(["k"])
    small.write("t", CATEGORIES[:2].with_columns(n=pl.col("n") + 10), mode="overwrite", partitions="in_data")
    table.upsert(CATEGORIES[1:2].with_columns(n=pl.lit(99, pl.Int64)), on=["k"])
    assert small.table("t").scan(where="k = 'b' AND e = 'hi'").to_arrow()["n"].to_pylist() == [99]
    small.close()
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT k, e, l, s.q, n FROM t ORDER BY n") == [
            (None, None, [], None, 3),
            ("a", "lo", ["x"], "x", 11),
            ("b", "hi", None, None, 99),
        ]


def test_integers_of_128_bits_keep_their_digits(small: DuckLake) -> None:
    small.write("p", pl.DataFrame({"i": [2**100, None], "u": [2**127, 1]}, schema={"i": pl.Int128, "u": pl.UInt128}))
    assert [column.type for column in small.table("p").schema] == [INT128, UINT128]
    assert small.table("p").to_arrow().to_pylist() == [{"i": Decimal(2**100), "u": Decimal(2**127)}, {"i": None, "u": Decimal(1)}]
    small.write("d", pd.DataFrame({"f": [1.5, None], "i": [-(2**70), None], "s": ["x", None]}))
    assert small.table("d").schema.column("i").type == INT128
    small.write("d", pd.DataFrame({"f": [1], "i": [2**63], "s": [None]}))
    with pytest.raises(SchemaError, match="column 'i'"):
        small.write("d", pd.DataFrame({"f": [1], "i": [2**127], "s": [None]}))
    assert sorted(small.table("d").to_arrow()["i"].drop_null().to_pylist()) == [Decimal(-(2**70)), Decimal(2**63)]


@pytest.mark.parametrize("make", [pd.DataFrame, lambda columns: pd.DataFrame(columns).to_dict("records")], ids=["pandas", "dicts"])
def test_nanoseconds_in_object_columns_are_kept(small: DuckLake, make: type[pd.DataFrame]) -> None:
    fine = pd.Timestamp("2020-01-01 00:00:00.000000001")
    objects = {
        "t": pd.Series([fine, None], dtype=object),
        "l": [[fine], None],
        "s": [{"t": fine, "d": date(2020, 1, 1)}, None],
        "m": pd.Series([pd.Timestamp("2020-01-01"), pd.NaT], dtype=object),
        "d": [date(2020, 1, 1), None],
    }
    small.write("t", make(objects))
    types = {column.name: column.type for column in small.table("t").schema}
    assert (types["t"], types["m"]) == (TIMESTAMP_NS, TIMESTAMP)
    first = small.sql("SELECT t::VARCHAR AS t, l[1]::VARCHAR AS l, s.t::VARCHAR AS s FROM t WHERE t IS NOT NULL").to_arrow().to_pylist()
    assert first == [dict.fromkeys("tls", str(fine))]
    small.sql("CREATE TABLE u (t TIMESTAMP)")
    with pytest.raises(SchemaError, match="row 0: column 't'"):
        small.write("u", make({"t": pd.Series([fine], dtype=object)}))
    small.write("u", make({"t": pd.Series([pd.Timestamp("2020-01-01 05:00")], dtype=object)}))
    assert small.table("u").to_arrow()["t"].to_pylist() == [datetime(2020, 1, 1, 5)]  # noqa: DTZ001 - the type has no zone


@pytest.mark.parametrize("inline", [True, False], ids=["inlined", "files"])
def test_run_end_encoded_columns_are_read(small: DuckLake, inline: bool) -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 5], pa.int32()), pa.array(["ä", None, "b"]))
    lists = pa.RunEndEncodedArray.from_arrays(pa.array([5], pa.int32()), pa.array([[1]]))
    small.write("t", pa.table({"r": runs, "s": pa.StructArray.from_arrays([runs], ["r"]), "l": lists}).slice(1, 3), inline=inline)
    assert small.table("t").to_arrow().to_pylist() == [{"r": x, "s": {"r": x}, "l": [1]} for x in ("ä", None, "b")]


class Celsius(pa.ExtensionType):
    """A type of another package, which Python cannot hash."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Celsius:
        return cls()


INTERVALS = pa.month_day_nano_interval()
UNSTORABLE: dict[str, tuple[Callable[[], Any], str]] = {
    "nanoseconds": (lambda: pa.table({"c": pa.array([(0, 0, 1000), (0, 0, 1)], INTERVALS)}), "row 1: column 'c': .*nanoseconds"),
    "nested nanoseconds": (lambda: pa.table({"c": pa.array([[(0, 0, 1)]], pa.list_(INTERVALS))}), "row 0: column 'c.*nanoseconds"),
    "300 years": (lambda: pa.table({"c": pa.array([110_000 * 86_400], pa.duration("s"))}), "row 0: column 'c': .*110,000 days is longer"),
    "times with a zone": (lambda: duckdb.sql("SELECT TIMETZ '10:00:00+02' AS c"), "column 'c' .* export TIME WITH TIME ZONE"),
    "nested times": (lambda: duckdb.sql("SELECT [{'t': TIMETZ '10:00:00+02'}] AS c"), "column 'c' .* export TIME WITH TIME ZONE"),
    "bits": (lambda: duckdb.sql("SELECT MAP {'a': '101'::BIT} AS c"), "column 'c' of a DuckDB relation: DuckDB does not export BIT"),
    "large integers": (lambda: duckdb.sql("SELECT [(2::UHUGEINT ** 127)::UHUGEINT] AS c"), "column 'c' .* export UHUGEINT .*DECIMAL"),
    "strings next to UUIDs": (lambda: [{"c": UUID(int=1)}, {"c": "abcdefghijklmnop"}], "column 'c' mixes UUIDs and other values"),
    "nested strings": (lambda: [{"c": [UUID(int=1), "abcdefghijklmnop"]}], "column 'c' mixes UUIDs and other values"),
    "types of others": (lambda: pa.table({"c": pa.ExtensionArray.from_storage(Celsius(), pa.array([1]))}), "column 'c' has Arrow type"),
    "nested Int128": (
        lambda: pl.DataFrame({"c": [[2**100]]}, schema={"c": pl.List(pl.Int128)}),
        "column 'c' has integers of 128 bits inside",
    ),
}


@pytest.mark.parametrize("name", UNSTORABLE)
def test_values_that_would_change_raise_with_the_column(small: DuckLake, name: str) -> None:
    make, message = UNSTORABLE[name]
    for inline in (True, False):
        with pytest.raises(DuckLakeError, match=message):
            small.write("t", make(), inline=inline)
    assert not small.has_table("t")


def test_slices_of_intervals_are_checked_alone(small: DuckLake) -> None:
    values = pa.table({"i": pa.array([(0, 0, 1), (0, 0, 1000), (0, 0, 2000)], INTERVALS)})
    small.write("t", values.slice(1))
    assert small.table("t").count() == 2
    with pytest.raises(DuckLakeError, match="nanoseconds"):
        small.write("t", values.slice(0, 1))


def test_bytes_next_to_uuids_stay_bytes(small: DuckLake) -> None:
    small.write("t", [{"a": {"x": UUID(int=1), "y": bytearray(b"ab")}}])
    assert small.table("t").to_arrow().to_pylist() == [{"a": {"x": UUID(int=1), "y": b"ab"}}]
    small.write("o", pd.DataFrame({"u": pd.Series([UUID(int=1), pd.NA, None], dtype=object)}))
    assert small.table("o").to_arrow()["u"].to_pylist() == [UUID(int=1), None, None]


def test_fields_may_be_called_like_types_of_polars(small: DuckLake) -> None:
    small.write("t", pl.DataFrame({"a": [{"Int128": 1}]}))
    assert small.table("t").to_arrow().to_pylist() == [{"a": {"Int128": 1}}]


def test_other_types_of_duckdb_relations_are_written(small: DuckLake) -> None:
    small.write("t", duckdb.sql("SELECT 'BIT'::ENUM('VARIANT', 'BIT') AS e, {'BIT': 1} AS s, [1, 2]::INTEGER[2] AS a"))
    assert small.table("t").to_arrow().to_pylist() == [{"e": "BIT", "s": {"BIT": 1}, "a": [1, 2]}]


def test_sparse_columns_are_written_as_their_values(small: DuckLake) -> None:
    small.write("t", pd.DataFrame({"n": pd.arrays.SparseArray([0, 0, 7]), "f": pd.arrays.SparseArray([None, 1.5, None])}))
    assert small.table("t").to_arrow().to_pylist() == [{"n": 0, "f": None}, {"n": 0, "f": 1.5}, {"n": 7, "f": None}]


def test_dictionaries_of_string_views_are_read(small: DuckLake) -> None:
    views = pa.array(["b", "a"], pa.string_view())
    small.write("t", pa.table({"c": pa.DictionaryArray.from_arrays(pa.array([0, None, 1]), views)}))
    assert small.table("t").to_arrow()["c"].to_pylist() == ["b", None, "a"]
