"""Health of a lake from a fixed number of statements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client import parser as prometheus_parser
from prometheus_client.openmetrics import parser as openmetrics_parser
from sqlalchemy import create_engine, literal, select

from ducklake_core import DuckLake
from ducklake_core.catalog.reading.reader import all_of
from ducklake_core.errors import UsageError
from tests.behaviour.maintenance.lakes import FILES_ONLY, write_history
from tests.support.oracle import LakeAddress, attached, sqlite_lake
from tests.support.statements import noted_statements


def statements(lake: DuckLake) -> int:
    """Return the number of statements that ``health`` sends."""
    with noted_statements() as seen:
        lake.health()
    return len(seen)


def test_numbers_are_those_of_the_lake(lake_address: LakeAddress) -> None:
    write_history(lake_address)
    with attached(lake_address, FILES_ONLY) as duck:
        duck.run("INSERT INTO kept_on SELECT range, 'r', 2 FROM range(3000)")
    lake = DuckLake.connect(lake_address.url)
    found = lake.health(small_file_size=2000)
    infos = {info.table: info for info in lake.tables()}
    assert [one.table for one in found.tables] == ["main.kept_on", "main.small"]
    for one in found.tables:
        info = infos[one.table]
        live = (info.file_count, info.file_size_bytes, info.delete_file_count, info.deleted_row_count, info.inlined_row_count)
        assert live == (one.file_count, one.file_size_bytes, one.delete_file_count, one.deleted_row_count, one.inlined_row_count)
        sizes = [file.file_size_bytes for file in lake.table(one.table).list_files()]
        assert (one.small_file_count, one.small_file_bytes) == (len(small := [size for size in sizes if size < 2000]), sum(small))
        assert one.files_by_size == (len(sizes), 0, 0, 0, 0)
    assert 0 < found.table("kept_on").delete_ratio < 1
    assert found.table("small").inlined_ended_row_count == 1
    assert found.table("kept_on").ended_file_count > 0
    snapshots = lake.snapshots()
    assert (found.snapshot_id, found.snapshot_count) == (snapshots[-1].id, len(snapshots))
    assert (found.oldest_snapshot, found.newest_snapshot) == (snapshots[0].time, snapshots[-1].time)
    assert found.dropped_table_count == 2
    assert found.faults == {}
    assert found.scheduled_file_count > 0
    assert found.oldest_scheduled is not None
    assert found.oldest_scheduled <= found.at
    assert "kept_on" in repr(found)
    lake.close()


def test_statements_do_not_grow_with_the_lake(lake: DuckLake) -> None:
    empty = statements(lake)
    with lake.transaction() as tx:
        for number in range(24):
            tx.create_table(f"t{number}", pa.schema([("a", pa.int64())]))
            if number % 2:
                tx.append(f"t{number}", pa.table({"a": [number]}))
    assert statements(lake) <= empty + 1
    assert sum(one.inlined_row_count for one in lake.health().tables) == 12


def test_any_number_of_queries_is_one_statement() -> None:
    """SQLite takes 500 terms in a compound SELECT."""
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        rows = connection.execute(all_of([select(literal(number).label("number")) for number in range(1500)])).scalars().all()
    engine.dispose()
    assert sorted(rows) == list(range(1500))


def test_faults_are_counted(sqlite_address: LakeAddress) -> None:
    from tests.property.hostile_catalogs.lake import DamagedLake, build

    DamagedLake(build(sqlite_address)).look_up().edit(
        "INSERT INTO ducklake_delete_file SELECT 77, table_id, begin_snapshot, end_snapshot, data_file_id, path, path_is_relative, format, "
        "delete_count, file_size_bytes, footer_size, encryption_key, partial_max FROM ducklake_delete_file WHERE delete_file_id = {rdel}",
        "INSERT INTO ducklake_file_column_stats (data_file_id, table_id, column_id) VALUES (99, {r}, 1), (99, {r}, 2)",
        "INSERT INTO ducklake_file_partition_value VALUES ({r0}, {r}, 0, 'x')",
        "INSERT INTO ducklake_table SELECT 99, table_uuid, begin_snapshot, NULL, schema_id, 'R', path, 1 FROM ducklake_table "
        "WHERE table_id = {r}",
        "CREATE TABLE ducklake_inlined_data_77_1 (row_id BIGINT)",
        "INSERT INTO ducklake_inlined_data_tables VALUES ({r}, 'ducklake_inlined_data_{r}_9', 9)",
    )
    lake = DuckLake.connect(sqlite_address.url)
    assert lake.health().faults == {
        "orphaned_column_statistics": 2,
        "surplus_delete_files": 1,
        "tables_named_twice": 1,
        "odd_partition_values": 1,
        "missing_inlined_tables": 1,
        "dead_inlined_tables": 1,
    }
    lake.close()


def test_two_tables_of_one_name_are_distinguished(sqlite_address: LakeAddress) -> None:
    """Prometheus rejects an exposition with one sample twice, and would not see the fault."""
    from tests.property.hostile_catalogs.lake import DamagedLake

    with DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path) as lake:
        ids = {str(lake.write(name, pa.table({"a": [1]})).table_id) for name in ("t", "u")}
        DamagedLake(sqlite_address).edit("UPDATE ducklake_table SET table_name = 't'")
        text = lake.health().to_openmetrics()
    families = {family.name: family.samples for family in openmetrics_parser.text_string_to_metric_families(text)}
    assert {one.labels["table_id"] for one in families["ducklake_table_files"]} == ids
    assert families["ducklake_tables_named_twice"][0].value == 1


def test_health_as_values(tmp_path: Path) -> None:
    lake = DuckLake.create(sqlite_lake(tmp_path).url, data_path=str(tmp_path / "files"))
    lake.write('"we""ird\\"."t ä"', pa.table({"a": range(100)}), inline=False)
    lake.write('"two\nlines"', pa.table({"a": range(3)}), inline=False)
    found = lake.health()
    rows = found.to_arrow().to_pylist()
    assert [(row["schema"], row["name"], row["record_count"], row["delete_ratio"]) for row in rows] == [
        ('"we""ird\\"', "t ä", 100, 0.0),
        ("main", "two\nlines", 3, 0.0),
    ]
    text = found.to_openmetrics({"lake": "sales"})
    assert text.endswith("# EOF\n")
    assert 'ducklake_table_rows{lake="sales",schema="\\"we\\"\\"ird\\\\\\"",table="t ä"} 100\n' in text
    # As OpenMetrics, and in Prometheus' older form, which its textfile collector reads.
    for parser in (openmetrics_parser, prometheus_parser):
        families = {family.name: family for family in parser.text_string_to_metric_families(text)}
        assert {(family.type, family.unit) for family in families.values()} == {("gauge", "")}
        assert len(families) == text.count("# TYPE")
        (snapshots,) = families["ducklake_snapshots"].samples
        assert (snapshots.labels, snapshots.value) == ({"lake": "sales"}, 3)
        rows = {(one.labels["schema"], one.labels["table"]): one.value for one in families["ducklake_table_rows"].samples}
        assert rows == {('"we""ird\\"', "t ä"): 100, ("main", "two\nlines"): 3}
        assert sum(one.value for one in families["ducklake_table_files_by_size"].samples) == 2
    for label in ("la ke", "__name__", "table_id"):
        with pytest.raises(UsageError, match=r"is not a valid label|is already used"):
            found.to_openmetrics({label: "x"})
    wrong: Any
    for wrong in ({"shard": 3}, {3: "shard"}, "lake=sales", ["lake"], 7):
        with pytest.raises(UsageError, match="labels must be"):
            found.to_openmetrics(wrong)
    with pytest.raises(UsageError, match="small_file_size"):
        lake.health(small_file_size=0)
    with pytest.raises(UsageError, match="Table 'x' is not one of"):
        found.table("x")
    lake.close()
