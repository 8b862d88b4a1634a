"""Verbs about a lake as a whole: indexes of its catalog, migration, gauges and checks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Unpack

from ducklake_core.catalog.database.connections import Database
from ducklake_core.format.state import LakeInfo
from ducklake_core.format.versions import migration_target, writable_version
from ducklake_core.storage.filesystems import Storage

if TYPE_CHECKING:
    from ducklake_core.commit.request import CommitMessage
    from ducklake_core.maintenance.check.findings import CheckLevel, CheckResult
    from ducklake_core.maintenance.health import LakeHealth
    from ducklake_core.maintenance.migrate import MigrationResult
    from ducklake_core.maintenance.request import ProgressCallback


class LakeVerbs:
    """Verbs about a lake as a whole. Part of :class:`~ducklake_core.lake.DuckLake`."""

    _database: Database
    _info: LakeInfo
    _storage: Storage

    def _forget_definitions(self) -> None:
        """Read definitions of tables anew from now on."""
        raise NotImplementedError

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
        from ducklake_core.catalog.database.tables import create_indexes
        from ducklake_core.maintenance.groups import run_write

        self._database.check_not_read_only()
        if not self._database.abilities.has_useful_indexes:
            return ()

        def attempt() -> tuple[str, ...]:
            with self._database.write() as connection:
                return create_indexes(connection, self._database.tables)

        return run_write(attempt, "create indexes")

    def migrate(
        self, to: Literal["1.0", "1.1"] | None = None, *, allow_history_loss: bool = False, dry_run: bool = False
    ) -> MigrationResult:
        """Bring the catalog to a later version, in one transaction of the catalog. There is no way back.

        Every snapshot shows the same rows afterwards. No data file is written or moved. Run it with ``dry_run`` first, back up the
        catalog, and stop writers of the old version: they cannot work with the new one. A lake object that was opened before must
        be opened again, except this one: until then its calls fail with :class:`CatalogVersionError`.

        Args:
            to: The version that is wanted. None is 1.0 for a lake of an earlier version, 1.1 for one of 1.1-dev1, and nothing to do for
                the others: nobody is brought to 1.1 unasked.
            allow_history_loss: Migrate even if merged files (of nobody's known writing) do not store the snapshot with each row, or
                are missing: snapshots before the merge then show all of their rows.
            dry_run: Change nothing; the result lists the steps.

        Raises:
            UnsupportedFeatureError: Such files exist, and the loss is not allowed; a table of inlined rows has a column of a name that
                version 1.1 reserves; the version that is wanted is an earlier one. Nothing was changed.
            CatalogVersionError: There is no such version to write, or somebody else has migrated the lake.
            CatalogCorruptError: The tables are not those of the version that the catalog tells; nothing was changed.
        """
        from ducklake_core.maintenance.migrate import migrate

        if not dry_run:
            self._database.check_not_read_only()
        target = migration_target(self._database.version) if to is None else writable_version(to)
        result = migrate(self._database, self._info, self._storage, target=target, allow_history_loss=allow_history_loss, dry_run=dry_run)
        if result.done_before or not dry_run:
            self._database.follow(target)
            self._info = replace(self._info, version=target.name)
            # Definitions say what their version has.
            self._forget_definitions()
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

    def check(
        self,
        *,
        level: CheckLevel = "catalog",
        repair: bool = False,
        progress: ProgressCallback | None = None,
        **commit: Unpack[CommitMessage],
    ) -> CheckResult:
        """Look for everything in a lake that is not as it must be, without changing anything, and on request mend what is safe to mend.

        Args:
            level: ``catalog`` holds the rows of the catalog against each other, ``footers`` also opens every file that the catalog
                names and lists what else is below the data path, ``rows`` also reads all rows of all live tables, in this process.
            repair: Mend findings that say ``is_repairable``, in one transaction, as a snapshot that changes no row of a
                table: statistics and bounds that leave rows out are widened or forgotten, rows that belong to nothing are deleted,
                files that the lake needs are taken out of the schedule for deletion, and the drop of a schema that is not empty is
                taken back. No file is touched.
            progress: Is told how far the check is (:class:`Progress`).
            **commit: Author, message and extra information of the snapshot of a repair (:class:`CommitMessage`).

        Returns:
            What was found and, with ``repair``, what was done; it prints itself. Findings are those before the repair.

        Raises:
            UsageError: No such level, a repair of a lake that was opened to be read only, or ``commit`` without a repair.
        """
        from ducklake_core.maintenance.check.run import check_lake
        from ducklake_core.maintenance.request import ProgressMeter

        meter = ProgressMeter(progress)
        return check_lake(self._database, self._info, self._storage, level=level, repair=repair, progress=meter, commit=commit)
