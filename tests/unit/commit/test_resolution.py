"""Resolution is pure: what staged actions become on a given head."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ducklake_core.catalog.changes import CatalogChange, DeleteRows, InsertRows, UpdateEach
from ducklake_core.catalog.writing.head import Head
from ducklake_core.commit.actions import Action, AppendFiles, CreateTable, MergedFile, MergeFiles
from ducklake_core.commit.request import CommitRequest
from ducklake_core.commit.resolution import Resolution, resolve
from ducklake_core.errors import UsageError
from ducklake_core.format.files.data_files import ColumnStatistics, WrittenFile
from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.state import Snapshot, TableColumnStatistics, TableStatistics
from ducklake_core.format.types.data_types import FLOAT64, INT32, VARCHAR, Field
from ducklake_core.format.types.schema import Schema

TIME = datetime(2024, 1, 1, tzinfo=UTC)
BASE = Snapshot(id=5, time=TIME, schema_version=3, next_catalog_id=9, next_file_id=20)
COLUMNS = Schema(columns=(Field(id=1, name="a", type=INT32), Field(id=2, name="s", type=VARCHAR)))


def file(rows: int = 10, low: str | None = "1", high: str | None = "5", **more: Any) -> WrittenFile:
    values = 0 if low is None and high is None else rows
    statistics = (
        ColumnStatistics(column_id=1, column_size_bytes=40, value_count=values, null_count=rows - values, min_value=low, max_value=high),
        ColumnStatistics(column_id=2, column_size_bytes=40, value_count=rows, null_count=0, min_value="x", max_value="y"),
    )
    return WrittenFile(path="f.parquet", record_count=rows, file_size_bytes=100, footer_size=20, statistics=statistics, **more)


def append(*files: WrittenFile, table_id: int = 7, schema: Schema = COLUMNS, spec: PartitionSpec | None = None) -> AppendFiles:
    return AppendFiles(table_id=table_id, schema=schema, files=files, partition_spec=spec)


def run(*actions: Action, head: Head | None = None) -> Resolution:
    return resolve(CommitRequest(base=BASE, actions=actions, commit_id="c", author="me"), head or Head(snapshot=BASE, now=TIME))


def inserted(resolution: Resolution, table: str) -> list[dict[str, Any]]:
    return [dict(row) for change in resolution.changes if isinstance(change, InsertRows) and change.table == table for row in change.rows]


def of_type(resolution: Resolution, kind: type[CatalogChange]) -> list[Any]:
    return [change for change in resolution.changes if isinstance(change, kind)]


def full_head(next_row_id: int = 100, **column: Any) -> Head:
    a = TableColumnStatistics(table_id=7, column_id=1, contains_null=False, contains_nan=None, min_value="3", max_value="30")
    s = TableColumnStatistics(table_id=7, column_id=2, contains_null=False, contains_nan=None, min_value="b", max_value="c")
    stats = TableStatistics(table_id=7, record_count=90, next_row_id=next_row_id, file_size_bytes=1000)
    return Head(snapshot=BASE, now=TIME, statistics={7: stats}, column_statistics={7: (replace(a, **column), s)})


def test_snapshot_row_comes_first_and_its_changes_last() -> None:
    resolution = run(append(file()))
    assert isinstance(resolution.changes[0], InsertRows)
    assert resolution.changes[0].table == "snapshot"
    assert resolution.changes[-1] == InsertRows(
        table="snapshot_changes",
        rows=({
            "snapshot_id": 6, "changes_made": "inserted_into_table:7", "author": "me", "commit_message": None, "commit_extra_info": None,
        },),
    )  # fmt: skip


def test_column_statistics_that_do_not_move_are_not_written() -> None:
    inside = replace(file(10, "4", "9"), statistics=file(10, "4", "9").statistics[:1])
    resolution = run(append(inside), head=full_head())
    assert of_type(resolution, UpdateEach) == []


def test_first_rows_of_a_table_insert_statistics_for_every_leaf() -> None:
    resolution = run(append(file(10, None, None)))
    assert inserted(resolution, "table_stats") == [{"table_id": 7, "record_count": 10, "next_row_id": 10, "file_size_bytes": 100}]
    rows = {row["column_id"]: row for row in inserted(resolution, "table_column_stats")}
    assert (rows[1]["contains_null"], rows[1]["min_value"], rows[1]["max_value"]) == (True, None, None)
    assert (rows[2]["contains_null"], rows[2]["min_value"]) == (False, "x")


def test_a_missing_column_statistics_row_stays_missing() -> None:
    head = replace(full_head(), column_statistics={})
    resolution = run(append(file()), head=head)
    assert inserted(resolution, "table_column_stats") == []


def test_bounds_that_are_unknown_remove_the_row_instead_of_restarting_it() -> None:
    resolution = run(append(file()), head=full_head(min_value=None, max_value=None))
    assert DeleteRows(table="table_column_stats", where={"table_id": 7, "column_id": (1,)}) in resolution.changes


def test_all_null_batches_keep_the_bounds() -> None:
    (update,) = of_type(run(append(file(10, None, None)), head=full_head()), UpdateEach)
    row = next(row for row in update.rows if row["column_id"] == 1)
    assert (row["contains_null"], row["min_value"], row["max_value"]) == (True, "3", "30")


def test_all_nan_columns_lose_their_bounds_but_keep_the_row() -> None:
    schema = Schema(columns=(Field(id=1, name="a", type=FLOAT64),))
    nan = ColumnStatistics(column_id=1, column_size_bytes=9, value_count=3, null_count=0, contains_nan=True)
    written = WrittenFile(path="f", record_count=3, file_size_bytes=9, footer_size=3, statistics=(nan,))
    (update,) = of_type(run(append(written, schema=schema), head=full_head(contains_nan=False)), UpdateEach)
    assert (update.rows[0]["contains_nan"], update.rows[0]["min_value"]) == (True, None)


def test_merge_replaces_sources_and_keeps_table_statistics() -> None:
    merged = MergedFile(
        sources=((3, "main/t/a", True), (4, "/else/b", False)),
        output=file(20),
        row_id_start=0,
        begin_snapshot=2,
        partial_max=5,
        partition_id=None,
    )
    resolution = run(MergeFiles(table_id=7, schema=COLUMNS, merges=(merged,)))
    (row,) = inserted(resolution, "data_file")
    assert (row["begin_snapshot"], row["partial_max"], row["row_id_start"]) == (2, 5, 0)
    assert {change.table for change in of_type(resolution, DeleteRows)} == {
        "data_file", "file_column_stats", "file_variant_stats", "file_partition_value", "delete_file",
    }  # fmt: skip
    assert inserted(resolution, "table_stats") == []
    assert resolution.snapshot.changes == "inline_flush:7,merge_adjacent:7"
    with pytest.raises(UsageError, match="cannot contain other changes"):
        run(MergeFiles(table_id=7, schema=COLUMNS, merges=(merged,)), append(file()))


@given(
    counts=st.lists(st.integers(1, 50), min_size=1, max_size=6),
    counters=st.tuples(st.integers(0, 1000), st.integers(1, 50), st.integers(8, 90), st.integers(0, 900)),
    creates=st.booleans(),
    next_row=st.integers(0, 10**6),
)
def test_counters_are_dense_and_follow_any_head(
    counts: list[int], counters: tuple[int, int, int, int], *, creates: bool, next_row: int
) -> None:
    snapshot_id, version, catalog_id, file_id = counters
    newest = Snapshot(id=snapshot_id, time=TIME, schema_version=version, next_catalog_id=catalog_id, next_file_id=file_id)
    head = replace(full_head(next_row), snapshot=newest)
    actions: list[Action] = [append(*(file(rows) for rows in counts))]
    if creates:
        actions.append(CreateTable(table_id=-1, schema_id=0, schema_name="main", name="n", uuid="u", path="n/", schema=COLUMNS))
        actions.append(append(file(4), table_id=-1))
    resolution = run(*actions, head=head)
    rows = inserted(resolution, "data_file")
    assert [row["data_file_id"] for row in rows] == list(range(file_id, resolution.snapshot.next_file_id))
    old = [row for row in rows if row["table_id"] == 7]
    ranges = [range(row["row_id_start"], row["row_id_start"] + row["record_count"]) for row in old]
    assert [number for one in ranges for number in one] == list(range(next_row, next_row + sum(counts)))
    after = resolution.snapshot
    assert (after.id, after.schema_version, after.next_catalog_id) == (snapshot_id + 1, version + creates, catalog_id + creates)
    assert all(row["begin_snapshot"] == after.id for row in rows)
