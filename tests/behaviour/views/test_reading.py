"""Views read the right snapshot and schema, and only the needed columns and files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import SparkSession

from ducklake_core import DuckLake
from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.view_sql.translation import Translation, translate
from tests.behaviour.views.comparison import check
from tests.support.oracle import LakeAddress, attached


def _translated(lake: DuckLake, name: str) -> Translation:
    with lake.reader() as reader:
        return translate(reader, lake.view(name).state)


def test_snapshots(lake_address: LakeAddress, spark: SparkSession) -> None:
    with attached(lake_address) as duck:
        duck.run(
            "CREATE TABLE t (a INT)",
            "INSERT INTO t VALUES (1), (2)",
            "CREATE VIEW below AS SELECT a + 1 AS b FROM t",
            "CREATE VIEW v(total) AS SELECT sum(b) FROM below",
        )
    lake = DuckLake.connect(lake_address.url)
    then = lake.snapshot().id
    with attached(lake_address) as duck:
        duck.run("INSERT INTO t VALUES (10)", "CREATE OR REPLACE VIEW below AS SELECT a * 100 AS b FROM t", "ALTER TABLE t RENAME TO u")
        duck.run("CREATE TABLE t AS SELECT 7 AS a")
        check(lake.view("v").to_spark(spark), duck, "lake.main.v")
    with attached(lake_address, f"SNAPSHOT_VERSION {then}") as duck:
        check(lake.view("v", at=then).to_spark(spark), duck, "lake.main.v")


def test_names_without_a_schema(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        duck.run("CREATE SCHEMA s", "USE lake.s", "CREATE TABLE only_here (a INT)", "CREATE VIEW v AS SELECT a + 1 AS b FROM only_here")
        duck.run("USE lake.main", "CREATE TABLE only_main (a INT)", "CREATE VIEW s.w AS SELECT a + 1 AS b FROM only_main")
        duck.run(
            "CREATE TABLE both_have (a INT)", "CREATE TABLE s.both_have (a INT)", "CREATE VIEW s.x AS SELECT a + 1 AS b FROM both_have"
        )
    lake = DuckLake.connect(sqlite_address.url)
    assert _translated(lake, "s.v").scans[0].table.name == "only_here"
    assert _translated(lake, "s.w").scans[0].table.schema_name == "main"
    with pytest.raises(UnsupportedFeatureError, match="'both_have' is a table of several schemas"):
        _translated(lake, "s.x")


def test_dropped_names_in_views_raise(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE t (a INT, b INT)", "CREATE VIEW v AS SELECT a + b AS c FROM t", "CREATE VIEW w AS SELECT c + 1 AS d FROM v")
        duck.run("ALTER TABLE t DROP COLUMN b")
    lake = DuckLake.connect(sqlite_address.url)
    with pytest.raises(UnsupportedFeatureError, match=r"cannot read view main\.v: column 'b' does not exist"):
        _translated(lake, "v")
    with attached(sqlite_address) as duck:
        duck.run("DROP TABLE t")
    with pytest.raises(
        UnsupportedFeatureError,
        match=r"main\.w: it reads view main\.v, which is not supported: 't' is not a table of the lake at that snapshot",
    ):
        _translated(lake, "w")


def test_similar_names_are_suggested(sqlite_address: LakeAddress) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.write("orders", [{"country": "DE"}])
    lake.create_view("v", "SELECT countri || 'x' AS c FROM orders")
    lake.write("ordrs", [{"country": "DE"}])
    lake.create_view("w", "SELECT country || 'x' AS c FROM ordrs")
    lake.drop_table("ordrs")
    for view, words in {"v": "'countri' does not exist (did you mean 'country'?)", "w": "snapshot (did you mean 'main.orders'?)"}.items():
        with pytest.raises(UnsupportedFeatureError, match=re.escape(words)):
            _translated(lake, view)


def test_a_circle(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE t (a INT)", "CREATE VIEW v AS SELECT a + 1 AS a FROM t", "CREATE VIEW w AS SELECT a + 1 AS a FROM v")
        duck.run("DROP TABLE t", "ALTER VIEW w RENAME TO t")
    with pytest.raises(
        UnsupportedFeatureError,
        match=r"cannot read view main\.v: it reads view main\.t, which is not supported: it reads view main\.v, which",
    ):
        _translated(DuckLake.connect(sqlite_address.url), "v")


def test_only_the_needed_files_and_columns_are_read(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE t (a INT, b VARCHAR, c INT)", "CREATE TABLE u (a INT, d DATE)")
        duck.run(
            "CREATE VIEW v AS SELECT t.b || 'x' AS y FROM t x JOIN t ON t.a = x.a WHERE t.c > 3 AND x.c + 1 = 2 AND (t.b = 'q' AND x.a < 5)"
        )
        duck.run("CREATE VIEW w AS SELECT count(*) AS n FROM t LEFT JOIN u USING (a) WHERE d > DATE '2020-01-01'")
    lake = DuckLake.connect(sqlite_address.url)
    first, second = _translated(lake, "v").scans
    assert (set(first.columns), set(second.columns)) == ({"a", "c"}, {"a", "b", "c"})
    assert first.where == '("a" < 5)'
    assert second.where is not None
    assert set(second.where.split(" AND ")) == {"(\"b\" = 'q')", '("c" > 3)'}
    assert [scan.where for scan in _translated(lake, "w").scans] == [None, None]


@pytest.mark.slow
def test_overflows_are_errors_in_both(sqlite_address: LakeAddress, spark: SparkSession) -> None:
    sums = ("i8 + 1", "i8 * i8", "i + 1", "i * 2", "j * 2", "m * n", "n + n * 9", "CAST(g AS INT)", "CAST(j AS INT)", "CAST(-g AS INT)")
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE t (i8 TINYINT, i INT, j BIGINT, g DOUBLE, m DECIMAL(5,2), n DECIMAL(18,3))")
        duck.run("INSERT INTO t VALUES (127, 2147483647, 9223372036854775807, 3e9, 999.99, 999999999999999.999)")
        for number, text in enumerate(sums):
            duck.run(f"CREATE VIEW v{number} AS SELECT {text} AS x FROM t")
            with pytest.raises(Exception, match=r"(?i)overflow|range|conversion|cast"):
                duck.rows(f"FROM lake.main.v{number}")
    lake = DuckLake.connect(sqlite_address.url)
    for number in range(len(sums)):
        with pytest.raises(ArithmeticException):
            lake.view(f"v{number}").to_spark(spark).collect()


def test_a_session_without_ansi(sqlite_address: LakeAddress, spark: SparkSession) -> None:
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE t (a INT)", "CREATE VIEW v AS SELECT a + 1 AS x FROM t")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(UsageError, match=r"cannot read view main.v .* Set spark.sql.ansi.enabled to true"):
            DuckLake.connect(sqlite_address.url).view("v").to_spark(spark)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")


@pytest.mark.usefixtures("without_duckdb")
def test_without_an_engine(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE t (a INT)", "CREATE VIEW v AS SELECT a + 1 AS x FROM t")
    with pytest.raises(UnsupportedFeatureError, match=r"it computes \(a \+ 1\).*view.to_spark\(session\) reads more"):
        DuckLake.connect(sqlite_address.url).view("v").to_arrow()


SCRIPT = """
import json, sys
from pyspark.sql import SparkSession
from ducklake_core import DuckLake

session = SparkSession.builder.remote("local[2]").getOrCreate()
view = DuckLake.connect(sys.argv[1]).view("v")
frame = view.to_spark(session)
print(json.dumps({"module": type(session).__module__, "columns": frame.columns, "rows": [list(map(str, row)) for row in frame.collect()]}))
"""


@pytest.mark.slow
def test_connect(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE t (a INT, b VARCHAR)", "INSERT INTO t VALUES (1, 'x'), (2, 'y'), (2, '{0}')")
        duck.run("CREATE VIEW v AS SELECT x.a, count(*) AS n, max(y.b) AS b FROM t x JOIN t y USING (a) GROUP BY x.a ORDER BY x.a DESC")
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    root = Path(__file__).parents[3]
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, sqlite_address.url],
        capture_output=True,
        text=True,
        env=environment,
        cwd=root,
        timeout=250,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    answer = json.loads(run.stdout.strip().splitlines()[-1])
    assert answer["module"].startswith("pyspark.sql.connect")
    assert (answer["columns"], answer["rows"]) == (["a", "n", "b"], [["2", "4", max("y", "{0}")], ["1", "1", "x"]])
