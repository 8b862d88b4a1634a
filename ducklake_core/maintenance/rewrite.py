"""Rewrite data files that have many deleted rows (specification: Rewrite Data Files)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.reading.file_rows import name_mappings
from ducklake_core.catalog.reading.files import data_files
from ducklake_core.catalog.reading.maintenance import (
    CLUSTERED_KEY,
    clustered_snapshots,
    delete_histories,
    inlined_deletes_of,
    named_files,
    schema_versions,
)
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.commit.actions import RewriteFiles, RewrittenSource
from ducklake_core.engines.arrow.compaction import RewriteTask, RewrittenFiles, rewrite_files
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.errors import CatalogError, CommitConflictError, DuckLakeError
from ducklake_core.format.arguments import fraction, optional, whole_number
from ducklake_core.format.files import paths
from ducklake_core.format.files.data_files import DataFile, DeleteHistory, deleted_count
from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.layout.sorting import SortOrder
from ducklake_core.format.options import Options
from ducklake_core.format.state import LakeInfo, Snapshot, TableState
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.text import counted
from ducklake_core.maintenance.clustering import ClusteringGain, Statistics, clustered_columns, expected_gain, sort_order, touched_files
from ducklake_core.maintenance.groups import (
    REPLANS,
    CarriedOut,
    Change,
    Execution,
    FailedTable,
    TableWork,
    is_about_lake,
    name_of,
    plan_tables,
    replan,
)
from ducklake_core.maintenance.health import format_bytes
from ducklake_core.maintenance.merge import Neighbours, Reach, row_order
from ducklake_core.maintenance.request import (
    OUT_OF_TIME,
    BudgetMeter,
    MaintenanceResult,
    MaintenanceStep,
    StepOutcome,
    TableRequest,
    also_left,
    unmatched_steps,
)
from ducklake_core.planning.plan import ScanProjection
from ducklake_core.planning.planner import column_lifetimes
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.unfinished import sweep

_OPERATION = "rewrite_data_files"

CLUSTERED_FILES = 16
"""Approximate number of files of the target size that are clustered together. More rows of a partition form further groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenGroup:
    """Files to rewrite together.

    Attributes:
        files: Number of files.
        deleted_rows: Number of deleted rows, by the catalog.
        live_rows: Number of other rows, by the catalog.
        bytes: Bytes of the files.
        neighbours: Number of the files that have no deleted rows, and are included because they are small and adjacent.
        gain: Gain of clustering: expected in a dry run, measured after a run. None without clustering.
        failure: Error, None if it did not fail. After an error the files are unchanged.
    """

    files: int
    deleted_rows: int
    live_rows: int
    bytes: int
    neighbours: int = 0
    gain: ClusteringGain | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRewrite:
    """The plan or outcome of rewriting files of one table.

    Attributes:
        table: ``schema.table``.
        threshold: Minimum fraction of deleted rows of a rewritten file.
        groups: Groups of files that are rewritten together.
        files_created: Number of new files (0 in a dry run).
        bytes_written: Bytes of the new files (0 in a dry run).
        snapshot: The newest of ``snapshots``, None in a dry run and if nothing was done.
        snapshots: Snapshots of the rewrite: one, or one for each group that was committed separately.
        skipped: Reason for skipping the whole table, None if it is not skipped.
        left: Number of skipped files with deleted rows, by reason.
        failure: Error if no file of the table was rewritten because of it, otherwise None.
    """

    table: str
    threshold: float = 0.0
    groups: tuple[RewrittenGroup, ...] = ()
    files_created: int = 0
    bytes_written: int = 0
    snapshot: Snapshot | None = None
    snapshots: tuple[Snapshot, ...] = ()
    skipped: str | None = None
    left: tuple[tuple[str, int], ...] = ()
    failure: str | None = None

    @property
    def files_rewritten(self) -> int:
        """Number of replaced files."""
        return sum(group.files for group in self.groups if group.failure is None) if self.failure is None else 0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RewriteResult(MaintenanceResult):
    """The plan or outcome of rewriting files with deleted rows, table by table.

    Attributes:
        dry_run: Whether this is only the plan.
        tables: One entry per table that was checked.
        unmatched: Patterns that no table matches.
    """

    dry_run: bool
    tables: tuple[TableRewrite, ...]
    unmatched: tuple[str, ...] = ()

    @property
    def files_rewritten(self) -> int:
        """Number of replaced files, over all tables."""
        return sum(table.files_rewritten for table in self.tables)

    @property
    def failures(self) -> tuple[str, ...]:
        """The failures of all tables, each with its table."""
        return tuple(f"{step.target}: {step.reason}" for step in self.failed_steps)

    @property
    def steps(self) -> tuple[MaintenanceStep, ...]:
        """One step for each group of files, and one for each reason for skipping files."""
        steps = (step for table in self.tables for step in _steps(table, dry_run=self.dry_run))
        return (*steps, *unmatched_steps(_OPERATION, self.unmatched))


