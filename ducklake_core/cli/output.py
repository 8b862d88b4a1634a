"""What commands print: tables and lines for people, JSON for programs."""

from __future__ import annotations

import base64
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, Protocol

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from ducklake_core.errors import StorageError
from ducklake_core.format.types.message_text import visible
from ducklake_core.maintenance.steps import MaintenanceResult

_SECRET_FIELDS = frozenset({"encryption_key"})


class Report(Protocol):
    """A result that says what was done in lines of text."""

    def lines(self) -> list[str]:
        """The lines."""
        ...


def plain(value: object) -> Any:
    """A value in the forms that JSON has: results as objects, times as ISO texts, bytes as base64; keys of files are left out.

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
    """Text to the output.

    Raises:
        BrokenPipeError: Whoever read it has stopped reading.
        StorageError: The output cannot be written, as a disk is full perhaps.
    """
    with _told():
        sys.stdout.write(text)


def flush() -> None:
    """What was written goes out now. Raises as :func:`write` does."""
    with _told():
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


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise the error, as the group of commands says how the command ends."""
        raise BrokenPipeError


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_output()
        raise StorageError(f"the output cannot be written ({error.strerror}); what the command changed stays") from error


def discard_output() -> None:
    """Nobody gets what is written from now on, nor what waits to be written."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


@contextmanager
def read_or_not() -> Iterator[None]:
    """Go on when whoever reads the output stops reading: the exit code of the command still has to tell how it went."""
    try:
        yield
        flush()
    except BrokenPipeError:
        discard_output()


def json_text(value: object, indent: int | None = None) -> str:
    """A value as JSON, in letters that the output has."""
    has_all_letters = (sys.stdout.encoding or "").lower().startswith("utf")
    return json.dumps(plain(value), ensure_ascii=not has_all_letters, indent=indent)


def print_json(value: object) -> None:
    """One JSON document."""
    write(json_text(value, indent=2) + "\n")


def print_report(report: Report, *, as_json: bool) -> None:
    """A result of a verb: its lines, or all of its values."""
    if as_json:
        steps = {"steps": report.steps} if isinstance(report, MaintenanceResult) else {}
        print_json({**plain(report), **steps})
    else:
        print_lines(report.lines())


def print_lines(lines: Iterable[str]) -> None:
    """Lines for people. Names and paths may hold anything, also what would steer their terminal."""
    for line in lines:
        write(f"{visible(line)}\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Rows for people; numbers to the right."""
    columns, found = [*map(visible, columns)], [list(row) for row in rows]
    table = Table(title=title, title_justify="left", header_style="bold")
    for place, name in enumerate(columns):
        numeric = bool(found) and all(isinstance(row[place], int | float | None) for row in found)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in found:
        table.add_row(*("" if value is None else _cell(value) for value in row))
    console = _Console(file=_OUTPUT, highlight=False, markup=False)
    if not console.is_terminal:
        # A file or a pipe has no width: nothing is folded for it.
        cells = [[name, *("" if row[place] is None else _cell(row[place]) for row in found)] for place, name in enumerate(columns)]
        console = _Console(file=_OUTPUT, highlight=False, markup=False, width=1 + sum(3 + max(map(len, column)) * 2 for column in cells))
    console.print(table)


def _cell(value: object) -> str:
    return value.isoformat(sep=" ", timespec="seconds") if isinstance(value, datetime) else visible(str(value))


def print_rows(batches: Iterable[pa.RecordBatch], names: Sequence[str], *, as_json: bool) -> int:
    """Rows of a table: a table for people, one JSON object a line for programs, which may be any number.

    Returns:
        Number of rows.
    """
    if as_json:
        count = 0
        for row in rows_of(batches):
            write(json_text(dict(zip(names, row, strict=True))) + "\n")
            count += 1
        return count
    rows = list(rows_of(batches))
    print_table(names, rows)
    return len(rows)


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[object, ...]]:
    """Rows as Python values; columns with values that Python has no form for, such as years before Christ, as texts."""
    for batch in batches:
        yield from zip(*map(_values, batch.columns), strict=True)


def _values(column: pa.Array) -> list[object]:
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return list(column.cast(pa.string()).to_pylist())
