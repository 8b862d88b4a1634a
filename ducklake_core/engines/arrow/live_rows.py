"""The live rows of data files written anew, without the deleted ones: the work unit of a rewrite, for this process and for executors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from ducklake_core.commit.moved_rows import GatheredDeletes
from ducklake_core.engines.arrow.clustering import sampled_curve
from ducklake_core.engines.arrow.dataset_writer import DatasetWriter
from ducklake_core.engines.arrow.delete_history import gather_deletes
from ducklake_core.engines.arrow.file_reader import ChosenRows
from ducklake_core.engines.arrow.flush import SYSTEM_FIELDS, relaxed
from ducklake_core.engines.arrow.ordering import sorted_along, sorted_by
from ducklake_core.engines.arrow.read import read_chosen
from ducklake_core.engines.arrow.work import Stopped, until_stopped
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.errors import CorruptFileError, UnsupportedFeatureError
from ducklake_core.format.files.data_files import DataFile, WrittenFile
from ducklake_core.format.files.delete_history import DeleteHistory, deleted_count
from ducklake_core.format.layout.sorting import SortOrder
from ducklake_core.format.types.schema import Schema
from ducklake_core.planning.plan import FileTask, ScanProjection
from ducklake_core.storage.delete_files import deleted_positions
from ducklake_core.storage.filesystems import Storage, printable


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteTask:
    """Write the live rows of some files anew. It travels to executors, so it knows nothing of the catalog.

    Attributes:
        files: Sources with everything that hides rows of them.
        shape: All columns of the table, without virtual ones.
        state: Where and how to write; its partition spec and sort order are those of the files to make.
        data_path: The lake's, to which paths of the catalog are relative.
        histories: Deletes of those sources that have them in several places, to be gathered in one file for each.
        cluster_by: Columns to arrange the rows by, in place of the sort order; none for that order.
    """

    files: tuple[DataFile, ...]
    shape: ScanProjection
    state: WriteState
    data_path: str = ""
    histories: tuple[DeleteHistory, ...] = ()
    cluster_by: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{len(self.files)} files of {self.state.table}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenFiles:
    """What became of a :class:`RewriteTask`: files that are in place but not committed.

    Attributes:
        outputs: Files of the live rows.
        gathered: Delete files of sources that the catalog deletes rows of, or that had several.
    """

    outputs: tuple[WrittenFile, ...]
    gathered: tuple[GatheredDeletes, ...] = ()


def rewrite_files(task: RewriteTask, *, threads: bool = True, stopped: Stopped | None = None) -> RewrittenFiles:
    """Write what is visible of the sources, each row with its row id.

    No snapshots are stored with the rows: earlier snapshots read the sources, and all rows are of the snapshot of the rewrite, as
    DuckDB has it. Rows are in the order that the task names, in memory that does not grow with them. Where no row is left there is no file.

    Raises:
        NotFoundError: A source, or a delete file of one, is gone.
        CorruptFileError: A source is not what the catalog says it is.
        SchemaError: A value does not fit its column.
        StorageError: A file cannot be written, or the local disk has no room for rows that are sorted.
    """
    task.state.check_version()
    gathered: list[GatheredDeletes] = []
    try:
        gathered.extend(gather_deletes(history, task.data_path, task.state) for history in task.histories)
        return RewrittenFiles(outputs=_in_order(task, threads, stopped), gathered=tuple(gathered))
    except BaseException:
        task.state.storage.discard([task.state.directory + one.file.path for one in gathered])
        raise


def _in_order(task: RewriteTask, threads: bool, stopped: Stopped | None) -> tuple[WrittenFile, ...]:
    try:
        return _rewrite(task, threads, stopped)
    except UnsupportedFeatureError:
        if task.cluster_by or not task.state.sort:
            raise
        # Arrow cannot sort by these types: the rows of each source stay in their order.
        return _rewrite(replace(task, state=replace(task.state, sort=())), threads, stopped)


def _rewrite(task: RewriteTask, threads: bool, stopped: Stopped | None) -> tuple[WrittenFile, ...]:
    state = task.state
    row_id = SYSTEM_FIELDS[0]
    columns = relaxed(state.schema)
    shape = replace(task.shape, virtual=("rowid",))
    names = [*columns.names, row_id.name]
    live = _LiveRows(task.files, state.storage, threads, stopped)
    with DatasetWriter(replace(state, schema=Schema(columns=(*columns.columns, row_id)), sort=())) as writer:
        rows = (pa.RecordBatch.from_arrays(batch.columns, names=names) for batch in live.read(shape))
        written = 0
        for batch in _ordered(rows, task, columns, live):
            writer.write(batch)
            written += batch.num_rows
        if written != live.expected:
            raise CorruptFileError(
                f"{len(task.files)} files of {state.table} have {written} rows that are not deleted, but the catalog says "
                f"{live.expected}; the files are left as they are",
                table=state.table,
            )
        return tuple(writer.close())


def _ordered(rows: Iterator[pa.RecordBatch], task: RewriteTask, columns: Schema, live: _LiveRows) -> Iterator[pa.RecordBatch]:
    """The rows as they go to files: clustered, sorted, or in the order of the sources."""
    state = task.state
    if len(task.cluster_by) > 1:
        chosen = Schema(columns=tuple(columns.column(name) for name in task.cluster_by))
        curve = sampled_curve(live.read(replace(task.shape, schema=chosen, read_schema=chosen, virtual=())), chosen, live.about)
        yield from sorted_along(rows, curve, encrypted=state.encrypted)
        return
    orders = tuple(SortOrder(expression=name, column=name, columns=(name,)) for name in task.cluster_by) or state.sort
    yield from sorted_by(rows, orders, columns, state) if orders else rows


class _LiveRows:
    """The rows of files that are not deleted."""

    def __init__(self, files: tuple[DataFile, ...], storage: Storage, threads: bool, stopped: Stopped | None) -> None:
        self._files = files
        self._storage = storage
        self._threads = threads
        self._stopped = stopped
        self.expected = 0

    @property
    def about(self) -> int:
        """How many rows there are, as the catalog counts them."""
        return sum(file.record_count - deleted_count(file) for file in self._files)

    def read(self, shape: ScanProjection) -> Iterator[pa.RecordBatch]:
        """The rows, file by file, in the columns of the shape; ``expected`` becomes how many there must be."""
        self.expected = 0
        for file in self._files:
            deleted = deleted_positions(self._storage, file, shape.snapshot_id)
            self.expected += file.record_count - len(deleted)
            yield from until_stopped(self._of(file, shape, ChosenRows(positions=deleted, wanted=False)), self._stopped)

    def _of(self, file: DataFile, shape: ScanProjection, chosen: ChosenRows) -> Iterator[pa.RecordBatch]:
        try:
            yield from read_chosen(FileTask(file=file), shape, chosen, self._storage, threads=self._threads)
        except (pa.ArrowException, OSError) as error:
            where = printable(file.path)
            raise CorruptFileError(f"{where} of {shape.table} cannot be read: {error}", path=where, table=shape.table) from error
