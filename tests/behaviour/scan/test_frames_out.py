"""Tables, scans and feeds as frames of every kind: the rows that DuckDB has, streamed, and no more files opened than are needed."""

from __future__ import annotations

import builtins
import math
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import nanoarrow
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pytest

from ducklake_core import ChangeFeed, DuckLake, Scan, Table
from ducklake_core.engines.arrow import read
from ducklake_core.errors import UnsupportedFeatureError, UsageError
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import spread
from tests.support.scans import assert_same_rows

COLUMNS = """
    i::INTEGER AS i, (i * 1000000007)::BIGINT AS big, i::UTINYINT AS small, (i / 3)::DECIMAL(18, 4) AS dec, i / 7 AS dbl,
    CASE WHEN i % 3 > 0 THEN 'v' || i END AS text, i % 2 = 0 AS flag, DATE '2024-01-01' + i::INTEGER AS day,
    TIMESTAMP '2024-01-01 10:00:00' + INTERVAL (i) MINUTE AS at, TIMESTAMPTZ '2024-01-01 10:00:00+00' + INTERVAL (i) HOUR AS zoned,
    encode('b' || i) AS raw, [i, i + 1] AS numbers, {'x': i, 'y': 'z' || i} AS pair
"""
WAYS: dict[str, Callable[[Any], pa.Table]] = {
    "to_arrow": lambda rows: rows.to_arrow(),
    "to_reader": lambda rows: rows.to_reader().read_all(),
    "to_batches": lambda rows: pa.Table.from_batches(rows.to_batches()),
    "pa.table": pa.table,
    "polars": lambda rows: rows.to_polars().to_arrow(),
    "pl.DataFrame": lambda rows: pl.DataFrame(rows).to_arrow(),
    # Polars makes a series of structs of every stream that is not pyarrow's own.
    "pl.from_arrow": lambda rows: pl.from_arrow(rows).struct.unnest().to_arrow(),
    "pandas pyarrow": lambda rows: pa.Table.from_pandas(rows.to_pandas(dtype_backend="pyarrow")),
    "polars lazy": lambda rows: rows.to_polars_lazy().collect().to_arrow(),
    "dataset": lambda rows: rows.to_dataset().to_table(),
    "duckdb": lambda rows: rows.to_duckdb().to_arrow_table(),
    "duckdb.sql": lambda rows: duckdb.sql("FROM rows").to_arrow_table(),
    "nanoarrow": lambda rows: pa.table(nanoarrow.ArrayStream(rows)),
}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the data files that are opened."""
    paths: list[str] = []
    original = read.open_parquet

    def counting(storage: Any, path: str, key: Any) -> Any:
        paths.append(path)
        return original(storage, path, key)

    monkeypatch.setattr(read, "open_parquet", counting)
    return paths


@pytest.fixture
def lake(lake_address: LakeAddress) -> Iterator[DuckLake]:
    lake = lake_of_files(lake_address)
    yield lake
    lake.close()


@pytest.fixture
def table(lake: DuckLake) -> Table:
    """Ten files of ten rows."""
    for number in range(10):
        lake.write("t", pa.table({"i": range(number * 10, number * 10 + 10), "file": [number] * 10}))
    return lake.table("t")


@pytest.mark.parametrize("way", spread(WAYS, 6))
def test_every_way_gives_the_rows_that_duckdb_has(way: str, lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        duck.run(
            "CALL lake.set_option('data_inlining_row_limit', 20)",
            f"CREATE TABLE t AS SELECT {COLUMNS} FROM range(100) r(i)",
            "DELETE FROM t WHERE i % 5 = 0",
            f"INSERT INTO t SELECT {COLUMNS} FROM range(100, 105) r(i)",
        )
        found = DuckLake.connect(lake_address.url).table("t")
        assert_same_rows(duck, WAYS[way](found), "SELECT * FROM t")
        assert_same_rows(duck, WAYS[way](found.scan(["text", "i"], "i > 90")), "SELECT text, i FROM t WHERE i > 90")
        feed = found.insertions(2, columns=["rowid", "i"])
        assert_same_rows(
            duck, WAYS[way](feed), f"SELECT rowid, i FROM ducklake_table_insertions('lake', 'main', 't', 2, {found.snapshot_id})"
        )


@pytest.fixture
def ten(sqlite_address: LakeAddress) -> Iterator[Table]:
    """Ten files of ten rows, on SQLite."""
    with lake_of_files(sqlite_address) as lake:
        for number in range(10):
            lake.write("t", pa.table({"i": range(number * 10, number * 10 + 10), "file": [number] * 10}))
        yield lake.table("t")


ROWS_OF_FILTERS: dict[str, tuple[pl.Expr, pds.Expression, int, int]] = {
    "range": (pl.col("i") >= 95, pds.field("i") >= 95, 5, 1),
    "between": (pl.col("i").is_between(18, 21), (pds.field("i") >= 18) & (pds.field("i") <= 21), 4, 2),
    "negated": (~((pl.col("i") > 5) | pl.col("i").is_null()), ~((pds.field("i") > 5) | pds.field("i").is_null()), 6, 1),
    "list": (pl.col("file").is_in([2, 3, 70]), pds.field("file").isin([2, 3, 70]), 20, 2),
    "either": ((pl.col("i") == 3) | (pl.col("file") == 9), (pds.field("i") == 3) | (pds.field("file") == 9), 11, 2),
    "two columns": (pl.col("i") < pl.col("file"), pds.field("i") < pds.field("file"), 0, 10),
    "partly": (
        (pl.col("i") > 92) & (pl.col("i") % 2 == 0),
        (pds.field("i") > 92) & (pc.bit_wise_and(pds.field("i"), pds.scalar(1)) == 0),
        3,
        1,
    ),
}


@pytest.mark.parametrize("name", ROWS_OF_FILTERS)
def test_filters_of_lazy_frames_and_datasets_skip_files(ten: Table, opened: list[str], name: str) -> None:
    in_polars, in_arrow, rows, files = ROWS_OF_FILTERS[name]
    assert ten.to_polars_lazy().filter(in_polars).select("i").collect().height == rows
    assert len(opened) == files
    opened.clear()
    dataset = ten.to_dataset()
    assert dataset.to_table(columns=["i"], filter=in_arrow).num_rows == rows
    assert len(opened) == files
    assert dataset.filter(in_arrow).count_rows() == rows


def test_lazy_frames_and_datasets_read_only_what_they_return(ten: Table) -> None:
    ten.delete("i IN (3, 97)")
    lazy, dataset = ten.to_polars_lazy(), ten.to_dataset()
    assert lazy.select(pl.len()).collect().item() == dataset.count_rows() == 98
    assert lazy.head(4).filter(pl.col("i") < 1000).collect().height == 4
    assert ten.scan(limit=7).to_polars_lazy().filter(pl.col("i") < 1000).collect().height == 7
    assert dataset.head(3).num_rows == 3
    assert dataset.to_table({"next": pds.field("i") + 1}, filter=pds.field("i") == 5).to_pylist() == [{"next": 6}]
    assert duckdb.sql("SELECT count(*), sum(i) FROM dataset WHERE i > 95").fetchall() == [(3, 96 + 98 + 99)]
    assert pl.scan_pyarrow_dataset(dataset).filter(pl.col("i") == 98).collect().height == 1
    assert dataset.sort_by([("i", "descending")]).head(1).column("i").to_pylist() == [99]
    assert dataset.join(ten.scan(["i"]).to_dataset(), "i").count_rows() == 98
    assert pds.dataset(dataset.to_table()).count_rows() == 98


def test_functions_that_bypass_the_scanner_of_a_dataset_raise(ten: Table) -> None:
    dataset = ten.to_dataset()
    for bypass in (
        lambda: pds.Scanner.from_dataset(dataset).to_table(),
        lambda: next(iter(dataset.get_fragments())).to_table(),
        lambda: pds.dataset([dataset]).to_table(),
        lambda: dataset.replace_schema(dataset.schema).to_table(),
    ):
        with pytest.raises(UnsupportedFeatureError, match="only this library applies deletes"):
            bypass()
    with pytest.raises(UnsupportedFeatureError, match="cannot be pickled"):
        pickle.dumps(dataset)


def test_nan_and_null_are_filtered_as_the_library_filters_them(sqlite_address: LakeAddress) -> None:
    """Polars takes NaN for the greatest number, Arrow compares it with nothing."""
    values = pa.table({"x": [1.0, float("nan"), None, 7.0], "flag": [True, False, None, True]})
    lake = lake_of_files(sqlite_address)
    lake.write("t", values)
    table, frame = lake.table("t"), pl.from_arrow(values)
    for condition in (pl.col("x") > 5, ~(pl.col("x") > 5), ~pl.col("x").is_in([1.0]), pl.col("flag"), ~pl.col("flag")):
        assert table.to_polars_lazy().filter(condition).collect().height == frame.filter(condition).height, condition
    for test in (pds.field("x") > 5, ~(pds.field("x") > 5), ~pds.field("x").isin([1.0]), pds.field("flag"), ~pds.field("flag")):
        assert table.to_dataset().to_table(filter=test).num_rows == values.filter(test).num_rows, test


def test_files_of_nan_are_kept_where_arrow_wants_them(sqlite_address: LakeAddress) -> None:
    lake = lake_of_files(sqlite_address)
    for number, value in enumerate([1.0, float("nan"), None]):
        lake.write("t", pa.table({"n": [number], "x": pa.array([value], pa.float64())}))
    table, x = lake.table("t"), pds.field("x")
    rows = table.to_arrow()
    nan = pc.scalar(math.nan)
    for condition in (x != nan, x == nan, x < nan, x.isin([math.nan]), x.is_null(nan_is_null=True), x.is_null()):
        wanted = sorted(rows.filter(condition).column("n").to_pylist())
        assert sorted(table.to_dataset().to_table(filter=condition).column("n").to_pylist()) == wanted, condition


def test_a_relation_can_be_run_again_and_on_a_connection(table: Table) -> None:
    with duckdb.connect() as connection:
        relation = table.scan(where="i >= 95").to_duckdb(connection)
        assert [relation.sum("i").fetchall() for _ in range(2)] == [[(485,)], [(485,)]]


def test_numpy_and_nullable_pandas(lake: DuckLake) -> None:
    lake.write("t", pa.table({"n": [1, None, 3], "s": ["a", None, "c"], "f": [True, None, False]}))
    plain, nullable = (lake.table("t").to_pandas(dtype_backend=kind) for kind in ("numpy", "numpy_nullable"))
    assert str(plain["n"].dtype) == "float64"
    assert [str(kind) for kind in nullable.dtypes] == ["Int64", "string", "boolean"]
    assert nullable["n"].sum() == 4
    with pytest.raises(UsageError, match="dtype_backend must be one of"):
        lake.table("t").to_pandas(dtype_backend="float")  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [[2**53 + 1, None], [-(2**53) - 1, None]], ids=["large", "small"])
def test_numbers_that_floats_cannot_hold_are_not_rounded(lake: DuckLake, values: list[Any]) -> None:
    lake.write("t", pa.table({"n": values}))
    with pytest.raises(UsageError, match=r"column 'n'.*dtype_backend"):
        lake.table("t").to_pandas()
    assert pa.Table.from_pandas(lake.table("t").to_pandas(dtype_backend="pyarrow")).column("n").to_pylist() == values


def test_large_numbers_without_nulls_are_numbers(lake: DuckLake) -> None:
    lake.write("t", pa.table({"n": [2**53 + 1, 2**62]}))
    assert lake.table("t").to_pandas()["n"].tolist() == [2**53 + 1, 2**62]


@pytest.mark.parametrize("make", [lambda t: t, Table.scan, lambda t: t.changes(0)], ids=["table", "scan", "feed"])
def test_a_stream_opens_files_as_it_goes(table: Table, opened: list[str], make: Callable[[Table], Any]) -> None:
    reader = pa.RecordBatchReader.from_stream(make(table))
    assert opened == []
    reader.read_next_batch()
    assert len(opened) == 1
    reader.read_next_batch()
    assert len(opened) > 1, "from the second on, threads read ahead, several small files at a time"


def test_duckdb_plans_once_for_all_its_streams(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    import ducklake_core.scan as module

    plans = []
    original = module.plan_scan
    monkeypatch.setattr(module, "plan_scan", lambda *args, **more: plans.append(1) or original(*args, **more))
    scan = table.scan()  # noqa: F841 - DuckDB finds it by its name
    assert duckdb.sql("SELECT count(*) FROM scan").fetchall() == [(100,)]
    assert len(plans) == 1


@pytest.mark.parametrize(("count", "files"), [(0, 0), (1, 1), (10, 1), (11, 2), (25, 3), (1000, 10)])
def test_a_limit_opens_only_the_files_that_it_needs(table: Table, opened: list[str], count: int, files: int) -> None:
    for scan in (table.limit(count), table.scan(limit=count)):
        opened.clear()
        assert scan.to_arrow().num_rows == min(count, 100)
        assert len(opened) == files
        assert len(scan.plan().plan.tasks) == files
    opened.clear()
    assert table.head(count).num_rows == min(count, 100)
    assert len(opened) == files


def test_a_limit_under_a_condition_stops_when_it_has_the_rows(table: Table, opened: list[str]) -> None:
    scan = table.scan(where="i % 10 = 3").limit(2)
    assert scan.to_arrow().column("i").to_pylist() == [3, 13]
    assert len(opened) == 2
    opened.clear()
    assert scan.count() == 2
    assert len(opened) == 2


def test_a_limit_counts_deleted_rows(lake: DuckLake, table: Table, opened: list[str]) -> None:
    table.delete("i < 9")
    opened.clear()
    fresh = lake.table("t")
    assert fresh.limit(2).to_arrow().num_rows == 2
    assert len(opened) == 2
    assert fresh.limit(1).count() == 1
    assert fresh.limit(500).count() == 91


def test_limits_of_limits_are_the_smallest(table: Table) -> None:
    assert [table.limit(a).limit(b).count() for a, b in ((3, 7), (7, 3))] == [3, 3]
    assert [table.changes(0).limit(a).limit(b).count() for a, b in ((3, 7), (7, 3))] == [3, 3]
    with pytest.raises(UsageError, match="n must be at least 0, not -1"):
        table.limit(-1)
    with pytest.raises(UsageError, match="limit must be at least 0, not -1"):
        table.scan(limit=-1)


def test_rows_in_the_catalog_are_enough_for_a_limit(lake: DuckLake, table: Table, opened: list[str]) -> None:
    lake.set_option("data_inlining_row_limit", 100)
    lake.write("t", pa.table({"i": [1000, 1001], "file": [10, 10]}))
    assert lake.table("t").head(2).column("i").to_pylist() == [1000, 1001]
    assert opened == []


def test_a_limited_feed_stops_early(table: Table, opened: list[str]) -> None:
    feed = table.insertions(0).limit(15)
    assert feed.to_arrow().num_rows == feed.count() == 15
    assert len(opened) == 4
    assert table.changes(0).count() == 100
    assert table.changes(0).head(3).num_rows == 3


def test_a_transaction_and_a_view_read_the_same_ways(lake: DuckLake, table: Table) -> None:
    lake.create_view("v", "SELECT i AS n FROM t WHERE i < 5")
    view = lake.view("v")
    assert pl.DataFrame(view)["n"].to_list() == view.to_pandas()["n"].tolist() == view.head().column("n").to_pylist() == [0, 1, 2, 3, 4]
    with lake.transaction() as tx:
        tx.delete("t", "i >= 5")
        staged = tx.table("t")
        assert staged.columns == table.columns == ("i", "file")
        assert duckdb.sql("SELECT sum(i) FROM staged").fetchall() == [(10,)]
        assert (staged.count(), staged.limit(3).count(), staged.head(2).num_rows) == (5, 3, 2)
    assert table.count() == 100


@pytest.mark.parametrize(("method", "package"), [("to_polars", "polars"), ("to_duckdb", "duckdb")])
def test_a_library_that_is_missing_is_named(table: Table, monkeypatch: pytest.MonkeyPatch, method: str, package: str) -> None:
    from ducklake_core.engines.arrow import readable

    def missing(name: str) -> Any:
        raise builtins.ImportError(name)

    monkeypatch.setattr(readable, "import_module", missing)
    with pytest.raises(
        UnsupportedFeatureError, match=rf"{method}\(\) needs the package {package}. Run pip install 'ducklake-dagster\[{package}\]'"
    ):
        getattr(table, method)()


def test_an_incompatible_polars_raises(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pl, "__version__", "1.36.1")
    with pytest.raises(UnsupportedFeatureError, match=r"to_polars\(\) needs polars 2 or later, not 1\.36\.1"):
        table.scan().to_polars()


def test_wrong_columns_are_named_by_a_stream_too(table: Table) -> None:
    with pytest.raises(LookupError, match="there is no column 'nope'"):
        pa.table(table.scan(["nope"]))


def test_results_have_the_types_that_they_promise(table: Table) -> None:
    assert isinstance(table.limit(1), Scan)
    assert isinstance(table.changes(0).limit(1), ChangeFeed)
