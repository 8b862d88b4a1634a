"""Merge small adjacent files into larger ones (specification: Merge Files)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, groupby, pairwise
from typing import TypeAlias

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.reading.files import data_files
from ducklake_core.catalog.reading.maintenance import (
    SchemaVersions,
    delete_files_of,
    inlined_deletes_of,
    named_files,
    oldest_snapshot_id,
    schema_at,
    schema_versions,
)
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.writing.expiry import named_elsewhere
from ducklake_core.commit.actions import MergedDeletes, MergedFile, MergeFiles
from ducklake_core.engines.arrow.compaction import MergedRows, MergeTask, merge_files
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.engines.duckdb_instance import is_installed
from ducklake_core.errors import CommitConflictError, DuckLakeError, NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_core.format.arguments import optional, whole_number
from ducklake_core.format.files import paths
from ducklake_core.format.files.data_files import DataFile, DeleteFile, DeleteHistory, deleted_count
from ducklake_core.format.layout.sorting import SortOrder
from ducklake_core.format.options import Options
from ducklake_core.format.state import LakeInfo, Snapshot, TableState
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.text import counted
from ducklake_core.maintenance.clustering import (
    ClusteringGain,
    Statistics,
    clustered_columns,
    gain_of_merge,
    order_in_files,
    sort_order,
)
from ducklake_core.maintenance.groups import (
    REPLANS,
    CarriedOut,
    Change,
    Execution,
    FailedTable,
    TableWork,
    discard_made,
    is_about_lake,
    name_of,
    plan_tables,
    replan,
)
from ducklake_core.maintenance.health import format_bytes
from ducklake_core.maintenance.request import (
    OUT_OF_TIME,
    BudgetMeter,
    MaintenanceResult,
    MaintenanceStep,
    StepOutcome,
    TableRequest,
    also_left,
    ends,
    listed,
    unmatched_steps,
)
from ducklake_core.planning.planner import check_directory, check_location_of
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.parquet_writer import ROW_GROUP_ROWS
from ducklake_core.storage.unfinished import sweep

_OPERATION = "merge_adjacent_files"
TOGETHER_BYTES = 64 << 20
"""Maximum bytes of files of several tables that are merged in one commit."""
_TOGETHER_TABLES = 256
"""Maximum number of tables of one commit. Each takes about 10 ms, regardless of its size."""

_CHEAP_BYTES = 8 << 20
"""Size up to which a file is merged whatever the sizes of the others."""
_MAX_RATIO = 2
"""Maximum size of a larger file, as a multiple of the sizes of all smaller ones together."""
_TOO_LARGE = "more than twice as large as all smaller files together"

RowKey: TypeAlias = tuple[int, bool, int, int]
_Kind: TypeAlias = tuple[int | None, int | None, tuple[tuple[int, str | None], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMerge:
    """The plan or outcome of merging for one table.

    Attributes:
        table: ``schema.table``.
        groups: Description of each group of merged files.
        files_merged: Number of replaced files.
        files_created: Number of new files.
        bytes_read: Bytes of the replaced files.
        bytes_written: Bytes of the new files (0 in a dry run).
        snapshot: The newest of ``snapshots``, None in a dry run and if nothing was done.
        snapshots: Snapshots of the merge: one, or one for each group that was committed separately.
        skipped: Reason for skipping the whole table, None if it is not skipped.
        left: Number of skipped files, by reason.
        failures: Errors. After an error the rows are unchanged.
        steps: All of this as steps: one for each new file, and one for each reason for skipping files.
    """

    table: str
    groups: tuple[str, ...] = ()
    files_merged: int = 0
    files_created: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    snapshot: Snapshot | None = None
    snapshots: tuple[Snapshot, ...] = ()
    skipped: str | None = None
    left: tuple[tuple[str, int], ...] = ()
    failures: tuple[str, ...] = ()
    steps: tuple[MaintenanceStep, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MergeResult(MaintenanceResult):
    """The plan or outcome of merging small files, table by table.

    Attributes:
        dry_run: Whether this is only the plan.
        tables: One entry per table that was checked.
        unmatched: Patterns that no table matches.
    """

    dry_run: bool
    tables: tuple[TableMerge, ...]
    unmatched: tuple[str, ...] = ()

    @property
    def files_merged(self) -> int:
        """Number of replaced files, over all tables."""
        return sum(table.files_merged for table in self.tables)

    @property
    def files_created(self) -> int:
        """Number of new files, over all tables."""
        return sum(table.files_created for table in self.tables)

    @property
    def failures(self) -> tuple[str, ...]:
        """The failures of all tables, each with its table."""
        return tuple(f"{table.table}: {failure}" for table in self.tables for failure in table.failures)

    def lines(self) -> list[str]:
        """Return a line for each new file, each reason for skipping and each failure, and a summary."""
        return self._lines(None)

    def _lines(self, most: int | None) -> list[str]:
        # Many tables are listed by outcome, failures last.
        would = "would merge" if self.dry_run else "merged"
        kinds: tuple[tuple[str, Sequence[TableMerge]], ...] = (("", self.tables),)
        if most is not None and len(self.tables) > most:
            failed = [table for table in self.tables if table.failures]
            busy = [table for table in self.tables if table.groups and not table.failures]
            idle = [table for table in self.tables if not table.groups and not table.failures]
            kinds = (("with merged files", busy), ("that are skipped", idle), ("that FAILED", failed))
        lines: list[str] = []
        for kind, tables in kinds:
            first, middle, last = ends(tables, most)
            lines += [line for table in first for line in _lines_of(table, would, most)]
            lines += [f"... {counted(len(middle), 'more table')} {kind}"] if middle else []
            lines += [line for table in last for line in _lines_of(table, would, most)]
        sizes = format_bytes(sum(table.bytes_read for table in self.tables))
        lines += [f"{pattern}: no table matches it" for pattern in self.unmatched]
        return [
            *lines,
            f"{would} {counted(self.files_merged, 'file')} ({sizes}) into {self.files_created:,}, failures: {len(self.failures):,}",
        ]

    @property
    def steps(self) -> tuple[MaintenanceStep, ...]:
        """One step for each new file, and one for each reason for skipping files."""
        return (*(step for table in self.tables for step in table.steps), *unmatched_steps(_OPERATION, self.unmatched))


def _more(left_out: Sequence[str], noun: str) -> str:
    return counted(len(left_out), f"more {noun}")


def _lines_of(table: TableMerge, would: str, most: int | None) -> list[str]:
    lines = listed(
        table.groups,
        lambda group: f"{table.table}: {would} {group}",
        most,
        lambda rest: f"{_more(rest, 'group')} of {table.table}",
    )
    lines += [f"{table.table}: skipped {counted(count, 'file')} ({reason})" for reason, count in table.left]
    lines += [f"{table.table}: skipped ({table.skipped})"] if table.skipped is not None else []
    failed = listed(table.failures, lambda text: f"{table.table}: FAILED, {text}", most, lambda rest: _more(rest, "failure"))
    return [*lines, *failed]


def merge_adjacent_files(
    database: Database,
    info: LakeInfo,
    storage: Storage,
    request: TableRequest,
    *,
    limits: MergeLimits | None = None,
    execution: Execution | None = None,
) -> MergeResult:
    """Plan the merge, and run it unless it is a dry run; see ``DuckLake.merge_adjacent_files`` for the parameters."""
    bounds = limits or MergeLimits()
    oldest: dict[int, int] = {}

    def plan(reader: CatalogReader, table: TableState, base: Snapshot) -> TableMergePlan:
        if base.id not in oldest:
            oldest[base.id] = oldest_snapshot_id(reader)
        return plan_table(reader, table, base, bounds, oldest[base.id])

    found = plan_tables(database, info, request, plan, execution=execution)
    if bounds.cluster_by and len(found.plans) == 1 and isinstance(found.plans[0], FailedTable):
        # The error concerns the only requested table, and may be about its columns.
        raise found.plans[0].error
    plans = [plan if isinstance(plan, FailedTable) else within_budget(plan, request.meter) for plan in found.plans]
    groups = [group for plan in plans if isinstance(plan, TableMergePlan) for group in plan.groups]
    if groups and not request.dry_run:
        request.progress.begin(_OPERATION, "merge files", "groups", len(groups), work=sum(group.bytes for group in groups))
    due = [] if request.dry_run else [plan for plan in plans if isinstance(plan, TableMergePlan) and plan.groups]
    shared = _shared(database, info, [group for plan in due for group in plan.groups])
    merger = _Merger(database, info, storage, request, execution or Execution(), shared, plan)
    # By id, because a table that is planned again may have another name.
    ran = {plan.table.id: one for batch in _batches(due, merger.execution) for plan, one in zip(batch, merger.run(batch), strict=True)}
    done = [_unplanned(plan) if isinstance(plan, FailedTable) else ran.get(plan.table.id) or _planned(plan) for plan in plans]
    return MergeResult(dry_run=request.dry_run, tables=tuple(done), unmatched=found.unmatched)


def _shared(database: Database, info: LakeInfo, groups: Sequence[MergeGroup], after: int | None = None) -> frozenset[int]:
    """Return ids of the files that other catalog rows, of snapshots after one, contain, too: they were added twice."""
    files = {file.id: file.path for group in groups for file in group.files}
    with database.read() as connection:
        named = named_elsewhere(connection, database.tables, info, {"data_file": files}, after=after)
    return frozenset(number for number, path in files.items() if path in named)


def _batches(plans: Sequence[TableMergePlan], execution: Execution) -> Iterator[list[TableMergePlan]]:
    """Yield plans of tables to commit together. Batches are small, so that little is lost if the process is killed."""
    batch: list[TableMergePlan] = []
    for plan in plans:
        size = sum(one.bytes for one in batch) + plan.bytes
        is_full = size > TOGETHER_BYTES or len(batch) >= _TOGETHER_TABLES or execution.partial_progress
        if batch and (is_full or plan.base != batch[0].base):
            yield batch
            batch = []
        batch.append(plan)
    if batch:
        yield batch


def _unplanned(failed: FailedTable) -> TableMerge:
    reason = str(failed.error)
    return TableMerge(table=failed.table, failures=(reason,), steps=(_step(failed.table, reason, "failed"),))


def _step(table: str, reason: str, outcome: StepOutcome, group: MergeGroup | None = None, files: int = 0) -> MaintenanceStep:
    return MaintenanceStep(
        verb=_OPERATION,
        target=table,
        action="merge small files into one",
        reason=reason,
        outcome=outcome,
        files=len(group.files) if group is not None else files,
        rows=group.record_count if group is not None else 0,
        bytes=group.bytes if group is not None else 0,
    )


def _left(plan: TableMergePlan) -> list[MaintenanceStep]:
    name = name_of(plan.table)
    steps = [_step(name, reason, "skipped", files=count) for reason, count in plan.left]
    return steps if plan.skipped is None else [_step(name, plan.skipped, "skipped"), *steps]


def _planned(plan: TableMergePlan) -> TableMerge:
    return TableMerge(
        table=name_of(plan.table),
        groups=tuple(str(group) for group in plan.groups),
        files_merged=sum(len(group.files) for group in plan.groups),
        files_created=len(plan.groups),
        bytes_read=plan.bytes,
        skipped=plan.skipped,
        left=plan.left,
        steps=(*(_step(name_of(plan.table), str(group), "planned", group) for group in plan.groups), *_left(plan)),
    )


def _merged(plan: TableMergePlan, carried: CarriedOut[MergedRows]) -> TableMerge:
    """Return the result of the plan of a table."""
    done = [(plan.groups[number], file) for number, file in sorted(carried.done.items())]
    begun = plan.without_time_for(carried.late)
    planned = _planned(begun)
    single = [f"{plan.groups[number]}: {error}" for number, error in sorted(carried.failed.items()) if error is not carried.rejection]
    return replace(
        planned,
        groups=tuple(str(group) for group, _ in done),
        files_merged=sum(len(group.files) for group, _ in done),
        files_created=len(done),
        bytes_read=sum(group.bytes for group, _ in done),
        bytes_written=sum(size for _, file in done for _, size in file.made()),
        snapshot=carried.snapshots[-1] if carried.snapshots else None,
        snapshots=carried.snapshots,
        failures=tuple(single if carried.rejection is None else [*single, str(carried.rejection)]),
        steps=tuple(
            _step(planned.table, str(carried.failed[number]), "failed", group)
            if number in carried.failed
            else _step(planned.table, str(group), "done", group)
            for number, group in enumerate(plan.groups)
            if number not in carried.late
        )
        + tuple(_left(begun)),
    )


@dataclass(frozen=True, slots=True)
class _Merger:
    """Runs plans. ``shared`` contains ids of files that other catalog rows contained, too, at the start; ``plan`` plans a table."""

    database: Database
    info: LakeInfo
    storage: Storage
    request: TableRequest
    execution: Execution
    shared: frozenset[int]
    plan: Callable[[CatalogReader, TableState, Snapshot], TableMergePlan]

    def run(self, plans: Sequence[TableMergePlan]) -> list[TableMerge]:
        """Merge the files of some tables, and commit them together. A table that conflicts with another writer is planned again."""
        return [self._until_merged(plan, carried) for plan, carried in zip(plans, self.carry_out(plans), strict=True)]

    def _until_merged(self, plan: TableMergePlan, carried: CarriedOut[MergedRows]) -> TableMerge:
        attempts = REPLANS.attempts()
        # Only the commit of all groups of a table has a rejection: with partial_progress, new files would be merged again.
        while isinstance(carried.rejection, CommitConflictError) and attempts.again():
            try:
                plan = self._plan_again(plan)
                if not plan.groups:
                    return _planned(plan)
                shared = _shared(self.database, self.info, plan.groups)
            except NotFoundError:
                # The table was dropped, or a column to cluster by: the conflict names the change of the other writer.
                break
            except DuckLakeError as error:
                if is_about_lake(error):
                    raise
                return _unplanned(FailedTable(table=name_of(plan.table), error=error))
            self.request.progress.extend(len(plan.groups), work=plan.bytes)
            (carried,) = replace(self, shared=shared).carry_out([plan])
        return _merged(plan, carried)

    def _plan_again(self, plan: TableMergePlan) -> TableMergePlan:
        again = replan(self.database, self.info, plan.table.id, self.plan, self.execution)
        self.request.meter.refund([file for group in plan.groups for file in group.files])
        return within_budget(again, self.request.meter)

    def carry_out(self, plans: Sequence[TableMergePlan]) -> list[CarriedOut[MergedRows]]:
        """Merge and commit the groups of some tables, and return the results of each table."""
        self.request.progress.at(name_of(plans[0].table))
        write_id = paths.write_id()
        groups = [(place, group) for place, plan in enumerate(plans) for group in plan.groups]

        def ended(number: int) -> None:
            place, group = groups[number]
            table = name_of(plans[place].table)
            self.request.progress.advance(rows=group.record_count, size=group.bytes, work=group.bytes, table=table)

        def clean(kept: Sequence[MergedRows]) -> None:
            keep = [path for one in kept for path, _ in one.made()]
            for plan in plans:
                sweep(self.storage, plan.table.path, write_id, named=self._named, keep=keep)

        work = TableWork(
            work=merge_files,
            tasks=[self._task(plans[place], group, write_id) for place, group in groups],
            commit=lambda files: self._commit(plans, [(*groups[number], file) for number, file in files.items()]),
            sweep=clean,
            ended=ended,
            tables=[place for place, _ in groups],
        )
        with self.execution.registered(self.database, write_id):
            carried = work.run(self.execution, self.request.meter)
        ends = list(accumulate((len(plan.groups) for plan in plans), initial=0))
        return [carried.part(range(*limits)) for limits in pairwise(ends)]

    def _task(self, plan: TableMergePlan, group: MergeGroup, write_id: str) -> MergeTask:
        table = plan.table
        state = WriteState(
            table=name_of(table),
            directory=table.path,
            schema=group.schema,
            partition_spec=table.partition_specs.get(group.partition_id) if group.partition_id is not None else None,
            write_id=write_id,
            storage=self.storage,
            encrypted=self.info.encrypted,
            format_version=table.format_version,
            options=Options.from_mapping(table.options),
            sort=order_in_files(plan.sort, table, group.schema),
        )
        return MergeTask(
            files=group.files,
            state=state,
            partition_values=group.partition_values,
            consecutive=group.consecutive,
            snapshot_id=plan.base.id,
            cluster_by=group.cluster_by,
            histories=tuple(plan.histories[file.id] for file in group.files if file.id in plan.histories),
            oldest_snapshot=plan.oldest_snapshot,
        )

    def _named(self, files: Sequence[str]) -> frozenset[str]:
        with self.database.read() as connection:
            return named_files(CatalogReader(connection, self.info, self.database.tables), files)

    def _commit(self, plans: Sequence[TableMergePlan], done: Sequence[tuple[int, MergeGroup, MergedRows]]) -> Snapshot:
        try:
            # The names of all files are read once, not for each commit.
            shared = self.shared | _shared(self.database, self.info, [group for _, group, _ in done], after=plans[0].base.id)
        except BaseException as error:
            made = [plans[place].table.path + path for place, _, file in done for path, _ in file.made()]
            discard_made(self.storage, made, error, tables=len({place for place, _, _ in done}))
            raise
        changes = [
            self._change(plans[place], [(group, file) for _, group, file in of_table], shared)
            for place, of_table in groupby(done, key=lambda one: one[0])
        ]
        sources = sum(len(group.files) for _, group, _ in done)
        message = (
            f"{_OPERATION}: {counted(sources, 'file')} of {counted(len(changes), 'table')} into {len(done):,}" if len(changes) > 1 else None
        )
        return self.execution.commit(self.database, self.info, self.storage, changes, message=message)

    def _change(self, plan: TableMergePlan, done: Sequence[tuple[MergeGroup, MergedRows]], shared: frozenset[int]) -> Change:
        table = plan.table
        sources = sum(len(group.files) for group, _ in done)
        merges = tuple(self._merge(plan, group, file, shared) for group, file in done)
        return Change(
            table=table,
            base=plan.base,
            action=MergeFiles(table_id=table.id, schema=table.schema, merges=merges),
            message=f"{_OPERATION}: {counted(sources, 'file')} of {name_of(table)} into {len(done):,}",
            commit=self.request.commit,
            files=tuple((table.path + path, size) for _, file in done for path, size in file.made()),
        )

    def _merge(self, plan: TableMergePlan, group: MergeGroup, made: MergedRows, shared: frozenset[int]) -> MergedFile:
        return MergedFile(
            sources=tuple((file.id, *paths.relative_to(self.info.data_path, file.path)) for file in group.files),
            output=made.file,
            row_id_start=None if made.file.row_ids_embedded else group.files[0].row_id_start,
            begin_snapshot=group.begin_snapshot,
            partial_max=group.partial_max,
            partition_id=group.partition_id,
            # A file that other catalog rows contain ends here, but must not be scheduled for deletion.
            shared=shared.intersection(file.id for file in group.files),
            deleted=tuple(self._deletes(file, plan.histories[file.id]) for file in group.files if file.id in plan.histories),
            deletes=made.deletes,
        )

    def _deletes(self, file: DataFile, history: DeleteHistory) -> MergedDeletes:
        return MergedDeletes(
            data_file_id=file.id,
            live=frozenset(one.id for one in file.delete_files),
            replaced=tuple((one.id, *paths.relative_to(self.info.data_path, one.path)) for one in history.file.delete_files),
            has_inlined_deletes=bool(history.inlined),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeLimits:
    """Limits of a merge.

    Attributes:
        max_compacted_files: Maximum number of new files per table; None for no limit.
        min_file_size: Bytes; smaller files are skipped.
        max_file_size: Bytes; files of at least this size, or of ``target_file_size``, are skipped.
        cluster_by: Names of columns by which rows of the new files are ordered.
    """

    max_compacted_files: int | None = None
    min_file_size: int | None = None
    max_file_size: int | None = None
    cluster_by: tuple[str, ...] = ()

    @property
    def takes_all(self) -> bool:
        """Return whether the caller chooses the files, so that their sizes do not matter otherwise."""
        return self.min_file_size is not None or self.max_file_size is not None or bool(self.cluster_by)

    def __post_init__(self) -> None:
        optional(partial(whole_number, least=1), "max_compacted_files", self.max_compacted_files)
        optional(partial(whole_number, least=0), "min_file_size", self.min_file_size)
        optional(partial(whole_number, least=1), "max_file_size", self.max_file_size)
        if self.min_file_size is not None and self.max_file_size is not None and self.min_file_size >= self.max_file_size:
            raise UsageError(f"min_file_size is {self.min_file_size:,}, but must be less than max_file_size ({self.max_file_size:,})")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeGroup:
    """Files to merge into one.

    Attributes:
        files: Sources, in the order of their rows in the output.
        schema: Columns with which all of them were written.
        partition_id: Partition spec of the sources, None for none.
        partition_values: Value of each key as a string, in key order; the same for all sources.
        consecutive: Whether the row ids of the files are consecutive, so that they need not be stored with each row (unless a source
            stores them).
        cluster_by: Names of columns by which the rows are ordered.
        gain: Gain of clustering, None if unknown.
    """

    files: tuple[DataFile, ...]
    schema: Schema
    partition_id: int | None
    partition_values: tuple[str | None, ...]
    consecutive: bool
    cluster_by: tuple[str, ...] = ()
    gain: ClusteringGain | None = None

    @property
    def bytes(self) -> int:
        """Bytes to read."""
        return sum(file.file_size_bytes for file in self.files)

    @property
    def record_count(self) -> int:
        """Rows to read and write."""
        return sum(file.record_count for file in self.files)

    @property
    def begin_snapshot(self) -> int:
        """The snapshot from which the output is visible."""
        return min(file.begin_snapshot for file in self.files)

    @property
    def partial_max(self) -> int:
        """The newest snapshot among the rows."""
        return max(file.begin_snapshot if file.partial_max is None else file.partial_max for file in self.files)

    def __str__(self) -> str:
        where = f" of partition {self.partition_values}" if self.partition_values else ""
        gain = f"; {self.gain}" if self.gain is not None else ""
        return f"{counted(len(self.files), 'file')}{where}, {counted(self.record_count, 'row')}, {format_bytes(self.bytes)}{gain}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMergePlan:
    """The plan of merging the files of one table.

    Attributes:
        table: The table at the snapshot of the plan.
        base: That snapshot.
        groups: Files to merge; empty if there is nothing to do.
        skipped: Reason for skipping the whole table, None if it is not skipped.
        left: Number of skipped live files, by reason.
        histories: Deletes of the sources that have any, by the id of the data file.
        oldest_snapshot: Id of the oldest snapshot.
        sort: The table's sort order.
    """

    table: TableState
    base: Snapshot
    groups: tuple[MergeGroup, ...] = ()
    skipped: str | None = None
    left: tuple[tuple[str, int], ...] = ()
    histories: Mapping[int, DeleteHistory] = field(default_factory=dict)
    oldest_snapshot: int = 0
    sort: tuple[SortOrder, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes to read."""
        return sum(group.bytes for group in self.groups)

    def without_time_for(self, late: Collection[int]) -> TableMergePlan:
        """Return the plan without the groups, by number, that were not started in time."""
        if not late:
            return self
        beyond = {OUT_OF_TIME: sum(len(self.groups[number].files) for number in late)}
        begun = tuple(group for number, group in enumerate(self.groups) if number not in late)
        return replace(self, groups=begun, left=also_left(self.left, beyond))


