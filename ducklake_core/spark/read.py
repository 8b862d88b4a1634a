"""A planned scan as a lazy Spark DataFrame: Spark's own Parquet reader where it is exact, Arrow on executors elsewhere.

Both ways give the same columns, types and rows; they are joined by UNION ALL. Executors never see the catalog.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

from ducklake_core.format.predicate_sql import to_sql
from ducklake_core.format.predicates import And, Comparison, IsNull, Not, Or, Predicate, SqlExpression
from ducklake_core.format.schema import Schema
from ducklake_core.format.types import DataType as LakeType
from ducklake_core.format.types import Field, ListType
from ducklake_core.format.types import MapType as LakeMap
from ducklake_core.format.types import StructType as LakeStruct
from ducklake_core.scan.plan import FileTask, ScanPlan
from ducklake_core.spark.bundles import Bundle, bundle_reader, deal, inlined_bundles, split
from ducklake_core.spark.types import to_spark_type
from ducklake_core.storage.filesystems import Storage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

FIELD_ID_CONF = "spark.sql.parquet.fieldId.read.enabled"
_VIRTUAL_TYPES = {"rowid": LongType(), "snapshot_id": LongType(), "filename": StringType(), "file_row_number": LongType()}


def read_plan(plan: ScanPlan, storage: Storage, session: SparkSession) -> DataFrame:
    """The rows of a plan as a DataFrame, classic or Connect; no file is opened before an action runs.

    Columns have the types of spark/types.py and are nullable; the session's time zone changes no value. The session's
    ``spark.sql.parquet.fieldId.read.enabled`` is switched on, which changes nothing for files and schemas without ids.

    Raises:
        UnsupportedFeatureError: A column type that Spark has no type for, or a predicate that has no Spark SQL.
    """
    branches: list[DataFrame] = []
    native = [task for task in plan.tasks if task.native]
    others = [task for task in plan.tasks if not task.native]
    if native:
        branches.append(_native(plan, native, session))
    bundles = [*(Bundle(tasks=tasks) for tasks in deal(split(others))), *inlined_bundles(plan.inlined)]
    if bundles or not branches:
        branches.append(_arrow(plan, bundles, storage, session))
    return reduce(lambda left, right: left.unionAll(right), branches)


def _native(plan: ScanPlan, tasks: list[FileTask], session: SparkSession) -> DataFrame:
    session.conf.set(FIELD_ID_CONF, "true")
    frame = (
        session.read.schema(spark_schema(plan.read_schema, field_ids=True))
        .option("mergeSchema", "false")
        .option("datetimeRebaseMode", "CORRECTED")
        .option("int96RebaseMode", "CORRECTED")
        .parquet(*(task.file.path for task in tasks))
    )
    if plan.predicate is not None and not all(task.covered for task in tasks):
        frame = frame.filter(to_sql(plan.predicate, "spark"))
    # Field ids stay inside: written elsewhere by Spark, they would claim to be ids of that other place.
    return frame.select(*(quoted(name) for name in plan.schema.names)).to(spark_schema(plan.schema))


def _arrow(plan: ScanPlan, bundles: list[Bundle], storage: Storage, session: SparkSession) -> DataFrame:
    shape = plan.shape
    filter_sql = None
    if plan.predicate is not None and needs_sql(plan.predicate):
        # Only Spark can evaluate it, so the columns that it reads have to come along.
        filter_sql = to_sql(plan.predicate, "spark")
        shape = replace(shape, predicate=None, schema=plan.read_schema)
    schema = spark_schema(shape.schema, shape.virtual)
    numbers = session.range(0, len(bundles), 1, max(1, len(bundles)))
    frame = numbers.mapInArrow(bundle_reader(bundles, shape, storage, arrow_form(schema)), schema)
    if filter_sql is None:
        return frame
    return frame.filter(filter_sql).select(*(quoted(name) for name in (*plan.schema.names, *plan.virtual)))


def spark_schema(schema: Schema, virtual: tuple[str, ...] = (), *, field_ids: bool = False) -> StructType:
    """The Spark columns of a scan, all nullable; with ``field_ids`` for reading Parquet by field id."""
    fields = [_field(column, field_ids) for column in schema]
    return StructType([*fields, *(StructField(name, _VIRTUAL_TYPES[name]) for name in virtual)])


def _field(column: Field, field_ids: bool) -> StructField:
    metadata: dict[str, Any] = {"parquet.field.id": column.id} if field_ids else {}
    return StructField(column.name, _type(column.type, field_ids), True, metadata)


def _type(data_type: LakeType, field_ids: bool) -> Any:
    match data_type:
        case LakeStruct(fields=fields):
            return StructType([_field(field, field_ids) for field in fields])
        case ListType(element=element):
            return ArrayType(_type(element.type, field_ids), True)
        case LakeMap(key=key, value=value):
            return MapType(_type(key.type, field_ids), _type(value.type, field_ids), True)
        case leaf:
            return to_spark_type(leaf)


def arrow_form(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects from Python for a Spark schema."""
    import pyarrow as pa

    return pa.schema([pa.field(field.name, to_arrow_type(field.dataType, timezone="UTC"), field.nullable) for field in schema])


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


def quoted(name: str) -> str:
    """A column name for Spark's ``select``, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"
