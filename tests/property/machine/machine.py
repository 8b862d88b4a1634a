"""The machine: transactions of ours and of another writer in any order, and after each of them what both of us read."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import ClassVar, Literal

import pyarrow as pa
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ducklake_core import DuckLake
from ducklake_core.errors import CommitConflictError
from tests.property.machine.changes import (
    Append,
    Change,
    Define,
    allowed,
    appends,
    by_key,
    changed,
    definitions,
    make,
    replacements,
)
from tests.property.machine.model import LakeModel, TableModel, frame
from tests.property.machine.peers import UPKEEP, peer
from tests.support.backups import Backup
from tests.support.oracle import READS, LakeAddress, file_lake
from tests.support.postgres import PostgresServer

NAMES = ("a", "b")
_CHANGES = st.one_of(appends(), replacements(), by_key(), definitions())


class _BrokenError(Exception):
    """What a user's code raises in the middle of a transaction."""


def _sorted(rows: pa.Table) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in rows.to_pylist()), key=repr)


class LakeMachine(RuleBasedStateMachine):
    """Two tables, changed by us and by another: DuckDB, where it knows the version of the lake."""

    server: ClassVar[PostgresServer | None] = None
    backend: ClassVar[str] = "sqlite"
    version: ClassVar[Literal["1.0", "1.1"]] = "1.0"

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="lake-machine-")))
        self.address: LakeAddress = file_lake(self.backend, folder) if self.server is None else self.server.lake(folder)
        self.lake = DuckLake.create(self.address.url, data_path=self.address.data_path, version=self.version)
        self.stack.callback(self.lake.close)
        self.peer = self.stack.enter_context(peer(self.address, self.version))
        self.model = LakeModel()
        self.history: dict[int, LakeModel] = {}
        self.was_partitioned = False
        self.swaps = 0
        self.saved: tuple[Backup, LakeModel, dict[int, LakeModel]] | None = None

    def teardown(self) -> None:
        self.stack.close()

    @initialize()
    def two_tables(self) -> None:
        with self.lake.transaction() as tx:
            for name in NAMES:
                tx.create_table(name, frame([]).schema)
        self.model = LakeModel(tables={name: TableModel() for name in NAMES})

    @rule(changes=st.lists(st.tuples(st.sampled_from(NAMES), _CHANGES), min_size=1, max_size=5), reads=st.booleans(), breaks=st.booleans())
    def we_commit(self, changes: list[tuple[str, Change]], reads: bool, breaks: bool) -> None:
        """One transaction of several changes in any order, which may read what it has done, and break in the end."""
        after = self.model
        try:
            with self.lake.transaction(message="ours") as tx:
                for name, change in changes:
                    table = after.tables[name]
                    if not allowed(change, table):
                        continue
                    note(f"ours: {name} {change}")
                    self.was_partitioned |= change == Define(what="partition")
                    make(change, name, tx, table)
                    after = after.having(name, changed(change, table))
                    if reads:
                        seen = tx.table(name)
                        assert _sorted(seen.to_arrow()) == after.tables[name].visible()
                        assert seen.count() == len(after.tables[name].rows)
                if breaks:
                    raise _BrokenError
        except _BrokenError:
            return
        self.model = after

    @rule(name=st.sampled_from(NAMES), change=_CHANGES, in_parts=st.booleans())
    def somebody_commits(self, name: str, change: Change, in_parts: bool) -> None:
        """One transaction of the other."""
        table = self.model.tables[name]
        if not allowed(change, table):
            return
        self.was_partitioned |= change == Define(what="partition")
        self.peer.commit(change, name, table, in_parts=in_parts)
        self.model = self.model.having(name, changed(change, table))

    @rule(verb=st.sampled_from(UPKEEP))
    def somebody_maintains(self, verb: str) -> None:
        if verb != "flush_inlined_data" or self._can_be_flushed():
            self.peer.maintain(verb, self._can_be_flushed)

    def _can_be_flushed(self) -> bool:
        """Whether DuckDB's flush does not bring back deleted rows that it has inlined itself (docs/reference/differences.md)."""
        if self.server is None or not self.was_partitioned or self.version not in READS:
            return True
        tables = (table for model in self.history.values() for table in model.tables.values())
        return not any(set(text or "") & set("'\"\nä") for table in tables for _, text, _ in table.rows)

    @rule()
    def we_maintain(self) -> None:
        self.lake.merge_adjacent_files()

    @rule(name=st.sampled_from(NAMES), data=st.data())
    def we_restore(self, name: str, data: st.DataObject) -> None:
        """Back to an earlier snapshot with the same columns."""
        alike = [number for number, model in self.history.items() if self._same_form(name, number, model)]
        if not alike:
            return
        number = data.draw(st.sampled_from(alike))
        note(f"restore {name} to {number}")
        self.lake.table(name).restore(number)
        self.model = self.model.having(name, self.history[number].tables[name])

    def _same_form(self, name: str, number: int, model: LakeModel) -> bool:
        then, now = self.lake.table(name, at=number), self.lake.table(name)
        return (then.schema, then.state.id) == (now.schema, now.state.id)

    @rule(name=st.sampled_from(NAMES), changes=st.lists(_CHANGES, min_size=1, max_size=3), between=appends())
    def somebody_gets_in_between(self, name: str, changes: list[Change], between: Change) -> None:
        """The other appends after our transaction has looked: the outcome is that of one order or the other."""
        table = ours = self.model.tables[name]
        made: list[Change] = []
        with self.lake.transaction() as tx:
            for change in changes:
                if allowed(change, ours):
                    make(change, name, tx, ours)
                    made.append(change)
                    ours = changed(change, ours)
            note(f"before ours ends, {made}:")
            self.peer.commit(between, name, table, in_parts=True)
        theirs_first = changed(between, table)
        for change in made:
            theirs_first = changed(change, theirs_first)
        either = (theirs_first, changed(between, ours))
        found = self._read(name)
        assert found in [outcome.visible() for outcome in either]
        self.model = self.model.having(name, next(outcome for outcome in either if outcome.visible() == found))

    @rule(name=st.sampled_from(NAMES), change=st.one_of(appends(), by_key()), in_parts=st.booleans(), waits=st.booleans())
    def somebody_swaps_the_table(self, name: str, change: Change, in_parts: bool, waits: bool) -> None:
        """The other gives the name to a new table, right before we write to it, or after our transaction has looked."""
        self.swaps += 1
        old, table = f"old_{self.swaps}", self.model.tables[name]
        note(f"the other swaps {name}; ours, begun {'before' if waits else 'after'}: {change}")
        before = self.peer.rows(name)

        def swapped() -> None:
            self.peer.swap(name, old, in_parts=in_parts)

        def ours() -> None:
            with self.lake.transaction() as tx:
                make(change, name, tx, table)
                swapped()

        new = TableModel()
        if waits:
            with suppress(CommitConflictError):
                ours()
        else:
            swapped()
            new = changed(change, new)
            if isinstance(change, Append):
                self.lake.write(name, frame(change.rows))
            else:
                with self.lake.transaction() as tx:
                    make(change, name, tx, TableModel())
        assert self.peer.rows(old) == before
        self.peer.drop(old)
        self.model = self.model.having(name, new)

    @rule()
    def somebody_saves_the_catalog(self) -> None:
        self.peer.forget()
        self.saved = Backup(address=self.address), self.model, dict(self.history)

    @rule()
    def somebody_puts_the_catalog_back(self) -> None:
        """What was committed since is lost, and its ids are given out again. We go on with the same object."""
        if self.saved is None:
            return
        backup, self.model, history = self.saved
        note(f"the catalog is that of snapshot {max(history)} again")
        self.history = dict(history)
        self.peer.forget()
        backup.restore()

    @invariant()
    def both_read_the_model(self) -> None:
        newest = self.lake.snapshot().id
        for name, table in self.model.tables.items():
            assert self._read(name) == table.visible(), f"we, {name}"
            assert self.lake.table(name).scan().count() == len(table.rows)
            assert self.peer.rows(name) == table.visible(), f"the other, {name}"
            self._row_ids_agree(name)
        self.history[newest] = self.model

    def _read(self, name: str, at: int | None = None) -> list[tuple[object, ...]]:
        return _sorted(self.lake.table(name, at=at).scan().to_arrow())

    def _row_ids_agree(self, name: str) -> None:
        ours = self.lake.table(name).scan(columns=["rowid", "k"]).to_arrow().to_pydict()
        theirs = self.peer.row_ids(name)
        assert theirs is None or sorted(zip(ours["rowid"], ours["k"], strict=True)) == theirs
        assert len(set(ours["rowid"])) == len(ours["rowid"])

    @rule(data=st.data())
    def history_is_kept(self, data: st.DataObject) -> None:
        """An earlier snapshot reads as it did, by us and by the other."""
        if not self.history:
            return
        number = data.draw(st.sampled_from(sorted(self.history)))
        for name, table in self.history[number].tables.items():
            assert self._read(name, number) == table.visible(), f"we, {name} at {number}"
            if self.peer.reads_alike(number):
                assert self.peer.rows(name, number) == table.visible(), f"the other, {name} at {number}"
