"""Schemas inside schemas, and names with dots and quotes, in every statement of lake.sql."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import NotFoundError, UsageError
from ducklake_core.sql.query import Query
from tests.support.ducklakepy_lake import new_lake
from tests.support.oracle import attached, file_lake, sqlite_lake

ODD = '"odd.na""me"'
SETUP = (
    "CREATE SCHEMA sales",
    "CREATE SCHEMA IF NOT EXISTS sales.europe",
    'CREATE SCHEMA "sales.europe"',
    "CREATE SCHEMA sales.europe.north",
    "CREATE TABLE sales.europe.orders (k BIGINT, s VARCHAR DEFAULT 'x')",
    "CREATE TABLE sales.europe.north.orders AS SELECT 7 AS k, 'north' AS s",
    'CREATE TABLE "sales.europe".orders AS SELECT 9 AS k, \'flat\' AS s',
    "INSERT INTO sales.europe.orders (k) VALUES (1), (2)",
    "INSERT INTO sales.europe.orders SELECT k, s FROM sales.europe.north.orders",
    "INSERT INTO Sales.Europe.Orders BY NAME FROM \"sales.europe\".orders",
    "UPDATE sales.europe.orders SET s = orders.s || '!' WHERE sales.europe.orders.k = 1 AND europe.orders.s = 'x'",
    "DELETE FROM sales.europe.orders WHERE orders.k = 2",
    """MERGE INTO sales.europe.orders USING sales.europe.north.orders AS n ON sales.europe.orders.k = n.k
    WHEN MATCHED THEN UPDATE SET s = n.s || orders.s WHEN NOT MATCHED THEN INSERT (k, s) VALUES (n.k, 'never')""",
    """MERGE INTO sales.europe.north.orders AS n USING sales.europe.orders ON n.k = sales.europe.orders.k
    WHEN NOT MATCHED THEN INSERT (k, s) VALUES (sales.europe.orders.k, orders.s)""",
    "ALTER TABLE sales.europe.orders ADD COLUMN z INTEGER DEFAULT 5",
    "ALTER TABLE sales.europe.orders SET PARTITIONED BY (k)",
    "COMMENT ON SCHEMA sales.europe IS 'old world'",
    "COMMENT ON TABLE sales.europe.orders IS 'bought'",
    "COMMENT ON COLUMN sales.europe.orders.z IS 'five'",
    "CREATE VIEW sales.europe.v AS SELECT o.k, n.s FROM sales.europe.orders AS o JOIN sales.europe.north.orders AS n USING (k)",
    "CREATE VIEW w AS SELECT max(o.k) AS top FROM sales.europe.v, sales.europe.orders AS o WHERE o.k = v.k",
    "CREATE MACRO sales.europe.twice(x) AS x * 2",
    "CREATE TABLE sales.europe.former (a INTEGER)",
    "ALTER TABLE sales.europe.former RENAME TO sales.europe.lost",
    "DROP TABLE sales.europe.lost",
    "CREATE SCHEMA sales.europe.empty",
    "DROP SCHEMA sales.europe.empty",
)  # fmt: skip
ANSWERS = {
    "FROM sales.europe.orders ORDER BY k": [(1, "x!", 5), (7, "northnorth", 5), (9, "flat", 5)],
    "SELECT count(*), sum(sales.europe.orders.z) FROM sales.europe.orders": [(3, 15)],
    'SELECT a.s, b.s FROM sales.europe.orders AS a JOIN "sales.europe".orders AS b USING (k)': [("flat", "flat")],
    'SELECT n.k FROM "SALES".Europe."north".orders n, sales.europe.orders o WHERE n.k = o.k AND o.s = \'flat\'': [(9,)],
    "SELECT k FROM sales.europe.v ORDER BY sales.europe.v.k": [(1,), (7,), (9,)],
    "SELECT top, sales.europe.twice(top) FROM w": [(9, 18)],
    "SELECT count(*) FROM sales.europe.orders AT (VERSION => 8) AS o, \"sales.europe\".orders AT (VERSION => 9)": [(2,)],
    # A struct of a table called sales is not a schema.
    "SELECT sales.europe.orders.k FROM (SELECT {'orders': {'k': 3}} AS europe) AS sales": [(3,)],
    "SELECT (SELECT sum(k) FROM sales.europe.orders), 'sales.europe.v' -- sales.europe.orders": [(17, "sales.europe.v")],
}  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckLake]:
    lake = new_lake(file_lake("sqlite", tmp_path_factory.mktemp("nested")))
    for statement in SETUP:
        lake.sql(statement)
    yield lake
    lake.close()


def _rows(found: object) -> list[tuple[object, ...]]:
    assert isinstance(found, Query)
    return list(zip(*(column.to_pylist() for column in found.to_arrow().columns), strict=True))


@pytest.mark.parametrize("query", ANSWERS)
def test_schemas_in_schemas(lake: DuckLake, query: str) -> None:
    assert _rows(lake.sql(query)) == ANSWERS[query]


def test_definitions_in_nested_schemas(lake: DuckLake) -> None:
    assert {schema.name: schema.comment for schema in lake.schemas()}["sales.europe"] == "old world"
    state = lake.table("sales.europe.orders")
    assert (state.comment, state.schema.column("z").name) == ("bought", "z")
    assert sorted(one.table for one in lake.tables("sales.europe")) == ["sales.europe.orders"]


def test_nested_names_in_a_transaction(lake: DuckLake) -> None:
    with lake.transaction() as tx:
        tx.sql("CREATE TABLE sales.europe.north.fresh AS SELECT k + 1 AS k FROM sales.europe.orders")
        found = tx.sql("SELECT sum(f.k) FROM sales.europe.north.fresh AS f SEMI JOIN sales.europe.orders AS o ON f.k = o.k + 1")
        assert found is not None
        assert found.to_arrow().to_pydict() == {"sum(f.k)": [20]}
        tx.sql("DROP TABLE sales.europe.north.fresh")


def test_missing_nested_names_raise(lake: DuckLake) -> None:
    for text in ("SELECT count(*) FROM sales.europe.nope", "DELETE FROM sales.europe.nope", "DROP SCHEMA sales.nope"):
        with pytest.raises(NotFoundError, match="nope"):
            _rows(lake.sql(text))
    with pytest.raises(UsageError, match="a name is missing"):
        lake.sql("CREATE SCHEMA 'x'")


ON_ODD_NAMES = (
    f"CREATE SCHEMA {ODD}",
    f'CREATE TABLE {ODD}."ta.b""le,x" ("c.o""l,1" INTEGER, "sel ect" VARCHAR)',
    f"INSERT INTO {ODD}.\"ta.b\"\"le,x\" VALUES (5, 'x,y'), (6, 'deleted')",
    f'INSERT INTO {ODD}."ta.b""le,x" ("sel ect", "c.o""l,1") VALUES (\'seven\', 7)',
    f'UPDATE {ODD}."ta.b""le,x" AS "a.b" SET "sel ect" = "a.b"."sel ect" || \'?\' WHERE "a.b"."c.o""l,1" = 5',
    f'DELETE FROM {ODD}."ta.b""le,x" WHERE "ta.b""le,x"."c.o""l,1" = 6',
    f'ALTER TABLE {ODD}."ta.b""le,x" RENAME TO "b.c"',
    f'ALTER TABLE {ODD}."b.c" RENAME COLUMN "c.o""l,1" TO "d.e"',
)  # fmt: skip


def test_odd_names_as_duckdb_has_them(tmp_path_factory: pytest.TempPathFactory) -> None:
    own, by_duckdb = (sqlite_lake(tmp_path_factory.mktemp(name)) for name in ("own", "duckdb"))
    lake = DuckLake.create(own.url, data_path=own.data_path)
    with attached(by_duckdb) as duck:
        duck.run(*ON_ODD_NAMES)
        expected = duck.rows(f'FROM {ODD}."b.c" ORDER BY ALL')
    for statement in ON_ODD_NAMES:
        lake.sql(statement)
    then = f'SELECT * FROM {ODD}."b.c" AT (VERSION => {lake.snapshot().id}) ORDER BY ALL'
    assert _rows(lake.sql(then)) == _rows(lake.sql(f'FROM {ODD}."b.c" ORDER BY ALL')) == expected == [(5, "x,y?"), (7, "seven")]
