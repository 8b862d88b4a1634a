"""Performing a history's actions on a lake, and comparing after each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self, TypeAlias

import duckdb
import pyarrow as pa

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError, SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.format.types.names import join_name
from ducklake_core.format.types.schema import to_arrow_schema
from ducklake_core.maintenance.request import MaintenanceResult
from tests.property.histories.actions import FOLDER, Action, Reattach, Sql, Upkeep, Write, script
from tests.property.histories.comparison import compare_listing, compare_table, differences, remember, tables_at
from tests.property.histories.divergences import ReferenceBrokeError, reference_failure
from tests.property.histories.sketch import TableSketch, look
from tests.property.histories.steps import first_steps, next_in_transaction, next_step
from tests.support.lakes import held_open
from tests.support.oracle import LakeAddress, Oracle, attached, quoted
from tests.support.scans import counted

NOT_COMPARED = -1
Shown: TypeAlias = dict[tuple[int, str], Counter[str]]
"""Rows as texts, by snapshot and table."""


class Lake:
    """One lake that the oracle and we work on in turns."""

    def __init__(self, address: LakeAddress, attach: str = "") -> None:
        self.address = address
        self.attach = attach
        self.done: list[Action] = []
        self.outcomes: Counter[tuple[str, bool]] = Counter()
        self.refused: Counter[str] = Counter()
        self.in_transaction = False
        self.is_alone = False
        self.draw = Random(7)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.duck: Oracle = self._stack.enter_context(attached(self.address, self.attach))
        self.ours = DuckLake.connect(self.address.url)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            error.add_note(f"the history, for tests.property.histories.play.replay: {script(self.done)}")
        if self.in_transaction:
            self.duck.connection.execute("ROLLBACK")
        self.ours.close()
        if not self.is_alone:
            self._leave()

    def go_alone(self) -> None:
        """The oracle leaves for good."""
        self._leave()
        self.is_alone = True

    def _leave(self) -> None:
        # A connection that an error has broken must not hide the error.
        with suppress(duckdb.Error):
            for name in ("theirs", "before", "incoming", "expected", "after"):
                self.duck.connection.execute(f"DROP TABLE IF EXISTS temp.main.{name}")
            self._stack.close()

    def perform(self, action: Action) -> bool:
        """Do it; False when the oracle refused the statement, which is no matter."""
        self.done.append(action)
        match action:
            case Sql(text=text):
                done = self._run(text.replace(FOLDER, str(Path(self.address.data_path).parent)))
                self.outcomes[" ".join(text.split()[:2]).split("(")[0], done] += 1
                return done
            case Reattach():
                if not self.in_transaction:
                    self._leave()
                    self.duck = self._stack.enter_context(attached(self.address, self.attach))
            case Write():
                if not self.in_transaction:
                    done = self._write(action)
                    self.outcomes[f"our {action.verb}", done] += 1
                    return done
            case Upkeep():
                if not self.in_transaction:
                    self._keep_up(action)
        return True

    def _run(self, statement: str) -> bool:
        try:
            self.duck.run(statement)
        except duckdb.Error as error:
            self.refused[f"{statement[:80]}: {str(error)[:150]}"] += 1
            reference_failure(error, statement)
            # Some errors leave a transaction open that nobody began.
            with suppress(duckdb.TransactionException):
                self.duck.connection.execute("ROLLBACK")
            self.in_transaction = False
            return False
        self.in_transaction = {"BEGIN": True, "COMMIT": False, "ROLLBACK": False}.get(statement, self.in_transaction)
        return True

    def _write(self, action: Write) -> bool:
        try:
            if action.verb != "create":
                remember(self.duck, "before", f"SELECT * FROM {action.table}")
            rows = self._rows(action)
        except duckdb.Error as error:
            reference_failure(error, repr(action))
            return False
        try:
            self._commit(action, rows)
        except (SchemaError, UnsupportedFeatureError, UsageError) as error:
            self.refused[f"our {action.verb}: {type(error).__name__} {str(error)[:150]}"] += 1
            return False
        self._check_written(action)
        return True

    def _rows(self, action: Write) -> pa.Table | None:
        if not action.rows:
            return None
        remember(self.duck, "incoming", action.rows)
        rows = self.duck.arrow("FROM incoming")
        if action.verb in ("create", "widen"):
            return rows
        schema = to_arrow_schema(self.ours.table(action.table).schema)
        try:
            return rows.select(schema.names).cast(schema)
        except (ValueError, pa.ArrowNotImplementedError):
            # NULLs for a column without, or a type that has no cast: what a commit says to that is ours to find out.
            return rows

    def _commit(self, action: Write, rows: pa.Table | None) -> None:
        name = action.table
        match action.verb:
            case "append":
                self.ours.write(name, rows, create=False)
            case "overwrite":
                self.ours.write(name, rows, mode="overwrite", where=action.where, create=False)
            case "upsert":
                self.ours.write(name, rows, mode="upsert", on=action.on, create=False)
            case "delete":
                self.ours.table(name).delete(action.where)
            case "create":
                self.ours.write(name, rows, partition_by=action.partition_by)
            case "widen":
                self.ours.write(name, rows, schema_evolution="additive", create=False)

    def _check_written(self, action: Write) -> None:
        """What the oracle reads after a commit of ours is what the oracle would have made of the rows before it."""
        kept = {
            "append": "FROM before",
            "overwrite": f"FROM before WHERE ({action.where or 'true'}) IS NOT TRUE",
            "delete": f"FROM before WHERE ({action.where}) IS NOT TRUE",
            "create": "FROM incoming LIMIT 0",
            "widen": "FROM before",
            "upsert": "FROM before ANTI JOIN incoming USING (" + ", ".join(quoted(name) for name in action.on) + ")",
        }[action.verb]
        added = "" if action.verb == "delete" else " UNION ALL BY NAME FROM incoming"
        remember(self.duck, "expected", f"({kept}){added}")
        remember(self.duck, "after", f"SELECT * FROM {action.table}")
        assert differences(self.duck, "after", "expected") == [], f"rows after our {action.verb}"

    def _keep_up(self, action: Upkeep) -> None:
        before, newest = shown(self.ours), self.ours.snapshot().id
        feed = told(self.ours, newest)
        match action.verb:
            case "merge_adjacent_files":
                self._carry_out(self.ours.merge_adjacent_files)
            case "flush_inlined_data":
                self._carry_out(self.ours.flush_inlined_data)
                assert not any(table.skipped is None for table in self.ours.flush_inlined_data(dry_run=True).tables)
            case "rewrite_data_files":
                self._carry_out(partial(self.ours.rewrite_data_files, delete_threshold=self.draw.choice((0.0, 0.3, None))))
            case "checkpoint":
                # Later verbs meet what the earlier ones have made of the lake.
                assert self.ours.checkpoint().failed_steps == ()
            case "expire_snapshots":
                left = {snapshot.id for snapshot in self.ours.snapshots()[:-1]}
                if left & set(action.versions):
                    self.ours.expire_snapshots(versions=sorted(left & set(action.versions)), min_age="0 days")
            case "cleanup_old_files":
                self.ours.cleanup_old_files(older_than=timedelta(0), min_age=timedelta(0))

        after = shown(self.ours)
        left = {snapshot.id for snapshot in self.ours.snapshots()}
        for (snapshot, name), rows in before.items():
            if snapshot in left:
                assert after[snapshot, name] == rows, f"{name} at {snapshot} after our {action.verb}"
        if left.issuperset(snapshot for snapshot, _ in before):
            assert told(self.ours, newest) == feed, f"the change feed after our {action.verb}"

    def _carry_out(self, verb: Callable[..., MaintenanceResult]) -> None:
        """A dry run plans what a run then does."""
        state = self.draw.getstate()
        planned = verb(dry_run=True)
        self.draw.setstate(state)
        done = verb()
        assert done.failed_steps == (), done
        assert [replace(step, outcome="done") for step in planned.steps] == [replace(step, outcome="done") for step in done.steps]

    def compare_newest(self, draw: Random, conditions: int) -> None:
        """Every table as it is now, and one of them at an earlier snapshot, by id or by time."""
        for table in look(self.duck).tables:
            self._compare(table, None, draw, conditions)
        snapshots = self.ours.snapshots()
        past = draw.choice(snapshots)
        tables = tables_at(self.duck, past.id)
        if tables:
            at = past.id if draw.random() < 0.7 else past.time
            self._compare(draw.choice(tables), at, draw, conditions)

    def compare_all(self, draw: Random) -> None:
        """Every table at every snapshot that is left, and the lists."""
        self._guarded(lambda: compare_listing(self.duck, self.ours), "lists")
        for snapshot in self.ours.snapshots():
            for table in tables_at(self.duck, snapshot.id):
                self._compare(table, snapshot.id, draw, 1)

    def _compare(self, table: TableSketch, at: Any, draw: Random, conditions: int) -> None:
        self._guarded(lambda: compare_table(self.duck, self.ours, table, at, draw, conditions), f"{table.sql} at {at}")

    def _guarded(self, compare: Any, what: str) -> None:
        try:
            compare()
        except duckdb.Error as error:
            reference_failure(error, what, reading=True)
            self.refused[f"read: {str(error)[:150]}"] += 1
        except Exception as error:
            error.add_note(what)
            raise


def shown(lake: DuckLake, known: Shown | None = None) -> Shown:
    """What every snapshot that is left shows of every table, row ids included; snapshots that are known are not read again."""
    left = {snapshot.id for snapshot in lake.snapshots()}
    found: Shown = {key: rows for key, rows in (known or {}).items() if key[0] in left}
    read = {number for number, _ in found}
    with held_open(lake):
        for snapshot in lake.snapshots():
            if snapshot.id in read:
                continue
            with lake.reader() as reader:
                names = [join_name(*name) for name in reader.table_names(snapshot.id).values()]
            for name in names:
                table = lake.table(name, at=snapshot.id)
                rows = table.scan(columns=[*table.schema.names, "rowid"]).to_arrow()
                found[snapshot.id, name] = counted(rows)
    return found


def told(lake: DuckLake, until: int) -> dict[str, Counter[str]]:
    """What the change feed tells of every table up to a snapshot, of those about which it can."""
    found: dict[str, Counter[str]] = {}
    with held_open(lake):
        first = lake.snapshots()[0].id
        for info in lake.tables(at=until):
            with suppress(DuckLakeError):
                rows = lake.table(info.table, at=until).changes(first, until).to_arrow()
                found[info.table] = counted(rows)
    return found


def live(lake: Lake, seeds: Sequence[int], conditions: int = 1) -> None:
    """A random history, one step a seed (so that a part of the seeds is a history too), compared after each."""
    try:
        for action in first_steps(Random(len(seeds) and seeds[0])):
            lake.perform(action)
        for seed in seeds:
            draw = Random(seed)
            for action in next_in_transaction(draw, lake.duck) if lake.in_transaction else next_step(draw, lake.duck):
                lake.perform(action)
            if lake.in_transaction and draw.random() < 0.35:
                lake.perform(Sql(draw.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK"))))
            if not lake.in_transaction and conditions != NOT_COMPARED:
                lake.compare_newest(draw, conditions)
        _end(lake, compare=conditions != NOT_COMPARED)
    except ReferenceBrokeError as broke:
        lake.refused[f"DuckDB broke: {broke}"] += 1


def replay(lake: Lake, actions: Iterable[Action], conditions: int = 2, *, each: bool = True) -> None:
    """Given actions, compared after each (or at the end only)."""
    try:
        for action in actions:
            lake.perform(action)
            if each and not lake.in_transaction:
                lake.compare_newest(lake.draw, conditions)
        _end(lake)
    except ReferenceBrokeError:
        return


def _end(lake: Lake, *, compare: bool = True) -> None:
    if lake.in_transaction:
        lake.perform(Sql("COMMIT"))
    lake.perform(Reattach())
    if compare:
        lake.compare_all(Random(len(lake.done)))
