"""The maintenance verbs of a lake, under DuckDB's names."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Unpack

from ducklake_core.errors import UsageError
from ducklake_core.maintenance.removal_verbs import RemovalVerbs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_core.commit.request import CommitMessage
    from ducklake_core.maintenance.checkpoint import CheckpointResult
    from ducklake_core.maintenance.flush import FlushResult
    from ducklake_core.maintenance.merge import MergeResult
    from ducklake_core.maintenance.request import ProgressCallback, TableRequest
    from ducklake_core.maintenance.rewrite import RewriteResult


class MaintenanceVerbs(RemovalVerbs):
    """Verbs that keep a lake small and fast. Part of :class:`~ducklake_core.lake.DuckLake`."""

    def merge_adjacent_files(  # noqa: PLR0913 - by name all of them
        self,
        table: str | None = None,
        *,
        schema: str | None = None,
        tables: str | Sequence[str] | None = None,
        max_compacted_files: int | None = None,
        min_file_size: int | None = None,
        max_file_size: int | None = None,
        cluster_by: Sequence[str] = (),
        max_input_bytes: int | None = None,
        max_files: int | None = None,
        max_seconds: float | None = None,
        spark: SparkSession | None = None,
        max_concurrency: int | None = None,
        partial_progress: bool = False,
        progress: ProgressCallback | None = None,
        dry_run: bool = False,
        **commit: Unpack[CommitMessage],
    ) -> MergeResult:
        """Merge small files into larger ones, up to the option ``target_file_size``: one snapshot per table that has work, or for several
        small ones together.

        Rows, row ids and what earlier snapshots show stay as they are; rows follow the table's sort order. The sources are scheduled
        for deletion at once, so run :meth:`cleanup_old_files` only with an age that running queries do not exceed. Files with deletes
        are left alone, and so are tables whose option ``auto_compact`` is false, or that are sorted by what Arrow cannot sort by. A
        table that fails, or whose files another writer changes meanwhile, is reported in the result and does not stop the others.

        Args:
            table: ``table`` or ``schema.table``; all tables when not given.
            schema: Only tables of this schema.
            tables: Instead of both, names with ``*`` (any letters) and ``?`` (one letter) in the schema and in the table, such as
                ``["sales.*", "main.order_?"]``. A name without them must exist; a pattern that matches nothing is a skipped step.
            max_compacted_files: Most files to make for each table.
            min_file_size: Bytes; smaller files are left alone.
            max_file_size: Bytes; files of this size or larger are left alone.
            cluster_by: Columns, at most 8, of ``table`` (or ``tables``): rows of each new file lie along a Hilbert curve (in the order of
                the column, where it is one) instead of the table's sort order, so that a range of any of them is in few of its row
                groups. :meth:`rewrite_data_files` clusters across files.
            max_input_bytes: Most bytes of files to read, over all tables. What does not fit is a skipped step, and left to the next
                call, which finds the smallest files first.
            max_files: Most files to read, likewise.
            max_seconds: Seconds after which no further file is made; those that were made are committed.
            spark: Session whose executors do the work, a group of files each; without it this process does.
            max_concurrency: Most groups of files at a time, on threads of this process or as jobs of Spark. When not given, one in
                this process, and on Spark all groups of a table as one job.
            partial_progress: Commit each group of files as soon as it is done, as a snapshot of its own, instead of all groups of a
                table together. What is committed stays when the run is interrupted, and the next run does the rest.
            progress: Is told how far the verb is (:class:`Progress`).
            dry_run: Change nothing; the result lists what would be merged, and why what is left alone is.
            **commit: Author, message and extra information of the snapshots (:class:`CommitMessage`); the message says what was merged
                when none is given.

        Raises:
            NotFoundError: No such table or schema.
            UsageError: Bounds that contradict each other; columns to cluster by without a table, or too many of them.
            UnsupportedFeatureError: Columns to cluster by of a type that files have no bounds for.
        """
        from ducklake_core.maintenance.groups import Execution
        from ducklake_core.maintenance.merge import MergeLimits, merge_adjacent_files

        self._database.check_writable(dry_run=dry_run)
        limits = MergeLimits(
            max_compacted_files=max_compacted_files,
            min_file_size=min_file_size,
            max_file_size=max_file_size,
            cluster_by=_columns(cluster_by, table, tables),
        )
        request = _request(
            table, schema, tables, commit, progress, dry_run, max_input_bytes=max_input_bytes, max_files=max_files, max_seconds=max_seconds
        )
        execution = Execution(spark=spark, max_concurrency=max_concurrency, partial_progress=partial_progress)
        return merge_adjacent_files(self._database, self._info, self._storage, request, limits=limits, execution=execution)

    def flush_inlined_data(
        self,
        table: str | None = None,
        *,
        schema: str | None = None,
        tables: str | Sequence[str] | None = None,
        max_rows: int | None = None,
        max_seconds: float | None = None,
        spark: SparkSession | None = None,
        max_concurrency: int | None = None,
        progress: ProgressCallback | None = None,
        dry_run: bool = False,
        **commit: Unpack[CommitMessage],
    ) -> FlushResult:
        """Move rows and deletes that the catalog itself holds to files: one snapshot per table that has any.

        Rows, row ids, what earlier snapshots show and the change feed stay as they are. Files follow the partition keys that the rows
        were inserted under, and the table's sort order as far as Arrow can sort by it. A table whose option ``auto_compact`` is false
        is left alone. A table that fails is reported in the result and does not stop the others; rows that other writers add
        meanwhile stay inlined, and when they change some, the table is planned again.

        Args:
            table: ``table`` or ``schema.table``; all tables when not given.
            schema: Only tables of this schema.
            tables: Instead of both, names with wildcards, as in :meth:`merge_adjacent_files`.
            max_rows: Rows and deletes after which no further table is begun; a table is flushed as a whole.
            max_seconds: Seconds after which no further table is begun.
            spark: Session whose executors write the files of tables with 100,000 inlined rows and deletes or more; this process reads
                the rows in any case, and writes those of other tables.
            max_concurrency: Most parts of a table at a time, on threads of this process or as jobs of Spark.
            progress: Is told how far the verb is (:class:`Progress`).
            dry_run: Change nothing; the result lists what would be flushed, and why what is left alone is.
            **commit: As in :meth:`merge_adjacent_files`.

        Raises:
            NotFoundError: No such table or schema.
        """
        from ducklake_core.maintenance.flush import flush_inlined_data
        from ducklake_core.maintenance.groups import Execution

        self._database.check_writable(dry_run=dry_run)
        request = _request(table, schema, tables, commit, progress, dry_run, max_rows=max_rows, max_seconds=max_seconds)
        execution = Execution(spark=spark, max_concurrency=max_concurrency)
        return flush_inlined_data(self._database, self._info, self._storage, request, execution=execution)

    def rewrite_data_files(  # noqa: PLR0913 - by name all of them
        self,
        table: str | None = None,
        *,
        schema: str | None = None,
        tables: str | Sequence[str] | None = None,
        delete_threshold: float | None = None,
        cluster_by: Sequence[str] = (),
        max_compacted_files: int | None = None,
        max_input_bytes: int | None = None,
        max_files: int | None = None,
        max_seconds: float | None = None,
        spark: SparkSession | None = None,
        max_concurrency: int | None = None,
        partial_progress: bool = False,
        progress: ProgressCallback | None = None,
        dry_run: bool = False,
        **commit: Unpack[CommitMessage],
    ) -> RewriteResult:
        """Write files anew of which many rows are deleted, without these rows: one snapshot per table that has such files.

        Row ids stay as they are, earlier snapshots keep reading the old files until they expire, and the change feed tells of nothing.
        Files of one partition are written together, up to the option ``target_file_size``, in the table's sort order as far as Arrow
        can sort by it; small files without deleted rows that lie next to them join, as long as they fit into that size. A table whose
        option ``auto_compact`` is false is left alone. A table that fails is reported in the result and does not stop the others. Rows
        that others add meanwhile are no matter; when they delete from the same files, the table is planned again.

        Args:
            table: ``table`` or ``schema.table``; all tables when not given.
            schema: Only tables of this schema.
            tables: Instead of both, names with wildcards, as in :meth:`merge_adjacent_files`.
            delete_threshold: Part of a file's rows, 0 to 1, that must be deleted; 0 takes every file with a deleted row. The option
                ``rewrite_delete_threshold`` of the table, schema or lake, or 0.95, when not given.
            max_compacted_files: Most groups of files to write anew for each table; a group becomes one file, or a few.
            max_input_bytes: Most bytes of files to read, over all tables; what does not fit is a skipped step.
            max_files: Most files to read, likewise.
            max_seconds: Seconds after which no further group of files is begun; what was written is committed.
            cluster_by: Columns, at most 8, by which all files of ``table`` (or ``tables``) are written anew where ranges of them touch
                many more files than they have to: rows lie along a Hilbert curve (in the order of the column, where it is one), in
                place of the table's sort order. The result says what is gained; a run leaves alone what an earlier one has clustered.
            spark: Session whose executors do the work, a group of files each; without it this process does.
            max_concurrency: Most groups of files at a time, on threads of this process or as jobs of Spark. When not given, one in
                this process, and on Spark all groups of a table as one job.
            partial_progress: Commit each group of files as soon as it is done, as a snapshot of its own, instead of all groups of a
                table together. What is committed stays when the run is interrupted, and the next run does the rest.
            progress: Is told how far the verb is (:class:`Progress`).
            dry_run: Change nothing; the result lists what would be rewritten, and why what is left alone is.
            **commit: As in :meth:`merge_adjacent_files`.

        Raises:
            NotFoundError: No such table or schema.
            UsageError: A threshold that is not between 0 and 1, columns to cluster by without a table, or too many of them.
            UnsupportedFeatureError: Columns to cluster by of a type that files have no bounds for.
        """
        from ducklake_core.maintenance.groups import Execution
        from ducklake_core.maintenance.rewrite import RewriteLimits, rewrite_data_files

        self._database.check_writable(dry_run=dry_run)
        columns = _columns(cluster_by, table, tables)
        limits = RewriteLimits(delete_threshold=delete_threshold, max_compacted_files=max_compacted_files, cluster_by=columns)
        request = _request(
            table, schema, tables, commit, progress, dry_run, max_input_bytes=max_input_bytes, max_files=max_files, max_seconds=max_seconds
        )
        execution = Execution(spark=spark, max_concurrency=max_concurrency, partial_progress=partial_progress)
        return rewrite_data_files(self._database, self._info, self._storage, request, limits=limits, execution=execution)

    def checkpoint(
        self,
        *,
        tables: str | Sequence[str] | None = None,
        max_input_bytes: int | None = None,
        max_files: int | None = None,
        max_seconds: float | None = None,
        keep_last: int | None = None,
        min_age: timedelta | str = timedelta(hours=1),
        spark: SparkSession | None = None,
        max_concurrency: int | None = None,
        partial_progress: bool = False,
        progress: ProgressCallback | None = None,
        dry_run: bool = False,
        **commit: Unpack[CommitMessage],
    ) -> CheckpointResult:
        """Run the recommended round of maintenance, in DuckDB's order, each verb with its defaults.

        That is :meth:`flush_inlined_data`, :meth:`expire_snapshots` (if the option ``expire_older_than`` is set),
        :meth:`merge_adjacent_files`, :meth:`rewrite_data_files`, :meth:`cleanup_old_files` and :meth:`delete_orphaned_files`. What
        they do is said by the options of the lake, its schemas and its tables: ``auto_compact``, ``target_file_size``,
        ``rewrite_delete_threshold``, ``expire_older_than``, ``delete_older_than``. A table that fails, or a verb, is reported in the
        result and stops nothing else.

        Args:
            tables: Names with wildcards, as in :meth:`merge_adjacent_files`: the tables to flush, merge and rewrite. The other verbs
                are about the whole lake all the same.
            max_input_bytes: Most bytes of data files that merging and rewriting read together.
            max_files: Most data files that they read together.
            max_seconds: Seconds after which nothing further is begun, be it a verb, a table, a file or a batch of deletions.
            keep_last: Number of newest snapshots that stay whatever their age, at least 1. Where the option ``expire_older_than`` is
                not set, all others that are older than ``min_age`` expire. None, the default: snapshots expire by the option alone.
            min_age: Floor under the ages of snapshots and files that go, as in the verbs.
            spark: Session whose executors flush, merge and rewrite; without it this process does.
            max_concurrency: As in :meth:`merge_adjacent_files`, and likewise ``partial_progress``.
            partial_progress: Whether merging and rewriting commit each group of files as soon as it is done.
            progress: Is told how far the verb is (:class:`Progress`).
            dry_run: Change nothing; the result lists what each verb would do to the lake as it is now.
            **commit: As in :meth:`merge_adjacent_files`.

        Raises:
            NotFoundError: No table of a name without wildcards.
        """
        from ducklake_core.maintenance.checkpoint import checkpoint
        from ducklake_core.maintenance.groups import Execution

        self._database.check_writable(dry_run=dry_run)
        request = _request(
            None, None, tables, commit, progress, dry_run, max_input_bytes=max_input_bytes, max_files=max_files, max_seconds=max_seconds
        )
        execution = Execution(spark=spark, max_concurrency=max_concurrency, partial_progress=partial_progress)
        return checkpoint(self._database, self._info, self._storage, request, keep_last=keep_last, min_age=min_age, execution=execution)


def _columns(cluster_by: Sequence[str], table: str | None, tables: str | Sequence[str] | None) -> tuple[str, ...]:
    if cluster_by and table is None and tables is None:
        raise UsageError("cluster_by names columns of certain tables: give table or tables as well", parameter="cluster_by")
    return tuple(cluster_by)


def _request(
    table: str | None,
    schema: str | None,
    tables: str | Sequence[str] | None,
    commit: CommitMessage,
    progress: ProgressCallback | None,
    dry_run: bool,
    *,
    max_input_bytes: int | None = None,
    max_files: int | None = None,
    max_rows: int | None = None,
    max_seconds: float | None = None,
) -> TableRequest:
    from ducklake_core.maintenance.request import Budget, BudgetMeter, ProgressMeter, TableRequest, TableScope

    budget = Budget(max_input_bytes=max_input_bytes, max_files=max_files, max_rows=max_rows, max_seconds=max_seconds)
    return TableRequest(
        # One text is one name, and DuckLake's public methods have made a tuple of it.
        scope=TableScope(table=table, schema=schema, tables=None if tables is None else tuple(tables)),
        meter=BudgetMeter(budget),
        commit=commit,
        progress=ProgressMeter(progress),
        dry_run=dry_run,
    )
