"""The oracle: DuckDB with its ducklake extension, attached to a lake by the same address that our library uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
from duckdb_extensions import import_extension


@dataclass(frozen=True)
class LakeAddress:
    """Where a test's lake is: the SQLAlchemy URL for us, the ATTACH target for DuckDB, and the data path for both."""

    url: str
    attach: str
    data_path: str
    backend: str

    def options(self, extra: str = "") -> str:
        return f"(DATA_PATH '{self.data_path}'{', ' + extra if extra else ''})"


@dataclass
class Oracle:
    """One DuckDB connection with the lake attached as ``lake`` and in use."""

    connection: duckdb.DuckDBPyConnection
    address: LakeAddress
    statements: list[str] = field(default_factory=list)

    def run(self, *statements: str) -> None:
        """Execute statements one after another."""
        for statement in statements:
            self.statements.append(statement)
            self.connection.execute(statement)

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """All rows of a query."""
        return self.connection.execute(query, list(parameters)).fetchall()

    def value(self, query: str) -> object:
        """The one value of a query."""
        (row,) = self.rows(query)
        return row[0]

    def arrow(self, query: str):  # type: ignore[no-untyped-def]
        """A query's result as a pyarrow Table."""
        return self.connection.execute(query).to_arrow_table()


def new_connection() -> duckdb.DuckDBPyConnection:
    """A DuckDB connection with ducklake and both catalog extensions loaded, in UTC."""
    connection = duckdb.connect(config={"threads": 2})
    for extension in ("ducklake", "sqlite_scanner", "postgres_scanner"):
        import_extension(extension, con=connection)
    for extension in ("ducklake", "sqlite_scanner", "postgres_scanner"):
        connection.execute(f"LOAD {extension}")
    return connection


@contextmanager
def attached(address: LakeAddress, options: str = "") -> Iterator[Oracle]:
    """DuckDB with the lake attached; detached and closed at the end, so that SQLite is not left locked."""
    connection = new_connection()
    try:
        connection.execute(f"ATTACH '{address.attach}' AS lake {address.options(options)}")
        connection.execute("USE lake")
        yield Oracle(connection, address)
    finally:
        connection.close()


def sqlite_lake(folder: Path) -> LakeAddress:
    """A lake in a folder: SQLite catalog, local files."""
    file = folder / "catalog.sqlite"
    return LakeAddress(f"sqlite:///{file}", f"ducklake:sqlite:{file}", f"{folder / 'files'}/", "sqlite")
