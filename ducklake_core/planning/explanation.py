"""Explain why a scan reads some files and skips others, file by file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import islice
from typing import Literal, TypeAlias

from ducklake_core.catalog.reading.files import data_files
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.errors import DuckLakeError, UnsupportedFeatureError
from ducklake_core.format.expressions import pruning
from ducklake_core.format.expressions.conditions import Column, Combinable, Condition
from ducklake_core.format.expressions.predicates import And, Predicate, references
from ducklake_core.format.expressions.sql import to_sql
from ducklake_core.format.files.data_files import ColumnStatistics, DataFile
from ducklake_core.format.layout.transforms import partition_may_match
from ducklake_core.format.state import TableState
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.names import folded, join_name
from ducklake_core.format.types.schema import schema_html
from ducklake_core.format.types.text import counted, one_line, visible
from ducklake_core.planning.native import prefers_arrow
from ducklake_core.planning.plan import VIRTUAL_SCHEMA, FileTask, ScanPlan, virtual_statistics
from ducklake_core.planning.planner import scan_columns
from ducklake_core.planning.table_info import Size
from ducklake_core.storage.filesystems import printable

PrunedBy: TypeAlias = Literal["partition", "statistics", "limit", "transaction"]
"""The reason to skip a file: partition values, statistics, a limit of rows, or an open transaction that deleted its rows."""
_PRINTED = 20

RowCondition: TypeAlias = str | Predicate | Condition | Column


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedFile:
    """A live data file of the table, and the way in which a scan treats it.

    Attributes:
        path: Full path without secrets.
        row_count: Number of rows, including deleted rows.
        size_bytes: Size in bytes.
        reason: Reason for skipping it, or the part of its rows that is returned.
        pruned_by: Kind of the reason for skipping it; None if it is read.
        arrow_because: Reason why Spark reads it with Arrow instead of its own Parquet reader; None if it does not, or if the file is
            skipped.
    """

    path: str
    row_count: int
    size_bytes: int
    reason: str
    pruned_by: PrunedBy | None = None
    arrow_because: str | None = None

    @property
    def kept(self) -> bool:
        """Return whether the file is read."""
        return self.pruned_by is None

    def __str__(self) -> str:
        return f"{visible(self.path)}  {counted(self.row_count, 'row')}, {self.size_bytes:,} bytes: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The files that a scan reads and skips, with the reasons. Printing it shows the first files of each kind; :attr:`files` has all.

    Attributes:
        table: ``schema.table``.
        snapshot_id: The snapshot that is read.
        columns: Names of the returned columns.
        condition: The parsed condition, as SQL; None for all rows.
        row_limit: Maximum number of rows to return; None for all.
        files: Every live data file: skipped files by id, then the files that are read.
        inlined_row_count: Number of inlined rows, before the condition.
        many_small_files: Whether Spark Connect reads all files with Arrow, because too many of them are small.
    """

    table: str
    snapshot_id: int
    columns: tuple[str, ...]
    condition: str | None = None
    row_limit: int | None = None
    files: tuple[ExplainedFile, ...] = ()
    inlined_row_count: int = 0
    many_small_files: bool = False

    def __str__(self) -> str:
        return "\n".join(self._lines())

    __repr__ = __str__

    def _lines(self) -> Iterator[str]:
        kept = [file for file in self.files if file.kept]
        yield f"scan of {visible(self.table)} at snapshot {self.snapshot_id}"
        yield f"  columns:  {visible(', '.join(self.columns))}"
        if self.condition is not None:
            yield f"  where:    {one_line(self.condition)}"
        if self.row_limit is not None:
            yield f"  limit:    {counted(self.row_limit, 'row')}"
        if self.inlined_row_count:
            yield f"  catalog:  {counted(self.inlined_row_count, 'row')} stored in the catalog"
        size = sum(file.size_bytes for file in kept)
        yield (
            f"  read:     {len(kept):,} of {counted(len(self.files), 'file')} ({size:,} bytes, "
            f"{counted(sum(f.row_count for f in kept), 'row')} before deletes)"
        )
        yield from _listed(kept)
        if len(kept) < len(self.files):
            yield f"  left out: {counted(len(self.files) - len(kept), 'file')}"
            yield from _listed([file for file in self.files if not file.kept])
        if kept:
            yield from self._ways(kept)

    def _ways(self, kept: Sequence[ExplainedFile]) -> Iterator[str]:
        yield "  with:     Arrow in this process; to_spark() uses"
        if self.many_small_files:
            yield "    Arrow for all files in Spark Connect, because too many of them are small; otherwise"
        counts: dict[str | None, int] = {}
        for file in kept:
            why = None if file.arrow_because is None else visible(file.arrow_because)
            counts[why] = counts.get(why, 0) + 1
        for why, count in counts.items():
            yield f"    {'Spark' if why is None else 'Arrow'} for {counted(count, 'file')}{'' if why is None else f': {why}'}"


