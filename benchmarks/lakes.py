"""Lakes to measure on: DuckDB makes them, as it makes most lakes, and they are opened as a user opens them."""

from __future__ import annotations

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, attached


def new_lake(address: LakeAddress, options: str = "") -> DuckLake:
    """A lake without tables, made by DuckDB.

    Args:
        address: Where.
        options: Of its ``ATTACH``, such as ``ENCRYPTED``.
    """
    with attached(address, options) as duck:
        duck.run("FROM ducklake_snapshots('lake')")
    return DuckLake.connect(address.url)
