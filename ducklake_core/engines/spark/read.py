"""A planned scan as a lazy Spark DataFrame: Spark's own Parquet reader where it is exact, Arrow on executors elsewhere.

Both ways give the same columns, types and rows; they are joined by UNION ALL. Executors never see the catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from ducklake_core.engines.spark.field_ids import wants_native
from ducklake_core.engines.spark.hadoop_paths import native_schemes
from ducklake_core.engines.spark.native_read import needs_places, read_natively
from ducklake_core.engines.spark.scan_schema import arrow_form, filtered_columns, wants_exact
from ducklake_core.engines.spark.sessions import is_connect
from ducklake_core.engines.spark.task_groups import TaskGroup, bin_pack, group_reader, inlined_groups, split_tasks
from ducklake_core.engines.spark.task_ids import size_of, task_id_frame
from ducklake_core.format.expressions import pruning
from ducklake_core.format.expressions.predicate_sql import to_sql
from ducklake_core.format.expressions.predicates import needs_sql, terms
from ducklake_core.format.files.locations import protocol_of
from ducklake_core.planning.native import REMOTE, prefers_arrow
from ducklake_core.planning.plan import FileTask, ScanPlan
from ducklake_core.storage.filesystems import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

V1_SOURCES_CONF = "spark.sql.sources.useV1SourceList"
"""Spark's session setting: formats that are read by its first data source interface, Parquet among them unless a user says otherwise."""


def read_plan(plan: ScanPlan, storage: Storage, session: SparkSession, *, exact: bool | None = None) -> DataFrame:
    """The rows of a plan as a DataFrame, classic or Connect; no rows are read before an action runs.

    Columns have the types of engines/spark/types.py and are nullable; the session's time zone changes no value. The session's
    ``spark.sql.parquet.fieldId.read.enabled`` is switched on, which changes nothing for files and schemas without ids.

    Args:
        plan: What to read.
        storage: How to open files.
        session: The session to read with.
        exact: Whether columns must have types that hold every value; as the session's ``spark.ducklake.read.types`` says when None.

    Raises:
        UnsupportedFeatureError: A predicate has no Spark SQL, or columns of a file of the lake's own have no field ids (in a large scan
            or a Connect session it is the action that fails of this).
        NotFoundError: A file is gone, looked for as above.
        UsageError: The session has another setting than those that there are.
    """
    schemes = native_schemes(session)
    native, others = _ways(plan, session, schemes)
    branches = read_natively(plan, native, storage, session, schemes) if native else []
    groups = [*(TaskGroup(tasks=tasks) for tasks in bin_pack(split_tasks(others))), *inlined_groups(plan.inlined)]
    if groups or not branches:
        size = size_of(others, plan.inlined)
        branches.append(_arrow(plan, groups, size, storage, session, wants_exact(session) if exact is None else exact))
    return reduce(lambda left, right: left.unionAll(right), branches)


# Spark compares each row with every term of a condition, and cannot compile very many of them.
_MOST_TERMS = 200


def _is_long(plan: ScanPlan) -> bool:
    """Whether the filter has too many terms for Spark, which compares each row with every one of them."""
    return plan.predicate is not None and not needs_sql(plan.predicate) and terms(plan.predicate) > _MOST_TERMS


def _ways(plan: ScanPlan, session: SparkSession, schemes: Mapping[str, str]) -> tuple[list[FileTask], list[FileTask]]:
    """Files for Spark's reader, and files for Arrow."""
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
    """Whether Spark's Parquet reader tells the places of rows: that of its second data source interface does not."""
    sources = str(session.conf.get(V1_SOURCES_CONF, "parquet")).lower()
    return "parquet" in [name.strip() for name in sources.split(",")]


def _arrow(plan: ScanPlan, groups: list[TaskGroup], size: int, storage: Storage, session: SparkSession, exact: bool) -> DataFrame:
    shape, filter_sql, condition = plan.shape, None, frozenset[int]()
    if plan.predicate is not None and needs_sql(plan.predicate):
        # Only Spark can evaluate it, so the columns that it reads have to come along.
        filter_sql, condition = to_sql(plan.predicate, "spark"), pruning.columns(plan.predicate)
        shape = replace(shape, predicate=None, schema=plan.read_schema, virtual=shape.read_virtual)
    columns = filtered_columns(shape.schema, shape.virtual, condition, exact=exact)
    reader = group_reader(groups, shape, storage, arrow_form(columns.schema), columns.again)
    frame = task_id_frame(session, len(groups), size).mapInArrow(reader, columns.schema)
    return frame if filter_sql is None else columns.selected(frame.filter(filter_sql), (*plan.schema.names, *plan.virtual))
