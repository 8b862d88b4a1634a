"""SQL conditions that every catalog query shares."""

from __future__ import annotations

from sqlalchemy import ColumnElement, FromClause, and_, func, or_

from ducklake_core.format.types.names import folded


def live(source: FromClause, snapshot_id: int) -> ColumnElement[bool]:
    """The row of a table with begin_snapshot and end_snapshot is visible at a snapshot: begin included, end excluded."""
    return and_(source.c.begin_snapshot <= snapshot_id, or_(source.c.end_snapshot.is_(None), source.c.end_snapshot > snapshot_id))


def live_or_unknown(source: FromClause, snapshot_id: int | ColumnElement[int], *, any_cell: bool) -> ColumnElement[bool]:
    """Rows that are visible at a snapshot, and those of which nobody can say it because they begin, or end, at no snapshot.

    The latter are in nobody's result otherwise: whoever fetches rows by this has to refuse them.

    Args:
        any_cell: Whether a cell of the database can hold anything, whatever the column's type is.
    """
    begin, end = source.c.begin_snapshot, source.c.end_snapshot
    nowhere = func.typeof(begin) != "integer" if any_cell else begin.is_(None)
    never = func.typeof(end) != "integer" if any_cell else end.is_(None)
    return and_(or_(begin <= snapshot_id, nowhere), or_(never, end > snapshot_id))


def may_be_named(column: ColumnElement[str], name: str) -> ColumnElement[bool]:
    """The name may be equal without regard to case; databases fold more letters than DuckDB, so :func:`same_name` decides."""
    return func.lower(column) == func.lower(name)


def same_name(left: str, right: str) -> bool:
    """Names as DuckDB compares them: only ASCII letters lose their case.

    >>> same_name("Flights", "FLIGHTS"), same_name("Ärger", "ärger")
    (True, False)
    """
    return folded(left) == folded(right)
