"""An instance of DuckDB that reaches nothing but what it is given."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
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
    connection: DuckDBPyConnection = require_duckdb().connect(":memory:", config=_SETTINGS)
    return connection


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
