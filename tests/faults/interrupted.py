"""A process that commits one transaction after another and is interrupted by Ctrl-C in each, and reports a line for each round.

Each round begins with a line on its input. It prints ``ready``, works until it is done or interrupted, compares the lake with the model,
and prints how it ended (``done``, ``before`` or ``after`` the commit) and how long it took. A difference ends it with a traceback.
"""

from __future__ import annotations

import signal
import sys
import time
import traceback
from types import FrameType

from ducklake_core import DuckLake
from tests.behaviour.maintenance.lakes import files_on_disk
from tests.faults.checks import named_files, read
from tests.faults.work import Model, work
from tests.support.oracle import LakeAddress


class Interrupt:
    """Ctrl-C as Python handles it, except that one which comes when the work is done only notes that it came."""

    def __init__(self) -> None:
        self.came = False
        self.raises = False

    def __call__(self, _signal: int, _frame: FrameType | None) -> None:
        self.came = True
        if self.raises:
            raise KeyboardInterrupt


def run(address: LakeAddress) -> None:
    """Work until the input ends."""
    interrupt = Interrupt()
    signal.signal(signal.SIGINT, interrupt)
    lake, model, known = DuckLake.connect(address.url), Model(), set[str]()
    while sys.stdin.readline():
        newest, where = lake.snapshot().id, ""
        interrupt.came, interrupt.raises = False, True
        print("ready", flush=True)
        began = time.monotonic()
        try:
            work(lake, model)
            interrupt.raises = False
        except KeyboardInterrupt:
            interrupt.raises = False
            where = traceback.format_exc()
        took = time.monotonic() - began
        while not interrupt.came:
            time.sleep(0.001)
        arrived = lake.snapshot().id > newest
        model = model.after() if arrived else model
        assert read(lake) == model.tables(), where
        left = {path.rpartition("/")[2] for path in files_on_disk(address)} ^ named_files(lake)
        # Files of a commit that may have arrived stay, through all later rounds, and are found by the sweep.
        assert left <= known or ("commit" in where and not arrived), f"{left - known}\n{where}"
        known = left
        print("done" if not where else "after" if arrived else "before", took, flush=True)


if __name__ == "__main__":
    run(LakeAddress(*sys.argv[1:]))
