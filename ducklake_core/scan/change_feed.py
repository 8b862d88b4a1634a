"""A change feed that has not run: what ``Table.insertions``, ``deletions`` and ``changes`` return."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from ducklake_core.catalog.feed import Bound
from ducklake_core.catalog.reader import CatalogReader
from ducklake_core.catalog.state import TableState
from ducklake_core.format.predicates import Predicate
from ducklake_core.scan.change_plan import ChangePlan, DeletedRows, FeedKind, InsertedRows, feed_arrow_schema
from ducklake_core.scan.change_planner import plan_changes
from ducklake_core.storage.filesystems import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFeed:
    """What changed in a table; nothing is read before one of the ``to_`` methods runs.

    Columns are ``snapshot_id``, ``rowid``, for changes ``change_type``, then the table's as they are at the last snapshot.

    Attributes:
        table: The table at the last snapshot of the range.
        kind: ``insertions``, ``deletions``, or ``changes`` for both, with updates known as such.
        start: The first snapshot: its id, or a time, which means the first snapshot at or after it.
        columns: Names to return in order; None for all columns.
        where: Rows of the feed to keep: SQL text in DuckDB's dialect, or a predicate; may use the feed's own columns.
        reader: Opens a read transaction on the catalog.
        storage: How to open files.
    """

    table: TableState
    kind: FeedKind
    start: Bound
    columns: Sequence[str] | None = None
    where: str | Predicate | None = None
    reader: Callable[[], AbstractContextManager[CatalogReader]] = field(repr=False)
    storage: Storage = field(repr=False)

    def plan(self) -> PlannedFeed:
        """What the feed would read; printing it says how many files and inlined rows tell of changes.

        Raises:
            NotFoundError: An unknown column or snapshot, or a snapshot of the range was expired.
            UsageError: A column named twice, or none, or a time without a zone.
            UnsupportedFeatureError: A column of the table is called like one of the feed, or nobody here can read a file.
        """
        with self.reader() as reader:
            found = plan_changes(reader, self.table, self.kind, self.start, columns=self.columns, where=self.where)
        return PlannedFeed(plan=found)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The changes in Arrow batches, in no particular order. Planned when the first batch is asked for.

        Memory is bounded by a few batches; ``changes`` also holds up to 16 bytes for every row that was deleted by a snapshot
        which added rows too.

        Raises:
            UnsupportedFeatureError: The predicate needs a SQL engine: use :meth:`to_spark`.
        """
        from ducklake_core.arrow.feed import read_changes

        yield from read_changes(self.plan().plan, self.storage)

    def to_reader(self) -> pa.RecordBatchReader:
        """The changes as a stream with a known schema, for writers and engines that take one."""
        from ducklake_core.arrow.feed import read_changes

        plan = self.plan().plan
        return pa.RecordBatchReader.from_batches(feed_arrow_schema(plan.schema), read_changes(plan, self.storage))

    def to_arrow(self) -> pa.Table:
        """All changes as one Arrow table, in no particular order."""
        return self.to_reader().read_all()

    def to_spark(self, session: SparkSession) -> DataFrame:
        """The changes as a lazy Spark DataFrame, classic or Connect; the catalog is asked now, the files are read later."""
        from ducklake_core.spark.feed import read_changes

        return read_changes(self.plan().plan, self.storage, session)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFeed:
    """A planned feed that prints itself: its range, and what tells of changes in it."""

    plan: ChangePlan

    def __str__(self) -> str:
        plan, shape = self.plan, self.plan.shape
        added = [task for task in plan.tasks if isinstance(task, InsertedRows)]
        gone = [task for task in plan.tasks if isinstance(task, DeletedRows)]
        lines = [
            f"{plan.kind} of {shape.read.table} from snapshot {shape.start} to {shape.end}",
            f"  columns:  {', '.join(plan.schema.names)}",
            f"  added:    {len(added)} files ({sum(task.file.file_size_bytes for task in added):,} bytes)",
            f"  deleted:  in {len(gone)} files, of which {sum(task.ended is not None for task in gone)} ended as a whole",
        ]
        lines += [f"  inlined:  {one.rows.num_rows:,} rows {'deleted' if one.deleted else 'added'}" for one in plan.inlined]
        if plan.pruned:
            lines.append(f"  left out: {plan.pruned} files by partition values and statistics")
        if shape.rewrites:
            lines.append(f"  no news:  {len(shape.rewrites)} snapshots only moved rows to other files")
        if plan.kind == "changes":
            paired = sum(task.may_update for task in plan.tasks)
            lines.append(f"  updates:  may be in {paired} of {len(plan.tasks)} files")
        return "\n".join(lines)

    __repr__ = __str__
