"""Every type, alone and in lists, read into every kind of frame and written again: equal values, or an error that names the column."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake, Table
from ducklake_core.errors import DuckLakeError, SchemaError, UnsupportedFeatureError
from ducklake_core.format.types.data_types import (
    DATE,
    GEOMETRY,
    INT64,
    INTERVAL,
    JSON,
    TIME,
    TIMESTAMP,
    TIMESTAMP_MS,
    TIMESTAMP_S,
    TIMESTAMPTZ,
    UINT64,
    UUID,
    VARIANT,
    DataType,
)
from tests.behaviour.types.samples import FILE_TYPES, TYPES, constant, strings_of
from tests.support.oracle import Oracle, attached, sqlite_lake
from tests.support.parameters import spread

_BEYOND_PYTHON = (DATE, TIME, TIMESTAMP, TIMESTAMP_S, TIMESTAMP_MS, TIMESTAMPTZ)
OUT: dict[str, tuple[Callable[[Table], Any], tuple[DataType, ...]]] = {
    # Each kind of frame with the types that it cannot hold completely; integers next to NULL are floats in pandas.
    "to_pandas": (Table.to_pandas, (INT64, UINT64, UUID, *_BEYOND_PYTHON)),
    "numpy_nullable": (lambda table: table.to_pandas(dtype_backend="numpy_nullable"), (UUID, *_BEYOND_PYTHON)),
    "pyarrow": (lambda table: table.to_pandas(dtype_backend="pyarrow"), ()),
    "to_polars": (Table.to_polars, (INTERVAL,)),
    "to_duckdb": (lambda table: table.to_duckdb().fetchall(), ()),
}
KEEP: dict[str, Callable[[Table], object]] = {
    "update": lambda table: table.update({"n": "n + 0"}),
    "merge": lambda table: table.merge(table.refresh().to_arrow(), on="n").when_matched_update().when_not_matched_insert().execute(),
    "upsert": lambda table: table.upsert(table.refresh().to_arrow(), on="n"),
    "overwrite": lambda table: table.overwrite(table.refresh().to_arrow()),
    "overwrite by itself": lambda table: table.overwrite(table.refresh().scan()),
    "no rows": lambda table: table.merge(table.refresh().to_arrow().slice(0, 0), on="n").when_matched_update().execute(),
}


@pytest.fixture(scope="module")
def duck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    """A lake with a table of samples for each type, and one with all of them side by side."""
    place: Path = tmp_path_factory.mktemp("types")
    with attached(sqlite_lake(place)) as duck:
        # DuckDB cannot read its own inlined lists of JSON.
        duck.run("CALL lake.set_option('data_inlining_row_limit', 0)")
        for number, data_type in enumerate(FILE_TYPES):
            strings = [*strings_of(data_type, in_file=True), None]
            rows = ", ".join(f"({row}, {constant(text, TYPES[data_type])})" for row, text in enumerate(strings))
            duck.run(f"CREATE TABLE t{number} AS SELECT n, v, [v, v] AS l, {{'f': v}} AS s FROM (VALUES {rows}) AS samples(n, v)")
        columns = ", ".join(f"t{i}.v AS v{i}, t{i}.l AS l{i}, t{i}.s AS s{i}" for i in range(len(FILE_TYPES)))
        joins = " ".join(f"LEFT JOIN t{i} USING (n)" for i in range(len(FILE_TYPES)))
        duck.run(f"CREATE TABLE every AS SELECT n, {columns} FROM (SELECT unnest(range(20))::INTEGER AS n) {joins}")
        yield duck


@pytest.mark.parametrize("way", spread(OUT, 3))
def test_out(way: str, duck: Oracle) -> None:
    lake, (read, rejected) = DuckLake.connect(duck.address.url), OUT[way]
    found = set()
    for number, data_type in enumerate(FILE_TYPES):
        table = lake.table(f"t{number}")
        try:
            assert len(read(table)) == table.count(), data_type
        except DuckLakeError as error:
            assert "column '" in str(error), data_type
            found.add(data_type)
    assert found == set(rejected)


@pytest.mark.parametrize("operation", spread(KEEP, 3))
@pytest.mark.parametrize("inlined", [True, False], ids=["inlined", "in files"])
def test_rows_that_are_written_again_are_the_same(operation: str, inlined: bool, duck: Oracle) -> None:
    lake = DuckLake.connect(duck.address.url)
    rows = lake.table("every").to_arrow().sort_by("n")
    if inlined:
        lacks = {i for i, kind in enumerate(FILE_TYPES) if kind in (JSON, VARIANT, GEOMETRY)}
        rows = rows.select(["n", *(f"{part}{i}" for i in range(len(FILE_TYPES)) for part in "vls" if i not in lacks)]).slice(0, 3)
    lake.set_option("data_inlining_row_limit", 10 if inlined else 0)
    lake.write("again", rows, inline=inlined)
    columns = ", ".join(f"{name}::VARCHAR" for name in rows.column_names)
    before = duck.rows(f"SELECT {columns} FROM lake.again ORDER BY n")
    assert len(before) == len(rows) == lake.table_info("again").inlined_row_count + (0 if inlined else 20)
    KEEP[operation](lake.table("again"))
    after = duck.rows(f"SELECT {columns} FROM lake.again ORDER BY n")
    assert after == before
    lake.drop_table("again")


def test_lists_of_json_come_from_polars(duck: Oracle) -> None:
    """pyarrow's cast of their large lists is an invalid array, which ended the process."""
    lake = DuckLake.connect(duck.address.url)
    own = f"t{FILE_TYPES.index(JSON)}"
    lake.write("polars", lake.table(own).to_polars().select("n", "v", "l"), inline=False)
    assert duck.rows("SELECT n, l::VARCHAR FROM lake.polars ORDER BY n") == duck.rows(f"SELECT n, l::VARCHAR FROM {own} ORDER BY n")


