"""Holds are names on snapshots that expiry respects and DuckDB ignores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from sqlalchemy import insert, update

from ducklake_core import DuckLake, Hold
from ducklake_core.catalog.reading.options import store_hold
from ducklake_core.errors import AlreadyExistsError, CatalogCorruptError, CatalogUnavailableError, NotFoundError, UsageError
from ducklake_core.maintenance.expire import Holds
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import on_postgresql

pytestmark = on_postgresql

_ZERO = timedelta(0)
_NO_TIMES = ("2026-01-01", "soon", "0001-01-01T00:00:00+14:00")


@pytest.fixture
def lake(lake_address: LakeAddress) -> Iterator[DuckLake]:
    """Snapshots 2 to 5: a table whose only row is replaced, in files."""
    made = DuckLake.create(lake_address.url, data_path=lake_address.data_path)
    made.set_option("data_inlining_row_limit", 0)
    made.create_table("t", {"a": "int"})
    for value in range(4):
        made.table("t").overwrite(pa.table({"a": pa.array([value], pa.int32())}))
    yield made
    made.close()


def values(lake: DuckLake, at: int) -> list[object]:
    return lake.table("t", at=at).scan().to_arrow().column("a").to_pylist()


def test_expiry_keeps_what_is_held(lake: DuckLake, lake_address: LakeAddress) -> None:
    newest = lake.snapshot().id
    lake.holds.add("Quarter 'end'", newest - 2)
    lake.holds.add("audit", newest - 2)
    planned = lake.expire_snapshots(older_than=_ZERO, min_age=_ZERO, dry_run=True)
    done = lake.expire_snapshots(older_than=_ZERO, min_age=_ZERO)
    assert planned.snapshot_ids == done.snapshot_ids == (*range(newest - 2), newest - 1)
    for result in (planned, done):
        assert [(one.id, one.holds) for one in result.held] == [(newest - 2, ("audit", "Quarter 'end'"))]
        assert any(f"kept snapshot {newest - 2} " in line and "'audit', \"Quarter 'end'\"" in line for line in result.lines())
    # Files go, but none that the held snapshot reads.
    assert done.files
    lake.cleanup_old_files(older_than=_ZERO, min_age=_ZERO)
    assert values(lake, newest - 2) == [1]
    with attached(lake_address) as duck:
        assert duck.rows(f"SELECT a FROM t AT (VERSION => {newest - 2})") == [(1,)]
    lake.holds.remove("AUDIT")
    assert [one.holds for one in lake.expire_snapshots(versions=[newest - 2], min_age="0 days").held] == [("Quarter 'end'",)]
    lake.holds.remove("quarter 'END'")
    assert lake.expire_snapshots(versions=[newest - 2], min_age="0 days").snapshot_ids == (newest - 2,)
    with pytest.raises(NotFoundError):
        lake.table("t", at=newest - 2)


def test_readers_pin_what_they_read(lake: DuckLake) -> None:
    newest = lake.snapshot().id
    with lake.holds.pinned(newest - 2, reader="report") as hold, lake.holds.pinned(newest - 2, reader="report") as other:
        assert hold.snapshot_id == other.snapshot_id == newest - 2
        assert hold.name.startswith("report ")
        assert hold.name != other.name
        assert hold.until is not None
        lake.expire_snapshots(older_than=_ZERO, min_age=_ZERO)
        lake.cleanup_old_files(older_than=_ZERO, min_age=_ZERO)
        assert values(lake, hold.snapshot_id) == [1]
    assert lake.holds.list() == []
    with pytest.raises(RuntimeError, match="reader failed"), lake.holds.pinned(at_most="3 hours"):
        raise RuntimeError("reader failed")
    assert lake.holds.list() == []
    assert newest - 2 in lake.expire_snapshots(older_than=_ZERO, min_age=_ZERO).snapshot_ids
    with lake.holds.pinned(at_most=timedelta.max) as for_ever:
        assert for_ever.until is None
    with pytest.raises(UsageError, match="at_most"):
        lake.holds.pinned(at_most="soon")
    with pytest.raises(UsageError, match=r"at_most is .* must be positive"), lake.holds.pinned(at_most=_ZERO):
        raise AssertionError("the hold must not be created")
    for negative in (timedelta(microseconds=-1), timedelta.min):
        with pytest.raises(UsageError, match="at_most must not be negative"):
            lake.holds.pinned(at_most=negative)


def test_a_failing_reader_raises_its_own_error(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(*_: object, **__: object) -> None:
        raise CatalogUnavailableError("the server is down")

    monkeypatch.setattr(Holds, "remove", unavailable)
    with pytest.raises(RuntimeError, match="reader failed") as caught, lake.holds.pinned(reader="report"):
        raise RuntimeError("reader failed")
    (note,) = caught.value.__notes__
    assert note == f"Hold {lake.holds.list()[0].name!r} could not be removed and still exists: the server is down"
    with pytest.raises(CatalogUnavailableError), lake.holds.pinned():
        pass
    assert len(lake.holds.list()) == 2


def test_duckdb_is_not_disturbed(lake: DuckLake, lake_address: LakeAddress) -> None:
    newest = lake.snapshot().id
    before = {name: dict(lake.options(name)) for name in (None, "t")}
    lake.holds.add('a "b" \\ %_ ü\n', newest - 1, until=datetime(2999, 1, 1, tzinfo=UTC))
    assert {name: dict(lake.options(name)) for name in (None, "t")} == before
    assert not [option for option in lake.scoped_options() if "hold" in option.name]
    with attached(lake_address) as duck:
        listed = [row for row in duck.rows("FROM ducklake_options('lake')") if "hold" in str(row[0])]
        assert [(row[2], row[3]) for row in listed] == [
            ('{"name": "a \\"b\\" \\\\ %_ ü\\n", "snapshot": ' + str(newest - 1) + ', "until": "2999-01-01T00:00:00+00:00"}', "GLOBAL")
        ]
        duck.run(
            "CALL lake.set_option('target_file_size', '1MB')",
            "INSERT INTO t SELECT range FROM range(100)",
            "UPDATE t SET a = a + 1",
            "CALL ducklake_merge_adjacent_files('lake')",
            f"CALL ducklake_expire_snapshots('lake', versions => [{newest - 2}])",
        )
        assert duck.rows("SELECT count(*) FROM t") == [(101,)]
        assert len([row for row in duck.rows("FROM ducklake_options('lake')") if "hold" in str(row[0])]) == 1
        # As documented, DuckDB ignores holds.
        duck.run(f"CALL ducklake_expire_snapshots('lake', versions => [{newest - 1}])")
    (hold,) = lake.holds.list()
    assert (hold.name, hold.snapshot_id, hold.has_ended) == ('a "b" \\ %_ ü\n', newest - 1, False)
    assert [finding.table for finding in lake.check() if finding.code == "hold-of-no-snapshot"] == [None]
    assert lake.expire_snapshots(older_than=_ZERO, min_age=_ZERO).held == ()


def test_holds_end_and_are_moved(lake: DuckLake) -> None:
    newest = lake.snapshot().id
    with pytest.raises(UsageError, match="is in the past"):
        lake.holds.add("q", newest - 1, until=datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(NotFoundError):
        lake.holds.add("q", newest + 1)
    with pytest.raises(UsageError, match="name"):
        lake.holds.add("", newest)
    held = lake.holds.add("q", newest - 1, until=datetime.now(UTC) + timedelta(hours=1))
    # The same again is no other hold; another snapshot is.
    assert lake.holds.add("q", newest - 1, until=held.until) == held
    with pytest.raises(AlreadyExistsError, match="move it with replace"):
        lake.holds.add("Q", newest - 2)
    lake.holds.add("Q", newest - 2, replace=True)
    assert [(hold.name, hold.snapshot_id, hold.until) for hold in lake.holds.list()] == [("Q", newest - 2, None)]
    lake.holds.add("soon", newest - 1, until=datetime.now(UTC) + timedelta(hours=1))
    assert [one.id for one in lake.expire_snapshots(versions=[newest - 1], min_age="0 days", dry_run=True).held] == [newest - 1]
    # As if the hour were over.
    with lake.database.write() as connection:
        over = Hold(name="soon", snapshot_id=newest - 1, until=datetime.now(UTC) - timedelta(seconds=1))
        store_hold(connection, lake.database.tables, over)
    assert [(hold.name, hold.has_ended) for hold in lake.holds.list()] == [("Q", False), ("soon", True)]
    assert lake.expire_snapshots(versions=[newest - 1], min_age="0 days").snapshot_ids == (newest - 1,)
    # The hold has kept the snapshot as long as it should.
    assert lake.check().by_code == {}
    lake.holds.remove("soon")
    with pytest.raises(NotFoundError, match="Hold 'soon' does not exist"):
        lake.holds.remove("soon")
    lake.holds.remove("soon", if_exists=True)
    assert lake.holds.add("newest").snapshot_id == newest


@pytest.mark.parametrize(
    "value",
    ["broken", '{"name": "q", "snapshot": 1e400}', *(f'{{"name": "q", "snapshot": 2, "until": "{time}"}}' for time in _NO_TIMES)],
)
def test_a_hold_that_cannot_be_read_stops_expiry(lake: DuckLake, value: str) -> None:
    lake.holds.add("q", 2)
    metadata = lake.database.tables["metadata"]
    with lake.database.write() as connection:
        connection.execute(update(metadata).where(metadata.c.key == "ducklake_core.hold:q").values(value=value))
        connection.execute(insert(metadata), {"key": "ducklake_core.hold", "value": "an option", "scope": None, "scope_id": None})
    with pytest.raises(CatalogCorruptError, match=r"No snapshot was expired.*'q'"):
        lake.expire_snapshots(older_than=_ZERO, min_age=_ZERO)
    assert [finding.code for finding in lake.check().findings] == ["hold-invalid"]


def test_a_hold_and_an_expiry_at_once(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of them wins: a hold never names an expired snapshot."""
    from ducklake_core.maintenance import expire

    newest = lake.snapshot().id
    planned, go_on = threading.Event(), threading.Event()
    # Where only one client can write, no commit is possible during the transaction.
    step = "lock_snapshots" if lake.database.abilities.concurrent_writers else "run_write"
    real = getattr(expire, step)

    def wait(*arguments: object) -> object:
        if not planned.is_set():
            planned.set()
            go_on.wait(5)
        return real(*arguments)

    monkeypatch.setattr(expire, step, wait)
    results: list[object] = []
    other = DuckLake.connect(lake.database.address.url.render_as_string(hide_password=False))
    thread = threading.Thread(target=lambda: results.append(other.expire_snapshots(older_than=_ZERO, min_age=_ZERO)))
    thread.start()
    assert planned.wait(20)
    timer = threading.Timer(0.3, go_on.set)
    timer.start()
    try:
        lake.holds.add("q", newest - 1)
        is_held = True
    except NotFoundError:
        is_held = False
    thread.join(30)
    other.close()
    assert results
    assert is_held == any(snapshot.id == newest - 1 for snapshot in lake.snapshots())


