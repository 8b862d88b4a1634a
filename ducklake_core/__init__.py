"""DuckLake in Python: catalog, commits, scans and maintenance, with Arrow in this process or on Spark.

Importing this package imports neither pyspark nor SQLAlchemy; names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ducklake_core.catalog.state import Snapshot as Snapshot
    from ducklake_core.format.schema import Schema as Schema
    from ducklake_core.lake import DuckLake as DuckLake
    from ducklake_core.results import ColumnSummary as ColumnSummary
    from ducklake_core.results import TableInfo as TableInfo
    from ducklake_core.results import TransactionResult as TransactionResult
    from ducklake_core.results import WriteResult as WriteResult
    from ducklake_core.table import Table as Table
    from ducklake_core.transaction import Transaction as Transaction

_EXPORTS = {
    "ColumnSummary": "ducklake_core.results",
    "DuckLake": "ducklake_core.lake",
    "Schema": "ducklake_core.format.schema",
    "Snapshot": "ducklake_core.catalog.state",
    "Table": "ducklake_core.table",
    "TableInfo": "ducklake_core.results",
    "Transaction": "ducklake_core.transaction",
    "TransactionResult": "ducklake_core.results",
    "WriteResult": "ducklake_core.results",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> object:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
