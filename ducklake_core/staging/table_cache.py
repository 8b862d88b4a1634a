"""Caches the states of a lake's tables, good for as long as no catalog object changes and the catalog is the same.

It saves questions and never decides: a commit proves inside its own transaction that its base is a snapshot of this very catalog
(commit/base_proof.py), and what is remembered here belongs to the history of that snapshot.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from ducklake_core.catalog.reading.option_rows import StoredOptions, check_same_lake, stored_options
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.format.state import Snapshot, TableState, is_same_snapshot
from ducklake_core.format.types.names import folded

MOST_TABLES = 1000
RECENT_SECONDS = 1.0
"""How old a base for an append may be. What others have committed since is read by the commit, so that an older base costs more than
reading the newest snapshot does; it is no less right."""


class History:
    """Table states by name, all read in the history of one snapshot: the newest that was read or committed.

    Every change of columns, keys, names or tables moves ``schema_version``, by the same rule that lets sessions of the
    reference keep their catalog. Two things may change without it and are never taken from here: options, and whether
    a table has deletes in the catalog. So what is remembered is for writers of new files only.
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
        """After a change of options: the next append reads them."""
        if self._newest is not None:
            self._newest = (self._newest[0], self._newest[1], None)

    def recent(self, schema: str, table: str) -> Base | None:
        """A base for an append to a known table, None when it has to be read."""
        if self._newest is None or time.monotonic() - self._newest[0] > RECENT_SECONDS:
            return None
        _, snapshot, options = self._newest
        if options is None or self.at(snapshot, schema, table, options) is None:
            return None
        return Base(snapshot=snapshot, options=options, history=self, is_recent=True)

    def remember(self, schema: str, table: str, state: TableState) -> None:
        """Keep a state that was just read under the name it was asked for."""
        if len(self._states) >= MOST_TABLES:
            self._states.clear()
        self._states[folded(schema), folded(table)] = state

    def at(self, snapshot: Snapshot, schema: str, table: str, options: StoredOptions) -> TableState | None:
        """The table at a snapshot of this history, None when it has to be read."""
        state = self._states.get((folded(schema), folded(table)))
        if state is None or state.schema_version != snapshot.schema_version or state.snapshot_id > snapshot.id:
            return None
        in_force = options.in_force(state.schema_id, state.id)
        return replace(state, snapshot_id=snapshot.id, snapshot_time=snapshot.time, options=in_force)


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

    def read(self, reader: CatalogReader) -> Base:
        """The newest snapshot as a base. When it does not follow the last one that was seen, everything else is forgotten.

        Raises:
            CatalogError: The catalog is that of a lake with other settings.
        """
        history, known = self._history, self._history.newest
        snapshot, then = reader.latest_and(-1 if known is None else known.id)
        options = stored_options(reader.connection, reader.catalog)
        check_same_lake(reader.info, options)
        if known is not None and (then is None or not is_same_snapshot(then, known)):
            history = self._history = History()
        history.note(snapshot, options)
        return Base(snapshot=snapshot, options=options, history=history)

    def recent(self, schema: str, table: str) -> Base | None:
        """See :meth:`History.recent`."""
        return self._history.recent(schema, table)

    def forget_options(self) -> None:
        """See :meth:`History.forget_options`."""
        self._history.forget_options()
