"""Print results as tables, lines or JSON, with progress bars on terminals."""

from __future__ import annotations

import ast
import base64
import io
import json
import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from itertools import islice
from typing import Annotated, Any, Literal, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.box import SIMPLE_HEAD, SQUARE
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table

from ducklake_core.errors import StorageError, UnsupportedFeatureError, UsageError
from ducklake_core.format.types.text import counted, visible
from ducklake_core.maintenance.health import format_bytes
from ducklake_core.maintenance.migrate import MigrationResult
from ducklake_core.maintenance.request import MaintenanceResult, Progress, ProgressCallback

_SECRET_FIELDS = frozenset({"encryption_key"})
_CALL = re.compile(r"lake\.([a-z_.]+)\([^()]*\)")
_COMMANDS = {
    "check": "check",
    "delete_orphaned_files": "orphans",
    "flush_inlined_data": "flush",
    "holds.list": "hold list",
    "holds.remove": "hold remove",
    "migrate": "migrate",
    "move_data": "move",
    "rewrite_data_files": "rewrite",
    "set_option": "option set",
    "snapshots": "snapshots",
}
"""Commands by the methods that messages name."""
_PHRASES = {
    "DuckLake.create(...) or DuckLake.open(..., create=True) in Python, or ATTACH in DuckDB": "ducklake create",
    "Open it with DuckLake.connect(...)": "Select it with --lake",
    "Open it with lake.view(...), or query it with lake.sql(...)": "Query it with ducklake sql",
    "Open it with lake.table(...)": "Read it with ducklake query",
    "files=True": "--files",
}
"""Advice for callers in Python, and for the command line."""
_ARGUMENT = re.compile(r"\b([a-z_]+)=(?:\.\.\.|\[\.\.\.\])")
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
        lines = report.brief_lines() if isinstance(report, MaintenanceResult | MigrationResult) else report.lines()
        print_lines(map(as_commands, lines))


def as_commands(text: str) -> str:
    """Return a message with the commands that do the same as the calls of the library in it.

    >>> as_commands("Run lake.check(level='footers'), or open it with lake.view(...)")
    'Run ducklake check --level footers, or open it with lake.view(...)'
    >>> as_commands("lake.holds.remove(name), lake.set_option('auto_compact', True, table='main.a b')")
    "ducklake hold remove NAME, ducklake option set auto_compact true --table 'main.a b'"
    >>> as_commands("SQL cannot read files: pass files=True")
    'SQL cannot read files: pass --files'
    >>> as_commands("A new lake needs a data path. Pass data_path=..., a directory")
    'A new lake needs a data path. Pass --data-path, a directory'
    """
    for phrase, other in _PHRASES.items():
        text = text.replace(phrase, other)
    text = _ARGUMENT.sub(lambda found: f"--{found[1].replace('_', '-')}", text)
    return _CALL.sub(lambda found: _as_command(found[0], _COMMANDS.get(found[1])), text)


def _as_command(call: str, command: str | None) -> str:
    if command is None:
        return call
    try:
        parsed = ast.parse(call, mode="eval").body
    except SyntaxError:
        # A value contains a bracket.
        return call
    assert isinstance(parsed, ast.Call)
    words = ["ducklake", command, *map(_word, parsed.args)]
    for one in parsed.keywords:
        is_flag = isinstance(one.value, ast.Constant) and one.value.value is True
        words += [f"--{str(one.arg).replace('_', '-')}", *([] if is_flag else [_word(one.value)])]
    return " ".join(words)


def _word(argument: ast.expr) -> str:
    match argument:
        case ast.Constant(value=bool(value)):
            return str(value).lower()
        case ast.Constant(value=value):
            return shlex.quote(str(value))
        case _:
            return ast.unparse(argument).upper()


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


RowFormat: TypeAlias = Literal["table", "vertical", "csv", "json", "jsonl", "parquet"]
Format: TypeAlias = Annotated[
    RowFormat | None,
    typer.Option("--format", help="table (the default), vertical, csv, json (an array), jsonl (an object a line) or parquet."),
]
JsonLines: TypeAlias = Annotated[bool, typer.Option("--json", help="The same as --format jsonl.")]
Limit: TypeAlias = Annotated[
    int | None, typer.Option("--limit", min=0, help="Maximum number of rows; 100 by default for table and vertical, else all.")
]

