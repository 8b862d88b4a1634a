"""Define ALTER TABLE as SQLAlchemy statements. Tables are altered in place, so their grants and indexes stay."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Change the type of a column, with an expression that converts its values. PostgreSQL only."""

    def __init__(self, table: Table, column: Column[Any], value: ColumnElement[Any]) -> None:
        self.table = table
        self.column = column
        self.value = value


class RenameTable(ExecutableDDLElement):
    """Rename a table."""

    def __init__(self, table: Table, name: str) -> None:
        self.table = table
        self.name = name


class RenameColumn(ExecutableDDLElement):
    """Rename a column."""

    def __init__(self, table: Table, former: str, name: str) -> None:
        self.table = table
        self.former = former
        self.name = name


class LockTables(ExecutableDDLElement):
    """Lock tables against reads and writes of other clients until the transaction ends. PostgreSQL only."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self.tables = tables


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


@compiles(RenameColumn)
def _rename_column(element: RenameColumn, compiler: DDLCompiler, **_: Any) -> str:
    prepare = compiler.preparer
    table = prepare.format_table(element.table)
    return f"ALTER TABLE {table} RENAME COLUMN {prepare.quote(element.former)} TO {prepare.quote(element.name)}"


@compiles(LockTables)
def _lock_tables(element: LockTables, compiler: DDLCompiler, **_: Any) -> str:
    names = ", ".join(compiler.preparer.format_table(table) for table in element.tables)
    return f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE"
