"""Return planned scans and change feeds as lazy Spark DataFrames.

A scan is a union of up to four frames, each only if it has work::

    native, plain       Spark's own reader; files without deletes
    native, placed      Spark's own reader; files with deletes, or virtual columns are wanted
    Arrow               mapInArrow over task numbers; files that Spark cannot read exactly, and many inlined rows
    constants           a few inlined rows

The obstacles of each file come from the plan (``ducklake_core.planning.native``); the session decides the rest here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, BooleanType, DateType, NumericType, StringType, TimestampNTZType, TimestampType

from ducklake_core.engines.arrow.feed import read_change_task, read_inlined_changes
from ducklake_core.engines.arrow.read import read_inlined
from ducklake_core.engines.spark.native_read import needs_places, read_natively, wants_native
from ducklake_core.engines.spark.scan_schema import FilteredColumns, arrow_form, filtered_columns, native_schemes, quoted, wants_exact
from ducklake_core.engines.spark.session import checked_session, filtered, is_connect, local_frame
from ducklake_core.engines.spark.tasks import (
    INLINED_ROWS,
    TaskGroup,
    bin_pack,
    from_stream,
    group_reader,
    inlined_groups,
    size_of,
    split_tasks,
    task_id_frame,
    task_ids,
    to_stream,
)
from ducklake_core.engines.spark.types import to_spark_form
from ducklake_core.format.expressions import pruning
from ducklake_core.format.expressions.predicates import Predicate, conjunction, needs_sql, terms
from ducklake_core.format.files.paths import protocol_of
from ducklake_core.planning.native import REMOTE, prefers_arrow
from ducklake_core.planning.plan import (
    DELETE,
    INSERT,
    POSTIMAGE,
    PREIMAGE,
    ChangePlan,
    ChangeTask,
    FeedShape,
    FileTask,
    InlinedChanges,
    ScanPlan,
    ScanProjection,
    covered,
)
from ducklake_core.storage.filesystems import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_MAX_LOCAL_ROWS = 10_000
_MAX_LOCAL_BYTES = 1 << 20
# Spark makes the same values of these types from Arrow constants as from Arrow batches of a Python worker.
_LOCAL_TYPES = (NumericType, BooleanType, StringType, BinaryType, DateType, TimestampType, TimestampNTZType)
V1_SOURCES_CONF = "spark.sql.sources.useV1SourceList"
"""Spark's session setting: formats that its first data source interface reads; by default Parquet is one of them."""
# Spark compares each row with every term of a condition, and cannot compile very many of them.
_MAX_TERMS = 200


def read_plan(plan: ScanPlan, storage: Storage, session: SparkSession, *, exact: bool | None = None) -> DataFrame:
    """Return the rows of a plan as a DataFrame, classic or Connect; no rows are read before an action runs.

    Columns have the types of engines/spark/types.py and are nullable; the session's time zone changes no value. The session's
    ``spark.sql.parquet.fieldId.read.enabled`` is switched on, which changes nothing for files and schemas without ids.

    Args:
        plan: What to read.
        storage: How to open files.
        session: The session to read with.
        exact: Whether columns must have types that hold every value; None (the default) for the session's ``spark.ducklake.read.types``.

    Raises:
        UnsupportedFeatureError: A predicate has no Spark SQL, or columns of a file of the lake's own have no field ids (in a large scan
            or a Connect session, the action fails with this error).
        NotFoundError: A file is missing (in a large scan or a Connect session, the action fails with this error).
        UsageError: ``session`` is no session, or a setting of it has an invalid value.
    """
    schemes = native_schemes(checked_session(session))
    native, others = _ways(plan, session, schemes)
    branches = read_natively(plan, native, storage, session, schemes) if native else []
    if others or plan.inlined is not None or not branches:
        branches += _by_arrow(plan, others, storage, session, wants_exact(session) if exact is None else exact)
    return reduce(lambda left, right: left.unionAll(right), branches)


def _by_arrow(plan: ScanPlan, tasks: list[FileTask], storage: Storage, session: SparkSession, exact: bool) -> list[DataFrame]:
    """Return the frame of files that are read in Python, and of inlined rows."""
    by_arrow = _arrow_columns(plan, exact)
    local = _local(plan, by_arrow, session)
    inlined = plan.inlined if local is None else None
    groups = [*(TaskGroup(tasks=group) for group in bin_pack(split_tasks(tasks))), *inlined_groups(inlined)]
    if local is not None and not groups:
        return [local]
    frame = _arrow(by_arrow, groups, size_of(tasks, inlined), storage, session)
    return [frame] if local is None else [frame, local]


