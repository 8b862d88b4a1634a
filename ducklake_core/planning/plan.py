"""Planned scans and change feeds as picklable values: files, inlined rows and virtual columns."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from ducklake_core.format.cache import Derived
from ducklake_core.format.expressions import pruning
from ducklake_core.format.expressions.predicates import Predicate
from ducklake_core.format.files.data_files import ROW_ID_FIELD_ID, SNAPSHOT_ID_FIELD_ID, ColumnStatistics, DataFile, WrittenFile
from ducklake_core.format.files.name_mapping import NameMapping
from ducklake_core.format.types.data_types import INT64, UINT64, VARCHAR, Field
from ducklake_core.format.types.schema import Schema, to_arrow_schema

FeedKind: TypeAlias = Literal["insertions", "deletions", "changes"]
FEED_SNAPSHOT_ID = Field(id=SNAPSHOT_ID_FIELD_ID, name="snapshot_id", type=INT64)
FEED_ROW_ID = Field(id=ROW_ID_FIELD_ID, name="rowid", type=INT64)
# The specification reserves no id for it, because no file stores it; the id only has to differ from those of columns.
CHANGE_TYPE = Field(id=-1, name="change_type", type=VARCHAR)
FEED_COLUMN_IDS = frozenset({FEED_SNAPSHOT_ID.id, FEED_ROW_ID.id, CHANGE_TYPE.id})

Span: TypeAlias = tuple[int, int]

# Negative ids cannot clash with a table's columns: ids in a catalog are positive.
ROW_ID = Field(id=-1, name="rowid", type=INT64)
SNAPSHOT_ID = Field(id=-2, name="snapshot_id", type=INT64)
FILE_NAME = Field(id=-3, name="filename", type=VARCHAR)
FILE_ROW_NUMBER = Field(id=-4, name="file_row_number", type=INT64)
FILE_INDEX = Field(id=-5, name="file_index", type=UINT64)
VIRTUAL_SCHEMA = Schema(columns=(ROW_ID, SNAPSHOT_ID, FILE_NAME, FILE_ROW_NUMBER, FILE_INDEX))
"""All virtual columns.

