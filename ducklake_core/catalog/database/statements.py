"""Run statements inside an open transaction, one by one or pipelined, with shared compiled SQL.

A commit costs round trips, not work of the server. So :class:`PipelinedStatements` sends statements without waiting, and merges changes of
different tables into one statement::

    run(INSERT snapshot)           sent alone: it collides with other writers before any row is locked
    run(UPDATE table_stats)   -.
    run(INSERT data_file)      +-- one statement: WITH s0 AS (UPDATE ...), s1 AS (INSERT ...) INSERT ...
    run(INSERT changes)       -'
    ask(SELECT ...)()              sends everything and waits
"""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol, TypeAlias
from uuid import uuid4

from sqlalchemy import Connection, Executable, TableClause, column, inspect, select
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import ExecutableDDLElement
from sqlalchemy.sql.elements import ClauseElement
from typing_extensions import override

from ducklake_core.catalog.database.abilities import Abilities
from ducklake_core.catalog.database.failures import classify
from ducklake_core.errors import CatalogError
from ducklake_core.format.cache import BoundedCache

Parameters = Mapping[str, object] | Sequence[Mapping[str, object]]
Answer = Callable[[], Sequence[Any]]
"""The pending rows of a query; calling it waits for them."""
NamedQuery: TypeAlias = tuple[Hashable, Callable[[], Executable], Mapping[str, object]]
"""A query: the name of its shape, the function that builds it, and its parameters."""
_MAX_TOGETHER = 16
_PARAMETER = re.compile(r"%%|%\((.*?)\)s", re.DOTALL)
MAX_KNOWN = 2000
"""Maximum number of compiled or built statements that are cached for one catalog."""
_MAX = 1000

OpenSession = Callable[[], AbstractContextManager[Connection]]
"""Opens a session whose statements are committed one by one."""
_SCOPE = "ducklake_definitions"


class Statements(Protocol):
    """The statements of a commit.

    A statement is given by a function that builds it and a name for its shape. Statements with the same name differ only in their
    parameters, so they are built once. The name None disables the cache.
    """

    def run(self, name: Hashable, build: Callable[[], Executable], parameters: Parameters | None = None) -> None:
        """Execute a statement without result rows.

        Args:
            name: Name of its shape, or None.
            build: Builds the statement.
            parameters: Parameters of one execution, or a list for several; None for none.
        """

    def fetch(self, name: Hashable, build: Callable[[], Executable], parameters: Mapping[str, object] | None = None) -> Answer:
        """Execute a query and return a function that waits for its rows.

        Args:
            name: Name of its shape, or None.
            build: Builds the query.
            parameters: Its parameters; None for none.
        """

    def has_table(self, name: str, schema: str | None) -> bool:
        """Return whether the database has a table with exactly this name."""

    def define(self, statement: ExecutableDDLElement, undo: ExecutableDDLElement | None = None) -> None:
        """Create a table as a part of the transaction, or at once if the database commits at DDL.

        Args:
            statement: The CREATE TABLE statement.
            undo: The statement that drops the table if the transaction fails; None for a table that other clients may use already.
        """


class PlainStatements:
    """Statements that wait for their answers, one after another.

    Args:
        connection: A connection in an open transaction.
        known: Cache of built statements by name; None builds each statement.
    """

    def __init__(self, connection: Connection, known: BoundedCache[Hashable, Any] | None = None) -> None:
        self.connection = connection
        self._known = known

    def run(self, name: Hashable, build: Callable[[], Executable], parameters: Parameters | None = None) -> None:
        """See :class:`Statements`."""
        # A list of one would use executemany of the driver, which costs one more round trip.
        if isinstance(parameters, Sequence) and len(parameters) == 1:
            parameters = parameters[0]
        self.connection.execute(_known(self._known, name, build), parameters)

    def fetch(self, name: Hashable, build: Callable[[], Executable], parameters: Mapping[str, object] | None = None) -> Answer:
        """See :class:`Statements`."""
        rows = self.connection.execute(_known(self._known, name, build), parameters).all()
        return lambda: rows

    def has_table(self, name: str, schema: str | None) -> bool:
        """See :class:`Statements`."""
        return inspect(self.connection).has_table(name, schema=schema)

    def define(self, statement: ExecutableDDLElement, undo: ExecutableDDLElement | None = None) -> None:  # noqa: ARG002
        """See :class:`Statements`."""
        self.run(None, lambda: statement)


