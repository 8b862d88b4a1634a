"""Every type, alone and in lists, read into every kind of frame and written again: equal values, or an error that names the column."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ducklake_core import DuckLake, Scan, Table
from ducklake_core.engines.arrow.frame import arrow_data
from ducklake_core.errors import SchemaError, UnsupportedFeatureError, UsageError
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
    VARIANT,
    DataType,
)
from ducklake_core.format.values.arrow_cast import cast_to
from tests.behaviour.types.samples import FILE_TYPES, TYPES, constant, strings_of, table_strings
from tests.support.oracle import Oracle, attached, sql_type, sqlite_lake
from tests.support.parameters import spread

_BEYOND_PYTHON = (DATE, TIME, TIMESTAMP, TIMESTAMP_S, TIMESTAMP_MS, TIMESTAMPTZ)
NESTED = "[v, v] AS l, {'f': v} AS s, MAP {n: v} AS m"
COLUMNS = ("v", "l", "s", "m")
Values = dict[str, list[Any]]


def _python(rows: Scan, backend: Literal["numpy", "numpy_nullable"]) -> Values:
    frame = rows.to_pandas(dtype_backend=backend)
    return {name: plain(frame[name].tolist()) for name in COLUMNS}


def _arrow(rows: Scan, read: Callable[[Scan], pa.Table]) -> Values:
    schema = rows.table.schema.select(COLUMNS)
    return table_strings(cast_to(read(rows), schema, physical=False), schema)


def _pandas_of_arrow(rows: Scan) -> pa.Table:
    frame = rows.to_pandas(dtype_backend="pyarrow")
    # pandas prints dates of Python's years only.
    assert rows.where is None or str(frame)
    return arrow_data(frame[["v", "l", "s"]]).append_column("m", _maps(frame["m"]))


def _maps(values: pd.Series[Any]) -> Any:
    """Return maps, which are lists of pairs in columns of objects."""
    if values.dtype != object:
        return pa.array(values)
    pairs = [None if pairs is None else [(key, None if value is None else str(value)) for key, value in pairs] for pairs in values]
    return pa.array(pairs, pa.map_(pa.int32(), pa.string()))


def _duckdb(rows: Scan) -> Values:
    found = rows.to_duckdb().select(*COLUMNS).fetchall()
    return dict(zip(COLUMNS, zip(*found, strict=True), strict=True))


def plain(value: Any) -> Any:
    """Return a value of a frame with lists for arrays, None for missing values, and one class for times and intervals each."""
    match value:
        case list() | np.ndarray():
            return [plain(one) for one in value]
        case tuple():
            return tuple(plain(one) for one in value)
        case dict():
            return {key: plain(one) for key, one in value.items()}
        case pd.DateOffset():
            return pa.scalar(value).as_py()
        case _ if value is None or pd.isna(value):
            return None
        case datetime() | np.datetime64():
            return pd.Timestamp(value)
        case _:
            return value


OUT: dict[str, tuple[Callable[[Scan], Values], tuple[DataType, ...]]] = {
    # Each kind of frame with the types that it cannot hold completely; integers next to NULL are floats in pandas.
    "to_pandas": (lambda rows: _python(rows, "numpy"), (INT64, UINT64, *_BEYOND_PYTHON)),
    "numpy_nullable": (lambda rows: _python(rows, "numpy_nullable"), _BEYOND_PYTHON),
    "pyarrow": (lambda rows: _arrow(rows, _pandas_of_arrow), ()),
    "to_polars": (lambda rows: _arrow(rows, lambda rows: rows.to_polars().to_arrow().select(COLUMNS)), (TIME, INTERVAL)),
    "to_polars_lazy": (
        lambda rows: _arrow(rows, lambda rows: rows.to_polars_lazy().collect().to_arrow().select(COLUMNS)),
        (TIME, INTERVAL),
    ),
    "to_dataset": (lambda rows: _arrow(rows, lambda rows: rows.to_dataset().to_table(columns=list(COLUMNS))), ()),
    "to_duckdb": (_duckdb, ()),
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
            duck.run(f"CREATE TABLE t{number} AS SELECT n, v, {NESTED} FROM (VALUES {rows}) AS samples(n, v)")
        columns = ", ".join(f"t{i}.v AS v{i}, t{i}.l AS l{i}, t{i}.s AS s{i}" for i in range(len(FILE_TYPES)))
        joins = " ".join(f"LEFT JOIN t{i} USING (n)" for i in range(len(FILE_TYPES)))
        duck.run(f"CREATE TABLE every AS SELECT n, {columns} FROM (SELECT unnest(range(20))::INTEGER AS n) {joins}")
        yield duck


@pytest.mark.parametrize("way", spread(OUT, 2))
def test_out(way: str, duck: Oracle) -> None:
    lake, (read, rejected) = DuckLake.connect(duck.address.url), OUT[way]
    found = set()
    for number, data_type in enumerate(FILE_TYPES):
        table = lake.table(f"t{number}")
        try:
            assert read(table.scan()) == wanted(way, table.scan(), duck), data_type
        except (UnsupportedFeatureError, UsageError) as error:
            assert re.match(r"column '[vlsm]'", error.message), data_type
            found.add(data_type)
            # The first samples fit.
            some = table.scan(where="n < 2")
            if data_type != INTERVAL:
                assert read(some) == wanted(way, some, duck), data_type
    assert found == set(rejected)


def wanted(way: str, rows: Scan, duck: Oracle) -> Values:
    """Return the values of a scan in the form that a kind of frame is read in."""
    if way == "to_duckdb":
        # Times with a zone are times in UTC elsewhere.
        types = [sql_type(rows.table.schema.column(name).type).replace("TIMETZ", "TIME") for name in COLUMNS]
        columns = ", ".join(f"{name}::{kind}" for name, kind in zip(COLUMNS, types, strict=True))
        return dict(zip(COLUMNS, zip(*duck.rows(f"SELECT {columns} FROM {rows.table.name}"), strict=True), strict=True))
    found = rows.to_arrow()
    if way in ("to_pandas", "numpy_nullable"):
        return {name: plain(found.column(name).to_pylist()) for name in COLUMNS}
    return _arrow(rows, lambda _: found.select(COLUMNS))


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


def test_floats_without_order_come_out(small: DuckLake) -> None:
    values = [math.nan, -0.0, math.inf, -math.inf, None, 1.5]
    floats = pa.array(values)
    small.write("t", pa.table({"v": floats, "f": floats.cast(pa.float32()), "l": [[x] for x in values], "s": [{"x": x} for x in values]}))
    table = small.table("t")
    for frame in (table.to_arrow(), table.to_polars().to_arrow(), table.to_dataset().to_table()):
        found = frame.to_pylist()
        assert repr([tuple(row.values()) for row in found]) == repr([(x, x, [x], {"x": x}) for x in values])
    assert repr(table.to_duckdb().fetchall()) == repr([(x, x, [x], {"x": x}) for x in values])
    for backend in ("numpy", "numpy_nullable", "pyarrow"):
        frame = table.to_pandas(dtype_backend=backend)
        assert repr([float("nan") if pd.isna(x) else float(x) for x in frame["v"]]) == "[nan, -0.0, inf, -inf, nan, 1.5]"
        assert frame["v"].isna().tolist() == [backend == "numpy", False, False, False, True, False], backend


def test_frames_with_uuids_and_json_can_be_used(small: DuckLake) -> None:
    """pandas and Polars cannot print, compare or sort columns of Arrow's extension types."""
    first, second = UUID(int=1), UUID(int=2)
    small.create_table("t", {"u": "uuid", "j": "json", "l": "uuid[]", "s": "STRUCT(u UUID, j JSON, t TIMESTAMP_NS)"})
    small.sql("INSERT INTO t VALUES (?, '{\"a\": 1}', [?], {'u': ?, 'j': '[]', 't': '2024-01-01 00:00:00.000000001'})", [second] * 3)
    small.sql("INSERT INTO t (u, j) VALUES (?, '2')", [first])
    table = small.table("t")
    for backend in ("numpy", "numpy_nullable", "pyarrow"):
        frame = table.to_pandas(dtype_backend=backend).sort_values("u", ignore_index=True)
        assert "00000002" in str(frame[["u"]])
        assert str(frame)
        assert frame[frame["u"] == second]["j"].str.len().tolist() == [8]
        assert frame.groupby("j").size().tolist() == [1, 1]
        assert frame["l"][1] == [second]
        assert frame["s"][1] == {"u": second, "j": "[]", "t": pd.Timestamp("2024-01-01 00:00:00.000000001")}
    for frame in (table.to_polars(), table.to_polars_lazy().filter(pl.col("j") != "3").collect()):
        assert frame.sort("u").select(pl.col("j").str.len_chars()).to_series().to_list() == [1, 8]
        assert frame["s"].struct.field("j").str.contains("]", literal=True).to_list() in ([True, None], [None, True])
    arrow = table.to_arrow()

    def by_uuid(rows: pa.Table) -> list[Any]:
        return sorted(rows.to_pylist(), key=lambda row: row["u"])

    frames = [table.to_polars(), arrow.to_pylist(), *(table.to_pandas(dtype_backend=kind) for kind in ("numpy", "pyarrow"))]
    for frame in frames:
        small.write("t", frame, mode="overwrite")
        assert by_uuid(small.table("t").to_arrow()) == by_uuid(arrow)
    with pytest.raises(SchemaError, match="column 'u'"):
        small.write("t", pa.table({"u": [b"15 bytes or less"[:15]]}), missing_columns="null")