def test_snapshots_are_read_by_the_name_of_a_hold(lake: DuckLake) -> None:
    lake.holds.add("Month end", 3)
    assert values(lake, "month END") == values(lake, 3) == [1]  # type: ignore[arg-type]
    assert lake.at("Month end").snapshot.id == lake.snapshot("Month end").id == 3
    lake.table("t").restore(at="Month end")
    assert lake.table("t").to_arrow()["a"].to_pylist() == [1]
    with pytest.raises(UsageError, match=r"'year end', which is neither the name of a hold nor a time .* lake\.holds\.list\(\)"):
        lake.table("t", at="year end")
    with pytest.raises(UsageError, match="start is 'year end'"):
        lake.table("t").changes("year end")


def test_every_call_that_names_a_snapshot_takes_the_name_of_a_hold(lake: DuckLake) -> None:
    lake.holds.add("Month end", 3)
    table = lake.table("t")
    assert lake.holds.add("copy", "month end").snapshot_id == 3
    with lake.holds.pinned("Month end") as pin:
        assert pin.snapshot_id == 3
    assert table.insertions("month end").to_arrow()["a"].to_pylist() == [1, 2, 3]
    assert table.deletions("month end", "copy").to_arrow()["a"].to_pylist() == [0]
    assert table.changes(1, "copy").count() == table.changes(1, 3).count()
    for query in (
        "SELECT a FROM t AT (VERSION => 'Month end')",
        "SELECT x.a FROM t AS x AT (VERSION => 'month END') JOIN t AT (VERSION => 3) AS y USING (a)",
        "SELECT a FROM lake.table_insertions('t', 'month end', 'copy')",
    ):
        assert lake.sql(query).to_arrow()["a"].to_pylist() == [1], query
    assert lake.sql("SELECT a FROM t AT (VERSION => $tag)", {"tag": "copy"}).to_arrow()["a"].to_pylist() == [1]
    assert lake.sql("SELECT a FROM t", at="copy").to_arrow()["a"].to_pylist() == [1]
    with lake.transaction() as tx:
        assert tx.sql("SELECT a FROM t AT (VERSION => 'copy')").to_arrow()["a"].to_pylist() == [1]  # type: ignore[union-attr]
        tx.sql("INSERT INTO t SELECT a + 10 FROM t AT (VERSION => 'copy')")
    assert sorted(lake.table("t").to_arrow()["a"].to_pylist()) == [3, 11]
    with pytest.raises(UsageError, match="'none', which is neither"):
        lake.sql("SELECT a FROM t AT (VERSION => 'none')").to_arrow()


@pytest.mark.parametrize("name", ["2", " -2 ", "2026-01-31", "2026-W05", "20260131T10"])
def test_a_hold_is_not_named_like_a_number_or_a_time(lake: DuckLake, name: str) -> None:
    with pytest.raises(UsageError, match="Choose a name that is not a number or a time"):
        lake.holds.add(name, 3)


def test_a_version_is_not_a_time(lake: DuckLake) -> None:
    with pytest.raises(UsageError, match="needs the id of a snapshot"):
        lake.sql("SELECT a FROM t AT (VERSION => '2099-01-01')").to_arrow()
