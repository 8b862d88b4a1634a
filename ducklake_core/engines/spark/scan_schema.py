"""Spark columns and Arrow form of a scan, translated queries, and Hadoop paths of its files."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from ducklake_core.engines.spark.session import ANSI
from ducklake_core.engines.spark.types import to_spark_type
from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.files.paths import azure_path, canonical_protocol, protocol_of
from ducklake_core.format.types.data_types import DataType as LakeType
from ducklake_core.format.types.data_types import Field, ListType
from ducklake_core.format.types.data_types import MapType as LakeMap
from ducklake_core.format.types.data_types import StructType as LakeStruct
from ducklake_core.format.types.schema import Schema
from ducklake_core.planning.plan import VIRTUAL_SCHEMA

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


TYPES_CONF = "spark.ducklake.read.types"
"""Session setting: "exact" (the default) reads columns as types that hold every value, "nearest" as Spark's nearest own types."""
_AGAIN = "_ducklake_exact_"

SCHEMES_CONF = "spark.ducklake.read.native.schemes"
"""Session setting: ``s3a`` or ``s3=s3a, gs=gs``. If it is unset, files on object stores are read in Python."""


def wants_exact(session: SparkSession) -> bool:
    """Return whether the session wants types that hold every value.

    Raises:
        UsageError: The setting has another value.
    """
    wanted = str(session.conf.get(TYPES_CONF, "exact")).lower()
    if wanted not in ("exact", "nearest"):
        raise UsageError(f"the setting {TYPES_CONF} is {wanted!r}. Set it to 'exact' or 'nearest', or unset it")
    return wanted == "exact"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredColumns:
    """The columns that executors return when Spark itself evaluates a condition on them.

    A condition needs Spark's nearest types, because strings or integers in their place would compare differently. The result needs exact
    types. So the columns of the condition whose two types differ come twice::

        | id int | amount decimal(38,0) | _ducklake_exact_1 string |      condition on amount, result from the copy

    Attributes:
        schema: The columns, and after them the copies.
        again: Indexes of the copied columns.
        exact: Name of the column that holds the exact values, by the column's name.
    """

    schema: StructType
    again: tuple[int, ...] = ()
    exact: Mapping[str, str]

    def selected(self, frame: DataFrame, names: Collection[str]) -> DataFrame:
        """Return the columns of these names, in exact types."""
        from pyspark.sql import functions as sf

        return frame.select(*(sf.col(quoted(self.exact.get(name, name))).alias(name) for name in names))


def filtered_columns(schema: Schema, virtual: tuple[str, ...], condition: Collection[int], *, exact: bool) -> FilteredColumns:
    """Return the form in which to read columns that Spark evaluates a condition on.

    Args:
        schema: Columns to read.
        virtual: Virtual columns after them.
        condition: Ids of the nodes that the condition names; none without a condition.
        exact: Whether the result must have exact types.
    """
    every = {column.id for column in schema} if exact else set()
    named = {column.id for column in schema if any(node.id in condition for node in column.walk())}
    nearest = spark_schema(schema, virtual, exact=every - named)
    wanted = spark_schema(schema, exact=every)
    again = [place for place, field in enumerate(wanted) if field.dataType != nearest[place].dataType]
    names = {wanted[place].name: f"{_AGAIN}{place}" for place in again}
    copies = [StructField(names[wanted[place].name], wanted[place].dataType, True) for place in again]
    return FilteredColumns(schema=StructType([*nearest, *copies]), again=tuple(again), exact=names)


def spark_schema(
    schema: Schema, virtual: tuple[str, ...] = (), *, field_ids: bool = False, exact: Collection[int] = frozenset()
) -> StructType:
    """Return the Spark columns of a scan, all nullable.

    Args:
        schema: The table's columns.
        virtual: Virtual columns after them.
        field_ids: Whether to name the ids of all nodes, for reading Parquet by field id.
        exact: Ids of the columns whose types must hold every value; see :func:`~ducklake_core.engines.spark.types.to_spark_type`.
    """
    fields = [_field(column, field_ids, column.id in exact) for column in schema]
    return StructType([*fields, *(_field(column, False, False) for column in VIRTUAL_SCHEMA.select(virtual))])


def _field(column: Field, field_ids: bool, exact: bool) -> StructField:
    metadata: dict[str, Any] = {"parquet.field.id": column.id} if field_ids else {}
    return StructField(column.name, _type(column.type, field_ids, exact), True, metadata)


