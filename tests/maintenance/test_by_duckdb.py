"""What DuckDB's maintenance makes of lakes that we wrote: what goes wrong there, and that it goes wrong without us."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress

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