class PipelinedStatements:
    """Statements that are sent without waiting for earlier answers, in the pipeline mode of psycopg.

    After an error the server skips all later statements, including COMMIT; the error is raised at the next wait. SQLAlchemy only compiles
    each statement once. The driver executes it, because the execution by SQLAlchemy takes longer than the server needs.

    Args:
        connection: psycopg's connection, in pipeline mode.
        pipeline: Its pipeline.
        dialect: SQLAlchemy dialect of the connection.
        known: Cache of compiled statements by name.
    """

    def __init__(self, connection: Any, pipeline: Any, dialect: Dialect, known: BoundedCache[Hashable, Any]) -> None:
        self._connection = connection
        self._pipeline = pipeline
        self._dialect = dialect
        self._known = known
        self._cursor = connection.cursor()
        self._unanswered = True
        self._changes = Changes()
        self._has_changed = False

    def run(self, name: Hashable, build: Callable[[], Executable], parameters: Parameters | None = None) -> None:
        """See :class:`Statements`."""
        statement = self._compiled(name, build)
        rows = (parameters or {},) if isinstance(parameters, Mapping) or parameters is None else parameters
        if name is not None and statement.changes and self._has_changed and self._changes.fits(len(rows)):
            if not self._changes.can_take(statement.changes):
                self.send()
            self._changes.add(name, statement, rows)
            return
        # The first change (the snapshot row) collides with other writers. It goes alone, before any other row is locked.
        self._has_changed = self._has_changed or statement.changes is not None
        self.send()
        self._unanswered = True
        for row in rows:
            self._cursor.execute(statement.text, statement.bound(row))

    def send(self) -> None:
        """Send the collected changes as one statement."""
        if self._changes:
            text, values = self._changes.joined(self._known)
            self._changes = Changes()
            self._unanswered = True
            self._cursor.execute(text, values)

    def fetch(self, name: Hashable, build: Callable[[], Executable], parameters: Mapping[str, object] | None = None) -> Answer:
        """See :class:`Statements`."""
        statement = self._compiled(name, build)
        self.send()
        cursor = self._connection.cursor()
        self._unanswered = True
        cursor.execute(statement.text, statement.bound(parameters or {}))

        def answer() -> list[Any]:
            self._wait()
            return [statement.row_type(*row) for row in cursor.fetchall()]

        return answer

    def has_table(self, name: str, schema: str | None) -> bool:
        """See :class:`Statements`."""
        listed = TableClause("tables", column("table_schema"), column("table_name"))
        listed.schema = "information_schema"
        query = select(listed.c.table_name).where(listed.c.table_schema == schema, listed.c.table_name == name)
        return bool(self.fetch(None, lambda: query)())

    def define(self, statement: ExecutableDDLElement, undo: ExecutableDDLElement | None = None) -> None:  # noqa: ARG002
        """See :class:`Statements`."""
        self.run(None, lambda: statement)

    def all_answered(self) -> None:
        """Note that the pipeline has ended, so that no answer needs another wait."""
        self._unanswered = False

    def _wait(self) -> None:
        """Wait for all answers. From here on the server applies its timeout for idle transactions to this client."""
        if self._unanswered:
            self._pipeline.sync()
            self._unanswered = False

    def _compiled(self, name: Hashable, build: Callable[[], Executable]) -> CompiledStatement:
        return known_statement(self._known, name, build, self._dialect)


@dataclass(frozen=True, slots=True)
class CompiledStatement:
    """A statement that is ready for the driver.

    Attributes:
        text: SQL text with the placeholders of the driver.
        constants: Values that are part of the statement, by parameter.
        processors: Parameters, with functions that convert their values for the driver.
        row_type: Named tuple of the result rows; None without rows.
        changes: Name of the table whose rows it inserts, updates or deletes; None for any other statement.
    """

    text: str
    constants: Mapping[str, object] = field(default_factory=dict)
    processors: tuple[tuple[str, Callable[[Any], Any] | None], ...] = ()
    row_type: Any = None
    changes: str | None = None

    def bound(self, parameters: Mapping[str, object]) -> dict[str, object]:
        """Return the parameters for the driver."""
        given = {**self.constants, **parameters}
        return {name: given[name] if process is None else process(given[name]) for name, process in self.processors}


def known_statement(
    known: BoundedCache[Hashable, Any], name: Hashable, build: Callable[[], Executable], dialect: Dialect
) -> CompiledStatement:
    """Return the compiled statement of a name from the cache; the name None compiles each time."""
    found: CompiledStatement = _known(known, name, lambda: compiled_statement(build(), dialect))
    return found


