"""Conditions built with ``col`` find the rows that DuckDB finds, in every operation that accepts a condition."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ducklake_core import DuckLake, col
from ducklake_core.conditions import InIntervals, OneOf
from ducklake_core.errors import UsageError
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress, attached

NAN = float("nan")
ROWS = pa.table(
    {
        "id": pa.array(range(8), pa.int32()),
        "text": ["apple", "a%b", None, "Apple", "", "axe", "ä", "zoo"],
        "v": [0.0, NAN, None, -1.5, float("inf"), 2.5, NAN, 1.0],
        "flag": [True, False, None, True, False, None, True, False],
        "day": [date(2020, 1, day) if day != 3 else None for day in range(1, 9)],
        "moment": [datetime(2020, 1, 1, hour, tzinfo=UTC) for hour in range(8)],
        "dec": [Decimal("1.50"), Decimal("2.25"), None, Decimal("0.00"), Decimal("-1.00"), Decimal("9.99"), Decimal("1.50"), None],
        "raw": [b"a", b"\xff", None, b"", b"b", b"c", b"d", b"e"],
        "s": [{"a": n, "odd.name": str(n)} if n % 3 else None for n in range(8)],
    }
)
CONDITIONS = [
    (col("id") > 5, "id > 5"),
    (col("id") != 5, "id <> 5"),
    (col("text") != "axe", "text <> 'axe'"),
    (~(col("text") == "axe"), "NOT text = 'axe'"),
    (col("text").starts_with("a"), "starts_with(text, 'a')"),
    (col("text").starts_with("a%"), "starts_with(text, 'a%')"),
    (~col("text").starts_with(""), "NOT starts_with(text, '')"),
    (col("text").isin(["apple", "ä", "no"]), "text IN ('apple', 'ä', 'no')"),
    (~col("text").isin(["apple"]), "text NOT IN ('apple')"),
    (col("v") == NAN, "v = 'nan'::DOUBLE"),
    (col("v") > 2, "v > 2"),
    (~(col("v") > 2), "NOT v > 2"),
    (col("v").isin([NAN, 1.0]), "v IN ('nan'::DOUBLE, 1.0)"),
    (col("v").is_null(), "v IS NULL"),
    (col("v").is_not_null(), "v IS NOT NULL"),
    (col("v").between(-2, 1), "v BETWEEN -2 AND 1"),
    (col("flag"), "flag"),
    (~col("flag"), "NOT flag"),
    (col("flag") | col("v").is_null(), "flag OR v IS NULL"),
    (col("day").between(date(2020, 1, 2), date(2020, 1, 4)), "day BETWEEN DATE '2020-01-02' AND DATE '2020-01-04'"),
    (col("day") == "2020-01-05", "day = '2020-01-05'"),
    (col("moment") >= datetime(2020, 1, 1, 6, tzinfo=UTC), "moment >= TIMESTAMPTZ '2020-01-01 06:00:00+00'"),
    (col("dec").isin([Decimal("1.5"), 0]), "dec IN (1.5, 0)"),
    (col("raw") == b"\xff", "raw = '\\xFF'::BLOB"),
    (col("s.a") >= 4, "s.a >= 4"),
    (col('s."odd.name"') == "5", "s.\"odd.name\" = '5'"),
    (col("s.a").is_null() & (col("id") < 6), "s.a IS NULL AND id < 6"),
    (col("id") > col("v"), "id > v"),
    ((col("id") > 2) & "length(text) = 3", "id > 2 AND length(text) = 3"),
    (OneOf(column="id", values=(1, 2)), "id IN (1, 2)"),
    (InIntervals(column="id", intervals=((0, 2), (5, 6))), "(id >= 0 AND id < 2) OR (id >= 5 AND id < 6)"),
]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[LakeAddress, DuckLake]:
    from tests.support.oracle import sqlite_lake

    address = sqlite_lake(tmp_path_factory.mktemp("conditions"))
    lake = lake_of_files(address)
    lake.write("t", ROWS.slice(0, 4))
    lake.write("t", ROWS.slice(4))
    lake.write("few", ROWS, inline=True)
    return address, lake


@pytest.mark.parametrize("table", ["t", "few"])
def test_scans_find_what_duckdb_finds(written: tuple[LakeAddress, DuckLake], table: str) -> None:
    address, lake = written
    with attached(address) as duck:
        for built, text in CONDITIONS:
            found = sorted(lake.table(table).scan(columns=["id"], where=built).to_arrow()["id"].to_pylist())
            assert found == [row[0] for row in duck.rows(f"SELECT id FROM {table} WHERE {text} ORDER BY id")], text


def test_every_operation_accepts_them(small: DuckLake, sqlite_address: LakeAddress) -> None:
    small.write("t", ROWS)
    start = small.snapshot().id
    table = small.table("t")
    table.delete(where=col("id") == 0)
    table.update({"text": "'changed'"}, where=col("s.a").isin([1, 2]))
    table.overwrite(ROWS.slice(7), where=col("id") >= 7)
    small.write("t", ROWS.slice(6, 1), mode="overwrite", where=col("id").between(6, 6))
    with small.transaction() as tx:
        tx.delete("t", where=(col("id") == 3) & ~col("flag").is_null())
        assert tx.table("t").scan(where=col("flag")).to_arrow()["id"].to_pylist() == [6]
    feed = small.table("t").changes(start + 1, where=col("id") == 3).to_arrow()
    assert feed["change_type"].to_pylist() == ["delete"]
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT id, text FROM t ORDER BY id") == [
            (1, "changed"), (2, "changed"), (4, ""), (5, "axe"), (6, "ä"), (7, "zoo"),
        ]  # fmt: skip


def test_files_are_left_out_by_them(written: tuple[LakeAddress, DuckLake]) -> None:
    _, lake = written
    for condition in (col("id") > 5, col("id").isin([6, 7]), col("id").between(6, 9), col("text").starts_with("z")):
        assert len(lake.table("t").scan(where=condition).plan().plan.tasks) == 1


@pytest.mark.parametrize("foreign", [pc.field("id") > 5, pc.field("id").isin([1])], ids=str)
def test_conditions_of_other_libraries_raise(written: tuple[LakeAddress, DuckLake], foreign: Any) -> None:
    _, lake = written
    with pytest.raises(UsageError, match=r"where is a pyarrow expression.*ducklake_core\.col"):
        lake.table("t").scan(where=foreign)


def test_a_branch_of_a_merge_takes_sql_text(small: DuckLake) -> None:
    small.write("t", ROWS)
    with pytest.raises(UsageError, match=r"where must be SQL text over t\.column and s\.column"):
        small.table("t").merge(ROWS, on=["id"]).when_matched_delete(where=col("id") > 5)  # type: ignore[arg-type]
