"""Run queries with DuckDB in this process over scans of this library.

Each query gets an in-memory instance of its own, in which the names that it uses exist::

    "sales"."orders"    view -> temp.main.__ducklake_scan_0 (TableDataset) -> a scan of this library, with DuckDB's filters pushed down
    "sales"."recent"    view with the catalog's SQL text
    "main"."half"       macro with the catalog's SQL text

DuckDB may push down filters that no Arrow scan accepts, such as Bloom filters of joins. It then fails, possibly after the query has
begun. So a query has several ways to run (:class:`Way`), from the fastest to the one that surely works. The next way is tried only as
long as the caller has no rows yet: a stream cannot take rows back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pyarrow as pa

from ducklake_core.engines.duckdb.functions import OWN_FUNCTIONS, make_functions, query_needs_conversion, read_query
from ducklake_core.engines.duckdb.messages import error_of
from ducklake_core.engines.duckdb.relations import Failures, TableDataset, TableSource, explained_table, view_of
from ducklake_core.engines.duckdb_instance import INEXACT_IN_ARROW, line_of, new_instance, run_interruptibly, scratch_connection
from ducklake_core.errors import DuckLakeError, UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions.sql import quoted
from ducklake_core.format.macro_definitions import MacroImplementation
from ducklake_core.format.macros import PLACEHOLDER
from ducklake_core.format.types.data_types import TIMETZ, UINT128, VARCHAR, VARIANT, DataType, with_children
from ducklake_core.format.types.names import DEFAULT_SCHEMA, folded, quoted_path, split_path
from ducklake_core.format.types.schema import duckdb_type, parse_leaf_type
from ducklake_core.format.values.temporal import session_zone

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ducklake_core.format.types.data_types import Field
    from ducklake_core.format.types.schema import Schema
    from ducklake_core.planning.explanation import Explanation


_CATALOG = "memory"
_LISTED = "lake"
"""Name of the database in which queries about definitions find them."""
Target: TypeAlias = "Sequence[tuple[str, Field]]"
"""The columns that the rows are inserted into, with the names to give them."""

_ABOUT_COLUMNS = re.compile(r"column|\ball\s+tables\b|table_info|^\s*desc", re.IGNORECASE)
"""A query of definitions that shows columns. DuckDB leaves out views whose columns are unknown."""

_CASTS_AT_ONCE = 1000
_SAMPLES = ("'1'", "'2020-01-01'", "'01:02:03'", "'00000000-0000-0000-0000-000000000001'", "'[]'", "'{}'", "'POINT (0 0)'")
"""Strings such that every type has a value for one of them."""

_MAX_PLANNED_ROWS = 20_000_000
"""Largest row count to plan with. DuckDB generates five numbers for each row, and the order of joins depends only on proportions."""
Planned: TypeAlias = tuple[int | None, ...]

_EXPLAINED = re.compile(r'"?\bt(\d+)c(\d+)\b"?')
"""Name of a column in a plan: the number of its table, and its index."""

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSource:
    """A view that queries may name; ``sql`` is the catalog's text."""

    schema_name: str
    name: str
    sql: str
    column_aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MacroSource:
    """A macro that queries may call."""

    schema_name: str
    name: str
    implementations: tuple[MacroImplementation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The tables, views and macros that a query may name.

    Attributes:
        comments: For queries about definitions, what comments are about, such as ``TABLE "main"."t"``, and their text.
        schemas: For queries about definitions, the paths of all schemas.
        unreadable: Names of views that cannot be read, with the errors to raise if the query reads them.
        listed: Schema and name of all tables and views, to suggest similar names.
    """

    tables: tuple[TableSource, ...] = ()
    views: tuple[ViewSource, ...] = ()
    macros: tuple[MacroSource, ...] = ()
    unreadable: tuple[tuple[str, DuckLakeError], ...] = ()
    comments: tuple[tuple[str, str], ...] = ()
    schemas: tuple[str, ...] = ()
    listed: tuple[tuple[str, str], ...] = ()

    @property
    def statements(self) -> list[str]:
        """Return the SQL text of views and macros."""
        return [view.sql for view in self.views] + [one.sql for macro in self.macros for one in macro.implementations]


def run(sql: str, sources: Sources, *, target: Target | None = None, by_name: bool = False, files: bool = False) -> pa.RecordBatchReader:
    """Return the rows of a query, as a stream.

    Args:
        sql: The query.
        sources: The tables, views and macros that it may name.
        target: Columns that the rows are inserted into, in order: the result gets their names and types. None for a plain query.
        by_name: Whether the query's columns are matched with the target by name; by default by their order.
        files: Whether the query may read files of this machine. Default: False.

    Raises:
        UnsupportedFeatureError: DuckDB is not installed.
        UsageError: DuckDB rejects the query, or fails while it runs; the message is its own.
        DuckLakeError: A table cannot be read.
    """
    request = _Request(sql=sql, sources=sources, target=target, by_name=by_name, zone=session_zone(), files=files)
    running, others = _started(request, ways(request.statements, sources.tables))
    return pa.RecordBatchReader.from_batches(running.reader.schema, _batches(running, others))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """The arguments of :func:`run`."""

    sql: str
    sources: Sources
    target: Target | None
    by_name: bool
    zone: str
    files: bool

    @property
    def statements(self) -> list[str]:
        return [self.sql, *self.sources.statements]


class _Running:
    """A query in an instance of its own."""

    def __init__(self, request: _Request, way: Way) -> None:
        self.request = request
        self._failures = Failures()
        self._connection = new_instance(request.zone, files=request.files)
        try:
            self.reader = run_interruptibly(self._connection, lambda: self._reader(way))
        except BaseException as problem:
            self._connection.close()
            reported = self._user_error(problem)
            if reported is problem:
                raise
            raise reported from problem

    def _reader(self, way: Way) -> pa.RecordBatchReader:
        request, connection = self.request, self._connection
        prepared = prepare(connection, request.statements, request.sources, self._failures, way)
        return _reader(connection, request, prepared, described=sources_need_conversion(request.sources))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; they can be read once."""
        try:
            while (batch := run_interruptibly(self._connection, lambda: next(self.reader, None))) is not None:
                yield batch
        except Exception as problem:
            reported = self._user_error(problem)
            if reported is problem:
                raise
            raise reported from problem
        finally:
            self.reader.close()
            self._connection.close()

    def _user_error(self, problem: BaseException) -> BaseException:
        return user_error(problem, self._failures, self.request.sql, self.request.sources)


def _started(request: _Request, ways: Sequence[Way]) -> tuple[_Running, Sequence[Way]]:
    """Begin the query in the first way that DuckDB accepts; return it with the remaining ways."""
    for place, way in enumerate(ways):
        try:
            return _Running(request, way), ways[place + 1 :]
        except FilterNotTakenError as problem:
            if place + 1 == len(ways):
                raise problem.reported from problem
    raise AssertionError


def _batches(running: _Running, others: Sequence[Way]) -> Iterator[pa.RecordBatch]:
    while True:
        given = False
        try:
            for batch in running.batches():
                given = True
                yield batch
        except FilterNotTakenError as problem:
            # Another way may give the rows in another order, so that it cannot continue after the first batch.
            if given or not others:
                raise problem.reported from problem
            running, others = _started(running.request, others)
        else:
            return


def _reader(connection: DuckDBPyConnection, request: _Request, rejected: Sequence[str], *, described: bool) -> pa.RecordBatchReader:
    with _missing_names(request.sql, request.sources, rejected):
        text = request.sql if request.target is None else _assigned(connection, request.sql, request.target, by_name=request.by_name)
        return read_query(connection, text) if described or query_needs_conversion(text) else connection.sql(text).to_arrow_reader()


@contextmanager
def _missing_names(sql: str, sources: Sources, rejected: Sequence[str]) -> Iterator[None]:
    """Raise NotFoundError where DuckDB does not know a name, with the reasons for views and macros that could not be created."""
    import duckdb

    try:
        yield
    except duckdb.CatalogException as problem:
        raise error_of(problem, sql, sources, rejected) from problem


def check_query(sql: str, sources: Sources, *, files: bool = False) -> None:
    """Let DuckDB bind a query, without running it.

    Raises:
        NotFoundError: It names something that does not exist.
        UsageError: DuckDB rejects it; the message is its own.
    """
    _over_empty_tables(sql, sources, lambda connection: connection.sql(sql), files=files)


def explained(sql: str, sources: Sources, *, files: bool = False) -> str:
    """Return DuckDB's plan of a query as a tree, with the files of each table that the scans read and skip.

    Raises:
        NotFoundError: The query names something that does not exist.
        UsageError: DuckDB rejects the query; the message is its own.
    """
    rows = _over_empty_tables(sql, sources, lambda connection: connection.execute(f"EXPLAIN (FORMAT json) {sql}").fetchall(), files=files)
    lines: list[str] = []
    scans: list[Explanation] = []
    for node in json.loads(rows[0][1]):
        _add_node(node, 0, sources, lines, scans)
    return "\n".join([*lines, *(f"\n{scan}" for scan in scans)])


def _add_node(node: dict[str, Any], depth: int, sources: Sources, lines: list[str], scans: list[Explanation]) -> None:
    details = {key: value if isinstance(value, list) else [value] for key, value in node["extra_info"].items()}
    # The tables are empty.
    details.pop("Estimated Cardinality", None)
    named = {int(number) for values in details.values() for value in values for number, _ in _EXPLAINED.findall(str(value))}
    text = node["name"]
    shown = {key: ", ".join(_named(str(one), sources) for one in values) for key, values in details.items() if any(values)}
    if "ARROW_SCAN" in text and len(named) == 1:
        (number,) = named
        table = sources.tables[number]
        text = f"SCAN {table.schema_name}.{table.name}"
        shown.pop("Function", None)
        if table.explain is not None:
            scans.append(table.explain([_named(str(one), sources) for one in details.get("Filters", ())]))
            shown["Total Files Read"] = str(sum(file.kept for file in scans[-1].files))
    listed = "; ".join(f"{key}: {value}" for key, value in shown.items())
    lines.append(f"{'  ' * depth}{text}{f' ({listed})' if listed else ''}")
    for child in node["children"]:
        _add_node(child, depth + 1, sources, lines, scans)


def _named(text: str, sources: Sources) -> str:
    """Return a part of a plan with the names of columns."""
    return _EXPLAINED.sub(lambda found: quoted_path((sources.tables[int(found[1])].columns.columns[int(found[2])].name,)), text)


def write_file(rows: pa.RecordBatchReader, destination: str, sql: str) -> None:
    """Write rows to a file of this machine.

    Args:
        rows: The rows.
        destination: SQL of ``TO 'file' (options)``.
        sql: The whole statement, for messages.

    Raises:
        UsageError: DuckDB rejects the options, or cannot write the file.
    """
    with new_instance(files=True) as connection:
        connection.register("__ducklake_rows", rows)
        try:
            run_interruptibly(connection, lambda: connection.execute(f"COPY (FROM __ducklake_rows) {destination}"))
        except Exception as problem:
            reported = user_error(problem, Failures(), sql, Sources())
            if reported is problem:
                raise
            raise reported from problem


def _over_empty_tables(sql: str, sources: Sources, work: Callable[[DuckDBPyConnection], Found], *, files: bool) -> Found:
    with _binding_connection(sources, files=files) as connection:
        try:
            rejected = prepare(connection, [sql, *sources.statements], sources, None, Way(planned=(None,) * len(sources.tables)))
            with _missing_names(sql, sources, rejected):
                return work(connection)
        except Exception as problem:
            reported = user_error(problem, Failures(), sql, sources)
            if reported is problem:
                raise
            raise reported from problem


@contextmanager
def _binding_connection(sources: Sources, *, files: bool = False) -> Iterator[DuckDBPyConnection]:
    """Lend a connection for a statement that DuckDB only binds."""
    # Where DuckDB rejects a view or macro, the query can still be bound, but not in the same transaction.
    with new_instance(files=files) if sources.statements else scratch_connection(files=files) as connection:
        yield connection


def sources_need_conversion(sources: Sources) -> bool:
    """Return whether the tables, views or macros of a query have values that need conversion (see ``variants``)."""
    nodes = (node for table in sources.tables for node in table.columns.walk())
    return any(node.type in (VARIANT, UINT128, TIMETZ) for node in nodes) or any(
        query_needs_conversion(text) for text in sources.statements
    )


def _assigned(connection: DuckDBPyConnection, sql: str, target: Target, *, by_name: bool) -> str:
    """Return the query with its columns cast to the target columns, as DuckDB casts inserted values."""
    own = [row[0] for row in connection.execute(f"DESCRIBE {sql}").fetchall()]
    if by_name:
        known = {folded(name): (name, column) for name, column in target}
        unknown = [name for name in own if folded(name) not in known]
        if unknown:
            raise UsageError(f"the table has no column {', '.join(map(repr, unknown))}", columns=unknown)
        target = [known[folded(name)] for name in own]
    if len(own) != len(target):
        raise UsageError(f"the query has {len(own)} columns, but the table has {len(target)}. Select one column for each, or use BY NAME")
    # Under the names of the target, which DuckDB's messages about a cast contain.
    columns = [f"{cast_text(quoted_path((name,)), column)} AS {quoted_path((name,))}" for name, column in target]
    names = ", ".join(quoted_path((name,)) for name, _ in target)
    return f"SELECT {', '.join(columns)} FROM ({sql}) AS __ducklake_rows({names})"  # noqa: S608 - names are quoted


def cast_text(text: str, column: Field) -> str:
    """Return an expression cast to the type of a column."""
    wanted, given = duckdb_type(column.type), duckdb_type(_exact(column.type))
    cast = f"CAST({text} AS {wanted})"
    return cast if given == wanted else f"CAST({cast} AS {given})"


def _exact(data_type: DataType) -> DataType:
    """Return the type with strings in place of :data:`INEXACT_IN_ARROW`; writers parse them."""
    if data_type in INEXACT_IN_ARROW:
        return VARCHAR
    return with_children(data_type, lambda child: replace(child, type=_exact(child.type)))


def user_error(problem: BaseException, failures: Failures, sql: str, sources: Sources) -> BaseException:
    """Return the error to raise: that of a scan, or DuckDB's own, marked if the query can be run in another way."""
    if failures.first is not None:
        return failures.first
    if not isinstance(problem, Exception) or isinstance(problem, DuckLakeError):
        return problem
    reported = error_of(problem, sql, sources)
    return FilterNotTakenError(reported) if not_taken(problem) else reported


def prepare(connection: DuckDBPyConnection, statements: Sequence[str], sources: Sources, failures: Failures | None, way: Way) -> list[str]:
    """Create the tables, views and macros that queries may name; return the reasons for those that cannot be created.

    Args:
        connection: A new instance.
        statements: The queries, and the SQL text of views and macros.
        sources: The tables, views and macros.
        failures: Collects the first error of a scan. None for empty tables, which serve to bind and explain queries.
        way: How queries are run.
    """
    if not way.joins_filter:
        connection.execute("SET disabled_optimizers = 'join_filter_pushdown'")
    make_own_functions(connection, statements, sources)
    named: tuple[TableSource | ViewSource | MacroSource, ...] = (*sources.tables, *sources.views, *sources.macros)
    for schema in dict.fromkeys(schema_in_instance(one.schema_name) for one in named):
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted_path((schema,))}")
    connection.execute("SET schema = 'main'")
    for number, (source, planned) in enumerate(zip(sources.tables, way.planned, strict=True)):
        key = f"__ducklake_scan_{number}"
        if failures is None:
            connection.register(f"__ducklake_empty_{number}", explained_table(source, number))
            columns = ", ".join(f"t{number}c{place} AS c{place}" for place in range(len(source.columns)))
            connection.execute(f"CREATE TEMP VIEW {key} AS FROM __ducklake_empty_{number} SELECT {columns}")
        else:
            connection.register(key, TableDataset(source, failures))
        view = view_of(source, f"temp.main.{key}", planned)
        connection.execute(f"CREATE VIEW {name_in_instance(source.schema_name, source.name)} AS {view}")
    return make_views(connection, sources)


