"""Pack scan tasks into Spark tasks by bytes, and read one group on an executor."""

from __future__ import annotations

import heapq
import itertools
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import pyarrow as pa

from ducklake_core.engines.arrow.read import read_inlined, read_task
from ducklake_core.engines.spark.types import to_spark_form
from ducklake_core.format.files.data_files import DataFile
from ducklake_core.planning.plan import FileTask, ScanProjection
from ducklake_core.storage.filesystems import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_BUNDLE_BYTES = 64 << 20
# Opening a file costs about as much as reading this many bytes (Spark's own estimate, spark.sql.files.openCostInBytes).
_OPEN_BYTES = 4 << 20
_MIN_GROUPS = 8
INLINED_ROWS = 100_000

_SMALL = 1 << 20
_NUMBER = 8
_MAX_BITS = 24


class FileWork(Protocol):
    """Any work unit on one data file, or on a part of it (``FileTask.rows``)."""

    @property
    def file(self) -> DataFile:
        """Return the file to read."""

    @property
    def rows(self) -> tuple[int, int] | None:
        """Return the part of the file to read, None for the whole."""


GroupWork = TypeVar("GroupWork", bound=FileWork)


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """The work of one Spark task: some files, or some inlined rows as an Arrow stream."""

    tasks: tuple[FileTask, ...] = ()
    inlined: bytes | None = None


def split_tasks(tasks: Sequence[GroupWork], *, least: int = _MIN_GROUPS) -> list[GroupWork]:
    """Return the same rows with large files in parts, so that one of them does not keep a single core busy.

    A row group is read as a whole, so there are no more parts than row groups where the catalog counts them.

    Args:
        tasks: Files to read.
        least: Minimum number of parts in all, unless they would become smaller than a few megabytes; 8 by default.
    """
    most = min(_BUNDLE_BYTES, max(_OPEN_BYTES, sum(task.file.file_size_bytes for task in tasks) // least))
    return [part for task in tasks for part in _parts(task, most)]


def _parts(task: GroupWork, most: int) -> Iterator[GroupWork]:
    count = min(-(-task.file.file_size_bytes // most), task.file.record_count, task.file.row_group_count or sys.maxsize)
    if count <= 1:
        yield task
        return
    ends = [task.file.record_count * number // count for number in range(count + 1)]
    # The catalog's row count may be wrong: the last part has no end, so that no row is lost.
    ends[-1] = sys.maxsize
    for start, end in itertools.pairwise(ends):
        yield replace(cast("Any", task), rows=(start, end))


def bin_pack(tasks: Sequence[GroupWork], *, least: int = _MIN_GROUPS) -> list[tuple[GroupWork, ...]]:
    """Return tasks in groups of about equal cost, the costliest first.

    Args:
        tasks: Files, or parts of files, to read.
        least: Minimum number of groups, unless there are fewer tasks, to keep all cores busy; 8 by default.
    """
    costs = [_cost(task) for task in tasks]
    count = min(len(tasks), max(least, -(-sum(costs) // _BUNDLE_BYTES)))
    # The costliest task first, always to the group with the least load: at most a third above the best possible distribution.
    groups: list[list[GroupWork]] = [[] for _ in range(count)]
    load = [(0, index) for index in range(count)]
    for cost, task in sorted(zip(costs, tasks, strict=True), key=lambda pair: -pair[0]):
        weight, index = heapq.heappop(load)
        groups[index].append(task)
        heapq.heappush(load, (weight + cost, index))
    return [tuple(group) for group in groups]


def _cost(task: FileWork) -> int:
    size, count = task.file.file_size_bytes, max(1, task.file.record_count)
    if task.rows is not None:
        size = size * (min(task.rows[1], count) - task.rows[0]) // count
    return size + _OPEN_BYTES


def inlined_groups(inlined: pa.Table | None) -> list[TaskGroup]:
    """Return inlined rows in groups; they travel inside the plan, because executors never see the catalog."""
    if inlined is None or not inlined.num_rows:
        return []
    parts = (inlined.slice(start, INLINED_ROWS) for start in range(0, inlined.num_rows, INLINED_ROWS))
    return [TaskGroup(inlined=to_stream(part)) for part in parts]


def to_stream(table: pa.Table) -> bytes:
    """Return rows in a form that travels to executors."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def from_stream(rows: bytes) -> pa.Table:
    """Return the inverse of :func:`to_stream`."""
    table: Any = pa.ipc.open_stream(rows).read_all()
    return cast("pa.Table", table)


def group_reader(
    groups: Sequence[TaskGroup], shape: ScanProjection, storage: Storage, wanted: pa.Schema, again: Sequence[int] = ()
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for ``mapInArrow`` over ``range(len(groups))``, which reads the groups whose numbers it receives.

    Args:
        groups: The work of each task.
        shape: The projection to read.
        storage: How to open files.
        wanted: The Arrow schema that Spark expects.
        again: Indexes of columns to return a second time; none by default.
    """
    # Each as bytes: the function travels with every Spark task, which unpickles only its own group. Pickling one group at a time also
    # keeps the pickler's memo on the driver small.
    packed_tasks = tuple(pickle.dumps(group, pickle.HIGHEST_PROTOCOL) for group in groups)

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in task_ids(numbers):
            group: TaskGroup = pickle.loads(packed_tasks[number])  # noqa: S301 - made above
            for rows in read_group(group, shape, storage):
                yield to_spark_form(rows, wanted, again)

    return read


def read_group(group: TaskGroup, shape: ScanProjection, storage: Storage) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one group, in the columns of the shape."""
    for task in group.tasks:
        yield from read_task(task, shape, storage, threads=False)
    if group.inlined is not None:
        yield from read_inlined(from_stream(group.inlined), shape)


def task_id_frame(session: SparkSession, count: int, size: int) -> DataFrame:
    """Return the numbers from 0 on, one in each partition.

    Spark estimates the output of ``mapInArrow`` as large as its input. With one number per task it would expect a tiny table, and a join
    would broadcast the whole table to every executor, through the driver. So the frame has as many numbers as Spark needs for a realistic
    estimate, and a filter keeps one per task::

        id              0 1 2 3 | 4 5 6 7 | ...      bits = 2; Spark estimates before the filter
        id & 3 = 0      0       | 4       | ...
        id >> 2         0       | 1       | ...      the task numbers

    Args:
        session: The session to read with.
        count: Number of tasks.
        size: Approximate bytes that the tasks read; the size of the files as stored, as Spark estimates its own scans.
    """
    parts = max(1, count)
    # Powers of two keep the number of distinct queries small, for which Spark generates and compiles code.
    bits = 0 if size <= _SMALL else min(_MAX_BITS, (size // _NUMBER // parts).bit_length())
    if not bits:
        return session.range(0, count, 1, parts)
    made = session.range(0, count << bits, 1, parts)
    return made.where(f"(id & {(1 << bits) - 1}L) = 0").selectExpr(f"shiftright(id, {bits}) as id")


def task_ids(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """Yield the numbers that a task receives: the one column of :func:`task_id_frame`, or of ``session.range``."""
    for batch in batches:
        yield from batch.column("id").to_pylist()


def size_of(tasks: Iterable[FileWork], inlined: pa.Table | None = None) -> int:
    """Return the size in bytes of whole files and of inlined rows."""
    return sum(task.file.file_size_bytes for task in tasks) + (0 if inlined is None else inlined.nbytes)
