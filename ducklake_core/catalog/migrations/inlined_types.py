"""Types of inlined columns in PostgreSQL, which DuckDB 1.4 chose in another way than later ones.

Later ones read them, but write as if the columns had today's types: text ends up as ``\\x74657874``, or the commit fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Date,
    DateTime,
    Double,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    cast,
    func,
    inspect,
    select,
)
from sqlalchemy import column as sql_column
from sqlalchemy.dialects.postgresql import JSON, REAL
from sqlalchemy.types import TypeEngine

from ducklake_core.catalog.database.abilities import Abilities
from ducklake_core.catalog.database.tables import INLINED_SYSTEM_COLUMNS
from ducklake_core.catalog.inlined.ddl import physical_table
from ducklake_core.catalog.inlined.rows import TableVersions
from ducklake_core.catalog.migrations.ddl import ChangeType
from ducklake_core.catalog.reading.reader import CatalogReader

_BYTES, _TEXT, _REAL = "bytea", "varchar", "real"
_TYPES: dict[str, TypeEngine[Any]] = {_BYTES: LargeBinary(), _TEXT: String(), _REAL: REAL()}


@dataclass(frozen=True, slots=True)
class ChangeInlinedType:
    """The values of one column of one table of inlined rows are stored in today's type."""

    table_name: str
    column: str
    to: str

    def __str__(self) -> str:
        return f"store {self.table_name}.{self.column} as {self.to}"


def changed_inlined_types(reader: CatalogReader, abilities: Abilities) -> Iterator[ChangeInlinedType]:
    """The columns whose type is to change; none where databases do not enforce types, or have those of DuckDB."""
    if not abilities.folds_names:
        return
    registered = reader.catalog["inlined_data_tables"]
    rows = reader.connection.execute(select(registered).order_by(registered.c.table_id, registered.c.schema_version)).all()
    found = inspect(reader.connection).get_multi_columns(schema=reader.catalog.schema, filter_names=[row.table_name for row in rows])
    stored = {name: columns[INLINED_SYSTEM_COLUMNS:] for (_, name), columns in found.items()}
    versions = {row.table_id: TableVersions.read(reader, row.table_id) for row in rows}
    for row in rows:
        fields = versions[row.table_id].schema_at(row.schema_version)
        wanted = list(physical_table(reader.catalog, abilities, row.table_name, fields).c)[INLINED_SYSTEM_COLUMNS:]
        for there, column in zip(stored.get(row.table_name, ()), wanted, strict=False):
            to = _replacement(there["type"], column.type)
            if to is not None:
                yield ChangeInlinedType(row.table_name, there["name"], to)


def change_inlined_type(connection: Connection, schema: str | None, step: ChangeInlinedType) -> None:
    """Carry out one of them."""
    table = Table(step.table_name, MetaData(schema=schema))
    connection.execute(select(func.set_config("DateStyle", "ISO", True), func.set_config("TimeZone", "UTC", True)))
    connection.execute(ChangeType(table, Column(step.column, _TYPES[step.to]), _converted(sql_column(step.column), step.to)))


def _replacement(there: TypeEngine[Any], wanted: TypeEngine[Any]) -> str | None:
    match wanted, there:
        case LargeBinary(), (String() | JSON()):
            return _BYTES
        case String(), (Date() | DateTime()):
            return _TEXT
        case REAL(), Double():
            return _REAL
        case _:
            return None


def _converted(value: ColumnElement[Any], to: str) -> ColumnElement[Any]:
    text = cast(value, Text)
    if to == _BYTES:
        return func.convert_to(text, "UTF8")
    # The two databases write years before Christ in different places.
    return func.regexp_replace(text, r"^(\S+)(.*) BC$", r"\1 (BC)\2") if to == _TEXT else cast(value, REAL)
