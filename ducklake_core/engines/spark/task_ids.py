"""One number for each task of a read, in a frame of which Spark believes that it is as large as what the tasks return."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ducklake_core.engines.spark.task_groups import FileWork

_SMALL = 1 << 20
_NUMBER = 8
_MOST = 24


def task_id_frame(session: SparkSession, count: int, size: int) -> DataFrame:
    """The numbers from 0 on, one in each partition.

    Spark takes what Python gives back for as large as what Python was given. Of one number a task it expects next to nothing,
    and a join would send the whole table to every executor, by way of the driver.

    Args:
        session: The session to read with.
        count: So many.
        size: Bytes that the tasks will read, about; of files as stored, which is how Spark judges its own scans.
    """
    parts = max(1, count)
    # Spark counts numbers before they are filtered. Powers of two keep the number of generated programs small.
    bits = 0 if size <= _SMALL else min(_MOST, (size // _NUMBER // parts).bit_length())
    if not bits:
        return session.range(0, count, 1, parts)
    made = session.range(0, count << bits, 1, parts)
    return made.where(f"(id & {(1 << bits) - 1}L) = 0").selectExpr(f"shiftright(id, {bits}) as id")


def task_ids(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """The numbers that arrive at a task: the one column of :func:`task_id_frame`, or of ``session.range``."""
    for batch in batches:
        yield from batch.column("id").to_pylist()


def size_of(tasks: Iterable[FileWork], inlined: pa.Table | None = None) -> int:
    """Bytes of whole files and of rows of the catalog."""
    return sum(task.file.file_size_bytes for task in tasks) + (0 if inlined is None else inlined.nbytes)
