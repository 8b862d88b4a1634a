"""What is known of each file of a native read, as a small frame that rows are joined with by the hash of their file's name.

It is made here from deleted positions that the driver has read, or by executors that read the delete files, where they are many.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as sf
from pyspark.sql.types import DecimalType

from ducklake_core.engines.spark.local_frames import local_frame
from ducklake_core.engines.spark.task_ids import task_ids
from ducklake_core.format.files.paths import file_name
from ducklake_core.planning.native import DELETED_BITS
from ducklake_core.planning.plan import FileTask, ScanPlan
from ducklake_core.storage.delete_files import deleted_positions
from ducklake_core.storage.filesystems import Storage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FILES_PER_SLICE = 256
_LEAST_SLICES = 4

# Names of the columns that exist only between the files and the result.
NAME, POSITION = "_ducklake_name", "_ducklake_position"
ROW_ID, SNAPSHOT_ID = "_ducklake_row_id", "_ducklake_snapshot_id"
_HASH = "_ducklake_hash"
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
    """Visible rows, each with what is known of its file.

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
    """Facts by the hash of their file's name: a join on a number takes half the time of one on names."""
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
    position, bits = sf.col(POSITION), DELETED_BITS.bit_length() - 1
    key, pieces = (sf.col(_SELDOM).getField(name) for name in (_KEY, _DELETED))
    words = sf.get(pieces, sf.shiftright(position, bits).cast("int"))
    word = sf.get(words, sf.shiftright(position, 6).bitwiseAND(DELETED_BITS // 64 - 1).cast("int"))
    # Deletes often lie together, and a comparison is cheaper than a look into the bits. No bit is NULL, which is not deleted.
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
    """A virtual column of joined rows; of a table that the message of an error names."""
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
    """One row a file, of what the driver knows; Spark broadcasts it without a job."""
    schema = _schema(plan)
    found = [_facts_of(file_name(task.file.path), task, deleted) for task, deleted in zip(tasks, positions, strict=True)]
    return local_frame(session, pa.Table.from_pylist(found, schema=schema), _text(schema))


def _facts(plan: ScanPlan, tasks: Sequence[FileTask], storage: Storage, session: SparkSession) -> DataFrame:
    """One row a file; delete files are read where this runs, on executors."""
    count = min(len(tasks), max(_LEAST_SLICES, -(-len(tasks) // _FILES_PER_SLICE)))
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
