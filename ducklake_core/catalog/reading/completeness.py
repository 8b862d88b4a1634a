"""Prove that a list of rows is complete, for operations that delete what the list does not name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Row, Select, Table, func, literal, select

from ducklake_core.errors import CatalogError


def complete_rows(connection: Connection, query: Select[Any], what: str, *, at_once: int = 2000) -> Iterator[Row[Any]]:
    """Yield all rows of a query, and raise at the end when there were fewer than the database counts.

    The proof needs every row to be taken: whoever stops before has none.

    Args:
        connection: An open transaction. Where it sees what others commit meanwhile, further rows are no error.
        query: The query.
        what: What the rows are, for the message.
        at_once: How many rows are fetched at a time.

    Raises:
        CatalogError: There are more rows than the database gave.
    """
    show_every_row(connection)
    counted = _count(connection, query)
    given = 0
    with connection.execute(query, execution_options={"yield_per": at_once}) as rows:
        for row in rows:
            given += 1
            yield row
    _check_count(connection, query, given, counted, what)


def check_complete(connection: Connection, table: Table, given: int, what: str) -> None:
    """Raise when a table has more rows than were read of it in the same transaction.

    Raises:
        CatalogError: It has.
    """
    query = select(literal(1)).select_from(table)
    show_every_row(connection)
    _check_count(connection, query, given, _count(connection, query), what)


def show_every_row(connection: Connection) -> None:
    """Let PostgreSQL raise an error where a row security policy would hide rows, until the transaction ends."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SELECT pg_catalog.set_config('row_security', 'off', true)")


def _check_count(connection: Connection, query: Select[Any], given: int, counted: int | None, what: str) -> None:
    if counted is not None and given >= counted:
        return
    # Rows that another transaction deletes between the count and the list are missing from the list alone.
    again = _count(connection, query)
    if counted is not None and again is not None and given >= again:
        return
    raise CatalogError(
        f"the catalog answered with {given:,} of {'an unknown number of' if counted is None else f'{counted:,}'} {what}, so nothing was "
        "deleted: a setting of the server, of a proxy or of the driver limits the rows of an answer (sql_select_limit of MySQL and "
        "MariaDB is one). Remove that limit, and run the operation again",
        given=given,
        counted=counted,
    )


def _count(connection: Connection, query: Select[Any]) -> int | None:
    found = connection.execute(select(func.count()).select_from(query.order_by(None).subquery())).scalar()
    return found if isinstance(found, int) else None
