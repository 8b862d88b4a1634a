"""Use DuckDB files as catalogs: the SQLAlchemy dialect, its DBAPI layer, and one shared handle per process.

DuckDB lets either one process write to a file or several processes read it, and holds that lock as long as the file is attached. So a file
is attached when a transaction begins and detached when the last transaction of the process on it ends::

    SQLAlchemy connection -> FileConnection --begin--> Lease -> _OpenFile (shared in the process) -> DuckDB instance, file attached
                                            --end----> the last lease detaches the file and keeps the instance as a spare
"""

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
from uuid import uuid4

from sqlalchemy import Connection, text
from sqlalchemy.engine import URL, default
from sqlalchemy.sql import compiler
from sqlalchemy.types import UserDefinedType
from typing_extensions import override

from ducklake_core.catalog.database.failures import RetryPolicy, classify
from ducklake_core.catalog.database.url import SQLITE_HEADER, driver_module, file_exists, forbidden
from ducklake_core.errors import CatalogError, CatalogUnavailableError, NotALakeError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


ALIAS = "ducklake_catalog"
"""Name under which the file is attached. All statements qualify table names with it, so a name of a user cannot collide with it."""
# Bytes 8 to 11 of every DuckDB file.
_MAGIC = b"DUCK"
_FILE_RETRIES = RetryPolicy(first_pause=0.03, max_pause=0.03)
_MAX_THREADS = 4
_abandoned: list[_Process] = []

# Text of the RuntimeError that DuckDB raises when a signal handler raised during a query.
_INTERRUPTED = "Query interrupted"


def duckdb_module() -> ModuleType:
    """Return the ``duckdb`` package.

    Raises:
        UnsupportedFeatureError: The package is not installed.
    """
    return driver_module("duckdb", "a catalog in a DuckDB file", "duckdb")


def create_database(path: str) -> None:
    """Create an empty DuckDB database at a path without a file."""
    # Like the ducklake extension, which uses the newest storage version: older ones cannot store VARIANT columns.
    _attached(path, "STORAGE_VERSION 'latest'").close()


@dataclass(slots=True, kw_only=True)
class _OpenFile:
    """An open file of this process, shared by all of its transactions on it."""

    instance: DuckDBPyConnection
    is_writable: bool
    users: int = 0
    has_writer: bool = False


@dataclass(slots=True)
class _Process:
    """The open files of this process by path. One change at a time.

    Attributes:
        spare: At most one instance of DuckDB without a file. Creating an instance takes three times as long as attaching a file.
    """

    released: threading.Condition = field(default_factory=threading.Condition)
    files: dict[str, _OpenFile] = field(default_factory=dict)
    spare: list[DuckDBPyConnection] = field(default_factory=list)

    def wait(self, seconds: float) -> None:
        """Wait until a transaction of this process ends, but no longer than a number of seconds."""
        with self.released:
            self.released.wait(seconds)


_process = _Process()


def _forget_parent() -> None:
    """Set aside the instances of the parent in a forked child: without their threads, using and destroying them would hang."""
    global _process  # noqa: PLW0603
    _abandoned.append(_process)
    _process = _Process()


os.register_at_fork(after_in_child=_forget_parent)


