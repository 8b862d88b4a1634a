"""Flush inlined rows to Parquet files, table by table (specification: Data Inlining)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.catalog.changed import Definition, definitions
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.inlined.rows import END_SNAPSHOT, ROW_ID, stored_batches
from ducklake_core.catalog.reading.completeness import check_complete
from ducklake_core.catalog.reading.maintenance import delete_histories, inlined_deletes_of, inlined_row_counts, named_files
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.commit.actions import FlushedFile, FlushInlined, GatheredDeletes
from ducklake_core.commit.registration import registered
from ducklake_core.engines.arrow.compaction import FlushedFiles, FlushTask, flush_files
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.errors import CatalogError, CommitConflictError, DuckLakeError
from ducklake_core.format.files import paths
from ducklake_core.format.files.data_files import DeleteHistory
from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.layout.sorting import SortOrder
from ducklake_core.format.options import Options
from ducklake_core.format.state import InlinedTable, LakeInfo, Snapshot, TableState, is_same_snapshot
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.text import counted
from ducklake_core.maintenance.clustering import order_in_files, sort_order
from ducklake_core.maintenance.groups import REPLANS, Change, Execution, FailedTable, commit_together, is_about_lake, name_of, plan_tables
from ducklake_core.maintenance.request import (
    OUT_OF_TIME,
    BudgetMeter,
    MaintenanceResult,
    MaintenanceStep,
    StepOutcome,
    TableRequest,
    unmatched_steps,
)
from ducklake_core.planning.planner import check_locations
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.spill import HELD_ROWS, HeldBatches
from ducklake_core.storage.unfinished import sweep, sweep_after_error

_OPERATION = "flush_inlined_data"
EXECUTOR_ROWS = 100_000
"""Number of rows and deletes of a table from which Spark executors flush them. Fewer are written faster by this process."""
_TASKS_AT_ONCE = 32
"""Number of parts of a table that are sent to executors at the same time."""
_TASK_FILES = 64
"""Number of data files whose deletes one executor gathers."""

TASK_ROWS = 65_536
"""Maximum number of rows that one executor writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFlush:
    """The plan or outcome of flushing one table.

    Attributes:
        table: ``schema.table``.
        rows: Number of inlined rows to flush, including deleted and replaced versions.
        ended_rows: Number of deleted and replaced versions, which earlier snapshots show.
        deletes: Number of inlined deletes of data files, which are moved to delete files.
        superseded: Number of tables of inlined rows with earlier columns, which are unregistered once they are empty.
        files_created: Number of new data files (0 in a dry run).
        delete_files_created: Number of new delete files (0 in a dry run).
        bytes_written: Bytes of the new files.
        snapshot: The snapshot of the flush, None in a dry run and if nothing was done.
        skipped: Reason for skipping the table, None if it is not skipped.
        failure: Error, None if it did not fail. After an error the rows are unchanged.
    """

    table: str
    rows: int = 0
    ended_rows: int = 0
    deletes: int = 0
    superseded: int = 0
    files_created: int = 0
    delete_files_created: int = 0
    bytes_written: int = 0
    snapshot: Snapshot | None = None
    skipped: str | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FlushResult(MaintenanceResult):
    """The plan or outcome of flushing inlined data, table by table.

    Attributes:
        dry_run: Whether this is only the plan.
        tables: One entry per table that was checked.
        unmatched: Patterns that match no table.
    """

    dry_run: bool
    tables: tuple[TableFlush, ...]
    unmatched: tuple[str, ...] = ()

    @property
    def rows_flushed(self) -> int:
        """Number of rows moved to files, over all tables."""
        return sum(table.rows for table in self.tables if table.failure is None and table.skipped is None)

    @property
    def failures(self) -> tuple[str, ...]:
        """Errors of all tables, each with the name of the table."""
        return tuple(f"{table.table}: {table.failure}" for table in self.tables if table.failure is not None)

    @property
    def steps(self) -> tuple[MaintenanceStep, ...]:
        """One step for each table."""
        return (*(_step(table, dry_run=self.dry_run) for table in self.tables), *unmatched_steps(_OPERATION, self.unmatched))