``rowid``: the row's id, which survives updates and compaction. ``snapshot_id``: the snapshot that added this version of the
row. ``filename``: full path of the data file. ``file_row_number``: the row's position in it. ``file_index``: number of the
file within one scan. For an inlined row, ``filename`` is the catalog table that holds it and ``file_row_number`` its row id.
"""
VIRTUAL_COLUMNS = VIRTUAL_SCHEMA.names

InlinedColumn: TypeAlias = Literal["rowid", "snapshot_id", "inlined_table", "file_index"]
_ORDER: tuple[InlinedColumn, ...] = ("rowid", "snapshot_id", "inlined_table", "file_index")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask:
    """Read one data file.

    A plan holds one task for each file, up to a million of them, so that the fields are few and small.

    Attributes:
        file: The file with everything that hides rows of it.
        snapshot_filter: When set, only rows whose embedded snapshot id is at most this are visible.
        native_obstacle: Why Spark's own Parquet reader does not give exactly the right rows and types for this projection; None when it
            does.
        trusts_bounds: Whether Spark's reader may skip parts of the file by the bounds in its footer.
        all_rows_match: Whether statistics prove that every row satisfies the predicate, so that none need be evaluated.
        rows: When set, a part of the file: the row groups that begin at a position from the first number up to, but not including,
            the second.
        index: Index of the file in the plan; 0 unless the scan reads ``file_index``, because an integer takes as much memory as four
            fields.
    """

    file: DataFile
    snapshot_filter: int | None = None
    native_obstacle: str | None = "it was not checked whether Spark can read the file"
    trusts_bounds: bool = True
    all_rows_match: bool = False
    rows: tuple[int, int] | None = None
    index: int = 0

    @property
    def native(self) -> bool:
        """Return whether Spark's own Parquet reader may read the file."""
        return self.native_obstacle is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLifetime:
    """A top-level column, the snapshot that added it and the one that dropped it (None if the table still has it)."""

    column_id: int
    begin_snapshot: int = 0
    end_snapshot: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanProjection:
    """The part of a scan that all its tasks share: small and picklable, as it travels with each of them.

    Attributes:
        table: ``schema.table`` for messages.
        snapshot_id: The snapshot that is read.
        schema: Columns to return.
        read_schema: Columns to read: those to return and those that the predicate needs.
        virtual: Virtual columns to return after the columns.
        predicate: Rows to keep; None for all.
        prunes_only: Whether the predicate only skips row groups, because the caller checks each row; False by default.
        column_lifetimes: The top-level columns of the table in order, including dropped ones if files may be older than the drop,
            because files without field ids are mapped by position.
        mappings: Name mappings of those files that have one.
        derived: What readers derive from it, such as layouts of files.
    """

    table: str
    snapshot_id: int
    schema: Schema
    read_schema: Schema
    virtual: tuple[str, ...] = ()
    predicate: Predicate | None = None
    prunes_only: bool = False
    column_lifetimes: tuple[ColumnLifetime, ...] = ()
    mappings: tuple[NameMapping, ...] = ()
    derived: Derived = field(default_factory=Derived, init=False, repr=False, compare=False)

    def filter_of(self, task: FileTask) -> Predicate | None:
        """Return the predicate to evaluate for the rows of a file; None for none."""
        return None if task.all_rows_match or self.prunes_only else self.predicate

    def positions_at(self, snapshot_id: int) -> dict[int, int]:
        """Return the index of each column among those that the table had at a snapshot, by column id."""
        lives = (
            life
            for life in self.column_lifetimes
            if life.begin_snapshot <= snapshot_id and (life.end_snapshot is None or snapshot_id < life.end_snapshot)
        )
        return {life.column_id: place for place, life in enumerate(lives)}

    @property
    def read_virtual(self) -> tuple[str, ...]:
        """Return the virtual columns to compute: those to return, then those that only the predicate needs."""
        return (*self.virtual, *(name for name in needed_virtual(self.predicate) if name not in self.virtual))

    def virtual_column(self, batch: pa.RecordBatch, name: str) -> pa.Array[Any]:
        """Return a virtual column of a batch of this scan, by index, because a table may have a column of the same name."""
        return batch.column(len(self.schema) + self.virtual.index(name))

    def arrow_schema(self) -> pa.Schema:
        """Return the schema of the batches that the scan returns."""
        return _arrow_schema(self.schema, self.virtual)


def _arrow_schema(schema: Schema, virtual: tuple[str, ...]) -> pa.Schema:
    columns = [field.remove_metadata() for field in to_arrow_schema(VIRTUAL_SCHEMA.select(virtual))]
    return pa.schema([*to_arrow_schema(schema), *columns])


@dataclass(frozen=True, slots=True, kw_only=True)
class PruningReport:
    """The numbers of live files that were considered, kept, and pruned by partition values, by statistics, or by a limit of rows."""

    files_total: int
    files_kept: int
    pruned_by_partition: int = 0
    pruned_by_statistics: int = 0
    not_needed_for_limit: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """A planned scan: files and inlined rows to read.

    Attributes:
        table: ``schema.table`` for messages.
        snapshot_id: The snapshot that is read.
        schema: Columns to return, in order; virtual columns are listed apart.
        read_schema: Columns to read from files: the projection and what the predicate needs.
        virtual: Virtual columns to return after the columns.
        predicate: Rows to keep, bound to ``read_schema``; None for all.
        tasks: Files to read.
        inlined: Inlined rows that are visible at the snapshot, not yet filtered: columns of ``read_schema``, then ``rowid``,
            ``snapshot_id``, ``inlined_table`` (the physical table that holds the row) and ``file_index`` (its number, after
            those of the files); None when there are none.
        pruning: Numbers of skipped files, by reason.
    """

    table: str
    snapshot_id: int
    schema: Schema
    read_schema: Schema
    virtual: tuple[str, ...] = ()
    predicate: Predicate | None = None
    tasks: tuple[FileTask, ...] = ()
    inlined: pa.Table | None = None
    pruning: PruningReport
    column_lifetimes: tuple[ColumnLifetime, ...] = ()
    mappings: tuple[NameMapping, ...] = ()

    @property
    def shape(self) -> ScanProjection:
        """Return the projection that every task needs."""
        return ScanProjection(
            table=self.table,
            snapshot_id=self.snapshot_id,
            schema=self.schema,
            read_schema=self.read_schema,
            virtual=self.virtual,
            predicate=self.predicate,
            column_lifetimes=self.column_lifetimes,
            mappings=self.mappings,
        )