def test_times_of_the_end_of_the_day_are_not_null_in_polars(small: DuckLake, tmp_path: Path) -> None:
    small.sql("CREATE TABLE t AS SELECT TIME '24:00:00' AS t, [TIME '24:00:00'] AS l, {'t': TIME '24:00:00', 's': 'é'} AS s")
    for name in "tls":
        rows = small.table("t").scan([name])
        for read in (rows.to_polars, rows.to_polars_lazy().collect):
            with pytest.raises(UnsupportedFeatureError, match=f"column '{name}' has the time 24:00:00"):
                read()
    assert small.sql("SELECT s.t::VARCHAR AS t FROM t").to_arrow().to_pylist() == [{"t": "24:00:00"}]
    file = str(tmp_path / "foreign.parquet")
    duckdb.sql(f"COPY (SELECT {{'t': TIME '24:00:00', 's': 'é'}} AS s) TO '{file}'")
    small.create_table("added", {"s": "STRUCT(t TIME, s VARCHAR)"})
    small.add_data_files("added", [file])
    assert small.sql("SELECT s.t::VARCHAR AS t FROM added").to_arrow().to_pylist() == [{"t": "24:00:00"}]


def test_lists_of_json_come_from_polars(duck: Oracle) -> None:
    """pyarrow's cast of their large lists is an invalid array, which ended the process."""
    lake = DuckLake.connect(duck.address.url)
    own = f"t{FILE_TYPES.index(JSON)}"
    lake.create_table("polars", {"n": "int32", "v": "json", "l": "json[]"})
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