def _step(table: TableFlush, *, dry_run: bool) -> MaintenanceStep:
    outcome: StepOutcome = "planned" if dry_run else "done"
    reason = f"{counted(table.rows, 'inlined row')} and {counted(table.deletes, 'inlined delete')}"
    if table.superseded:
        reason += f", {counted(table.superseded, 'table')} of inlined rows with earlier columns"
    if table.failure is not None:
        outcome, reason = "failed", table.failure
    elif table.skipped is not None:
        outcome, reason = "skipped", table.skipped
    action = "move inlined rows and deletes to files"
    return MaintenanceStep(
        verb=_OPERATION, target=table.table, action=action, reason=reason, outcome=outcome, rows=table.rows + table.deletes
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushPlan:
    """Numbers of inlined rows and deletes of one table at a snapshot."""

    table: TableState
    base: Snapshot
    rows: int = 0
    ended_rows: int = 0
    deletes: int = 0
    superseded: int = 0
    skipped: str | None = None

    def described(self) -> TableFlush:
        """Return the plan for the caller."""
        nothing = "it has no inlined data" if not (self.rows or self.deletes or self.superseded) else None
        return TableFlush(
            table=name_of(self.table),
            rows=self.rows,
            ended_rows=self.ended_rows,
            deletes=self.deletes,
            superseded=self.superseded,
            skipped=self.skipped or nothing,
        )


# A flush moves inlined rows and deletes of a table into files, and changes the contents of no snapshot:
#
#   inlined rows, ended ones too      ->   data files that store row id and snapshot of each row
#   ends of inlined rows              ->   a delete file of the new data file, with the snapshot that deleted each row
#   inlined deletes of data files     ->   one delete file per data file, which replaces its earlier ones
#
# Everything belongs to one snapshot, the base: rows that other writers commit later stay in the catalog.
def flush_inlined_data(
    database: Database,
    info: LakeInfo,
    storage: Storage,
    request: TableRequest,
    *,
    execution: Execution | None = None,
) -> FlushResult:
    """Plan the flush, and run it unless it is a dry run; see ``DuckLake.flush_inlined_data`` for the parameters."""
    flusher = _Flusher(FlushWriter(database, info, storage, execution or Execution()), request)
    found = plan_tables(database, info, request, _plan)
    plans = [plan if isinstance(plan, FailedTable) else _within_budget(plan, request.meter) for plan in found.plans]
    due = [plan for plan in plans if isinstance(plan, FlushPlan) and plan.described().skipped is None]
    if due and not request.dry_run:
        work = sum(plan.rows + plan.deletes for plan in due)
        request.progress.begin(_OPERATION, "flush rows", "tables", len(due), work=work)
    done = [
        TableFlush(table=plan.table, failure=str(plan.error))
        if isinstance(plan, FailedTable)
        else plan.described()
        if request.dry_run or plan.described().skipped is not None
        else flusher.run(plan)
        for plan in plans
    ]
    return FlushResult(dry_run=request.dry_run, tables=tuple(done), unmatched=found.unmatched)


def plan_flush(
    database: Database, info: LakeInfo, request: TableRequest, seen: Callable[[TableState], TableState | None]
) -> tuple[FlushResult, list[FlushPlan]]:
    """Plan the flush of a transaction.

    Args:
        database: The catalog's database.
        info: Settings of the lake.
        request: Request with the tables.
        seen: Returns a table as the transaction sees it, None if it drops the table.

    Returns:
        The plan for the caller, and the tables to flush.

    Raises:
        DuckLakeError: A table cannot be planned.
    """

    def plan_seen(reader: CatalogReader, table: TableState, base: Snapshot) -> FlushPlan | None:
        state = seen(table)
        return None if state is None else _plan(reader, state, base)

    found = plan_tables(database, info, request, plan_seen)
    plans: list[FlushPlan] = []
    for plan in found.plans:
        if isinstance(plan, FailedTable):
            raise plan.error
        if plan is not None:
            plans.append(plan)
    described = tuple(plan.described() for plan in plans)
    due = [plan for plan, table in zip(plans, described, strict=True) if table.skipped is None]
    return FlushResult(dry_run=True, tables=described, unmatched=found.unmatched), due


def _within_budget(plan: FlushPlan, meter: BudgetMeter) -> FlushPlan:
    count = plan.rows + plan.deletes
    return replace(plan, skipped="beyond max_rows") if count and not plan.skipped and not meter.begin_rows(count) else plan


def _plan(reader: CatalogReader, table: TableState, base: Snapshot) -> FlushPlan:
    if not Options.from_mapping(table.options).auto_compact:
        return FlushPlan(table=table, base=base, skipped="option auto_compact is false")
    counts = inlined_row_counts(reader, table).values()
    deletes = sum(len(found) for found in inlined_deletes_of(reader, table).values())
    rows, ended = sum(one.rows for one in counts), sum(one.ended for one in counts)
    # DuckDB's flush drops these, even if no row is inlined.
    superseded = max(len(table.inlined_tables) - 1, 0)
    return FlushPlan(table=table, base=base, rows=rows, ended_rows=ended, deletes=deletes, superseded=superseded)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """Inlined rows and deletes of a table at a snapshot.

    Attributes:
        rows: The rows of each of its physical tables that has rows.
        superseded: Its physical tables that get no more rows.
        histories: Deletes of its data files that still exist.
        deletes_of: Ids of all data files with deletes.
        deletes: Number of deletes.
        sort: The part of the table's sort order that the new files follow.
    """

    table: TableState
    base: Snapshot
    rows: tuple[tuple[InlinedSource, HeldBatches], ...]
    superseded: tuple[str, ...]
    histories: tuple[DeleteHistory, ...]
    deletes_of: tuple[int, ...]
    deletes: int
    sort: tuple[SortOrder, ...]

    @property
    def num_rows(self) -> int:
        return sum(rows.num_rows for _, rows in self.rows)

    def action(self, files: tuple[FlushedFile, ...], gathered: tuple[GatheredDeletes, ...]) -> FlushInlined:
        """Return the change of the catalog, after everything is in files."""
        return FlushInlined(
            table_id=self.table.id,
            files=files,
            inlined_tables=tuple(source.inlined.name for source, _ in self.rows),
            superseded=self.superseded,
            # Rows of later commits are not in the files, and stay in the catalog.
            until=self.base.id,
            gathered=gathered,
            deletes_of=self.deletes_of,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unflushed:
    """Rows and files that a transaction changes itself, and that its flush leaves as they are.

    Attributes:
        rows: Row ids of inlined rows that it ends, by table of inlined rows.
        files: Data files to which it gives delete files, or which it ends.
    """

    rows: Mapping[str, frozenset[int]] = field(default_factory=dict)
    files: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFlush:
    """Files of a flush that are written but not committed.

    Attributes:
        table: The table.
        base: The snapshot whose inlined data the files contain.
        action: The change to commit.
        rows: Number of rows, including ended ones.
        deletes: Number of inlined deletes.
        made: Full paths and bytes of the new files.
    """

    table: TableState
    base: Snapshot
    action: FlushInlined
    rows: int
    deletes: int
    made: tuple[tuple[str, int], ...]

    @property
    def is_empty(self) -> bool:
        """Return whether there was nothing to flush, for example because another writer has flushed it."""
        return not (self.rows or self.deletes or self.action.superseded)


@dataclass(frozen=True, slots=True)
class _Flusher:
    """Runs plans, one table after another."""

    writer: FlushWriter
    request: TableRequest

    def run(self, plan: FlushPlan) -> TableFlush:
        progress, rows = self.request.progress, plan.rows + plan.deletes
        progress.at(name_of(plan.table))
        done = self._replanned(plan)
        progress.advance(rows=rows, size=done.bytes_written, work=rows)
        return done

    def _replanned(self, plan: FlushPlan) -> TableFlush:
        planned = plan.described()
        if self.request.meter.is_out_of_time:
            return replace(planned, skipped=OUT_OF_TIME)
        attempts = REPLANS.attempts()
        while True:
            try:
                write_id = paths.write_id()
                with registered(self.writer.database, write_id):
                    return self._flush(plan, planned, write_id)
            except (CommitConflictError, CatalogError) as error:
                if is_about_lake(error):
                    raise
                if not error.retriable or not attempts.again(error):
                    return replace(planned, failure=str(error))
            except DuckLakeError as error:
                return replace(planned, failure=str(error))

    def _flush(self, plan: FlushPlan, planned: TableFlush, write_id: str) -> TableFlush:
        """Flush the current inlined data of the table, in one attempt."""
        writer, written = self.writer, self.writer.write(plan, write_id)
        change = Change(
            table=written.table,
            base=written.base,
            action=written.action,
            message=f"{_OPERATION}: {counted(written.rows, 'row')} and {counted(written.deletes, 'delete')} of {planned.table}",
            commit=self.request.commit,
            files=written.made,
        )
        files = written.action.files
        return replace(
            planned,
            rows=written.rows,
            ended_rows=sum(file.deletes.delete_count for file in files if file.deletes is not None),
            deletes=written.deletes,
            superseded=len(written.action.superseded),
            files_created=len(files),
            delete_files_created=len(written.made) - len(files),
            bytes_written=sum(size for _, size in written.made),
            snapshot=commit_together(writer.database, writer.info, writer.storage, [change]),
        )


@dataclass(frozen=True, slots=True)
class FlushWriter:
    """Writes inlined data of tables to files."""

    database: Database
    info: LakeInfo
    storage: Storage
    execution: Execution = field(default_factory=Execution)

    def write(self, plan: FlushPlan, write_id: str, unflushed: Unflushed | None = None) -> WrittenFlush:
        """Write the current inlined data of a table to files.

        Args:
            plan: The plan.
            write_id: Id for the names of the files.
            unflushed: What to leave in the catalog. Default: nothing.

        Raises:
            NotFoundError: The table was dropped.
        """
        with ExitStack() as stack:
            stored = self._read(plan, unflushed or Unflushed(), stack)
            state = self._state(stored.table, write_id)
            # A Spark job costs more than the work on fewer rows.
            on_executors = self.execution.spark is not None and stored.num_rows + stored.deletes >= EXECUTOR_ROWS
            done = self._write(state, self._tasks(state, stored, split=on_executors), on_executors=on_executors)
        files = tuple(file for one in done for file in one.files)
        gathered = tuple(deletes_of for one in done for deletes_of in one.gathered)
        made = [file for one in done for file in one.made()]
        return WrittenFlush(
            table=stored.table,
            base=stored.base,
            action=stored.action(files, gathered),
            rows=stored.num_rows,
            deletes=stored.deletes,
            made=tuple((state.directory + path, size) for path, size in made),
        )

    def _read(self, plan: FlushPlan, unflushed: Unflushed, stack: ExitStack) -> _Stored:
        """Read the current inlined rows and deletes of the table. The rows are available until the stack is closed."""
        with self.database.read() as connection:
            reader = CatalogReader(connection, self.info, self.database.tables)
            base = reader.latest_snapshot()
            table = reader.table_by_id(plan.table.id, base.id)
            self.info.checked_location(table.path, f"table {name_of(table)}", table=name_of(table))
            sources = inlined_sources(reader, table)
            rows = []
            for source in sources:
                held = hold_rows(
                    reader,
                    table,
                    source,
                    row_count=plan.rows,
                    encrypted=self.info.encrypted,
                    may_be_sorted=self.database.abilities.is_file and not plan.ended_rows,
                    # Only commits end rows.
                    any_ended=plan.ended_rows > 0 or not is_same_snapshot(base, plan.base),
                    without=unflushed.rows.get(source.inlined.name, frozenset()),
                )
                stack.callback(held.close)
                # Rows that were not read would be deleted with the others.
                kept = unflushed.rows.get(source.inlined.name, frozenset())
                all_rows = self.database.tables.inlined_data(source.inlined.name)
                check_complete(connection, all_rows, held.num_rows + len(kept), f"inlined rows of {name_of(table)}")
                if held.num_rows:
                    rows.append((source, held))
            orders = sort_order(reader, table) if rows else ()
            deletes = inlined_deletes_of(reader, table)
            if table.has_inlined_deletes:
                given = sum(map(len, deletes.values()))
                every_delete = self.database.tables.inlined_delete(table.id)
                check_complete(connection, every_delete, given, f"inlined deletes of {name_of(table)}")
            deletes = {file_id: of_file for file_id, of_file in deletes.items() if file_id not in unflushed.files}
            histories = delete_histories(reader, table, deletes, deletes)
            for history in histories:
                check_locations(self.info, table, [history.file])
        return _Stored(
            table=table,
            base=base,
            rows=tuple(rows),
            superseded=tuple(source.inlined.name for source in sources[:-1]),
            histories=tuple(histories),
            deletes_of=tuple(deletes),
            deletes=sum(len(of_file) for of_file in deletes.values()),
            sort=orders,
        )

    def _tasks(self, state: WriteState, stored: _Stored, *, split: bool) -> Iterator[FlushTask]:
        """Yield the work for each table of inlined rows, in parts if several processes share it."""
        for source, rows in stored.rows:
            sort = order_in_files(stored.sort, stored.table, source.schema)
            own = replace(state, schema=source.schema, partition_spec=source.spec, sort=sort)
            yield from (FlushTask(state=own, rows=part) for part in (task_parts(rows) if split else [rows]))
        most = _TASK_FILES if split else len(stored.histories)
        for start in range(0, len(stored.histories), max(1, most)):
            yield FlushTask(state=state, histories=stored.histories[start : start + most], data_path=self.info.data_path)

    def _write(self, state: WriteState, tasks: Iterator[FlushTask], *, on_executors: bool) -> list[FlushedFiles]:
        """Run the tasks and return their files, in order. If one fails, all their files are deleted."""
        execution = self.execution if on_executors else replace(self.execution, spark=None)
        done: list[FlushedFiles] = []
        any_lost = False
        try:
            # The rows of this many tasks are in the memory of this process at the same time.
            while some := list(islice(tasks, _TASKS_AT_ONCE)):
                found: dict[int, FlushedFiles] = {}
                with closing(execution.outcomes(flush_files, some, BudgetMeter())) as outcomes:
                    for number, result, lost in outcomes:
                        any_lost |= lost
                        if isinstance(result, DuckLakeError):
                            raise result
                        found[number] = result
                done += (found[number] for number in range(len(some)))
        except BaseException:
            sweep_after_error(self.storage, state.directory, state.write_id, named=self._named)
            raise
        if any_lost:
            sweep(self.storage, state.directory, state.write_id, keep=[path for one in done for path, _ in one.made()])
        return done

    def _state(self, table: TableState, write_id: str) -> WriteState:
        return WriteState(
            table=name_of(table),
            directory=table.path,
            schema=table.schema,
            write_id=write_id,
            storage=self.storage,
            encrypted=self.info.encrypted,
            format_version=table.format_version,
            options=Options.from_mapping(table.options),
        )

    def _named(self, files: Sequence[str]) -> frozenset[str]:
        with self.database.read() as connection:
            return named_files(CatalogReader(connection, self.info, self.database.tables), files)


@dataclass(frozen=True, slots=True, kw_only=True)
class InlinedSource:
    """A physical table of inlined rows, with the columns and partition keys of its rows."""

    inlined: InlinedTable
    schema: Schema
    spec: PartitionSpec | None


def inlined_sources(reader: CatalogReader, table: TableState) -> list[InlinedSource]:
    """Return the physical tables that are registered for a table, in the order of their schema versions."""
    if not table.inlined_tables:
        return []
    defined: Definition = definitions(reader, [table.id])[table.id]
    return [
        InlinedSource(
            inlined=inlined,
            schema=defined.versions.schema_at(inlined.schema_version),
            spec=defined.spec_at(defined.versions.snapshot_of(inlined.schema_version)),
        )
        for inlined in table.inlined_tables
    ]


def hold_rows(
    reader: CatalogReader,
    table: TableState,
    source: InlinedSource,
    *,
    row_count: int,
    encrypted: bool,
    may_be_sorted: bool,
    any_ended: bool,
    without: frozenset[int] = frozenset(),
) -> HeldBatches:
    """Return the rows of a physical table, by row id and snapshot. The caller closes them.

    Args:
        reader: The catalog.
        table: The table.
        source: The physical table.
        row_count: Approximate number of rows.
        encrypted: Whether to encrypt data on the local disk.
        may_be_sorted: Whether the database probably returns them in order, as it does if no row was updated. Sorting takes half as long as
            reading. If they are not in order, they are read again.
        any_ended: Whether any row may have ended.
        without: Row ids of live rows to leave out. Default: none.
    """
    parts = partial(stored_batches, reader, table, source.inlined, source.schema, row_count=row_count, any_ended=any_ended)
    if may_be_sorted:
        held = _held(parts(ordered=False), without, encrypted=encrypted, ordered=False)
        if held is not None:
            return held
    held = _held(parts(ordered=True), without, encrypted=encrypted, ordered=True)
    assert held is not None
    return held


def _held(batches: Generator[pa.Table, None, None], without: frozenset[int], *, encrypted: bool, ordered: bool) -> HeldBatches | None:
    """Return the rows, None as soon as a row is out of order."""
    held = HeldBatches(HELD_ROWS, encrypted=encrypted)
    left_out = pa.array(sorted(without), pa.int64())
    last = -1
    try:
        with closing(batches) as parts:
            for part in parts:
                row_ids = part[ROW_ID].to_numpy()
                if not ordered and (row_ids[0] <= last or bool((np.diff(row_ids) <= 0).any())):
                    held.close()
                    return None
                last = row_ids[-1]
                if without:
                    is_live = pc.is_null(part[END_SNAPSHOT])
                    part = part.filter(pc.invert(pc.and_(is_live, pc.is_in(part[ROW_ID], value_set=left_out))))  # noqa: PLW2901
                for batch in part.to_batches():
                    held.add(batch)
    except BaseException:
        held.close()
        raise
    return held


def task_parts(rows: HeldBatches) -> Iterator[pa.Table]:
    """Yield the rows in parts for executors."""
    part: list[pa.RecordBatch] = []
    for piece in _pieces(rows):
        if part and sum(one.num_rows for one in part) + piece.num_rows > TASK_ROWS:
            yield pa.Table.from_batches(part)
            part = []
        part.append(piece)
    if part:
        yield pa.Table.from_batches(part)


def _pieces(rows: HeldBatches) -> Iterator[pa.RecordBatch]:
    for batch in rows.to_batches():
        for start in range(0, batch.num_rows, TASK_ROWS):
            # Copied, not sliced: pickling a slice includes the whole batch.
            places = pa.array(range(start, min(start + TASK_ROWS, batch.num_rows)), pa.int64())
            yield batch if batch.num_rows <= TASK_ROWS else batch.take(places)
