"""Lakes of version 1.1, created, written and read by ducklake_core and a second implementation."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from ducklakepy.expressions import col
from sqlalchemy import inspect

from ducklake_core import DuckLake
from ducklake_core.catalog.database.tables import inlined_owner
from ducklake_core.errors import CatalogVersionError, SchemaError, UnsupportedFeatureError
from tests.support.ducklakepy_lake import faults, new_lake, rows_of, second_implementation, sorted_rows, stored
from tests.support.oracle import LakeAddress, attached, file_lake
from tests.unit.catalog.database.test_bootstrap import layout, primary_keys


def test_a_new_lake_has_the_tables_of_the_second_implementation(
    lake_address: LakeAddress, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = tmp_path / "second"
    folder.mkdir()
    by_second = request.getfixturevalue("postgres").lake(folder) if lake_address.backend == "postgresql" else file_lake("sqlite", folder)
    with second_implementation(by_second, create=True):
        pass
    own, second = new_lake(lake_address), DuckLake.connect(by_second.url)
    assert (own.info.version, second.info.version) == ("1.1", "1.1")

    def names(lake: DuckLake) -> dict[str, list[str]]:
        return {table: [column for column, _ in columns] for table, columns in layout(lake.database).items()}

    assert names(own) == names(second)
    assert primary_keys(own.database) == primary_keys(second.database)
    for table in ("snapshot", "schema"):
        columns = [c.name for c in own.database.tables[table].c if not c.name.endswith(("uuid", "time"))]
        assert stored(own, table, *columns) == stored(second, table, *columns)


def test_the_default_is_1_0_and_versions_are_named(lake_address: LakeAddress) -> None:
    with pytest.raises(CatalogVersionError, match=r"1\.2"):
        DuckLake.create(lake_address.url, data_path=lake_address.data_path, version="1.2")  # type: ignore[arg-type]
    lake = DuckLake.open(lake_address.url, create=True, data_path=lake_address.data_path)
    assert lake.info.version == "1.0"
    with pytest.raises(CatalogVersionError, match=r"has version 1\.0, not 1\.1"):
        DuckLake.open(lake_address.url, create=True, data_path=lake_address.data_path, version="1.1")
    assert DuckLake.connect(lake_address.url).info.version == "1.0"


def test_statistics_contain_row_groups_and_exact_bounds(lake_address: LakeAddress) -> None:
    lake = new_lake(lake_address)
    lake.set_option("data_inlining_row_limit", 0)
    lake.write("t", pa.table({"a": [1, 2, 3], "s": ["a" * 300, "b", "c" * 300], "n": pa.nulls(3, pa.int32())}))
    lake.table("t").delete("a = 2")
    assert stored(lake, "data_file", "row_group_count") == [(1,)]
    assert stored(lake, "delete_file", "row_group_count") == [(1,)]
    assert stored(lake, "file_column_stats", "column_id", "min_is_exact", "max_is_exact") == [
        (1, True, True),
        (2, False, False),
        (3, None, None),
    ]
    # Bounds of a whole table are not cut, but a reader cannot know that.
    assert stored(lake, "table_column_stats", "column_id", "min_is_exact", "max_is_exact")[0] == (1, True, True)
    with lake.database.write() as connection:
        stats = lake.database.tables["file_column_stats"]
        connection.execute(stats.update().where(stats.c.column_id == 1).values(min_is_exact=False))
    lake = DuckLake.connect(lake_address.url)
    plan = lake.table("t").scan(where="a >= 1").explain()
    assert "every row matches" not in str(plan)
    assert lake.table("t").scan(where="a >= 1").count() == 2


def test_columns_may_have_names_that_only_1_0_reserves(lake_address: LakeAddress) -> None:
    lake = new_lake(lake_address)
    names = ("row_id", "begin_snapshot", "end_snapshot", "column 0")
    lake.write("t", pa.table({name: [number, 10 + number] for number, name in enumerate(names)}))
    lake.table("t").update({"row_id": "row_id + 100"}, where="begin_snapshot = 1")
    assert stored(lake, "data_file", "data_file_id") == []
    wanted = [(10, 11, 12, 13), (100, 1, 2, 3)]
    assert sorted_rows(lake.table("t").scan().to_arrow()) == wanted
    with second_implementation(lake_address) as catalog:
        assert rows_of(catalog, "main.t") == wanted
    assert sorted_rows(lake.table("t").scan(columns=["begin_snapshot"], where="end_snapshot = 2").to_arrow()) == [(1,)]
    lake.flush_inlined_data()
    assert sorted_rows(lake.table("t").scan().to_arrow()) == wanted


@pytest.mark.parametrize("name", ["_ducklake_row_id", "_DuckLake_mine"])
def test_names_with_the_reserved_prefix_raise(lake_address: LakeAddress, name: str) -> None:
    lake = new_lake(lake_address)
    with pytest.raises(SchemaError, match="reserve names"):
        lake.write("t", pa.table({name: [1]}))
    lake.write("t", pa.table({"a": [1]}))
    with pytest.raises(SchemaError, match="reserve names"):
        lake.table("t").add_column(name, "int32")
    with pytest.raises(SchemaError, match="reserve names"):
        lake.table("t").rename_column("a", name)
    with pytest.raises(SchemaError, match="reserve names"):
        lake.write("t", pa.table({"a": [1], name: [2]}), schema_evolution="additive")
    assert lake.table("t").scan().count() == 1


def test_every_operation_on_every_catalog_database(lake_address: LakeAddress) -> None:
    """On DuckDB files there is no second implementation: what was written is compared with what was meant."""
    lake = new_lake(lake_address)
    rows: dict[int, tuple[Any, ...]] = {}
    for start in (0, 5, 40):
        table = pa.table({"a": list(range(start, start + 8)), "s": [f"{i}" for i in range(start, start + 8)]})
        lake.write("t", table, mode="upsert", on=["a"])
        rows |= {row["a"]: (row["a"], row["s"]) for row in table.to_pylist()}
    lake.write("t", pa.table({"a": list(range(1000, 1100)), "s": ["many"] * 100}))
    rows |= {a: (a, "many") for a in range(1000, 1100)}
    lake.table("t").delete("a % 10 = 3")
    rows = {a: row for a, row in rows.items() if a % 10 != 3}
    lake.flush_inlined_data()
    lake.merge_adjacent_files()
    lake.rewrite_data_files(delete_threshold=0.0)
    assert sorted_rows(lake.table("t").scan().to_arrow()) == sorted(rows.values(), key=repr)
    lake.create_view("v", "SELECT a FROM t")
    assert lake.view("v").to_reader().read_all().num_rows == len(rows)
    lake.expire_snapshots(older_than=dt.timedelta(0), min_age=dt.timedelta(0))
    lake.cleanup_old_files(older_than=dt.timedelta(0), min_age=dt.timedelta(0))
    assert faults(lake) == []
    assert sorted_rows(DuckLake.connect(lake_address.url).table("t").scan().to_arrow()) == sorted(rows.values(), key=repr)
    with lake.database.read() as connection:
        physical = [n for n in inspect(connection).get_table_names(schema=lake.database.tables.schema) if inlined_owner(n) is not None]
        for name in physical:
            columns = [c["name"] for c in inspect(connection).get_columns(name, schema=lake.database.tables.schema)]
            assert columns[:3] == ["_ducklake_row_id", "_ducklake_begin_snapshot", "_ducklake_end_snapshot"]


DAYS = [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(1900, 1, 1), None]


@pytest.mark.parametrize(
    ("transform", "wanted"),
    [
        ("epoch_year", ["-1", "0", "54", "-70", None]),
        ("epoch_month", ["-1", "0", "649", "-840", None]),
        ("epoch_day", ["-1", "0", "19782", "-25567", None]),
        ("epoch_hour", ["-24", "0", "474768", "-613608", None]),
    ],
)
def test_partition_keys_that_count_since_1970(sqlite_address: LakeAddress, transform: str, wanted: list[str | None]) -> None:
    lake = new_lake(sqlite_address)
    lake.set_option("data_inlining_row_limit", 0)
    lake.write("t", pa.table({"n": list(range(len(DAYS))), "d": pa.array(DAYS, pa.date32())}), partition_by=[f"{transform}(d)"])
    assert sorted(map(repr, (value for (value,) in stored(lake, "file_partition_value", "partition_value")))) == sorted(map(repr, wanted))
    with second_implementation(sqlite_address) as catalog:
        assert len(rows_of(catalog, "main.t")) == len(DAYS)
        catalog.load_table("main.t").append(pa.table({"n": [99], "d": [dt.date(1969, 12, 31)]}))
    for day in DAYS[:4]:
        scan = lake.table("t").scan(where=f"d = DATE '{day}'")
        assert scan.count() == (2 if day == DAYS[0] else 1)
        assert sum(file.pruned_by is None for file in scan.explain().files) <= 2
    lake.table("t").overwrite(pa.table({"n": [7], "d": [DAYS[0]]}), partitions=[{f"{transform}(d)": int(wanted[0] or 0)}])
    assert sorted(row[0] for row in sorted_rows(lake.table("t").scan().to_arrow())) == [1, 2, 3, 4, 7]
    assert faults(lake) == []


def test_timestamps_before_1970_are_rounded_down_in_utc(sqlite_address: LakeAddress) -> None:
    lake = new_lake(sqlite_address)
    lake.set_option("data_inlining_row_limit", 0)
    micros = [-1, 3_600_000_000]
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ns")):
        name = f"t{str(kind).replace('[', '').replace(']', '').replace(', ', '_').replace('=', '')}"
        lake.write(name, pa.table({"x": pa.array(micros, pa.timestamp("us")).cast(kind)}), partition_by=["epoch_hour(x)"])
        with second_implementation(sqlite_address) as catalog:
            catalog.load_table(f"main.{name}").append(lake.table(name).scan().to_arrow())
    assert sorted(stored(lake, "file_partition_value", "partition_value")) == sorted([("-1",), ("1",)] * 6)
    zone = "'1970-01-01 00:00:00+00'"
    assert lake.table("ttimestampus_tzUTC").scan(where=f"x < TIMESTAMPTZ {zone}").count() == 2


def test_1_0_has_no_such_keys(lake: DuckLake) -> None:
    lake.write("t", pa.table({"d": [DAYS[0]]}))
    with pytest.raises(UnsupportedFeatureError, match=r"epoch_day\(d\): lakes of version 1\.0"):
        lake.table("t").set_partitioned_by(["epoch_day(d)"])
    lake.migrate("1.1")
    lake.table("t").set_partitioned_by(["epoch_day(d)"])


def test_deletes_of_several_snapshots_in_one_puffin_file(lake_address: LakeAddress) -> None:
    lake = new_lake(lake_address)
    with second_implementation(lake_address) as catalog:
        catalog.set_option("write_deletion_vectors", True)
        catalog.set_option("data_inlining_row_limit", 0)
    lake.write("t", pa.table({"a": list(range(100_000))}))
    with second_implementation(lake_address) as catalog:
        for wanted in (col("a") < 10, col("a") == 15, col("a") > 80_000):
            catalog.load_table("main.t").delete(wanted)
    counts = {snapshot.id: lake.table("t", at=snapshot.id).scan().count() for snapshot in lake.snapshots() if snapshot.id > 0}
    assert list(counts.values()) == [100_000, 99_990, 99_989, 80_000 - 10]
    lake.table("t").delete("a = 20")
    assert {snapshot: lake.table("t", at=snapshot).scan().count() for snapshot in counts} == counts
    assert faults(lake) == []
    with second_implementation(lake_address) as catalog:
        assert len(rows_of(catalog, "main.t")) == 80_000 - 11


def _deleted_thrice(lake: DuckLake) -> dict[int, int]:
    """Rows deleted by three snapshots, the last of them of more than one container of a bitmap, and how many each snapshot shows."""
    lake.set_option("data_inlining_row_limit", 0)
    lake.set_option("write_deletion_vectors", True)
    lake.write("t", pa.table({"a": pa.array(range(200_000), pa.int64())}))
    for where in ("a < 7000", "a = 100000", "a > 150000 and a % 2 = 0"):
        lake.table("t").delete(where)
    return {snapshot.id: lake.table("t", at=snapshot.id).scan().count() for snapshot in lake.snapshots() if snapshot.id > 0}


def test_deletion_vectors_on_1_1(lake_address: LakeAddress) -> None:
    lake = new_lake(lake_address)
    counts = _deleted_thrice(lake)
    assert list(counts.values()) == [200_000, 193_000, 192_999, 192_999 - 24_999]
    assert [form for form, *_ in stored(lake, "delete_file", "format", "footer_size", "row_group_count")] == ["puffin"]
    with second_implementation(lake_address) as catalog:
        assert {snapshot: len(rows_of(catalog, "main.t", snapshot)) for snapshot in counts} == counts
        catalog.load_table("main.t").delete(col("a") == 8000)
    assert {snapshot: lake.table("t", at=snapshot).scan().count() for snapshot in counts} == counts
    assert lake.table("t").scan().count() == 192_999 - 25_000
    lake.rewrite_data_files(delete_threshold=0.0)
    assert lake.table("t").scan().count() == 192_999 - 25_000
    assert faults(lake) == []


def test_deletion_vectors_on_1_0_are_of_one_snapshot(lake: DuckLake, lake_address: LakeAddress) -> None:
    lake.set_option("data_inlining_row_limit", 0)
    lake.set_option("write_deletion_vectors", True)
    lake.write("t", pa.table({"a": pa.array(range(200_000), pa.int64())}))
    lake.table("t").delete("a < 7000 or a % 3 = 0")
    assert stored(lake, "delete_file", "format") == [("puffin",)]
    with attached(lake_address) as duck:
        assert duck.value("SELECT count(*) FROM t WHERE a >= 7000 AND a % 3 <> 0") == duck.value("SELECT count(a + 0) FROM t")
    lake.table("t").delete("a = 7001")
    assert [form for (form,) in stored(lake, "delete_file", "format")] == ["parquet"]
    counts = {snapshot.id: lake.table("t", at=snapshot.id).scan().count() for snapshot in lake.snapshots() if snapshot.id > 0}
    with attached(lake_address) as duck:
        assert {snapshot: duck.value(f"SELECT count(a + 0) FROM t AT (VERSION => {snapshot})") for snapshot in counts} == counts
    assert faults(lake) == []


def test_encrypted_lakes_get_no_vectors_in_clear_text(sqlite_address: LakeAddress) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path, version="1.1", encrypted=True)
    _deleted_thrice(lake)
    assert [form for (form,) in stored(lake, "delete_file", "format")] == ["parquet"]


def test_a_vector_is_written_again_for_a_later_snapshot(sqlite_address: LakeAddress) -> None:
    """A transaction that assumed another snapshot id for its deletes."""
    lake = new_lake(sqlite_address)
    _deleted_thrice(lake)
    with lake.transaction() as tx:
        tx.delete("t", "a = 149999")
        lake.write("other", pa.table({"b": [1]}))
    counts = [lake.table("t", at=snapshot.id).scan().count() for snapshot in lake.snapshots()[-2:]]
    assert counts == [168_000, 167_999]
    with second_implementation(sqlite_address) as catalog:
        assert len(rows_of(catalog, "main.t")) == 167_999
