"""From two snapshots to the files and inlined rows that hold what changed between them; no file is opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ducklake_core.catalog import feed
from ducklake_core.catalog.feed import Bound, FeedRange
from ducklake_core.catalog.reading.files import may_match
from ducklake_core.catalog.reading.macros_in_conditions import without_macro_calls
from ducklake_core.catalog.reading.mappings import name_mappings
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions import pruning
from ducklake_core.format.expressions.columns import Column
from ducklake_core.format.expressions.conditions import Condition
from ducklake_core.format.expressions.predicate_parser import parse_predicate
from ducklake_core.format.expressions.predicates import And, Predicate, conjunction
from ducklake_core.format.files.data_files import DataFile
from ducklake_core.format.state import TableState
from ducklake_core.format.types.schema import Schema
from ducklake_core.planning.change_plan import (
    CHANGE_TYPE,
    FEED_COLUMN_IDS,
    ROW_ID,
    SNAPSHOT_ID,
    ChangePlan,
    ChangeTask,
    DeletedRows,
    FeedKind,
    FeedShape,
    InlinedChanges,
    InsertedRows,
)
from ducklake_core.planning.plan import ScanProjection
from ducklake_core.planning.planner import check_locations, column_lifetimes
from ducklake_core.planning.snapshot_spans import Span, common, meet


def plan_changes(
    reader: CatalogReader,
    table: TableState,
    kind: FeedKind,
    start: Bound,
    *,
    columns: Sequence[str] | None = None,
    where: str | Predicate | Condition | Column | None = None,
) -> ChangePlan:
    """Plan the feed of a table from ``start`` up to the snapshot of its state, both included.

    Args:
        reader: An open read transaction.
        table: The table at the last snapshot of the range; rows come in its columns.
        kind: Which feed.
        start: Id of a snapshot, or a time with a zone.
        columns: Names to return, in order, without regard to case; all columns of the feed when None.
        where: Rows of the feed to keep: SQL text or a predicate.

    Raises:
        NotFoundError: An unknown column or snapshot, or a snapshot of the range that was expired.
        UsageError: No column at all, or one of them twice.
        CatalogCorruptError: A file names a column mapping that does not exist.
        UnsupportedFeatureError: A column of the table is called like one of the feed.
    """
    whole = feed_schema(table, kind)
    wanted = feed_columns(table, kind, columns)
    condition = without_macro_calls(reader, where, table.snapshot_id)
    predicate = None if condition is None else parse_predicate(condition, whole)
    pushed, rest = _divided(predicate, kind)
    read = _read_shape(table, whole, wanted, pushed, rest)
    covered = feed.feed_range(reader, table, start, deletions=kind != "insertions")
    sources = _sources(reader, table, kind, covered, read)
    found: tuple[ChangeTask, ...] = (*sources.inserted, *sources.deleted)
    tasks = _kept(reader, table, found, pushed)
    mapping_ids = (task.file.mapping_id for task in tasks if task.file.mapping_id is not None)
    read = replace(
        read,
        column_lifetimes=column_lifetimes(reader.column_history(table.id)),
        mappings=name_mappings(reader, mapping_ids, table.qualified_name),
    )
    system = tuple(column for column in whole if column.id in FEED_COLUMN_IDS)
    shape = FeedShape(
        read=read,
        schema=Schema(columns=(*system, *read.schema)),
        start=covered.start,
        end=covered.end,
        rewrites=tuple(sorted(covered.rewrites)),
    )
    return ChangePlan(
        kind=kind,
        shape=shape,
        schema=wanted,
        predicate=rest,
        tasks=tasks,
        inlined=sources.inlined,
        updates=sources.updates,
        pruned=len(found) - len(tasks),
    )


def _kept(reader: CatalogReader, table: TableState, tasks: tuple[ChangeTask, ...], pushed: Predicate | None) -> tuple[ChangeTask, ...]:
    """The tasks of files that the lake may name and that may have rows to return."""
    files = [task.file for task in tasks]
    check_locations(reader.info, table, files)
    if pushed is None:
        return tasks
    # Only what is asked of the rows of files says something of files: updates need both their halves, so feeds of both push nothing.
    matching = may_match(reader, table, pushed, files)
    return tuple(task for task in tasks if task.file.id in matching)


def feed_schema(table: TableState, kind: FeedKind) -> Schema:
    """All columns of a feed.

    Raises:
        UnsupportedFeatureError: A column of the table is called like one of the feed.
    """
    system = (SNAPSHOT_ID, ROW_ID, CHANGE_TYPE) if kind == "changes" else (SNAPSHOT_ID, ROW_ID)
    clash = [column.name for column in system if table.schema.find(column.name) is not None]
    if clash:
        raise UnsupportedFeatureError(
            f"{table.qualified_name} has a column called like one that its change feed adds ({', '.join(clash)}); rename the column",
            table=table.qualified_name,
            column=clash[0],
        )
    return Schema(columns=(*system, *table.schema))


def feed_columns(table: TableState, kind: FeedKind, columns: Sequence[str] | None) -> Schema:
    """The columns of a feed that are to be returned; raises as :func:`plan_changes` does."""
    whole = feed_schema(table, kind)
    return whole if columns is None else _selected(whole, columns)


def _selected(schema: Schema, columns: Sequence[str]) -> Schema:
    if isinstance(columns, str):
        raise UsageError(f"columns must be a list of names, not the text {columns!r}")
    selected = schema.select(columns)
    twice = sorted({name for name in selected.names if selected.names.count(name) > 1})
    if twice or not selected.columns:
        raise UsageError(f"the feed names {', '.join(twice)} more than once" if twice else "the feed names no column")
    return selected


def _divided(predicate: Predicate | None, kind: FeedKind) -> tuple[Predicate | None, Predicate | None]:
    """Split a condition into the part that holds for rows of a file and the part that only the finished feed can answer.

    Both halves of an update must be there to know it as one, whether or not they satisfy the predicate.
    """
    if predicate is None or kind == "changes":
        return None, predicate
    parts = predicate.operands if isinstance(predicate, And) else (predicate,)
    early = [part for part in parts if not pruning.columns(part) & FEED_COLUMN_IDS]
    late = [part for part in parts if pruning.columns(part) & FEED_COLUMN_IDS]
    return (conjunction(early) if early else None, conjunction(late) if late else None)


def _read_shape(table: TableState, whole: Schema, wanted: Schema, pushed: Predicate | None, rest: Predicate | None) -> ScanProjection:
    """Tasks give the columns that are returned or filtered later; to filter early they read some more."""
    given = {column.id for column in wanted} | _columns_of(whole, rest)
    read = given | _columns_of(whole, pushed)
    return ScanProjection(
        table=table.qualified_name,
        snapshot_id=table.snapshot_id,
        schema=Schema(columns=tuple(column for column in table.schema if column.id in given)),
        read_schema=Schema(columns=tuple(column for column in table.schema if column.id in read)),
        predicate=pushed,
    )


def _columns_of(schema: Schema, predicate: Predicate | None) -> set[int]:
    needed = pruning.columns(predicate) if predicate is not None else frozenset()
    return {column.id for column in schema if any(node.id in needed for node in column.walk())}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sources:
    inserted: tuple[InsertedRows, ...] = ()
    deleted: tuple[DeletedRows, ...] = ()
    inlined: tuple[InlinedChanges, ...] = ()
    updates: tuple[Span, ...] = ()


def _sources(reader: CatalogReader, table: TableState, kind: FeedKind, covered: FeedRange, read: ScanProjection) -> _Sources:
    if covered.start > covered.end:
        return _Sources()
    added, gone, inlined = [], [], []
    if kind != "deletions":
        added = feed.inserted_files(reader, table, covered)
        rows = feed.inserted_inlined(reader, table, read.read_schema, covered)
        inlined += [InlinedChanges(rows=rows, deleted=False)] if rows is not None else []
    if kind != "insertions":
        gone = feed.deleted_files(reader, table, covered)
        rows = feed.deleted_inlined(reader, table, read.read_schema, covered)
        inlined += [InlinedChanges(rows=rows, deleted=True)] if rows is not None else []
    in_catalog = [_inlined_spans(inlined, deleted=deleted) for deleted in (False, True)]
    updates = common(
        [*(_added_span(file, covered) for file in added), *in_catalog[0]],
        [*(span for one in gone for span in one.spans), *in_catalog[1]],
    )
    return _Sources(
        inserted=tuple(InsertedRows(file=file, may_update=meet(updates, [_added_span(file, covered)])) for file in added),
        deleted=tuple(
            DeletedRows(file=one.file, inlined=one.inlined, ended=one.ended, may_update=meet(updates, one.spans)) for one in gone
        ),
        inlined=tuple(inlined),
        updates=updates,
    )


def _added_span(file: DataFile, covered: FeedRange) -> Span:
    last = file.partial_max if file.partial_max is not None else file.begin_snapshot
    return max(file.begin_snapshot, covered.start), min(last, covered.end)


def _inlined_spans(inlined: Sequence[InlinedChanges], *, deleted: bool) -> list[Span]:
    found = {number for one in inlined if one.deleted is deleted for number in one.rows.column("snapshot_id").unique().to_pylist()}
    return [(number, number) for number in sorted(found)]
