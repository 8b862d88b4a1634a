"""Print results as tables, lines or JSON, with progress bars on terminals."""

from __future__ import annotations

import base64
import io
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, Protocol

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table

from ducklake_core.errors import StorageError
from ducklake_core.format.types.text import counted, visible
from ducklake_core.maintenance.health import format_bytes
from ducklake_core.maintenance.migrate import MigrationResult
from ducklake_core.maintenance.request import MaintenanceResult, Progress, ProgressCallback

_SECRET_FIELDS = frozenset({"encryption_key"})
_MIN_WIDTH = 20
"""Minimum width of a shortened string."""


class Report(Protocol):
    """A result that describes itself in lines."""

    def lines(self) -> list[str]:
        """Return the lines."""
        ...


def plain(value: object) -> Any:
    """Return a value in the forms that JSON has: results as objects, times as ISO strings, bytes as base64; keys of files are left out.

    >>> plain({"a": (1, datetime(2026, 1, 2)), "b": timedelta(seconds=90), "c": float("nan")})
    {'a': [1, '2026-01-02T00:00:00'], 'b': 90.0, 'c': 'nan'}
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes():
            return base64.b64encode(value).decode()
        case Mapping():
            return {str(key): plain(one) for key, one in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(one) for one in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {item.name: plain(getattr(value, item.name)) for item in fields(value) if item.name not in _SECRET_FIELDS}
        case _:
            return str(value)


def write(text: str) -> None:
    """Write a string to the output.

    Raises:
        BrokenPipeError: The reader of the output has stopped reading.
        StorageError: The output cannot be written, for example because the disk is full.
    """
    with _output_errors():
        sys.stdout.write(text)


def flush() -> None:
    """Flush the output. Raises as :func:`write` does."""
    with _output_errors():
        sys.stdout.flush()


class _Output:
    """The output as a file that ``rich`` writes to."""

    @property
    def encoding(self) -> str:
        return sys.stdout.encoding

    def write(self, text: str) -> int:
        write(text)
        return len(text)

    def flush(self) -> None:
        flush()

    def isatty(self) -> bool:
        return sys.stdout.isatty()


_OUTPUT: Any = _Output()


class BinaryOutput(io.RawIOBase):
    """The output as a file for bytes, which can only be written from its beginning to its end."""

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes. Raises as :func:`write` does."""
        with _output_errors():
            return sys.stdout.buffer.write(data)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise the error, because the group of commands handles it."""
        raise BrokenPipeError


@contextmanager
def _output_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_output()
        raise StorageError(f"the output cannot be written ({error.strerror}); what the command changed stays") from error


def discard_output() -> None:
    """Discard the buffer, and everything that is written from now on."""
    # The descriptor is replaced, not sys.stdout: Python flushes its buffer at exit, and would fail once more.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


@contextmanager
def read_or_not() -> Iterator[None]:
    """Go on when the reader of the output stops reading: the exit code still reports the result."""
    try:
        yield
        flush()
    except BrokenPipeError:
        discard_output()


def json_text(value: object, indent: int | None = None) -> str:
    """Return a value as JSON, with the letters that the output has."""
    return json.dumps(plain(value), ensure_ascii=not has_all_letters(), indent=indent)


def has_all_letters() -> bool:
    """Return whether the output can show every letter."""
    return (sys.stdout.encoding or "").lower().startswith("utf")


def print_json(value: object) -> None:
    """Print a JSON document."""
    write(json_text(value, indent=2) + "\n")


def print_report(report: Report, *, as_json: bool) -> None:
    """Print the result of an operation: its lines, or all of its values."""
    if as_json:
        # Steps of a table, or of one operation of several, are among those of the whole result.
        print_json({**_without_steps(plain(report)), "steps": report.steps} if isinstance(report, MaintenanceResult) else report)
    else:
        print_lines(report.brief_lines() if isinstance(report, MaintenanceResult | MigrationResult) else report.lines())


def _without_steps(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_steps(one) for name, one in value.items() if name != "steps"}
    return [_without_steps(one) for one in value] if isinstance(value, list) else value


def print_lines(lines: Iterable[str]) -> None:
    """Print lines for people. Control characters in names and paths are escaped, as they could steer the terminal."""
    for line in lines:
        write(f"{visible(line)}\n")


class Size(int):
    """A number of bytes, which people read in units.

    >>> str(Size(1536))
    '1.5 KiB'
    """

    def __str__(self) -> str:
        return format_bytes(int(self))


class Count(int):
    """A number of things; ids are plain integers.

    >>> str(Count(1234567))
    '1,234,567'
    """

    def __str__(self) -> str:
        return f"{int(self):,}"


class Parts(tuple[str, ...]):
    """Strings in one cell: each on a line of its own on a terminal, and separated by commas elsewhere."""

    __slots__ = ()


def is_terminal() -> bool:
    """Return whether the output is a terminal; a file or a pipe has no width, so nothing is folded or shortened for it."""
    return console().is_terminal


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None, shorten_last: bool = False) -> bool:
    """Print a listing; numbers to the right. On a terminal, columns without any value are left out.

    Args:
        columns: Their headings.
        rows: Their values.
        title: Heading of the table.
        shorten_last: Whether a terminal that is too narrow shortens the last column in the middle, instead of folding it.

    Returns:
        Whether something was shortened.
    """
    found, target = [list(row) for row in rows], console()
    if target.is_terminal:
        columns, found = _without_empty(columns, found)
    numeric = [bool(found) and all(isinstance(row[position], int | float | None) for row in found) for position in range(len(columns))]
    cells = [[_cell(value, lines=target.is_terminal) for value in row] for row in found]
    # Numbers are narrower than their headings.
    headings = [
        name.replace(" ", "\n") if target.is_terminal and is_number else name
        for name, is_number in zip(map(visible, columns), numeric, strict=True)
    ]
    widths = [max(map(_width, (name, *(row[position] for row in cells)))) for position, name in enumerate(headings)]
    shortened = False
    if not target.is_terminal:
        target = console(width=1 + sum(3 + width for width in widths))
    elif shorten_last and (space := max(_MIN_WIDTH, target.width - sum(widths[:-1]) - 2 * len(widths[:-1]))) < widths[-1]:
        shortened = True
        cells = [[*row[:-1], _shortened(row[-1], space)] for row in cells]
    table = Table(
        title=title, title_justify="left", header_style="bold", box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0)
    )
    for position, (name, is_number) in enumerate(zip(headings, numeric, strict=True)):
        is_narrow = is_number or all(isinstance(row[position], datetime | None) for row in found)
        table.add_column(name, justify="right" if is_number else "left", overflow="fold", no_wrap=is_narrow)
    for row in cells:
        table.add_row(*row)
    target.print(table)
    return shortened


def _without_empty(columns: Sequence[str], rows: list[list[object]]) -> tuple[Sequence[str], list[list[object]]]:
    """Leave out columns that have nothing in any row: a terminal is narrow."""
    kept = [position for position in range(len(columns)) if not rows or any(row[position] not in (None, "") for row in rows)]
    return [columns[position] for position in kept], [[row[position] for position in kept] for row in rows]


def console(width: int | None = None) -> Console:
    """Return the output as a console of ``rich``, with the width of the terminal unless one is given."""
    return _Console(file=_OUTPUT, highlight=False, markup=False, width=width)


def _width(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def _shortened(text: str, width: int) -> str:
    """Return a string without its middle where it is too long.

    >>> _shortened("ducklake-0123456789.parquet", 20), _shortened("short", 20)
    ('ducklake...9.parquet', 'short')
    """
    kept = width - 3
    return text if cell_len(text) <= width else f"{text[: kept // 2]}...{text[kept // 2 - kept :]}"


def _cell(value: object, *, lines: bool) -> str:
    match value:
        case None:
            return ""
        case datetime():
            return value.isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")
        case Parts():
            return ("\n" if lines else ", ").join(map(visible, value))
        case _:
            return visible(str(value))


@contextmanager
def progress_bar(*, as_json: bool = False) -> Iterator[ProgressCallback | None]:
    """Draw the progress of an operation on the error output, and erase it at the end; yield None unless that is a terminal."""
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
    """A bar for the current phase."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._task: TaskID | None = None
        self._phase = ("", "")

    def __call__(self, progress: Progress) -> None:
        """Draw the progress."""
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
    """Return the progress in words.

    >>> counts(Progress(verb="check", phase="read rows", unit="files", done=2, total=8, rows=500, bytes=3 << 20))
    '2/8 files, 500 rows, 3.0 MiB'
    """
    of = "" if progress.total is None else f"/{progress.total:,}"
    rows = f", {counted(progress.rows, 'row')}" if progress.rows else ""
    size = f", {format_bytes(progress.bytes)}" if progress.bytes else ""
    return f"{progress.done:,}{of} {progress.unit}{rows}{size}"
