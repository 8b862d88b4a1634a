"""Files that are added to a table in place: whether their types fit, and what a commit has to know of them
(specification: ducklake_add_data_files)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ducklake_core.format.files.data_files import ColumnStatistics, WrittenFile
from ducklake_core.format.files.name_mapping import MappedColumn, NameMappingRow
from ducklake_core.format.types.data_types import (
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
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
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedFile:
    """A file that somebody else wrote and that is to belong to a table.

    Attributes:
        file: Its path, counts, statistics and partition values; the path as it goes into the catalog.
        path_is_relative: Whether the path is below the table's directory.
        full_path: The whole path.
        columns: How its columns are found.
        absent: What its rows have in columns that it lacks: NULL or the default. It counts for the table, and is no row of the file.
    """

    file: WrittenFile
    path_is_relative: bool
    full_path: str
    columns: tuple[MappedColumn, ...]
    absent: tuple[ColumnStatistics, ...] = ()


_SIGNED: tuple[tuple[DataType, ...], ...] = ((INT8,), (INT16, UINT8), (INT32, UINT16), (INT64, UINT32))
_UNSIGNED: tuple[tuple[DataType, ...], ...] = ((UINT8,), (UINT16,), (UINT32,), (UINT64,))
_FLOATING: tuple[tuple[DataType, ...], ...] = ((FLOAT32,), (FLOAT64,))


def accepted_types(wanted: DataType) -> tuple[DataType, ...]:
    """Types of a file's column that may stand for a column of the table, as in DuckDB; decimals apart.

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
    return (wanted,)


def fits(held: DataType, wanted: DataType) -> bool:
    """Whether a file's leaf column may stand for a column of the table.

    >>> fits(INT64, INT32), fits(DecimalType(precision=9, scale=2), DecimalType(precision=10, scale=2))
    (False, True)
    """
    if isinstance(wanted, DecimalType):
        return isinstance(held, DecimalType) and held.scale <= wanted.scale and held.precision <= wanted.precision
    return held in accepted_types(wanted)


def mapping_rows(columns: Sequence[MappedColumn]) -> tuple[NameMappingRow, ...]:
    """The rows of a mapping, numbered from parents to children; the inverse is ``name_mapping.build_mapping``.

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
    """Whether two mappings find the same columns in the same places, in whatever order."""
    return len(one) == len(other) and set(_flat(one)) == set(_flat(other))


def _flat(columns: Sequence[MappedColumn], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int, bool]]:
    for column in columns:
        place = (*above, column.source_name)
        yield place, column.field_id, column.in_path
        yield from _flat(column.children, place)