class Lease:
    """The use of a file for one transaction. Writers of one process exclude each other; readers share the file.

    Args:
        path: Absolute path of the file.
        write: Whether the transaction may write.
        patience: Seconds to wait for other transactions, in this process and in other processes.

    Raises:
        CatalogUnavailableError: The file is missing, or another process has it open.
        NotALakeError: The path is not a DuckDB database.
        CatalogError: The user has no permission to open the file.
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
        """Release the file. The last user detaches it, which also checkpoints the write-ahead log into the file."""
        file = self._file
        with self._process.released:
            self.connection.close()
            file.users -= 1
            file.has_writer = file.has_writer and not self._write
            if file.users == 0:
                del self._process.files[self._path]
                _close(file.instance)
            self._process.released.notify_all()

    def _wait(self, shown: str, patience: float) -> _OpenFile:
        attempts = _FILE_RETRIES.attempts(max_seconds=patience, sleep=self._process.wait)
        while True:
            try:
                return self._begin(shown)
            except CatalogUnavailableError as error:
                if classify(error) != "retry" or not attempts.again(error):
                    raise

    def _begin(self, shown: str) -> _OpenFile:
        """Use the file, unless another process or another transaction of this process excludes that."""
        with self._process.released:
            file = self._process.files.get(self._path) or self._open(shown)
            # A file that readers attached READ_ONLY cannot become writable before the last of them ends.
            if self._write and (file.has_writer or not file.is_writable):
                raise _busy(shown, "another transaction of this process is using it", "try again after it has ended")
            file.users += 1
            file.has_writer = file.has_writer or self._write
            return file

    def _open(self, shown: str) -> _OpenFile:
        if not file_exists(self._path, shown):
            raise CatalogUnavailableError(f"There is no catalog file {shown}. Check the path", failure="unavailable", path=shown)
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
    """Return a separate DuckDB instance that has the file attached under :data:`ALIAS`."""
    instance = _instance()
    quoted = path.replace("'", "''")
    try:
        # Without TYPE, DuckDB opens files of other formats with its extensions: a Parquet file would become a database in memory.
        instance.execute(f"ATTACH '{quoted}' AS {ALIAS} ({option}, TYPE duckdb)")
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
    """Detach the file, and keep the instance for the next one."""
    duckdb = duckdb_module()
    try:
        instance.execute(f"DETACH {ALIAS}")
    except duckdb.Error:
        # A failed checkpoint loses nothing: committed changes stay in the write-ahead log next to the file.
        instance.close()
        return
    if _process.spare:
        instance.close()
    else:
        _process.spare.append(instance)


def _busy(shown: str, who: str, advice: str) -> CatalogUnavailableError:
    return CatalogUnavailableError(f"The catalog file {shown} is locked: {who}; {advice}", failure="retry", path=shown)


def _explained(path: str, shown: str, error: Exception, *, write: bool) -> CatalogError:
    """Return an error that explains why DuckDB could not open the file, by inspecting the file.

    Called only while this process does not have the file open: closing any descriptor of a file drops the POSIX locks of the process.
    """
    if (reason := forbidden(path, shown, write=write)) is not None:
        return reason
    try:
        with Path(path).open("rb") as file:
            head = file.read(len(SQLITE_HEADER))
    except OSError as cause:
        return CatalogUnavailableError(
            f"The catalog file {shown} cannot be read ({cause.strerror}). Check its permissions", failure="unavailable", path=shown
        )
    if head == SQLITE_HEADER:
        return NotALakeError(
            f"File {shown} is a SQLite database, not a DuckDB database. Write sqlite:/// instead of duckdb:///, "
            "or ducklake:sqlite: in place of ducklake:",
            path=shown,
        )
    if head[8:12] != _MAGIC:
        return NotALakeError(f"File {shown} is not a DuckDB database, so it holds no DuckLake catalog. Check the path", path=shown)
    text = " ".join(str(error).split())
    return _busy(
        shown,
        f"DuckDB allows one process to write to a file, or several to read it ({text})",
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
        """Return the name of the type."""
        return self.name


class _Preparer(compiler.IdentifierPreparer):
    """Quote every name, because DuckDB reserves more words than other databases. Quoted names still ignore case in DuckDB."""

    @override
    def _requires_quotes(self, value: str) -> bool:
        return True

    @override
    def quote_schema(self, schema: str) -> str:
        # Always with the database: a schema with the name of an attached database would be ambiguous.
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
    # One INSERT for many rows: row by row, DuckDB takes a hundred times as long.
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
        # No query: a connection has no file before its first transaction.
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
    """Call a DuckDB connection. DuckDB replaces an exception of a signal handler by its own error and continues to run the query."""
    try:
        return function(*arguments)
    except RuntimeError as error:
        if str(error) != _INTERRUPTED:
            raise
        # Without this, closing the connection would wait for the running query.
        connection.interrupt()
        raise KeyboardInterrupt from error


class FileConnection:
    """A connection that attaches its file when a transaction begins and releases it when the transaction ends."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._write = False
        self._patience = 0.0
        self._lease: Lease | None = None

    def intend(self, *, write: bool, patience: float) -> None:
        """Set the properties of the next transaction.

        Args:
            write: Whether it writes.
            patience: Maximum seconds to wait for the file.
        """
        self._write = write
        self._patience = patience

    def begin(self) -> None:
        """Open the file and start a transaction."""
        self._lease = Lease(self._path, write=self._write, patience=self._patience)
        _run(self._lease.connection, self._lease.connection.execute, "BEGIN TRANSACTION")

    def copy_file(self, path: str) -> None:
        """Copy the content of the file to a new file."""
        create_database(path)
        # A cursor of its own: DuckDB cannot detach a database in the transaction that used it. One statement reads one state.
        own, name, quoted = self.inside.cursor(), f"ducklake_copy_{uuid4().hex}", path.replace("'", "''")
        try:
            own.execute(f"ATTACH '{quoted}' AS {name} (READ_WRITE, TYPE duckdb)")
            try:
                _run(own, own.execute, f"COPY FROM DATABASE {ALIAS} TO {name}")
            finally:
                own.execute(f"DETACH {name}")
        finally:
            own.close()

    def commit(self) -> None:
        """Commit, and release the file in any case."""
        self._end("COMMIT")

    def rollback(self) -> None:
        """Roll back and release the file; does nothing without a transaction."""
        self._end("ROLLBACK")

    def close(self) -> None:
        """Release the file; uncommitted changes are rolled back."""
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.end()

    def cursor(self) -> Cursor:
        """Return a cursor in the transaction of the connection."""
        return Cursor(self)

    @property
    def inside(self) -> Any:
        """Return the DuckDB connection of the current transaction."""
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
    """A DBAPI cursor. It fetches all rows at once, because the next statement of the transaction would discard them."""

    arraysize = 1

    def __init__(self, connection: FileConnection) -> None:
        self._connection = connection
        self._rows: deque[tuple[Any, ...]] = deque()
        self.description: list[tuple[Any, ...]] | None = None
        self.rowcount = -1

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> None:
        """Execute a statement and fetch its rows."""
        inside = self._connection.inside
        _run(inside, inside.execute, statement, list(parameters))
        self.description = inside.description or None
        self._rows = deque(_run(inside, inside.fetchall) if self.description else ())

    def executemany(self, statement: str, parameters: Sequence[Sequence[Any]]) -> None:
        """Execute a statement without result rows once for each list of parameters."""
        inside = self._connection.inside
        _run(inside, inside.executemany, statement, [list(values) for values in parameters])
        self.has_no_rows()

    def has_no_rows(self) -> None:
        """Discard the count that DuckDB returns as a row after a statement that changes rows."""
        self.description = None
        self._rows.clear()

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, None at the end."""
        return self._rows.popleft() if self._rows else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Return up to ``size`` further rows."""
        return [self._rows.popleft() for _ in range(min(size or self.arraysize, len(self._rows)))]

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all further rows."""
        rows = list(self._rows)
        self._rows.clear()
        return rows

    def close(self) -> None:
        """Discard the rows."""
        self._rows.clear()
