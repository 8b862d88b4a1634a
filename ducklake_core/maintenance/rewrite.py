"""Write files with many deleted rows anew (specification: Rewrite Data Files): plan all tables, then write and commit table by table.

Earlier snapshots keep reading the old files until they expire. Row ids stay, and the change feed tells of nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.reading.known_files import named_files
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.commit.moved_rows import GatheredDeletes, RewriteFiles, RewrittenSource
from ducklake_core.engines.arrow.live_rows import RewriteTask, rewrite_files
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.errors import CatalogError, CommitConflictError, DuckLakeError
from ducklake_core.format.files import paths
from ducklake_core.format.files.data_files import WrittenFile
from ducklake_core.format.options import Options
from ducklake_core.format.state import LakeInfo, Snapshot, TableState
from ducklake_core.maintenance.delete_history import gather_deletes
from ducklake_core.maintenance.request import TableRequest
from ducklake_core.maintenance.rewrite_plan import RewriteGroup, RewriteLimits, TableRewritePlan, plan_rewrite, within_budget
from ducklake_core.maintenance.steps import MaintenanceResult, MaintenanceStep, StepOutcome, unmatched_steps
from ducklake_core.maintenance.tables import REPLANS, Change, FailedTable, commit_table, followed_order, name_of, plan_tables
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
        failure: What went wrong, None when nothing did; the files are as they were.
    """

    files: int
    deleted_rows: int
    live_rows: int
    bytes: int
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRewrite:
    """The plan or the outcome of rewriting files of one table.

    Attributes:
        table: ``schema.table``.
        threshold: Part of a file's rows that must be deleted for it to be rewritten.
        groups: What is written anew.
        files_created: Files that were made, ``bytes_written`` their bytes (0 in a dry run).
        snapshot: The snapshot that the rewrite became, None in a dry run and where nothing was done.
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
    def step(outcome: StepOutcome, reason: str, files: int = 0, rows: int = 0, size: int = 0) -> MaintenanceStep:
        action = "write the live rows of files anew"
        return MaintenanceStep(
            verb=_VERB, target=table.table, action=action, reason=reason, outcome=outcome, files=files, rows=rows, bytes=size
        )

    if table.skipped is not None:
        return [step("skipped", table.skipped)]
    if table.failure is not None and not table.groups:
        return [step("failed", table.failure)]
    steps = []
    for group in table.groups:
        failure = table.failure or group.failure
        outcome: StepOutcome = "failed" if failure is not None else "planned" if dry_run else "done"
        why = f"{group.deleted_rows} of {group.deleted_rows + group.live_rows} rows are deleted, {table.threshold:.0%} or more of each file"
        steps.append(step(outcome, failure or why, group.files, group.live_rows, group.bytes))
    return steps + [step("skipped", reason, count) for reason, count in table.left]


def rewrite_data_files(
    database: Database,
    info: LakeInfo,
    storage: Storage,
    request: TableRequest,
    *,
    limits: RewriteLimits | None = None,
) -> RewriteResult:
    """Plan, and unless it is a dry run carry out, the rewrite. See ``DuckLake.rewrite_data_files`` for the arguments."""
    rewriter = _Rewriter(database, info, storage, request, limits or RewriteLimits())
    found = plan_tables(database, info, request.scope, rewriter.plan)
    plans = [plan if isinstance(plan, FailedTable) else within_budget(plan, request.meter) for plan in found.plans]
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


def _group(group: RewriteGroup, failure: str | None = None) -> RewrittenGroup:
    return RewrittenGroup(
        files=len(group.files), deleted_rows=group.deleted_rows, live_rows=group.live_rows, bytes=group.bytes, failure=failure
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """A group that was written."""

    group: RewriteGroup
    outputs: tuple[WrittenFile, ...]
    gathered: tuple[GatheredDeletes, ...]


@dataclass(frozen=True, slots=True)
class _Rewriter:
    """Carries out plans, one table after another."""

    database: Database
    info: LakeInfo
    storage: Storage
    request: TableRequest
    limits: RewriteLimits

    def plan(self, reader: CatalogReader, table: TableState, base: Snapshot) -> TableRewritePlan:
        return plan_rewrite(reader, table, base, self.limits)

    def run(self, plan: TableRewritePlan) -> TableRewrite:
        for attempt in range(1, REPLANS + 1):
            try:
                return self._rewrite(plan) if plan.groups else _planned(plan)
            except (CommitConflictError, CatalogError) as error:
                if attempt == REPLANS or not error.retriable:
                    return replace(_planned(plan), failure=str(error))
            except DuckLakeError as error:
                return replace(_planned(plan), failure=str(error))
            try:
                plan = self._plan_again(plan)
            except DuckLakeError as error:
                return replace(_planned(plan), failure=str(error))
        raise AssertionError("the loop above returns")

    def _plan_again(self, plan: TableRewritePlan) -> TableRewritePlan:
        with self.database.read() as connection:
            reader = CatalogReader(connection, self.info, self.database.tables)
            base = reader.latest_snapshot()
            again = self.plan(reader, reader.table_by_id(plan.table.id, base.id), base)
        self.request.meter.refund([file for group in plan.groups for file in group.files])
        return within_budget(again, self.request.meter)

    def _rewrite(self, plan: TableRewritePlan) -> TableRewrite:
        table, name, meter = plan.table, name_of(plan.table), self.request.meter
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
        try:
            outcomes = [(group, self._write(plan, group, state)) for group in takewhile(lambda _: not meter.is_out_of_time, plan.groups)]
        except BaseException:
            sweep(self.storage, state.directory, state.write_id, named=self._named)
            raise
        plan = plan.without_time_for(len(outcomes))
        done = [outcome for _, outcome in outcomes if isinstance(outcome, _Done)]
        groups = tuple(_group(group, str(outcome) if isinstance(outcome, DuckLakeError) else None) for group, outcome in outcomes)
        if not done:
            return replace(_planned(plan), groups=groups)
        written = [file for one in done for file in one.outputs]
        sources = tuple(source for one in done for source in _sources(one))
        outputs = tuple((file, one.group.spec.id if one.group.spec is not None else None) for one in done for file in one.outputs)
        change = Change(
            table=table,
            base=plan.base,
            action=RewriteFiles(table_id=table.id, sources=sources, outputs=outputs),
            message=f"{_VERB}: {len(sources)} files of {name} into {len(written)}",
            commit=self.request.commit,
        )

        def discard() -> None:
            sweep(self.storage, state.directory, state.write_id, named=self._named)

        snapshot = commit_table(self.database, self.info, change, discard)
        return replace(
            _planned(plan),
            groups=groups,
            files_created=len(written),
            bytes_written=sum(file.file_size_bytes for file in written),
            snapshot=snapshot,
        )

    def _write(self, plan: TableRewritePlan, group: RewriteGroup, state: WriteState) -> _Done | DuckLakeError:
        assert plan.shape is not None
        gathered: list[GatheredDeletes] = []
        try:
            histories = [plan.histories[file.id] for file in group.files if file.id in plan.histories]
            gathered.extend(gather_deletes(history, self.info, state) for history in histories)
            task = RewriteTask(files=group.files, shape=plan.shape, state=replace(state, partition_spec=group.spec))
            return _Done(group=group, outputs=rewrite_files(task), gathered=tuple(gathered))
        except DuckLakeError as error:
            # Other groups are committed without this one.
            self.storage.delete([state.directory + one.file.path for one in gathered])
            return error

    def _named(self, files: Sequence[str]) -> frozenset[str]:
        with self.database.read() as connection:
            return named_files(CatalogReader(connection, self.info, self.database.tables), files)


def _sources(done: _Done) -> list[RewrittenSource]:
    gathered = {deletes.data_file_id: deletes for deletes in done.gathered}
    return [
        RewrittenSource(
            data_file_id=file.id, delete_file_ids=frozenset(one.id for one in file.delete_files), gathered=gathered.get(file.id)
        )
        for file in done.group.files
    ]
