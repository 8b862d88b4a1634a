"""Expiry has exactly DuckDB's effects on the catalog, and never takes what a surviving snapshot reads."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import event, select, update
from sqlalchemy.engine import Engine

from ducklake_core import DuckLake
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.writing import expiry, writer
from ducklake_core.errors import NotFoundError, UsageError
from ducklake_core.maintenance import expire as expire_module
from ducklake_core.maintenance.expire import ExpiryResult, expire_snapshots
from tests.behaviour.maintenance.lakes import FILES_ONLY, catalog_rows, copy_of, opened, readings, write_history
from tests.support.oracle import LakeAddress, attached, sqlite_lake
from tests.support.parameters import spread

NOW = timedelta(0)


def expire(address: LakeAddress, **arguments: Any) -> ExpiryResult:
    database, info = opened(address)
    try:
        return expire_snapshots(database, info, **arguments)
    finally:
        database.close()


def snapshot_ids(address: LakeAddress) -> list[int]:
    database, info = opened(address)
    with database.read() as connection:
        found = [snapshot.id for snapshot in CatalogReader(connection, info, database.tables).snapshots()]
    database.close()
    return found


def backdate(address: LakeAddress, times: dict[int, datetime]) -> None:
    database, _ = opened(address)
    with database.write() as connection:
        snapshot = database.tables["snapshot"]
        for number, time in times.items():
            connection.execute(update(snapshot).where(snapshot.c.snapshot_id == number).values(snapshot_time=time))
    database.close()


@pytest.mark.parametrize("chosen", spread(["all", "odd", "late"], 1))
def test_the_catalog_equals_that_of_duckdb(lake_address: LakeAddress, request: pytest.FixtureRequest, tmp_path: Path, chosen: str) -> None:
    write_history(lake_address)
    ids = snapshot_ids(lake_address)[:-1]
    pick = {"all": ids, "odd": [i for i in ids if i % 2], "late": ids[len(ids) // 2 :]}[chosen]
    by_duckdb = copy_of(lake_address, request, tmp_path)
    before = readings(lake_address)

    plan = expire(lake_address, versions=pick, min_age="0 days", dry_run=True)
    done = expire(lake_address, versions=pick, min_age="0 days")
    with attached(by_duckdb) as duck:
        duck.run(f"CALL ducklake_expire_snapshots('lake', versions => {pick})")

    assert catalog_rows(lake_address) == catalog_rows(by_duckdb)
    assert (plan.snapshots, plan.files, plan.tables) == (done.snapshots, done.files, done.tables)
    assert list(done.snapshot_ids) == pick
    after = readings(lake_address)
    assert after
    assert after == {key: rows for key, rows in before.items() if key[0] not in pick}


def test_dry_run_changes_nothing(lake_address: LakeAddress) -> None:
    write_history(lake_address)
    before = catalog_rows(lake_address)
    plan = expire(lake_address, versions=snapshot_ids(lake_address)[:-1], min_age="0 days", dry_run=True)
    assert plan.dry_run
    assert plan.files
    assert plan.bytes_scheduled > 0
    assert all(Path(file.path).exists() for file in plan.files)
    assert catalog_rows(lake_address) == before
    text = str(plan)
    assert text.count("would expire snapshot") == len(plan.snapshots)
    assert all(file.path in text for file in plan.files)


def test_newest_snapshot_is_never_expired(lake_address: LakeAddress) -> None:
    with attached(lake_address, FILES_ONLY) as duck:
        duck.run("CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1)")
    newest = snapshot_ids(lake_address)[-1]
    with pytest.raises(UsageError, match="newest"):
        expire(lake_address, versions=[newest], min_age="0 days")
    expire(lake_address, older_than=NOW, min_age=NOW)
    assert snapshot_ids(lake_address) == [newest]
    with attached(lake_address) as duck:
        assert duck.rows("FROM t") == [(1,)]


def test_chosen_snapshots_have_a_floor_too(lake_address: LakeAddress) -> None:
    with attached(lake_address, FILES_ONLY) as duck:
        duck.run("CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)")
    lake = DuckLake.connect(lake_address.url)
    metadata = lake.database.tables["snapshot"]
    hours_ago = lake.snapshot().time - timedelta(hours=2)
    with lake.database.write() as connection:
        connection.execute(update(metadata).where(metadata.c.snapshot_id <= 1).values(snapshot_time=hours_ago))
    for versions in ([2], [1, 2]):
        with pytest.raises(UsageError, match=r"Snapshots \[2\] of versions are younger than min_age \(1 hour\)"):
            lake.expire_snapshots(versions=versions, dry_run=True)
    with pytest.raises(UsageError, match=r"younger than min_age \(3 hours\)"):
        lake.expire_snapshots(versions=[1], min_age="3 hours")
    assert lake.expire_snapshots(versions=[1]).snapshot_ids == (1,)
    with lake.database.write() as connection:
        ahead = lake.snapshot().time + timedelta(days=1)
        connection.execute(update(metadata).where(metadata.c.snapshot_id == 2).values(snapshot_time=ahead))
    with pytest.raises(UsageError, match=r"Snapshots \[2\]"):
        lake.expire_snapshots(versions=[2], min_age="1 second")
    assert lake.expire_snapshots(versions=[2], min_age="0 seconds").snapshot_ids == (2,)


def test_times_are_compared_as_times(lake_address: LakeAddress) -> None:
    """On SQLite DuckDB compares letters, and takes every snapshot of the threshold's day."""
    with attached(lake_address, FILES_ONLY) as duck:
        duck.run("CREATE TABLE t (a INT)", *(f"INSERT INTO t VALUES ({i})" for i in range(4)))
    day = datetime(2024, 5, 5, tzinfo=UTC)
    first, *_ = snapshot_ids(lake_address)
    backdate(lake_address, {first: day, first + 1: day + timedelta(hours=8), first + 2: day + timedelta(hours=20)})
    assert expire(lake_address, older_than=day + timedelta(hours=12)).snapshot_ids == (first, first + 1)
    assert expire(lake_address, older_than=day + timedelta(hours=20)).snapshot_ids == ()


