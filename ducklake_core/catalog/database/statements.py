"""Run statements inside an open transaction, one by one or pipelined, with shared compiled SQL."""

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
"""Rows of a question that was asked; calling it waits for them."""
Question: TypeAlias = tuple[Hashable, Callable[[], Executable], Mapping[str, object]]
"""A query: a name for its shape, what builds it, and its parameters."""
_MAX_TOGETHER = 16
_PLACE = re.compile(r"%%|%\((.*?)\)s", re.DOTALL)
MAX_KNOWN = 2000
"""Maximum number of statements of one catalog that are kept compiled, or built."""
_MAX = 1000

Beside = Callable[[], AbstractContextManager[Connection]]
"""A session whose statements are committed one by one."""
_SCOPE = "ducklake_definitions"


class Statements(Protocol):
    """How a commit talks to its database.

    A statement is given by what builds it and by a name for its shape: of statements with one name, only the parameters differ.
    None is for statements that are not worth remembering.
    """

    def run(self, name: Hashable, build: Callable[[], Executable], parameters: Parameters | None = None) -> None:
        """Execute a statement without an answer, once or for each of several parameters."""

    def ask(self, name: Hashable, build: Callable[[], Executable], parameters: Mapping[str, object] | None = None) -> Answer:
        """Execute a query."""

    def has_table(self, name: str, schema: str | None) -> bool:
        """Whether the database has a table of exactly this name."""

    def define(self, statement: ExecutableDDLElement, undo: ExecutableDDLElement | None = None) -> None:
        """Make a table, as a part of the transaction where the database can do that; otherwise it is there at once, and empty.

        Args:
            statement: What makes it.
            undo: What drops it again, should the transaction fail; None for a table that others may be using already.
        """


class PlainStatements:
    """One statement after another.

    Args:
        connection: In an open transaction.
        known: Statements that were built before, by name; None builds each one.
    """

    def __init__(self, connection: Connection, known: BoundedCache[Hashable, Any] | None = None) -> None:
        self.connection = connection
        self._known = known

    def run(self, name: Hashable, build: Callable[[], Executable], parameters: Parameters | None = None) -> None:
        """See :class:`Statements`."""
        # A list of one would go through the driver's path for many, which costs a round trip more.
        if isinstance(parameters, Sequence) and len(parameters) == 1:
            parameters = parameters[0]
        self.connection.execute(_known(self._known, name, build), parameters)

    def ask(self, name: Hashable, build: Callable[[], Executable], parameters: Mapping[str, object] | None = None) -> Answer:
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
    """Statements that are sent without waiting for the answers of earlier ones, by psycopg's pipeline mode.

    An error of one makes the server skip all that follow, COMMIT included; it is raised where somebody waits next.
    SQLAlchemy makes the text of each statement once; executing is left to the driver, because SQLAlchemy's own way of doing so
    takes longer than the server does.

    Args:
        connection: psycopg's connection, in pipeline mode.
        pipeline: Its pipeline.
        dialect: SQLAlchemy's dialect for it.
        known: Statements that were compiled before, by name.
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
        if name is not None and statement.changes and self._has_changed and self._changes.has_room(len(rows)):
            if not self._changes.can_take(statement.changes):
                self.send()
            self._changes.add(name, statement, rows)
            return
        # The first change is what collides with other writers: it goes alone, before any row is locked.
        self._has_changed = self._has_changed or statement.changes is not None
        self.send()
        self._unanswered = True
        for row in rows:
            self._cursor.execute(statement.text, statement.bound(row))

    def send(self) -> None:
        """Send the changes that wait for others to go with, as one statement."""
        if self._changes:
            text, values = self._changes.joined(self._known)
            self._changes = Changes()
            self._unanswered = True
            self._cursor.execute(text, values)

    def ask(self, name: Hashable, build: Callable[[], Executable], parameters: Mapping[str, object] | None = None) -> Answer:
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
        return bool(self.ask(None, lambda: query)())

    def define(self, statement: ExecutableDDLElement, undo: ExecutableDDLElement | None = None) -> None:  # noqa: ARG002
        """See :class:`Statements`."""
        self.run(None, lambda: statement)

    def all_answered(self) -> None:
        """The pipeline has ended, and with it every wait."""
        self._unanswered = False

    def _wait(self) -> None:
        """Get all answers. The server knows then that it is our turn to speak, and how long that may take."""
        if self._unanswered:
            self._pipeline.sync()
            self._unanswered = False

    def _compiled(self, name: Hashable, build: Callable[[], Executable]) -> CompiledStatement:
        return known_statement(self._known, name, build, self._dialect)


@dataclass(frozen=True, slots=True)
class CompiledStatement:
    """The driver's text of a statement, the values that are part of it, what turns parameters into the driver's values, and its rows.

    Attributes:
        changes: The name of the table whose rows it inserts, updates or deletes; None for any other statement.
    """

    text: str
    constants: Mapping[str, object] = field(default_factory=dict)
    processors: tuple[tuple[str, Callable[[Any], Any] | None], ...] = ()
    row_type: Any = None
    changes: str | None = None

    def bound(self, parameters: Mapping[str, object]) -> dict[str, object]:
        """The driver's parameters."""
        given = {**self.constants, **parameters}
        return {name: given[name] if process is None else process(given[name]) for name, process in self.processors}


