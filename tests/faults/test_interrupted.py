"""Ctrl-C while a transaction runs in process: it happened as a whole or not at all, no file is left, and the same objects go on."""

from __future__ import annotations

import gc
import inspect
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from types import FrameType
from typing import Self

import pytest

from ducklake_core import DuckLake
from tests.faults.checks import check, read
from tests.faults.work import prepare, work
from tests.support.oracle import LakeAddress
from tests.support.parameters import on_postgresql

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_transaction_interrupted_some_times(lake_address: LakeAddress) -> None:
    _interrupt(lake_address, 14, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_transaction_interrupted_very_often(lake_address: LakeAddress, seed: int) -> None:
    _interrupt(lake_address, 400, seed)


def _interrupt(address: LakeAddress, rounds: int, seed: int) -> None:
    model = prepare(address.url, address.data_path, 0)
    command = [sys.executable, "-m", "tests.faults.interrupted", address.url, address.attach, address.data_path, address.backend]
    random, longest, endings = Random(seed), 0.0, Counter[str]()
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for number in range(rounds):
            print("go", file=child.stdin, flush=True)
            assert child.stdout.readline() == "ready\n"
            # The first shows how long it takes.
            time.sleep(random.random() * longest if number else 3)
            child.send_signal(signal.SIGINT)
            ending, took = child.stdout.readline().split()
            endings[ending] += 1
            longest = max(longest, float(took)) if number > 1 else float(took)
            if ending != "before":
                model = model.after()
        child.stdin.close()
        assert child.wait(60) == 0
    assert endings["before"] > rounds // 4, endings
    check(address, model)


class CtrlC:
    """Counts the Python functions that are entered within the block, and interrupts the one of a number, as a signal would there."""

    def __init__(self, interrupted: int | None = None) -> None:
        self.entered, self._interrupted = 0, interrupted

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_error: object) -> None:
        sys.settrace(self._before)

    def _enter(self, frame: FrameType, _event: str, _argument: object) -> None:
        self.entered += 1
        if self._interrupted is not None and self.entered >= self._interrupted and not _is_called_by_the_collector(frame):
            self._interrupted = None
            raise KeyboardInterrupt


def _is_called_by_the_collector(frame: FrameType | None) -> bool:
    """Return True where Python would only print the interruption, as in finalizers and closed generators."""
    if frame is not None and frame.f_code.co_flags & inspect.CO_GENERATOR:
        return True
    while frame is not None:
        if frame.f_code.co_name in {"__del__", "_remove"}:
            return True
        frame = frame.f_back
    return False


# psycopg warns of an interrupted connection that is closed when it is collected.
_collected = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@on_postgresql
@_collected
def test_a_transaction_interrupted_at_some_functions(lake_address: LakeAddress) -> None:
    _interrupt_functions(lake_address, 6, seed=0)


@_collected
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_transaction_interrupted_at_many_functions(lake_address: LakeAddress, seed: int) -> None:
    _interrupt_functions(lake_address, 300, seed)


def _interrupt_functions(address: LakeAddress, rounds: int, seed: int) -> None:
    model = prepare(address.url, address.data_path, 0)
    # Two lakes: neither may wait for what the other left open.
    lakes = [DuckLake.connect(address.url) for _ in range(2)]
    for lake in lakes * 2:
        with CtrlC() as whole:
            work(lake, model)
        model = model.after()
    random, endings = Random(seed), Counter[bool]()
    for number in range(rounds):
        lake = lakes[number % 2]
        newest, at = lake.snapshot().id, random.randrange(whole.entered)
        with suppress(KeyboardInterrupt), CtrlC(at):
            work(lake, model)
        gc.collect()
        arrived = lake.snapshot().id > newest
        endings[arrived] += 1
        model = model.after() if arrived else model
        assert read(lake) == model.tables(), f"function {at} of {whole.entered}"
    for lake in lakes:
        lake.close()
    assert endings[False] > rounds // 3, endings
    check(address, model)
