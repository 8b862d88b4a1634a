"""New lakes for tests."""

from __future__ import annotations

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress


def lake_of_files(address: LakeAddress) -> DuckLake:
    """A new lake whose rows all go to files, for tests that are about files however few rows they write."""
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.set_option("data_inlining_row_limit", 0)
    return lake
