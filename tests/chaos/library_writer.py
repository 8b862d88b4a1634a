"""Writer that uses the library: it repeats random operations and resolves the one during which it was killed."""

from __future__ import annotations

import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Literal

from ducklake_core import DuckLake
from ducklake_core.errors import CatalogUnavailableError, CommitOutcomeUnknownError, DuckLakeError
from tests.chaos.changes import (
    ACCOUNTS,
    EVOLVING_TABLES,
    PARTITIONS,
    ROW_TABLES,
    TABLES,
    AddColumn,
    Assignment,
    Change,
    Condition,
    Delete,
    Insert,
    Merge,
    Overwrite,
    Restore,
    Row,
    Rows,
    Term,
    Update,
    Upsert,
    WriteBalances,
    equals,
    frame,
    generated_rows,
    sql,
)
from tests.chaos.lake import Run
from tests.chaos.ledger import Failure, Found, Intent, Ledger, Plan, Rerun, RerunIntent, Result, Success

_EXTRA_COLUMNS = 4
_PAUSE = 0.1
"""Maximum number of seconds between two operations."""
_MIN_FILE_AGE = timedelta(seconds=8)
_RECENT_ROWS = 60

Operation = tuple[Sequence[Change], Callable[[dict[str, Any]], Result]]
"""Changes for the model, and a call that takes the commit options."""


def write_with_library(run: Run, name: str, incarnation: int) -> None:
    """Run random operations until the run ends."""
    writer = LibraryWriter(run, name, incarnation)
    writer.resolve_interrupted()
    while not run.ended:
        writer.run_one()
        time.sleep(writer.choose.random() * _PAUSE)


