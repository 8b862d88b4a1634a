"""A planned scan as a lazy Spark DataFrame: Spark's own Parquet reader where it is exact, Arrow on executors elsewhere.

Both ways give the same columns, types and rows; they are joined by UNION ALL. Executors never see the catalog.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from ducklake_core.format.predicate_sql import to_sql
from ducklake_core.format.predicates import And, Comparison, IsNull, Not, Or, Predicate, SqlExpression
from ducklake_core.scan.native import prefers_arrow
from ducklake_core.scan.plan import FileTask, ScanPlan
from ducklake_core.spark.bundles import Bundle, bundle_reader, deal, inlined_bundles, split
from ducklake_core.spark.native_read import read_natively
from ducklake_core.spark.scan_schema import arrow_form, quoted, spark_schema
from ducklake_core.storage.filesystems import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NANOSECONDS_CONF = "spark.sql.legacy.parquet.nanosAsLong"


def read_plan(plan: ScanPlan, storage: Storage, session: SparkSession) -> DataFrame:
    """The rows of a plan as a DataFrame, classic or Connect; no file is opened before an action runs.

    Columns have the types of spark/types.py and are nullable; the session's time zone changes no value. The session's
    ``spark.sql.parquet.fieldId.read.enabled`` is switched on, which changes nothing for files and schemas without ids.

    Raises:
        UnsupportedFeatureError: A predicate that has no Spark SQL.
    """
    native, others = _ways(plan, session)
    branches = read_natively(plan, native, storage, session) if native else []
    bundles = [*(Bundle(tasks=tasks) for tasks in deal(split(others))), *inlined_bundles(plan.inlined)]
    if bundles or not branches:
        branches.append(_arrow(plan, bundles, storage, session))
    return reduce(lambda left, right: left.unionAll(right), branches)


def _ways(plan: ScanPlan, session: SparkSession) -> tuple[list[FileTask], list[FileTask]]:
    """Files for Spark's reader, and files for Arrow."""
    native = [task for task in plan.tasks if task.native]
    others = [task for task in plan.tasks if not task.native]
    is_connect = type(session).__module__.startswith("pyspark.sql.connect")
    if is_connect and prefers_arrow([task.file.file_size_bytes for task in native]):
        return [], list(plan.tasks)
    return native, others


def _arrow(plan: ScanPlan, bundles: list[Bundle], storage: Storage, session: SparkSession) -> DataFrame:
    shape = plan.shape
    filter_sql = None
    if plan.predicate is not None and needs_sql(plan.predicate):
        # Only Spark can evaluate it, so the columns that it reads have to come along.
        filter_sql = to_sql(plan.predicate, "spark")
        shape = replace(shape, predicate=None, schema=plan.read_schema, virtual=shape.read_virtual)
    as_long = str(session.conf.get(NANOSECONDS_CONF, "false")).lower() == "true"
    schema = spark_schema(shape.schema, shape.virtual, nanoseconds_as_long=as_long)
    numbers = session.range(0, len(bundles), 1, max(1, len(bundles)))
    frame = numbers.mapInArrow(bundle_reader(bundles, shape, storage, arrow_form(schema)), schema)
    if filter_sql is None:
        return frame
    return frame.filter(filter_sql).select(*(quoted(name) for name in (*plan.schema.names, *plan.virtual)))


def needs_sql(predicate: Predicate) -> bool:
    """Whether a predicate has a part that only a SQL engine can evaluate."""
    match predicate:
        case SqlExpression():
            return True
        case And(operands=operands) | Or(operands=operands):
            return any(needs_sql(operand) for operand in operands)
        case Not(operand=operand):
            return needs_sql(operand)
        case Comparison(left=left, right=right):
            return isinstance(left, SqlExpression) or isinstance(right, SqlExpression)
        case IsNull(operand=operand):
            return isinstance(operand, SqlExpression)
        case _:
            return False
