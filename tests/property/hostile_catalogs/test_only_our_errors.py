"""Nothing but a DuckLakeError leaves a public call, whatever the catalog holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError
from tests.property.arguments.surface import FEW
from tests.property.hostile_catalogs.catalogue import DEEP, FOUND, HOSTILE, READ, READ_IN_SQLITE, Damage
from tests.property.hostile_catalogs.lake import DamagedLake
from tests.support.oracle import LakeAddress
from tests.support.parameters import spread

_READS = (
    "snapshots", "schemas", "tables", "views", "macros", "options", "scoped_options", "settings", "table_info", "has_table", "snapshot",
)  # fmt: skip


def _every_read(lake: DuckLake) -> Iterator[Any]:
    """Thunks of everything that reads, and then of some writes."""
    for name in _READS:
        arguments = ("r",) if name in ("table_info", "has_table") else ()
        yield lambda name=name, arguments=arguments: getattr(lake, name)(*arguments)
    yield lambda: lake.find_commit("c-1")
    yield lambda: lake.table("r").list_files()
    yield lambda: (lake.table("r").info(), lake.table("r").tags(), lake.table("r").column_tags(), lake.table("r").snapshots())
    yield lambda: (lake.table("r").options, lake.table("r").column_summaries(), lake.table("r").refresh())
    yield lambda: str(lake.table("r").scan(where="a > 3").plan())
    yield lambda: lake.table("r").scan(where="a > 3 AND b <> 'x'").to_arrow()
    yield lambda: lake.table("r").scan(columns=["rowid", "snapshot_id", "filename"]).to_arrow()
    yield lambda: lake.table("r").scan().count()
    yield lambda: lake.table("r").changes(1).to_arrow()
    yield lambda: lake.table("r").deletions(1).to_arrow()
    yield lambda: lake.expire_snapshots(older_than="0 days", min_age="0 days", dry_run=True)
    yield lambda: lake.cleanup_old_files(older_than="0 days", min_age="0 days", dry_run=True)
    yield lambda: lake.delete_orphaned_files(older_than="0 days", min_age="0 days", dry_run=True)
    yield lambda: lake.merge_adjacent_files(dry_run=True)
    yield lambda: lake.checkpoint(dry_run=True)
    yield lambda: lake.migrate(dry_run=True)
    yield lambda: (lake.health(), lake.health().to_openmetrics(), lake.health().to_arrow())
    yield lambda: lake.check(level="rows").to_arrow()
    yield lambda: lake.table("r").delete("a = 1", commit_id="c-2")
    yield lambda: lake.table("r").update({"b": "'z'"}, where="a = 5")
    yield lambda: lake.table("r").append(lake.table("r").scan().to_arrow())
    yield lambda: lake.table("r").add_column("fresh", "int")
    yield lambda: lake.merge_adjacent_files("r")
    yield lambda: lake.rewrite_data_files("r", delete_threshold=0)
    yield lambda: lake.flush_inlined_data("r")
    yield lambda: lake.expire_snapshots(older_than="0 days", min_age="0 days")
    yield lambda: lake.cleanup_old_files(older_than="0 days", min_age="0 days")
    yield lambda: lake.check(level="footers", repair=True)


def _hold(lake: DamagedLake, damage: Damage) -> None:
    damage.do(lake)
    try:
        opened = DuckLake.connect(lake.address.url)
    except DuckLakeError:
        return
    try:
        for work in _every_read(opened):
            try:
                str(work())
            except DuckLakeError as error:
                str(error)
    finally:
        opened.close()


@pytest.mark.parametrize("damage", spread(HOSTILE, 3), ids=str)
def test_hostile_catalogs(damage: Damage, damaged: DamagedLake) -> None:
    _hold(damaged, damage)


@pytest.mark.slow
@pytest.mark.parametrize("damage", READ, ids=str)
def test_damage_of_any_database(damage: Damage, damaged: DamagedLake) -> None:
    _hold(damaged, damage)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [*READ_IN_SQLITE, *FOUND], ids=str)
def test_damage_in_sqlite(damage: Damage, damaged_sqlite: DamagedLake) -> None:
    _hold(damaged_sqlite, damage)


def test_deep_json_in_the_catalog_stops_no_commit(lake_address: LakeAddress) -> None:
    """It failed every commit that met it, with its file left behind."""
    lake, other = (DuckLake.create(lake_address.url, data_path=lake_address.data_path), DuckLake.connect(lake_address.url))
    lake.write("t", FEW, inline=False)
    with lake.transaction(commit_id="mine") as tx:
        tx.append("t", FEW, inline=False)
        other.write("t", FEW, inline=False, extra_info=DEEP)
    assert lake.table("t").scan().count() == 3
    assert lake.find_commit("mine") == tx.result.snapshot
    names = {Path(file.path).name for file in lake.table("t").list_files()}
    assert {path.name for path in Path(lake_address.data_path).rglob("*.parquet")} == names
    for one in (lake, other):
        one.close()
