"""A writer is killed at each step of a transaction: it happened as a whole, or not at all, and the next one works."""

from __future__ import annotations

import multiprocessing

import pytest

from ducklake_core import DuckLake
from tests.faults.checks import check
from tests.faults.work import KILLED, Model, prepare, run_and_die, work
from tests.support.oracle import LakeAddress
from tests.support.parameters import on_postgresql

pytestmark = on_postgresql

_MAX_STEPS = 400
Context = multiprocessing.context.ForkServerContext


@pytest.fixture(scope="module")
def context() -> Context:
    """Processes that begin with everything imported, and with no thread of this one."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["tests.faults.work", "ducklake_core.lake", "ducklake_core.engines.arrow.writer", "psycopg", "sqlalchemy"])
    return found


def test_a_writer_killed_at_some_steps(lake_address: LakeAddress, context: Context) -> None:
    _kill_at(range(1, _MAX_STEPS, 41), lake_address, context, 0 if lake_address.backend == "sqlite" else 10)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("inlining", [0, 10], ids=["files", "inlined"])
def test_a_writer_killed_at_every_step(lake_address: LakeAddress, context: Context, inlining: int) -> None:
    _kill_at(range(1, _MAX_STEPS), lake_address, context, inlining)


def _kill_at(steps: range, lake_address: LakeAddress, context: Context, inlining: int) -> None:
    model = prepare(lake_address.url, lake_address.data_path, inlining)
    outcomes: set[bool] = set()
    for step in steps:
        before = _newest(lake_address)
        writer = context.Process(target=run_and_die, args=(lake_address.url, model, step))
        writer.start()
        writer.join(240)
        arrived = _newest(lake_address) > before
        outcomes.add(arrived)
        if arrived:
            model = model.after()
        check(lake_address, model)
        if writer.exitcode == 0:
            assert arrived
            break
        assert writer.exitcode == KILLED, f"step {step}"
    else:
        raise AssertionError("the writer never came to its end")
    assert outcomes == {False, True}
    _still_works(lake_address, model)


def _newest(address: LakeAddress) -> int:
    lake = DuckLake.connect(address.url)
    try:
        return lake.snapshot().id
    finally:
        lake.close()


def _still_works(address: LakeAddress, model: Model) -> None:
    lake = DuckLake.connect(address.url)
    work(lake, model)
    lake.close()
    check(address, model.after())