def _is_long(plan: ScanPlan) -> bool:
    """Return whether the filter has too many terms for Spark, which compares each row with every one of them."""
    return plan.predicate is not None and not needs_sql(plan.predicate) and terms(plan.predicate) > _MAX_TERMS


def _ways(plan: ScanPlan, session: SparkSession, schemes: Mapping[str, str]) -> tuple[list[FileTask], list[FileTask]]:
    """Return files for Spark's reader, and files for Arrow."""
    if not wants_native(session) or _is_long(plan):
        return [], list(plan.tasks)
    native: list[FileTask] = []
    others: list[FileTask] = []
    for task in plan.tasks:
        reachable = task.native or (task.native_obstacle == REMOTE and protocol_of(task.file.path) in schemes)
        (native if reachable else others).append(task)
    placed = [task for task in native if needs_places(plan, task)]
    if placed and not _has_metadata_columns(session):
        native, others = [task for task in native if not needs_places(plan, task)], [*others, *placed]
    if is_connect(session) and prefers_arrow([task.file.file_size_bytes for task in native]):
        return [], list(plan.tasks)
    return native, others


def _has_metadata_columns(session: SparkSession) -> bool:
    """Return whether Spark's Parquet reader reports row positions; the reader of the second data source interface does not."""
    sources = str(session.conf.get(V1_SOURCES_CONF, "parquet")).lower()
    return "parquet" in [name.strip() for name in sources.split(",")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ArrowColumns:
    """The columns that Python passes to Spark, and the condition on them that only Spark can evaluate."""

    shape: ScanProjection
    columns: FilteredColumns
    condition: Predicate | None
    names: tuple[str, ...]

    def result(self, frame: DataFrame) -> DataFrame:
        """Return the rows of a frame of the columns."""
        return frame if self.condition is None else self.columns.selected(filtered(frame, self.condition), self.names)


def _arrow_columns(plan: ScanPlan, exact: bool) -> _ArrowColumns:
    shape, condition, named = plan.shape, None, frozenset[int]()
    if plan.predicate is not None and needs_sql(plan.predicate):
        # Only Spark can evaluate it, so the columns that it reads have to come along.
        condition, named = plan.predicate, pruning.columns(plan.predicate)
        shape = replace(shape, predicate=None, schema=plan.read_schema, virtual=shape.read_virtual)
    columns = filtered_columns(shape.schema, shape.virtual, named, exact=exact)
    return _ArrowColumns(shape=shape, columns=columns, condition=condition, names=(*plan.schema.names, *plan.virtual))


def _local(plan: ScanPlan, by_arrow: _ArrowColumns, session: SparkSession) -> DataFrame | None:
    """Return a few inlined rows as constants of the query, which need no Python worker; None for more rows, and for none."""
    rows, schema = plan.inlined, by_arrow.columns.schema
    if rows is None or rows.num_rows > _MAX_LOCAL_ROWS or rows.nbytes > _MAX_LOCAL_BYTES:
        return None
    if not all(isinstance(field.dataType, _LOCAL_TYPES) for field in schema) or len(set(schema.names)) < len(schema):
        return None
    wanted = arrow_form(schema)
    batches = [to_spark_form(batch, wanted, by_arrow.columns.again) for batch in read_inlined(rows, by_arrow.shape)]
    return by_arrow.result(local_frame(session, pa.Table.from_batches(batches, wanted), schema))


def _arrow(by_arrow: _ArrowColumns, groups: list[TaskGroup], size: int, storage: Storage, session: SparkSession) -> DataFrame:
    columns = by_arrow.columns
    reader = group_reader(groups, by_arrow.shape, storage, arrow_form(columns.schema), columns.again)
    return by_arrow.result(task_id_frame(session, len(groups), size).mapInArrow(reader, columns.schema))


@dataclass(frozen=True, slots=True)
class _TaskGroup:
    """The work of one Spark task: some files, or some inlined rows as an Arrow stream."""

    tasks: tuple[ChangeTask, ...] = ()
    inlined: bytes | None = None
    deleted: bool = False


def read_changes(plan: ChangePlan, storage: Storage, session: SparkSession) -> DataFrame:
    """Return the rows of a feed as a DataFrame, classic or Connect; no file is opened before an action runs.

    Spark shuffles only rows of snapshots that both added and deleted rows, to bring the halves of updates together.

    Args:
        plan: The feed to read.
        storage: How to open files.
        session: The session to read with.

    Raises:
        UnsupportedFeatureError: A column type that Spark has no type for, or a predicate that has no Spark SQL.
    """
    checked_session(session)
    shape, predicate = _spark_filter(plan)
    settled = [task for task in plan.tasks if not task.may_update]
    paired = [task for task in plan.tasks if task.may_update]
    inlined = [_parted(one, plan) for one in plan.inlined]
    condition = pruning.columns(predicate) if predicate is not None else frozenset[int]()
    columns = filtered_columns(shape.schema, (), condition, exact=wants_exact(session))
    branches = []
    groups = _groups(paired, [one for one, _ in inlined])
    if groups:
        branches.append(_with_updates(_frame(groups, _size_of(paired, plan), shape, columns, storage, session)))
    groups = _groups(settled, [one for _, one in inlined])
    if groups or not branches:
        branches.append(_frame(groups, _size_of(settled, plan), shape, columns, storage, session))
    frame = reduce(lambda left, right: left.unionAll(right), branches)
    if predicate is not None:
        frame = filtered(frame, predicate)
    return columns.selected(frame, plan.schema.names)


def _spark_filter(plan: ChangePlan) -> tuple[FeedShape, Predicate | None]:
    """Split the predicate between the reader of files and Spark, which takes the conditions that only a SQL engine can evaluate."""
    early = plan.shape.read.predicate
    if early is None or not needs_sql(early):
        return plan.shape, plan.predicate
    read = replace(plan.shape.read, predicate=None, schema=plan.shape.read.read_schema)
    system = plan.shape.schema.columns[: len(plan.shape.schema) - len(plan.shape.read.schema)]
    shape = replace(plan.shape, read=read, schema=replace(plan.shape.schema, columns=(*system, *read.schema)))
    return shape, early if plan.predicate is None else conjunction([early, plan.predicate])


def _parted(inlined: InlinedChanges, plan: ChangePlan) -> tuple[InlinedChanges, InlinedChanges]:
    """Return rows that may be halves of updates, and the others."""
    mask = covered(plan.updates, inlined.rows.column("snapshot_id").to_numpy())
    return replace(inlined, rows=inlined.rows.filter(pa.array(mask))), replace(inlined, rows=inlined.rows.filter(pa.array(~mask)))


def _groups(tasks: Sequence[ChangeTask], inlined: Sequence[InlinedChanges]) -> list[_TaskGroup]:
    groups = [_TaskGroup(tasks=packed_tasks) for packed_tasks in bin_pack(split_tasks(tasks))]
    for one in inlined:
        parts = (one.rows.slice(start, INLINED_ROWS) for start in range(0, one.rows.num_rows, INLINED_ROWS))
        groups += [_TaskGroup(inlined=to_stream(part), deleted=one.deleted) for part in parts]
    return groups


def _size_of(tasks: Sequence[ChangeTask], plan: ChangePlan) -> int:
    inlined: int = sum(one.rows.nbytes for one in plan.inlined)
    return size_of(tasks) + inlined


def _frame(
    groups: Sequence[_TaskGroup], size: int, shape: FeedShape, columns: FilteredColumns, storage: Storage, session: SparkSession
) -> DataFrame:
    reader = _reader(groups, shape, storage, arrow_form(columns.schema), columns.again)
    return task_id_frame(session, len(groups), size).mapInArrow(reader, columns.schema)


def _reader(
    groups: Sequence[_TaskGroup], shape: FeedShape, storage: Storage, wanted: pa.Schema, again: Sequence[int]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    packed_tasks = tuple(groups)

    def read(work: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in task_ids(work):
            for rows in _read(packed_tasks[number], shape, storage):
                yield to_spark_form(rows, wanted, again)

    return read


def _read(group: _TaskGroup, shape: FeedShape, storage: Storage) -> Iterator[pa.RecordBatch]:
    for task in group.tasks:
        yield from read_change_task(task, shape, storage, threads=False)
    if group.inlined is not None:
        yield from read_inlined_changes(InlinedChanges(rows=from_stream(group.inlined), deleted=group.deleted), shape)


def _with_updates(frame: DataFrame) -> DataFrame:
    """Mark updates with a window instead of a join, so that each file is read once."""
    # In one partition of the window are the changes of one row by one snapshot: a single kind is not an update, two kinds are its halves.
    other = "over (partition by snapshot_id, rowid)"
    change = (
        f"case when min(change_type) {other} = max(change_type) {other} then change_type"
        f" when change_type = '{INSERT}' then '{POSTIMAGE}' when change_type = '{DELETE}' then '{PREIMAGE}' end as change_type"
    )
    columns: list[Any] = [change if name == "change_type" else quoted(name) for name in frame.columns]
    return frame.selectExpr(*columns)
