"""Read a plan with Spark's own Parquet reader, leaving out deleted rows and adding virtual columns.

Spark has neither delete files nor virtual columns. Both follow from a row's file and its position in it, which Spark's reader reports.
Deleted positions become bits in 64-bit words, and there are two ways to combine them with the rows::

    filter   (_filtered)  few files or few deletes; no join
        anywhere   | word | word | ...    bit set: the position is deleted in at least one of the files
        own[file]  | word | word | ...    bit set: it is deleted in this file; read only where ``anywhere`` has the bit
    join     (joined)     many deletes, or virtual columns
        rows | name | position |  join on hash(name)  facts | name | first | last | deleted words in pieces | row id start | ...

A row whose file is unknown stops the query, because the deletes of that file would be missed.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, DecimalType, LongType, MapType, StringType, StructField, StructType

from ducklake_core.engines.arrow.file_reader import field_id, readers_of
from ducklake_core.engines.arrow.read import naming_table
from ducklake_core.engines.spark.scan_schema import hadoop_path, quoted, spark_schema
from ducklake_core.engines.spark.session import filtered, held_settings, is_connect, local_frame, users_setting
from ducklake_core.engines.spark.tasks import task_ids
from ducklake_core.errors import NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_core.format.cache import BoundedCache
from ducklake_core.format.files.data_files import ROW_ID_FIELD_ID, SNAPSHOT_ID_FIELD_ID, DataFile, DeleteFile
from ducklake_core.format.files.paths import file_name
from ducklake_core.format.types.schema import Schema
from ducklake_core.planning.native import DELETED_BITS, ROW_INDEX
from ducklake_core.planning.plan import FileTask, ScanPlan
from ducklake_core.storage.delete_files import DeletedPositions, deleted_positions, process_memory
from ducklake_core.storage.filesystems import Storage, printable
from ducklake_core.storage.parquet_files import read_schema, read_twice

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession


_FILES_PER_SLICE = 256
_MIN_SLICES = 4
_HASH = "_ducklake_hash"

FIELD_ID_CONF = "spark.sql.parquet.fieldId.read.enabled"
LISTING_CONF = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_FEW = 4
"""Files without deletes join the group of files with deletes if they have at most one row for this many rows of that group."""
SPARK_LISTS = 32
"""Spark's default number of paths that the driver lists without a job."""
# Everything by which the Parquet reader skips row groups, pages or rows with a filter that Spark pushed down.
_ALL_ROWS = {f"parquet.filter.{name}.enabled": "false" for name in ("stats", "columnindex", "dictionary", "bloom", "record-level")}

MAX_WORDS = 1 << 20
"""Maximum number of words, 8 MB, because they travel with each stage that reads the files."""
MAX_NAMES = 4096
SHARE = 0.2
"""Maximum share of rows for which the filter has to compare file names; for more rows, the join is faster."""
_MAX_ROWS = 1 << 37
"""Maximum number of rows, so that word numbers (64 rows per word) fit Spark's 32-bit array indexes."""
_MAX_COMPARED = 8
"""Among up to this many files, a single one with deletes is recognized by name: a third of the words, and one subquery less."""

READER_CONF = "spark.ducklake.read.files"
"""Session setting: "native" (the default) uses Spark's own Parquet reader for files that it reads exactly, "arrow" never does."""
_FILES_PER_PARTITION = 4096
_AT_ONCE = 16
MAX_FILES_ON_DRIVER = 64
"""Maximum number of footers to check on the driver: some milliseconds once, where a Spark task would take fifty in each action."""
_MAX_REMEMBERED = 1 << 16
_footers = BoundedCache[tuple[Storage, str], Mapping[int, str]](_MAX_REMEMBERED)
"""Results of :func:`check_ids` on the driver; they stay valid because no file is ever rewritten under its name."""

MAX_FILES = 4096
"""Maximum number of data files, and of delete files, that the driver reads for one plan; a delete file takes 0.4 ms of processor time."""
MAX_POSITIONS = 2_000_000
"""Maximum number of deleted positions that the driver holds meanwhile, of eight bytes each."""


