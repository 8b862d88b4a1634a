"""Updates in this process: the rows, row ids, changes and catalog rows of DuckDB's own UPDATE."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import NotFoundError, SchemaError, UnsupportedFeatureError, UsageError
from tests.behaviour.row_changes.conftest import Twins
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import spread

TABLE = (
    "CREATE TABLE t (a INTEGER, g VARCHAR, v DOUBLE, day DATE)",
    "INSERT INTO t SELECT i, 'g' || i % 5, i / 4 + 1, DATE '1969-12-30' + i::INTEGER FROM range(1, 100) r(i)",
    "INSERT INTO t SELECT i, NULL, 'nan', NULL FROM range(100, 110) r(i)",
    "DELETE FROM t WHERE a % 10 = 3",
)


def test_updates_equal_those_of_duckdb(twins: Twins) -> None:
    twins.both(*TABLE)
    table = twins.lake.table("t")
    first = table.update({"v": "v * 2 + a", "g": "coalesce(g, '-') || '!'"}, where="a BETWEEN 95 AND 104")
    twins.by_duckdb.run("UPDATE t SET v = v * 2 + a, g = coalesce(g, '-') || '!' WHERE a BETWEEN 95 AND 104")
    assert (first.rows_updated, first.rows_added, first.rows_deleted) == (9, 0, 0)
    twins.same("t")
    twins.same_changes("t")
    # All rows of a file, and rows that were updated before; a swap reads the old values.
    table.update({"A": "CAST(v AS INTEGER)", "v": "a", "day": "DATE '2020-01-01'"}, where="g LIKE 'g4%' OR a < 3")
    before = twins.lake.snapshot().id
    assert before == first.snapshot_id + 1
    twins.by_duckdb.run("UPDATE t SET a = v::INTEGER, v = a, day = DATE '2020-01-01' WHERE (g LIKE 'g4%' OR a < 3)")
    twins.same("t")
    table.update({"g": None})
    twins.by_duckdb.run("UPDATE t SET g = NULL")
    twins.same("t")
    twins.same_changes("t")
    for version in range(2, before + 1):
        twins.rows(f"SELECT rowid, * FROM t AT (VERSION => {version}) ORDER BY ALL")
    # DuckDB numbers delete files before data files, and gives distinct numbers all the same.
    ids = ["data_file_id", "delete_file_id"]
    files = ("data_file", "delete_file", "file_column_stats", "file_partition_value", "files_scheduled_for_deletion")
    # Bounds of a column with a file of NaN alone are never read, and unknown in ducklake_core.
    bounds = {"table_column_stats": ["min_value", "max_value"]}
    twins.same_catalog(apart_from=dict.fromkeys(files, ids) | bounds)


def test_rows_move_between_partitions_and_keep_their_ids(twins: Twins) -> None:
    twins.both(
        "CREATE TABLE p (k BIGINT, region VARCHAR, day DATE)",
        "ALTER TABLE p SET PARTITIONED BY (region, year(day))",
        "INSERT INTO p SELECT i, CASE i % 2 WHEN 0 THEN 'eu' ELSE 'us' END, DATE '2020-06-01' + (i * 100)::INTEGER FROM range(12) r(i)",
    )
    twins.lake.table("p").update({"region": "CASE WHEN k < 4 THEN 'asia' END", "day": "day + 366"}, where="k % 3 = 0")
    twins.by_duckdb.run("UPDATE p SET region = CASE WHEN k < 4 THEN 'asia' END, day = day + 366 WHERE k % 3 = 0")
    twins.same("p")
    twins.same_changes("p")
    assert twins.rows("SELECT count(*) FROM p WHERE region = 'asia'") == [(2,)]
    scan = twins.lake.table("p").scan(columns=["k"], where="region = 'asia'")
    assert sorted(scan.to_arrow().column("k").to_pylist()) == [0, 3]


@pytest.mark.parametrize(
    ("values", "where", "error", "message"),
    spread(
        [
            ({"missing": "1"}, None, NotFoundError, "missing"),
            ({"a": "missing + 1"}, None, NotFoundError, "missing"),
            ({"a": "1"}, "missing = 1", NotFoundError, "missing"),
            ({}, None, UsageError, "no column"),
            ({"a": "1", "A": "2"}, None, UsageError, "twice"),
            ({"a": "max(a)"}, None, UsageError, "aggregate"),
            ({"a": "'x'"}, None, (SchemaError, UsageError), "x"),
            ({"a": "a * 100000000"}, None, SchemaError, "range"),
            ({"g": "regexp_replace(g, 'g', 'h')"}, None, UnsupportedFeatureError, "(?i)regexp_replace.*with spark="),
            ({"a": None}, None, SchemaError, "NOT NULL"),
        ],
        5,
    ),
)
def test_rejected_updates_leave_nothing(
    twins: Twins, values: dict[str, object], where: str | None, error: type[Exception], message: str
) -> None:
    twins.both(*TABLE)
    twins.own.run("ALTER TABLE t ALTER a SET NOT NULL")
    before, files = twins.lake.snapshot().id, set(twins.lake.storage.list(twins.own.address.data_path))
    with pytest.raises(error, match=message):
        twins.lake.table("t").update(values, where=where)
    assert twins.lake.snapshot().id == before
    assert set(twins.lake.storage.list(twins.own.address.data_path)) == files


def test_timestamps_of_another_unit(sqlite_address: LakeAddress) -> None:
    """A column of the table is cast, and so rounded, as in DuckDB; rows of a source are taken as appends take them."""
    columns = "k INTEGER, us TIMESTAMP, s TIMESTAMP_S, ms TIMESTAMP_MS, ns TIMESTAMP_NS"
    row = "(1, '1969-12-31 23:59:58.4996', '2020-01-01 00:00:01', NULL, '2020-01-01 00:00:00.000000999')"
    with attached(sqlite_address) as duck:
        duck.run(f"CREATE TABLE t ({columns})", f"INSERT INTO t VALUES {row}", "CREATE TABLE d AS FROM t")
        for change in ({"ms": "us"}, {"s": "us"}, {"us": "ns"}, {"ns": "s"}):
            ((name, value),) = change.items()
            duck.run(f"UPDATE d SET {name} = {value}")
            DuckLake.connect(sqlite_address.url).table("t").update(change)
            assert duck.rows("FROM t") == duck.rows("FROM d"), change
    table = DuckLake.connect(sqlite_address.url).table("t")
    fine = pa.table({"k": pa.array([1], pa.int32()), "s": pa.array([1_500], pa.timestamp("ms"))})
    with pytest.raises(SchemaError, match="column 's'"):
        table.merge(fine, on=["k"]).when_matched_update().execute()
    whole = fine.set_column(1, "s", pa.array([1_000], pa.timestamp("ms")))
    assert table.merge(whole, on=["k"]).when_matched_update().execute().rows_updated == 1
