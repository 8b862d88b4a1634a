"""Build the SQL conditions that all catalog queries share: visibility at a snapshot, names, and long lists of ids."""

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
    """Return the condition that a row is visible at a snapshot: begin_snapshot inclusive, end_snapshot exclusive."""
    return and_(source.c.begin_snapshot <= snapshot_id, or_(source.c.end_snapshot.is_(None), source.c.end_snapshot > snapshot_id))


def live_or_unknown(source: FromClause, snapshot_id: int | ColumnElement[int], *, any_cell: bool) -> ColumnElement[bool]:
    """Return the condition that a row is visible at a snapshot, or that its begin or end is invalid.

    Invalid rows would otherwise disappear silently. The caller must check the values and raise an error.

    Args:
        source: Table with begin_snapshot and end_snapshot.
        snapshot_id: The snapshot.
        any_cell: Whether the database does not enforce the types of columns (SQLite).
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

    def has_entry(log: FromClause, *kinds: str) -> ColumnElement[bool]:
        text = literal(",") + func.coalesce(log.c.changes_made, "") + literal(",")
        return or_(*(text.contains(literal(f",{kind}:") + own + literal(",")) for kind in kinds))

    is_false = exists().where(
        claimed.c.snapshot_id == deletes.c.partial_max,
        claimed.c.next_file_id <= deletes.c.delete_file_id,
        changes.c.snapshot_id == claimed.c.snapshot_id,
        not_(has_entry(changes, *_DELETES)),
    )
    written = (
        select(func.min(later.c.snapshot_id))
        .where(later.c.snapshot_id > deletes.c.partial_max, later.c.next_file_id > deletes.c.delete_file_id)
        .scalar_subquery()
    )
    # Without the table id: DuckDB logs a flush only for tables with inlined rows, not for tables with inlined deletes only.
    is_flush = exists().where(changes.c.snapshot_id == written, changes.c.changes_made.contains("inline_flush:"))
    first_deletes = (
        select(func.min(deleting.c.snapshot_id))
        .where(deleting.c.snapshot_id > deletes.c.partial_max, has_entry(deleting, *_DELETES))
        .scalar_subquery()
    )
    return case(
        (and_(deletes.c.partial_max.is_not(None), is_false, is_flush), first_deletes),
        (and_(deletes.c.partial_max.is_not(None), is_false), written),
    ).label("committed_at")


def may_be_named(column: ColumnElement[str], name: str) -> ColumnElement[bool]:
    """Return the condition that a name may be equal, ignoring case. Databases fold more letters than DuckDB, so check :func:`same_name`."""
    return func.lower(column) == func.lower(name)


def same_name(left: str, right: str) -> bool:
    """Return whether two names are equal in DuckDB, which ignores the case of ASCII letters only.

    >>> same_name("Flights", "FLIGHTS"), same_name("Ärger", "ärger")
    (True, False)
    """
    return folded(left) == folded(right)


class _ListText(types.UserDefinedType[str]):
    """A list of numbers as SQL text. SQLAlchemy would render each number by itself, which takes milliseconds for a thousand."""

    cache_ok = True

    def get_col_spec(self, **_how: Any) -> str:
        return "BIGINT"

    def literal_processor(self, dialect: Dialect) -> Callable[[str], str]:  # noqa: ARG002 - SQLAlchemy's signature
        return str


def among(column: ColumnElement[int], ids: Collection[int]) -> ColumnElement[bool]:
    """Return the condition that a column is one of some ids, as literals, because databases limit the number of parameters."""
    text = ",".join([str(int(number)) for number in sorted(ids)])
    return column.in_(bindparam(None, [text] if ids else [], expanding=True, literal_execute=True, type_=_ListText()))