def within_budget(plan: TableMergePlan, meter: BudgetMeter) -> TableMergePlan:
    """Return the plan with as many files of each group as the budget allows."""
    kept: list[MergeGroup] = []
    beyond: dict[str, int] = {}
    for group in plan.groups:
        files = meter.most(group.files)
        files = files if len(files) > 1 else ()
        meter.spend(files)
        if len(files) < len(group.files):
            reason = meter.beyond(group.files, 2)
            beyond[reason] = beyond.get(reason, 0) + len(group.files) - len(files)
        if files:
            gain = group.gain if len(files) == len(group.files) else None
            kept.append(replace(group, files=tuple(files), consecutive=_consecutive(files), gain=gain))
    return replace(plan, groups=tuple(kept), left=also_left(plan.left, beyond)) if beyond else plan


def plan_table(reader: CatalogReader, table: TableState, base: Snapshot, limits: MergeLimits, oldest: int) -> TableMergePlan:
    """Plan the merge of one table from the catalog. Opens no file.

    DuckDB skips files that have, or ever had, deletes, because its merge discards the history of the sources. Here the new file keeps
    the deleted rows that a snapshot still shows, and a delete file hides them.

    Raises:
        NotFoundError: A column to cluster by does not exist.
        UnsupportedFeatureError: The type of such a column has no bounds.
    """
    options = Options.from_mapping(table.options)
    columns = clustered_columns(table, limits.cluster_by)
    orders = () if columns else sort_order(reader, table)
    skipped = _obstacle(table, options, None if columns else orders)
    if skipped is not None:
        return TableMergePlan(table=table, base=base, skipped=skipped)
    deletes = delete_files_of(reader, table)
    left: dict[str, int] = {}
    candidates: list[DataFile] = []
    bounds: dict[int, Statistics] = {}
    reach = Reach(reader.info, table)
    for file, statistics in data_files(reader, table, statistics_for=frozenset(column.id for column in columns)):
        bounds[file.id] = statistics
        reason = _left_alone(file, deletes.get(file.id, ()), options, limits) or reach.obstacle(file)
        if reason is None:
            candidates.append(file)
        else:
            left[reason] = left.get(reason, 0) + 1
    planner = _Grouping(reader, table, schema_versions(reader, table.id))
    runs: list[list[DataFile]] = []
    for group in planner.grouped(candidates):
        worthwhile = group if limits.takes_all or len(group) == 1 else _worthwhile(group)
        if len(worthwhile) < len(group):
            left[_TOO_LARGE] = left.get(_TOO_LARGE, 0) + len(group) - len(worthwhile)
        runs += _runs(worthwhile, options.target_file_size)
    merges = [run for run in runs if len(run) > 1]
    alone = len(runs) - len(merges)
    if alone:
        left["no other file to merge with"] = alone
    over = merges[limits.max_compacted_files :] if limits.max_compacted_files is not None else []
    if over:
        left["beyond max_compacted_files"] = sum(len(run) for run in over)
    groups = tuple(_clustered(planner.group(run), columns, bounds, options) for run in merges[: len(merges) - len(over)])
    sources = [file for group in groups for file in group.files if file.id in deletes or file.inlined_deletes]
    inlined = inlined_deletes_of(reader, table) if any(file.inlined_deletes for file in sources) else {}
    return TableMergePlan(
        table=table,
        base=base,
        groups=groups,
        left=tuple(sorted(left.items())),
        histories={file.id: _history(file, deletes.get(file.id, ()), inlined.get(file.id, ())) for file in sources},
        oldest_snapshot=oldest,
        sort=orders,
    )


