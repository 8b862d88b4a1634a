"""Lakes of DuckDB, read with Arrow at every snapshot and compared with DuckDB's own answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.parameters import spread
from tests.support.scans import OpenLake, assert_same_rows, open_lake

Check = Callable[[Oracle, OpenLake, int], None]

ALL_TYPES = """
    b BOOLEAN, i8 INT1, i16 SMALLINT, i32 INTEGER, i64 BIGINT, h HUGEINT, u8 UTINYINT, u16 USMALLINT, u32 UINTEGER, u64 UBIGINT,
    f FLOAT, d DOUBLE, n DECIMAL(10,2), n38 DECIMAL(38,5), day DATE, t TIME, ts TIMESTAMP, tss TIMESTAMP_S, tms TIMESTAMP_MS,
    tns TIMESTAMP_NS, tz TIMESTAMPTZ, iv INTERVAL, v VARCHAR, j JSON, bl BLOB, u UUID, l INTEGER[], m MAP(VARCHAR, INTEGER),
    s STRUCT(x INTEGER, y VARCHAR[]), deep STRUCT(k MAP(VARCHAR, STRUCT(q INTEGER)[]))[]
"""
FIRST = """(true, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1.5, 2.5, 1.25, 99999.12345, '2020-02-29', '01:02:03.000004', '2020-01-01 01:02:03.5',
    '2020-01-01 00:00:01', '2020-01-01 00:00:00.001', '2020-01-01 00:00:00.000000001',
    '2020-01-01 00:00:00+02', INTERVAL '1 month 2 days 3 seconds',
    'x', '{"a": 1}', '\\xAA\\x00'::BLOB, 'b8888f6d-9c7f-4026-b8e2-722c695e2053',
    [1, NULL], MAP {'k': 1, 'z': NULL}, {'x': 1, 'y': ['q', NULL]},
    [{'k': MAP {'a': [{'q': 1}, NULL]}}, NULL])"""
EXTREMES = """(false, -128, -32768, -2147483648, -9223372036854775808, -1, 255, 65535, 4294967295,
    18446744073709551615, 'nan', '-inf', -0.01,
    -1, '0044-03-15 (BC)', '23:59:59.999999', 'infinity', '1969-12-31 23:59:59', '1969-12-31 23:59:59.999',
    '1969-12-31 23:59:59.999999999', '-infinity',
    INTERVAL '30 days', '', 'null', ''::BLOB, '00000000-0000-0000-0000-000000000000', [], MAP {}, {'x': NULL, 'y': []}, [])"""
NULLS = f"({', '.join(['NULL'] * 30)})"

SCENARIOS: dict[str, tuple[str, ...]] = {
    "types": (f"CREATE TABLE t ({ALL_TYPES})", f"INSERT INTO t VALUES {FIRST}, {EXTREMES}, {NULLS}"),
    "deletes": (
        "CREATE TABLE t AS SELECT i, i % 7 AS g, 'v' || i AS v FROM range(1000) r(i)",
        "DELETE FROM t WHERE g = 3",
        "DELETE FROM t WHERE i BETWEEN 100 AND 300",
        "INSERT INTO t SELECT i, 0, 'w' FROM range(1000, 1100) r(i)",
        "DELETE FROM t WHERE i % 2 = 0 AND i > 900",
        "DELETE FROM t WHERE i >= 1000",
    ),
    "updates": (
        "CREATE TABLE t AS SELECT i, 'v' || i AS v FROM range(300) r(i)",
        "UPDATE t SET v = 'new' WHERE i % 3 = 0",
        "UPDATE t SET v = 'newer' WHERE i % 6 = 0",
        "DELETE FROM t WHERE i % 12 = 0",
    ),
    "evolution": (
        "CREATE TABLE t (a INTEGER, b FLOAT, s STRUCT(x INTEGER, y INTEGER), l STRUCT(p INTEGER)[], m MAP(INTEGER, STRUCT(q INTEGER)))",
        "INSERT INTO t SELECT i, i / 2, {'x': i, 'y': -i}, [{'p': i}, NULL], MAP {i: {'q': i}} FROM range(50) r(i)",
        "ALTER TABLE t ADD COLUMN c VARCHAR DEFAULT 'old'",
        "ALTER TABLE t ALTER a TYPE BIGINT",
        "INSERT INTO t SELECT i, i / 2, {'x': i, 'y': -i}, [], NULL, 'c' || i FROM range(50, 100) r(i)",
        "ALTER TABLE t RENAME COLUMN b TO renamed",
        "ALTER TABLE t ALTER renamed TYPE DOUBLE",
        "ALTER TABLE t ADD COLUMN s.z INTEGER DEFAULT 42",
        "ALTER TABLE t RENAME COLUMN s.x TO xx",
        "ALTER TABLE t DROP COLUMN s.y",
        "ALTER TABLE t ADD COLUMN l.element.r INTEGER",
        "INSERT INTO t SELECT i, i, {'xx': i, 'z': 1}, [{'p': i, 'r': 5}], NULL, NULL FROM range(100, 130) r(i)",
        "ALTER TABLE t DROP COLUMN c",
        "ALTER TABLE t ADD COLUMN c INTEGER",
        "ALTER TABLE t ADD COLUMN d DATE DEFAULT '2020-01-01'",
        "ALTER TABLE t ALTER d TYPE TIMESTAMP",
        "ALTER TABLE t ADD COLUMN e DECIMAL(5,2) DEFAULT 1.5",
        "ALTER TABLE t ALTER e TYPE DECIMAL(12,4)",
    ),
    "partitions": (
        "CREATE TABLE t (a INTEGER, p VARCHAR, ts TIMESTAMP)",
        "INSERT INTO t SELECT i, NULL, TIMESTAMP '2020-01-01' + INTERVAL (i * 7) DAY FROM range(9) r(i)",
        "ALTER TABLE t SET PARTITIONED BY (p, month(ts))",
        "INSERT INTO t SELECT i, CASE i % 3 WHEN 0 THEN 'a b' WHEN 1 THEN '' END, ts + INTERVAL 1 DAY FROM t, range(90) r(i)",
        "DELETE FROM t WHERE a % 5 = 0",
    ),
    "merge": (
        "CREATE TABLE t (a INTEGER, b VARCHAR)",
        "INSERT INTO t SELECT i, 'one' FROM range(100) r(i)",
        "INSERT INTO t SELECT i, 'two' FROM range(100, 150) r(i)",
        "INSERT INTO t SELECT i, 'three' FROM range(150, 260) r(i)",
        "CALL ducklake_merge_adjacent_files('lake')",
        "DELETE FROM t WHERE a % 4 = 0",
        "INSERT INTO t SELECT i, 'four' FROM range(300, 360) r(i)",
        "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.0)",
        "INSERT INTO t SELECT i, 'five' FROM range(400, 460) r(i)",
    ),
    "rewrite after evolution": (
        "CREATE TABLE t AS SELECT i AS a FROM range(100) r(i)",
        "ALTER TABLE t ADD COLUMN b INTEGER DEFAULT 7",
        "INSERT INTO t SELECT i, 1 FROM range(100, 150) r(i)",
        "ALTER TABLE t ALTER b TYPE BIGINT",
        "DELETE FROM t WHERE a % 3 = 0",
        "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.0)",
        "ALTER TABLE t RENAME COLUMN a TO key",
    ),
    "one transaction": (
        "CREATE TABLE u (a INTEGER)",
        "BEGIN",
        "CREATE TABLE t AS SELECT i::INTEGER AS a FROM range(40) r(i)",
        "ALTER TABLE t ADD COLUMN b INTEGER DEFAULT 3",
        "INSERT INTO t SELECT i, i FROM range(40, 60) r(i)",
        "DELETE FROM t WHERE a = 5",
        "COMMIT",
        "INSERT INTO t SELECT i, i FROM range(60, 80) r(i)",
    ),
    'we"ird, näme': (
        'CREATE TABLE t ("a.b" INTEGER, "we""ird, näme" VARCHAR, "a" STRUCT(b INTEGER), "rowid" INTEGER)',
        "INSERT INTO t SELECT i, 'x' || i, {'b': i}, -i FROM range(30) r(i)",
    ),
}
INLINED: dict[str, tuple[str, ...]] = {
    "small inserts": (
        "CREATE TABLE t (a INTEGER, b VARCHAR)",
        "INSERT INTO t VALUES (1, 'one'), (2, NULL)",
        "INSERT INTO t SELECT i, 'many' FROM range(100) r(i)",
        "DELETE FROM t WHERE a = 1",
        "DELETE FROM t WHERE a IN (50, 51, 52)",
        "UPDATE t SET b = 'upd' WHERE a IN (2, 60)",
        "DELETE FROM t WHERE a > 70",
        "DELETE FROM t WHERE a = 10",
        "ALTER TABLE t ADD COLUMN c INTEGER DEFAULT 9",
        "INSERT INTO t VALUES (1000, 'evolved', 1)",
        "ALTER TABLE t ALTER a TYPE BIGINT",
        "CALL ducklake_flush_inlined_data('lake')",
        "INSERT INTO t VALUES (1001, 'after', 1)",
        "DELETE FROM t WHERE a % 2 = 0",
    ),
    "types": SCENARIOS["types"],
}


def replay(address: LakeAddress, statements: tuple[str, ...], options: str, check: Check) -> None:
    """Run the statements with the oracle, then check every snapshot that has the table."""
    with attached(address, options) as duck:
        duck.run(*statements)
    with attached(address, options) as duck:
        lake = open_lake(address)
        born = duck.value("SELECT min(begin_snapshot) FROM __ducklake_metadata_lake.ducklake_table WHERE table_name = 't'")
        versions = [version for version in lake.snapshots() if version >= born]
        assert versions
        for version in versions:
            check(duck, lake, version)


def compare_with_arrow(duck: Oracle, lake: OpenLake, version: int) -> None:
    source = f"t AT (VERSION => {version})"
    own = lake.scan("t", version).to_arrow()
    assert_same_rows(duck, own, f"SELECT * FROM {source}")
    first = own.column_names[0]
    if "rowid" not in own.column_names:
        virtual = lake.scan("t", version, columns=["rowid", "snapshot_id", first, "filename"]).to_arrow()
        quoted = first.replace('"', '""')
        assert_same_rows(duck, virtual, f'SELECT rowid, snapshot_id, "{quoted}", filename FROM {source}')
    assert lake.scan("t", version).count() == len(own)


@pytest.mark.parametrize("name", spread(SCENARIOS, 2))
def test_files_at_every_snapshot(lake_address: LakeAddress, name: str) -> None:
    replay(lake_address, SCENARIOS[name], "DATA_INLINING_ROW_LIMIT 0", compare_with_arrow)


@pytest.mark.parametrize("name", spread(INLINED, 1))
def test_inlined_rows_at_every_snapshot(lake_address: LakeAddress, name: str) -> None:
    replay(lake_address, INLINED[name], "DATA_INLINING_ROW_LIMIT 10", compare_with_arrow)
