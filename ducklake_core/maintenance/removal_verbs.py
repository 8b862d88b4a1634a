"""The maintenance verbs of a lake that forget and delete, under DuckDB's names."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ducklake_core.maintenance.lake_verbs import LakeVerbs

if TYPE_CHECKING:
    from ducklake_core.maintenance.cleanup import CleanupResult
    from ducklake_core.maintenance.expire import ExpiryResult
    from ducklake_core.maintenance.orphans import OrphansResult
    from ducklake_core.maintenance.request import ProgressCallback


class RemovalVerbs(LakeVerbs):
    """Verbs that forget snapshots and delete files. Part of :class:`~ducklake_core.lake.DuckLake`."""

    def expire_snapshots(
        self,
        *,
        older_than: timedelta | str | datetime | None = None,
        versions: Iterable[int] | None = None,
        keep_last: int | None = None,
        min_age: timedelta | str = timedelta(hours=1),
        progress: ProgressCallback | None = None,
        dry_run: bool = False,
    ) -> ExpiryResult:
        """Forget old snapshots, and schedule the files that only they read for deletion. No file is deleted yet.

        Everything happens in one catalog transaction, next to writers that are committing. The newest snapshot always stays.

        Args:
            older_than: Age (a timedelta, or a text such as ``"7 days"``), or point in time (aware), before which snapshots expire, the
                bound itself excluded. The option ``expire_older_than`` when None.
            versions: Exactly these snapshots instead.
            keep_last: Number of newest snapshots that stay whatever their age, at least 1. Without an age, all others that are older
                than ``min_age`` expire: 1 keeps the newest snapshot alone. None keeps the newest one and selects nothing.
            min_age: Floor under ``older_than`` and the ages of ``versions``: what is nearer is refused, because running queries and
                writes may use it. Lower it only when you know that nothing runs; zero is no floor.
            progress: Is told how far the verb is (:class:`Progress`).
            dry_run: Change nothing; the result lists what would go, and why.

        Raises:
            UsageError: The arguments contradict each other or the floor, or name the newest snapshot.
            NotFoundError: A snapshot of ``versions`` does not exist.
        """
        from ducklake_core.maintenance.expire import expire_snapshots
        from ducklake_core.maintenance.request import ProgressMeter

        self._database.check_writable(dry_run=dry_run)
        return expire_snapshots(
            self._database,
            self._info,
            older_than=older_than,
            versions=versions,
            keep_last=keep_last,
            min_age=min_age,
            dry_run=dry_run,
            progress=ProgressMeter(progress),
        )

    def cleanup_old_files(
        self,
        *,
        older_than: timedelta | str | datetime | None = None,
        cleanup_all: bool = False,
        min_age: timedelta | str = timedelta(hours=1),
        max_files: int | None = None,
        max_seconds: float | None = None,
        progress: ProgressCallback | None = None,
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
            cleanup_all: Take all of them, whatever their age: needs ``min_age="0 seconds"``.
            min_age: Floor under ``older_than``: a nearer bound is refused. Lower it only when you know that nothing runs.
            max_files: Most files to delete; what is beyond it is a skipped step, and left to the next call.
            max_seconds: Seconds after which no further batch of files is deleted, likewise.
            progress: Is told how far the verb is (:class:`Progress`).
            dry_run: Delete nothing; the result lists what would go.

        Raises:
            UsageError: The bound is nearer than the floor, or given beside ``cleanup_all``.
        """
        from ducklake_core.maintenance.cleanup import cleanup_old_files
        from ducklake_core.maintenance.request import Budget, BudgetMeter, ProgressMeter

        self._database.check_writable(dry_run=dry_run)
        return cleanup_old_files(
            self._database,
            self._info,
            self._storage,
            older_than=older_than,
            cleanup_all=cleanup_all,
            min_age=min_age,
            dry_run=dry_run,
            progress=ProgressMeter(progress),
            budget=BudgetMeter(Budget(max_files=max_files, max_seconds=max_seconds)),
        )

    def delete_orphaned_files(
        self,
        *,
        older_than: timedelta | str | datetime | None = None,
        cleanup_all: bool = False,
        min_age: timedelta | str = timedelta(hours=1),
        every_parquet: bool = False,
        max_files: int | None = None,
        max_seconds: float | None = None,
        progress: ProgressCallback | None = None,
        dry_run: bool = False,
    ) -> OrphansResult:
        """Delete files below the data path that the catalog does not name: what killed writers left behind. Makes no snapshot.

        On S3 uploads that are as old and that nobody finished are aborted, so that the store deletes the parts that it has of them.

        A file is kept when any data file, delete file or scheduled file of the catalog has its name, in whatever directory, so
        that another spelling of the data path cannot make live files look orphaned. Files of a write that has said that it runs stay too.
        **Those of a write that has just begun, or of DuckDB's, look like orphans**, and so do those of another lake with the same data
        path: only age tells the first apart, nothing the second.

        Args:
            older_than: Time since a file was last changed (a timedelta, or a text such as ``"7 days"``), or a point in time (aware),
                the bound excluded; the option ``delete_older_than``, or 2 days, when not given. Longer than the longest write takes.
            cleanup_all: Take all of them, whatever their age: needs ``min_age="0 seconds"``.
            min_age: Floor under ``older_than``: a nearer bound is refused. Lower it only when you know that nothing runs.
            every_parquet: Whether files that are not called as DuckLake's writers call theirs go too if they end in ``.parquet``,
                as they do in DuckDB.
            max_files: Most files to delete; what is beyond it is a skipped step, and left to the next call.
            max_seconds: Seconds after which no further batch of 500 files is deleted and no further upload aborted, likewise; the
                first goes even if listing took longer.
            progress: Is told how far the verb is (:class:`Progress`).
            dry_run: Delete nothing; the result lists what would go.

        Raises:
            CatalogCorruptError: The row of a running write, or of an option, cannot be read.
            UsageError: The bound is nearer than the floor, or given beside ``cleanup_all``.
            StorageError: The data path cannot be listed.
        """
        from ducklake_core.maintenance.orphans import delete_orphaned_files
        from ducklake_core.maintenance.request import Budget, BudgetMeter, ProgressMeter

        self._database.check_writable(dry_run=dry_run)
        return delete_orphaned_files(
            self._database,
            self._info,
            self._storage,
            older_than=older_than,
            cleanup_all=cleanup_all,
            min_age=min_age,
            every_parquet=every_parquet,
            dry_run=dry_run,
            progress=ProgressMeter(progress),
            budget=BudgetMeter(Budget(max_files=max_files, max_seconds=max_seconds)),
        )