def known_statement(
    known: BoundedCache[Hashable, Any], name: Hashable, build: Callable[[], Executable], dialect: Dialect
) -> CompiledStatement:
    """A statement as it was compiled before under its name; None is compiled each time."""
    found: CompiledStatement = _known(known, name, lambda: compiled_statement(build(), dialect))
    return found


def compiled_statement(statement: Executable, dialect: Dialect) -> CompiledStatement:
    """Compile a statement; lists of values are spelled out as they are."""
    if isinstance(statement, ExecutableDDLElement):
        return CompiledStatement(str(statement.compile(dialect=dialect)))
    assert isinstance(statement, ClauseElement)
    compiled: Any = statement.compile(dialect=dialect, compile_kwargs={"render_postcompile": True})
    processors = []
    for name in compiled.params:
        bind = compiled.binds.get(name)
        process = bind.type.dialect_impl(dialect).bind_processor(dialect) if bind is not None else None
        processors.append((name, process))
    # The driver would describe the columns anew for every answer.
    selected: Any = getattr(statement, "selected_columns", None)
    row_type = None if selected is None else _row_type(tuple(selected.keys()))
    changes = compiled.statement.table.name if compiled.isinsert or compiled.isupdate or compiled.isdelete else None
    return CompiledStatement(compiled.string, dict(compiled.params), tuple(processors), row_type, changes)


class Changes:
    """Changes of rows that can go to the server as one statement, since each is of a table of its own::

        WITH s0 AS (UPDATE ...), s1 AS (UPDATE ...) INSERT INTO ...

    All of them see the rows as they were before. A list of parameters stands for as many rows of one table, each another one.
    """

    def __init__(self) -> None:
        self._parts: list[tuple[Hashable, CompiledStatement, Sequence[Mapping[str, object]]]] = []
        self._tables: set[str | None] = set()

    def __bool__(self) -> bool:
        return bool(self._parts)

    def has_room(self, count: int) -> bool:
        """Whether so many more are few enough to be worth a statement of their own shape."""
        return 0 < count <= _MAX_TOGETHER

    def can_take(self, table: str) -> bool:
        """Whether nothing yet changes a table."""
        return table not in self._tables

    def add(self, name: Hashable, statement: CompiledStatement, rows: Sequence[Mapping[str, object]]) -> None:
        """Let a statement, by its name, go with the others, for each of some parameters."""
        self._parts.append((name, statement, rows))
        self._tables.add(statement.changes)

    def joined(self, known: BoundedCache[Hashable, Any]) -> tuple[str, dict[str, object]]:
        """The text of one statement and its parameters.

        Args:
            known: Texts that were made before, by what they consist of.
        """
        every = [(statement, row) for _, statement, rows in self._parts for row in rows]
        shape = ("together", *((name, len(rows)) for name, _, rows in self._parts))
        text = known.get_or_make(shape, lambda: _joined([statement.text for statement, _ in every]))
        values = {
            f"s{number}_{name}": value for number, (statement, row) in enumerate(every) for name, value in statement.bound(row).items()
        }
        return text, values


def _joined(texts: Sequence[str]) -> str:
    *first, last = (_numbered(number, text) for number, text in enumerate(texts))
    before = ", ".join(f"s{number} AS ({text})" for number, text in enumerate(first))
    return f"WITH {before} {last}" if before else last


def _numbered(number: int, text: str) -> str:
    """A statement with parameters of names that no other one has.

    >>> _numbered(1, 'UPDATE "a%%(x)s" SET b = %(value_b)s::BIGINT')
    'UPDATE "a%%(x)s" SET b = %(s1_value_b)s::BIGINT'
    """
    return _PLACE.sub(lambda found: found[0] if found[1] is None else f"%(s{number}_{found[1]})s", text)


