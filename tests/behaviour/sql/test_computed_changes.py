"""UPDATE, DELETE and MERGE that DuckDB computes in process: the rows are DuckDB's, and row ids stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import CommitConflictError, NotFoundError, SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.staging.publish import CommitCoordinator
from tests.support.oracle import LakeAddress, attached, sqlite_lake


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> Iterator[DuckLake]:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.sql("CREATE TABLE t (k BIGINT, s VARCHAR)")
    lake.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, NULL)")
    lake.sql("CREATE TABLE u (k BIGINT, x VARCHAR)")
    lake.sql("INSERT INTO u VALUES (1, 'one'), (2, 'two'), (2, 'two'), (9, 'nine')")
    yield lake
    lake.close()


ALL = "SELECT k, s FROM t ORDER BY ALL"


def rows_of(lake: DuckLake, query: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in lake.sql(query).to_arrow().to_pylist()]  # type: ignore[union-attr]


ONE_BY_ONE = {
    # Equal rows of FROM count once; without rows nothing happens.
    "UPDATE t SET s = x FROM u WHERE t.k = u.k": [(1, "one"), (2, "two"), (3, None)],
    "UPDATE main.t AS z SET (k, s) = (z.k + 10, upper(x) || '!') FROM main.u WHERE z.k = u.k AND x <> 'one'": [
        (1, "a"),
        (3, None),
        (12, "TWO!"),
    ],
    "UPDATE t SET s = 'none' FROM u WHERE false": [(1, "a"), (2, "b"), (3, None)],
    "DELETE FROM t USING u, u AS v WHERE t.k = u.k AND v.k = u.k": [(3, None)],
    "WITH c AS (SELECT max(k) AS k FROM t) DELETE FROM t USING c WHERE c.k = t.k": [(1, "a"), (2, "b")],
    "WITH c AS (SELECT 2 AS k) UPDATE t SET s = 'c' WHERE k IN (FROM c)": [(1, "a"), (2, "c"), (3, None)],
    "WITH c AS (SELECT 4 AS k) INSERT INTO t (k) SELECT k FROM c": [(1, "a"), (2, "b"), (3, None), (4, None)],
    "WITH c AS (SELECT 4 AS k) INSERT INTO t (k) WITH d AS (FROM c) SELECT k + 1 FROM d": [(1, "a"), (2, "b"), (3, None), (5, None)],
    "UPDATE t SET s = (SELECT min(x) FROM u AS t WHERE t.k > 1) WHERE s IS NULL": [(1, "a"), (2, "b"), (3, "nine")],
    "UPDATE t SET s = list_transform([k], lambda i: i * 2)[1] WHERE rowid = 1": [(1, "a"), (2, "4"), (3, None)],
    "DELETE FROM t WHERE rowid IN (SELECT rowid FROM t ORDER BY k DESC LIMIT 2)": [(1, "a")],
    "DELETE FROM t WHERE k IN (SELECT k FROM t AT (VERSION => 2) WHERE s IS NOT NULL)": [(3, None)],
    "MERGE INTO t USING (SELECT 7 AS k, 'q' AS s) AS y USING (k) WHEN NOT MATCHED THEN INSERT": [(1, "a"), (2, "b"), (3, None), (7, "q")],
    "MERGE INTO t USING (SELECT 'p' AS s, 3 AS k) AS y USING (k) WHEN MATCHED THEN UPDATE BY NAME": [(1, "a"), (2, "b"), (3, "p")],
    "MERGE INTO t USING (SELECT 3 AS n, 'p' AS s) AS y ON t.k = n WHEN MATCHED THEN UPDATE SET *": [(1, "a"), (2, "b"), (3, "p")],
    "MERGE INTO t USING (SELECT 3 AS n, 'p' AS m) AS y ON t.k = n WHEN MATCHED AND m IN (FROM (VALUES ('p'))) THEN UPDATE": [
        (1, "a"),
        (2, "b"),
        (3, "p"),
    ],
    "MERGE INTO t USING (VALUES (2)) ON k = col0 WHEN MATCHED THEN DELETE": [(1, "a"), (3, None)],
    "MERGE INTO t USING range(2, 6) AS r(i) ON k = i WHEN NOT MATCHED AND i > 4 THEN INSERT (k) VALUES (i)": [
        (1, "a"),
        (2, "b"),
        (3, None),
        (5, None),
    ],
    "MERGE INTO t USING (SELECT 4 AS k) AS y ON t.k < y.k AND t.k > 1 WHEN MATCHED THEN DELETE": [(1, "a")],
    "MERGE INTO t USING u ON t.k = u.k AND u.k = 1 WHEN MATCHED AND s = 'a' THEN DO NOTHING WHEN MATCHED THEN DELETE": [
        (1, "a"),
        (2, "b"),
        (3, None),
    ],
    "MERGE INTO t USING t AS o ON t.k = o.k + 1 WHEN MATCHED THEN UPDATE SET s = o.s WHEN NOT MATCHED BY SOURCE THEN DELETE": [
        (2, "a"),
        (3, "b"),
    ],
    "MERGE INTO t USING (SELECT 9 AS k) AS y ON t.k = y.k WHEN NOT MATCHED THEN INSERT DEFAULT VALUES": [
        (1, "a"),
        (2, "b"),
        (3, None),
        (None, None),
    ],
    "WITH c AS (SELECT 1 AS k) MERGE INTO t USING c ON t.k = c.k WHEN MATCHED THEN UPDATE SET s = DEFAULT": [
        (1, None),
        (2, "b"),
        (3, None),
    ],
    "UPDATE t SET s = DEFAULT, k = 8 WHERE k = 2": [(1, "a"), (3, None), (8, None)],
    "INSERT INTO t VALUES (4, DEFAULT), (DEFAULT, 'd')": [(1, "a"), (2, "b"), (3, None), (4, None), (None, "d")],
    "INSERT INTO t DEFAULT VALUES": [(1, "a"), (2, "b"), (3, None), (None, None)],
}


def test_one_by_one(lake: DuckLake) -> None:
    twin = duckdb.connect()
    twin.execute("CREATE TABLE u (k BIGINT, x VARCHAR)")
    twin.execute("INSERT INTO u VALUES (1, 'one'), (2, 'two'), (2, 'two'), (9, 'nine')")
    base = lake.snapshot().id
    for statement, expected in ONE_BY_ONE.items():
        lake.sql(statement)
        assert rows_of(lake, ALL) == expected, statement
        twin.execute("CREATE OR REPLACE TABLE t (k BIGINT, s VARCHAR)")
        twin.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, NULL)")
        if " AT (" not in statement:
            twin.execute(statement)
            assert twin.execute(ALL).fetchall() == expected, statement
        lake.restore(at=base)


REJECTED = {
    "UPDATE t SET s = x FROM (FROM u UNION ALL SELECT 2, 'other') AS u WHERE t.k = u.k": "more than one row of the source matches",
    "MERGE INTO t USING u ON t.k = u.k WHEN MATCHED AND hash(x) < 0 THEN DELETE": "more than one row of the source matches",
    "UPDATE t SET s = max(s)": "aggregate functions are not allowed in UPDATE",
    "UPDATE t SET k = row_number() OVER ()": "window functions are not allowed",
    "UPDATE t SET k = unnest([1, 2])": "UNNEST not supported here",
    "UPDATE t SET s = nope FROM u": "nope",
    "UPDATE t SET nope = x FROM u": "nope",
    "UPDATE t SET k = k + 1 FROM u WHERE true": "Ambiguous reference",
    "UPDATE t SET (k, s) = (SELECT 1, 'a')": "one value for each column",
    "UPDATE t SET k = (SELECT k FROM u)": "More than one row returned",
    "UPDATE t SET k = x FROM (SELECT 'abc' AS x) AS u": "Could not convert string 'abc'",
    "DELETE FROM t WHERE k IN (SELECT k FROM nowhere)": "no table or view nowhere",
    "DELETE FROM t WHERE k IN (SELECT k FROM u) RETURNING k": "RETURNING in DELETE",
    "UPDATE t SET s = x FROM u RETURNING *": "RETURNING in UPDATE",
    "DELETE FROM t WHERE rowid IN (SELECT k FROM (SELECT * FROM u))": "only supported in queries that list their columns",
    "MERGE INTO t USING u JOIN u AS v USING (k) ON t.k = u.k WHEN MATCHED THEN DELETE": "a join as the source",
    "MERGE INTO t USING (SELECT 1 AS k) AS y USING (k) WHEN MATCHED THEN ERROR 'found ' || 'it'": "WHEN MATCHED: found it",
    "MERGE INTO t USING (SELECT 1 AS k) AS y USING (k) WHEN NOT MATCHED THEN INSERT": "1 columns, but the table has 2|1 values were",
    "MERGE INTO t USING (SELECT 1 AS k) AS y USING (k) WHEN MATCHED THEN INSERT (k) VALUES (1)": "WHEN MATCHED is not supported",
    "MERGE INTO t USING u ON t.k < u.k WHEN MATCHED THEN DELETE WHEN MATCHED THEN UPDATE SET s = 'a'": "never used",
    "MERGE INTO t USING u ON t.k = u.k WHEN MATCHED THEN DO NOTHING WHEN MATCHED AND x > 1 THEN DELETE": "never used",
    "INSERT INTO t BY NAME VALUES (1, 'a')": "VALUES have no names",
}


def test_invalid_statements_raise(lake: DuckLake) -> None:
    before = lake.snapshot().id
    for statement, message in REJECTED.items():
        with pytest.raises((UsageError, UnsupportedFeatureError, NotFoundError), match=message):
            lake.sql(statement)
    lake.sql("ALTER TABLE t ALTER k SET NOT NULL")
    with pytest.raises(SchemaError, match="NOT NULL"):
        lake.sql("UPDATE t SET k = (SELECT NULL)")
    assert lake.snapshot().id == before + 1


def test_without_duckdb(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    with pytest.raises(UnsupportedFeatureError, match=r"UPDATE \.\.\. FROM is not supported.* pip install"):
        lake.sql("UPDATE t SET s = x FROM u")
    with pytest.raises(UsageError, match="a subquery"):
        lake.sql("DELETE FROM t WHERE k IN (SELECT k FROM u)")
    lake.sql("UPDATE t SET s = upper(s) WHERE k = 1")


def test_in_a_transaction(lake: DuckLake) -> None:
    with lake.transaction() as tx:
        tx.sql("INSERT INTO t VALUES (4, 'new')")
        tx.sql("CREATE TABLE v AS SELECT k FROM t WHERE k > 2")
        tx.sql("UPDATE t SET s = coalesce(s, 'nil') || (SELECT count(*) FROM v) WHERE k IN (FROM v)")
        tx.sql("DELETE FROM v WHERE k NOT IN (SELECT k FROM t WHERE s LIKE 'new%')")
        tx.sql("UPDATE v SET k = t.k * 2 FROM t WHERE t.k = v.k")
    assert rows_of(lake, ALL) == [(1, "a"), (2, "b"), (3, "nil2"), (4, "new2")]
    assert rows_of(lake, "FROM v") == [(8,)]
    assert row_changes(lake) == [("insert", 4), ("update_postimage", 3), ("update_preimage", 3)]


def row_changes(lake: DuckLake) -> list[tuple[str, int]]:
    now = lake.snapshot().id
    rows = lake.table("t").changes(now, now).to_arrow().to_pylist()
    return sorted((row["change_type"], row["k"]) for row in rows)


STATEMENT = "UPDATE t SET s = (SELECT max(x) FROM u WHERE u.k <= t.k) WHERE k < 3"
CONCURRENT = {
    "INSERT INTO t VALUES (0, 'late')": [(0, None), (1, "one"), (2, "two"), (3, None)],
    "UPDATE t SET k = 10 WHERE k = 2": [(1, "one"), (3, None), (10, "b")],
    "DELETE FROM t WHERE k = 1": [(2, "two"), (3, None)],
    "INSERT INTO u VALUES (1, 'zzz')": [(1, "zzz"), (2, "zzz"), (3, None)],
    "ALTER TABLE t ADD COLUMN more INTEGER": [(1, "one"), (2, "two"), (3, None)],
}


@pytest.fixture
def once_before_commit(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Run a change of another client right before the next commit."""

    def meet(other_change: Callable[[], object]) -> None:
        publish = CommitCoordinator.publish

        def met(self: CommitCoordinator, *arguments: object) -> object:
            monkeypatch.setattr(CommitCoordinator, "publish", publish)
            other_change()
            return publish(self, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(CommitCoordinator, "publish", met)

    return meet


@pytest.mark.parametrize("other", CONCURRENT)
def test_a_statement_is_as_if_it_had_begun_after_other_commits(
    lake: DuckLake, once_before_commit: Callable[[Callable[[], object]], None], other: str
) -> None:
    once_before_commit(lambda: lake.sql(other))
    lake.sql(STATEMENT)
    assert rows_of(lake, ALL) == CONCURRENT[other]


@pytest.mark.parametrize("other", ["INSERT INTO u VALUES (1, 'zzz')", "UPDATE t SET k = 10 WHERE k = 2"])
def test_rows_read_by_a_transaction_must_stay(
    lake: DuckLake, once_before_commit: Callable[[Callable[[], object]], None], other: str
) -> None:
    once_before_commit(lambda: lake.sql(other))
    with pytest.raises(CommitConflictError), lake.transaction() as tx:
        tx.sql(STATEMENT)
    assert (1, "one") not in rows_of(lake, ALL)


def test_rows_moved_by_compaction_are_found(lake: DuckLake, once_before_commit: Callable[[Callable[[], object]], None]) -> None:
    before = lake.table("t").scan(columns=["k", "rowid"]).to_arrow().sort_by("k")
    once_before_commit(lake.flush_inlined_data)
    lake.sql(STATEMENT)
    assert rows_of(lake, ALL) == [(1, "one"), (2, "two"), (3, None)]
    assert lake.table("t").scan(columns=["k", "rowid"]).to_arrow().sort_by("k") == before


def test_the_same_commit_again(lake: DuckLake) -> None:
    statements = (STATEMENT, "INSERT INTO t SELECT k, x FROM u", "MERGE INTO t USING u ON t.k = u.k AND false WHEN NOT MATCHED THEN INSERT")
    for number, statement in enumerate(statements):
        first = lake.sql(statement, commit_id=f"step {number}")
        again = lake.sql(statement, commit_id=f"step {number}")
        assert (again.repeated, again.snapshot) == (True, first.snapshot)  # type: ignore[union-attr]
        with pytest.raises(UsageError, match="belongs to other work"):
            lake.sql("DELETE FROM t WHERE k IN (SELECT k FROM u)", commit_id=f"step {number}")


KINDS = {
    "a": ("TIMETZ", "'12:00:00+02'"),
    "b": ("HUGEINT", "-99999999999999999999999999999999999999"),
    "c": ("INTERVAL", "INTERVAL '1 month 3 days'"),
    "d": ("UUID", "'6b9b3a5e-0000-4000-8000-000000000001'"),
    "e": ("JSON", """'{"a": 1}'"""),
    "f": ("TIME", "'12:00:00.5'"),
    "g": ("BLOB", "'\\x00a'"),
    "h": ("TIMESTAMP_NS", "'2020-01-01 00:00:00.000000001'"),
    "i": ("UHUGEINT", "99999999999999999999999999999999999999"),
    "j": ("STRUCT(x INTEGER, y VARCHAR[])", "{'x': 1, 'y': ['p', NULL]}"),
    "k": ("MAP(VARCHAR, DECIMAL(30, 2))", "MAP {'m': 1.25}"),
    "l": ("TIMESTAMPTZ", "'2020-01-01 00:00:00+00'"),
    "m": ("INTERVAL[]", "[INTERVAL 1 DAY]"),
    "n": ("UBIGINT", "18446744073709551615"),
    "o": ("FLOAT", "'nan'"),
}


def test_values_of_every_type(tmp_path: Path) -> None:
    address = sqlite_lake(tmp_path)
    lake = DuckLake.create(address.url, data_path=address.data_path)
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in KINDS.items())
    lake.sql(f"CREATE TABLE t (id INTEGER, {columns})")
    lake.sql("INSERT INTO t (id) VALUES (1), (2), (3)")
    lake.sql(f"CREATE TABLE u ({columns})")
    lake.sql(f"INSERT INTO u VALUES ({', '.join(value for _, value in KINDS.values())})")
    lake.sql(f"UPDATE t SET {', '.join(f'{name} = u.{name}' for name in KINDS)} FROM u WHERE id = 1")
    values = ", ".join(f"(SELECT {name} FROM u)" for name in KINDS)
    changed = ", ".join(f"{name} = (SELECT {name} FROM u)" for name in KINDS)
    lake.sql(f"""MERGE INTO t USING (SELECT 4 AS id) AS y USING (id) WHEN NOT MATCHED THEN INSERT VALUES (id, {values})
        WHEN NOT MATCHED BY SOURCE AND id IN (FROM (VALUES (2))) THEN UPDATE SET {changed}""")
    names = ", ".join(KINDS)
    with attached(address) as duck:
        expected = duck.rows(f"SELECT {names} FROM u")[0]
        found = duck.rows(f"SELECT {names} FROM t WHERE id <> 3")
        assert [str(row) for row in found] == [str(expected)] * 3
        assert duck.rows(f"SELECT count(*) FROM t WHERE id = 3 AND {' AND '.join(f'{name} IS NULL' for name in KINDS)}") == [(1,)]
    lake.close()


def test_views_macros_and_schemas(lake: DuckLake) -> None:
    lake.sql("CREATE SCHEMA s")
    lake.sql("CREATE TABLE s.t AS FROM t")
    lake.sql("CREATE VIEW v AS SELECT k, max(x) AS x FROM u GROUP BY k")
    lake.sql("CREATE MACRO last(i) AS (SELECT max(x) FROM u WHERE k <= i)")
    lake.sql("UPDATE s.t SET s = last(s.t.k) FROM v WHERE v.k = s.t.k AND EXISTS (SELECT 1 FROM main.t AS o WHERE o.k = s.t.k)")
    lake.sql(
        "MERGE INTO s.t USING main.u ON s.t.k = main.u.k AND main.u.x = 'one' "
        "WHEN MATCHED AND hash(u.x) > 0 THEN UPDATE SET k = main.u.k + 100"
    )
    assert rows_of(lake, "SELECT k, s FROM s.t ORDER BY k") == [(2, "two"), (3, None), (101, "one")]
    assert rows_of(lake, ALL) == [(1, "a"), (2, "b"), (3, None)]
