"""New lakes for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress


def lake_of_files(address: LakeAddress) -> DuckLake:
    """A new lake whose rows all go to files, for tests that are about files however few rows they write."""
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.set_option("data_inlining_row_limit", 0)
    return lake


@contextmanager
def held_open(lake: DuckLake) -> Iterator[None]:
    """A catalog in a DuckDB file stays open for all that reads it, where otherwise each transaction opens it."""
    if lake.database.address.url.get_backend_name() != "duckdb":
        yield
        return
    with lake.database.read():
        yield