_ROWS_FOR_PEOPLE = 100
_MIN_COLUMN = 16
"""Columns of a terminal that a long value gets at least. Numbers and times are never cut: a part of one reads as another one."""


def row_format(name: RowFormat | None, *, as_json: bool) -> RowFormat:
    """Return the format that the options name.

    Raises:
        UsageError: Both options name one.
    """
    if as_json and name not in (None, "jsonl"):
        raise UsageError(f"pass --json (the same as --format jsonl) or --format {name}, not both")
    return "jsonl" if as_json else name or "table"


def most_rows(limit: int | None, name: RowFormat) -> int | None:
    """Return the number of rows to read, None for all: one more than are printed by default, to know whether there are more."""
    return _ROWS_FOR_PEOPLE + 1 if limit is None and name in ("table", "vertical") else limit


def print_rows(schema: pa.Schema, batches: Iterable[pa.RecordBatch], name: RowFormat, limit: int | None) -> None:
    """Print rows in a format.

    Args:
        schema: Columns of the rows.
        batches: The rows; at most :func:`most_rows` are read.
        name: The format.
        limit: Number of rows that the user wants, None by default.
    """
    if name not in ("table", "vertical"):
        _PRINTERS[name](schema, batches)
        return
    kept = _ROWS_FOR_PEOPLE if limit is None else limit
    rows = rows_of(batches)
    shown = list(islice(rows, kept))
    has_more = limit is None and next(rows, None) is not None
    hidden = _print_table(schema, shown) if name == "table" else _print_vertical(schema, shown)
    flush()
    notes = [f"the first {counted(kept, 'row')}; --limit shows more"] if has_more else [counted(len(shown), "row")] if is_terminal() else []
    if hidden:
        notes.append(f"{hidden:,} of {counted(len(schema), 'column')} hidden: use --columns, --format vertical or a wider terminal")
    if notes:
        typer.echo("; ".join(notes), err=True)


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[object, ...]]:
    """Yield rows as Python values; intervals, and values that Python cannot represent such as years before Christ, as strings."""
    for batch in batches:
        yield from zip(*map(_values, batch.columns), strict=True)


def _values(column: pa.Array) -> list[object]:
    if pa.types.is_interval(column.type):
        return [None if value is None else _interval_text(value) for value in column.to_pylist()]
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return [_value(scalar) for scalar in column]


def _value(scalar: pa.Scalar) -> object:
    if scalar.is_valid and isinstance(scalar, pa.StructScalar):
        return {name: _value(scalar[name]) for name in scalar}
    if scalar.is_valid and isinstance(scalar, pa.MapScalar):
        return [(_value(entry[0]), _value(entry[1])) for entry in scalar.values]
    if scalar.is_valid and isinstance(scalar, pa.ListScalar | pa.LargeListScalar | pa.FixedSizeListScalar):
        return [_value(one) for one in scalar.values]
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return scalar.cast(pa.string()).as_py()


def _interval_text(value: pa.MonthDayNano) -> str:
    """Return an interval as DuckDB prints it.

    >>> _interval_text(pa.MonthDayNano([14, 2, 3_500_000_000])), _interval_text(pa.MonthDayNano([0, 0, 0]))
    ('1 year 2 months 2 days 00:00:03.5', '00:00:00')
    """
    years, months = divmod(abs(value.months), 12)
    sign = -1 if value.months < 0 else 1
    parts = [f"{sign * number} {unit}{'' if number == 1 else 's'}" for number, unit in ((years, "year"), (months, "month")) if number]
    parts += [f"{value.days} day{'' if abs(value.days) == 1 else 's'}"] if value.days else []
    if value.nanoseconds or not parts:
        seconds, fraction = divmod(abs(value.nanoseconds), 1_000_000_000)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        parts.append(("-" if value.nanoseconds < 0 else "") + f"{clock}.{fraction:09}".rstrip("0").rstrip("."))
    return " ".join(parts)


