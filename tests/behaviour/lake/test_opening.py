"""Ways into a lake: with blocks, open or create, read only, subscripts, one snapshot of everything, and names that are nearly right."""

from __future__ import annotations

import os
import pickle
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import AlreadyExistsError, CatalogError, NotALakeError, NotFoundError, UsageError
from tests.property.arguments.surface import build, call, methods
from tests.support.oracle import LakeAddress, attached

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int32()), "delay": [1.5, None, 3.0]})


def test_a_with_block_closes_the_lake(lake_address: LakeAddress) -> None:
    with DuckLake.create(lake_address.url, data_path=lake_address.data_path) as lake:
        lake.write("t", ROWS)
        assert lake["t"].scan().count() == 3
        engine = lake.database._current_engine()
    assert lake.database._engine is None
    assert engine is not lake.database._current_engine()
    with pytest.raises(ZeroDivisionError), DuckLake.connect(lake_address.url) as lake:
        raise ZeroDivisionError
    assert lake.database._engine is None


def test_open_creates_once(lake_address: LakeAddress) -> None:
    with pytest.raises(NotALakeError, match=r"DuckLake.open\(..., create=True\)"):
        DuckLake.open(lake_address.url)
    made = DuckLake.open(lake_address.url, create=True, data_path=lake_address.data_path)
    made.write("t", ROWS)
    again = DuckLake.open(lake_address.url, create=True, data_path=lake_address.data_path)
    assert "t" in again
    assert "t" in DuckLake.open(lake_address.url)
    with pytest.raises(UsageError, match="stores its files under"):
        DuckLake.open(lake_address.url, create=True, data_path="/elsewhere/")
    with pytest.raises(UsageError, match="not encrypted"):
        DuckLake.open(lake_address.url, create=True, encrypted=True)
    with pytest.raises(UsageError, match="read_only"):
        DuckLake.open(lake_address.url, create=True, read_only=True)
    with pytest.raises(UsageError, match="apply only to a new lake"):
        DuckLake.open(lake_address.url, encrypted=True)
    with pytest.raises(UsageError, match="override_data_path"):
        DuckLake.open(lake_address.url, create=True, override_data_path=True, data_path="x")


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_catalog_path_without_a_directory_raises(tmp_path: Path, kind: str) -> None:
    address = f"{kind}:///{tmp_path}/{'x' * 300}"
    for begin in (DuckLake.connect, partial(DuckLake.create, data_path=f"{tmp_path}/files/")):
        with pytest.raises(CatalogError, match=r"The catalog file .* cannot be accessed"):
            begin(address)


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_directory_is_no_lake(tmp_path: Path, kind: str) -> None:
    (tmp_path / "lake").mkdir()
    create = partial(DuckLake.create, data_path=f"{tmp_path}/files/")
    for begin in (DuckLake.connect, create, partial(DuckLake.open, create=True, data_path=f"{tmp_path}/files/")):
        with pytest.raises(NotALakeError, match="is a directory") as caught:
            begin(f"{kind}:///{tmp_path}/lake")
        assert not caught.value.retriable
    assert [path.name for path in tmp_path.rglob("*")] == ["lake"]


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory into which every user may look."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def _as_a_user_without_rights() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_file_that_this_user_may_not_open(open_path: Path, kind: str) -> None:
    """Trying again does not help, whatever the driver calls the error."""
    file, address = open_path / "lake", f"{kind}:///{open_path}/lake"
    with DuckLake.create(address, data_path=f"{open_path}/files/") as lake:
        lake.write("t", ROWS)
    file.chmod(0o444)
    with _as_a_user_without_rights():
        lake = DuckLake.connect(address)
        assert "t" in lake
        with pytest.raises(CatalogError) as caught:
            lake.create_schema("s")
        assert not caught.value.retriable
        lake.close()
    file.chmod(0o000)
    with _as_a_user_without_rights(), pytest.raises(CatalogError, match="may not be read by this user") as caught:
        DuckLake.connect(address)
    assert (caught.value.code, caught.value.retriable) == ("catalog", False)
    file.chmod(0o644)
    assert "t" in DuckLake.connect(address)


def test_concurrent_opens_create_one_lake(lake_address: LakeAddress) -> None:
    start, failed = threading.Barrier(6), list[BaseException]()

    def work(number: int) -> None:
        try:
            start.wait()
            with DuckLake.open(lake_address.url, create=True, data_path=lake_address.data_path) as lake:
                lake.create_table(f"t{number}", {"id": "int"})
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    with attached(lake_address) as duck:
        assert duck.value("SELECT count(*) FROM duckdb_tables() WHERE database_name = 'lake'") == 6


