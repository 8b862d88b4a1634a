"""Which engine works on a frame: Arrow in this process or Spark. Told by the frame's type, without importing Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa

from ducklake_core.catalog.state import TableState
from ducklake_core.errors import UsageError
from ducklake_core.format.arrow_types import from_arrow_schema
from ducklake_core.format.files import WrittenFile
from ducklake_core.format.schema import Schema
from ducklake_core.format.types import BLOB, GEOMETRY, Field
from ducklake_core.scan.plan import ScanPlan, written_plan

if TYPE_CHECKING:
    from ducklake_core.arrow.changed_rows import ChangedRows
    from ducklake_core.arrow.merge_source import MergeSource
    from ducklake_core.arrow.positions import DeleteTarget, Deletions
    from ducklake_core.arrow.write_state import WriteState
    from ducklake_core.staged_table import ChangeRows
    from ducklake_core.storage.filesystems import Storage

EngineName: TypeAlias = Literal["arrow", "spark"]


def engine_of(data: Any) -> EngineName:
    """The engine of a frame.

    Raises:
        UsageError: Neither a pyarrow Table, RecordBatch or RecordBatchReader nor a Spark DataFrame.
    """
    if isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return "arrow"
    if any(cls.__module__.startswith("pyspark.sql") and cls.__name__ == "DataFrame" for cls in type(data).__mro__):
        return "spark"
    kind = f"{type(data).__module__}.{type(data).__qualname__}"
    raise UsageError(f"cannot write a {kind}: give a pyarrow Table or RecordBatchReader, or a Spark DataFrame", type=kind)


def schema_of(data: Any) -> Schema:
    """The DuckLake columns, without ids, of a frame, an Arrow schema or a DuckLake schema."""
    if isinstance(data, Schema):
        return data
    if isinstance(data, pa.Schema):
        return from_arrow_schema(data)
    if engine_of(data) == "arrow":
        return from_arrow_schema(data.schema)
    from ducklake_core.spark.types import from_spark_schema

    return from_spark_schema(data.schema)


def fitted_schema(data: Any, table: Schema) -> Schema:
    """The frame's columns, where those without a type of their own (all NULL) take the type of the table's column.

    So do binaries where the table has geometries, which are well-known binary wherever there is no type for them.
    """
    frame = schema_of(data)
    untyped = _untyped_columns(data)

    def fitted(column: Field) -> Field:
        known = table.find(column.name)
        takes = known is not None and (column.name in untyped or (column.type == BLOB and known.type == GEOMETRY))
        return replace(column, type=known.type) if known is not None and takes else column

    return Schema(columns=tuple(fitted(column) for column in frame))


def _untyped_columns(data: Any) -> frozenset[str]:
    if isinstance(data, Schema):
        return frozenset()
    if isinstance(data, pa.Schema) or engine_of(data) == "arrow":
        fields = data if isinstance(data, pa.Schema) else data.schema
        return frozenset(field.name for field in fields if pa.types.is_null(field.type))
    return frozenset(field.name for field in data.schema if field.dataType.typeName() == "void")


def write_files(data: Any, state: WriteState) -> tuple[WrittenFile, ...]:
    """Write a frame's rows to new files of a table. On failure the files are gone again."""
    if engine_of(data) == "arrow":
        from ducklake_core.arrow.write import write_table

        return write_table(pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data, state)
    from ducklake_core.spark.write import write_frame

    return tuple(write_frame(data, state))


def delete_matching(plan: ScanPlan, target: DeleteTarget, storage: Storage, data: Any = None, session: Any = None) -> Deletions:
    """Write delete files for the rows that match a plan's predicate, on the engine of the data that replaces them or a session."""
    if data is not None and engine_of(data) == "spark":
        session = data.sparkSession
    if session is not None:
        from ducklake_core.spark.positions import find_positions as find_with_spark

        return find_with_spark(plan, target, storage, session)
    from ducklake_core.arrow.positions import find_positions

    return find_positions(plan, target, storage)


