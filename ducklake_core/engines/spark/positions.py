"""Delete, overwrite and upsert on executors, which find positions and write delete files, one data file at a time.

The driver sees one small value for each data file, never a position. There are two ways::

    Arrow evaluates the predicate, or compares few keys: one job, one task for some files
        task ids      | id |
        report        | attempt columns | result |      a FileDeletion: delete file, positions for the catalog, or the whole file

    Spark evaluates it (SQL, or a join with keys): one query, grouped by file in between
        _positions    | columns to compare | _ducklake_file | _ducklake_position |
        target_rows   | t0 | t1 | ... | row id | file | position | exact copies |      the same for updates and merges
        after filter  | _ducklake_file | _ducklake_position |  -> one group for each file -> report as above

A file is identified by its index in the plan, which every task has; -1 means inlined rows, whose position is their row id.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as sf

from ducklake_core.engines.arrow.merge import KeyFilter, SourceKeys
from ducklake_core.engines.arrow.positions import (
    DeleteTarget,
    Deletions,
    FileDeletion,
    KeySet,
    collect,
    delete_in_file,
    key_set,
    matching_inlined,
    null_key,
    position_shape,
    repeated_key,
    write_position_deletes,
)
from ducklake_core.engines.arrow.read import read_inlined, read_task
from ducklake_core.engines.arrow.read import read_plan as read_arrow
from ducklake_core.engines.arrow.writer import reraise_remote_errors, serialize_errors
from ducklake_core.engines.spark.scan_schema import arrow_form, quoted, spark_schema
from ducklake_core.engines.spark.session import filtered, is_connect
from ducklake_core.engines.spark.tasks import TaskGroup, bin_pack, inlined_groups, size_of, split_tasks, task_id_frame, task_ids
from ducklake_core.engines.spark.types import to_spark_form
from ducklake_core.engines.spark.work_units import ATTEMPT_COLUMNS, attempt_columns, awaiting_tasks, may_have_lost
from ducklake_core.errors import SchemaError, UnsupportedFeatureError
from ducklake_core.format.expressions.predicates import needs_sql
from ducklake_core.format.types.data_types import UUID, Field
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import NO_KEY_TYPES, Schema
from ducklake_core.planning.plan import FileTask, ScanPlan, ScanProjection
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.unfinished import NamedFiles, sweep

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FILE = "_ducklake_file"
_POSITION = "_ducklake_position"
_COUNT = "_ducklake_count"
RESULT = f"{ATTEMPT_COLUMNS}, result binary"
INLINED = -1
"""The file index of inlined rows, whose position is their row id."""
_POSITION_SHAPE = ("file_row_number",)
_MAX_KEYS, _MAX_KEY_BYTES = 100_000, 8 << 20
"""Maximum number and bytes of keys that travel with every task."""


def find_positions(
    plan: ScanPlan,
    target: DeleteTarget,
    storage: Storage,
    session: SparkSession,
    named: NamedFiles | None = None,
    keys: KeySet | None = None,
) -> Deletions:
    """Find and hide the rows that satisfy the plan's predicate; as :func:`ducklake_core.engines.arrow.positions.find_positions`.

    Spark evaluates predicates that Arrow cannot evaluate. Files of superseded task attempts are deleted. If the whole fails, files written
    so far stay, and the caller sweeps them by the write id.

    Args:
        plan: Files and inlined rows that may match, at the transaction's base snapshot.
        target: Where to write delete files.
        storage: How to reach files.
        session: The session whose executors do the work.
        named: Reports the files that the catalog names: they are never swept.
        keys: When given, only rows whose key is among these match; every task gets them.
    """
    if plan.predicate is not None and needs_sql(plan.predicate):
        assert keys is None, "bounds of keys need no SQL"
        wide = _positions(plan, plan.read_schema, storage, session, keep_predicate=False)
        return _hide(filtered(wide, plan.predicate), plan, target, storage, named)
    packed_tasks = bin_pack(plan.tasks)
    rows: list[Any] = []
    if packed_tasks:
        work = session.range(0, len(packed_tasks), 1, len(packed_tasks))
        with reraise_remote_errors(), awaiting_tasks(session):
            rows = work.mapInArrow(_delete_bundles(packed_tasks, position_shape(plan, keys), target, storage, keys), RESULT).collect()
    found = collect((unpacked(row) for row in rows), matching_inlined(plan, keys))
    _sweep_lost(rows, found, target, storage, session, named)
    return found


def _sweep_lost(
    rows: Sequence[Any], found: Deletions, target: DeleteTarget, storage: Storage, session: SparkSession, named: NamedFiles | None
) -> None:
    if may_have_lost(rows, session):
        sweep(storage, target.directory, target.write_id, named=named, keep=[file.path for file in found.delete_files])


def _delete_bundles(
    packed_tasks: Sequence[tuple[FileTask, ...]], shape: ScanProjection, target: DeleteTarget, storage: Storage, keys: KeySet | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    groups = tuple(packed_tasks)

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in task_ids(numbers):
            for task in groups[number]:
                with serialize_errors():
                    found = delete_in_file(task, shape, target, storage, keys, threads=False)
                yield packed(found)

    return run


def packed(value: object) -> pa.RecordBatch:
    """Return an executor's result as a batch of one row."""
    result = pa.array([pickle.dumps(value)], pa.binary())
    return pa.RecordBatch.from_pydict({**attempt_columns(1), "result": result})