def read_natively(
    plan: ScanPlan, tasks: Sequence[FileTask], storage: Storage, session: SparkSession, schemes: Mapping[str, str]
) -> list[DataFrame]:
    """Return frames that together hold the rows of the given files of a plan; one or a few of the files are opened.

    Files without deletes make a frame of their own unless virtual columns are wanted or they are few: they need no lookup. Files with
    misleading bounds make a frame of their own too, because Spark pushes any filter on the frame down to its reader.

    Args:
        plan: The plan that is read.
        tasks: The files of the plan that Spark's own reader reads exactly.
        storage: How to open delete files and footers.
        session: The session to read with.
        schemes: Hadoop's scheme by protocol, for files on object stores.
    """
    session.conf.set(FIELD_ID_CONF, "true")
    columns = spark_schema(plan.schema, plan.virtual)
    frames: list[DataFrame] = []
    for alike in _groups(plan, tasks):
        if needs_places(plan, alike[0]):
            frames.append(_result(_placed(plan, alike, storage, session, schemes), plan, alike))
        else:
            frames.append(_result(_files(spark_schema(plan.read_schema, field_ids=True), alike, session, schemes), plan, alike))
    check = rejection(tasks, plan.read_schema, plan.table, columns, storage, session)
    # head() runs the first partition first, so that the check comes before any rows.
    return frames if check is None else [check, *frames]


def _groups(plan: ScanPlan, tasks: Sequence[FileTask]) -> Iterator[list[FileTask]]:
    """Yield groups of files that are read alike; if the first file of a group needs row positions, all files are checked."""
    for trusted in (True, False):
        placed = [task for task in tasks if task.trusts_bounds is trusted and needs_places(plan, task)]
        plain = [task for task in tasks if task.trusts_bounds is trusted and not needs_places(plan, task)]
        # Spark repeats semi and anti joins for each side of a union, which costs every row of both; the positions of few rows cost little.
        if placed and _rows(plain) * _FEW <= _rows(placed):
            placed, plain = [*placed, *plain], []
        yield from (group for group in (plain, placed) if group)


def _rows(tasks: Sequence[FileTask]) -> int:
    return sum(task.file.record_count for task in tasks)


def needs_places(plan: ScanPlan, task: FileTask) -> bool:
    """Return whether reading the file needs the positions of its rows: some may be deleted, or virtual columns are wanted."""
    return bool(plan.shape.read_virtual or task.file.delete_files or task.file.inlined_deletes)


def _result(frame: DataFrame, plan: ScanPlan, tasks: Sequence[FileTask]) -> DataFrame:
    if plan.predicate is not None and not all(task.all_rows_match for task in tasks):
        frame = filtered(frame, plan.predicate)
    # The result has no field ids: if Spark wrote it elsewhere, they would be taken for ids of that other table.
    return frame.select(*(quoted(name) for name in (*plan.schema.names, *plan.virtual))).to(spark_schema(plan.schema, plan.virtual))


def _files(schema: object, tasks: Sequence[FileTask], session: SparkSession, schemes: Mapping[str, str]) -> DataFrame:
    reader = (
        session.read.schema(schema)  # type: ignore[arg-type]
        .option("mergeSchema", "false")
        .option("datetimeRebaseMode", "CORRECTED")
        .option("int96RebaseMode", "CORRECTED")
        # A session may set these to lose rows instead of failing; that must not apply to a lake's files.
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
            f"{path} does not exist. Maintenance may have cleaned it up after the scan was planned: plan the scan again",
            path=path,
        ) from error