def make_own_functions(connection: DuckDBPyConnection, statements: Sequence[str], sources: Sources) -> None:
    """Create the functions that the SQL text calls and DuckDB lacks."""
    macros = [one.name for one in sources.macros if folded(one.schema_name) == DEFAULT_SCHEMA]
    make_functions(connection, statements, macros)


def make_views(connection: DuckDBPyConnection, sources: Sources, catalog: str = _CATALOG) -> list[str]:
    """Create the views and macros, once their tables exist; return the reasons for those that cannot be created."""
    waiting = [(f"view {one.name}", _view_text(one, catalog)) for one in sources.views]
    waiting += [(f"macro {one.name}", _macro_text(one, catalog)) for one in sources.macros]
    return _made(connection, waiting)


def _made(connection: DuckDBPyConnection, waiting: list[tuple[str, str]]) -> list[str]:
    """Run statements that may need each other, in whichever order they can run."""
    # The catalog does not order views and macros by their dependencies, so that all failed statements run again until a round has no
    # success.
    import duckdb

    while waiting:
        rejected: list[tuple[str, str]] = []
        reasons: list[str] = []
        for name, statement in waiting:
            try:
                execute_definition(connection, statement)
            except duckdb.Error as problem:
                rejected.append((name, statement))
                reasons.append(f"DuckDB cannot create the {name}: {line_of(problem)}")
        if len(rejected) == len(waiting):
            return reasons
        waiting = rejected
    return []


