"""Change feeds of lakes that are unlike the usual one: deletion vectors, encryption, foreign files, DuckDB files, earlier versions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ducklake_core import DuckLake
from tests.behaviour.change_feed.histories import changes_by_time_travel, last_snapshot, rewrites, within
from tests.behaviour.foreign_files.added import add, put
from tests.support.old_lakes import VERSIONS, JsonRows, changes, old_lake
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.parameters import spread

_COLUMNS = ["snapshot_id", "rowid", "change_type", "a", "s"]

_DELETES = (
    "CREATE TABLE t (a INTEGER, s VARCHAR)",
    "INSERT INTO t SELECT i, 'v' || i FROM range(300) r(i)",
    "DELETE FROM t WHERE a % 7 = 0",
    "UPDATE t SET s = 'u' WHERE a BETWEEN 20 AND 60",
    "INSERT INTO t VALUES (1000, NULL), (1001, 'inlined')",
    "DELETE FROM t WHERE a IN (1000, 8, 21)",
    "UPDATE t SET s = 'w' WHERE a IN (9, 1001)",
    "CALL ducklake_flush_inlined_data('lake')",
    "DELETE FROM t WHERE a > 250",
)
_MERGE = "CALL ducklake_merge_adjacent_files('lake')"
_REWRITE = "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.01)"
_VECTORS = "CALL lake.set_option('write_deletion_vectors', 'true')"

_ONE_VECTOR_A_FILE = (
    _VECTORS,
    *_DELETES[:3],
    "INSERT INTO t SELECT i, 'v' || i FROM range(300, 400) r(i)",
    "UPDATE t SET s = 'u' WHERE a BETWEEN 320 AND 350",
    "DELETE FROM t WHERE a BETWEEN 330 AND 345 AND s = 'u'",
)

HISTORIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "deletion vectors": ("DATA_INLINING_ROW_LIMIT 0", (*_ONE_VECTOR_A_FILE, "TRUNCATE t")),
    "deletion vectors and deletes in the catalog": ("", (*_ONE_VECTOR_A_FILE, "DELETE FROM t WHERE a IN (1, 321)", "TRUNCATE t")),
    "encrypted": ("ENCRYPTED", (*_DELETES, _REWRITE, "DELETE FROM t WHERE a = 30")),
    "encrypted, nothing inlined": ("ENCRYPTED, DATA_INLINING_ROW_LIMIT 0", (*_DELETES, _MERGE, "TRUNCATE t")),
    "merged after a rewrite": (
        "",
        (*_DELETES, _REWRITE, "INSERT INTO t SELECT i, 'x' FROM range(400, 420) r(i)", "INSERT INTO t VALUES (500, 'y')", _MERGE,
         "DELETE FROM t WHERE a IN (30, 405)", "UPDATE t SET s = 'z' WHERE a IN (31, 406)"),
    ),
    "rewritten after a merge": (
        "DATA_INLINING_ROW_LIMIT 0",
        (*_DELETES, _MERGE, "DELETE FROM t WHERE a IN (30, 40)", _REWRITE, "UPDATE t SET s = 'z' WHERE a < 40", _MERGE),
    ),
}  # fmt: skip


def check_every_range(duck: Oracle, lake: DuckLake, *, created: int = 1) -> None:
    """Ranges from and to every snapshot report the changes that DuckDB's time travel shows."""
    truth = changes_by_time_travel(duck, lake, created)
    assert truth
    last = last_snapshot(duck)
    for start, end in {(created, last), *((s, s) for s in range(created, last + 1)), *((s, last) for s in range(created, last))}:
        found = lake.table("t").changes(start, end, columns=_COLUMNS).to_arrow()
        assert Counter(zip(*(column.to_pylist() for column in found.columns), strict=True)) == within(truth, start, end), (start, end)


@pytest.mark.parametrize("name", spread(HISTORIES, 2))
def test_histories(lake_address: LakeAddress, name: str) -> None:
    options, statements = HISTORIES[name]
    with attached(lake_address, options) as duck:
        duck.run(*statements)
        check_every_range(duck, DuckLake.connect(lake_address.url))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["deletion vectors", "encrypted", "merged after a rewrite"])
def test_duckdb_files(tmp_path: Path, name: str) -> None:
    address = LakeAddress(f"duckdb:///{tmp_path}/c.duckdb", f"ducklake:{tmp_path}/c.duckdb", f"{tmp_path}/files/", "duckdb")
    options, statements = HISTORIES[name]
    with attached(address, options) as duck:
        duck.run(*statements)
        check_every_range(duck, DuckLake.connect(address.url))


def test_files_whose_columns_are_found_by_name(lake_address: LakeAddress, tmp_path: Path) -> None:
    first = pa.table({"S": pa.array(["p", "q", "r"]), "A": pa.array([1, 2, 3], pa.int32())})
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t (a INTEGER, s VARCHAR)")
        add(duck, "t", put(tmp_path / "elsewhere" / "first.parquet", first))
        duck.run("INSERT INTO t SELECT i, 'v' FROM range(10, 40) r(i)", "DELETE FROM t WHERE a IN (2, 12)")
        second = pa.table({"a": pa.array([7, 8], pa.int32())})
        add(duck, "t", put(tmp_path / "elsewhere" / "s=hive" / "second.parquet", second), "hive_partitioning => true")
        duck.run(
            "UPDATE t SET s = 'u' WHERE a IN (3, 8, 13)", "ALTER TABLE t ADD COLUMN more INTEGER DEFAULT 5", "DELETE FROM t WHERE a = 7"
        )
        lake = DuckLake.connect(lake_address.url, allowed_paths=[f"{tmp_path}/elsewhere/"])
        check_every_range(duck, lake)