def text_of(value: object, kind: pa.DataType) -> str:
    """Return a value as DuckDB prints it. A string that reads NULL is quoted, and strings within lists and structs are.

    >>> text_of(None, pa.string()), text_of("NULL", pa.string()), text_of(b"a\\xff", pa.binary())
    ('NULL', "'NULL'", 'a\\\\xFF')
    >>> text_of({"a": [True, None], "b": "it's"}, pa.struct({"a": pa.list_(pa.bool_()), "b": pa.string()}))
    "{'a': [true, NULL], 'b': 'it''s'}"
    """
    if isinstance(value, str):
        return _quoted(value) if value.strip("'") == "NULL" else value
    return _nested_text(value, kind)


def _nested_text(value: Any, kind: pa.DataType) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case float() if pa.types.is_float32(kind):
            return str(np.float32(value))
        case pa.MonthDayNano():
            return _interval_text(value)
        case bytes():
            return "".join(chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\x{byte:02X}" for byte in value)
        case datetime():
            return value.isoformat(sep=" ")
        case str():
            return _quoted(value)
        case list() if pa.types.is_map(kind):
            return f"{{{', '.join(f'{_nested_text(k, kind.key_type)}={_nested_text(v, kind.item_type)}' for k, v in value)}}}"
        case list():
            return f"[{', '.join(_nested_text(one, kind.value_type) for one in value)}]"
        case Mapping():
            fields = (f"{_quoted(name)}: {_nested_text(one, kind.field(name).type)}" for name, one in value.items())
            return f"{{{', '.join(fields)}}}"
        case _:
            return str(value)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _print_table(schema: pa.Schema, rows: Sequence[Sequence[object]]) -> int:
    """Print a table, on a terminal within its width: long values are cut, then columns in the middle are left out.

    Returns:
        Number of columns that are left out.
    """
    names = [visible(name) for name in schema.names]
    cells = [[visible(text_of(value, field.type)) for value, field in zip(row, schema, strict=True)] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(names, *cells, strict=True)]
    target = console()
    shown = list(range(len(names)))
    if target.is_terminal:
        least = [_MIN_COLUMN if _may_be_cut(field.type) else width for field, width in zip(schema, widths, strict=True)]
        widths = _narrowed(widths, least, target.width)
        shown = fitting(widths, target.width)
    else:
        target = console(width=1 + sum(3 + width for width in widths))
    is_cut = len(shown) < len(names)
    table = Table(box=SQUARE, header_style="bold")
    columns: list[int | None] = list(shown)
    if is_cut:
        # Neighbours differ by more than one where columns are left out.
        columns.insert(next((gap for gap in range(1, len(shown)) if shown[gap] != shown[gap - 1] + 1), len(shown)), None)
    dots = "…" if has_all_letters() else "..."
    for position in columns:
        justify = "right" if position is not None and _is_number(schema.field(position).type) else "left"
        header = dots if position is None else _cut(names[position], widths[position], dots)
        table.add_column(header, justify=justify, no_wrap=True, overflow="crop")  # type: ignore[arg-type]
    for row in cells:
        table.add_row(*(dots if position is None else _cut(row[position], widths[position], dots) for position in columns))
    target.print(table)
    return len(names) - len(shown)


def _may_be_cut(kind: pa.DataType) -> bool:
    return not (_is_number(kind) or pa.types.is_temporal(kind) or pa.types.is_boolean(kind))


def _narrowed(widths: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """Return the widths of columns, with the widest ones reduced to fit the table, but none below its minimum.

    >>> _narrowed([60, 30, 5], [16, 30, 5], 80), _narrowed([60, 60], [16, 16], 30)
    ([35, 30, 5], [16, 16])
    """
    space = width - 1 - 3 * len(widths)
    most = max(widths, default=0)
    found = list(widths)
    while most > _MIN_COLUMN and sum(found) > space:
        most -= 1
        found = [min(one, max(most, floor)) for one, floor in zip(widths, least, strict=True)]
    return found


def fitting(widths: Sequence[int], width: int) -> list[int]:
    """Return the positions of the columns that fit, without those in the middle: the first and the last ones matter most.

    >>> fitting([10, 10, 10], 80), fitting([10] * 9, 60), fitting([200, 3], 60)
    ([0, 1, 2], [0, 1, 2, 8], [0])
    """
    if 1 + sum(one + 3 for one in widths) <= width:
        return list(range(len(widths)))
    # The column of dots is one of three columns and its frame.
    space = width - 1 - 6
    first, last = [0], list[int]()
    space -= widths[0] + 3
    left, right = 1, len(widths) - 1
    is_open = {"first": True, "last": True}
    while left <= right and any(is_open.values()):
        # Two of the first columns for each of the last ones.
        side = "first" if is_open["first"] and (len(first) <= 2 * len(last) + 1 or not is_open["last"]) else "last"
        position = left if side == "first" else right
        is_open[side] = widths[position] + 3 <= space
        if not is_open[side]:
            continue
        space -= widths[position] + 3
        if side == "first":
            first.append(position)
            left += 1
        else:
            last.insert(0, position)
            right -= 1
    return [*first, *last]


def _cut(text: str, width: int, dots: str) -> str:
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - len(dots))).rstrip() + dots


