"""Random UPDATE, DELETE and MERGE that DuckDB computes in process: the rows are those of plain tables of DuckDB, and row ids stay."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import SchemaError, UsageError
from tests.support.oracle import LakeAddress, attached, sqlite_lake
from tests.support.parameters import spread

TABLES = (
    """CREATE TABLE t (id BIGINT, k INTEGER, "a ""q" VARCHAR DEFAULT 'nil', n DOUBLE, d DATE, "select" DECIMAL(9,2))""",
    "CREATE TABLE u (k INTEGER, x VARCHAR, y INTEGER)",
    "CREATE TABLE e (k INTEGER, x VARCHAR, y INTEGER)",
    "INSERT INTO u SELECT CASE WHEN i % 5 > 0 THEN i % 7 END, 'x' || i, i % 4 FROM range(9) AS r(i)",
)
ROWS = """INSERT INTO t SELECT i, CASE WHEN i % 6 > 0 THEN i % 8 END, CASE WHEN i % 4 > 0 THEN chr((97 + i % 5)::INTEGER) || 'é' END,
    CASE i % 9 WHEN 0 THEN NULL WHEN 1 THEN 'nan' ELSE i / 4 END, DATE '2020-01-01' + (i * 20 % 700)::INTEGER, i / 3
    FROM range({}, {}) AS r(i)"""
CONDITIONS = (
    "t.k IN (SELECT y FROM u)",
    "t.k NOT IN (SELECT k FROM e)",
    "t.k NOT IN (SELECT k FROM u WHERE k > 4)",
    "EXISTS (SELECT 1 FROM u AS o WHERE o.k = t.k AND o.y > 1)",
    "t.n > (SELECT avg(n) FROM t WHERE NOT isnan(n))",
    """length("a ""q") > 1 AND t.id < (SELECT max(id) - 10 FROM main.t)""",
    """regexp_matches(t."a ""q", '^[ab]') IS NOT TRUE""",
    '"select" IS NULL OR hash(t.id) % 2 = 0',
    "t.id % 3 = 1",
    "main.t.d BETWEEN DATE '2020-03-01' AND (SELECT max(d) FROM t)",
)
VALUES = {
    '"a ""q"': (
        'upper(t."a ""q") || \'!\'',
        "(SELECT max(x) FROM u AS o WHERE o.k = t.k)",
        "NULL",
        "t.id",
        "DEFAULT",
        "reverse('é' || t.k)",
    ),
    "n": ("t.n * 2", "(SELECT count(*) FROM t AS o WHERE o.k = t.k)", "CASE WHEN t.n > 3 THEN -1 ELSE sqrt(abs(t.id)) END", "'7.5'"),
    "d": ("t.d + INTERVAL 1 DAY", "'2021-02-03'", "make_date(2020, 1 + t.k, 1)"),
    '"select"': ("t.k / 3", 't."select" + 1', "try_cast(round(t.n) AS INTEGER) % 100"),
    "k": ("t.k + 1", "list_sum([t.k, 1])", "NULL"),
}
OF_SOURCE = {'"a ""q"': ("u.x", "u.x || t.id"), "n": ("u.y", "coalesce(t.n, 0) + u.y"), "k": ("u.y",), '"select"': ("u.y / 7",)}
SOURCES = (
    "u",
    "(SELECT k, max(x) AS x, max(y) AS y FROM u GROUP BY k) AS u",
    "e AS u",
    "(SELECT k + 1 AS k, 'one' AS x, 1 AS y FROM u) AS u",
)


class Statements:
    """Random statements."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def next(self) -> tuple[str, str | None]:
        """A statement, and what counts rows of the table that several rows of its source match."""
        kind = self._random.choice(("UPDATE", "DELETE", "UPDATE FROM", "DELETE USING", "MERGE", "MERGE", "MERGE"))
        source = self._random.choice(SOURCES)
        many = f"SELECT count(*) - count(DISTINCT t.id) FROM t JOIN {source} ON "
        condition = " AND ".join(self._random.sample(CONDITIONS, self._random.choice((1, 1, 2))))
        match kind:
            case "UPDATE":
                return f"UPDATE t SET {self._set(VALUES)} WHERE {condition}", None
            case "DELETE":
                return f"DELETE FROM t WHERE {condition} AND t.id % 4 = 1", None
            case "UPDATE FROM":
                return (
                    f"UPDATE t SET {self._set(OF_SOURCE)} FROM {source} WHERE t.k = u.k AND {condition}",
                    many + f"t.k = u.k AND {condition}",
                )
            case "DELETE USING":
                return f"DELETE FROM t USING {source} WHERE t.k = u.k AND {condition} AND id % 3 = 0", None
            case _:
                on = self._random.choice(
                    ("t.k = u.k", "t.k = u.k AND t.id % 2 = 0", "t.id = u.k", "t.id = u.k * 3 AND t.n > u.y", "t.id + 1 < u.k")
                )
                return f"MERGE INTO t USING {source} ON {on} {self._branches(condition)}", many + on

    def _set(self, values: dict[str, tuple[str, ...]]) -> str:
        names = self._random.sample(sorted(values), self._random.choice((1, 1, 2)))
        return ", ".join(f"{name} = {self._random.choice(values[name])}" for name in names)

    def _branches(self, condition: str) -> str:
        found = []
        if self._random.random() < 0.5:
            found.append(f"WHEN MATCHED AND {condition} THEN {self._random.choice(('DELETE', 'DO NOTHING', 'UPDATE SET n = 0'))}")
        if self._random.random() < 0.8:
            found.append(f"WHEN MATCHED AND hash(u.x) % 3 > 0 THEN UPDATE SET {self._set(OF_SOURCE)}")
        if self._random.random() < 0.6:
            values = self._random.choice(("(u.y + 1000, upper(u.x))", "(1000, DEFAULT)", "(y + 1000, x || '2')"))
            found.append(f"""WHEN NOT MATCHED AND u.y > 0 THEN INSERT (id, "a ""q") VALUES {values}""")
        if self._random.random() < 0.4 or all(one.endswith("NOTHING") for one in found):
            by_source = self._random.choice((f"AND {condition} THEN UPDATE SET {self._set(VALUES)}", "AND t.id % 7 = 0 THEN DELETE"))
            found.append(f"WHEN NOT MATCHED BY SOURCE {by_source}")
        return " ".join(found)


