"""Files of Delta Lake and Iceberg that must not be taken over as they are, as the page on these tables states."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.pages import DOCS, blocks
from tests.support.table_formats import DeltaTable, IcebergSchema, OldTables, modules, rows


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OldTables:
    made = OldTables(tmp_path)
    for name, module in modules(made.trips).items():
        monkeypatch.setitem(sys.modules, name, module)
    return made


def take_files(table: str, old: OldTables) -> None:
    """Run the block of the page that takes the files of a table."""
    (code,) = (block for block in blocks(DOCS / "how-to/from-delta-and-iceberg.md", "python") if f'add_data_files("added.{table}"' in block)
    code = code.replace("delta/orders", str(old.orders.path))
    exec(code, {"lake": old.lake, "table": old.trips, "pa": pa, "DeltaTable": DeltaTable})


@pytest.mark.parametrize(("what", "value"), [("deleted", True), ("mapping", "name")])
def test_deletion_vectors_and_column_mapping(what: str, value: object, old: OldTables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeltaTable, what, value)
    with pytest.raises(SystemExit, match="write the rows of orders"):
        take_files("orders", old)


@pytest.mark.parametrize("reason", ["deletes", "renamed", "dropped"])
def test_delete_files_and_other_names(reason: str, old: OldTables) -> None:
    columns = {name: number for number, name in enumerate(rows("city").column_names, 1)}
    if reason == "deletes":
        old.trips.delete_files.add("a file")
    else:
        old.trips.earlier = [IcebergSchema({**columns, "gone": 9} if reason == "dropped" else {**columns, "number": columns["id"]})]
    with pytest.raises(SystemExit, match="write the rows of trips"):
        take_files("trips", old)


def test_directories_of_iceberg_do_not_contain_the_values(old: OldTables) -> None:
    """Read as Hive's they would make ``new+york`` of ``new york``, which is why the page has ``hive_partitioning=False``."""
    files = [task.file.file_path for task in old.trips.plan_files()]
    old.lake.create_table("t", old.trips.schema().as_arrow(), partition_by=["city"])
    old.lake.add_data_files("t", files)
    assert old.lake.table("t").scan(where="id = 2").to_arrow()["city"].to_pylist() == ["new+york"]
