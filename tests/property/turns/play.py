"""One table changed by us and by a second implementation in turns, beside a list of the rows that it should have."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

import pyarrow as pa
from ducklakepy import DuckLakeCatalog
from ducklakepy.exceptions import DuckLakeError as TheirError
from ducklakepy.expressions import col
from ducklakepy.types import parse_primitive_type

from ducklake_core import DuckLake
from tests.support.ducklakepy_lake import BACKENDS, faults, second_implementation, sorted_rows
from tests.support.oracle import LakeAddress

_TYPES: dict[str, pa.DataType] = {"int64": pa.int64(), "varchar": pa.string(), "float64": pa.float64(), "date": pa.date32()}
_NOW = {"older_than": dt.timedelta(0), "min_age": dt.timedelta(0)}
Row = dict[str, Any]


class Turns:
    """A lake, the rows that it should have, and those of each of its snapshots.

    Args:
        address: Where the lake is made.
        version: Its version at first.
        seed: Of everything that happens.
    """

    def __init__(self, address: LakeAddress, version: str, seed: int) -> None:
        self.address = address
        self.draw = Random(seed)
        self.lake = DuckLake.create(address.url, data_path=address.data_path, version=version)  # type: ignore[arg-type]
        self.lake.set_option("data_inlining_row_limit", self.draw.choice((0, 5, 10)))
        self.lake.set_option("write_deletion_vectors", self.draw.random() < 0.5)
        self.name = "x.y.t" if version == "1.1" else "main.t"
        self.columns: dict[str, str] = {"a": "int64", "s": "varchar"}
        self.rows: list[Row] = []
        self.history: dict[int, tuple[list[str], list[Row]]] = {}
        self.done: list[str] = []
        self._next = 0
        self.lake.write(self.name, self._new(3))

    def play(self, steps: int) -> None:
        """Live through a history, and compare all snapshots in the end."""
        try:
            self._remember()
            for _ in range(steps):
                act = self.draw.choice(self._acts())
                act()
                self._compare(self.lake.snapshots()[-1].id)
                self._remember()
            for snapshot in self.lake.snapshots():
                if snapshot.id in self.history:
                    self._compare(snapshot.id)
            assert faults(self.lake) == []
        except Exception as error:
            error.add_note("; ".join(self.done))
            raise

    def _acts(self) -> list[Callable[[], None]]:
        ours = [self._append, self._append, self._append, self._delete, self._update, self._add, self._rename, self._drop, self._keep_up]
        ours += [self._overwrite] + ([self._migrate] if self.lake.info.version == "1.0" and len(self.done) > 5 else [])
        theirs = [self._their_append, self._their_append, self._their_delete, self._their_update, self._their_add, self._their_upkeep]
        return ours + theirs

    def _remember(self) -> None:
        self.history[self.lake.snapshots()[-1].id] = (list(self.columns), deepcopy(self.rows))

    def _new(self, count: int) -> pa.Table:
        added = []
        for _ in range(count):
            values = {name: self._value(kind) for name, kind in self.columns.items()}
            added.append(values | {"a": self._next})
            self._next += 1
        self.rows += added
        return pa.Table.from_pylist(added, pa.schema([(name, _TYPES[kind]) for name, kind in self.columns.items()]))

    def _value(self, kind: str) -> Any:
        if self.draw.random() < 0.2:
            return None
        match kind:
            case "int64":
                return self.draw.choice((0, -1, 2**62, self.draw.randrange(100)))
            case "float64":
                return self.draw.choice((0.0, -1.5, 1e300, float("inf")))
            case "date":
                return dt.date(1969, 12, 30) + dt.timedelta(self.draw.randrange(400))
            case _:
                return self.draw.choice(("", "x", "é'\"", "s" * 300, f"v{self.draw.randrange(50)}"))

    def _bounds(self) -> tuple[int, int]:
        low = self.draw.randrange(max(self._next, 1))
        return low, low + self.draw.choice((0, 2, 30, 200))

    def _append(self) -> None:
        count = self.draw.choice((1, 4, 8, 60))
        self.done.append(f"append {count}")
        self.lake.write(self.name, self._new(count))

    def _overwrite(self) -> None:
        low, high = self._bounds()
        self.done.append(f"overwrite {low} to {high}")
        self.rows = [row for row in self.rows if not low <= row["a"] <= high]
        start = self._next
        self._next = low
        new = self._new(min(3, high - low + 1))
        self._next = start
        self.lake.table(self.name).overwrite(new, where=f"a BETWEEN {low} AND {high}")

    def _delete(self) -> None:
        low, high = self._bounds()
        self.done.append(f"delete {low} to {high}")
        self.lake.table(self.name).delete(f"a BETWEEN {low} AND {high}")
        self.rows = [row for row in self.rows if not low <= row["a"] <= high]

    def _update(self) -> None:
        low, high = self._bounds()
        text = next((name for name, kind in self.columns.items() if kind == "varchar"), None)
        if text is not None:
            self.done.append(f"update {low} to {high}")
            self.lake.table(self.name).update({text: "'ours'"}, where=f"a BETWEEN {low} AND {high}")
            self._set(text, "ours", low, high)

    def _set(self, name: str, value: object, low: int, high: int) -> None:
        for row in self.rows:
            if low <= row["a"] <= high:
                row[name] = value

    def _add(self) -> None:
        name, kind = self._new_column()
        self.lake.table(self.name).add_column(name, kind)

    def _new_column(self) -> tuple[str, str]:
        name, kind = f"c{len(self.done)}", self.draw.choice(list(_TYPES))
        self.done.append(f"add {name} {kind}")
        self.columns[name] = kind
        for row in self.rows:
            row[name] = None
        return name, kind

    def _rename(self) -> None:
        old, new = self.draw.choice([name for name in self.columns if name != "a"]), f"r{len(self.done)}"
        self.done.append(f"rename {old} to {new}")
        self.lake.table(self.name).rename_column(old, new)
        self.columns = {new if name == old else name: kind for name, kind in self.columns.items()}
        self.rows = [{new if name == old else name: value for name, value in row.items()} for row in self.rows]

    def _drop(self) -> None:
        if len(self.columns) > 3:
            name = self.draw.choice([name for name in self.columns if name != "a"])
            self.done.append(f"drop {name}")
            self.lake.table(self.name).drop_column(name)
            del self.columns[name]
            for row in self.rows:
                del row[name]

    def _keep_up(self) -> None:
        verb = self.draw.choice(("flush", "merge", "rewrite", "expire"))
        self.done.append(verb)
        match verb:
            case "flush":
                self.lake.flush_inlined_data()
            case "merge":
                self.lake.merge_adjacent_files()
            case "rewrite":
                self.lake.rewrite_data_files(delete_threshold=0.1)
            case _:
                self._expire(lambda versions: self.lake.expire_snapshots(versions=versions, min_age=dt.timedelta(0)))
                self.lake.cleanup_old_files(**_NOW)

    def _expire(self, expire: Callable[[list[int]], object]) -> None:
        known = [snapshot.id for snapshot in self.lake.snapshots()][:-1]
        chosen = sorted(self.draw.sample(known, len(known) // 3))
        if chosen:
            expire(chosen)
            self.history = {number: state for number, state in self.history.items() if number not in chosen}

    def _migrate(self) -> None:
        if self.address.backend not in BACKENDS or self.draw.random() < 0.5:
            self.done.append("migrate")
            self.lake.migrate("1.1")
        else:
            self.done.append("they migrate")
            with second_implementation(self.address, migrate=True):
                pass
        self.lake.close()
        self.lake = DuckLake.connect(self.address.url)

    def _their_append(self) -> None:
        count = self.draw.choice((1, 4, 8, 60))
        self.done.append(f"they append {count}")
        new = self._new(count)
        with second_implementation(self.address) as catalog:
            catalog.load_table(self.name).append(new)

    def _their_delete(self) -> None:
        low, high = self._bounds()
        self.done.append(f"they delete {low} to {high}")
        with second_implementation(self.address) as catalog:
            catalog.load_table(self.name).delete((col("a") >= low) & (col("a") <= high))
        self.rows = [row for row in self.rows if not low <= row["a"] <= high]

    def _their_update(self) -> None:
        low, high = self._bounds()
        text = next((name for name, kind in self.columns.items() if kind == "varchar"), None)
        if text is not None:
            self.done.append(f"they update {low} to {high}")
            with second_implementation(self.address) as catalog:
                catalog.load_table(self.name).update((col("a") >= low) & (col("a") <= high), {text: "theirs"})
            self._set(text, "theirs", low, high)

    def _their_add(self) -> None:
        name, kind = self._new_column()
        with second_implementation(self.address) as catalog, catalog.load_table(self.name).update_schema() as change:
            change.add_column(name, parse_primitive_type(kind))

    def _their_upkeep(self) -> None:
        verb = self.draw.choice(("flush", "merge", "rewrite", "expire"))
        self.done.append(f"they {verb}")
        with second_implementation(self.address) as catalog:
            self._theirs(catalog, verb)

    def _theirs(self, catalog: DuckLakeCatalog, verb: str) -> None:
        match verb:
            case "flush":
                catalog.flush_inlined_data(self.name)
            case "merge":
                catalog.merge_adjacent_files()
            case "rewrite":
                catalog.rewrite_data_files(delete_threshold=0.1)
            case _:
                self._expire(lambda versions: catalog.expire_snapshots(versions=versions))
                catalog.cleanup_old_files(older_than=dt.timedelta(0), exclusive=True)

    def _compare(self, snapshot: int) -> None:
        columns, rows = self.history.get(snapshot, (list(self.columns), self.rows))
        wanted = sorted((tuple(row[name] for name in columns) for row in rows), key=repr)
        found = self.lake.table(self.name, at=snapshot).scan().to_arrow()
        assert found.column_names == columns, snapshot
        assert sorted_rows(found) == wanted, snapshot
        with second_implementation(self.address) as catalog:
            try:
                theirs = catalog.load_table(self.name, snapshot=catalog.snapshot_by_id(snapshot)).to_arrow()
            except TheirError as error:
                raise AssertionError(f"they cannot read snapshot {snapshot}: {error}") from error
        assert sorted_rows(theirs) == wanted, f"they at {snapshot}"
