"""Nothing but a DuckLakeError leaves a public call, whatever the catalog holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError
from tests.property.arguments.surface import FEW
from tests.property.hostile_catalogs.edits import EDITS, SQLITE_EDITS, Edit
from tests.property.hostile_catalogs.spoiled import SpoiledLake
from tests.support.oracle import LakeAddress
from tests.support.parameters import spread

_READS = (
    "snapshots",
    "schemas",
    "tables",
    "views",
    "macros",
    "options",
    "scoped_options",
    "settings",
    "table_info",
    "has_table",
    "snapshot",
)


def _every_read(lake: DuckLake) -> Iterator[Any]:
    """Thunks of everything that reads, and then of some writes."""
    for name in _READS:
        arguments = ("t",) if name in ("table_info", "has_table") else ()
        yield lambda name=name, arguments=arguments: getattr(lake, name)(*arguments)
    yield lambda: lake.find_commit("c-1")
    yield lambda: lake.table("t").list_files()
    yield lambda: (lake.table("t").info(), lake.table("t").tags(), lake.table("t").column_tags(), lake.table("t").snapshots())
    yield lambda: (lake.table("t").options, lake.table("t").column_summaries(), lake.table("t").refresh())
    yield lambda: str(lake.table("t").scan(where="a > 3").plan())
    yield lambda: lake.table("t").scan(where="a > 3 AND b <> 'x'").to_arrow()
    yield lambda: lake.table("t").scan(columns=["rowid", "snapshot_id", "filename"]).to_arrow()
    yield lambda: lake.table("t").scan().count()
    yield lambda: lake.table("t").changes(1).to_arrow()
    yield lambda: lake.table("t").deletions(1).to_arrow()
    yield lambda: lake.expire_snapshots(older_than="0 days", min_age="0 days", dry_run=True)
    yield lambda: lake.cleanup_old_files(older_than="0 days", min_age="0 days", dry_run=True)
    yield lambda: lake.delete_orphaned_files(older_than="0 days", min_age="0 days", dry_run=True)
    yield lambda: lake.merge_adjacent_files(dry_run=True)
    yield lambda: lake.checkpoint(dry_run=True)
    yield lambda: lake.migrate(dry_run=True)
    yield lambda: (lake.health(), lake.health().to_openmetrics(), lake.health().to_arrow())
    yield lambda: lake.check(level="rows").to_arrow()
    yield lambda: lake.table("t").delete("a = 1", commit_id="c-2")
    yield lambda: lake.table("t").update({"b": "'z'"}, where="a = 5")
    yield lambda: lake.table("t").append(lake.table("t").scan().to_arrow())
    yield lambda: lake.table("t").add_column("fresh", "int")
    yield lambda: lake.merge_adjacent_files("t")
    yield lambda: lake.rewrite_data_files("t", delete_threshold=0)
    yield lambda: lake.flush_inlined_data("t")
    yield lambda: lake.expire_snapshots(older_than="0 days", min_age="0 days")
    yield lambda: lake.cleanup_old_files(older_than="0 days", min_age="0 days")
    yield lambda: lake.check(level="footers", repair=True)


_DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000
_MORE = (
    Edit("deep extra_info", (f"UPDATE ducklake_snapshot_changes SET commit_extra_info = '{_DEEP}'",)),
    Edit("digits in extra_info", (f"UPDATE ducklake_snapshot_changes SET commit_extra_info = '{{\"a\": {'9' * 6000}}}'",)),
    Edit("changes that are none", ("UPDATE ducklake_snapshot_changes SET changes_made = 'nonsense:\"x'",)),
    Edit("changes of huge ids", (f"UPDATE ducklake_snapshot_changes SET changes_made = 'inserted_into_table:{'9' * 6000}'",)),
    Edit("a huge age", ("INSERT INTO ducklake_metadata VALUES ('delete_older_than', '99999999999 years', NULL, NULL)",)),
    Edit("an option that is none", ("INSERT INTO ducklake_metadata VALUES ('target_file_size', 'big', NULL, NULL)",)),
    Edit("a deep type", (f"UPDATE ducklake_column SET column_type = '{'decimal(' * 3000}' WHERE table_id = 1 AND column_id = 1",)),
    Edit("a huge decimal", (f"UPDATE ducklake_column SET column_type = 'decimal({'9' * 6000},0)' WHERE table_id = 1 AND column_id = 1",)),
    Edit("names of nothing", ("UPDATE ducklake_table SET table_name = ''", "UPDATE ducklake_schema SET schema_name = ''")),
    Edit(
        "a view of nonsense",
        ("INSERT INTO ducklake_view VALUES (50, '00000000-0000-0000-0000-000000000000', 1, NULL, 0, 'w', 'duckdb', 'SELECT ((((', NULL)",),
    ),
    Edit(
        "a sort key of nonsense",
        (
            "INSERT INTO ducklake_sort_info VALUES (7, 1, 1, NULL)",
            "INSERT INTO ducklake_sort_expression VALUES (7, 1, 0, '((((', 'duckdb', 'ASC', 'NULLS_LAST')",
        ),
    ),
)


def _hold(lake: SpoiledLake, edit: Edit) -> None:
    lake.edit(*edit.statements)
    try:
        opened = DuckLake.connect(lake.address.url)
    except DuckLakeError:
        return
    try:
        for work in _every_read(opened):
            try:
                str(work())
            except DuckLakeError as error:
                str(error)
    finally:
        opened.close()


@pytest.mark.parametrize("edit", spread(_MORE, 3), ids=lambda edit: edit.name)
def test_hostile_catalogs(edit: Edit, spoiled: SpoiledLake) -> None:
    _hold(spoiled, edit)


@pytest.mark.slow
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_every_edit_of_any_database(edit: Edit, spoiled: SpoiledLake) -> None:
    _hold(spoiled, edit)


@pytest.mark.slow
@pytest.mark.parametrize("edit", SQLITE_EDITS, ids=lambda edit: edit.name)
def test_every_edit_of_cells(edit: Edit, spoiled_sqlite: SpoiledLake) -> None:
    _hold(spoiled_sqlite, edit)


def test_deep_json_of_others_stops_no_commit(lake_address: LakeAddress) -> None:
    """It failed every commit that met it, with its file left behind."""
    lake, other = (DuckLake.create(lake_address.url, data_path=lake_address.data_path), DuckLake.connect(lake_address.url))
    lake.write("t", FEW, inline=False)
    with lake.transaction(commit_id="mine") as tx:
        tx.append("t", FEW, inline=False)
        other.write("t", FEW, inline=False, extra_info=_DEEP)
    assert lake.table("t").scan().count() == 3
    assert lake.find_commit("mine") == tx.result.snapshot
    names = {Path(file.path).name for file in lake.table("t").list_files()}
    assert {path.name for path in Path(lake_address.data_path).rglob("*.parquet")} == names
    for one in (lake, other):
        one.close()
