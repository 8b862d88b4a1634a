"""Alternating measurements: each round times every contender once, and the medians are compared with the named baseline."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

_TICKS = os.sysconf("SC_CLK_TCK")


_spent: dict[int, int] = {}


def tree_time() -> float:
    """Processor seconds of this process and all that it started and that these started: Java and its Python workers too.

    What a process spends after it was last looked at, until it ends, is lost.
    """
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = _fields(entry)
                children.setdefault(int(fields[1]), []).append(int(entry.name))
                ticks[int(entry.name)] = int(fields[11]) + int(fields[12])
    waiting = [os.getpid()]
    while waiting:
        found = children.get(waiting.pop(), [])
        _spent.update((process, ticks[process]) for process in found)
        waiting += found
    return time.process_time() + sum(_spent.values()) / _TICKS


servers: list[int] = []
"""First processes of servers that work for this process only."""


def server_time() -> float:
    """Processor seconds of this process and of the servers in ``servers``: what their processes spend, those that have ended too."""
    # Of children that have ended their parent knows the sum.
    ticks = sum(sum(map(int, _fields(Path(f"/proc/{server}"))[11:15])) for server in servers)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = _fields(entry)
                ticks += int(fields[11]) + int(fields[12]) if int(fields[1]) in servers else 0
    return time.process_time() + ticks / _TICKS


def _fields(process: Path) -> list[str]:
    """Return the fields of ``/proc/PID/stat``, from the process state on."""
    return (process / "stat").read_text().rpartition(")")[2].split()


# Processor time shows more than the clock on a machine that others use at the same time: of this process, all threads, of the tree, or
# with the servers that the benchmark has started.
_CLOCKS = {"processor": time.process_time, "tree": tree_time, "server": server_time}
now = _CLOCKS.get(os.environ.get("BENCH_CLOCK", ""), time.perf_counter)


@dataclass(frozen=True)
class Result:
    """One benchmark: seconds per contender and round, and the bound that the project promises for the first contender."""

    name: str
    baseline: str
    seconds: Mapping[str, tuple[float, ...]]
    promised_ratio: float

    def median(self, contender: str) -> float:
        """Median seconds of a contender."""
        return statistics.median(self.seconds[contender])

    def ratio(self, contender: str) -> float:
        """Median of a contender over the median of the baseline; below 1 is faster than the baseline."""
        return self.median(contender) / self.median(self.baseline)


T = TypeVar("T")
_QUICK_ROUNDS = 40


def in_turn(contenders: Iterable[T], round_number: int) -> list[T]:
    """All of them, each round another one first: who follows a peer may pay for the threads that it leaves behind.

    >>> [in_turn("abc", number) for number in range(3)]
    [['a', 'b', 'c'], ['b', 'c', 'a'], ['c', 'a', 'b']]
    """
    order = list(contenders)
    start = round_number % len(order)
    return order[start:] + order[:start]


def least_processor_time(
    ways: Mapping[str, Callable[[], object]], rounds: int = 5, enough: float = 1.0, before_each: Callable[[], object] | None = None
) -> dict[str, float]:
    """The least seconds of all threads of this process that each way takes.

    Args:
        ways: What to call, by name.
        rounds: Of each way, after one that does not count.
        enough: Seconds in all after which there are no more rounds than that; quick ways have up to 40.
        before_each: Called before each call, outside of its time.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(_QUICK_ROUNDS + 1):
        if number > rounds and sum(map(sum, seconds.values())) > enough:
            break
        for name in in_turn(ways, number):
            if before_each is not None:
                before_each()
            started = time.process_time()
            ways[name]()
            if number:
                seconds[name].append(time.process_time() - started)
    return {name: min(values) for name, values in seconds.items()}


def compare(
    name: str,
    contenders: Mapping[str, Callable[[], object]],
    *,
    baseline: str,
    promised_ratio: float,
    rounds: int = 5,
    warm_up: int = 1,
    before_each: Callable[[], object] | None = None,
) -> Result:
    """Run all contenders in turn ``warm_up + rounds`` times and keep the seconds of the last ``rounds``."""
    seconds: dict[str, list[float]] = {contender: [] for contender in contenders}
    for number in range(warm_up + rounds):
        for contender in in_turn(contenders, number):
            if before_each is not None:
                before_each()
            started = now()
            contenders[contender]()
            elapsed = now() - started
            if number >= warm_up:
                seconds[contender].append(elapsed)
    return Result(name, baseline, {contender: tuple(values) for contender, values in seconds.items()}, promised_ratio)


def report(*results: Result) -> None:
    """Print a table for people and one JSON line a result for machines; nothing when there is none."""
    # Environments of peers that measure themselves by ``now`` lack it.
    from rich.console import Console
    from rich.table import Table

    if not results:
        return
    table = Table("benchmark", "contender", "median s", "min s", "max s", "ratio to baseline", "promised")
    for result in results:
        for contender, values in result.seconds.items():
            is_baseline = contender == result.baseline
            table.add_row(
                result.name,
                contender,
                f"{result.median(contender):.4f}",
                f"{min(values):.4f}",
                f"{max(values):.4f}",
                "baseline" if is_baseline else f"{result.ratio(contender):.2f}",
                "" if is_baseline else f"<= {result.promised_ratio:.2f}",
            )
    Console(width=140).print(table)
    for result in results:
        found = {"benchmark": result.name, "baseline": result.baseline, "seconds": result.seconds, "promised_ratio": result.promised_ratio}
        print(json.dumps(found), flush=True)
