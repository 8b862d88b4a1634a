"""Objects created in a schema, table or view that another transaction drops: never both, and DuckDB attaches the lake.

Every pair runs in both orders: one statement is staged, the other commits, and then the first one commits. The other is of this library
or of DuckDB.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import product

import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import CommitConflictError, DuckLakeError
from tests.support.oracle import LakeAddress, attached

SETUP = (
    "CREATE SCHEMA e", "CREATE SCHEMA s", "CREATE TABLE s.t (x INTEGER)", "INSERT INTO s.t VALUES (1)", "CREATE VIEW s.v AS SELECT 1 AS a",
    "CREATE TABLE main.m (x INTEGER)", "CREATE VIEW main.w AS SELECT 1 AS a",
)  # fmt: skip
INSIDE = (
    "CREATE TABLE e.n (x INTEGER)", "CREATE TABLE e.n AS SELECT 1 AS x", "CREATE VIEW e.n AS SELECT 1 AS a", "CREATE MACRO e.f(x) AS x + 1",
    "CREATE MACRO e.g() AS TABLE SELECT 1 AS x", "COMMENT ON SCHEMA e IS 'text'",
)  # fmt: skip
DROPS_OF_SCHEMA = ("DROP SCHEMA e", "DROP SCHEMA e CASCADE")
ON_TABLE = (
    "ALTER TABLE s.t ADD COLUMN y INTEGER", "ALTER TABLE s.t RENAME TO u", "INSERT INTO s.t VALUES (2)", "DELETE FROM s.t",
    "UPDATE s.t SET x = 3",
    "COMMENT ON TABLE s.t IS 'text'", "COMMENT ON COLUMN s.t.x IS 'text'", "ALTER TABLE s.t SET PARTITIONED BY (x)",
)  # fmt: skip
DROPS_OF_TABLE = ("DROP TABLE s.t", "DROP SCHEMA s CASCADE")
ON_VIEW = ("ALTER VIEW s.v RENAME TO w", "COMMENT ON VIEW s.v IS 'text'", "CREATE OR REPLACE VIEW s.v AS SELECT 2 AS a")
DROPS_OF_VIEW = ("DROP VIEW s.v", "DROP SCHEMA s CASCADE")
SAME_NAME = (
    "CREATE TABLE s.n (x INTEGER)",
    "CREATE VIEW s.n AS SELECT 1 AS a",
    "ALTER TABLE s.t RENAME TO n",
    "ALTER VIEW s.v RENAME TO n",
)

NOT_IN_DUCKDB = "COMMENT ON SCHEMA e IS 'text'"

PAIRS = [
    *product(INSIDE, DROPS_OF_SCHEMA),
    *product(ON_TABLE, DROPS_OF_TABLE),
    *product(ON_VIEW, DROPS_OF_VIEW),
    *((one, other) for one, other in product(SAME_NAME, SAME_NAME) if one != other),
]


def _check(address: LakeAddress) -> None:
    """DuckDB attaches the lake, and everything that it lists can be read."""
    with attached(address) as duck:
        names = duck.rows("SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'lake' AND NOT internal")
        views = duck.rows("SELECT schema_name, view_name FROM duckdb_views() WHERE database_name = 'lake' AND NOT internal")
        for schema, name in (*names, *views):
            duck.rows(f'SELECT * FROM lake."{schema}"."{name}"')
    lake = DuckLake.connect(address.url)
    assert lake.check().findings == ()
    lake.close()


def _run(address: LakeAddress, staged: str, commits: str, by_duckdb: bool) -> None:
    lake = DuckLake.create(address.url, data_path=address.data_path)
    for statement in SETUP:
        lake.sql(statement)
    other = DuckLake.connect(address.url)
    with suppress(CommitConflictError, DuckLakeError), lake.transaction() as tx:
        tx.sql(staged)
        if by_duckdb:
            with attached(address) as duck:
                duck.run("USE lake", commits)
        else:
            other.sql(commits)
    lake.close()
    other.close()
    _check(address)


@pytest.mark.parametrize(("one", "other"), [pair for pair in PAIRS if pair[0] in INSIDE[:3]])
def test_new_entries_and_drops_of_their_schema(sqlite_address: LakeAddress, one: str, other: str) -> None:
    _run(sqlite_address, one, other, by_duckdb=False)


@pytest.mark.slow
@pytest.mark.parametrize("by_duckdb", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_every_pair(lake_address: LakeAddress, one: str, other: str, reverse: bool, by_duckdb: bool) -> None:
    staged, commits = (other, one) if reverse else (one, other)
    _run(lake_address, staged, commits, by_duckdb and commits != NOT_IN_DUCKDB)
