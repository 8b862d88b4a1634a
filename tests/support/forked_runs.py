"""Hundreds of runs of a Dagster code server, as forks of a process that has imported what they need.

Dagster starts Python for each run: of the five seconds of processor that a run of three rows took, nearly four were imports. All else
stays Dagster's: its launcher, its queue, and how it notices that a worker is lost.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerProcess, SpawnProcess
from typing import Any


def fork_runs(*modules: str) -> None:
    """Have this process fork what it would spawn from a process that has imported these modules."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(modules))
    spawned: Any = SpawnProcess
    spawned._Popen = staticmethod(ForkServerProcess._Popen)  # type: ignore[attr-defined]