def _parquet(reader: DataFrameReader, paths: Sequence[str], session: SparkSession) -> DataFrame:
    """Return the frame of these files; PySpark hands paths to Java one by one, which costs as much as Java's own work on them."""
    if is_connect(session):
        return reader.parquet(*paths)
    # One call instead of one per path: Java splits a single string at NUL characters, which no path contains.
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
    """Return visible rows of files with the virtual columns that are wanted."""
    # A client of Spark Connect may not reach the files, so that executors read the deletes there.
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
    included = plan.shape.read_virtual
    for name, wanted, number in ((ROW_ID, "rowid", ROW_ID_FIELD_ID), (SNAPSHOT_ID, "snapshot_id", SNAPSHOT_ID_FIELD_ID)):
        if wanted in included:
            schema.add(StructField(name, LongType(), True, {"parquet.field.id": number}))
    visible = joined(_with_places(_files(schema, tasks, session, schemes)), plan, tasks, positions, storage, session)
    columns = (quoted(name) for name in plan.read_schema.names)
    return visible.select(*columns, *(virtual(name, plan.table).alias(name) for name in included))


def _filtered(
    schema: StructType, bits: DeletedBits, tasks: Sequence[FileTask], session: SparkSession, schemes: Mapping[str, str]
) -> DataFrame:
    """Return rows whose positions are not deleted, found without a join."""
    # Spark builds an object for each row of _metadata. The hidden column ROW_INDEX, the source of the position, avoids that.
    rows = _files(StructType([*schema, StructField(ROW_INDEX, LongType())]), tasks, session, schemes)
    if len(tasks) == 1:
        return visible_rows(rows, bits, session, ROW_INDEX)
    named = rows.select("*", rows.metadataColumn("_metadata").getField("file_name").alias(NAME))
    return visible_rows(named, bits, session, ROW_INDEX, NAME)


def _with_places(files: DataFrame) -> DataFrame:
    metadata = files.metadataColumn("_metadata")
    return files.select("*", metadata.getField("file_name").alias(NAME), metadata.getField("row_index").alias(POSITION))


# Names of the columns that exist only between the files and the result.
NAME, POSITION = "_ducklake_name", "_ducklake_position"
ROW_ID, SNAPSHOT_ID = "_ducklake_row_id", "_ducklake_snapshot_id"
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


def joined(
    rows: DataFrame,
    plan: ScanPlan,
    tasks: Sequence[FileTask],
    positions: Sequence[np.ndarray] | None,
    storage: Storage,
    session: SparkSession,
) -> DataFrame:
    """Return visible rows, each with the facts about its file.

    Args:
        rows: Rows with ``NAME`` and ``POSITION``.
        plan: The plan that is read.
        tasks: The files of the rows.
        positions: Deleted positions of each file; None to leave reading them to executors.
        storage: How to open delete files.
        session: The session of the rows.
    """
    facts = _facts(plan, tasks, storage, session) if positions is None else _local_facts(plan, tasks, positions, session)
    frame = rows.withColumn(_HASH, sf.xxhash64(NAME)).join(sf.broadcast(_keyed(facts)), sf.col(_HASH) == sf.col(_KEY_HASH), "left")
    return frame.filter(_is_visible(exact=bool(plan.shape.read_virtual)))


def _keyed(facts: DataFrame) -> DataFrame:
    """Return facts by the hash of the file's name: a join on a number takes half the time of one on names."""
    others = (name for name in facts.columns if name not in _NEEDED_FACTS)
    # Spark copies every column of a matched build row for each probe row. The facts that few rows need are one struct column.
    seldom = sf.struct(_KEY, _DELETED).alias(_SELDOM)
    return facts.select(sf.xxhash64(_KEY).alias(_KEY_HASH), _FIRST, _LAST, seldom, *others)


