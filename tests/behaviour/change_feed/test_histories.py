"""Change feeds of random histories, for many ranges, against DuckDB's own functions and its time travel."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from tests.behaviour.change_feed.histories import History, changes_by_time_travel, last_snapshot, rewrites, within
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import slow
from tests.support.scans import assert_same_rows

_KINDS = {"insertions": ("insert", "update_postimage"), "deletions": ("delete", "update_preimage")}


@pytest.mark.parametrize("seed", [0, *(slow(seed) for seed in range(1, 5))])
def test_every_range_reports_the_changes(lake_address: LakeAddress, seed: int) -> None:
    with attached(lake_address) as duck:
        History(duck, seed).run(24)
        lake = DuckLake.connect(lake_address.url)
        truth = changes_by_time_travel(duck, lake, created=1)
        last = last_snapshot(duck)
        table = lake.table("t")
        for start, end in _ranges(last, seed):
            where = (seed, start, end)
            expected = within(truth, start, end)
            # The feed has the columns of the end of the range; DuckDB's insertions are compared with all of them.
            changes = table.changes(start, end, columns=["snapshot_id", "rowid", "change_type", "a", "s"]).to_arrow()
            assert _rows(changes) == expected, where
            for kind, types in _KINDS.items():
                feed = getattr(table, kind)(start, end, columns=["snapshot_id", "rowid", "a", "s"]).to_arrow()
                assert _rows(feed) == Counter((*row[:2], *row[3:]) for row in expected.elements() if row[2] in types), (kind, where)
            by_duckdb = f"SELECT snapshot_id, rowid, * FROM ducklake_table_insertions('lake', 'main', 't', {start}, {end})"
            moved = ", ".join(map(str, rewrites(duck))) or "-1"
            assert_same_rows(duck, table.insertions(start, end).to_arrow(), f"{by_duckdb} WHERE snapshot_id NOT IN ({moved})")


def _ranges(last: int, seed: int) -> list[tuple[int, int]]:
    every = [(start, end) for start in range(1, last + 1) for end in range(start, last + 1)]
    some = random.Random(seed).sample(every, min(18, len(every)))
    return [(1, last), (last, last), *some]


def _rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))
