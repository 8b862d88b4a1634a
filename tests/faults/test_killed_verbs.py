"""A process is killed at each step of each maintenance verb: no row is lost at any snapshot, and the next run does the rest."""

from __future__ import annotations

import multiprocessing

import pytest

from tests.faults.rehearsal import Rehearsal
from tests.faults.upkeep import VERBS
from tests.support.oracle import LakeAddress

Context = multiprocessing.context.ForkServerContext
_CHANGING = [verb for verb in VERBS if verb != "check"]


@pytest.fixture(scope="module")
def context() -> Context:
    """Processes that begin with everything imported, and with no thread of this one."""
    found = multiprocessing.get_context("forkserver")
    ours = ["lake", "maintenance.checkpoint", "maintenance.check.run", "engines.arrow.write", "engines.arrow.live_rows"]
    # What pyarrow and SQLAlchemy import when they first need it takes longer than a verb.
    others = ["psycopg", "pandas", "sqlalchemy.dialects.sqlite", "sqlalchemy.dialects.postgresql.psycopg"]
    found.set_forkserver_preload(["tests.faults.upkeep", "tests.faults.work", *others, *(f"ducklake_core.{name}" for name in ours)])
    return found


@pytest.mark.parametrize("verb", ["merge", "flush", "cleanup"])
@pytest.mark.some(2)
def test_verbs_killed_at_some_steps(sqlite_address: LakeAddress, context: Context, verb: str) -> None:
    run = Rehearsal(sqlite_address, verb, context)
    run.kill_at(len(run.steps) // 2)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("verb", _CHANGING)
def test_verbs_killed_at_every_step(every_lake_address: LakeAddress, context: Context, verb: str) -> None:
    """Of the run itself: as many processes as it has steps, each on the lake as it was before."""
    run = Rehearsal(every_lake_address, verb, context)
    for step in range(1, len(run.steps) + 1):
        run.kill_at(step)
    print(f"{verb} on {every_lake_address.backend}: {len(run.steps)} steps, {run.states} states")
    assert len(run.steps) > 10
    # Two of them are one transaction: all or nothing.
    assert run.states >= (2 if verb in ("expire", "repair") else 3)