def _steps(table: TableRewrite, *, dry_run: bool) -> list[MaintenanceStep]:
    def step(outcome: StepOutcome, reason: str, group: RewrittenGroup | None = None, files: int = 0) -> MaintenanceStep:
        return MaintenanceStep(
            verb=_OPERATION,
            target=table.table,
            action="rewrite files without their deleted rows",
            reason=reason,
            outcome=outcome,
            files=group.files if group is not None else files,
            rows=group.live_rows if group is not None else 0,
            bytes=group.bytes if group is not None else 0,
        )

    if table.skipped is not None:
        return [step("skipped", table.skipped)]
    if table.failure is not None and not table.groups:
        return [step("failed", table.failure)]
    steps = []
    for group in table.groups:
        failure = table.failure or group.failure
        outcome: StepOutcome = "failed" if failure is not None else "planned" if dry_run else "done"
        steps.append(step(outcome, failure or _reason(group, table.threshold), group))
    return steps + [step("skipped", reason, files=count) for reason, count in table.left]


def _reason(group: RewrittenGroup, threshold: float) -> str:
    if group.gain is not None:
        return str(group.gain)
    all_rows = group.deleted_rows + group.live_rows
    joined = f", with {counted(group.neighbours, 'adjacent small file')}" if group.neighbours else ""
    return f"{group.deleted_rows:,} of {counted(all_rows, 'row')} deleted, at least {threshold:.0%} of each file{joined}"


def rewrite_data_files(
    database: Database,
    info: LakeInfo,
    storage: Storage,
    request: TableRequest,
    *,
    limits: RewriteLimits | None = None,
    execution: Execution | None = None,
) -> RewriteResult:
    """Plan the rewrite, and run it unless it is a dry run; see ``DuckLake.rewrite_data_files`` for the parameters."""
    rewriter = _Rewriter(database, info, storage, request, limits or RewriteLimits(), execution or Execution())
    found = plan_tables(database, info, request, rewriter.plan, execution=execution)
    if rewriter.limits.cluster_by and len(found.plans) == 1 and isinstance(found.plans[0], FailedTable):
        # The error concerns the only requested table, and may be about its columns.
        raise found.plans[0].error
    plans = [plan if isinstance(plan, FailedTable) else within_budget(plan, request.meter) for plan in found.plans]
    groups = [group for plan in plans if isinstance(plan, TableRewritePlan) for group in plan.groups]
    if groups and not request.dry_run:
        request.progress.begin(_OPERATION, "rewrite files", "groups", len(groups), work=sum(group.bytes for group in groups))
    done = [
        TableRewrite(table=plan.table, failure=str(plan.error))
        if isinstance(plan, FailedTable)
        else _planned(plan)
        if request.dry_run or not plan.groups
        else rewriter.run(plan)
        for plan in plans
    ]
    return RewriteResult(dry_run=request.dry_run, tables=tuple(done), unmatched=found.unmatched)


