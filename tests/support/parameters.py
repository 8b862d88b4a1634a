"""Parameters that many tests share: catalog databases, object stores, and which variants are slow."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support.oracle import LakeAddress, file_lake


def slow(*values: Any) -> Any:
    """Return a parameter whose tests are slow."""
    return pytest.param(*values, marks=pytest.mark.slow)


def spread(values: Iterable[Any], count: int) -> list[Any]:
    """Return all values: ``count`` of them, evenly spread from the first, run every time, and the rest are slow."""
    found = list(values)
    kept = {number * len(found) // count for number in range(count)}
    return [value if number in kept else _slow(value) for number, value in enumerate(found)]


def _slow(value: Any) -> Any:
    if isinstance(value, type(pytest.param())):
        return pytest.param(*value.values, marks=[*value.marks, pytest.mark.slow], id=value.id)
    return slow(*value) if isinstance(value, tuple) else slow(value)


def pairwise(*factors: Iterable[Any], allowed: Callable[..., bool] = lambda *_: True) -> list[tuple[Any, ...]]:
    """Return few combinations in which every two values of different factors meet, where a combination of them is allowed."""
    pairs = {made: set(itertools.combinations(enumerate(made), 2)) for made in itertools.product(*factors) if allowed(*made)}
    missing = set().union(*pairs.values())
    found = []
    while missing:
        found.append(max(pairs, key=lambda made: len(pairs[made] & missing)))
        missing -= pairs[found[-1]]
    return found


# DuckDB works on copies of MySQL's catalogs, so that these tests take the longest.
CATALOGS = ["sqlite", "postgresql", "duckdb", slow("mysql")]
SQLITE_THEN_SLOW = ["sqlite", slow("postgresql"), slow("duckdb"), slow("mysql")]
POSTGRESQL_THEN_SLOW = ["postgresql", slow("sqlite"), slow("duckdb"), slow("mysql")]
on_all_catalogs = pytest.mark.parametrize("lake_address", CATALOGS, indirect=True)
on_postgresql = pytest.mark.parametrize("lake_address", POSTGRESQL_THEN_SLOW, indirect=True)
STORES = ["s3", "azure", slow("gcs")]


def new_address(request: pytest.FixtureRequest, kind: str, folder: Path) -> LakeAddress:
    """Return the address of a new lake, with a catalog in a file or on the server of this test run."""
    if kind in ("sqlite", "duckdb"):
        return file_lake(kind, folder)
    found: LakeAddress = request.getfixturevalue({"postgresql": "postgres", "mysql": "mysql"}[kind]).lake(folder)
    return found
