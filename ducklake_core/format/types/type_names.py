"""The catalog's text of types, and the tree that the rows of ``ducklake_column`` spell (specification: Data Types, ducklake_column)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ducklake_core.errors import CatalogCorruptError, UnsupportedFeatureError
from ducklake_core.format.types.data_types import (
    NULL,
    PRIMITIVES,
    DataType,
    DecimalType,
    Field,
    ListType,
    MapType,
    PrimitiveType,
    StructType,
)
from ducklake_core.format.types.names import folded, quoted_path
from ducklake_core.format.types.schema import Schema

NO_DEFAULT = "NULL"
"""The text that DuckDB stores as ``default_value`` of a column without a default: this text, not SQL NULL."""

_ALIASES = {"timestamp_us": "timestamp"}
_DECIMAL = re.compile(r"decimal\s*\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\)", re.ASCII)
_CONTAINERS = ("list", "map", "struct")


def type_text(data_type: DataType) -> str:
    """The text of a type in ``ducklake_column.column_type``.

    >>> from ducklake_core.format.types.data_types import INT32
    >>> type_text(INT32), type_text(DecimalType(precision=10, scale=2)), type_text(ListType(element=Field(name="element", type=INT32)))
    ('int32', 'decimal(10,2)', 'list')
    """
    match data_type:
        case PrimitiveType(name=name):
            return name
        case DecimalType(precision=precision, scale=scale):
            return f"decimal({precision},{scale})"
        case ListType():
            return "list"
        case MapType():
            return "map"
        case StructType():
            return "struct"


_DUCKDB_TYPES = {
    "int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "int128": "HUGEINT",
    "uint8": "UTINYINT", "uint16": "USMALLINT", "uint32": "UINTEGER", "uint64": "UBIGINT", "uint128": "UHUGEINT",
    "float32": "FLOAT", "float64": "DOUBLE",
}  # fmt: skip


def duckdb_type(data_type: DataType) -> str:
    """The name of a type in DuckDB's SQL.

    >>> duckdb_type(PrimitiveType(name="int8")), duckdb_type(DecimalType(precision=10, scale=2))
    ('TINYINT', 'decimal(10,2)')
    >>> inner = Field(name='a"b', type=ListType(element=Field(name="element", type=PrimitiveType(name="varchar"))))
    >>> print(duckdb_type(StructType(fields=(inner,))))
    STRUCT("a""b" varchar[])
    """
    match data_type:
        case ListType(element=element):
            return f"{duckdb_type(element.type)}[]"
        case MapType(key=key, value=value):
            return f"MAP({duckdb_type(key.type)}, {duckdb_type(value.type)})"
        case StructType(fields=fields):
            return f"STRUCT({', '.join(f'{quoted_path((one.name,))} {duckdb_type(one.type)}' for one in fields)})"
        case PrimitiveType() | DecimalType():
            text = type_text(data_type)
            return _DUCKDB_TYPES.get(text, text)


def parse_leaf_type(text: str) -> DataType:
    """The type that a text without children stands for.

    >>> parse_leaf_type("int32"), parse_leaf_type("decimal(10,2)"), parse_leaf_type("timestamp_us")
    (PrimitiveType(name='int32'), DecimalType(precision=10, scale=2), PrimitiveType(name='timestamp'))

    Raises:
        UnsupportedFeatureError: A type that this library does not know.
    """
    folded = text.strip().lower()
    found = NULL if folded == NULL.name else PRIMITIVES.get(_ALIASES.get(folded, folded))
    if found is not None:
        return found
    decimal = _DECIMAL.fullmatch(folded)
    if decimal:
        precision, scale = int(decimal[1]), int(decimal[2])
        if 1 <= precision <= 38 and scale <= precision:
            return DecimalType(precision=precision, scale=scale)
    raise UnsupportedFeatureError(f"column type {text!r} is not supported", type=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRow:
    """One row of ``ducklake_column`` without its table and end.

    Attributes:
        column_id: Id of the node in its table.
        parent_column: Id of the container it is a child of, None on top level.
        column_order: Sort key among its siblings; DuckDB uses the column id.
        column_name: Name as written.
        column_type: Text of the type, containers without parameters.
        nulls_allowed: False for NOT NULL.
        initial_default: Text for rows of files that lack the column, None for NULL.
        default_value: Text of the default for new rows; None and the text ``NULL`` both say that there is none.
        default_value_type: ``literal``, ``expression``, or empty for containers.
        default_value_dialect: SQL dialect of an expression.
        begin_snapshot: Snapshot that made the row; 0 before commit.
    """

    column_id: int
    parent_column: int | None = None
    column_order: int | None = None
    column_name: str
    column_type: str
    nulls_allowed: bool = True
    initial_default: str | None = None
    default_value: str | None = NO_DEFAULT
    default_value_type: str | None = "literal"
    default_value_dialect: str | None = "duckdb"
    begin_snapshot: int = 0


def column_row(field: Field, parent_column: int | None = None) -> ColumnRow:
    """The row of one node, without its children, as DuckDB writes it at CREATE or ADD COLUMN.

    >>> from ducklake_core.format.types.data_types import INT32
    >>> row = column_row(Field(id=3, name="x", type=INT32), parent_column=2)
    >>> row.column_id, row.column_order, row.parent_column, row.column_type, row.default_value, row.default_value_type
    (3, 3, 2, 'int32', 'NULL', 'literal')
    """
    kind = "expression" if field.default_is_expression else "literal" if field.is_leaf else ""
    return ColumnRow(
        column_id=field.id,
        parent_column=parent_column,
        column_order=field.id,
        column_name=field.name,
        column_type=type_text(field.type),
        nulls_allowed=field.nullable,
        initial_default=field.initial_default,
        default_value=NO_DEFAULT if field.default is None else field.default,
        default_value_type=kind,
        begin_snapshot=field.begin_snapshot,
    )


def flatten(schema: Schema) -> tuple[ColumnRow, ...]:
    """The rows of all nodes, each parent before its children (the order of ids at CREATE)."""
    return tuple(row for column in schema for row in flatten_field(column))


def flatten_field(field: Field, parent_column: int | None = None) -> tuple[ColumnRow, ...]:
    """The rows of one node and of everything below it."""
    below = (row for child in field.children for row in flatten_field(child, field.id))
    return (column_row(field, parent_column), *below)


def build_schema(rows: Iterable[ColumnRow]) -> Schema:
    """The schema that the rows live at one snapshot spell; they may come in any order.

    Siblings are sorted by ``column_order``, ties and missing orders by id, as DuckDB does. Of several rows for one id the
    newest counts: DuckDB 1.3 left the old row live when it renamed a column.

    Raises:
        CatalogCorruptError: A row whose parent is not there or is no container, or a container with the wrong children; two columns
            of one name or one id; cells that cannot be.
        UnsupportedFeatureError: A type that this library does not know.
    """
    children: dict[int | None, list[ColumnRow]] = {}
    newest = _newest(rows)
    for row in newest.values():
        children.setdefault(row.parent_column, []).append(row)
    for siblings in children.values():
        _check_distinct(siblings)
        siblings.sort(key=lambda row: (row.column_order is None, row.column_order or 0, row.column_id))
    schema = Schema(columns=tuple(_build_field(row, children) for row in children.get(None, ())))
    if sum(1 for _ in schema.walk()) != len(newest):
        reached = {node.id for node in schema.walk()}
        lost = sorted(row.column_id for siblings in children.values() for row in siblings if row.column_id not in reached)
        raise CatalogCorruptError(f"columns {lost} of a table belong to no live container column", columns=lost)
    return schema


def _newest(rows: Iterable[ColumnRow]) -> dict[int, ColumnRow]:
    found: dict[int, ColumnRow] = {}
    for row in rows:
        _check_cells(row)
        other = found.get(row.column_id)
        if other is not None and other.begin_snapshot == row.begin_snapshot and other != row:
            raise CatalogCorruptError(
                f"the columns {other.column_name!r} and {row.column_name!r} have the same id {row.column_id}", column_id=row.column_id
            )
        if other is None or other.begin_snapshot < row.begin_snapshot:
            found[row.column_id] = row
    return found


def _check_cells(row: ColumnRow) -> None:
    """Cells of SQLite may hold anything, whatever the column's type is."""
    texts: tuple[object, ...] = (row.column_name, row.column_type)
    numbers: tuple[object, ...] = (row.column_id, row.parent_column or 0, row.column_order or 0, row.begin_snapshot)
    if not (all(isinstance(text, str) and text for text in texts) and all(isinstance(number, int) for number in numbers)):
        raise CatalogCorruptError(
            f"column {row.column_name!r} (id {row.column_id}) has the type {row.column_type!r}, the place {row.column_order!r} and the "
            f"parent {row.parent_column!r}",
            column=row.column_name,
            column_id=row.column_id,
        )