def unpacked(row: Any) -> Any:
    """Return the result that a row holds."""
    return pickle.loads(row["result"])  # noqa: S301 - made by our own function in the same job


def few_keys(rows: ScanPlan, storage: Storage, session: SparkSession) -> KeySet | None:
    """Return the keys of uncommitted files, read in this process; None for more than 100,000 keys or 8 MB, and for Spark Connect.

    A Spark Connect client may not reach the files.

    One job finds the rows with them. A join takes several jobs, and its shuffles cost more than comparing all rows with few keys.

    Args:
        rows: A scan of the key columns of the files.
        storage: How to reach the files.
        session: The session of the data.

    Raises:
        UsageError: A key is NULL, or occurs more than once.
    """
    if is_connect(session) or sum(task.file.record_count for task in rows.tasks) > _MAX_KEYS:
        return None
    batches: list[pa.RecordBatch] = []
    size = 0
    for batch in read_arrow(rows, storage, ahead=False):
        batches.append(batch)
        size += batch.nbytes
        if size > _MAX_KEY_BYTES:
            return None
    return key_set(pa.Table.from_batches(batches, rows.shape.arrow_schema()), rows.schema.names, rows.schema)


def find_key_positions(
    plan: ScanPlan, target: DeleteTarget, storage: Storage, data: DataFrame, on: Sequence[str], *, named: NamedFiles | None = None
) -> Deletions:
    """Find and hide the rows whose key is the key of a row of a frame, by a join on executors.

    Args:
        plan: A scan of the key columns.
        target: Where to write delete files.
        storage: How to reach the files.
        data: Rows with at least the key columns. Spark evaluates it here for its keys and again when it is written, so that its keys have
            to be the same each time.
        on: Names of the key columns.
        named: Reports the files that the catalog names: they are never swept.

    Raises:
        UsageError: A key is NULL, or occurs more than once.
        SchemaError: The frame lacks a key column.
        UnsupportedFeatureError: A key column has a nested type.
    """
    schema = plan.read_schema.select(on)
    keys = _keys(data, schema).persist()
    try:
        _check_distinct(keys, schema)
        wide = _positions(plan, schema, storage, data.sparkSession, keep_predicate=True)
        return _hide(wide.join(keys, on=list(schema.names), how="left_semi"), plan, target, storage, named)
    finally:
        keys.unpersist()


