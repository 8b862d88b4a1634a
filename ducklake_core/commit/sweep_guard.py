"""Keep a commit from adding files that a sweep has deleted since their footers were read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.statements import Statements
from ducklake_core.catalog.writing.sweep_mark import sweep_mark
from ducklake_core.commit.actions import Action, AddFiles
from ducklake_core.errors import CatalogUnavailableError


class SweepGuard:
    """Compares the mark of sweeps before the files are read with the mark in the transaction that commits them.

    Args:
        database: The catalog.
        check_there: Raises an error when one of some files is missing.
    """

    def __init__(self, database: Database, check_there: Callable[[Sequence[str]], None]) -> None:
        self._database = database
        self._check_there = check_there
        self._is_open = False
        self._mark: str | None = None
        self._is_stale = False

    def begin(self) -> None:
        """Note the mark, before the first file is read."""
        if not self._is_open:
            self._mark, self._is_open = self._read(), True

    def _read(self) -> str | None:
        with self._database.read() as connection:
            found: str | None = connection.execute(sweep_mark(self._database.tables)).scalar()
            return found

    def before_attempt(self, actions: Sequence[Action]) -> None:
        """After a changed mark, check the store for the files. Called while no transaction is open.

        Raises:
            NotFoundError: A file was deleted.
        """
        if self._is_stale:
            self._mark = self._read()
            self._check_there(_paths(actions))
            self._is_stale = False

    def check(self, statements: Statements, actions: Sequence[Action]) -> None:
        """Compare the marks in the transaction that adds the files, after its first change: no sweep runs from there to its end.

        Raises:
            CatalogUnavailableError: They differ; the next attempt checks the store first.
        """
        if not self._is_open or not _paths(actions):
            return
        found = statements.ask("sweep mark", lambda: sweep_mark(self._database.tables))()
        if (found[0].value if found else None) != self._mark:
            self._is_stale = True
            raise CatalogUnavailableError("another operation deleted files while files were being added", failure="retry")


def _paths(actions: Sequence[Action]) -> list[str]:
    return [file.full_path for action in actions if isinstance(action, AddFiles) for file, _ in action.files]
