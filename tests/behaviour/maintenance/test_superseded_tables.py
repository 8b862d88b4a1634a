"""Empty tables of inlined rows that alterations of a table leave behind, one for each former set of columns."""

from __future__ import annotations

import random
import time
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import inspect, select

from ducklake_core.catalog.database.tables import inlined_owner
from ducklake_core.catalog.writing import expiry
from ducklake_core.lake import DuckLake
from tests.behaviour.maintenance.lakes import NOW, opened
from tests.support.oracle import LakeAddress, attached

_ALL = {"older_than": NOW, "min_age": NOW}


def physical(address: LakeAddress) -> list[str]:
    """Names of the tables of inlined rows that the database has."""
    database, _ = opened(address)
    with database.read() as connection:
        found = [name for name in inspect(connection).get_table_names(schema=database.tables.schema) if inlined_owner(name) is not None]
    database.close()
    return sorted(found)


def registered(address: LakeAddress) -> list[str]:
    """Names of the tables of inlined rows that the catalog names."""
    database, _ = opened(address)
    with database.read() as connection:
        found = list(connection.execute(select(database.tables["inlined_data_tables"].c.table_name)).scalars())
    database.close()
    return sorted(found)


def alter(lake: DuckLake, times: int, *, rows: bool = True) -> None:
    """Create table t, and add so many columns to it, with a row before each."""
    lake.create_table("t", pa.schema([("a", pa.int64())]))
    for number in range(times):
        if rows:
            lake.table("t").append(pa.table({"a": [number]}), missing_columns="null")
        lake.table("t").add_column(f"c{number}", "int32")


@pytest.mark.parametrize("rows", [True, False])
def test_flush_and_expiry_leave_one_table(lake: DuckLake, lake_address: LakeAddress, rows: bool) -> None:
    alter(lake, 6, rows=rows)
    assert len(physical(lake_address)) == len(registered(lake_address)) == 7
    planned = lake.flush_inlined_data(dry_run=True)
    done = lake.flush_inlined_data()
    assert [one.superseded for one in planned.tables] == [one.superseded for one in done.tables] == [6]
    newest = registered(lake_address)
    assert len(newest) == 1
    assert lake.flush_inlined_data().tables[0].skipped == "it has no inlined data"
    lake.expire_snapshots(**_ALL, dry_run=True)
    assert len(physical(lake_address)) == 7
    lake.expire_snapshots(**_ALL)
    assert physical(lake_address) == newest
    lake.table("t").append(pa.table({"a": [9]}), missing_columns="null")
    kept = [*(range(6) if rows else []), 9]
    assert sorted(lake.table("t").scan().to_arrow()["a"].to_pylist()) == kept
    assert lake.check().findings == ()
    lake.close()
    if lake_address.backend != "mysql":
        with attached(lake_address) as duck:
            assert duck.rows("SELECT a FROM t ORDER BY a") == [(number,) for number in kept]


def test_checkpoint_leaves_one_table(small: DuckLake, sqlite_address: LakeAddress) -> None:
    alter(small, 30)
    assert len(physical(sqlite_address)) == 31
    assert small.checkpoint(keep_last=1, min_age=NOW).failed_steps == ()
    assert len(physical(sqlite_address)) == 1
    assert sorted(small.table("t").scan().to_arrow()["a"].to_pylist()) == list(range(30))


