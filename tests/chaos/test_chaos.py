"""Every acknowledged change happens once while writers are killed, paused and disconnected."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import supervisor
from tests.support.servers import end

_ROOT = Path(__file__).parents[2]
_MAX_SECONDS_AROUND = 600
"""Maximum time for the start of a run, its end and its verification."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each seed for ``--chaos-seconds``."""
    seconds = metafunc.config.getoption("chaos_seconds")
    limit = pytest.mark.timeout(seconds + _MAX_SECONDS_AROUND + 60)
    seeds = [int(seed) for seed in metafunc.config.getoption("chaos_seeds").split(",")]
    metafunc.parametrize(("seconds", "seed"), [pytest.param(seconds, seed, marks=limit, id=f"seed {seed}") for seed in seeds])


@pytest.mark.slow
@pytest.mark.parametrize("duckdb_writers", [0, 1], ids=["library", "library and DuckDB"])
@pytest.mark.parametrize("catalog", ["postgres", "sqlite"])
def test_disturbed_writers_lose_and_repeat_nothing(catalog: str, duckdb_writers: int, seconds: float, seed: int) -> None:
    command = f"-m tests.chaos --catalog {catalog} --duckdb {duckdb_writers} --seconds {seconds:g} --seed {seed}"
    # The run forks, which is safe only in a process without threads.
    process = subprocess.Popen(
        [sys.executable, *command.split()],
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    supervisor.watch(process.pid)
    try:
        output, _ = process.communicate(timeout=seconds + _MAX_SECONDS_AROUND)
    finally:
        end(process)
    print(output.decode(errors="replace"))
    assert process.returncode == 0, f"The run failed; its report is the captured output. Repeat it with: python {command}"
