"""A change feed as a lazy Spark DataFrame: files are read on executors, updates are found there as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ducklake_core.arrow.feed import read_change_task, read_inlined_changes
from ducklake_core.format import pruning
from ducklake_core.format.predicate_sql import to_sql
from ducklake_core.format.predicates import Predicate, conjunction, needs_sql
from ducklake_core.scan.change_plan import DELETE, INSERT, POSTIMAGE, PREIMAGE, ChangePlan, ChangeTask, FeedShape, InlinedChanges
from ducklake_core.scan.snapshot_spans import covered
from ducklake_core.spark.arrow_form import to_spark_form
from ducklake_core.spark.bundles import INLINED_ROWS, deal, from_stream, split, to_stream
from ducklake_core.spark.numbers import numbers, size_of
from ducklake_core.spark.scan_schema import FilteredColumns, arrow_form, filtered_columns, quoted, wants_exact
from ducklake_core.storage.filesystems import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class _Bundle:
    """What one Spark task reads: some files, or some inlined rows as an Arrow stream."""

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
    bundles = _bundles(paired, [one for one, _ in inlined])
    if bundles:
        branches.append(_with_updates(_frame(bundles, _size_of(paired, plan), shape, columns, storage, session)))
    bundles = _bundles(settled, [one for _, one in inlined])
    if bundles or not branches:
        branches.append(_frame(bundles, _size_of(settled, plan), shape, columns, storage, session))
    frame = reduce(lambda left, right: left.unionAll(right), branches)
    if predicate is not None:
        frame = frame.filter(to_sql(predicate, "spark"))
    return columns.selected(frame, plan.schema.names)


def _spark_filter(plan: ChangePlan) -> tuple[FeedShape, Predicate | None]:
    """What files give, and what Spark filters; a condition that only a SQL engine can evaluate goes from the one to the other."""
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


def _bundles(tasks: Sequence[ChangeTask], inlined: Sequence[InlinedChanges]) -> list[_Bundle]:
    bundles = [_Bundle(tasks=dealt) for dealt in deal(split(tasks))]
    for one in inlined:
        parts = (one.rows.slice(start, INLINED_ROWS) for start in range(0, one.rows.num_rows, INLINED_ROWS))
        bundles += [_Bundle(inlined=to_stream(part), deleted=one.deleted) for part in parts]
    return bundles


def _size_of(tasks: Sequence[ChangeTask], plan: ChangePlan) -> int:
    inlined: int = sum(one.rows.nbytes for one in plan.inlined)
    return size_of(tasks) + inlined


def _frame(
    bundles: Sequence[_Bundle], size: int, shape: FeedShape, columns: FilteredColumns, storage: Storage, session: SparkSession
) -> DataFrame:
    reader = _reader(bundles, shape, storage, arrow_form(columns.schema), columns.again)
    return numbers(session, len(bundles), size).mapInArrow(reader, columns.schema)


def _reader(
    bundles: Sequence[_Bundle], shape: FeedShape, storage: Storage, wanted: pa.Schema, again: Sequence[int]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    dealt = tuple(bundles)

    def read(work: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in work:
            for number in batch.column(0).to_pylist():
                for rows in _read(dealt[number], shape, storage):
                    yield to_spark_form(rows, wanted, again)

    return read


def _read(bundle: _Bundle, shape: FeedShape, storage: Storage) -> Iterator[pa.RecordBatch]:
    for task in bundle.tasks:
        yield from read_change_task(task, shape, storage, threads=False)
    if bundle.inlined is not None:
        yield from read_inlined_changes(InlinedChanges(rows=from_stream(bundle.inlined), deleted=bundle.deleted), shape)


def _with_updates(frame: DataFrame) -> DataFrame:
    """A window and no join: each file is read once."""
    other = "over (partition by snapshot_id, rowid)"
    change = (
        f"case when min(change_type) {other} = max(change_type) {other} then change_type"
        f" when change_type = '{INSERT}' then '{POSTIMAGE}' when change_type = '{DELETE}' then '{PREIMAGE}' end as change_type"
    )
    columns: list[Any] = [change if name == "change_type" else quoted(name) for name in frame.columns]
    return frame.selectExpr(*columns)
