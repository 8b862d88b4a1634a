"""Deletes, overwrites and upserts on executors: positions are found and delete files written there, one file at a time.

The driver sees one small value for each data file, never a position.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as sf

from ducklake_core.arrow.file_report import carried, told
from ducklake_core.arrow.merge_keys import KeyFilter, SourceKeys
from ducklake_core.arrow.positions import (
    DeleteTarget,
    Deletions,
    FileDeletion,
    collect,
    delete_in_file,
    hide_positions,
    matching_inlined,
    position_shape,
)
from ducklake_core.arrow.read import read_inlined, read_task
from ducklake_core.errors import SchemaError, UnsupportedFeatureError
from ducklake_core.format.arrow_types import NO_KEY_TYPES
from ducklake_core.format.predicate_sql import to_sql
from ducklake_core.format.predicates import needs_sql
from ducklake_core.format.schema import Schema
from ducklake_core.format.types import UUID, Field
from ducklake_core.scan.plan import FileTask, ReadShape, ScanPlan
from ducklake_core.spark.arrow_form import to_spark_form
from ducklake_core.spark.attempts import ATTEMPT_COLUMNS, attempt_columns, may_have_lost
from ducklake_core.spark.bundles import Bundle, deal, inlined_bundles, split
from ducklake_core.spark.numbers import numbers, size_of
from ducklake_core.spark.scan_schema import arrow_form, quoted, spark_schema
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.sweeping import sweep

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FILE = "_ducklake_file"
_POSITION = "_ducklake_position"
_COUNT = "_ducklake_count"
RESULT = f"{ATTEMPT_COLUMNS}, result binary"
INLINED = -1
"""Stands for the number of a file with inlined rows, whose position is their row id."""
_POSITION_SHAPE = ("file_row_number",)


def find_positions(plan: ScanPlan, target: DeleteTarget, storage: Storage, session: SparkSession) -> Deletions:
    """Find and hide the rows that satisfy the plan's predicate; as :func:`ducklake_core.arrow.positions.find_positions`.

    Predicates that Arrow cannot evaluate are evaluated by Spark. Files of task attempts that lost are deleted; when the whole
    fails, files written so far stay and are swept by the write id.
    """
    if plan.predicate is not None and needs_sql(plan.predicate):
        wide = _positions(plan, plan.read_schema, storage, session, keep_predicate=False)
        return _hide(wide.filter(to_sql(plan.predicate, "spark")), plan, target, storage)
    dealt = deal(plan.tasks)
    rows: list[Any] = []
    if dealt:
        work = session.range(0, len(dealt), 1, len(dealt))
        with told():
            rows = work.mapInArrow(_delete_bundles(dealt, position_shape(plan), target, storage), RESULT).collect()
    found = collect((unpacked(row) for row in rows), matching_inlined(plan))
    _sweep_lost(rows, found, target, storage, session)
    return found


def _sweep_lost(rows: Sequence[Any], found: Deletions, target: DeleteTarget, storage: Storage, session: SparkSession) -> None:
    if may_have_lost(rows, session):
        sweep(storage, target.directory, target.write_id, keep=frozenset(file.path for file in found.delete_files))


def _delete_bundles(
    dealt: Sequence[tuple[FileTask, ...]], shape: ReadShape, target: DeleteTarget, storage: Storage
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    bundles = tuple(dealt)

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for task in bundles[number]:
                    with carried():
                        found = delete_in_file(task, shape, target, storage, threads=False)
                    yield packed(found)

    return run


def packed(value: object) -> pa.RecordBatch:
    """A result of an executor as the one row of a batch."""
    result = pa.array([pickle.dumps(value)], pa.binary())
    return pa.RecordBatch.from_pydict({**attempt_columns(1), "result": result})


def unpacked(row: Any) -> Any:
    """The result that a row holds."""
    return pickle.loads(row["result"])  # noqa: S301 - made by our own function in the same job


def find_key_positions(plan: ScanPlan, target: DeleteTarget, storage: Storage, data: DataFrame, on: Sequence[str]) -> Deletions:
    """Find and hide the rows whose key is the key of a row of a frame, by a join on executors.

    Args:
        plan: A scan of the key columns.
        target: Where to write delete files.
        storage: How to reach the files.
        data: Rows with at least the key columns. It is evaluated for its keys once here, and once more when written: its
            keys have to be the same each time.
        on: Names of the key columns.

    Raises:
        SchemaError: NULL or repeated keys in the frame, or a key column that it lacks.
        UnsupportedFeatureError: A key column of a nested type.
    """
    schema = plan.read_schema.select(on)
    keys = _keys(data, schema).persist()
    try:
        _check_keys(keys, schema)
        wide = _positions(plan, schema, storage, data.sparkSession, keep_predicate=True)
        return _hide(wide.join(keys, on=list(schema.names), how="left_semi"), plan, target, storage)
    finally:
        keys.unpersist()


def _keys(data: DataFrame, schema: Schema) -> DataFrame:
    by_name = {name.casefold(): name for name in data.columns}
    selected: list[Column] = []
    for column, field in zip(schema, spark_schema(schema), strict=True):
        if not column.is_leaf or column.type in NO_KEY_TYPES:
            raise UnsupportedFeatureError(f"column {column.name!r} of type {column.type} cannot be a key", column=column.name)
        if column.name.casefold() not in by_name:
            raise SchemaError(f"the data has no column {column.name!r}, which is part of the key", column=column.name)
        value = sf.col(quoted(by_name[column.name.casefold()])).cast(field.dataType)
        # The text of a uuid has many forms, and Spark compares letters.
        selected.append((sf.lower(value) if column.type == UUID else value).alias(column.name))
    return data.select(*selected)


def _check_keys(keys: DataFrame, schema: Schema) -> None:
    columns = [sf.col(quoted(name)) for name in schema.names]
    missing = [sf.coalesce(sf.sum(sf.when(column.isNull(), sf.col(_COUNT))), sf.lit(0)) for column in columns]
    repeated = sf.coalesce(sf.sum(sf.when(sf.col(_COUNT) > 1, sf.col(_COUNT) - 1)), sf.lit(0))
    counts = keys.groupBy(*columns).agg(sf.count(sf.lit(1)).alias(_COUNT)).agg(*missing, repeated).collect()[0]
    for name, count in zip(schema.names, counts, strict=False):
        if count:
            raise SchemaError(f"key column {name!r} is NULL in {count} rows of the data; rows without a key cannot be matched", column=name)
    if counts[len(columns)]:
        names = ", ".join(schema.names)
        raise SchemaError(f"the data has {counts[len(columns)]} rows whose key ({names}) occurs more than once", columns=list(schema.names))


def target_rows(
    plan: ScanPlan,
    storage: Storage,
    session: SparkSession,
    columns: Sequence[Field],
    places: Sequence[str],
    keys: SourceKeys | None = None,
) -> DataFrame:
    """Visible rows of a plan that satisfy its predicate, as far as Arrow can evaluate it, each with its place.

    Args:
        plan: A scan of all columns.
        columns: The columns under the names that they are to have.
        places: Names of the columns that follow: row id, number of the file in the plan (or :data:`INLINED`), position in it.
        keys: Leaves out rows that match none of them.
    """
    predicate = None if plan.predicate is not None and needs_sql(plan.predicate) else plan.predicate
    shape = replace(plan.shape, virtual=("rowid", *_POSITION_SHAPE), predicate=predicate)
    number_of = {task.file.id: number for number, task in enumerate(plan.tasks)}
    bundles = [*(Bundle(tasks=tasks) for tasks in deal(split(plan.tasks))), *inlined_bundles(plan.inlined)]
    schema = spark_schema(Schema(columns=tuple(columns)))
    for name in places:
        schema = schema.add(name, "long")
    reader = _position_reader(bundles, number_of, shape, storage, arrow_form(schema), keys)
    return numbers(session, len(bundles), size_of(plan.tasks, plan.inlined)).mapInArrow(reader, schema)


def _positions(plan: ScanPlan, columns: Schema, storage: Storage, session: SparkSession, *, keep_predicate: bool) -> DataFrame:
    """Visible rows of the plan's files: the columns, then the number of the file in the plan and the position in it."""
    predicate = plan.predicate if keep_predicate else None
    shape = replace(plan.shape, schema=columns, virtual=_POSITION_SHAPE, predicate=predicate)
    number_of = {task.file.id: number for number, task in enumerate(plan.tasks)}
    bundles = [*(Bundle(tasks=tasks) for tasks in deal(split(plan.tasks))), *inlined_bundles(plan.inlined)]
    schema = spark_schema(columns).add(_FILE, "long").add(_POSITION, "long")
    reader = _position_reader(bundles, number_of, shape, storage, arrow_form(schema))
    return numbers(session, len(bundles), size_of(plan.tasks, plan.inlined)).mapInArrow(reader, schema)


