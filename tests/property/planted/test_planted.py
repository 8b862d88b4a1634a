"""Each planted fault is found by its code, and only these; what can be mended is gone after a repair, and no row has changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.maintenance.check.findings import CODES, CheckLevel
from tests.property.hostile_catalogs.spoiled import SpoiledLake
from tests.property.planted.lake import Planted, build
from tests.property.planted.plants import PLANTS, Plant
from tests.support.oracle import LakeAddress, attached, file_lake, sqlite_lake
from tests.support.parameters import on_all_catalogs, spread


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> LakeAddress:
    return build(sqlite_lake(tmp_path_factory.mktemp("planted")))


_DEEP = frozenset(
    {
        "file-missing",
        "file-size",
        "footer-unreadable",
        "footer-size",
        "record-count",
        "file-differs",
        "mapping-missing",
        "row-ids-missing",
        "snapshot-ids-missing",
        "rows-unreadable",
    }
    | {"delete-file-invalid", "null-not-allowed", "row-id-twice", "snapshot-ids-wrong", "orphaned-file", "foreign-file"}
)
"""Codes that the catalog alone does not give."""


def _level(plant: Plant) -> CheckLevel:
    """The level that it takes to find it."""
    by_files = plant.code in _DEEP or plant.change is not None or plant.name in _BY_FILES
    return "rows" if by_files and plant.level == "rows" else "catalog"


_BY_FILES = frozenset(
    {
        "fewer than there are",
        "inlined rows",
        "a year that statistics do not tell",
        "a NULL that is hidden",
        "a path that leaves the lake",
        "NaN is hidden",
        "a row that a delete file deletes",
        "from no column",
        "from no directory",
        "a maximum that is too small",
        "a minimum that is too great, of a text",
    }
)


@pytest.fixture
def plant_in(template: LakeAddress, tmp_path: Path) -> Callable[[Plant], Planted]:
    return lambda plant: _planted(plant, template, sqlite_lake(tmp_path))


def _planted(plant: Plant, template: LakeAddress, address: LakeAddress) -> Planted:
    lake = Planted.copy(template, address).edit(*plant.statements)
    if plant.change is not None:
        plant.change(lake)
    return lake


@pytest.fixture(scope="module")
def template_in_duckdb(tmp_path_factory: pytest.TempPathFactory) -> LakeAddress:
    return build(file_lake("duckdb", tmp_path_factory.mktemp("planted-duckdb")))


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS, ids=str)
def test_each_fault_is_found_in_a_duckdb_file(plant: Plant, template_in_duckdb: LakeAddress, tmp_path: Path) -> None:
    """And mended, where it can be."""
    lake = _planted(plant, template_in_duckdb, file_lake("duckdb", tmp_path))
    found = lake.check(plant.level)  # type: ignore[arg-type]
    assert set(found.by_code) == {plant.code, *plant.also}, str(found)
    if plant in _MENDED and any(finding.is_repairable for finding in found):
        assert lake.check(_level(plant), repair=True).repairs
        after = lake.check(plant.level)  # type: ignore[arg-type]
        assert after.by_code == {}, str(after)


@pytest.mark.parametrize("plant", spread(PLANTS, 45), ids=str)
def test_each_fault_is_found(plant: Plant, plant_in: Callable[[Plant], Planted]) -> None:
    found = plant_in(plant).check(_level(plant))
    assert set(found.by_code) == {plant.code, *plant.also}, str(found)


@pytest.mark.slow
@pytest.mark.parametrize("plant", [plant for plant in PLANTS if _level(plant) != plant.level], ids=str)
def test_looking_deeper_finds_nothing_else(plant: Plant, plant_in: Callable[[Plant], Planted]) -> None:
    found = plant_in(plant).check(plant.level)  # type: ignore[arg-type]
    assert set(found.by_code) == {plant.code, *plant.also}, str(found)


def test_every_code_is_planted() -> None:
    elsewhere = {"encryption-key-missing", "file-unreachable", "file-added-twice", "row-group-count", "value-out-of-range"}
    assert {plant.code for plant in PLANTS} | elsewhere == set(CODES)


def test_every_code_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "check-findings.md").read_text()
    for code, one in CODES.items():
        assert f"| `{code}` | {one.severity} | {one.meaning} |" in page


@on_all_catalogs
def test_rows_of_a_table_whose_row_was_lost_are_not_dropped(lake_address: LakeAddress) -> None:
    """They may be the only copy; with the table's row from a backup everything is as it was."""
    build(lake_address)
    spoiled = SpoiledLake(lake_address)
    table = int(spoiled.value("SELECT table_id FROM ducklake_table WHERE table_name = 's'"))
    with DuckLake.connect(lake_address.url) as lake:
        lake.table("s").append(pa.table({"a": [999], "b": ["kept"]}), inline=True)
        spoiled.edit("CREATE TABLE saved AS SELECT * FROM ducklake_table", f"DELETE FROM ducklake_table WHERE table_id = {table}")
        spoiled.edit("UPDATE ducklake_file_column_stats SET data_file_id = 888 WHERE data_file_id = 0")
        found = lake.check(repair=True)
        assert {"table-unknown", "statistics-orphaned"} <= set(found.by_code)
        assert len(found.repairs) == 1
        spoiled.edit(f"INSERT INTO ducklake_table SELECT * FROM saved WHERE table_id = {table}", "DROP TABLE saved")
        assert lake.check(level="rows").by_code == {}
        assert lake.table("s").scan(where="a = 999").count() == 1


_MENDED = [plant for plant in PLANTS if "mends it" in CODES[plant.code].mend]


@pytest.mark.parametrize("plant", spread(_MENDED, 11), ids=str)
def test_what_can_be_mended_is_mended(plant: Plant, plant_in: Callable[[Plant], Planted]) -> None:
    lake = plant_in(plant)
    found = lake.check(_level(plant), repair=True)
    if not any(finding.is_repairable for finding in found):
        assert (found.repairs, found.repair_snapshot_id) == ((), None)
        return
    assert found.repairs
    after = lake.check(_level(plant))
    assert after.by_code == {}, str(after)
    assert after.snapshot_id == found.repair_snapshot_id == found.snapshot_id + 1


@pytest.mark.slow
@pytest.mark.parametrize("plant", _MENDED, ids=str)
def test_duckdb_reads_and_writes_what_was_mended(plant: Plant, plant_in: Callable[[Plant], Planted]) -> None:
    """Every row is there, whatever statistics had told its filters."""
    lake = plant_in(plant)
    if not lake.check("rows", repair=True).repairs:
        return
    with attached(lake.address) as duck:
        assert duck.value("SELECT count(*) FROM t WHERE a = 149") == 1
        assert duck.value("SELECT count(*) FROM t WHERE a = 201") == 1
        assert duck.value("SELECT count(*) FROM n WHERE a IS NULL") == 1
        duck.run("INSERT INTO t SELECT i, 'z', 1 FROM range(300, 320) r(i)")
        assert duck.value("SELECT max(a) FROM t") == 319
    assert lake.check("rows").by_code == {}
