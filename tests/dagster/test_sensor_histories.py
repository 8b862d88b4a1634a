"""The commit sensor on random histories by DuckDB: every partition that changed between two ticks is reported."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

import dagster as dg
import pytest

from ducklake_core import DuckLake
from ducklake_dagster import build_commit_sensor
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.parameters import spread

FIRST = date(2026, 3, 25)
DAYS = [FIRST + timedelta(days=number) for number in range(8)]
PARTITIONS = dg.DailyPartitionsDefinition(FIRST.isoformat(), end_date=(FIRST + timedelta(days=8)).isoformat(), timezone="Europe/Berlin")
TABLES = {"laid_out": "PARTITIONED BY (day)", "by_month": "PARTITIONED BY (month(day))", "mixed": ""}
MAINTENANCE = ("flush", "merge", "rewrite", "expire", "rewrite", "flush")
# Rows come in more than the ten that DuckDB keeps in the catalog, or in less.
SIZES = (1, 2, 15, 40)


class _LakeResource(dg.ConfigurableResource):
    """Any lake by its URL."""

    url: str

    def connect(self) -> DuckLake:
        return DuckLake.connect(self.url)


def _asset(name: str) -> dg.AssetSpec:
    return dg.AssetSpec(name, partitions_def=PARTITIONS, metadata={"partition_expr": "day"})


@dataclass
class History:
    """One random history, what the model knows of it, and the sensor that watches.

    Attributes:
        moved: Whether files were replaced since the last tick; a delete in the same time then counts for all that was moved.
        touched: Partitions that a statement named since the last tick.
    """

    duck: Oracle
    url: str
    dice: random.Random
    instance: dg.DagsterInstance
    cursor: str | None = None
    seen: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    touched: dict[str, set[str]] = field(default_factory=dict)
    moved: bool = False
    deleted: bool = False
    expired: bool = False
    ever_expired: bool = False
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sensor = build_commit_sensor(assets=[_asset(name) for name in TABLES], max_events_per_tick=3)

    def run(self, *statements: str) -> None:
        self.log += statements
        self.duck.run(*statements)

    def begin(self) -> None:
        for name, layout in TABLES.items():
            self.create(name, layout)
        self.tick()

    def create(self, name: str, layout: str) -> None:
        self.run(f"CREATE TABLE {name} (day DATE, n INTEGER)")
        if layout:
            self.run(f"ALTER TABLE {name} SET {layout}")

    def step(self) -> None:
        name = self.dice.choice(list(TABLES))
        kind = self.dice.choices(
            ("insert", "delete", "update", "delete_all", "swap", "recreate", "together", *MAINTENANCE),
            (8, 6, 5, 1, 1, 1, 2, 3, 2, 3, 1, 1, 1),
        )[0]
        self.change(kind, name)

    def change(self, kind: str, name: str) -> None:
        match kind:
            case "insert" | "delete" | "update":
                self.run(self._statement(kind, name))
            case "delete_all":
                self._note(name, deleted=True)
                self.run(f"DELETE FROM {name}")
            case "together":
                self.run("BEGIN", *(self._statement(self.dice.choice(["insert", "delete", "update"]), name) for _ in range(3)), "COMMIT")
            case "swap":
                self._note(name, deleted=True)
                other = f"other_{len(self.duck.statements)}"
                self.create(other, TABLES[name])
                self.run(
                    f"INSERT INTO {other} SELECT * FROM {name} WHERE n % 2 = 0",
                    "BEGIN",
                    f"ALTER TABLE {name} RENAME TO old_{len(self.duck.statements)}",
                )
                self.run(f"ALTER TABLE {other} RENAME TO {name}", "COMMIT")
            case "recreate":
                self._note(name, deleted=True)
                self.run("BEGIN", f"DROP TABLE {name}")
                self.create(name, TABLES[name])
                self.run(self._statement("insert", name), "COMMIT")
            case _:
                self.maintain(kind)

    def maintain(self, kind: str) -> None:
        self.moved = True
        match kind:
            case "flush":
                self.run("CALL ducklake_flush_inlined_data('lake')")
            case "merge":
                self.run("CALL ducklake_merge_adjacent_files('lake')")
            case "rewrite":
                for name in TABLES:
                    self.run(f"CALL ducklake_rewrite_data_files('lake', '{name}', delete_threshold => 0.05)")
            case "expire":
                self.expired = self.ever_expired = True
                ids = [row[0] for row in self.duck.rows("SELECT snapshot_id FROM ducklake_snapshots('lake') ORDER BY 1 DESC LIMIT 6")][1:]
                chosen = ids if self.dice.random() < 0.5 else self.dice.sample(ids, k=min(2, len(ids)))
                if chosen:
                    self.run(f"CALL ducklake_expire_snapshots('lake', versions => [{', '.join(map(str, chosen))}])")

    def _statement(self, kind: str, name: str) -> str:
        days = self.dice.sample(DAYS, k=self.dice.choice([1, 1, 2, 5]))
        wanted = ", ".join(f"DATE '{day}'" for day in days)
        number = self.dice.randrange(5)
        where = f"day IN ({wanted}) AND n % 5 {self.dice.choice(['=', '<>'])} {number}"
        self._note(name, days, deleted=kind != "insert")
        match kind:
            case "insert":
                size = self.dice.choice(SIZES)
                return f"INSERT INTO {name} SELECT unnest([{wanted}]), i FROM range({size}) r(i)"
            case "delete":
                return f"DELETE FROM {name} WHERE {where}"
            case _:
                return f"UPDATE {name} SET n = n + 1 WHERE {where}"

    def _note(self, name: str, days: list[date] | None = None, *, deleted: bool) -> None:
        self.touched.setdefault(name, set()).update(day.isoformat() for day in days or DAYS)
        self.deleted |= deleted

    def rows(self) -> dict[str, dict[str, list[Any]]]:
        found: dict[str, dict[str, list[Any]]] = {}
        for name in TABLES:
            parts = found.setdefault(name, {})
            for day, n in self.duck.rows(f"SELECT day, n FROM {name} ORDER BY ALL"):
                parts.setdefault(day.isoformat(), []).append(n)
        return found

    def tick(self) -> None:
        """Evaluate the sensor until nothing is left over, and compare with the model."""
        now, reported = self.rows(), self._reported()
        for name in TABLES:
            before, after = self.seen.get(name, {}), now[name]
            changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
            assert changed <= reported.get(name, set()), f"{name}: missed {sorted(changed - reported.get(name, set()))} after {self.log}"
            extra = reported.get(name, set()) - self._allowed(name)
            assert not extra, f"{name}: {sorted(extra)} reported, though nothing touched them, after {self.log}"
        self.seen, self.touched, self.log = now, {}, []
        self.moved = self.deleted = self.expired = False

    def _allowed(self, name: str) -> set[str]:
        """Return the partitions that may be reported: those of a statement, of the bounds of a file, or all."""
        touched = self.touched.get(name, set())
        everything = {day.isoformat() for day in DAYS}
        # A flush of deletes of an expired commit looks like a delete that DuckDB repeated.
        if self.expired or (self.moved and (self.deleted or self.ever_expired)):
            return everything
        if not touched:
            return set()
        return touched if name == "laid_out" else everything

    def _reported(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for _ in range(20):
            context = dg.build_sensor_context(instance=self.instance, cursor=self.cursor, resources={"lake": _LakeResource(url=self.url)})
            result = self.sensor.evaluate_tick(context)
            assert len(result.asset_events) <= 3
            for event in result.asset_events:
                if isinstance(event, dg.AssetMaterialization):
                    assert event.partition not in found.get(event.asset_key.to_user_string(), set()), "reported twice"
                    found.setdefault(event.asset_key.to_user_string(), set()).add(str(event.partition))
            done, self.cursor = result.cursor == self.cursor, result.cursor
            if done:
                return found
        raise AssertionError("the sensor never ends")


def _play(address: LakeAddress, duck: Oracle, seed: int, ticks: int) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        history = History(duck, address.url, random.Random(seed), instance)
        history.begin()
        for _ in range(ticks):
            for _ in range(history.dice.choice([1, 1, 2, 3, 5])):
                history.step()
            history.tick()


@pytest.mark.parametrize("seed", spread(range(4), 1))
def test_random_histories(sqlite_address: LakeAddress, seed: int) -> None:
    with attached(sqlite_address) as duck:
        _play(sqlite_address, duck, seed, ticks=12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 108))
def test_many_random_histories(lake_address: LakeAddress, seed: int) -> None:
    with attached(lake_address) as duck:
        _play(lake_address, duck, seed, ticks=40)
