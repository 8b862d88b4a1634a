"""Flushing moves rows, and changes nothing that any snapshot or the change feed shows."""

from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import delete, select, update

from ducklake_core.catalog.inlined import rows
from ducklake_core.engines.arrow import compaction, sorting
from ducklake_core.errors import NotFoundError
from ducklake_core.lake import DuckLake
from ducklake_core.maintenance import flush
from ducklake_core.maintenance.groups import Execution
from ducklake_core.maintenance.request import TableRequest
from ducklake_core.storage.spill import SpillLimits
from tests.behaviour.maintenance.lakes import FILES_ONLY, catalog_rows, change_feeds, copy_of, files_on_disk, readings, write_inlined
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import on_all_catalogs

_FLUSH = "CALL ducklake_flush_inlined_data('lake')"


def test_every_snapshot_and_the_feed_are_as_before(lake_address: LakeAddress) -> None:
    _all_is_as_before(lake_address, "")


@pytest.mark.slow
def test_every_snapshot_and_the_feed_are_as_before_in_an_encrypted_lake(sqlite_address: LakeAddress) -> None:
    _all_is_as_before(sqlite_address, "ENCRYPTED")


def test_rows_that_wait_on_the_local_disk(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches of three rows, and no batch stays in memory."""
    monkeypatch.setattr(rows, "BATCH_ROWS", 3)
    for module, name in ((flush, "HELD_ROWS"), (compaction, "FLUSHED_ROWS"), (sorting, "SORTED_ROWS")):
        monkeypatch.setattr(module, name, SpillLimits(memory_bytes=1))
    _all_is_as_before(sqlite_address, "ENCRYPTED")


def _all_is_as_before(lake_address: LakeAddress, options: str) -> None:
    write_inlined(lake_address, options)
    before, reported = readings(lake_address), change_feeds(lake_address)
    lake = DuckLake.connect(lake_address.url)
    plan = lake.flush_inlined_data(dry_run=True)
    done = lake.flush_inlined_data()
    assert done.failed_steps == ()
    assert [(s.target, s.rows) for s in done.steps] == [(s.target, s.rows) for s in plan.steps]
    assert {s.target: s.rows for s in plan.steps} == {"main.t": 10, "main.p": 10, "main.f": 5}
    assert done.rows_flushed == 21
    assert change_feeds(lake_address) == reported
    after = readings(lake_address)
    assert {key: rows for key, rows in after.items() if key in before} == before
    with lake.reader() as reader:
        for name in reader.connection.execute(select(reader.catalog["inlined_data_tables"].c.table_name)).scalars():
            assert reader.connection.execute(select(reader.catalog.inlined_data(name))).all() == []
        ended = reader.connection.execute(select(reader.catalog["delete_file"].c.data_file_id)).scalars().all()
        assert len(ended) == len(set(ended)), "one delete file of each data file"
    again = lake.flush_inlined_data()
    assert {step.reason for step in again.skipped_steps} == {"it has no inlined data"}
    assert len(again.skipped_steps) == len(again.steps)
    lake.close()
    with attached(lake_address, options) as duck:
        # DuckDB continues to write, compacts the flushed files, and still reads the same rows.
        duck.run("INSERT INTO t VALUES (9, 'i', 5, NULL, NULL, 1)", "DELETE FROM p WHERE id = 6", "UPDATE f SET id = 0 WHERE id = 30")
        duck.run("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.0)", _FLUSH)
    late = readings(lake_address)
    assert {key: rows for key, rows in late.items() if key in before} == before


@on_all_catalogs
def test_the_catalog_is_the_one_that_duckdb_makes(lake_address: LakeAddress, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with attached(lake_address) as duck:
        duck.run(
            "CREATE TABLE t (a INTEGER, b VARCHAR)",
            "INSERT INTO t VALUES (1, 'x'), (2, 'y')",
            "UPDATE t SET b = 'z' WHERE a = 1",
            "ALTER TABLE t ADD COLUMN c INTEGER",
            "INSERT INTO t VALUES (3, 'w', 1)",
            "DELETE FROM t WHERE a = 2",
            "CREATE TABLE f (a INTEGER)",
            "INSERT INTO f SELECT range FROM range(30)",
            "DELETE FROM f WHERE a = 7",
            "DELETE FROM f WHERE a = 8",
        )
    by_duckdb = copy_of(lake_address, request, tmp_path)
    lake = DuckLake.connect(lake_address.url)
    for name in ("t", "f"):
        assert lake.flush_inlined_data(name).failed_steps == ()
    lake.close()
    with attached(by_duckdb) as duck:
        for name in ("t", "f"):
            duck.run(f"CALL ducklake_flush_inlined_data('lake', table_name => '{name}')")
    written = {
        "path",
        "file_size_bytes",
        "footer_size",
        "column_size_bytes",
        "snapshot_time",
        "author",
        "commit_message",
        "commit_extra_info",
    }
    # Dropping a physical table moves the schema version, and a delete file of flushed rows has the snapshot of its newest delete.
    # A first row id that does not count the rows would mislead DuckDB's merge (test_row_ids_in_duckdbs_merge.py).
    without = frozenset(
        written
        | {
            "row_id_start",
            "schema_version",
            "partial_max",
            "next_catalog_id",
            "delete_file_id",
            "data_file_id",
            "next_file_id",
            "changes_made",
        }
    )
    own, expected = catalog_rows(lake_address, without=without), catalog_rows(by_duckdb, without=without)
    # DuckDB drops the table of the earlier columns, which sessions that know it need.
    assert set(expected.pop("tables")) == {name for name in own.pop("tables") if name != ("ducklake_inlined_data_1_1",)}
    assert {name: rows for name, rows in own.items() if rows != expected[name]} == {}


def test_only_the_requested_tables_are_flushed(sqlite_address: LakeAddress) -> None:
    write_inlined(sqlite_address)
    lake = DuckLake.connect(sqlite_address.url)
    lake.set_option("auto_compact", False, table="p")
    (one,) = lake.flush_inlined_data("main.t").tables
    assert one.table == "main.t"
    assert one.snapshot is not None
    assert {t.table: t.skipped for t in lake.flush_inlined_data(schema="main").tables if t.skipped} == {
        "main.p": "option auto_compact is false",
        "main.t": "it has no inlined data",
    }
    with pytest.raises(NotFoundError):
        lake.flush_inlined_data("nothing")
    lake.close()


def test_concurrent_changes_are_kept(lake_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that comes in stays inlined; one that goes makes the flush look again."""
    from ducklake_core.maintenance import flush

    write_inlined(lake_address)
    lake = DuckLake.connect(lake_address.url)
    other = DuckLake.connect(lake_address.url)
    real, calls = flush.flush_files, []

    def meanwhile(task: Any) -> Any:
        written = real(task)
        calls.append(task.state.table)
        if len(calls) == 1:
            row = {"id": 50, "name": "late", "price": None, "ts": None, "tags": None, "extra": 1}
            other.table("t").append(pa.Table.from_pylist([row], schema=other.table("t").schema.to_arrow()))
        if len(calls) == 2:
            other.table("t").delete("id = 8")
        return written

    monkeypatch.setattr(flush, "flush_files", meanwhile)
    on_disk = files_on_disk(lake_address)
    (done,) = lake.flush_inlined_data("t").tables
    monkeypatch.undo()
    assert done.failure is None
    assert done.rows >= 10
    new = {name for name in files_on_disk(lake_address) - on_disk if name.startswith("main/t/")}
    appended = len(new) - done.files_created - done.delete_files_created
    assert appended == (lake_address.backend == "sqlite"), "a decimal that the table is sorted by is not inlined there"
    assert sorted(lake.table("t").scan(columns=["id"]).to_arrow()["id"].to_pylist()) == [1, 3, 5, 6, 50]
    lake.close()
    other.close()
    with attached(lake_address, FILES_ONLY) as duck:
        assert duck.rows("SELECT id FROM t ORDER BY id") == [(1,), (3,), (5,), (6,), (50,)]


def test_rows_that_are_inlined_meanwhile_stay(lake_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """The emptied table has rows of later snapshots by then, of ducklake_core and of DuckDB, which cannot write to MySQL."""
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 10") as duck:
        duck.run("CREATE TABLE t (a BIGINT)", "INSERT INTO t VALUES (1), (2)", "UPDATE t SET a = 3 WHERE a = 2")
    lake, real, late = DuckLake.connect(lake_address.url), flush.flush_files, [10]

    def meanwhile(task: Any) -> Any:
        written = real(task)
        if late == [10] or lake_address.backend == "mysql":
            with DuckLake.connect(lake_address.url) as other:
                other.table("t").append(pa.table({"a": [late[-1]]}))
        else:
            with attached(lake_address, "DATA_INLINING_ROW_LIMIT 10") as duck:
                duck.run(f"INSERT INTO t VALUES ({late[-1]})")
        late.append(late[-1] + 1)
        return written

    monkeypatch.setattr(flush, "flush_files", meanwhile)
    for number in range(2):
        assert lake.flush_inlined_data("t").failures == ()
        expected = sorted([1, 3, *late[:-1]])
        assert sorted(lake.table("t").to_arrow()["a"].to_pylist()) == expected
        (table,) = lake.flush_inlined_data("t", dry_run=True).tables
        assert table.rows == 1, number
    assert lake.check(level="rows").findings == ()
    lake.close()
    with attached(lake_address) as duck:
        assert [a for (a,) in duck.rows("SELECT a FROM t ORDER BY a")] == expected
        assert [a for (a,) in duck.rows("SELECT a FROM t AT (VERSION => 2) ORDER BY a")] == [1, 2]


def test_a_file_that_expires_meanwhile_gets_no_delete_file(lake_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    with _ended_file(lake_address) as lake:
        commit = flush.commit_together

        def expire_first(*arguments: Any) -> Any:
            monkeypatch.setattr(flush, "commit_together", commit)
            lake.expire_snapshots(older_than=timedelta(0), min_age=timedelta(0))
            return commit(*arguments)

        monkeypatch.setattr(flush, "commit_together", expire_first)
        assert lake.flush_inlined_data().failures == ()
        assert lake.check(level="rows").findings == ()


def test_an_expiry_takes_delete_files_of_no_data_file_along(sqlite_address: LakeAddress) -> None:
    """They are never read, and nothing else would remove them."""
    with _ended_file(sqlite_address) as lake:
        lake.flush_inlined_data()
        with lake.database.write() as connection:
            for name in ("data_file", "file_column_stats"):
                connection.execute(delete(lake.database.tables[name]))
            connection.execute(update(lake.database.tables["delete_file"]).values(end_snapshot=None))
        assert list(lake.check().by_code) == ["delete-file-orphaned"]
        expiry: dict[str, Any] = {"older_than": timedelta(0), "min_age": timedelta(0)}
        (planned,) = lake.expire_snapshots(**expiry, dry_run=True).files
        assert lake.expire_snapshots(**expiry).files == (planned,)
        assert (planned.kind, planned.reason) == ("delete", "the catalog does not know its data file")
        assert [file.path for file in lake.cleanup_old_files(cleanup_all=True, min_age=timedelta(0)).files] == [planned.path]
        assert lake.check().findings == ()


def _ended_file(address: LakeAddress) -> DuckLake:
    """A table with one file, which has ended after the catalog has deleted a row of it."""
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.write("t", pa.table({"n": range(20)}), inline=False)
    lake.table("t").delete("n = 5")
    lake.table("t").delete("n >= 0")
    return lake


def test_each_part_for_executors_has_its_own_rows_alone(small: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of an Arrow table that are cut, and not copied, travel with all of its rows."""
    small.set_option("data_inlining_row_limit", 40)
    small.write("t", pa.table({"n": list(range(40)), "s": ["x" * 5_000] * 40}))
    sizes: list[int] = []

    def outcomes(_self: Execution, work: Any, tasks: Any, _meter: Any) -> Any:
        for number, task in enumerate(tasks):
            sizes.append(len(pickle.dumps(task)))
            yield number, work(task), False

    monkeypatch.setattr(Execution, "outcomes", outcomes)
    monkeypatch.setattr(flush, "EXECUTOR_ROWS", 1)
    monkeypatch.setattr(flush, "TASK_ROWS", 10)
    session: Any = object()
    done = flush.flush_inlined_data(small.database, small.info, small.storage, TableRequest(), execution=Execution(spark=session))
    assert (done.failures, done.rows_flushed, len(sizes)) == ((), 40, 4)
    assert max(sizes) < 2 * 10 * 5_000
    assert sorted(small.table("t").scan(columns=["n"]).to_arrow()["n"].to_pylist()) == list(range(40))


@pytest.mark.parametrize("joined_from", [1, 100])
def test_rows_are_in_the_order_of_their_ids(lake_address: LakeAddress, monkeypatch: pytest.MonkeyPatch, joined_from: int) -> None:
    """Updated rows are inlined after other rows, also where no inlined row has ended."""
    for module, name, value in ((rows, "BATCH_ROWS", 3), (rows, "JOINED_ROWS", 3), (rows, "JOINED_FROM", joined_from)):
        monkeypatch.setattr(module, name, value)
    with attached(lake_address, FILES_ONLY) as duck:
        duck.run("CREATE TABLE t AS SELECT i AS a FROM range(4) r(i)", "CREATE TABLE plain (a BIGINT)")
        duck.run("CALL lake.set_option('data_inlining_row_limit', 10)")
        duck.run("INSERT INTO t VALUES (4), (5)", "UPDATE t SET a = a + 10 WHERE a < 2", "INSERT INTO t VALUES (6)")
        duck.run("INSERT INTO plain VALUES (0), (1), (2), (3)", "INSERT INTO plain VALUES (4)")
    with DuckLake.connect(lake_address.url) as lake:
        done = lake.flush_inlined_data()
        assert done.failed_steps == ()
        found = lake.table("t").scan(columns=["a", "rowid"]).to_arrow().to_pylist()
        assert [row["rowid"] for row in found][2:] == [0, 1, 4, 5, 6], found
        assert lake.table("plain").to_arrow()["a"].to_pylist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("joined_from", [1, 100])
def test_invalid_utf_8_fails_one_table(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch, joined_from: int) -> None:
    monkeypatch.setattr(rows, "JOINED_FROM", joined_from)
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE t AS SELECT 'a' AS a", "CREATE TABLE other AS SELECT 'b' AS b")
    with DuckLake.connect(sqlite_address.url) as lake:
        with lake.database.write() as connection:
            (name,) = connection.exec_driver_sql("SELECT table_name FROM ducklake_inlined_data_tables ORDER BY table_id LIMIT 1").one()
            connection.exec_driver_sql(f"UPDATE {name} SET a = CAST(x'ff' AS TEXT)")
        done = lake.flush_inlined_data()
        assert [failure.partition(":")[0] for failure in done.failures] == ["main.t"]
        assert "UTF-8" in done.failures[0]
        assert lake.table("other").to_arrow()["b"].to_pylist() == ["b"]
        assert done.rows_flushed == 1


def test_nulls_of_files_are_within_the_bounds_of_the_table(lake_address: LakeAddress) -> None:
    """A file has NULLs below a list that is not there or is empty; the rows had none as long as the catalog held them."""
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 10") as duck:
        duck.run(
            "CREATE TABLE t (s STRUCT(x INTEGER, l VARCHAR[]), m INTEGER[])",
            "INSERT INTO t SELECT {'x': i, 'l': ['a']}, [i] FROM range(20) r(i)",
            "INSERT INTO t VALUES (NULL, NULL), ({'x': 1, 'l': []}, [])",
        )
    lake = DuckLake.connect(lake_address.url)
    assert lake.check(level="rows").by_code == {}
    lake.flush_inlined_data()
    assert lake.check(level="rows").by_code == {}, str(lake.check(level="rows"))
    lake.close()