def _planned(plan: TableRewritePlan) -> TableRewrite:
    nothing = None if plan.groups or plan.left else "no file has deleted rows"
    return TableRewrite(
        table=name_of(plan.table),
        threshold=plan.threshold,
        groups=tuple(_group(group) for group in plan.groups),
        skipped=plan.skipped or nothing,
        left=plan.left,
    )


def _measured(plan: TableRewritePlan, number: int, files: RewrittenFiles) -> RewrittenGroup:
    """Return a rewritten group, with the measured gain of clustering."""
    group = _group(plan.groups[number])
    if group.gain is None:
        return group
    columns = [plan.table.schema.column(name) for name in group.gain.columns]
    touched = touched_files(columns, [{one.column_id: one for one in file.statistics} for file in files.outputs])
    return replace(group, gain=replace(group.gain, files_after=len(files.outputs), touched_after=touched))


def _group(group: RewriteGroup, failure: str | None = None) -> RewrittenGroup:
    return RewrittenGroup(
        files=len(group.files),
        deleted_rows=group.deleted_rows,
        live_rows=group.live_rows,
        bytes=group.bytes,
        neighbours=group.neighbours,
        gain=group.gain,
        failure=failure,
    )


@dataclass(frozen=True, slots=True)
class _Rewriter:
    """Runs plans, one table after another."""

    database: Database
    info: LakeInfo
    storage: Storage
    request: TableRequest
    limits: RewriteLimits
    execution: Execution

    def plan(self, reader: CatalogReader, table: TableState, base: Snapshot) -> TableRewritePlan:
        return plan_rewrite(reader, table, base, self.limits)

    def run(self, plan: TableRewritePlan) -> TableRewrite:
        """Rewrite the groups of a plan. Plan groups again that other writers have changed meanwhile."""
        self.request.progress.at(name_of(plan.table))
        done = _planned(plan)
        groups: list[RewrittenGroup] = []
        # Each round runs one plan. Groups that conflict with another writer are planned again at the newest snapshot; committed groups are
        # not in that plan, because their sources have ended.
        attempts = REPLANS.attempts()
        while True:
            try:
                carried = self._carry_out(plan)
            except DuckLakeError as error:
                if is_about_lake(error):
                    raise
                return replace(done, groups=tuple(groups), failure=str(error))
            done = replace(_with_files(done, carried), left=plan.without_time_for(carried.late).left)
            may_pass = any(isinstance(error, CommitConflictError | CatalogError) and error.retriable for error in carried.failed.values())
            again = may_pass and attempts.again()
            # In the order of the plan. A failed group appears when it is not tried again.
            for number, group in enumerate(plan.groups):
                if number in carried.done:
                    groups.append(_measured(plan, number, carried.done[number]))
                elif number in carried.failed and not again:
                    groups.append(_group(group, str(carried.failed[number])))
            if not again:
                failure = str(carried.rejection) if carried.rejection is not None and not done.snapshots else None
                return replace(done, groups=tuple(groups), failure=failure)
            try:
                plan = self._plan_again(plan, carried.done)
            except DuckLakeError as error:
                if is_about_lake(error):
                    raise
                groups += [_group(plan.groups[number], str(error)) for number in sorted(carried.failed)]
                return replace(done, groups=tuple(groups), failure=None if done.snapshots else str(error))
            self.request.progress.extend(len(plan.groups), work=sum(group.bytes for group in plan.groups))
            if not plan.groups:
                return replace(done, groups=tuple(groups), left=plan.left)

    def _plan_again(self, plan: TableRewritePlan, done: Collection[int]) -> TableRewritePlan:
        again = replan(self.database, self.info, plan.table.id, self.plan, self.execution)
        self.request.meter.refund([file for number, group in enumerate(plan.groups) if number not in done for file in group.files])
        return within_budget(again, self.request.meter)

    def _carry_out(self, plan: TableRewritePlan) -> CarriedOut[RewrittenFiles]:
        table, name = plan.table, name_of(plan.table)
        state = WriteState(
            table=name,
            directory=self.info.checked_location(table.path, f"table {name}", table=name),
            schema=table.schema,
            write_id=paths.write_id(),
            storage=self.storage,
            encrypted=self.info.encrypted,
            format_version=table.format_version,
            options=Options.from_mapping(table.options),
            sort=plan.sort,
        )

        def ended(number: int) -> None:
            group = plan.groups[number]
            self.request.progress.advance(rows=group.live_rows, size=group.bytes, work=group.bytes)

        def clean(kept: Sequence[RewrittenFiles]) -> None:
            keep = [path for files in kept for path, _ in _made(files)]
            sweep(self.storage, state.directory, state.write_id, named=self._named, keep=keep)

        work = TableWork(
            work=rewrite_files,
            tasks=[self._task(plan, group, state) for group in plan.groups],
            commit=lambda files: self._commit(plan, files),
            sweep=clean,
            ended=ended,
        )
        with self.execution.registered(self.database, state.write_id):
            return work.run(self.execution, self.request.meter)

    def _task(self, plan: TableRewritePlan, group: RewriteGroup, state: WriteState) -> RewriteTask:
        assert plan.shape is not None
        return RewriteTask(
            files=group.files,
            shape=plan.shape,
            state=replace(state, partition_spec=group.spec),
            data_path=self.info.data_path,
            histories=tuple(plan.histories[file.id] for file in group.files if file.id in plan.histories),
            cluster_by=self.limits.cluster_by,
        )

    def _commit(self, plan: TableRewritePlan, written: Mapping[int, RewrittenFiles]) -> Snapshot:
        table, name = plan.table, name_of(plan.table)
        done = [(plan.groups[number], files) for number, files in written.items()]
        sources = tuple(source for group, files in done for source in _sources(group, files))
        outputs = tuple((file, group.spec.id if group.spec is not None else None) for group, files in done for file in files.outputs)
        change = Change(
            table=table,
            base=plan.base,
            action=RewriteFiles(table_id=table.id, sources=sources, outputs=outputs),
            message=f"{_OPERATION}: {counted(len(sources), 'file')} of {name} into {len(outputs):,}",
            commit=self.request.commit,
            facts=self._mark(table, [group for group, _ in done]),
            files=tuple((table.path + path, size) for _, files in done for path, size in _made(files)),
        )
        return self.execution.commit(self.database, self.info, self.storage, [change])

    def _mark(self, table: TableState, groups: Sequence[RewriteGroup]) -> dict[str, object]:
        """Return the mark by which a later run recognizes that all files of a commit are clustered."""
        columns = [table.schema.column(name).id for name in self.limits.cluster_by]
        return {CLUSTERED_KEY: columns} if columns and all(group.gain is not None for group in groups) else {}

    def _named(self, files: Sequence[str]) -> frozenset[str]:
        with self.database.read() as connection:
            return named_files(CatalogReader(connection, self.info, self.database.tables), files)


