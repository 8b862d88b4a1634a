"""A change feed as a lazy Spark DataFrame: files are read on executors, updates are found there as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ducklake_core.engines.arrow.feed import read_change_task, read_inlined_changes
from ducklake_core.engines.spark.arrow_form import to_spark_form
from ducklake_core.engines.spark.scan_schema import FilteredColumns, arrow_form, filtered_columns, quoted, wants_exact
from ducklake_core.engines.spark.task_groups import INLINED_ROWS, bin_pack, from_stream, split_tasks, to_stream
from ducklake_core.engines.spark.task_ids import size_of, task_id_frame, task_ids
from ducklake_core.format.expressions import pruning
from ducklake_core.format.expressions.predicate_sql import to_sql
from ducklake_core.format.expressions.predicates import Predicate, conjunction, needs_sql
from ducklake_core.planning.change_plan import DELETE, INSERT, POSTIMAGE, PREIMAGE, ChangePlan, ChangeTask, FeedShape, InlinedChanges
from ducklake_core.planning.snapshot_spans import covered
from ducklake_core.storage.filesystems import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class _TaskGroup:
    """The work of one Spark task: some files, or some inlined rows as an Arrow stream."""

    tasks: tuple[ChangeTask, ...] = ()
    inlined: bytes | None = None
    deleted: bool = False


def read_changes(plan: ChangePlan, storage: Storage, session: SparkSession) -> DataFrame:
    """The rows of a feed as a DataFrame, classic or Connect; no file is opened before an action runs.

    Only rows of snapshots that both added and deleted rows are shuffled, to bring the halves of updates together.

    Raises:
        UnsupportedFeatureError: A column type that Spark has no type for, or a predicate that has no Spark SQL.
    """
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
        frame = frame.filter(to_sql(predicate, "spark"))
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
    """Rows that may be halves of updates, and the others."""
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
    """A window and no join: each file is read once."""
    other = "over (partition by snapshot_id, rowid)"
    change = (
        f"case when min(change_type) {other} = max(change_type) {other} then change_type"
        f" when change_type = '{INSERT}' then '{POSTIMAGE}' when change_type = '{DELETE}' then '{PREIMAGE}' end as change_type"
    )
    columns: list[Any] = [change if name == "change_type" else quoted(name) for name in frame.columns]
    return frame.selectExpr(*columns)
