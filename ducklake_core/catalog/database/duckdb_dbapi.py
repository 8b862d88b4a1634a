"""DuckDB files behind the connections and cursors that SQLAlchemy expects.

The package's own connection cannot be used as it is: its cursors are connections with transactions of their own, and a file stays
locked for as long as one is open. Here all cursors work in the connection's one transaction, and the file is held only for that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ducklake_core.catalog.database.duckdb_file import Lease

_INTERRUPTED = "Query interrupted"


def _run(connection: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a connection of DuckDB, which puts an error of its own in the place of what a signal's handler raises, and works on."""
    try:
        return function(*arguments)
    except RuntimeError as error:
        if str(error) != _INTERRUPTED:
            raise
        # Whoever closes the connection would wait for its threads.
        connection.interrupt()
        raise KeyboardInterrupt from error


class FileConnection:
    """A connection to a file that is opened when a transaction begins and given up when it ends."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._write = False
        self._patience = 0.0
        self._lease: Lease | None = None

    def intend(self, *, write: bool, patience: float) -> None:
        """Set whether the next transaction writes, and how many seconds it may wait for the file."""
        self._write = write
        self._patience = patience

    def begin(self) -> None:
        """Open the file and start a transaction."""
        self._lease = Lease(self._path, write=self._write, patience=self._patience)
        _run(self._lease.connection, self._lease.connection.execute, "BEGIN TRANSACTION")

    def commit(self) -> None:
        """Commit and give the file up, whatever the outcome."""
        self._end("COMMIT")

    def rollback(self) -> None:
        """Undo everything and give the file up; without a transaction there is nothing to do."""
        self._end("ROLLBACK")

    def close(self) -> None:
        """Give the file up; what was not committed is undone with it."""
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.end()

    def cursor(self) -> Cursor:
        """A cursor in the connection's transaction."""
        return Cursor(self)

    @property
    def inside(self) -> Any:
        """DuckDB's own connection, while a transaction runs."""
        assert self._lease is not None, "statements need a transaction"
        return self._lease.connection

    def _end(self, statement: str) -> None:
        if self._lease is None:
            return
        try:
            _run(self._lease.connection, self._lease.connection.execute, statement)
        finally:
            self.close()


class Cursor:
    """One statement at a time; its rows are fetched at once, because the next statement of the transaction would discard them."""

    arraysize = 1

    def __init__(self, connection: FileConnection) -> None:
        self._connection = connection
        self._rows: deque[tuple[Any, ...]] = deque()
        self.description: list[tuple[Any, ...]] | None = None
        self.rowcount = -1

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> None:
        """Run a statement."""
        inside = self._connection.inside
        _run(inside, inside.execute, statement, list(parameters))
        self.description = inside.description or None
        self._rows = deque(_run(inside, inside.fetchall) if self.description else ())

    def executemany(self, statement: str, parameters: Sequence[Sequence[Any]]) -> None:
        """Run a statement that returns nothing once for each list of parameters."""
        inside = self._connection.inside
        _run(inside, inside.executemany, statement, [list(values) for values in parameters])
        self.has_no_rows()

    def has_no_rows(self) -> None:
        """Forget the count that DuckDB returns as a row after a statement that changes rows."""
        self.description = None
        self._rows.clear()

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row."""
        return self._rows.popleft() if self._rows else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Up to so many further rows."""
        return [self._rows.popleft() for _ in range(min(size or self.arraysize, len(self._rows)))]

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All further rows."""
        rows = list(self._rows)
        self._rows.clear()
        return rows

    def close(self) -> None:
        """Forget the rows."""
        self._rows.clear()