def _known(known: BoundedCache[Hashable, Any] | None, name: Hashable, build: Callable[[], Any]) -> Any:
    return build() if known is None or name is None else known.get_or_make(name, build)


@lru_cache(maxsize=64)
def _row_type(names: tuple[str, ...]) -> Any:
    return namedtuple("Row", names, rename=True)  # noqa: PYI024


class CompiledStatements(BoundedCache[Any, Any]):
    """Compiled statements for SQLAlchemy's option ``compiled_cache``, shared by all engines of the process.

    Tables are compared as objects, so that statements of two versions or metadata schemas are never taken for one another. SQLAlchemy
    compares dialects as objects, too, of which every engine has its own; here dialects of one kind are the same.
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
    """All in which two dialects of this library can differ: what they have found out about their server."""
    escapes = getattr(dialect, "_backslash_escapes", None)
    is_mariadb = getattr(dialect, "is_mariadb", None)
    return type(dialect), is_mariadb, dialect.server_version_info, dialect.default_schema_name, dialect.max_identifier_length, escapes


_compiled = CompiledStatements(_MAX)


def shared_statements() -> dict[str, Any]:
    """Return the execution option by which an engine uses the statements that this process has compiled."""
    return {"compiled_cache": _compiled}


@dataclass(slots=True)
class Scope:
    """What one transaction makes and drops outside of itself.

    Attributes:
        undo: What drops the tables that are its own, should it fail.
        drops: What drops the tables that nobody needs once it has committed.
        at_commit: Whether its COMMIT was sent.
    """

    undo: list[ExecutableDDLElement] = field(default_factory=list)
    drops: list[ExecutableDDLElement] = field(default_factory=list)
    at_commit: bool = False


class Definitions:
    """The tables that transactions of one database make and drop.

    Args:
        abilities: Of the database.
        beside: Opens a session beside a transaction.
    """

    def __init__(self, abilities: Abilities, beside: Beside) -> None:
        self._are_apart = abilities.commits_at_ddl
        self._beside = beside

    @contextmanager
    def around(self) -> Iterator[Scope]:
        """The whole of a transaction, its COMMIT included."""
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
        """Statements of a transaction that may make tables."""
        return BesideStatements(connection, known, self) if self._are_apart else PlainStatements(connection, known)

    def make(self, statement: ExecutableDDLElement) -> None:
        """Make a table in a session of its own.

        Raises:
            CatalogUnavailableError: The database cannot be reached, or somebody else has locked what the statement needs.
            CatalogError: It refused the statement.
        """
        self.make_all(lambda connection: connection.execute(statement))

    def make_all(self, make: Callable[[Connection], object]) -> None:
        """Make several tables in a session of their own.

        Raises:
            CatalogUnavailableError: The database cannot be reached, or somebody else has locked what a statement needs.
            CatalogError: It rejected a statement.
        """
        with self._beside() as connection:
            make(connection)

    def drop(self, connection: Connection, statement: ExecutableDDLElement) -> None:
        """Drop a table with a transaction, or right after it: nobody asks for the table when the transaction has committed."""
        if self._are_apart:
            scope_of(connection).drops.append(statement)
        else:
            connection.execute(statement)

    def new_suffix(self) -> str:
        """What tells the tables that one attempt to commit makes from those of any other attempt; nothing where they vanish with it."""
        return f"_{uuid4().hex[:12]}" if self._are_apart else ""

    def _run(self, statements: list[ExecutableDDLElement]) -> None:
        # Whatever stays is found again, and a reader that has such a table in use for long is no reason to wait for each of them.
        with suppress(CatalogError):
            for statement in statements:
                self.make(statement)


def attach(connection: Connection, scope: Scope) -> None:
    """Let a connection know the scope of its transaction."""
    connection.info[_SCOPE] = scope


def scope_of(connection: Connection) -> Scope:
    """The scope of the transaction that a connection is in."""
    found: Scope = connection.info[_SCOPE]
    return found


class BesideStatements(PlainStatements):
    """Statements of a transaction that makes tables in a session beside it."""

    def __init__(self, connection: Connection, known: BoundedCache[Hashable, Any], definitions: Definitions) -> None:
        super().__init__(connection, known)
        self._definitions = definitions

    @override
    def define(self, statement: ExecutableDDLElement, undo: ExecutableDDLElement | None = None) -> None:
        if undo is not None:
            scope_of(self.connection).undo.append(undo)
        self._definitions.make(statement)
