"""DuckDB files as catalogs: the SQLAlchemy dialect, its DBAPI layer, and one shared handle per process."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, text
from sqlalchemy.engine import URL, default
from sqlalchemy.sql import compiler
from sqlalchemy.types import UserDefinedType
from typing_extensions import override

from ducklake_core.catalog.database.failures import RetryPolicy, classify
from ducklake_core.catalog.database.url import driver_module, file_exists, forbidden
from ducklake_core.errors import CatalogError, CatalogUnavailableError, NotALakeError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


ALIAS = "ducklake_catalog"
"""The name under which the file is attached; all statements name tables in full, so no name of a user can be mistaken for it."""
_MAGIC = b"DUCK"
_FILE_RETRIES = RetryPolicy(first_pause=0.03, max_pause=0.03)
_MAX_THREADS = 4
_abandoned: list[_Process] = []

_INTERRUPTED = "Query interrupted"


def duckdb_module() -> ModuleType:
    """The ``duckdb`` package.

    Raises:
        UnsupportedFeatureError: It is not installed.
    """
    return driver_module("duckdb", "a catalog in a DuckDB file", "duckdb")


def create_database(path: str) -> None:
    """Create an empty DuckDB database, where no file is."""
    # DuckDB makes its files with the newest storage version, without which VARIANT columns cannot be stored.
    _attached(path, "STORAGE_VERSION 'latest'").close()


@dataclass(slots=True, kw_only=True)
class _OpenFile:
    """A file as this process has it open."""

    instance: DuckDBPyConnection
    is_writable: bool
    users: int = 0
    has_writer: bool = False


@dataclass(slots=True)
class _Process:
    """The open files of this process by path. One change at a time.

    Attributes:
        spare: An instance of DuckDB with no file, if there is one: to make it takes three times as long as to attach a file.
    """

    turn: threading.Condition = field(default_factory=threading.Condition)
    files: dict[str, _OpenFile] = field(default_factory=dict)
    spare: list[DuckDBPyConnection] = field(default_factory=list)

    def wait(self, seconds: float) -> None:
        """Wait until a transaction of this process ends, but no longer than a number of seconds."""
        with self.turn:
            self.turn.wait(seconds)


_process = _Process()


def _forget_parent() -> None:
    """In a forked child the parent's instances have lost their threads: keep them from being used, and from being destroyed."""
    global _process  # noqa: PLW0603
    _abandoned.append(_process)
    _process = _Process()


os.register_at_fork(after_in_child=_forget_parent)


