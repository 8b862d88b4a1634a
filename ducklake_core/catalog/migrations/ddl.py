"""ALTER TABLE as SQLAlchemy statements: in place, so that grants and indexes of a table stay."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, ColumnElement, Table
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import ExecutableDDLElement
from sqlalchemy.sql.compiler import DDLCompiler


class AddColumn(ExecutableDDLElement):
    """Append a column, NULL in every row."""

    def __init__(self, table: Table, column: Column[Any]) -> None:
        self.table = table
        self.column = column


class DropColumn(ExecutableDDLElement):
    """Remove a column."""

    def __init__(self, table: Table, name: str) -> None:
        self.table = table
        self.name = name


class ChangeType(ExecutableDDLElement):
    """Give a column another type; an expression says what becomes of its values. PostgreSQL only."""

    def __init__(self, table: Table, column: Column[Any], value: ColumnElement[Any]) -> None:
        self.table = table
        self.column = column
        self.value = value


class RenameTable(ExecutableDDLElement):
    """Give a table another name."""

    def __init__(self, table: Table, name: str) -> None:
        self.table = table
        self.name = name


@compiles(AddColumn)
def _add_column(element: AddColumn, compiler: DDLCompiler, **_: Any) -> str:
    prepare = compiler.preparer
    kind = compiler.dialect.type_compiler_instance.process(element.column.type)
    return f"ALTER TABLE {prepare.format_table(element.table)} ADD COLUMN {prepare.quote(element.column.name)} {kind}"


@compiles(DropColumn)
def _drop_column(element: DropColumn, compiler: DDLCompiler, **_: Any) -> str:
    prepare = compiler.preparer
    return f"ALTER TABLE {prepare.format_table(element.table)} DROP COLUMN {prepare.quote(element.name)}"


@compiles(ChangeType)
def _change_type(element: ChangeType, compiler: DDLCompiler, **_: Any) -> str:
    prepare = compiler.preparer
    kind = compiler.dialect.type_compiler_instance.process(element.column.type)
    value = compiler.sql_compiler.process(element.value, literal_binds=True)
    name = prepare.quote(element.column.name)
    return f"ALTER TABLE {prepare.format_table(element.table)} ALTER COLUMN {name} TYPE {kind} USING {value}"


@compiles(RenameTable)
def _rename_table(element: RenameTable, compiler: DDLCompiler, **_: Any) -> str:
    prepare = compiler.preparer
    return f"ALTER TABLE {prepare.format_table(element.table)} RENAME TO {prepare.quote(element.name)}"
