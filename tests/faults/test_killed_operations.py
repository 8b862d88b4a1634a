"""A process killed at each step of each maintenance operation loses no row, and the next run does the rest."""

from __future__ import annotations

import multiprocessing

import pytest

from tests.faults.rehearsal import Rehearsal
from tests.faults.upkeep import OPERATIONS
from tests.support.oracle import LakeAddress
from tests.support.parameters import spread

Context = multiprocessing.context.ForkServerContext
PARTS = 3
_CHANGING = [operation for operation in OPERATIONS if operation != "check"]


@pytest.fixture(scope="module")
def context() -> Context:
    """Processes that begin with everything imported, and with no thread of this one."""
    found = multiprocessing.get_context("forkserver")
    shown_rows = ["lake", "maintenance.checkpoint", "maintenance.check.run", "engines.arrow.writer", "engines.arrow.positions"]
    # Lazy imports of pyarrow and SQLAlchemy take longer than an operation.
    others = ["psycopg", "pandas", "sqlalchemy.dialects.sqlite", "sqlalchemy.dialects.postgresql.psycopg"]
    found.set_forkserver_preload(["tests.faults.upkeep", "tests.faults.work", *others, *(f"ducklake_core.{name}" for name in shown_rows)])
    return found


@pytest.mark.parametrize("operation", spread(["merge", "flush", "cleanup"], 1))
def test_operations_killed_at_some_steps(sqlite_address: LakeAddress, context: Context, operation: str) -> None:
    run = Rehearsal(sqlite_address, operation, context)
    run.kill_at(len(run.steps) // 2)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("operation", _CHANGING)
def test_operations_killed_at_every_step(lake_address: LakeAddress, context: Context, operation: str, part: int) -> None:
    """Of the run itself: a process for each step, on the lake as it was before; every third of them, and the last, in each part."""
    run = Rehearsal(lake_address, operation, context)
    assert len(run.steps) > 10
    # Of an operation in one transaction only the last step shows its work.
    for step in sorted({*range(1 + part, len(run.steps) + 1, PARTS), len(run.steps)}):
        run.kill_at(step)
    print(f"{operation} on {lake_address.backend}: {len(run.steps)} steps, part {part}, {run.states} states")
    assert run.states >= 2
