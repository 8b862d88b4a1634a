"""Write a Spark DataFrame into the data files of a table: distribute, sort, batch and write on executors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)
from sqlglot import exp

from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.engines.arrow.writer import DatasetWriter, file_from_json, file_to_json, reraise_remote_errors, serialize_errors
from ducklake_core.engines.spark.session import held_settings, is_connect, users_setting
from ducklake_core.engines.spark.types import year_month_columns
from ducklake_core.engines.spark.work_units import ATTEMPT_COLUMNS, attempt_columns, awaiting_tasks, may_have_lost
from ducklake_core.errors import CorruptFileError, UnsupportedFeatureError
from ducklake_core.format.files.data_files import WrittenFile
from ducklake_core.format.files.partitioning import PartitionField, PartitionSpec
from ducklake_core.format.files.statistics import verify_written_file
from ducklake_core.format.layout.sorting import WRITE_UNSORTED, SortOrder, parse_expression
from ducklake_core.format.layout.transforms import partition_arrays
from ducklake_core.format.types.data_types import BLOB, BOOLEAN, DATE, FLOATS, INTEGERS, JSON, TIMESTAMPS, UUID, VARCHAR, DecimalType, Field
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.arrow_cast import cast_to
from ducklake_core.storage.unfinished import NamedFiles, sweep, sweep_after_error

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


_REPORT = f"{ATTEMPT_COLUMNS}, file string"

_KEY = "__ducklake_key_{}"

BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
UNLIMITED = str(2**31 - 1)
"""The value that switches Spark's limit in bytes off; Spark then does not measure rows at all."""
SPARK_DEFAULTS = frozenset({"64mb", "67108864b", "67108864"})
"""Spark's default limit in bytes; any other value is the user's choice and is kept."""
SPARK_ROWS = 10_000
"""The limit in rows of a session that has none set."""
VARYING_ROWS = 2048
"""Rows of a batch with strings or lists: at 32 KiB per row they reach Spark's own limit in bytes."""


LOCAL_LEAVES = frozenset({"LocalRelation", "Range", "OneRowRelation"})
"""Leaves of a plan whose rows the driver has or computes."""
_NARROW = frozenset({"Project", "Filter", "Union", "LocalLimit", "GlobalLimit", "Repartition", "RepartitionByExpression", "OneRowRelation"})
"""Nodes of a plan that return no more rows than they receive."""
_COMPUTING = frozenset({"Project", "Range"})
"""Nodes of a plan that compute values when it runs."""
_PLAIN_TYPES = (BooleanType, NumericType, StringType, BinaryType, DateType, TimestampType, TimestampNTZType)
_MAX_LEAVES = 16
_LOCAL_BYTES = 8 << 20
"""Maximum size of local data that this process writes."""
_LOCAL_ROWS = 10_000
"""Maximum length of a range whose rows this process writes."""


