"""Lakes in which a schema was dropped while another transaction created something in it: DuckDB cannot attach them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from ducklake_core.lake import DuckLake
from tests.behaviour.maintenance.lakes import NOW
from tests.property.hostile_catalogs.lake import DamagedLake
from tests.support.oracle import LakeAddress, attached

_LIVE = {
    "table": "CREATE TABLE s.t AS SELECT i AS a FROM range(3) r(i)",
    "view": "CREATE VIEW s.v AS SELECT 7 AS a",
    "macro": "CREATE MACRO s.m(x) AS x + 1",
}
_READ = {"table": "SELECT sum(a) FROM lake.s.t", "view": "SELECT a FROM lake.s.v", "macro": "SELECT lake.s.m(2)"}
_VALUES = {"table": 3, "view": 7, "macro": 3}


def drop_schema(address: LakeAddress, kinds: Sequence[str]) -> int:
    """Create objects of these kinds in schema s, and end the schema alone; the snapshot that ends it."""
    with attached(address) as duck:
        duck.run("CREATE SCHEMA s", "CREATE TABLE k AS SELECT 1 AS a", *(_LIVE[kind] for kind in kinds), "CREATE SCHEMA other")
    spoiled = DamagedLake(address)
    newest = int(spoiled.value("SELECT max(snapshot_id) FROM ducklake_snapshot"))
    spoiled.edit(f"UPDATE ducklake_schema SET end_snapshot = {newest} WHERE schema_name = 's'")
    return newest


@pytest.mark.parametrize("kinds", [["table"], ["view"], ["macro"], ["table", "view", "macro"]], ids="+".join)
def test_repair_takes_the_drop_back(sqlite_address: LakeAddress, kinds: list[str]) -> None:
    dropped = drop_schema(sqlite_address, kinds)
    with pytest.raises(duckdb.Error, match="schema"), attached(sqlite_address) as duck:
        duck.run("SELECT 1")
    with DuckLake.connect(sqlite_address.url) as lake:
        found = lake.check()
        assert found.by_code == {"schema-missing": len(kinds)}
        assert all(finding.is_repairable for finding in found)
        done = lake.check(repair=True)
        assert done.repairs == (f"undid the drop of schema s at snapshot {dropped}, because it is not empty",)
        assert lake.snapshot().id == done.repair_snapshot_id == dropped + 1
        assert lake.snapshot().changes == 'created_schema:"s"'
        assert lake.check(level="rows").findings == ()
    with attached(sqlite_address) as duck:
        assert {kind: duck.value(_READ[kind]) for kind in kinds} == {kind: _VALUES[kind] for kind in kinds}
        if "table" in kinds:
            duck.run("INSERT INTO s.t VALUES (10)")
            assert duck.value(f"SELECT sum(a) FROM s.t AT (VERSION => {dropped})") == 3
            assert duck.value("SELECT sum(a) FROM s.t") == 13


def test_repair_on_every_database(lake_address: LakeAddress) -> None:
    with DuckLake.create(lake_address.url, data_path=lake_address.data_path) as lake:
        lake.create_schema("s")
        lake.write("s.t", pa.table({"a": [1, 2]}))
        spoiled = DamagedLake(lake_address)
        spoiled.edit("UPDATE ducklake_schema SET end_snapshot = 2 WHERE schema_name = 's'")
        assert lake.check(repair=True).by_code == {"schema-missing": 1}
        assert lake.check(level="rows").findings == ()
        assert lake.table("s.t").scan().to_arrow()["a"].to_pylist() == [1, 2]
    if lake_address.backend != "mysql":
        with attached(lake_address) as duck:
            assert duck.value("SELECT sum(a) FROM s.t") == 3


def test_a_repaired_schema_avoids_taken_names(sqlite_address: LakeAddress) -> None:
    dropped = drop_schema(sqlite_address, ["table", "view"])
    with DuckLake.connect(sqlite_address.url) as lake:
        lake.create_schema("S")
        lake.write("S.t", pa.table({"a": [5]}))
        done = lake.check(repair=True)
        assert done.repairs == (f"undid the drop of schema s_2 at snapshot {dropped}, because it is not empty",)
        assert lake.check(level="rows").findings == ()
    with attached(sqlite_address) as duck:
        assert (duck.value("SELECT sum(a) FROM s.t"), duck.value("SELECT sum(a) FROM s_2.t"), duck.value("SELECT a FROM s_2.v")) == (
            5,
            3,
            7,
        )


def test_a_schema_without_a_row_is_not_repaired(sqlite_address: LakeAddress) -> None:
    drop_schema(sqlite_address, ["table"])
    DamagedLake(sqlite_address).edit("DELETE FROM ducklake_schema WHERE schema_name = 's'")
    with DuckLake.connect(sqlite_address.url) as lake:
        found = lake.check(repair=True)
        assert [finding.is_repairable for finding in found] == [False]
        assert found.repair_snapshot_id is None


def test_a_schema_that_was_created_during_the_check_keeps_its_name(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    drop_schema(sqlite_address, ["table"])
    from ducklake_core.maintenance.check import run

    carry_out = run.carry_out

    def create_first(*args: Any) -> Any:
        with DuckLake.connect(sqlite_address.url) as other:
            other.create_schema("s")
        return carry_out(*args)

    with DuckLake.connect(sqlite_address.url) as lake:
        monkeypatch.setattr(run, "carry_out", create_first)
        assert lake.check(repair=True).repairs == ()
        monkeypatch.undo()
        assert len(lake.check(repair=True).repairs) == 1
        assert lake.check(level="rows").findings == ()
        assert lake.table("s_2.t").scan().count() == 3


def test_expiry_keeps_the_row_that_a_repair_needs(sqlite_address: LakeAddress) -> None:
    drop_schema(sqlite_address, ["table"])
    with DuckLake.connect(sqlite_address.url) as lake:
        lake.expire_snapshots(keep_last=1, min_age=NOW)
        lake.check(repair=True)
        assert lake.check(level="rows").findings == ()
    with attached(sqlite_address) as duck:
        assert duck.value("SELECT sum(a) FROM s.t") == 3


def test_rows_of_a_dropped_table_end_with_it(sqlite_address: LakeAddress) -> None:
    """One file begins after the drop, as another writer committed it meanwhile: no snapshot shows it."""
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t AS SELECT 1 AS a", "INSERT INTO t VALUES (2)", "DROP TABLE t", "CREATE TABLE k AS SELECT 1 AS a")
    spoiled = DamagedLake(sqlite_address)
    table = int(spoiled.value("SELECT table_id FROM ducklake_table WHERE table_name = 't'"))
    newest = int(spoiled.value("SELECT max(snapshot_id) FROM ducklake_snapshot"))
    spoiled.edit(
        f"UPDATE ducklake_data_file SET end_snapshot = NULL WHERE table_id = {table}",
        f"UPDATE ducklake_column SET end_snapshot = NULL WHERE table_id = {table}",
        f"UPDATE ducklake_data_file SET begin_snapshot = {newest} WHERE table_id = {table} AND begin_snapshot > 1",
    )
    with DuckLake.connect(sqlite_address.url) as lake:
        found = lake.check(repair=True)
        assert set(found.by_code) == {"dropped-table-alive"}
        assert len(found.repairs) == 2
        assert lake.check(level="rows").findings == ()
        assert lake.table("t", at=2).scan().to_arrow()["a"].to_pylist() == [1]
        done = lake.expire_snapshots(keep_last=1, min_age=NOW)
        assert len(done.files) == 2
