"""Read a table or its change feed lazily: :class:`Scan` and :class:`ChangeFeed`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from ducklake_core.catalog.feed import Bound
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.engines.arrow.readable import Readable, first_rows
from ducklake_core.errors import UsageError
from ducklake_core.format.arguments import none_means_default, row_count
from ducklake_core.format.expressions.predicates import Predicate
from ducklake_core.format.state import TableState
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.text import counted, visible
from ducklake_core.planning.explanation import Explanation, condition_text, explanation, pruned_files, scan_html, scan_text
from ducklake_core.planning.native import prefers_arrow
from ducklake_core.planning.plan import (
    ChangePlan,
    DeletedRows,
    FeedKind,
    InsertedRows,
    ScanPlan,
    ScanProjection,
    feed_arrow_schema,
    limited_plan,
    with_virtual,
)
from ducklake_core.planning.planner import feed_columns, plan_changes, plan_scan, scan_columns
from ducklake_core.planning.table_info import row_count_of_many_files
from ducklake_core.storage.filesystems import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ducklake_core.format.expressions.conditions import Column, Condition
    from ducklake_core.format.types.schema import Schema


@none_means_default
@dataclass(frozen=True, slots=True, kw_only=True)
class Scan(Readable):
    """The rows of a table at one snapshot, read when one of the ``to_`` methods is called.

    Every call plans the scan again at the same snapshot, so that it returns the same rows until the snapshot expires. A scan is also an
    Arrow stream (``__arrow_c_stream__``), which many libraries read directly.

    >>> import pyarrow as pa, tempfile
    >>> from ducklake_core import DuckLake
    >>> folder = tempfile.TemporaryDirectory()
    >>> lake = DuckLake.create(f"sqlite:///{folder.name}/lake.sqlite", data_path=f"{folder.name}/files/")
    >>> written = lake.write("flights", pa.table({"carrier": ["UA", "AA", "UA"], "delay": [12, -3, 7]}))
    >>> scan = lake.table("flights").scan(columns=["delay"], where="carrier = 'UA'")
    >>> scan
    <Scan of main.flights at snapshot 1: columns delay; where carrier = 'UA'>
    >>> scan.count(), scan.limit(1).count(), scan.to_arrow().to_pylist()
    (2, 1, [{'delay': 12}, {'delay': 7}])
    >>> int(scan.to_pandas()["delay"].sum()), pa.table(scan).num_rows, scan.to_duckdb().max("delay").fetchall()
    (19, 2, [(12,)])
    >>> lake.close(); folder.cleanup()

    Attributes:
        table: The table at the snapshot to read.
        columns: Names of the columns to return, in order, including virtual columns; None for all columns.
        where: Condition of the rows to return: SQL text in DuckDB's dialect, or a predicate.
        row_limit: Maximum number of rows to return; None for all. Set by :meth:`limit`.
        reader: Opens a read transaction on the catalog.
        storage: Opens files.
        overlay: Adds the changes of an open transaction to each plan.
        pushed: Further condition, from the query of a library that reads the rows lazily.
    """

    table: TableState
    columns: Sequence[str] | None = None
    where: str | Predicate | Condition | Column | None = None
    row_limit: int | None = None
    reader: Callable[[], AbstractContextManager[CatalogReader]] = field(repr=False)
    storage: Storage = field(repr=False)
    overlay: Callable[[ScanPlan], ScanPlan] | None = field(default=None, repr=False)
    pushed: Predicate | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return scan_text(self.table, self.columns, self.where, self.row_limit)

    def _repr_html_(self) -> str:
        return scan_html(self.table, self.columns, self.where, self.row_limit)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a new stream of the rows in Arrow's PyCapsule protocol. The scan is planned when the first batch is requested.

        Some libraries open several streams and read only the schema of most of them.
        """
        return pa.RecordBatchReader.from_batches(self._arrow_schema(), self.to_batches()).__arrow_c_stream__(requested_schema)

    def _arrow_schema(self) -> pa.Schema:
        """Return the schema of the rows, without a plan."""
        columns, virtual = scan_columns(self.table.schema, self.columns)
        schema = ScanProjection(
            table=self.table.qualified_name, snapshot_id=self.table.snapshot_id, schema=columns, read_schema=columns, virtual=virtual
        ).arrow_schema()
        names = schema.names if self.columns is None else self._ordered_names(schema.names)
        return pa.schema([schema.field(name) for name in names])

    def _lazy_columns(self) -> tuple[Schema, pa.Schema]:
        return with_virtual(self.table.schema), self._arrow_schema()

    def _selected(self, columns: Sequence[str], predicate: Predicate | None) -> pa.RecordBatchReader:
        # A limit counts rows before the condition of the query.
        return replace(self, columns=columns, pushed=predicate if self.row_limit is None else None).to_reader()

    def limit(self, n: int) -> Scan:
        """Return the same scan limited to ``n`` rows. No order is defined; files that are not needed are not opened.

        Args:
            n: Maximum number of rows.

        Raises:
            UsageError: ``n`` is not a number of rows.
        """
        most = row_count("n", n)
        return replace(self, row_limit=most if self.row_limit is None else min(most, self.row_limit))

    def head(self, n: int = 5) -> pa.Table:
        """Return any ``n`` rows as an Arrow table.

        Args:
            n: Maximum number of rows. Default: 5.
        """
        return self.limit(n).to_arrow()

    def explain(self) -> Explanation:
        """Return the plan as an object that prints which files are read or skipped, and why. Reads only the catalog.

        >>> import pyarrow as pa, tempfile
        >>> from ducklake_core import DuckLake
        >>> folder = tempfile.TemporaryDirectory()
        >>> lake = DuckLake.create(f"sqlite:///{folder.name}/lake.sqlite", data_path=f"{folder.name}/files/")
        >>> for delays in ([1, 4], [10, 20]):
        ...     written = lake.write("flights", pa.table({"delay": delays}), inline=False)
        >>> found = lake.table("flights").scan(where="delay > 5").explain()
        >>> [(file.kept, file.reason) for file in found.files]
        [(False, 'statistics: delay is 1 to 4, so never ("delay" > 5)'), (True, 'every row matches')]
        >>> lake.close(); folder.cleanup()

        Raises:
            NotFoundError: A column does not exist, or the snapshot has expired.
            UsageError: ``columns`` is empty or contains a column twice.
        """
        with self.reader() as reader:
            plan = plan_scan(reader, self.table, self.columns, self.where)
            pruned = pruned_files(reader, self.table, plan)
        whole = plan if self.overlay is None else self.overlay(plan)
        limited = whole if self.row_limit is None else limited_plan(whole, self.row_limit)
        return explanation(plan, whole, limited, self.row_limit, pruned)

    def plan(self) -> PlannedScan:
        """Plan the scan without reading rows. Printing the plan shows which files are skipped and how the other files are read.

        Raises:
            NotFoundError: A column does not exist.
            UsageError: ``columns`` is empty or contains a column twice.
            UnsupportedFeatureError: This library cannot read a file.
        """
        return PlannedScan(plan=self._plan(self.columns))

    def _plan(self, columns: Sequence[str] | None, virtual: Sequence[str] = ()) -> ScanPlan:
        with self.reader() as reader:
            plan = plan_scan(reader, self.table, columns, self.where, virtual=virtual, pushed=self.pushed)
        return self._finished(plan)

    def _finished(self, plan: ScanPlan) -> ScanPlan:
        plan = plan if self.overlay is None else self.overlay(plan)
        return plan if self.row_limit is None else limited_plan(plan, self.row_limit)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in Arrow batches. Memory is limited to a few batches. The scan is planned when the first batch is requested.

        Raises:
            UnsupportedFeatureError: Arrow cannot evaluate the condition. Read with :meth:`to_spark`.
        """
        yield from self._batches(self.plan().plan)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a ``RecordBatchReader``, a stream with a known schema."""
        plan = self.plan().plan
        schema = plan.shape.arrow_schema()
        return pa.RecordBatchReader.from_batches(pa.schema([schema.field(name) for name in self._names(plan)]), self._batches(plan))

    def _batches(self, plan: ScanPlan) -> Iterator[pa.RecordBatch]:
        from ducklake_core.engines.arrow.read import read_plan

        names = self._names(plan)
        batches = read_plan(plan, self.storage, ahead=self.row_limit is None)
        for batch in batches if self.row_limit is None else first_rows(batches, self.row_limit):
            yield batch.select(names)

    def to_spark(self, session: SparkSession, *, exact: bool | None = None) -> DataFrame:
        """Return the rows as a lazy Spark DataFrame, classic or Connect. The catalog is read now, the files when the DataFrame runs.

        Args:
            session: Spark session.
            exact: Whether to choose Spark types that represent every value (docs/reference/types.md). Default: the session's option
                ``spark.ducklake.read.types``.

        Raises:
            UnsupportedFeatureError: Spark cannot represent a column.
        """
        from ducklake_core.engines.spark.read import read_plan
        from ducklake_core.engines.spark.session import in_session_zone

        with in_session_zone(session):
            plan = self.plan().plan
        frame = read_plan(plan, self.storage, session, exact=exact)
        names = self._names(plan)
        frame = frame if names == frame.columns else frame.select(*(_quoted(name) for name in names))
        return _limited(frame, self.row_limit)

    def count(self) -> int:
        """Return the number of rows. Reads only the catalog if it has the number; otherwise it opens the files that it needs."""
        from ducklake_core.engines.arrow.read import count_rows

        with self.reader() as reader:
            if self.where is None and self.pushed is None and self.overlay is None:
                known = row_count_of_many_files(reader, self.table)
                if known is not None:
                    return known if self.row_limit is None else min(known, self.row_limit)
            plan = plan_scan(reader, self.table, (), self.where, virtual=("file_row_number",), pushed=self.pushed)
        return count_rows(self._finished(plan), self.storage, self.row_limit)

    def _names(self, plan: ScanPlan) -> list[str]:
        """Return the output columns in the requested order, with virtual columns only if requested."""
        if self.columns is None:
            return [*plan.schema.names, *plan.virtual]
        return self._ordered_names([*plan.schema.names, *plan.virtual])

    def _ordered_names(self, names: Sequence[str]) -> list[str]:
        found = {folded(name): name for name in names}
        return [found[folded(name)] for name in self.columns or ()]