def test_keep_last_and_ages(lake_address: LakeAddress) -> None:
    with attached(lake_address, FILES_ONLY) as duck:
        duck.run("CREATE TABLE t (a INT)", *(f"INSERT INTO t VALUES ({i})" for i in range(6)))
    ids = snapshot_ids(lake_address)
    backdate(lake_address, {number: datetime(2024, 1, 1, number, tzinfo=UTC) for number in ids[:4]})
    assert expire(lake_address, keep_last=2, dry_run=True).snapshot_ids == tuple(ids[:4])
    assert expire(lake_address, keep_last=2, min_age=NOW, dry_run=True).snapshot_ids == tuple(ids[:-2])
    assert expire(lake_address, keep_last=1, dry_run=True).snapshot_ids == tuple(ids[:4])
    assert expire(lake_address, keep_last=1, min_age=NOW, dry_run=True).snapshot_ids == tuple(ids[:-1])
    assert expire(lake_address, keep_last=6, older_than=timedelta(days=1), dry_run=True).snapshot_ids == tuple(ids[:2])
    for as_many in range(len(ids), 2 * len(ids) + 2):
        assert expire(lake_address, keep_last=as_many, min_age=NOW, dry_run=True).snapshot_ids == ()
        assert expire(lake_address, keep_last=as_many, older_than=timedelta(days=1), dry_run=True).snapshot_ids == ()
    with attached(lake_address) as duck:
        duck.run("CALL lake.set_option('expire_older_than', '7 days')")
    assert expire(lake_address, dry_run=True).snapshot_ids == tuple(ids[:4])


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({}, UsageError, "No snapshots are selected"),
        ({"older_than": timedelta(minutes=1)}, UsageError, "min_age"),
        ({"older_than": datetime(2024, 1, 1)}, UsageError, "no zone"),  # noqa: DTZ001
        ({"older_than": timedelta(days=-1)}, UsageError, "negative"),
        ({"older_than": timedelta(days=1), "versions": [1]}, UsageError, "cannot be combined"),
        ({"keep_last": 0}, UsageError, "keep_last"),
        ({"keep_last": 1, "versions": [1]}, UsageError, "cannot be combined"),
        ({"versions": [77]}, NotFoundError, "77"),
    ],
)
def test_wrong_calls(sqlite_address: LakeAddress, arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1)")
    before = snapshot_ids(sqlite_address)
    with pytest.raises(error, match=text):
        expire(sqlite_address, **arguments)
    assert snapshot_ids(sqlite_address) == before