def _type(data_type: LakeType, field_ids: bool, exact: bool) -> Any:
    match data_type:
        case LakeStruct(fields=fields):
            return StructType([_field(field, field_ids, exact) for field in fields])
        case ListType(element=element):
            return ArrayType(_type(element.type, field_ids, exact), True)
        case LakeMap(key=key, value=value):
            return MapType(_type(key.type, field_ids, exact), _type(value.type, field_ids, exact), True)
        case leaf:
            return to_spark_type(leaf, exact=exact)


def arrow_form(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects from Python for a Spark schema."""
    import pyarrow as pa

    return pa.schema([pa.field(field.name, to_arrow_type(field.dataType, timezone="UTC"), field.nullable) for field in schema])


def quoted(name: str) -> str:
    """Return a column name for Spark's ``select``, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def scanned(frame: DataFrame, types: Sequence[LakeType], identifiers: Sequence[str], subject: str) -> DataFrame:
    """Return a scan whose columns have the query's names.

    Raises:
        UnsupportedFeatureError: The session reads a column as another type than the query was typed with.
    """
    for field, expected in zip(frame.schema.fields, types, strict=True):
        if field.dataType != to_spark_type(expected):
            kind = field.dataType.simpleString()
            raise UnsupportedFeatureError(
                f"cannot read {subject}: this session reads column {field.name!r} of type {expected} as {kind}. "
                "Set spark.sql.legacy.parquet.nanosAsLong to false",
                subject=subject,
                column=field.name,
            )
    return frame.toDF(*identifiers)


def run_query(
    sql: str, frames: Mapping[str, DataFrame], identifiers: Sequence[str], schema: Schema, session: SparkSession, subject: str
) -> DataFrame:
    """Return the rows of a query over frames, classic or Connect; nothing runs before an action.

    Args:
        sql: Spark SQL with ``{key}`` for each frame.
        identifiers: Columns of the query in the order of ``schema``, which names and types them.

    Raises:
        UsageError: The session does not follow ANSI SQL, so that overflows would not be reported.
        UnsupportedFeatureError: Spark rejects the query.
    """
    from pyspark.errors import AnalysisException

    if str(session.conf.get(ANSI, "true")).lower() != "true":
        raise UsageError(
            f"cannot read {subject} while {ANSI} is false, because an overflow would return wrong numbers. Set {ANSI} to true",
            subject=subject,
        )
    try:
        # mypy matches the keyword arguments with `args`.
        frame = session.sql(sql, **frames)  # type: ignore[arg-type]
        found = frame.schema
    except AnalysisException as problem:
        reason = str(problem).splitlines()[0]
        raise UnsupportedFeatureError(f"cannot read {subject}: Spark cannot run its query: {reason}", subject=subject) from problem
    columns = []
    for identifier, column in zip(identifiers, schema, strict=True):
        wanted = to_spark_type(column.type)
        chosen = frame[identifier]
        if found[identifier].dataType != wanted:
            chosen = chosen.cast(wanted)
        columns.append(chosen.alias(column.name))
    return frame.select(*columns)


def native_schemes(session: SparkSession) -> dict[str, str]:
    """Return Hadoop's scheme by protocol, for those stores that Spark's own reader is to read.

    Raises:
        UsageError: The setting is not a list of schemes.
    """
    return parse_schemes(str(session.conf.get(SCHEMES_CONF, "")))


def parse_schemes(text: str) -> dict[str, str]:
    """Return Hadoop's scheme by protocol, from the text of the setting.

    >>> parse_schemes("s3a, gcs=gs"), parse_schemes("")
    ({'s3': 's3a', 'gs': 'gs'}, {})
    """
    found: dict[str, str] = {}
    for entry in filter(None, (part.strip().lower() for part in text.split(","))):
        store, equals, scheme = (part.strip() for part in entry.partition("="))
        scheme = scheme if equals else store
        if not all(re.fullmatch(r"[a-z][a-z0-9+.-]*", name) for name in (store, scheme)):
            raise UsageError(
                f"the setting {SCHEMES_CONF} is {text!r}. Set it to schemes of Hadoop, such as s3a, or to pairs such as s3=s3a, gs=gs"
            )
        found[canonical_protocol(store)] = scheme
    return found


def hadoop_path(path: str, schemes: Mapping[str, str]) -> str:
    """Return a full path for Spark's own reader.

    >>> hadoop_path("s3://b/a b", {"s3": "s3a"}), hadoop_path("/x", {})
    ('s3a://b/a b', '/x')
    """
    protocol = protocol_of(path)
    if protocol == "file":
        return path
    azure = azure_path(path)
    return azure.for_hadoop(schemes[protocol]) if azure else f"{schemes[protocol]}://{path.partition('://')[2]}"
