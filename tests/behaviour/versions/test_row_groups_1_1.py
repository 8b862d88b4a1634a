"""Row groups that a catalog of version 1.1 counts: large files are read in as many parts at most, and always whole."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.engines.arrow.read import read_task
from ducklake_core.engines.spark import tasks
from tests.support.ducklakepy_lake import new_lake, stored
from tests.support.oracle import LakeAddress
from tests.support.parameters import spread

_ROWS = 4_000


@pytest.fixture
def lake(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> DuckLake:
    """A file of ten row groups, with deletes in a file and in the catalog; kilobytes stand for megabytes."""
    monkeypatch.setattr(tasks, "_BUNDLE_BYTES", 2000)
    monkeypatch.setattr(tasks, "_OPEN_BYTES", 500)
    lake = new_lake(sqlite_address)
    lake.set_option("parquet_row_group_size", _ROWS // 10)
    lake.write("t", pa.table({"a": pa.array(range(_ROWS), pa.int64()), "s": [f"{i % 97}" for i in range(_ROWS)]}))
    lake.table("t").delete("a % 7 = 3")
    lake.table("t").delete("a in (0, 2345, 3999)")
    assert stored(lake, "data_file", "row_group_count") == [(10,)]
    return lake


def _read(lake: DuckLake, where: str | None) -> tuple[int, list[tuple[object, ...]]]:
    """Parts, and the rows of them in order."""
    columns = ["a", "s", "rowid", "file_row_number"]
    plan = lake.table("t").scan(columns=columns, where=where).plan().plan
    parts = tasks.split_tasks(plan.tasks)
    batches = [batch for part in parts for batch in read_task(part, plan.shape, lake.storage)]
    return len(parts), [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("where", spread([None, "a BETWEEN 790 AND 810 OR s = '96'", "a = 2345"], 1))
def test_parts_hold_every_row_once(lake: DuckLake, sqlite_address: LakeAddress, where: str | None) -> None:
    whole = lake.table("t").scan(columns=["a", "s", "rowid", "file_row_number"], where=where).to_arrow()
    wanted = [tuple(row.values()) for row in whole.to_pylist()]
    for counted, most in ((10, 10), (None, 100), (3, 3), (1, 1)):
        with lake.database.write() as connection:
            connection.execute(lake.database.tables["data_file"].update().values(row_group_count=counted))
        parts, found = _read(DuckLake.connect(sqlite_address.url), where)
        assert found == wanted, counted
        assert (parts == most) if most <= 10 else (10 < parts < most), counted
