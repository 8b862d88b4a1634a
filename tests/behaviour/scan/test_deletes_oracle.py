"""Every form of deleted rows of files, compared with DuckDB at every snapshot; contradictory deletes raise."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_core.errors import CorruptFileError
from tests.behaviour.scan.test_read_oracle import compare_with_arrow, replay
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import spread
from tests.support.scans import OpenLake, assert_same_rows, open_lake

VECTORS = "CALL lake.set_option('write_deletion_vectors', 'true')"
HISTORIES: dict[str, tuple[str, ...]] = {
    "plain, cumulative, inlined on top, flushed": (
        "CREATE TABLE t (i INTEGER, g INTEGER)",
        "INSERT INTO t SELECT i, i % 7 FROM range(300) r(i)",
        "INSERT INTO t SELECT i, i % 7 FROM range(300, 500) r(i)",
        "DELETE FROM t WHERE g = 3",
        "DELETE FROM t WHERE i IN (1, 2, 301)",
        "DELETE FROM t WHERE g = 4 AND i < 200",
        "DELETE FROM t WHERE i = 0",
        "CALL ducklake_flush_inlined_data('lake')",
        "DELETE FROM t WHERE i = 5",
        "DELETE FROM t WHERE i >= 300 AND g <> 1",
        "DELETE FROM t WHERE i >= 300",
        "INSERT INTO t VALUES (1000, 1), (1001, 2)",
        "DELETE FROM t WHERE i = 1000",
        "CALL ducklake_flush_inlined_data('lake')",
        "CALL ducklake_merge_adjacent_files('lake')",
        "TRUNCATE t",
        "INSERT INTO t SELECT i, 0 FROM range(20) r(i)",
    ),
    "deletion vectors": (
        VECTORS,
        "CREATE TABLE t (i INTEGER, g INTEGER)",
        "INSERT INTO t SELECT i, i % 7 FROM range(70000) r(i)",
        "DELETE FROM t WHERE g = 3",
        "DELETE FROM t WHERE i BETWEEN 10000 AND 69000",
        "DELETE FROM t WHERE i IN (2, 4)",
        "UPDATE t SET g = 9 WHERE i < 100",
        "CALL lake.set_option('write_deletion_vectors', 'false')",
        "DELETE FROM t WHERE i BETWEEN 200 AND 220",
        "CALL ducklake_flush_inlined_data('lake')",
        "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.0)",
    ),
    "deletes in merged and flushed files": (
        "CREATE TABLE t (i INTEGER, g INTEGER)",
        "INSERT INTO t SELECT i, 1 FROM range(4) r(i)",
        "INSERT INTO t SELECT i, 2 FROM range(10, 14) r(i)",
        "DELETE FROM t WHERE i IN (1, 11)",
        "UPDATE t SET g = 5 WHERE i IN (2, 12)",
        "CALL ducklake_flush_inlined_data('lake')",
        "DELETE FROM t WHERE i IN (0, 10)",
        "INSERT INTO t SELECT i, 3 FROM range(100, 150) r(i)",
        "INSERT INTO t SELECT i, 4 FROM range(200, 240) r(i)",
        "CALL ducklake_merge_adjacent_files('lake')",
        "DELETE FROM t WHERE i BETWEEN 110 AND 130 OR i BETWEEN 205 AND 208",
        "DELETE FROM t WHERE i = 140",
    ),
}


@pytest.mark.parametrize("name", spread(HISTORIES, 1))
def test_deletes_at_every_snapshot(lake_address: LakeAddress, name: str) -> None:
    replay(lake_address, HISTORIES[name], "DATA_INLINING_ROW_LIMIT 5", compare_with_arrow)


@pytest.fixture
def deleted(sqlite_address: LakeAddress) -> LakeAddress:
    """Two files of ten rows; the first has a delete file of positions 1 and 2."""
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t AS SELECT i FROM range(10) r(i)", "INSERT INTO t SELECT i FROM range(10, 20) r(i)")
        duck.run("DELETE FROM t WHERE i IN (1, 2)")
    return sqlite_address


def rewrite_delete_file(address: LakeAddress, path: str | None, positions: list[int]) -> Path:
    (found,) = Path(address.data_path).rglob("*-delete.parquet")
    named = path or pq.read_table(found).column("file_path")[0].as_py()
    pq.write_table(pa.table({"file_path": [named] * len(positions), "pos": positions}), found)
    return found


def values(lake: OpenLake) -> list[int]:
    return sorted(lake.scan("t").to_arrow()["i"].to_pylist())


def test_two_live_delete_files_of_a_file_add_up(deleted: LakeAddress) -> None:
    (found,) = Path(deleted.data_path).rglob("*-delete.parquet")
    second = found.with_name("second-delete.parquet")
    named = pq.read_table(found).column("file_path")[0].as_py()
    pq.write_table(pa.table({"file_path": [named, named], "pos": [2, 7]}), second)
    with sqlite3.connect(deleted.url.removeprefix("sqlite:///")) as catalog:
        names = [row[1] for row in catalog.execute("PRAGMA table_info(ducklake_delete_file)")]
        row = dict(zip(names, catalog.execute("SELECT * FROM ducklake_delete_file").fetchone(), strict=True))
        row |= {"delete_file_id": 99, "path": second.name}
        catalog.execute(f"INSERT INTO ducklake_delete_file VALUES ({', '.join('?' * len(names))})", [row[name] for name in names])
    catalog.close()
    lake = open_lake(deleted)
    # DuckDB returns the rows of such a file twice.
    assert values(lake) == [i for i in range(20) if i not in (1, 2, 7)]
    assert lake.scan("t").count() == 17


def test_a_delete_file_of_another_file_raises(deleted: LakeAddress) -> None:
    found = rewrite_delete_file(deleted, "/elsewhere/other.parquet", [1])
    with pytest.raises(CorruptFileError, match=rf"{found.name} deletes rows of /elsewhere/other\.parquet"):
        values(open_lake(deleted))


def test_positions_beyond_the_file_raise(deleted: LakeAddress) -> None:
    found = rewrite_delete_file(deleted, None, [1, 500])
    with pytest.raises(CorruptFileError, match=rf"{found.name} deletes position 500 of .*catalog counts 10 rows"):
        values(open_lake(deleted))


def test_a_moved_lake_keeps_its_deletes(deleted: LakeAddress) -> None:
    (found,) = Path(deleted.data_path).rglob("*-delete.parquet")
    named = pq.read_table(found).column("file_path")[0].as_py()
    rewrite_delete_file(deleted, "s3://old-bucket/lake/" + named.rpartition("/")[2], [1, 2])
    with attached(deleted) as duck:
        assert_same_rows(duck, open_lake(deleted).scan("t").to_arrow(), "SELECT * FROM t")


def test_counting_opens_no_data_file(deleted: LakeAddress) -> None:
    for file in Path(deleted.data_path).rglob("*.parquet"):
        if "-delete" not in file.name:
            file.unlink()
    assert open_lake(deleted).scan("t").count() == 18
