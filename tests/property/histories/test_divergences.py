"""DuckDB is still wrong where histories keep away from it; where it is right again, histories may go there."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from ducklake_core import DuckLake
from tests.property.histories.divergences import DIVERGENCES
from tests.support.oracle import new_connection, sqlite_lake


@pytest.mark.parametrize("name", DIVERGENCES)
def test_duckdb_is_still_wrong(tmp_path: Path, name: str) -> None:
    case = DIVERGENCES[name]
    address = sqlite_lake(tmp_path)
    for statements in (case.statements, (case.query,)):
        # A connection of its own each time: some of these leave it unusable.
        with new_connection() as connection:
            connection.execute(f"ATTACH '{address.attach}' AS lake {address.options('DATA_INLINING_ROW_LIMIT 10')}")
            try:
                connection.execute("USE lake")
                for statement in statements:
                    answer: object = connection.execute(statement).fetchall()
            except duckdb.Error as error:
                answer = error
    assert answer != case.right, f"DuckDB is right now; no longer avoid it: {case.avoided}"
    if case.scan is not None:
        found = DuckLake.connect(address.url).table("t", at=case.at).scan(**case.scan).to_arrow()
        assert [tuple(row.values()) for row in found.to_pylist()] == case.right
