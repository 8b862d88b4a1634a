"""Feeds over histories that are mostly of other tables: what is read of them does not grow with these."""

from __future__ import annotations

from typing import Any

import pytest

from ducklake_core import DuckLake
from ducklake_core.catalog.reading.reader import CatalogReader
from tests.support.oracle import LakeAddress


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    """Snapshots 1 to 3 and the last two change t, all other snapshots another table."""
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.set_option("data_inlining_row_limit", 0)
    lake.write("t", [{"a": number} for number in range(10)])
    lake.table("t").append([{"a": 10}])
    lake.table("t").delete("a < 2")
    lake.set_option("data_inlining_row_limit", 10)
    for number in range(30):
        lake.write("other", [{"b": number}])
    lake.table("t").delete("a = 4")
    lake.table("t").append([{"a": 11}])
    return lake


def test_snapshots_of_other_tables_are_not_fetched(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[int] = []
    original = CatalogReader.snapshot_of

    def counting(self: CatalogReader, row: Any) -> Any:
        fetched.append(row.snapshot_id)
        return original(self, row)

    newest = lake.snapshot().id
    table = lake.table("t")
    monkeypatch.setattr(CatalogReader, "snapshot_of", counting)
    found = [(row["snapshot_id"], row["a"], row["change_type"]) for row in table.changes(2).to_arrow().to_pylist()]
    assert sorted(found) == [(2, 10, "insert"), (3, 0, "delete"), (3, 1, "delete"), (newest - 1, 4, "delete"), (newest, 11, "insert")]
    assert len(fetched) <= 5, fetched


def test_a_gap_in_the_range_raises_unless_it_is_before_the_table(lake: DuckLake) -> None:
    lake.write("late", [{"c": 1}])
    late = lake.snapshot().id
    lake.write("late", [{"c": 2}])
    lake.expire_snapshots(versions=[10, 11], min_age="0 days")
    assert [row["c"] for row in lake.table("late").insertions(5).to_arrow().to_pylist()] == [1, 2]
    assert lake.table("late").insertions(late).count() == 2
    with pytest.raises(Exception, match=r"snapshot 11 has expired. Begin at snapshot 12"):
        lake.table("t").changes(5).plan()
