"""Flush inlined rows to Parquet files, table by table (specification: Data Inlining)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import pyarrow as pa

from ducklake_core.catalog.changed import Definition, definitions
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.inlined.rows import ROW_ID, stored_batches
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
from ducklake_core.format.options import Options
from ducklake_core.format.state import InlinedTable, LakeInfo, Snapshot, TableState, is_same_snapshot
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.text import counted
from ducklake_core.maintenance.clustering import followed_order
from ducklake_core.maintenance.groups import REPLANS, Change, Execution, FailedTable, commit_table, is_about_lake, name_of, plan_tables
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
"""Rows and deletes of a table from which executors flush them; fewer are sooner in files than a Spark job begins."""
_TASKS_AT_ONCE = 32
"""Parts of a table that are sent to executors at a time."""
_TASK_FILES = 64
"""Data files of which one executor gathers the deletes."""

TASK_ROWS = 65_536
"""Most rows that one executor makes files of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFlush:
    """The plan or the outcome of flushing one table.

    Attributes:
        table: ``schema.table``.
        rows: Inlined rows to flush, or flushed, ended versions among them.
        ended_rows: Those of them that are deleted or replaced already; earlier snapshots show them.
        deletes: Rows of data files that the catalog deletes, to be deleted by files.
        superseded: Tables of inlined rows for earlier columns of the table, which the flush takes out of the catalog once they are empty.
        files_created: Data files that were made, and ``delete_files_created`` delete files (0 in a dry run).
        bytes_written: Their bytes.
        snapshot: The snapshot that the flush became, None in a dry run and where nothing was done.
        skipped: Why the table is left alone, None when it is not.
        failure: What went wrong; the rows are as they were.
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
    """The plan or the outcome of flushing inlined data, table by table.

    Attributes:
        dry_run: Whether this is only the plan.
        tables: One entry per table that was checked.
        unmatched: Patterns that no table matches.
    """

    dry_run: bool
    tables: tuple[TableFlush, ...]
    unmatched: tuple[str, ...] = ()

    @property
    def rows_flushed(self) -> int:
        """Rows moved to files, over all tables."""
        return sum(table.rows for table in self.tables if table.failure is None and table.skipped is None)

    @property
    def failures(self) -> tuple[str, ...]:
        """The failures of all tables, each with its table."""
        return tuple(f"{table.table}: {table.failure}" for table in self.tables if table.failure is not None)

    @property
    def steps(self) -> tuple[MaintenanceStep, ...]:
        """One step for each table."""
        return (*(_step(table, dry_run=self.dry_run) for table in self.tables), *unmatched_steps(_OPERATION, self.unmatched))


def _step(table: TableFlush, *, dry_run: bool) -> MaintenanceStep:
    outcome: StepOutcome = "planned" if dry_run else "done"
    reason = f"{counted(table.rows, 'inlined row')} and {counted(table.deletes, 'inlined delete')}"
    if table.superseded:
        reason += f", and tables of inlined rows for earlier columns: {table.superseded}"
    if table.failure is not None:
        outcome, reason = "failed", table.failure
    elif table.skipped is not None:
        outcome, reason = "skipped", table.skipped
    action = "move inlined rows and deletes to files"
    return MaintenanceStep(
        verb=_OPERATION, target=table.table, action=action, reason=reason, outcome=outcome, rows=table.rows + table.deletes
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _FlushPlan:
    """Number of rows and deletes that the catalog holds of one table at a snapshot."""

    table: TableState
    base: Snapshot
    rows: int = 0
    ended_rows: int = 0
    deletes: int = 0
    superseded: int = 0
    skipped: str | None = None

    def described(self) -> TableFlush:
        nothing = "nothing of it is inlined" if not (self.rows or self.deletes or self.superseded) else None
        return TableFlush(
            table=name_of(self.table),
            rows=self.rows,
            ended_rows=self.ended_rows,
            deletes=self.deletes,
            superseded=self.superseded,
            skipped=self.skipped or nothing,
        )


# A flush moves what the catalog holds of a table into files, and changes nothing that any snapshot shows:
#
#   inlined rows, ended ones too      ->   data files that store row id and snapshot of each row
#   ends of inlined rows              ->   a delete file of the new data file, with the snapshot that deleted each row
#   inlined deletes of data files     ->   one delete file per data file, in place of its earlier ones
#
# All of it is of one snapshot, the base: rows that other writers commit later stay in the catalog.
def flush_inlined_data(
    database: Database,
    info: LakeInfo,
    storage: Storage,
    request: TableRequest,
    *,
    execution: Execution | None = None,
) -> FlushResult:
    """Plan, and unless it is a dry run carry out, the flush. See ``DuckLake.flush_inlined_data`` for the arguments."""
    flusher = _Flusher(database, info, storage, request, execution or Execution())
    found = plan_tables(database, info, request, _plan)
    plans = [plan if isinstance(plan, FailedTable) else _within_budget(plan, request.meter) for plan in found.plans]
    due = [plan for plan in plans if isinstance(plan, _FlushPlan) and plan.described().skipped is None]
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


def _within_budget(plan: _FlushPlan, meter: BudgetMeter) -> _FlushPlan:
    count = plan.rows + plan.deletes
    return replace(plan, skipped="beyond max_rows") if count and not plan.skipped and not meter.begin_rows(count) else plan


def _plan(reader: CatalogReader, table: TableState, base: Snapshot) -> _FlushPlan:
    if not Options.from_mapping(table.options).auto_compact:
        return _FlushPlan(table=table, base=base, skipped="its option auto_compact is false")
    counts = inlined_row_counts(reader, table).values()
    deletes = sum(len(found) for found in inlined_deletes_of(reader, table).values())
    rows, ended = sum(one.rows for one in counts), sum(one.ended for one in counts)
    # DuckDB's flush drops these, also where no row is inlined.
    superseded = max(len(table.inlined_tables) - 1, 0)
    return _FlushPlan(table=table, base=base, rows=rows, ended_rows=ended, deletes=deletes, superseded=superseded)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """Rows and deletes that the catalog holds of a table at a snapshot.

    Attributes:
        rows: The rows of each of its physical tables that has some.
        superseded: Its physical tables that get no more rows.
        histories: Deletes of its data files, as far as these are there.
        deletes_of: Ids of all data files with deletes, and ``deletes`` their number.
    """

    table: TableState
    base: Snapshot
    rows: tuple[tuple[InlinedSource, HeldBatches], ...]
    superseded: tuple[str, ...]
    histories: tuple[DeleteHistory, ...]
    deletes_of: tuple[int, ...]
    deletes: int

    @property
    def num_rows(self) -> int:
        return sum(rows.num_rows for _, rows in self.rows)

    def action(self, files: tuple[FlushedFile, ...], gathered: tuple[GatheredDeletes, ...]) -> FlushInlined:
        """Return the change of the catalog, once all of it is in files."""
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


@dataclass(frozen=True, slots=True)
class _Flusher:
    """Carries out plans, one table after another."""

    database: Database
    info: LakeInfo
    storage: Storage
    request: TableRequest
    execution: Execution

    def run(self, plan: _FlushPlan) -> TableFlush:
        progress, rows = self.request.progress, plan.rows + plan.deletes
        progress.at(name_of(plan.table))
        done = self._replanned(plan)
        progress.advance(rows=rows, size=done.bytes_written, work=rows)
        return done

    def _replanned(self, plan: _FlushPlan) -> TableFlush:
        planned = plan.described()
        if self.request.meter.is_out_of_time:
            return replace(planned, skipped=OUT_OF_TIME)
        attempts = REPLANS.attempts()
        while True:
            try:
                write_id = paths.write_id()
                with registered(self.database, write_id):
                    return self._flush(plan, planned, write_id)
            except (CommitConflictError, CatalogError) as error:
                if is_about_lake(error):
                    raise
                if not error.retriable or not attempts.again(error):
                    return replace(planned, failure=str(error))
            except DuckLakeError as error:
                return replace(planned, failure=str(error))

    def _flush(self, plan: _FlushPlan, planned: TableFlush, write_id: str) -> TableFlush:
        """Flush what the table has by now, in one attempt."""
        with ExitStack() as stack:
            stored = self._read(plan, stack)
            state = self._state(stored.table, write_id)
            # A job of Spark costs more than the work on fewer rows.
            on_executors = self.execution.spark is not None and stored.num_rows + stored.deletes >= EXECUTOR_ROWS
            done = self._write(state, self._tasks(state, stored, split=on_executors), on_executors=on_executors)
        files = tuple(file for one in done for file in one.files)
        gathered = tuple(deletes_of for one in done for deletes_of in one.gathered)
        made = [file for one in done for file in one.made()]
        change = Change(
            table=stored.table,
            base=stored.base,
            action=stored.action(files, gathered),
            message=f"{_OPERATION}: {counted(stored.num_rows, 'row')} and {counted(stored.deletes, 'delete')} of {planned.table}",
            commit=self.request.commit,
            files=tuple((state.directory + path, size) for path, size in made),
        )
        snapshot = commit_table(self.database, self.info, self.storage, change)
        return replace(
            planned,
            rows=stored.num_rows,
            ended_rows=sum(file.deletes.delete_count for file in files if file.deletes is not None),
            deletes=stored.deletes,
            superseded=len(stored.superseded),
            files_created=len(files),
            delete_files_created=len(made) - len(files),
            bytes_written=sum(size for _, size in made),
            snapshot=snapshot,
        )

    def _read(self, plan: _FlushPlan, stack: ExitStack) -> _Stored:
        """Read the inlined rows and deletes of the table by now; its rows are there until the stack is closed."""
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
                    may_be_in_order=self.database.abilities.is_file and not plan.ended_rows,
                    # Rows end by commits alone.
                    any_ended=plan.ended_rows > 0 or not is_same_snapshot(base, plan.base),
                )
                stack.callback(held.close)
                # Rows that were not read would be deleted with those that were.
                all_rows = self.database.tables.inlined_data(source.inlined.name)
                check_complete(connection, all_rows, held.num_rows, f"inlined rows of {name_of(table)}")
                if held.num_rows:
                    rows.append((source, held))
            deletes = inlined_deletes_of(reader, table)
            if table.has_inlined_deletes:
                given = sum(map(len, deletes.values()))
                every_delete = self.database.tables.inlined_delete(table.id)
                check_complete(connection, every_delete, given, f"deletes of {name_of(table)} in the catalog")
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
        )

    def _tasks(self, state: WriteState, stored: _Stored, *, split: bool) -> Iterator[FlushTask]:
        """Yield the work, table by table of inlined rows; in parts of some rows and files where several processes share it."""
        for source, rows in stored.rows:
            own = replace(state, schema=source.schema, partition_spec=source.spec, sort=followed_order(stored.table, source.schema))
            yield from (FlushTask(state=own, rows=part) for part in (task_parts(rows) if split else [rows]))
        most = _TASK_FILES if split else len(stored.histories)
        for start in range(0, len(stored.histories), max(1, most)):
            yield FlushTask(state=state, histories=stored.histories[start : start + most], data_path=self.info.data_path)

    def _write(self, state: WriteState, tasks: Iterator[FlushTask], *, on_executors: bool) -> list[FlushedFiles]:
        """Run the tasks and return their files, in order; when one fails, all their files are deleted."""
        execution = self.execution if on_executors else replace(self.execution, spark=None)
        done: list[FlushedFiles] = []
        any_lost = False
        try:
            # The rows of so many tasks at a time are in the memory of this process.
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
    """A physical table of inlined rows, with the columns and keys that its rows follow."""

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
    may_be_in_order: bool,
    any_ended: bool,
) -> HeldBatches:
    """Return all rows of a physical table, by row id and snapshot; the caller closes them.

    Args:
        row_count: About how many rows there are.
        encrypted: Whether what goes to the local disk is encrypted.
        may_be_in_order: Whether the database likely finds them in order, as files do where no row was updated: sorting them takes half as
            long as reading them. Where they are not, they are read once more.
        any_ended: Whether any row may have ended.
    """
    if may_be_in_order:
        held = _held(reader, table, source, row_count, encrypted=encrypted, ordered=False, any_ended=any_ended)
        if held is not None:
            return held
    held = _held(reader, table, source, row_count, encrypted=encrypted, ordered=True, any_ended=any_ended)
    assert held is not None
    return held


def _held(
    reader: CatalogReader, table: TableState, source: InlinedSource, row_count: int, *, encrypted: bool, ordered: bool, any_ended: bool
) -> HeldBatches | None:
    """Return the rows, None as soon as they are found not to be in order."""
    held = HeldBatches(HELD_ROWS, encrypted=encrypted)
    last = -1
    try:
        batches = stored_batches(reader, table, source.inlined, source.schema, row_count=row_count, ordered=ordered, any_ended=any_ended)
        with closing(batches) as parts:
            for part in parts:
                row_ids = part[ROW_ID].to_numpy()
                if not ordered and (row_ids[0] <= last or bool((np.diff(row_ids) <= 0).any())):
                    held.close()
                    return None
                last = row_ids[-1]
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
            # Taken, not cut: what is pickled of a slice is all of the batch.
            places = pa.array(range(start, min(start + TASK_ROWS, batch.num_rows)), pa.int64())
            yield batch if batch.num_rows <= TASK_ROWS else batch.take(places)
