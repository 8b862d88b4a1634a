"""The handles of a lake that internals share, and a cache of table states per schema version."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.reading.definitions import NOTHING, Current, read_current
from ducklake_core.catalog.reading.options import StoredOptions, check_same_lake
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.reading.table_rows import LAKE_SETTINGS
from ducklake_core.format.state import LakeInfo, Snapshot, TableState, is_same_snapshot
from ducklake_core.format.types.names import folded
from ducklake_core.planning.table_info import Size
from ducklake_core.results import TableInfo
from ducklake_core.storage.filesystems import Storage

MAX_TABLES = 1000
RECENT_SECONDS = 1.0
"""Maximum age of a base for an append. What others have committed since is read by the commit, so that an older base costs more than
reading the newest snapshot does; it is no less right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeContext:
    """A lake's catalog, files and cached table states.

    Attributes:
        database: The catalog's database.
        info: Version, data path and encryption of the lake.
        storage: How to reach its files; picklable.
        table_cache: Table states that were read before.
    """

    database: Database
    info: LakeInfo
    storage: Storage
    table_cache: TableStateCache

    def counted(self, size: Size) -> TableInfo:
        """Complete a table's size by counting in its files what the catalog does not know."""
        if size.plan is None:
            return size.info
        from ducklake_core.engines.arrow.read import count_rows

        return size.counted(self.storage, count_rows)

    @contextmanager
    def reader(self) -> Iterator[CatalogReader]:
        """Open a reader of the catalog: one short read transaction that sees one state of it."""
        with self.database.read() as connection:
            yield CatalogReader(connection, self.info, self.database.tables)


