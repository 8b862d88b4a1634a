"""An instance of DuckDB that reaches nothing but what it is given."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ducklake_core.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SETTINGS = {"enable_external_access": "false", "autoload_known_extensions": "false", "autoinstall_known_extensions": "false"}


def new_instance() -> DuckDBPyConnection:
    """A new in-memory instance that opens no file and loads no extension.

    Raises:
        UnsupportedFeatureError: DuckDB is not installed.
    """
    try:
        duckdb = import_module("duckdb")
    except ImportError as error:
        raise UnsupportedFeatureError("the package duckdb is not installed: pip install 'ducklake-dagster[duckdb]'") from error
    connection: DuckDBPyConnection = duckdb.connect(":memory:", config=_SETTINGS)
    return connection
