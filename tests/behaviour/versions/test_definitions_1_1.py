"""Definitions of version 1.1: comments on columns of views, columns of type null, options of DuckDB 2.0."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import text

from ducklake_core import DuckLake
from ducklake_core.errors import NotFoundError, SchemaError, UnsupportedFeatureError
from tests.support.ducklakepy_lake import faults, new_lake, rows_of, second_implementation, sorted_rows, stored
from tests.support.oracle import LakeAddress


@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")  # of the second implementation
def test_columns_of_views_have_comments(lake_address: LakeAddress) -> None:
    lake = new_lake(lake_address)
    lake.write("t", pa.table({"a": [1], "b": ["x"]}))
    lake.create_view("v", "SELECT a, b AS name FROM t", columns=["number"])
    lake.set_comment("v", "of ducklake_core", column="NUMBER")
    lake.set_comment("v", "a name", column="name")
    assert lake.view("v").column_comments == {"a": "of ducklake_core", "name": "a name"}
    with pytest.raises(NotFoundError, match="no column 'b'"):
        lake.set_comment("v", "nothing", column="b")
    with second_implementation(lake_address) as catalog:
        assert catalog.load_view("main.v").column_tags == {"a": {"comment": "of ducklake_core"}, "name": {"comment": "a name"}}
        catalog.set_tag(catalog.load_view("main.v"), "comment", "of the second", column="NAME")
    before = lake.snapshots()[-1].id
    lake.rename_view("v", "w")
    assert lake.view("w").column_comments == {"a": "of ducklake_core", "NAME": "of the second"}
    lake.set_comment("w", None, column="name")
    assert (lake.view("w").column_comments, lake.view("v", at=before).column_comments["NAME"]) == (
        {"a": "of ducklake_core"},
        "of the second",
    )
    lake.restore(at=before)
    assert lake.view("v").column_comments == {"a": "of ducklake_core", "NAME": "of the second"}
    lake.drop_view("v")
    assert [end is None for (end,) in stored(lake, "view_column_tag", "end_snapshot")].count(True) == 0
    lake.expire_snapshots(older_than=dt.timedelta(0), min_age=dt.timedelta(0))
    assert stored(lake, "view_column_tag", "view_id") == []
    assert faults(lake) == []


def test_columns_of_views_on_1_0(small: DuckLake) -> None:
    small.write("t", pa.table({"a": [1]}))
    small.create_view("v", "SELECT a FROM t")
    with pytest.raises(UnsupportedFeatureError, match=r"Columns of view main\.v cannot have comments, because lakes of version 1\.0"):
        small.set_comment("v", "x", column="a")
    small.rename_view("v", "w")
    small.drop_view("w")
    small.expire_snapshots(older_than=dt.timedelta(0), min_age=dt.timedelta(0))
    assert faults(small) == []


def test_columns_of_type_null(lake_address: LakeAddress) -> None:
    lake = new_lake(lake_address)
    lake.create_table("t", {"a": "int64", "n": "null", "s": "struct<x: null>"})
    rows: list[dict[str, object]] = []

    def write(start: int, count: int) -> None:
        added: list[dict[str, object]] = [{"a": a, "n": None, "s": {"x": None}} for a in range(start, start + count)]
        rows.extend(added)
        lake.write("t", pa.Table.from_pylist(added, pa.schema([("a", pa.int64()), ("n", pa.null()), ("s", pa.struct([("x", pa.null())]))])))

    write(0, 3)
    write(100, 50)
    with second_implementation(lake_address) as catalog:
        assert len(rows_of(catalog, "main.t")) == 53
        catalog.load_table("main.t").append(pa.table({"a": [1000], "n": pa.nulls(1), "s": pa.nulls(1, pa.struct([("x", pa.null())]))}))
    assert sorted(lake.table("t").scan(where="n IS NULL AND a < 500").to_arrow().to_pylist(), key=repr) == sorted(rows, key=repr)
    assert lake.table("t").scan(where="n IS NOT NULL").count() == 0
    with pytest.raises(SchemaError, match="column 'n' widens from null to int64"):
        lake.write("t", pa.table({"a": [1], "n": [1]}), missing_columns="null")
    lake.table("t").update({"a": "a + 1"}, where="a >= 100")
    lake.table("t").delete("a = 101")
    lake.flush_inlined_data()
    lake.rewrite_data_files(delete_threshold=0.0)
    lake.merge_adjacent_files()
    with pytest.raises(UnsupportedFeatureError, match="cannot be partitioned by 'n' of type null"):
        lake.table("t").set_partitioned_by(["n"])
    before = lake.snapshots()[-1].id
    lake.table("t").set_column_type("n", "varchar")
    lake.write("t", pa.table({"a": [7], "n": ["text"]}), missing_columns="null")
    assert lake.table("t").scan(where="n = 'text'").to_arrow()["a"].to_pylist() == [7]
    assert lake.table("t", at=before).scan().count() == 53
    assert faults(lake) == []
    with second_implementation(lake_address) as catalog:
        assert rows_of(catalog, "main.t") == sorted_rows(lake.table("t").scan().to_arrow())


def test_1_0_has_no_type_null(small: DuckLake) -> None:
    for schema in ({"n": "null"}, {"s": "struct<x: null>"}):
        with pytest.raises(UnsupportedFeatureError, match=r"cannot be of type null: lakes of version 1\.0"):
            small.create_table("t", schema)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_columns_without_bounds_in_the_catalog(sqlite_address: LakeAddress, version: Any) -> None:
    """The option ``skip_stats_columns`` of DuckDB 2.0."""
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path, version=version)
    rows = pa.table({"a": list(range(50)), "b": list(range(50))})
    lake.write("t", rows)
    with lake.database.write() as connection:
        connection.execute(text("INSERT INTO ducklake_metadata VALUES ('skip_stats_columns', '1', 'table', 1)"))
        for table in ("file_column_stats", "table_column_stats"):
            connection.execute(text(f"UPDATE ducklake_{table} SET min_value = NULL, max_value = NULL WHERE column_id = 1"))
    lake.write("t", rows)
    lake.merge_adjacent_files()
    lake.table("t").delete("a = 3")
    assert (lake.table("t").scan(where="a = 7").count(), lake.table("t").scan().count()) == (2, 98)
    assert lake.options("t")["skip_stats_columns"] == "1"
