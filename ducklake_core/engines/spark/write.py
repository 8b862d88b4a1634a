"""Write a Spark DataFrame into a table's files: executors write Parquet at its final path, the driver gets one small row per file.

Works the same with classic sessions and with Spark Connect, as it only uses ``mapInArrow``. Executors import
``ducklake_core``, so it is either installed there or shipped: ``spark.addArtifacts(wheel, pyfile=True)`` with Connect, ``--py-files``
with ``spark-submit``, ``spark.sparkContext.addPyFile`` in a classic session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from ducklake_core.engines.arrow.dataset_writer import DatasetWriter
from ducklake_core.engines.arrow.file_report import file_from_json, file_to_json, reraise_remote_errors, serialize_errors
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.engines.spark.attempts import ATTEMPT_COLUMNS, attempt_columns, may_have_lost
from ducklake_core.engines.spark.batches import unlimited_arrow_batches
from ducklake_core.engines.spark.distribution import distribute, plain_name
from ducklake_core.engines.spark.running import awaiting_tasks
from ducklake_core.engines.spark.sorting import sort_within_partitions
from ducklake_core.engines.spark.types import year_month_columns
from ducklake_core.errors import CorruptFileError
from ducklake_core.format.files.data_files import WrittenFile
from ducklake_core.format.files.statistics import verify_written_file
from ducklake_core.storage.sweeping import NamedFiles, sweep, sweep_after_error

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_REPORT = f"{ATTEMPT_COLUMNS}, file string"


def write_frame(df: DataFrame, state: WriteState, named: NamedFiles | None = None) -> tuple[WrittenFile, ...]:
    """Write all rows of a frame; the files are in place but not committed.

    The frame is computed once. Row groups are gathered here, so the size of the session's Arrow batches matters little. With
    ``state.distribute`` the rows of a partitioned table are first brought together by partition values, so that each
    partition gets few files (the option ``per_thread_output`` leaves them where they are). The session's time zone changes no value.

    Args:
        df: The frame.
        state: The write.
        named: Tells which files the catalog names: they are never swept.

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
        # Spark hands such rows to Python as no rows.
        if df.isEmpty():
            return ()
        raise state.without_columns()
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
    if may_have_lost(rows, df.sparkSession):
        sweep(state.storage, state.directory, state.write_id, named=named, keep=[file.path for file in files])
    return files


def _sorts_by_defaults(state: WriteState) -> bool:
    """Whether a key of the order is computed by the writer alone, who then sorts as well."""
    computed = {state.schema.by_id()[column_id].name for column_id, _ in state.defaults}
    return any(computed.intersection(order.columns) for order in state.sort)


def _partition_writer(state: WriteState, names: Sequence[str]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with serialize_errors(), DatasetWriter(state) as writer:
            for batch in batches:
                # What follows the frame's own columns only told which rows belong together.
                writer.write(pa.RecordBatch.from_arrays(batch.columns[: len(names)], names=list(names)))
            reports = [file_to_json(file) for file in writer.close()]
            yield pa.RecordBatch.from_pydict({**attempt_columns(len(reports)), "file": pa.array(reports, pa.string())})

    return write_partition


def for_python(df: DataFrame) -> DataFrame:
    """The frame as Python can receive it: columns under plain names, year-month intervals as text."""
    from pyspark.sql import functions as F  # noqa: N812

    # mapInArrow looks columns up by unquoted name, and so fails on names with dots.
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
        raise CorruptFileError(f"the write of {state.table} was reported twice for one file; nothing was committed", table=state.table)
    for file in files:
        verify_written_file(file, state.schema, state.partition_spec)
