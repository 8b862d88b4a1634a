"""DuckDB for SQLAlchemy: just what catalogs need, always with the file's tables named in full."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.engine import URL, default
from sqlalchemy.sql import compiler
from sqlalchemy.types import UserDefinedType
from typing_extensions import override

from ducklake_core.catalog.database.duckdb_dbapi import Cursor, FileConnection
from ducklake_core.catalog.database.duckdb_file import ALIAS, duckdb_module


class NativeType(UserDefinedType[Any]):
    """A type by its DuckDB name.

    >>> str(NativeType("STRUCT(x INTEGER)[]"))
    'STRUCT(x INTEGER)[]'
    """

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_options: Any) -> str:
        """The name."""
        return self.name


class _Preparer(compiler.IdentifierPreparer):
    """Every name is quoted: DuckDB reserves words that no other database does, and compares names without case even so."""

    @override
    def _requires_quotes(self, value: str) -> bool:
        return True

    @override
    def quote_schema(self, schema: str) -> str:
        # A schema of the name of an attached database would be ambiguous.
        return f"{self.quote_identifier(ALIAS)}.{self.quote_identifier(schema)}"


class _Types(compiler.GenericTypeCompiler):
    @override
    def visit_DATETIME(self, type_: Any, **_options: Any) -> str:
        return "TIMESTAMP WITH TIME ZONE" if type_.timezone else "TIMESTAMP"


class _Statements(compiler.SQLCompiler):
    @override
    def visit_regexp_match_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return f"regexp_matches({self.process(binary.left, **kw)}, {self.process(binary.right, **kw)})"


class DuckDBDialect(default.DefaultDialect):
    """SQLAlchemy dialect over :class:`~ducklake_core.catalog.database.duckdb_dbapi.FileConnection`."""

    name = "duckdb"
    driver = "ducklake"
    default_paramstyle = "qmark"
    preparer = _Preparer
    type_compiler_cls = _Types
    statement_compiler = _Statements
    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_uuid = True
    supports_multivalues_insert = True
    # One statement for many rows: executed row by row DuckDB takes a hundred times as long.
    use_insertmanyvalues = True
    use_insertmanyvalues_wo_returning = True
    insertmanyvalues_page_size = 500

    @classmethod
    @override
    def import_dbapi(cls) -> ModuleType:
        return duckdb_module()

    @override
    def create_connect_args(self, url: URL) -> tuple[list[str], dict[str, Any]]:
        return [str(url.database)], {}

    @override
    def connect(self, *arguments: Any, **_options: Any) -> Any:
        return FileConnection(*arguments)

    @override
    def initialize(self, connection: Connection) -> None:
        # Nothing is asked: a connection has no file before its first transaction.
        self.default_schema_name = "main"
        self.server_version_info = ()

    @override
    def do_begin(self, dbapi_connection: Any) -> None:
        dbapi_connection.begin()

    @override
    def do_execute(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        found: Cursor = cursor
        found.execute(statement, parameters)
        if context is not None and (context.isinsert or context.isupdate or context.isdelete or context.isddl):
            found.has_no_rows()

    @override
    def is_disconnect(self, *_arguments: Any) -> bool:
        return False

    @override
    def has_table(self, connection: Connection, table_name: str, schema: str | None = None, **_options: Any) -> bool:
        return table_name in self._names(connection, schema, table_name)

    @override
    def has_schema(self, connection: Connection, schema_name: str, **_options: Any) -> bool:
        query = text("SELECT 1 FROM duckdb_schemas() WHERE database_name = :database AND schema_name = :schema")
        return connection.execute(query, {"database": ALIAS, "schema": schema_name}).first() is not None

    @override
    def get_table_names(self, connection: Connection, schema: str | None = None, **_options: Any) -> list[str]:
        return self._names(connection, schema, None)

    @override
    def get_columns(self, connection: Connection, table_name: str, schema: str | None = None, **_options: Any) -> list[Any]:
        query = text(
            "SELECT column_name, data_type, is_nullable, column_default FROM duckdb_columns() WHERE database_name = :database "
            "AND schema_name = :schema AND table_name = :table ORDER BY column_index"
        )
        found = connection.execute(query, {"database": ALIAS, "schema": schema or "main", "table": table_name})
        return [
            {"name": row.column_name, "type": NativeType(row.data_type), "nullable": row.is_nullable, "default": row.column_default}
            for row in found
        ]

    @override
    def get_pk_constraint(self, connection: Connection, table_name: str, schema: str | None = None, **_options: Any) -> Any:
        query = text(
            "SELECT constraint_column_names FROM duckdb_constraints() WHERE database_name = :database AND schema_name = :schema "
            "AND table_name = :table AND constraint_type = 'PRIMARY KEY'"
        )
        found = connection.execute(query, {"database": ALIAS, "schema": schema or "main", "table": table_name}).scalar()
        return {"constrained_columns": list(found or ()), "name": None}

    def _names(self, connection: Connection, schema: str | None, table: str | None) -> list[str]:
        query = "SELECT table_name FROM duckdb_tables() WHERE database_name = :database AND schema_name = :schema"
        wanted = {"database": ALIAS, "schema": schema or "main"}
        if table is not None:
            query, wanted = f"{query} AND table_name = :table", wanted | {"table": table}
        return list(connection.execute(text(f"{query} ORDER BY table_name"), wanted).scalars())