def _limited(frame: DataFrame, most: int | None) -> DataFrame:
    if most is None:
        return frame
    if most >= 2**31:
        raise UsageError(f"limit is {most:,}, but Spark supports at most {2**31 - 1:,}. Pass a smaller limit, or none", parameter="limit")
    return frame.limit(most)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedScan:
    """A plan of a scan. Printing it shows how many files are read or skipped, and why."""

    plan: ScanPlan

    def __str__(self) -> str:
        plan, report = self.plan, self.plan.pruning
        size = sum(task.file.file_size_bytes for task in plan.tasks)
        rows = sum(task.file.record_count for task in plan.tasks)
        lines = [
            f"scan of {visible(plan.table)} at snapshot {plan.snapshot_id}",
            f"  columns:  {visible(', '.join((*plan.schema.names, *plan.virtual)))}",
            f"  files:    {report.files_kept:,} of {report.files_total:,} ({size:,} bytes, {counted(rows, 'row')} before deletes)",
            f"  left out: {report.pruned_by_partition:,} by partition values, {report.pruned_by_statistics:,} by statistics",
        ]
        if report.not_needed_for_limit:
            lines.append(f"            {report.not_needed_for_limit} because the limit is reached without them")
        if plan.inlined is not None:
            lines.append(f"  inlined:  {counted(plan.inlined.num_rows, 'row')} in the catalog")
        if plan.predicate is not None:
            covered = sum(task.all_rows_match for task in plan.tasks)
            lines.append(f"  filter:   evaluated in {counted(len(plan.tasks) - covered, 'file')}; {covered:,} match completely")
        ways = Counter(task.native_obstacle for task in plan.tasks)
        lines += [
            f"  Arrow:    {counted(n, 'file')}: {visible(why)}" if why else f"  Spark:    {counted(n, 'file')}" for why, n in ways.items()
        ]
        if prefers_arrow([task.file.file_size_bytes for task in plan.tasks if task.native]):
            lines.append("            Spark Connect reads all files with Arrow, because too many of them are small")
        return "\n".join(lines)

    __repr__ = __str__


