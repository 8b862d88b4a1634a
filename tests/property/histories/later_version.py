"""Versions that the installed DuckDB does not know: a history that it has lived through goes on without it.

What the lake shows has been compared with DuckDB in the version before. It must show the same after the migration, to us and to a second
implementation, and after each of our verbs that changes no row.
"""

from __future__ import annotations

from random import Random
from typing import Literal

from ducklake_core import DuckLake
from tests.property.histories.actions import Upkeep
from tests.property.histories.play import Lake, shown
from tests.support.ducklakepy_lake import BACKENDS, compare_all, second_implementation
from tests.support.scans import counted

Version = Literal["1.0", "1.1"]
_VERBS = ("merge_adjacent_files", "flush_inlined_data", "rewrite_data_files", "checkpoint", "expire_snapshots", "cleanup_old_files")


def go_on(lake: Lake, version: Version, seed: int) -> int:
    """Migrate a lake in which DuckDB has no more to do, and go on; how many tables of snapshots both implementations have compared."""
    draw = Random(seed)
    before, codes = shown(lake.ours), _codes(lake.ours)
    lake.go_alone()
    if draw.random() < 0.5 or lake.address.backend not in BACKENDS:
        lake.ours.migrate(version)
    else:
        with second_implementation(lake.address, migrate=True):
            pass
    lake.ours.close()
    lake.ours = DuckLake.connect(lake.address.url)
    assert lake.ours.info.version == version
    assert shown(lake.ours) == before
    compared = compare_all(lake.ours, lake.address)[0]
    for verb in draw.sample(_VERBS, 3):
        versions = [snapshot.id for snapshot in lake.ours.snapshots()[:-1]]
        lake.perform(Upkeep(verb=verb, versions=tuple(draw.sample(versions, len(versions) // 3))))
    _append_to_each(lake.ours)
    assert _codes(lake.ours) <= codes
    return compared + compare_all(lake.ours, lake.address)[0]


def _codes(lake: DuckLake) -> set[str]:
    """What a check of all rows finds; our flush leaves empty tables of inlined rows behind (decision 64)."""
    return {finding.code for finding in lake.check(level="rows").findings} - {"inlined-table-dead"}


def _append_to_each(lake: DuckLake) -> None:
    """The rows of each table once more: every one of them twice then."""
    for info in lake.tables():
        rows = lake.table(info.table).scan().to_arrow()
        lake.write(info.table, rows)
        doubled = lake.table(info.table).scan().to_arrow()
        assert counted(doubled) == counted(rows) + counted(rows), info.table
