"""Nested schemas: created, named in every operation, dropped, and read and written by a second implementation."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from ducklakepy.schema import Schema
from ducklakepy.types import Column, parse_primitive_type
from sqlalchemy import text

from ducklake_core import DuckLake, Transaction
from ducklake_core.errors import AlreadyExistsError, CommitConflictError, NotFoundError, UnsupportedFeatureError, UsageError
from tests.support.ducklakepy_lake import faults, new_lake, rows_of, second_implementation, sorted_rows, stored
from tests.support.oracle import LakeAddress, file_lake

ONE_COLUMN = Schema(Column(column_id=1, name="a", field_type=parse_primitive_type("int64")))
PATHS = ["sales", "sales.europe", '"sales.europe"', "sales.europe.north", 'sales."no""rth.1"', "europe"]


def _rows(start: int, count: int) -> pa.Table:
    return pa.table({"a": pa.array(range(start, start + count), pa.int64())})


def _nested(address: LakeAddress) -> DuckLake:
    lake = new_lake(address)
    for path in PATHS:
        lake.create_schema(path)
    for number, path in enumerate(PATHS):
        lake.write(f"{path}.orders", _rows(number * 100, number + 1))
    return lake


def _values(lake: DuckLake, name: str) -> list[Any]:
    return sorted(lake.table(name).scan().to_arrow()["a"].to_pylist())


def test_names_are_paths(lake_address: LakeAddress) -> None:
    lake = _nested(lake_address)
    assert {schema.name: schema.parts for schema in lake.schemas()} == {
        "main": ("main",),
        "sales": ("sales",),
        "sales.europe": ("sales", "europe"),
        '"sales.europe"': ("sales.europe",),
        "sales.europe.north": ("sales", "europe", "north"),
        'sales."no""rth.1"': ("sales", 'no"rth.1'),
        "europe": ("europe",),
    }
    assert sorted(one.table for one in lake.tables()) == sorted(f"{path}.orders" for path in PATHS)
    for number, path in enumerate(PATHS):
        name = f"{path}.orders"
        assert _values(lake, name.upper()) == list(range(number * 100, number * 101 + 1))
        assert lake[name].name == name
        assert [one.table for one in lake.tables(path)] == [name]
    assert lake.snapshots()[2].change_set.created_schema == ("sales.europe",)
    assert lake.snapshots()[2].changes == 'created_schema:"sales"."europe"'
    assert lake.snapshots()[8].changes == 'created_table:"sales"."europe"."orders",' + lake.snapshots()[8].changes.split(",")[1]
    with pytest.raises(NotFoundError, match=r"no table sales\.asia\.orders .*did you mean"):
        lake.table("sales.asia.orders")
    assert faults(lake) == []


def test_missing_schemas(sqlite_address: LakeAddress) -> None:
    lake = new_lake(sqlite_address)
    with pytest.raises(NotFoundError, match="no schema 'a'"):
        lake.create_schema("a.b")
    lake.write("a.b.c.t", _rows(0, 1))
    assert [schema.name for schema in lake.schemas()] == ["a", "a.b", "a.b.c", "main"]
    with pytest.raises(AlreadyExistsError):
        lake.create_schema("A.B")
    lake.create_schema("A.B", if_not_exists=True)


def test_lakes_of_1_0_have_names_with_dots_alone(lake: DuckLake, lake_address: LakeAddress) -> None:
    lake.create_schema("a")
    for call in (lambda: lake.create_schema("a.b"), lambda: lake.write("a.b.t", _rows(0, 1))):
        with pytest.raises(
            UnsupportedFeatureError, match=r"[Ss]chema a\.b cannot be created in schema a, because lakes of version 1\.0 .*write \"a\.b\""
        ):
            call()
    lake.create_schema('"a.b"')
    lake.write('"a.b".t', _rows(0, 3))
    assert [one.table for one in lake.tables("a.b")] == ['"a.b".t']
    lake.migrate("1.1")
    lake = DuckLake.connect(lake_address.url)
    lake.create_schema("a.b")
    lake.write("a.b.t", _rows(10, 1))
    assert (_values(lake, '"a.b".t'), _values(lake, "a.b.t")) == ([0, 1, 2], [10])
    # As an argument that names a schema, the path comes first.
    assert [one.table for one in lake.tables("a.b")] == ["a.b.t"]


@pytest.mark.slow
def test_drops(lake_address: LakeAddress) -> None:
    lake = _nested(lake_address)
    lake.create_view("sales.europe.v", "SELECT a FROM sales.europe.orders")
    lake.create_macro("sales.europe.m", {"x": "x + 1"})
    with pytest.raises(UsageError, match=r"contains orders, sales\.\"no\"\"rth\.1\", sales\.europe"):
        lake.drop_schema("sales")
    lake.drop_table("sales.orders")
    before = lake.snapshots()[-1].id
    lake.drop_schema("sales", cascade=True)
    assert [schema.name for schema in lake.schemas()] == ['"sales.europe"', "europe", "main"]
    assert [one.table for one in lake.tables()] == ['"sales.europe".orders', "europe.orders"]
    assert (lake.views(), lake.macros()) == ([], [])
    assert lake.table("sales.europe.north.orders", at=before).scan().count() == 4
    assert faults(lake) == []
    lake.restore(at=before)
    assert _values(lake, "sales.europe.north.orders") == list(range(300, 304))
    assert lake.view("sales.europe.v").to_reader().read_all().num_rows == 2
    lake.drop_schema("SALES.europe.north", cascade=True)
    with pytest.raises(NotFoundError):
        lake.undrop_table("sales.europe.north.orders")
    lake.create_schema("sales.europe.north")
    lake.undrop_table("sales.europe.north.orders", new_name="back")
    assert _values(lake, "sales.europe.north.back") == list(range(300, 304))
    assert faults(lake) == []


def test_one_transaction_makes_and_drops(sqlite_address: LakeAddress) -> None:
    lake = new_lake(sqlite_address)
    with lake.transaction() as tx:
        tx.create_schema("a")
        tx.create_schema("a.b")
        tx.create_schema("a.b.c")
        tx.write("a.b.c.t", _rows(0, 2))
        tx.drop_schema("a.b", cascade=True)
        tx.create_schema("a.b")
        tx.write("a.b.t", _rows(5, 2))
    assert [schema.name for schema in lake.schemas()] == ["a", "a.b", "main"]
    assert [one.table for one in lake.tables()] == ["a.b.t"]
    assert faults(lake) == []


def test_views_read_by_path(sqlite_address: LakeAddress) -> None:
    lake = _nested(sqlite_address)
    lake.create_view("v", 'SELECT o.a FROM sales.europe.orders o UNION ALL SELECT a FROM "sales.europe".orders')
    assert lake.view("v").references == ('"sales.europe".orders', "sales.europe.orders")
    lake.create_view("sales.europe.w", "SELECT a FROM sales.europe.north.orders WHERE a > 300")
    assert lake.view("sales.europe.w").sql == "SELECT a FROM {DUCKLAKE_CATALOG}.sales.europe.north.orders WHERE a > 300"
    assert lake.view("sales.europe.w").to_reader().read_all()["a"].to_pylist() == [301, 302, 303]
    with pytest.raises(UsageError, match=r"names lake\.main\.orders: write schema\.table"):
        lake.create_view("x", "SELECT a FROM lake.main.orders")


def test_maintenance_and_options(sqlite_address: LakeAddress) -> None:
    lake = _nested(sqlite_address)
    lake.set_option("data_inlining_row_limit", 0, schema="sales.europe")
    assert (lake.options("sales.europe.orders")["data_inlining_row_limit"], lake.options("sales.europe.north.orders")) == ("0", {})
    for _ in range(2):
        lake.write("sales.europe.orders", _rows(1000, 2))
    lake.merge_adjacent_files(tables=["sales.**.*"])
    assert lake.table_info("sales.europe.orders").file_count == 1
    lake.flush_inlined_data(schema="sales.europe")
    assert {one.table: one.inlined_row_count for one in lake.tables()}["sales.europe.orders"] == 0
    lake.flush_inlined_data(tables=["*.orders", "sales.*.*"])
    assert {one.table for one in lake.tables() if one.inlined_row_count} == {"sales.europe.north.orders"}
    lake.drop_table("sales.europe.orders")
    lake.expire_snapshots(older_than=dt.timedelta(0), min_age=dt.timedelta(0))
    lake.cleanup_old_files(older_than=dt.timedelta(0), min_age=dt.timedelta(0))
    assert lake.delete_orphaned_files(dry_run=True, older_than=dt.timedelta(0), min_age=dt.timedelta(0)).files == ()
    assert _values(lake, "sales.europe.north.orders") == list(range(300, 304))
    assert faults(lake) == []


def test_files_in_schemas_of_duckdb_are_never_orphans(sqlite_address: LakeAddress) -> None:
    """A table whose schema cannot be named is in no listing, but its files are still referenced."""
    lake = new_lake(sqlite_address)
    lake.set_option("data_inlining_row_limit", 0)
    lake.write("a.b.t", _rows(0, 5))
    with lake.database.write() as connection:
        connection.execute(text("UPDATE ducklake_schema SET parent_schema_id = 99 WHERE schema_name = 'b'"))
    again = DuckLake.connect(sqlite_address.url)
    assert again.tables() == []
    assert again.delete_orphaned_files(dry_run=True, older_than=dt.timedelta(0), min_age=dt.timedelta(0)).files == ()
    assert [finding.code for finding in again.check().findings] == ["schema-missing"]


def test_repair_takes_back_the_drop_of_nested_schemas(sqlite_address: LakeAddress) -> None:
    """Also once the snapshots before the drop have expired."""
    lake = new_lake(sqlite_address)
    lake.write("a.b.t", _rows(0, 5))
    newest = lake.snapshot().id
    with lake.database.write() as connection:
        connection.execute(text(f"UPDATE ducklake_schema SET end_snapshot = {newest} WHERE schema_name IN ('a', 'b')"))
    again = DuckLake.connect(sqlite_address.url)
    again.expire_snapshots(keep_last=1, min_age=dt.timedelta(0))
    assert sorted(again.check(repair=True).repairs) == [
        f"undid the drop of schema a at snapshot {newest}, because it is not empty",
        f"undid the drop of schema a.b at snapshot {newest}, because it is not empty",
    ]
    assert faults(again) == []
    assert _values(again, "a.b.t") == list(range(5))


def _in_the_way(lake: DuckLake, change: Callable[[Transaction], object], other_change: Callable[[], object]) -> None:
    with lake.transaction() as tx:
        change(tx)
        other_change()


def test_conflicting_writers(lake_address: LakeAddress) -> None:
    lake = new_lake(lake_address)
    lake.create_schema("a")
    with pytest.raises(AlreadyExistsError):
        _in_the_way(lake, lambda tx: tx.create_schema("a.b"), lambda: lake.create_schema("a.b"))
    with pytest.raises(CommitConflictError):
        _in_the_way(lake, lambda tx: tx.create_schema("a.c"), lambda: lake.drop_schema("a", cascade=True))
    lake.create_schema("a")
    with pytest.raises(CommitConflictError):
        _in_the_way(lake, lambda tx: tx.drop_schema("a"), lambda: lake.create_schema("a.b"))
    with lake.transaction() as tx:
        tx.write("x.y.t", _rows(0, 1))
        lake.write("x.u", _rows(0, 1))
        lake.create_schema('"a.b"')
    assert sorted(one.table for one in lake.tables()) == ["x.u", "x.y.t"]
    assert faults(lake) == []


def test_paths_equal_those_of_the_second_implementation(lake_address: LakeAddress) -> None:
    lake = _nested(lake_address)
    with second_implementation(lake_address) as catalog:
        assert sorted(catalog.list_namespaces()) == sorted(["main", *PATHS])
        for path in PATHS:
            assert rows_of(catalog, f"{path}.orders") == sorted_rows(lake.table(f"{path}.orders").scan().to_arrow())
        catalog.create_namespace("second")
        catalog.create_namespace("second.inner")
        catalog.create_table("second.inner.t", schema=ONE_COLUMN)
        catalog.load_table("second.inner.t").append(_rows(0, 30))
        catalog.load_table("sales.europe.orders").append(_rows(7000, 30))
    assert _values(lake, "second.inner.t") == list(range(30))
    lake.table("second.inner.t").delete("a < 10")
    lake.create_schema("second.inner.own")
    lake.write("second.inner.own.t", _rows(0, 4))
    with second_implementation(lake_address) as catalog:
        assert len(rows_of(catalog, "second.inner.t")) == 20
        assert len(rows_of(catalog, "second.inner.own.t")) == 4
        assert len(rows_of(catalog, "sales.europe.orders")) == 32
        catalog.drop_namespace("second", cascade=True)
    assert [schema.name for schema in lake.schemas() if schema.name.startswith("second")] == []
    assert faults(lake) == []


def test_catalog_rows_are_those_of_the_second_implementation(lake_address: LakeAddress, tmp_path_factory: pytest.TempPathFactory) -> None:
    lake = new_lake(lake_address)
    for path in PATHS[:4]:
        lake.create_schema(path)
    lake.create_table("sales.europe.t", {"a": "int64"})
    lake.drop_schema("sales.europe.north")
    own = (
        stored(lake, "schema", "schema_id", "begin_snapshot", "schema_name", "parent_schema_id", "path_is_relative"),
        stored(lake, "snapshot_changes", "snapshot_id", "changes_made"),
        [path.count("/") for (path,) in stored(lake, "schema", "path")],
    )
    other = file_lake("sqlite", tmp_path_factory.mktemp("second"))
    with second_implementation(other, create=True) as catalog:
        for path in PATHS[:4]:
            catalog.create_namespace(path)
        catalog.create_table("sales.europe.t", schema=ONE_COLUMN)
        catalog.drop_namespace("sales.europe.north")
    by_second = DuckLake.connect(other.url)
    assert own == (
        stored(by_second, "schema", "schema_id", "begin_snapshot", "schema_name", "parent_schema_id", "path_is_relative"),
        stored(by_second, "snapshot_changes", "snapshot_id", "changes_made"),
        [path.count("/") for (path,) in stored(by_second, "schema", "path")],
    )