def test_a_held_snapshot_keeps_the_tables_of_its_readers(small: DuckLake, sqlite_address: LakeAddress) -> None:
    """The flush itself has expired, so that its time is unknown."""
    alter(small, 2)
    early = small.snapshot().id
    query = f"SELECT a FROM t AT (VERSION => {early}) ORDER BY a"
    with attached(sqlite_address) as duck:
        assert duck.rows(query) == [(0,), (1,)]
        small.flush_inlined_data()
        small.set_option("expire_older_than", "1 day")
        small.table("t").append(pa.table({"a": [7]}), missing_columns="null")
        hold = small.holds.add("report", early)
        small.expire_snapshots(**_ALL)
        assert [one.id for one in small.snapshots()] == [early, small.snapshot().id]
        assert duck.rows(query) == [(0,), (1,)]
        assert len(physical(sqlite_address)) == 3
        small.holds.remove(hold.name)
        small.expire_snapshots(**_ALL)
        assert len(physical(sqlite_address)) == 1
        assert duck.rows("SELECT a FROM t ORDER BY a") == [(0,), (1,), (7,)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_no_session_of_duckdb_misses_a_table(sqlite_address: LakeAddress, seed: int) -> None:
    """One session reads every snapshot as soon as it is there, and again as long as it is kept."""
    draw = random.Random(seed)
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    alter(lake, 1)
    dropped = 0
    with attached(sqlite_address) as duck:
        seen: dict[int, list[tuple[object, ...]]] = {}
        for number in range(80):
            match draw.choice(["append", "append", "alter", "delete", "flush", "expire", "version", "hold"]):
                case "append":
                    lake.table("t").append(pa.table({"a": [number]}), missing_columns="null")
                case "alter":
                    lake.table("t").add_column(f"n{number}", "int32")
                case "delete":
                    lake.table("t").delete(where=f"a % {draw.randint(2, 5)} = 0")
                case "flush":
                    assert lake.flush_inlined_data().failed_steps == ()
                case "expire":
                    before = len(physical(sqlite_address))
                    lake.expire_snapshots(keep_last=draw.randint(1, 6), min_age=NOW)
                    dropped += before - len(physical(sqlite_address))
                case "version":
                    ids = [one.id for one in lake.snapshots()][:-1]
                    held = {hold.snapshot_id for hold in lake.holds.list()}
                    if free := [one for one in ids if one not in held]:
                        lake.expire_snapshots(versions=[draw.choice(free)], min_age=NOW)
                case "hold":
                    names = [hold.name for hold in lake.holds.list()]
                    if names and draw.random() < 0.6:
                        lake.holds.remove(draw.choice(names))
                    else:
                        lake.holds.add(f"h{number}", draw.choice(lake.snapshots()).id)
            for snapshot in lake.snapshots():
                found = duck.rows(f"SELECT a FROM t AT (VERSION => {snapshot.id}) ORDER BY a") if snapshot.id > 1 else []
                assert seen.setdefault(snapshot.id, found) == found
    assert dropped


@pytest.mark.parametrize("lake_address", ["postgresql"], indirect=True)
def test_tables_of_other_writers_stay_during_an_expiry(lake_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    with DuckLake.create(lake_address.url, data_path=lake_address.data_path) as lake:
        alter(lake, 2)
        lake.flush_inlined_data()
        real = expiry.registered_names

        def after_another_commit(*arguments: Any) -> Any:
            with DuckLake.connect(lake_address.url) as other:
                other.write("made", pa.table({"a": [1]}), inline=True)
                other.table("t").add_column("late", "int32")
            return real(*arguments)

        monkeypatch.setattr(expiry, "registered_names", after_another_commit)
        lake.expire_snapshots(**_ALL)
        monkeypatch.undo()
        assert lake.check().findings == ()
        assert lake.table("made").to_arrow().to_pylist() == [{"a": 1}]
        assert set(registered(lake_address)) <= set(physical(lake_address))


@pytest.mark.parametrize("lake_address", ["postgresql"], indirect=True)
def test_tables_that_a_transaction_reads_stay_during_an_expiry(lake_address: LakeAddress) -> None:
    with DuckLake.create(lake_address.url, data_path=lake_address.data_path) as lake:
        alter(lake, 2)
        oldest = physical(lake_address)[0]
        database, _ = opened(lake_address)
        with database.read() as connection:
            connection.execute(select(database.tables.inlined_data(oldest).c.row_id)).all()
            lake.flush_inlined_data()
            began = time.monotonic()
            assert lake.expire_snapshots(**_ALL).snapshots
            assert time.monotonic() - began < 5
            assert len(physical(lake_address)) == 3
        lake.table("t").append(pa.table({"a": [5]}), missing_columns="null")
        lake.expire_snapshots(**_ALL)
        assert physical(lake_address) == registered(lake_address)
        database.close()
