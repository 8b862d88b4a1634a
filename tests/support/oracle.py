"""The oracle: DuckDB with its ducklake extension, attached to a lake by the address that the library uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
from duckdb_extensions import import_extension

from ducklake_core.catalog.database import duckdb_catalog
from ducklake_core.format.types.data_types import DataType, DecimalType, ListType, MapType, PrimitiveType, StructType

READS = ("1.0",)
"""Versions of lakes that the installed extension works on. With one of DuckDB 2.0 this becomes ``("1.0", "1.1")``."""


@dataclass(frozen=True)
class LakeAddress:
    """Address of a lake: the SQLAlchemy URL for the library, the ATTACH target for DuckDB, and the data path for both."""

    url: str
    attach: str
    data_path: str
    backend: str

    def options(self, extra: str = "") -> str:
        return f"(DATA_PATH '{self.data_path}'{', ' + extra if extra else ''})"


@dataclass
class Oracle:
    """One DuckDB connection with the lake attached as ``lake`` and in use."""

    attached: Attachment
    address: LakeAddress
    statements: list[str] = field(default_factory=list)

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """DuckDB's own connection, for this moment: a DuckDB file is released as soon as the library wants it."""
        return self.attached.connection()

    def run(self, *statements: str) -> None:
        """Execute statements one after another."""
        for statement in statements:
            self.statements.append(statement)
            self.connection.execute(statement)
        self.attached.rest()

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """All rows of a query."""
        found = self.connection.execute(query, list(parameters)).fetchall()
        self.attached.rest()
        return found

    def value(self, query: str) -> object:
        """The one value of a query."""
        (row,) = self.rows(query)
        return row[0]

    def arrow(self, query: str):  # type: ignore[no-untyped-def]
        """A query's result as a pyarrow Table."""
        found = self.connection.execute(query).to_arrow_table()
        self.attached.rest()
        return found


@dataclass
class Attachment:
    """A lake attached as ``lake`` and in use, on each access of the connection."""

    own: duckdb.DuckDBPyConnection
    statement: str
    is_there: bool = False

    def connection(self) -> duckdb.DuckDBPyConnection:
        if not self.is_there:
            self.own.execute(self.statement)
            self.own.execute("USE lake")
            self.is_there = True
        return self.own

    def rest(self) -> None:
        """Let another client open the file, as DuckDB has answered."""

    def end(self) -> None:
        """Detach the lake at the end of its use."""

    def give_up(self) -> None:
        if self.is_there:
            self.own.execute("USE memory")
            self.own.execute("DETACH lake")
            self.is_there = False


_holders: list[Attachment] = []
"""Attachments of lakes in DuckDB files, which only one DuckDB instance of a process can have open."""


def open_file(path: str, option: str) -> duckdb.DuckDBPyConnection:
    """An instance of its own with a DuckDB file attached, which no oracle has then."""
    give_up_all()
    return _open_file_alone(path, option)


def give_up_all() -> None:
    """Detach every DuckDB file from all oracles, until their next query."""
    for holder in _holders:
        holder.give_up()


_open_file_alone = duckdb_catalog._attached
duckdb_catalog._attached = open_file


def new_connection() -> duckdb.DuckDBPyConnection:
    """A DuckDB connection with ducklake and both catalog extensions loaded, in UTC.

    It has one thread: what a second one costs made tests take a fifth more processor time.
    """
    connection = duckdb.connect(config={"threads": 1})
    for extension in ("ducklake", "sqlite_scanner", "postgres_scanner"):
        import_extension(extension, con=connection)
    for extension in ("ducklake", "sqlite_scanner", "postgres_scanner"):
        connection.execute(f"LOAD {extension}")
    # To write encrypted files without the httpfs extension; it changes nothing for others.
    connection.execute("SET force_mbedtls_unsafe = 'true'")
    return connection


_idle: list[duckdb.DuckDBPyConnection] = []
"""Instances with nothing attached: loading the extensions takes half a second of processor time."""
_SETTINGS = "SELECT list((name, value) ORDER BY name) FROM duckdb_settings() WHERE name <> 'search_path'"
_DATABASES = "SELECT list(database_name ORDER BY database_name) FROM duckdb_databases() WHERE NOT internal"
_TABLES = "SELECT list(table_name) FROM duckdb_tables()"
_VIEWS = "SELECT list(view_name) FROM duckdb_views() WHERE NOT internal"


@contextmanager
def attached(
    address: LakeAddress, options: str = "", before: Callable[[duckdb.DuckDBPyConnection], None] | None = None
) -> Iterator[Oracle]:
    """A DuckDB instance of its own with the lake attached; detached at the end, so that SQLite is not left locked."""
    connection = _idle.pop() if _idle and before is None else new_connection()
    pristine = _state(connection) if before is None else []
    if before is not None:
        before(connection)
    clean = False
    lake = _attachment(connection, address, options)
    if address.backend == "duckdb":
        for other in _holders:
            other.give_up()
        _holders.append(lake)
    try:
        lake.connection()
        yield Oracle(lake, address)
        lake.give_up()
        clean = _state(connection) == pristine
    finally:
        if lake in _holders:
            _holders.remove(lake)
        lake.end()
        if clean:
            _idle.append(connection)
        else:
            connection.close()


def _attachment(connection: duckdb.DuckDBPyConnection, address: LakeAddress, options: str) -> Attachment:
    if address.backend == "mysql":
        from tests.support.mysql_copy import copied

        return copied(connection, address, options)
    return Attachment(connection, f"ATTACH '{address.attach}' AS lake {address.options(options)}")


def _state(connection: duckdb.DuckDBPyConnection) -> list[object]:
    """Settings, attached databases, temporary tables and views; an instance that a test left changed is not used again."""
    return [connection.execute(query).fetchone() for query in (_SETTINGS, _DATABASES, _TABLES, _VIEWS)]


def sqlite_lake(folder: Path) -> LakeAddress:
    """A lake in a folder: SQLite catalog, local files."""
    return file_lake("sqlite", folder)


def file_lake(backend: str, folder: Path) -> LakeAddress:
    """A lake in a folder: SQLite or DuckDB file as catalog, local files."""
    file = folder / f"catalog.{backend}"
    target = {"sqlite": f"ducklake:sqlite:{file}", "duckdb": f"ducklake:{file}"}[backend]
    return LakeAddress(f"{backend}:///{file}", target, f"{folder / 'files'}/", backend)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_SQL_NAMES = {
    "int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "int128": "HUGEINT",
    "uint8": "UTINYINT", "uint16": "USMALLINT", "uint32": "UINTEGER", "uint64": "UBIGINT", "uint128": "UHUGEINT",
    "float32": "FLOAT", "float64": "DOUBLE",
}  # fmt: skip


def sql_type(data_type: DataType) -> str:
    """Return DuckDB's name of a type."""
    match data_type:
        case PrimitiveType(name=name):
            return _SQL_NAMES.get(name, name.upper())
        case DecimalType(precision=precision, scale=scale):
            return f"DECIMAL({precision},{scale})"
        case ListType(element=element):
            return f"{sql_type(element.type)}[]"
        case MapType(key=key, value=value):
            return f"MAP({sql_type(key.type)}, {sql_type(value.type)})"
        case StructType(fields=fields):
            return "STRUCT(" + ", ".join(f"{quoted(field.name)} {sql_type(field.type)}" for field in fields) + ")"
    raise AssertionError(data_type)