EVERYTHING = "SELECT * REPLACE (CASE WHEN isnan(n) THEN -99 ELSE n END AS n) FROM t ORDER BY ALL"


def rows_of(lake: DuckLake) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in lake.sql(EVERYTHING).to_arrow().to_pylist()]  # type: ignore[union-attr]


def row_ids(lake: DuckLake) -> dict[object, object]:
    return {row["id"]: row["rowid"] for row in lake.table("t").scan(columns=["id", "rowid"]).to_arrow().to_pylist() if row["id"] < 1000}


LAYOUTS = ("files", "inlined", "partitioned")


def prepared(folder: Path, layout: str) -> tuple[LakeAddress, DuckLake, duckdb.DuckDBPyConnection]:
    """A lake, and plain tables of DuckDB with the same rows."""
    address = sqlite_lake(folder)
    lake = DuckLake.create(address.url, data_path=address.data_path)
    twin = duckdb.connect()
    if layout != "inlined":
        lake.set_option("data_inlining_row_limit", 0)
    for statement in TABLES:
        twin.execute(statement)
        lake.sql(statement)
    if layout == "partitioned":
        lake.sql("""ALTER TABLE t SET PARTITIONED BY (bucket(3, k), year(d))""")
    if layout == "inlined":
        lake.set_option("data_inlining_row_limit", 15)
    for start, end in ((0, 25), (25, 36), (36, 40)):
        twin.execute(ROWS.format(start, end))
        lake.sql(ROWS.format(start, end))
    return address, lake, twin


def run_both(lake: DuckLake, twin: duckdb.DuckDBPyConnection, statement: str, many: str | None) -> None:
    repeated = 0 if many is None else twin.execute(many).fetchone()[0]  # type: ignore[index]
    before = row_ids(lake)
    try:
        lake.sql(statement)
    except (UsageError, SchemaError) as problem:
        if "more than one row of the source matches" in problem.message:
            assert repeated, statement
            return
        with pytest.raises(duckdb.Error):
            twin.execute(statement)
        return
    assert not (repeated and statement.startswith("MERGE")), statement
    twin.execute(statement)
    assert rows_of(lake) == twin.execute(EVERYTHING).fetchall(), statement
    after = row_ids(lake)
    assert {key: before[key] for key in after} == after, statement


@pytest.mark.parametrize("layout", spread(LAYOUTS, 1))
def test_random_statements_do_what_duckdb_does(tmp_path: Path, layout: str) -> None:
    run_random(tmp_path, layout, seed=LAYOUTS.index(layout), count=8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 16))
def test_many_random_statements(tmp_path: Path, seed: int) -> None:
    run_random(tmp_path, LAYOUTS[seed % 3], seed=seed, count=60)


def run_random(folder: Path, layout: str, *, seed: int, count: int) -> None:
    address, lake, twin = prepared(folder, layout)
    statements = Statements(seed)
    for number in range(count):
        run_both(lake, twin, *statements.next())
        if number % 12 == 11:
            for statement in (ROWS.format(40 + number, 50 + number), "DELETE FROM t WHERE id >= 1000"):
                twin.execute(statement)
                lake.sql(statement)
    with attached(address) as duck:
        assert duck.rows(EVERYTHING) == twin.execute(EVERYTHING).fetchall()
    lake.close()