def empty_plan(table: str, snapshot_id: int, schema: Schema) -> ScanPlan:
    """Return a scan of a table that has no files yet.

    Args:
        table: ``schema.table`` for messages.
        snapshot_id: The snapshot that is read.
        schema: Columns to return.
    """
    report = PruningReport(files_total=0, files_kept=0)
    return ScanPlan(table=table, snapshot_id=snapshot_id, schema=schema, read_schema=schema, virtual=("file_row_number",), pruning=report)


def written_plan(plan: ScanPlan, columns: Sequence[str], directory: str, files: Sequence[WrittenFile]) -> ScanPlan:
    """Return a scan of files that are written to the same table but not committed.

    Args:
        plan: A scan of the table with at least these columns.
        columns: Names to return.
        directory: Full directory of the table, with a trailing slash.
        files: The files, which hold these columns in their present types.
    """
    schema = plan.read_schema.select(columns)
    tasks = tuple(FileTask(file=_uncommitted(file, number, directory, plan.snapshot_id)) for number, file in enumerate(files))
    report = PruningReport(files_total=len(tasks), files_kept=len(tasks))
    return replace(plan, schema=schema, read_schema=schema, virtual=(), predicate=None, tasks=tasks, inlined=None, pruning=report)


def _uncommitted(file: WrittenFile, number: int, directory: str, snapshot_id: int) -> DataFile:
    # Negative ids and the next snapshot mark files that the catalog does not have: nothing looks up their deletes or statistics.
    return DataFile(
        id=-1 - number,
        table_id=-1,
        directory=directory,
        relative_path=file.path,
        record_count=file.record_count,
        file_size_bytes=file.file_size_bytes,
        footer_size=file.footer_size,
        row_id_start=None,
        begin_snapshot=snapshot_id + 1,
        encryption_key=file.encryption_key,
        row_group_count=file.row_group_count,
    )


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
        """Return the schema of the batches of a task."""
        return feed_arrow_schema(self.schema)

    def in_range(self, snapshots: np.ndarray) -> np.ndarray:
        """Return for each snapshot id whether it belongs to the feed."""
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
    """Return the Arrow form of a feed's columns."""
    # Feed columns get no field ids: written to a file, a reader would take them for stored row ids.
    return pa.schema(
        pa.field(column.name, field.type) if column.id in FEED_COLUMN_IDS else field
        for column, field in zip(schema, to_arrow_schema(schema), strict=True)
    )


def common(left: Iterable[Span], right: Iterable[Span]) -> tuple[Span, ...]:
    """Return the intersection of both, ascending and disjoint.

    >>> common([(1, 4), (6, 9)], [(3, 7), (9, 9)])
    ((3, 4), (6, 7), (9, 9))
    """
    found: list[Span] = []
    ones, others = _merged(left), _merged(right)
    while ones and others:
        first, last = max(ones[0][0], others[0][0]), min(ones[0][1], others[0][1])
        if first <= last:
            found.append((first, last))
        (ones if ones[0][1] <= others[0][1] else others).popleft()
    return tuple(found)


def _merged(spans: Iterable[Span]) -> deque[Span]:
    merged: deque[Span] = deque()
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def covered(spans: Sequence[Span], snapshots: np.ndarray) -> np.ndarray:
    """Return for each snapshot id whether it lies in one of the ascending, disjoint pairs.

    >>> covered([(1, 2), (5, 5)], np.array([0, 2, 4, 5, 6])).tolist()
    [False, True, False, True, False]
    """
    if not spans:
        return np.zeros(len(snapshots), dtype=bool)
    # The last pair that begins at or before an id is the only one that can contain it; -1 if all begin later.
    firsts, lasts = (np.array(ends) for ends in zip(*spans, strict=True))
    place = np.searchsorted(firsts, snapshots, side="right") - 1
    return (place >= 0) & (snapshots <= lasts[place])


