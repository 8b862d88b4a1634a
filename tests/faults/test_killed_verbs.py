"""A process is killed at each step of each maintenance verb: no row is lost at any snapshot, and the next run does the rest."""

from __future__ import annotations

import multiprocessing

import pytest

from ducklake_core import DuckLake
from tests.behaviour.maintenance.lakes import readings
from tests.faults.upkeep import VERBS, is_sound, nothing_is_lost, prepare, run_and_die, shown
from tests.faults.work import KILLED
from tests.support.oracle import LakeAddress

_MOST_STEPS = 600
Context = multiprocessing.context.ForkServerContext
_CHANGING = [verb for verb in VERBS if verb != "check"]


@pytest.fixture(scope="module")
def context() -> Context:
    """Processes that begin with everything imported, and with no thread of this one."""
    found = multiprocessing.get_context("forkserver")
    modules = ["lake", "maintenance.checkpoint", "maintenance.check.run", "engines.arrow.write", "engines.arrow.live_rows"]
    found.set_forkserver_preload(["tests.faults.upkeep", "tests.faults.work", "psycopg", *(f"ducklake_core.{name}" for name in modules)])
    return found


@pytest.mark.parametrize("verb", ["merge", "flush", "cleanup"])
@pytest.mark.some(2)
def test_verbs_killed_at_some_steps(sqlite_address: LakeAddress, context: Context, verb: str) -> None:
    _kill_at(range(10 if verb == "cleanup" else 20, _MOST_STEPS, 1000), sqlite_address, context, verb)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("verb", _CHANGING)
def test_verbs_killed_at_every_step(lake_address: LakeAddress, context: Context, verb: str) -> None:
    assert _kill_at(range(1, _MOST_STEPS), lake_address, context, verb) > 3


def _kill_at(steps: range, address: LakeAddress, context: Context, verb: str) -> int:
    prepare(address, verb)
    lake = DuckLake.connect(address.url)
    before = shown(lake)
    theirs = readings(address)
    killed = 0
    for step in steps:
        writer = context.Process(target=run_and_die, args=(address.url, verb, step))
        writer.start()
        writer.join(240)
        assert writer.exitcode in (0, KILLED), f"step {step}"
        nothing_is_lost(lake, before)
        if writer.exitcode == 0:
            break
        killed += 1
    else:
        assert steps.step > 1, "the verb never came to its end"
    result = VERBS[verb](lake)
    assert not getattr(result, "failed_steps", ()), result
    nothing_is_lost(lake, before)
    is_sound(lake)
    lake.close()
    after = readings(address)
    assert {key: after[key] for key in theirs if key in after} == {key: rows for key, rows in theirs.items() if key in after}
    return killed
