"""Merge small files into larger ones (specification: Merge Files): plan all tables, then write and commit table by table.

One snapshot per table that has work. What goes wrong with one table, or one group of files, is reported and never stops the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from ducklake_core.arrow.rewrite import MergeTask, discard, merge_files
from ducklake_core.arrow.write_state import WriteState
from ducklake_core.catalog.database import Database
from ducklake_core.catalog.reader import CatalogReader
from ducklake_core.catalog.state import LakeInfo, Snapshot, TableState
from ducklake_core.catalog.visibility import same_name
from ducklake_core.commit.actions import MergedFile, MergeFiles
from ducklake_core.commit.committer import Committer
from ducklake_core.commit.encrypted_files import check_encrypted
from ducklake_core.commit.transaction import StagedTransaction, new_commit_id, stored_extra_info
from ducklake_core.errors import CommitOutcomeUnknownError, DuckLakeError
from ducklake_core.format import paths
from ducklake_core.format.files import WrittenFile
from ducklake_core.format.names import join_name, split_name
from ducklake_core.format.options import Options
from ducklake_core.maintenance.merge_plan import MergeGroup, MergeLimits, TableMergePlan, plan_table
from ducklake_core.maintenance.words import size_text
from ducklake_core.storage.filesystems import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Outcome: TypeAlias = WrittenFile | DuckLakeError


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMerge:
    """What merging does, or did, to one table.

    Attributes:
        table: ``schema.table``.
        groups: What is merged, in words, one text per file to make.
        files_merged: Files that were, or would be, replaced.
        files_created: Files that replace them.
        bytes_read: Their bytes before, and ``bytes_written`` after (0 in a dry run).
        snapshot: The snapshot that the merge became, None in a dry run and where nothing was done.
        skipped: Why the table is left alone altogether, None when it is not.
        left: How many files are left alone, by reason.
        failures: What went wrong; the rows are as they were.
    """

    table: str
    groups: tuple[str, ...] = ()
    files_merged: int = 0
    files_created: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    snapshot: Snapshot | None = None
    skipped: str | None = None
    left: tuple[tuple[str, int], ...] = ()
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """What merging small files does, or did, table by table.

    Attributes:
        dry_run: Whether this is only the plan.
        tables: One entry per table that was looked at.
    """

    dry_run: bool
    tables: tuple[TableMerge, ...]

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
        """What went wrong, over all tables, each with its table."""
        return tuple(f"{table.table}: {failure}" for table in self.tables for failure in table.failures)

    def lines(self) -> list[str]:
        """The plan in words: one line per file to make, per reason and per failure, then the sum."""
        would = "would merge" if self.dry_run else "merged"
        lines: list[str] = []
        for table in self.tables:
            lines += [f"{table.table}: {would} {group}" for group in table.groups]
            lines += [f"{table.table}: {count} files left alone, {reason}" for reason, count in table.left]
            if table.skipped is not None:
                lines.append(f"{table.table}: left alone, {table.skipped}")
            lines += [f"{table.table}: FAILED, {failure}" for failure in table.failures]
        sizes = size_text(sum(table.bytes_read for table in self.tables))
        return [*lines, f"{would} {self.files_merged} files ({sizes}) into {self.files_created}, {len(self.failures)} failures"]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def merge_adjacent_files(
    database: Database,
    info: LakeInfo,
    storage: Storage,
    *,
    table: str | None = None,
    schema: str | None = None,
    limits: MergeLimits | None = None,
    spark: SparkSession | None = None,
    dry_run: bool = False,
) -> MergeResult:
    """Plan, and unless ``dry_run`` carry out, the merge. See ``DuckLake.merge_adjacent_files`` for the arguments."""
    with database.read() as connection:
        reader = CatalogReader(connection, info, database.tables)
        base = reader.latest_snapshot()
        plans = [plan_table(reader, state, base, limits or MergeLimits()) for state in _tables(reader, base, table, schema)]
    if dry_run:
        return MergeResult(dry_run=True, tables=tuple(_planned(plan) for plan in plans))
    merger = _Merger(database, info, storage, spark)
    return MergeResult(dry_run=False, tables=tuple(merger.run(plan) if plan.groups else _planned(plan) for plan in plans))


def _tables(reader: CatalogReader, base: Snapshot, table: str | None, schema: str | None) -> list[TableState]:
    if table is not None:
        schema_name, name = split_name(table)
        return [reader.table(schema_name if schema is None else schema, name, base.id)]
    if schema is not None:
        reader.schema(schema, base.id)
    listed = reader.tables(base.id)
    return [reader.table_by_id(item.id, base.id) for item in listed if schema is None or same_name(item.schema_name, schema)]


def _planned(plan: TableMergePlan) -> TableMerge:
    return TableMerge(
        table=join_name(plan.table.schema_name, plan.table.name),
        groups=tuple(str(group) for group in plan.groups),
        files_merged=sum(len(group.files) for group in plan.groups),
        files_created=len(plan.groups),
        bytes_read=plan.bytes,
        skipped=plan.skipped,
        left=plan.left,
    )


@dataclass(frozen=True, slots=True)
class _Merger:
    """Carries out plans, one table after another."""

    database: Database
    info: LakeInfo
    storage: Storage
    spark: SparkSession | None

    def run(self, plan: TableMergePlan) -> TableMerge:
        tasks = [self._task(plan, group) for group in plan.groups]
        outcomes = list(zip(plan.groups, self._outcomes(tasks), strict=True))
        failures = [f"{group}: {outcome}" for group, outcome in outcomes if isinstance(outcome, DuckLakeError)]
        done = [(group, file) for group, file in outcomes if isinstance(file, WrittenFile)]
        snapshot: Snapshot | None = None
        if done:
            try:
                snapshot = self._commit(plan, done)
            except CommitOutcomeUnknownError as error:
                # The files may be part of the lake by now.
                failures.append(str(error))
            except DuckLakeError as error:
                discard([file for _, file in done], tasks[0].state)
                failures.append(str(error))
        planned = _planned(plan)
        if snapshot is None:
            done = []
        return replace(
            planned,
            groups=tuple(str(group) for group, _ in done),
            files_merged=sum(len(group.files) for group, _ in done),
            files_created=len(done),
            bytes_read=sum(group.bytes for group, _ in done),
            bytes_written=sum(file.file_size_bytes for _, file in done),
            snapshot=snapshot,
            failures=tuple(failures),
        )

    def _task(self, plan: TableMergePlan, group: MergeGroup) -> MergeTask:
        table = plan.table
        state = WriteState(
            table=join_name(table.schema_name, table.name),
            directory=table.path,
            schema=group.schema,
            partition_spec=table.partition_specs.get(group.partition_id) if group.partition_id is not None else None,
            write_id=paths.write_id(),
            storage=self.storage,
            encrypted=self.info.encrypted,
            options=Options.from_mapping(table.options),
        )
        return MergeTask(
            files=group.files,
            state=state,
            partition_values=group.partition_values,
            consecutive=group.consecutive,
            snapshot_id=plan.base.id,
        )

    def _outcomes(self, tasks: Sequence[MergeTask]) -> list[Outcome]:
        if self.spark is None:
            return [_attempt(task) for task in tasks]
        from ducklake_core.spark.rewrite import merge_groups

        return list(merge_groups(tasks, self.spark))

    def _commit(self, plan: TableMergePlan, done: Sequence[tuple[MergeGroup, WrittenFile]]) -> Snapshot:
        table = plan.table
        name = join_name(table.schema_name, table.name)
        sources = sum(len(group.files) for group, _ in done)
        commit_id = new_commit_id()
        transaction = StagedTransaction(
            base=plan.base,
            actions=(MergeFiles(table_id=table.id, schema=table.schema, merges=tuple(self._merged(group, file) for group, file in done)),),
            commit_id=commit_id,
            names={table.id: name},
            message=f"merge_adjacent_files: {sources} files of {name} into {len(done)}",
            extra_info=stored_extra_info(commit_id),
        )
        if self.info.encrypted:
            check_encrypted(transaction.actions)
        return Committer(self.database).commit(transaction).snapshot

    def _merged(self, group: MergeGroup, output: WrittenFile) -> MergedFile:
        return MergedFile(
            sources=tuple((file.id, *paths.relative_to(self.info.data_path, file.path)) for file in group.files),
            output=output,
            row_id_start=None if output.row_ids_embedded else group.files[0].row_id_start,
            begin_snapshot=group.begin_snapshot,
            partial_max=group.partial_max,
            partition_id=group.partition_id,
        )


def _attempt(task: MergeTask) -> Outcome:
    try:
        return merge_files(task)
    except DuckLakeError as error:
        return error
