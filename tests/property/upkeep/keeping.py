"""Random maintenance of ours on a lake that DuckDB and we have changed, and what must hold after each verb."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import duckdb
import pyarrow as pa

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError
from ducklake_core.maintenance.steps import MaintenanceStep
from tests.behaviour.maintenance.lakes import tables_at
from tests.property.histories import upkeep
from tests.property.histories.actions import FOLDER, Action, Sql
from tests.property.histories.divergences import ReferenceBrokeError, reference_failure
from tests.property.histories.play import Shown, shown, told
from tests.property.histories.sketch import look
from tests.property.histories.steps import first_steps, next_step
from tests.support.object_stores import ObjectStore
from tests.support.oracle import LakeAddress, Oracle, attached

NOW = timedelta(0)
LEFT_BY_DUCKDB = {"table-bounds-narrow", "table-bounds-unknown", "orphaned-file", "foreign-file"}
"""Bounds that DuckDB leaves too narrow, files of its statements that failed, and files that a history has laid beside those of the lake."""
THEIR_UPKEEP: tuple[Callable[[Random, Any], list[Action]], ...] = (upkeep.merge_files, upkeep.rewrite_files, upkeep.flush)

Verb = tuple[str, Callable[..., Any]]


class Keeping:
    """One lake, never open twice, so that its catalog can be in a DuckDB file too; its files are in a store if one is given."""

    def __init__(self, address: LakeAddress, limit: int, store: ObjectStore | None = None) -> None:
        self.address = address
        self.store = store
        self.options = f"DATA_INLINING_ROW_LIMIT {limit}"
        self.done: list[str] = []
        self.verbs: Counter[str] = Counter()
        self.readings = 0
        # What was read after the last verb of ours: to be the same after the next one, unless DuckDB's maintenance comes between.
        self._ours_read: Shown = {}
        self._theirs_read: Shown = {}

    def _attached(self) -> AbstractContextManager[Oracle]:
        return attached(self.address, self.options, before=None if self.store is None else self.store.know)

    def _connect(self) -> DuckLake:
        return DuckLake.connect(self.address.url, storage_options=None if self.store is None else self.store.options)

    def live(self, seeds: Sequence[int]) -> None:
        """A step for each seed: changes by DuckDB and by us, then maintenance by DuckDB and by us."""
        try:
            self._change(first_steps(Random(seeds[0])))
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
        if not isinstance(action, Sql) or action.text == "BEGIN":
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
                self._write(lake, draw)
        finally:
            lake.close()
        theirs = self._their_reading(self._theirs_read)
        lake = self._connect()
        try:
            self._keep(lake, draw)
        finally:
            lake.close()
        self._theirs_read = after = self._their_reading({})
        for key in theirs.keys() & after.keys():
            assert after[key] == theirs[key], f"DuckDB reads {key} differently"
        self.readings += len(theirs.keys() & after.keys())

    def _write(self, lake: DuckLake, draw: Random) -> None:
        """A change of ours to rows that are there: some are deleted, or written once more."""
        tables = lake.tables()
        if not tables:
            return
        table = lake.table(draw.choice(tables).table)
        name = draw.choice(table.schema.names)
        with suppress(DuckLakeError, pa.ArrowException):
            if draw.random() < 0.6:
                self.done.append(f"ours: delete {table.name} where rowid % 5 = {draw.randrange(5)}")
                ids = sorted(table.scan(columns=["rowid"]).to_arrow()["rowid"].to_pylist())
                chosen = draw.sample(ids, len(ids) // draw.choice((2, 5, 20)))
                if chosen:
                    table.delete(f"rowid IN ({', '.join(map(str, chosen))})")
            else:
                self.done.append(f"ours: append rows of {table.name} ordered by {name}")
                table.append(table.scan().to_arrow().slice(0, draw.choice((3, 40))))

    def _keep(self, lake: DuckLake, draw: Random) -> None:
        before, newest = shown(lake, self._ours_read), lake.snapshot().id
        feed = told(lake, newest)
        name, verb = self._verb(lake, draw)
        self.done.append(f"ours: {name}")
        self.verbs[name.partition(" ")[0]] += 1
        planned = verb(dry_run=True)
        assert lake.snapshot().id == newest
        done = verb()
        assert done.failed_steps == (), done
        if "checkpoint" not in name:
            assert list(map(_outline, planned.steps)) == list(map(_outline, done.steps))
        left = {snapshot.id for snapshot in lake.snapshots()}
        self._ours_read = after = shown(lake)
        for (number, table), rows in before.items():
            if number in left:
                assert after[number, table] == rows, f"we read {table} at {number} differently after {name}"
        last = max(left)
        assert {table: rows for (n, table), rows in after.items() if n == last} == {
            table: rows for (n, table), rows in before.items() if n == newest
        }
        if left.issuperset(number for number, _ in before):
            assert told(lake, newest) == feed, f"the change feed after {name}"
        if "expire" in name:
            assert not left & {snapshot.id for snapshot in done.snapshots}
        found = lake.check(level="rows")
        assert set(found.by_code) <= LEFT_BY_DUCKDB, str(found)

    def _verb(self, lake: DuckLake, draw: Random) -> Verb:
        """A verb with random options."""
        tables = [info.table for info in lake.tables()]
        scope = {"tables": draw.sample(tables, draw.randint(1, len(tables)))} if tables and draw.random() < 0.4 else {}
        how: dict[str, Any] = {**scope, "partial_progress": draw.random() < 0.3, "max_concurrency": draw.choice((None, 2))}
        ids = [snapshot.id for snapshot in lake.snapshots()][:-1]
        gone = sorted(draw.sample(ids, draw.randint(0, len(ids) // 3)))
        threshold = draw.choice((0.0, 0.3, None))
        columns = self._clusterable(lake, draw)
        verbs: list[tuple[str, Callable[..., Any], dict[str, Any]]] = [
            ("merge", lake.merge_adjacent_files, {**how, "max_files": draw.choice((None, None, 3))}),
            ("rewrite", lake.rewrite_data_files, {**how, "delete_threshold": threshold}),
            ("flush", lake.flush_inlined_data, scope),
            ("flush", lake.flush_inlined_data, {**scope, "max_rows": draw.choice((None, 4))}),
            ("checkpoint", lake.checkpoint, scope),
            ("cleanup", lake.cleanup_old_files, {"cleanup_all": True, "min_age": NOW}),
            ("orphans", lake.delete_orphaned_files, {"cleanup_all": True, "min_age": NOW}),
        ]
        verbs += [("expire", lake.expire_snapshots, {"versions": gone, "min_age": "0 days"})] if gone else []
        verbs += [("cluster", lake.rewrite_data_files, columns)] if columns else []
        name, verb, options = draw.choice(verbs)
        return f"{name} {options}", lambda **dry: verb(**options, **dry)

    def _clusterable(self, lake: DuckLake, draw: Random) -> dict[str, Any]:
        for info in draw.sample(found := lake.tables(), len(found)):
            names = [
                column.name
                for column in lake.table(info.table).schema
                if str(column.type) in ("int32", "int64", "varchar", "date", "float64")
            ]
            if names:
                return {"tables": [info.table], "cluster_by": draw.sample(names, min(len(names), draw.randint(1, 3)))}
        return {}

    def _their_reading(self, known: Shown) -> Shown:
        """What DuckDB reads of every table at every snapshot that is left and not known, but where it fails by a fault of its own."""
        found: Shown = dict(known)
        read = {number for number, _ in known}
        with self._attached() as duck:
            for (number,) in duck.rows("SELECT snapshot_id FROM ducklake_snapshots('lake') ORDER BY 1"):
                for name in tables_at(duck, int(str(number))) if number not in read else ():
                    try:
                        rows = duck.rows(f"SELECT rowid, COLUMNS(*)::VARCHAR FROM {name} AT (VERSION => {number})")
                    except duckdb.Error as error:
                        reference_failure(error, name, reading=True)
                        continue
                    found[int(str(number)), name] = Counter(map(repr, rows))
        return found


def _outline(step: MaintenanceStep) -> MaintenanceStep:
    """A step without what a plan says of the future and a run of the past."""
    return replace(step, outcome="done", reason="" if "cluster" in step.reason else step.reason)