class Lease:
    """The use of a file for one transaction. Writers of one process take turns; readers share.

    Args:
        path: Absolute path of the file.
        write: Whether the transaction may write.
        patience: Seconds to wait for others, in this process and in other ones.

    Raises:
        CatalogUnavailableError: The file is missing, or somebody else has it.
        NotALakeError: It is no DuckDB database, or a directory.
        CatalogError: This user may not open it.
    """

    def __init__(self, path: str, *, write: bool, patience: float) -> None:
        self._path = os.path.realpath(path)
        self._write = write
        self._process = _process
        self._file = self._wait(path, patience)
        self.connection: DuckDBPyConnection = self._file.instance.cursor()
        try:
            self.connection.execute("SET TimeZone = 'UTC'")
            self.connection.execute(f"USE {ALIAS}")
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Give the file up; the last user closes it, which also brings everything committed from the log into the file."""
        file = self._file
        with self._process.turn:
            self.connection.close()
            file.users -= 1
            file.has_writer = file.has_writer and not self._write
            if file.users == 0:
                del self._process.files[self._path]
                _close(file.instance)
            self._process.turn.notify_all()

    def _wait(self, shown: str, patience: float) -> _OpenFile:
        attempts = _FILE_RETRIES.attempts(max_seconds=patience, sleep=self._process.wait)
        while True:
            try:
                return self._begin(shown)
            except CatalogUnavailableError as error:
                if classify(error) != "retry" or not attempts.again(error):
                    raise

    def _begin(self, shown: str) -> _OpenFile:
        """Use the file, if neither another process nor another transaction of this one excludes that."""
        with self._process.turn:
            file = self._process.files.get(self._path) or self._open(shown)
            if self._write and (file.has_writer or not file.is_writable):
                raise _busy(shown, "another transaction of this process is using it", "try again when that has ended")
            file.users += 1
            file.has_writer = file.has_writer or self._write
            return file

    def _open(self, shown: str) -> _OpenFile:
        if not file_exists(self._path, shown):
            raise CatalogUnavailableError(f"there is no catalog file {shown}", failure="unavailable", path=shown)
        duckdb = duckdb_module()
        try:
            instance = _attached(self._path, "READ_WRITE" if self._write else "READ_ONLY")
        except duckdb.BinderException as error:
            raise _busy(
                shown, "another DuckDB connection of this process has it open", "DETACH it there, or use the lake from another process"
            ) from error
        except duckdb.IOException as error:
            raise _explained(self._path, shown, error, write=self._write) from error
        file = self._process.files[self._path] = _OpenFile(instance=instance, is_writable=self._write)
        return file


def _attached(path: str, option: str) -> DuckDBPyConnection:
    """A DuckDB instance of its own that has the file attached under :data:`ALIAS`."""
    instance = _instance()
    quoted = path.replace("'", "''")
    try:
        instance.execute(f"ATTACH '{quoted}' AS {ALIAS} ({option})")
    except BaseException:
        instance.close()
        raise
    return instance


def _instance() -> DuckDBPyConnection:
    with suppress(IndexError):
        return _process.spare.pop()
    threads = min(_MAX_THREADS, os.cpu_count() or 1)
    config: dict[str, Any] = {"threads": threads, "autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    made: DuckDBPyConnection = duckdb_module().connect(":memory:", config=config)
    return made


def _close(instance: DuckDBPyConnection) -> None:
    """Give up the file, and keep the instance for the next one."""
    duckdb = duckdb_module()
    try:
        instance.execute(f"DETACH {ALIAS}")
    except duckdb.Error:
        # A checkpoint that fails loses nothing: what is committed stays in the log beside the file.
        instance.close()
        return
    if _process.spare:
        instance.close()
    else:
        _process.spare.append(instance)


def _busy(shown: str, who: str, advice: str) -> CatalogUnavailableError:
    return CatalogUnavailableError(f"the catalog file {shown} is locked: {who}; {advice}", failure="retry", path=shown)


def _explained(path: str, shown: str, error: Exception, *, write: bool) -> CatalogError:
    """Why DuckDB could not open the file, asked of the file itself. Called only while this process does not have it open."""
    if (reason := forbidden(path, shown, write=write)) is not None:
        return reason
    try:
        with Path(path).open("rb") as file:
            is_database = file.read(12)[8:] == _MAGIC
    except OSError as cause:
        return CatalogUnavailableError(f"cannot read the catalog file {shown}: {cause.strerror}", failure="unavailable", path=shown)
    if not is_database:
        return NotALakeError(f"the file {shown} is no DuckDB database, so it holds no DuckLake catalog", path=shown)
    text = " ".join(str(error).split())
    return _busy(
        shown,
        f"DuckDB lets one process write to a file, or several read it ({text})",
        "close or DETACH it there and try again, or keep the catalog in PostgreSQL, which many processes can use at the same time",
    )


class NativeType(UserDefinedType[Any]):
    """A type by its DuckDB name.

    >>> str(NativeType("STRUCT(x INTEGER)[]"))
    'STRUCT(x INTEGER)[]'
    """

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_options: Any) -> str:
        """The name."""
        return self.name


class _Preparer(compiler.IdentifierPreparer):
    """Every name is quoted: DuckDB reserves words that no other database does, and compares names without case even so."""

    @override
    def _requires_quotes(self, value: str) -> bool:
        return True

    @override
    def quote_schema(self, schema: str) -> str:
        # A schema of the name of an attached database would be ambiguous.
        return f"{self.quote_identifier(ALIAS)}.{self.quote_identifier(schema)}"


class _Types(compiler.GenericTypeCompiler):
    @override
    def visit_DATETIME(self, type_: Any, **_options: Any) -> str:
        return "TIMESTAMP WITH TIME ZONE" if type_.timezone else "TIMESTAMP"


class _Statements(compiler.SQLCompiler):
    @override
    def visit_regexp_match_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return f"regexp_matches({self.process(binary.left, **kw)}, {self.process(binary.right, **kw)})"


class DuckDBDialect(default.DefaultDialect):
    """SQLAlchemy dialect over :class:`~ducklake_core.catalog.database.duckdb_catalog.FileConnection`."""

    name = "duckdb"
    driver = "ducklake"
    default_paramstyle = "qmark"
    preparer = _Preparer
    type_compiler_cls = _Types
    statement_compiler = _Statements
    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_uuid = True
    supports_multivalues_insert = True
    # One statement for many rows: executed row by row DuckDB takes a hundred times as long.
    use_insertmanyvalues = True
    use_insertmanyvalues_wo_returning = True
    insertmanyvalues_page_size = 500

    @classmethod
    @override
    def import_dbapi(cls) -> ModuleType:
        return duckdb_module()

    @override
    def create_connect_args(self, url: URL) -> tuple[list[str], dict[str, Any]]:
        return [str(url.database)], {}

    @override
    def connect(self, *arguments: Any, **_options: Any) -> Any:
        return FileConnection(*arguments)

    @override
    def initialize(self, connection: Connection) -> None:
        # Nothing is asked: a connection has no file before its first transaction.
        self.default_schema_name = "main"
        self.server_version_info = ()

    @override
    def do_begin(self, dbapi_connection: Any) -> None:
        dbapi_connection.begin()

    @override
    def do_execute(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        found: Cursor = cursor
        found.execute(statement, parameters)
        if context is not None and (context.isinsert or context.isupdate or context.isdelete or context.isddl):
            found.has_no_rows()

    @override
    def is_disconnect(self, *_arguments: Any) -> bool:
        return False

    @override
    def has_table(self, connection: Connection, table_name: str, schema: str | None = None, **_options: Any) -> bool:
        return table_name in self._names(connection, schema, table_name)

    @override
    def has_schema(self, connection: Connection, schema_name: str, **_options: Any) -> bool:
        query = text("SELECT 1 FROM duckdb_schemas() WHERE database_name = :database AND schema_name = :schema")
        return connection.execute(query, {"database": ALIAS, "schema": schema_name}).first() is not None

    @override
    def get_table_names(self, connection: Connection, schema: str | None = None, **_options: Any) -> list[str]:
        return self._names(connection, schema, None)

    @override
    def get_columns(self, connection: Connection, table_name: str, schema: str | None = None, **_options: Any) -> list[Any]:
        query = text(
            "SELECT column_name, data_type, is_nullable, column_default FROM duckdb_columns() WHERE database_name = :database "
            "AND schema_name = :schema AND table_name = :table ORDER BY column_index"
        )
        found = connection.execute(query, {"database": ALIAS, "schema": schema or "main", "table": table_name})
        return [
            {"name": row.column_name, "type": NativeType(row.data_type), "nullable": row.is_nullable, "default": row.column_default}
            for row in found
        ]

    @override
    def get_pk_constraint(self, connection: Connection, table_name: str, schema: str | None = None, **_options: Any) -> Any:
        query = text(
            "SELECT constraint_column_names FROM duckdb_constraints() WHERE database_name = :database AND schema_name = :schema "
            "AND table_name = :table AND constraint_type = 'PRIMARY KEY'"
        )
        found = connection.execute(query, {"database": ALIAS, "schema": schema or "main", "table": table_name}).scalar()
        return {"constrained_columns": list(found or ()), "name": None}

    def _names(self, connection: Connection, schema: str | None, table: str | None) -> list[str]:
        query = "SELECT table_name FROM duckdb_tables() WHERE database_name = :database AND schema_name = :schema"
        wanted = {"database": ALIAS, "schema": schema or "main"}
        if table is not None:
            query, wanted = f"{query} AND table_name = :table", wanted | {"table": table}
        return list(connection.execute(text(f"{query} ORDER BY table_name"), wanted).scalars())


def _run(connection: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a connection of DuckDB, which puts an error of its own in the place of what a signal's handler raises, and works on."""
    try:
        return function(*arguments)
    except RuntimeError as error:
        if str(error) != _INTERRUPTED:
            raise
        # Whoever closes the connection would wait for its threads.
        connection.interrupt()
        raise KeyboardInterrupt from error