def test_a_read_only_lake_rejects_every_write(lake_address: LakeAddress) -> None:
    with DuckLake.create(lake_address.url, data_path=lake_address.data_path) as made:
        made.write("t", ROWS)
    lake = DuckLake.connect(lake_address.url, read_only=True)
    assert lake.read_only
    assert "read only" in repr(lake)
    assert lake["t"].scan().count() == 3
    for copy in (lake, pickle.loads(pickle.dumps(lake))):
        for operation in (
            lambda: copy.write("t", ROWS),  # noqa: B023
            lambda: copy["t"].append(ROWS),  # noqa: B023
            lambda: copy["t"].merge(ROWS, on=["id"]),  # noqa: B023
            copy.transaction,
            lambda: copy.set_option("target_file_size", "1MB"),  # noqa: B023
            copy.create_indexes,
            copy.delete_orphaned_files,
            copy.migrate,
        ):
            with pytest.raises(UsageError, match=r"The lake .* was opened read-only, so nothing was changed"):
                operation()
    assert lake.expire_snapshots(older_than="365 days", dry_run=True) is not None


def test_transactions_that_read_are_read_only_on_a_server(lake_address: LakeAddress) -> None:
    if lake_address.backend != "postgresql":
        return
    with DuckLake.create(lake_address.url, data_path=lake_address.data_path):
        pass
    lake = DuckLake.connect(lake_address.url, read_only=True)
    with lake.reader() as reader:
        assert reader.connection.exec_driver_sql("SHOW transaction_read_only").scalar() == "on"


def test_no_public_method_changes_a_lake_that_only_reads(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    folder.mkdir()
    place = build(folder, f"sqlite:///{folder}/lake.sqlite")
    lake = DuckLake.connect(place.url, read_only=True)

    def state() -> tuple[list[str], list[str]]:
        with closing(sqlite3.connect(folder / "lake.sqlite")) as connection:
            rows = list(connection.iterdump())
        return rows, sorted(str(path) for path in folder.rglob("*") if path.suffix not in (".sqlite-wal", ".sqlite-shm"))

    before, rejected = state(), set()
    for method in methods():
        if method.is_class_method or method.name in ("to_spark", "close", "copy_to"):
            continue
        arguments = method.valid(place)
        arguments.pop("dry_run", None)
        try:
            call(method, lake, arguments)
        except UsageError as error:
            if "opened read-only" in str(error):
                rejected.add(str(method))
        except Exception:  # noqa: BLE001 - errors about arguments are not the subject here
            pass
        assert state() == before, str(method)
    assert {
        "DuckLake.write", "DuckLake.create_table", "DuckLake.drop_schema", "DuckLake.set_comment", "DuckLake.add_data_files",
        "DuckLake.merge_adjacent_files", "DuckLake.expire_snapshots", "DuckLake.cleanup_old_files", "DuckLake.move_data", "DuckLake.purge",
        "Table.append", "Table.overwrite",
        "Table.delete", "Table.update", "Table.upsert", "Table.restore", "Table.add_column", "Table.set_partitioned_by",
    } <= rejected  # fmt: skip


def test_tables_are_found_by_subscript(small: DuckLake) -> None:
    small.create_schema("s")
    small.write("s.t", ROWS)
    assert small["S.T"].name == "s.t"
    assert "s.t" in small
    assert "t" not in small
    with pytest.raises(NotFoundError, match=r"main\.t"):
        _ = small["t"]
    with pytest.raises(UsageError, match="name"):
        _ = small[5]  # type: ignore[index]


def test_a_whole_lake_at_one_snapshot(lake: DuckLake, lake_address: LakeAddress) -> None:
    lake.write("a", ROWS)
    lake.create_view("v", "SELECT id FROM a WHERE id > 1")
    then = lake.snapshot()
    lake.write("a", ROWS)
    lake.drop_view("v")
    lake.create_schema("later")
    lake.write("later.b", ROWS)
    past = lake.at(then.id)
    assert past.snapshot == then
    assert [info.table for info in past.tables()] == ["main.a"]
    assert [schema.name for schema in past.schemas()] == ["main"]
    assert [view.name for view in past.views()] == ["main.v"]
    assert past.view("v").to_arrow().num_rows == 2
    assert "a" in past
    assert "later.b" not in past
    with attached(lake_address) as duck:
        expected = duck.rows(f"SELECT id FROM a AT (VERSION => {then.id}) WHERE delay > 2 ORDER BY id")
    assert [(row,) for row in past.scan("a", columns=["id"], where="delay > 2").to_arrow()["id"].to_pylist()] == expected
    assert past["a"].snapshot_id == past.table_info("a").snapshot_id == then.id
    assert lake.at(then.time).snapshot == then
    with pytest.raises(UsageError, match="cannot be written"):
        past["a"].append(ROWS)
    with pytest.raises(NotFoundError, match="no snapshot 999"):
        lake.at(999)
    newest = lake.at(None)
    lake.write("a", ROWS)
    assert newest["a"].scan().count() == 6


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        (lambda lake: lake["flihgts"], "did you mean 'main.flights'"),
        (lambda lake: lake["planes"], "did you mean 's.planes'"),
        (lambda lake: lake.table_info("Flight"), "did you mean 'main.flights'"),
        (lambda lake: lake.view("lat"), "did you mean 'main.late'"),
        (lambda lake: lake.create_table("schem.x", {"a": "int"}), "did you mean 'schema1'"),
        (lambda lake: lake.drop_table("fligts"), "did you mean 'main.flights'"),
        (lambda lake: lake["flights"].scan(columns=["dely"]).to_arrow(), "did you mean 'delay'"),
        (lambda lake: lake["flights"].scan(where="dely > 5").to_arrow(), "did you mean 'delay'"),
        (lambda lake: lake["flights"].scan(where="box.lenght > 5").to_arrow(), "did you mean 'length'"),
        (lambda lake: lake["flights"].update({"dely": "1"}), "did you mean 'delay'"),
        (lambda lake: lake["flights"].update({"delay": "dely + 1"}), "did you mean 'delay'"),
        (lambda lake: lake["flights"].drop_column("dely"), "did you mean 'delay'"),
    ],
)
def test_names_that_are_nearly_right_are_suggested(small: DuckLake, wrong: Callable[[DuckLake], object], near: str) -> None:
    small.write("flights", pa.table({"id": [1], "delay": [5], "box": [{"length": 1}]}))
    small.create_schema("s")
    small.create_schema("schema1")
    small.write("s.planes", ROWS)
    small.create_view("late", "SELECT * FROM flights")
    with pytest.raises(NotFoundError) as caught:
        wrong(small)
    assert near in str(caught.value)
    with pytest.raises(NotFoundError) as caught:
        _ = small["zzzzzz"]
    assert "did you mean" not in str(caught.value)


