"""Selective reads: columns and row groups that are decoded, and the same rows by every reader."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_core import DuckLake
from ducklake_core.engines.arrow import file_reader
from tests.support.oracle import LakeAddress, attached

ROWS = 5000
CONDITIONS = (
    "a = 2346",
    "a >= 990 AND a < 1010",
    "b = 7",
    "b = 7 AND c < 0.5",
    "t = 'no such text'",
    "t IS NULL",
    "rowid = 4321",
    "rowid < 3 OR a > 4990",
    "a + b > 5900",
    "s.x = 11",
)


@pytest.fixture
def lake(lake_address: LakeAddress) -> DuckLake:
    """One file of DuckDB and one of ducklake_core, of row groups of 2,048 and 1,000 rows, with deletes."""
    random = np.random.default_rng(3)
    rows = pa.table(
        {
            "a": np.arange(ROWS),
            "b": random.integers(0, 1000, ROWS),
            "c": random.random(ROWS),
            "t": [None if n % 701 == 0 else f"text {n % 97}" for n in range(ROWS)],
            "s": [{"x": n % 50, "y": [n, n + 1]} for n in range(ROWS)],
        }
    )
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.connection.register("made", rows)
        duck.run("CREATE TABLE t AS FROM made LIMIT 0", "CALL lake.set_option('parquet_row_group_size', '2048')", "INSERT INTO t FROM made")
        lake = DuckLake.connect(lake_address.url)
        lake.set_option("parquet_row_group_size", 1000)
        lake.table("t").append(rows)
        duck.run("DELETE FROM t WHERE a % 13 = 5")
    return lake


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, tuple[str, ...]]]:
    """Row groups and the columns of them that are decoded."""
    found: list[tuple[int, tuple[str, ...]]] = []
    original = file_reader.decoded

    def noting(parquet: Any, groups: list[int], columns: list[str], *rest: Any, **how: Any) -> Any:
        found.extend((group, tuple(columns)) for group in groups)
        return original(parquet, groups, columns, *rest, **how)

    monkeypatch.setattr(file_reader, "decoded", noting)
    return found


@pytest.mark.parametrize("usual", [True, False], ids=["groups by threads", "groups one by one"])
def test_rows_are_duckdbs(lake: DuckLake, lake_address: LakeAddress, monkeypatch: pytest.MonkeyPatch, usual: bool) -> None:
    if not usual:
        monkeypatch.setattr(file_reader, "_GROUP_ROWS", 0)
    with attached(lake_address) as duck:
        for where in CONDITIONS:
            columns = "rowid, a, b, t, s, filename"
            expected = duck.rows(f"SELECT {columns.replace('filename', 'a')} FROM t WHERE {where} ORDER BY rowid")
            found = lake.table("t").scan(columns=columns.split(", "), where=where).to_arrow().sort_by("rowid").to_pylist()
            assert [tuple(row.values())[:5] for row in found] == [row[:5] for row in expected], where
            assert lake.table("t").scan(where=where).count() == len(expected)


def test_other_columns_are_decoded_where_rows_are_found(lake: DuckLake, decoded: list[tuple[int, tuple[str, ...]]]) -> None:
    assert lake.table("t").scan(columns=["c", "t"], where="b = 7 AND a < 900").count() < 20
    decoded.clear()
    rows = lake.table("t").scan(columns=["c", "t"], where="a = 2346").to_arrow()
    assert rows.num_rows == 2
    assert sorted(decoded) == [(1, ("a",)), (1, ("c", "t")), (2, ("a",)), (2, ("c", "t"))]
    decoded.clear()
    assert lake.table("t").scan(columns=["c"], where="t = 'text 5x'").to_arrow().num_rows == 0
    assert {columns for _, columns in decoded} == {("t",)}
    decoded.clear()
    assert lake.table("t").scan(columns=["c"]).to_arrow().num_rows > 0
    assert {columns for _, columns in decoded} == {("c",)}


def test_files_have_page_indexes(lake_address: LakeAddress) -> None:
    """Row groups as DuckDB's, indexes of pages, dictionaries of columns whose values repeat in a row group, if not in its first rows."""
    count = 130_000
    random = np.random.default_rng(5)
    rows = pa.table(
        {
            "id": np.arange(count),
            "price": random.integers(0, 20_000, count) / 100,
            "other": random.random(count),
            "name": pa.array([f"{n}" for n in random.integers(0, 20_000, count)]),
        }
    )
    lake = DuckLake.create(lake_address.url, data_path=lake_address.data_path)
    lake.write("t", rows)
    (path,) = (task.file.path for task in lake.table("t").scan().plan().plan.tasks)
    footer = pq.read_metadata(path)
    assert [footer.row_group(number).num_rows for number in range(footer.num_row_groups)] == [122_880, count - 122_880]
    chunks = {footer.row_group(0).column(n).path_in_schema: footer.row_group(0).column(n) for n in range(4)}
    assert {name for name, chunk in chunks.items() if chunk.has_dictionary_page} == {"price", "name"}
    assert all(chunk.has_offset_index for chunk in chunks.values())
    # Bounds of floats would hide NaN from readers.
    assert {name for name, chunk in chunks.items() if chunk.has_column_index} == {"id", "name"}
    with attached(lake_address) as duck:
        assert duck.rows("SELECT count(*), min(price), max(name) FROM t WHERE id > 122000") == [
            (count - 122_001, min(rows["price"][122_001:].to_pylist()), max(rows["name"][122_001:].to_pylist()))
        ]
