"""Statements of ``lake.sql`` do the same as in DuckDB; unsupported statements raise an error that names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import NotFoundError, SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.results import TransactionResult
from tests.support.oracle import LakeAddress, attached, sqlite_lake

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

STATEMENTS = (
    "CREATE SCHEMA IF NOT EXISTS s",
    "CREATE TABLE s.t (k BIGINT NOT NULL, name TEXT DEFAULT 'x', day DATE, n DECIMAL(9,2) DEFAULT 1.5, st STRUCT(a INTEGER, b VARCHAR[]))",
    "INSERT INTO s.t VALUES (1, 'a', '2020-01-01', 2, {'a': 1, 'b': ['q']}), (2, NULL, DATE '2021-01-01', 3.255, NULL)",
    "INSERT INTO s.t (day, k) SELECT day + 1, k + 10 FROM s.t",
    "INSERT INTO s.t BY NAME SELECT 'named' AS name, 5 AS k",
    "INSERT INTO s.t (k) FROM range(100, 140)",
    "INSERT INTO s.t AS other (k, name) (SELECT 200, 'positioned')",
    "INSERT INTO s.t BY POSITION SELECT 200, 'positioned', NULL, 1, NULL",
    "INSERT INTO s.t (FROM s.t WHERE k = 200)",
    "INSERT INTO s.t (k, name) (SELECT 201, 'a') UNION ALL (SELECT 202, 'b')",
    "INSERT INTO s.t (k, st) VALUES (203, ROW(3, ['row'])), (204, {'a': '4', 'b': [5]}), (205, '{a: 5, b: [x]}')",
    "UPDATE s.t AS x SET name = upper(x.name) || '!', n = n + 1 WHERE x.k < 3",
    "DELETE FROM s.t WHERE k = 12 OR t.k > 130",
    "CREATE TABLE u AS SELECT name, count(*) AS c, sum(n) AS total FROM s.t GROUP BY ALL",
    """MERGE INTO s.t AS o USING (SELECT 1 AS k, 'merged' AS name UNION ALL SELECT 77, 'new') AS y ON o.k = y.k AND o.k < 1000
    WHEN MATCHED THEN UPDATE SET name = y.name, n = o.n * 2 WHEN NOT MATCHED THEN INSERT (k, name) VALUES (y.k, y.name)""",
    "MERGE INTO s.t USING (SELECT 77 AS k) AS y USING (k) WHEN MATCHED AND t.name = 'new' THEN DELETE",
    "ALTER TABLE u ADD COLUMN z INTEGER DEFAULT 3",
    "ALTER TABLE u RENAME COLUMN c TO counted",
    "ALTER TABLE u RENAME counted TO rows",
    "ALTER TABLE u ALTER z SET DATA TYPE BIGINT",
    "ALTER TABLE u ALTER COLUMN z SET DEFAULT 4",
    "INSERT INTO u (name) VALUES ('late')",
    "ALTER TABLE s.t ALTER n DROP DEFAULT",
    "ALTER TABLE s.t ALTER COLUMN k DROP NOT NULL",
    "ALTER TABLE u SET PARTITIONED BY (bucket(4, name), z)",
    "ALTER TABLE u SET SORTED BY (total DESC, name ASC)",
    "INSERT INTO u SELECT * FROM u",
    "ALTER TABLE u RESET PARTITIONED BY",
    "ALTER TABLE u RENAME TO w",
    "ALTER TABLE w DROP COLUMN rows",
    "COMMENT ON TABLE w IS 'it''s'",
    "COMMENT ON COLUMN w.name IS 'its name'",
    "CREATE OR REPLACE VIEW s.v AS SELECT name, k FROM s.t WHERE k > 1",
    "CREATE MACRO twice(x, y := 2) AS x * y",
    "CREATE TABLE nested (a INTERVAL[], b STRUCT(t INTEGER, u BIGINT), c MAP(VARCHAR, HUGEINT), d INTEGER[])",
    "INSERT INTO nested VALUES ([INTERVAL 1 DAY], {'t': NULL, 'u': '20'}, MAP {'a': '5'}, ['1', 2.5])",
    "INSERT INTO nested VALUES (NULL, NULL, NULL, '[3]')",
    "CREATE TABLE dropped AS SELECT 1 AS a",
    'CREATE TABLE named ("c C", n) AS SELECT 1 AS a, 2 AS a, 3 AS z UNION ALL SELECT 4, 5, 6',
    "CREATE OR REPLACE SCHEMA replaced",
    "CREATE OR REPLACE SCHEMA replaced",
    'CREATE RECURSIVE VIEW replaced.counting (n, "next n") AS SELECT 1, 2 UNION ALL SELECT n + 1, n + 2 FROM counting WHERE n < 4 -- all',
    "CREATE TABLE counted AS FROM replaced.counting",
    "CREATE OR REPLACE RECURSIVE VIEW replaced.counting (n) AS SELECT 1 UNION ALL SELECT n + 1 FROM counting WHERE n < 3",
    "CREATE TABLE in_order (a VARCHAR, b VARCHAR)",
    "CREATE MACRO pair(x, y, sep := '-') AS upper(x).trim() || trim(sep).lower() || [z || y FOR z IN list_value(x)].array_to_string('')",
    "ALTER TABLE in_order SET SORTED BY (pair(b, a, sep := ' + ') DESC, pair(a, a))",
    "INSERT INTO in_order VALUES ('x', 'b'), ('y', 'c'), ('z', 'a'), ('y', 'b')",
    "CREATE VIEW pivoted AS PIVOT (FROM counted) ON n IN (1, 2) USING count(*)",
    "CREATE VIEW unpivoted AS UNPIVOT counted ON n INTO NAME kind VALUE number",
    'CREATE TABLE from_pivot AS PIVOT counted ON n USING sum("next n")',
    "TRUNCATE dropped",
    "DROP TABLE dropped",
    "DROP TABLE IF EXISTS dropped",
    "CREATE TABLE kinds (a TIMETZ, b HUGEINT, c INTERVAL, d UUID, e JSON, f TIME, g BLOB, h TIMESTAMP_NS, i TINYINT, j UHUGEINT, k DOUBLE)",
    """INSERT INTO kinds VALUES ('12:00:00+02', '-170141183460469231731687303715884105727', INTERVAL 1 MONTH,
    '6b9b3a5e-0000-4000-8000-000000000001', '{"a": 1}', '12:00:00.5', '\\x00a', '2020-01-01 00:00:00.000000001', 7, 5, 'nan')""",
)
ANSWERS = (
    "SELECT (a AT TIME ZONE 'UTC')::VARCHAR, * EXCLUDE (a, k), isnan(k) FROM kinds",
    "SELECT * FROM s.t ORDER BY ALL",
    "SELECT * FROM w ORDER BY ALL",
    "SELECT * FROM nested ORDER BY a",
    "SELECT name, twice(k) FROM s.v ORDER BY ALL",
    "SELECT rowid, * FROM in_order ORDER BY rowid",
    "FROM pivoted ORDER BY ALL",
    "FROM unpivoted ORDER BY ALL",
    "FROM from_pivot ORDER BY ALL",
    "SELECT expression FROM __ducklake_metadata_lake.ducklake_sort_expression WHERE expression LIKE 'pair%' ORDER BY ALL",
    "SELECT n, 0 FROM replaced.counting UNION ALL FROM counted ORDER BY ALL",
    "SELECT table_name, comment FROM duckdb_tables() WHERE database_name = 'lake' ORDER BY ALL",
    "SELECT column_name, data_type, is_nullable, column_default, comment FROM duckdb_columns() WHERE database_name = 'lake' ORDER BY ALL",
)


def test_statements_do_what_duckdb_does(tmp_path: Path) -> None:
    for name in ("own", "duckdb"):
        (tmp_path / name).mkdir()
    own, by_duckdb = (sqlite_lake(tmp_path / name) for name in ("own", "duckdb"))
    lake = DuckLake.create(own.url, data_path=own.data_path)
    with attached(by_duckdb) as duck:
        duck.run(*STATEMENTS)
        expected = [duck.rows(query) for query in ANSWERS]
    for statement in STATEMENTS:
        before = lake.snapshot().id
        result = lake.sql(statement, message="a statement")
        assert isinstance(result, TransactionResult)
        assert lake.snapshot().id == before + (result.snapshot is not None)
    with attached(own) as duck:
        assert [duck.rows(query) for query in ANSWERS] == expected


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.sql("CREATE TABLE t (k BIGINT, s VARCHAR)")
    lake.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    return lake


def test_several_in_a_transaction(lake: DuckLake, sqlite_address: LakeAddress) -> None:
    before = lake.snapshot().id
    with lake.transaction() as tx:
        tx.sql("INSERT INTO t VALUES (3, 'c')")
        tx.sql("CREATE TABLE u AS SELECT k, s FROM t WHERE k > 1")
        tx.sql("UPDATE u SET s = 'changed' WHERE k = 3")
        tx.sql("CREATE VIEW v AS SELECT max(k) AS m FROM u")
        found = tx.sql("SELECT m, count(*) AS n FROM v, t GROUP BY m")
        assert found is not None
        assert found.to_arrow().to_pylist() == [{"m": 3, "n": 3}]
        tx.sql("DROP TABLE t")
        with pytest.raises(NotFoundError):
            tx.sql("SELECT count(*) FROM t").to_arrow()  # type: ignore[union-attr]
    assert lake.snapshot().id == before + 1
    with attached(sqlite_address) as duck:
        assert duck.rows("FROM u ORDER BY k") == [(2, "b"), (3, "changed")]


def test_transactions_see_their_views_and_macros(lake: DuckLake) -> None:
    lake.sql("CREATE VIEW v AS SELECT max(k) AS m FROM t")
    lake.sql("CREATE MACRO twice(x) AS x * 2")
    with lake.transaction() as tx:
        tx.sql("CREATE MACRO thrice(x) AS x * 3")
        tx.sql("CREATE OR REPLACE MACRO twice(x) AS x * 20")
        found = tx.sql("SELECT thrice(m), twice(m) FROM v")
        assert found is not None
        assert list(found.to_arrow().to_pylist()[0].values()) == [6, 40]
        tx.sql("DROP VIEW v")
        tx.sql("DROP MACRO thrice")
        for deleted in ("FROM v", "SELECT thrice(k) FROM t"):
            with pytest.raises(NotFoundError, match=r"there is no (table or view v|function or macro thrice)"):
                tx.sql(deleted).to_arrow()  # type: ignore[union-attr]


def test_a_field_of_a_struct_is_not_another_column(lake: DuckLake) -> None:
    lake.sql("CREATE TABLE w AS SELECT {'s': 1} AS st, 2 AS s")
    with pytest.raises(UnsupportedFeatureError, match=r"SET st\.s = 3"):
        lake.sql("UPDATE w SET st.s = 3")


def test_a_statement_that_fails_leaves_nothing(lake: DuckLake) -> None:
    before = lake.snapshot().id
    with pytest.raises(UsageError, match="abc"):
        lake.sql("INSERT INTO t SELECT CASE WHEN k = 2 THEN 'abc' ELSE '1' END, s FROM t")
    lake.sql("INSERT INTO t (s) VALUES ('null')")
    with pytest.raises(SchemaError, match="NOT NULL"):
        lake.sql("ALTER TABLE t ALTER k SET NOT NULL")
    assert lake.snapshot().id == before + 1


REJECTED = {
    "CREATE OR REPLACE TABLE IF NOT EXISTS n (a INTEGER)": "OR REPLACE with IF NOT EXISTS",
    "CREATE TABLE n (a INTEGER) AS SELECT 1 AS b": "a type of a column in CREATE TABLE AS",
    "CREATE TABLE n (a, b) AS SELECT 1 AS b": "columns",
    "ALTER TABLE t ALTER k TYPE VARCHAR COLLATE NOCASE": "COLLATE NOCASE is not supported",
    "ALTER TABLE s.t ADD COLUMN x INTEGER FIRST": "a place for column 'x'",
    "ALTER TABLE s.t ADD COLUMN x INTEGER AFTER k": "new columns come last",
    "INSERT INTO t VALUES (1)": "1 value for 2 columns",
    "INSERT INTO t SELECT 1, 'a', 2": "3 columns, but the table has 2",
    "INSERT INTO t BY NAME SELECT 1 AS nope": "no column 'nope'",
    "INSERT INTO t (k) VALUES (1) RETURNING k": "RETURNING in INSERT",
    "INSERT INTO t VALUES ()": "0 values for 2 columns",
    "INSERT INTO t VALUES": "neither VALUES nor a query",
    "INSERT INTO t": "neither VALUES nor a query",
    "INSERT t VALUES (1)": "INSERT INTO table",
    "UPDATE t SET t.k = 1": r"SET t\.k = 1",
    "UPDATE t SET k = 1, K = 2": "set twice",
    "DELETE FROM t WHERE": "^cannot parse the SQL: a part is missing",
    "DROP TABLE": "^cannot parse the SQL: a name is missing",
    "ALTER TABLE t ADD PRIMARY KEY (k)": r"^ADD PRIMARY KEY \(k\) is not supported: the only constraint of DuckLake is NOT NULL",
    "ALTER TABLE t ADD CONSTRAINT c CHECK (k > 0)": r"^ADD CONSTRAINT c CHECK \(k > 0\) is not supported",
    "ALTER TABLE t ADD": "^cannot parse the SQL: a name is missing",
    "INSERT INTO t (k) SELECT 1 ON CONFLICT DO NOTHING": "CONFLICT in INSERT",
    "INSERT OR REPLACE INTO t VALUES (1, 'a')": "INSERT OR REPLACE",
    "MERGE INTO t USING t ON t.k = t.k WHEN MATCHED THEN DELETE": "Ambiguous reference to table",
    "CREATE TABLE c (a INT PRIMARY KEY)": "PRIMARY KEY",
    "CREATE TABLE c (a INT, CHECK (a > 1))": "CHECK",
    "CREATE TEMP TABLE c AS SELECT 1 AS a": "CREATE TEMP is not supported: pass rows",
    "CREATE OR REPLACE TEMPORARY VIEW c AS SELECT 1 AS a": r"CREATE TEMPORARY is not supported: .* WITH name AS \(query\)",
    "ALTER TABLE t SET SORTED BY (ALL)": "is not one sort key",
    "CREATE TEMP MACRO m(a) AS a": "CREATE TEMP is not supported",
    "CREATE MACRO m(a INTEGER[]) AS a[1]": "cannot have the type 'INTEGER\\[\\]'. Remove the type",
    "EXPLAIN DELETE FROM t": "explain its query, or a SELECT with its condition",
    "CREATE OR REPLACE SCHEMA main": "Schema 'main' is not empty",
    "CREATE RECURSIVE VIEW r AS SELECT 1": r"CREATE RECURSIVE VIEW name \(columns\) AS query",
    "CREATE RECURSIVE VIEW r (n m) AS SELECT 1": r"CREATE RECURSIVE VIEW name \(columns\) AS query",
    "CREATE RECURSIVE VIEW r (n,) AS SELECT 1": r"CREATE RECURSIVE VIEW name \(columns\) AS query",
    "CREATE RECURSIVE VIEW r (n m o) AS SELECT 1": r"CREATE RECURSIVE VIEW name \(columns\) AS query",
    "CREATE INDEX i ON t (k)": "CREATE INDEX",
    "CREATE SEQUENCE q": "CREATE SEQUENCE",
    "DROP TABLE t, u": "several at once|Unexpected token",
    "ALTER TABLE t ALTER k SET DATA TYPE BIGINT USING k + 1": "USING",
    "ALTER TABLE t ADD COLUMN a INTEGER, ADD COLUMN b INTEGER": "is not supported|cannot parse",
    "ALTER TABLE t SET SCHEMA s": r"ALTER TABLE \.\.\. SET SCHEMA s",
    "ALTER TABLE t RENAME TO s2.t": "RENAME TO another schema",
    "DROP TABLE t CASCADE": "CASCADE in DROP TABLE",
    "DROP TABLE t NOW": "NOW in DROP",
    "CREATE MACRO both(a) AS a, (a, b) AS TABLE SELECT a": "definitions of scalars and of tables",
    "BEGIN": "BEGIN",
    "COPY t TO 'x'": "COPY",
    "ATTACH 'x'": "ATTACH",
    "garbage in": "GARBAGE",
    "": "empty",
}


def test_invalid_statements_raise(lake: DuckLake, caplog: pytest.LogCaptureFixture) -> None:
    before = lake.snapshot().id
    for statement, message in REJECTED.items():
        with pytest.raises((UnsupportedFeatureError, UsageError), match=message):
            lake.sql(statement)
    assert not caplog.records
    with pytest.raises(UsageError, match="at applies only to queries"):
        lake.sql("DELETE FROM t", at=1)
    with pytest.raises(UsageError, match="commits nothing"):
        lake.sql("SELECT 1", message="x")
    assert lake.snapshot().id == before


def test_each_of_several_statements_is_a_commit(lake: DuckLake) -> None:
    before = lake.snapshot().id
    script = "INSERT INTO t VALUES (7, ';'); /* none; */ DELETE FROM t WHERE k = 1;\n;SELECT k, s FROM t WHERE k > 2 -- end; of it"
    found = lake.sql(script, message="script")
    assert found.to_arrow().to_pylist() == [{"k": 7, "s": ";"}]  # type: ignore[union-attr]
    assert [one.message for one in lake.snapshots() if one.id > before] == ["script", "script"]
    # A failed statement leaves the earlier ones.
    with pytest.raises(NotFoundError):
        lake.sql("INSERT INTO t SELECT k, s FROM extra; DELETE FROM nope", extra=[{"k": 8, "s": "x"}])
    assert lake.table("t").scan(where="k = 8").count() == 1
    with lake.transaction() as tx:
        rows = tx.sql("CREATE TABLE made AS FROM first; INSERT INTO made FROM made; FROM made", first=[{"a": 1}])
        assert rows is not None
        assert rows.to_arrow()["a"].to_pylist() == [1, 1]
    for options in ({"parameters": [1]}, {"commit_id": "x"}):
        with pytest.raises(UsageError, match="for one statement only, but the SQL has 2"):
            lake.sql("DELETE FROM t; DELETE FROM t", **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="does not name a table unnamed"):
        lake.sql("DELETE FROM t WHERE k = 7; SELECT 1", unnamed=[{"a": 1}])


def test_a_nested_comment_contains_no_statements(lake: DuckLake) -> None:
    with pytest.raises(UsageError, match="the SQL is empty"):
        lake.sql("/* outer /* inner */ ; DELETE FROM t -- */")
    assert lake.sql("SELECT 1 AS a /* outer /* inner */ ; DELETE FROM t; */").to_arrow().to_pylist() == [{"a": 1}]  # type: ignore[union-attr]
    assert lake.table("t").scan().count() > 0
    with pytest.raises(UsageError, match="not complete"):
        lake.sql("DELETE FROM t; SELECT 'open")
    assert lake.table("t").scan().count() > 0


def test_an_error_in_a_query_ends_several_statements(lake: DuckLake) -> None:
    script = "SELECT CASE WHEN count(*) > 0 THEN error('not empty') END FROM t; DELETE FROM t"
    with pytest.raises(UsageError, match="not empty"):
        lake.sql(script)
    with pytest.raises(UsageError, match="not empty"), lake.transaction() as tx:
        tx.sql(script)
    assert lake.table("t").scan().count() > 0


def test_spark(lake: DuckLake, spark: SparkSession) -> None:
    lake.sql("CREATE TABLE u AS SELECT k, count(*) AS n FROM t GROUP BY k", spark=spark)
    lake.sql("INSERT INTO u SELECT k + 10, k FROM t", spark=spark)
    lake.sql("UPDATE u SET n = n + length(CAST(k AS VARCHAR)) WHERE k > 10", spark=spark)
    lake.sql("MERGE INTO u USING t AS y ON u.k = y.k WHEN MATCHED AND y.s = 'a' THEN DELETE", spark=spark)
    assert sorted(lake.table("u").to_arrow().to_pydict()["k"]) == [2, 11, 12]
    with lake.transaction() as tx:
        tx.sql("INSERT INTO t VALUES (3, 'c')")
        with pytest.raises(UnsupportedFeatureError, match="Leave spark out"):
            tx.sql("INSERT INTO u SELECT k, k FROM t", spark=spark)


def test_strings_and_quoted_names_are_no_keywords(sqlite_address: LakeAddress) -> None:
    with DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path) as lake:
        lake.sql("CREATE TABLE t (a VARCHAR)")
        lake.sql('CREATE TABLE r AS SELECT 1 AS "returning"')
        lake.sql("INSERT INTO t SELECT 'returning'")
        lake.sql('INSERT INTO t SELECT "returning" FROM r')
        assert sorted(lake.table("t").scan().to_arrow()["a"].to_pylist()) == ["1", "returning"]


def test_partition_keys_with_quoted_names(lake: DuckLake) -> None:
    lake.sql('CREATE TABLE quoted (ts TIMESTAMP, "year" INT, "a, ""b" INT)')
    lake.sql('ALTER TABLE quoted SET PARTITIONED BY (year("ts"), "year", bucket(4, "a, ""b"))')
    spec = lake.table("quoted").partition_spec
    assert spec is not None
    assert [(key.transform, key.column) for key in spec.fields] == [("year", "ts"), ("identity", "year"), ("bucket", 'a, "b')]
    lake.sql('CREATE TABLE made (ts TIMESTAMP, "year" INT) PARTITIONED BY (year(ts), "year")')
    assert lake.table("made").partition_spec is not None


def test_a_statement_about_a_table_does_not_take_a_view(lake: DuckLake) -> None:
    """DuckDB rejects each of them, also with IF EXISTS."""
    lake.sql("CREATE VIEW v AS SELECT k FROM t")
    for statement in ("DROP TABLE v", "DROP TABLE IF EXISTS v", "COMMENT ON TABLE v IS 'x'", "ALTER TABLE v RENAME TO w"):
        with pytest.raises(UsageError, match=r"main\.v is a view: write (DROP|ALTER|COMMENT ON) VIEW"):
            lake.sql(statement)
    for statement in ("DROP VIEW t", "DROP VIEW IF EXISTS t", "COMMENT ON VIEW t IS 'x'", "ALTER VIEW t RENAME TO w"):
        with pytest.raises(UsageError, match=r"main\.t is a table: write (DROP|ALTER|COMMENT ON) TABLE"):
            lake.sql(statement)


def test_forms_of_statements(lake: DuckLake) -> None:
    lake.sql("CREATE TABLE f (a INTEGER, b VARCHAR, s STRUCT(x INTEGER, y STRUCT(z INTEGER)))")
    for statement in (
        "INSERT INTO f VALUES (1, 'x', {'x': 1, 'y': {'z': 2}})",
        "ALTER TABLE IF EXISTS nope DROP c",
        "ALTER TABLE IF EXISTS f ADD c INTEGER DEFAULT 5",
        "ALTER TABLE f ALTER c SET TYPE BIGINT",
        "ALTER TABLE f DROP b CASCADE",
        "ALTER TABLE f RENAME a TO b",
        "ALTER TABLE f ADD COLUMN IF NOT EXISTS s.w INTEGER DEFAULT 7",
        "ALTER TABLE f RENAME s.y.z TO zz",
        "ALTER TABLE f DROP COLUMN s.x",
        "ALTER TABLE f ALTER s.w TYPE BIGINT",
        "CREATE TABLE empty AS FROM f WITH NO DATA",
        "CREATE TABLE copy AS (FROM f) WITH DATA",
        "CREATE MACRO add(a) AS a, (a, b) AS a + b",
        "CREATE MACRO rows_of(n) AS TABLE SELECT n AS a, (n, m) AS TABLE (SELECT m AS a)",
    ):
        lake.sql(statement)
    row = {"b": 1, "s": {"y": {"zz": 2}, "w": 7}, "c": 5}
    assert lake.table("f").scan().to_arrow().to_pylist() == lake.table("copy").scan().to_arrow().to_pylist() == [row]
    assert lake.table("empty").schema.names == ("b", "s", "c")
    assert lake.table("empty").scan().count() == 0
    found = lake.sql("SELECT add(1) AS a, add(1, 2) AS b, (FROM rows_of(7)) AS c, (FROM rows_of(7, 8)) AS d")
    assert found.to_arrow().to_pylist() == [{"a": 1, "b": 3, "c": 7, "d": 8}]  # type: ignore[union-attr]
    lake.sql("DROP MACRO TABLE rows_of")


BROKEN_VIEWS = (
    "CREATE MACRO plus(a, b := 3) AS a + b",
    "CREATE TABLE lost (id INTEGER, d DATE, s VARCHAR)",
    "CREATE VIEW v1 AS SELECT upper(s) AS u, id + 1 AS x FROM lost WHERE id > 3",
    "CREATE VIEW v2 (y) AS SELECT u || 'a' FROM v1 JOIN (SELECT 1 AS x) b USING (x)",
    "CREATE VIEW v3 AS WITH q AS (SELECT year(d) AS y FROM lost) SELECT y, count(*) FROM q GROUP BY y",
    "CREATE TABLE k (a INTEGER, b INTEGER)",
    "CREATE VIEW v4 AS SELECT b + 1 AS c FROM k",
    "CREATE VIEW whole AS SELECT a FROM k",
    "COMMENT ON VIEW v2 IS 'second'",
    "DROP TABLE lost",
    "ALTER TABLE k DROP COLUMN b",
)
LISTINGS = (
    "SHOW TABLES",
    "SHOW ALL TABLES",
    "SELECT view_name, comment FROM duckdb_views() WHERE NOT internal ORDER BY ALL",
    "SELECT table_name, table_type FROM information_schema.tables ORDER BY ALL",
    "SELECT table_name, column_name FROM information_schema.columns ORDER BY ALL",
    "SELECT current_database(), current_catalog(), current_schema()",
    "SELECT function_name, function_type, parameters, macro_definition FROM duckdb_functions() WHERE database_name = 'lake'",
    "SELECT type, name FROM sqlite_master ORDER BY ALL",
)


def test_views_of_missing_tables_and_columns_are_listed(small: DuckLake, sqlite_address: LakeAddress) -> None:
    for statement in BROKEN_VIEWS:
        small.sql(statement)
    listed = [[tuple(row.values()) for row in small.sql(sql).to_arrow().to_pylist()] for sql in LISTINGS]  # type: ignore[union-attr]
    with attached(sqlite_address) as duck:
        assert listed == [duck.rows(sql) for sql in LISTINGS]
    (text,) = small.sql("SELECT sql FROM duckdb_views() WHERE view_name = 'v4'").to_arrow()["sql"].to_pylist()  # type: ignore[union-attr]
    assert text.startswith("CREATE VIEW v4 AS SELECT (b + 1) AS c FROM")
    for query in ("FROM v1", "DESCRIBE v1"):
        with pytest.raises(NotFoundError, match=r"^the view v1 cannot be read; .*cannot create the view v1: .*lost does not exist"):
            small.sql(query).to_arrow()  # type: ignore[union-attr]


def test_broken_views_are_listed_next_to_functions_of_this_library(small: DuckLake) -> None:
    small.sql("CREATE TABLE g (x GEOMETRY); CREATE TABLE b (i INTEGER); CREATE VIEW g1 AS SELECT st_intersects(x, x) AS r FROM g")
    small.sql("CREATE VIEW b1 AS SELECT i, current_database() AS d FROM b; DROP TABLE b")
    assert small.sql("SHOW TABLES").to_arrow()["name"].to_pylist() == ["b1", "g", "g1"]  # type: ignore[union-attr]
    assert small.sql("SELECT function_name FROM duckdb_functions() WHERE NOT internal").to_arrow().num_rows == 0  # type: ignore[union-attr]


def test_views_over_functions_of_extensions_are_created(small: DuckLake) -> None:
    small.sql("CREATE VIEW a AS SELECT st_x(st_point(1, 2)) AS p")
    small.sql("CREATE VIEW b AS SELECT * FROM a")
    small.sql("CREATE MACRO m(x) AS st_point(x, x)")
    small.sql("CREATE VIEW c AS SELECT m(1) AS y")
    with pytest.raises(NotFoundError, match=r"the view b cannot be read; .* exists in the spatial extension"):
        small.sql("SELECT * FROM b")


def test_errors_keep_values_as_they_were_written(small: DuckLake) -> None:
    with pytest.raises(UsageError, match="string 'DOUBLE' to int32"):
        small.sql("SELECT CAST('DOUBLE' AS INTEGER)").to_arrow()  # type: ignore[union-attr]
    with pytest.raises(UsageError, match=r'Column "a" not found in FROM'):
        small.sql("SELECT error('Column \"a\" not found in FROM')").to_arrow()  # type: ignore[union-attr]


def test_a_schema_with_tables_is_not_replaced(small: DuckLake) -> None:
    small.sql("CREATE SCHEMA s; CREATE TABLE s.y (i INTEGER)")
    with pytest.raises(UsageError, match=r"contains y\. Drop these first, or drop the schema with CASCADE"):
        small.sql("CREATE OR REPLACE SCHEMA s")
    small.sql("DROP SCHEMA s CASCADE")


def test_queries_of_definitions(lake: DuckLake) -> None:
    def rows(sql: str) -> list[tuple[object, ...]]:
        return [tuple(row.values()) for row in lake.sql(sql).to_arrow().to_pylist()]  # type: ignore[union-attr]

    lake.sql("CREATE SCHEMA other")
    lake.sql("CREATE TABLE other.d (a INTEGER NOT NULL DEFAULT 5, h HUGEINT, w TIMESTAMP DEFAULT now())")
    lake.sql("CREATE VIEW other.v AS SELECT a FROM other.d")
    assert rows("DESCRIBE other.d") == [
        ("a", "INTEGER", "NO", None, "'5'", None),
        ("h", "HUGEINT", "YES", None, None, None),
        ("w", "TIMESTAMP", "YES", None, "now()", None),
    ]
    assert rows("DESC other.v")[0][:2] == ("a", "INTEGER")
    assert [row[:2] for row in rows("DESCRIBE SELECT h FROM other.d")] == [("h", "HUGEINT")]
    assert ("t",) in rows("SHOW TABLES")
    assert {row[2] for row in rows("SHOW ALL TABLES")} >= {"t", "d", "v"}
    assert [row[1:3] for row in rows("PRAGMA table_info('t')")] == [("k", "BIGINT"), ("s", "VARCHAR")]
    listed = "SELECT table_schema, table_name, table_type FROM information_schema.tables WHERE table_schema = 'other' ORDER BY ALL"
    assert rows(listed) == [("other", "d", "BASE TABLE"), ("other", "v", "VIEW")]
    assert rows("SELECT database_name, table_name FROM duckdb_tables() WHERE schema_name = 'other'") == [("lake", "d")]
    with lake.transaction() as tx:
        tx.sql("ALTER TABLE other.d RENAME TO e")
        found = tx.sql("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'other'")
        assert found is not None
        assert found.to_arrow()["table_name"].to_pylist() == ["e"]
