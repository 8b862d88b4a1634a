"""Every kind of damage of ``catalogue.py``: what a read answers, what a check finds, and what a repair makes of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError
from ducklake_core.maintenance.check.findings import CODES
from tests.property.hostile_catalogs.catalogue import ALL, FOUND, READ, READ_IN_SQLITE, Damage
from tests.property.hostile_catalogs.lake import DamagedLake, build
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import spread

Copies = Callable[[str], DamagedLake]
_STATISTICS = [one for one in READ if "stats" in one.name or "count" in one.name]
_REPAIRED = [one for one in FOUND if "repair=True" in CODES[one.codes.split()[0]].fix]
_TYPED = [one for one in ALL if one not in READ_IN_SQLITE]


def _migrated(address: LakeAddress) -> LakeAddress:
    build(address)
    with DuckLake.connect(address.url) as lake:
        lake.migrate("1.1")
    return address


# Reads: right rows for every filter, or the error that names the damage


@pytest.mark.parametrize("damage", spread(READ, 8), ids=str)
def test_reads(damage: Damage, damaged: DamagedLake) -> None:
    _read(damage, damaged)


@pytest.mark.parametrize("damage", spread(READ_IN_SQLITE, 8), ids=str)
def test_reads_of_cells_of_any_type(damage: Damage, damaged_sqlite: DamagedLake) -> None:
    _read(damage, damaged_sqlite)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [one for one in _STATISTICS if one.error is None], ids=str)
def test_reads_of_statistics_in_version_1_1(damage: Damage, copies: Callable[..., DamagedLake]) -> None:
    _read(damage, copies("sqlite", _migrated))


def _read(damage: Damage, lake: DamagedLake) -> None:
    damage.do(lake)
    if damage.error is None:
        lake.assert_right()
        return
    with pytest.raises(damage.error, match=damage.message.format(**lake.names)):
        lake.assert_right()


# Checks: each kind is found by its codes, and nothing else is


@pytest.mark.parametrize("damage", spread([*FOUND, *READ, *READ_IN_SQLITE], 40), ids=str)
def test_each_is_found(damage: Damage, damaged_sqlite: DamagedLake) -> None:
    _check(damage, damaged_sqlite)


@pytest.mark.slow
@pytest.mark.parametrize("damage", FOUND, ids=str)
def test_each_is_found_and_repaired_in_a_duckdb_file(damage: Damage, copies: Copies) -> None:
    lake = copies("duckdb")
    _check(damage, lake)
    if damage in _REPAIRED:
        _repair(damage, lake)


def _check(damage: Damage, lake: DamagedLake) -> None:
    damage.do(lake)
    if damage.codes == "?":
        with pytest.raises(DuckLakeError):
            lake.check(damage.level)
        return
    found = lake.check(damage.level)
    assert set(found.by_code) == set(damage.codes.split()), str(found)


def test_every_code_is_planted_and_documented() -> None:
    elsewhere = {"encryption-key-missing", "file-unreachable", "file-added-twice", "row-group-count", "value-out-of-range"}
    assert {code for damage in ALL for code in damage.codes.split() if code != "?"} | elsewhere == set(CODES)
    page = (Path(__file__).parents[3] / "docs" / "reference" / "check-findings.md").read_text()
    sections = re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    lists = {title.lower(): body for title, body in sections}
    for code, one in CODES.items():
        assert [title for title, body in lists.items() if f"`{code}`" in body] == [f"{one.severity}s"], code


# Repairs: what can be repaired is right afterwards, and no row has changed


@pytest.mark.parametrize("damage", spread(_REPAIRED, 11), ids=str)
def test_repairable_damage_is_repaired(damage: Damage, damaged_sqlite: DamagedLake) -> None:
    _repair(damage, damage.do(damaged_sqlite))


def _repair(damage: Damage, lake: DamagedLake) -> None:
    found = lake.check(damage.level, repair=True)
    if not any(finding.is_repairable for finding in found):
        assert (found.repairs, found.repair_snapshot_id) == ((), None)
        return
    assert found.repairs
    after = lake.check(damage.level)
    assert after.by_code == {}, str(after)
    assert after.snapshot_id == found.repair_snapshot_id == found.snapshot_id + 1
    lake.assert_right()


@pytest.mark.slow
@pytest.mark.parametrize("damage", _REPAIRED, ids=str)
def test_duckdb_reads_and_writes_what_was_repaired(damage: Damage, damaged_sqlite: DamagedLake) -> None:
    """Every row is found, whatever the statistics were before."""
    lake = damage.do(damaged_sqlite)
    if not lake.check("rows", repair=True).repairs:
        return
    with attached(lake.address) as duck:
        assert duck.value("SELECT count(*) FROM t WHERE a = 149") == 1
        assert duck.value("SELECT count(*) FROM t WHERE a = 201") == 1
        assert duck.value("SELECT count(*) FROM n WHERE a IS NULL") == 1
        duck.run("INSERT INTO t SELECT i, 'z', 1 FROM range(300, 320) r(i)")
        assert duck.value("SELECT max(a) FROM t") == 319
    assert lake.check("rows").by_code == {}


@pytest.mark.slow
@pytest.mark.parametrize("damage", ALL, ids=str)
def test_a_repair_ends_in_findings_or_an_error_of_the_library(damage: Damage, copies: Copies) -> None:
    _hold(damage, copies("sqlite"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgresql", "duckdb"])
@pytest.mark.parametrize("damage", [one for one in _TYPED if one not in FOUND], ids=str)
def test_a_repair_in_typed_databases(damage: Damage, copies: Copies, kind: str) -> None:
    _hold(damage, copies(kind))


def _hold(damage: Damage, lake: DamagedLake) -> None:
    damage.do(lake)
    try:
        opened = DuckLake.connect(lake.address.url)
    except DuckLakeError:
        return
    with closing(opened):
        for repair in (False, True, False):
            try:
                found = opened.check(level="rows", repair=repair)
                str(found), found.to_arrow()
            except DuckLakeError as error:
                str(error)


def test_rows_of_a_table_whose_row_was_lost_are_not_dropped(lake_address: LakeAddress) -> None:
    """They may be the only copy; with the table's row from a backup everything is as it was."""
    build(lake_address)
    damaged = DamagedLake(lake_address)
    table = int(damaged.value("SELECT table_id FROM ducklake_table WHERE table_name = 's'"))
    with DuckLake.connect(lake_address.url) as lake:
        lake.table("s").append(pa.table({"a": [999], "b": ["kept"]}), inline=True)
        damaged.edit("CREATE TABLE saved AS SELECT * FROM ducklake_table", f"DELETE FROM ducklake_table WHERE table_id = {table}")
        damaged.edit("UPDATE ducklake_file_column_stats SET data_file_id = 888 WHERE data_file_id = 0")
        found = lake.check(repair=True)
        assert {"table-unknown", "statistics-orphaned"} <= set(found.by_code)
        assert len(found.repairs) == 1
        damaged.edit(f"INSERT INTO ducklake_table SELECT * FROM saved WHERE table_id = {table}", "DROP TABLE saved")
        assert lake.check(level="rows").by_code == {}
        assert lake.table("s").scan(where="a = 999").count() == 1
