"""A planned change feed: work units as picklable values, small enough to travel to executors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa

from ducklake_core.format.expressions.predicates import Predicate
from ducklake_core.format.files.data_files import ROW_ID_FIELD_ID, SNAPSHOT_ID_FIELD_ID, DataFile
from ducklake_core.format.types.arrow_types import to_arrow_schema
from ducklake_core.format.types.data_types import INT64, VARCHAR, Field
from ducklake_core.format.types.schema import Schema
from ducklake_core.planning.plan import ScanProjection

FeedKind: TypeAlias = Literal["insertions", "deletions", "changes"]

SNAPSHOT_ID = Field(id=SNAPSHOT_ID_FIELD_ID, name="snapshot_id", type=INT64)
ROW_ID = Field(id=ROW_ID_FIELD_ID, name="rowid", type=INT64)
# The specification reserves no id for it, as no file holds it; it only has to differ from those of columns.
CHANGE_TYPE = Field(id=-1, name="change_type", type=VARCHAR)
FEED_COLUMN_IDS = frozenset({SNAPSHOT_ID.id, ROW_ID.id, CHANGE_TYPE.id})

INSERT, DELETE = "insert", "delete"
POSTIMAGE, PREIMAGE = "update_postimage", "update_preimage"


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertedRows:
    """Read the rows of a data file that the range added.

    Attributes:
        may_update: Whether a row of it may be the postimage of an update.
        rows: As in ``FileTask``.
    """

    file: DataFile
    may_update: bool = False
    rows: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedRows:
    """Read the rows of a data file that the range deleted.

    Attributes:
        file: The file with every delete file that it had up to the end of the range.
        inlined: (position, snapshot) of deletes that the catalog holds.
        ended: The snapshot of the range that deleted all rows that were left.
        may_update: Whether a row of it may be the preimage of an update.
        rows: As in ``FileTask``.
    """

    file: DataFile
    inlined: tuple[tuple[int, int], ...] = ()
    ended: int | None = None
    may_update: bool = False
    rows: tuple[int, int] | None = None


ChangeTask: TypeAlias = InsertedRows | DeletedRows


@dataclass(frozen=True, slots=True, kw_only=True)
class InlinedChanges:
    """Rows that travel in the plan: columns of the read schema, then row id and snapshot id."""

    rows: pa.Table
    deleted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedShape:
    """The part of a change feed that all its tasks share.

    Attributes:
        read: How table columns are read from files, at the end of the range.
        schema: Columns that tasks give: ``snapshot_id``, ``rowid``, in a feed of both kinds ``change_type``, then those of ``read``.
        start: First snapshot; ``end`` the last one, included.
        rewrites: Snapshots of the range that changed no row.
    """

    read: ScanProjection
    schema: Schema
    start: int
    end: int
    rewrites: tuple[int, ...] = ()

    def arrow_schema(self) -> pa.Schema:
        """Schema of the batches of a task."""
        return feed_arrow_schema(self.schema)

    def in_range(self, snapshots: np.ndarray) -> np.ndarray:
        """Which of the snapshot ids belong to the feed."""
        mask = (snapshots >= self.start) & (snapshots <= self.end)
        return mask & ~np.isin(snapshots, self.rewrites) if self.rewrites else mask


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePlan:
    """A planned change feed: files and inlined rows to read.

    Attributes:
        kind: Which of the three feeds.
        shape: What all tasks share.
        schema: Columns to return, in order.
        predicate: Rows to keep of the finished feed, bound to ``shape.schema``; None for all.
        tasks: Data files to read.
        inlined: Rows that are in the catalog.
        updates: Snapshots that both add and delete rows, so that one row may be an update: (first, last) pairs, ascending. Empty
            except in a feed of both kinds.
        pruned: Number of files that were left out because no row of them can satisfy the predicate.
    """

    kind: FeedKind
    shape: FeedShape
    schema: Schema
    predicate: Predicate | None = None
    tasks: tuple[ChangeTask, ...] = ()
    inlined: tuple[InlinedChanges, ...] = ()
    updates: tuple[tuple[int, int], ...] = ()
    pruned: int = 0


def feed_arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow form of a feed's columns."""
    # Without field ids on what is no column of the table: written to a file, they would be taken for stored row ids.
    return pa.schema(
        pa.field(column.name, field.type) if column.id in FEED_COLUMN_IDS else field
        for column, field in zip(schema, to_arrow_schema(schema), strict=True)
    )
