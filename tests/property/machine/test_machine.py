"""Runs of the machine: a few each time, many in the slow tests."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.property.machine.machine import LakeMachine
from tests.support.parameters import spread
from tests.support.postgres import PostgresServer

_QUIET = list(HealthCheck)
# A history that fails is printed; making it shorter would take minutes.
_PLACES = [(backend, version) for version in ("1.0", "1.1") for backend in ("sqlite", "postgresql", "duckdb")]
_PHASES = (Phase.explicit, Phase.generate)


def _run(backend: str, version: str, request: pytest.FixtureRequest, number: int = 0, **how: int) -> None:
    server: PostgresServer | None = request.getfixturevalue("postgres") if backend == "postgresql" else None
    machine = type("Machine", (LakeMachine,), {"server": server, "backend": backend, "version": version})
    run_state_machine_as_test(
        seed(number)(machine), settings=settings(deadline=None, suppress_health_check=_QUIET, database=None, derandomize=True, **how)
    )


@pytest.mark.parametrize(("backend", "version"), spread(_PLACES, 1))
def test_short_runs(backend: str, version: str, request: pytest.FixtureRequest) -> None:
    _run(backend, version, request, max_examples=3, stateful_step_count=12)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", range(1, 7))
@pytest.mark.parametrize(("backend", "version"), _PLACES)
def test_long_runs(backend: str, version: str, number: int, request: pytest.FixtureRequest) -> None:
    _run(backend, version, request, number, max_examples=10, stateful_step_count=30)