def execute_definition(connection: DuckDBPyConnection, statement: str) -> None:
    """Run CREATE VIEW or CREATE MACRO around SQL text that a catalog stores, unless the text adds statements of its own.

    DuckDB's parser, which also runs the text, counts and classifies the statements; any other lexer sees other boundaries somewhere.

    Raises:
        duckdb.ParserException: The text is not one statement.
    """
    import duckdb

    if "\0" in statement:
        raise duckdb.ParserException("Parser Error: the stored SQL contains a NUL character")
    found = connection.extract_statements(statement)
    if [one.type for one in found] != [duckdb.StatementType.CREATE]:
        raise duckdb.ParserException(f"Parser Error: the stored SQL must be one query, but it has {len(found)} statements")
    connection.execute(found[0])


def _view_text(view: ViewSource, catalog: str) -> str:
    names = f" ({', '.join(quoted_path((name,)) for name in view.column_aliases)})" if view.column_aliases else ""
    return f"CREATE VIEW {name_in_instance(view.schema_name, view.name)}{names} AS {view.sql.replace(PLACEHOLDER, catalog)}"


def _macro_text(macro: MacroSource, catalog: str) -> str:
    parts = []
    for one in macro.implementations:
        body = one.sql.replace(PLACEHOLDER, catalog)
        if one.kind == "table" and len(macro.implementations) > 1:
            body = f"({body}\n)"
        parameters = ", ".join(_parameter(parameter) for parameter in one.parameters)
        parts.append(f"({parameters}) AS {'TABLE ' if one.kind == 'table' else ''}{body}")
    return f"CREATE MACRO {name_in_instance(macro.schema_name, macro.name)}{', '.join(parts)}"


