"""Actions on a lake as plain values, so that a history can be printed and replayed, also in part."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

FOLDER, TABLE, ROWS = "$FOLDER", "$TABLE", "$ROWS"
"""Placeholders in SQL: a folder next to the lake's files, the table of a step, and its rows."""


@dataclass(frozen=True, slots=True)
class Sql:
    """A statement of DuckDB."""

    text: str


@dataclass(frozen=True, slots=True)
class Reattach:
    """DuckDB detaches the lake and attaches it again: nothing stays in its memory. So does the library, with ``library``."""

    library: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One change of a table.

    Attributes:
        table: ``schema.table``, quoted as SQL wants it.
        call: Method of a transaction of this library; empty when only DuckDB can make the change.
        sql: The same for DuckDB and for the model, with placeholders.
        arguments: Keyword arguments of the method. Those of ``SQL_VALUES`` are values in SQL.
        rows: SELECT of the rows that are written; DuckDB makes the values.
    """

    table: str
    call: str
    sql: tuple[str, ...]
    arguments: dict[str, Any] = field(default_factory=dict)
    rows: str = ""

    def statements(self, table: str = "", rows: str = "") -> list[str]:
        """Return the SQL with a table and rows put in."""
        return [text.replace(TABLE, table or self.table).replace(ROWS, rows or f"({self.rows})") for text in self.sql]


@dataclass(frozen=True, slots=True)
class Change:
    """One transaction.

    Attributes:
        steps: What it changes, in order.
        by: Who commits. The second implementation commits each step by itself.
        reads: Read each table after each of its steps, inside the transaction.
        breaks: Raise at the end, so that nothing is committed.
        meanwhile: Committed by the other writer before the transaction is.
    """

    steps: tuple[Step, ...]
    by: Literal["library", "second"] = "library"
    reads: bool = False
    breaks: bool = False
    meanwhile: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Restore:
    """The rows of a table become those of an earlier snapshot."""

    table: str
    snapshot: int


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Maintenance by this library.

    Attributes:
        operation: Method of the lake, or ``expiring_checkpoint``.
        options: Keyword arguments.
        by_executors: Run it on Spark, if the history has a session.
        seed: Seed of a transaction that is open meanwhile, and of a hold; None for neither.
    """

    operation: str
    options: dict[str, Any] = field(default_factory=dict)
    by_executors: bool = False
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class SecondUpkeep:
    """Maintenance by the second implementation."""

    operation: Literal["flush", "merge", "rewrite", "expire"]
    versions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Special:
    """``save`` the catalog, ``put back`` what was saved (ids since are given out again), or ``migrate`` to the next version."""

    what: Literal["save", "put back", "migrate"]


Action: TypeAlias = Sql | Reattach | Change | Restore | Upkeep | SecondUpkeep | Special


def script(actions: list[Action]) -> str:
    """Return a history as Python code that :func:`tests.property.histories.play.replay` takes."""
    return "[\n" + "".join(f"    {action!r},\n" for action in actions) + "]"