def delete_by_key(
    plan: ScanPlan, on: Sequence[str], data: Any, written: Sequence[WrittenFile], target: DeleteTarget, storage: Storage
) -> Deletions:
    """Write delete files for the rows whose key columns equal those of a row of the data, on the data's engine.

    Args:
        plan: A scan of the key columns.
        on: Names of the key columns.
        data: The frame.
        written: The files that the frame was written to, below the target's directory.
        target: Where to write delete files.
        storage: How to reach files.

    Raises:
        SchemaError: NULL or repeated keys in the data.
    """
    if engine_of(data) == "spark":
        from ducklake_core.spark import positions as spark_positions
        from ducklake_core.spark.read import read_plan

        # A frame may give other rows each time that it is computed: its keys are those of the rows that it did give.
        keys = read_plan(written_plan(plan, on, target.directory, written), storage, data.sparkSession, exact=False)
        return spark_positions.find_key_positions(plan, target, storage, keys, on)
    from ducklake_core.arrow.keys import key_set
    from ducklake_core.arrow.positions import find_positions

    return find_positions(plan, target, storage, key_set(data, on, plan.schema))


def change_rows(
    plan: ScanPlan, selection: ChangeRows, target: DeleteTarget, state: WriteState, storage: Storage, *, keep: int = 0
) -> ChangedRows:
    """Write what becomes of the rows that an update or a merge is about, on the engine that was chosen for it.

    In this process up to ``keep`` rows are given back instead of written.
    """
    request, source = selection.request, selection.source
    session = source.session if source is not None and source.session is not None else selection.session
    if session is not None:
        from ducklake_core.spark.changed_rows import change_rows as change_with_spark

        return change_with_spark(plan, request, target, state, session, source)
    from ducklake_core.arrow.changed_rows import change_rows as change_with_arrow

    rows = None if source is None else source.rows
    return change_with_arrow(plan, request.change(), target, state, storage, source=rows, keep=keep)


def restore_rows(
    now: ScanPlan, then: ScanPlan, target: DeleteTarget, state: WriteState, storage: Storage, session: Any = None
) -> ChangedRows:
    """Make the rows of a table those of an earlier snapshot, in this process or by the executors of a session."""
    if session is not None:
        from ducklake_core.spark.restored_rows import restore_rows as restore_with_spark

        return restore_with_spark(now, then, target, state, storage, session)
    from ducklake_core.arrow.restored_rows import restore_rows as restore_with_arrow

    return restore_with_arrow(now, then, target, state, storage)


def merge_source(data: Any, state: WriteState) -> MergeSource:
    """Keep the rows of a merge's source: in memory when they are there, else in files beside the table.

    Args:
        data: A pyarrow Table or RecordBatchReader, or a Spark DataFrame, which is computed once.
        state: How files of the table are written.
    """
    from ducklake_core.arrow.merge_source import MergeSource
    from ducklake_core.arrow.row_change import source_ids

    schema = source_ids(schema_of(data))
    if engine_of(data) == "arrow":
        from ducklake_core.format.arrow_cast import cast_to

        return MergeSource(schema=schema, rows=cast_to(replayable(data), schema, physical=False))
    plain = replace(state, schema=schema, partition_spec=None, promise=None, sort=())
    files = write_files(data, plain)
    return MergeSource(schema=schema, files=files, directory=state.directory, session=data.sparkSession, storage=state.storage)


def is_in_memory(data: Any) -> bool:
    """Whether writing the rows once more costs next to nothing."""
    return isinstance(data, pa.Table | pa.RecordBatch)


def replayable(data: Any) -> Any:
    """The same rows as something that can be read twice: a stream is read into a table."""
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    return pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data


def check_keys(on: Sequence[str], state: TableState) -> None:
    """Refuse an upsert without keys or with columns that the table does not have."""
    if not on:
        raise UsageError(f"an upsert into {state.qualified_name} needs its key columns: on=[...]", table=state.qualified_name)
    for name in on:
        state.schema.column(name)


def is_stream(data: Any) -> bool:
    """Whether the rows can be read only once."""
    return isinstance(data, pa.RecordBatchReader)