def _parameter(parameter: object) -> str:
    name, kind = getattr(parameter, "name", ""), getattr(parameter, "type", None)
    default, default_type = getattr(parameter, "default", None), getattr(parameter, "default_type", None)
    text = quoted_path((name,))
    if kind is not None:
        text += f" {duckdb_type(parse_leaf_type(kind))}"
    if default is not None and default_type is not None:
        escaped = default.replace("'", "''")
        text += f" := CAST('{escaped}' AS {duckdb_type(parse_leaf_type(default_type))})"
    return text


def name_in_instance(schema: str, name: str) -> str:
    """Return the name of a table, view or macro in a query, from its schema's path and its own name."""
    return quoted_path((schema_in_instance(schema), name))


def schema_in_instance(path: str) -> str:
    """Return the single name in the instance for a schema's path: DuckDB 1.5 has no nested schemas.

    >>> schema_in_instance("Sales"), schema_in_instance('"sales.europe"'), schema_in_instance("sales.europe")
    ('sales', 'sales.europe', '"sales"."europe"')
    """
    parts = split_path(path)
    return folded(parts[0] if len(parts) == 1 else quoted_path(parts))


class Session:
    """An instance with the tables, views and macros of its queries; its temporary tables live as long as it does."""

    def __init__(self, connection: DuckDBPyConnection) -> None:
        self._connection = connection

    def make(self, name: str, query: str) -> list[str]:
        """Keep the rows of a query as a temporary table; return the names of its columns."""
        self._connection.execute(f"CREATE TEMP TABLE {quoted_path((name,))} AS {query}")
        return [row[0] for row in self._connection.execute(f"DESCRIBE {quoted_path((name,))}").fetchall()]

    def rows(self, query: str) -> pa.Table:
        """Return the rows of a query, all of them in memory."""
        return read_query(self._connection, query).read_all()

    def number(self, query: str) -> int:
        """Return the single number that a query gives."""
        row = self._connection.execute(query).fetchone()
        assert row is not None
        return int(row[0])


