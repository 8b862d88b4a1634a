"""Ctrl-C while a transaction runs in process: it happened as a whole or not at all, no file is left, and the same objects go on."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.faults.checks import check
from tests.faults.work import prepare
from tests.support.oracle import LakeAddress

ROOT = Path(__file__).parents[2]


@pytest.mark.some(1)
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
