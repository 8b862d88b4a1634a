"""Tables with a sort order of DuckDB: new files follow it, like DuckDB's own ORDER BY."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.layout.sorting import SortOrder
from ducklake_core.format.types.data_types import INTERVAL, Field
from ducklake_core.format.types.schema import Schema
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.scans import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = 'k BIGINT, s VARCHAR, f DOUBLE, p INTEGER, "odd, na""me" DATE, u UUID, h HUGEINT, l INTEGER[], t TIME'
DATA = """SELECT i AS k, CASE WHEN i % 7 <> 0 THEN chr(97 + (i * 31 % 29)::INT) || i % 5 END AS s,
    CASE WHEN i % 11 = 0 THEN NULL WHEN i % 13 = 0 THEN 'nan' WHEN i % 17 = 0 THEN '-inf'
        ELSE ((i * 37) % 101)::DOUBLE / 4 - 9 END::DOUBLE AS f,
    (i % 3)::INTEGER AS p, DATE '1969-12-01' + ((i * 7) % 90)::INT AS "odd, na""me", md5(i::VARCHAR)::UUID AS u,
    ((i * 7919) % 1000 - 500)::HUGEINT * 1000000000000000000000 AS h, [i]::INTEGER[] AS l,
    TIME '00:00:00' + to_seconds((i * 77) % 86400) AS t
    FROM range(1000) r(i)"""


def rows() -> pa.Table:
    import duckdb

    return duckdb.connect().execute(DATA.replace("::HUGEINT * 1", "::DECIMAL(38,0) * 1")).to_arrow_table()


def sorted_table(address: LakeAddress, order: str, *, partitioned: bool = False) -> DuckLake:
    with attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(f"CREATE TABLE t ({COLUMNS})", f"ALTER TABLE t SET SORTED BY ({order})")
        if partitioned:
            duck.run("ALTER TABLE t SET PARTITIONED BY (p)")
    return DuckLake.connect(address.url)


def check_order(duck: Oracle, lake: DuckLake, order: str, name: str = "t") -> int:
    """Every file holds its rows in the order of DuckDB's own ORDER BY; returns how many files there are."""
    files = lake.table(name).list_files()
    keys = ", ".join(part.split(" DESC")[0].split(" ASC")[0].split(" NULLS")[0] for part in order.split("; "))
    for file in files:
        # Hugeints are written as strings, which keeps their digits.
        rows = f"(SELECT * REPLACE (h::HUGEINT AS h), file_row_number FROM read_parquet('{file.path}'))"
        held = duck.rows(f"SELECT {keys} FROM {rows} ORDER BY file_row_number")
        wanted = duck.rows(f"SELECT {keys} FROM {rows} ORDER BY {order.replace('; ', ', ')}, file_row_number")
        assert repr(held) == repr(wanted), file.path
    return len(files)


ORDERS = [
    "s",
    "s DESC NULLS FIRST; k DESC",
    "f NULLS FIRST; k",
    "f DESC; k",
    'p; "odd, na""me" DESC; k DESC',
    "u",
    "h DESC",
    "h + 0 DESC; k",
    "t DESC; K",
    "upper(s) NULLS FIRST; k % 7 DESC; f / 2; k",
]


@pytest.mark.parametrize("order", ORDERS)
def test_arrow(sqlite_address: LakeAddress, order: str) -> None:
    lake = sorted_table(sqlite_address, order.replace("; ", ", "))
    lake.table("t").append(rows())
    with attached(sqlite_address) as duck:
        assert check_order(duck, lake, order) == 1
        assert_same_rows(duck, lake.table("t").scan().to_arrow(), "FROM t")
        assert duck.value("SELECT count(*) FROM t") == 1000