class History:
    """Table states by name, all read in the history of one snapshot: the newest that was read or committed.

    Every change of columns, keys, names or tables moves ``schema_version``, by the same rule that lets sessions of
    DuckDB keep their catalog. What may change without it (options, tables of inlined rows, whether there are inlined deletes) is
    read again for readers of rows; writers of new files need none of it.
    """

    def __init__(self) -> None:
        self._states: dict[tuple[str, str], TableState] = {}
        self._newest: tuple[float, Snapshot, StoredOptions | None] | None = None

    @property
    def newest(self) -> Snapshot | None:
        """The newest snapshot that was read or committed."""
        return None if self._newest is None else self._newest[1]

    def note(self, snapshot: Snapshot, options: StoredOptions) -> None:
        """Keep what was the newest snapshot a moment ago, a later one of this history, and the options with it."""
        if self._newest is None or snapshot.id >= self._newest[1].id:
            self._newest = (time.monotonic(), snapshot, options)

    def forget_options(self) -> None:
        """Make the next append read the options, after a change of them."""
        if self._newest is not None:
            self._newest = (self._newest[0], self._newest[1], None)

    def recent(self, schema: str, table: str) -> Base | None:
        """Return a base for an append to a known table, None when it has to be read."""
        if self._newest is None or time.monotonic() - self._newest[0] > RECENT_SECONDS:
            return None
        _, snapshot, options = self._newest
        if options is None or self.at(snapshot, schema, table, options) is None:
            return None
        return Base(snapshot=snapshot, options=options, history=self, is_recent=True)

    def remember(self, schema: str, table: str, state: TableState) -> None:
        """Keep a state that was just read, under the name of the request."""
        # Rare, and cheap to repair: a state is read again at its next use.
        if len(self._states) >= MAX_TABLES:
            self._states.clear()
        self._states[folded(schema), folded(table)] = state

    def table_id(self, schema: str, table: str) -> int:
        """Return the id of the table that is remembered under a name, of any snapshot; ``NOTHING`` for none."""
        known = self._states.get((folded(schema), folded(table)))
        return NOTHING if known is None else known.id

    def current(self, now: Current, snapshot: Snapshot, schema: str, table: str) -> TableState | None:
        """Return the table at a snapshot of this history for readers, with what was just read; None when it has to be read."""
        state = self.at(snapshot, schema, table, now.options)
        if state is None:
            return None
        return replace(state, inlined_tables=now.inlined_tables, has_inlined_deletes=now.has_inlined_deletes)

    def read(self, database: Database, base: Snapshot, schema: str, table: str) -> TableState | None:
        """Return the table at a base of this history for readers, in one statement; None when it has to be read as a whole."""
        table_id = self.table_id(schema, table)
        if table_id == NOTHING:
            return None
        now = read_current(database, base.id, table_id)
        return None if now.known is None or not is_same_snapshot(now.known, base) else self.current(now, base, schema, table)

    def at(self, snapshot: Snapshot, schema: str, table: str, options: StoredOptions) -> TableState | None:
        """Return the table at a snapshot of this history, None when it has to be read."""
        state = self._states.get((folded(schema), folded(table)))
        # Equal schema versions mean that no definition changed in between. A state of a later snapshot is of no use: it may belong to a
        # table that did not exist yet.
        if state is None or state.schema_version != snapshot.schema_version or state.snapshot_id > snapshot.id:
            return None
        effective = {name: value for name, value in options.effective(state.schema_id, state.id).items() if name not in LAKE_SETTINGS}
        return replace(state, snapshot_id=snapshot.id, snapshot_time=snapshot.time, options=effective)


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The base that a transaction is planned on.

    Attributes:
        snapshot: The snapshot.
        options: Options of the lake then.
        history: What is remembered of its history.
        is_recent: Whether it was seen before the call, so that the commit has to prove that it still holds.
    """

    snapshot: Snapshot
    options: StoredOptions
    history: History
    is_recent: bool = False


class TableStateCache:
    """The cache of one lake object. It is emptied when the catalog turns out to be another one."""

    def __init__(self) -> None:
        self._history = History()

    def read(self, database: Database, info: LakeInfo) -> Base:
        """Return the newest snapshot as a base. When it does not follow the last one that was seen, everything else is forgotten.

        Raises:
            CatalogError: The catalog is that of a lake with other settings.
        """
        history, now = self._current(database, info)
        return Base(snapshot=now.snapshot, options=now.options, history=history)

    def _current(self, database: Database, info: LakeInfo, schema: str = "", table: str = "") -> tuple[History, Current]:
        history, known = self._history, self._history.newest
        # One statement reads the newest snapshot and the last known one. If the known one is missing or differs, the catalog was replaced
        # (by a backup, say) or the snapshot has expired, and nothing remembered is certain.
        now = read_current(database, NOTHING if known is None else known.id, history.table_id(schema, table))
        # Appends are built on what is noted here.
        check_same_lake(info, now.options)
        if known is not None and (now.known is None or not is_same_snapshot(now.known, known)):
            history = self._history = History()
        history.note(now.snapshot, now.options)
        return history, now

    def table(
        self,
        database: Database,
        info: LakeInfo,
        reader: Callable[[], AbstractContextManager[CatalogReader]],
        schema: str,
        name: str,
        *,
        suggest: bool,
    ) -> TableState:
        """Return the table at the newest snapshot: as it is remembered where no definition has changed, with what may change without one.

        Args:
            database: The catalog.
            info: The lake's settings.
            reader: Opens a read transaction on it.
            schema: The schema's name.
            name: The table's name.
            suggest: Whether the error names similar tables.

        Raises:
            NotFoundError: There is no such table.
            CatalogError: The catalog is that of a lake with other settings.
        """
        history, now = self._current(database, info, schema, name)
        state = history.current(now, now.snapshot, schema, name)
        if state is None:
            with reader() as opened:
                snapshot = opened.latest_snapshot()
                state = opened.table(schema, name, snapshot.id, suggest=suggest)
            # Of another snapshot, it is unknown here whether it is one of this history.
            if is_same_snapshot(snapshot, now.snapshot):
                history.remember(schema, name, state)
        return state

    def recent(self, schema: str, table: str) -> Base | None:
        """See :meth:`History.recent`."""
        return self._history.recent(schema, table)

    def forget(self) -> None:
        """Read everything again from now on."""
        self._history = History()

    def forget_options(self) -> None:
        """See :meth:`History.forget_options`."""
        self._history.forget_options()
