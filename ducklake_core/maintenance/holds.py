"""Names on snapshots that expiry respects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import uuid4

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.reading.holds import Hold, delete_hold, read_holds, store_hold
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.writing.expiry import lock_snapshots
from ducklake_core.errors import AlreadyExistsError, DuckLakeError, NotFoundError, UsageError
from ducklake_core.format.checked_calls import checked
from ducklake_core.format.state import LakeInfo
from ducklake_core.format.types.ages import parse_age
from ducklake_core.format.types.instants import END, in_utc
from ducklake_core.format.types.names import folded
from ducklake_core.maintenance.attempts import run_write


@checked
class Holds:
    """Names on snapshots of a lake that must not expire. Made by :attr:`DuckLake.holds`.

    :meth:`DuckLake.expire_snapshots` keeps a held snapshot, with every file and definition that it needs, whatever else it is told.
    **DuckDB knows no holds**: its ``ducklake_expire_snapshots`` expires held snapshots as well. Holds are rows of ``ducklake_metadata``,
    which DuckDB lists among the options of the lake. They have no history and make no snapshot.
    """

    def __init__(self, database: Database, info: LakeInfo) -> None:
        self._database = database
        self._info = info

    def __repr__(self) -> str:
        return f"<Holds of {self._database.address}>"

    def list(self) -> list[Hold]:
        """All holds by name, those that have ended included, which say so (:attr:`Hold.has_ended`)."""
        with self._database.read() as connection:
            found = read_holds(connection, self._database.tables)
            now = self._database.now(connection) if any(hold.until is not None for hold in found) else None
        return [hold if now is None else replace(hold, has_ended=hold.is_over(now)) for hold in found]

    def add(self, name: str, snapshot: int | datetime | None = None, *, until: datetime | None = None, replace: bool = False) -> Hold:
        """Hold a snapshot under a name.

        Args:
            name: Any text; names are compared without regard to case.
            snapshot: Id of the snapshot, or a time with a zone, which means the last snapshot at or before it; the newest when None.
            until: When the hold ends by itself: a time with a zone. It stays until it is removed when None.
            replace: Whether a hold of that name is moved to this snapshot.

        Raises:
            AlreadyExistsError: There is a hold of that name on another snapshot or until another time, and it is not to be replaced.
            NotFoundError: There is no such snapshot, or it was expired.
            UsageError: No name, or an end that is over already.
        """
        self._database.check_writable()
        if not name:
            raise UsageError("a hold needs a name", parameter="name")
        end = None if until is None else in_utc(until)

        def attempt() -> Hold:
            with self._database.write() as connection:
                found = self._snapshot_id(CatalogReader(connection, self._info, self._database.tables), snapshot)
                if end is not None and end <= self._database.now(connection):
                    raise UsageError(f"until is {end.isoformat()}, which is over already: the hold would hold nothing", parameter="until")
                hold = Hold(name=name, snapshot_id=found, until=end)
                other = _find(read_holds(connection, self._database.tables), name)
                if other is not None and not replace and (other.snapshot_id, other.until) != (found, end):
                    raise AlreadyExistsError(
                        f"there is a hold {other.name!r} on snapshot {other.snapshot_id} already; pass replace=True to move it",
                        hold=other.name,
                        snapshot_id=other.snapshot_id,
                    )
                store_hold(connection, self._database.tables, hold)
                return hold

        return run_write(attempt, f"hold a snapshot as {name!r}")

    def remove(self, name: str, *, if_exists: bool = False) -> None:
        """Remove a hold; its snapshot may expire from then on.

        Raises:
            NotFoundError: There is no hold of that name.
        """
        self._database.check_writable()
        removed: set[str] = set()

        def attempt() -> None:
            with self._database.write() as connection:
                found = _find(read_holds(connection, self._database.tables), name)
                if found is not None:
                    removed.add(name)
                    delete_hold(connection, self._database.tables, found)
                elif not (if_exists or removed):
                    raise NotFoundError(f"there is no hold {name!r}; lake.holds.list() gives all", hold=name)

        run_write(attempt, f"remove the hold {name!r}")

    def pinned(
        self, snapshot: int | datetime | None = None, *, reader: str = "reader", at_most: timedelta | str = timedelta(days=1)
    ) -> AbstractContextManager[Hold]:
        """Hold a snapshot as long as something reads it: a hold of a name of its own, which is removed at the end.

        Any number of readers may pin one snapshot. A reader that is killed keeps it until ``at_most`` is over.

        Args:
            snapshot: As in :meth:`add`; the newest when None.
            reader: The beginning of the hold's name, for those who list them.
            at_most: Longest time that the snapshot stays: a timedelta, or a text such as ``"3 hours"``.

        Returns:
            A context manager of the hold, whose ``snapshot_id`` is what to read at.

        Raises:
            NotFoundError: There is no such snapshot, or it was expired.
            UsageError: ``at_most`` is no span of time, or none above zero.
        """
        span = parse_age(at_most) if isinstance(at_most, str) else at_most
        if span <= timedelta(0):
            raise UsageError(f"at_most must be above zero, not {span}", parameter="at_most")
        return self._pinned(snapshot, reader, span)

    @contextmanager
    def _pinned(self, snapshot: int | datetime | None, reader: str, at_most: timedelta) -> Iterator[Hold]:
        with self._database.read() as connection:
            now = self._database.now(connection)
        # For ever where the calendar ends before.
        until = now + at_most if at_most < END - now else None
        hold = self.add(f"{reader} {uuid4()}", snapshot, until=until)
        try:
            yield hold
        except BaseException as error:
            # Why the reader failed is what its caller has to know.
            try:
                self.remove(hold.name, if_exists=True)
            except DuckLakeError as problem:
                error.add_note(f"the hold {hold.name!r} is still there, as it could not be removed: {problem.message}")
            raise
        self.remove(hold.name, if_exists=True)

    def _snapshot_id(self, reader: CatalogReader, wanted: int | datetime | None) -> int:
        """The snapshot that is meant, which cannot expire before the transaction ends."""
        if wanted is None:
            number = reader.latest_snapshot().id
        else:
            number = (reader.snapshot(timestamp=wanted) if isinstance(wanted, datetime) else reader.snapshot(version=wanted)).id
        # An expiry that was faster has deleted the row by the time that it can be locked.
        if not lock_snapshots(reader.connection, self._database, [number]):
            raise NotFoundError(f"snapshot {number} was expired just now", snapshot_id=number)
        return number


def _find(holds: list[Hold], name: str) -> Hold | None:
    return next((hold for hold in holds if folded(hold.name) == folded(name)), None)
