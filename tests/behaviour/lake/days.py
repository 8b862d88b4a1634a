"""Rows of some days, for tests of the public API."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.oracle import LakeAddress


def rows(start: int, stop: int, day: date = date(2013, 1, 1)) -> pa.Table:
    """Rows whose key counts on, over three days."""
    return pa.table(
        {
            "k": pa.array(range(start, stop), pa.int64()),
            "day": pa.array([day + timedelta(days=k % 3) for k in range(start, stop)], pa.date32()),
            "s": pa.array([f"value {k}" for k in range(start, stop)], pa.string()),
        }
    )


def files_of(address: LakeAddress) -> set[Path]:
    """All Parquet files below the data path of a lake, referenced or not."""
    return set(Path(address.data_path).rglob("*.parquet"))


def keys(duck: Any, table: str = "t", where: str = "true") -> list[int]:
    """The keys of rows, as DuckDB reads them."""
    return [row[0] for row in duck.rows(f"SELECT k FROM {table} WHERE {where} ORDER BY k")]
