"""Runs of the machine: a few each time, many in the slow tests."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.property.machine.machine import LakeMachine
from tests.support.postgres import PostgresServer

_QUIET = list(HealthCheck)
# A history that fails is printed; making it shorter would take minutes.
_PHASES = (Phase.explicit, Phase.generate)


def _run(backend: str, request: pytest.FixtureRequest, **how: int) -> None:
    server: PostgresServer | None = request.getfixturevalue("postgres") if backend == "postgresql" else None
    machine = type("Machine", (LakeMachine,), {"server": server})
    run_state_machine_as_test(
        machine, settings=settings(deadline=None, suppress_health_check=_QUIET, database=None, derandomize=True, **how)
    )


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
@pytest.mark.some(1)
def test_short_runs(backend: str, request: pytest.FixtureRequest) -> None:
    _run(backend, request, max_examples=3, stateful_step_count=12)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_long_runs(backend: str, request: pytest.FixtureRequest) -> None:
    _run(backend, request, max_examples=60, stateful_step_count=40)
