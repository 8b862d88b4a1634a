"""Print rows of tables and queries: as a table that fits the terminal, one value a line, CSV, JSON or Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.box import SQUARE
from rich.cells import cell_len, set_cell_size
from rich.table import Table

from ducklake_core.cli.output import BinaryOutput, console, flush, has_all_letters, is_terminal, json_text, write
from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.types.text import counted, visible

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
_MIN_WIDTH = 16
"""Columns of a terminal that a long value gets at least. Numbers and times are never cut: a part of one reads as another one."""


def row_format(name: RowFormat | None, *, as_json: bool) -> RowFormat:
    """Return the format that the options name.

    Raises:
        UsageError: Both options name one.
    """
    if as_json and name not in (None, "jsonl"):
        raise UsageError(f"give either --json, which is --format jsonl, or --format {name}")
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
        least = [_MIN_WIDTH if _may_be_cut(field.type) else width for field, width in zip(schema, widths, strict=True)]
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
    while most > _MIN_WIDTH and sum(found) > space:
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
