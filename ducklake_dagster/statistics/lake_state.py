"""Read the state of a lake for checks and sensors once, in a fixed number of catalog statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from ducklake_core import folded
from ducklake_core.errors import DuckLakeError

if TYPE_CHECKING:
    from ducklake_core import CheckResult, DuckLake, LakeHealth, Snapshot, TableHealth, TableStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeState:
    """The state of a lake at one snapshot.

    Attributes:
        lake: The lake, for values that statistics of the catalog do not contain.
        snapshot_id: The snapshot of ``statistics``, the newest when they were read.
        health: Sizes and gauges; ``now`` is the catalog's time.
        tables: Tables by folded name.
        snapshots: Unexpired snapshots that are not newer than ``snapshot_id``, ascending.
        row_changes: Snapshots that changed rows, by the id of the table.
        statistics: Statistics of the requested tables, by folded name.
        findings: Faults that ``lake.check()`` found; None when it did not run.
    """

    lake: DuckLake
    snapshot_id: int
    health: LakeHealth
    tables: Mapping[str, TableHealth]
    snapshots: Sequence[Snapshot]
    row_changes: Mapping[int, Sequence[Snapshot]]
    statistics: Mapping[str, TableStatistics] = field(default_factory=dict)
    findings: CheckResult | None = None

    @property
    def now(self) -> datetime:
        """Return the time of the read, by the catalog's clock."""
        return self.health.at

    def table(self, name: str) -> TableHealth | None:
        """Return a table by its name in any case; None when it does not exist."""
        return self.tables.get(folded(name))

    def statistics_of(self, name: str) -> TableStatistics | None:
        """Return statistics of a table by its name in any case; None when it does not exist or was not requested."""
        return self.statistics.get(folded(name))

    def before(self, snapshot_id: int) -> int | None:
        """Return the last unexpired snapshot before another one; None when there is none."""
        return next((one.id for one in reversed(self.snapshots) if one.id < snapshot_id), None)


def read_state(lake: DuckLake, columns: Mapping[str, Sequence[str]], *, findings: bool = False) -> LakeState:
    """Read the state of a lake.

    Args:
        lake: The lake.
        columns: Tables whose statistics are needed, each with the columns whose bounds and NULLs are needed.
        findings: Whether to run ``lake.check()``; False by default.
    """
    statistics = lake.statistics(columns)
    # Read after the statistics, so that the list has every snapshot of the statistics; newer ones are filtered out.
    snapshots = [one for one in lake.snapshots() if one.id <= statistics.snapshot_id]
    health = lake.health()
    return LakeState(
        lake=lake,
        snapshot_id=statistics.snapshot_id,
        health=health,
        tables={folded(one.table): one for one in health.tables},
        snapshots=snapshots,
        row_changes=_row_changes(snapshots),
        statistics={folded(one.name): one for one in statistics.tables},
        findings=lake.check() if findings else None,
    )


def _row_changes(snapshots: Sequence[Snapshot]) -> dict[int, list[Snapshot]]:
    found: dict[int, list[Snapshot]] = {}
    for snapshot in snapshots:
        try:
            changes = snapshot.change_set
        except DuckLakeError:
            # Another writer stored changes that this library cannot parse.
            continue
        kinds = (changes.inserted_into_table, changes.deleted_from_table, changes.inlined_insert, changes.inlined_delete)
        for table_id in {table_id for kind in kinds for table_id in kind}:
            found.setdefault(table_id, []).append(snapshot)
    return found
