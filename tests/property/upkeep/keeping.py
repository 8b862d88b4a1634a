"""Random maintenance of ours on a lake that DuckDB and we have changed, and what must hold after each verb."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

import duckdb

from ducklake_core import DuckLake
from ducklake_core.maintenance.request import MaintenanceStep
from tests.property.histories import upkeep
from tests.property.histories.actions import FOLDER, Action, Sql
from tests.property.histories.divergences import ReferenceBrokeError, reference_failure
from tests.property.histories.play import Shown, shown, told
from tests.property.histories.sketch import look
from tests.property.histories.steps import first_steps, next_step
from tests.property.upkeep.readings import their_reading
from tests.property.upkeep.remains import deletes_of_no_file, expired_files, named_files, scheduled_files, stored_files
from tests.property.upkeep.verbs import Verb, draw_verb
from tests.property.upkeep.writing import change, open_write
from tests.support.object_stores import ObjectStore
from tests.support.oracle import LakeAddress, Oracle, attached

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEFT_BY_DUCKDB = frozenset({"table-bounds-narrow", "table-bounds-unknown", "orphaned-file", "foreign-file", "inlined-delete-orphaned"})
"""Bounds that DuckDB leaves too narrow, files of its statements that failed, files that a history has laid beside those of the lake, and
deletes that the catalog holds of files that its expiry forgets."""
THEIR_UPKEEP: tuple[Callable[[Random, Any], list[Action]], ...] = (upkeep.merge_files, upkeep.rewrite_files, upkeep.flush)
VARIANTS = (
    "CREATE TABLE t (k INTEGER, v VARIANT)",
    "INSERT INTO t SELECT i, CASE i % 3 WHEN 0 THEN i::VARIANT WHEN 1 THEN {'a': i, 'b': 'x' || i}::VARIANT END FROM range(40) r(i)",
    "INSERT INTO t VALUES (50, 'text'::VARIANT), (51, [1, 2]::VARIANT), (52, NULL)",
)
"""A table with a column of variants, in files of which fields are shredded, and inlined."""


@dataclass(frozen=True)
class Before:
    """The lake before a verb of ours."""

    newest: int
    shown: Shown
    feed: dict[str, Counter[str]]
    changed: dict[int, set[str]]
    held: set[int]
    scheduled: set[str]
    lost_deletes: set[tuple[int, int]]


@dataclass
class Keeping:
    """One lake, never open twice, so that its catalog can be in a DuckDB file too; its files are in a store if one is given.

    With a session half of our verbs are done by executors.
    """

    address: LakeAddress
    options: str
    store: ObjectStore | None = None
    session: SparkSession | None = None
    left_by_others: frozenset[str] = LEFT_BY_DUCKDB
    # DuckDB logs a flush of deletes as a delete, so that a rewrite may count as one.
    tells_apart: bool = False
    done: list[str] = field(default_factory=list)
    verbs: Counter[str] = field(default_factory=Counter)
    readings: int = 0
    # What was read after the last verb of ours: to be the same after the next one, unless DuckDB's maintenance comes between.
    _ours_read: Shown = field(default_factory=dict)
    _theirs_read: Shown = field(default_factory=dict)

    @property
    def _is_encrypted(self) -> bool:
        return "ENCRYPTED" in self.options

    def _attached(self) -> AbstractContextManager[Oracle]:
        return attached(self.address, self.options, before=None if self.store is None else self.store.know)

    def _connect(self) -> DuckLake:
        return DuckLake.connect(self.address.url, storage_options=None if self.store is None else self.store.options)

    def live(self, seeds: Sequence[int]) -> None:
        """A step for each seed: changes by DuckDB and by us, then maintenance by DuckDB and by us."""
        try:
            draw = Random(seeds[0])
            self._change([Sql(text) for text in VARIANTS] if draw.random() < 0.3 else [])
            self._change(first_steps(draw))
            for seed in seeds:
                draw = Random(seed)
                self._theirs(draw)
                self._ours(draw)
        except ReferenceBrokeError as broke:
            self.done.append(f"DuckDB broke: {broke}")
        except BaseException as error:
            error.add_note("\n".join(self.done))
            raise

    def _change(self, actions: Sequence[Action]) -> None:
        with self._attached() as duck:
            for action in actions:
                self._perform(duck, action)

    def _perform(self, duck: Oracle, action: Action) -> None:
        if not isinstance(action, Sql) or action.text == "BEGIN" or (self._is_encrypted and "ducklake_add_data_files" in action.text):
            # DuckDB adds plain files to an encrypted lake, and reads the table never again.
            return
        self.done.append(action.text)
        if action.text.startswith(("CALL ducklake_", "CHECKPOINT")):
            self._ours_read, self._theirs_read = {}, {}
        try:
            duck.run(action.text.replace(FOLDER, self.address.data_path.rstrip("/").rpartition("/")[0]))
        except duckdb.Error as error:
            self.done.append(f"  refused: {str(error)[:150]}")
            reference_failure(error, action.text)
            with suppress(duckdb.TransactionException):
                duck.connection.execute("ROLLBACK")

    def _theirs(self, draw: Random) -> None:
        """Some statements, and now and then maintenance; a connection each, as options count from the next one on."""
        for _ in range(draw.randint(1, 3)):
            with self._attached() as duck:
                for action in next_step(draw, duck):
                    self._perform(duck, action)
        if draw.random() < 0.4:
            with self._attached() as duck:
                for action in draw.choice(THEIR_UPKEEP)(draw, look(duck)):
                    self._perform(duck, action)

    def _ours(self, draw: Random) -> None:
        lake = self._connect()
        try:
            if draw.random() < 0.5:
                self.done.append(f"ours: {change(lake, draw)}")
        finally:
            lake.close()
        with self._attached() as duck:
            theirs = their_reading(duck, self._theirs_read)
        lake = self._connect()
        try:
            self._keep(lake, draw, draw_verb(lake, draw))
        finally:
            lake.close()
        with self._attached() as duck:
            self._theirs_read = after = their_reading(duck, {})
        for key in theirs.keys() & after.keys():
            assert after[key] == theirs[key], f"DuckDB reads {key} differently"
        self.readings += len(theirs.keys() & after.keys())

    def _keep(self, lake: DuckLake, draw: Random, verb: Verb) -> None:
        self._hold(lake, draw)
        if self.session is not None and draw.random() < 0.5:
            verb = verb.on(self.session)
        self.done.append(f"ours: {verb}")
        self.verbs[verb.name] += 1
        newest = lake.snapshot().id
        before = Before(
            newest=newest,
            shown=shown(lake, self._ours_read),
            feed=told(lake, newest),
            changed=_changed(lake),
            held={hold.snapshot_id for hold in lake.holds.list()} & {snapshot.id for snapshot in lake.snapshots()},
            scheduled=scheduled_files(lake),
            lost_deletes=deletes_of_no_file(lake),
        )
        # A process that has loaded DuckDB does not say in SQLite that its writes run.
        is_known = self.address.backend != "sqlite" or not verb.sweeps
        with open_write(lake, draw, self.done.append) if draw.random() < 0.25 and is_known else nullcontext():
            planned = verb(dry_run=True)
            assert lake.snapshot().id == newest
            done = verb()
            assert done.failed_steps == (), done
            if verb.does_what_it_plans:
                assert list(map(_outline, planned.steps)) == list(map(_outline, done.steps)), f"{planned}\n-- done:\n{done}"
            if (most := verb.options.get("max_files")) is not None and verb.does_what_it_plans:
                assert sum(step.files for step in done.steps if step.outcome == "done") <= most
            self._compare(lake, verb, before)
            self._look_for_remains(lake, verb, before)
        found = lake.check(level="rows")
        assert set(found.by_code) <= self.left_by_others, str(found)

    def _hold(self, lake: DuckLake, draw: Random) -> None:
        """A snapshot is held, or let go."""
        holds = lake.holds.list()
        if holds and draw.random() < 0.2:
            lake.holds.remove(draw.choice(holds).name)
        elif draw.random() < 0.25:
            lake.holds.add(f"hold {len(self.done)}", snapshot=draw.choice(lake.snapshots()).id)

    def _compare(self, lake: DuckLake, verb: Verb, before: Before) -> None:
        """Nothing that is left shows other rows or changes, and what must be left is."""
        left = {snapshot.id for snapshot in lake.snapshots()}
        last = max(left)
        self._ours_read = after = shown(lake)
        for (number, table), rows in before.shown.items():
            if number in left:
                assert after[number, table] == rows, f"we read {table} at {number} differently after {verb}"
        assert {table: rows for (n, table), rows in after.items() if n == last} == {
            table: rows for (n, table), rows in before.shown.items() if n == before.newest
        }
        were = {number for number, _ in before.shown}
        if left >= were:
            assert told(lake, before.newest) == before.feed, f"the change feed after {verb}"
            for number, names in _changed(lake).items() if self.tells_apart else ():
                others = {table for (at, table), rows in after.items() if at == number and after.get((last, table), rows) != rows}
                altered = {table for table in others if lake.table(table, at=number).schema != lake.table(table).schema}
                assert others - altered <= names, f"some of {others} do not count as changed since {number} after {verb}"
                if not left.issuperset(range(number, last)):
                    continue  # What expired since may have changed rows.
                more = names - before.changed.get(number, set())
                assert not more, f"rows of {more} count as changed since {number} after {verb}"
        assert before.held <= left
        if (least := verb.options.get("keep_last")) is not None:
            # A checkpoint makes snapshots before it expires some, and afterwards.
            assert left >= set(sorted(were)[-least:]) if verb.name == "expire" else len(left) >= min(least, len(were))

    def _look_for_remains(self, lake: DuckLake, verb: Verb, before: Before) -> None:
        """Nothing that expired remains in the catalog, and nothing that the catalog has let go in a local directory."""
        if verb.name == "expire":
            assert expired_files(lake) == []
            assert deletes_of_no_file(lake) <= before.lost_deletes
        if self.store is not None or not verb.takes_all:
            return
        stored = stored_files(self.address.data_path)
        if verb.name == "cleanup":
            assert not (before.scheduled - named_files(lake)) & stored
        if verb.name == "orphans":
            kept = {step.target.rpartition("/")[2] for step in verb(dry_run=True).skipped_steps}
            assert stored <= named_files(lake) | scheduled_files(lake) | kept


def _changed(lake: DuckLake) -> dict[int, set[str]]:
    """Tables of which rows may have changed since each snapshot, which sensors go by."""
    numbers = [snapshot.id for snapshot in lake.snapshots()][:-1]
    return {number: {table.name for table in lake.changed_tables(number).tables if table.rows} for number in numbers}


def _outline(step: MaintenanceStep) -> MaintenanceStep:
    """A step without what a plan says of the future and a run of the past."""
    return replace(step, outcome="done", reason="" if "cluster" in step.reason else step.reason)