def compiled_statement(statement: Executable, dialect: Dialect) -> CompiledStatement:
    """Compile a statement; lists of values are expanded."""
    if isinstance(statement, ExecutableDDLElement):
        return CompiledStatement(str(statement.compile(dialect=dialect)))
    assert isinstance(statement, ClauseElement)
    compiled: Any = statement.compile(dialect=dialect, compile_kwargs={"render_postcompile": True})
    processors = []
    for name in compiled.params:
        bind = compiled.binds.get(name)
        process = bind.type.dialect_impl(dialect).bind_processor(dialect) if bind is not None else None
        processors.append((name, process))
    # One row type per statement: the driver would create a type for every answer.
    selected: Any = getattr(statement, "selected_columns", None)
    row_type = None if selected is None else _row_type(tuple(selected.keys()))
    changes = compiled.statement.table.name if compiled.isinsert or compiled.isupdate or compiled.isdelete else None
    return CompiledStatement(compiled.string, dict(compiled.params), tuple(processors), row_type, changes)


class Changes:
    """Changes of rows that can be sent as one statement, because each changes another table::

        WITH s0 AS (UPDATE ...), s1 AS (UPDATE ...) INSERT INTO ...

    All parts see the rows as they were before the statement (PostgreSQL, Data-Modifying Statements in WITH), so two changes of one table
    must not be combined. A list of parameters counts as one part, because each changes another row.
    """

    def __init__(self) -> None:
        self._parts: list[tuple[Hashable, CompiledStatement, Sequence[Mapping[str, object]]]] = []
        self._tables: set[str | None] = set()

    def __bool__(self) -> bool:
        return bool(self._parts)

    def fits(self, count: int) -> bool:
        """Return whether ``count`` executions are few enough to combine: each combination is a statement of its own in the cache."""
        return 0 < count <= _MAX_TOGETHER

    def can_take(self, table: str) -> bool:
        """Return whether no collected change affects a table."""
        return table not in self._tables

    def add(self, name: Hashable, statement: CompiledStatement, rows: Sequence[Mapping[str, object]]) -> None:
        """Add a statement for each of some parameters.

        Args:
            name: Name of its shape.
            statement: The statement.
            rows: Parameters of each execution.
        """
        self._parts.append((name, statement, rows))
        self._tables.add(statement.changes)

    def joined(self, known: BoundedCache[Hashable, Any]) -> tuple[str, dict[str, object]]:
        """Return the text of the combined statement and its parameters.

        Args:
            known: Cache of SQL text by its parts.
        """
        every = [(statement, row) for _, statement, rows in self._parts for row in rows]
        shape = ("together", *((name, len(rows)) for name, _, rows in self._parts))
        text = known.get_or_make(shape, lambda: _joined([statement.text for statement, _ in every]))
        values = {
            f"s{number}_{name}": value for number, (statement, row) in enumerate(every) for name, value in statement.bound(row).items()
        }
        return text, values


def _joined(statements: Sequence[str]) -> str:
    *first, last = (_numbered(number, text) for number, text in enumerate(statements))
    before = ", ".join(f"s{number} AS ({text})" for number, text in enumerate(first))
    return f"WITH {before} {last}" if before else last


def _numbered(number: int, text: str) -> str:
    """Return a statement with parameter names that are unique in the combination.

    >>> _numbered(1, 'UPDATE "a%%(x)s" SET b = %(value_b)s::BIGINT')
    'UPDATE "a%%(x)s" SET b = %(s1_value_b)s::BIGINT'
    """
    return _PARAMETER.sub(lambda found: found[0] if found[1] is None else f"%(s{number}_{found[1]})s", text)


def _known(known: BoundedCache[Hashable, Any] | None, name: Hashable, build: Callable[[], Any]) -> Any:
    return build() if known is None or name is None else known.get_or_make(name, build)


@lru_cache(maxsize=64)
def _row_type(names: tuple[str, ...]) -> Any:
    return namedtuple("Row", names, rename=True)  # noqa: PYI024


class CompiledStatements(BoundedCache[Any, Any]):
    """Compiled statements for SQLAlchemy's option ``compiled_cache``, shared by all engines of the process.

    Keys compare tables as objects, so statements of two versions or metadata schemas are never confused. SQLAlchemy also compares dialects
    as objects, and every engine has its own; here equal dialects are the same key.
    """

    @override
    def get(self, key: Any) -> Any:
        return super().get(_by_kind(key))

    @override
    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(_by_kind(key), value)


