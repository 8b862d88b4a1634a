"""The page on tables of Delta Lake and Iceberg runs as it stands, with stand-ins for the libraries of both."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ducklake_core import DuckLake
from tests.support.oracle import new_connection
from tests.support.pages import DOCS, Reader
from tests.support.table_formats import OldTables, modules, rows


def test_rows_and_files_come_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = OldTables(tmp_path / "old")
    for name, module in modules(old.trips).items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.chdir(tmp_path / "old")
    # The tables are there already; the script of the page needs the libraries themselves.
    old.lake.close()
    lake = Reader(DOCS / "how-to/from-delta-and-iceberg.md").run()["lake"]
    assert isinstance(lake, DuckLake)
    for name, place in (("orders", "region"), ("trips", "city")):
        wanted = rows(place)
        for schema in ("copied", "added"):
            found = lake.table(f"{schema}.{name}").scan().to_arrow().select(wanted.column_names).sort_by("id")
            assert found.to_pylist() == wanted.to_pylist(), (schema, name)
    lake.close()
    with new_connection() as duck:
        duck.execute(f"ATTACH 'ducklake:sqlite:{tmp_path / 'old' / 'lake.sqlite'}' AS lake")
        for name, place in (("orders", "region"), ("trips", "city")):
            found = duck.execute(f"SELECT id, {place}, day, price FROM lake.added.{name} ORDER BY id").fetchall()
            assert found == [tuple(row.values()) for row in rows(place).select(["id", place, "day", "price"]).to_pylist()]
