"""Define changes of catalog rows as values. Resolution produces them, and the catalog writer executes them in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ducklake_core.format.files.inlined_rows import InlinedRows
from ducklake_core.format.types.data_types import Field


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertRows:
    """Insert rows into a metadata table (name without the ``ducklake_`` prefix); all rows have the same keys."""

    table: str
    rows: tuple[Mapping[str, object], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRows:
    """Set columns of the rows that match every key column of ``where``: a value means =, a tuple means IN, None means IS NULL."""

    table: str
    where: Mapping[str, object]
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRows:
    """Insert copies of the rows that match (as in :class:`UpdateRows`), with other values in some columns."""

    table: str
    where: Mapping[str, object]
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateEach:
    """Update one row for each given row, matched by its key columns. All rows have the same keys, and no key column is None."""

    table: str
    key: tuple[str, ...]
    rows: tuple[Mapping[str, object], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRows:
    """Delete the rows that match, as in :class:`UpdateRows`."""

    table: str
    where: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOption:
    """Delete an option of one scope, in any spelling of its key. ``scope`` and ``scope_id`` are None for the lake."""

    key: str
    scope: str | None
    scope_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndInlinedRows:
    """Set ``end_snapshot`` of live rows, by row id, in one physical table of inlined rows."""

    table_name: str
    row_ids: tuple[int, ...]
    end_snapshot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateInlinedTable:
    """Create a physical table for inlined rows of a table with these top-level columns. Its registration is a separate row."""

    table_name: str
    columns: tuple[Field, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertInlinedRows:
    """Insert rows into one physical table of inlined rows.

    Attributes:
        columns: All of its columns, in order.
        rows: Their values, in their Python forms (see format/files/inlined_rows.py).
        row_ids: Row id of each row.
    """

    table_name: str
    columns: tuple[Field, ...]
    rows: InlinedRows
    row_ids: Sequence[int]
    begin_snapshot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InlinePositions:
    """Delete rows of data files through the catalog; the table of inlined deletes is created if it is missing.

    Attributes:
        table_id: The table.
        files: Data file ids with the positions to delete.
    """

    table_id: int
    files: tuple[tuple[int, tuple[int, ...]], ...]
    begin_snapshot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveInlinedRows:
    """Delete the rows that a physical table of inlined rows got up to a snapshot, except rows that ended after it.

    Attributes:
        until: Id of that snapshot.
        is_all: Whether these are all rows.
    """

    table_name: str
    until: int
    is_all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveInlinedDeletes:
    """Remove the inlined deletes of some data files, up to a snapshot."""

    table_id: int
    file_ids: tuple[int, ...]
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterInlinedTable:
    """Unregister a physical table of inlined rows if it is empty.

    The table itself stays: sessions of DuckDB that know it query it for earlier snapshots and fail without it. Maintenance drops it later.
    """

    table_id: int
    table_name: str


InlinedChange: TypeAlias = (
    EndInlinedRows
    | CreateInlinedTable
    | InsertInlinedRows
    | InlinePositions
    | RemoveInlinedRows
    | RemoveInlinedDeletes
    | UnregisterInlinedTable
)
"""Changes to physical tables of inlined rows and deletes."""
CatalogChange: TypeAlias = InsertRows | UpdateRows | CopyRows | UpdateEach | DeleteRows | DeleteOption | InlinedChange
