"""Where each wanted column of a table is in a file: by field id, by name, in the path, or by position.

Every way ends in the same form: the file's Arrow fields with the *table's* ids on every node that was found, so that
whoever reads the values needs to know of ids only. Nodes that are no column of the table carry none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from ducklake_core.engines.arrow.conform import field_id
from ducklake_core.errors import CatalogCorruptError
from ducklake_core.format.files.data_files import DataFile
from ducklake_core.format.files.name_mapping import MappedColumn, NameMapping, path_value
from ducklake_core.format.types.arrow_types import FIELD_ID_KEY, is_list
from ducklake_core.format.types.names import folded
from ducklake_core.planning.plan import ScanProjection

ArrowField: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class InFile:
    """The column at a place of the file, described by a field with the table's ids."""

    place: int
    field: ArrowField


@dataclass(frozen=True, slots=True)
class InPath:
    """A value that the file's path holds for all of its rows, None for NULL."""

    text: str | None


@dataclass(frozen=True, slots=True)
class Absent:
    """The file lacks the column: its rows are older than it, or it was added without it."""


Source: TypeAlias = InFile | InPath | Absent


def find_columns(schema: pa.Schema, file: DataFile, shape: ScanProjection) -> tuple[Source, ...]:
    """The source of each column of ``shape.read_schema`` in a file with this Arrow schema.

    Raises:
        CatalogCorruptError: The file's name mapping did not come along.
        CorruptFileError: The file's path lacks the value of a column.
    """
    fields = list(schema)
    if file.mapping_id is not None:
        found = _by_name(fields, _mapping(file, shape), file)
    elif all(field_id(field) is not None for field in fields):
        found = _by_id(fields)
    else:
        # One column without an id is enough for DuckDB to take all columns by their position in the table.
        found = _by_position(fields, shape.positions_at(file.begin_snapshot))
    return tuple(found.get(column.id, Absent()) for column in shape.read_schema)


def _mapping(file: DataFile, shape: ScanProjection) -> NameMapping:
    mapping = next((mapping for mapping in shape.mappings if mapping.id == file.mapping_id), None)
    if mapping is None:
        raise CatalogCorruptError(f"data file {file.id} of table {shape.table} has the unknown column mapping {file.mapping_id}")
    return mapping


def _by_id(fields: Sequence[ArrowField]) -> dict[int, Source]:
    found: dict[int, Source] = {}
    for place, field in enumerate(fields):
        number = field_id(field)
        if number is not None:
            # Of two columns with one id DuckDB takes the first.
            found.setdefault(number, InFile(place, field))
    return found


def _by_position(fields: Sequence[ArrowField], positions: dict[int, int]) -> dict[int, Source]:
    # Below a column nothing is known by position, so that nested values are NULL, as in DuckDB.
    return {number: InFile(place, _known_as(fields[place], number, _bare)) for number, place in positions.items() if place < len(fields)}


def _by_name(fields: Sequence[ArrowField], mapping: NameMapping, file: DataFile) -> dict[int, Source]:
    places = _places(fields)
    found: dict[int, Source] = {}
    for column in mapping.columns:
        place = places.get(folded(column.source_name))
        if column.in_path:
            found.setdefault(column.field_id, InPath(path_value(file.path, column.source_name)))
        elif place is not None:
            found.setdefault(column.field_id, InFile(place, _mapped(fields[place], column)))
    return found


def _places(fields: Sequence[ArrowField]) -> dict[str, int]:
    places: dict[str, int] = {}
    for place, field in enumerate(fields):
        places.setdefault(folded(field.name), place)
    return places


def _mapped(field: ArrowField, column: MappedColumn) -> ArrowField:
    def children(fields: Sequence[ArrowField]) -> list[ArrowField]:
        if len(fields) == 1 and len(column.children) == 1 and is_list(field.type):
            # Writers call the element of a list by many names, and the mapping by that of the group around it.
            return [_mapped(fields[0], column.children[0])]
        places = _places(fields)
        below = {places[folded(child.source_name)]: child for child in column.children if folded(child.source_name) in places}
        return [_mapped(child, below[place]) if place in below else _bare(child) for place, child in enumerate(fields)]

    return _known_as(field, column.field_id, children)


def _bare(field: ArrowField | Sequence[ArrowField]) -> Any:
    """Fields without any id."""
    if isinstance(field, pa.Field):
        return pa.field(field.name, _rebuilt(field.type, _bare), field.nullable)
    return [_bare(one) for one in field]


def _known_as(field: ArrowField, number: int, children: Callable[[Sequence[ArrowField]], list[ArrowField]]) -> ArrowField:
    return pa.field(field.name, _rebuilt(field.type, children), field.nullable, metadata={FIELD_ID_KEY: str(number)})


def _rebuilt(arrow_type: Any, children: Callable[[Sequence[ArrowField]], list[ArrowField]]) -> Any:
    """The nested type with other fields below it."""
    if pa.types.is_struct(arrow_type):
        return pa.struct(children([arrow_type.field(i) for i in range(arrow_type.num_fields)]))
    if pa.types.is_map(arrow_type):
        # Files name the two as they like; mappings call them key and value.
        key, value = arrow_type.key_field.with_name("key"), arrow_type.item_field.with_name("value")
        key, value = children([key, value])
        return pa.map_(key.with_nullable(False), value)
    if is_list(arrow_type):
        return pa.list_(children([arrow_type.value_field])[0])
    return arrow_type
