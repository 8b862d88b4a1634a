"""Flushes by DuckDB that damage a table: a commit that DuckDB repeats doubles deletes, and a failure after the commit deletes its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import NotFoundError
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress, attached
from tests.support.postgres import PostgresServer, reject_drops

_DELETED = (3, 5, 7)
_LIVE = [(number,) for number in range(12) if number not in _DELETED]


def _append_with_duckdb(address: LakeAddress) -> None:
    with attached(address) as duck:
        duck.run("INSERT INTO other VALUES (1)")


def _append_with_library(address: LakeAddress) -> None:
    with DuckLake.connect(address.url) as lake:
        lake.table("other").append(pa.table({"i": [1]}))


def _do_nothing(_address: LakeAddress) -> None:
    pass


def _flush(address: LakeAddress, meanwhile: Callable[[LakeAddress], None]) -> None:
    """Delete rows of a file, which DuckDB inlines, and flush the deletes with DuckDB."""
    with lake_of_files(address) as lake:
        lake.write("t", pa.table({"i": range(12)}))
        lake.write("other", pa.table({"i": [0]}))
        lake.set_option("data_inlining_row_limit", 10)
    with attached(address) as duck:
        duck.run(*(f"DELETE FROM t WHERE i = {number}" for number in _DELETED))
        duck.run("BEGIN", "CALL ducklake_flush_inlined_data('lake')")
        meanwhile(address)
        duck.run("COMMIT")


@pytest.mark.parametrize(
    "append",
    [pytest.param(_append_with_library, id="library"), pytest.param(_append_with_duckdb, id="DuckDB", marks=pytest.mark.slow)],
)
def test_deleted_rows_that_duckdb_reads_are_found_and_repaired(
    postgres: PostgresServer, tmp_path: Path, append: Callable[[LakeAddress], None]
) -> None:
    """If DuckDB reads the right rows here, its defect is fixed: the page of differences and the chaos test need not name it."""
    address = postgres.lake(tmp_path)
    _flush(address, append)
    with attached(address) as duck, DuckLake.connect(address.url) as lake:
        assert (5,) in duck.rows("FROM t")
        assert sorted(lake.table("t").scan().to_arrow()["i"].to_pylist()) == [number for (number,) in _LIVE]
        assert lake.table("t").scan().count() == len(_LIVE)
        (finding,) = lake.check(level="rows").findings
        assert (finding.code, finding.severity) == ("inlined-delete-twice", "error")
        lake.flush_inlined_data("t")
        assert duck.rows("FROM t ORDER BY i") == _LIVE
        assert duck.value("SELECT count(*) FROM t") == len(_LIVE)
        assert len(lake.check(level="rows")) == 0


def test_duckdb_writes_deleted_rows_again(postgres: PostgresServer, tmp_path: Path) -> None:
    address = postgres.lake(tmp_path)
    _flush(address, _append_with_library)
    with attached(address) as duck:
        duck.run("UPDATE t SET i = i + 100 WHERE i BETWEEN 4 AND 6")
        assert (105,) in duck.rows("FROM t")
    with DuckLake.connect(address.url) as lake:
        assert 105 in lake.table("t").scan().to_arrow()["i"].to_pylist()


@pytest.mark.slow
def test_a_flush_that_commits_at_once_doubles_nothing(postgres: PostgresServer, tmp_path: Path) -> None:
    address = postgres.lake(tmp_path)
    _flush(address, _do_nothing)
    with attached(address) as duck, DuckLake.connect(address.url) as lake:
        assert duck.rows("FROM t ORDER BY i") == _LIVE
        assert len(lake.check(level="rows")) == 0


def test_files_that_duckdb_deletes_after_their_commit_are_found(postgres: PostgresServer, tmp_path: Path) -> None:
    """If DuckDB keeps the files here, its defect is fixed: the page of differences and the chaos test need not name it."""
    address = postgres.lake(tmp_path)
    with lake_of_files(address) as lake:
        lake.set_option("data_inlining_row_limit", 10)
    with attached(address) as duck:
        duck.run(
            "CREATE TABLE t (i INTEGER)", "INSERT INTO t VALUES (1)", "ALTER TABLE t ADD COLUMN j INTEGER", "INSERT INTO t VALUES (2, 2)"
        )
        reject_drops(postgres, address)
        with pytest.raises(duckdb.Error, match="Failed to drop superseded inlined-data tables"):
            duck.run("CALL ducklake_flush_inlined_data('lake')")
    with DuckLake.connect(address.url) as lake:
        assert {finding.code for finding in lake.check(level="footers").findings} == {"file-missing"}
        with pytest.raises(NotFoundError):
            lake.table("t").scan().to_arrow()
