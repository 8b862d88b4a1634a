"""Rows that live in the catalog itself (specification: Data Inlining): every registered table of them, in the columns asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from sqlalchemy import Column, ColumnElement, CursorResult, Select, String, Table, cast, literal_column, select, true
from sqlalchemy.exc import DBAPIError

from ducklake_core.catalog.database.abilities import Abilities, abilities_of
from ducklake_core.catalog.database.tables import INLINED_SYSTEM_COLUMNS
from ducklake_core.catalog.inlined.nested_text import parse_leaf, parse_nested
from ducklake_core.catalog.inlined.variants import NULL_VARIANT, holds_variants, plain_cell, plain_type, split_variant
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.reading.visibility import live_or_unknown
from ducklake_core.errors import CatalogCorruptError, CatalogUnavailableError, SchemaError, UnsupportedFeatureError
from ducklake_core.format.evolution.promotion import promote
from ducklake_core.format.state import InlinedTable, TableState
from ducklake_core.format.types.arrow_types import ArrowArray, ArrowType, to_arrow_field, to_arrow_schema, to_arrow_type
from ducklake_core.format.types.data_types import (
    BOOLEAN,
    FLOATS,
    INTEGERS,
    JSON,
    VARCHAR,
    VARIANT,
    DecimalType,
    Field,
    ListType,
    MapType,
    PrimitiveType,
    StructType,
)
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.type_names import ColumnRow, build_schema, type_text
from ducklake_core.format.values.arrow_cast import constant_array
from ducklake_core.format.values.leaf_cast import from_values

ROW_ID = "rowid"
SNAPSHOT_ID = "snapshot_id"
TABLE_NAME = "inlined_table"
END_SNAPSHOT = "end_snapshot"

_UNDEFINED_TABLE = "42P01"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenInlined:
    """Which inlined rows are read.

    Attributes:
        condition: On a physical table of inlined rows.
        snapshot: The column whose value stands as the row's ``snapshot_id``.
    """

    condition: Callable[[Table], ColumnElement[bool]]
    snapshot: Literal["begin_snapshot", "end_snapshot"] = "begin_snapshot"


EVERY_VERSION = ChosenInlined(condition=lambda _source: true())
"""All rows, ended ones too."""


def inlined_rows(
    reader: CatalogReader, table: TableState, read_schema: Schema, *, with_table: bool = False, chosen: ChosenInlined | None = None
) -> pa.Table | None:
    """Rows from all registered tables of inlined rows, None when there are none.

    Args:
        read_schema: Columns wanted, by their ids; rows that lack a column have its ``initial_default``.
        with_table: Whether a last column ``inlined_table`` names the physical table that holds the row.
        chosen: Which rows; those visible at ``table.snapshot_id`` when None.

    Returns:
        The columns of ``read_schema`` in their logical Arrow types, then ``rowid`` and ``snapshot_id`` (the snapshot that
        added the row, unless ``chosen`` says otherwise), both int64.

    Raises:
        UnsupportedFeatureError: A value that cannot be read.
        CatalogUnavailableError: Another writer flushed a table meanwhile; read again in a new transaction.
    """
    sources = _still_there(reader, table)
    if not sources:
        return None
    versions = TableVersions.read(reader, table.id)
    any_cell = abilities_of(reader.connection.dialect).has_untyped_cells
    chosen = chosen or ChosenInlined(condition=lambda source: live_or_unknown(source, table.snapshot_id, any_cell=any_cell))
    parts = [_read(reader, table, source, versions.schema_at(source.schema_version), read_schema, chosen) for source in sources]
    found = [(source, part) for source, part in zip(sources, parts, strict=True) if part is not None]
    if not found:
        return None
    if with_table:
        found = [(source, part.append_column(TABLE_NAME, pa.repeat(source.name, part.num_rows))) for source, part in found]
    return pa.concat_tables([part for _, part in found])


def _still_there(reader: CatalogReader, table: TableState) -> list[InlinedTable]:
    """Whoever flushes the rows of earlier columns drops their table as well, maybe since the state was read."""
    if not table.inlined_tables:
        return []
    registered = reader.catalog["inlined_data_tables"]
    names = reader.connection.execute(select(registered.c.table_name).where(registered.c.table_id == table.id)).scalars().all()
    return [source for source in table.inlined_tables if source.name in names]


class TableVersions:
    """The columns of a table at each of its schema versions.

    Every change of columns leaves a row in ducklake_schema_versions, which outlives expired snapshots; versions in between
    belong to changes of something else.
    """

    def __init__(self, table_id: int, versions: Sequence[tuple[int, int]], history: Sequence[tuple[ColumnRow, int | None]]) -> None:
        """Args are (schema version, begin snapshot) pairs, and what ``CatalogReader.column_history`` tells."""
        self._snapshots = versions
        self._history = history
        self._table_id = table_id

    @classmethod
    def read(cls, reader: CatalogReader, table_id: int) -> TableVersions:
        """Those of one table, in two statements."""
        versions = reader.catalog["schema_versions"]
        query = select(versions.c.schema_version, versions.c.begin_snapshot).where(versions.c.table_id == table_id)
        found = [(row.schema_version, row.begin_snapshot) for row in reader.connection.execute(query)]
        return cls(table_id, found, reader.column_history(table_id))

    def schema_at(self, schema_version: int) -> Schema:
        """The columns that a table of inlined rows of that schema version has.

        Raises:
            CatalogCorruptError: The table had no columns then.
        """
        schema = self.schema_of(self.snapshot_of(schema_version))
        if not schema.columns:
            raise CatalogCorruptError(f"table {self._table_id} had no columns at schema version {schema_version}", table_id=self._table_id)
        return schema

    def snapshot_of(self, schema_version: int) -> int:
        """The snapshot from which on the table had the columns of a schema version."""
        begun = [snapshot for version, snapshot in self._snapshots if version <= schema_version]
        return max(begun) if begun else min((row.begin_snapshot for row, _ in self._history), default=0)

    def schema_of(self, snapshot_id: int) -> Schema:
        """The columns that the table had at a snapshot."""
        return build_schema(row for row, end in self._history if row.begin_snapshot <= snapshot_id and (end is None or end > snapshot_id))


def stored_rows(reader: CatalogReader, table: TableState, source: InlinedTable, stored: Schema) -> pa.Table | None:
    """All rows of one physical table as they were stored, ended ones too, None when there are none.

    Args:
        stored: The columns that it has.

    Returns:
        Its columns in their logical Arrow types, then ``rowid``, ``snapshot_id`` and ``end_snapshot`` (NULL for live rows), all int64.

    Raises:
        UnsupportedFeatureError: A value that cannot be read.
        CatalogCorruptError: A row id or a snapshot that is no number.
        CatalogUnavailableError: Another writer flushed the table meanwhile; read again in a new transaction.
    """
    return _read(reader, table, source, stored, stored, EVERY_VERSION, with_end=True)


def _read(
    reader: CatalogReader,
    table: TableState,
    source: InlinedTable,
    stored: Schema,
    wanted: Schema,
    chosen: ChosenInlined,
    *,
    with_end: bool = False,
) -> pa.Table | None:
    """Rows of one physical table."""
    abilities = abilities_of(reader.connection.dialect)
    by_id = {column.id: column for column in stored}
    columns = [by_id[column.id] for column in wanted if column.id in by_id]
    names = _stored_names(reader, source, stored)
    physical = reader.catalog.inlined_data(source.name, (names[column.id] for column in columns))
    rows = _fetch(reader, physical, columns, chosen)
    if not rows:
        return None
    row_ids, snapshots, ends, *cells = (list(values) for values in zip(*rows, strict=True))
    if not all(isinstance(number, int) for number in (*row_ids, *snapshots)) or not (
        not with_end or all(end is None or isinstance(end, int) for end in ends)
    ):
        raise CatalogCorruptError(
            f"{source.name}, inlined rows of {table.qualified_name}, has a row_id or begin_snapshot that is no number",
            table=table.qualified_name,
            inlined_table=source.name,
        )
    values = dict(zip((column.id for column in columns), cells, strict=True))
    arrays = []
    for column in wanted:
        old = by_id.get(column.id)
        if old is None:
            arrays.append(constant_array(column.initial_default, column, len(rows)))
            continue
        try:
            cells = values[column.id]
            held = cells if _are_plain(cells, old) else [_decoded(cell, old, abilities) for cell in cells]
            arrays.append(stored_array(held, old, column))
        except (SchemaError, pa.ArrowException, UnicodeDecodeError, OverflowError) as error:
            reason = error.message if isinstance(error, SchemaError) else error
            raise UnsupportedFeatureError(
                f"column {column.name!r} of {table.qualified_name} has an inlined value in {source.name} that cannot be read "
                f"({reason}); flush the inlined rows with DuckDB, or delete them",
                table=table.qualified_name,
                column=column.name,
            ) from error
    system = {ROW_ID: row_ids, SNAPSHOT_ID: snapshots} | ({END_SNAPSHOT: ends} if with_end else {})
    schema = pa.schema([*to_arrow_schema(wanted), *(pa.field(name, pa.int64()) for name in system)])
    return pa.Table.from_arrays([*arrays, *(pa.array(numbers, pa.int64()) for numbers in system.values())], schema=schema)


def _stored_names(reader: CatalogReader, source: InlinedTable, stored: Schema) -> dict[int, str]:
    """Names of the columns in the physical table, by column id.

    DuckDB leaves plain names unquoted, so that PostgreSQL folds them to lower case: only their order can be trusted.
    """
    names = {column.id: column.name for column in stored}
    if not abilities_of(reader.connection.dialect).folds_names or all(name == name.lower() for name in names.values()):
        return names
    everything: Select[Any] = select(literal_column("*")).select_from(reader.catalog.inlined_data(source.name)).limit(0)
    found = list(_execute(reader, everything, source.name).keys())[INLINED_SYSTEM_COLUMNS:]
    if len(found) != len(names):
        raise CatalogCorruptError(f"{source.name} has {len(found)} columns where {len(names)} are expected", inlined_table=source.name)
    return dict(zip(names, found, strict=True))


def _fetch(reader: CatalogReader, source: Table, columns: Sequence[Field], chosen: ChosenInlined) -> Sequence[Any]:
    abilities = abilities_of(reader.connection.dialect)
    # By position: a user's column may have the name of a system column in other letters.
    own = list(source.c)[INLINED_SYSTEM_COLUMNS:]
    cells = [_cell(stored, column, abilities) for stored, column in zip(own, columns, strict=True)]
    system = (source.c.row_id, source.c[chosen.snapshot], source.c.end_snapshot.label("ended_at"))
    query = select(*system, *cells).where(chosen.condition(source)).order_by(source.c.row_id)
    return _execute(reader, query, source.name).all()


def _execute(reader: CatalogReader, query: Select[Any], table_name: str) -> CursorResult[Any]:
    try:
        return reader.connection.execute(query)
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != _UNDEFINED_TABLE:
            raise
        message = f"the inlined rows in {table_name} were flushed by another writer during this read; read again"
        raise CatalogUnavailableError(message, failure="retry", inlined_table=table_name) from error


def _cell(stored: Column[Any], column: Field, abilities: Abilities) -> ColumnElement[Any]:
    kind = type_text(column.type).partition("(")[0]
    if abilities.inlined_as_is and holds_variants(column.type):
        plain = plain_cell(stored, column.type)
        return plain if column.type == VARIANT else cast(plain, String)
    return cast(stored, String) if kind in abilities.inlined_cast_to_text else stored


def _are_plain(cells: list[Any], column: Field) -> bool:
    """Whether all cells are values already: looking at each costs more than everything else."""
    kinds = set(map(type, cells)) - {type(None)}
    if column.type in (VARCHAR, JSON):
        return kinds <= {str}
    return (kinds <= {int} and column.type in INTEGERS) or (kinds <= {float} and column.type in FLOATS)


def _decoded(cell: Any, column: Field, abilities: Abilities) -> object:
    """The Python form of a cell as any of the databases stores it."""
    match column.type, cell:
        case _, None:
            return None
        case PrimitiveType(name="boolean"), 0 | 1:
            return bool(cell)
        case PrimitiveType(name="blob"), bytes() | memoryview():
            return bytes(cell)
        case PrimitiveType(name="varchar" | "json"), bytes() | memoryview():
            return bytes(cell).decode()
        case PrimitiveType(name="varchar" | "json"), str():
            return cell
        case PrimitiveType(name="variant"), {"metadata": bytes(), "value": bytes() as value}:
            return None if value == NULL_VARIANT else cell
        case PrimitiveType(name="variant"), bytes() | memoryview() if not abilities.inlined_as_is:
            found = split_variant(bytes(cell))
            return None if found["value"] == NULL_VARIANT else found
        case PrimitiveType(name="variant" | "geometry"), _:
            raise UnsupportedFeatureError(f"inlined values of type {column.type} are not supported", column=column.name)
        case PrimitiveType(), int():
            if column.type != BOOLEAN:
                return cell
            raise SchemaError(f"{cell} is neither true nor false")
        case PrimitiveType(), float() if column.type in FLOATS or cell.is_integer():
            return cell
        case ((ListType() | MapType() | StructType()), str()):
            held = plain_type(column.type) if abilities.inlined_as_is else column.type
            return parse_nested(cell, held, literal_structs=not abilities.inlined_as_is)
        case ((PrimitiveType() | DecimalType()), str()):
            return parse_leaf(cell, column.type)
        case _:
            raise SchemaError(f"{cell!r} is not a value of type {column.type}")


def stored_array(values: list[Any], old: Field, new: Field) -> ArrowArray:
    """Values of a column as it was when they were stored, as an array of what the column is now; children are matched by id."""
    match old.type, new.type:
        case StructType(), StructType(fields=fields):
            children = _children(old)
            arrays = [_member(values, children.get(field.id), field) for field in fields]
            nulls = pa.array([value is None for value in values], pa.bool_())
            return pa.StructArray.from_arrays(arrays, fields=[to_arrow_field(field) for field in fields], mask=nulls)
        case ListType(element=before), ListType(element=after):
            flat = [item for value in values if value is not None for item in value]
            return _list_array(pa.ListArray, _offsets(values), stored_array(flat, before, after), type=to_arrow_type(new.type))
        case MapType(key=old_key, value=old_value), MapType(key=new_key, value=new_value):
            pairs = [pair for value in values if value is not None for pair in value]
            keys = stored_array([key for key, _ in pairs], old_key, new_key)
            items = stored_array([value for _, value in pairs], old_value, new_value)
            return _list_array(pa.MapArray, _offsets(values), keys, items, type=to_arrow_type(new.type))
        case PrimitiveType(name="variant"), _:
            return from_values([None if value is None or value["value"] == NULL_VARIANT else value for value in values], old.type)
        case _:
            array = from_values(values, old.type)
            return array if old.type == new.type else promote(array, new)


def _list_array(kind: Any, *parts: ArrowArray, type: ArrowType) -> ArrowArray:  # noqa: A002
    return kind.from_arrays(*parts, type=type)


def _children(field: Field) -> dict[int, Field]:
    return {child.id: child for child in field.children}


def _member(values: list[Any], old: Field | None, new: Field) -> ArrowArray:
    if old is None:
        return constant_array(new.initial_default, new, len(values))
    return stored_array([None if value is None else value.get(old.name) for value in values], old, new)


def _offsets(values: Iterable[Any]) -> ArrowArray:
    """Where each list begins; a NULL offset makes the list NULL."""
    found: list[int | None] = []
    end = 0
    for value in values:
        found.append(None if value is None else end)
        end += 0 if value is None else len(value)
    return pa.array([*found, end], pa.int32())
