"""Handles of a lake for internal modules, and a cache of table states per schema version."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace

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
"""Maximum age, in seconds, of a base for an append. The commit reads all later snapshots, so an old base is correct, but costs more than
reading the newest snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeContext:
    """The catalog, the files and the cached table states of a lake.

    Attributes:
        database: The catalog's database.
        info: Version, data path and encryption of the lake.
        storage: Opens files; picklable.
        table_cache: Cached table states.
        variables: Variables of SQL, as SQL text by name.
    """

    database: Database
    info: LakeInfo
    storage: Storage
    table_cache: TableStateCache
    variables: dict[str, str] = field(default_factory=dict)

    def counted(self, size: Size) -> TableInfo:
        """Complete a table's size with numbers that only its files contain."""
        if size.plan is None:
            return size.info
        from ducklake_core.engines.arrow.read import count_rows

        return size.counted(self.storage, count_rows)

    @contextmanager
    def reader(self) -> Iterator[CatalogReader]:
        """Open a reader of the catalog. It uses one short transaction, so that everything it reads is consistent."""
        with self.database.read() as connection:
            yield CatalogReader(connection, self.info, self.database.tables)


class History:
    """Table states by name, in the history of one snapshot: the newest that was read or committed.

    Every change of columns, keys, names or tables increases ``schema_version``; sessions of DuckDB rely on the same rule. What may
    change without it (options, tables of inlined rows, whether there are inlined deletes) is read again for readers of rows. Writers of
    new files do not need it.
    """

    def __init__(self) -> None:
        self._states: dict[tuple[str, str], TableState] = {}
        self._newest: tuple[float, Snapshot, StoredOptions | None] | None = None

    @property
    def newest(self) -> Snapshot | None:
        """The newest snapshot that was read or committed."""
        return None if self._newest is None else self._newest[1]

    def note(self, snapshot: Snapshot, options: StoredOptions) -> None:
        """Store the newest snapshot of this history, with its options."""
        if self._newest is None or snapshot.id >= self._newest[1].id:
            self._newest = (time.monotonic(), snapshot, options)

    def forget_options(self) -> None:
        """Discard the options, so that the next append reads them."""
        if self._newest is not None:
            self._newest = (self._newest[0], self._newest[1], None)

    def recent(self, schema: str, table: str) -> Base | None:
        """Return a base for an append to a cached table, None if it has to be read."""
        if self._newest is None or time.monotonic() - self._newest[0] > RECENT_SECONDS:
            return None
        _, snapshot, options = self._newest
        if options is None or self.at(snapshot, schema, table, options) is None:
            return None
        return Base(snapshot=snapshot, options=options, history=self, is_recent=True)

    def remember(self, schema: str, table: str, state: TableState) -> None:
        """Cache a state that was just read, under the requested name."""
        # Rarely happens, and is cheap: a state is read again at its next use.
        if len(self._states) >= MAX_TABLES:
            self._states.clear()
        self._states[folded(schema), folded(table)] = state

    def table_id(self, schema: str, table: str) -> int:
        """Return the id of the cached table with a name, at any snapshot; ``NOTHING`` if there is none."""
        known = self._states.get((folded(schema), folded(table)))
        return NOTHING if known is None else known.id

    def current(self, now: Current, snapshot: Snapshot, schema: str, table: str) -> TableState | None:
        """Return the table at a snapshot of this history, for readers, including what was just read; None if it has to be read."""
        state = self.at(snapshot, schema, table, now.options)
        if state is None:
            return None
        return replace(state, inlined_tables=now.inlined_tables, has_inlined_deletes=now.has_inlined_deletes)

    def read(self, database: Database, base: Snapshot, schema: str, table: str) -> TableState | None:
        """Return the table at a base of this history, for readers, in one query; None if it has to be read completely."""
        table_id = self.table_id(schema, table)
        if table_id == NOTHING:
            return None
        now = read_current(database, base.id, table_id)
        return None if now.known is None or not is_same_snapshot(now.known, base) else self.current(now, base, schema, table)

    def at(self, snapshot: Snapshot, schema: str, table: str, options: StoredOptions) -> TableState | None:
        """Return the table at a snapshot of this history, None if it has to be read."""
        state = self._states.get((folded(schema), folded(table)))
        # Equal schema versions mean that no definition changed in between. A state of a later snapshot cannot be used: it may belong to a
        # table that did not exist yet.
        if state is None or state.schema_version != snapshot.schema_version or state.snapshot_id > snapshot.id:
            return None
        return with_options(replace(state, snapshot_id=snapshot.id, snapshot_time=snapshot.time), options)


def with_options(state: TableState, options: StoredOptions) -> TableState:
    """Return a table with its effective options."""
    effective = options.effective(state.schema_id, state.id)
    return replace(state, options={name: value for name, value in effective.items() if name not in LAKE_SETTINGS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The base snapshot of a transaction.

    Attributes:
        snapshot: The snapshot.
        options: Options of the lake at that time.
        history: Cached states of its history.
        is_recent: Whether it was read before the call, so that the commit has to check that it is still valid.
    """

    snapshot: Snapshot
    options: StoredOptions
    history: History
    is_recent: bool = False


class TableStateCache:
    """The cache of one lake object. It is emptied if the catalog was replaced by another one."""

    def __init__(self) -> None:
        self._history = History()

    def read(self, database: Database, info: LakeInfo) -> Base:
        """Return the newest snapshot as a base. If it does not follow the last one that was read, the cache is emptied.

        Args:
            database: The catalog.
            info: Settings of the lake.

        Raises:
            CatalogError: The catalog belongs to a lake with other settings.
        """
        history, now = self._current(database, info)
        return Base(snapshot=now.snapshot, options=now.options, history=history)

    def _current(self, database: Database, info: LakeInfo, schema: str = "", table: str = "") -> tuple[History, Current]:
        history, known = self._history, self._history.newest
        # One query reads the newest snapshot and the last known one. If the known one is missing or differs, the catalog was replaced (for
        # example by a backup) or the snapshot has expired, and no cached state is certain.
        now = read_current(database, NOTHING if known is None else known.id, history.table_id(schema, table))
        # Appends use what is stored here.
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
        """Return the table at the newest snapshot, from the cache if no definition has changed. Reads again what may change without that.

        Args:
            database: The catalog.
            info: Settings of the lake.
            reader: Opens a read transaction on the catalog.
            schema: Name of the schema.
            name: Name of the table.
            suggest: Whether the error names similar tables.

        Raises:
            NotFoundError: There is no such table.
            CatalogError: The catalog belongs to a lake with other settings.
        """
        history, now = self._current(database, info, schema, name)
        state = history.current(now, now.snapshot, schema, name)
        if state is None:
            with reader() as opened:
                snapshot = opened.latest_snapshot()
                state = opened.table(schema, name, snapshot.id, suggest=suggest)
            # It is not known whether a state of another snapshot belongs to this history.
            if is_same_snapshot(snapshot, now.snapshot):
                history.remember(schema, name, state)
        return state

    def recent(self, schema: str, table: str) -> Base | None:
        """Return a base for an append to a cached table; see :meth:`History.recent`."""
        return self._history.recent(schema, table)

    def forget(self) -> None:
        """Discard all cached states."""
        self._history = History()

    def forget_options(self) -> None:
        """Discard the cached options; see :meth:`History.forget_options`."""
        self._history.forget_options()
