"""Counts of tables of many files come from one sum of the catalog, unless deletes or a condition need a plan."""

from __future__ import annotations

import pytest

from ducklake_core import DuckLake, scan
from ducklake_core.catalog.reading import files


def test_a_count_without_a_plan(small: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        small.write("t", [{"n": number}, {"n": 10 + number}], inline=False)
    small.write("t", [{"n": 20}])
    at = small.snapshot().id
    planned: list[object] = []
    plan_scan = scan.plan_scan
    monkeypatch.setattr(scan, "plan_scan", lambda *args, **kwargs: planned.append(args) or plan_scan(*args, **kwargs))
    monkeypatch.setattr(files, "FEW_FILES", 100)
    counted = small.table("t").scan
    assert (counted().count(), len(planned)) == (7, 1)
    monkeypatch.setattr(files, "FEW_FILES", 2)
    assert (counted().count(), counted(limit=5).count(), len(planned)) == (7, 5, 1)
    assert (counted(where="n >= 10").count(), len(planned)) == (4, 2)
    with small.transaction() as tx:
        tx.append("t", [{"n": 21}])
        assert (tx.table("t").scan().count(), len(planned)) == (8, 3)
    small.table("t").delete("n = 0")
    small.table("t").delete("n = 20")
    assert (small.table("t").scan().count(), len(planned)) == (6, 4)
    small.merge_adjacent_files(tables="t")
    assert small.table("t").scan().count() == 6
    assert small.table("t", at=at).scan().count() == 7
