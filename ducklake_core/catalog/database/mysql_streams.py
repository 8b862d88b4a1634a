"""Results of MySQL that are read as they are wanted, several at once on one connection.

The server sends one result after the other, and the driver forgets what is left of one as soon as another statement is executed. Here what
is left is read into memory first: a single result is never held as a whole, several at once as far as they overlap.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from pymysql.connections import Connection
from pymysql.cursors import SSCursor
from typing_extensions import override


class StreamingCursor(SSCursor):
    """A cursor whose rows come from the server while they are fetched."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self._kept: deque[Any] = deque()

    @override
    def read_next(self) -> Any:
        """The next row, None after the last one."""
        return self._kept.popleft() if self._kept else super().read_next()

    def _query(self, q: Any) -> Any:
        self._kept.clear()
        # The stubs know no private names; this is the one place that every statement of a cursor goes through.
        found = super()._query(q)  # type: ignore[misc]
        connection: Any = self.connection
        connection.streaming = self
        return found

    def keep_rest(self) -> None:
        """Read what is left into memory, so that the connection is free for another statement."""
        while (row := super().read_next()) is not None:
            self._kept.append(row)


class StreamingConnection(Connection):
    """A connection that keeps the rest of a result before it executes another statement."""

    streaming: StreamingCursor | None = None
    """The cursor whose rows are coming, or have come."""

    def _execute_command(self, command: Any, sql: Any) -> Any:
        cursor, self.streaming = self.streaming, None
        # A cursor that was closed has read, and thrown away, what was left.
        if cursor is not None and cursor.connection is not None:
            cursor.keep_rest()
        return super()._execute_command(command, sql)  # type: ignore[misc]
