"""Define the physical tables of inlined rows, with the column types that DuckDB uses on each database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from unicodedata import normalize

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    SmallInteger,
    String,
    Table,
    Time,
    Uuid,
)  # fmt: skip
from sqlalchemy.dialects.postgresql import INTERVAL, REAL, TIME
from sqlalchemy.sql import quoted_name
from sqlalchemy.types import TypeEngine

from ducklake_core.catalog.database.abilities import Abilities
from ducklake_core.catalog.database.duckdb_catalog import NativeType
from ducklake_core.catalog.database.tables import INLINED_SYSTEM_COLUMNS, CatalogTables
from ducklake_core.format.types.data_types import NULL, VARIANT, DataType, DecimalType, Field, ListType, MapType, PrimitiveType, StructType
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.versions import FormatVersion

_RESERVED = frozenset({"_ducklake_internal_row_id", "_ducklake_internal_snapshot_id"})
_SQLITE_ROW_ID = "rowid"
"""SQLite's name for the number of a row. DuckDB does not find NULLs in a user column of this name."""
# DuckDB stores geometries in files only.
_NEVER_INLINED = frozenset({"geometry"})

_STORED_AS_INTEGER = frozenset({"boolean", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"})

_STORED_AS_BINARY = frozenset({"blob", "variant"})

_POSTGRESQL: dict[str, TypeEngine[Any]] = {
    "boolean": Boolean(),
    "int8": SmallInteger(),
    "int16": SmallInteger(),
    "uint8": Integer(),
    "uint16": Integer(),
    "int32": Integer(),
    "int64": BigInteger(),
    "uint32": BigInteger(),
    "float32": REAL(),
    "float64": Double(),
    "time": Time(),
    "timetz": TIME(timezone=True),
    "interval": INTERVAL(),
    "varchar": LargeBinary(),
    "json": LargeBinary(),
    "blob": LargeBinary(),
    "variant": LargeBinary(),
    "uuid": Uuid(),
}

_DUCKDB = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "int128": "HUGEINT",
    "uint8": "UTINYINT",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "uint128": "UHUGEINT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "null": '"NULL"',
    "timetz": "TIME WITH TIME ZONE",
    "timestamptz": "TIMESTAMP WITH TIME ZONE",
}


def may_inline(schema: Schema, version: FormatVersion) -> bool:
    """Return whether this library inlines rows of these columns in this lake."""
    return has_inlined_table(schema, version) and schema.find(_SQLITE_ROW_ID) is None


def has_inlined_table(schema: Schema, version: FormatVersion) -> bool:
    """Return whether a table with these columns gets a table of inlined rows, by the rules of DuckDB.

    DuckDB inserts into the newest table of inlined rows without checking its columns, and fails if they differ. So this library creates
    exactly the tables that DuckDB would create.

    Args:
        schema: Columns of the table.
        version: Format version of the lake, with the limits of its database.
    """
    if len(schema) + INLINED_SYSTEM_COLUMNS > version.inlined_limits.most_columns:
        return False
    if version.inlined_limits.plain_names and not _are_plain([column.name for column in schema]):
        return False
    never = _NEVER_INLINED if version.inlines_variants else _NEVER_INLINED | {VARIANT.name}
    if any(isinstance(node.type, PrimitiveType) and node.type.name in never for node in schema.walk()):
        return False
    reserved = _RESERVED.union(version.inlined_columns.names)
    most = version.inlined_limits.most_name_bytes
    return all(folded(c.name) not in reserved and (most is None or len(c.name.encode()) <= most) for c in schema)


def _are_plain(names: Sequence[str]) -> bool:
    """Return whether MySQL accepts the names for different columns of one table.

    >>> _are_plain(["a", "b c", "ä"]), _are_plain(["ä", "Ä"]), _are_plain(["a "]), _are_plain(["🦆"])
    (True, False, False, False)
    """
    same = {normalize("NFD", name).casefold() for name in names}
    return len(same) == len(names) and not any(name.endswith(" ") or max(name) > "\uffff" for name in names)


def physical_table(tables: CatalogTables, abilities: Abilities, name: str, columns: Iterable[Field]) -> Table:
    """Return the table to create for inlined rows.

    Args:
        tables: The metadata tables, for the schema and the names of system columns.
        abilities: Abilities of the database.
        name: Name of the table.
        columns: Top-level columns.
    """
    system = (Column(column, BigInteger) for column in tables.inlined.names)
    data_type: Callable[[DataType], TypeEngine[Any]] = _postgresql_type
    if abilities.inlined_as_is:
        data_type = native_type
    elif abilities.inlined_as_text:
        data_type = _type_with_strings
    return Table(
        name, MetaData(schema=tables.schema), *system, *(Column(quoted_name(c.name, quote=True), data_type(c.type)) for c in columns)
    )


def native_type(data_type: DataType) -> TypeEngine[Any]:
    """Return a type under its DuckDB name."""
    return NativeType(_duckdb_name(data_type))


def _duckdb_name(data_type: DataType) -> str:
    match data_type:
        case PrimitiveType(name=name):
            return _DUCKDB.get(name, name.upper())
        case DecimalType(precision=precision, scale=scale):
            return f"DECIMAL({precision}, {scale})"
        case ListType(element=element):
            return f"{_duckdb_name(element.type)}[]"
        case MapType(key=key, value=value):
            return f"MAP({_duckdb_name(key.type)}, {_duckdb_name(value.type)})"
        case StructType(fields=fields):
            members = ('"{}" {}'.format(field.name.replace('"', '""'), _duckdb_name(field.type)) for field in fields)
            return f"STRUCT({', '.join(members)})"


def _type_with_strings(data_type: DataType) -> TypeEngine[Any]:
    if isinstance(data_type, PrimitiveType) and data_type.name in _STORED_AS_INTEGER:
        return BigInteger()
    if data_type == NULL:
        return BigInteger()
    if isinstance(data_type, PrimitiveType) and data_type.name in _STORED_AS_BINARY:
        return LargeBinary()
    return String()


def _postgresql_type(data_type: DataType) -> TypeEngine[Any]:
    if data_type == NULL:
        return Integer()
    if isinstance(data_type, DecimalType):
        return Numeric(data_type.precision, data_type.scale)
    if isinstance(data_type, PrimitiveType):
        return _POSTGRESQL.get(data_type.name, String())
    return String()
