"""Views read as scans return the rows of DuckDB, or raise an error with the reason."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from ducklake_core import DuckLake
from ducklake_core.errors import UnsupportedFeatureError
from tests.support.oracle import LakeAddress, Oracle, attached, sqlite_lake

READ = {
    "row_ids": "SELECT rowid AS id, a, snapshot_id FROM t WHERE rowid < 4",
    "every": "SELECT * FROM t",
    "swapped": 'SELECT a AS b, b AS a, "we`ird" AS "x`y", c FROM t WHERE a > 3 AND b <> \'v5\'',
    "named(q, w)": "SELECT T.A, b, c FROM lake.main.t WHERE A IS NOT NULL AND c IN (1.5, 2.5, 7.5) AND (b LIKE 'v%' OR a < 2)",
    "twice": "SELECT a, a AS again FROM t AS x WHERE x.a BETWEEN 2 AND 8 AND NOT (x.c = 3.5)",
    "s.above": "SELECT w, q AS w2 FROM named WHERE q < 7",
    "s.top(z)": "SELECT * FROM s.above WHERE w2 <> 2",
    "s.other": "SELECT above.* FROM s.above",
    "s.swapped_again": "SELECT b, a FROM swapped WHERE b > 6 AND a IS NOT NULL",
    "dated": "SELECT d FROM t WHERE d >= DATE '2024-01-05'",
}
REJECTED = {
    "computed": ("SELECT a + 1 AS x FROM t", r"it computes \(a \+ 1\)"),
    "divided": ("SELECT a // 2 FROM t", "it computes"),
    "counted": ("SELECT count(*) FROM t", "it computes"),
    "joined": ("SELECT x.a FROM t x JOIN t y ON x.a = y.a", "it has JOINS"),
    "listed": ("SELECT x.a FROM t x, t y", "it has JOINS"),
    "ordered": ("SELECT a FROM t ORDER BY a LIMIT 3", "it has"),
    "grouped": ("SELECT a FROM t GROUP BY a", "it has GROUP"),
    "different": ("SELECT DISTINCT a FROM t", "it has DISTINCT"),
    "united": ("SELECT a FROM t UNION ALL SELECT a FROM t", "it is a UNION, not one SELECT"),
    "withed": ("WITH x AS (SELECT a FROM t) SELECT a FROM x", "it has WITH"),
    "nested": ("SELECT a FROM (SELECT a FROM t)", "does not read one table"),
    "ranged": ("SELECT range AS a FROM range(3)", "does not read one table"),
    "valued": ("SELECT 1 AS a", "does not read one table"),
    "excluded": ("SELECT * EXCLUDE (a) FROM t", "it computes"),
    "sampled": ("SELECT a FROM t USING SAMPLE 10%", "(?i:sample)"),
    "matched": ("SELECT a FROM t WHERE regexp_matches(b, '[0-9]$')", "its condition has"),
    "subqueried": ("SELECT a FROM t WHERE a IN (SELECT a FROM t)", "its condition has a subquery"),
    "renamed_in_condition": ("SELECT a AS fresh FROM t WHERE fresh > 3", "has no column 'fresh'"),
    "file_numbers": ("SELECT file_index, a FROM t", "has no column 'file_index'"),
    "fields": ("SELECT n.x FROM t", "is not a column of t"),
    "on_unsupported": ("SELECT x FROM computed", "computed: it computes"),
}


def _filled(address: LakeAddress) -> DuckLake:
    with attached(address) as duck:
        duck.run(
            "CREATE SCHEMA s",
            'CREATE TABLE t (a INT, b VARCHAR, c DECIMAL(4,1), d DATE, "we`ird" DOUBLE, n STRUCT(x INT))',
            "INSERT INTO t SELECT i, 'v' || i, i + 0.5, DATE '2024-01-01' + i::INT, i / 4, {'x': i} FROM range(10) r(i)",
            "INSERT INTO t VALUES (NULL, NULL, NULL, NULL, 'NaN', NULL), (5, 'V5', 1.5, NULL, '-inf', NULL)",
            *(f"CREATE VIEW {name} AS {sql}" for name, sql in READ.items()),
            *(f"CREATE VIEW {name} AS {sql}" for name, (sql, _) in REJECTED.items()),
        )
    return DuckLake.connect(address.url)


def test_rows_are_those_of_duckdb(lake_address: LakeAddress) -> None:
    lake = _filled(lake_address)
    then = lake.snapshot().id
    with attached(lake_address) as duck:
        for name in (name.partition("(")[0] for name in READ):
            assert _same(lake.view(name).to_arrow(), duck, f"lake.{name}" if "." in name else f"lake.main.{name}"), name
        duck.run("DELETE FROM t WHERE a < 4", "ALTER TABLE t ADD COLUMN e INT DEFAULT 4", "CREATE OR REPLACE VIEW named AS SELECT c FROM t")
        assert _same(lake.view("every").to_arrow(), duck, "lake.main.every")
        assert lake.view("every").to_arrow().num_columns == 7
        assert lake.view("named").to_arrow().column_names == ["c"]
    with attached(lake_address, f"SNAPSHOT_VERSION {then}") as duck:
        for name in (name.partition("(")[0] for name in READ):
            assert _same(lake.view(name, at=then).to_arrow(), duck, f"lake.{name}" if "." in name else f"lake.main.{name}"), name


def _same(rows, duck: Oracle, source: str) -> bool:  # type: ignore[no-untyped-def]
    expected = duck.arrow(f"FROM {source}")
    assert rows.column_names == expected.column_names
    duck.connection.register("own", rows)
    missing, extra = (
        duck.rows(f"SELECT * FROM ({first} EXCEPT ALL {second})")
        for first, second in ((f"FROM {source}", "FROM own"), ("FROM own", f"FROM {source}"))
    )
    duck.connection.unregister("own")
    assert expected.num_rows
    return missing == extra == []


@pytest.mark.parametrize("name", REJECTED)
@pytest.mark.usefixtures("without_duckdb")
def test_unsupported_views_explain_the_reason(rejected_by_sqlite: DuckLake, name: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=f"cannot read view main.*{REJECTED[name][1]}"):
        rejected_by_sqlite.view(name).to_arrow()


@pytest.fixture(scope="module")
def rejected_by_sqlite(tmp_path_factory: pytest.TempPathFactory) -> DuckLake:

    return _filled(sqlite_lake(tmp_path_factory.mktemp("views")))


def test_spark(rejected_by_sqlite: DuckLake, spark: SparkSession) -> None:
    for name in ("swapped", "s.top", "twice"):
        view = rejected_by_sqlite.view(name)
        frame, rows = view.to_spark(spark), view.to_arrow()
        assert frame.columns == rows.column_names
        assert sorted(map(str, (tuple(row) for row in frame.collect()))) == sorted(
            map(str, zip(*(column.to_pylist() for column in rows.columns), strict=True))
        )


@pytest.mark.usefixtures("without_duckdb")
def test_names_in_several_schemas(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        duck.run("CREATE SCHEMA s", "CREATE TABLE t (a INT)", "CREATE TABLE s.t (a INT)", "CREATE VIEW s.v AS SELECT a FROM t")
        duck.run("CREATE VIEW broken AS SELECT a FROM t WHERE a > 1", "DROP TABLE main.t")
    lake = DuckLake.connect(sqlite_address.url)
    with pytest.raises(UnsupportedFeatureError, match="'t' is a table of several schemas"):
        lake.view("s.v", at=lake.snapshot().id - 1).to_arrow()
    with pytest.raises(UnsupportedFeatureError, match="'t' is not a table of the lake"):
        lake.view("broken").to_arrow()