def in_instance(statements: Sequence[str], sources: Sources, work: Callable[[Session], Found]) -> Found:
    """Do work with an instance; repeat it in the next way if DuckDB makes a filter that no scan accepts.

    Args:
        statements: SQL text that the work runs.
        sources: The tables, views and macros that it may name.
        work: Function that may run twice; it returns rows in memory, not streams.

    Raises:
        UnsupportedFeatureError: DuckDB is not installed.
        UsageError: DuckDB rejects a query, or fails while it runs; the message is its own.
        DuckLakeError: A table cannot be read.
    """
    found = ways([*statements, *sources.statements], sources.tables)
    for way in found[:-1]:
        try:
            return _worked(statements, sources, work, way)
        except FilterNotTakenError:
            continue
    try:
        return _worked(statements, sources, work, found[-1])
    except FilterNotTakenError as problem:
        raise problem.reported from problem


def _worked(statements: Sequence[str], sources: Sources, work: Callable[[Session], Found], way: Way) -> Found:
    failures = Failures()
    with new_instance() as connection:

        def whole() -> Found:
            prepare(connection, [*statements, *sources.statements], sources, failures, way)
            # One transaction for all queries, so that now() is the same in each.
            connection.begin()
            return work(Session(connection))

        try:
            return run_interruptibly(connection, whole)
        except Exception as problem:
            reported = user_error(problem, failures, statements[0], sources)
            if reported is problem:
                raise
            raise reported from problem


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
    with scratch_connection() as connection:
        try:
            if target is None:
                _check_sort_key(connection, text, columns)
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
            message = f"DuckDB rejects {what} of table {table}, so it could not write to the table: {reason}. Use another expression"
            raise UsageError(message, expression=text, table=table) from problem