def _made(files: RewrittenFiles) -> list[tuple[str, int]]:
    outputs = ((file.path, file.file_size_bytes) for file in files.outputs)
    return [*outputs, *((one.file.path, one.file.file_size_bytes) for one in files.gathered)]


def _with_files(table: TableRewrite, carried: CarriedOut[RewrittenFiles]) -> TableRewrite:
    outputs = [file for files in carried.done.values() for file in files.outputs]
    snapshots = (*table.snapshots, *carried.snapshots)
    return replace(
        table,
        files_created=table.files_created + len(outputs),
        bytes_written=table.bytes_written + sum(file.file_size_bytes for file in outputs),
        snapshot=snapshots[-1] if snapshots else None,
        snapshots=snapshots,
    )


def _sources(group: RewriteGroup, files: RewrittenFiles) -> list[RewrittenSource]:
    gathered = {deletes.data_file_id: deletes for deletes in files.gathered}
    return [
        RewrittenSource(
            data_file_id=file.id,
            delete_file_ids=frozenset(one.id for one in file.delete_files),
            gathered=gathered.get(file.id),
            has_inlined_deletes=bool(file.inlined_deletes),
        )
        for file in group.files
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteLimits:
    """Limits of a rewrite.

    Attributes:
        delete_threshold: Minimum fraction of deleted rows of a file; None for the table's option ``rewrite_delete_threshold``.
        max_compacted_files: Maximum number of groups per table; None for no limit.
        cluster_by: Columns to cluster files by; empty for the table's sort order.
    """

    delete_threshold: float | None = None
    max_compacted_files: int | None = None
    cluster_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        optional(partial(whole_number, least=1), "max_compacted_files", self.max_compacted_files)
        optional(fraction, "delete_threshold", self.delete_threshold)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteGroup:
    """Files whose live rows are written to new files together.

    Attributes:
        files: Sources, by the snapshot that added them and by row id.
        spec: Partition keys of the new files, None for none.
        gain: Gain of clustering, None if the group is rewritten because of its deleted rows.
    """

    files: tuple[DataFile, ...]
    spec: PartitionSpec | None
    gain: ClusteringGain | None = None

    @property
    def neighbours(self) -> int:
        """Return the number of files without deleted rows, which are included because they are small and adjacent."""
        return 0 if self.gain is not None else sum(not deleted_count(file) for file in self.files)

    @property
    def bytes(self) -> int:
        """Bytes of the sources."""
        return sum(file.file_size_bytes for file in self.files)

    @property
    def deleted_rows(self) -> int:
        """Number of deleted rows, by the catalog."""
        return sum(deleted_count(file) for file in self.files)

    @property
    def live_rows(self) -> int:
        """Rows to write."""
        return sum(max(0, file.record_count - deleted_count(file)) for file in self.files)

    def __str__(self) -> str:
        rows = sum(file.record_count for file in self.files)
        return f"{counted(len(self.files), 'file')}, {self.deleted_rows:,} of {counted(rows, 'row')} deleted, {format_bytes(self.bytes)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRewritePlan:
    """The plan of rewriting files of one table.

    Attributes:
        table: The table at the snapshot of the plan.
        base: That snapshot.
        threshold: Minimum fraction of deleted rows of a file.
        groups: Files to rewrite; empty if there is nothing to do.
        shape: Projection for reading the sources; None if there is nothing to do.
        histories: Deletes of sources that have several delete files or inlined deletes, by the id of the data file.
        skipped: Reason for skipping the whole table, None if it is not skipped.
        left: Number of skipped files with deletes, or to cluster, by reason.
        sort: The part of the table's sort order that the new files follow.
    """

    table: TableState
    base: Snapshot
    threshold: float
    groups: tuple[RewriteGroup, ...] = ()
    shape: ScanProjection | None = None
    histories: Mapping[int, DeleteHistory] = field(default_factory=dict)
    skipped: str | None = None
    left: tuple[tuple[str, int], ...] = ()
    sort: tuple[SortOrder, ...] = ()

    def without_time_for(self, late: Collection[int]) -> TableRewritePlan:
        """Return the plan without the groups, by number, that were not started in time."""
        if not late:
            return self
        beyond = {OUT_OF_TIME: sum(len(self.groups[number].files) for number in late)}
        begun = tuple(group for number, group in enumerate(self.groups) if number not in late)
        return replace(self, groups=begun, left=also_left(self.left, beyond))


def within_budget(plan: TableRewritePlan, meter: BudgetMeter) -> TableRewritePlan:
    """Return the plan with as many files of each group as the budget allows.

    With a budget, no adjacent small files are included. A group to be clustered is rewritten completely or not at all.
    """
    if meter.budget.max_files is None and meter.budget.max_input_bytes is None:
        return plan
    kept: list[RewriteGroup] = []
    beyond: dict[str, int] = {}
    for group in plan.groups:
        wanted = group.files if group.gain is not None else tuple(file for file in group.files if deleted_count(file))
        files = meter.first(wanted)
        if group.gain is not None and len(files) < len(wanted):
            files = ()
        meter.spend(files)
        if len(files) < len(wanted):
            reason = meter.beyond(wanted, len(wanted)) if group.gain is not None else meter.beyond(wanted[len(files) :])
            beyond[reason] = beyond.get(reason, 0) + len(wanted) - len(files)
        if files:
            kept.append(replace(group, files=tuple(files)))
    return replace(plan, groups=tuple(kept), left=also_left(plan.left, beyond))


def plan_rewrite(reader: CatalogReader, table: TableState, base: Snapshot, limits: RewriteLimits) -> TableRewritePlan:
    """Plan the rewrite of one table from the catalog. Opens no file.

    Raises:
        NotFoundError: A column to cluster by does not exist.
        UnsupportedFeatureError: The type of such a column has no bounds.
    """
    options = Options.from_mapping(table.options)
    limit = options.rewrite_delete_threshold if limits.delete_threshold is None else limits.delete_threshold
    if not options.auto_compact:
        return TableRewritePlan(table=table, base=base, threshold=limit, skipped="option auto_compact is false")
    found = _find(reader, table, limit, clustered_columns(table, limits.cluster_by))
    if found.columns:
        groups = _clustered_groups(reader, table, found, options.target_file_size)
    else:
        groups = _groups(reader, table, found, options.target_file_size)
    over = groups[limits.max_compacted_files :] if limits.max_compacted_files is not None else []
    if over:
        found.leave("beyond max_compacted_files", sum(len(group.files) for group in over))
        del groups[len(groups) - len(over) :]
    left = tuple(sorted(found.left.items()))
    if not groups:
        return TableRewritePlan(table=table, base=base, threshold=limit, left=left)
    chosen = [file for group in groups for file in group.files]
    # Earlier snapshots continue to read the sources. Deletes in several files, or in the catalog, are gathered into one delete file with
    # the snapshot of each, because a data file may have only one.
    several = [file.id for file in chosen if file.inlined_deletes or len(file.delete_files) > 1]
    histories = delete_histories(reader, table, several, inlined_deletes_of(reader, table)) if several else []
    return TableRewritePlan(
        table=table,
        base=base,
        threshold=limit,
        groups=tuple(groups),
        shape=_shape(reader, table, chosen),
        histories={history.file.id: history for history in histories},
        left=left,
        sort=() if found.columns else sort_order(reader, table),
    )


@dataclass(slots=True, kw_only=True)
class _Found:
    """The live files of a table.

    Attributes:
        columns: Columns to cluster by.
        every: All files, with their statistics of these columns.
        chosen: Files with enough deleted rows to be rewritten.
        joinable: Ids of files without deleted rows that may be included.
        out_of_reach: Ids of files that must not be read.
        left: Number of skipped files, by reason.
    """

    columns: tuple[Field, ...]
    every: list[tuple[DataFile, Statistics]] = field(default_factory=list)
    chosen: list[DataFile] = field(default_factory=list)
    joinable: set[int] = field(default_factory=set)
    out_of_reach: set[int] = field(default_factory=set)
    left: dict[str, int] = field(default_factory=dict)

    def leave(self, reason: str, count: int = 1) -> None:
        self.left[reason] = self.left.get(reason, 0) + count


def _find(reader: CatalogReader, table: TableState, limit: float, columns: tuple[Field, ...]) -> _Found:
    found, reach = _Found(columns=columns), Reach(reader.info, table)
    for file, statistics in data_files(reader, table, statistics_for=frozenset(column.id for column in columns)):
        found.every.append((file, statistics))
        deleted = deleted_count(file)
        unreadable = reach.obstacle(file)
        if unreadable is not None:
            found.out_of_reach.add(file.id)
            if deleted or columns:
                found.leave(unreadable)
        elif not deleted:
            # Files of other programs are kept, as in a merge.
            found.joinable |= {file.id} if file.mapping_id is None else set()
        elif deleted >= limit * file.record_count:
            found.chosen.append(file)
        elif not columns:
            found.leave(f"less than {limit:.0%} of the rows are deleted")
    return found


def _live_bytes(file: DataFile) -> float:
    return file.file_size_bytes * max(0.0, 1 - deleted_count(file) / max(1, file.record_count))


def _groups(reader: CatalogReader, table: TableState, found: _Found, target: int) -> list[RewriteGroup]:
    """Return groups of files of one partition whose live rows fill about one file, with adjacent small files."""
    if not found.chosen:
        return []
    neighbours = Neighbours([file for file, _ in found.every], found.joinable, schema_versions(reader, table.id))
    groups = []
    for run in _bins(found.chosen, target):
        joined = neighbours.join(run, target - sum(_live_bytes(file) for file in run))
        files = tuple(sorted([*run, *joined], key=row_order))
        groups.append(RewriteGroup(files=files, spec=_spec(table, run[0])))
    return groups


def _clustered_groups(reader: CatalogReader, table: TableState, found: _Found, target: int) -> list[RewriteGroup]:
    """Return all files of a partition if ranges of the columns read too many of them, otherwise those with deleted rows."""
    statistics = {file.id: one for file, one in found.every}
    files = sorted((file for file, _ in found.every if file.id not in found.out_of_reach), key=row_order)
    marked = clustered_snapshots(reader, {file.begin_snapshot for file in files}, [column.id for column in found.columns]) if files else ()
    deleted = {file.id for file in found.chosen}
    groups = []
    for run in _bins(files, target * CLUSTERED_FILES):
        gain = expected_gain(found.columns, [statistics[file.id] for file in run], -(-int(sum(map(_live_bytes, run))) // target) or 1)
        # A merged file has the snapshot of its oldest rows.
        is_clustered = all(file.begin_snapshot in marked and file.partial_max is None for file in run)
        if gain.is_worth_it and not is_clustered:
            groups.append(RewriteGroup(files=tuple(run), spec=_spec(table, run[0]), gain=gain))
            continue
        rewritten = [file for file in run if file.id in deleted]
        groups += [RewriteGroup(files=tuple(part), spec=_spec(table, part[0])) for part in _bins(rewritten, target)]
        if len(run) > len(rewritten):
            found.leave("already clustered" if is_clustered else "clustering would gain too little", len(run) - len(rewritten))
    return groups


def _bins(files: Sequence[DataFile], size: int) -> Iterator[list[DataFile]]:
    """Yield groups of files of one partition whose live rows reach a size."""
    partitions: dict[object, list[DataFile]] = {}
    for file in files:
        partitions.setdefault((file.partition_id, tuple(sorted(file.partition_values))), []).append(file)
    for of_partition in partitions.values():
        run: list[DataFile] = []
        live = 0.0
        for file in of_partition:
            run.append(file)
            live += _live_bytes(file)
            if live >= size:
                yield run
                run, live = [], 0.0
        if run:
            yield run


def _shape(reader: CatalogReader, table: TableState, files: Sequence[DataFile]) -> ScanProjection:
    mappings = {file.mapping_id for file in files if file.mapping_id is not None}
    return ScanProjection(
        table=table.qualified_name,
        snapshot_id=table.snapshot_id,
        schema=table.schema,
        read_schema=table.schema,
        column_lifetimes=column_lifetimes(reader.column_history(table.id)),
        mappings=name_mappings(reader, sorted(mappings), table.qualified_name),
    )


def _spec(table: TableState, file: DataFile) -> PartitionSpec | None:
    """Return the partition keys of the file, or the table's current ones if a column of them was dropped."""
    spec = table.partition_specs.get(file.partition_id) if file.partition_id is not None else None
    columns = {column.id for column in table.schema}
    return table.partition_spec if spec is not None and any(key.column_id not in columns for key in spec.fields) else spec
