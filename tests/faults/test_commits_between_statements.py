"""Commits between any two statements of an operation leave every snapshot and the lake intact."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import update

from ducklake_core import DuckLake
from tests.faults import acts
from tests.faults.acts import OLD, Context
from tests.faults.between import IsDue, Memory, Other, before_statement
from tests.faults.upkeep import NOW
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.parameters import slow
from tests.support.postgres import PostgresServer

OPERATIONS: dict[str, Callable[[DuckLake], Any]] = {
    "expire": lambda lake: lake.expire_snapshots(older_than=NOW, min_age=NOW, keep_last=3),
    "merge": lambda lake: lake.merge_adjacent_files(),
    "rewrite": lambda lake: lake.rewrite_data_files(delete_threshold=0.0),
    "flush": lambda lake: lake.flush_inlined_data(),
    "cleanup": lambda lake: lake.cleanup_old_files(),
    "orphans": lambda lake: lake.delete_orphaned_files(),
    "repair": lambda lake: lake.check(repair=True),
    "checkpoint": lambda lake: lake.checkpoint(keep_last=3, min_age=NOW),
}
Act = Callable[[Context], None]
BY_LIBRARY: tuple[Act, ...] = (
    acts.append, acts.change, acts.replace, acts.redefine, acts.recreate, acts.hold, acts.maintain, acts.expire,
    acts.change_and_expire,
)  # fmt: skip
DUCKDB: tuple[Act, ...] = (acts.duckdb_changes, acts.duckdb_maintains)
_OF_DUCKDB = ("orphaned-file", "table-bounds-narrow", "table-bounds-unknown", "delete-file-orphaned")
EXPECTED = {"adopt": ("scheduled-live",), "duckdb_changes": _OF_DUCKDB, "duckdb_maintains": _OF_DUCKDB}
"""Findings of a check after each act, with any operation next to it."""
OF_OPERATIONS: dict[str, tuple[Act, ...]] = {"orphans": (acts.write_for_long,), "checkpoint": (acts.write_for_long,)}


def _expirable(lake: DuckLake, name: str) -> None:
    """Files that only old snapshots read, and a table that only they show."""
    lake.table(name).overwrite(acts.rows(0, 90), inline=False)
    prepared = lake.table(name)
    prepared.delete("n < 30")
    prepared.append(acts.rows(90, 94), inline=True)
    prepared.delete("n IN (50, 91)")
    lake.write(f"{name}old", pa.table({"a": [1]}), inline=True)
    lake.drop_table(f"{name}old")


def _scheduled(lake: DuckLake, name: str) -> None:
    """Files that were scheduled for deletion long ago."""
    _expirable(lake, name)
    lake.expire_snapshots(older_than=NOW, min_age=NOW, keep_last=5)
    schedule = lake.database.tables["files_scheduled_for_deletion"]
    with lake.database.write() as connection:
        connection.execute(update(schedule).values(schedule_start=datetime.now(UTC) - OLD))


def _spoiled(lake: DuckLake, _name: str) -> None:
    """Damage to repair: statistics of no file."""
    with lake.database.write() as connection:
        connection.execute(lake.database.tables["file_column_stats"].insert(), [{"data_file_id": 10**6, "table_id": 1, "column_id": 1}])


WORK: dict[str, Callable[[DuckLake, str], None]] = {
    "expire": _expirable,
    "cleanup": _scheduled,
    "checkpoint": _scheduled,
    "repair": _spoiled,
}


class _Rounds:
    """A lake on which an operation runs repeatedly, each time on a new table and with an act at another statement."""

    def __init__(self, address: LakeAddress, operation: str, act: Act) -> None:
        self._address, self._operation, self._act = address, operation, act
        self.lake, self.round = DuckLake.create(address.url, data_path=address.data_path), 0
        self._others = DuckLake.connect(address.url)

    def run(self, is_due: IsDue) -> bool:
        """Run the operation with an act before a statement, and check the lake; return False without such a statement."""
        self.round += 1
        name = f"t{self.round}"
        with attached(self._address) if self._act in DUCKDB else nullcontext() as oracle:
            context = self._prepared(name, oracle)
            other = Other(self._others, lambda: self._act(context))
            with before_statement(is_due, other.begin) as statements:
                result = OPERATIONS[self._operation](self.lake)
            other.end()
            context.end_writes()
        try:
            self._check(context.memory, result)
        except BaseException as error:
            error.add_note(f"{self._act.__name__} before this statement of {self._operation}: {statements.called_before}")
            raise
        self._forget()
        return statements.called_before is not None

    def end(self) -> None:
        self._others.close()
        self.lake.close()

    def _prepared(self, name: str, oracle: Oracle | None) -> Context:
        acts.prepare(self.lake, name)
        if self._operation in WORK:
            WORK[self._operation](self.lake, name)
        self.lake.holds.add("before", self.lake.snapshots()[1].id)
        context = Context(self._others, name, Memory(), oracle)
        if self._act is acts.write_for_long:
            acts.orphan(self.lake, name)
            context.running.append(acts.running_write(self._others, name, 400))
        context.memory.note(self.lake)
        return context

    def _check(self, memory: Memory, result: Any) -> None:
        with attached(self._address) if self._address.backend == "postgresql" else nullcontext() as oracle:
            memory.check(self.lake, oracle)
        found = self.lake.check(level="rows")
        assert set(found.by_code) <= {"inlined-table-dead", *EXPECTED.get(self._act.__name__, ())}, found
        for step in getattr(result, "failed_steps", ()):
            # A merge gives way at once; other operations detect the change.
            gives_way = step.verb == "merge_adjacent_files" and "Transaction conflict" in step.reason  # codespell:ignore verb
            assert gives_way or "there is no table" in step.reason

    def _forget(self) -> None:
        for hold in self.lake.holds.list():
            self.lake.holds.remove(hold.name)
        for table in self.lake.tables():
            self.lake.drop_table(table.table)
        self.lake.expire_snapshots(older_than=NOW, min_age=NOW)


def _cases() -> Iterator[Any]:
    """Return each operation with each act and the statements to try, which together cover all statements."""
    for backend in ("postgres", "mysql"):
        for operation in OPERATIONS:
            acts = [*BY_LIBRARY, *OF_OPERATIONS.get(operation, ()), *(DUCKDB if backend == "postgres" else ())]
            stride = len(acts) * (7 if operation == "checkpoint" else 1)
            for number, act in enumerate(acts):
                first = number if backend == "postgres" else (number + 5) % len(acts)
                yield pytest.param(backend, operation, act, first, stride, id=f"{backend}-{operation}-{act.__name__}")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("backend", "operation", "act", "first", "stride"), list(_cases()))
def test_commits_between_any_two_statements(
    request: pytest.FixtureRequest, tmp_path: Path, backend: str, operation: str, act: Act, first: int, stride: int
) -> None:
    rounds = _Rounds(request.getfixturevalue(backend).lake(tmp_path), operation, act)
    for index in itertools.count(first, stride):
        if not rounds.run(lambda number, _, index=index: number == index):  # type: ignore[misc]
            break
    rounds.end()


@pytest.mark.parametrize(
    ("operation", "act", "statement"),
    [
        ("expire", acts.replace, "SELECT public.ducklake_data_file"),
        slow("expire", acts.hold, "FOR UPDATE"),
        ("merge", acts.change, "pg_advisory_xact_lock"),
        slow("rewrite", acts.duckdb_changes, "pg_advisory_xact_lock"),
        slow("flush", acts.expire, "pg_advisory_xact_lock"),
        slow("flush", acts.change, "pg_advisory_xact_lock"),
        ("orphans", acts.write_for_long, "SELECT public.ducklake_delete_file"),
        # Between the plan and the last look, not after it: files that are added although they are scheduled are for experiments only.
        slow("cleanup", acts.adopt, "COMMIT"),
    ],
)
def test_commits_before_a_statement(postgres: PostgresServer, tmp_path: Path, operation: str, act: Act, statement: str) -> None:
    rounds = _Rounds(postgres.lake(tmp_path), operation, act)
    assert rounds.run(lambda _, text: statement in text)
    rounds.end()
