"""Merge small files into larger ones (specification: Merge Files): plan all tables, then write and commit them.

One snapshot per table that has work, or for several small ones, or one for each group of files. What goes wrong with one table, or one
group, is reported and never stops the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.reading.known_files import named_files
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.writing.scheduled import named_elsewhere
from ducklake_core.commit.actions import MergedFile, MergeFiles
from ducklake_core.commit.registration import registered
from ducklake_core.engines.arrow.rewrite import MergeTask, merge_files
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.format.files import paths
from ducklake_core.format.files.data_files import WrittenFile
from ducklake_core.format.options import Options
from ducklake_core.format.state import LakeInfo, Snapshot
from ducklake_core.maintenance.groups import CarriedOut, Execution, TableWork
from ducklake_core.maintenance.listing import ends, listed
from ducklake_core.maintenance.merge_plan import MergeGroup, MergeLimits, TableMergePlan, plan_table, within_budget
from ducklake_core.maintenance.order import followed_order
from ducklake_core.maintenance.request import TableRequest
from ducklake_core.maintenance.sizes import format_bytes
from ducklake_core.maintenance.steps import MaintenanceResult, MaintenanceStep, StepOutcome, unmatched_steps
from ducklake_core.maintenance.tables import Change, FailedTable, commit_together, discard_made, name_of, plan_tables
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.sweeping import sweep

_VERB = "merge_adjacent_files"

TOGETHER_BYTES = 64 << 20
"""Bytes of files of several tables that are merged in one commit."""

_TOGETHER_TABLES = 256
"""Tables likewise: each takes about a hundredth of a second, however small it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMerge:
    """The plan or the outcome of merging for one table.

    Attributes:
        table: ``schema.table``.
        groups: What is merged, in words, one text per file to make.
        files_merged: Files that were, or would be, replaced.
        files_created: Files that replace them.
        bytes_read: Their bytes before, and ``bytes_written`` after (0 in a dry run).
        snapshot: The newest of ``snapshots``, None in a dry run and where nothing was done.
        snapshots: What the merge became: one snapshot, or one for each group that was committed by itself.
        skipped: Why the table is left alone altogether, None when it is not.
        left: How many files are left alone, by reason.
        failures: What went wrong; the rows are as they were.
        steps: All of this as steps, one for each file to make, and one for each reason why files are left alone.
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
    """The plan or the outcome of merging small files, table by table.

    Attributes:
        dry_run: Whether this is only the plan.
        tables: One entry per table that was looked at.
        unmatched: Patterns that no table matches.
    """

    dry_run: bool
    tables: tuple[TableMerge, ...]
    unmatched: tuple[str, ...] = ()

    @property
    def files_merged(self) -> int:
        """Files replaced, over all tables."""
        return sum(table.files_merged for table in self.tables)

    @property
    def files_created(self) -> int:
        """Files made, over all tables."""
        return sum(table.files_created for table in self.tables)

    @property
    def failures(self) -> tuple[str, ...]:
        """The failures of all tables, each with its table."""
        return tuple(f"{table.table}: {failure}" for table in self.tables for failure in table.failures)

    def lines(self) -> list[str]:
        """The plan in words: one line per file to make, per reason and per failure, then the sum."""
        return self._lines(None)

    def _lines(self, most: int | None) -> list[str]:
        # More tables than that are listed by what becomes of them, failures last.
        would = "would merge" if self.dry_run else "merged"
        kinds: tuple[tuple[str, Sequence[TableMerge]], ...] = (("", self.tables),)
        if most is not None and len(self.tables) > most:
            failed = [table for table in self.tables if table.failures]
            busy = [table for table in self.tables if table.groups and not table.failures]
            idle = [table for table in self.tables if not table.groups and not table.failures]
            kinds = (("of which files are merged", busy), ("that are left alone", idle), ("that FAILED", failed))
        lines: list[str] = []
        for kind, tables in kinds:
            first, middle, last = ends(tables, most)
            lines += [line for table in first for line in _lines_of(table, would, most)]
            lines += [f"... {len(middle):,} more tables {kind}"] if middle else []
            lines += [line for table in last for line in _lines_of(table, would, most)]
        sizes = format_bytes(sum(table.bytes_read for table in self.tables))
        lines += [f"{pattern}: no table matches it" for pattern in self.unmatched]
        return [*lines, f"{would} {self.files_merged} files ({sizes}) into {self.files_created}, failures: {len(self.failures)}"]

    @property
    def steps(self) -> tuple[MaintenanceStep, ...]:
        """One step for each file to make, and one for what is left alone."""
        return (*(step for table in self.tables for step in table.steps), *unmatched_steps(_VERB, self.unmatched))


def _lines_of(table: TableMerge, would: str, most: int | None) -> list[str]:
    lines = listed(
        table.groups, lambda group: f"{table.table}: {would} {group}", most, lambda rest: f"{len(rest):,} more groups of {table.table}"
    )
    lines += [f"{table.table}: {count} files left alone, {reason}" for reason, count in table.left]
    lines += [f"{table.table}: left alone, {table.skipped}"] if table.skipped is not None else []
    failed = listed(table.failures, lambda text: f"{table.table}: FAILED, {text}", most, lambda rest: f"{len(rest):,} more failures")
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
    """Plan, and unless it is a dry run carry out, the merge. See ``DuckLake.merge_adjacent_files`` for the arguments."""
    bounds = limits or MergeLimits()
    found = plan_tables(database, info, request, lambda reader, state, base: plan_table(reader, state, base, bounds))
    if bounds.cluster_by and len(found.plans) == 1 and isinstance(found.plans[0], FailedTable):
        # It is the one table that was asked for, and its columns may be what is wrong.
        raise found.plans[0].error
    plans = [plan if isinstance(plan, FailedTable) else within_budget(plan, request.meter) for plan in found.plans]
    groups = [group for plan in plans if isinstance(plan, TableMergePlan) for group in plan.groups]
    if groups and not request.dry_run:
        request.progress.begin(_VERB, "merge files", "groups", len(groups), weight=sum(group.bytes for group in groups))
    due = [] if request.dry_run else [plan for plan in plans if isinstance(plan, TableMergePlan) and plan.groups]
    shared = _shared(database, info, [group for plan in due for group in plan.groups])
    merger = _Merger(database, info, storage, request, execution or Execution(), shared)
    ran = {one.table: one for together in _batches(due, merger.execution) for one in merger.run(together)}
    done = [_unplanned(plan) if isinstance(plan, FailedTable) else ran.get(name_of(plan.table)) or _planned(plan) for plan in plans]
    return MergeResult(dry_run=request.dry_run, tables=tuple(done), unmatched=found.unmatched)


def _shared(database: Database, info: LakeInfo, groups: Sequence[MergeGroup], after: int | None = None) -> frozenset[int]:
    """Ids of the files that other rows, of snapshots after one, name too: they were added twice, or to another table."""
    files = {file.id: file.path for group in groups for file in group.files}
    with database.read() as connection:
        named = named_elsewhere(connection, database.tables, info, {"data_file": files}, after=after)
    return frozenset(number for number, path in files.items() if path in named)


def _batches(plans: Sequence[TableMergePlan], execution: Execution) -> Iterator[list[TableMergePlan]]:
    """Plans of tables that are committed together: small ones, so that little is done again when something ends the process."""
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
        verb=_VERB,
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


def _merged(plan: TableMergePlan, carried: CarriedOut[WrittenFile]) -> TableMerge:
    """What became of the plan of a table."""
    done = [(plan.groups[number], file) for number, file in sorted(carried.done.items())]
    begun = plan.without_time_for(carried.late)
    planned = _planned(begun)
    single = [f"{plan.groups[number]}: {error}" for number, error in sorted(carried.failed.items()) if error is not carried.refusal]
    return replace(
        planned,
        groups=tuple(str(group) for group, _ in done),
        files_merged=sum(len(group.files) for group, _ in done),
        files_created=len(done),
        bytes_read=sum(group.bytes for group, _ in done),
        bytes_written=sum(file.file_size_bytes for _, file in done),
        snapshot=carried.snapshots[-1] if carried.snapshots else None,
        snapshots=carried.snapshots,
        failures=tuple(single if carried.refusal is None else [*single, str(carried.refusal)]),
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
    """Carries out plans; ``shared`` are ids of files that other rows named too when it began."""

    database: Database
    info: LakeInfo
    storage: Storage
    request: TableRequest
    execution: Execution
    shared: frozenset[int]

    def run(self, plans: Sequence[TableMergePlan]) -> list[TableMerge]:
        """Merge the files of some tables, and commit them together."""
        self.request.progress.at(name_of(plans[0].table))
        write_id = paths.write_id()
        groups = [(place, group) for place, plan in enumerate(plans) for group in plan.groups]

        def ended(number: int) -> None:
            place, group = groups[number]
            table = name_of(plans[place].table)
            self.request.progress.advance(rows=group.record_count, size=group.bytes, weight=group.bytes, table=table)

        def clean(kept: Sequence[WrittenFile]) -> None:
            for plan in plans:
                sweep(self.storage, plan.table.path, write_id, named=self._named, keep=[file.path for file in kept])

        work = TableWork(
            work=merge_files,
            tasks=[self._task(plans[place], group, write_id) for place, group in groups],
            commit=lambda files: self._commit(plans, [(*groups[number], file) for number, file in files.items()]),
            sweep=clean,
            ended=ended,
            tables=[place for place, _ in groups],
        )
        with registered(self.database, write_id):
            carried = work.run(self.execution, self.request.meter)
        ends = list(accumulate((len(plan.groups) for plan in plans), initial=0))
        return [_merged(plan, carried.part(range(*limits))) for plan, limits in zip(plans, pairwise(ends), strict=True)]

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
            sort=followed_order(table, group.schema),
        )
        return MergeTask(
            files=group.files,
            state=state,
            partition_values=group.partition_values,
            consecutive=group.consecutive,
            snapshot_id=plan.base.id,
            cluster_by=group.cluster_by,
        )

    def _named(self, files: Sequence[str]) -> frozenset[str]:
        with self.database.read() as connection:
            return named_files(CatalogReader(connection, self.info, self.database.tables), files)

    def _commit(self, plans: Sequence[TableMergePlan], done: Sequence[tuple[int, MergeGroup, WrittenFile]]) -> Snapshot:
        try:
            # The names of all files are read once, not for each commit.
            shared = self.shared | _shared(self.database, self.info, [group for _, group, _ in done], after=plans[0].base.id)
        except BaseException as error:
            made = [plans[place].table.path + file.path for place, _, file in done]
            discard_made(self.storage, made, error, tables=len({place for place, _, _ in done}))
            raise
        changes = [
            self._change(plans[place], [(group, file) for _, group, file in of_table], shared)
            for place, of_table in groupby(done, key=lambda one: one[0])
        ]
        sources = sum(len(group.files) for _, group, _ in done)
        message = f"{_VERB}: {sources} files of {len(changes)} tables into {len(done)}" if len(changes) > 1 else None
        return commit_together(self.database, self.info, self.storage, changes, message=message)

    def _change(self, plan: TableMergePlan, done: Sequence[tuple[MergeGroup, WrittenFile]], shared: frozenset[int]) -> Change:
        table = plan.table
        sources = sum(len(group.files) for group, _ in done)
        merges = tuple(self._merge(group, file, shared) for group, file in done)
        return Change(
            table=table,
            base=plan.base,
            action=MergeFiles(table_id=table.id, schema=table.schema, merges=merges),
            message=f"{_VERB}: {sources} files of {name_of(table)} into {len(done)}",
            commit=self.request.commit,
            files=tuple((table.path + file.path, file.file_size_bytes) for _, file in done),
        )

    def _merge(self, group: MergeGroup, output: WrittenFile, shared: frozenset[int]) -> MergedFile:
        return MergedFile(
            sources=tuple((file.id, *paths.relative_to(self.info.data_path, file.path)) for file in group.files),
            output=output,
            row_id_start=None if output.row_ids_embedded else group.files[0].row_id_start,
            begin_snapshot=group.begin_snapshot,
            partial_max=group.partial_max,
            partition_id=group.partition_id,
            shared=shared.intersection(file.id for file in group.files),
        )
