"""Integers of 128 bits in queries and statements, with values of 39 digits, next to DuckDB."""

from __future__ import annotations

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, attached

LARGEST = 2**127 - 1
QUERIES = (
    "SELECT h FROM t ORDER BY h",
    "SELECT max(h), min(h) FROM t",
    "SELECT h, count(*) FROM t GROUP BY h ORDER BY h",
    "SELECT i FROM t WHERE h = 123",
    f"SELECT i FROM t WHERE h > {LARGEST - 1}",
    "SELECT i FROM t WHERE h IS NULL",
    "SELECT a.i, b.h FROM t AS a JOIN t AS b USING (h) ORDER BY ALL",
    "SELECT sum(h) FROM t WHERE i > 1",
    "SELECT h % 10 FROM t ORDER BY ALL",
)


def test_queries_and_statements(small: DuckLake, sqlite_address: LakeAddress) -> None:
    """Kept in the catalog: DuckDB stores them in files as doubles, which lose digits."""
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE t (i INTEGER, h HUGEINT)", f"INSERT INTO t VALUES (1, {LARGEST}), (2, {-LARGEST}), (3, 123), (4, NULL)")
        wanted = {query: duck.rows(query) for query in QUERIES}
    for query, rows in wanted.items():
        assert [tuple(row.values()) for row in small.sql(query).to_arrow().to_pylist()] == rows, query
    small.sql("UPDATE t SET h = h - 1 WHERE i = 1")
    small.sql("CREATE TABLE copied (i INTEGER, h HUGEINT)")
    small.sql("INSERT INTO copied SELECT * FROM t WHERE h IS NOT NULL")
    small.sql("DELETE FROM t WHERE h = 123")
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT * FROM t ORDER BY i") == [(1, LARGEST - 1), (2, -LARGEST), (4, None)]
        assert duck.rows("SELECT h FROM copied ORDER BY i") == [(LARGEST - 1,), (-LARGEST,), (123,)]


def test_unsigned_and_nested_values(sqlite_address: LakeAddress) -> None:
    """DuckDB exports them to Arrow with a sign, so that they pass as strings."""
    largest = 2**128 - 1
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    with attached(sqlite_address) as duck:
        duck.run(
            "CREATE TABLE t (i INTEGER, h UHUGEINT, l HUGEINT[], s STRUCT(u UHUGEINT))",
            f"INSERT INTO t VALUES (1, {largest}, [{LARGEST}, NULL], {{'u': {largest}}}), (2, 5, [], NULL), (3, NULL, NULL, NULL)",
        )
    assert lake.sql("SELECT max(h) AS m FROM t").to_arrow().to_pylist() == [{"m": largest}]
    assert lake.sql("SELECT * FROM t ORDER BY i").to_arrow().to_pylist() == [
        {"i": 1, "h": largest, "l": [LARGEST, None], "s": {"u": largest}},
        {"i": 2, "h": 5, "l": [], "s": None},
        {"i": 3, "h": None, "l": None, "s": None},
    ]
    assert lake.sql(f"SELECT {largest}::UHUGEINT AS c, [{largest}::UHUGEINT] AS l").to_arrow().to_pylist() == [
        {"c": largest, "l": [largest]}
    ]
    lake.sql("UPDATE t SET h = h - 1 WHERE i = 1")
    lake.sql("INSERT INTO t SELECT i + 10, h, l, s FROM t")
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT h, l, s FROM t WHERE i IN (1, 11)") == [(largest - 1, [LARGEST, None], {"u": largest})] * 2
