"""Checks of sound lakes find only faults of DuckDB, which a repair fixes, on every catalog."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import inspect

from ducklake_core import DuckLake
from ducklake_core.errors import UsageError
from tests.behaviour.maintenance.lakes import write_history
from tests.property.hostile_catalogs.lake import DamagedLake, build
from tests.property.hostile_catalogs.test_pruning_in_sql import _build as write_partitions
from tests.support.old_lakes import old_lake
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import slow, spread


def _by_library(address: LakeAddress) -> None:
    lake = DuckLake.create(address.url, data_path=address.data_path, encrypted=True)
    rows = pa.table({"a": range(200), "s": ["x" * (n * 3) for n in range(200)], "l": [[n, None] for n in range(200)]})
    lake.write("t", rows, partition_by=["bucket(3, a)"])
    lake.write("t", rows.slice(0, 3))
    lake.table("t").update({"s": "'new'"}, where="a < 20")
    lake.table("t").delete("a BETWEEN 50 AND 60")
    lake.table("t").add_column("n", "double")
    lake.write("t", pa.table({"a": [1000], "s": [None], "l": [None], "n": [float("nan")]}))
    lake.merge_adjacent_files()
    lake.table("t").overwrite(rows.slice(0, 50).append_column("n", pa.array([1.5] * 50)), where="a < 50")
    lake.rename_table("t", "u")
    lake.table("u").restore(at=3, columns="now")
    lake.close()


def _encrypted_by_duckdb(address: LakeAddress) -> None:
    with attached(address, "ENCRYPTED, DATA_INLINING_ROW_LIMIT 5") as duck:
        duck.run(
            "CREATE TABLE t AS SELECT i AS a, {'x': i, 'y': [i, NULL]} AS s, i::DOUBLE / 3 AS d FROM range(100) r(i)",
            "DELETE FROM t WHERE a < 20",
            "INSERT INTO t VALUES (1000, NULL, 'nan'), (1001, {'x': 1, 'y': NULL}, 'inf')",
            "UPDATE t SET d = -0.0 WHERE a > 30",
            "ALTER TABLE t ALTER a TYPE HUGEINT",
            "INSERT INTO t SELECT i, NULL, 0.0 FROM range(50) r(i)",
            "CALL ducklake_flush_inlined_data('lake')",
            "CALL ducklake_merge_adjacent_files('lake')",
        )


def _expired(address: LakeAddress) -> None:
    write_history(address)
    with attached(address) as duck:
        duck.run("CALL ducklake_flush_inlined_data('lake')", "CALL ducklake_merge_adjacent_files('lake')")
        duck.run("CALL ducklake_expire_snapshots('lake', versions => [3, 4, 5, 6, 7, 20, 21, 22, 23, 24, 25, 26])")


@pytest.mark.parametrize(
    "make", spread([_by_library, _encrypted_by_duckdb, _expired, write_partitions, build], 3), ids=lambda make: make.__name__
)
def test_nothing_is_found_in_sound_lakes(make: Callable[[LakeAddress], object], lake_address: LakeAddress) -> None:
    make(lake_address)
    lake = DuckLake.connect(lake_address.url)
    for level in ("catalog", "rows"):
        found = lake.check(level=level)  # type: ignore[arg-type]
        assert found.by_code == {}, str(found)
        assert found.is_sound
    assert lake.check(repair=True).repairs == ()
    assert lake.snapshot().id == found.snapshot_id
    lake.close()


@pytest.mark.parametrize("to", ["TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMP_NS"])
def test_dates_that_duckdb_rewrites_after_they_became_timestamps(sqlite_address: LakeAddress, to: str) -> None:
    """It writes files of dates, and bounds of dates, for the column of timestamps."""
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(
            "CREATE TABLE t AS SELECT i AS k, DATE '2024-02-10' + i::INTEGER AS d FROM range(20) r(i)",
            "DELETE FROM t WHERE k = 5",
            "ALTER TABLE t ALTER d TYPE TIMESTAMP",
            *([f"ALTER TABLE t ALTER d TYPE {to}"] if to != "TIMESTAMP" else []),
            "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.0)",
        )
    lake = DuckLake.connect(sqlite_address.url)
    found = lake.check(level="rows")
    assert found.by_code == {}, str(found)
    assert lake.table("t").scan(where="d = TIMESTAMP '2024-02-12 00:00:00'").count() == 1
    lake.close()


@pytest.mark.parametrize("version", ["0.1", slow("0.2"), slow("0.3-dev1"), "0.3", slow("0.4-dev1")])
def test_earlier_versions_are_checked(version: str, tmp_path: Path) -> None:
    old = old_lake(version, "sqlite", tmp_path / version, None)
    lake = DuckLake.connect(old.address.url)
    assert lake.check(level="rows").errors == (), str(lake.check(level="rows"))
    lake.close()


def test_bounds_narrowed_by_duckdb_are_repaired(lake_address: LakeAddress) -> None:
    """Its rewrite makes table bounds those of the rows that are left, by which it loses rows of earlier snapshots."""
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t AS SELECT i AS a, 'v' || i AS b FROM range(100) r(i)", "DELETE FROM t WHERE a >= 40")
        before = duck.value("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')")
        duck.run("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.1)")
    past = f"SELECT count(*) FROM t AT (VERSION => {int(str(before)) - 1}) WHERE a = 77"
    with attached(lake_address) as duck:
        assert duck.value(past) == 0
    lake = DuckLake.connect(lake_address.url)
    found = lake.check(repair=True)
    assert found.by_code == {"table-bounds-narrow": 2}
    assert found.repair_snapshot_id == lake.snapshot().id
    assert lake.snapshot().message is not None
    assert len(found.repairs) == 3
    assert lake.check(level="rows").by_code == {}
    lake.close()
    with attached(lake_address) as duck:
        assert duck.value(past) == 1
        assert duck.value("SELECT max(a) FROM t") == 39
        assert duck.value("SELECT count(*) FROM t WHERE a < 40") == 40
        duck.run("INSERT INTO t SELECT i, 'w' FROM range(500, 550) r(i)")
        assert duck.value("SELECT max(a) FROM t") == 549


def test_repairs_are_made_on_every_catalog(lake_address: LakeAddress) -> None:
    build(lake_address)
    spoiled = DamagedLake(lake_address)
    flag = "1" if lake_address.backend == "sqlite" else "true"
    spoiled.edit(
        "UPDATE ducklake_file_column_stats SET min_value = 'w' WHERE column_id = 2 AND max_value = 'v149'",
        "UPDATE ducklake_table_column_stats SET max_value = '120' WHERE column_id = 1 AND max_value = '202'",
        "INSERT INTO ducklake_file_column_stats (data_file_id, table_id, column_id) VALUES (888, 1, 1)",
        "INSERT INTO ducklake_inlined_delete_1 VALUES (888, 1, 5), (999, 0, 5)",
        "UPDATE ducklake_table_stats SET record_count = 1",
        "CREATE TABLE ducklake_inlined_data_0_1 (row_id BIGINT)",
        "CREATE TABLE ducklake_inlined_delete_0 (file_id BIGINT)",
        f"INSERT INTO ducklake_files_scheduled_for_deletion SELECT data_file_id, 'main/f/foreign.parquet', {flag}, "
        "'2024-01-01 00:00:00+00' FROM ducklake_data_file WHERE path = 'foreign.parquet'",
    )
    lake = DuckLake.connect(lake_address.url)
    codes = {
        "statistics-invalid", "statistics-orphaned", "table-bounds-narrow", "table-statistics-stale", "inlined-table-dead",
        "inlined-delete-orphaned", "scheduled-live",
    }  # fmt: skip
    found = lake.check(repair=True)
    assert set(found.by_code) == codes
    assert lake.check(level="rows").by_code == {}, str(lake.check())
    assert len([line for line in found.lines() if line.startswith("repaired: dropped ducklake_inlined_d")]) == 2
    lake.write("t", pa.table({"a": [1], "b": ["x"], "x": [0.5]}))
    assert lake.check(level="rows").is_sound
    lake.close()
    with attached(lake_address) as duck:
        assert duck.value("SELECT count(*) FROM t WHERE a = 149") == 1
        duck.run("INSERT INTO t SELECT i, 'z', 1 FROM range(300, 320) r(i)")


def test_changes_since_the_check_are_kept(lake_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file came by the number that deletes were planted for: the repair leaves them, and does not report them as removed."""
    from ducklake_core.maintenance.check import run

    with DuckLake.create(lake_address.url, data_path=lake_address.data_path) as lake:
        table = lake.write("t", pa.table({"a": range(100)}), inline=False).table_id
        lake.table("t").delete("a = 7")
        spoiled = DamagedLake(lake_address)
        coming = int(spoiled.value("SELECT max(next_file_id) FROM ducklake_snapshot"))
        spoiled.edit(f"INSERT INTO ducklake_inlined_delete_{table} VALUES ({coming}, 3, 3), (999, 0, 3)")
        carry_out = run.carry_out

        def late(*arguments: object) -> object:
            with DuckLake.connect(lake_address.url) as other:
                other.write("t", pa.table({"a": range(200, 300)}), inline=False)
            return carry_out(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(run, "carry_out", late)
        found = lake.check(repair=True)
        assert found.by_code == {"inlined-delete-orphaned": 2}
        assert [line for line in found.repairs if "inlined deletes" in line] == [
            f"deleted the inlined deletes of data file 999 in table {table}, because no table has that file"
        ]


@pytest.mark.parametrize("name", ["ducklake_inlined_data_888_1", "ducklake_inlined_delete_888"])
def test_tables_of_numbers_that_were_never_given_out(lake_address: LakeAddress, name: str) -> None:
    """A running commit may be creating them on databases that show tables before the COMMIT."""
    with DuckLake.create(lake_address.url, data_path=lake_address.data_path) as lake:
        DamagedLake(lake_address).edit(f"CREATE TABLE {name} (row_id BIGINT)")
        dead = int(lake_address.backend != "mysql")
        assert lake.health().dead_inlined_tables == dead
        found = lake.check(repair=True)
        assert len(found.findings) == len(found.repairs) == dead
        with lake.database.read() as connection:
            assert inspect(connection).has_table(name) != dead
        lake.write("t", pa.table({"a": [1]}))
        assert lake.check(level="rows").is_sound


def test_a_repair_during_a_commit_narrows_nothing(lake_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds are widened to those of the files that were checked; a file that came since must be in them as well."""
    from ducklake_core.maintenance.check import run

    lake = DuckLake.create(lake_address.url, data_path=lake_address.data_path)
    lake.write("t", pa.table({"a": range(100)}))
    DamagedLake(lake_address).edit("UPDATE ducklake_table_column_stats SET max_value = '50'")
    other, carry_out = DuckLake.connect(lake_address.url), run.carry_out

    def late(*arguments: object) -> object:
        other.write("t", pa.table({"a": range(5000, 5100)}))
        return carry_out(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(run, "carry_out", late)
    lake.check(repair=True)
    assert lake.check(level="rows").by_code == {}
    assert lake.table("t").scan(where="a = 5050").count() == 1
    lake.close()
    other.close()
    with attached(lake_address) as duck:
        assert duck.rows("SELECT a FROM t WHERE a IN (77, 5050) ORDER BY a") == [(77,), (5050,)]


def test_faults_of_encrypted_and_added_files(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    _encrypted_by_duckdb(sqlite_address)
    lake = DuckLake.connect(sqlite_address.url)
    DamagedLake(sqlite_address).edit("UPDATE ducklake_data_file SET encryption_key = NULL WHERE data_file_id = 0")
    assert set(lake.check(level="footers").by_code) == {"encryption-key-missing"}
    DamagedLake(sqlite_address).edit("UPDATE ducklake_data_file SET encryption_key = 'no key' WHERE data_file_id = 0")
    assert set(lake.check(level="footers").by_code) == {"encryption-key-missing"}
    other = "(SELECT encryption_key FROM ducklake_data_file WHERE data_file_id <> 0 LIMIT 1)"
    DamagedLake(sqlite_address).edit(f"UPDATE ducklake_data_file SET encryption_key = {other} WHERE data_file_id = 0")
    assert set(lake.check(level="footers").by_code) == {"footer-unreadable"}
    with pytest.raises(UsageError, match="Unknown level"):
        lake.check(level="deep")  # type: ignore[arg-type]
    lake.close()
    with pytest.raises(UsageError, match="read_only"):
        DuckLake.connect(sqlite_address.url, read_only=True).check(repair=True)


def test_a_file_that_was_added_twice(sqlite_address: LakeAddress) -> None:
    build(sqlite_address)
    lake = DuckLake.connect(sqlite_address.url)
    path = str(Path(sqlite_address.data_path) / "main" / "f" / "foreign.parquet")
    lake.table("f").add_data_files(path, allow_duplicates=True)
    assert lake.check(level="rows").by_code == {"file-added-twice": 1}
    lake.close()


def test_unreachable_files_are_findings(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """One store that does not answer stops nothing, and nothing is called missing for it."""
    from ducklake_core.errors import StorageError
    from ducklake_core.storage.filesystems import Storage

    build(sqlite_address)
    lake = DuckLake.connect(sqlite_address.url)
    real = Storage.open_input

    def fail(self: Storage, path: str) -> object:
        if path.endswith("foreign.parquet"):
            raise StorageError("the store is tired")
        return real(self, path)

    monkeypatch.setattr(Storage, "open_input", fail)
    assert lake.check(level="rows").by_code == {"file-unreachable": 1}
    lake.close()


def test_a_commit_during_the_check_leaves_no_orphans(lake_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    from ducklake_core.storage.filesystems import Storage

    build(lake_address)
    lake, other = DuckLake.connect(lake_address.url), DuckLake.connect(lake_address.url)
    real = Storage.list

    def late(self: Storage, prefix: str) -> object:
        other.write("t", pa.table({"a": range(50), "b": ["x"] * 50, "x": [0.5] * 50}))
        other.merge_adjacent_files("t")
        return real(self, prefix)

    monkeypatch.setattr(Storage, "list", late)
    assert lake.check(level="rows").by_code == {}
    lake.close()
    other.close()


def test_row_groups_that_were_counted_wrong(sqlite_address: LakeAddress) -> None:
    """Catalogs of version 1.1 have the number, by which Spark splits files."""
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path, version="1.1")
    lake.write("t", pa.table({"a": range(100)}))
    assert lake.check(level="rows").by_code == {}
    DamagedLake(sqlite_address).edit("UPDATE ducklake_data_file SET row_group_count = 7")
    assert lake.check().by_code == {}
    assert lake.check(level="footers").by_code == {"row-group-count": 1}
    lake.close()


def test_defaults_as_they_were_written_are_sound(sqlite_address: LakeAddress) -> None:
    """DuckDB stores a default as it is written in the statement, and casts it when rows lack the column."""
    columns = (
        ("DATE", "'2024-02-22 19:30:14'"), ("DATE", "'infinity'"), ("INTEGER", "5.7"), ("INTEGER", "'0x10'"), ("INTEGER", "'  7 '"),
        ("DOUBLE", "'nan'"), ("DECIMAL(9, 2)", "1.005"), ("BOOLEAN", "'t'"), ("BOOLEAN", "1"), ("VARCHAR", "'NULL'"), ("VARCHAR", "5"),
        ("TIMESTAMPTZ", "'2024-01-01'"), ("TIMESTAMP", "'2024-01-01T10:00:00Z'"), ("INTERVAL", "'1 day'"), ("TIME", "'24:00:00'"),
        ("UUID", "'{550e8400-e29b-41d4-a716-446655440000}'"), ("BLOB", "'ab'"), ("JSON", "'{}'"), ("BIGINT", "extract(year FROM now())"),
    )  # fmt: skip
    with attached(sqlite_address) as duck:
        duck.run(f"CREATE TABLE t ({', '.join(f'c{place} {kind} DEFAULT {value}' for place, (kind, value) in enumerate(columns))})")
    lake = DuckLake.connect(sqlite_address.url)
    assert lake.check().by_code == {}, str(lake.check())
    lake.close()


def test_a_wrong_mapping_hides_no_fault_of_files_with_another(sqlite_address: LakeAddress, tmp_path: Path) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.create_table("t", pa.schema([("a", pa.int64())]))
    for number, name in enumerate(("a", "A")):
        path = tmp_path / f"foreign-{number}.parquet"
        pq.write_table(pa.table({name: range(20)}), path)
        lake.table("t").add_data_files(str(path))
    with lake.database.read() as connection:
        first, second = connection.exec_driver_sql("SELECT mapping_id FROM ducklake_data_file ORDER BY data_file_id").scalars()
    assert first != second
    DamagedLake(sqlite_address).edit(
        f"UPDATE ducklake_name_mapping SET target_field_id = 77 WHERE mapping_id = {first}",
        "UPDATE ducklake_file_column_stats SET max_value = '7' WHERE data_file_id = (SELECT max(data_file_id) FROM ducklake_data_file)",
    )
    assert lake.check(level="rows").by_code == {"mapping-invalid": 1, "statistics-narrow": 1}, str(lake.check(level="rows"))
    lake.close()
