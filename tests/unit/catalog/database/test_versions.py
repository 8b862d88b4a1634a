"""Lakes of catalog versions 0.1 to 0.4 are read as they are, as the DuckDB that made them read them, and are not written."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ducklake_core import DuckLake
from ducklake_core.errors import CatalogError, CatalogVersionError
from tests.support.old_lakes import VERSIONS, JsonRows, OldLake, changes, forget_embedded_snapshots, old_lake, rows_at
from tests.support.parameters import spread


@pytest.fixture(scope="module")
def json_rows() -> JsonRows:
    return JsonRows()


@pytest.fixture(params=["sqlite", "postgresql"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], OldLake]:
    """Copies a lake of a version, on each catalog database."""
    server = request.getfixturevalue("postgres") if request.param == "postgresql" else None
    return lambda version: old_lake(version, request.param, tmp_path, server)


@pytest.mark.parametrize("version", spread(["0.1", "0.3"], 1))
def test_partition_keys_statistics_and_comments(version: str, made: Callable[[str], OldLake]) -> None:
    lake = DuckLake.connect(made(version).address.url)
    parted = lake.table("parted", at=17)
    assert lake.table_info("parted", at=17).partition_by == ("region", "year(on_day)")
    assert lake.table_info("parted").partition_by == ("v",)
    plan = parted.scan(where="region = 'north' AND on_day >= DATE '2024-01-01'").plan().plan
    assert (plan.pruning.files_total, plan.pruning.files_kept) == (4, 1)
    assert sorted(plan.tasks[0].file.partition_values) == [(0, "north"), (1, "2024")]
    assert lake.table("parted").scan(where="v = 7").count() == 1
    plan = lake.table("nested").scan(where="id >= 100").plan().plan
    assert (plan.pruning.files_total, plan.pruning.files_kept) == (2, 1)
    state = lake.table("numbers").state
    assert (state.comment, state.column_comments) == ("plain numbers", {2: "a text"})
    assert sorted(info.table for info in lake.tables()) == sorted(
        ["main.changed", "main.nested", "main.numbers", "main.parted", "other.things", *(["main.small"] if version == "0.3" else [])]
    )


_ROWS = pa.table({"x": [1]})
_WRITES: dict[str, Callable[[DuckLake], Any]] = {
    "append": lambda lake: lake.write("other.things", _ROWS),
    "table.append": lambda lake: lake.table("other.things").append(_ROWS),
    "overwrite": lambda lake: lake.table("other.things").overwrite(_ROWS),
    "delete": lambda lake: lake.table("other.things").delete("x = 1"),
    "transaction": lambda lake: lake.transaction().__enter__(),
    "create_schema": lambda lake: lake.create_schema("s"),
    "drop_table": lambda lake: lake.drop_table("numbers"),
    "set_option": lambda lake: lake.set_option("auto_compact", False),
    "expire_snapshots": lambda lake: lake.expire_snapshots(versions=[1], min_age="0 days"),
    "cleanup_old_files": lambda lake: lake.cleanup_old_files(),
    "merge_adjacent_files": lambda lake: lake.merge_adjacent_files(dry_run=True),
}


def test_every_write_raises_and_recommends_migration(tmp_path: Path) -> None:
    old = old_lake("0.2", "sqlite", tmp_path)
    lake = pickle.loads(pickle.dumps(DuckLake.connect(old.address.url)))
    files, catalog = sorted((tmp_path / "files").rglob("*")), (tmp_path / "catalog.sqlite").read_bytes()
    for name, write in _WRITES.items():
        with pytest.raises(CatalogVersionError, match=r"version 0\.2, .*migrate it to version 1\.0 with lake\.migrate\(\)") as caught:
            write(lake)
        assert caught.value.details == {"found": "0.2", "supported": "1.0"}, name
    assert sorted((tmp_path / "files").rglob("*")) == files
    assert (tmp_path / "catalog.sqlite").read_bytes() == catalog


def test_row_counts_separate_snapshots_of_a_merged_file(tmp_path: Path, json_rows: JsonRows) -> None:
    old = old_lake("0.2", "sqlite", tmp_path)
    forget_embedded_snapshots(old)
    lake = DuckLake.connect(old.address.url)
    for snapshot in changes(old.expected["numbers"]):
        assert json_rows.of(rows_at(lake, "numbers", snapshot)) == old.expected["numbers"][snapshot], snapshot
    found = lake.table("numbers", at=4).scan(columns=["i", "snapshot_id"]).to_arrow().sort_by("i")
    assert found["snapshot_id"].to_pylist() == [2] * 20 + [3] * 21 + [4] * 22


@pytest.mark.parametrize("text", ["2:20|3", "4:20|3:41", "2:20|3:10", "partial_max:", "x"])
def test_impossible_row_counts_raise(tmp_path: Path, text: str) -> None:
    old = old_lake("0.3", "sqlite", tmp_path)
    old.execute(f"UPDATE ducklake_data_file SET partial_file_info = '{text}' WHERE partial_file_info LIKE '2:%'")
    table = DuckLake.connect(old.address.url).table("numbers", at=3)
    with pytest.raises(CatalogError):
        table.scan().to_arrow()


def test_partition_places_count_the_columns_of_their_time(tmp_path: Path) -> None:
    """The table had lost a column before it was partitioned, and loses another one afterwards."""
    old = old_lake("0.1", "sqlite", tmp_path)
    assert old.execute("SELECT partition_id, column_id FROM ducklake_partition_column ORDER BY 1, partition_key_index") == [
        (4, 1),
        (4, 2),
        (5, 3),
    ]
    old.execute("UPDATE ducklake_column SET end_snapshot = 36 WHERE column_name = 'deep' AND table_id = 3")
    old.execute("UPDATE ducklake_column SET end_snapshot = 36 WHERE table_id = 3 AND parent_column = 2")
    lake = DuckLake.connect(old.address.url)
    assert lake.table_info("parted", at=17).partition_by == ("region", "year(on_day)")
    assert lake.table_info("parted").partition_by == ("v",)
    lake.migrate()
    assert lake.table_info("parted", at=17).partition_by == ("region", "year(on_day)")
    assert lake.table_info("parted").partition_by == ("v",)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_spark_reads_them_too(version: str, tmp_path: Path, spark: SparkSession, json_rows: JsonRows) -> None:
    old = old_lake(version, "sqlite", tmp_path)
    lake = DuckLake.connect(old.address.url)
    for name in sorted(old.expected.keys() & {"numbers", "small"}):
        expected = old.expected[name]
        # The merged file, whose rows belong to earlier snapshots, and the newest rows.
        for snapshot in (max(expected), sorted(changes(expected))[2]):
            scan = lake.table(name, at=snapshot).scan(columns=[*expected[snapshot].columns, "rowid"])
            assert json_rows.of(scan.to_spark(spark).toArrow()) == expected[snapshot], (name, snapshot)