def write_frame(df: DataFrame, state: WriteState, named: NamedFiles | None = None) -> tuple[WrittenFile, ...]:
    """Write all rows of a frame; the files are in place but not committed.

    The frame is computed once. This process writes few rows that the driver has already; executors write all others.

    The writer gathers row groups, so that the size of the session's Arrow batches matters little. With
    ``state.distribute`` the rows of a partitioned table are first shuffled by partition values, so that each partition gets few files
    (the option ``per_thread_output`` skips the shuffle). The session's time zone changes no value. The steps::

        for_python   columns under plain names, because mapInArrow fails on names with dots
        distribute   shuffle by partition values
        sort         within each Spark partition, unless only the writer can compute a key
        mapInArrow   one Arrow writer per task; each written file comes back as one row

    Args:
        df: The frame.
        state: The write.
        named: Reports the files that the catalog names: they are never swept.

    Returns:
        The files, verified; none when there are no rows.

    Raises:
        SchemaError: The rows do not fit the table.
        UsageError: A row does not satisfy the row_constraint.
        StorageError: A file cannot be written.
        pyspark.errors.PySparkException: The frame itself fails. In every case of failure the files of this write are deleted.
    """
    names = df.columns
    if not names:
        # Spark passes rows without columns to Python as no rows at all.
        if df.isEmpty():
            return ()
        raise state.without_columns()
    # Spark may sort by more types than the writer in this process.
    local = None if state.sort else local_rows(df)
    if local is not None:
        with DatasetWriter(state) as writer:
            for batch in local.to_batches():
                writer.write(batch)
            return tuple(writer.close())
    frame = for_python(df)
    if state.partition_spec is not None and state.distribute and not state.options.per_thread_output:
        frame = distribute(frame, names, state.partition_spec, state.schema)
    if state.sort and not _sorts_by_defaults(state):
        in_order = sort_within_partitions(frame, names, state.sort, state.schema, state.table)
        frame, state = (frame, state) if in_order is None else (in_order, replace(state, sort=()))
    report = frame.mapInArrow(_partition_writer(state, names), _REPORT)
    try:
        with reraise_remote_errors(), unlimited_arrow_batches(frame), awaiting_tasks(df.sparkSession):
            rows = report.collect()
        files = tuple(file_from_json(row["file"]) for row in rows)
        verify_files(files, state)
    except BaseException:
        sweep_after_error(state.storage, state.directory, state.write_id, named=named)
        raise
    # A task that Spark repeated may have left files of its first attempt, which no report names.
    if may_have_lost(rows, df.sparkSession):
        sweep(state.storage, state.directory, state.write_id, named=named, keep=[file.path for file in files])
    return files


def _sorts_by_defaults(state: WriteState) -> bool:
    """Return whether the writer alone computes a key of the order; the writer also sorts then."""
    computed = {state.schema.by_id()[column_id].name for column_id, _ in state.defaults}
    return any(computed.intersection(order.columns) for order in state.sort)


