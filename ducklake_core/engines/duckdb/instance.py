"""An instance of DuckDB that reaches nothing but what it is given."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.types.data_types import INT128, INTERVAL, TIME_NS, TIMETZ, UINT128
from ducklake_core.format.values.time_zones import is_utc, session_zone

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

INEXACT_IN_ARROW = (INT128, UINT128, INTERVAL, TIMETZ, TIME_NS)
"""Types whose values DuckDB changes when it exports them to Arrow; they are exported as strings."""

_SETTINGS = {"enable_external_access": "false", "autoload_known_extensions": "false", "autoinstall_known_extensions": "false"}


def new_instance(zone: str | None = None) -> DuckDBPyConnection:
    """A new in-memory instance that opens no file and loads no extension.

    Args:
        zone: Its time zone, the effective one when None.

    Raises:
        UnsupportedFeatureError: DuckDB is not installed.
    """
    connection: DuckDBPyConnection = require_duckdb().connect(":memory:", config=_SETTINGS)
    _set_zone(connection, zone or session_zone())
    return connection


def _set_zone(connection: DuckDBPyConnection, zone: str) -> None:
    import duckdb

    try:
        connection.execute(f"SET TimeZone = '{zone.replace(chr(39), chr(39) * 2)}'")
    except duckdb.Error as problem:
        # Without its extension icu, DuckDB knows no zones and no casts that need them.
        if not is_utc(zone):
            connection.close()
            message = (
                f"DuckDB does not know the time zone {zone}: {str(problem).splitlines()[0]}; install duckdb-extension-icu, or use 'UTC'"
            )
            raise UnsupportedFeatureError(message, parameter="timezone") from problem


def require_duckdb(otherwise: str | None = None) -> ModuleType:
    """The package, which is no dependency.

    Args:
        otherwise: What needs it, and what does without it.

    Raises:
        UnsupportedFeatureError: It is not installed.
    """
    try:
        return import_module("duckdb")
    except ImportError as error:
        missing = "the package duckdb is not installed: pip install 'ducklake-dagster[duckdb]'"
        message = missing if otherwise is None else f"{otherwise}, or pip install 'ducklake-dagster[duckdb]'"
        raise UnsupportedFeatureError(message, package="duckdb") from error
