"""Lakes of catalog versions 0.1 to 0.4 are read as they are, as the DuckDB that made them read them, and are not written."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import CatalogCorruptError, CatalogVersionError
from tests.support.old_lakes import VERSIONS, JsonRows, OldLake, changes, old_lake


@pytest.fixture(scope="module")
def json_rows() -> JsonRows:
    return JsonRows()


@pytest.fixture(params=["sqlite", "postgresql"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], OldLake]:
    """Copies a lake of a version, on each catalog database."""
    server = request.getfixturevalue("postgres") if request.param == "postgresql" else None
    return lambda version: old_lake(version, request.param, tmp_path, server)


def _at(lake: DuckLake, name: str, snapshot: int) -> pa.Table:
    table = lake.table(name, at=snapshot)
    return table.scan(columns=[*table.schema.names, "rowid"]).to_arrow()


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_are_those_that_the_old_duckdb_read(version: str, made: Callable[[str], OldLake], json_rows: JsonRows) -> None:
    old = made(version)
    lake = DuckLake.connect(old.address.url)
    assert lake.info.version == version
    assert [snapshot.id for snapshot in lake.snapshots()] == list(old.snapshots)
    for name, expected in old.expected.items():
        for snapshot in changes(expected):
            assert json_rows.of(_at(lake, name, snapshot)) == expected[snapshot], (name, snapshot)
            assert lake.table(name, at=snapshot).scan().count() == len(expected[snapshot].rows), (name, snapshot)
            assert lake.table_info(name, at=snapshot).row_count == len(expected[snapshot].rows), (name, snapshot)


@pytest.mark.parametrize("version", ["0.1", "0.3"])
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
