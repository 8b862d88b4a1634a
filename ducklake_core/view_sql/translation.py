"""Translate a view into one Spark query over scans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import traverse_scope

from ducklake_core.catalog.reading.definitions import ViewState
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.reading.visibility import same_name
from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.macros import table_names
from ducklake_core.format.state import TableState
from ducklake_core.format.types.data_types import INT32, DataType, Field
from ducklake_core.format.types.names import join_name
from ducklake_core.format.types.schema import Schema
from ducklake_core.planning.plan import with_virtual
from ducklake_core.view_sql.parsing import parse_query, schema_and_name
from ducklake_core.view_sql.queries import Queries
from ducklake_core.view_sql.scopes import Sources, TableSource
from ducklake_core.view_sql.selection import selection
from ducklake_core.view_sql.typed import NULL_TYPE, Rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class TableScan:
    """One table that the query reads.

    Attributes:
        key: Its name in the query, in braces.
        columns: What to scan, in order; ``identifiers`` are the names that the query knows them by.
        where: A condition in DuckDB's SQL that may leave out rows, None for none.
    """

    key: str
    table: TableState
    columns: tuple[str, ...]
    identifiers: tuple[str, ...]
    types: tuple[DataType, ...]
    where: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """A view in Spark SQL.

    Attributes:
        sql: A query over ``{key}`` of each scan; its columns are ``identifiers``.
        schema: Its columns as DuckDB names and types them.
        subject: What it is, for messages.
    """

    subject: str
    sql: str
    identifiers: tuple[str, ...]
    schema: Schema
    scans: tuple[TableScan, ...]


def translate(
    reader: CatalogReader, view: ViewState, subject: str | None = None, then: Mapping[str, TableState] | None = None
) -> Translation:
    """Return the view's query in Spark SQL.

    Args:
        reader: Reads the catalog.
        view: The view, or a query as if it were one.
        subject: What messages call it, the view by its name when None.
        then: Tables at other snapshots, by their generated names.

    Raises:
        UnsupportedFeatureError: Something in it is not translated; the message names it.
    """
    sources = Sources(reader, view.snapshot_id, then)
    name = f"view {join_name(view.schema_name, view.name)}" if subject is None else subject
    try:
        query = Queries(sources=sources, view=view).whole_view()
        names = [column.name for column in query.columns]
        unnamed = next((index for index, own in enumerate(names, 1) if own is None), None)
        if unnamed is not None:
            raise Rejected(f"its column {unnamed} has no name; name it with AS")
        fields = tuple(Field(name=column.name or "", type=INT32 if column.type == NULL_TYPE else column.type) for column in query.columns)
        twice = next((f.name for i, f in enumerate(fields) if any(same_name(f.name, other.name) for other in fields[:i])), None)
        if twice is not None:
            raise Rejected(f"it has two columns {twice!r}")
    except Rejected as problem:
        advice = "If the SQL is valid, read it without a Spark session: DuckDB runs it in this process"
        raise UnsupportedFeatureError(f"Spark cannot read {name}: {problem}. {advice}", view=name) from problem
    except RecursionError as problem:
        raise UnsupportedFeatureError(f"cannot read {name}: its SQL is nested too deeply", view=name) from problem
    return Translation(
        subject=name,
        sql=query.sql,
        identifiers=tuple(column.sql for column in query.columns),
        schema=Schema(columns=fields),
        scans=tuple(_scan(source) for source in sources.tables),
    )


def _scan(source: TableSource) -> TableScan:
    # A query that counts rows needs a column too.
    used = source.used or {"c0": source.table.schema.columns[0].name}
    known = with_virtual(source.table.schema)
    conditions = dict.fromkeys(source.conditions)
    return TableScan(
        key=source.key,
        table=source.table,
        columns=tuple(used.values()),
        identifiers=tuple(used),
        types=tuple(known.column(name).type for name in used.values()),
        where=" AND ".join(f"({condition})" for condition in conditions) or None,
    )


def referenced(reader: CatalogReader, view: ViewState) -> tuple[str, ...]:
    """Return the names of the tables and views that the query of a view names, each once, sorted.

    Raises:
        UnsupportedFeatureError: The text is not a query, or names something that is not a table or view of the lake.
    """
    sources = Sources(reader, view.snapshot_id)
    name = join_name(view.schema_name, view.name)
    found: set[str] = set()
    try:
        for table in _tables(view.sql):
            source = sources.find(*schema_and_name(table), view.schema_name)
            found.add(join_name(source.schema_name, source.name))
    except Rejected as problem:
        raise UnsupportedFeatureError(f"cannot find the tables that view {name} reads: {problem}", view=name) from problem
    except (SqlglotError, RecursionError) as problem:
        raise UnsupportedFeatureError(f"cannot find the tables that view {name} reads: its SQL cannot be parsed", view=name) from problem
    return tuple(sorted(found))


def view_schema(reader: CatalogReader, view: ViewState) -> Schema:
    """Return the columns of a view, with the types that DuckDB gives them.

    Raises:
        UnsupportedFeatureError: Something in the query is not understood; the message names it.
    """
    try:
        # A scan has the types of the table, some of which Spark SQL lacks, so it is tried before the translation.
        selected = selection(reader, view)
    except UnsupportedFeatureError:
        return translate(reader, view).schema
    return selected.schema


def _tables(sql: str) -> list[exp.Table]:
    """Return the references to tables, without those to common table expressions and to functions that make rows."""
    return [
        source
        for scope in traverse_scope(parse_query(sql))
        for source in scope.sources.values()
        if isinstance(source, exp.Table) and table_names(source)
    ]
