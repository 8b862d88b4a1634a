"""Spark's own Parquet reader for the files of a plan, with deleted rows left out and virtual columns added.

Both hang on a row's place: the name of its file and its position there, which Spark tells. The driver reads the delete files
of a plan unless they are many, and the deleted positions travel as constants of a filter (position_filter.py). Where that does not pay,
and for virtual columns, rows are joined with a small frame of what is known of each file (file_facts.py), which is broadcast: one
look-up of a number a row and no shuffle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql.types import LongType, StructField, StructType

from ducklake_core.engines.arrow.read import naming_table
from ducklake_core.engines.spark import file_facts
from ducklake_core.engines.spark.deletes_here import read_here
from ducklake_core.engines.spark.field_ids import refusal
from ducklake_core.engines.spark.file_facts import NAME, POSITION, ROW_ID, SNAPSHOT_ID
from ducklake_core.engines.spark.hadoop_paths import hadoop_path
from ducklake_core.engines.spark.position_filter import DeletedBits, deleted_bits_of, visible_rows
from ducklake_core.engines.spark.scan_schema import quoted, spark_schema
from ducklake_core.engines.spark.session_settings import held_settings, users_setting
from ducklake_core.engines.spark.sessions import is_connect
from ducklake_core.errors import NotFoundError
from ducklake_core.format.expressions.predicate_sql import to_sql
from ducklake_core.format.files.data_files import ROW_ID_FIELD_ID, SNAPSHOT_ID_FIELD_ID
from ducklake_core.format.files.paths import file_name
from ducklake_core.planning.native import ROW_INDEX
from ducklake_core.planning.plan import FileTask, ScanPlan
from ducklake_core.storage.filesystems import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

FIELD_ID_CONF = "spark.sql.parquet.fieldId.read.enabled"
LISTING_CONF = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_FEW = 4
"""Files without deletes that have no more than one row for so many of those with deletes are read together with them."""
SPARK_LISTS = 32
"""So many paths the driver looks up in a session that has no other number set."""
# Whatever leaves out row groups, pages or rows by a filter that Spark pushed down, before Spark sees them.
_ALL_ROWS = {f"parquet.filter.{name}.enabled": "false" for name in ("stats", "columnindex", "dictionary", "bloom", "record-level")}


def read_natively(
    plan: ScanPlan, tasks: Sequence[FileTask], storage: Storage, session: SparkSession, schemes: Mapping[str, str]
) -> list[DataFrame]:
    """Frames that together hold the rows of the given files of a plan; of their files, one or a few are looked into.

    Files without deletes make a frame of their own unless virtual columns are wanted or they are few: there is nothing to look up for
    them. So do files whose bounds mislead: whatever filter comes to be on the frame, Spark hands it to its reader. ``schemes`` says
    how Hadoop calls the stores of files that are not local.
    """
    session.conf.set(FIELD_ID_CONF, "true")
    columns = spark_schema(plan.schema, plan.virtual)
    frames: list[DataFrame] = []
    for alike in _groups(plan, tasks):
        if needs_places(plan, alike[0]):
            frames.append(_result(_placed(plan, alike, storage, session, schemes), plan, alike))
        else:
            frames.append(_result(_files(spark_schema(plan.read_schema, field_ids=True), alike, session, schemes), plan, alike))
    check = refusal(tasks, plan.read_schema, plan.table, columns, storage, session)
    # Whoever takes only the first rows runs the first partition first.
    return frames if check is None else [check, *frames]


def _groups(plan: ScanPlan, tasks: Sequence[FileTask]) -> Iterator[list[FileTask]]:
    """Files that are read alike; if the first of a group needs the places of its rows, the places of all are looked at."""
    for trusted in (True, False):
        placed = [task for task in tasks if task.trusts_bounds is trusted and needs_places(plan, task)]
        plain = [task for task in tasks if task.trusts_bounds is trusted and not needs_places(plan, task)]
        # Spark repeats semi and anti joins for each side of a union, and it costs every row of both; places of few rows cost little.
        if placed and _rows(plain) * _FEW <= _rows(placed):
            placed, plain = [*placed, *plain], []
        yield from (group for group in (plain, placed) if group)


def _rows(tasks: Sequence[FileTask]) -> int:
    return sum(task.file.record_count for task in tasks)


def needs_places(plan: ScanPlan, task: FileTask) -> bool:
    """Whether reading the file takes the places of its rows: some may be deleted, or virtual columns are wanted."""
    return bool(plan.shape.read_virtual or task.file.delete_files or task.file.inlined_deletes)


def _result(frame: DataFrame, plan: ScanPlan, tasks: Sequence[FileTask]) -> DataFrame:
    if plan.predicate is not None and not all(task.all_rows_match for task in tasks):
        frame = frame.filter(to_sql(plan.predicate, "spark"))
    # Field ids stay inside: written elsewhere by Spark, they would claim to be ids of that other place.
    return frame.select(*(quoted(name) for name in (*plan.schema.names, *plan.virtual))).to(spark_schema(plan.schema, plan.virtual))


def _files(schema: object, tasks: Sequence[FileTask], session: SparkSession, schemes: Mapping[str, str]) -> DataFrame:
    reader = (
        session.read.schema(schema)  # type: ignore[arg-type]
        .option("mergeSchema", "false")
        .option("datetimeRebaseMode", "CORRECTED")
        .option("int96RebaseMode", "CORRECTED")
        # Sessions that rather lose rows than fail mean their own files.
        .option("ignoreMissingFiles", "false")
        .option("ignoreCorruptFiles", "false")
    )
    if not tasks[0].trusts_bounds:
        reader = reader.options(**_ALL_ROWS)
    try:
        with _listed_by_the_driver(session, len(tasks)):
            return _parquet(reader, [hadoop_path(task.file.path, schemes) for task in tasks], session)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        path = str((error.getMessageParameters() or {}).get("path", ""))
        raise NotFoundError(
            f"{path} does not exist: the snapshot was expired and its files cleaned up since the scan was planned, or the file was removed",
            path=path,
        ) from error


def _parquet(reader: DataFrameReader, paths: Sequence[str], session: SparkSession) -> DataFrame:
    """The frame of these files. PySpark hands paths to Java one by one, which takes as long as all that Java does with them."""
    if is_connect(session):
        return reader.parquet(*paths)
    # No path has a NUL.
    java: Any = session.sparkContext._jvm  # noqa: SLF001
    given: Any = reader
    frame: DataFrame = given._df(given._jreader.parquet(java.java.util.regex.Pattern.compile("\\x00").split("\0".join(paths))))  # noqa: SLF001
    return frame


@contextmanager
def _listed_by_the_driver(session: SparkSession, count: int) -> Iterator[None]:
    """Look up more than a few paths without a Spark job that has a task for each of them, which takes ten times as long.

    In Connect the frame is analysed only when it runs, so that this changes nothing there.
    """
    enough = count <= int(users_setting(session, LISTING_CONF) or SPARK_LISTS)
    with held_settings(session, {} if enough else {LISTING_CONF: str(count)}):
        yield


def _placed(plan: ScanPlan, tasks: Sequence[FileTask], storage: Storage, session: SparkSession, schemes: Mapping[str, str]) -> DataFrame:
    """Visible rows of files with the virtual columns that are wanted."""
    # A client of Spark Connect need not reach the files.
    with naming_table(plan.shape):
        positions = None if is_connect(session) else read_here(tasks, plan.snapshot_id, storage)
    schema = spark_schema(plan.read_schema, field_ids=True)
    if positions is not None and not plan.shape.read_virtual:
        if not any(len(one) for one in positions):
            return _files(schema, tasks, session, schemes)
        names = [file_name(task.file.path) for task in tasks]
        bits = deleted_bits_of(names, positions, _rows(tasks))
        if bits is not None:
            return _filtered(schema, bits, tasks, session, schemes)
    virtual = plan.shape.read_virtual
    for name, wanted, field_id in ((ROW_ID, "rowid", ROW_ID_FIELD_ID), (SNAPSHOT_ID, "snapshot_id", SNAPSHOT_ID_FIELD_ID)):
        if wanted in virtual:
            schema.add(StructField(name, LongType(), True, {"parquet.field.id": field_id}))
    visible = file_facts.joined(_with_places(_files(schema, tasks, session, schemes)), plan, tasks, positions, storage, session)
    columns = (quoted(name) for name in plan.read_schema.names)
    return visible.select(*columns, *(file_facts.virtual(name, plan.table).alias(name) for name in virtual))


def _filtered(
    schema: StructType, bits: DeletedBits, tasks: Sequence[FileTask], session: SparkSession, schemes: Mapping[str, str]
) -> DataFrame:
    """Rows whose places are not deleted, found without a join."""
    # Of _metadata Spark makes an object for each row. This is the column that it takes the position from.
    rows = _files(StructType([*schema, StructField(ROW_INDEX, LongType())]), tasks, session, schemes)
    if len(tasks) == 1:
        return visible_rows(rows, bits, session, ROW_INDEX)
    named = rows.select("*", rows.metadataColumn("_metadata").getField("file_name").alias(NAME))
    return visible_rows(named, bits, session, ROW_INDEX, NAME)


def _with_places(files: DataFrame) -> DataFrame:
    metadata = files.metadataColumn("_metadata")
    return files.select("*", metadata.getField("file_name").alias(NAME), metadata.getField("row_index").alias(POSITION))
