"""Going back to an earlier snapshot on executors: each takes some files, hides what they have gained and writes what they have lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ducklake_core.engines.arrow.changed_rows import ChangedRows, with_row_ids
from ducklake_core.engines.arrow.dataset_writer import DatasetWriter
from ducklake_core.engines.arrow.file_report import reraise_remote_errors, serialize_errors
from ducklake_core.engines.arrow.positions import DeleteTarget, FileDeletion, collect, physical_rows
from ducklake_core.engines.arrow.restored_rows import FilePair, changed_files, restore_file, restore_inlined
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.engines.spark.attempts import may_have_lost
from ducklake_core.engines.spark.positions import RESULT, packed, unpacked
from ducklake_core.engines.spark.running import awaiting_tasks
from ducklake_core.engines.spark.task_ids import task_ids
from ducklake_core.engines.spark.write import verify_files
from ducklake_core.format.files.data_files import WrittenFile
from ducklake_core.planning.plan import ScanPlan, ScanProjection
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.sweeping import NamedFiles, sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_TASKS = 512


def restore_rows(
    now: ScanPlan,
    then: ScanPlan,
    target: DeleteTarget,
    state: WriteState,
    storage: Storage,
    session: SparkSession,
    *,
    named: NamedFiles | None = None,
) -> ChangedRows:
    """Make the rows of a table those of an earlier snapshot; as :func:`ducklake_core.engines.arrow.restored_rows.restore_rows`.

    The driver sees one small value for each file, and the inlined rows, which travel in the plan.
    """
    pairs = changed_files(now, then)
    rows: list[Any] = []
    if pairs:
        numbers = session.range(0, len(pairs), 1, min(len(pairs), _MOST_TASKS))
        with reraise_remote_errors(), awaiting_tasks(session):
            rows = numbers.mapInArrow(_worker(pairs, now.shape, then.shape, target, state, storage), RESULT).collect()
    found: list[FileDeletion] = []
    written: list[WrittenFile] = []
    for row in rows:
        value = unpacked(row)
        if isinstance(value, list):
            written += value
        else:
            found.append(value)
    verify_files(tuple(written), state)
    with DatasetWriter(with_row_ids(state)) as writer:
        inlined = restore_inlined(writer, now, then)
        written += writer.close()
    deletions = collect(found, physical_rows(inlined))
    if may_have_lost(rows, session):
        keep = [*(file.path for file in deletions.delete_files), *(file.path for file in written)]
        sweep(storage, target.directory, target.write_id, named=named, keep=keep)
    return ChangedRows(deletions=deletions, inserted=tuple(written))


def _worker(
    pairs: Sequence[FilePair], now: ScanProjection, then: ScanProjection, target: DeleteTarget, state: WriteState, storage: Storage
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    packed_tasks = tuple(pairs)

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with serialize_errors(), DatasetWriter(with_row_ids(state)) as writer:
            for number in task_ids(numbers):
                deletion = restore_file(packed_tasks[number], now, then, target, writer, storage)
                if deletion is not None:
                    yield packed(deletion)
            yield packed(list(writer.close()))

    return run
