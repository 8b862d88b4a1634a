"""Migrate a lake to a later catalog version, in one catalog transaction. No data file is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.failures import RetryPolicy
from ducklake_core.catalog.migrations.run import migrate_catalog, present_layout, stored_version
from ducklake_core.catalog.migrations.steps import CountedFile, Step, counted_files, steps_between
from ducklake_core.errors import CommitRetriesExhaustedError, NotFoundError, StorageError, UnsupportedFeatureError
from ducklake_core.format.files.data_files import SNAPSHOT_ID_FIELD_ID
from ducklake_core.format.state import LakeInfo
from ducklake_core.format.types.text import counted, short_repr
from ducklake_core.format.versions import FormatVersion
from ducklake_core.maintenance.groups import run_write
from ducklake_core.maintenance.request import MAX_LINES, listed, more_files
from ducklake_core.storage.filesystems import Storage, printable
from ducklake_core.storage.parquet_files import read_footer

_PARALLEL_FOOTERS = 16
_PLANS = RetryPolicy(max_attempts=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationResult:
    """The plan or outcome of a migration. Printing it shows the steps.

    Attributes:
        dry_run: Whether this is only the plan.
        former: Version before the migration.
        version: Version after the migration.
        steps: Descriptions of the steps, in order; empty if the catalog already has the version.
        checked: Number of files with rows of several snapshots, which were opened to check that they store the snapshot of each row.
        forgotten: Paths of those that do not, so that earlier snapshots show all of their rows afterwards.
        done_before: Whether another process has already migrated the lake.
    """

    dry_run: bool
    former: str
    version: str
    steps: tuple[str, ...] = ()
    checked: int = 0
    forgotten: tuple[str, ...] = ()
    done_before: bool = False

    def lines(self) -> list[str]:
        """Return a line for each step, and a summary."""
        return self._lines(None)

    def brief_lines(self) -> list[str]:
        """Return the lines of :meth:`lines`, but only the first and last few of many files whose rows lose their history."""
        return self._lines(MAX_LINES)

    def _lines(self, most: int | None) -> list[str]:
        if self.done_before:
            return [f"another process has migrated the catalog from version {self.former} to {self.version} meanwhile"]
        if not self.steps:
            return [f"the catalog already has version {self.version}"]
        would = "would migrate" if self.dry_run else "migrated"
        lines = [f"  {step}" for step in self.steps]
        lines += listed(self.forgotten, lambda path: f"  lose the snapshots of the rows of {path}", most, more_files)
        return [*lines, f"{would} from version {self.former} to {self.version} in {counted(len(self.steps), 'step')}"]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = short_repr


def migrate(
    database: Database, info: LakeInfo, storage: Storage, *, target: FormatVersion, allow_history_loss: bool, dry_run: bool
) -> MigrationResult:
    """Plan the migration, and run it unless ``dry_run`` is set; see ``DuckLake.migrate`` for the parameters."""
    former = database.version
    if former.name == target.name:
        return MigrationResult(dry_run=dry_run, former=former.name, version=target.name)
    if former.number > target.number:
        raise UnsupportedFeatureError(
            f"Lake {database.address} has version {former} and cannot be migrated back to {target}. Choose a later version",
            found=former.name,
            wanted=target.name,
        )
    result = MigrationResult(dry_run=dry_run, former=former.name, version=target.name)
    storing: dict[int, bool] = {}
    plans = _PLANS.attempts()
    while True:
        with database.read() as connection:
            if stored_version(connection, database) == target.name:
                return replace(result, done_before=True)
            files = counted_files(connection, database.tables, info)
        if not info.encrypted:
            # Every release that merges files stores the snapshot with each row. This is assumed if it cannot be checked: a reader rejects
            # a file without snapshots.
            storing |= _find_stored_snapshots([file for file in files if file.id not in storing], storage)
        silent = [file for file in files if not storing.get(file.id, True)]
        lost = tuple(printable(file.path) for file in silent if file.has_visible_history)
        if lost and not allow_history_loss:
            raise _history_would_be_lost(database, target, lost)
        result = replace(result, checked=len(storing), forgotten=lost)
        forgotten = tuple(file.id for file in silent)
        if dry_run:
            with database.read() as connection:
                layout = present_layout(connection, database)
                return replace(result, steps=_words(steps_between(connection, database, info, layout, target, forgotten)))
        attempt = partial(migrate_catalog, database, info, target, frozenset(file.id for file in files), forgotten)
        outcome = run_write(attempt, f"migrate {database.address}")
        if outcome == "done before":
            return replace(result, done_before=True)
        if outcome != "other files":
            return replace(result, steps=_words(outcome))
        if not plans.again():
            raise CommitRetriesExhaustedError(
                f"Lake {database.address} was not migrated, because writers of version {former} kept adding files. Stop them, and try again"
            )


def _words(steps: Iterable[Step]) -> tuple[str, ...]:
    return tuple(str(step) for step in steps)


def _find_stored_snapshots(files: Sequence[CountedFile], storage: Storage) -> dict[int, bool]:
    """Return whether each file stores the snapshot with each row, by file id. A file that cannot be read counts as not storing it."""

    def stores_snapshots(file: CountedFile) -> bool:
        try:
            columns = read_footer(storage, file.path).columns
        except (NotFoundError, StorageError):
            return False
        return any(column.field_id == SNAPSHOT_ID_FIELD_ID for column in columns)

    with ThreadPoolExecutor(_PARALLEL_FOOTERS) as pool:
        return dict(zip((file.id for file in files), pool.map(stores_snapshots, files), strict=True))


def _history_would_be_lost(database: Database, target: FormatVersion, lost: Sequence[str]) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"Lake {database.address} was not migrated: all rows of {counted(len(lost), 'merged file')} would become visible "
        "at every snapshot, "
        f"because they are missing or do not store the snapshot with each row, which version {target} needs: {', '.join(lost[:3])}"
        f"{' ...' if len(lost) > 3 else ''}. Expire the snapshots before the merge first, or set allow_history_loss",
        parameter="allow_history_loss",
        paths=tuple(lost),
    )
