"""Checks find nothing in definitions by DuckDB and by the library, however odd they are."""

from __future__ import annotations

import sys

import duckdb
import pytest

from ducklake_core import DuckLake
from tests.property.hostile_catalogs.lake import DamagedLake
from tests.support.oracle import LakeAddress, attached


def test_macros_have_the_names_of_other_things(lake_address: LakeAddress) -> None:
    """DuckDB rejects a second scalar macro of a name, and a second table macro, and nothing else."""
    with attached(lake_address) as duck:
        duck.run(
            "CREATE TABLE t(a INTEGER)",
            "CREATE VIEW v AS SELECT 1 AS one",
            *(f"CREATE MACRO {name}(q) AS {body}" for name in ("t", "v", "main") for body in ("q", "TABLE SELECT q AS one")),
            "CREATE OR REPLACE MACRO v(q) AS q + 1",
            "CREATE MACRO o(a) AS a, (a, b) AS a + b",
            "CREATE SCHEMA s",
            "CREATE MACRO s.t(q) AS q",
            'CREATE MACRO "Ä"(q) AS q',
            'CREATE MACRO "ä"(q) AS q',
        )
        for made in ("T(q) AS q", "T(q) AS TABLE SELECT 1 AS one"):
            with pytest.raises(duckdb.CatalogException, match="already exists"):
                duck.run(f"CREATE MACRO {made}")
    with DuckLake.connect(lake_address.url) as lake:
        assert lake.check().by_code == {}, str(lake.check())


def test_schema_versions_of_definitions_in_one_transaction(sqlite_address: LakeAddress) -> None:
    """DuckDB writes one for each snapshot that changes columns; the library also does for a restored table."""
    with attached(sqlite_address) as duck:
        duck.run(
            *("BEGIN", "CREATE TABLE t(a INTEGER)", "ALTER TABLE t ADD COLUMN b INTEGER", "ALTER TABLE t RENAME TO u", "COMMIT"),
            *("BEGIN", "ALTER TABLE u RENAME TO t", "ALTER TABLE t RENAME b TO c", "INSERT INTO t VALUES (1, 2)", "COMMIT"),
            *("BEGIN", "ALTER TABLE t ADD COLUMN x INTEGER", "ALTER TABLE t DROP COLUMN x", "COMMIT"),
            *("BEGIN", "ALTER TABLE t ALTER a SET NOT NULL", "ALTER TABLE t ALTER a SET DEFAULT 4", "ALTER TABLE t ALTER a TYPE BIGINT"),
            *("ALTER TABLE t SET PARTITIONED BY (a)", "COMMENT ON COLUMN t.c IS 'words'", "COMMIT"),
            *("ALTER TABLE t ADD COLUMN s STRUCT(i INTEGER)", "ALTER TABLE t ADD COLUMN s.j INTEGER", "ALTER TABLE t DROP COLUMN s.i"),
            *("BEGIN", "DROP TABLE t", "CREATE TABLE t(z INTEGER)", "COMMIT", "CREATE OR REPLACE TABLE t AS SELECT 1 AS one"),
            *("CREATE SCHEMA e", "CREATE TABLE e.t(a INTEGER)", "ALTER TABLE e.t ADD COLUMN b INTEGER", "DROP SCHEMA e CASCADE"),
        )
    with DuckLake.connect(sqlite_address.url) as lake:
        lake.drop_table("t")
        lake.undrop_table("t")
        lake.table("t").add_column("b", "integer")
        lake.table("t").restore(at=lake.snapshot().id - 1, columns="then")
        assert lake.check(level="rows").by_code == {}, str(lake.check(level="rows"))
        lake.expire_snapshots(versions=list(range(lake.snapshot().id)), min_age="0 seconds")
        assert lake.check(level="rows").by_code == {}, str(lake.check(level="rows"))


def test_macros_that_duckdb_takes(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """Macros with any SQL; one that the library cannot parse is no finding where DuckDB is not installed."""
    expressions = (
        *("NULL", "'it''s -- \"not\" /* a comment'", "(SELECT max(a) FROM t)", "list_transform(x, lambda y: y + x)", "[y + 1 FOR y IN x]"),
        *(
            "CASE WHEN x THEN 1 END",
            'x::STRUCT(a INTEGER, "b c" VARCHAR[])',
            "max(x) FILTER (x > 1) OVER (PARTITION BY x ROWS 2 PRECEDING)",
        ),
        *("{'a': x, 'b': MAP {'k': x}}", "x BETWEEN 1 AND 2 IS NOT NULL", "x[1:2]", "x.a.b", "'a' COLLATE NOCASE", "INTERVAL (x) DAY"),
        *(
            "DATE '2024-01-01' + x", "x NOT IN (SELECT 1)", "EXISTS (SELECT 1)", "x LIKE '%' ESCAPE '\\'", "TRY_CAST(x AS UHUGEINT)",
            "-x ** 2", "!x",
        ),
    )  # fmt: skip
    queries = (
        *(
            "(SELECT 1 AS a) UNION ALL SELECT 2",
            "VALUES (1), (2)",
            "FROM t",
            "WITH c AS (SELECT 1 AS a) FROM c",
            "SELECT * EXCLUDE (a) FROM t",
        ),
        *(
            "SELECT a, x FROM t ORDER BY ALL LIMIT 3",
            "SELECT * FROM (PIVOT t ON a IN (1, 2) USING count(*))",
            "FROM range(x) USING SAMPLE 5",
        ),
        *("SELECT * FROM t QUALIFY row_number() OVER () = 1", "FROM t AT (VERSION => 1)", "SELECT t.* FROM t, LATERAL (SELECT t.a) u(b)"),
        *("WITH RECURSIVE c AS (SELECT 1 AS a UNION SELECT a + 1 FROM c WHERE a < x) FROM c", "FROM t ASOF JOIN t u ON t.a >= u.a"),
    )
    taken = 0
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE t(a INTEGER, b VARCHAR)")
        for index, body in enumerate((*expressions, *(f"TABLE {query}" for query in queries))):
            try:
                duck.run(f"CREATE MACRO m{index}(x) AS {body}")
            except duckdb.Error:
                continue
            taken += 1
    assert taken > 25
    with attached(sqlite_address) as duck:
        assert duck.value("SELECT m0(1)") is None
    with DuckLake.connect(sqlite_address.url) as lake:
        assert lake.check().by_code == {}, str(lake.check())
        DamagedLake(sqlite_address).edit("UPDATE ducklake_macro_impl SET sql = '(q +' WHERE type = 'scalar'")
        assert set(lake.check().by_code) == {"macro-invalid"}
        monkeypatch.setitem(sys.modules, "duckdb", None)
        assert lake.check().by_code == {}
