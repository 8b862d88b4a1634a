"""A string in place of a list of names is one name: on, columns, partition_by, keys, paths, tables ..."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError, NotFoundError, UsageError
from ducklake_dagster import DuckLakeResource as Resource
from ducklake_dagster import SqliteCatalog, build_compaction_sensor, build_maintenance_job, ducklake_metadata
from ducklake_dagster.config.resources import LocalStorage
from tests.property.arguments.surface import build, call, methods
from tests.support.oracle import LakeAddress, attached

ROWS = pa.table({"ab": [1, 2], "a": [1, 1], "b": [7, 7]})
NEW = pa.table({"ab": [2, 3], "a": [1, 1], "b": [7, 7]})


@pytest.fixture
def lake(lake_address: LakeAddress) -> Iterator[DuckLake]:
    made = DuckLake.create(lake_address.url, data_path=lake_address.data_path)
    made.write("t", ROWS)
    yield made
    made.close()


def _takes_names(parameter: inspect.Parameter) -> bool:
    annotation = str(parameter.annotation).replace("Mapping[str, Sequence[str]]", "")
    return any(several in annotation for several in ("Sequence[str]", "ColumnName", "Paths", "Iterable[int]"))


def test_wrong_lists_of_names_raise(tmp_path: Path) -> None:
    """Every parameter that takes names, by its annotation, rejects other values and names itself."""
    copy = build(tmp_path, f"sqlite:///{tmp_path}/lake.sqlite")
    taking = [(method, one.name) for method in methods() for one in method.parameters if _takes_names(one) and not method.is_class_method]
    names = {(method.name, parameter) for method, parameter in taking}
    assert {("upsert", "on"), ("merge", "on"), ("scan", "columns"), ("write", "partition_by"), ("add_data_files", "paths")} <= names
    with DuckLake.connect(copy.url) as lake:
        for method, parameter in taking:
            for wrong in (b"ab", {"ab": 1}, [1.5]):
                with pytest.raises(DuckLakeError, match=parameter):
                    call(method, lake, method.valid(copy) | {parameter: wrong})


def test_keys_of_an_upsert(lake: DuckLake, lake_address: LakeAddress) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: lake.table("t").upsert(NEW, on="ab"),
        lambda: lake.write("t", NEW, mode="upsert", on="ab"),
        lambda: _in_transaction(lake, lambda tx: tx.upsert("t", NEW, on="ab")),
        lambda: _in_transaction(lake, lambda tx: tx.write("t", NEW, mode="upsert", on="ab")),
        lambda: lake.table("t").merge(NEW, on="ab").when_matched_update().when_not_matched_insert().execute(),
        lambda: lake.table("t").merge(NEW, on='"AB"').when_matched_update().when_not_matched_insert().execute(),
        lambda: _in_transaction(lake, lambda tx: tx.merge("t", NEW, on="ab").when_matched_update().when_not_matched_insert().execute()),
    ]
    for upsert in calls:
        upsert()
        assert sorted(lake.table("t").scan(columns="ab").to_arrow().column("ab").to_pylist()) == [1, 2, 3]
    with attached(lake_address) as duck:
        assert duck.value("SELECT list(ab ORDER BY ab) FROM t") == [1, 2, 3]
    with pytest.raises(NotFoundError, match="ba"):
        lake.table("t").merge(NEW, on="ba").when_matched_delete().execute()


def _in_transaction(lake: DuckLake, work: Callable[[Any], Any]) -> None:
    with lake.transaction() as tx:
        work(tx)


def test_columns_of_reads(lake: DuckLake) -> None:
    table = lake.table("t")
    assert table.scan("ab").to_arrow().column_names == ["ab"]
    for feed in (table.changes(0, columns="ab"), table.insertions(0, columns="ab"), table.deletions(0, columns="ab")):
        assert feed.to_arrow().column_names == ["ab"]
    with lake.transaction() as tx:
        assert tx.table("t").scan("ab").to_arrow().column_names == ["ab"]


def test_partition_and_sort_keys(lake: DuckLake) -> None:
    lake.write("w", ROWS, partition_by="ab")
    lake.create_table("c", ROWS.schema, partition_by="ab")
    lake.create_table_as("d", ROWS, partition_by="bucket(4, ab)")
    lake.table("t").set_partitioned_by("ab")
    lake.table("t").set_sorted_by("ab DESC")
    assert [lake.table_info(name).partition_by for name in ("w", "c", "d", "t")] == [("ab",), ("ab",), ("bucket(4, ab)",), ("ab",)]
    assert [key.expression for key in lake.table("t").sort_keys] == ["ab"]
    lake.create_view("v", "SELECT b FROM t", columns="ab")
    assert lake.view("v").column_aliases == ("ab",)


def test_paths_and_versions(lake: DuckLake, tmp_path: Path) -> None:
    file = tmp_path / "elsewhere" / "f.parquet"
    file.parent.mkdir()
    pq.write_table(ROWS, file)
    assert lake.add_data_files("t", str(file)).files_added == 1
    assert lake.expire_snapshots(versions=0, min_age="0 days", dry_run=True).snapshot_ids == (0,)
    address = lake.database.address.url.render_as_string(hide_password=False)
    for allowed in (str(tmp_path), [str(tmp_path)]):
        opened = DuckLake.connect(address, allowed_paths=allowed)
        assert opened.info.allowed_paths == (str(tmp_path),)
        opened.close()


def test_metadata_of_assets_and_jobs() -> None:
    metadata = ducklake_metadata(upsert_keys="ab", partition_by="day")
    assert (metadata["upsert_keys"], metadata["partition_by"]) == (["ab"], ["day"])
    job = build_maintenance_job(tables="ab", expire_older_than="7 days", cleanup_older_than="36 hours")
    config = job.run_config
    assert config is not None
    assert config["ops"]["merge_adjacent_files"]["config"]["tables"] == ["ab"]
    assert config["ops"]["expire_snapshots"]["config"]["older_than_days"] == 7
    assert config["ops"]["cleanup_old_files"]["config"]["older_than_days"] == 1.5
    compaction = build_compaction_sensor(tables="ab").job.run_config
    assert compaction is not None
    assert compaction["ops"]["merge_adjacent_files"]["config"]["tables"] == ["ab"]
    for wrong in (7, timedelta(1)):
        with pytest.raises(DuckLakeError, match="upsert_keys"):
            ducklake_metadata(upsert_keys=wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="expire_older_than"):
        build_maintenance_job(expire_older_than="soon")


def test_a_resource_keeps_the_allowed_paths_of_the_lake_that_it_creates(tmp_path: Path) -> None:
    places = [f"{tmp_path}/landing/"]
    made = Resource(
        catalog=SqliteCatalog(path=str(tmp_path / "lake.sqlite")),
        storage=LocalStorage(data_path=str(tmp_path / "files")),
        allowed_paths=places[0],  # type: ignore[arg-type]
        create_if_missing=True,
    )
    first = made.connect().info.allowed_paths
    again = Resource(catalog=made.catalog, storage=made.storage, allowed_paths=places).connect().info.allowed_paths
    assert first == again == tuple(places)
