"""Copies of lakes to other catalog databases, and lakes whose files were moved."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.migrations import copying
from ducklake_core.errors import AlreadyExistsError, CatalogError, NotFoundError, StorageError, UnsupportedFeatureError, UsageError
from ducklake_core.maintenance import moving
from tests.support.oracle import LakeAddress, attached, file_lake
from tests.support.parameters import new_address, slow

TYPES = {
    "i": "INTEGER", "h": "HUGEINT", "d": "DECIMAL(18, 3)", "f": "FLOAT", "dbl": "DOUBLE", "s": "VARCHAR", "b": "BLOB", "dt": "DATE",
    "t": "TIME", "ts": "TIMESTAMP", "tz": "TIMESTAMPTZ", "ns": "TIMESTAMP_NS", "iv": "INTERVAL", "u": "UUID", "bo": "BOOLEAN",
    "l": "INTEGER[]", "st": "STRUCT(a INTEGER, b VARCHAR)", "m": "MAP(VARCHAR, DATE)", "js": "JSON",
}  # fmt: skip
VALUES = [
    "1", "170141183460469231731687303715884105727", "-1.500", "'-0.0'", "'inf'", "'it''s \\ ü'", "'\\x00\\xAA'", "'0044-03-15 (BC)'",
    "'24:00:00'", "'infinity'", "'290000-01-01 00:00:00.5+00'", "'2024-01-01 10:00:00.123456789'",
    "INTERVAL '1 month -2 days 3 seconds'",
    "'00000000-0000-7000-8000-000000000001'", "true", "[1, NULL]", "{'a': NULL, 'b': 'q'}", "MAP {'k': DATE '2024-01-01'}",
    "'{\"a\": [1]}'",
]  # fmt: skip


def fill(address: LakeAddress) -> DuckLake:
    """Create a lake with rows in files and in the catalog, dropped and changed tables, a view, a macro, an option and a hold."""
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.write("orders", pa.table({"id": range(1000)}))
    with attached(address) as duck:
        columns = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
        duck.run(
            f"CREATE TABLE types ({columns})",
            f"INSERT INTO types VALUES ({', '.join(VALUES)}), ({', '.join(['NULL'] * len(TYPES))})",
            "UPDATE types SET i = 2 WHERE i = 1",
            "DELETE FROM orders WHERE id < 5",
            "ALTER TABLE types ADD COLUMN added INTEGER DEFAULT 7",
            "INSERT INTO types (i) VALUES (9)",
            "CREATE TABLE dropped AS SELECT 1 AS x",
            "DROP TABLE dropped",
            'CREATE TABLE "Odd Name" ("Weird Col" VARCHAR)',
            """INSERT INTO "Odd Name" VALUES ('x')""",
            "CREATE VIEW v AS SELECT * FROM orders",
            "CREATE MACRO plus_one(x) AS x + 1",
            "COMMENT ON TABLE orders IS 'all orders'",
        )
    lake.set_option("target_file_size", "10MB", table="orders")
    lake.holds.add("month end", 3)
    lake.write("orders", pa.table({"id": [5000]}), mode="append", commit_id="load 7")
    return lake


def contents(address: LakeAddress) -> list[object]:
    """Everything that DuckDB shows of a lake: snapshots, and all rows of all tables at all snapshots."""
    with attached(address) as duck:
        snapshots = duck.rows("FROM ducklake_snapshots('lake') ORDER BY snapshot_id")
        found: list[object] = [snapshots, duck.rows("FROM ducklake_options('lake') WHERE option_name <> 'data_path' ORDER BY ALL")]
        found.append(duck.rows("SELECT view_name, sql FROM duckdb_views() WHERE database_name = 'lake' AND NOT internal"))
        tables = ["orders", "types", "dropped", '"Odd Name"']
        for snapshot in snapshots:
            for table in tables:
                try:
                    rows = duck.rows(f"SELECT rowid, * FROM {table} AT (VERSION => {snapshot[0]}) ORDER BY rowid")
                except Exception as error:  # noqa: BLE001 - the table does not exist at the snapshot
                    assert "does not exist" in str(error)
                else:
                    found.append([tuple(map(repr, row)) for row in rows])
    return found


@pytest.mark.parametrize("kinds", ["sqlite duckdb sqlite", slow("sqlite postgresql mysql duckdb postgresql")])
def test_a_copy_has_every_snapshot(kinds: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folders = [tmp_path / str(number) for number in range(len(kinds.split()))]
    for folder in folders:
        folder.mkdir()
    first, *others = [new_address(request, kind, folder) for kind, folder in zip(kinds.split(), folders, strict=True)]
    lake = fill(first)
    wanted = contents(first)
    for number, address in enumerate(others):
        result = lake.copy_to(address.url, compare="rows")
        assert (result.snapshots, result.files_copied, result.inlined_rows) == (len(lake.snapshots()), None, 12 + number)
        assert result.tables_compared == 12 + 2 * number
        lake.close()
        lake = DuckLake.connect(address.url)
        assert [hold.name for hold in lake.holds.list()] == ["month end"]
        assert getattr(lake.find_commit("load 7"), "id", None) == 15
        assert lake.check(level="rows").is_sound
        shown = LakeAddress(address.url, address.attach, first.data_path, address.backend)
        assert contents(shown) == wanted
        lake.write("types", pa.table({"i": pa.array([10], pa.int32())}), mode="append", missing_columns="null")
        lake.table("types").delete("i = 10")
        wanted = contents(shown)
    lake.close()


def test_a_copy_with_its_files(tmp_path: Path) -> None:
    source, target = file_lake("sqlite", tmp_path), f"sqlite:///{tmp_path / 'copy.sqlite'}"
    lake = fill(source)
    steps: list[str] = []
    result = lake.copy_to(target, data_path=str(tmp_path / "copies"), progress=lambda now: steps.append(now.phase))
    assert {"copy files", "copy catalog"} <= set(steps)
    assert result.files_copied == len(list((tmp_path / "files").rglob("*.parquet")))
    lake.close()
    shutil.rmtree(tmp_path / "files")
    copy = DuckLake.connect(target)
    assert copy.check(level="footers").is_sound
    assert copy.settings().data_path == f"{tmp_path / 'copies'}/"
    copy.close()


def test_the_target_of_a_copy_must_be_empty(tmp_path: Path) -> None:
    lake = DuckLake.create(f"sqlite:///{tmp_path / 'a.sqlite'}", data_path=str(tmp_path / "files"))
    lake.write("t", pa.table({"id": [1]}))
    DuckLake.create(f"duckdb:///{tmp_path / 'b.ducklake'}", data_path=str(tmp_path / "other")).close()
    with pytest.raises(AlreadyExistsError, match="already holds a lake"):
        lake.copy_to(f"duckdb:///{tmp_path / 'b.ducklake'}")
    with pytest.raises(UsageError, match="compare must be 'catalog' or 'rows'"):
        lake.copy_to(f"duckdb:///{tmp_path / 'c.ducklake'}", compare="all")  # type: ignore[arg-type]


def test_a_different_copy_is_not_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = DuckLake.create(f"sqlite:///{tmp_path / 'a.sqlite'}", data_path=str(tmp_path / "files"))
    lake.write("t", pa.table({"id": [1]}))
    encoded = copying.encoded_rows
    monkeypatch.setattr(copying, "encoded_rows", lambda *rows: [{**row, "p3": 2} for row in encoded(*rows)])
    with pytest.raises(CatalogError, match="ducklake_inlined_data_1_1 has 1 row in the source, and other values in the copy"):
        lake.copy_to(f"sqlite:///{tmp_path / 'b.sqlite'}")
    assert not (tmp_path / "b.sqlite").exists()


_KILLED = """
import os, sys
from ducklake_core import DuckLake
def stop(now):
    if now.phase == "copy catalog" and now.table == "snapshot":
        os._exit(9)