def test_partitions_and_runs(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = sorted_table(sqlite_address, "f DESC, k", partitioned=True)
    monkeypatch.setattr("ducklake_core.engines.arrow.writer.SORTED_BYTES", 10_000)
    monkeypatch.setattr("ducklake_core.engines.arrow.writer._GATHERED_ROWS", 70)
    data = rows()
    done = lake.table("t").overwrite(pa.RecordBatchReader.from_batches(data.schema, data.to_batches(max_chunksize=130)), where="p < 3")
    with attached(sqlite_address) as duck:
        assert 6 < check_order(duck, lake, "f DESC; k") == done.files_added < 20
        assert duck.rows("SELECT count(*), count(DISTINCT k) FROM t") == [(1000, 1000)]


def test_a_missing_column_and_none_at_all(sqlite_address: LakeAddress) -> None:
    lake = sorted_table(sqlite_address, "s, k DESC")
    lake.table("t").append(rows().select(["k", "f"]), missing_columns="null")
    lake.table("t").append(rows().select(["p"]), missing_columns="null")
    lake.table("t").append(rows().slice(0, 0))
    with attached(sqlite_address) as duck:
        assert check_order(duck, lake, "s; k DESC") == 2


def test_positions_of_columns(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t (k BIGINT, v BIGINT)", "ALTER TABLE t SET SORTED BY (#2 % 7 DESC, #2)")
        duck.run("INSERT INTO t SELECT range, range * 31 % 17 FROM range(20)")
        lake = DuckLake.connect(sqlite_address.url)
        lake.sql("INSERT INTO t SELECT range, range * 31 % 17 FROM range(20)")
        by_duckdb, by_library = (duck.rows(f"SELECT k, v FROM '{file.path}'") for file in lake.table("t").list_files())
        assert by_duckdb == by_library
        assert lake.merge_adjacent_files("t").files_created == 1
        assert duck.rows("SELECT v FROM t ORDER BY file_row_number") == duck.rows("SELECT v FROM t ORDER BY v % 7 DESC, v")
        duck.run("ALTER TABLE t DROP COLUMN v")
        with pytest.raises(UnsupportedFeatureError, match=r"sorted by '.*#2.*', but has only 1 column;"):
            lake.sql("INSERT INTO t VALUES (1)")
    assert (lake.merge_adjacent_files("t").tables[0].skipped or "").startswith("this process cannot sort by its key")
    lake.close()


def test_sort_on_insert_can_be_turned_off(sqlite_address: LakeAddress) -> None:
    lake = sorted_table(sqlite_address, "k + 1")
    with attached(sqlite_address) as duck:
        duck.run("CALL lake.set_option('sort_on_insert', false, schema => 'main', table_name => 't')")
    lake.table("t").append(rows().sort_by([("k", "descending")]))
    (file,) = lake.table("t").list_files()
    with attached(sqlite_address) as duck:
        assert duck.value(f"SELECT first(k ORDER BY file_row_number) FROM read_parquet('{file.path}')") == 999


@pytest.mark.parametrize(
    ("order", "dialect", "message"),
    [
        ("no_function(s)", "duckdb", "which DuckDB cannot evaluate"),
        ("l", "duckdb", "Arrow cannot sort"),
        ("k", "postgres", "dialect 'postgres'"),
    ],
)
def test_unsupported_sort_keys_raise(sqlite_address: LakeAddress, order: str, dialect: str, message: str) -> None:
    lake = sorted_table(sqlite_address, order)
    with lake.database.write() as connection:
        connection.exec_driver_sql("UPDATE ducklake_sort_expression SET dialect = ?", (dialect,))
    with pytest.raises(UnsupportedFeatureError, match=message) as raised:
        lake.table("t").append(rows())
    assert "sort_on_insert" in str(raised.value)
    assert "main.t" in str(raised.value)
    assert list(Path(sqlite_address.data_path).rglob("*.parquet")) == []


def test_spark(spark: SparkSession, sqlite_address: LakeAddress) -> None:
    from ducklake_core.engines.spark.write import sort_within_partitions
    from tests.spark.test_read import rows_of

    order = "s DESC NULLS FIRST; f; k"
    lake = sorted_table(sqlite_address, order.replace("; ", ", "), partitioned=True)
    data = rows().drop_columns(["t"])
    frame = spark.createDataFrame(data).repartition(3)
    assert lake.table("t").append(frame, missing_columns="null").files_added == 3
    with attached(sqlite_address) as duck:
        assert check_order(duck, lake, order) == 3
        duck.run("ALTER TABLE t RESET PARTITIONED BY", "ALTER TABLE t SET SORTED BY (length(s) + p DESC, k % 3, k)")
        lake.table("t").overwrite(frame, missing_columns="null")
        assert check_order(duck, lake, "length(s) + p DESC; k % 3; k") == 3
        assert_same_rows(duck, rows_of(lake.table("t").scan(["k", "s"]).to_spark(spark)), "SELECT k, s FROM t")
        duck.run("ALTER TABLE t SET SORTED BY (list_sum(l))")
    with pytest.raises(UnsupportedFeatureError, match="Spark cannot evaluate"):
        lake.table("t").append(frame, missing_columns="null")
    with pytest.raises(UnsupportedFeatureError, match="lacks column 'l'"):
        lake.table("t").append(frame.select("k"), missing_columns="null")
    # Rows are sorted where they are written when Spark is not known to sort as DuckDB does.
    intervals = Schema(columns=(Field(id=1, name="i", type=INTERVAL),))
    by_interval = SortOrder(expression="i", column="i", columns=("i",))
    odd = spark.range(1).selectExpr("make_dt_interval(int(id)) AS c0")
    assert sort_within_partitions(odd, ["i"], [by_interval], intervals, "main.t") is None
