"""Prove that a list of rows is complete, for operations that delete everything that the list does not name.

A server, a proxy or a driver may silently cut a result (sql_select_limit, row security policies). For a sweep of orphaned files, a cut list
of known files means lost data. So rows are counted by the database and by this library, and the counts must agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Row, Select, Table, func, literal, select

from ducklake_core.errors import CatalogError


def complete_rows(connection: Connection, query: Select[Any], what: str, *, at_once: int = 2000) -> Iterator[Row[Any]]:
    """Yield all rows of a query, and raise an error at the end if they are fewer than the database counts.

    Only a caller that consumes every row gets the proof.

    Args:
        connection: An open transaction. If it sees commits of other writers, additional rows are not an error.
        query: The query.
        what: Description of the rows, for the message.
        at_once: Number of rows to fetch at a time, default 2,000.

    Raises:
        CatalogError: The database returned fewer rows than it counts.
    """
    disable_row_security(connection)
    counted = _count(connection, query)
    given = 0
    with connection.execute(query, execution_options={"yield_per": at_once}) as rows:
        for row in rows:
            given += 1
            yield row
    _check_count(connection, query, given, counted, what)


def check_complete(connection: Connection, table: Table, given: int, what: str) -> None:
    """Check that a table has no more rows than were read in the same transaction.

    Args:
        connection: The transaction.
        table: The table.
        given: Number of rows that were read.
        what: Description of the rows, for the message.

    Raises:
        CatalogError: The table has more rows.
    """
    query = select(literal(1)).select_from(table)
    disable_row_security(connection)
    _check_count(connection, query, given, _count(connection, query), what)


def disable_row_security(connection: Connection) -> None:
    """Make PostgreSQL raise an error if a row security policy would hide rows, until the transaction ends."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SELECT pg_catalog.set_config('row_security', 'off', true)")


def _check_count(connection: Connection, query: Select[Any], given: int, counted: int | None, what: str) -> None:
    if counted is not None and given >= counted:
        return
    # Another transaction may have deleted rows between the count and the list, so count again.
    again = _count(connection, query)
    if counted is not None and again is not None and given >= again:
        return
    raise CatalogError(
        f"The catalog returned {given:,} of {'an unknown number of' if counted is None else f'{counted:,}'} {what}, so nothing was "
        "deleted: a setting of the server, of a proxy or of the driver limits the rows of an answer (sql_select_limit of MySQL and "
        "MariaDB is one). Remove that limit, and run the operation again",
        given=given,
        counted=counted,
    )


def _count(connection: Connection, query: Select[Any]) -> int | None:
    found = connection.execute(select(func.count()).select_from(query.order_by(None).subquery())).scalar()
    return found if isinstance(found, int) else None
