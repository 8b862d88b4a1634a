"""All benchmarks, each in a process of its own, and at the end one table of their figures.

Run with ``make bench``, or ``python -m benchmarks``; names after the command, such as ``bench_peers bench_commit``, choose some.
A benchmark that fails is named at the end, after the others have run, and the command fails.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

_TITLE = ("benchmark", "backend", "call", "size")


def lines_of(output: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The lines for machines among what a benchmark prints."""
    for line in output:
        if line.startswith('{"benchmark"'):
            yield json.loads(line)


def rows_of(found: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Call, contender, seconds, and the ratio to the baseline, of one line for machines; other figures as they are."""
    seconds = found.get("seconds")
    if isinstance(seconds, dict):
        base = median(seconds[found["baseline"]])
        for contender, values in seconds.items():
            bound = "baseline" if contender == found["baseline"] else f"{median(values) / base:.2f} (<= {found['promised_ratio']:.2f})"
            yield found["benchmark"], contender, f"{median(values):.4f}", bound
        return
    call = " ".join(str(found[name]) for name in _TITLE if name in found)
    for name, value in found.items():
        if name not in _TITLE:
            yield call, name, f"{value:.4f}" if isinstance(value, float) else str(value), ""


def run(names: list[str]) -> int:
    """Run benchmarks and print the table; the number of those that failed."""
    table = Table("benchmark", "contender", "median seconds, or what it names", "of the baseline's (promised)")
    failed = []
    for name in names:
        print(f"== {name}", flush=True)
        with subprocess.Popen([sys.executable, "-m", f"{__package__}.{name}"], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            output = []
            for line in process.stdout:
                print(line, end="", flush=True)
                output.append(line)
        if process.returncode:
            failed.append(name)
        for found in lines_of(output):
            for row in rows_of(found):
                table.add_row(*row)
    Console(width=140).print(table)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    there = sorted(file.stem for file in Path(__file__).parent.glob("bench_*.py"))
    sys.exit(min(run(sys.argv[1:] or there), 1))
