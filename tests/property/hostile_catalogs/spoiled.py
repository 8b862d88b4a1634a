"""A lake with a little of everything, ways to edit its catalog by hand, and what must be true of every answer from it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
from sqlalchemy import create_engine

from ducklake_core import DuckLake
from tests.support.lakes import held_open
from tests.support.oracle import LakeAddress, attached, sqlite_lake

Row = dict[str, Any]

FIRST, SECOND, INLINED = range(10), range(10, 20), range(20, 23)
DELETED = 3
ROWS: list[Row] = [
    {"a": None if n == 9 else n, "b": f"v{n:02}", "flag": n % 2 == 0, "x": n * 2, "day": 19_000 + n}
    for n in (*FIRST, *SECOND, *INLINED)
    if n != DELETED
]
FILTERS: dict[str, Callable[[Row], bool]] = {
    "a = 5": lambda row: row["a"] == 5,
    "a >= 12": lambda row: row["a"] is not None and row["a"] >= 12,
    "a < 2": lambda row: row["a"] is not None and row["a"] < 2,
    "a IN (4, 15, 21)": lambda row: row["a"] in (4, 15, 21),
    "a IS NULL": lambda row: row["a"] is None,
    "a IS NOT NULL": lambda row: row["a"] is not None,
    "NOT (a > 4)": lambda row: row["a"] is not None and row["a"] <= 4,
    "b = 'v07'": lambda row: row["b"] == "v07",
    "b LIKE 'v1%'": lambda row: row["b"].startswith("v1"),
    "flag": lambda row: row["flag"],
    "s.x > 30": lambda row: row["x"] > 30,
    "day = DATE '2022-01-12'": lambda row: row["day"] == 19_004,
}
_SELECT = (
    "i::INTEGER AS n, 'v' || lpad(i::VARCHAR, 2, '0') AS b, i % 2 = 0 AS flag, {'x': (i * 2)::INTEGER} AS s, "
    "DATE '1970-01-01' + (19000 + i)::INTEGER AS day"
)


def build(address: LakeAddress) -> LakeAddress:
    """The lake: two data files, a delete file on the first, inlined rows, a second table; ids as the constants of the tests say."""
    with attached(address, "DATA_INLINING_ROW_LIMIT 5") as duck:
        duck.run("CREATE TABLE t(a INTEGER, b VARCHAR, flag BOOLEAN, s STRUCT(x INTEGER), day DATE)")
        for numbers in (FIRST, SECOND, INLINED):
            duck.run(
                f"INSERT INTO t SELECT CASE WHEN n <> 9 THEN n END, b, flag, s, day FROM "
                f"(SELECT {_SELECT} FROM range({numbers.start}, {numbers.stop}) r(i))"
            )
        duck.run("CREATE TABLE other AS SELECT i + 100 AS a, 'other' AS b FROM range(10) r(i)")
        duck.run("CALL lake.set_option('data_inlining_row_limit', 0, table_name => 't')", f"DELETE FROM t WHERE a = {DELETED}")
    return address


@dataclass
class SpoiledLake:
    """A copy of the lake."""

    address: LakeAddress

    def moved_from(self, template: LakeAddress) -> SpoiledLake:
        """The files come along."""
        shutil.copytree(template.data_path, self.address.data_path)
        return self.edit(f"UPDATE ducklake_metadata SET value = '{self.address.data_path}' WHERE key = 'data_path'")

    def edit(self, *statements: str) -> SpoiledLake:
        """Run statements on the catalog database itself."""
        if self.address.backend == "duckdb":
            with duckdb.connect(self.address.url.removeprefix("duckdb:///")) as file:
                for statement in statements:
                    edit_typed(file, statement)
            return self
        engine = create_engine(self.address.url)
        with engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)
        engine.dispose()
        return self

    def value(self, query: str) -> Any:
        """The first value of a query on the catalog database."""
        if self.address.backend == "duckdb":
            with duckdb.connect(self.address.url.removeprefix("duckdb:///")) as file:
                return (file.execute(query).fetchone() or (None,))[0]
        engine = create_engine(self.address.url)
        with engine.connect() as connection:
            found = connection.exec_driver_sql(query).scalar()
        engine.dispose()
        return found

    def file(self, number: int) -> Path:
        """The place of a data file of ``t``."""
        return (
            Path(self.address.data_path) / "main" / "t" / self.value(f"SELECT path FROM ducklake_data_file WHERE data_file_id = {number}")
        )

    def rows(self, where: str | None = None, name: str = "t") -> list[Row]:
        """What a scan gives, in the form of ``ROWS``."""
        with DuckLake.connect(self.address.url) as lake:
            return _plain(lake, where, name)

    def count(self) -> int:
        """Number of rows by the fastest way there is."""
        lake = DuckLake.connect(self.address.url)
        try:
            return lake.table("t").scan().count()
        finally:
            lake.close()

    def assert_right(self) -> None:
        """Every row is there, and every filter gives those of them that it should."""
        assert self.rows() == ROWS
        with ExitStack() as stack:
            # A catalog in a DuckDB file is opened once for all filters: that takes longer than reading what is in it.
            lake = stack.enter_context(DuckLake.connect(self.address.url)) if self.address.backend == "duckdb" else None
            if lake is not None:
                stack.enter_context(held_open(lake))
            for where, holds in FILTERS.items():
                found = self.rows(where) if lake is None else _plain(lake, where, "t")
                assert found == [row for row in ROWS if holds(row)], where


def _plain(lake: DuckLake, where: str | None, name: str) -> list[Row]:
    found = lake.table(name).scan(where=where).to_arrow().to_pylist()
    plain = [
        {"a": row["a"], "b": row["b"], "flag": row["flag"], "x": row["s"]["x"], "day": (row["day"].toordinal() - 719_163)} for row in found
    ]
    return sorted(plain, key=lambda row: str(row["b"]))


def sqlite_copy(template: LakeAddress, folder: Path) -> SpoiledLake:
    """A copy of a lake with a SQLite catalog."""
    return file_copy(template, sqlite_lake(folder))


def file_copy(template: LakeAddress, address: LakeAddress) -> SpoiledLake:
    """A copy of a lake whose catalog is a file."""
    shutil.copy(*(one.url.partition(":///")[2] for one in (template, address)))
    return SpoiledLake(address).moved_from(template)


_CELL = re.compile(r"UPDATE (\S+) SET (\w+) = (?:'[^']*'|-?\d+)")


def edit_typed(file: duckdb.DuckDBPyConnection, statement: str) -> None:
    """Run a statement; a column that cannot hold the value becomes one of texts first, as somebody else may have made it."""
    try:
        file.execute(statement)
    except duckdb.ConversionException:
        found = _CELL.match(statement)
        assert found is not None, statement
        table, column = found.groups()
        file.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET DATA TYPE VARCHAR")
        file.execute(statement)
