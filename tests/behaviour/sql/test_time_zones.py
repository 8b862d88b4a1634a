"""One time zone for every part of a statement: what DuckDB answers with the same zone.

Each statement runs on two lakes with the same rows: by ``lake.sql(..., timezone=zone)`` on one, by DuckDB with ``SET TimeZone`` on the
other.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pytest

from ducklake_core import DuckLake, col
from ducklake_core.errors import UsageError
from ducklake_core.format.values.temporal import instant, wall_clock, zoned_text
from tests.support.oracle import Oracle, attached, sqlite_lake
from tests.support.parameters import slow

ZONES = (
    "America/New_York",
    *(slow(zone) for zone in ("Asia/Kolkata", "UTC", "Australia/Lord_Howe")),
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
    duck_url: str

    def rows(self, query: str) -> list[str]:
        found = self.lake.sql(query, timezone=self.zone)
        assert found is not None
        return sorted(map(repr, (tuple(row.values()) for row in found.to_arrow().to_pylist())))

    def expected(self, query: str) -> list[str]:
        return sorted(map(repr, (tuple(row.values()) for row in self.duck.arrow(query).to_pylist())))


def _stored(twins: Twins) -> tuple[list[str], list[str]]:
    query = "SELECT i, epoch_us(made) AS made, plain, s FROM t"
    return twins.rows(query), twins.expected(query)


@pytest.fixture(params=[slow("inlined"), "files"])
def twins(request: pytest.FixtureRequest, zone: str, tmp_path: Path) -> Iterator[Twins]:
    own, by_duckdb = (sqlite_lake(tmp_path / name) for name in ("own", "duckdb"))
    for name in ("own", "duckdb"):
        (tmp_path / name).mkdir()
    options = f"DATA_INLINING_ROW_LIMIT {1000 if request.param == 'inlined' else 0}"
    for address in (own, by_duckdb):
        with attached(address, options) as duck:
            duck.run("SET TimeZone = 'UTC'", "USE lake", TABLE, f"INSERT INTO t VALUES {ROWS}")
            duck.run("CREATE VIEW since_march AS SELECT * FROM t WHERE made >= '2026-03-01'")
    lake = DuckLake.connect(own.url)
    with attached(by_duckdb, options) as duck:
        duck.run("USE lake", f"SET TimeZone = '{zone}'")
        yield Twins(lake, duck, zone, by_duckdb.url)
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
        own, by_duckdb = _stored(twins)
        assert own == by_duckdb, change


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


DEFINITIONS = (
    "CREATE TABLE copied AS SELECT i, made::DATE AS d, made::VARCHAR AS s, made::TIMESTAMP AS w FROM t WHERE made >= '2026-03-02'",
    "CREATE VIEW days AS SELECT i, made::DATE AS d FROM t WHERE made >= '2026-03-02'",
    "CREATE MACRO zoned(x) AS x::TIMESTAMPTZ",
    "CREATE MACRO late(x) AS x >= '2026-03-02'::TIMESTAMPTZ",
    "CREATE MACRO late_rows() AS TABLE SELECT i FROM t WHERE made >= '2026-03-02'",
    "INSERT INTO t (i, made) VALUES (400, zoned('2026-11-01 01:30:00'))",
    "DELETE FROM t WHERE late(made) AND i = 3",
)
DEFINED = (
    "SELECT i, epoch_us(made) FROM t",
    "SELECT * FROM copied",
    "SELECT * FROM days",
    "SELECT i FROM t WHERE made = zoned('2026-03-02') OR late(made)",
    "SELECT * FROM late_rows()",
    "SELECT i FROM t WHERE made >= '0044-03-15 (BC) 00:00:00' AND made < '12000-01-01'",
    "SELECT i FROM t WHERE made >= '2026-03-02 00:00:00 Europe/Berlin' OR made < 'epoch'",
    "SELECT i, timezone('Asia/Tokyo', made), strftime(made, '%c') FROM t",
)


@pytest.mark.parametrize("zone", ZONES)
def test_definitions_keep_the_zone_of_their_statement(twins: Twins) -> None:
    for statement in DEFINITIONS:
        twins.lake.sql(statement, timezone=twins.zone)
        twins.duck.run(statement)
    assert {query: (twins.rows(query), twins.expected(query)) for query in DEFINED if twins.rows(query) != twins.expected(query)} == {}


@pytest.mark.parametrize("twins", ["files"], indirect=True)
@pytest.mark.parametrize("zone", ["America/New_York"])
def test_time_travel_reads_naive_times_in_the_zone(twins: Twins) -> None:
    created = twins.lake.snapshots()[-1].time
    assert created is not None
    twins.lake.sql("DELETE FROM t", timezone=twins.zone)
    clock = f"{created.astimezone(ZoneInfo(twins.zone)):%Y-%m-%d %H:%M:%S.%f}"
    for moment in (f"'{clock}'", f"TIMESTAMP '{clock}'", f"CAST('{clock}' AS TIMESTAMPTZ)", f"TIMESTAMP '{clock}' + INTERVAL 0 DAY"):
        assert twins.rows(f"SELECT count(*) FROM t AT (TIMESTAMP => {moment})") == [repr((len(MOMENTS),))], moment


@pytest.mark.parametrize("twins", ["files"], indirect=True)
@pytest.mark.parametrize("zone", ["America/New_York"])
def test_statements_of_a_transaction_have_zones_of_their_own(twins: Twins) -> None:
    found = {}
    with twins.lake.transaction() as tx:
        for zone in (twins.zone, "Asia/Kolkata"):
            rows = tx.sql("SELECT i FROM t WHERE made::DATE = DATE '2026-03-02' ORDER BY i", timezone=zone)
            assert rows is not None
            found[zone] = rows.to_arrow().column("i").to_pylist()
        tx.sql("DELETE FROM t WHERE made < '2026-03-02' OR made >= '2026-03-03'", timezone=twins.zone)
    assert found == {"America/New_York": [4, 5, 6], "Asia/Kolkata": [0, 1, 2, 3, 4, 5]}
    assert twins.rows("SELECT i FROM t ORDER BY i") == ["(4,)", "(5,)", "(6,)"]


@pytest.mark.parametrize("twins", ["files"], indirect=True)
@pytest.mark.parametrize("zone", ["UTC"])
def test_naive_values_of_python_have_the_machines_zone_and_frames_are_utc(twins: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    midnight = datetime(2026, 3, 2)  # noqa: DTZ001 - the zone is what is tested
    for where in (col("made") == midnight, col("made") == "2026-03-02", col("made").isin([midnight])):
        assert twins.lake.table("t").scan(["i"], where=where).to_arrow().column("i").to_pylist() == [4], str(where)
    twins.lake.write("frames", pa.table({"made": pa.array([midnight], pa.timestamp("us", "UTC"))}))
    twins.lake.write("frames", pa.table({"made": pa.array([midnight], pa.timestamp("us"))}))
    assert twins.rows("SELECT DISTINCT epoch_us(made) FROM frames") == ["(1772409600000000,)"]


@pytest.mark.parametrize("twins", ["files"], indirect=True)
@pytest.mark.parametrize("zone", ["America/New_York"])
def test_a_default_is_one_instant_for_old_and_new_rows(twins: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    twins.lake.sql("CREATE TABLE d (i INTEGER)")
    twins.lake.sql("INSERT INTO d VALUES (1)")
    twins.lake.sql("ALTER TABLE d ADD COLUMN made TIMESTAMPTZ DEFAULT '2026-03-02 00:00:00'", timezone=twins.zone)
    twins.lake.sql("INSERT INTO d (i) VALUES (2)")
    twins.lake.write("d", pa.table({"i": pa.array([3], pa.int32())}))
    assert twins.rows("SELECT i, epoch_us(made) FROM d") == [repr((i, 1772427600000000)) for i in (1, 2, 3)]
    # A default that DuckDB stored has no zone: that of the inserting client is used.
    twins.duck.run("CREATE TABLE stored (i INTEGER, made TIMESTAMPTZ DEFAULT '2026-03-02 00:00:00')", "INSERT INTO stored (i) VALUES (1)")
    by_duckdb = DuckLake.connect(twins.duck_url)
    by_duckdb.sql("INSERT INTO stored (i) VALUES (2)", timezone=twins.zone)
    found = by_duckdb.sql("SELECT DISTINCT epoch_us(made) AS made FROM stored")
    assert found is not None
    assert found.to_arrow().column("made").to_pylist() == [1772427600000000]


@pytest.mark.parametrize(
    "zone",
    ["America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Europe/Dublin", "Africa/Casablanca", "Pacific/Apia", "Africa/Monrovia"],
)
def test_the_arithmetic_of_zones_is_that_of_duckdb(zone: str) -> None:
    random = Random(zone)
    spans = ((-(2**61), 2**61), (-62 * 10**15, 0), (-4 * 10**15, 4 * 10**15), (2 * 10**15, 2 * 10**17))
    moments = [random.randrange(low, high) // step * step for low, high in spans for step in (1, 900_000_000) for _ in range(250)]
    with duckdb.connect() as duck:
        duck.execute(f"SET TimeZone = '{zone}'")
        duck.register("given", pa.table({"u": pa.array(moments, pa.int64())}))
        shown = "epoch_us(make_timestamp(u)::TIMESTAMPTZ), epoch_us(make_timestamptz(u)::TIMESTAMP), make_timestamptz(u)::VARCHAR"
        rows = duck.execute(f"SELECT u, {shown} FROM given").fetchall()
    assert [row for row in rows if row[1:] != (instant(row[0], zone), wall_clock(row[0], zone), zoned_text(row[0], zone))] == []


def test_partitions_of_another_zone_are_not_left_out(tmp_path: Path) -> None:
    address = sqlite_lake(tmp_path)
    with attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("USE lake", "SET TimeZone = 'Asia/Kolkata'", "CREATE TABLE p (i INTEGER, made TIMESTAMPTZ)")
        duck.run("ALTER TABLE p SET PARTITIONED BY (year(made), day(made), hour(made))")
        duck.run("INSERT INTO p VALUES (1, '2025-12-31 20:00:00+00'), (2, '2026-03-01 20:00:00+00'), (3, '2026-03-02 20:00:00+00')")
        duck.run("SET TimeZone = 'UTC'")
    lake = DuckLake.connect(address.url)
    lake.write("p", lake.table("p").scan().to_arrow(), inline=False)
    for where, expected in (
        ("made < '2026-01-01'", [1, 1]),
        ("made >= '2026-03-01' AND made < '2026-03-02'", [2, 2]),
        ("made IN ('2026-03-02 20:00:00', '2025-12-31 20:00:00')", [1, 1, 3, 3]),
    ):
        found = lake.sql(f"SELECT i FROM p WHERE {where}", timezone="UTC")
        assert found is not None
        assert sorted(found.to_arrow().column("i").to_pylist()) == expected, where


@pytest.mark.parametrize("variable", ["UTC+5", "GMT-3", "+05:00", "Nowhere/Land"])
def test_offsets_in_tz_mean_utc_as_in_duckdb(variable: str) -> None:
    """POSIX gives them the opposite sign; DuckDB knows names alone."""
    program = (
        "import duckdb; from ducklake_core.format.values.temporal import is_utc, machine_zone; "
        "zone = duckdb.sql(\"SELECT current_setting('TimeZone')\").fetchone()[0]; assert is_utc(zone) and is_utc(machine_zone()), zone"
    )
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "TZ": variable}, check=True)


def test_offsets_are_rejected_as_zones_of_statements(small: DuckLake) -> None:
    with pytest.raises(UsageError, match="Etc/GMT-5"):
        small.sql("SELECT 1", timezone="+05:00")
