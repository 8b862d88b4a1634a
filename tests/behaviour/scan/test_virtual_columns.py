"""Virtual columns: DuckDB's own values at every snapshot, in results and in predicates, and hidden by columns of the same name."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ducklake_core.errors import NotFoundError
from tests.behaviour.scan.test_read_oracle import replay
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.parameters import spread
from tests.support.scans import OpenLake, assert_same_rows, open_lake

VIRTUAL = ["rowid", "snapshot_id", "filename", "file_row_number"]
HISTORY = (
    "CREATE TABLE t (a INTEGER, b VARCHAR)",
    "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
    "INSERT INTO t SELECT i, 'f' FROM range(100, 120) r(i)",
    "UPDATE t SET b = 'inlined' WHERE a IN (1, 103)",
    "UPDATE t SET b = 'file' WHERE a BETWEEN 104 AND 115",
    "ALTER TABLE t ADD COLUMN c INTEGER DEFAULT 5",
    "INSERT INTO t VALUES (3, 'n', 1)",
    "INSERT INTO t SELECT i, 'g', i FROM range(200, 230) r(i)",
    "DELETE FROM t WHERE a BETWEEN 202 AND 208 OR a = 3",
    "UPDATE t SET c = 7 WHERE a = 210 OR a = 104",
    "CALL ducklake_flush_inlined_data('lake')",
    "DELETE FROM t WHERE a IN (1, 211, 212, 213, 214, 215, 216)",
    "INSERT INTO t SELECT i, 'h', i FROM range(300, 320) r(i)",
    "INSERT INTO t SELECT i, 'h', i FROM range(320, 330) r(i)",
    "CALL ducklake_merge_adjacent_files('lake')",
    "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.0)",
    "INSERT INTO t VALUES (4, 'last', 1)",
)


def compare(duck: Oracle, lake: OpenLake, version: int) -> None:
    source = f"t AT (VERSION => {version})"
    own = lake.scan("t", version, columns=["a", *VIRTUAL, "file_index"]).to_arrow()
    assert_same_rows(duck, own.drop_columns("file_index"), f"SELECT a, {', '.join(VIRTUAL)} FROM {source}")
    # DuckDB counts the files in the order of a join; what stays is one number for a file, from 0 without gaps.
    pairs = set(zip(own["file_index"].to_pylist(), own["filename"].to_pylist(), strict=True))
    by_duckdb = duck.rows(f"SELECT DISTINCT file_index, filename FROM {source}")
    assert len(pairs) == len(by_duckdb) == len({number for number, _ in pairs}) == len({name for _, name in pairs})
    files = len(lake.scan("t", version).plan().plan.tasks)
    assert all((number < files) == name.endswith(".parquet") for number, name in pairs)


def test_values_at_every_snapshot(lake_address: LakeAddress) -> None:
    replay(lake_address, HISTORY, "DATA_INLINING_ROW_LIMIT 5", compare)


CONDITIONS = [
    "rowid = 5",
    "rowid IN (0, 3, 25) OR a = 300",
    "snapshot_id > 6",
    "snapshot_id = 3",
    "snapshot_id <= 4 AND b <> 'x'",
    "snapshot_id BETWEEN 5 AND 8",
    "file_row_number = 1",
    "file_row_number >= 5 AND rowid < 20",
    "filename LIKE 'ducklake%'",
    "filename > 'ducklake_z'",
    "NOT (ROWID < 10)",
    "filename IS NULL",
]


@pytest.mark.parametrize("steps", spread([11, len(HISTORY)], 1))
def test_predicates_keep_the_rows_that_duckdb_keeps(lake_address: LakeAddress, steps: int) -> None:
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 5") as duck:
        duck.run(*HISTORY[:steps])
        lake = open_lake(lake_address)
        for condition in CONDITIONS:
            scan = lake.scan("t", where=condition)
            assert_same_rows(duck, scan.to_arrow(), f"SELECT * FROM t WHERE {condition}")
            assert scan.count() == duck.value(f"SELECT count(*) FROM t WHERE {condition}"), condition
            columns = lake.scan("t", where=condition, columns=["snapshot_id", "b"]).to_arrow()
            assert_same_rows(duck, columns, f"SELECT snapshot_id, b FROM t WHERE {condition}")
        assert lake.scan("t", where="file_index >= 0").count() == lake.scan("t").count()


def test_a_predicate_on_the_snapshot_leaves_older_files_out(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t (a INTEGER)", *(f"INSERT INTO t VALUES ({i})" for i in range(5)))
    planned = open_lake(sqlite_address).scan("t", where="snapshot_id >= 5").plan().plan
    assert len(planned.tasks) == 2
    assert all(task.all_rows_match for task in planned.tasks)
    assert (planned.pruning.files_total, planned.pruning.pruned_by_statistics) == (5, 3)


@pytest.mark.parametrize("name", [*VIRTUAL, "file_index"])
def test_a_column_of_the_table_hides_the_virtual_one(sqlite_address: LakeAddress, name: str) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 5") as duck:
        duck.run(f'CREATE TABLE t ("{name.upper()}" VARCHAR, a INTEGER)', "INSERT INTO t VALUES ('inlined', 1)")
        duck.run("INSERT INTO t SELECT 'v' || i, i FROM range(10, 30) r(i)", "DELETE FROM t WHERE a BETWEEN 11 AND 19")
        lake = open_lake(sqlite_address)
        remaining = [other for other in VIRTUAL if other != name]
        own = lake.scan("t", columns=[name, "a", *remaining]).to_arrow()
        assert_same_rows(duck, own, f'SELECT "{name.upper()}", a, {", ".join(remaining)} FROM t')
        chosen = lake.scan("t", where=f"{name} >= 'v2'", columns=["a"]).to_arrow()
        assert_same_rows(duck, chosen, f"SELECT a FROM t WHERE {name} >= 'v2'")
        assert lake.scan("t", where=f"{name} = 'inlined'").count() == 1


def test_types_and_unknown_names(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE t (a INTEGER)", "INSERT INTO t VALUES (1)")
    lake = open_lake(sqlite_address)
    found = lake.scan("t", columns=[*VIRTUAL, "file_index"]).to_arrow().schema
    assert found.types == [pa.int64(), pa.int64(), pa.string(), pa.int64(), pa.uint64()]
    with pytest.raises(NotFoundError, match="row_id"):
        lake.scan("t", where="row_id = 1").plan()
