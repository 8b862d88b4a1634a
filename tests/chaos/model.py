"""Model of the lake: replays changes on dictionaries and compares them with what an engine read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from tests.chaos.changes import (
    ACCOUNT_TABLES,
    TABLES,
    TOTAL_BALANCE,
    AddColumn,
    Change,
    Delete,
    DuckDBChange,
    Insert,
    Merge,
    Overwrite,
    Restore,
    Row,
    Rows,
    Update,
    Upsert,
    WriteBalances,
    matches,
)
from tests.chaos.lake import TableRead

Columns = dict[str, int | None]
"""Defaults of the extra columns by their names."""


class Model:
    """Tables after each replayed snapshot."""

    def __init__(self) -> None:
        self.tables: dict[str, Rows] = {table: {} for table in TABLES}
        self.columns: dict[str, Columns] = {table: {} for table in TABLES}
        self.kept: dict[int, tuple[dict[str, Rows], dict[str, Columns]]] = {}
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """Rows that the current snapshot added, updated and deleted, by table."""
        self.violations: list[str] = []
        self.changed_by_duckdb: defaultdict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        """Base and snapshot of the commits in which DuckDB deletes or updates a row, by table and unique id."""

    def keep(self, snapshot: int) -> None:
        """Keep the current rows as those of a snapshot."""
        self.kept[snapshot] = (dict(self.tables), {table: dict(columns) for table, columns in self.columns.items()})

    def apply(self, operation: str, change: Change, snapshot: int) -> None:
        """Apply a change of an operation that was committed as a snapshot."""
        table, who = change.table, f"snapshot {snapshot}, operation {operation}"
        # Kept snapshots share the dictionaries.
        rows = self.tables[table] = dict(self.tables[table])
        counts = self.counts[table]
        match change:
            case Insert(rows=new):
                self._insert(who, table, new)
            case Overwrite(condition=condition, rows=new):
                self.apply(operation, Delete(table, condition), snapshot)
                self._insert(who, table, new)
            case Delete(condition=condition):
                deleted = [uid for uid, row in rows.items() if matches(condition, uid, row)]
                counts["deleted"] += len(deleted)
                for uid in deleted:
                    del rows[uid]
            case Update(condition=condition, assignment=assignment):
                updated = {uid: assignment.apply(row) for uid, row in rows.items() if matches(condition, uid, row)}
                counts["updated"] += len(updated)
                rows |= updated
            case Upsert():
                self._upsert(change)
            case Merge():
                self._merge(change)
            case AddColumn(name=name, default=default):
                self.columns[table].setdefault(name, default)
            case Restore(snapshot=earlier):
                self.tables[table] = self.kept[earlier][0][table]
            case WriteBalances(read=read, written=written):
                self.violations += [
                    f"{who}: lost update: the transaction read {balance} for {uid}, which had {rows[uid].v} before the snapshot"
                    for uid, balance in read.items()
                    if rows[uid].v != balance
                ]
                rows |= {uid: rows[uid]._replace(v=balance) for uid, balance in written.items()}
            case DuckDBChange():
                self._change_by_duckdb(who, change)

    def _insert(self, who: str, table: str, new: Rows) -> None:
        rows = self.tables[table]
        if duplicates := new.keys() & rows.keys():
            self.violations.append(f"{who}: {len(duplicates)} inserted rows of {table} exist already, such as {sorted(duplicates)[:3]}")
        rows |= new
        for row in new.values():
            for name in row.extra:
                self.columns[table].setdefault(name, None)
        self.counts[table]["added"] += len(new)

    def _upsert(self, change: Upsert) -> None:
        rows = self.tables[change.table]
        if change.key == "k":
            keys = {row.k for row in change.rows.values()}
            new, replaced = change.rows, [uid for uid, row in rows.items() if row.k in keys]
        else:
            # Matched rows keep the columns that the frame lacks.
            new = {uid: row._replace(extra=rows[uid].extra) if uid in rows else row for uid, row in change.rows.items()}
            replaced = [uid for uid in new if uid in rows]
        for uid in replaced:
            del rows[uid]
        rows |= new

    def _merge(self, change: Merge) -> None:
        rows, counts = self.tables[change.table], self.counts[change.table]
        source = {row.k: (uid, row) for uid, row in change.rows.items()}
        matched = {row.k for row in rows.values()} & source.keys()
        for uid, row in list(rows.items()):
            if row.k not in matched:
                continue
            _, other = source[row.k]
            if other.v % 5 == 0:
                del rows[uid]
                counts["deleted"] += 1
            else:
                rows[uid] = row._replace(v=row.v + other.v, note=other.note)
                counts["updated"] += 1
        inserted = {uid: row for k, (uid, row) in source.items() if k not in matched}
        rows |= inserted
        counts["added"] += len(inserted)

    def _change_by_duckdb(self, who: str, change: DuckDBChange) -> None:
        rows = self.tables[change.table]
        what = f"{who}: DuckDB {'deleted' if change.deletes else 'updated'} the row {{}} of {change.table} that it read with v = {{}}, "
        for uid, v in change.read:
            if uid not in rows:
                self.violations.append(what.format(uid, v) + "but the row was deleted before the snapshot")
                continue
            if rows[uid].v != v:
                self.violations.append(what.format(uid, v) + f"but v was {rows[uid].v} before the snapshot")
            if change.deletes:
                del rows[uid]
            else:
                rows[uid] = rows[uid]._replace(v=v + 7)

    def compare(self, snapshot: int, read: dict[str, TableRead], engine: str) -> tuple[list[str], list[str]]:
        """Return the differences between the model and what an engine read at a snapshot, and apart those of early deletes.

        When DuckDB repeats a commit, its delete files keep the snapshot id of the first attempt: rows are missing from the snapshots
        between the base and the commit.
        """
        differences: list[str] = []
        early_deletes: list[str] = []
        tables, columns = self.kept[snapshot]
        for table, found in read.items():
            where = f"{engine} at snapshot {snapshot}, table {table}"
            if set(found.columns) != {"k", "v", "p", "note", *columns[table]}:
                differences.append(f"{where}: columns {found.columns}, expected extra columns {sorted(columns[table])}")
                continue
            if found.duplicates:
                differences.append(f"{where}: {len(found.duplicates)} duplicates, such as {found.duplicates[:3]}")
            expected = {uid: _values(row, columns[table]) for uid, row in tables[table].items()}
            names = ["k", "v", "p", "note", *sorted(columns[table])]
            indexes = [found.columns.index(name) for name in names]
            actual = {uid: tuple(values[index] for index in indexes) for uid, (values, _) in found.rows.items()}
            missing, surplus = expected.keys() - actual.keys(), actual.keys() - expected.keys()
            early = {
                uid for uid in missing if any(base < snapshot < commit for base, commit in self.changed_by_duckdb.get((table, uid), ()))
            }
            if early:
                early_deletes.append(f"{where}: {len(early)} rows are missing that DuckDB deletes or updates in a later snapshot")
            other = {uid for uid in expected.keys() & actual.keys() if expected[uid] != actual[uid]}
            differences += _examples(f"{where}: rows are missing", missing - early, expected)
            differences += _examples(f"{where}: unexpected rows", surplus, actual)
            differences += _examples(f"{where}: rows have other values", other, {uid: (expected[uid], actual[uid]) for uid in other})
        if read and not early_deletes:
            total = sum(values[1] for table in ACCOUNT_TABLES for values in _base_values(read[table]))
            if total != TOTAL_BALANCE:
                differences.append(f"{engine} at snapshot {snapshot}: the sum of all balances is {total}, expected {TOTAL_BALANCE}")
        if read:
            repeated = [k for k, count in Counter(values[0] for values in _base_values(read["keyed"])).items() if count > 1]
            if repeated:
                differences.append(f"{engine} at snapshot {snapshot}, table keyed: several rows have the keys {repeated[:5]}")
        return differences, early_deletes


def _values(row: Row, columns: Columns) -> tuple[Any, ...]:
    return (row.k, row.v, row.p, row.note, *(row.extra.get(name, columns[name]) for name in sorted(columns)))


def _base_values(read: TableRead) -> Iterable[tuple[Any, ...]]:
    k, v = read.columns.index("k"), read.columns.index("v")
    return ((values[k], values[v]) for values, _ in read.rows.values())


def _examples(what: str, uids: set[str], values: dict[str, Any]) -> list[str]:
    return [f"{what}: {len(uids)}, such as {[(uid, values[uid]) for uid in sorted(uids)[:3]]}"] if uids else []