def _check_sort_key(connection: DuckDBPyConnection, text: str, columns: Schema) -> None:
    """Compute a sort key of a row of NULLs, and of a row of values.

    DuckDB reports a cast that it does not have only for a value. Other errors depend on the value: DuckDB accepts such keys.
    """
    import duckdb

    named = [f"{quoted_path((column.name,))} {duckdb_type(column.type)}" for column in columns]
    connection.execute(f"CREATE TABLE rows_ ({', '.join(named)})")
    # Next to a column, DuckDB rejects aggregate functions.
    query = f"SELECT {text}, rowid FROM rows_"  # noqa: S608 - it is the caller's own SQL
    connection.execute("INSERT INTO rows_ DEFAULT VALUES")
    connection.execute(query).fetchall()
    values = [f"coalesce({', '.join(f'TRY_CAST({sample} AS {duckdb_type(column.type)})' for sample in _SAMPLES)})" for column in columns]
    connection.execute(f"INSERT INTO rows_ SELECT {', '.join(values)}")
    try:
        connection.execute(query).fetchall()
    except duckdb.Error as problem:
        if "Unimplemented type for cast" in str(problem):
            raise


def misfit(casts: Sequence[str]) -> tuple[int, str] | None:
    """Return the index of the first constant that cannot be cast, and DuckDB's reason; None if all can, or one is no constant.

    Args:
        casts: SQL text of the constants, each cast to the type of its column.
    """
    for start in range(0, len(casts), _CASTS_AT_ONCE):
        end = min(start + _CASTS_AT_ONCE, len(casts))
        if _failure(casts[start:end]) is not None:
            break
    else:
        return None
    while end - start > 1:
        middle = (start + end) // 2
        if _failure(casts[start:middle]) is not None:
            end = middle
        else:
            start = middle
    reason = _failure(casts[start:end])
    return (start, reason) if reason else None


def _failure(casts: Sequence[str]) -> str | None:
    """Return DuckDB's reason why one of some constants cannot be cast; empty if one is no constant, and None if all can be cast."""
    import duckdb

    with scratch_connection() as connection:
        try:
            connection.execute(f"SELECT {', '.join(casts)}").fetchall()
        except (duckdb.ConversionException, duckdb.OutOfRangeException, duckdb.InvalidInputException) as problem:
            return line_of(problem)
        except duckdb.Error:
            return ""
    return None


def check_statement(sql: str, sources: Sources) -> None:
    """Let DuckDB plan a statement over empty tables with the same columns, to find errors such as an unknown column.

    Raises:
        NotFoundError: It names something that does not exist.
        UsageError: DuckDB rejects it; the message is its own.
    """
    import duckdb

    with _binding_connection(sources) as connection:
        make_own_functions(connection, [sql, *sources.statements], sources)
        named: tuple[TableSource | ViewSource | MacroSource, ...] = (*sources.tables, *sources.views, *sources.macros)
        for schema in dict.fromkeys(schema_in_instance(one.schema_name) for one in named):
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted_path((schema,))}")
        for table in sources.tables:
            columns = [f"{quoted_path((column.name,))} {duckdb_type(column.type)}" for column in table.columns]
            connection.execute(f"CREATE TABLE {name_in_instance(table.schema_name, table.name)} ({', '.join(columns)})")
        rejected = make_views(connection, sources)
        try:
            connection.execute(f"EXPLAIN {sql}")
        except duckdb.Error as problem:
            is_missing = isinstance(problem, duckdb.CatalogException)
            raise error_of(problem, sql, sources, rejected if is_missing else (), "statement") from problem


def query_definitions(sql: str, sources: Sources) -> pa.Table:
    """Return the rows of a query about definitions, such as ``SHOW TABLES`` or one of ``duckdb_tables()``.

    It runs over empty tables with the columns of the lake's, in a database named ``lake``.

    Args:
        sql: The query.
        sources: All tables, views and macros of the lake.

    Raises:
        UnsupportedFeatureError: It reads rows of a table or view as well.
        UsageError: DuckDB rejects it; the message is its own.
    """
    import duckdb

    with _instance_of_definitions(sources, stand_ins=not _ABOUT_COLUMNS.search(sql)) as (connection, rejected):
        if sources.tables:
            connection.execute(_with_sizes(sources.tables))
        connection.execute(_without_own_functions(sources.macros))
        for subject, text in sources.comments:
            with suppress(duckdb.CatalogException):
                # A view that DuckDB could not create has none.
                connection.execute(f"COMMENT ON {subject} IS {quoted(text, 'duckdb')}")
        try:
            read = connection.get_table_names(sql) & ({one.name for one in sources.tables} | {one.name for one in sources.views})
            if read and not sql.lstrip().upper().startswith(("DESC", "SHOW", "PRAGMA")):
                raise UnsupportedFeatureError(
                    f"a query of definitions cannot read rows of {', '.join(sorted(read))} as well: run two queries", tables=sorted(read)
                )
            return connection.sql(sql).to_arrow_table()
        except duckdb.Error as problem:
            raise error_of(problem, sql, sources, rejected if isinstance(problem, duckdb.CatalogException) else ()) from problem


