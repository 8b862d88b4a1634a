"""Two lakes that go through the same steps: one is changed by this library, the other by DuckDB."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from ducklake_core import DuckLake
from tests.support.catalog_dump import dump_catalog
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.parameters import new_address, slow


@dataclass
class Twins:
    """A lake of ducklake_core and its twin, each with DuckDB attached."""

    lake: DuckLake
    own: Oracle
    by_duckdb: Oracle

    def both(self, *statements: str) -> None:
        """Run statements with DuckDB on both lakes."""
        self.own.run(*statements)
        self.by_duckdb.run(*statements)

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """A query's rows on the lake of ducklake_core, as DuckDB reads them; the same as on the twin."""
        found, expected = self.own.rows(query), self.by_duckdb.rows(query)
        # NaN is not equal to itself.
        assert sorted(map(repr, found)) == sorted(map(repr, expected))
        return found

    def same(self, table: str) -> None:
        """The table has the same rows with the same row ids for DuckDB on both lakes, and for this library."""
        found = self.rows(f"SELECT rowid, * FROM {table}")
        names = ["rowid", *self.lake.table(table).schema.names]
        read = self.lake.table(table).scan(columns=names).to_arrow().to_pylist()
        assert sorted(repr(tuple(row.values())) for row in read) == sorted(map(repr, found))

    def same_changes(self, table: str, start: int = 1, end: int | None = None) -> None:
        """Every snapshot changed the same rows."""
        newest = self.lake.snapshot().id if end is None else end
        changes = f"FROM ducklake_table_changes('lake', 'main', '{table}', {start}, {newest}) ORDER BY ALL"
        found = self.rows(changes)
        read = self.lake.table(table).changes(start, newest).to_arrow().to_pylist()
        assert sorted(repr(tuple(row.values())) for row in read) == sorted(map(repr, found))

    def same_catalog(self, *, apart_from: Mapping[str, Sequence[str]] | None = None) -> None:
        """Both catalogs hold the same rows, but for tables and columns that are named with ``apart_from``."""
        by_duckdb = dump_catalog(self.by_duckdb.address)
        own = dump_catalog(self.own.address, by_duckdb)
        left_out = apart_from or {}
        for name in sorted(own.keys() | by_duckdb.keys()):
            if name in left_out and not left_out[name]:
                continue
            drop = set(left_out.get(name, ()))
            if name == "data_file":
                # Files that embed row ids have no first one here: it would mislead DuckDB's merge.
                drop.add("row_id_start")
                first = [{row["row_id_start"] for row in dump.get(name, [])} - {None} for dump in (own, by_duckdb)]
                assert first[0] <= first[1]
            found, expected = (
                sorted(repr({key: value for key, value in row.items() if key not in drop}) for row in dump.get(name, []))
                for dump in (own, by_duckdb)
            )
            assert found == expected, name


@pytest.fixture(params=["sqlite", slow("postgresql")])
def twins(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Twins]:
    """Lakes on SQLite and on PostgreSQL, in which nothing is inlined."""

    def place(name: str) -> LakeAddress:
        folder = tmp_path / name
        folder.mkdir()
        return new_address(request, request.param, folder)

    with ExitStack() as stack:
        own, by_duckdb = (stack.enter_context(attached(place(name), "DATA_INLINING_ROW_LIMIT 0")) for name in ("own", "duckdb"))
        twins = Twins(DuckLake.connect(own.address.url), own, by_duckdb)
        twins.both("CALL lake.set_option('data_inlining_row_limit', 0)")
        yield twins
