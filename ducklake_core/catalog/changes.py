"""Changes to catalog rows as values: what resolution produces and the catalog writer executes, in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertRows:
    """Insert rows into a metadata table (name without the ``ducklake_`` prefix); all rows have the same keys."""

    table: str
    rows: tuple[Mapping[str, object], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRows:
    """Set columns of the rows where every key column equals its value, or is one of them when it is a tuple; None is IS NULL."""

    table: str
    where: Mapping[str, object]
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRows:
    """Delete the rows that match, as in :class:`UpdateRows`."""

    table: str
    where: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndInlinedRows:
    """Set ``end_snapshot`` of live rows, by row id, in one physical table of inlined rows."""

    table_name: str
    row_ids: tuple[int, ...]
    end_snapshot: int


CatalogChange: TypeAlias = InsertRows | UpdateRows | DeleteRows | EndInlinedRows
