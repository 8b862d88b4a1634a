"""Where the time of a test run went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import pytest

_SLOWEST = 30
_FOLDER_DEPTH = 3


def as_markdown(reports: Iterable[pytest.TestReport]) -> str:
    """Tables of the folders and of the slowest tests and fixtures, in seconds of the workers; set-up and teardown are counted."""
    folders: Counter[str] = Counter()
    phases: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    for report in reports:
        folders["/".join(report.nodeid.partition("::")[0].split("/")[:_FOLDER_DEPTH])] += report.duration  # type: ignore[assignment]
        phases[report.when or ""] += report.duration  # type: ignore[assignment]
        steps[f"{report.nodeid} ({report.when})"] += report.duration  # type: ignore[assignment]
    total = sum(phases.values())
    shares = ", ".join(f"{name} {seconds:.0f}" for name, seconds in phases.most_common())
    return (
        "# Where the time of `make test` goes\n\n"
        "Written by `make durations`. Seconds of all workers together, set-up and teardown included.\n\n"
        f"In all {total:.0f} ({shares}).\n\n"
        f"{_table('Folder or file', folders, len(folders))}\n{_table('Slowest step', steps, _SLOWEST)}"
    )


def _table(title: str, seconds: Mapping[str, float], count: int) -> str:
    rows = sorted(seconds.items(), key=lambda each: (-each[1], each[0]))[:count]
    lines = [f"| {name.replace('|', '/')} | {spent:.1f} |" for name, spent in rows]
    return "\n".join([f"| {title} | seconds |", "| --- | ---: |", *lines]) + "\n"
