"""Defects of DuckDB that histories avoid, each with its cause and a proof that it still exists.

Two more are never met because histories compare rows without conditions first, and apply conditions to a copy of those rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import duckdb


class ReferenceBrokeError(Exception):
    """The oracle is of no further use in this history."""


@dataclass(frozen=True)
class Divergence:
    """A wrong answer of DuckDB.

    Attributes:
        cause: What DuckDB does.
        avoided: How histories stay clear of it.
        statements: The shortest history that shows it.
        query: A query of table ``t``, ...
        right: ... the right answer to it, ...
        scan: ... and the scan of the library that answers it; None where no reader can.
    """

    cause: str
    avoided: str
    statements: tuple[str, ...]
    query: str
    right: list[tuple[object, ...]]
    scan: dict[str, object] | None = None
    at: int | None = None


DIVERGENCES: dict[str, Divergence] = {
    "alter and rename in one transaction": Divergence(
        cause="the columns of a table that one transaction alters and renames are written twice; no session can load the lake again",
        avoided="no table is renamed within a transaction",
        statements=(
            "CREATE TABLE u (a INTEGER, b INTEGER)", "INSERT INTO u VALUES (1, 2)", "BEGIN", "ALTER TABLE u RENAME COLUMN b TO c",
            "ALTER TABLE u RENAME TO t", "COMMIT",
        ),
        query="SELECT a, c FROM t",
        right=[(1, 2)],
    ),
    "dates in inlined structs": Divergence(
        cause="structs are inlined as SQL text, which the cast that reads them does not understand",
        avoided="structs have children only of types that survive",
        statements=("CREATE TABLE t (s STRUCT(d DATE))", "INSERT INTO t VALUES ({'d': DATE '2024-01-02'})"),
        query="SELECT s.d::VARCHAR FROM t",
        right=[("2024-01-02",)],
    ),
    "quotes in inlined structs": Divergence(
        cause="quotes are doubled as in SQL, and the cast that reads them drops both",
        avoided="strings in structs have none",
        statements=("CREATE TABLE t (s STRUCT(v VARCHAR))", "INSERT INTO t VALUES ({'v': 'it''s'})"),
        query="SELECT s.v FROM t",
        right=[("it's",)],
    ),
    "booleans that become integers": Divergence(
        cause="the table's bounds of inlined booleans stay 'false' and 'true', which no integer is read from",
        avoided="no boolean is promoted",
        statements=("CREATE TABLE t (a BOOLEAN)", "INSERT INTO t VALUES (false), (true)", "ALTER TABLE t ALTER a TYPE INTEGER"),
        query="SELECT a FROM t ORDER BY a",
        right=[(0,), (1,)],
        scan={},
    ),
    "equality under a new bucket key": Divergence(
        cause="files of another partition spec have no bucket, and are left out",
        avoided="conditions are applied to a copy of the rows",
        statements=(
            "CREATE TABLE t (a INTEGER)",
            "INSERT INTO t SELECT i FROM range(20) r(i)",
            "ALTER TABLE t SET PARTITIONED BY (bucket(4, a))",
        ),
        query="SELECT a FROM t WHERE a = 7",
        right=[(7,)],
        scan={"where": "a = 7"},
    ),
    "time travel over a rewrite": Divergence(
        cause="a rewrite narrows the table's bounds to the rows that are left, and earlier snapshots are filtered by them",
        avoided="conditions are applied to a copy of the rows",
        statements=(
            "CREATE TABLE t (a INTEGER)",
            "INSERT INTO t SELECT i FROM range(40) r(i)",
            "DELETE FROM t WHERE a > 15",
            "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.0)",
        ),
        query="SELECT a FROM t AT (VERSION => 2) WHERE a = 30",
        right=[(30,)],
        scan={"where": "a = 30"},
        at=2,
    ),
}  # fmt: skip

BREAKDOWNS: tuple[tuple[str, str], ...] = (
    (r"Failed to bind column reference .* inequal types", "flushes a table that is sorted by a column which was retyped"),
    (r"Vector::Reference used on vector of different type", "changes inlined rows by a condition on a column that the session has retyped"),
)
"""Patterns of errors after which the oracle has to be left alone, with their causes."""
READ_FAILURES: tuple[tuple[str, str], ...] = (
    (r"does not exist at version \d+", "looks for tables at a snapshot that made a table of inlined rows for a table without one"),
)
"""Patterns of errors of the oracle on its own data, with their causes."""


def reference_failure(error: duckdb.Error, what: str, *, reading: bool = False) -> None:
    """Pass what is known; raise :class:`ReferenceBrokeError` when the oracle cannot go on, and the error itself when it is news."""
    text = str(error)
    if any(re.search(pattern, text) for pattern, _ in BREAKDOWNS):
        raise ReferenceBrokeError(f"{what}: {text}") from error
    if isinstance(error, (duckdb.InternalException, duckdb.FatalException)):
        raise error
    if reading and not any(re.search(pattern, text) for pattern, _ in READ_FAILURES):
        raise error