@pytest.mark.parametrize(("version", "backend"), [*((version, "sqlite") for version in VERSIONS), ("0.1", "postgresql"), ("0.3", "duckdb")])
def test_earlier_versions(version: str, backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Compare with rows that an earlier DuckDB read: rows that appear and disappear under a row id are the changes of a snapshot."""
    old = old_lake(version, backend, tmp_path, request.getfixturevalue("postgres") if backend == "postgresql" else None)
    lake, cells, reported = DuckLake.connect(old.address.url), JsonRows(), 0
    assert lake.info.version == version
    for name in old.expected.keys() & {"numbers", "nested", "parted", "small"}:
        expected = old.expected[name]
        for snapshot in sorted(set(changes(expected)) - {min(expected)}):
            before, after = expected[snapshot - 1], expected[snapshot]
            if before.columns != after.columns:
                continue
            old_rows, new_rows = ({row[0]: row[1:] for row in rows.rows} for rows in (before, after))
            changed = {row_id for row_id in old_rows.keys() | new_rows.keys() if old_rows.get(row_id) != new_rows.get(row_id)}
            table = lake.table(name, at=snapshot)
            for kind, rows in (("insertions", new_rows), ("deletions", old_rows)):
                held = cells.of(getattr(table, kind)(snapshot, columns=[*after.columns, "rowid"]).to_arrow()).rows
                assert {row[0]: row[1:] for row in held} == {row_id: rows[row_id] for row_id in changed if row_id in rows}, (name, snapshot)
                reported += len(held)
    assert reported > 40


def test_a_vector_that_replaces_another_takes_its_history_along(lake_address: LakeAddress) -> None:
    """DuckDB forgets the first vector: at earlier snapshots its rows are there again, and they go with the second."""
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(_VECTORS, *_DELETES[:3], "DELETE FROM t WHERE a % 5 = 0")
        assert duck.value("SELECT count(*) FROM t AT (VERSION => 3)") == 300
        expected = duck.rows("SELECT snapshot_id, rowid FROM ducklake_table_deletions('lake', 'main', 't', 3, 4) ORDER BY ALL")
    feed = DuckLake.connect(lake_address.url).table("t").deletions(3, columns=["snapshot_id", "rowid"]).to_arrow()
    assert sorted(tuple(row.values()) for row in feed.to_pylist()) == expected == [(4, i) for i in range(300) if i % 5 == 0 or i % 7 == 0]


def test_predicates_leave_out_files(lake_address: LakeAddress) -> None:
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t (a INTEGER, s VARCHAR, p INTEGER)")
        duck.run(*(f"INSERT INTO t SELECT i, 's' || i, NULL FROM range({first}, {first + 10}) r(i)" for first in (0, 10, 20)))
        duck.run("ALTER TABLE t SET PARTITIONED BY (p)", "INSERT INTO t SELECT i, NULL, i % 3 FROM range(30, 60) r(i)")
        duck.run(
            "UPDATE t SET s = 'new' WHERE a IN (5, 15, 45)", "DELETE FROM t WHERE a BETWEEN 18 AND 31", "ALTER TABLE t ALTER a TYPE BIGINT"
        )
        duck.run("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.01)", "ALTER TABLE t ADD COLUMN d INTEGER DEFAULT 8")
        last, table = last_snapshot(duck), DuckLake.connect(lake_address.url).table("t")
        for where, most in (
            ("a = 5", 4),
            ("p = 1", 5),
            ("p IS NULL AND a > 22", 4),
            ("s IS NULL", 5),
            ("d = 7", 99),
            ("a < 0", 0),
            ("s = 'new'", 5),
        ):
            for kind in ("insertions", "deletions"):
                feed = getattr(table, kind)(2, where=where)
                rows = Counter(map(str, feed.to_arrow().to_pylist()))
                every = getattr(table, kind)(2).to_arrow()
                duck.connection.register("every", every)
                kept = duck.connection.execute(f"SELECT * FROM every WHERE {where}").to_arrow_table()
                assert rows == Counter(map(str, kept.cast(every.schema).to_pylist())), (where, kind)
                assert len(feed.plan().plan.tasks) <= most, (where, kind)
        whole = table.insertions(2).plan().plan
        plan = table.insertions(2, where="a = 5").plan()
        assert 0 < plan.plan.pruned == len(whole.tasks) - len(plan.plan.tasks)
        assert "files by partition values and statistics" in str(plan)
        assert not table.changes(2, last, where="a = 5").plan().plan.pruned


@pytest.mark.slow
def test_on_spark(sqlite_address: LakeAddress, spark: SparkSession) -> None:
    options, statements = HISTORIES["encrypted"]
    with attached(sqlite_address, options) as duck:
        duck.run(_VECTORS, *statements)
        assert rewrites(duck)
    feed = DuckLake.connect(sqlite_address.url).table("t").changes(1)
    assert sorted(map(str, feed.to_spark(spark).toArrow().to_pylist())) == sorted(map(str, feed.to_arrow().to_pylist()))
