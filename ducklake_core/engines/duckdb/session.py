"""Several queries in one instance, and a look at statements by DuckDB before anything is computed for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from ducklake_core.engines.duckdb.instance import new_instance
from ducklake_core.engines.duckdb.interruption import run_interruptibly
from ducklake_core.engines.duckdb.join_order import FilterNotTakenError, Way, ways
from ducklake_core.engines.duckdb.query import (
    MacroSource,
    Sources,
    ViewSource,
    line_of,
    make_own_functions,
    make_views,
    name_in_instance,
    prepare,
    schema_in_instance,
    told_of,
)
from ducklake_core.engines.duckdb.relations import Failures, TableSource
from ducklake_core.engines.duckdb.variants import read_query
from ducklake_core.errors import NotFoundError, UsageError
from ducklake_core.format.types.names import quoted_path
from ducklake_core.format.types.type_names import duckdb_type

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ducklake_core.format.types.data_types import Field
    from ducklake_core.format.types.schema import Schema

Found = TypeVar("Found")


class Session:
    """An instance with what queries may name; its temporary tables live as long as it does."""

    def __init__(self, connection: DuckDBPyConnection) -> None:
        self._connection = connection

    def make(self, name: str, query: str) -> list[str]:
        """Keep the rows of a query under a name; names of their columns."""
        self._connection.execute(f"CREATE TEMP TABLE {quoted_path((name,))} AS {query}")
        return [row[0] for row in self._connection.execute(f"DESCRIBE {quoted_path((name,))}").fetchall()]

    def rows(self, query: str) -> pa.Table:
        """The rows of a query, all of them in memory."""
        return read_query(self._connection, query).read_all()

    def number(self, query: str) -> int:
        """The one number that a query gives."""
        row = self._connection.execute(query).fetchone()
        assert row is not None
        return int(row[0])


def in_instance(texts: Sequence[str], sources: Sources, work: Callable[[Session], Found]) -> Found:
    """Do work with an instance; from its beginning again where DuckDB has made a filter that no scan takes (see join_order.py).

    Args:
        texts: What the work runs.
        sources: What it may name.
        work: It gives back rows that it holds, and no streams.

    Raises:
        UnsupportedFeatureError: DuckDB is not installed.
        UsageError: DuckDB refuses a query, or fails while it runs; the message is its own.
        DuckLakeError: A table cannot be read.
    """
    found = ways([*texts, *sources.texts], sources.tables)
    for way in found[:-1]:
        try:
            return _worked(texts, sources, work, way)
        except FilterNotTakenError:
            continue
    try:
        return _worked(texts, sources, work, found[-1])
    except FilterNotTakenError as problem:
        raise problem.told from problem


def _worked(texts: Sequence[str], sources: Sources, work: Callable[[Session], Found], way: Way) -> Found:
    failures = Failures()
    with new_instance() as connection:

        def whole() -> Found:
            prepare(connection, [*texts, *sources.texts], sources, failures, way)
            # One time for all of them is that of now().
            connection.begin()
            return work(Session(connection))

        try:
            return run_interruptibly(connection, whole)
        except Exception as problem:
            told = told_of(problem, failures, texts[0])
            if told is problem:
                raise
            raise told from problem


def check_expression(table: str, text: str, columns: Schema, target: Field | None = None) -> None:
    """Let DuckDB bind an expression that a table will store, because it cannot insert into tables with expressions that it rejects.

    Checks nothing where DuckDB is not installed, and accepts functions of its extensions that are not loaded.

    Args:
        table: Name of the table.
        text: The expression.
        columns: The columns that it may name.
        target: The column whose default it is, None for a sort key.

    Raises:
        UsageError: DuckDB rejects it; the message contains DuckDB's reason.
    """
    try:
        import duckdb
    except ImportError:
        return
    with new_instance() as connection:
        # DuckDB reports some casts that it does not have only when it computes a row.
        try:
            if target is None:
                named = [f"{quoted_path((column.name,))} {duckdb_type(column.type)}" for column in columns]
                connection.execute(f"CREATE TABLE rows_ ({', '.join(named)})")
                connection.execute("INSERT INTO rows_ DEFAULT VALUES")
                # Next to a column, DuckDB rejects aggregate functions.
                connection.execute(f"SELECT {text}, rowid FROM rows_").fetchall()  # noqa: S608 - it is the caller's own SQL
            else:
                connection.execute(f"CREATE TABLE rows_ (c {duckdb_type(target.type)} DEFAULT ({text}))")
                connection.execute("INSERT INTO rows_ DEFAULT VALUES")
        except duckdb.Error as problem:
            reason = line_of(problem).rstrip(".")
            if "exists in the" in reason:
                return
            if "GROUP BY" in reason:
                reason = "it has an aggregate function"
            what = f"the sort key {text}" if target is None else f"the default {text} of column {target.name!r}"
            message = f"{what} of table {table} is rejected by DuckDB, which could not write to the table: {reason}. Use another expression"
            raise UsageError(message, expression=text, table=table) from problem


def check_statement(sql: str, sources: Sources) -> None:
    """Let DuckDB look at a statement over empty tables of the same columns: it finds what it would refuse, such as an unknown column.

    Raises:
        NotFoundError: It names something that does not exist.
        UsageError: DuckDB refuses it; the message is its own.
    """
    import duckdb

    with new_instance() as connection:
        make_own_functions(connection, [sql, *sources.texts], sources)
        named: tuple[TableSource | ViewSource | MacroSource, ...] = (*sources.tables, *sources.views, *sources.macros)
        for schema in dict.fromkeys(schema_in_instance(one.schema_name) for one in named):
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted_path((schema,))}")
        for table in sources.tables:
            columns = [f"{quoted_path((column.name,))} {duckdb_type(column.type)}" for column in table.columns]
            connection.execute(f"CREATE TABLE {name_in_instance(table.schema_name, table.name)} ({', '.join(columns)})")
        refused = make_views(connection, sources)
        try:
            connection.execute(f"EXPLAIN {sql}")
        except duckdb.CatalogException as problem:
            raise NotFoundError("; ".join([line_of(problem), *refused])) from problem
        except duckdb.Error as problem:
            raise UsageError(f"DuckDB does not take the statement: {line_of(problem)}", sql=sql) from problem