class LibraryWriter:
    """One incarnation of a writer. Its operations are methods that return an ``Operation``."""

    def __init__(self, run: Run, name: str, incarnation: int) -> None:
        self.run = run
        self.prefix = f"{name}.{incarnation}"
        self.may_expire = name in {"w0", "w1"}
        self.choose = random.Random(f"{run.seed}/{name}/{incarnation}")
        self.ledger = Ledger(run.folder, name)
        self.count = 0
        self.recent: dict[str, list[str]] = {table: [] for table in TABLES}
        """Unique ids of rows that this writer wrote."""
        self.lake = _connected(run.address.url)

    def run_one(self) -> None:
        """Run a random operation and append its intent and its outcome to the ledger."""
        self.count += 1
        name = f"{self.prefix}.{self.count}"
        methods = [method for method in WEIGHTS if not self.run.operations or method.__name__ in self.run.operations]
        method = self.choose.choices(methods, [WEIGHTS[method] for method in methods])[0]
        if method is LibraryWriter.expire_snapshots and (not self.may_expire or time.time() > self.run.last_expiry):
            method = LibraryWriter.merge_files
        has_commit_id = self.choose.random() < 0.5
        changes, call = method(self, name)
        self.ledger.append(Intent(operation=name, kind=method.__name__, changes=changes, has_commit_id=has_commit_id))
        start = time.time()
        try:
            result = call({"extra_info": {"operation": name}} | ({"commit_id": name} if has_commit_id else {}))
        except Exception as error:  # noqa: BLE001 - errors of other types are reported as violations
            documented = isinstance(error, DuckLakeError)
            failure = Failure(
                operation=name,
                seconds=time.time() - start,
                error=type(error).__name__,
                message=str(error)[:600],
                outcome_unknown=not documented or isinstance(error, CommitOutcomeUnknownError),
                traceback=None if documented else traceback.format_exc()[-3000:],
            )
            self.ledger.append(failure)
        else:
            self.ledger.append(Success(operation=name, seconds=time.time() - start, result=result))

    def resolve_interrupted(self) -> None:
        """Find out what became of the operation during which this writer was killed, and run most of the inserts again."""
        intent = None
        for entry in self.ledger.entries():
            if isinstance(entry, Intent):
                intent = entry
            elif isinstance(entry, (Success, Failure)):
                intent = None
        if intent is None or not intent.has_commit_id:
            return
        name = intent.operation
        try:
            snapshot = self.lake.find_commit(name)
            found = snapshot.id if snapshot else None
            self.ledger.append(Found(operation=name, snapshot=found))
            if intent.kind.startswith("append") and self.choose.random() < 0.7:
                (insert,) = intent.changes
                assert isinstance(insert, Insert)
                self.ledger.append(RerunIntent(operation=name))
                result = self._write(insert, {"extra_info": {"operation": name}, "commit_id": name})
                self.ledger.append(Rerun(operation=name, repeated=result.repeated, snapshot=result.snapshot, found=found))
        except DuckLakeError:
            pass  # The catalog is not available; the model accepts either outcome.

    def append_small(self, name: str) -> Operation:
        """Append a few rows."""
        return self._append(self.choose.choice(ROW_TABLES), generated_rows(name, self.choose.randint(1, 9)))

    def append_large(self, name: str) -> Operation:
        """Append many rows."""
        return self._append(self.choose.choice(ROW_TABLES[:3]), generated_rows(name, self.choose.randint(50, 500)))

    def append_with_new_column(self, name: str) -> Operation:
        """Append rows with a column that the table may lack."""
        rows = generated_rows(name, self.choose.randint(1, 30), extra_column=self._extra_column())
        return self._append(self.choose.choice(EVOLVING_TABLES), rows)

    def _append(self, table: str, rows: Rows) -> Operation:
        self._remember(table, rows)
        insert = Insert(table, rows)
        return [insert], lambda options: self._write(insert, options)

    def _write(self, insert: Insert, options: dict[str, Any]) -> Result:
        data = frame(insert.rows)
        evolution: Literal["additive", "strict"] = "additive" if next(iter(insert.rows.values())).extra else "strict"
        return _result(self.lake.write(insert.table, data, create=False, schema_evolution=evolution, missing_columns="null", **options))

    def overwrite(self, name: str) -> Operation:
        """Overwrite the rows of one p, by condition or by partition."""
        table = self.choose.choice(("plain", "partitioned", "partitioned", "sorted"))
        p = self.choose.randrange(PARTITIONS)
        rows = generated_rows(name, self.choose.choice((0, 3, 20, 60)), p)
        self._remember(table, rows)
        by_partition = table == "partitioned" and self.choose.random() < 0.5
        target: dict[str, Any] = {"partitions": [{"p": p}]} if by_partition else {"where": f"p = {p}"}
        return [Overwrite(table, equals("p", p), rows)], lambda options: _result(
            self.lake.table(table).overwrite(frame(rows), missing_columns="null", **target, **options)
        )

    def delete(self, name: str) -> Operation:
        """Delete rows."""
        table = self.choose.choice(ROW_TABLES)
        condition = self._condition(table)
        return [Delete(table, condition)], lambda options: _result(self.lake.table(table).delete(sql(condition), **options))

    def update(self, name: str) -> Operation:
        """Update rows."""
        table = self.choose.choice(ROW_TABLES)
        condition = self._condition(table)
        column = self.choose.choice(("v", "p", "note"))
        assignment = Assignment(column, name if column == "note" else self.choose.randint(1, 5))
        return [Update(table, condition, assignment)], lambda options: _result(
            self.lake.table(table).update(assignment.sql(), where=sql(condition), **options)
        )

    def upsert_by_number(self, name: str) -> Operation:
        """Upsert rows by k, so that writers meet."""
        rows = self._keyed_rows(name)
        return [Upsert("keyed", "k", rows)], lambda options: _result(self.lake.table("keyed").upsert(frame(rows), on=["k"], **options))

    def upsert_by_uid(self, name: str) -> Operation:
        """Upsert new rows and some rows of earlier operations."""
        table = self.choose.choice(EVOLVING_TABLES)
        old = self.choose.sample(self.recent[table], min(4, len(self.recent[table])))
        rows = generated_rows(name, self.choose.randint(1, 12))
        rows |= {uid: Row(self.choose.randrange(10**6), 5, self.choose.randrange(PARTITIONS), name, {}) for uid in old}
        self._remember(table, list(rows)[:4])
        return [Upsert(table, "uid", rows)], lambda options: _result(
            self.lake.table(table).upsert(frame(rows), on=["uid"], missing_columns="null", **options)
        )

    def merge(self, name: str) -> Operation:
        """Merge rows by k with three clauses."""
        rows = self._keyed_rows(name)

        def call(options: dict[str, Any]) -> Result:
            merge = self.lake.table("keyed").merge(frame(rows), on=["k"], **options).when_matched_delete(where="s.v % 5 = 0")
            merge = merge.when_matched_update({"v": "t.v + s.v", "note": "s.note"}).when_not_matched_insert("all")
            return _result(merge.execute())

        return [Merge("keyed", rows)], call

    def change_two_tables(self, name: str) -> Operation:
        """Append to a table, delete from another and update the first in one transaction."""
        first, second = self.choose.sample(ROW_TABLES, 2)
        rows = generated_rows(name, self.choose.choice((2, 5, 40)))
        deleted, updated = self._condition(second), self._condition(first)
        self._remember(first, rows)
        addition = Assignment("v", 3)

        def call(options: dict[str, Any]) -> Result:
            with self.lake.transaction(**options) as tx:
                tx.append(first, frame(rows), missing_columns="null")
                tx.delete(second, sql(deleted))
                tx.update(first, addition.sql(), where=sql(updated))
            return _transaction_result(tx)

        return [Insert(first, rows), Delete(second, deleted), Update(first, updated, addition)], call

    def transfer(self, name: str) -> Operation:
        """Move an amount between the tables of accounts by relative updates."""
        changes = transfer_changes(self.choose)

        def call(options: dict[str, Any]) -> Result:
            with self.lake.transaction(**options) as tx:
                for change in changes:
                    tx.update(change.table, change.assignment.sql(), where=sql(change.condition))
            return _transaction_result(tx)

        return changes, call

    def transfer_after_read(self, name: str) -> Operation:
        """Move an amount between two accounts by writing balances that the transaction has read."""
        source, target = (f"accounts-{self.choose.randrange(ACCOUNTS)}" for _ in range(2))
        amount = self.choose.randint(1, 40)

        def call(options: dict[str, Any]) -> Result:
            with self.lake.transaction(**options) as tx:
                data = tx.table("accounts").scan(columns=["uid", "v"]).to_arrow().to_pydict()
                balances: dict[str, int] = dict(zip(data["uid"], data["v"], strict=True))
                written = {source: balances[source] - amount}
                written[target] = written.get(target, balances[target]) + amount
                read = {uid: balances[uid] for uid in (source, target)}
                self.ledger.append(Plan(operation=name, changes=[WriteBalances("accounts", read, written)]))
                time.sleep(self.choose.random() * 0.05)
                for uid, balance in written.items():
                    tx.update("accounts", {"v": balance}, where=sql(equals("uid", uid)))
            return _transaction_result(tx)

        return [], call

    def add_column(self, name: str) -> Operation:
        """Add a column that the table may have."""
        table, column, default = self.choose.choice(EVOLVING_TABLES), self._extra_column(), self.choose.choice((None, 7))
        if_not_exists = self.choose.random() < 0.5

        def call(options: dict[str, Any]) -> Result:
            snapshot = self.lake.table(table).add_column(column, "int64", default=default, if_not_exists=if_not_exists, **options)
            return Result(snapshot=snapshot.id if snapshot else None, committed=snapshot is not None)

        return [AddColumn(table, column, default)], call

    def restore(self, name: str) -> Operation:
        """Restore the rows of one of the last snapshots."""
        table = self.choose.choice(ROW_TABLES)
        try:
            snapshots = [snapshot.id for snapshot in self.lake.snapshots()][-12:]
        except DuckLakeError:
            snapshots = [1]
        target = self.choose.choice(snapshots)
        return [Restore(table, target)], lambda options: _result(self.lake.table(table).restore(target, columns="now", **options))

    def merge_files(self, name: str) -> Operation:
        """Merge the small files of one table or of all tables."""
        table = self.choose.choice((None, *TABLES))
        return [], lambda _: Result(failures=[str(failure) for failure in self.lake.merge_adjacent_files(table).failures])

    def expire_snapshots(self, name: str) -> Operation:
        """Expire old snapshots and delete their files."""
        keep_last = self.choose.choice((5, 30, 30, 100))

        def call(_: dict[str, Any]) -> Result:
            self.lake.expire_snapshots(keep_last=keep_last, min_age=timedelta(seconds=self.run.min_age))
            cleanup = self.lake.cleanup_old_files(older_than=_MIN_FILE_AGE, min_age=timedelta(0))
            return Result(failures=[str(failure) for failure in cleanup.failed])

        return [], call

    def _extra_column(self) -> str:
        return f"x{self.choose.randrange(_EXTRA_COLUMNS)}"

    def _keyed_rows(self, name: str) -> Rows:
        keys = self.choose.sample(range(150), self.choose.randint(1, 14))
        return {f"{name}#{k}": Row(k, self.choose.randrange(1000), k % PARTITIONS, name, {}) for k in keys}

    def _remember(self, table: str, uids: Sequence[str] | Rows) -> None:
        self.recent[table] = (self.recent[table] + list(uids)[:20])[-_RECENT_ROWS:]

    def _condition(self, table: str) -> Condition:
        kind = self.choose.random()
        if kind < 0.4:
            return Term("p", "=", self.choose.randrange(PARTITIONS)), Term("k", "%", (5, self.choose.randrange(5)))
        if kind < 0.6:
            return (Term("k", "%", (11, self.choose.randrange(11))),)
        if kind < 0.8 and self.recent[table]:
            return (Term("uid", "in", self.choose.sample(self.recent[table], min(len(self.recent[table]), self.choose.randint(1, 8)))),)
        low = self.choose.randrange(10**6)
        return Term("k", ">=", low), Term("k", "<", low + 60000)


