"""Whose rows a table holds: an asset replaces what it wrote itself, and not what another one wrote, unless it says that they share.

Every commit says which assets may have rows in the table after it, and where: what the newest of them says is enough, whatever happened
to files and to older snapshots since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ducklake_core import folded
from ducklake_core.errors import UsageError
from ducklake_dagster.provenance import AUTHOR, WRITERS, dagster_facts, writer_of
from ducklake_dagster.slice_bounds import ANYWHERE, SliceBounds, read_bounds

if TYPE_CHECKING:
    from ducklake_core import Snapshot, Table
    from ducklake_dagster.naming import TableAddress

REPLACED_MEANWHILE = "ducklake/replaced_meanwhile"
# A commit of Pipes does not know those before it; these are looked through.
_MOST_OF_PIPES = 100
# Of more writers than this it is only said that there are others.
_MOST_WRITERS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWriters:
    """Assets (and outputs of ops) that may have rows in a table, as far as snapshots that were not expired say.

    Attributes:
        slices: Where the rows of each may be.
        snapshot: The snapshot that the table was looked at, None when there was none.
        newest: The newest commit of any of them, None when none is known.
    """

    slices: Mapping[str, SliceBounds] = field(default_factory=dict)
    snapshot: int | None = None
    newest: Snapshot | None = None

    def refuse_to_replace_rows_of_others(self, address: TableAddress, writer: str, replaced: SliceBounds) -> None:
        """Refuse an overwrite of rows that another asset may have written.

        Args:
            address: The table.
            writer: The asset, or the op's output, that is about to replace rows.
            replaced: The rows.

        Raises:
            UsageError: There may be such rows.
        """
        others = sorted(name for name, written in self.slices.items() if name != writer and written.meets(replaced))
        if not others or self.newest is None:
            return
        more = f" and {len(others) - 1} others" if len(others) > 1 else ""
        raise UsageError(
            f"{writer} would overwrite rows of table {address} that {others[0]}{more} wrote (as of snapshot {self.newest.id}): give one of "
            "them a table of its own with metadata table= or schema=. If they are meant to share the table, or the asset was renamed, set "
            "shared=True in the metadata of this one",
            table=str(address),
            snapshot_id=self.newest.id,
            writer=others[0],
        )

    def after(self, writer: str, written: SliceBounds, *, overwrites: bool) -> dict[str, Any]:
        """What the commit of an asset is to say about the table.

        Args:
            writer: The asset.
            written: Where its rows are.
            overwrites: Whether all rows that were there go.
        """
        kept = ((name, found.without(written) if overwrites else found) for name, found in self.slices.items())
        slices = {name: found for name, found in kept if found is not None}
        slices[writer] = slices[writer].union(written) if writer in slices else written
        if len(slices) > _MOST_WRITERS:
            slices = dict.fromkeys(sorted(slices)[:_MOST_WRITERS], ANYWHERE)
        known = {} if self.snapshot is None else {"at": self.snapshot}
        return {**known, "wrote": written.to_json(), "slices": {name: found.to_json() for name, found in slices.items()}}


def table_writers(table: Table | None, address: TableAddress) -> TableWriters:
    """The assets that may have rows in a table: one statement, or two where commits were made while the newest one was, or where Pipes
    made it; three where both are so.

    Commits that no output of Dagster made, such as those of DuckDB, are nobody's. Of a commit by an earlier version of this library,
    which said nothing about those before it, only its own asset is known.

    Args:
        table: The table, None when it does not exist yet.
        address: Its name.
    """
    if table is None:
        return TableWriters()
    newest = table.last_row_change(author=AUTHOR)
    if newest is None:
        return TableWriters(snapshot=table.snapshot_id)
    name = str(address)
    commits = table.row_changes(author=AUTHOR, limit=_MOST_OF_PIPES) if _is_of_pipes(newest) else [newest]
    told = next((commit for commit in commits if not _is_of_pipes(commit)), None)
    record = _record(told, name) if told is not None else None
    if told is not None:
        commits = [commit for commit in commits if commit.id >= told.id]
        if record is not None and record.misses_commits_before(told, table):
            commits = table.row_changes(-1 if record.snapshot is None else record.snapshot, author=AUTHOR)
    slices = dict(record.slices) if record is not None else {}
    for writer, written in filter(None, (_written(commit, name) for commit in commits)):
        slices[writer] = slices[writer].union(written) if writer in slices else written
    return TableWriters(slices=slices, snapshot=table.snapshot_id, newest=newest)


def replaced_meanwhile(table: Table, address: TableAddress, writer: str, replaced: SliceBounds, commit: int) -> list[str]:
    """Commits of other assets that an overwrite replaced because they came after it had looked, and before it was committed.

    Args:
        table: The table, as it was when its writers were asked for.
        address: Its name.
        writer: The asset that has overwritten rows.
        replaced: The rows.
        commit: Its snapshot.
    """
    if commit <= table.snapshot_id + 1:
        return []
    between = [other for other in reversed(table.row_changes(table.snapshot_id, author=AUTHOR)) if other.id < commit]
    found = ((other.id, _written(other, str(address))) for other in between)
    return [f"{one[0]} (snapshot {number})" for number, one in found if one is not None and one[0] != writer and one[1].meets(replaced)]


def makes_table(commit: Snapshot, table: Table) -> bool:
    """Whether a commit made a table, under the name that it has now."""
    name = (folded(table.state.schema_name), folded(table.state.name))
    return any((folded(made.schema), folded(made.name)) == name for made in commit.change_set.created_table)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """What a commit says about the writers of a table: where it wrote itself, and all rows of itself and those up to ``snapshot``."""

    snapshot: int | None
    wrote: SliceBounds
    slices: Mapping[str, SliceBounds]

    def misses_commits_before(self, commit: Snapshot, table: Table) -> bool:
        """Whether there may be commits that it does not know of."""
        return not makes_table(commit, table) if self.snapshot is None else commit.id > self.snapshot + 1


def _record(commit: Snapshot, table: str) -> _Record | None:
    """None where a commit says nothing, or what nobody understands: anybody may commit any text."""
    facts = dagster_facts(commit)
    found = facts.get(WRITERS)
    if isinstance(facts.get("assets"), dict) and isinstance(found, dict):
        found = found.get(writer_of(commit, table))
    slices = found.get("slices") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(slices, dict):
        return None
    at = found.get("at")
    return _Record(
        snapshot=at if isinstance(at, int) else None,
        wrote=read_bounds(found.get("wrote")),
        slices={name: read_bounds(one) for name, one in slices.items()},
    )


def _is_of_pipes(commit: Snapshot) -> bool:
    return dagster_facts(commit).get("pipes") is True


def _written(commit: Snapshot, table: str) -> tuple[str, SliceBounds] | None:
    """The asset of a commit, and where the rows are that it wrote; None for nobody's."""
    writer, record = writer_of(commit, table), _record(commit, table)
    return None if writer is None else (writer, record.wrote if record is not None else ANYWHERE)