@contextmanager
def _instance_of_definitions(sources: Sources, *, stand_ins: bool) -> Iterator[tuple[DuckDBPyConnection, list[str]]]:
    """Lend an instance with all definitions, and the reasons for views and macros that cannot be created.

    Args:
        sources: The definitions.
        stand_ins: Whether to create views that name missing tables or columns over stand-ins of these.
    """
    with new_instance() as connection:
        rejected = _make_definitions(connection, sources)
        broken = _missing_views(connection, sources.views) if stand_ins else []
        if not broken:
            yield connection, rejected
            return
    with new_instance() as connection:
        # Again, in another order: the stand-ins take the names of other tables.
        _make_definitions(connection, sources, broken)
        yield connection, rejected


def _make_definitions(connection: DuckDBPyConnection, sources: Sources, broken: Sequence[ViewSource] = ()) -> list[str]:
    """Attach a database with all tables, views and macros; return the reasons for views and macros that cannot be created.

    Args:
        connection: The instance.
        sources: The definitions.
        broken: Views that name missing tables or columns. DuckDB lists such views of a lake, too.
    """
    connection.execute(f"ATTACH ':memory:' AS {_LISTED}")
    connection.execute(f"USE {_LISTED}")
    make_own_functions(connection, sources.statements, sources)
    for path in sources.schemas:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted_path((schema_in_instance(path),))}")
    _make_over_stand_ins(connection, broken)
    for table in sources.tables:
        name = name_in_instance(table.schema_name, table.name)
        connection.execute(f"CREATE TABLE {name} ({', '.join(map(_column_text, table.columns))})")
    return make_views(connection, replace(sources, views=tuple(view for view in sources.views if view not in broken)), _LISTED)


def _missing_views(connection: DuckDBPyConnection, views: Sequence[ViewSource]) -> list[ViewSource]:
    made = set(connection.execute("SELECT schema_name, view_name FROM duckdb_views()").fetchall())
    return [view for view in views if (schema_in_instance(view.schema_name), view.name) not in made]


def _make_over_stand_ins(connection: DuckDBPyConnection, views: Sequence[ViewSource]) -> None:
    """Create views over tables with all columns that each of them names, which exist only meanwhile."""
    import duckdb

    named = {view: _stand_ins(view) for view in views}
    while named:
        # A view takes its name only after those that name it, so that the name is free for a stand-in.
        free = (one for one in named if not any(name_in_instance(one.schema_name, one.name) in others for others in named.values()))
        view = next(free, next(iter(named)))
        tables, unlisted = named.pop(view), None
        try:
            for name, columns in tables.items():
                connection.execute(f"CREATE TABLE {name} ({columns})")
            execute_definition(connection, _view_text(view, _LISTED))
        except duckdb.Error as problem:
            reason = quoted(f"DuckDB cannot create the view {view.name}: {line_of(problem)}", "duckdb")
            unlisted = _view_text(replace(view, sql=f"SELECT error({reason})", column_aliases=()), _LISTED)
        for name in tables:
            with suppress(duckdb.CatalogException):
                connection.execute(f"DROP TABLE IF EXISTS {name}")
        if unlisted is not None:
            connection.execute(unlisted)


