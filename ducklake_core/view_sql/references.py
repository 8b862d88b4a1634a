"""Which tables and views a view's query names, and which columns it has, without reading a row."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import traverse_scope

from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.reading.views import ViewState
from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.types.names import join_name
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.view_text import table_names
from ducklake_core.view_sql.parsing import parse_query, schema_and_name
from ducklake_core.view_sql.selection import selection
from ducklake_core.view_sql.sources import Sources
from ducklake_core.view_sql.translation import translate
from ducklake_core.view_sql.typed import Refused


def referenced(reader: CatalogReader, view: ViewState) -> tuple[str, ...]:
    """Names of the tables and views that the query of a view names, each once, sorted.

    Raises:
        UnsupportedFeatureError: The text is no query, or names what is no table or view of the lake.
    """
    sources = Sources(reader, view.snapshot_id)
    name = join_name(view.schema_name, view.name)
    found: set[str] = set()
    try:
        for table in _tables(view.sql):
            source = sources.find(*schema_and_name(table), view.schema_name)
            found.add(join_name(source.schema_name, source.name))
    except Refused as problem:
        raise UnsupportedFeatureError(f"cannot tell what view {name} reads: {problem}", view=name) from problem
    except (SqlglotError, RecursionError) as problem:
        raise UnsupportedFeatureError(f"cannot tell what view {name} reads: its SQL is not understood", view=name) from problem
    return tuple(sorted(found))


def view_schema(reader: CatalogReader, view: ViewState) -> Schema:
    """The columns of a view, with the types that DuckDB gives them.

    Raises:
        UnsupportedFeatureError: Something in the query is not understood; the message names it.
    """
    try:
        selected = selection(reader, view)
    except UnsupportedFeatureError:
        return translate(reader, view).schema
    return selected.schema


def _tables(sql: str) -> list[exp.Table]:
    """References to tables, without those to common table expressions and to functions that make rows."""
    return [
        source
        for scope in traverse_scope(parse_query(sql))
        for source in scope.sources.values()
        if isinstance(source, exp.Table) and table_names(source)
    ]
