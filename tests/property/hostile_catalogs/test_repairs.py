"""Faults of DuckDB, and repairs next to other faults: wrong data is never used for a repair."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import UsageError
from tests.property.hostile_catalogs.lake import DamagedLake
from tests.support.oracle import LakeAddress, attached


def test_commit_options_without_repair_raise(sqlite_address: LakeAddress) -> None:
    with DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path) as lake:
        for arguments in ({"author": "me"}, {"message": "why"}, {"extra_info": {"a": 1}}):
            with pytest.raises(UsageError, match="Set repair"):
                lake.check(**arguments)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="Unexpected argument 'commit_id'"):
            lake.check(repair=True, commit_id="x")  # type: ignore[call-arg]


def test_a_repair_widens_no_bounds_to_those_of_files_that_are_wrong(sqlite_address: LakeAddress) -> None:
    with DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path) as lake:
        lake.write("t", pa.table({"a": range(100)}), inline=False)
        DamagedLake(sqlite_address).edit(
            "UPDATE ducklake_file_column_stats SET max_value = '60'", "UPDATE ducklake_table_column_stats SET max_value = '50'"
        )
        found = lake.check(level="rows", repair=True)
        assert found.by_code == {"statistics-narrow": 1, "table-bounds-narrow": 1}
        assert not any("60" in line for line in found.repairs)
        assert lake.check(level="rows").by_code == {}
    with attached(sqlite_address) as duck:
        assert duck.value("SELECT count(*) FROM t WHERE a = 77") == 1


def test_a_repair_of_the_catalog_alone_takes_no_bounds_of_floats_for_those_of_doubles(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t(a FLOAT)", "INSERT INTO t VALUES (0.5), (1.1)", "ALTER TABLE t ALTER a TYPE DOUBLE")
    DamagedLake(sqlite_address).edit("UPDATE ducklake_table_column_stats SET min_value = '0.6', max_value = '0.7', contains_nan = 0")
    with DuckLake.connect(sqlite_address.url) as lake:
        assert lake.check(repair=True).by_code == {"table-bounds-narrow": 1}
        assert lake.check(level="rows").by_code == {}


def test_bounds_of_floats_that_duckdb_rewrites_after_they_became_doubles(sqlite_address: LakeAddress) -> None:
    """It leaves the short strings of floats, by which it loses rows; the files are right."""
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(
            "CREATE TABLE t(a FLOAT)",
            "INSERT INTO t VALUES (0.5), (1.1)",
            "CREATE TABLE u(a FLOAT)",
            "INSERT INTO u VALUES (0.5), (2.2)",
            *(f"DELETE FROM {name} WHERE a = 0.5" for name in "tu"),
            *(f"ALTER TABLE {name} ALTER a TYPE DOUBLE" for name in "tu"),
            "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.0)",
        )
        assert duck.value("SELECT count(*) FROM t WHERE a = 1.1::FLOAT::DOUBLE") == 0
    with DuckLake.connect(sqlite_address.url) as lake:
        found = lake.check(level="rows", repair=True)
        assert found.by_code == {"statistics-narrow": 2, "table-bounds-narrow": 2}, str(found)
        assert lake.check(level="rows").is_sound
    with attached(sqlite_address) as duck:
        assert duck.value("SELECT count(*) FROM t WHERE a = 1.1::FLOAT::DOUBLE") == 1


def test_deletes_that_duckdb_flushes_after_it_rewrote_their_file(sqlite_address: LakeAddress) -> None:
    """It adds a delete file to the earlier one, and reads rows twice at snapshots before the rewrite; one row of each is what there is."""
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE t AS SELECT i AS a FROM range(100) r(i)", "DELETE FROM t WHERE a = 5", "DELETE FROM t WHERE a < 50")
        at = int(str(duck.value("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')")))
        duck.run("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.0)", "CALL ducklake_flush_inlined_data('lake')")
        twice = duck.value(f"SELECT count(*) FROM t AT (VERSION => {at})") != 50
    with DuckLake.connect(sqlite_address.url) as lake:
        assert ("delete-files-of-the-past" in lake.check(level="rows").by_code) == twice
        assert lake.table("t", at=at).scan().count() == 50
        assert twice


@pytest.mark.parametrize(
    "fault",
    [
        "DELETE FROM ducklake_name_mapping WHERE source_name = 'b'",
        "DELETE FROM ducklake_name_mapping WHERE parent_column IS NOT NULL",
        "UPDATE ducklake_name_mapping SET parent_column = 99 WHERE parent_column IS NOT NULL",
    ],
)
def test_mappings_that_lost_a_column_leave_statistics_alone(sqlite_address: LakeAddress, fault: str) -> None:
    """Its values read as NULL: the statistics, which count values, are right."""
    path = Path(sqlite_address.data_path) / "main" / "t" / "foreign.parquet"
    path.parent.mkdir(parents=True)
    rows = pa.table({"a": range(30), "b": ["x"] * 30, "s": [{"x": n, "y": [n, None]} for n in range(30)]})
    pq.write_table(rows.append_column("m", pa.array([[("k", 1)]] * 30, pa.map_(pa.string(), pa.int64()))), path)
    with attached(sqlite_address) as duck:
        duck.run(
            "CREATE TABLE t(a BIGINT, b VARCHAR, s STRUCT(x BIGINT, y BIGINT[]), m MAP(VARCHAR, BIGINT), z DOUBLE)",
            f"CALL ducklake_add_data_files('lake', 't', '{path}', allow_missing => true)",
        )
    with DuckLake.connect(sqlite_address.url) as lake:
        assert lake.check(level="rows").by_code == {}
        DamagedLake(sqlite_address).edit(fault)
        assert lake.check().by_code == {"mapping-invalid": 1}
        found = lake.check(level="rows", repair=True)
        assert (found.by_code, found.repairs) == ({"mapping-invalid": 1}, ()), str(found)
