"""Settings of a PostgreSQL session that change values, hide rows or end statements: set on every connection, whatever the server says.

A database, a role, ``PGOPTIONS`` and the address can each set them. One statement sets all of them when a connection is made. A pooler may
give each transaction another session and shares sessions with other clients, so behind one they are set in each transaction, for that
transaction alone.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

SETTINGS = {
    # How values are sent and read as text.
    "client_encoding": "UTF8",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "extra_float_digits": "3",
    "timezone": "UTC",
    "bytea_output": "hex",
    "xmlbinary": "base64",
    "xmloption": "content",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    "array_nulls": "on",
    "transform_null_equals": "off",
    "quote_all_identifiers": "off",
    "standard_conforming_strings": "on",
    "backslash_quote": "safe_encoding",
    # Which objects and rows a statement means. PostgreSQL looks into pg_catalog first where a path does not name it.
    "search_path": "public",
    "gin_fuzzy_search_limit": "0",
    "default_with_oids": "off",
    "restrict_nonsystem_relation_kind": "",
    # How transactions and sessions end.
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "exit_on_error": "off",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "transaction_timeout": "0",
}
"""Values by the names of settings in lower case. Settings that a server does not know are left out."""

_TIMEOUTS = ("statement_timeout", "lock_timeout", "transaction_timeout")
"""Settings that the address or ``PGOPTIONS`` may choose: they end statements, and change no value."""


def _set_all(*, is_local: bool) -> str:
    values = ", ".join(f"('{name}', '{value}')" for name, value in SETTINGS.items())
    timeouts = ", ".join(f"'{name}'" for name in _TIMEOUTS)
    is_chosen = f"known.source OPERATOR(pg_catalog.=) 'client' AND known.name IN ({timeouts})"
    return (
        f"SELECT pg_catalog.count(pg_catalog.set_config(known.name, chosen.setting, {str(is_local).lower()})) "  # noqa: S608 - constants
        f"FROM (VALUES {values}) AS chosen (name, setting) "
        "JOIN pg_catalog.pg_settings AS known ON pg_catalog.lower(known.name) OPERATOR(pg_catalog.=) chosen.name "
        f"WHERE NOT ({is_chosen})"
    )


_OF_SESSION, _OF_TRANSACTION = _set_all(is_local=False), _set_all(is_local=True)


def settle(connection: Any, _record: object) -> None:
    """Set up a new connection, in one round trip.

    A pooler is known by the process that it names for the session, which is not the one that answers. Behind one nothing is set here, and
    no statement is ever prepared.
    """
    connection.autocommit = True
    named = int(connection.info.backend_pid)
    own = f"{_OF_SESSION} AND pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) {named}"
    (process, _) = connection.execute(f"SELECT pg_catalog.pg_backend_pid(), ({own})").fetchone()
    connection.autocommit = False
    if process != named:
        connection.prepare_threshold = None


def is_behind_a_pooler(connection: Any) -> bool:
    """Return whether :func:`settle` found a pooler in front of the server."""
    return connection.prepare_threshold is None


def set_in_transaction(connection: Any, pipeline: Any = None) -> None:
    """Behind a pooler, set up the transaction that has just begun.

    Args:
        connection: psycopg's connection.
        pipeline: Its pipeline, in pipeline mode. The server is waited for when the session's own settings differ from those that the driver
            goes by when it makes text of values and values of text.
    """
    if not is_behind_a_pooler(connection):
        return
    connection.execute(_OF_TRANSACTION)
    known = (connection.pgconn.parameter_status(name) for name in (b"client_encoding", b"DateStyle", b"IntervalStyle"))
    if pipeline is not None and tuple(known) != (b"UTF8", b"ISO, MDY", b"postgres"):
        pipeline.sync()


def has_older_transactions(connection: Connection, since: datetime) -> bool:
    """Return whether another session of the database may have a transaction that began before a time.

    Transactions of other roles count as older if this role may not see when they began.
    """
    query = text(
        "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND backend_type = 'client backend' AND (xact_start < :since OR query = '<insufficient privilege>'))"
    )
    return bool(connection.execute(query, {"since": since}).scalar())
