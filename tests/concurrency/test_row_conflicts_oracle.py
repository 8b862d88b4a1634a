"""Row changes of the library with a commit of DuckDB on top: DuckDB sees the conflict, or both are in the lake.

DuckDB's own rules let some pairs through that lose deletes or read rows twice; what we log keeps it from those (decision 31).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress, attached
from tests.support.postgres import PostgresServer

Rows = set[int]
BY_LIBRARY: dict[str, tuple[Callable[[DuckLake], object], Callable[[Rows], Rows]]] = {
    "delete many": (lambda lake: lake.table("t").delete("i % 10 < 6 AND i < 20"), lambda rows: {i for i in rows if i % 10 > 5 or i >= 20}),
    "delete": (lambda lake: lake.table("t").delete("i IN (1, 12)"), lambda rows: rows - {1, 12}),
    "delete the same row": (lambda lake: lake.table("t").delete("i = 3"), lambda rows: rows - {3}),
    "end a file": (lambda lake: lake.table("t").delete("i < 10"), lambda rows: {i for i in rows if i >= 10}),
    "overwrite": (
        lambda lake: lake.table("t").overwrite(pa.table({"i": [3]}), where="i < 10"),
        lambda rows: {i for i in rows if i >= 10} | {3},
    ),
    "update": (lambda lake: lake.table("t").update({"i": "i + 100"}, where="i = 1"), lambda rows: rows - {1} | {101}),
    "merge": (lambda lake: lake.merge_adjacent_files("t"), lambda rows: rows),
    "flush": (lambda lake: lake.flush_inlined_data("t"), lambda rows: rows),
    "rewrite": (lambda lake: lake.rewrite_data_files("t", delete_threshold=0), lambda rows: rows),
}  # fmt: skip
BY_DUCKDB: dict[str, tuple[str, Callable[[Rows], Rows]]] = {
    "inlined delete": ("DELETE FROM t WHERE i IN (3, 13)", lambda rows: rows - {3, 13}),
    "delete file": ("DELETE FROM t WHERE i % 10 > 2 AND i < 20", lambda rows: {i for i in rows if i % 10 <= 2 or i >= 20}),
    "inlined update": ("UPDATE t SET i = 200 WHERE i = 4", lambda rows: rows - {4} | {200}),
    "flush": ("CALL ducklake_flush_inlined_data('lake')", lambda rows: rows),
    "merge": ("CALL ducklake_merge_adjacent_files('lake')", lambda rows: rows),
    "rewrite": ("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)", lambda rows: rows),
}


FEW = {("delete the same row", "inlined delete"), ("merge", "inlined delete"), ("delete many", "delete file"), ("flush", "delete file")}


@pytest.fixture(scope="module", params=["plain files", "files with deletes in the catalog", "files with delete files"])
def template(request: pytest.FixtureRequest, postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> LakeAddress:
    """Two files of ten rows, and a row inlined."""
    address = postgres.lake(tmp_path_factory.mktemp("template"))
    lake = lake_of_files(address)
    for start in (0, 10):
        lake.write("t", pa.table({"i": range(start, start + 10)}))
    with attached(address) as duck:
        duck.run("CALL lake.set_option('data_inlining_row_limit', 5)", "INSERT INTO t VALUES (50)")
        if request.param == "files with delete files":
            duck.run("CALL lake.set_option('data_inlining_row_limit', 0)", "DELETE FROM t WHERE i IN (7, 17)")
            duck.run("CALL lake.set_option('data_inlining_row_limit', 5)")
        elif request.param != "plain files":
            duck.run("DELETE FROM t WHERE i IN (7, 17)")
    # A database with open connections is no template.
    lake.close()
    return address


PAIRS = [
    pytest.param(first, second, marks=() if (first, second) in FEW else pytest.mark.slow, id=f"{second} after {first}")
    for first in BY_LIBRARY
    for second in BY_DUCKDB
    # An open flush of DuckDB locks the rows that the other one would wait for.
    if (first, second) != ("flush", "flush")
]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_duckdb_commits_on_top(template: LakeAddress, postgres: PostgresServer, tmp_path: Path, first: str, second: str) -> None:
    address = replace(postgres.lake(tmp_path, template), data_path=template.data_path)
    lake = DuckLake.connect(address.url)
    expected = set(lake.table("t").scan().to_arrow()["i"].to_pylist())
    change, effect = BY_LIBRARY[first]
    statement, effect_of_duckdb = BY_DUCKDB[second]
    with attached(address) as duck:
        duck.run("BEGIN", statement)
        change(lake)
        expected = effect(expected)
        try:
            duck.run("COMMIT")
            expected = effect_of_duckdb(expected)
        except duckdb.Error as error:
            assert "Transaction conflict" in str(error)
        assert duck.rows("SELECT i FROM t ORDER BY i") == [(i,) for i in sorted(expected)]
        assert duck.value("SELECT count(*) FROM t") == len(expected)
        # What is left behind can be worked on: nothing references deleted files.
        duck.run("CALL ducklake_flush_inlined_data('lake')")
        assert duck.rows("SELECT i FROM t ORDER BY i") == [(i,) for i in sorted(expected)]
    rows = lake.table("t").scan(columns=["i", "rowid"]).to_arrow()
    assert sorted(rows["i"].to_pylist()) == sorted(expected)
    assert len(set(rows["rowid"].to_pylist())) == len(expected)
    lake.close()


def test_two_delete_files_by_duckdb_are_found_and_repaired(postgres: PostgresServer, tmp_path: Path) -> None:
    """DuckDB looks for deletes from the same file by the first snapshot of its delete file, which a second delete keeps."""
    address = postgres.lake(tmp_path)
    lake = lake_of_files(address)
    lake.write("t", pa.table({"i": range(40)}))
    with attached(address) as first, attached(address) as second:
        first.run("DELETE FROM t WHERE i < 3")
        second.run("BEGIN", "DELETE FROM t WHERE i BETWEEN 20 AND 29")
        first.run("DELETE FROM t WHERE i BETWEEN 10 AND 19")
        second.run("COMMIT")
        assert first.value("SELECT count(*) > count(DISTINCT i) FROM t") is True
        assert "delete-files-two" in [finding.code for finding in lake.check().findings]
        lake.rewrite_data_files("t", delete_threshold=0)
        assert first.rows("SELECT i FROM t ORDER BY i") == [(i,) for i in (*range(3, 10), *range(30, 40))]
    assert lake.check(level="rows").is_sound
    lake.close()
