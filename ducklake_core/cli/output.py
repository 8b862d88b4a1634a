"""What commands print: tables and lines for people, JSON for programs."""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, Protocol

import pyarrow as pa
from rich.console import Console
from rich.table import Table

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


def print_json(value: object) -> None:
    """One JSON document."""
    sys.stdout.write(json.dumps(plain(value), ensure_ascii=False, indent=2) + "\n")


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
        sys.stdout.write(f"{visible(line)}\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Rows for people; numbers to the right."""
    columns, found = [*map(visible, columns)], [list(row) for row in rows]
    table = Table(title=title, title_justify="left", header_style="bold")
    for place, name in enumerate(columns):
        numeric = bool(found) and all(isinstance(row[place], int | float | None) for row in found)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in found:
        table.add_row(*("" if value is None else _cell(value) for value in row))
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        # A file or a pipe has no width: nothing is folded for it.
        cells = [[name, *("" if row[place] is None else _cell(row[place]) for row in found)] for place, name in enumerate(columns)]
        console = Console(highlight=False, markup=False, width=1 + sum(3 + max(map(len, column)) * 2 for column in cells))
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
            sys.stdout.write(json.dumps(plain(dict(zip(names, row, strict=True))), ensure_ascii=False) + "\n")
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