class Counted(int):
    """A number that counts how often it is hashed by sets and compared by searches."""

    accesses = 0

    def __hash__(self) -> int:
        Counted.accesses += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        Counted.accesses += 1
        return super().__eq__(other)

    def __lt__(self, other: int) -> bool:
        Counted.accesses += 1
        return super().__lt__(other)


def long_history(address: LakeAddress, number: int) -> None:
    """Many snapshots: each replaces a file, and every fortieth drops a table with inlined rows."""
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.write("t", pa.table({"a": range(20)}), inline=False)
    last = lake.snapshot()
    lake.close()
    ids = [last.id + place for place in range(1, number + 1)]
    with closing(sqlite3.connect(address.url.removeprefix("sqlite:///"))) as catalog, catalog:
        catalog.executemany(
            "INSERT INTO ducklake_snapshot SELECT ?, snapshot_time, schema_version, next_catalog_id, next_file_id FROM ducklake_snapshot "
            "WHERE snapshot_id = ?",
            [(one, last.id) for one in ids],
        )
        catalog.executemany("INSERT INTO ducklake_snapshot_changes (snapshot_id, changes_made) VALUES (?, '')", [(one,) for one in ids])
        names = ("data_file_id", "table_id", "begin_snapshot", "end_snapshot", "path", "path_is_relative", "record_count", "row_id_start")
        files = [(one + 1000, 1, one - 1, one, f"{one}.parquet", 1, 20, 20 * one) for one in ids]
        catalog.executemany(f"INSERT INTO ducklake_data_file ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})", files)
        for one in ids[::40]:
            row = (one + 1000, str(one), one - 1, one, 0, f"t{one}", f"t{one}/", 1)
            catalog.execute("INSERT INTO ducklake_table VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            catalog.execute(f"CREATE TABLE ducklake_inlined_data_{one + 1000}_1 (row_id BIGINT)")
            catalog.execute(
                "INSERT INTO ducklake_inlined_data_tables VALUES (?, ?, 1)", (one + 1000, f"ducklake_inlined_data_{one + 1000}_1")
            )


def test_expiry_grows_with_the_number_of_snapshots_and_not_with_its_square(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accesses to ids in Python, steps of SQLite's virtual machine and statements. They do not depend on load."""
    steps, statements = 0, 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    def note(connection: Any, *_: object) -> None:
        nonlocal statements
        statements += 1
        connection.connection.driver_connection.set_progress_handler(step, 100)

    listed = CatalogReader.snapshot_times
    monkeypatch.setattr(CatalogReader, "snapshot_times", lambda reader: [(Counted(number), time) for number, time in listed(reader)])
    deleted = expiry.expire
    monkeypatch.setattr(expire_module, "expire", lambda *given: (found := deleted(*given)) and (tuple(map(Counted, found[0])), found[1]))
    costs = []
    event.listen(Engine, "before_cursor_execute", note)
    try:
        for number in (200, 1600):
            (tmp_path / str(number)).mkdir()
            address = sqlite_lake(tmp_path / str(number))
            long_history(address, number)
            Counted.accesses = steps = statements = 0
            done = expire(address, older_than=NOW, min_age=NOW)
            assert len(done.snapshots) >= number
            assert (len(done.files), len(done.tables)) == (number, number // 40)
            costs.append((Counted.accesses, steps, statements))
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    small, large = costs
    assert all(few > 0 for few in small)
    assert all(many < 12 * few for few, many in zip(small, large, strict=True)), costs


def test_deletes_in_the_catalog_go_with_their_files(lake_address: LakeAddress) -> None:
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 10") as duck:
        duck.run("CREATE TABLE t (a INT)", "INSERT INTO t FROM range(40)", "DELETE FROM t WHERE a = 3", "INSERT INTO t FROM range(50)")
        # DuckDB leaves them in the catalog, for the snapshots before; ducklake_core writes a delete file.
        duck.run("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.0)")
        duck.run("CREATE TABLE u (a INT)", "INSERT INTO u FROM range(40)", "DELETE FROM u WHERE a = 3", "DROP TABLE u")
    lake = DuckLake.connect(lake_address.url)
    lake.table("t").delete("a = 7")
    deletes = lake.database.tables.inlined_delete(lake.table("t").state.id)

    def files_with_deletes() -> set[int]:
        with lake.database.read() as connection:
            return set(connection.execute(select(deletes.c.file_id)).scalars())

    assert len(files_with_deletes()) == 3
    lake.expire_snapshots(older_than=NOW, min_age=NOW)
    assert len(files_with_deletes()) == 2
    assert lake.check(level="rows").findings == ()
    lake.close()
    with attached(lake_address) as duck:
        assert duck.value("SELECT count(*) FROM t") == 87


@pytest.mark.parametrize("backend", ["postgresql", "mysql"])
@pytest.mark.parametrize("moment", ["apply_changes", "drop_leftovers"])
def test_commits_during_an_expiry(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, moment: str
) -> None:
    """Rows that came and went while snapshots were deleted are read at the snapshot between; tables of inlined rows stay."""
    address = request.getfixturevalue({"postgresql": "postgres", "mysql": "mysql"}[backend]).lake(tmp_path)
    lake, other = DuckLake.create(address.url, data_path=address.data_path), DuckLake.connect(address.url)
    for number in range(3):
        lake.write("t", pa.table({"a": [number]}), inline=False)
    taken: list[int] = []
    real, registered = getattr(expiry, moment), writer.inspect

    def commit() -> None:
        if not taken:
            taken.append(other.write("t", pa.table({"a": range(10, 30)}), inline=False).snapshot_id)
            other.table("t").overwrite(pa.table({"a": [5]}), inline=False)
            other.table("t").add_column("b", "bigint")
            # Which makes a table of inlined rows with these columns.
            other.table("t").append(pa.table({"a": [6], "b": [1]}), inline=True)

    def meanwhile(*arguments: Any) -> Any:
        commit()
        return real(*arguments)

    def late(connection: Any) -> Any:
        # What is registered has been read, and the tables that there are have not.
        commit()
        return registered(connection)

    if moment == "apply_changes":
        monkeypatch.setattr(expiry, moment, meanwhile)
    else:
        monkeypatch.setattr(writer, "inspect", late)
    lake.expire_snapshots(older_than=timedelta(0), min_age=timedelta(0))
    if moment == "drop_leftovers" and backend == "postgresql":
        assert not taken
        commit()
    monkeypatch.undo()
    with DuckLake.connect(address.url) as again:
        assert sorted(again.table("t").to_arrow()["a"].to_pylist()) == [5, 6]
        assert set(range(10, 30)) <= set(again.table("t", at=taken[0]).to_arrow()["a"].to_pylist())
        assert again.check(level="rows").errors == ()
    lake.close()
    other.close()
