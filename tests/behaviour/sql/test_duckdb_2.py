"""DuckDB 2.0 answers queries and runs statements as DuckDB 1.5 does, without warnings.

DuckDB 2.0 cannot be loaded next to 1.5, which the other tests compare with. ``make`` installs it into a folder of its own, and this
module runs itself in a process that finds that folder first.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa

from ducklake_core import DuckLake
from ducklake_core.engines.arrow import read
from ducklake_core.errors import DuckLakeError
from ducklake_core.sql.query import Query
from tests.support.oracle import LakeAddress, sqlite_lake

DUCKDB_2 = Path(sys.prefix, "duckdb-2")

LITERALS = {
    "i8": ["-7", "3", "100"],
    "u64": ["0", "5", "18446744073709551615"],
    "h": ["5::HUGEINT", "170141183460469231731687303715884105727"],
    "s": ["'a'", "'say \"b\", ]'", "'x\\y'"],
    "d": ["1.5", "'nan'::DOUBLE", "'-infinity'::DOUBLE"],
    "dec": ["1.25", "99999.99"],
    "b": ["true", "false"],
    "day": ["DATE '1969-12-31'", "DATE '2026-03-01'"],
    "ts": ["TIMESTAMP '2026-03-01 12:00:00.000001'", "TIMESTAMP '1900-01-01'"],
    "tz": ["TIMESTAMPTZ '2026-03-01 12:00:00+02'"],
    "bin": ["'\\xAA'::BLOB"],
    "l": ["[1, 2]"],
}
QUERIES = [
    *(f"SELECT k FROM t WHERE {name} <= {value} ORDER BY k" for name, values in LITERALS.items() for value in values),
    *(f"SELECT count(*), count({name}), min({name}) FROM t WHERE {name} IN ({', '.join(values)}) OR {name} IS NULL"
      for name, values in LITERALS.items()),
    *(f"SELECT k FROM t WHERE k > 2 AND {name} IS NOT NULL AND ({name} = {values[0]} OR k < 5) ORDER BY ALL"
      for name, values in LITERALS.items()),
    *(f"SELECT DISTINCT {name} FROM t ORDER BY ALL" for name in LITERALS),
    "SELECT count(*) FROM t JOIN u USING (k)",
    "SELECT name FROM u WHERE k IN (SELECT k FROM t WHERE d > 1 AND s LIKE 'a%')",
    "SELECT t.s FROM t, u WHERE t.k = u.k AND u.name = 'two' AND t.d IS NOT NULL",
    "SELECT u.name, sum(t.k) FILTER (t.i8 > 0) FROM t LEFT JOIN u ON t.k % 2 = u.k GROUP BY ALL ORDER BY ALL",
    "SELECT s, rowid, snapshot_id FROM t WHERE rowid BETWEEN 2 AND 4 ORDER BY k DESC LIMIT 2",
    "SELECT * FROM t AT (VERSION => 1) WHERE k = 1",
    "SELECT st.x, l[1] FROM t WHERE st.x > 1 ORDER BY ALL",
    "FROM v WHERE n > 0 ORDER BY ALL",
    "SELECT twice(k) FROM t WHERE twice(k) = 4",
    "DESCRIBE SELECT * FROM t",
    "SELECT rowid, * EXCLUDE (tz) FROM (SELECT rowid, * FROM lake.t) ORDER BY k",
    "SELECT snapshot_id, changes::VARCHAR FROM lake.snapshots() ORDER BY 1",
    "SELECT count(*), max(rowid) FROM ducklake_table_changes('lake', 'main', 't', 0, 2)",
    "SELECT k FROM t WHERE s IN (SELECT name FROM u) UNION ALL SELECT k FROM u ORDER BY ALL",
    "FROM (PIVOT (SELECT k, s FROM t WHERE k < 3) ON s USING count(*)) ORDER BY k",
    "PIVOT (SELECT k, s FROM t WHERE k = 2) ON s USING count(*)",
    "SELECT k, sum(k) OVER (ORDER BY k) FROM t QUALIFY row_number() OVER (ORDER BY k DESC) < 3 ORDER BY k",
    "SELECT 5::UHUGEINT AS h, CAST('x'::VARIANT AS VARCHAR) AS v",
    "SELECT nope FROM t, u",
]  # fmt: skip
STATEMENTS = [
    "INSERT INTO t (k, s, i8) SELECT k + 100, name, 1 FROM u",
    "UPDATE t SET s = u.name FROM u WHERE t.k = u.k AND t.d IS NOT NULL",
    "DELETE FROM t USING u WHERE t.k = u.k + 1 AND u.name <> 'two'",
    """MERGE INTO t USING (SELECT 3 AS k, 'merged' AS s) AS n ON t.k = n.k AND t.i8 <> 99 WHEN MATCHED THEN UPDATE SET s = n.s || t.s
    WHEN NOT MATCHED THEN INSERT (k, s) VALUES (n.k, n.s)""",
    "CREATE TABLE c AS SELECT s, count(*) AS n, sum(h) AS h FROM t GROUP BY ALL",
    "DELETE FROM t WHERE k > (SELECT avg(k) FROM t) AND i8 NOT IN (SELECT n FROM c)",
]
AFTER = ["FROM t ORDER BY k", "FROM c ORDER BY ALL"]


def create(address: LakeAddress) -> None:
    with DuckLake.create(address.url, data_path=address.data_path) as lake:
        for start in (0, 4):
            rows = pa.table({
                "k": pa.array(range(start, start + 4), pa.int64()),
                "i8": pa.array([-7, 3, 100, None], pa.int8()),
                "u64": pa.array([0, 5, 2**64 - 1, None], pa.uint64()),
                "s": ["a", 'say "b", ]', "x\\y", None],
                "d": [1.5, float("nan"), float("-inf"), None],
                "dec": pa.array([Decimal("1.25"), Decimal("99999.99"), Decimal(-1), None], pa.decimal128(9, 2)),
                "b": [True, False, None, True],
                "day": [date(1969, 12, 31), date(2026, 3, 1), date(1, 1, 1), None],
                "ts": pa.array(["2026-03-01 12:00:00.000001", "1900-01-01", None, "9999-12-31"]).cast(pa.timestamp("us")),
                "tz": [datetime(2026, 3, 1, 10, tzinfo=UTC), None, datetime(1900, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)],
                "bin": [b"\xaa", b"", None, b"a"],
                "l": [[1, 2], [], None, [3]],
                "st": [{"x": 1}, {"x": 2}, {"x": None}, None],
            })  # fmt: skip
            lake.write("t", rows, inline=False)
        lake.sql("ALTER TABLE t ADD COLUMN h HUGEINT")
        lake.sql("UPDATE t SET h = CASE k % 3 WHEN 0 THEN 5 WHEN 1 THEN 170141183460469231731687303715884105727 END")
        lake.write("u", pa.table({"k": [1, 2, 9], "name": ["one", "two", "a"]}))
        lake.create_view("v", "SELECT s, count(*) AS n FROM t WHERE d > 0 GROUP BY s")
        lake.create_macro("twice", {"x": "x * 2"})


def outcomes(url: str) -> list[list[str]]:
    """Return the rows and the types of every query, before and after the statements, and the columns and files that each read."""
    found: list[list[str]] = []
    with DuckLake.open(url) as lake:
        for sql in (*QUERIES, *STATEMENTS, *AFTER):
            try:
                result = lake.sql(sql, timezone="Europe/Berlin")
                if isinstance(result, Query):
                    table = result.to_arrow()
                    found.append([sql, str(table.to_pylist()), str(table.schema)])
            except DuckLakeError as error:
                found.append([sql, error.code, type(error).__name__])
    return found


def files_read(url: str, sql: str) -> int:
    """Return how many files a query reads."""
    count = 0
    original = read.read_task

    def counted(*args: object, **options: object) -> object:
        nonlocal count
        count += 1
        return original(*args, **options)  # type: ignore[arg-type]

    read.read_task = counted  # type: ignore[assignment]
    try:
        with DuckLake.open(url) as lake:
            result = lake.sql(sql)
            assert isinstance(result, Query)
            result.to_arrow()
    finally:
        read.read_task = original
    return count


PRUNED = [
    "SELECT count(*), any_value(s) FROM t WHERE k = 5 AND d > 0",
    "SELECT count(*) FROM t WHERE k IN (6, 7) AND s IS NOT NULL",
    "SELECT sum(d) FROM t WHERE k BETWEEN 0 AND 2 AND i8 + 1 > 0",
]


def test_queries_and_statements_are_those_of_duckdb_1(tmp_path: Path) -> None:
    addresses = [sqlite_lake(tmp_path / name) for name in ("one", "two")]
    for address in addresses:
        Path(address.data_path).parent.mkdir(exist_ok=True)
        create(address)
    pruned = [files_read(addresses[0].url, sql) for sql in PRUNED]
    expected = outcomes(addresses[0].url)
    assert DUCKDB_2.is_dir(), "make install puts DuckDB 2.0 there"
    code = "import sys; sys.path.insert(0, sys.argv[1]); from tests.behaviour.sql import test_duckdb_2 as own; own.main(sys.argv[2])"
    command = [sys.executable, "-W", "error", "-c", code, str(DUCKDB_2), addresses[1].url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["version"].startswith("2.")
    assert answer["pruned"] == pruned
    assert answer["outcomes"] == expected


def main(url: str) -> None:
    """Print what this process's DuckDB answers."""
    pruned = [files_read(url, sql) for sql in PRUNED]
    json.dump({"version": duckdb.__version__, "pruned": pruned, "outcomes": outcomes(url)}, sys.stdout)