def test_create_rejects_an_existing_lake(lake: DuckLake, lake_address: LakeAddress) -> None:
    with pytest.raises(AlreadyExistsError):
        DuckLake.create(lake_address.url, data_path=lake_address.data_path)
    assert lake.at(datetime.now(UTC)).snapshot.id == 0


def test_paths_of_files_and_folders(tmp_path: Path) -> None:
    for name in ("lake.sqlite", "lake.db", "lake.ducklake"):
        with DuckLake.create(tmp_path / name, data_path=tmp_path / f"{name}_files", allowed_paths=tmp_path) as lake:
            lake.write("t", ROWS)
        kind = "duckdb" if name == "lake.ducklake" else "sqlite"
        (tmp_path / name).rename(tmp_path / f"{name}.moved")
        with DuckLake.open(tmp_path / f"{name}.moved", data_path=tmp_path / f"{name}_files") as lake:
            assert (lake.settings().catalog_type, lake.table("t").count()) == (kind, 3)


def test_times_are_datetimes_or_strings(small: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    small.write("t", ROWS)
    moment = small.snapshot().time
    small.write("t", ROWS)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    for at in (moment, moment.isoformat(), str(moment), str(moment.astimezone(ZoneInfo("Asia/Tokyo")).replace(tzinfo=None))):
        assert small.table("t", at=at).count() == 3, at
        assert small.table("t").changes(at, at).count() == 3, at
    assert small.table("t", at="9999-01-01").count() == 6
    with pytest.raises(NotFoundError):
        small.table("t", at="2000-01-01")
    with pytest.raises(UsageError, match=r"at is 'yesterday', which is neither the name of a hold nor a time such as"):
        small.table("t", at="yesterday")
    with pytest.raises(UsageError, match="has no zone"):
        small.table("t", at=datetime(2026, 1, 1))  # noqa: DTZ001 - a time without a zone


def test_a_table_reads_its_own_writes(small: DuckLake) -> None:
    table = small.create_table_as("t", ROWS) and small.table("t")
    other, earlier = small.table("t"), small.table("t", at=small.snapshot().id)
    assert table.append(ROWS).rows_inserted == 3
    assert (table.count(), other.count(), earlier.count()) == (6, 3, 3)
    found = table.upsert([{"id": 9, "delay": 1.0}, {"id": 1, "delay": 2.0}], on="id")
    assert (found.rows_inserted, found.rows_updated, found.rows_deleted) == (2, 0, 2)
    assert table.snapshot_id == found.snapshot_id
    assert table.delete("id = 9").rows_deleted == 1
    merge = table.merge([{"id": 1, "delay": 5.0}, {"id": 8, "delay": 6.0}], on="id")
    found = merge.when_matched_update("all").when_not_matched_insert("all").execute()
    assert (found.rows_inserted, found.rows_updated, found.rows_deleted) == (1, 1, 0)
    assert table.count() == 6
    table.add_column("note", "varchar")
    assert table.columns == ("id", "delay", "note")
    assert other.columns == ("id", "delay")
    small.rename_table("t", "u")
    with pytest.raises(NotFoundError):
        table.append(ROWS)
    assert table.refresh().name == "main.u"
