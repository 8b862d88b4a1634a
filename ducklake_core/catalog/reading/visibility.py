"""SQL conditions that every catalog query shares: visibility at a snapshot, and long lists of ids."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ColumnElement,
    Dialect,
    FromClause,
    Label,
    String,
    and_,
    bindparam,
    case,
    cast,
    exists,
    func,
    literal,
    not_,
    or_,
    select,
    types,
)

from ducklake_core.format.types.names import folded

if TYPE_CHECKING:
    from ducklake_core.catalog.database.tables import CatalogTables


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


_DELETES = ("deleted_from_table", "inlined_delete")


def committed_at(tables: CatalogTables, deletes: FromClause) -> Label[int | None]:
    """Select the snapshot that committed a delete file whose newest deletes claim an earlier one, NULL when the claim holds.

    DuckDB 1.5.5 writes the snapshot of its first attempt into a cumulative delete file, and keeps it when the commit is retried and gets
    a later snapshot. The claim is false when the claimed snapshot existed before the file and deleted nothing from the table. The commit
    is then the one that wrote the file, or the first one after the claimed snapshot that deleted from the table if a flush wrote the
    file: it copies the deletes of earlier commits.

    Args:
        tables: The metadata tables.
        deletes: ``ducklake_delete_file``, in the statement that the column becomes part of.
    """
    snapshot, changes = tables["snapshot"], tables["snapshot_changes"]
    own = cast(deletes.c.table_id, String)
    claimed, later, deleting = snapshot.alias(), snapshot.alias(), changes.alias()

    def says(log: FromClause, *kinds: str) -> ColumnElement[bool]:
        text = literal(",") + func.coalesce(log.c.changes_made, "") + literal(",")
        return or_(*(text.contains(literal(f",{kind}:") + own + literal(",")) for kind in kinds))

    is_false = exists().where(
        claimed.c.snapshot_id == deletes.c.partial_max,
        claimed.c.next_file_id <= deletes.c.delete_file_id,
        changes.c.snapshot_id == claimed.c.snapshot_id,
        not_(says(changes, *_DELETES)),
    )
    written = (
        select(func.min(later.c.snapshot_id))
        .where(later.c.snapshot_id > deletes.c.partial_max, later.c.next_file_id > deletes.c.delete_file_id)
        .scalar_subquery()
    )
    # DuckDB's flush names only the tables that have inlined rows, not those of which it moves deletes alone.
    is_flush = exists().where(changes.c.snapshot_id == written, changes.c.changes_made.contains("inline_flush:"))
    first_deletes = (
        select(func.min(deleting.c.snapshot_id))
        .where(deleting.c.snapshot_id > deletes.c.partial_max, says(deleting, *_DELETES))
        .scalar_subquery()
    )
    return case(
        (and_(deletes.c.partial_max.is_not(None), is_false, is_flush), first_deletes),
        (and_(deletes.c.partial_max.is_not(None), is_false), written),
    ).label("committed_at")


def may_be_named(column: ColumnElement[str], name: str) -> ColumnElement[bool]:
    """The name may be equal without regard to case; databases fold more letters than DuckDB, so :func:`same_name` decides."""
    return func.lower(column) == func.lower(name)


def same_name(left: str, right: str) -> bool:
    """Names as DuckDB compares them: only ASCII letters lose their case.

    >>> same_name("Flights", "FLIGHTS"), same_name("Ärger", "ärger")
    (True, False)
    """
    return folded(left) == folded(right)


class _ListText(types.UserDefinedType[str]):
    """A list of numbers as SQL writes it. SQLAlchemy renders each number of a list by itself, which takes milliseconds for a thousand."""

    cache_ok = True

    def get_col_spec(self, **_how: Any) -> str:
        return "BIGINT"

    def literal_processor(self, dialect: Dialect) -> Callable[[str], str]:  # noqa: ARG002 - SQLAlchemy's signature
        return str


def among(column: ColumnElement[int], ids: Collection[int]) -> ColumnElement[bool]:
    """The condition that a column is one of some ids. They are part of the statement, since databases limit its parameters."""
    text = ",".join([str(int(number)) for number in sorted(ids)])
    return column.in_(bindparam(None, [text] if ids else [], expanding=True, literal_execute=True, type_=_ListText()))