def meet(spans: Sequence[Span], others: Iterable[Span]) -> bool:
    """Return whether ascending, disjoint pairs have a snapshot in common with any of the others.

    >>> meet([(1, 2), (5, 5)], [(3, 4)]), meet([(1, 2), (5, 5)], [(3, 4), (4, 5)])
    (False, True)
    """
    for first, last in others:
        # The pairs are disjoint, so that the last one to begin before the end of the other span also ends last.
        place = bisect_right(spans, last, key=lambda span: span[0]) - 1
        if place >= 0 and spans[place][1] >= first:
            return True
    return False


def with_virtual(table: Schema) -> Schema:
    """Return the columns that a predicate on a table may name: its own, and the virtual ones that they do not hide."""
    return Schema(columns=(*table.columns, *(column for column in VIRTUAL_SCHEMA if table.find(column.name) is None)))


def needed_virtual(predicate: Predicate | None) -> tuple[str, ...]:
    """Return the names of the virtual columns that a predicate reads."""
    ids = frozenset() if predicate is None else pruning.columns(predicate)
    return tuple(column.name for column in VIRTUAL_SCHEMA if column.id in ids)


def virtual_statistics(file: DataFile) -> dict[int, ColumnStatistics]:
    """Return the bounds of a file's virtual columns, in the form of column statistics."""
    newest = file.begin_snapshot if file.partial_max is None else file.partial_max
    # Only a file in its first form has no stored snapshot ids. A rewritten file begins at the rewrite, but its rows keep older ids.
    plain = file.partial_max is None and file.row_id_start is not None
    return {
        SNAPSHOT_ID.id: _statistics(SNAPSHOT_ID, file, low=str(newest) if plain else None, high=str(max(newest, file.begin_snapshot))),
        FILE_NAME.id: _statistics(FILE_NAME, file, low=file.path, high=file.path),
    }


def _statistics(column: Field, file: DataFile, *, low: str | None, high: str) -> ColumnStatistics:
    return ColumnStatistics(
        column_id=column.id, column_size_bytes=0, value_count=file.record_count, null_count=0, min_value=low, max_value=high
    )


def limited_plan(plan: ScanPlan, most: int) -> ScanPlan:
    """Return a plan with the fewest files that, by the catalog's counts, surely hold ``most`` matching rows.

    A file is left out only if the files before it surely have enough rows: the catalog counts their rows and deletes, and every row
    matches.
    """
    sure = plan.inlined.num_rows if plan.inlined is not None and plan.predicate is None else 0
    tasks: list[FileTask] = []
    for task in plan.tasks:
        if sure >= most:
            break
        tasks.append(task)
        sure += _sure_rows(task, filtered=plan.predicate is not None)
    report = replace(
        plan.pruning, files_kept=len(tasks), not_needed_for_limit=plan.pruning.not_needed_for_limit + len(plan.tasks) - len(tasks)
    )
    return replace(plan, tasks=tuple(tasks), inlined=plan.inlined if most else None, pruning=report)


def _sure_rows(task: FileTask, *, filtered: bool) -> int:
    """Return the minimum number of rows that a file gives."""
    if task.snapshot_filter is not None or (filtered and not task.all_rows_match):
        return 0
    deletes = task.file.delete_files
    # Without a count, a delete file may hide every row. Two delete files may hide the same rows, which only makes the sum too cautious.
    if any(one.delete_count <= 0 for one in deletes):
        return 0
    return max(0, task.file.record_count - sum(one.delete_count for one in deletes) - len(task.file.inlined_deletes))


def inlined_column(rows: pa.Table, read_schema: Schema, name: InlinedColumn) -> pa.ChunkedArray[Any]:
    """Return one of the columns that follow the table's own in ``ScanPlan.inlined``.

    They are found by index, because a table may have columns of the same names::

        | columns of read_schema | rowid | snapshot_id | inlined_table | file_index |

    Args:
        rows: The inlined rows.
        read_schema: The columns of the table that were read.
        name: The column; ``file_index`` exists once the planner has numbered the rows.
    """
    return rows.column(len(read_schema) + _ORDER.index(name))
