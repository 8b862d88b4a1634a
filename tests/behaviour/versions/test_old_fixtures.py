"""Lakes of earlier versions, migrated to 1.1: ducklake_core and a second implementation read the same snapshots as before."""

from __future__ import annotations

from pathlib import Path

import pytest

from ducklake_core import DuckLake
from tests.support.ducklakepy_lake import BACKENDS, compare_all, second_implementation
from tests.support.old_lakes import VERSIONS, JsonRows, changes, old_lake, rows_at
from tests.support.parameters import spread

_LAKES = [(version, backend) for version in VERSIONS for backend in BACKENDS] + [("0.2", "duckdb"), ("0.3", "duckdb")]


@pytest.mark.parametrize("by", spread(["both", "ducklake_core"], 1))
@pytest.mark.parametrize(("version", "backend"), spread(_LAKES, 1))
def test_every_fixture(version: str, backend: str, by: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Migrate to 1.1; or to 1.0, and then by the second implementation, where it supports the catalog."""
    old = old_lake(version, backend, tmp_path, request.getfixturevalue("postgres") if backend == "postgresql" else None)
    json_rows = JsonRows()
    shown = {(name, at): rows for name, expected in old.expected.items() for at, rows in expected.items() if at in set(changes(expected))}
    with DuckLake.connect(old.address.url) as before:
        assert {key: json_rows.of(rows_at(before, *key)) for key in shown} == shown
        before.migrate("1.0" if by == "both" and backend in BACKENDS else "1.1")
    if by == "both" and backend in BACKENDS:
        with second_implementation(old.address, migrate=True):
            pass
    lake = DuckLake.connect(old.address.url)
    assert lake.info.version == "1.1"
    assert {key: json_rows.of(rows_at(lake, *key)) for key in shown} == shown
    if backend in BACKENDS:
        compared, rejected = compare_all(lake, old.address)
        assert compared > 20
        assert rejected == {}