def _check_distinct(siblings: list[ColumnRow]) -> None:
    names: dict[str, ColumnRow] = {}
    for row in siblings:
        other = names.setdefault(folded(row.column_name), row)
        if other is not row:
            raise CatalogCorruptError(
                f"there are two columns {row.column_name!r} (ids {other.column_id} and {row.column_id})", column=row.column_name
            )


def _build_field(row: ColumnRow, children: dict[int | None, list[ColumnRow]]) -> Field:
    own = tuple(_build_field(child, children) for child in children.get(row.column_id, ()))
    default = None if row.default_value == NO_DEFAULT else row.default_value
    return Field(
        id=row.column_id,
        name=row.column_name,
        type=_build_type(row, own),
        # Only top-level columns can be NOT NULL; nested ones get a 0 from DuckDB's nested ALTERs, without effect.
        nullable=bool(row.nulls_allowed) or row.parent_column is not None,
        initial_default=row.initial_default,
        default=default,
        default_is_expression=default is not None and (row.default_value_type or "").lower() == "expression",
        begin_snapshot=row.begin_snapshot,
    )


def _build_type(row: ColumnRow, children: tuple[Field, ...]) -> DataType:
    kind = row.column_type.strip().lower()
    match kind, children:
        case "list", (element,):
            return ListType(element=element)
        case "map", (first, second):
            key, value = (second, first) if (first.name, second.name) == ("value", "key") else (first, second)
            return MapType(key=key, value=value)
        case "struct", (_, *_):
            return StructType(fields=children)
        case _ if kind in _CONTAINERS or children:
            raise CatalogCorruptError(
                f"column {row.column_name!r} (id {row.column_id}) of type {row.column_type!r} has {len(children)} child columns",
                column=row.column_name,
                column_id=row.column_id,
            )
        case _:
            return parse_leaf_type(kind)
