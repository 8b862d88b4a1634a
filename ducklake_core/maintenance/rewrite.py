"""Write files with many deleted rows anew (specification: Rewrite Data Files): plan all tables, then write and commit table by table.

Earlier snapshots keep reading the old files until they expire. Row ids stay, and the change feed tells of nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.reading.compaction import CLUSTERED_KEY
from ducklake_core.catalog.reading.known_files import named_files
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.commit.moved_rows import RewriteFiles, RewrittenSource
from ducklake_core.commit.registration import registered
from ducklake_core.engines.arrow.live_rows import RewriteTask, RewrittenFiles, rewrite_files
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.errors import CatalogError, CommitConflictError, DuckLakeError
from ducklake_core.format.files import paths
from ducklake_core.format.options import Options
from ducklake_core.format.state import LakeInfo, Snapshot, TableState
from ducklake_core.maintenance.clustering import ClusteringGain, touched_files
from ducklake_core.maintenance.groups import CarriedOut, Execution, TableWork
from ducklake_core.maintenance.order import followed_order
from ducklake_core.maintenance.request import TableRequest
from ducklake_core.maintenance.rewrite_plan import RewriteGroup, RewriteLimits, TableRewritePlan, plan_rewrite, within_budget
from ducklake_core.maintenance.steps import MaintenanceResult, MaintenanceStep, StepOutcome, unmatched_steps
from ducklake_core.maintenance.tables import REPLANS, Change, FailedTable, commit_table, is_about_lake, name_of, plan_tables
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.sweeping import sweep

_VERB = "rewrite_data_files"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenGroup:
    """Files to write anew together.

    Attributes:
        files: How many.
        deleted_rows: Rows of them that are deleted, and ``live_rows`` those that are not, as the catalog counts them.
        bytes: Their bytes.
        neighbours: How many of the files have no deleted rows, and join because they are small and next to one that has.
        gain: What the files are clustered for; as planned in a dry run, as it came out after a run. None when they are not.
        failure: What went wrong, None when nothing did; the files are as they were.
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
    """The plan or the outcome of rewriting files of one table.

    Attributes:
        table: ``schema.table``.
        threshold: Part of a file's rows that must be deleted for it to be rewritten.
        groups: What is written anew.
        files_created: Files that were made, ``bytes_written`` their bytes (0 in a dry run).
        snapshot: The newest of ``snapshots``, None in a dry run and where nothing was done.
        snapshots: What the rewrite became: one snapshot, or one for each group that was committed by itself.
        skipped: Why the table is left alone altogether, None when it is not.
        left: How many files with deleted rows are left alone, by reason.
        failure: Why nothing of the table was rewritten, None when something was, or nothing had to be.
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
        """Files whose place others take."""
        return sum(group.files for group in self.groups if group.failure is None) if self.failure is None else 0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RewriteResult(MaintenanceResult):
    """The plan or the outcome of rewriting files with deleted rows, table by table.

    Attributes:
        dry_run: Whether this is only the plan.
        tables: One entry per table that was looked at.
        unmatched: Patterns that no table matches.
    """

    dry_run: bool
    tables: tuple[TableRewrite, ...]
    unmatched: tuple[str, ...] = ()

    @property
    def files_rewritten(self) -> int:
        """Files whose place others take, over all tables."""
        return sum(table.files_rewritten for table in self.tables)

    @property
    def failures(self) -> tuple[str, ...]:
        """The failures of all tables, each with its table."""
        return tuple(f"{step.target}: {step.reason}" for step in self.failed_steps)

    @property
    def steps(self) -> tuple[MaintenanceStep, ...]:
        """One step for each group of files, and one for what is left alone."""
        steps = (step for table in self.tables for step in _steps(table, dry_run=self.dry_run))
        return (*steps, *unmatched_steps(_VERB, self.unmatched))


def _steps(table: TableRewrite, *, dry_run: bool) -> list[MaintenanceStep]:
    def step(outcome: StepOutcome, reason: str, group: RewrittenGroup | None = None, files: int = 0) -> MaintenanceStep:
        return MaintenanceStep(
            verb=_VERB,
            target=table.table,
            action="write the live rows of files anew",
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
    joined = f", beside {group.neighbours} small files next to them" if group.neighbours else ""
    return f"{group.deleted_rows} of {all_rows} rows are deleted, {threshold:.0%} or more of each file{joined}"


def rewrite_data_files(
    database: Database,
    info: LakeInfo,
    storage: Storage,
    request: TableRequest,
    *,
    limits: RewriteLimits | None = None,
    execution: Execution | None = None,
) -> RewriteResult:
    """Plan, and unless it is a dry run carry out, the rewrite. See ``DuckLake.rewrite_data_files`` for the arguments."""
    rewriter = _Rewriter(database, info, storage, request, limits or RewriteLimits(), execution or Execution())
    found = plan_tables(database, info, request, rewriter.plan)
    if rewriter.limits.cluster_by and len(found.plans) == 1 and isinstance(found.plans[0], FailedTable):
        # It is the one table that was asked for, and its columns may be what is wrong.
        raise found.plans[0].error
    plans = [plan if isinstance(plan, FailedTable) else within_budget(plan, request.meter) for plan in found.plans]
    groups = [group for plan in plans if isinstance(plan, TableRewritePlan) for group in plan.groups]
    if groups and not request.dry_run:
        request.progress.begin(_VERB, "rewrite files", "groups", len(groups), weight=sum(group.bytes for group in groups))
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
    nothing = None if plan.groups or plan.left else "no file of it has deleted rows"
    return TableRewrite(
        table=name_of(plan.table),
        threshold=plan.threshold,
        groups=tuple(_group(group) for group in plan.groups),
        skipped=plan.skipped or nothing,
        left=plan.left,
    )


def _measured(plan: TableRewritePlan, number: int, files: RewrittenFiles) -> RewrittenGroup:
    """A group that was rewritten, with what clustering it came to."""
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
    """Carries out plans, one table after another."""

    database: Database
    info: LakeInfo
    storage: Storage
    request: TableRequest
    limits: RewriteLimits
    execution: Execution

    def plan(self, reader: CatalogReader, table: TableState, base: Snapshot) -> TableRewritePlan:
        return plan_rewrite(reader, table, base, self.limits)

    def run(self, plan: TableRewritePlan) -> TableRewrite:
        """Rewrite the groups of a plan, and plan again what others have changed meanwhile."""
        self.request.progress.at(name_of(plan.table))
        done = _planned(plan)
        groups: list[RewrittenGroup] = []
        for attempt in range(1, REPLANS + 1):
            try:
                carried = self._carry_out(plan)
            except DuckLakeError as error:
                if is_about_lake(error):
                    raise
                return replace(done, groups=tuple(groups), failure=str(error))
            done = replace(_with_files(done, carried), left=plan.without_time_for(carried.late).left)
            again = attempt < REPLANS and any(
                isinstance(error, CommitConflictError | CatalogError) and error.retriable for error in carried.failed.values()
            )
            # In the order of the plan; what failed appears once nobody tries it again.
            for number, group in enumerate(plan.groups):
                if number in carried.done:
                    groups.append(_measured(plan, number, carried.done[number]))
                elif number in carried.failed and not again:
                    groups.append(_group(group, str(carried.failed[number])))
            if not again:
                failure = str(carried.refusal) if carried.refusal is not None and not done.snapshots else None
                return replace(done, groups=tuple(groups), failure=failure)
            try:
                plan = self._plan_again(plan, carried.done)
            except DuckLakeError as error:
                if is_about_lake(error):
                    raise
                groups += [_group(plan.groups[number], str(error)) for number in sorted(carried.failed)]
                return replace(done, groups=tuple(groups), failure=None if done.snapshots else str(error))
            self.request.progress.extend(len(plan.groups), weight=sum(group.bytes for group in plan.groups))
            if not plan.groups:
                return replace(done, groups=tuple(groups), left=plan.left)
        raise AssertionError("the loop above returns")

    def _plan_again(self, plan: TableRewritePlan, done: Collection[int]) -> TableRewritePlan:
        with self.database.read() as connection:
            reader = CatalogReader(connection, self.info, self.database.tables)
            base = reader.latest_snapshot()
            again = self.plan(reader, reader.table_by_id(plan.table.id, base.id), base)
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
            sort=followed_order(table, table.schema),
        )

        def ended(number: int) -> None:
            group = plan.groups[number]
            self.request.progress.advance(rows=group.live_rows, size=group.bytes, weight=group.bytes)

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
        with registered(self.database, state.write_id):
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
            message=f"{_VERB}: {len(sources)} files of {name} into {len(outputs)}",
            commit=self.request.commit,
            facts=self._mark(table, [group for group, _ in done]),
            files=tuple((table.path + path, size) for _, files in done for path, size in _made(files)),
        )
        return commit_table(self.database, self.info, self.storage, change)

    def _mark(self, table: TableState, groups: Sequence[RewriteGroup]) -> dict[str, object]:
        """What tells a later run that all files of a commit are clustered already."""
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
            data_file_id=file.id, delete_file_ids=frozenset(one.id for one in file.delete_files), gathered=gathered.get(file.id)
        )
        for file in group.files
    ]
