"""Definitions that DuckDB rejects, or that would break the lake for it, are rejected by SQL and by the methods alike."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError, SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.format import options
from tests.support.oracle import LakeAddress, attached

Call = Callable[[DuckLake], object]


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.sql("CREATE TABLE t (c INTEGER, s STRUCT(a INTEGER), l INTEGER[])")
    return lake


REJECTED: dict[str, tuple[type[DuckLakeError], str, Call]] = {
    "internal name": (SchemaError, "DuckLake uses this name", lambda lake: lake.sql("CREATE TABLE n (_ducklake_internal_row_id INT)")),
    "internal name, added": (
        SchemaError,
        "DuckLake uses this name",
        lambda lake: lake.table("t").add_column("_DUCKLAKE_internal_row_id", "int32"),
    ),
    "internal name, renamed": (
        SchemaError,
        "DuckLake uses this name",
        lambda lake: lake.sql("ALTER TABLE t RENAME COLUMN c TO _ducklake_internal_snapshot_id"),
    ),
    "internal name, of a frame": (
        SchemaError,
        "DuckLake uses this name",
        lambda lake: lake.write("n", pa.table({"_ducklake_internal_snapshot_id": [1]})),
    ),
    "NUL": (SchemaError, "contains NUL", lambda lake: lake.create_table("n", pa.schema([("a\0b", pa.int32())]))),
    "NUL in a field": (SchemaError, "contains NUL", lambda lake: lake.write("n", pa.table({"s": [{"a\0b": 1}]}))),
    "too many buckets": (
        UsageError,
        "between 1 and 2,147,483,647",
        lambda lake: lake.sql("ALTER TABLE t SET PARTITIONED BY (bucket(2147483648, c))"),
    ),
    "too many buckets, method": (
        UsageError,
        "between 1 and 2,147,483,647",
        lambda lake: lake.table("t").set_partitioned_by(["bucket(2147483648, c)"]),
    ),
    "sorted by a field": (
        UnsupportedFeatureError,
        "before a field of a struct",
        lambda lake: lake.sql("ALTER TABLE t SET SORTED BY (s.a)"),
    ),
    "sorted by a field, method": (
        UnsupportedFeatureError,
        "before a field of a struct",
        lambda lake: lake.table("t").set_sorted_by(["s.a"]),
    ),
    "default of a list": (UnsupportedFeatureError, "cannot have a default", lambda lake: lake.sql("CREATE TABLE n (l INT[] DEFAULT [1])")),
    "default of a struct": (
        UnsupportedFeatureError,
        "cannot have a default",
        lambda lake: lake.sql("ALTER TABLE t ALTER COLUMN s SET DEFAULT {'a': 1}"),
    ),
    "default of a map": (
        UnsupportedFeatureError,
        "cannot have a default",
        lambda lake: lake.sql("ALTER TABLE t ADD COLUMN m MAP(INT, INT) DEFAULT MAP {1: 2}"),
    ),
}


@pytest.mark.parametrize("name", list(REJECTED))
def test_definitions_that_duckdb_rejects_are_rejected(lake: DuckLake, sqlite_address: LakeAddress, name: str) -> None:
    kind, message, call = REJECTED[name]
    before = lake.snapshot().id
    with pytest.raises(kind, match=message):
        call(lake)
    assert lake.snapshot().id == before
    lake.close()
    with attached(sqlite_address) as duck:
        duck.run("INSERT INTO lake.t VALUES (1, {'a': 1}, [1])")


def test_target_file_sizes_of_a_few_bytes_raise(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "MIN_TARGET_FILE_SIZE", 1000)
    with pytest.raises(UsageError, match="target_file_size is 5: it must be at least 1,000 bytes"):
        lake.set_option("target_file_size", 5)
    lake.set_option("target_file_size", "1KB")


def test_typed_literals_are_defaults_that_duckdb_honours(lake: DuckLake, sqlite_address: LakeAddress) -> None:
    lake.sql(
        "CREATE TABLE d (i INT, d DATE DEFAULT DATE '2020-01-01', n INTEGER DEFAULT '5'::INTEGER, "
        "t TIMESTAMP DEFAULT TIMESTAMP '2020-01-01 01:02:03')"
    )
    lake.sql("INSERT INTO d (i) VALUES (1)")
    lake.close()
    expected = (date(2020, 1, 1), 5, datetime(2020, 1, 1, 1, 2, 3))  # noqa: DTZ001 - the type has no zone
    with attached(sqlite_address) as duck:
        duck.run("INSERT INTO lake.d (i) VALUES (2)")
        assert duck.rows("SELECT * FROM lake.d ORDER BY i") == [(1, *expected), (2, *expected)]
