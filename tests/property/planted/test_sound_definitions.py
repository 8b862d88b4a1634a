"""Of definitions that DuckDB and we make nothing is found, however odd they are."""

from __future__ import annotations

import duckdb
import pytest

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, attached


def test_macros_have_the_names_of_other_things(every_lake_address: LakeAddress) -> None:
    """DuckDB refuses a second scalar macro of a name, and a second table macro, and nothing else."""
    with attached(every_lake_address) as duck:
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
    with DuckLake.connect(every_lake_address.url) as lake:
        assert lake.check().by_code == {}, str(lake.check())


def test_schema_versions_of_definitions_in_one_transaction(sqlite_address: LakeAddress) -> None:
    """DuckDB writes one for each snapshot that changes columns, whatever else the transaction does; we do for a table that is back."""
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