def _stand_ins(view: ViewSource) -> dict[str, str]:
    """Return the names of the tables that a view reads, with columns for them; nothing if the SQL text cannot be parsed."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        tree = sqlglot.parse_one(view.sql.replace(PLACEHOLDER, _LISTED), read="duckdb")
    except (SqlglotError, RecursionError):
        return {}
    # Identifiers are more than columns, but include those of USING.
    columns = sorted({folded(one.name): one.name for one in tree.find_all(exp.Identifier) if one.name}.values()) or ["a"]
    # A value of the type "NULL" is accepted as a value of any other type.
    stated = ", ".join(f'{quoted_path((column,))} "NULL"' for column in columns)
    own = schema_in_instance(view.schema_name)
    return {quoted_path((folded(table.db) or own, table.name)): stated for table in tree.find_all(exp.Table) if table.name}


def _with_sizes(tables: Sequence[TableSource]) -> str:
    """Return a macro in place of duckdb_tables() with the row counts of the lake's tables, which are empty in the instance."""
    sizes = ", ".join(
        f"({quoted(schema_in_instance(one.schema_name), 'duckdb')}, {quoted(one.name, 'duckdb')}, {one.row_count or 0})" for one in tables
    )
    counted = f"SELECT * FROM (VALUES {sizes}) AS sizes(schema_of, name_of, n)"  # noqa: S608 - quoted
    return f"""CREATE TEMP MACRO duckdb_tables() AS TABLE
        SELECT found.* REPLACE (coalesce(n, estimated_size) AS estimated_size) FROM system.main.duckdb_tables() AS found
        LEFT JOIN ({counted}) ON database_name = '{_LISTED}' AND schema_name = schema_of AND table_name = name_of"""  # noqa: S608


def _without_own_functions(macros: Sequence[MacroSource]) -> str:
    """Return a macro in place of duckdb_functions() that leaves out the functions of this library."""
    own = ", ".join(quoted(name, "duckdb") for name in sorted(OWN_FUNCTIONS - {folded(one.name) for one in macros}))
    return f"""CREATE TEMP MACRO duckdb_functions() AS TABLE SELECT * FROM system.main.duckdb_functions()
        WHERE database_name <> 'temp' AND NOT starts_with(function_name, '__ducklake_') AND (internal OR function_name NOT IN ({own}))"""  # noqa: S608


def _column_text(column: Field) -> str:
    text = f"{quoted_path((column.name,))} {duckdb_type(column.type)}"
    if column.default is not None:
        default = column.default if column.default_is_expression else f"'{column.default.replace(chr(39), chr(39) * 2)}'"
        text += f" DEFAULT ({default})"
    return text if column.nullable else f"{text} NOT NULL"


class FilterNotTakenError(Exception):
    """DuckDB made a filter that no scan of Arrow data accepts; ``reported`` is the error to raise if there is no other way."""

    def __init__(self, reported: BaseException) -> None:
        super().__init__(str(reported))
        self.reported = reported


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to run a query.

    Attributes:
        planned: Row count of each table for DuckDB's optimizer; None for no information.
        joins_filter: Whether joins may push filters into scans; True by default.
    """

    planned: Planned
    joins_filter: bool = True


def not_taken(problem: BaseException) -> bool:
    """Return whether DuckDB's error states that a scan does not accept the filter."""
    return "Pushdown Filter Type" in str(problem)


def ways(statements: Sequence[str], tables: Sequence[TableSource]) -> list[Way]:
    """Return the ways in which to run a query, in the order to try them.

    Without row counts, DuckDB does not know the larger side of a join. Large row counts make Bloom filters more likely, which no scan
    accepts. For two tables their ranks suffice: Bloom filters are rare then, and other filters of joins are kept.

    Args:
        statements: The query, and the SQL text of views and macros.
        tables: The tables that they may name.
    """
    return list(dict.fromkeys(_ways(statements, tables)))


def _ways(statements: Sequence[str], tables: Sequence[TableSource]) -> Iterator[Way]:
    nothing: Planned = (None,) * len(tables)
    # A later part of a UNION ALL may begin, and fail, after the caller has the rows of the first part: only safe ways remain.
    begins_at_once = not any("UNION" in text.upper() for text in statements)
    if sum(table.row_count is not None for table in tables) > 2:
        counts = _in_proportion(tables)
        if begins_at_once:
            yield Way(planned=counts)
        yield Way(planned=counts, joins_filter=False)
        return
    if begins_at_once:
        yield Way(planned=_ranks(tables))
    yield Way(planned=nothing)
    yield Way(planned=nothing, joins_filter=False)


def _in_proportion(tables: Sequence[TableSource]) -> Planned:
    """Return row counts, scaled down if the largest exceeds the limit."""
    largest = max(table.row_count or 0 for table in tables)
    shrunk = max(largest / _MAX_PLANNED_ROWS, 1)
    return tuple(None if table.row_count is None else max(int(table.row_count / shrunk), 1) for table in tables)


def _ranks(tables: Sequence[TableSource]) -> Planned:
    """Return the rank of each table by size, 1 for the smallest."""
    sizes = sorted({table.row_count for table in tables if table.row_count is not None})
    return tuple(None if table.row_count is None else sizes.index(table.row_count) + 1 for table in tables)
