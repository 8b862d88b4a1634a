"""A catalog that is migrated between the plan and the run of an operation gives one error for the lake, not one for each table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake, Progress
from ducklake_core.errors import CatalogVersionError
from tests.behaviour.maintenance.lakes import NOW, files_on_disk
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress
from tests.support.parameters import spread

OPERATIONS: dict[str, Callable[[DuckLake, Callable[[Progress], object]], Any]] = {
    "merge": lambda lake, to: lake.merge_adjacent_files(progress=to),
    "merge, group by group": lambda lake, to: lake.merge_adjacent_files(partial_progress=True, progress=to),
    "rewrite": lambda lake, to: lake.rewrite_data_files(delete_threshold=0, progress=to),
    "flush": lambda lake, to: lake.flush_inlined_data(progress=to),
    "expire": lambda lake, to: lake.expire_snapshots(older_than=NOW, min_age=NOW, progress=to),
    "orphans": lambda lake, to: lake.delete_orphaned_files(cleanup_all=True, min_age=NOW, progress=to),
    "checkpoint": lambda lake, to: lake.checkpoint(progress=to),
    "check": lambda lake, to: lake.check(level="rows", progress=to),
}

MERGES = ("merge", "merge, group by group")
"""These merge small tables together, for one commit."""


@pytest.mark.parametrize("operation", spread(OPERATIONS, 4))
def test_one_error_for_the_lake(sqlite_address: LakeAddress, operation: str) -> None:
    lake = lake_of_files(sqlite_address)
    for name in ("a", "b", "c"):
        for start in (0, 100):
            lake.write(name, pa.table({"n": range(start, start + 20)}))
        if operation == "rewrite":
            lake.table(name).delete("n >= 110")
        lake.set_option("data_inlining_row_limit", 10, table=name)
        lake.write(name, pa.table({"n": [1]}))
    before, newest, other = files_on_disk(sqlite_address), lake.snapshot().id, DuckLake.connect(sqlite_address.url)
    reported: list[Progress] = []

    def migrate(progress: Progress) -> None:
        reported.append(progress)
        if len(reported) == 1:
            other.migrate("1.1")

    with pytest.raises(CatalogVersionError, match="open the lake again"):
        OPERATIONS[operation](lake, migrate)
    if operation not in MERGES:
        assert len({one.table for one in reported} - {None}) <= 1, "no second table was begun"
    assert files_on_disk(sqlite_address) == before
    assert other.snapshot().id <= newest + 1
    assert all(other.table(name).scan().count() == (31 if operation == "rewrite" else 41) for name in ("a", "b", "c"))
    lake.close()
    again = DuckLake.connect(sqlite_address.url)
    OPERATIONS[operation](again, lambda progress: None)
    assert again.check(level="rows").is_sound
    again.close()
    other.close()