def _position_reader(
    bundles: Sequence[Bundle],
    number_of: dict[int, int],
    shape: ReadShape,
    storage: Storage,
    wanted: pa.Schema,
    keys: SourceKeys | None = None,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    dealt = tuple(bundles)

    def run(work: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carried():
            matching = None if keys is None else keys.load(storage)
            for batch in work:
                for number in batch.column(0).to_pylist():
                    for file, rows in _rows(dealt[number], number_of, shape, storage, matching):
                        arrays = [*rows.columns[:-1], pa.repeat(pa.scalar(file, pa.int64()), rows.num_rows), rows.columns[-1]]
                        yield to_spark_form(pa.RecordBatch.from_arrays(arrays, names=wanted.names), wanted)

    return run


def _rows(
    bundle: Bundle, number_of: dict[int, int], shape: ReadShape, storage: Storage, matching: KeyFilter | None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    for task in bundle.tasks:
        found = read_task(task, shape, storage, threads=False) if matching is None else matching.rows(task, shape, storage)
        for rows in found:
            yield number_of[task.file.id], rows
    if bundle.inlined is not None:
        table: Any = pa.ipc.open_stream(bundle.inlined).read_all()
        # The row id says which inlined row it is, wherever a bundle was cut.
        for rows in read_inlined(table, shape) if matching is None else matching.inlined(table, shape):
            yield INLINED, rows


def _hide(matching: DataFrame, plan: ScanPlan, target: DeleteTarget, storage: Storage) -> Deletions:
    """Write the delete files of the matching positions, one group of positions for each file."""
    tasks, shape = plan.tasks, plan.shape

    def write(rows: pa.Table) -> pa.Table:
        number = rows.column(_FILE)[0].as_py()
        positions = np.sort(rows.column(_POSITION).to_numpy())
        if number == INLINED:
            return pa.Table.from_batches([packed(positions.tolist())])
        with carried():
            return pa.Table.from_batches([packed(hide_positions(tasks[number].file, positions, shape, target, storage))])

    with told():
        results = matching.select(_FILE, _POSITION).groupBy(_FILE).applyInArrow(write, RESULT).collect()
    found: list[FileDeletion] = []
    row_ids: set[int] = set()
    for row in results:
        value = unpacked(row)
        if isinstance(value, list):
            row_ids.update(value)
        else:
            found.append(value)
    deletions = collect(found, inlined_by_table(plan, row_ids))
    _sweep_lost(results, deletions, target, storage, matching.sparkSession)
    return deletions


def inlined_by_table(plan: ScanPlan, row_ids: set[int]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Inlined rows of a plan with certain row ids, by physical table."""
    every = matching_inlined(replace(plan, predicate=None))
    chosen = ((name, tuple(row_id for row_id in ids if row_id in row_ids)) for name, ids in every)
    return tuple((name, ids) for name, ids in chosen if ids)