def _is_visible(*, exact: bool) -> Column:
    """Return whether the row's bit is not set; a row of an unknown file stops the query, because its deletes are unknown.

    Args:
        exact: Whether to compare the name of every row, because virtual columns come from the facts about its file. Otherwise a collision
            of two 64-bit hashes is noticed only where it would hide a row: comparing names takes as long as everything else.
    """
    position, bits = sf.col(POSITION), DELETED_BITS.bit_length() - 1
    key, pieces = (sf.col(_SELDOM).getField(name) for name in (_KEY, _DELETED))
    words = sf.get(pieces, sf.shiftright(position, bits).cast("int"))
    word = sf.get(words, sf.shiftright(position, 6).bitwiseAND(DELETED_BITS // 64 - 1).cast("int"))
    # Deletes are often clustered, and two comparisons are cheaper than a bit lookup. A missing word gives NULL, which is not deleted.
    may_be = (position >= sf.col(_FIRST)) & (position <= sf.col(_LAST))
    deleted = may_be & (sf.getbit(word, position.bitwiseAND(63).cast("int")) == 1)
    same_name = key == sf.col(NAME)
    message = sf.concat(sf.lit("Spark read a file under a name that is not in the plan: "), sf.col(NAME))
    stranger = sf.raise_error(message).cast("boolean")
    if exact:
        return sf.when(same_name, ~sf.coalesce(deleted, sf.lit(False))).otherwise(stranger)
    hidden = sf.when(same_name, sf.lit(False)).otherwise(stranger)
    return sf.when(sf.col(_KEY_HASH).isNull(), stranger).when(deleted, hidden).otherwise(sf.lit(True))


def virtual(name: str, table: str) -> Column:
    """Return a virtual column of joined rows; the error message names the table."""
    match name:
        case "rowid":
            without = sf.concat(sf.lit(f"a file of table {table} has no row ids, neither in the file nor in the catalog: "), sf.col(_PATH))
            counted = sf.col(_FIRST_ROW_ID) + sf.col(POSITION)
            return sf.coalesce(sf.col(ROW_ID), counted, sf.raise_error(without).cast("bigint"))
        case "snapshot_id":
            return sf.coalesce(sf.col(SNAPSHOT_ID), sf.col(_BEGIN))
        case "filename":
            return sf.col(_PATH)
        case "file_index":
            return sf.col(_INDEX).cast(DecimalType(20, 0))
        case _:
            return sf.col(POSITION)


def _schema(plan: ScanPlan) -> pa.Schema:
    return pa.schema([pa.field(name, _FACTS[name][1]) for name in (_FACTS if plan.shape.read_virtual else _NEEDED_FACTS)])


def _text(schema: pa.Schema) -> str:
    return ", ".join(f"{name} {_FACTS[name][0]}" for name in schema.names)


def _local_facts(plan: ScanPlan, tasks: Sequence[FileTask], positions: Sequence[np.ndarray], session: SparkSession) -> DataFrame:
    """Return one row per file with the facts that the driver has; Spark broadcasts it without a job."""
    schema = _schema(plan)
    found = [_facts_of(file_name(task.file.path), task, deleted) for task, deleted in zip(tasks, positions, strict=True)]
    return local_frame(session, pa.Table.from_pylist(found, schema=schema), _text(schema))


def _facts(plan: ScanPlan, tasks: Sequence[FileTask], storage: Storage, session: SparkSession) -> DataFrame:
    """Return one row per file; the process that runs this, an executor, reads the delete files."""
    count = min(len(tasks), max(_MIN_SLICES, -(-len(tasks) // _FILES_PER_SLICE)))
    # Pickled one by one, so that a task of Spark unpacks its own slice only.
    slices = tuple(pickle.dumps([(file_name(task.file.path), task) for task in tasks[number::count]]) for number in range(count))
    schema = _schema(plan)
    return session.range(0, count, 1, count).mapInArrow(_facts_reader(slices, plan.snapshot_id, storage, schema), _text(schema))


def _facts_reader(
    slices: tuple[bytes, ...], snapshot_id: int, storage: Storage, schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in task_ids(numbers):
            rows = [_facts_of(key, task, deleted_positions(storage, task.file, snapshot_id)) for key, task in _unpacked(slices[number])]
            yield pa.RecordBatch.from_pylist(rows, schema=schema)

    return read


def _unpacked(part: bytes) -> list[tuple[str, FileTask]]:
    return pickle.loads(part)  # type: ignore[no-any-return]  # noqa: S301 - made by our own function in the same job


def _facts_of(key: str, task: FileTask, positions: np.ndarray) -> dict[str, object]:
    file = task.file
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
    """Return positions as bits in 64-bit words, in pieces of ``DELETED_BITS`` positions; None for a piece without any.

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


_ANYWHERE, _BY_NAME = "_ducklake_anywhere", "_ducklake_by_name"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedBits:
    """Deleted positions of some files.

    Attributes:
        names: The files' names.
        first: The first word of positions that has a bit.
        anywhere: Words with the deleted positions of all files; see the picture in the module's docstring.
        only: The name of the only file with deletes, among few files; they have no words of their own.
        own: The words of each file.
    """

    names: tuple[str, ...]
    first: int
    anywhere: np.ndarray
    only: str | None
    own: tuple[np.ndarray, ...]

    def is_deleted(self, name: str, position: int) -> bool:
        """Return the outcome of the filter, for tests.

        Raises:
            KeyError: The name is none of the files', and the position is deleted in one of them.
        """
        word, bit = (position >> 6) - self.first, position & 63
        if not 0 <= word < len(self.anywhere) or not int(self.anywhere[word]) >> bit & 1:
            return False
        if name not in self.names:
            raise KeyError(name)
        if self.only is not None:
            return name == self.only
        return bool(int(self.own[self.names.index(name)][word]) >> bit & 1)


def deleted_bits_of(names: Sequence[str], positions: Sequence[np.ndarray], rows: int) -> DeletedBits | None:
    """Return deleted positions of files in the form of the filter; None where a join is cheaper, or there are too many words.

    Args:
        names: The files' names, distinct.
        positions: Deleted positions of each, ascending.
        rows: Rows of all files together.

    >>> found = deleted_bits_of(["a", "b"], [np.array([70, 200]), np.array([71])], 1000)
    >>> [found.is_deleted(name, place) for name in "ab" for place in (0, 70, 71, 200, 5000)]
    [False, True, False, True, False, False, False, True, False, False]
    """
    changed = [found for found in positions if len(found)]
    if not changed or len(names) > MAX_NAMES or rows > _MAX_ROWS:
        return None
    first = min(int(found[0]) for found in changed) >> 6
    words = (max(int(found[-1]) for found in changed) >> 6) + 1 - first
    is_compared = len(changed) == 1 and len(names) <= _MAX_COMPARED
    if words * (1 if is_compared else len(names) + 1) > MAX_WORDS:
        return None
    if is_compared:
        only = next(name for name, found in zip(names, positions, strict=True) if len(found))
        return DeletedBits(names=tuple(names), first=first, anywhere=_words(changed[0] - (first << 6), words), only=only, own=())
    own = tuple(_words(found - (first << 6), words) for found in positions)
    anywhere = np.asarray(np.bitwise_or.reduce(own))
    if int(np.unpackbits(anywhere.view(np.uint8)).sum()) * len(names) > SHARE * rows:
        return None
    return DeletedBits(names=tuple(names), first=first, anywhere=anywhere, only=None, own=own)


def _words(places: np.ndarray, count: int) -> np.ndarray:
    flags = np.zeros(count * 64, dtype=bool)
    flags[places] = True
    return np.packbits(flags, bitorder="little").view("<i8")


def visible_rows(rows: DataFrame, bits: DeletedBits, session: SparkSession, position: str, name: str | None = None) -> DataFrame:
    """Return rows that are not deleted; a row without a position, or a deleted row of an unknown file, stops the query.

    Spark evaluates the columns that the filter names for each row, before the conditions of the caller's own filters.

    Args:
        rows: Rows with their positions.
        bits: The deleted positions.
        session: The session of the rows.
        position: Column of the position of a row in its file.
        name: Column of the name of the row's file; None where ``bits`` are of one file.
    """
    words = ArrayType(LongType(), False)
    columns = {_ANYWHERE: pa.array([bits.anywhere], pa.list_(pa.int64()))}
    fields = [StructField(_ANYWHERE, words, False)]
    if bits.own:
        columns[_BY_NAME] = pa.array([_buckets(bits)], pa.list_(pa.map_(pa.string(), pa.list_(pa.int64()))))
        fields.append(StructField(_BY_NAME, ArrayType(MapType(StringType(), words, False), False), False))
    frame = local_frame(session, pa.table(columns), StructType(fields))
    # The words are scalar subqueries. As columns they would count towards the size of each row when Spark materializes them, as it does
    # for a correlated subquery in the caller's filter, and small tables would be too large to broadcast.
    anywhere, *by_name = (frame.select(column).scalar() for column in columns)
    hidden = sf.lit(False)
    if name is not None:
        if bits.only is not None:
            others = [one for one in bits.names if one != bits.only]
            is_visible = sf.when(sf.col(name) == bits.only, sf.lit(False)).when(sf.col(name).isin(others), sf.lit(True))
        else:
            # Spark searches a map linearly for a key, so that the names are spread over as many small maps by their hash.
            bucket = sf.expr(f"CAST(pmod(crc32({name}), {len(bits.names)}) AS INT)")
            is_visible = _bit(sf.try_element_at(sf.get(by_name[0], bucket), sf.col(name)), position, bits.first) == 0
        hidden = sf.coalesce(is_visible, _stop(f"concat('Spark read a file under a name that is not in the plan: ', {name})"))
    lost = _stop("'Spark did not return the position of a row in its file, so deleted rows cannot be left out'")
    # Spark would take a plain comparison for a selective condition and build join filters from it; CASE hides it.
    is_deleted = _bit(anywhere, position, bits.first) == 1
    return rows.filter(sf.when(is_deleted, hidden).when(sf.expr(f"{position} IS NULL"), lost).otherwise(sf.lit(True)))


def _buckets(bits: DeletedBits) -> list[list[tuple[str, np.ndarray]]]:
    """Return as many buckets as names, each with the words of its names."""
    buckets: list[list[tuple[str, np.ndarray]]] = [[] for _ in bits.names]
    for name, words in zip(bits.names, bits.own, strict=True):
        buckets[crc32(name.encode()) % len(buckets)].append((name, words))
    return buckets


def _bit(words: Column, position: str, first: int) -> Column:
    """Return the bit of a position; NULL outside of the words."""
    word = sf.get(words, sf.expr(f"CAST(shiftright({position}, 6) AS INT) - {first}"))
    return sf.call_function("shiftright", word, sf.expr(f"CAST({position} & 63 AS INT)")).bitwiseAND(1)


def _stop(message: str) -> Column:
    return sf.expr(f"CAST(raise_error({message}) AS BOOLEAN)")


def wants_native(session: SparkSession) -> bool:
    """Return whether Spark's own reader may read files.

    Raises:
        UsageError: The setting has another value.
    """
    wanted = str(session.conf.get(READER_CONF, "native")).lower()
    if wanted not in ("native", "arrow"):
        raise UsageError(f"the setting {READER_CONF} is {wanted!r}. Set it to 'native' or 'arrow', or unset it")
    return wanted == "native"


def rejection(
    tasks: Sequence[FileTask], read: Schema, table: str, schema: StructType, storage: Storage, session: SparkSession
) -> DataFrame | None:
    """Check that files have field ids: one file of each commit, because a commit has one writer.

    Args:
        read: The columns that are read.
        schema: The columns of the returned frame.

    Returns:
        A frame without rows that checks the files when it runs; None if they were checked here, which requires few files and a session
        that is not a Spark Connect client, because a client may not reach them.

    Raises:
        UnsupportedFeatureError: A file lacks field ids.
        CorruptFileError: A file is not a Parquet file.
        NotFoundError: There is no such file.
    """
    of_each = {(task.file.begin_snapshot, task.file.partial_max): task.file.path for task in tasks}.values()
    ids = frozenset(column.id for column in read)
    paths = [path for path in of_each if not _is_known(_footers.get((storage, path)), ids)]
    if len(paths) <= MAX_FILES_ON_DRIVER and not is_connect(session):
        found = _check_all(paths, ids, table, storage)
        for path, without in zip(paths, found, strict=True):
            _footers[storage, path] = without
        return None
    parts = [paths[start : start + _FILES_PER_PARTITION] for start in range(0, len(paths), _FILES_PER_PARTITION)]
    slices = tuple(pickle.dumps(part) for part in parts)
    return session.range(0, len(slices), 1, len(slices)).mapInArrow(_checker(slices, ids, table, storage), schema)


def _is_known(without: Mapping[int, str] | None, read: frozenset[int]) -> bool:
    return without is not None and read.isdisjoint(without)


def _checker(
    slices: tuple[bytes, ...], read: frozenset[int], table: str, storage: Storage
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def check(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in task_ids(numbers):
            _check_all(pickle.loads(slices[number]), read, table, storage)  # noqa: S301 - made by our own function in the same job
        yield from ()

    return check


def _check_all(paths: Sequence[str], read: frozenset[int], table: str, storage: Storage) -> list[Mapping[int, str]]:
    # Object stores answer slowly, and the requests overlap.
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda path: read_twice(lambda: check_ids(path, read, table, storage)), paths))


def check_ids(path: str, read: frozenset[int], table: str, storage: Storage) -> Mapping[int, str]:
    """Check that every column of a file has a field id, and every node of the columns that are read.

    Args:
        read: Ids of the columns that are read.

    Returns:
        Ids and names of other columns that contain a node without an id, as variants do.

    Raises:
        UnsupportedFeatureError: A column, or a node of a column that is read, has no id.
        CorruptFileError: The file is not a Parquet file.
    """
    where = printable(path)
    lacking = [(field_id(field), field.name) for field in read_schema(storage, path, table=table) if _lacks_id(field)]
    without = next((name for number, name in lacking if number is None or number in read), None)
    if without is not None:
        raise UnsupportedFeatureError(
            f"column {without!r} of {where} of table {table} has no field id, so Spark's own reader would return NULL for it. Set "
            f"{READER_CONF} to 'arrow' in the session, or register the file with a name mapping (add_data_files)",
            path=where,
            table=table,
            column=without,
        )
    return {number: name for number, name in lacking if number is not None}


def _lacks_id(field: pa.Field[Any]) -> bool:
    children: list[pa.Field[Any]] = []
    if pa.types.is_map(field.type):
        children = [field.type.key_field, field.type.item_field]
    elif pa.types.is_struct(field.type) or pa.types.is_list(field.type) or pa.types.is_large_list(field.type):
        children = [field.type.field(place) for place in range(field.type.num_fields)]
    return field_id(field) is None or any(_lacks_id(child) for child in children)


def read_here(tasks: Sequence[FileTask], snapshot_id: int, storage: Storage) -> list[np.ndarray] | None:
    """Return the deleted positions of each file, ascending; None where they are too many for the driver.

    Args:
        tasks: The files.
        snapshot_id: The snapshot that is read.
        storage: How to open delete files.

    Raises:
        NotFoundError: A delete file is missing.
        CorruptFileError: A file is not a delete file, or not one of its data file.
    """
    files = [task.file for task in tasks]
    positions = sum(len(file.inlined_deletes) + sum(one.delete_count for one in file.delete_files) for file in files)
    if max(len(files), sum(len(file.delete_files) for file in files)) > MAX_FILES or positions > MAX_POSITIONS:
        return None
    pairs = [(one, file) for file in files for one in file.delete_files]
    # Cached positions are held here, because the files that are read now may evict them from the process-wide cache.
    found = {(one.path, file.path): process_memory.recall(storage, one, file) for one, file in pairs}
    unread = [(one, file) for one, file in pairs if found[one.path, file.path] is None]
    if unread:
        with ThreadPoolExecutor(readers_of(unread[0][0].path), thread_name_prefix="ducklake-deletes") as threads:
            for (one, file), positions_of in zip(
                unread, threads.map(lambda pair: process_memory.read(storage, *pair), unread), strict=True
            ):
                found[one.path, file.path] = positions_of

    def read(_: Storage, one: DeleteFile, file: DataFile) -> DeletedPositions:
        known = found[one.path, file.path]
        assert known is not None
        return known

    return [deleted_positions(storage, file, snapshot_id, read=read) for file in files]
