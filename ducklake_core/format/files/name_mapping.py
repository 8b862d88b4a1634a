"""Map columns of files that were added from elsewhere, by name or by path (specification: ducklake_column_mapping)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from urllib.parse import unquote

from ducklake_core.errors import CorruptFileError, SchemaError
from ducklake_core.format.files.data_files import ColumnStatistics, WrittenFile
from ducklake_core.format.files.paths import NULL_DIRECTORY
from ducklake_core.format.types.data_types import (
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    TIME,
    TIME_NS,
    TIMESTAMP,
    TIMESTAMP_MS,
    TIMESTAMP_NS,
    TIMESTAMP_S,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    DataType,
    DecimalType,
    PrimitiveType,
)

_INTEGER = re.compile(r"u?int\d+")
_TRUTH = {"yes": "true", "y": "true", "on": "true", "no": "false", "n": "false", "off": "false"}

# Chains of types, each with the types that only it and wider ones can read: see accepted_types.
_SIGNED: tuple[tuple[DataType, ...], ...] = ((INT8,), (INT16, UINT8), (INT32, UINT16), (INT64, UINT32))
_UNSIGNED: tuple[tuple[DataType, ...], ...] = ((UINT8,), (UINT16,), (UINT32,), (UINT64,))
_FLOATING: tuple[tuple[DataType, ...], ...] = ((FLOAT32,), (FLOAT64,))


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedColumn:
    """One column or nested node of a file.

    Attributes:
        source_name: Its name in the file, or the partition key in the path.
        field_id: Id of the table's column.
        in_path: Whether the value comes from a directory ``source_name=value`` of the file's path.
        children: Nodes below it.
    """

    source_name: str
    field_id: int
    in_path: bool = False
    children: tuple[MappedColumn, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NameMapping:
    """The columns of all files that carry this ``mapping_id``; table columns that it leaves out are in none of them."""

    id: int
    columns: tuple[MappedColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NameMappingRow:
    """One row of ``ducklake_name_mapping``; ``number`` and ``parent`` count within the mapping, not within the table."""

    number: int
    source_name: str
    field_id: int
    parent: int | None
    in_path: bool


def build_mapping(mapping_id: int, rows: Iterable[NameMappingRow]) -> NameMapping:
    """Return the mapping of its rows, which may come in any order.

    >>> inner = NameMappingRow(number=1, source_name="x", field_id=3, parent=0, in_path=False)
    >>> outer = NameMappingRow(number=0, source_name="s", field_id=2, parent=None, in_path=False)
    >>> [(column.source_name, [child.source_name for child in column.children]) for column in build_mapping(7, [inner, outer]).columns]
    [('s', ['x'])]
    """
    below: dict[int | None, list[NameMappingRow]] = {}
    for row in sorted(rows, key=lambda row: row.number):
        below.setdefault(row.parent, []).append(row)

    def columns(parent: int | None) -> tuple[MappedColumn, ...]:
        # Taking the rows out ends the recursion even where rows name each other as parents.
        return tuple(
            MappedColumn(source_name=row.source_name, field_id=row.field_id, in_path=row.in_path, children=columns(row.number))
            for row in below.pop(parent, [])
        )

    return NameMapping(id=mapping_id, columns=columns(None))


def path_value(path: str, key: str) -> str | None:
    """Return the text of a partition key in a path, None for NULL; of several directories with that key the first counts.

    A directory is ``key=value`` with one equals sign. The key is not decoded, the value is percent-decoded; what
    DuckDB writes and other tools read as NULL is NULL.

    >>> path_value("/lake/year=2020/g=a%20b/f.parquet", "g"), path_value("x/g=__HIVE_DEFAULT_PARTITION__/f", "g")
    ('a b', None)

    Raises:
        CorruptFileError: The path has no such directory, or its value is not text.
    """
    text = path_keys(path).get(key)
    if text is None:
        raise CorruptFileError(f"the path {path} has no directory {key}=..., which should hold the value of a column", path=path)
    return unquoted(text, key, path)


def path_keys(path: str) -> dict[str, str]:
    """Return the partition keys in a path with their values, not decoded.

    >>> path_keys("/lake/year=2020/g=a%20b/year=2021/f=1.parquet")
    {'year': '2020', 'g': 'a%20b'}
    """
    found: dict[str, str] = {}
    for directory in re.split(r"[/\\]", path)[:-1]:
        # As in DuckDB: exactly one equals sign, no question mark and no line break.
        pair = directory.split("=")
        if len(pair) == 2 and "?" not in directory and "\n" not in directory:
            found.setdefault(*pair)
    return found


def unquoted(text: str, key: str, path: str) -> str | None:
    """Return a value of :func:`path_keys` decoded, None for NULL.

    Args:
        text: The value in the path, not decoded.
        key: The partition key, for messages.
        path: The path, for messages.

    Raises:
        CorruptFileError: It is not text.
    """
    if text.upper() == "NULL" or text == NULL_DIRECTORY:
        return None
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"the value of {key} in the path {path} is not UTF-8", path=path) from error


def plain_text(text: str, data_type: DataType) -> str | None:
    """Return the catalog's text of a value that another program wrote into a path, as DuckDB casts it; None for NULL.

    >>> from ducklake_core.format.types.data_types import *
    >>> plain_text("007", INT32), plain_text("1.5", INT32), plain_text("0x10", INT64), plain_text("", INT32), plain_text("", VARCHAR)
    ('7', '2', '16', None, '')

    Raises:
        SchemaError: The column is a number, and the text is not.
    """
    if data_type == PrimitiveType(name="varchar"):
        return text
    # DuckDB reads an empty value of a hive path as NULL, except for VARCHAR.
    if not text:
        return None
    text = text.strip()
    match data_type:
        case PrimitiveType(name=name) if _INTEGER.fullmatch(name):
            return str(_whole(text))
        case DecimalType(scale=scale):
            return str(_number(text).quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP))
        case PrimitiveType(name="boolean"):
            return _TRUTH.get(text.lower(), text.lower())
        case PrimitiveType(name="timestamp" | "timestamptz" | "timestamp_s" | "timestamp_ms" | "timestamp_ns"):
            return re.sub(r"(?<=\d)T(?=\d)", " ", text, count=1)
        case _:
            return text


def _whole(text: str) -> int:
    try:
        return int(text, 0) if re.match(r"[+-]?0[xXbB]", text) else int(_number(text).quantize(Decimal(1), rounding=ROUND_HALF_UP))
    except (ValueError, InvalidOperation) as error:
        raise SchemaError(f"{text!r} is not a whole number") from error


def _number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise SchemaError(f"{text!r} is not a number") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedFile:
    """A file that another program wrote and that is added to a table.

    Attributes:
        file: Its path, counts, statistics and partition values; the path as it goes into the catalog.
        path_is_relative: Whether the path is below the table's directory.
        full_path: The whole path.
        columns: How its columns are found.
        absent: Statistics of the values, NULL or the default, of columns that the file lacks. They belong to the table, not to the file.
    """

    file: WrittenFile
    path_is_relative: bool
    full_path: str
    columns: tuple[MappedColumn, ...]
    absent: tuple[ColumnStatistics, ...] = ()


def accepted_types(wanted: DataType) -> tuple[DataType, ...]:
    """Return the types of a file's column that a column of the table accepts, as in DuckDB; without decimals.

    >>> [str(t) for t in accepted_types(INT32)], [str(t) for t in accepted_types(FLOAT64)]
    (['int32', 'uint16', 'int16', 'uint8', 'int8'], ['float64', 'float32'])
    """
    for chain in (_SIGNED, _UNSIGNED, _FLOATING):
        for place, step in enumerate(chain):
            if step[0] == wanted:
                return tuple(narrower for narrow in reversed(chain[: place + 1]) for narrower in narrow)
    if wanted in (TIMESTAMP, TIMESTAMP_NS):
        return (TIMESTAMP_NS, TIMESTAMP, TIMESTAMP_MS, TIMESTAMP_S)
    if wanted in (TIMESTAMP_MS, TIMESTAMP_S):
        return (TIMESTAMP, TIMESTAMP_MS, TIMESTAMP_S)
    if wanted == TIME:
        # DuckDB reads nanoseconds of a file as TIME.
        return (TIME, TIME_NS)
    return (wanted,)


def fits(held: DataType, wanted: DataType) -> bool:
    """Return whether a column of the table accepts a file's leaf column.

    >>> fits(INT64, INT32), fits(DecimalType(precision=9, scale=2), DecimalType(precision=10, scale=2))
    (False, True)
    """
    if isinstance(wanted, DecimalType):
        return isinstance(held, DecimalType) and held.scale <= wanted.scale and held.precision <= wanted.precision
    return held in accepted_types(wanted)


def mapping_rows(columns: Sequence[MappedColumn]) -> tuple[NameMappingRow, ...]:
    """Return the rows of a mapping, numbered from parents to children; the inverse is ``name_mapping.build_mapping``.

    >>> inner = MappedColumn(source_name="x", field_id=3)
    >>> rows = mapping_rows([MappedColumn(source_name="s", field_id=2, children=(inner,)), MappedColumn(source_name="g", field_id=9)])
    >>> [(row.number, row.source_name, row.parent) for row in rows]
    [(0, 's', None), (1, 'x', 0), (2, 'g', None)]
    """
    rows: list[NameMappingRow] = []

    def add(column: MappedColumn, parent: int | None) -> None:
        number = len(rows)
        rows.append(
            NameMappingRow(number=number, source_name=column.source_name, field_id=column.field_id, parent=parent, in_path=column.in_path)
        )
        for child in column.children:
            add(child, number)

    for column in columns:
        add(column, None)
    return tuple(rows)


def same_mapping(one: Sequence[MappedColumn], other: Sequence[MappedColumn]) -> bool:
    """Return whether two mappings find the same columns in the same places, in whatever order."""
    return len(one) == len(other) and set(_flat(one)) == set(_flat(other))


def _flat(columns: Sequence[MappedColumn], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int, bool]]:
    for column in columns:
        place = (*above, column.source_name)
        yield place, column.field_id, column.in_path
        yield from _flat(column.children, place)
