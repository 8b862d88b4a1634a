"""Table states that were read before, good for as long as no catalog object changes."""

from __future__ import annotations

import time
from dataclasses import replace

from ducklake_core.catalog.option_rows import StoredOptions
from ducklake_core.catalog.state import Snapshot, TableState
from ducklake_core.format.names import folded

MOST_TABLES = 1000
RECENT_SECONDS = 1.0
"""How long an append may build on what was just seen. Options that another session sets hold for it after that time at the
latest; the reference's sessions see them only when they attach again."""


class KnownTables:
    """Remembers table states by name, so that an append need not read them again.

    Every change of columns, keys, names or tables moves ``schema_version``, by the same rule that lets sessions of the
    reference keep their catalog. Two things may change without it and are never taken from here: options, and whether
    a table has deletes in the catalog. So what is remembered is for writers of new files only.
    """

    def __init__(self) -> None:
        self._states: dict[tuple[str, str], TableState] = {}
        self._newest: tuple[float, Snapshot, StoredOptions] | None = None

    def note(self, snapshot: Snapshot, options: StoredOptions) -> None:
        """Keep what was the newest snapshot a moment ago, read or committed, and the options with it."""
        self._newest = (time.monotonic(), snapshot, options)

    def forget_newest(self) -> None:
        """After a change of options: the next append reads them."""
        self._newest = None

    def recent(self, schema: str, table: str) -> tuple[Snapshot, StoredOptions] | None:
        """A base for an append to a known table, None when it has to be read.

        A base that is up to ``RECENT_SECONDS`` old is as good as one that was read before a long write: the commit looks at
        everything that came after it.
        """
        if self._newest is None or time.monotonic() - self._newest[0] > RECENT_SECONDS:
            return None
        _, snapshot, options = self._newest
        return (snapshot, options) if self.at(snapshot, schema, table, options) is not None else None

    def remember(self, schema: str, table: str, state: TableState) -> None:
        """Keep a state that was just read under the name it was asked for."""
        if len(self._states) >= MOST_TABLES:
            self._states.clear()
        self._states[folded(schema), folded(table)] = state

    def at(self, snapshot: Snapshot, schema: str, table: str, options: StoredOptions) -> TableState | None:
        """The table at a snapshot, None when it has to be read."""
        state = self._states.get((folded(schema), folded(table)))
        if state is None or state.schema_version != snapshot.schema_version or state.snapshot_id > snapshot.id:
            return None
        return replace(state, snapshot_id=snapshot.id, options=options.in_force(state.schema_id, state.id))