def _partition_writer(state: WriteState, names: Sequence[str]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with serialize_errors(), DatasetWriter(state) as writer:
            for batch in batches:
                # Columns after the frame's own only served the shuffle.
                writer.write(pa.RecordBatch.from_arrays(batch.columns[: len(names)], names=list(names)))
            reports = [file_to_json(file) for file in writer.close()]
            yield pa.RecordBatch.from_pydict({**attempt_columns(len(reports)), "file": pa.array(reports, pa.string())})

    return write_partition


def for_python(df: DataFrame) -> DataFrame:
    """Return the frame in a form that Python can receive: columns under plain names, year-month intervals as strings."""
    from pyspark.sql import functions as F  # noqa: N812

    # mapInArrow finds columns by unquoted name, and so fails on names with dots.
    plain = df.toDF(*(plain_name(position) for position in range(len(df.columns))))

    def months(name: str) -> Column:
        count = F.extract(F.lit("YEAR"), F.col(name)) * 12 + F.extract(F.lit("MONTH"), F.col(name))
        return F.concat(count.cast("string"), F.lit(" months"))

    # Arrow in Python has no type for intervals of months.
    intervals = {name: months(name) for name in year_month_columns(plain.schema)}
    return plain.withColumns(intervals) if intervals else plain


def verify_files(files: tuple[WrittenFile, ...], state: WriteState) -> None:
    """Check what executors report before it is committed.

    Raises:
        CorruptFileError: A file was reported twice, or its statistics cannot be.
    """
    names = {file.path for file in files}
    if len(names) != len(files):
        raise CorruptFileError(
            f"the write of {state.table} was reported twice for one file. Nothing was committed. Run the write again", table=state.table
        )
    for file in files:
        verify_written_file(file, state.schema, state.partition_spec)


def sort_within_partitions(
    df: DataFrame, names: Sequence[str], orders: Sequence[SortOrder], schema: Schema, table: str
) -> DataFrame | None:
    """Return the frame sorted within its partitions, spilling to disk where Spark has to.

    Args:
        df: A frame whose columns have plain names, more may follow them.
        names: The user's names of its columns.
        orders: The sort keys, the most significant first.
        schema: The table's columns.
        table: ``schema.table`` for messages.

    Returns:
        None when Spark would sort a key in another way than the table's type: the writer then sorts the rows.

    Raises:
        UnsupportedFeatureError: An expression that Spark cannot evaluate, or of columns that the frame lacks.
    """
    try:
        keys = _keys(df, names, orders, schema, table)
        if not keys:
            return df if keys is not None else None
        done = df.sortWithinPartitions(*keys)
        # Spark Connect analyses expressions only here.
        _ = done.schema
    except (AnalysisException, ParseException) as error:
        expressions = ", ".join(order.expression for order in orders)
        raise UnsupportedFeatureError(
            f"table {table} is sorted by {expressions}, which Spark cannot evaluate. Set the table's option sort_on_insert to false to "
            "write unsorted files, or write with DuckDB",
            table=table,
        ) from error
    return done


def _keys(df: DataFrame, names: Sequence[str], orders: Sequence[SortOrder], schema: Schema, table: str) -> list[Column] | None:
    """Return the Spark columns to sort by, None when Spark would sort a key in another way."""
    keys: list[Column] = []
    for order in orders:
        positions = {name: column_position(names, name) for name in order.columns}
        if order.column is None:
            keys.append(_directed(_one_zero(df, _expression(positions, order, table)), order))
            continue
        position = positions[order.column]
        if position is None:
            # The column has its default in all rows, so that the key does not matter.
            continue
        name = plain_name(position)
        key = _comparable(name, df.schema[name].dataType, schema.column(order.column))
        if key is None:
            return None
        keys.append(_directed(_one_zero(df, key), order))
    return keys


def _one_zero(df: DataFrame, key: Column) -> Column:
    """Return the key without negative zeros, which Spark sorts before the others."""
    return key + sf.lit(0.0).cast("float") if isinstance(df.select(key).schema[0].dataType, FloatType | DoubleType) else key


def _expression(positions: dict[str, int | None], order: SortOrder, table: str) -> Column:
    missing = [name for name, position in positions.items() if position is None]
    if missing:
        raise UnsupportedFeatureError(
            f"cannot write to {table}: the table is sorted by {order.expression}, but the data lacks column {missing[0]!r}; "
            f"{WRITE_UNSORTED}",
            table=table,
            column=missing[0],
        )
    plain = {folded(name): plain_name(position) for name, position in positions.items() if position is not None}

    def renamed(node: exp.Expr) -> exp.Expr:
        return exp.column(plain[folded(node.name)]) if isinstance(node, exp.Column) else node

    return sf.expr(parse_expression(order.expression).transform(renamed).sql(dialect="spark"))


def _comparable(name: str, given: DataType, column: Field) -> Column | None:
    """Return the frame's column as something that Spark sorts as the table's type is sorted."""
    key = sf.col(name)
    wanted = column.type
    match given:
        case NumericType():
            return key if wanted in (*INTEGERS, *FLOATS) or isinstance(wanted, DecimalType) else None
        case StringType():
            # A UUID has several spellings as a string.
            return sf.lower(key) if wanted == UUID else key if wanted in (VARCHAR, JSON) else None
        case DateType() | TimestampType() | TimestampNTZType():
            return key if wanted == DATE or wanted in TIMESTAMPS else None
        case BooleanType():
            return key if wanted == BOOLEAN else None
        case BinaryType():
            return key if wanted == BLOB else None
        case _:
            return None


def _directed(key: Column, order: SortOrder) -> Column:
    if order.descending:
        return key.desc_nulls_first() if order.nulls_first else key.desc_nulls_last()
    return key.asc_nulls_first() if order.nulls_first else key.asc_nulls_last()


def plain_name(position: int) -> str:
    """Return the name under which a frame's column travels, whatever the user called it."""
    return f"c{position}"


def distribute(df: DataFrame, names: Sequence[str], spec: PartitionSpec, schema: Schema) -> DataFrame:
    """Return the frame's rows shuffled by partition values, followed by columns that the writer drops.

    Spark may split a large partition among several tasks, and put small ones together into one.

    Args:
        df: A frame whose columns have plain names.
        names: The user's names of its columns.
        spec: The partition keys.
        schema: The table's columns.
    """
    keys = [_KEY.format(number) for number in range(len(spec.fields))]
    columns = [column_position(names, field.column) for field in spec.fields]
    missing = [field.column for field, column in zip(spec.fields, columns, strict=True) if column is None]
    if missing:
        # A missing column has its default in all rows, so that it does not distinguish partitions.
        rest = tuple(field for field in spec.fields if field.column not in missing)
        return distribute(df, names, PartitionSpec(fields=rest), schema) if rest else df
    by_key = {
        key: partition_expression(df, plain_name(column), field)
        for key, column, field in zip(keys, columns, spec.fields, strict=True)
        if field.transform != "bucket" and column is not None
    }
    buckets = tuple(field for field in spec.fields if field.transform == "bucket")
    keyed = df.withColumns(by_key) if by_key else df
    if buckets:
        keyed = _with_buckets(keyed, names, PartitionSpec(fields=buckets), schema, [key for key in keys if key not in by_key])
    return keyed.hint("rebalance", *keys)


def column_position(names: Sequence[str], wanted: str) -> int | None:
    """Return the index of a column of a frame, found without regard to case."""
    return next((position for position, name in enumerate(names) if folded(name) == folded(wanted)), None)


def partition_expression(df: DataFrame, name: str, field: PartitionField) -> Column:
    """Return the partition value of a row in Spark SQL, except for buckets; calendar parts are in UTC, whatever the session's time zone."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import LongType, TimestampType

    column = F.col(name)
    if field.transform == "identity":
        return column
    if isinstance(df.schema[name].dataType, TimestampType):
        # year() and hour() of a timestamp with zone use the session's zone: it is converted to one without zone, in UTC.
        column = F.expr(f"timestampadd(MICROSECOND, unix_micros({name}), TIMESTAMP_NTZ'1970-01-01 00:00:00')")
    elif isinstance(df.schema[name].dataType, LongType):
        # Columns of nanoseconds are read as integers; no other integer column has calendar parts.
        column = F.expr(f"timestampadd(MICROSECOND, CAST(floor({name} / 1000D) AS BIGINT), TIMESTAMP_NTZ'1970-01-01 00:00:00')")
    match field.transform:
        case "year":
            return F.year(column)
        case "month":
            return F.month(column)
        case "day":
            return F.dayofmonth(column)
        case "epoch_year":
            return F.year(column) - 1970
        case "epoch_month":
            return (F.year(column) - 1970) * 12 + F.month(column) - 1
        case "epoch_day":
            return F.unix_date(F.to_date(column))
        case "epoch_hour":
            return F.unix_date(F.to_date(column)) * 24 + F.hour(column)
        case _:
            return F.hour(column)


def _with_buckets(df: DataFrame, names: Sequence[str], spec: PartitionSpec, schema: Schema, keys: list[str]) -> DataFrame:
    from pyspark.sql.types import StringType, StructField, StructType

    # Spark has no function for the bucket hash, so that a separate pass through Arrow computes the buckets.
    target = StructType([*df.schema.fields, *(StructField(key, StringType(), True) for key in keys)])
    return df.mapInArrow(_bucket_adder(names, spec, schema, keys), target)


def _bucket_adder(
    names: Sequence[str], spec: PartitionSpec, schema: Schema, keys: list[str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    # The writer checks NOT NULL later, with its own message.
    hashed = Schema(columns=tuple(replace(column, nullable=True) for column in schema.select({f.column: None for f in spec.fields})))
    positions = [position for column in hashed if (position := column_position(names, column.name)) is not None]

    def add_buckets(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with serialize_errors():
                values = pa.RecordBatch.from_arrays([batch.column(p) for p in positions], names=list(hashed.names))
                buckets = partition_arrays(spec, hashed, cast_to(values, hashed, exact=True))
            fields = [pa.field(key, pa.string()) for key in keys]
            yield pa.RecordBatch.from_arrays([*batch.columns, *buckets], schema=pa.schema([*batch.schema, *fields]))

    return add_buckets


@contextmanager
def unlimited_arrow_batches(df: DataFrame) -> Iterator[None]:
    """Run an action on a frame that goes through ``mapInArrow``, with batches limited by rows alone.

    Spark's default limit in bytes measures every row, which takes longer than the transfer. The session's settings are restored
    afterwards. Frames with binary columns keep Spark's limit, because their rows may have any size; so does a session whose limit the user
    chose.
    """
    with held_settings(df.sparkSession, _settings(df.sparkSession, df.schema)):
        yield


def _settings(session: SparkSession, schema: StructType) -> dict[str, str]:
    kinds = {kind for field in schema for kind in _kinds(field.dataType)}
    limit = users_setting(session, BYTES)
    if kinds & {BinaryType, VariantType} or (limit is not None and limit.lower() not in SPARK_DEFAULTS) or not _weighs(session):
        return {}
    rows = int(users_setting(session, ROWS) or SPARK_ROWS)
    varying = kinds & {StringType, ArrayType, MapType} and not 0 < rows <= VARYING_ROWS
    return {BYTES: UNLIMITED, **({ROWS: str(VARYING_ROWS)} if varying else {})}


def _weighs(session: SparkSession) -> bool:
    """Return whether this Spark version has the limit."""
    try:
        session.conf.get(BYTES)
    except PySparkException:
        return False
    return True


def _kinds(data_type: DataType) -> Iterator[type[DataType]]:
    yield type(data_type)
    match data_type:
        case StructType(fields=fields):
            for field in fields:
                yield from _kinds(field.dataType)
        case ArrayType(elementType=element):
            yield from _kinds(element)
        case MapType(keyType=key, valueType=value):
            yield from _kinds(key)
            yield from _kinds(value)
        case _:
            pass


def local_rows(df: DataFrame) -> pa.Table | None:
    """Return the rows of a frame whose plan shows that they are few and that the driver has them: local data, or a short range.

    For few rows, starting Python workers takes most of the time of a write. Plans with other nodes, such as files, joins, ``explode`` and
    Python functions, frames with nested columns, and strings that Spark still has to compute, which may be of any length, return None
    without being computed.
    """
    # Spark converts some nested types in Python workers only.
    if is_connect(df.sparkSession) or not all(isinstance(field.dataType, _PLAIN_TYPES) for field in df.schema):
        return None
    execution = df._jdf.queryExecution()  # noqa: SLF001 - Python has no other way to the plan
    leaves = execution.analyzed().collectLeaves()
    if leaves.size() > _MAX_LEAVES or not all(leaves.apply(place).nodeName() in LOCAL_LEAVES for place in range(leaves.size())):
        return None
    has_strings = any(isinstance(field.dataType, StringType | BinaryType) for field in df.schema)
    waiting, size, count = [execution.optimizedPlan()], 0, 0
    while waiting:
        node = waiting.pop()
        name = node.nodeName()
        if has_strings and name in _COMPUTING:
            return None
        if name == "Range":
            count += int(node.numElements())
        elif name == "LocalRelation":
            size += int(node.stats().sizeInBytes())
        elif name not in _NARROW:
            return None
        if size > _LOCAL_BYTES or count > _LOCAL_ROWS:
            return None
        children = node.children()
        waiting += [children.apply(place) for place in range(children.size())]
    return for_python(df).toArrow().rename_columns(df.columns)


def few_rows(df: DataFrame, most: int, most_bytes: int) -> pa.Table | None:
    """Return all rows of a frame, None when there are more than ``most``, or more bytes than ``most_bytes``.

    At most one row beyond ``most`` leaves the executors. A frame with more rows is computed a second time when it is written.

    Args:
        df: The frame.
        most: Maximum number of rows.
        most_bytes: Maximum size in memory, in bytes.
    """
    if not df.columns:
        return None
    rows = for_python(df).limit(most + 1).toArrow().rename_columns(df.columns)
    return rows if rows.num_rows <= most and rows.nbytes <= most_bytes else None