def _by_kind(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([_kind(part) if isinstance(part, Dialect) else part for part in key])


def _kind(dialect: Dialect) -> tuple[object, ...]:
    """Return everything in which two dialects of this library can differ: facts about their server."""
    escapes = getattr(dialect, "_backslash_escapes", None)
    is_mariadb = getattr(dialect, "is_mariadb", None)
    return type(dialect), is_mariadb, dialect.server_version_info, dialect.default_schema_name, dialect.max_identifier_length, escapes


_compiled = CompiledStatements(_MAX)


def shared_statements() -> dict[str, Any]:
    """Return the execution option that makes an engine use the compiled statements of this process."""
    return {"compiled_cache": _compiled}


@dataclass(slots=True)
class Scope:
    """The DDL that a transaction runs outside of itself, on databases that commit at DDL.

    Attributes:
        undo: Statements that drop the tables that it created, to run if it fails.
        drops: Statements that drop unneeded tables, to run after it has committed.
        at_commit: Whether its COMMIT may have been sent.
    """

    undo: list[ExecutableDDLElement] = field(default_factory=list)
    drops: list[ExecutableDDLElement] = field(default_factory=list)
    at_commit: bool = False


class Definitions:
    """Create and drop tables for the transactions of one database.

    On databases that commit at DDL (MySQL), tables are created before the transaction needs them and dropped after it has committed::

        define(CREATE t_<suffix>)   at once, in a session of its own; the suffix keeps attempts apart
        transaction fails           undo: DROP t_<suffix>
        COMMIT without an answer    nothing: the table may be in use, and maintenance drops leftovers
        COMMIT ok                   drops: DROP of tables that are no longer needed

    Args:
        abilities: Abilities of the database.
        side_session: Opens a session next to a transaction.
    """

    def __init__(self, abilities: Abilities, side_session: OpenSession) -> None:
        self._are_apart = abilities.commits_at_ddl
        self._open_session = side_session

    @contextmanager
    def around(self) -> Iterator[Scope]:
        """Surround a transaction, including its COMMIT, and run its DDL afterwards."""
        scope = Scope()
        try:
            yield scope
        except CatalogError as error:
            if classify(error) not in ("unavailable", "outcome-unknown"):
                self._run(scope.undo)
            raise
        except BaseException:
            if not scope.at_commit:
                self._run(scope.undo)
            raise
        self._run(scope.drops)

    def statements(self, connection: Connection, known: BoundedCache[Hashable, Any]) -> PlainStatements:
        """Return the statements of a transaction that may create tables.

        Args:
            connection: A connection in the transaction.
            known: Cache of built statements by name.
        """
        return SideSessionStatements(connection, known, self) if self._are_apart else PlainStatements(connection, known)

    def make(self, statement: ExecutableDDLElement) -> None:
        """Execute DDL in a session of its own.

        Raises:
            CatalogUnavailableError: The database cannot be reached, or another client has locked what the statement needs.
            CatalogError: The database rejected the statement.
        """
        self.make_all(lambda connection: connection.execute(statement))

    def make_all(self, make: Callable[[Connection], object]) -> None:
        """Create several tables in a session of their own.

        Raises:
            CatalogUnavailableError: The database cannot be reached, or another client has locked what a statement needs.
            CatalogError: The database rejected a statement.
        """
        with self._open_session() as connection:
            make(connection)

    def drop(self, connection: Connection, statement: ExecutableDDLElement) -> None:
        """Drop a table as a part of a transaction, or right after it: the committed transaction leaves no reference to the table.

        Args:
            connection: A connection in the transaction.
            statement: The DROP TABLE statement.
        """
        if self._are_apart:
            scope_of(connection).drops.append(statement)
        else:
            connection.execute(statement)

    def new_suffix(self) -> str:
        """Return a suffix that distinguishes the tables of one commit attempt from those of others; empty if DDL rolls back with it."""
        return f"_{uuid4().hex[:12]}" if self._are_apart else ""

    def _run(self, statements: list[ExecutableDDLElement]) -> None:
        # Maintenance drops leftovers later. After one failure the rest is skipped, so that a long reader delays this only once.
        with suppress(CatalogError):
            for statement in statements:
                self.make(statement)


def attach(connection: Connection, scope: Scope) -> None:
    """Store the scope of its transaction on a connection."""
    connection.info[_SCOPE] = scope


def scope_of(connection: Connection) -> Scope:
    """Return the scope of the transaction of a connection."""
    found: Scope = connection.info[_SCOPE]
    return found


class SideSessionStatements(PlainStatements):
    """Statements of a transaction that creates tables in a session next to it."""

    def __init__(self, connection: Connection, known: BoundedCache[Hashable, Any], definitions: Definitions) -> None:
        super().__init__(connection, known)
        self._definitions = definitions

    @override
    def define(self, statement: ExecutableDDLElement, undo: ExecutableDDLElement | None = None) -> None:
        if undo is not None:
            scope_of(self.connection).undo.append(undo)
        self._definitions.make(statement)
