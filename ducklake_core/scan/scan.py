"""A scan that has not run: what ``Table.scan`` returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from ducklake_core.catalog.reader import CatalogReader
from ducklake_core.catalog.state import TableState
from ducklake_core.format.predicates import Predicate
from ducklake_core.scan.native import prefers_arrow
from ducklake_core.scan.plan import ScanPlan
from ducklake_core.scan.planner import plan_scan
from ducklake_core.storage.filesystems import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Rows of a table at one snapshot; nothing is read before one of the ``to_`` methods runs.

    Every run plans anew, at the same snapshot: the same rows, as long as the snapshot is not expired and cleaned up.

    Attributes:
        table: The table at the snapshot to read.
        columns: Names to return in order, virtual columns included; None for all columns.
        where: Rows to keep: SQL text in DuckDB's dialect, or a predicate.
        reader: Opens a read transaction on the catalog.
        storage: How to open files.
        overlay: What an open transaction lays over each plan.
    """

    table: TableState
    columns: Sequence[str] | None = None
    where: str | Predicate | None = None
    reader: Callable[[], AbstractContextManager[CatalogReader]] = field(repr=False)
    storage: Storage = field(repr=False)
    overlay: Callable[[ScanPlan], ScanPlan] | None = field(default=None, repr=False)

    def plan(self) -> PlannedScan:
        """What the scan would read; printing it explains which files are left out and how the others are read.

        Raises:
            NotFoundError: An unknown column.
            UsageError: A column named twice, or none.
            UnsupportedFeatureError: A file that nobody here can read.
        """
        return PlannedScan(plan=self._plan(self.columns))

    def _plan(self, columns: Sequence[str] | None, virtual: Sequence[str] = ()) -> ScanPlan:
        with self.reader() as reader:
            plan = plan_scan(reader, self.table, columns, self.where, virtual=virtual)
        return plan if self.overlay is None else self.overlay(plan)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in Arrow batches; memory is bounded by a few batches. Planned when the first batch is asked for.

        Raises:
            UnsupportedFeatureError: The predicate needs a SQL engine: use :meth:`to_spark`.
        """
        from ducklake_core.arrow.read import read_plan

        plan = self.plan().plan
        names = self._names(plan)
        for batch in read_plan(plan, self.storage):
            yield batch.select(names)

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream with a known schema, for writers and engines that take one."""
        from ducklake_core.arrow.read import read_plan

        plan = self.plan().plan
        names = self._names(plan)
        schema = plan.shape.arrow_schema()
        batches = (batch.select(names) for batch in read_plan(plan, self.storage))
        return pa.RecordBatchReader.from_batches(pa.schema([schema.field(name) for name in names]), batches)

    def to_arrow(self) -> pa.Table:
        """All rows as one Arrow table, in no particular order."""
        return self.to_reader().read_all()

    def to_spark(self, session: SparkSession, *, exact: bool | None = None) -> DataFrame:
        """The rows as a lazy Spark DataFrame, classic or Connect; the catalog is asked now, the files are read later.

        Args:
            session: The session to read with.
            exact: Whether columns must have types that hold every value (docs/types.md); as the session's
                ``spark.ducklake.read.types`` says when None.
        """
        from ducklake_core.spark.read import read_plan

        plan = self.plan().plan
        frame = read_plan(plan, self.storage, session, exact=exact)
        names = self._names(plan)
        return frame if names == frame.columns else frame.select(*(_quoted(name) for name in names))

    def count(self) -> int:
        """Number of rows; the catalog alone answers where it can, without opening a file."""
        from ducklake_core.arrow.read import count_rows

        return count_rows(self._plan((), ("file_row_number",)), self.storage)

    def _names(self, plan: ScanPlan) -> list[str]:
        """Output names in the order that was asked for, virtual columns where they were named."""
        if self.columns is None:
            return [*plan.schema.names, *plan.virtual]
        found = {name.casefold(): name for name in (*plan.schema.names, *plan.virtual)}
        return [found[name.casefold()] for name in self.columns]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedScan:
    """A plan that prints itself: files in all, left out and why, and the way in which the others are read."""

    plan: ScanPlan

    def __str__(self) -> str:
        plan, report = self.plan, self.plan.pruning
        size = sum(task.file.file_size_bytes for task in plan.tasks)
        rows = sum(task.file.record_count for task in plan.tasks)
        lines = [
            f"scan of {plan.table} at snapshot {plan.snapshot_id}",
            f"  columns:  {', '.join((*plan.schema.names, *plan.virtual))}",
            f"  files:    {report.files_kept} of {report.files_total} ({size:,} bytes, {rows:,} rows before deletes)",
            f"  left out: {report.pruned_by_partition} by partition values, {report.pruned_by_statistics} by statistics",
        ]
        if plan.inlined is not None:
            lines.append(f"  inlined:  {plan.inlined.num_rows:,} rows in the catalog")
        if plan.predicate is not None:
            covered = sum(task.covered for task in plan.tasks)
            lines.append(f"  filter:   evaluated in {len(plan.tasks) - covered} files; {covered} match as a whole")
        ways = Counter(task.native_obstacle for task in plan.tasks)
        lines += [f"  {'Spark' if why is None else 'Arrow'}:    {n} files{'' if why is None else f': {why}'}" for why, n in ways.items()]
        if prefers_arrow([task.file.file_size_bytes for task in plan.tasks if task.native]):
            lines.append("            in Spark Connect all files with Arrow, as too many of them are small")
        return "\n".join(lines)

    __repr__ = __str__
