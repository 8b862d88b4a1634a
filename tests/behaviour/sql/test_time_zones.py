"""One time zone for every part of a statement: what DuckDB answers with the same zone.

Each statement runs on two lakes with the same rows: by ``lake.sql(..., timezone=zone)`` on one, by DuckDB with ``SET TimeZone`` on the
other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import UsageError
from tests.support.oracle import Oracle, attached, sqlite_lake

ZONES = (
    "America/New_York",
    *(pytest.param(zone, marks=pytest.mark.slow) for zone in ("Asia/Kolkata", "UTC", "Australia/Lord_Howe")),
)
# Days around midnight of each zone, the hours that New York and Lord Howe skip and repeat, and dates before zones had rules.
MOMENTS = (
    "2026-03-01 18:30:00+00", "2026-03-01 23:59:59.999999+00", "2026-03-02 00:00:00+00", "2026-03-02 04:59:59+00", "2026-03-02 05:00:00+00",
    "2026-03-02 13:30:00+00", "2026-03-03 04:59:59+00", "2026-03-08 06:59:59+00", "2026-03-08 07:00:00+00", "2026-11-01 05:30:00+00",
    "2026-11-01 06:30:00+00", "2026-04-04 14:45:00+00", "2026-04-04 15:15:00+00", "2026-10-03 15:45:00+00", "1883-11-18 17:00:00+00",
    "1900-01-01 00:00:00+00",
)  # fmt: skip
ROWS = ", ".join(f"({n}, TIMESTAMPTZ '{moment}', TIMESTAMP '{moment[:19]}', NULL)" for n, moment in enumerate(MOMENTS))
TABLE = "CREATE TABLE t (i INTEGER, made TIMESTAMPTZ, plain TIMESTAMP, s VARCHAR)"
DAY = "made >= '2026-03-02' AND made < '2026-03-03'"

QUERIES = (
    f"SELECT i FROM t WHERE {DAY}",
    f"SELECT min(i), max(i), count(*) FROM t WHERE {DAY}",
    "SELECT i FROM t WHERE made BETWEEN '2026-03-02' AND '2026-03-02 12:00:00'",
    "SELECT i FROM t WHERE made = '2026-03-02 00:00:00'",
    "SELECT i FROM t WHERE made IN ('2026-03-02 00:00:00', '2026-11-01 01:30:00')",
    "SELECT i FROM t WHERE made < TIMESTAMP '2026-03-08 02:30:00'",
    "SELECT i FROM t WHERE made >= DATE '2026-03-02' AND NOT made >= DATE '2026-03-08'",
    "SELECT i FROM t WHERE made < '2026-03-02 05:00:00+00'",
    "SELECT i FROM t WHERE made >= CAST('2026-03-02' AS TIMESTAMPTZ)",
    "SELECT i FROM t WHERE made::DATE = DATE '2026-03-02'",
    "SELECT i FROM t WHERE CAST(made AS TIMESTAMP) < '2026-03-02 10:00:00'",
    "SELECT i FROM t WHERE made::VARCHAR LIKE '2026-03-01%'",
    "SELECT i FROM t WHERE date_trunc('day', made) = '2026-03-02'",
    "SELECT i FROM t WHERE extract(hour FROM made) < 6",
    "SELECT i FROM t WHERE year(made) = 1899 OR day(made) = 1",
    "SELECT i FROM t WHERE plain >= '2026-03-02' AND plain < '2026-03-03'",
    "SELECT i FROM t WHERE made >= plain",
    "SELECT i, made::DATE, made::VARCHAR, made::TIMESTAMP, hour(made) FROM t",
    "SELECT made::DATE AS d, count(*) FROM t GROUP BY d",
    "SELECT a.i, b.i FROM t a JOIN t b ON a.made = b.plain",
    "SELECT i FROM (SELECT * FROM t WHERE made < '2026-03-02') WHERE made > '1900-01-01'",
    "SELECT i FROM since_march",
)
CHANGES = (
    "UPDATE t SET s = 'day' WHERE " + DAY,
    "UPDATE t SET s = CAST(made AS VARCHAR) WHERE made < '2026-03-08 03:00:00'",
    "UPDATE t SET s = strftime(made, '%H') WHERE i < 5",
    "UPDATE t SET plain = made WHERE i % 2 = 0",
    "UPDATE t SET made = plain WHERE i % 3 = 0",
    "UPDATE t SET made = '2026-07-01 12:00:00' WHERE i = 4",
    "DELETE FROM t WHERE " + DAY,
    "DELETE FROM t WHERE made::DATE = '2026-03-08'",
    "DELETE FROM t WHERE made IN (SELECT made FROM t WHERE made < '2026-03-02 00:00:01')",
    "INSERT INTO t VALUES (100, '2026-03-02 00:00:00', '2026-03-02', 'new')",
    "INSERT INTO t (i, made) SELECT 101, TIMESTAMP '2026-11-01 01:30:00'",
    "INSERT INTO t (i, made, plain) SELECT i + 200, plain, made FROM t",
    "MERGE INTO t USING (SELECT 3 AS i, TIMESTAMP '2026-03-08 02:30:00' AS at) s ON t.i = s.i WHEN MATCHED THEN UPDATE SET made = s.at",
    (
        "MERGE INTO t USING (SELECT TIMESTAMP '2026-03-02 00:00:00' AS at) s ON t.made = s.at WHEN MATCHED THEN DELETE "
        "WHEN NOT MATCHED THEN INSERT (i, made) VALUES (300, s.at)"
    ),
)


@dataclass
class Twins:
    """Two lakes with the same rows, and the zone of both."""

    lake: DuckLake
    duck: Oracle
    zone: str

    def rows(self, query: str) -> list[str]:
        found = self.lake.sql(query, timezone=self.zone)
        assert found is not None
        return sorted(map(repr, (tuple(row.values()) for row in found.to_arrow().to_pylist())))

    def expected(self, query: str) -> list[str]:
        return sorted(map(repr, (tuple(row.values()) for row in self.duck.arrow(query).to_pylist())))


def _stored(twins: Twins) -> tuple[list[str], list[str]]:
    query = "SELECT i, epoch_us(made) AS made, plain, s FROM t"
    return twins.rows(query), twins.expected(query)


@pytest.fixture(params=["inlined", "files"])
def twins(request: pytest.FixtureRequest, zone: str, tmp_path: Path) -> Iterator[Twins]:
    ours, theirs = (sqlite_lake(tmp_path / name) for name in ("ours", "theirs"))
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    options = f"DATA_INLINING_ROW_LIMIT {1000 if request.param == 'inlined' else 0}"
    for address in (ours, theirs):
        with attached(address, options) as duck:
            duck.run("SET TimeZone = 'UTC'", "USE lake", TABLE, f"INSERT INTO t VALUES {ROWS}")
            duck.run("CREATE VIEW since_march AS SELECT * FROM t WHERE made >= '2026-03-01'")
    lake = DuckLake.connect(ours.url)
    with attached(theirs, options) as duck:
        duck.run("USE lake", f"SET TimeZone = '{zone}'")
        yield Twins(lake, duck, zone)
        duck.run("SET TimeZone = 'UTC'")
    lake.close()


@pytest.mark.parametrize("zone", ZONES)
def test_queries_answer_as_duckdb_does_in_the_zone(twins: Twins) -> None:
    wrong = {query: (twins.rows(query), twins.expected(query)) for query in QUERIES}
    assert {query: pair for query, pair in wrong.items() if pair[0] != pair[1]} == {}


@pytest.mark.parametrize("zone", ZONES)
def test_changes_are_those_of_duckdb_in_the_zone(twins: Twins) -> None:
    for change in CHANGES:
        twins.lake.sql(change, timezone=twins.zone)
        twins.duck.run(change)
        ours, theirs = _stored(twins)
        assert ours == theirs, change


@pytest.mark.parametrize("zone", ["Asia/Kolkata"])
def test_the_machines_zone_is_the_default(twins: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    query = f"SELECT i FROM t WHERE {DAY}"
    found = twins.lake.sql(query)
    assert found is not None
    expected = twins.expected(query)
    assert sorted(repr((i,)) for i in found.to_arrow().column("i").to_pylist()) == expected
    scan = twins.lake.table("t").scan(["i"], where=DAY)
    assert sorted(repr((i,)) for i in scan.to_arrow().column("i").to_pylist()) == expected


@pytest.mark.parametrize("zone", ["UTC"])
def test_an_unknown_zone_is_rejected(twins: Twins) -> None:
    with pytest.raises(UsageError, match="timezone must be a name such as"):
        twins.lake.sql("SELECT 1", timezone="Mars/Olympus")
