"""``lake.inspect`` returns the listings of DuckDB in typed columns, with a fixed number of statements."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, attached
from tests.support.statements import noted_statements

ROWS = pa.table({"id": pa.array(range(6), pa.int32()), "k": ["a", "a", "b", None, "b", "c"]})


def _filled(lake: DuckLake) -> None:
    lake.create_table("t", ROWS.schema, partition_by=["k"], comment="about t")
    lake["t"].append(ROWS, inline=False, author="me", message="first", extra_info="note")
    lake["t"].append(ROWS.slice(0, 3), inline=False)
    lake["t"].delete("id = 2")
    lake.create_schema("s")
    lake.write("s.u", ROWS.slice(0, 2), inline=True)
    lake.set_option("target_file_size", "1MB")
    lake.set_option("target_file_size", "2MB", table="t")


def test_listings_are_those_of_duckdb(small: DuckLake, sqlite_address: LakeAddress) -> None:
    _filled(small)
    snapshots, tables, files = small.inspect.snapshots(), small.inspect.tables(), small.inspect.files("t")
    assert snapshots.schema.field("time").type == pa.timestamp("us", "UTC")
    with attached(sqlite_address) as duck:
        expected = duck.rows("SELECT snapshot_id, snapshot_time, schema_version, author, commit_message FROM ducklake_snapshots('lake')")
        keys = ("snapshot_id", "time", "schema_version", "author", "message")
        assert [tuple(row[key] for key in keys) for row in snapshots.to_pylist()] == sorted(expected)
        info = duck.rows(
            "SELECT table_name, table_id, file_count, file_size_bytes, delete_file_count, delete_file_size_bytes"
            " FROM ducklake_table_info('lake') ORDER BY table_id"
        )
        columns = ("table", "table_id", "file_count", "file_size_bytes", "delete_file_count", "delete_file_size_bytes")
        assert sorted((tuple(row[key] for key in columns) for row in tables.to_pylist()), key=lambda row: row[1]) == info
        listed = duck.rows("SELECT data_file, data_file_size_bytes, delete_file FROM ducklake_list_files('lake', 't')")
        found = [(row["path"], row["file_size_bytes"], (row["delete_files"] or [None])[0]) for row in files.to_pylist()]
        assert sorted(found, key=str) == sorted(listed, key=str)
        counts = {(row["schema"], row["table"]): row["row_count"] for row in tables.to_pylist()}
        assert counts == {("main", "t"): duck.value("SELECT count(*) FROM t"), ("s", "u"): duck.value("SELECT count(*) FROM s.u")}
        by_key = duck.rows("SELECT k, count(*) FROM t GROUP BY k ORDER BY k NULLS FIRST")
    partitions = small.inspect.partitions("t").to_pylist()
    live = [(dict(row["partition"])["k"], row["record_count"] - row["deleted_row_count"]) for row in partitions]
    assert live == by_key
    assert sum(row["file_count"] for row in partitions) == files.num_rows
    assert {(row["name"], row["value"], row["scope"], row["entry"]) for row in small.inspect.options().to_pylist()} >= {
        ("target_file_size", "1000000", "global", None),
        ("target_file_size", "2000000", "table", "main.t"),
    }


def test_inspection_of_an_earlier_snapshot(small: DuckLake) -> None:
    _filled(small)
    first = small.snapshots()[2].id
    past = small.at(first).inspect
    assert past.snapshots()["snapshot_id"].to_pylist() == [0, 1, 2]
    assert past.tables()["table"].to_pylist() == ["t"]
    assert past.files("t").equals(small.inspect.files("t", at=first))
    assert past.files("t").num_rows == 4
    assert past.files("t")["deleted_row_count"].to_pylist() == [0] * 4
    assert past.history("t")["snapshot_id"].to_pylist() == [1, 2]
    assert small.inspect.history("t")["snapshot_id"].to_pylist() == [1, 2, 3, 4]
    assert small.inspect.history("s.u")["snapshot_id"].to_pylist() == [6]


def test_an_unpartitioned_table_is_one_partition_and_an_empty_one_none(small: DuckLake) -> None:
    small.write("plain", ROWS, inline=False)
    small.create_table("empty", {"a": "int"})
    (row,) = small.inspect.partitions("plain").to_pylist()
    assert row["partition"] == []
    assert row["record_count"] == 6
    for found in (small.inspect.partitions("empty"), small.inspect.files("empty")):
        assert found.num_rows == 0
        assert pa.types.is_map(found.schema.field("partition").type)


@pytest.mark.parametrize("listing", ["snapshots", "tables", "options", "files", "partitions", "history"])
def test_more_of_everything_takes_no_more_statements(small: DuckLake, listing: str) -> None:
    def statements() -> int:
        arguments = ("t",) if listing in ("files", "partitions", "history") else ()
        with noted_statements() as seen:
            found = getattr(small.inspect, listing)(*arguments)
        assert found.num_rows
        return len(seen)

    _filled(small)
    # From then on it is known what the tables are.
    statements()
    before = statements()
    for number in range(5):
        small.write(f"more{number}", ROWS, inline=number % 2 == 0)
        small["t"].append(ROWS, inline=False)
        small["t"].delete(f"id = {number}")
        small.set_option("target_file_size", "3MB", table=f"more{number}")
    assert statements() == before
