"""Read the state of a lake for checks and sensors once, in a fixed number of catalog statements."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from ducklake_core import folded
from ducklake_core.errors import DuckLakeError

if TYPE_CHECKING:
    from ducklake_core import CheckResult, DuckLake, LakeHealth, Snapshot, TableHealth, TableStatistics


_FIRST_PAGE = 1000
# Each page begins at the newest snapshot again and is this many times as long as the one before.
_GROWTH = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeState:
    """The state of a lake at one snapshot.

    Attributes:
        lake: The lake, for values that statistics of the catalog do not contain.
        snapshot_id: The snapshot of ``statistics``, the newest when they were read.
        health: Sizes and gauges; ``now`` is the catalog's time.
        tables: Tables by folded name.
        history: Unexpired snapshots that are not newer than ``snapshot_id``.
        statistics: Statistics of the requested tables, by folded name.
        findings: Faults that ``lake.check()`` found; None when it did not run.
    """

    lake: DuckLake
    snapshot_id: int
    health: LakeHealth
    tables: Mapping[str, TableHealth]
    history: History
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


def read_state(lake: DuckLake, columns: Mapping[str, Sequence[str]], *, findings: bool = False) -> LakeState:
    """Read the state of a lake.

    Args:
        lake: The lake.
        columns: Tables whose statistics are needed, each with the columns whose bounds and NULLs are needed.
        findings: Whether to run ``lake.check()``; False by default.
    """
    statistics = lake.statistics(columns)
    health = lake.health()
    return LakeState(
        lake=lake,
        snapshot_id=statistics.snapshot_id,
        health=health,
        tables={folded(one.table): one for one in health.tables},
        history=History(lake, statistics.snapshot_id),
        statistics={folded(one.name): one for one in statistics.tables},
        findings=lake.check() if findings else None,
    )


class History:
    """The unexpired snapshots of a lake, newest first, read page by page as far back as they are needed.

    Args:
        lake: The lake.
        until: Id of the newest snapshot to return.
    """

    def __init__(self, lake: DuckLake, until: int) -> None:
        self._lake = lake
        self._until = until
        self._snapshots: list[Snapshot] = []
        self._row_changes: dict[int, list[Snapshot]] = {}
        self._page = _FIRST_PAGE
        self._is_complete = False

    def since(self, snapshot_id: int) -> Sequence[Snapshot]:
        """Return the snapshots after another one."""
        return self._snapshots[: self._place(snapshot_id + 1)]

    def before(self, snapshot_id: int) -> int | None:
        """Return the last snapshot before another one; None when there is none."""
        place = self._place(snapshot_id)
        return self._snapshots[place].id if place < len(self._snapshots) else None

    def row_changes(self, table_id: int, after: int = -1) -> Iterator[Snapshot]:
        """Yield the snapshots that changed rows of a table. Reads no further back than the caller iterates.

        Args:
            table_id: Id of the table.
            after: Id of the snapshot at which the search ends; by default it ends at the oldest snapshot.
        """
        place = 0
        while True:
            found = self._row_changes.get(table_id, ())
            if place < len(found):
                if found[place].id <= after:
                    return
                yield found[place]
                place += 1
            elif (self._snapshots and self._snapshots[-1].id <= after + 1) or not self._read_page():
                return

    def _place(self, snapshot_id: int) -> int:
        """Return the position of the first snapshot that is older than another one."""
        while not self._snapshots or self._snapshots[-1].id >= snapshot_id:
            if not self._read_page():
                break
        return bisect_right(self._snapshots, -snapshot_id, key=lambda one: -one.id)

    def _read_page(self) -> bool:
        """Read further back; return False when there are no more snapshots."""
        if self._is_complete:
            return False
        found = self._lake.snapshots(last=self._page)
        self._is_complete = len(found) < self._page
        self._page *= _GROWTH
        limit = self._snapshots[-1].id - 1 if self._snapshots else self._until
        for snapshot in reversed(found):
            if snapshot.id <= limit:
                self._snapshots.append(snapshot)
                self._note(snapshot)
        return True

    def _note(self, snapshot: Snapshot) -> None:
        try:
            changes = snapshot.change_set
        except DuckLakeError:
            # Another writer stored changes that this library cannot parse.
            return
        kinds = (changes.inserted_into_table, changes.deleted_from_table, changes.inlined_insert, changes.inlined_delete)
        for table_id in {table_id for kind in kinds for table_id in kind}:
            self._row_changes.setdefault(table_id, []).append(snapshot)
