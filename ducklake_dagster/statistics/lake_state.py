"""The state of a lake for checks and sensors, read once in a fixed number of catalog statements."""

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
    """All of it.

    Attributes:
        lake: The lake, for what the catalog's statistics cannot tell.
        snapshot_id: The newest snapshot, which ``statistics`` are of.
        health: Sizes and gauges; ``now`` is the catalog's time.
        tables: Tables by folded name. Likewise ``statistics``, of the tables that were asked for.
        snapshots: That were not expired and are not newer than ``snapshot_id``, ascending.
        row_changes: Those of them that changed rows, by the table's id.
        findings: What is not as it must be; None when nobody asked for it.
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
        """When it was read, by the catalog's clock."""
        return self.health.at

    def table(self, name: str) -> TableHealth | None:
        """A table by its name in any case; None when it is not there."""
        return self.tables.get(folded(name))

    def statistics_of(self, name: str) -> TableStatistics | None:
        """Statistics of a table, likewise."""
        return self.statistics.get(folded(name))

    def before(self, snapshot_id: int) -> int | None:
        """The last snapshot before another one that was not expired."""
        return next((one.id for one in reversed(self.snapshots) if one.id < snapshot_id), None)


def read_state(lake: DuckLake, columns: Mapping[str, Sequence[str]], *, findings: bool = False) -> LakeState:
    """Read the state of a lake.

    Args:
        lake: The lake.
        columns: Tables whose rows somebody asks about, each with the columns whose bounds and NULLs are wanted.
        findings: Whether the catalog is to be checked.
    """
    statistics = lake.statistics(columns)
    # Read afterwards, so that there is a snapshot for everything that the statistics name.
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
            # Another writer may have stored what nobody can read.
            continue
        kinds = (changes.inserted_into_table, changes.deleted_from_table, changes.inlined_insert, changes.inlined_delete)
        for table_id in {table_id for kind in kinds for table_id in kind}:
            found.setdefault(table_id, []).append(snapshot)
    return found
