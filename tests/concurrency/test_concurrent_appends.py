"""Rows that another writer commits to a slice while it is overwritten are a conflict, unless the overwrite may replace them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import CommitConflictError, UsageError
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import new_address, slow

HOWS: dict[str, dict[str, Any]] = {
    "where": {"where": "k = 1"},
    "partition": {"partitions": [{"k": 1}]},
    "partitions in data": {"partitions": "in_data"},
}
WRITERS: dict[str, Callable[[LakeAddress, Any, int], object]] = {
    "file": lambda address, _, k: DuckLake.connect(address.url).table("t").append(rows((k, 9)), inline=False),
    "inlined": lambda address, _, k: DuckLake.connect(address.url).table("t").append(rows((k, 9)), inline=True),
    "update": lambda address, _, k: DuckLake.connect(address.url).table("t").update({"k": k, "v": 9}, where="k = 3"),
    "DuckDB, file": lambda _, duck, k: duck.run("CALL lake.set_option('data_inlining_row_limit', 0)", f"INSERT INTO t VALUES ({k}, 9)"),
    "DuckDB, inlined": lambda _, duck, k: duck.run("CALL lake.set_option('data_inlining_row_limit', 10)", f"INSERT INTO t VALUES ({k}, 9)"),
}


def rows(*pairs: tuple[int, int]) -> pa.Table:
    return pa.table({"k": pa.array([k for k, _ in pairs], pa.int32()), "v": pa.array([v for _, v in pairs], pa.int32())})


@pytest.fixture(params=[slow("sqlite"), "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> LakeAddress:
    return new_address(request, request.param, tmp_path)


@pytest.mark.parametrize("setting", [slow("fail"), "replace"])
@pytest.mark.parametrize("slice_has_rows", [True, slow(False)], ids=["slice with rows", "empty slice"])
def test_overwrites_meet_appends(address: LakeAddress, slice_has_rows: bool, setting: Any) -> None:
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.create_table("t", pa.schema([("k", pa.int32()), ("v", pa.int32())]), partition_by=["k"])
    start = [(2, 2), (3, 3), *([(1, 1)] if slice_has_rows else [])]
    with attached(address) as duck:
        for how, arguments in HOWS.items():
            for writer, write in WRITERS.items():
                for k in (1, 2):
                    lake.table("t").overwrite(rows(*start), concurrent_appends="replace", inline=False)
                    kept = [(key, value) for key, value in start if key != 1 and (writer != "update" or key != 3)]
                    by_other = [(k, 9)]
                    case = (how, writer, k)
                    tx = lake.transaction()
                    try:
                        with tx:
                            tx.overwrite("t", rows((1, 5)), concurrent_appends=setting, **arguments)
                            write(address, duck, k)
                    except CommitConflictError as conflict:
                        assert setting == "fail", case
                        assert k == 1, case
                        assert conflict.details["unseen_rows"], case
                        assert "concurrent_appends='replace'" in conflict.message
                        expected = [*([(1, 1)] if slice_has_rows else []), *kept, *by_other]
                    else:
                        assert (setting, k) != ("fail", 1), case
                        expected = [*kept, (1, 5), *(by_other if k == 2 else [])]
                    found = sorted((row["k"], row["v"]) for row in lake.table("t").scan().to_arrow().to_pylist())
                    assert found == sorted(expected), case
                    assert duck.rows("SELECT k, v FROM t ORDER BY ALL") == found, case


def test_rows_that_only_moved_to_other_files_are_no_conflict(sqlite_address: LakeAddress) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.write("t", rows((1, 1)), inline=False)
    lake.write("t", rows((1, 2)), inline=True)
    with lake.transaction() as tx:
        tx.overwrite("t", rows((1, 5)), where="k = 1")
        other = DuckLake.connect(sqlite_address.url)
        other.flush_inlined_data("t")
        other.merge_adjacent_files("t")
    assert lake.table("t").scan().to_arrow().to_pylist() == [{"k": 1, "v": 5}]


@pytest.mark.parametrize("inline", [True, False])
def test_rows_that_came_after_the_snapshot_that_was_read_count(sqlite_address: LakeAddress, inline: bool) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.write("t", rows((1, 1), (2, 2)))
    table = lake.table("t")
    read_at = table.snapshot_id
    lake.write("t", rows((2, 3)), inline=inline)
    assert table.overwrite(rows((1, 5)), where="k = 1", read_at=read_at).rows_deleted == 1
    lake.write("t", rows((1, 9)), inline=inline)
    with pytest.raises(CommitConflictError, match="another writer added or changed rows"):
        table.overwrite(rows((1, 6)), where="k = 1", read_at=lake.snapshot().id - 1)
    table.overwrite(rows((1, 7)), where="k = 1", read_at=read_at, concurrent_appends="replace")
    assert sorted(row["v"] for row in lake.table("t").scan().to_arrow().to_pylist()) == [2, 3, 7]


def test_the_setting_belongs_to_overwrites(sqlite_address: LakeAddress) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    with pytest.raises(UsageError, match="concurrent_appends applies only to mode='overwrite'"):
        lake.write("t", rows((1, 1)), concurrent_appends="replace")
    with pytest.raises(UsageError, match="'fail' or 'replace'"):
        lake.write("t", rows((1, 1)), mode="overwrite", concurrent_appends="merge")  # type: ignore[arg-type]
