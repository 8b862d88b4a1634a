"""Spark's own Parquet reader for the files of a plan, with deleted rows left out and virtual columns added.

Both hang on a row's place: ``_metadata`` says the name of a row's file and its position there. What is known of a file, the
positions that are deleted in it among that, is one row of a small frame that executors make, reading the delete files, and that
is broadcast. A position is looked up in the bits of its file, so there is one look-up of a number a row and no shuffle.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import functions as sf
from pyspark.sql.types import DecimalType, LongType, StructField

from ducklake_core.engines.spark.field_ids import refusal
from ducklake_core.engines.spark.hadoop_paths import hadoop_path
from ducklake_core.engines.spark.scan_schema import quoted, spark_schema
from ducklake_core.engines.spark.session_settings import held_settings, users_setting
from ducklake_core.engines.spark.task_ids import task_ids
from ducklake_core.errors import NotFoundError
from ducklake_core.format.expressions.predicate_sql import to_sql
from ducklake_core.format.files.data_files import ROW_ID_FIELD_ID, SNAPSHOT_ID_FIELD_ID
from ducklake_core.format.files.paths import file_name
from ducklake_core.planning.native import DELETED_BITS
from ducklake_core.planning.plan import FileTask, ScanPlan
from ducklake_core.storage.delete_files import deleted_positions
from ducklake_core.storage.filesystems import Storage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FIELD_ID_CONF = "spark.sql.parquet.fieldId.read.enabled"
LISTING_CONF = "spark.sql.sources.parallelPartitionDiscovery.threshold"
SPARK_LISTS = 32
"""So many paths the driver looks up in a session that has no other number set."""
# Whatever leaves out row groups, pages or rows by a filter that Spark pushed down, before Spark sees them.
_ALL_ROWS = {f"parquet.filter.{name}.enabled": "false" for name in ("stats", "columnindex", "dictionary", "bloom", "record-level")}
_FILES_PER_SLICE = 256
_LEAST_SLICES = 4

# Names of the columns that exist only between the files and the result.
_NAME, _HASH, _POSITION = "_ducklake_name", "_ducklake_hash", "_ducklake_position"
_ROW_ID, _SNAPSHOT_ID = "_ducklake_row_id", "_ducklake_snapshot_id"
_KEY, _KEY_HASH, _INDEX, _PATH, _FIRST_ROW_ID, _BEGIN, _FIRST, _LAST, _DELETED, _SELDOM = (
    f"_ducklake_file_{name}" for name in ("key", "hash", "index", "path", "first_row_id", "begin", "first", "last", "deleted", "seldom")
)
_FACTS = {
    _KEY: ("string", pa.string()),
    _FIRST: ("bigint", pa.int64()),
    _LAST: ("bigint", pa.int64()),
    _DELETED: ("array<array<bigint>>", pa.list_(pa.list_(pa.int64()))),
    _INDEX: ("bigint", pa.int64()),
    _PATH: ("string", pa.string()),
    _FIRST_ROW_ID: ("bigint", pa.int64()),
    _BEGIN: ("bigint", pa.int64()),
}
_NEEDED_FACTS = (_KEY, _FIRST, _LAST, _DELETED)  # the others are of use for virtual columns only


def read_natively(
    plan: ScanPlan, tasks: Sequence[FileTask], storage: Storage, session: SparkSession, schemes: Mapping[str, str]
) -> list[DataFrame]:
    """Frames that together hold the rows of the given files of a plan; of their files, one or a few are looked into.

    Files without deletes make a frame of their own unless virtual columns are wanted: there is nothing to look up for them. So do
    files whose bounds mislead: whatever filter comes to be on the frame, Spark hands it to its reader. ``schemes`` says how Hadoop
    calls the stores of files that are not local.
    """
    session.conf.set(FIELD_ID_CONF, "true")
    columns = spark_schema(plan.schema, plan.virtual)
    frames: list[DataFrame] = []
    for alike in _alike(tasks, lambda task: (needs_places(plan, task), not task.trusts_bounds)):
        if needs_places(plan, alike[0]):
            frames.append(_result(_placed(plan, alike, storage, session, schemes), plan, alike))
        else:
            frames.append(_result(_files(spark_schema(plan.read_schema, field_ids=True), alike, session, schemes), plan, alike))
    check = refusal(tasks, plan.table, columns, storage, session)
    # Whoever takes only the first rows runs the first partition first.
    return frames if check is None else [check, *frames]


def _alike(tasks: Sequence[FileTask], kind: Callable[[FileTask], tuple[bool, ...]]) -> list[list[FileTask]]:
    found: dict[tuple[bool, ...], list[FileTask]] = {}
    for task in tasks:
        found.setdefault(kind(task), []).append(task)
    return [found[key] for key in sorted(found)]


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
            return reader.parquet(*(hadoop_path(task.file.path, schemes) for task in tasks))
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        path = str((error.getMessageParameters() or {}).get("path", ""))
        raise NotFoundError(
            f"{path} does not exist: the snapshot was expired and its files cleaned up since the scan was planned, or the file was removed",
            path=path,
        ) from error


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
    virtual, names = plan.shape.read_virtual, plan.read_schema.names
    schema = spark_schema(plan.read_schema, field_ids=True)
    for name, wanted, field_id in ((_ROW_ID, "rowid", ROW_ID_FIELD_ID), (_SNAPSHOT_ID, "snapshot_id", SNAPSHOT_ID_FIELD_ID)):
        if wanted in virtual:
            schema.add(StructField(name, LongType(), True, {"parquet.field.id": field_id}))
    files = _files(schema, tasks, session, schemes)
    metadata = files.metadataColumn("_metadata")
    place = [metadata.getField("file_name").alias(_NAME), metadata.getField("row_index").alias(_POSITION)]
    rows = files.select(*(quoted(name) for name in files.columns), *place).withColumn(_HASH, sf.xxhash64(_NAME))
    joined = rows.join(sf.broadcast(_known(plan, tasks, storage, session)), sf.col(_HASH) == sf.col(_KEY_HASH), "left")
    visible = joined.filter(_is_visible(exact=bool(virtual)))
    return visible.select(*(quoted(name) for name in names), *(_virtual(name, plan.table).alias(name) for name in virtual))


def _known(plan: ScanPlan, tasks: Sequence[FileTask], storage: Storage, session: SparkSession) -> DataFrame:
    """Facts about each file, keyed by the hash of its name: a join on a number takes half the time of one on names."""
    facts = _facts(plan, tasks, storage, session)
    others = (name for name in facts.columns if name not in _NEEDED_FACTS)
    # Spark takes every column of a matched row out of it, for each row anew; what few rows need is one column.
    seldom = sf.struct(_KEY, _DELETED).alias(_SELDOM)
    return facts.select(sf.xxhash64(_KEY).alias(_KEY_HASH), _FIRST, _LAST, seldom, *others)


def _is_visible(*, exact: bool) -> Column:
    """Whether the row's bit is not set; a row of an unknown file stops the query, as its deletes are not known.

    Args:
        exact: Whether to compare the name of every row, as what is known of its file becomes a part of the row. Otherwise that
            two names have one hash of 64 bits is noticed only where it hides a row: comparing takes as long as all of the rest.
    """
    position, bits = sf.col(_POSITION), DELETED_BITS.bit_length() - 1
    key, pieces = (sf.col(_SELDOM).getField(name) for name in (_KEY, _DELETED))
    words = sf.get(pieces, sf.shiftright(position, bits).cast("int"))
    word = sf.get(words, sf.shiftright(position, 6).bitwiseAND(DELETED_BITS // 64 - 1).cast("int"))
    # Deletes often lie together, and a comparison is cheaper than a look into the bits. No bit is NULL, which is not deleted.
    may_be = (position >= sf.col(_FIRST)) & (position <= sf.col(_LAST))
    deleted = may_be & (sf.getbit(word, position.bitwiseAND(63).cast("int")) == 1)
    same_name = key == sf.col(_NAME)
    message = sf.concat(sf.lit("Spark read a file under a name that is not in the plan: "), sf.col(_NAME))
    stranger = sf.raise_error(message).cast("boolean")
    if exact:
        return sf.when(same_name, ~sf.coalesce(deleted, sf.lit(False))).otherwise(stranger)
    hidden = sf.when(same_name, sf.lit(False)).otherwise(stranger)
    return sf.when(sf.col(_KEY_HASH).isNull(), stranger).when(deleted, hidden).otherwise(sf.lit(True))


def _virtual(name: str, table: str) -> Column:
    match name:
        case "rowid":
            without = sf.concat(sf.lit(f"a file of table {table} has no row ids, neither in the file nor in the catalog: "), sf.col(_PATH))
            counted = sf.col(_FIRST_ROW_ID) + sf.col(_POSITION)
            return sf.coalesce(sf.col(_ROW_ID), counted, sf.raise_error(without).cast("bigint"))
        case "snapshot_id":
            return sf.coalesce(sf.col(_SNAPSHOT_ID), sf.col(_BEGIN))
        case "filename":
            return sf.col(_PATH)
        case "file_index":
            return sf.col(_INDEX).cast(DecimalType(20, 0))
        case _:
            return sf.col(_POSITION)


def _facts(plan: ScanPlan, tasks: Sequence[FileTask], storage: Storage, session: SparkSession) -> DataFrame:
    """One row a file; delete files are read where this runs, on executors."""
    count = min(len(tasks), max(_LEAST_SLICES, -(-len(tasks) // _FILES_PER_SLICE)))
    # Pickled one by one, so that a task of Spark unpacks its own slice only.
    slices = tuple(pickle.dumps([(file_name(task.file.path), task) for task in tasks[number::count]]) for number in range(count))
    facts = _FACTS if plan.shape.read_virtual else {name: _FACTS[name] for name in _NEEDED_FACTS}
    schema = pa.schema([pa.field(name, arrow_type) for name, (_, arrow_type) in facts.items()])
    text = ", ".join(f"{name} {spark_type}" for name, (spark_type, _) in facts.items())
    return session.range(0, count, 1, count).mapInArrow(_facts_reader(slices, plan.snapshot_id, storage, schema), text)


def _facts_reader(
    slices: tuple[bytes, ...], snapshot_id: int, storage: Storage, schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in task_ids(numbers):
            rows = [_facts_of(key, task, snapshot_id, storage) for key, task in _unpacked(slices[number])]
            yield pa.RecordBatch.from_pylist(rows, schema=schema)

    return read


def _unpacked(part: bytes) -> list[tuple[str, FileTask]]:
    return pickle.loads(part)  # type: ignore[no-any-return]  # noqa: S301 - made by our own function in the same job


def _facts_of(key: str, task: FileTask, snapshot_id: int, storage: Storage) -> dict[str, object]:
    file = task.file
    positions = deleted_positions(storage, file, snapshot_id)
    first, last = (int(positions[0]), int(positions[-1])) if len(positions) else (None, None)
    return {
        _KEY: key,
        _FIRST: first,
        _LAST: last,
        _INDEX: task.index,
        _PATH: file.path,
        _FIRST_ROW_ID: file.row_id_start,
        _BEGIN: file.begin_snapshot,
        _DELETED: deleted_bits(positions),
    }


def deleted_bits(positions: np.ndarray) -> list[np.ndarray | None] | None:
    """Positions as bits in 64-bit words, in pieces of ``DELETED_BITS`` positions; None for a piece without any.

    >>> [None if words is None else words.tolist() for words in deleted_bits(np.array([1, 65, 64 * 64 * 2])) or ()]
    [[2, 2], None, [1]]
    """
    if not len(positions):
        return None
    numbers = positions // DELETED_BITS
    pieces: list[np.ndarray | None] = [None] * (int(numbers[-1]) + 1)
    for number in np.unique(numbers).tolist():
        first, last = np.searchsorted(numbers, [number, number + 1])
        places = positions[first:last] - number * DELETED_BITS
        flags = np.zeros((int(places[-1]) // 64 + 1) * 64, dtype=bool)
        flags[places] = True
        pieces[number] = np.packbits(flags, bitorder="little").view("<i8")
    return pieces
