"""The maintenance verbs of a lake, under DuckDB's names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ducklake_core.catalog.database.connections import Database
from ducklake_core.format.state import LakeInfo
from ducklake_core.storage.filesystems import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_core.maintenance.check.findings import CheckLevel, CheckResult
    from ducklake_core.maintenance.checkpoint import CheckpointResult
    from ducklake_core.maintenance.cleanup import CleanupResult
    from ducklake_core.maintenance.expire import ExpiryResult
    from ducklake_core.maintenance.flush import FlushResult
    from ducklake_core.maintenance.health import LakeHealth
    from ducklake_core.maintenance.merge import MergeResult
    from ducklake_core.maintenance.migrate import MigrationResult
    from ducklake_core.maintenance.orphans import OrphansResult
    from ducklake_core.maintenance.rewrite import RewriteResult


class MaintenanceVerbs:
    """Verbs that keep a lake small and fast. Part of :class:`~ducklake_core.lake.DuckLake`."""

    _database: Database
    _info: LakeInfo
    _storage: Storage

    def create_indexes(self) -> tuple[str, ...]:
        """Make the indexes that :meth:`~ducklake_core.lake.DuckLake.create` makes, in a lake that another program created.

        They are not part of the format; DuckDB reads and writes beside them. With them, planning looks at the statistics
        of the columns of its predicate alone, and what is done to one table takes no longer when the lake has thousands of
        others. In databases where indexes are of no use (DuckDB files) nothing happens.

        Returns:
            Names of the indexes that are there now.

        Raises:
            CatalogError: The database refused, for lack of a privilege perhaps.
        """
        from ducklake_core.catalog.database.indexes import create_indexes
        from ducklake_core.maintenance.attempts import run_write

        self._database.check_not_read_only()
        if not self._database.abilities.has_useful_indexes:
            return ()

        def attempt() -> tuple[str, ...]:
            with self._database.write() as connection:
                return create_indexes(connection, self._database.tables)

        return run_write(attempt, "create indexes")

    def migrate(self, *, allow_history_loss: bool = False, dry_run: bool = False) -> MigrationResult:
        """Bring the catalog of an earlier version (0.1 to 0.4) to version 1.0, in one transaction of the catalog.

        Every snapshot shows the same rows afterwards. No data file is written or moved. Run it with ``dry_run`` first, back up the
        catalog, and stop writers of the old version: they cannot work with the new one. A lake object that was opened before must
        be opened again, except this one.

        Args:
            allow_history_loss: Migrate even if merged files (of nobody's known writing) do not store the snapshot with each row, or
                are missing: snapshots before the merge then show all of their rows.
            dry_run: Change nothing; the result lists the steps.

        Raises:
            UnsupportedFeatureError: Such files exist, and the loss is not allowed; nothing was changed.
            CatalogCorruptError: The tables are not those of the version that the catalog tells; nothing was changed.
        """
        from ducklake_core.maintenance.migrate import migrate

        if not dry_run:
            self._database.check_not_read_only()
        result = migrate(self._database, self._info, self._storage, allow_history_loss=allow_history_loss, dry_run=dry_run)
        if result.done_before or not dry_run:
            self._database.follow(None)
            self._info = replace(self._info, version=result.version)
        return result

    def health(self, *, small_file_size: int = 16 << 20) -> LakeHealth:
        """Count what grows and what slows reads down: small files, deleted and inlined rows, snapshots, scheduled files, and faults.

        The catalog alone is asked, with a number of statements that depends on neither tables nor files nor snapshots.

        Args:
            small_file_size: Bytes below which a data file counts as small.

        Returns:
            The numbers of the newest snapshot, which print themselves; ``to_arrow()`` and ``to_openmetrics()`` give them to others.

        Raises:
            UsageError: A size below 1.
        """
        from ducklake_core.maintenance.health import measure_health

        return measure_health(self._database, small_file_size=small_file_size)

    def check(self, *, level: CheckLevel = "catalog", repair: bool = False) -> CheckResult:
        """Look for everything in a lake that is not as it must be, without changing anything, and on request mend what is safe to mend.

        Args:
            level: ``catalog`` holds the rows of the catalog against each other, ``footers`` also opens every file that the catalog
                names and lists what else is below the data path, ``rows`` also reads all rows of all live tables, in this process.
            repair: Mend findings that say ``is_repairable``, in one transaction, as a snapshot that changes no row: statistics and
                bounds that leave rows out are widened or forgotten, rows that belong to nothing are deleted, files that the lake
                needs are taken out of the schedule for deletion. No file is touched.

        Returns:
            What was found and, with ``repair``, what was done; it prints itself. Findings are those before the repair.

        Raises:
            UsageError: No such level, or a repair of a lake that was opened to be read only.
        """
        from ducklake_core.maintenance.check.run import check_lake

        return check_lake(self._database, self._info, self._storage, level=level, repair=repair)

    def expire_snapshots(
        self,
        *,
        older_than: timedelta | str | datetime | None = None,
        versions: Iterable[int] | None = None,
        keep_last: int = 1,
        min_age: timedelta | str = timedelta(hours=1),
        dry_run: bool = False,
    ) -> ExpiryResult:
        """Forget old snapshots, and schedule the files that only they read for deletion. No file is deleted yet.

        Everything happens in one catalog transaction, next to writers that are committing. The newest snapshot always stays.

        Args:
            older_than: Age (a timedelta, or a text such as ``"7 days"``), or point in time (aware), before which snapshots expire, the
                bound itself excluded. The option ``expire_older_than`` when nothing is given.
            versions: Exactly these snapshots instead, whatever their age.
            keep_last: Newest snapshots that stay whatever their age.
            min_age: Floor under ``older_than``: a nearer bound is refused, because running queries and writes may use what is
                younger. Lower it only when you know that nothing runs.
            dry_run: Change nothing; the result lists what would go, and why.

        Raises:
            UsageError: The arguments contradict each other or the floor, or name the newest snapshot.
            NotFoundError: A snapshot of ``versions`` does not exist.
        """
        from ducklake_core.maintenance.expire import expire_snapshots

        self._database.check_writable(dry_run=dry_run)
        return expire_snapshots(
            self._database,
            self._info,
            older_than=older_than,
            versions=versions,
            keep_last=keep_last,
            min_age=min_age,
            dry_run=dry_run,
        )

    def cleanup_old_files(
        self,
        *,
        older_than: timedelta | str | datetime | None = None,
        min_age: timedelta | str = timedelta(hours=1),
        dry_run: bool = False,
    ) -> CleanupResult:
        """Delete the files that expiry and compaction scheduled for deletion long enough ago. Makes no snapshot.

        A file that is missing already counts as deleted; one that cannot be deleted is reported and stays scheduled; one that
        the catalog still names is kept. So is a file outside of the data path that has another name than DuckLake's writers give,
        unless its place is one of the ``allowed_paths`` of :meth:`~ducklake_core.lake.DuckLake.connect`: files of others that were added
        (:meth:`Table.add_data_files`), and whatever somebody else may have written into the schedule.

        Args:
            older_than: Time since a file was scheduled (a timedelta, or a text such as ``"7 days"``), or a point in time (aware), the
                bound excluded; the option ``delete_older_than``, or 2 days, when not given. Queries that began before then may still
                read the files.
            min_age: Floor under ``older_than``: a nearer bound is refused. Lower it only when you know that nothing runs.
            dry_run: Delete nothing; the result lists what would go.

        Raises:
            UsageError: The bound is nearer than the floor.
        """
        from ducklake_core.maintenance.cleanup import cleanup_old_files

        self._database.check_writable(dry_run=dry_run)
        return cleanup_old_files(self._database, self._info, self._storage, older_than=older_than, min_age=min_age, dry_run=dry_run)

    def delete_orphaned_files(
        self,
        *,
        older_than: timedelta | str | datetime | None = None,
        min_age: timedelta | str = timedelta(hours=1),
        every_parquet: bool = False,
        dry_run: bool = False,
    ) -> OrphansResult:
        """Delete files below the data path that the catalog does not name: what killed writers left behind. Makes no snapshot.

        On S3 uploads that are as old and that nobody finished are aborted, so that the store deletes the parts that it has of them.

        A file is kept when any data file, delete file or scheduled file of the catalog has its name, in whatever directory, so
        that another spelling of the data path cannot make live files look orphaned. **Files of a write that is still running
        look like orphans**, and so do those of another lake with the same data path: only age tells the first apart, nothing
        the second.

        Args:
            older_than: Time since a file was last changed (a timedelta, or a text such as ``"7 days"``), or a point in time (aware),
                the bound excluded; the option ``delete_older_than``, or 2 days, when not given. Longer than the longest write takes.
            min_age: Floor under ``older_than``: a nearer bound is refused. Lower it only when you know that nothing runs.
            every_parquet: Whether files that are not called as DuckLake's writers call theirs go too if they end in ``.parquet``,
                as they do in DuckDB.
            dry_run: Delete nothing; the result lists what would go.

        Raises:
            UsageError: The bound is nearer than the floor.
            StorageError: The data path cannot be listed.
        """
        from ducklake_core.maintenance.orphans import delete_orphaned_files

        self._database.check_writable(dry_run=dry_run)
        return delete_orphaned_files(
            self._database,
            self._info,
            self._storage,
            older_than=older_than,
            min_age=min_age,
            every_parquet=every_parquet,
            dry_run=dry_run,
        )

    def merge_adjacent_files(
        self,
        table: str | None = None,
        *,
        schema: str | None = None,
        max_compacted_files: int | None = None,
        min_file_size: int | None = None,
        max_file_size: int | None = None,
        spark: SparkSession | None = None,
        dry_run: bool = False,
    ) -> MergeResult:
        """Merge small files into larger ones, up to the option ``target_file_size``: one snapshot per table that has work.

        Rows, row ids and what earlier snapshots show stay as they are. The sources are scheduled for deletion at once, so
        run :meth:`cleanup_old_files` only with an age that running queries do not exceed. Files with deletes are left alone, and
        so are tables whose option ``auto_compact`` is false. A table that fails, or that another writer changes meanwhile, is
        reported in the result and does not stop the others.

        Args:
            table: ``table`` or ``schema.table``; all tables when not given.
            schema: Only tables of this schema.
            max_compacted_files: Most files to make for each table.
            min_file_size: Bytes; smaller files are left alone.
            max_file_size: Bytes; files of this size or larger are left alone.
            spark: Session whose executors do the work, a group of files each; without it this process does.
            dry_run: Change nothing; the result lists what would be merged, and why what is left alone is.

        Raises:
            NotFoundError: No such table or schema.
            UsageError: Bounds that contradict each other.
        """
        from ducklake_core.maintenance.merge import merge_adjacent_files
        from ducklake_core.maintenance.merge_plan import MergeLimits

        self._database.check_writable(dry_run=dry_run)
        limits = MergeLimits(max_compacted_files=max_compacted_files, min_file_size=min_file_size, max_file_size=max_file_size)
        return merge_adjacent_files(
            self._database, self._info, self._storage, table=table, schema=schema, limits=limits, spark=spark, dry_run=dry_run
        )

    def flush_inlined_data(self, table: str | None = None, *, schema: str | None = None, dry_run: bool = False) -> FlushResult:
        """Move rows and deletes that the catalog itself holds to files: one snapshot per table that has any.

        Rows, row ids, what earlier snapshots show and the change feed stay as they are. Files follow the partition keys that the rows
        were inserted under, and the table's sort order as far as Arrow can sort by it. A table whose option ``auto_compact`` is false
        is left alone. A table that fails is reported in the result and does not stop the others; rows that other writers add
        meanwhile stay inlined, and when they change some, the table is planned again.

        Args:
            table: ``table`` or ``schema.table``; all tables when not given.
            schema: Only tables of this schema.
            dry_run: Change nothing; the result lists what would be flushed, and why what is left alone is.

        Raises:
            NotFoundError: No such table or schema.
        """
        from ducklake_core.maintenance.flush import flush_inlined_data

        self._database.check_writable(dry_run=dry_run)
        return flush_inlined_data(self._database, self._info, self._storage, table=table, schema=schema, dry_run=dry_run)

    def rewrite_data_files(
        self, table: str | None = None, *, schema: str | None = None, delete_threshold: float | None = None, dry_run: bool = False
    ) -> RewriteResult:
        """Write files anew of which many rows are deleted, without these rows: one snapshot per table that has such files.

        Row ids stay as they are, earlier snapshots keep reading the old files until they expire, and the change feed tells of nothing.
        Files of one partition are written together, up to the option ``target_file_size``, in the table's sort order as far as Arrow
        can sort by it. A table whose option ``auto_compact`` is false is left alone. A table that fails is reported in the result and
        does not stop the others. Rows that others add meanwhile are no matter; when they delete from the same files, the table is
        planned again.

        Args:
            table: ``table`` or ``schema.table``; all tables when not given.
            schema: Only tables of this schema.
            delete_threshold: Part of a file's rows, 0 to 1, that must be deleted; 0 takes every file with a deleted row. The option
                ``rewrite_delete_threshold`` of the table, schema or lake, or 0.95, when not given.
            dry_run: Change nothing; the result lists what would be rewritten, and why what is left alone is.

        Raises:
            NotFoundError: No such table or schema.
            UsageError: A threshold that is not between 0 and 1.
        """
        from ducklake_core.maintenance.rewrite import rewrite_data_files

        self._database.check_writable(dry_run=dry_run)
        return rewrite_data_files(
            self._database, self._info, self._storage, table=table, schema=schema, delete_threshold=delete_threshold, dry_run=dry_run
        )

    def checkpoint(
        self, *, min_age: timedelta | str = timedelta(hours=1), spark: SparkSession | None = None, dry_run: bool = False
    ) -> CheckpointResult:
        """Run the recommended round of maintenance, in DuckDB's order, each verb with its defaults.

        That is :meth:`flush_inlined_data`, :meth:`expire_snapshots` (if the option ``expire_older_than`` is set),
        :meth:`merge_adjacent_files`, :meth:`rewrite_data_files`, :meth:`cleanup_old_files` and :meth:`delete_orphaned_files`. What
        they do is said by the options of the lake, its schemas and its tables: ``auto_compact``, ``target_file_size``,
        ``rewrite_delete_threshold``, ``expire_older_than``, ``delete_older_than``. A table that fails, or a verb, is reported in the
        result and stops nothing else.

        Args:
            min_age: Floor under the ages of snapshots and files that go, as in the verbs.
            spark: Session whose executors merge files; without it this process does.
            dry_run: Change nothing; the result lists what each verb would do to the lake as it is now.
        """
        from ducklake_core.maintenance.checkpoint import checkpoint

        self._database.check_writable(dry_run=dry_run)
        return checkpoint(self._database, self._info, self._storage, min_age=min_age, spark=spark, dry_run=dry_run)
