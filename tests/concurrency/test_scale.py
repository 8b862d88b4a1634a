"""Cost of a commit in statements: it grows with the written rows, never with their square or the size of the lake."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy.schema import ExecutableDDLElement

from ducklake_core import DuckLake
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.statements import Answer, Parameters, Statements
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.parameters import slow


class Counted:
    """Statements that pass through, and how many there were; those for many rows count once."""

    def __init__(self, inner: Statements) -> None:
        self.inner = inner
        self.count = 0

    def run(self, name: Hashable, build: Callable[[], Any], parameters: Parameters | None = None) -> None:
        self.count += 1
        self.inner.run(name, build, parameters)

    def fetch(self, name: Hashable, build: Callable[[], Any], parameters: Mapping[str, object] | None = None) -> Answer:
        self.count += 1
        return self.inner.fetch(name, build, parameters)

    def has_table(self, name: str, schema: str | None) -> bool:
        self.count += 1
        return self.inner.has_table(name, schema)

    def define(self, statement: ExecutableDDLElement, undo: ExecutableDDLElement | None = None) -> None:
        self.count += 1
        self.inner.define(statement, undo)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Statements of each commit."""
    found: list[int] = []
    commit = Database.commit

    @contextmanager
    def counting(self: Database, *arguments: Any) -> Iterator[Counted]:
        with commit(self, *arguments) as statements:
            counted = Counted(statements)
            yield counted
            found.append(counted.count)

    monkeypatch.setattr(Database, "commit", counting)
    return found


def row(names: Sequence[str], value: int) -> pa.Table:
    return pa.table({name: pa.array([value], pa.int32()) for name in names})


@pytest.mark.parametrize("columns", [1700, slow(5000)])
def test_thousands_of_columns(columns: int, lake_address: LakeAddress, counts: list[int]) -> None:
    """Statistics of every column are carried on with every append; searching each would be 25 million rows."""
    lake = DuckLake.create(lake_address.url, data_path=lake_address.data_path)
    names = [f"c{number}" for number in range(columns)]
    for value in range(3):
        assert lake.write("t", row(names, value)).rows_inlined == 0
    assert max(counts) <= 20
    lake.close()
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        assert duck.rows(f"SELECT count(*), min(c0), max(c{columns - 1}) FROM t WHERE c17 >= 1") == [(2, 1, 2)]


def test_a_thousand_changes_in_a_transaction(sqlite_address: LakeAddress, counts: list[int]) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    with lake.transaction() as tx:
        for number in range(200):
            tx.create_table(f"t{number}", row(["a"], 0).schema)
    with lake.transaction() as tx:
        for number in range(1000):
            tx.append(f"t{number % 200}", row(["a"], number))
    # One for the rows of each append, three for each table, and what every commit has.
    assert counts[-1] <= 1000 + 3 * 200 + 20
    duck: Oracle
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT count(*), sum(a), min(rowid), max(rowid) FROM t7") == [(5, 7 + 207 + 407 + 607 + 807, 0, 4)]


@pytest.mark.parametrize("tables", [200, slow(10_000)])
def test_a_lake_of_many_tables(tables: int, sqlite_address: LakeAddress, counts: list[int]) -> None:
    """Statements of one append do not depend on the other tables."""
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.create_table("t", row(["a"], 0).schema)
    lake.table("t").append(row(["a"], 1))
    alone = counts[-1]
    with lake.transaction() as tx:
        for number in range(tables):
            tx.create_table(f"other{number}", row(["a"], 0).schema)
    lake.table("t").append(row(["a"], 2))
    lake.table("t").append(row(["a"], 3))
    assert counts[-1] <= alone + 1
