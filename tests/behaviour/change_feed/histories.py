"""Random histories of one table, made by DuckDB, and every change as DuckDB's time travel shows it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

from ducklake_core import DuckLake
from tests.support.oracle import Oracle

Rows = Counter[tuple[Any, ...]]

_STEPS = {
    "insert": 4, "insert_file": 5, "delete": 4, "delete_many": 4, "update": 4, "update_many": 3, "merge": 1, "rewrite": 1.5, "flush": 1.5,
    "truncate": 0.4, "delete_all": 0.4, "add_column": 0.7, "drop_column": 0.4, "promote": 0.2,
}  # fmt: skip
# DuckDB fails by itself: a rewrite in a table that has inlined rows and an altered column.
_OWN_FAILURES = ("Failed to read inlined-data aggregates",)


class History:
    """Statements on a table ``t(a, s, ...)``: ``a`` is never updated, ``s`` is; other columns come and go."""

    def __init__(self, duck: Oracle, seed: int) -> None:
        self._duck = duck
        self._random = random.Random(seed)
        self._next = 0
        self._added: list[str] = []
        self._rewritten = False
        duck.run("CREATE TABLE t (a INTEGER, s VARCHAR)")

    def run(self, steps: int) -> None:
        """Some random steps, each in a transaction of its own."""
        for number in range(steps):
            (name,) = self._random.choices(list(_STEPS), list(_STEPS.values()))
            try:
                self._duck.run(*self._statements(name, number))
            except Exception as error:
                if not any(text in str(error) for text in _OWN_FAILURES):
                    raise

    def _statements(self, name: str, number: int) -> list[str]:
        first = self._random.randrange(max(1, self._next))
        match name:
            case "insert" | "insert_file":
                count = self._random.randint(1, 3) if name == "insert" else self._random.randint(12, 30)
                values = "".join(", NULL" if self._random.random() < 0.3 else f", '{column}' || i" for column in self._added)
                self._next += count
                return [f"INSERT INTO t SELECT i, 'v' || i{values} FROM range({self._next - count}, {self._next}) r(i)"]
            case "delete":
                return [f"DELETE FROM t WHERE a % 37 = {self._random.randrange(37)}"]
            case "delete_many":
                return [f"DELETE FROM t WHERE a BETWEEN {first} AND {first + 30}"]
            case "update":
                return [f"UPDATE t SET s = 'u{number}' WHERE a % 31 = {self._random.randrange(31)}"]
            case "update_many":
                return [f"UPDATE t SET s = 'U{number}' WHERE a BETWEEN {first} AND {first + 20}"]
            case "merge" if self._rewritten:
                # DuckDB's time travel then finds rows twice: in the rewritten file's source, and in the merged file.
                return []
            case "merge":
                return ["CALL ducklake_merge_adjacent_files('lake')"]
            case "rewrite":
                self._rewritten = True
                return ["CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.05)"]
            case "flush":
                return ["CALL ducklake_flush_inlined_data('lake')"]
            case "truncate":
                return ["TRUNCATE t"]
            case "delete_all":
                return ["DELETE FROM t"]
            case "promote":
                return ["ALTER TABLE t ALTER a TYPE BIGINT"]
            case "add_column":
                self._added.append(f"c{number}")
                return [f"ALTER TABLE t ADD COLUMN c{number} VARCHAR DEFAULT 'd{number}'"]
            case _:
                if not self._added:
                    return []
                return [f"ALTER TABLE t DROP COLUMN {self._added.pop(self._random.randrange(len(self._added)))}"]


def rewrites(duck: Oracle) -> list[int]:
    """Snapshots that only wrote files again."""
    text = "SELECT snapshot_id FROM lake.snapshots() WHERE list_contains(map_keys(changes), 'rewrite_delete') ORDER BY ALL"
    return [int(str(number)) for (number,) in duck.rows(text)]


def last_snapshot(duck: Oracle) -> int:
    """The newest snapshot."""
    return int(str(duck.value("SELECT max(snapshot_id) FROM lake.snapshots()")))


def changes_by_time_travel(duck: Oracle, lake: DuckLake, created: int) -> list[tuple[Any, ...]]:
    """(snapshot_id, rowid, change_type, a, s) of every change, by comparing each snapshot with the one before it."""
    moved = set(rewrites(duck))
    found: list[tuple[Any, ...]] = []
    before: dict[Any, tuple[Any, ...]] = {}
    for snapshot in range(created, last_snapshot(duck) + 1):
        rows = duck.rows(f"SELECT rowid, snapshot_id, a, s FROM t AT (VERSION => {snapshot})")
        after = {row[0]: row[1:] for row in rows}
        if len(after) < len(rows):
            # Flushing old deletes of a rewritten file gives it a second delete file, and DuckDB then reads the file twice.
            own = lake.table("t", at=snapshot).scan(["rowid", "snapshot_id", "a", "s"]).to_arrow()
            after = {row[0]: row[1:] for row in zip(*(column.to_pylist() for column in own.columns), strict=True)}
            assert len(after) == own.num_rows
        new = set() if snapshot in moved else {row_id for row_id, row in after.items() if row[0] == snapshot}
        deleted = {row_id for row_id in before if row_id not in after or row_id in new}
        found += [(snapshot, i, "update_postimage" if i in deleted else "insert", *after[i][1:]) for i in new]
        found += [(snapshot, i, "update_preimage" if i in new else "delete", *before[i][1:]) for i in deleted]
        before = after
    return found


def within(changes: Iterable[tuple[Any, ...]], start: int, end: int) -> Rows:
    """The changes of a range, as a multiset."""
    return Counter(row for row in changes if start <= row[0] <= end)
