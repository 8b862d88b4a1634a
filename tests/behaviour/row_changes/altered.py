"""Helpers for tests of alterations that follow writes in one transaction."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.support.parameters import slow

NOT_OLDER = timedelta(0)
FEW = pytest.mark.parametrize("limit", [slow(0), 10])
FILES_ONLY = pytest.mark.parametrize("limit", [0, slow(10)])


def frame(*keys: int, **more: Any) -> pa.Table:
    columns = {"a": pa.array(keys, pa.int32()), "b": pa.array([f"b{key}" for key in keys], pa.string())}
    return pa.table(columns | {name: pa.array([value] * len(keys)) for name, value in more.items()})


def read(table: Any) -> list[str]:
    """Rows of a table, sorted, in the order of its columns."""
    return sorted(repr(tuple(row.values())) for row in table.scan().to_arrow().to_pylist())


def rows_of(duck: Any, table: str = "t") -> list[str]:
    return sorted(map(repr, duck.rows(f"SELECT * FROM {table}")))
