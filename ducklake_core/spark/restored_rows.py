"""Going back to an earlier snapshot on executors: each takes some files, hides what they have gained and writes what they have lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ducklake_core.arrow.changed_rows import ChangedRows, with_row_ids
from ducklake_core.arrow.dataset_writer import DatasetWriter
from ducklake_core.arrow.file_report import carried, told
from ducklake_core.arrow.positions import DeleteTarget, FileDeletion, collect, physical_rows
from ducklake_core.arrow.restored_rows import FilePair, changed_files, restore_file, restore_inlined
from ducklake_core.arrow.write_state import WriteState
from ducklake_core.format.files import WrittenFile
from ducklake_core.scan.plan import ReadShape, ScanPlan
from ducklake_core.spark.attempts import may_have_lost
from ducklake_core.spark.positions import RESULT, packed, unpacked
from ducklake_core.spark.write import verify_files
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.sweeping import sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_TASKS = 512


def restore_rows(
    now: ScanPlan, then: ScanPlan, target: DeleteTarget, state: WriteState, storage: Storage, session: SparkSession
) -> ChangedRows:
    """Make the rows of a table those of an earlier snapshot; as :func:`ducklake_core.arrow.restored_rows.restore_rows`.

    The driver sees one small value for each file, and the inlined rows, which travel in the plan.
    """
    pairs = changed_files(now, then)
    rows: list[Any] = []
    if pairs:
        numbers = session.range(0, len(pairs), 1, min(len(pairs), _MOST_TASKS))
        with told():
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
        keep = frozenset([*(file.path for file in deletions.delete_files), *(file.path for file in written)])
        sweep(storage, target.directory, target.write_id, keep=keep)
    return ChangedRows(deletions=deletions, inserted=tuple(written))


def _worker(
    pairs: Sequence[FilePair], now: ReadShape, then: ReadShape, target: DeleteTarget, state: WriteState, storage: Storage
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    dealt = tuple(pairs)

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carried(), DatasetWriter(with_row_ids(state)) as writer:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    deletion = restore_file(dealt[number], now, then, target, writer, storage)
                    if deletion is not None:
                        yield packed(deletion)
            yield packed(list(writer.close()))

    return run