class FileConnection:
    """A connection to a file that is opened when a transaction begins and given up when it ends."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._write = False
        self._patience = 0.0
        self._lease: Lease | None = None

    def intend(self, *, write: bool, patience: float) -> None:
        """Set whether the next transaction writes, and how many seconds it may wait for the file."""
        self._write = write
        self._patience = patience

    def begin(self) -> None:
        """Open the file and start a transaction."""
        self._lease = Lease(self._path, write=self._write, patience=self._patience)
        _run(self._lease.connection, self._lease.connection.execute, "BEGIN TRANSACTION")

    def commit(self) -> None:
        """Commit and give the file up, whatever the outcome."""
        self._end("COMMIT")

    def rollback(self) -> None:
        """Undo everything and give the file up; without a transaction there is nothing to do."""
        self._end("ROLLBACK")

    def close(self) -> None:
        """Give the file up; what was not committed is undone with it."""
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.end()

    def cursor(self) -> Cursor:
        """A cursor in the connection's transaction."""
        return Cursor(self)

    @property
    def inside(self) -> Any:
        """DuckDB's own connection, while a transaction runs."""
        assert self._lease is not None, "statements need a transaction"
        return self._lease.connection

    def _end(self, statement: str) -> None:
        if self._lease is None:
            return
        try:
            _run(self._lease.connection, self._lease.connection.execute, statement)
        finally:
            self.close()


class Cursor:
    """One statement at a time; its rows are fetched at once, because the next statement of the transaction would discard them."""

    arraysize = 1

    def __init__(self, connection: FileConnection) -> None:
        self._connection = connection
        self._rows: deque[tuple[Any, ...]] = deque()
        self.description: list[tuple[Any, ...]] | None = None
        self.rowcount = -1

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> None:
        """Run a statement."""
        inside = self._connection.inside
        _run(inside, inside.execute, statement, list(parameters))
        self.description = inside.description or None
        self._rows = deque(_run(inside, inside.fetchall) if self.description else ())

    def executemany(self, statement: str, parameters: Sequence[Sequence[Any]]) -> None:
        """Run a statement that returns nothing once for each list of parameters."""
        inside = self._connection.inside
        _run(inside, inside.executemany, statement, [list(values) for values in parameters])
        self.has_no_rows()

    def has_no_rows(self) -> None:
        """Forget the count that DuckDB returns as a row after a statement that changes rows."""
        self.description = None
        self._rows.clear()

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row."""
        return self._rows.popleft() if self._rows else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Up to so many further rows."""
        return [self._rows.popleft() for _ in range(min(size or self.arraysize, len(self._rows)))]

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All further rows."""
        rows = list(self._rows)
        self._rows.clear()
        return rows

    def close(self) -> None:
        """Forget the rows."""
        self._rows.clear()