def test_integers_of_128_bits_are_decimals_of_38_digits_elsewhere(duck: Oracle) -> None:
    lake = DuckLake.connect(duck.address.url)
    lake.create_table("huge", {"k": "int32", "v": "int128"})
    table = lake.table("huge")
    table.append(pa.table({"k": [1], "v": ["-" + "9" * 38]}))
    assert [str(value) for value in table.refresh().to_polars()["v"]] == ["-" + "9" * 38]
    assert [str(value) for _, value in table.refresh().to_duckdb().fetchall()] == ["-" + "9" * 38]
    table.append(pa.table({"k": [2], "v": [str(2**127 - 1)]}))
    with pytest.raises(UnsupportedFeatureError, match="column 'v' has integers of 39 digits"):
        table.refresh().to_polars()
    table.update({"k": "k + 1"}, where="k = 1")
    assert sorted(table.refresh().to_arrow().column("k").to_pylist()) == [2, 2]


TAKEN = {
    "int128": [pa.array([5], pa.int64()), pa.array(["5"]), pa.array([5], pa.decimal128(38, 0)), pa.array([5], pa.uint64())],
    "uint128": [pa.array([5], pa.int64()), pa.array(["5"])],
    "timestamp_ns": [pa.array([1500], pa.timestamp("ns")), pa.array([1], pa.timestamp("us")), pa.array([1500], pa.int64())],
    "timestamp": [pa.array([1000], pa.timestamp("ns")), pa.array([1], pa.timestamp("ms"))],
    "timestamp_s": [pa.array([10**9], pa.timestamp("ns"))],
    "interval": [pa.array(["1 day"])],
    "time": [pa.array(["10:00:00"])],
    "timetz": [pa.array(["10:00:00+00"])],
}


@pytest.mark.parametrize(("data_type", "place"), [(name, place) for name, arrays in TAKEN.items() for place in range(len(arrays))])
def test_merges_take_what_appends_take(data_type: str, place: int, tmp_path: Path) -> None:
    lake = DuckLake.create(f"sqlite:///{tmp_path}/lake.sqlite", data_path=str(tmp_path / "files"))
    lake.create_table("t", {"k": "int32", "v": data_type})
    table = lake.table("t")

    def rows(key: int) -> pa.Table:
        return pa.table({"k": pa.array([key], pa.int32()), "v": TAKEN[data_type][place]})

    table.append(rows(1))
    table.append(pa.table({"k": pa.array([2], pa.int32()), "v": pa.nulls(1)}))
    for key in (2, 3):
        table.merge(rows(key), on="k").when_matched_update().when_not_matched_insert().execute()
    appended, updated, inserted = table.refresh().to_arrow().sort_by("k").column("v").to_pylist()
    assert appended == updated == inserted is not None


def test_a_merge_rejects_values_that_lose_digits(tmp_path: Path) -> None:
    lake = DuckLake.create(f"sqlite:///{tmp_path}/lake.sqlite", data_path=str(tmp_path / "files"))
    lake.create_table("t", {"k": "int32", "v": "timestamp"})
    source = pa.table({"k": pa.array([1], pa.int32()), "v": pa.array([1500], pa.timestamp("ns"))})
    with pytest.raises(SchemaError, match="column 'v'"):
        lake.table("t").merge(source, on="k").when_not_matched_insert().execute()