def _keys(data: DataFrame, schema: Schema) -> DataFrame:
    by_name = {folded(name): name for name in data.columns}
    selected: list[Column] = []
    for column, field in zip(schema, spark_schema(schema), strict=True):
        if not column.is_leaf or column.type in NO_KEY_TYPES:
            raise UnsupportedFeatureError(
                f"column {column.name!r} of type {column.type} cannot be a key. Use a column of a simple type, or DuckDB: "
                f"lake.sql('MERGE INTO t USING rows ON t.{column.name} = rows.{column.name} ...', rows=rows)",
                column=column.name,
            )
        if folded(column.name) not in by_name:
            raise SchemaError(
                f"the data has no column {column.name!r}, which is part of the key. Add it, or change the key", column=column.name
            )
        value = sf.col(quoted(by_name[folded(column.name)])).cast(field.dataType)
        # A UUID has several spellings as a string, and Spark compares characters.
        selected.append((sf.lower(value) if column.type == UUID else value).alias(column.name))
    return data.select(*selected)


def check_keys(data: DataFrame, schema: Schema) -> None:
    """Check that every row of a frame has a key of its own.

    Args:
        data: Rows with at least the key columns.
        schema: The key columns of the table.

    Raises:
        UsageError: A key is NULL, or occurs more than once.
        SchemaError: The frame lacks a key column.
        UnsupportedFeatureError: A key column has a nested type.
    """
    _check_distinct(_keys(data, schema), schema)


def _check_distinct(keys: DataFrame, schema: Schema) -> None:
    columns = [sf.col(quoted(name)) for name in schema.names]
    missing = [sf.coalesce(sf.sum(sf.when(column.isNull(), sf.col(_COUNT))), sf.lit(0)) for column in columns]
    repeated = sf.coalesce(sf.sum(sf.when(sf.col(_COUNT) > 1, sf.col(_COUNT) - 1)), sf.lit(0))
    counts = keys.groupBy(*columns).agg(sf.count(sf.lit(1)).alias(_COUNT)).agg(*missing, repeated).collect()[0]
    for name, count in zip(schema.names, counts, strict=False):
        if count:
            raise null_key(name, count)
    if counts[len(columns)]:
        found = keys.groupBy(*columns).agg(sf.count(sf.lit(1)).alias(_COUNT)).filter(sf.col(_COUNT) > 1).head(1)
        raise repeated_key(schema.names, found[0][: len(columns)], counts[len(columns)])


def target_rows(
    plan: ScanPlan,
    storage: Storage,
    session: SparkSession,
    columns: Sequence[Field],
    places: Sequence[str],
    keys: SourceKeys | None = None,
    *,
    evaluated: Collection[int] = frozenset(),
) -> DataFrame:
    """Return visible rows with their positions, filtered by the parts of the predicate that Arrow can evaluate.

    Columns have types that hold every value, because they go back into files. Columns that Spark evaluates an expression on have Spark's
    nearest types; where these differ, an exact copy follows the positions, under the name of :func:`exact_name`.

    Args:
        plan: A scan of all columns.
        storage: How to open files.
        session: The session to read with.
        columns: The columns under the names that the frame gives them.
        places: Names of the columns that follow: row id, index of the file in the plan (or :data:`INLINED`), position in it.
        keys: Filter that skips rows that match none of these keys; None for no filter.
        evaluated: Indexes of the columns that Spark evaluates expressions on; none by default.
    """
    predicate = None if plan.predicate is not None and needs_sql(plan.predicate) else plan.predicate
    shape = replace(plan.shape, virtual=("rowid", *_POSITION_SHAPE), predicate=predicate)
    number_of = {task.file.id: number for number, task in enumerate(plan.tasks)}
    groups = [*(TaskGroup(tasks=tasks) for tasks in bin_pack(split_tasks(plan.tasks))), *inlined_groups(plan.inlined)]
    every = frozenset(column.id for column in columns)
    given = every - {columns[place].id for place in evaluated}
    schema, exact = (spark_schema(Schema(columns=tuple(columns)), exact=ids) for ids in (given, every))
    again = [place for place in range(len(columns)) if schema[place].dataType != exact[place].dataType]
    for name in places:
        schema = schema.add(name, "long")
    for place in again:
        schema = schema.add(exact_name(columns[place].name), exact[place].dataType)
    reader = _position_reader(groups, number_of, shape, storage, arrow_form(schema), keys, again=again)
    return task_id_frame(session, len(groups), size_of(plan.tasks, plan.inlined)).mapInArrow(reader, schema)


