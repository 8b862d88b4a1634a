"""Long conditions through every public call that takes one, on each catalog database: DuckDB finds the same rows."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.conditions import AnyOf, InIntervals, OneOf
from ducklake_core.errors import UnsupportedFeatureError, UsageError
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import slow, spread

ROWS = 400
LONG = {
    "values": " OR ".join(f"k = {3 * n}" for n in range(1200)),
    "ranges": " OR ".join(f"(k >= {5 * n} AND k < {5 * n + 2})" for n in range(1200)),
    "branches": " OR ".join(f"(k = {n} AND v > {n % 7})" for n in range(500)),
    "columns": " OR ".join(f"(v = {n % 7} AND k < {n})" for n in range(500)),
    "exclusions": " AND ".join(f"k <> {2 * n}" for n in range(1200)),
    "prefixes": " OR ".join(f"s LIKE 'row {n}%'" for n in range(0, 1500, 9)),
}
TOO_LONG = " OR ".join(f"(k = {n} AND v > {n % 7})" for n in range(2501))
DEEP = "(k = 1 AND (v = 2 OR " * 300 + "k = 3" + "))" * 300


@pytest.fixture
def lake(lake_address: LakeAddress) -> DuckLake:
    """Some files, of neighbouring keys each, and some rows in the catalog."""
    lake = DuckLake.create(lake_address.url, data_path=lake_address.data_path)
    for start in range(0, ROWS, 100):
        lake.write("t", rows(range(start, start + 100)))
    lake.write("t", rows(range(ROWS, ROWS + 5)))
    return lake


def rows(keys: range) -> pa.Table:
    columns = {"k": pa.array(keys, pa.int64()), "v": pa.array([k % 11 for k in keys], pa.int32()), "s": [f"row {k}" for k in keys]}
    return pa.table(columns)


def keys_of(data: pa.Table) -> list[int]:
    return sorted(data.column("k").to_pylist())


@pytest.mark.parametrize("name", spread(LONG, 2))
def test_scans(name: str, lake: DuckLake, lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        expected = [k for (k,) in duck.rows(f"SELECT k FROM t WHERE {LONG[name]} ORDER BY 1")]
    assert expected
    assert keys_of(lake.table("t").scan(where=LONG[name]).to_arrow()) == expected
    assert lake.table("t").scan(where=LONG[name]).count() == len(expected)


def test_files_are_left_out(lake: DuckLake) -> None:
    low = " OR ".join(f"(k = {n} AND v > {n % 7})" for n in range(100, 200))
    for condition in (
        low,
        " OR ".join(f"k = {n}" for n in range(100, 200)),
        " OR ".join(f"(k > {n} AND k < {n + 2})" for n in range(100, 190, 2)),
    ):
        assert len(lake.table("t").scan(where=condition).plan().plan.tasks) == 1


def test_changes(lake: DuckLake) -> None:
    before = lake.table("t").snapshot_id
    matching = keys_of(lake.table("t").scan(where=LONG["branches"]).to_arrow())
    assert lake.table("t").update({"v": "v + 100"}, where=LONG["branches"]).rows_updated == len(matching)
    assert sorted({row["k"] for row in lake.table("t").changes(before + 1, where=LONG["values"]).to_arrow().to_pylist()}) == [
        k for k in matching if k % 3 == 0
    ]
    source = rows(range(20))
    merged = (
        lake.table("t").merge(source, on="t.k = s.k").when_matched_update({"v": "0"}, where=" OR ".join(f"s.k = {n}" for n in range(3000)))
    )
    assert merged.execute().rows_updated == 20
    deleted = keys_of(lake.table("t").scan(where=LONG["ranges"]).to_arrow())
    assert lake.table("t").delete(LONG["ranges"]).rows_deleted == len(deleted)
    left = [k for k in range(ROWS + 5) if k not in deleted]
    assert keys_of(lake.table("t").scan().to_arrow()) == left
    replaced = AnyOf(
        conditions=(InIntervals(column="k", intervals=tuple((2 * n, 2 * n + 1) for n in range(3000))), OneOf(column="k", values=()))
    )
    lake.table("t").overwrite(rows(range(0, 10, 2)), where=replaced)
    assert keys_of(lake.table("t").scan().to_arrow()) == sorted([*(k for k in left if k % 2), *range(0, 10, 2)])


@pytest.mark.parametrize("part", [slow("x"), "''", slow("abs( "), slow("é ")], ids=["one word", "quotes", "calls", "words"])
def test_a_string_of_a_megabyte(sqlite_address: LakeAddress, part: str) -> None:
    """Parsing takes time proportional to the length of the string."""
    constant = f"'{part * ((1 << 20) // len(part))}'"
    with DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path) as lake:
        lake.write("t", rows(range(3)))
        lake.sql(f"UPDATE t SET s = {constant} WHERE k = 1")
        assert keys_of(lake.table("t").scan(where=f"s = {constant}").to_arrow()) == [1]
        assert lake.table("t").delete(f"s <> {constant}").rows_deleted == 2


@pytest.mark.parametrize(("where", "message"), [(DEEP, "nested too deeply"), (TOO_LONG, "has 5,002 parts")], ids=["deep", "long"])
def test_conditions_beyond_the_limits_raise_everywhere(lake: DuckLake, where: str, message: str) -> None:
    calls: tuple[Callable[[], object], ...] = (
        lambda: lake.table("t").scan(where=where).to_arrow(),
        lambda: lake.table("t").scan(where=where).plan(),
        lambda: lake.table("t").changes(1, where=where).to_arrow(),
        lambda: lake.table("t").delete(where),
        lambda: lake.table("t").update({"v": 1}, where=where),
        lambda: lake.table("t").overwrite(rows(range(1)), where=where),
    )
    for call in calls:
        with pytest.raises(UsageError, match=message):
            call()
    for call in (
        lambda: lake.table("t").update({"v": "v + " * 3000 + "1"}),
        lambda: lake.table("t").merge(rows(range(1)), on="t.k = s.k").when_matched_delete(where="(" * 31 + "t.k = 1" + ")" * 31).execute(),
        lambda: (
            lake.table("t").merge(rows(range(1)), on=DEEP.replace("k =", "t.k =").replace("v =", "s.v =")).when_matched_delete().execute()
        ),
    ):
        with pytest.raises(UsageError, match="nested too deeply"):
            call()
    assert lake.table("t").scan().count() == ROWS + 5


NESTED = {"parentheses": "(" * 3000 + "k" + ")" * 3000, "calls": "abs(" * 3000 + "k" + ")" * 3000, "NOT": "NOT " * 3000 + "(k = 1)"}


@pytest.mark.parametrize("text", NESTED)
def test_deeply_nested_definitions_are_rejected(lake: DuckLake, text: str) -> None:
    before = lake.snapshot()
    calls: list[Callable[[], object]] = [
        lambda: lake.create_view("v", f"SELECT k FROM t WHERE {NESTED[text]} IS NOT NULL"),
        lambda: lake.create_macro("m", {"k": NESTED[text]}),
        lambda: lake.table("t").set_sorted_by([NESTED[text]]),
    ]
    for define in calls:
        with pytest.raises((UnsupportedFeatureError, UsageError), match="nested too deeply"):
            define()
    assert lake.snapshot() == before
    assert list(lake) == [table.table for table in lake.tables()] == list(lake.at(before.id))