def _listed(files: Sequence[ExplainedFile]) -> Iterator[str]:
    yield from (f"    {file}" for file in islice(files, _PRINTED))
    if len(files) > _PRINTED:
        yield f"    ... and {len(files) - _PRINTED:,} more"


def pruned_files(reader: CatalogReader, table: TableState, plan: ScanPlan) -> tuple[ExplainedFile, ...]:
    """Return the live files that a plan leaves out, each with the reason.

    Args:
        reader: The read transaction that the plan was made in.
        table: The table at the snapshot of the plan.
        plan: As :func:`~ducklake_core.planning.planner.plan_scan` made it.
    """
    if plan.predicate is None:
        return ()
    kept = {task.file.id for task in plan.tasks}
    return tuple(
        _pruned(file, statistics | virtual_statistics(file), table, plan.predicate)
        for file, statistics in data_files(reader, table, None, pruning.columns(plan.predicate))
        if file.id not in kept
    )


def explanation(plan: ScanPlan, whole: ScanPlan, limited: ScanPlan, row_limit: int | None, pruned: Sequence[ExplainedFile]) -> Explanation:
    """Return the explanation of every file.

    Args:
        plan: The files that were planned.
        whole: The same with what an open transaction makes of it.
        limited: Those of them that a limit needs.
        row_limit: The limit.
        pruned: Files that were not planned.
    """
    present, needed = ({task.file.id for task in one.tasks} for one in (whole, limited))
    deleted = [_left_out(t.file, "transaction", "the transaction deletes all of its rows") for t in plan.tasks if t.file.id not in present]
    spare = [_left_out(t.file, "limit", "limit: earlier files have enough rows") for t in whole.tasks if t.file.id not in needed]
    return Explanation(
        table=plan.table,
        snapshot_id=plan.snapshot_id,
        columns=(*plan.schema.names, *plan.virtual),
        condition=None if plan.predicate is None else _text(plan.predicate),
        row_limit=row_limit,
        files=(*pruned, *deleted, *spare, *(_read(task, filtered=plan.predicate is not None) for task in limited.tasks)),
        inlined_row_count=0 if limited.inlined is None else limited.inlined.num_rows,
        many_small_files=prefers_arrow([task.file.file_size_bytes for task in limited.tasks if task.native]),
    )


def _read(task: FileTask, *, filtered: bool) -> ExplainedFile:
    reason = "all rows" if not filtered else "every row matches" if task.all_rows_match else "rows are filtered"
    file = task.file
    return ExplainedFile(
        path=printable(file.path),
        row_count=file.record_count,
        size_bytes=file.file_size_bytes,
        reason=reason,
        arrow_because=task.native_obstacle,
    )


def _left_out(file: DataFile, by: PrunedBy, reason: str) -> ExplainedFile:
    return ExplainedFile(
        path=printable(file.path), row_count=file.record_count, size_bytes=file.file_size_bytes, reason=reason, pruned_by=by
    )


def _pruned(file: DataFile, statistics: dict[int, ColumnStatistics], table: TableState, predicate: Predicate) -> ExplainedFile:
    # Usually one term of an AND excludes the file by itself, and is the clearest reason; the whole condition is the last resort.
    terms = (*predicate.operands, predicate) if isinstance(predicate, And) else (predicate,)
    for term in terms:
        if (values := _excluding_values(file, table, term)) is not None:
            return _left_out(file, "partition", f"partition values: {values}, so never {_text(term)}")
    for term in terms:
        if not pruning.may_match(term, statistics, file.record_count):
            return _left_out(file, "statistics", f"statistics: {_bounds(term, statistics)}, so never {_text(term)}")
    return _left_out(file, "statistics", f"statistics, as the catalog's database compares them: never {_text(predicate)}")


def _excluding_values(file: DataFile, table: TableState, predicate: Predicate) -> str | None:
    """Return the partition values of a file that cannot have rows for the predicate; None when it can."""
    spec = table.partition_specs.get(file.partition_id) if file.partition_id is not None else None
    if spec is None or sorted(index for index, _ in file.partition_values) != list(range(len(spec.fields))):
        return None
    values = tuple(value for _, value in sorted(file.partition_values, key=lambda pair: pair[0]))
    if partition_may_match(spec, values, predicate, table.schema, file.begin_snapshot):
        return None
    return ", ".join(f"{visible(key.expression)} = {_value(value)}" for key, value in zip(spec.fields, values, strict=True))