WEIGHTS: dict[Callable[[LibraryWriter, str], Operation], float] = {
    LibraryWriter.append_small: 14,
    LibraryWriter.append_large: 6,
    LibraryWriter.append_with_new_column: 2,
    LibraryWriter.overwrite: 6,
    LibraryWriter.delete: 9,
    LibraryWriter.update: 9,
    LibraryWriter.upsert_by_number: 6,
    LibraryWriter.upsert_by_uid: 5,
    LibraryWriter.merge: 6,
    LibraryWriter.change_two_tables: 8,
    LibraryWriter.transfer: 12,
    LibraryWriter.transfer_after_read: 6,
    LibraryWriter.add_column: 0.7,
    LibraryWriter.restore: 1,
    LibraryWriter.merge_files: 3,
    LibraryWriter.expire_snapshots: 2,
}
"""Operations and how often they are chosen."""


def transfer_changes(choose: random.Random) -> list[Update]:
    """Return the two updates that move an amount between the tables of accounts."""
    source, target = f"accounts-{choose.randrange(ACCOUNTS)}", f"savings-{choose.randrange(ACCOUNTS)}"
    amount = choose.randint(1, 40)
    return [
        Update("accounts", equals("uid", source), Assignment("v", -amount)),
        Update("savings", equals("uid", target), Assignment("v", amount)),
    ]


def _connected(url: str) -> DuckLake:
    """Connect to the lake. Wait up to 20 seconds for its catalog."""
    for _ in range(200):
        try:
            return DuckLake.connect(url)
        except CatalogUnavailableError:
            time.sleep(0.1)
    raise RuntimeError("The catalog was not available for 20 seconds.")


def _rows(writes: Sequence[Any]) -> dict[str, Counter[str]]:
    rows: dict[str, Counter[str]] = {}
    for write in writes:
        counts = {"added": write.rows_added, "updated": write.rows_updated, "deleted": write.rows_deleted}
        rows.setdefault(write.table.split(".")[-1], Counter()).update(counts)
    return rows


def _result(result: Any) -> Result:
    return Result(snapshot=result.snapshot_id, committed=result.committed, repeated=result.repeated, rows=_rows([result]))


def _transaction_result(tx: Any) -> Result:
    snapshot = tx.result.snapshot
    return Result(
        snapshot=snapshot.id if snapshot else None,
        committed=snapshot is not None,
        repeated=tx.result.repeated,
        rows=_rows(tx.result.writes),
    )
