"""Convert the caller's rows to one kind of frame, and choose the engine that changes rows.

Only this module decides between the engines. It imports PySpark through functions, because Spark is optional::

    caller's rows   Arrow, pandas, Polars, DuckDB, dicts -> ArrowFrame;  Spark DataFrame -> SparkFrame
    deletes         a session -> its executors;  otherwise this process
    merges          the session of the source first, then the given one, otherwise this process
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from ducklake_core.engines.arrow.frame import ArrowFrame, arrow_frame, kind_of, no_columns
from ducklake_core.errors import UsageError
from ducklake_core.format.types.schema import Schema, from_arrow_schema

if TYPE_CHECKING:
    from ducklake_core.engines.arrow.changes import ChangedRows
    from ducklake_core.engines.arrow.merge import ChangeRequest, MergeSource
    from ducklake_core.engines.arrow.positions import DeleteTarget, Deletions
    from ducklake_core.engines.arrow.write_state import WriteState
    from ducklake_core.engines.spark.frame import SparkFrame
    from ducklake_core.planning.plan import ScanPlan
    from ducklake_core.storage.filesystems import Storage
    from ducklake_core.storage.unfinished import NamedFiles


Frame: TypeAlias = "ArrowFrame | SparkFrame"
"""Rows and the engine that works on them; no other module depends on the kind of the caller's rows."""


def frame_of(data: Any) -> Frame:
    """Return the frame of the caller's data; rows are not read.

    Args:
        data: Anything with ``__arrow_c_stream__`` or ``__arrow_c_array__``, a pandas DataFrame, a list of dicts, or a Spark DataFrame
            (classic, Connect, pandas-on-Spark).

    Raises:
        UsageError: It is none of these, or has rows without columns; the message names its kind.
        UnsupportedFeatureError: A column of a type that DuckLake does not have.
    """
    kinds = [cls.__module__ for cls in type(data).__mro__ if cls.__name__ == "DataFrame"]
    # Spark comes first, because newer Spark frames are Arrow streams too, which would collect all their rows in this process.
    if any(module.startswith("pyspark.pandas") for module in kinds):
        from ducklake_core.engines.spark.frame import of_pandas_on_spark, spark_frame

        return spark_frame(of_pandas_on_spark(data))
    if any(module.startswith("pyspark.sql") for module in kinds):
        from ducklake_core.engines.spark.frame import spark_frame

        return spark_frame(data)
    return arrow_frame(data)


def columns_of(data: Any) -> Schema:
    """Return the DuckLake columns, without ids, of a DuckLake schema, an Arrow schema of any library, or a frame, which is not read.

    Raises:
        UsageError: It is none of these, or a frame without columns; the message names its kind.
    """
    if isinstance(data, Schema):
        return data
    if isinstance(data, pa.Schema):
        return from_arrow_schema(data)
    if hasattr(data, "__arrow_c_schema__"):
        # A stream of another library may be readable only once, and its rows are needed later.
        try:
            return from_arrow_schema(pa.schema(data))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise UsageError(
                f"cannot read the columns of a {kind_of(data)}: {error}. Pass rows, such as a DataFrame, a pyarrow Table or a list of "
                "dicts",
                type=kind_of(data),
            ) from error
    frame = frame_of(data)
    if not frame.schema.columns:
        raise no_columns(frame.kind)
    return frame.schema


def position_finder(session: Any, named: NamedFiles) -> Callable[[ScanPlan, DeleteTarget, Storage], Deletions]:
    """Return the function that writes delete files for the rows that match a plan's predicate, on the session's executors or here.

    Here and below, ``named`` reports the files that the catalog names: they are never swept.
    """
    if session is None:
        from ducklake_core.engines.arrow.positions import find_positions

        return find_positions
    from ducklake_core.engines.spark.positions import find_positions as find_with_spark

    return partial(find_with_spark, session=session, named=named)


def change_rows(
    plan: ScanPlan,
    request: ChangeRequest,
    target: DeleteTarget,
    state: WriteState,
    storage: Storage,
    *,
    source: MergeSource | None = None,
    session: Any = None,
    keep: int = 0,
    named: NamedFiles | None = None,
) -> ChangedRows:
    """Carry out an update or a merge on the engine that was chosen for it.

    Args:
        plan: A scan of all columns of the table; its predicate selects the rows that may change.
        request: The change.
        target: Where to write delete files.
        state: How to write data files; it has the same write id.
        storage: How to reach files.
        source: The source of a merge; None for an update. Its session, if it has one, does the work.
        session: The Spark session that does the work; None for this process.
        keep: In this process, up to this many changed rows, and this many new ones, are returned instead of written; 0 by default.
        named: Reports the files that the catalog names; Spark's sweep after lost tasks keeps them.
    """
    if source is not None and source.session is not None:
        session = source.session
    if session is not None:
        from ducklake_core.engines.spark.changes import change_rows as change_with_spark

        return change_with_spark(plan, request, target, state, session, source, named=named)
    from ducklake_core.engines.arrow.changes import change_rows as change_with_arrow

    rows = None if source is None else source.rows
    if rows is not None and request.by_row_id:
        from ducklake_core.engines.arrow.changes import change_rows_by_id

        return change_rows_by_id(plan, request.change(), target, state, storage, source=rows, keep=keep)
    return change_with_arrow(plan, request.change(), target, state, storage, source=rows, keep=keep)


def check_source_keys(source: MergeSource, on: Sequence[str], table: Schema) -> None:
    """Check that every row of a merge's source has a unique key.

    Args:
        source: The source.
        on: Names of the key columns.
        table: The table's columns.

    Raises:
        UsageError: A key is NULL, or occurs more than once.
        UnsupportedFeatureError: A key column has a nested type.
    """
    if source.rows is not None:
        from ducklake_core.engines.arrow.positions import key_set

        key_set(source.rows, on, table)
        return
    from ducklake_core.engines.spark.positions import check_keys
    from ducklake_core.engines.spark.read import read_plan

    check_keys(read_plan(source.scan(on), source.storage, source.session, exact=False), table.select(on))


def restore_rows(
    now: ScanPlan,
    then: ScanPlan,
    target: DeleteTarget,
    state: WriteState,
    storage: Storage,
    session: Any = None,
    *,
    named: NamedFiles | None = None,
) -> ChangedRows:
    """Make the rows of a table those of an earlier snapshot, in this process or by the executors of a session.

    Args:
        now: A scan of all columns and rows at the transaction's base snapshot.
        then: The same at the snapshot to go back to.
        target: Where to write delete files.
        state: How to write data files.
        storage: How to reach files.
        session: The Spark session that does the work; None (the default) for this process.
        named: Reports the files that the catalog names; Spark's sweep after lost tasks keeps them.
    """
    if session is not None:
        from ducklake_core.engines.spark.changes import restore_rows as restore_with_spark

        return restore_with_spark(now, then, target, state, storage, session, named=named)
    from ducklake_core.engines.arrow.changes import restore_rows as restore_with_arrow

    return restore_with_arrow(now, then, target, state, storage)
