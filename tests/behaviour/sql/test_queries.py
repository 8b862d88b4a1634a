"""``lake.sql("SELECT ...")`` reads one snapshot, only the needed data, and rejects unsupported queries."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from sqlalchemy import text

from ducklake_core import DuckLake
from ducklake_core.engines.arrow import read
from ducklake_core.errors import NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_core.results import TransactionResult
from ducklake_core.sql.query import Query
from tests.support.oracle import LakeAddress, attached, sqlite_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAN = float("nan")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckLake]:
    """A lake that tests share: no test changes the rows of another one."""
    address = sqlite_lake(tmp_path_factory.mktemp("queries"))
    lake = DuckLake.create(address.url, data_path=address.data_path)
    schema = pa.schema([("k", pa.int64()), ("s", pa.string()), ("d", pa.float64())])
    for start, value in ((0, 1.5), (100, NAN), (200, 3.5)):
        rows = {"k": range(start, start + 100), "s": [f"x{place % 7}" for place in range(100)], "d": [value] * 100}
        lake.write("t", pa.table(rows, schema=schema), inline=False)
    lake.create_schema("other")
    lake.write("other.u", pa.table({"k": [1, 150], "name": ["one", "two"]}))
    lake.create_view("other.v", "SELECT s, count(*) AS n, sum(k) AS total FROM t GROUP BY ROLLUP (s)")
    lake.create_macro("twice", {"x": "x * 2", "x, y": "x * 2 + y"})
    lake.create_macro("least", {"low": "SELECT * FROM t WHERE k >= low"}, kind="table")
    yield lake
    lake.close()


def rows(found: Query | TransactionResult) -> list[tuple[object, ...]]:
    assert isinstance(found, Query)
    return [tuple(row.values()) for row in found.to_arrow().to_pylist()]


ANSWERS = {
    "SELECT s, k AS key FROM t WHERE k = 5": [("x5", 5)],
    "SELECT count(*), max(d) > 3, count(*) FILTER (d > 2) FROM t": [(300, True, 200)],
    "SELECT k FROM t WHERE d > 3.5 AND k IN (1, 101, 201)": [(101,)],
    "SELECT u.name, t.s FROM t JOIN other.u USING (k) ORDER BY name": [("one", "x1"), ("two", "x1")],
    "SELECT total FROM other.v WHERE s IS NULL": [(44850,)],
    "SELECT twice(k), twice(k, 1) FROM t WHERE twice(k) = 20": [(20, 21)],
    "SELECT min(k) FROM least(250)": [(250,)],
    "SELECT count(*) FROM t AT (VERSION => 1)": [(100,)],
    "SELECT count(*) FROM t AT (VERSION => 2) AS a JOIN t USING (k)": [(200,)],
    "FROM t AT (VERSION => 1) SELECT t.k WHERE t.k > 98": [(99,)],
    "WITH a AS (SELECT k FROM t), t AS (SELECT 1 AS one) SELECT count(*), any_value(one) FROM a, t;": [(300, 1)],
    "SELECT count(*) FROM t AT (VERSION => '2')": [(200,)],
    "SELECT count(*) FROM t AT (VERSION => 4 - 2)": [(200,)],
    "SELECT count(*) FROM t AT (TIMESTAMP => now())": [(300,)],
    "SELECT count(*) FROM t AT (TIMESTAMP => now() + INTERVAL 1 WEEK) WHERE k < 7": [(7,)],
    "TABLE other.u ORDER BY k LIMIT 1": [(1, "one")],
    "SELECT rowid, k FROM t WHERE k = 150": [(150, 150)],
    "SELECT k FROM t WHERE rowid = 150 AND snapshot_id = 2": [(150,)],
    "SELECT snapshot_id, count(*) AS n, max(a.rowid) FROM t AS a GROUP BY ALL ORDER BY 1": [(1, 100, 99), (2, 100, 199), (3, 100, 299)],
    "SELECT a.k * 2 FROM t AS a JOIN t AS b ON a.rowid = b.rowid + 299": [(598,)],
    "SELECT filename LIKE '%.parquet', file_row_number FROM t WHERE k = 207 ORDER BY ALL": [(True, 7)],
    "SELECT rowid FROM (SELECT k AS rowid FROM t) WHERE rowid > 298 ORDER BY rowid": [(299,)],
    "SELECT rowid, trim(LEADING 'x' FROM s), extract(year FROM DATE '2020-01-31') FROM t WHERE k IS NOT DISTINCT FROM 8": [(8, "1", 2020)],
    "SELECT * FROM (SELECT rowid, s FROM t) WHERE rowid = 8": [(8, "x1")],
    "WITH ids AS (SELECT rowid AS id FROM t) FROM ids WHERE id < 1": [(0,)],
    "SELECT s.z, rowid FROM t AS a JOIN (SELECT 1 AS z) AS s ON a.k = 299": [(1, 299)],
    "VALUES (1, 'a')": [(1, "a")],
    "SELECT count(*) FROM query_table('t') SEMI JOIN query('SELECT 5 AS k FROM other.u LIMIT 1') USING (k)": [(1,)],
}


@pytest.mark.parametrize("query", ANSWERS)
def test_answers(lake: DuckLake, query: str) -> None:
    assert rows(lake.sql(query)) == ANSWERS[query]


def test_only_the_needed_files_are_read(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str, ...]] = []
    original = read.read_task

    def noted(task: object, shape: object, *args: object, **how: object) -> object:
        opened.append(tuple(shape.read_schema.names))  # type: ignore[attr-defined]
        return original(task, shape, *args, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(read, "read_task", noted)
    assert rows(lake.sql("SELECT s, count(*) FROM t WHERE k BETWEEN 120 AND 121 GROUP BY s ORDER BY s")) == [("x6", 1), ("x0", 1)][::-1]
    assert opened == [("k", "s")]
    opened.clear()
    # What the join learns of its small side leaves out files of the other.
    assert rows(lake.sql("SELECT sum(t.k) FROM t JOIN (SELECT 205 AS k) AS one USING (k)")) == [(205,)]
    assert opened == [("k",)]


def test_one_snapshot(lake: DuckLake) -> None:
    query = lake.sql("SELECT count(*) FROM other.u AS a, t")
    lake.sql("INSERT INTO other.u VALUES (7, 'three')")
    assert rows(query) == rows(query) == [(600,)]
    assert rows(lake.sql("SELECT count(*) FROM other.u AS a, t")) == [(900,)]
    assert rows(lake.sql("SELECT count(*), 1 FROM t", at=1)) == [(100, 1)]


def test_views_with_grouping_sets_in_process(lake: DuckLake) -> None:
    found = lake.view("other.v").to_arrow()
    assert (found.num_rows, found.schema.names) == (8, ["s", "n", "total"])
    lake.create_view("w", "SELECT n, twice(total) AS t2 FROM other.v WHERE s IS NULL", columns=["rows"])
    assert lake.view("w").to_arrow().to_pylist() == [{"rows": 300, "t2": 89700}]


REJECTED = {
    "SELECT nope FROM t, other.u": (NotFoundError, "nope"),
    "SELECT * FROM nope, t": (NotFoundError, "nope"),
    "SELECT CAST(s AS INTEGER) FROM t": (UsageError, "x0"),
    "SELECT * FROM read_csv('/etc/hosts')": (UsageError, "disabled"),
    "SELECT count(*) FROM t AT (VERSION => 99)": (NotFoundError, "99"),
    "SELECT count(*) FROM t AT (VERSION => k)": (UsageError, "id of a snapshot"),
    "SELECT count(*) FROM t AT (VERSION => 9223372036854775808)": (UsageError, "id of a snapshot: .* out of range"),
    "SELECT count(*) FROM t AT (VERSION => NULL)": (UsageError, "id of a snapshot: it is NULL"),
    "SELECT count(*) FROM t AT (TIMESTAMP => 'never')": (UsageError, "needs a constant"),
    "SELECT count(*) FROM t AT (TIMESTAMP => now() - INTERVAL 90 YEAR)": (NotFoundError, "no snapshot at or before"),
    "SELECT *, nope, 1 AS filename FROM t ORDER BY ALL": (NotFoundError, r"no column 'nope'(?!.*virtual columns)"),
    "SELECT * FROM (t JOIN (SELECT 5 AS k) AS x USING (k)) WHERE rowid > 1 ORDER BY ALL": (UsageError, "rowid: virtual columns"),
    "SELECT max(rowid) FROM (SELECT DISTINCT * FROM t)": (NotFoundError, "rowid"),
    "SELECT t, rowid FROM t": (UsageError, "rowid: virtual columns .* without .* whole rows"),
    "SELECT count(DISTINCT a), max(a.rowid) FROM t AS a": (UsageError, "rowid: virtual columns"),
    "SELECT max(rowid) FROM t, query('SELECT DISTINCT * FROM t') AS q": (UsageError, "rowid: virtual columns"),
    "SELECT rowid FROM other.v ORDER BY ALL": (NotFoundError, "no column 'rowid'(?!.*did you mean)"),
    "SELECT count(*) FROM duckdb_tables(), t": (UnsupportedFeatureError, "a query of definitions cannot read rows of t as well"),
    "SELECT * FROM other.nope": (NotFoundError, r"there is no table or view other\.nope at this snapshot"),
    "SELECT (": (UsageError, "syntax error"),
}


@pytest.mark.parametrize("query", REJECTED)
def test_invalid_statements_raise(lake: DuckLake, query: str) -> None:
    kind, message = REJECTED[query]
    with pytest.raises(kind, match=message) as caught:
        rows(lake.sql(query))
    # A chain of causes must not be endless.
    assert caught.value.__cause__ is not caught.value


def test_views_of_virtual_columns(lake: DuckLake) -> None:
    lake.create_view("ids", "SELECT rowid AS id, k FROM t WHERE rowid >= 298")
    lake.create_view("spans", "SELECT snapshot_id AS added, min(rowid) AS first FROM t GROUP BY ALL")
    assert lake.view("ids").to_arrow().to_pylist() == [{"id": 298, "k": 298}, {"id": 299, "k": 299}]
    assert sorted(map(tuple, map(dict.values, lake.view("spans").to_arrow().to_pylist()))) == [(1, 0), (2, 100), (3, 200)]
    assert rows(lake.sql("SELECT * FROM ids JOIN spans ON first < id WHERE added = 3 ORDER BY id")) == [
        (298, 298, 3, 200),
        (299, 299, 3, 200),
    ]


def test_unreadable_views_do_not_disturb_queries_about_columns_of_their_names(small: DuckLake) -> None:
    small.write("t", [{"total": 1, "old": 2}], create=True)
    small.create_view("total", "SELECT 1 AS a")
    small.create_view("old", "SELECT * FROM t AT (VERSION => 77)")
    with small.database.write() as connection:
        connection.execute(text("UPDATE ducklake_view SET dialect = 'spark' WHERE view_name = 'total'"))
    assert rows(small.sql("SELECT sum(total), max(old) FROM t")) == [(1, 2)]
    small.sql("UPDATE t SET total = (SELECT max(old) + 1 FROM t)")
    with small.transaction() as tx:
        query = tx.sql("SELECT sum(total) AS n FROM t")
        assert query is not None
        assert query.to_arrow().to_pylist() == [{"n": 3}]
    for statement in ("SELECT sum(a) FROM total", "UPDATE t SET total = (SELECT max(a) FROM total)"):
        with pytest.raises(UnsupportedFeatureError, match=r"cannot read view main\.total: its dialect is 'spark'"):
            small.sql(statement)
    with pytest.raises(NotFoundError, match="there is no snapshot 77"):
        small.sql("SELECT count(*) FROM t, old")


def test_without_duckdb(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert rows(lake.sql("SELECT k FROM t WHERE k > 298")) == [(299,)]
    with pytest.raises(UnsupportedFeatureError, match=r"Pass a Spark session with spark=, or pip install 'ducklake-dagster\[duckdb\]'"):
        rows(lake.sql("SELECT count(*) FROM t"))
    with pytest.raises(UnsupportedFeatureError, match=r"cannot read view other.v: .* or pip install"):
        lake.view("other.v").to_arrow()


def test_every_type_passes_through(sqlite_address: LakeAddress) -> None:
    values = {
        "i8": "1::TINYINT", "i128": "170141183460469231731687303715884105::HUGEINT", "u64": "18446744073709551615::UBIGINT",
        "dec": "1.50::DECIMAL(30,2)", "f": "'nan'::FLOAT", "day": "DATE '2020-02-29'", "ts": "TIMESTAMP '2020-01-01 00:00:00.000001'",
        "ts_ns": "TIMESTAMP_NS '2020-01-01 00:00:00.000000001'", "tz": "TIMESTAMPTZ '2020-01-01 00:00:00+01'", "clock": "TIME '12:00:00'",
        "id": "'6b9b3a5e-0000-4000-8000-000000000001'::UUID", "raw": "'\\x00a'::BLOB", "j": "'{\"a\": 1}'::JSON", "flag": "true",
        "list": "[1, NULL]", "struct": "{'x': 1, 'y': 'a'}", "map": "MAP {'a': 1}", "gap": "INTERVAL 1 MONTH",
    }  # fmt: skip
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE t AS SELECT 1 AS k, " + ", ".join(f"{sql} AS {name}" for name, sql in values.items()))
    lake = DuckLake.connect(sqlite_address.url)
    tests = " AND ".join(f"t.{name} IS NOT DISTINCT FROM ({sql})" for name, sql in values.items() if name != "gap")
    assert rows(lake.sql(f"SELECT count(*), any_value(gap) = INTERVAL 1 MONTH FROM t WHERE {tests}")) == [(1, True)]


def test_spark(lake: DuckLake, spark: SparkSession) -> None:
    joined = "SELECT u.name, t.d FROM t JOIN other.u USING (k) WHERE t.k < 5"
    assert rows(lake.sql(joined, spark=spark)) == [("one", 1.5)]
    assert rows(lake.sql("SELECT count(*) AS n FROM t AT (VERSION => 1) AS a JOIN t AS b ON a.k = b.k", spark=spark)) == [(100,)]
    found = lake.sql("SELECT sum(k) AS total FROM t")
    assert isinstance(found, Query)
    assert found.to_spark(spark).collect()[0].total == 44850
    with pytest.raises(UnsupportedFeatureError, match=r"cannot read the query: it calls the macro|cannot read the query: .*twice"):
        rows(lake.sql("SELECT twice(k) AS x FROM t", spark=spark))
    made = lake.register(spark, tables=["t"])
    assert made == {"t": None}
    assert spark.sql("SELECT count(*) FROM t WHERE k % 2 = 0").collect()[0][0] == 150
    lake.create_view("other.w", "SELECT mode(k) AS s FROM t")
    reasons = lake.register(spark, schema="other")
    assert (reasons["u"], reasons["v"]) == (None, None)
    assert "mode" in str(reasons["w"])
    assert spark.sql("SELECT total FROM v WHERE s IS NULL").collect()[0].total == 44850
    with pytest.raises(NotFoundError, match="nope"):
        lake.register(spark, tables=["nope"])
    with pytest.raises(UsageError, match="needs a Spark session"):
        found.to_spark()