@none_means_default
@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFeed(Readable):
    """The changes of a table between two snapshots, read when one of the ``to_`` methods is called.

    The columns are ``snapshot_id``, ``rowid``, for changes ``change_type``, then the columns of the table at the last snapshot.
    Attributes:
        table: The table at the last snapshot of the range.
        kind: ``insertions``, ``deletions``, or ``changes`` for both, with updates marked.
        start: First snapshot: an id, or a time for the first snapshot at or after it.
        columns: Names of the columns to return, in order; None for all columns.
        where: Condition of the changes to return: SQL text in DuckDB's dialect, or a predicate. It may use the columns of the feed.
        row_limit: Maximum number of changes to return; None for all. Set by :meth:`limit`.
        reader: Opens a read transaction on the catalog.
        storage: Opens files.
    """

    table: TableState
    kind: FeedKind
    start: Bound
    columns: Sequence[str] | None = None
    where: str | Predicate | Condition | Column | None = None
    row_limit: int | None = None
    reader: Callable[[], AbstractContextManager[CatalogReader]] = field(repr=False)
    storage: Storage = field(repr=False)

    def __repr__(self) -> str:
        start = self.start if isinstance(self.start, int) else self.start.isoformat()
        what = [f"{self.kind} of {visible(self.table.qualified_name)} from snapshot {start} to {self.table.snapshot_id}"]
        what += [] if self.columns is None else [f"columns {visible(', '.join(self.columns))}"]
        what += [] if self.where is None else [f"where {condition_text(self.where)}"]
        what += [] if self.row_limit is None else [f"at most {counted(self.row_limit, 'row')}"]
        return f"<ChangeFeed: {'; '.join(what)}>"

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a new stream of the changes in Arrow's PyCapsule protocol, planned when the first batch is requested."""
        return pa.RecordBatchReader.from_batches(self._lazy_columns()[1], self.to_batches()).__arrow_c_stream__(requested_schema)

    def _lazy_columns(self) -> tuple[Schema, pa.Schema]:
        columns = feed_columns(self.table, self.kind, self.columns)
        return columns, feed_arrow_schema(columns)

    def _selected(self, columns: Sequence[str], predicate: Predicate | None) -> pa.RecordBatchReader:
        is_whole = self.row_limit is None and self.where is None
        return replace(self, columns=columns, where=predicate if is_whole else self.where).to_reader()

    def limit(self, n: int) -> ChangeFeed:
        """Return the same feed limited to ``n`` changes. No order is defined; reading stops when enough changes are found.

        Args:
            n: Maximum number of changes.

        Raises:
            UsageError: ``n`` is not a number of rows.
        """
        most = row_count("n", n)
        return replace(self, row_limit=most if self.row_limit is None else min(most, self.row_limit))

    def count(self) -> int:
        """Return the number of changes. Reads only row ids, snapshots and the columns of ``where`` from the files."""
        return sum(batch.num_rows for batch in replace(self, columns=("snapshot_id",)).to_batches())

    def plan(self) -> PlannedFeed:
        """Plan the feed without reading rows. Printing the plan shows how many files and inlined rows contain changes.

        Raises:
            NotFoundError: A column or snapshot does not exist, or a snapshot of the range has expired.
            UsageError: ``columns`` is empty or contains a column twice, or a time has no zone.
            UnsupportedFeatureError: A column of the table has the name of a column of the feed, or this library cannot read a file.
        """
        with self.reader() as reader:
            found = plan_changes(reader, self.table, self.kind, self.start, columns=self.columns, where=self.where)
        return PlannedFeed(plan=found)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes in Arrow batches, in no particular order. The feed is planned when the first batch is requested.

        Memory is limited to a few batches; ``changes`` also needs up to 16 bytes for each deleted row of snapshots that also added rows.

        Raises:
            UnsupportedFeatureError: Arrow cannot evaluate the condition. Read with :meth:`to_spark`.
        """
        yield from self._batches(self.plan().plan)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the changes as a ``RecordBatchReader``, a stream with a known schema."""
        plan = self.plan().plan
        return pa.RecordBatchReader.from_batches(feed_arrow_schema(plan.schema), self._batches(plan))

    def _batches(self, plan: ChangePlan) -> Iterator[pa.RecordBatch]:
        from ducklake_core.engines.arrow.feed import read_changes

        batches = read_changes(plan, self.storage)
        return batches if self.row_limit is None else first_rows(batches, self.row_limit)

    def to_spark(self, session: SparkSession) -> DataFrame:
        """Return the changes as a lazy Spark DataFrame, classic or Connect. The catalog is read now, the files when the DataFrame runs."""
        from ducklake_core.engines.spark.read import read_changes
        from ducklake_core.engines.spark.session import in_session_zone

        with in_session_zone(session):
            plan = self.plan().plan
        frame = read_changes(plan, self.storage, session)
        return _limited(frame, self.row_limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFeed:
    """A plan of a change feed. Printing it shows the range and the files and inlined rows with changes."""

    plan: ChangePlan

    def __str__(self) -> str:
        plan, shape = self.plan, self.plan.shape
        added = [task for task in plan.tasks if isinstance(task, InsertedRows)]
        deletions = [task for task in plan.tasks if isinstance(task, DeletedRows)]
        lines = [
            f"{plan.kind} of {visible(shape.read.table)} from snapshot {shape.start} to {shape.end}",
            f"  columns:  {visible(', '.join(plan.schema.names))}",
            f"  added:    {counted(len(added), 'file')} ({sum(task.file.file_size_bytes for task in added):,} bytes)",
            f"  deleted:  in {counted(len(deletions), 'file')}, {sum(task.ended is not None for task in deletions):,} of them completely",
        ]
        lines += [f"  inlined:  {counted(one.rows.num_rows, 'row')} {'deleted' if one.deleted else 'added'}" for one in plan.inlined]
        if plan.pruned:
            lines.append(f"  left out: {counted(plan.pruned, 'file')} by partition values and statistics")
        if shape.rewrites:
            lines.append(f"  moved:    {counted(len(shape.rewrites), 'snapshot')} only moved rows to other files")
        if plan.kind == "changes":
            paired = sum(task.may_update for task in plan.tasks)
            lines.append(f"  updates:  may be in {paired:,} of {counted(len(plan.tasks), 'file')}")
        return "\n".join(lines)

    __repr__ = __str__
