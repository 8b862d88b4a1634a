"""Bars on a terminal that say how far a verb is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from ducklake_core.format.types.message_text import visible
from ducklake_core.maintenance.progress import Progress, ProgressCallback
from ducklake_core.maintenance.sizes import format_bytes


@contextmanager
def progress_bar(*, as_json: bool = False) -> Iterator[ProgressCallback | None]:
    """What draws the progress of a verb on the error output, and wipes it out at the end; None unless that is a terminal."""
    if as_json or not sys.stderr.isatty():
        yield None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[counts]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}", markup=False),
    )
    with Bars(*columns, console=Console(stderr=True, highlight=False), transient=True) as bars:
        yield _Drawing(bars)


class _Drawing:
    """A bar for each phase; the earlier ones go."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._task: TaskID | None = None
        self._phase = ("", "")

    def __call__(self, progress: Progress) -> None:
        """Draw how far it is."""
        described = {
            "description": f"{progress.verb} {visible(progress.table or '')}: {progress.phase}",
            "counts": counts(progress),
            "left": "" if progress.seconds_left is None else f"{progress.seconds_left:.0f} s left",
        }
        if self._task is None or self._phase != (progress.verb, progress.phase):
            if self._task is not None:
                self._bars.remove_task(self._task)
            self._phase = (progress.verb, progress.phase)
            self._task = self._bars.add_task(total=progress.total, **described)  # type: ignore[arg-type]
        self._bars.update(self._task, completed=progress.done, total=progress.total, **described)  # type: ignore[arg-type]


def counts(progress: Progress) -> str:
    """How much is done.

    >>> counts(Progress(verb="check", phase="read rows", unit="files", done=2, total=8, rows=500, bytes=3 << 20))
    '2/8 files, 500 rows, 3.0 MiB'
    """
    of = "" if progress.total is None else f"/{progress.total}"
    rows = f", {progress.rows} rows" if progress.rows else ""
    size = f", {format_bytes(progress.bytes)}" if progress.bytes else ""
    return f"{progress.done}{of} {progress.unit}{rows}{size}"
