"""Tables that come and go with a transaction, also where the database ends a transaction before it makes or drops one.

On MySQL and MariaDB such a statement commits what came before it, and is not taken back. So it never is part of a transaction there
(decision 0079): a table is made in a session of its own, empty and under a name that nobody knows before the COMMIT; a table is dropped
in a session of its own when the COMMIT has made sure that nobody will ask for it again. What a process leaves behind that is killed in
between is an empty or forgotten table, which the next expiry of snapshots removes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection
from sqlalchemy.schema import ExecutableDDLElement
from typing_extensions import override

from ducklake_core.catalog.database.abilities import Abilities
from ducklake_core.catalog.database.failures import classify
from ducklake_core.catalog.database.statements import PlainStatements
from ducklake_core.errors import CatalogError

Beside = Callable[[], AbstractContextManager[Connection]]
"""A session whose statements are committed one by one."""
_SCOPE = "ducklake_definitions"


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

    def statements(self, connection: Connection, known: dict[Hashable, Any]) -> PlainStatements:
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

    def __init__(self, connection: Connection, known: dict[Hashable, Any], definitions: Definitions) -> None:
        super().__init__(connection, known)
        self._definitions = definitions

    @override
    def define(self, statement: ExecutableDDLElement, undo: ExecutableDDLElement | None = None) -> None:
        if undo is not None:
            scope_of(self.connection).undo.append(undo)
        self._definitions.make(statement)