def _print_vertical(schema: pa.Schema, rows: Sequence[Sequence[object]]) -> int:
    names = [visible(name) for name in schema.names]
    width = max(map(cell_len, names), default=0)
    for number, row in enumerate(rows, 1):
        write(f"row {number:,}\n")
        for name, value, field in zip(names, row, schema, strict=True):
            write(f"  {set_cell_size(name, width)}  {visible(text_of(value, field.type))}\n")
    return 0


def _print_csv(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Print CSV with a header, as DuckDB writes it: NULL is an empty field, an empty string is quoted."""
    write(",".join(map(_csv_field, schema.names)) + "\n")
    for row in rows_of(batches):
        cells = ("" if value is None else _csv_field(_csv_text(value, field.type)) for value, field in zip(row, schema, strict=True))
        write(",".join(cells) + "\n")


def _csv_text(value: object, kind: pa.DataType) -> str:
    return value if isinstance(value, str) else json_text(value) if isinstance(value, Mapping | list) else _nested_text(value, kind)


def _csv_field(text: str) -> str:
    is_plain = text != "" and not any(letter in text for letter in ',"\n\r') and text.strip() == text
    return text if is_plain else '"' + text.replace('"', '""') + '"'


def _keys(names: Sequence[str]) -> list[str]:
    """Return the names with a number at repeated ones, as objects have each name once.

    >>> _keys(["a", "a", "b", "a"])
    ['a', 'a_1', 'b', 'a_2']
    """
    found: list[str] = []
    for name in names:
        number = 0
        key = name
        while key in found:
            number += 1
            key = f"{name}_{number}"
        found.append(key)
    return found


def _print_json(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    before, keys = "[\n", _keys(schema.names)
    for row in rows_of(batches):
        write(f"{before}  {json_text(dict(zip(keys, row, strict=True)))}")
        before = ",\n"
    write("[]\n" if before == "[\n" else "\n]\n")


def _print_json_lines(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    keys = _keys(schema.names)
    for row in rows_of(batches):
        write(json_text(dict(zip(keys, row, strict=True))) + "\n")


def _print_parquet(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    if is_terminal():
        raise UsageError("--format parquet prints bytes, which a terminal cannot show: redirect the output to a file")
    try:
        writer = pq.ParquetWriter(pa.PythonFile(BinaryOutput(), mode="w"), schema)
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedFeatureError(f"Parquet does not have the type of a column ({error}); use another format, or CAST it") from error
    with writer:
        for batch in batches:
            writer.write_batch(batch)


_PRINTERS: Mapping[str, Callable[[pa.Schema, Iterable[pa.RecordBatch]], None]] = {
    "csv": _print_csv,
    "json": _print_json,
    "jsonl": _print_json_lines,
    "parquet": _print_parquet,
}