def _history(file: DataFile, delete_files: Sequence[DeleteFile], inlined: Sequence[tuple[int, int]]) -> DeleteHistory:
    return DeleteHistory(file=replace(file, delete_files=tuple(delete_files)), inlined=tuple(sorted(inlined)))


def _worthwhile(files: Sequence[DataFile]) -> list[DataFile]:
    """Return the files without those that are much larger than all smaller ones together.

    So a large file is not written again each night for a few new rows: its size at least grows by half each time.
    """
    most, smaller = 0, 0
    for size in sorted(file.file_size_bytes for file in files):
        if size <= max(_CHEAP_BYTES, _MAX_RATIO * smaller):
            most = size
        smaller += size
    return [file for file in files if file.file_size_bytes <= most]


def _clustered(group: MergeGroup, columns: Sequence[Field], bounds: Mapping[int, Statistics], options: Options) -> MergeGroup:
    """Return the group with its rows ordered by columns that the files have."""
    then = {column.id: column.name for column in group.schema}
    chosen = [column for column in columns if column.id in then]
    if not chosen:
        return group
    row_groups = -(-group.record_count // (options.parquet_row_group_size or ROW_GROUP_ROWS)) or 1
    gain = gain_of_merge(chosen, [bounds[file.id] for file in group.files], row_groups)
    return replace(group, cluster_by=tuple(then[column.id] for column in chosen), gain=gain)


def _obstacle(table: TableState, options: Options, orders: Sequence[SortOrder] | None) -> str | None:
    if not options.auto_compact:
        return "option auto_compact is false"
    if orders is None or len(orders) == len(table.sort_keys):
        return None
    expression = table.sort_keys[len(orders)].expression
    remedy = "merge with DuckDB" if is_installed() else "install the package duckdb"
    return f"this process cannot sort by its key {expression}; {remedy}, or pass cluster_by"


def _left_alone(file: DataFile, delete_files: Sequence[DeleteFile], options: Options, limits: MergeLimits) -> str | None:
    if file.file_size_bytes >= options.target_file_size:
        return "already of the target size"
    if limits.max_file_size is not None and file.file_size_bytes >= limits.max_file_size:
        return "not smaller than max_file_size"
    if limits.min_file_size is not None and file.file_size_bytes < limits.min_file_size:
        return "smaller than min_file_size"
    if any(one.committed_at is not None for one in delete_files):
        return "it has a delete file with a wrong snapshot"
    deleted, threshold = deleted_count(file), options.rewrite_delete_threshold
    if deleted and deleted >= threshold * file.record_count:
        # Rewriting drops its deleted rows. So each merged file has a row.
        return f"at least {threshold:.0%} of its rows are deleted"
    if file.mapping_id is not None:
        return "it has no field ids"
    return None


class Reach:
    """Checks that the lake may read files of a table and write next to them. The table's directory is checked once.

    Args:
        info: The lake's settings.
        table: The table.
    """

    def __init__(self, info: LakeInfo, table: TableState) -> None:
        self._info = info
        self._table = table
        self._directory = self._reason(lambda: check_directory(info, table))

    def obstacle(self, file: DataFile) -> str | None:
        """Return the reason why a file must not be read or replaced, None if it may."""
        return self._directory or self._reason(lambda: check_location_of(file, self._info, self._table))

    @staticmethod
    def _reason(check: Callable[[], None]) -> str | None:
        try:
            check()
        except UnsupportedFeatureError:
            return "outside the data path and not below allowed_paths"
        return None


class _Grouping:
    """Groups files that may be merged, and reads the columns of each schema version once."""

    def __init__(self, reader: CatalogReader, table: TableState, versions: SchemaVersions) -> None:
        self._reader = reader
        self._table = table
        self._versions = versions
        self._schemas: dict[int | None, Schema] = {}

    def grouped(self, files: Sequence[DataFile]) -> Iterator[list[DataFile]]:
        groups: dict[object, list[DataFile]] = {}
        for file in sorted(files, key=row_order):
            groups.setdefault(file_kind(file, self._versions), []).append(file)
        yield from groups.values()

    def group(self, files: Sequence[DataFile]) -> MergeGroup:
        values = tuple(value for _, value in sorted(files[0].partition_values))
        return MergeGroup(
            files=tuple(files),
            schema=self._schema(files[-1]),
            partition_id=files[0].partition_id,
            partition_values=values,
            consecutive=_consecutive(files),
        )

    def _schema(self, file: DataFile) -> Schema:
        # Later columns are not added: readers of earlier snapshots expect the earlier columns.
        version = self._versions.at(file.begin_snapshot)
        if version == self._versions.at(self._table.snapshot_id):
            return self._table.schema
        if version not in self._schemas:
            self._schemas[version] = schema_at(self._reader, self._table, file.begin_snapshot)
        return self._schemas[version]


def _runs(files: Sequence[DataFile], target: int) -> Iterator[list[DataFile]]:
    """Yield files in order, in groups of the target size."""
    run: list[DataFile] = []
    size = 0
    for file in files:
        run.append(file)
        size += file.file_size_bytes
        if size >= target:
            yield run
            run, size = [], 0
    if run:
        yield run


def _consecutive(files: Sequence[DataFile]) -> bool:
    # Consecutive row ids are counted from row_id_start, so the merged file need not store them.
    following: int | None = files[0].row_id_start
    for file in files:
        if following is None or file.row_id_start != following:
            return False
        following = file.row_id_start + file.record_count
    return True


def row_order(file: DataFile) -> RowKey:
    """Return the sort key of DuckDB's compaction: the snapshot that added the file, then its row id."""
    return (file.begin_snapshot, file.row_id_start is None, file.row_id_start or 0, file.id)


def file_kind(file: DataFile, versions: SchemaVersions) -> _Kind:
    """Return the properties that adjacent files share: schema version, partition spec and partition values."""
    return (versions.at(file.begin_snapshot), file.partition_id, tuple(sorted(file.partition_values)))


class Neighbours:
    """The files of a table, by kind, in the order of their rows. Each joins one group only.

    Args:
        files: All live files.
        joinable: Ids of those that may join a group.
        versions: Schema versions of the table.
    """

    def __init__(self, files: Sequence[DataFile], joinable: Collection[int], versions: SchemaVersions) -> None:
        self._rows: dict[_Kind, list[DataFile]] = {}
        self._positions: dict[int, tuple[_Kind, int]] = {}
        self._joinable = set(joinable)
        for file in sorted(files, key=row_order):
            kind = file_kind(file, versions)
            row = self._rows.setdefault(kind, [])
            self._positions[file.id] = (kind, len(row))
            row.append(file)

    def join(self, files: Sequence[DataFile], remaining: float) -> list[DataFile]:
        """Return the files directly before or after some files, or next to a file that joins, up to ``remaining`` bytes.

        Args:
            files: Files that are rewritten.
            remaining: Maximum bytes of the files that join them.
        """
        found: list[DataFile] = []
        known = {file.id for file in files}
        for file in files:
            kind, place = self._positions[file.id]
            for step in (1, -1):
                at = place + step
                while 0 <= at < len(self._rows[kind]):
                    other = self._rows[kind][at]
                    at += step
                    if other.id in known:
                        continue
                    if other.id not in self._joinable or other.file_size_bytes > remaining:
                        break
                    remaining -= other.file_size_bytes
                    self._joinable.remove(other.id)
                    known.add(other.id)
                    found.append(other)
        return found