def exact_name(name: str) -> str:
    """Return the name of the column of exact values that accompanies a column of values to compute with."""
    return f"{name}_exact"


def _positions(plan: ScanPlan, columns: Schema, storage: Storage, session: SparkSession, *, keep_predicate: bool) -> DataFrame:
    """Return visible rows of the plan's files: the columns, then the number of the file in the plan and the position in it."""
    predicate = plan.predicate if keep_predicate else None
    shape = replace(plan.shape, schema=columns, virtual=_POSITION_SHAPE, predicate=predicate)
    number_of = {task.file.id: number for number, task in enumerate(plan.tasks)}
    groups = [*(TaskGroup(tasks=tasks) for tasks in bin_pack(split_tasks(plan.tasks))), *inlined_groups(plan.inlined)]
    schema = spark_schema(columns).add(_FILE, "long").add(_POSITION, "long")
    reader = _position_reader(groups, number_of, shape, storage, arrow_form(schema))
    return task_id_frame(session, len(groups), size_of(plan.tasks, plan.inlined)).mapInArrow(reader, schema)


def _position_reader(
    groups: Sequence[TaskGroup],
    number_of: dict[int, int],
    shape: ScanProjection,
    storage: Storage,
    wanted: pa.Schema,
    keys: SourceKeys | None = None,
    *,
    again: Sequence[int] = (),
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    packed_tasks = tuple(groups)

    def run(work: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with serialize_errors():
            matching = None if keys is None else keys.load(storage)
            for number in task_ids(work):
                for file, rows in _rows(packed_tasks[number], number_of, shape, storage, matching):
                    # The number of the file comes before the position, the last virtual column.
                    *columns, positions = rows.columns
                    arrays = [*columns, pa.repeat(pa.scalar(file, pa.int64()), rows.num_rows), positions]
                    yield to_spark_form(pa.RecordBatch.from_arrays(arrays, names=wanted.names[: len(arrays)]), wanted, again)

    return run


def _rows(
    group: TaskGroup, number_of: dict[int, int], shape: ScanProjection, storage: Storage, matching: KeyFilter | None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    for task in group.tasks:
        found = read_task(task, shape, storage, threads=False) if matching is None else matching.rows(task, shape, storage)
        for rows in found:
            yield number_of[task.file.id], rows
    if group.inlined is not None:
        table: Any = pa.ipc.open_stream(group.inlined).read_all()
        # The row id identifies an inlined row, however the rows were divided into groups.
        for rows in read_inlined(table, shape) if matching is None else matching.inlined(table, shape):
            yield INLINED, rows


def _hide(matching: DataFrame, plan: ScanPlan, target: DeleteTarget, storage: Storage, named: NamedFiles | None) -> Deletions:
    """Write the delete files of the matching positions, one group of positions for each file."""
    tasks, shape = plan.tasks, plan.shape

    def write(rows: pa.Table) -> pa.Table:
        number = rows.column(_FILE)[0].as_py()
        positions = np.sort(rows.column(_POSITION).to_numpy())
        if number == INLINED:
            return pa.Table.from_batches([packed(positions.tolist())])
        with serialize_errors():
            return pa.Table.from_batches([packed(write_position_deletes(tasks[number].file, positions, shape, target, storage))])

    with reraise_remote_errors(), awaiting_tasks(matching.sparkSession):
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
    _sweep_lost(results, deletions, target, storage, matching.sparkSession, named)
    return deletions


def inlined_by_table(plan: ScanPlan, row_ids: set[int]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return inlined rows of a plan with certain row ids, by physical table."""
    every = matching_inlined(replace(plan, predicate=None))
    chosen = ((name, tuple(row_id for row_id in ids if row_id in row_ids)) for name, ids in every)
    return tuple((name, ids) for name, ids in chosen if ids)
