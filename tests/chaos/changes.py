"""Rows, conditions and changes, as the writers send them and as the model replays them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

ROW_TABLES = ("plain", "partitioned", "sorted", "inlined")
EVOLVING_TABLES = ("plain", "partitioned", "inlined")
"""Tables to which operations add columns."""
ACCOUNT_TABLES = ("accounts", "savings")
TABLES = (*ROW_TABLES, "keyed", *ACCOUNT_TABLES)
STABLE_ROW_IDS = (*ACCOUNT_TABLES, "sorted")
"""Tables whose rows no operation replaces."""
ACCOUNTS = 12
START_BALANCE = 1000
TOTAL_BALANCE = len(ACCOUNT_TABLES) * ACCOUNTS * START_BALANCE
PARTITIONS = 6

_SCHEMA = pa.schema([("uid", pa.string()), ("k", pa.int64()), ("v", pa.int64()), ("p", pa.int32()), ("note", pa.string())])


class Row(NamedTuple):
    """Values of one row, without its unique id."""

    k: int
    v: int
    p: int
    note: str
    extra: dict[str, int | None]


Rows: TypeAlias = dict[str, Row]
"""Rows by their unique ids."""


class Term(NamedTuple):
    """One comparison. The value of ``%`` is a divisor and a remainder."""

    column: str
    operator: str
    value: Any


Condition: TypeAlias = tuple[Term, ...]
"""Terms that all hold."""


class Assignment(NamedTuple):
    """A new value of one column: an addition to v, an addition to p modulo the number of partitions, or a constant note."""

    column: str
    value: Any

    def sql(self) -> dict[str, str]:
        """Return the assignment as the update method of a table takes it."""
        match self.column:
            case "v":
                return {"v": f"v + {self.value}"}
            case "p":
                return {"p": f"(p + {self.value}) % {PARTITIONS}"}
            case _:
                return {"note": f"'{self.value}'"}

    def apply(self, row: Row) -> Row:
        """Return the updated row."""
        match self.column:
            case "v":
                return row._replace(v=row.v + self.value)
            case "p":
                return row._replace(p=(row.p + self.value) % PARTITIONS)
            case _:
                return row._replace(note=self.value)


@dataclass(frozen=True, slots=True)
class Insert:
    """Insert rows. Extra columns that the table lacks are added."""

    table: str
    rows: Rows


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Delete the rows that match a condition and insert others."""

    table: str
    condition: Condition
    rows: Rows


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the rows that match a condition."""

    table: str
    condition: Condition


@dataclass(frozen=True, slots=True)
class Update:
    """Update the rows that match a condition."""

    table: str
    condition: Condition
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Upsert:
    """Replace the rows that have the same key, ``k`` or ``uid``, and insert the others."""

    table: str
    key: str
    rows: Rows


@dataclass(frozen=True, slots=True)
class Merge:
    """Delete matched rows if the source's v is divisible by 5, update the other matched rows, and insert the rest."""

    table: str
    rows: Rows


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Add a column unless it exists."""

    table: str
    name: str
    default: int | None


@dataclass(frozen=True, slots=True)
class Restore:
    """Restore the rows of an earlier snapshot and keep the columns."""

    table: str
    snapshot: int


@dataclass(frozen=True, slots=True)
class WriteBalances:
    """Write balances that were computed from balances read in the same transaction."""

    table: str
    read: dict[str, int]
    written: dict[str, int]


@dataclass(frozen=True, slots=True)
class DuckDBChange:
    """Delete rows with DuckDB, or add 7 to their v. Contains the uid and v that the transaction read."""

    table: str
    condition: Condition
    read: list[tuple[str, int]]
    deletes: bool


Change: TypeAlias = Insert | Overwrite | Delete | Update | Upsert | Merge | AddColumn | Restore | WriteBalances | DuckDBChange


def generated_rows(tag: str, count: int, partition: int | None = None, extra_column: str | None = None) -> Rows:
    """Return rows that depend only on the arguments."""
    choose = random.Random(tag)
    return {
        f"{tag}#{number}": Row(
            choose.randrange(10**6),
            choose.randrange(1000),
            choose.randrange(PARTITIONS) if partition is None else partition,
            f"n{choose.randrange(50)}",
            {extra_column: choose.randrange(100)} if extra_column else {},
        )
        for number in range(count)
    }


def frame(rows: Rows) -> pa.Table:
    """Return rows as an Arrow table. All rows have the same extra columns."""
    extra = sorted(next(iter(rows.values())).extra) if rows else []
    columns: dict[str, list[Any]] = {"uid": list(rows)}
    columns |= {name: [getattr(row, name) for row in rows.values()] for name in _SCHEMA.names[1:]}
    columns |= {name: [row.extra[name] for row in rows.values()] for name in extra}
    return pa.table(columns, schema=pa.schema([*_SCHEMA, *(pa.field(name, pa.int64()) for name in extra)]))


def equals(column: str, value: Any) -> Condition:
    """Return the condition that a column has a value."""
    return (Term(column, "=", value),)


def sql(condition: Condition) -> str:
    """Return a condition as SQL text."""
    return " AND ".join(_term_sql(term) for term in condition)


def _term_sql(term: Term) -> str:
    match term.operator:
        case "%":
            divisor, remainder = term.value
            return f"{term.column} % {divisor} = {remainder}"
        case "in":
            return f"{term.column} IN ({', '.join(repr(value) for value in term.value)})"
        case operator:
            return f"{term.column} {operator} {term.value!r}"


def matches(condition: Condition, uid: str, row: Row) -> bool:
    """Return True if a row matches a condition."""
    return all(_term_matches(term, uid if term.column == "uid" else getattr(row, term.column)) for term in condition)


def _term_matches(term: Term, value: Any) -> bool:
    match term.operator:
        case "%":
            divisor, remainder = term.value
            return bool(value % divisor == remainder)
        case "in":
            return value in term.value
        case "=":
            return bool(value == term.value)
        case "<":
            return bool(value < term.value)
        case ">=":
            return bool(value >= term.value)
        case "starts with":  # In the model only.
            return bool(value.startswith(term.value))
        case _:
            raise AssertionError(term)
