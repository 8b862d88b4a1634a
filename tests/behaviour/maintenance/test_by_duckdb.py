"""What DuckDB's maintenance makes of lakes that we wrote: what goes wrong there, and that it goes wrong without us."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, sqlite_lake
from tests.support.postgres import PostgresServer

_REWRITE = "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.0)"
_FLUSH = "CALL ducklake_flush_inlined_data('lake')"


def _lake(address: LakeAddress) -> DuckLake:
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.set_option("data_inlining_row_limit", 10)
    lake.write("t", pa.table({"k": range(30), "v": ["a"] * 30}))
    return lake


def test_rows_inlined_before_a_column_was_added_are_flushed_before_files_are_rewritten(
    sqlite_address: LakeAddress, oracle: Callable[..., Any]
) -> None:
    lake = _lake(sqlite_address)
    lake.write("t", pa.table({"k": [30], "v": ["b"]}))
    lake.table("t").add_column("n", "int32", default=7)
    lake.table("t").delete("k = 3")
    right = [(k, "a", 7) for k in range(30) if k != 3] + [(30, "b", 7)]
    with oracle(sqlite_address) as duck:
        with pytest.raises(duckdb.TransactionException, match="Failed to read inlined-data aggregates"):
            duck.run(_REWRITE)
        assert duck.rows("SELECT * FROM t ORDER BY k") == right
        duck.run(_FLUSH, _REWRITE)
        assert duck.rows("SELECT * FROM t ORDER BY k") == right
        duck.run("CREATE TABLE own (k BIGINT)", "INSERT INTO own FROM range(30)", "INSERT INTO own VALUES (30)")
        duck.run("ALTER TABLE own ADD COLUMN n INTEGER DEFAULT 7", "DELETE FROM own WHERE k = 3")
        with pytest.raises(duckdb.TransactionException, match="Failed to read inlined-data aggregates"):
            duck.run(_REWRITE)
    rows = lake.table("t").scan().to_arrow().sort_by("k")
    assert [tuple(row.values()) for row in rows.to_pylist()] == right


def test_flushed_deletes_of_a_rewritten_file_leave_the_past_alone(sqlite_address: LakeAddress, oracle: Callable[..., Any]) -> None:
    lake = _lake(sqlite_address)
    lake.table("t").delete("k = 2")
    lake.table("t").update({"v": "'b'"}, where="k > 2")
    at = lake.snapshot().id
    right = [(k, "b" if k > 2 else "a") for k in range(30) if k != 2]
    with oracle(sqlite_address) as duck:
        past = f"SELECT * FROM t AT (VERSION => {at}) ORDER BY ALL"
        duck.run(_REWRITE)
        assert duck.rows(past) == right
        duck.run(_FLUSH)
        assert duck.rows("SELECT * FROM t ORDER BY ALL") == right
        # It begins a delete file that never ends for a file that has ended, beside the one that the file had.
        assert len(duck.rows(past)) == 59
    rows = lake.table("t", at=at).scan().to_arrow().sort_by("k")
    assert [tuple(row.values()) for row in rows.to_pylist()] == right
    assert lake.table("t", at=at).scan().count() == 29


@pytest.mark.parametrize(
    ("key", "texts", "few"),
    [
        ("v", ["plain", "it's"], False),
        ("v", ["plain", "Zürich"], False),
        ("bucket(4, v)", ["back\\slash"], False),
        ("v", ["plain", "a, b; (c)", None], True),
    ],
)
def test_deleted_rows_of_text_partitions_stay_deleted(
    lake_address: LakeAddress, oracle: Callable[..., Any], key: str, texts: list[str | None], few: bool
) -> None:
    """On PostgreSQL a flush looks for them by a key that bytes do not have: they would be back."""
    lake = DuckLake.create(lake_address.url, data_path=lake_address.data_path)
    rows = pa.table({"k": range(len(texts)), "v": pa.array(texts, pa.string())})
    lake.create_table("t", rows.schema, partition_by=[key])
    added = lake.write("t", rows)
    assert (added.rows_inlined > 0) == (few or lake_address.backend == "sqlite")
    gone = len(texts) - 1
    lake.table("t").delete(f"k = {gone}")
    right = [(k, text) for k, text in enumerate(texts) if k != gone]
    with oracle(lake_address) as duck:
        duck.run(_FLUSH)
        assert duck.rows("SELECT * FROM t ORDER BY k") == right


@pytest.mark.parametrize(("backend", "how", "left"), [("postgresql", "PARTITIONED BY (v)", [1, 2]), ("sqlite", "SORTED BY (d)", [1])])
def test_the_reference_brings_its_own_deleted_rows_back(
    postgres: PostgresServer, tmp_path: Path, oracle: Callable[..., Any], backend: str, how: str, left: list[int]
) -> None:
    address = postgres.lake(tmp_path) if backend == "postgresql" else sqlite_lake(tmp_path)
    with oracle(address) as duck:
        duck.run("CREATE TABLE t (k BIGINT, v VARCHAR, d DECIMAL(9, 2))", f"ALTER TABLE t SET {how}")
        duck.run("INSERT INTO t VALUES (1, 'it''s', 9), (2, 'it''s', 10)", "DELETE FROM t WHERE k = 1", _FLUSH)
        assert duck.rows("SELECT k FROM t ORDER BY k") == [(k,) for k in left]


@pytest.mark.parametrize(
    ("data_type", "values", "few"),
    [
        (pa.int64(), [9, 10], True),
        (pa.string(), ["b", "ä"], True),
        (pa.date32(), [-10_000, 10_000], True),
        (pa.timestamp("us"), [-1, 10_000_000], True),
        (pa.decimal128(9, 2), [9, 10], False),
        (pa.uint64(), [9, 10], False),
        (pa.float64(), [9.0, 10.0], False),
        (pa.date32(), [0, 4_000_000], False),
    ],
    ids=str,
)
def test_deleted_rows_of_sorted_tables_stay_deleted(
    sqlite_address: LakeAddress, oracle: Callable[..., Any], data_type: pa.DataType, values: list[object], few: bool
) -> None:
    """A flush sorts numbers as the texts that the catalog keeps: another row would be deleted."""
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    rows = pa.table({"k": range(len(values)), "v": pa.array(values, data_type)})
    lake.create_table("t", rows.schema)
    lake.table("t").set_sorted_by(["v"])
    assert (lake.write("t", rows).rows_inlined > 0) == few
    lake.table("t").delete("k = 0")
    with oracle(sqlite_address) as duck:
        duck.run(_FLUSH)
        assert duck.rows("SELECT k FROM t") == [(1,)]


def test_rows_of_a_table_that_the_transaction_sorts_later_go_to_files(sqlite_address: LakeAddress, oracle: Callable[..., Any]) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    rows = pa.table({"k": range(2), "v": pa.array([9, 10], pa.decimal128(9, 2))})
    with lake.transaction() as tx:
        tx.create_table("t", rows.schema)
        tx.append("t", rows)
        tx.set_sorted_by("t", ["v"])
    assert lake.table("t").info().inlined_row_count == 0
    lake.table("t").delete("k = 0")
    with oracle(sqlite_address) as duck:
        duck.run(_FLUSH)
        assert duck.rows("SELECT k FROM t") == [(1,)]