DuckLake.connect(sys.argv[1]).copy_to(sys.argv[2], data_path=sys.argv[3], progress=stop)
"""


def test_files_that_both_lakes_share_are_reported(tmp_path: Path) -> None:
    lake = DuckLake.create(f"sqlite:///{tmp_path / 'a.sqlite'}", data_path=str(tmp_path / "files"))
    lake.write("t", pa.table({"id": range(100)}), inline=False)
    file = next((tmp_path / "files").rglob("*.parquet"))
    shutil.copy(file, tmp_path / "elsewhere.parquet")
    lake.add_data_files("t", [str(tmp_path / "elsewhere.parquet")])
    result = lake.copy_to(f"sqlite:///{tmp_path / 'b.sqlite'}", data_path=str(tmp_path / "copies"))
    assert (result.files_copied, result.files_elsewhere) == (1, 1)
    assert "1 file outside of the data path not copied: both lakes refer to them" in str(result)
    again = lake.copy_to(f"sqlite:///{tmp_path / 'c.sqlite'}", data_path=str(tmp_path / "copies"))
    assert again.files_copied == 0
    assert f"copied 0 files (0 B) to {tmp_path / 'copies'}/" in str(again)
    shared = lake.copy_to(f"sqlite:///{tmp_path / 'd.sqlite'}")
    assert (shared.files_copied, shared.files_elsewhere) == (None, 0)
    assert "the files stay in" in str(shared)
    lake.close()


def test_an_existing_file_with_other_contents_is_copied_again(tmp_path: Path) -> None:
    lake = DuckLake.create(f"sqlite:///{tmp_path / 'a.sqlite'}", data_path=str(tmp_path / "files"))
    lake.write("t", pa.table({"id": range(100)}), inline=False)
    file = next((tmp_path / "files").rglob("*.parquet"))
    for folder in ("copies", "moved"):
        found = tmp_path / folder / file.relative_to(tmp_path / "files")
        found.parent.mkdir(parents=True)
        found.write_bytes(bytes(file.stat().st_size))
    assert lake.copy_to(f"sqlite:///{tmp_path / 'b.sqlite'}", data_path=str(tmp_path / "copies"), compare="rows").files_copied == 1
    assert lake.move_data(str(tmp_path / "moved"), copy_files=True).files_copied == 1
    assert lake.table("t").count() == 100
    shutil.rmtree(tmp_path / "files")
    lake.close()


def test_no_further_files_are_copied_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = DuckLake.create(f"sqlite:///{tmp_path / 'a.sqlite'}", data_path=str(tmp_path / "files"))
    for _ in range(6):
        lake.write("t", pa.table({"id": [1]}), mode="append", inline=False)
    copied: list[str] = []

    def copy(_storage: object, path: str, _target: str) -> int:
        copied.append(path)
        time.sleep(0.05)
        return 1

    monkeypatch.setattr(moving, "_COPIERS", 1)
    monkeypatch.setattr(moving, "_copy_file", copy)
    with pytest.raises(StorageError, match="has 1 bytes, but the catalog states"):
        lake.copy_to(f"sqlite:///{tmp_path / 'b.sqlite'}", data_path=str(tmp_path / "copies"))
    assert len(copied) <= 3


def test_a_failed_comparison_closes_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = DuckLake.create(f"sqlite:///{tmp_path / 'a.sqlite'}", data_path=str(tmp_path / "files"))
    lake.write("t", pa.table({"id": [1]}))
    closed: list[str] = []
    close = Database.close
    monkeypatch.setattr(Database, "close", lambda self: (closed.append(str(self.address)), close(self)))
    monkeypatch.setattr(moving, "_state", lambda *_: object())
    with pytest.raises(CatalogError, match=r"Table main\.t at snapshot 1 has other rows in the copy"):
        lake.copy_to(f"sqlite:///{tmp_path / 'b.sqlite'}", compare="rows")
    assert any("b.sqlite" in one for one in closed)


def test_rows_of_expired_commits_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = DuckLake.create(f"sqlite:///{tmp_path / 'a.sqlite'}", data_path=str(tmp_path / "files"))
    for table in ("t", "t", "u"):
        lake.write(table, pa.table({"id": [1]}), mode="append", inline=False)
    lake.expire_snapshots(versions=[2], min_age="0 seconds")
    compared: list[tuple[object, object]] = []
    state = moving._state
    monkeypatch.setattr(moving, "_state", lambda rows, *where: (compared.append(where), state(rows, *where))[1])
    result = lake.copy_to(f"sqlite:///{tmp_path / 'b.sqlite'}", compare="rows")
    assert sorted(set(compared)) == [("main.t", 1), ("main.t", 3), ("main.u", 3)]
    assert result.tables_compared == 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mysql"])
def test_a_killed_copy_is_repeated(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    source = f"sqlite:///{tmp_path / 'source.sqlite'}"
    lake = DuckLake.create(source, data_path=str(tmp_path / "source"))
    lake.write("t", pa.table({"id": range(100)}), inline=False)
    lake.table("t").append(pa.table({"id": [100]}))
    target = new_address(request, kind, tmp_path)
    killed = subprocess.run([sys.executable, "-c", _KILLED, source, target.url, target.data_path], check=False, timeout=60)
    assert killed.returncode == 9
    with pytest.raises((NotFoundError, CatalogError)):
        DuckLake.connect(target.url)
    assert lake.copy_to(target.url, data_path=target.data_path).files_copied == 0
    assert DuckLake.connect(target.url).table("t").count() == 101


@pytest.mark.parametrize("kind", ["sqlite", slow("postgresql"), slow("mysql"), slow("duckdb")])
def test_writers_go_on_while_a_lake_is_copied(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    source = new_address(request, kind, tmp_path)
    lake = DuckLake.create(source.url, data_path=source.data_path)
    lake.write("t", pa.table({"id": range(50)}))
    copies, committed = threading.Event(), threading.Event()

    def write() -> None:
        assert copies.wait(30)
        DuckLake.connect(source.url).write("t", pa.table({"id": [50]}), mode="append")
        committed.set()

    writer = threading.Thread(target=write)
    writer.start()

    def wait(now: object) -> None:
        if getattr(now, "table", None) == "data_file" or getattr(now, "phase", "") == "copy catalog":
            copies.set()
            assert committed.wait(30)

    result = lake.copy_to(f"sqlite:///{tmp_path / 'copy.sqlite'}", progress=wait)
    writer.join()
    assert result.snapshots == 2
    assert DuckLake.connect(f"sqlite:///{tmp_path / 'copy.sqlite'}").table("t").count() == 50
    assert lake.table("t").count() == 51


@pytest.mark.slow
def test_inlined_rows_that_the_target_cannot_store(tmp_path: Path, postgres: object) -> None:
    target: LakeAddress = postgres.lake(tmp_path)  # type: ignore[attr-defined]
    lake = DuckLake.create(f"sqlite:///{tmp_path / 'a.sqlite'}", data_path=str(tmp_path / "files"))
    lake.write("t", pa.table({"x" * 70: [1]}))
    with pytest.raises(UnsupportedFeatureError, match=r"main.t cannot be copied .*lake.flush_inlined_data\('main.t'\)"):
        lake.copy_to(target.url)
    lake.flush_inlined_data("t")
    lake.copy_to(target.url, compare="rows")
    assert DuckLake.connect(target.url).table("t").count() == 1


def test_moved_files(tmp_path: Path) -> None:
    address = file_lake("sqlite", tmp_path)
    lake = fill(address)
    file = next((tmp_path / "files").rglob("*.parquet"))
    shutil.copy(file, tmp_path / "files" / "added.parquet")
    shutil.copy(file, tmp_path / "elsewhere.parquet")
    lake.add_data_files("orders", [str(tmp_path / "files" / "added.parquet"), str(tmp_path / "elsewhere.parquet")])
    before = lake.table("orders").count()
    shutil.copytree(tmp_path / "files", tmp_path / "moved")
    other = DuckLake.connect(address.url)
    with pytest.raises(NotFoundError, match=r"not changed, because 2 files of 2 cannot be found in .*/nowhere/: .* is missing"):
        lake.move_data(str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="one of the two contains the other"):
        lake.move_data(str(tmp_path / "files" / "inner"))
    result = lake.move_data(str(tmp_path / "moved"))
    assert (result.files, result.files_elsewhere, result.files_copied) == (2, 1, 0)
    shutil.rmtree(tmp_path / "files")
    assert lake.info.data_path == lake.settings().data_path == other.settings().data_path == f"{tmp_path / 'moved'}/"
    assert lake.table("orders").count() == before
    assert lake.check(level="footers").is_sound
    with pytest.raises(CatalogError, match="Open it again"):
        other.write("orders", pa.table({"id": [1]}), mode="append")
    moved = LakeAddress(address.url, address.attach, f"{tmp_path / 'moved'}/", "sqlite")
    with attached(moved) as duck:
        assert duck.value("SELECT count(*) FROM orders") == before


def test_files_that_are_copied_and_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = DuckLake.create(f"sqlite:///{tmp_path / 'a.sqlite'}", data_path=str(tmp_path / "files"))
    lake.write("t", pa.table({"id": range(100)}), inline=False)
    copy_files = moving._copy_files

    def copied_during_a_commit(*call: object) -> list[int]:
        monkeypatch.setattr(moving, "_copy_files", copy_files)
        DuckLake.connect(f"sqlite:///{tmp_path / 'a.sqlite'}").write("t", pa.table({"id": range(100)}), mode="append", inline=False)
        return copy_files(*call)  # type: ignore[arg-type]

    monkeypatch.setattr(moving, "_copy_files", copied_during_a_commit)
    result = lake.move_data(str(tmp_path / "moved"), copy_files=True)
    assert (result.files, result.files_copied) == (2, 2)
    shutil.rmtree(tmp_path / "files")
    assert lake.table("t").count() == 200
