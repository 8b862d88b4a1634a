"""Whether the database has a table, asked of what each database lists its tables in, as nothing else is as quick."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BindParameter, Dialect, Select, String, TableClause, and_, bindparam, cast, column, func, or_, select

from ducklake_core.catalog.database.duckdb_file import ALIAS
from ducklake_core.catalog.database.tables import CatalogTables


def existing_query(tables: CatalogTables, dialect: Dialect) -> Select[Any]:
    """The name of the table that the parameter ``name`` names, beside the metadata tables; no row when there is none."""
    return tables.statement(f"existing, {dialect.name}", lambda: _existing(tables.schema, dialect.name))


def _existing(schema: str | None, dialect: str) -> Select[Any]:
    return _OF_DIALECT[dialect](schema, bindparam("name", type_=String))


def _of_sqlite(_schema: str | None, wanted: BindParameter[str]) -> Select[Any]:
    master = TableClause("sqlite_master", column("name"), column("type"))
    return select(master.c.name).where(master.c.name == wanted, master.c.type == "table")


def _of_postgresql(schema: str | None, wanted: BindParameter[str]) -> Select[Any]:
    relation = TableClause("pg_class", column("relname"), column("relnamespace"), column("relkind"), schema="pg_catalog")
    space = TableClause("pg_namespace", column("oid"), column("nspname"), schema="pg_catalog")
    inside = select(space.c.oid).where(space.c.nspname == schema).scalar_subquery()
    is_table = or_(relation.c.relkind == "r", relation.c.relkind == "p")
    name = cast(relation.c.relname, String).label("name")
    return select(name).where(relation.c.relname == wanted, relation.c.relnamespace == inside, is_table)


def _of_duckdb(schema: str | None, wanted: BindParameter[str]) -> Select[Any]:
    listed = func.duckdb_tables().table_valued("database_name", "schema_name", "table_name")
    is_ours = and_(listed.c.database_name == ALIAS, listed.c.schema_name == schema)
    return select(listed.c.table_name.label("name")).where(is_ours, listed.c.table_name == wanted)


def _of_mysql(_schema: str | None, wanted: BindParameter[str]) -> Select[Any]:
    listed = TableClause("tables", column("table_name"), column("table_schema"), schema="information_schema")
    return select(listed.c.table_name.label("name")).where(listed.c.table_schema == func.database(), listed.c.table_name == wanted)


_OF_DIALECT = {
    "sqlite": _of_sqlite,
    "postgresql": _of_postgresql,
    "duckdb": _of_duckdb,
    "mysql": _of_mysql,
    "mariadb": _of_mysql,
}
