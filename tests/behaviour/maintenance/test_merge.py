"""Merging changes files, never rows: not their values, not their ids, not what any snapshot shows."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import select

from ducklake_core.engines.arrow import read
from ducklake_core.errors import CatalogUnavailableError, NotFoundError, UsageError
from ducklake_core.format.files.data_files import DataFile
from ducklake_core.lake import DuckLake
from ducklake_core.maintenance import merge
from ducklake_core.maintenance.merge import merge_adjacent_files
from ducklake_core.maintenance.request import TableRequest, TableScope
from ducklake_core.storage.filesystems import Storage
from tests.behaviour.maintenance.lakes import FILES_ONLY, NOW, catalog_rows, change_feeds, copy_of, files_on_disk, readings
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import on_postgresql

WRITTEN_DIFFERENTLY = frozenset(
    {
        "path", "file_size_bytes", "footer_size", "column_size_bytes", "snapshot_time", "author", "commit_message", "commit_extra_info",
    }
)  # fmt: skip


def write_small_files(address: LakeAddress) -> None:
    """Small files of several schema versions and partitions, next to files with deletes, updates and inlined rows."""
    with attached(address, FILES_ONLY) as duck:
        duck.run(
            "CREATE TABLE t (id INTEGER NOT NULL, name VARCHAR, ts TIMESTAMPTZ, tags VARCHAR[], place STRUCT(x DOUBLE, y DOUBLE))",
            *(insert("t", i * 10) for i in range(4)),
            "UPDATE t SET name = 'changed' WHERE id = 35",
            insert("t", 100),
            "ALTER TABLE t ADD COLUMN extra INTEGER DEFAULT 7",
            *(f"INSERT INTO t SELECT range + {n}, 'e', NULL, NULL, NULL, range FROM range(5)" for n in (200, 300)),
            "ALTER TABLE t RENAME COLUMN name TO label",
            *(f"INSERT INTO t SELECT range + {n}, 'f', NULL, ['x'], NULL, range FROM range(5)" for n in (400, 500, 600)),
            'CREATE SCHEMA "we""ird, näme"',
            'CREATE TABLE "we""ird, näme"."t ä" (x INTEGER, day DATE)',
            'ALTER TABLE "we""ird, näme"."t ä" SET PARTITIONED BY (day)',
            *(
                f'INSERT INTO "we""ird, näme"."t ä" SELECT range, DATE \'2024-01-01\' + range::INT % 2 FROM range({n}, {n} + 6)'
                for n in range(3)
            ),
        )


def insert(table: str, start: int) -> str:
    values = "range + {0}, 'n' || range, to_timestamp(range * 3600.5), ['a', NULL], {{'x': range / 3, 'y': NULL}}"
    return f"INSERT INTO {table} SELECT {values.format(start)} FROM range(10)"


def live_files(address: LakeAddress, table: str) -> int:
    return DuckLake.connect(address.url).table_info(table).file_count


@on_postgresql
def test_every_snapshot_reads_as_before(lake_address: LakeAddress) -> None:
    write_small_files(lake_address)
    before = readings(lake_address)
    lake = DuckLake.connect(lake_address.url)
    plan = lake.merge_adjacent_files(dry_run=True)
    done = lake.merge_adjacent_files()
    assert done.failures == ()
    assert [(t.table, t.groups, t.files_merged, t.left) for t in done.tables] == [
        (t.table, t.groups, t.files_merged, t.left) for t in plan.tables
    ]
    assert done.files_merged == 17
    assert done.files_created == 5
    after = readings(lake_address)
    assert {key: rows for key, rows in after.items() if key in before} == before
    with attached(lake_address) as duck:
        assert len(duck.rows("FROM ducklake_list_files('lake', 't')")) == live_files(lake_address, "t")
    again = lake.merge_adjacent_files()
    assert again.files_merged == 0
    assert all(table.snapshot is None for table in again.tables)
    lake.close()


@pytest.mark.parametrize("partitioned", [False, True])
def test_the_catalog_equals_that_of_duckdb(
    lake_address: LakeAddress, request: pytest.FixtureRequest, tmp_path: Path, partitioned: bool
) -> None:
    with attached(lake_address, FILES_ONLY) as duck:
        duck.run(
            "CREATE TABLE t (a INTEGER, b VARCHAR, c DOUBLE)",
            *(["ALTER TABLE t SET PARTITIONED BY (b)"] if partitioned else []),
            *(f"INSERT INTO t SELECT range, 'p' || range % 2, range / 2 + 1 FROM range({n}, {n + 20})" for n in range(0, 60, 20)),
        )
    by_duckdb = copy_of(lake_address, request, tmp_path)
    lake = DuckLake.connect(lake_address.url)
    result = lake.merge_adjacent_files("t")
    # DuckDB logs the second alone (decision 31).
    assert lake.snapshot().changes == "inline_flush:1,merge_adjacent:1"
    lake.close()
    with attached(by_duckdb) as duck:
        reported = duck.rows("CALL ducklake_merge_adjacent_files('lake', 't')")
    assert {row[:2] for row in reported} == {("main", "t")}
    assert [sum(row[place] for row in reported) for place in (2, 3)] == [result.files_merged, result.files_created]
    # DuckDB numbers the files of several partitions in the order of a hash table.
    without = WRITTEN_DIFFERENTLY | ({"data_file_id"} if partitioned else set()) | {"changes_made"}
    assert catalog_rows(lake_address, without=without) == catalog_rows(by_duckdb, without=without)


def _write_deletes(address: LakeAddress) -> None:
    """Files whose rows were deleted and updated by delete files, grown ones too, and through the catalog; some deletes were flushed."""
    with attached(address, "DATA_INLINING_ROW_LIMIT 3") as duck:
        duck.run(
            "CREATE TABLE t (a INTEGER, b VARCHAR)",
            "INSERT INTO t SELECT range, 'x' FROM range(20)",
            "DELETE FROM t WHERE a < 5",
            "INSERT INTO t SELECT range, 'y' FROM range(100, 120)",
            "DELETE FROM t WHERE a IN (10, 101)",
            "UPDATE t SET b = 'z' WHERE a BETWEEN 8 AND 14",
            "INSERT INTO t VALUES (1000, 'i'), (1001, 'j')",
            "UPDATE t SET b = 'k' WHERE a = 1000",
            "DELETE FROM t WHERE a BETWEEN 105 AND 110",
            "CALL ducklake_flush_inlined_data('lake')",
            "DELETE FROM t WHERE a IN (1001, 15)",
        )


def _duckdb_feed(address: LakeAddress, until: int) -> list[tuple[Any, ...]]:
    with attached(address) as duck:
        return duck.rows(f"FROM ducklake_table_changes('lake', 'main', 't', 1, {until}) ORDER BY ALL")


@on_postgresql
def test_files_with_deletes_keep_their_history(lake_address: LakeAddress) -> None:
    _write_deletes(lake_address)
    with DuckLake.connect(lake_address.url) as lake:
        for _ in range(2):
            last, files = lake.snapshot().id, files_on_disk(lake_address)
            before, reported, by_duckdb = readings(lake_address), change_feeds(lake_address), _duckdb_feed(lake_address, last)
            (done,) = lake.merge_adjacent_files().tables
            assert (done.files_created, done.left) == (1, ())
            info = lake.table_info("t")
            assert (info.file_count, info.delete_file_count) == (1, 1)
            after = readings(lake_address)
            assert {key: after[key] for key in before} == before
            assert change_feeds(lake_address) == reported
            assert _duckdb_feed(lake_address, last) == by_duckdb
            assert lake.check(level="rows").findings == ()
            scheduled = {str(Path(file.path).name) for file in lake.cleanup_old_files(cleanup_all=True, min_age=NOW, dry_run=True).files}
            assert scheduled >= {Path(name).name for name in files}
            # DuckDB goes on with the merged file.
            with attached(lake_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
                duck.run("INSERT INTO t SELECT range, 'w' FROM range(200, 210)", "DELETE FROM t WHERE a IN (100, 111, 203)")


def test_rows_that_no_snapshot_shows_are_left_out(small: DuckLake, sqlite_address: LakeAddress) -> None:
    _write_deletes(sqlite_address)
    small.merge_adjacent_files()
    file_rows = small.table_info("t").row_count + small.table_info("t").deleted_row_count
    with attached(sqlite_address, FILES_ONLY) as duck:
        duck.run("INSERT INTO t VALUES (1, 'new')", "DELETE FROM t WHERE a = 16")
    small.expire_snapshots(keep_last=2, min_age=NOW)
    before = readings(sqlite_address)
    small.merge_adjacent_files()
    after = readings(sqlite_address)
    assert {key: after[key] for key in before} == before
    info = small.table_info("t")
    assert info.deleted_row_count == 1
    assert info.row_count < file_rows - 10
    # Rewriting ends a file without visible rows.
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 3") as duck:
        duck.run("CREATE TABLE u AS FROM range(4, 8) r(a)", *(f"DELETE FROM u WHERE a = {a}" for a in (4, 5, 6, 7)))
        duck.run("INSERT INTO u FROM range(10, 14)")
    (only,) = small.merge_adjacent_files("u").tables
    assert only.left == (("at least 95% of its rows are deleted", 1), ("no other file to merge with", 1))


@pytest.mark.parametrize("limit", [0, 10])
def test_rows_deleted_meanwhile_are_planned_again(
    small: DuckLake, sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """DuckDB deletes and appends rows while files are written, once with a delete file and once in the catalog."""
    _write_deletes(sqlite_address)
    real, calls, before = merge.merge_files, [], {}

    def feeds(until: int) -> tuple[object, ...]:
        return change_feeds(sqlite_address), _duckdb_feed(sqlite_address, until)

    def meanwhile(*task: Any, **how: Any) -> Any:
        done = real(*task, **how)
        calls.append(task)
        if len(calls) == 1:
            with attached(sqlite_address, f"DATA_INLINING_ROW_LIMIT {limit}") as duck:
                duck.run("DELETE FROM t WHERE a = 112", "INSERT INTO t SELECT range, 'm' FROM range(500, 520)")
            before["files"] = files_on_disk(sqlite_address)
            before["feeds"], before["rows"] = feeds(small.snapshot().id), readings(sqlite_address)
        return done

    monkeypatch.setattr(merge, "merge_files", meanwhile)
    newest = small.snapshot().id + 2
    (done,) = small.merge_adjacent_files().tables
    assert (len(calls), done.failures, done.files_created, done.snapshots[0].id) == (2, (), 1, newest + 1)
    after = readings(sqlite_address)
    assert {key: after[key] for key in before["rows"]} == before["rows"]
    assert after[newest + 1, '"main"."t"'] == after[newest, '"main"."t"']
    assert (112, "y") not in [row[1:] for row in after[newest, '"main"."t"']]
    assert feeds(newest) == before["feeds"]
    assert small.check(level="rows").findings == ()
    on_disk = files_on_disk(sqlite_address)
    info = small.table_info("t")
    assert (info.file_count, info.delete_file_count) == (1, 1)
    assert len(on_disk - before["files"]) == 2, "a file and its delete file"
    small.cleanup_old_files(cleanup_all=True, min_age=NOW)
    assert small.delete_orphaned_files(cleanup_all=True, min_age=NOW, dry_run=True).files == (), "the first attempt left no file"


def test_a_much_larger_file_waits() -> None:
    def merged(*sizes: int) -> list[int]:
        files = [
            DataFile(
                id=size, table_id=1, directory="", relative_path="", record_count=1, file_size_bytes=size << 20, footer_size=None,
                row_id_start=0, begin_snapshot=1,
            )
            for size in sizes
        ]  # fmt: skip
        return [file.id for file in merge._worthwhile(files)]

    assert merged(300, 1, 300) == [300, 1, 300]
    assert merged(300, 1, 2) == [1, 2]
    assert merged(300, 9, 150) == [300, 9, 150]
    assert merged(7, 1, 1) == [7, 1, 1]


def test_limits_and_options(lake_address: LakeAddress) -> None:
    write_small_files(lake_address)
    lake = DuckLake.connect(lake_address.url)
    assert lake.merge_adjacent_files("t", max_compacted_files=1, dry_run=True).files_created == 1
    assert lake.merge_adjacent_files("t", max_file_size=10, dry_run=True).files_created == 0
    assert lake.merge_adjacent_files("t", min_file_size=10**9, dry_run=True).files_created == 0
    assert [t.table for t in lake.merge_adjacent_files(schema="main", dry_run=True).tables] == ["main.t"]
    with attached(lake_address) as duck:
        duck.run("CALL lake.set_option('auto_compact', false, table_name => 't')")
    (only,) = lake.merge_adjacent_files("t").tables
    assert only.skipped == "option auto_compact is false"
    assert only.snapshot is None
    with pytest.raises(UsageError, match="min_file_size"):
        lake.merge_adjacent_files("t", min_file_size=10, max_file_size=5)
    for name in ("max_compacted_files", "max_file_size"):
        with pytest.raises(UsageError, match=name):
            lake.merge_adjacent_files("t", **{name: 0})  # type: ignore[arg-type]
    with pytest.raises(NotFoundError):
        lake.merge_adjacent_files("nothing")
    lake.close()


def test_target_size_cuts_groups(lake_address: LakeAddress) -> None:
    with attached(lake_address, FILES_ONLY) as duck:
        duck.run("CREATE TABLE t (a INTEGER)", *(f"INSERT INTO t SELECT range FROM range({n}, {n + 50})" for n in range(6)))
        size = int(duck.value("SELECT min(data_file_size_bytes) FROM ducklake_list_files('lake', 't')"))
    lake = DuckLake.connect(lake_address.url)
    lake.set_option("target_file_size", 2 * size, table="t")
    result = lake.merge_adjacent_files("t")
    assert (result.files_merged, result.files_created) == (6, 3)
    lake.close()


@pytest.mark.parametrize("tables", [None, "t"])
def test_merged_files_are_deleted_if_the_catalog_is_unavailable_before_the_commit(
    sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch, tables: str | None
) -> None:
    from ducklake_core.maintenance import merge

    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.set_option("data_inlining_row_limit", 0)
    for table in ("t", "u"):
        for _ in range(2):
            lake.write(table, pa.table({"x": [1]}))
    on_disk = files_on_disk(sqlite_address)
    real = merge.named_elsewhere

    def unavailable_before_the_commit(*arguments: Any, after: int | None) -> Any:
        if after is not None:
            raise CatalogUnavailableError("the server was shut down")
        return real(*arguments, after=after)

    monkeypatch.setattr(merge, "named_elsewhere", unavailable_before_the_commit)
    result = lake.merge_adjacent_files(tables)
    assert result.files_created == 0
    assert [failure.rpartition("[")[2] for failure in result.failures] == ["catalog-unavailable]"] * len(result.tables)
    assert files_on_disk(sqlite_address) == on_disk
    monkeypatch.undo()
    assert lake.merge_adjacent_files(tables).files_created == len(result.tables)
    lake.close()


def test_row_ids_are_stored_only_where_needed(lake_address: LakeAddress) -> None:
    with attached(lake_address, FILES_ONLY) as duck:
        duck.run("CREATE TABLE t (a INTEGER)", *(f"INSERT INTO t SELECT range FROM range({n}, {n + 5})" for n in range(3)))
    lake = DuckLake.connect(lake_address.url)
    lake.merge_adjacent_files("t")
    with lake.reader() as reader:
        (row,) = reader.connection.execute(select(reader.catalog["data_file"])).all()
    lake.close()
    names = pq.read_schema(Path(lake_address.data_path) / "main/t" / row.path).names
    assert names == ["a", "_ducklake_internal_snapshot_id"]
    assert (row.row_id_start, row.begin_snapshot, row.partial_max) == (0, 2, 4)


@pytest.mark.parametrize("max_concurrency", [None, 2])
@pytest.mark.parametrize("updated_last", [False, True])
def test_rows_whose_ids_differ_from_their_positions(sqlite_address: LakeAddress, updated_last: bool, max_concurrency: int | None) -> None:
    """By the catalog row ids continue from file to file; that one file stores other ids is found while rows are written."""
    with DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        lake.set_option("parquet_row_group_size", 2)
        lake.create_table("t", {"a": "int64", "s": "varchar"})
        steps = [lambda: lake.table("t").update({"s": "'new'"}, where="a < 5"), lambda: _append(lake, range(5, 12))]
        _append(lake, range(5))
        for step in reversed(steps) if updated_last else steps:
            step()
        _append(lake, range(12, 14))
        columns = ["a", "s", "rowid", "snapshot_id"]
        before = lake.table("t").scan(columns=columns).to_arrow().sort_by("a")
        assert not before.column("rowid").equals(before.column("a"))
        on_disk = files_on_disk(sqlite_address)
        done = lake.merge_adjacent_files(max_concurrency=max_concurrency)
        assert (done.files_created, done.failures) == (1, ())
        assert len(files_on_disk(sqlite_address) - on_disk) == 1, "what was begun first is deleted"
        assert lake.table("t").scan(columns=columns).to_arrow().sort_by("a").equals(before)
        assert lake.check(level="rows").findings == ()
    with attached(sqlite_address) as duck:
        query = f"SELECT {', '.join(columns)} FROM t ORDER BY a"
        assert duck.rows(query) == [tuple(row.values()) for row in before.to_pylist()]


def _append(lake: DuckLake, keys: range) -> None:
    lake.table("t").append(pa.table({"a": pa.array(keys, pa.int64()), "s": ["old"] * len(keys)}))


_TOGETHER = threading.Barrier(2)


class InPairs(Storage):
    """A store that opens no data file before a second one is requested."""

    def open_input(self, path: str) -> pa.NativeFile:
        if path.endswith(".parquet"):
            _TOGETHER.wait(timeout=30)
        return Storage.open_input(self, path)


def test_small_files_are_read_ahead(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store's answers overlap: files are not opened one after another. Rows stay in their order all the same."""
    monkeypatch.setattr(read, "readers_of", lambda _path: 2)
    # Of a disk, one thread takes several small files.
    monkeypatch.setattr(read, "protocol_of", lambda _path: "s3")
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    for number in range(5):
        lake.write("t", pa.table({"a": range(number * 100, number * 100 + 100)}), inline=False)
    # The first file is read by the caller.
    first = threading.Timer(0.2, _TOGETHER.wait, [30])
    first.start()
    request = TableRequest(scope=TableScope())
    done = merge_adjacent_files(lake.database, lake.info, InPairs(), request)
    first.join()
    assert (done.failures, done.files_merged) == ((), 5)
    assert lake.table("t").scan(columns=["a", "rowid"]).to_arrow().to_pydict() == {"a": [*range(500)], "rowid": [*range(500)]}
    lake.close()