def _bounds(predicate: Predicate, statistics: dict[int, ColumnStatistics]) -> str:
    """Return the catalog's statistics of a predicate's columns, for messages."""
    known = []
    for column in sorted(references(predicate), key=lambda one: one.path):
        found, name = statistics.get(column.column_id), visible(".".join(column.path))
        if found is None:
            continue
        if found.min_value is None and found.max_value is None:
            known.append(f"{name} is always NULL" if found.value_count == 0 else f"{name} is never NULL")
        else:
            known.append(f"{name} is {_value(found.min_value)} to {_value(found.max_value)}{' or NULL' if found.null_count else ''}")
    return ", ".join(known) or "no row has such values"


def _value(text: str | None) -> str:
    return "NULL" if text is None else one_line(text)


def _text(predicate: Predicate) -> str:
    try:
        return one_line(to_sql(predicate, "duckdb"))
    except UnsupportedFeatureError:
        return one_line(repr(predicate))


def condition_text(where: RowCondition) -> str:
    """Return a condition in one line, as it was given."""
    if isinstance(where, str):
        return one_line(where)
    if isinstance(where, Combinable):
        return one_line(repr(where))
    try:
        return one_line(to_sql(where, "duckdb"))
    except UnsupportedFeatureError:
        return one_line(repr(where))


def scan_text(table: TableState, columns: Sequence[str] | None, where: RowCondition | None, row_limit: int | None) -> str:
    """Return a scan in one line."""
    requested = [*([] if columns is None else [f"columns {visible(', '.join(columns))}"]), *_requested_rows(where, row_limit)]
    what = f"Scan of {visible(join_name(table.schema_name, table.name))} at snapshot {table.snapshot_id}"
    return f"<{what}: {'; '.join(requested)}>" if requested else f"<{what}>"


def _requested_rows(where: RowCondition | None, row_limit: int | None) -> list[str]:
    condition = [] if where is None else [f"where {condition_text(where)}"]
    return [*condition, *([] if row_limit is None else [f"at most {counted(row_limit, 'row')}"])]


def scan_html(table: TableState, columns: Sequence[str] | None, where: RowCondition | None, row_limit: int | None) -> str:
    """Return a scan as HTML for a notebook: the request and the resulting columns; neither catalog nor files are read."""
    title = f"<b>Scan of {escape(join_name(table.schema_name, table.name))}</b> at snapshot {table.snapshot_id}"
    requested = "".join(f"<br>{escape(one)}" for one in _requested_rows(where, row_limit))
    hint = "<br><i>head() shows rows, explain() which files are read</i>"
    return f"<div>{title}{requested}{hint}{schema_html(_returned(table, columns), table.column_comments)}</div>"


def _returned(table: TableState, columns: Sequence[str] | None) -> list[Field]:
    try:
        schema, virtual = scan_columns(table.schema, columns)
    except DuckLakeError:
        # A representation must not raise. The scan reports invalid columns when it runs; all columns help to choose valid ones.
        return list(table.schema)
    found = {folded(column.name): column for column in (*schema, *VIRTUAL_SCHEMA.select(virtual))}
    return [found[folded(name)] for name in (schema.names if columns is None else columns)]


def table_html(table: TableState, size: Size | str) -> str:
    """Return a table as HTML for a notebook; ``size`` is its size by the catalog, or why the catalog cannot be read."""
    title = f"<b>{escape(join_name(table.schema_name, table.name))}</b> at snapshot {table.snapshot_id}"
    comment = "" if table.comment is None else f"<br>{escape(table.comment)}"
    return f"<div>{title}{comment}<br>{escape(_size_text(size))}{schema_html(table.schema, table.column_comments)}</div>"


def _size_text(size: Size | str) -> str:
    if isinstance(size, str):
        return f"size unknown: {size}"
    info = size.info
    # Files that also hold rows of later snapshots would have to be opened.
    about = "" if size.plan is None else "about "
    parts = [f"{about}{info.row_count:,} rows", f"{info.file_count:,} files", f"{info.file_size_bytes:,} bytes"]
    if info.partition_by:
        parts.append(f"partitioned by {', '.join(info.partition_by)}")
    return ", ".join(parts)
