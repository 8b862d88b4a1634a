"""Parse catalog addresses (specification: Choosing a Catalog Database), and check that a catalog file can be opened."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from errno import EBADF, ELOOP, ENOENT, ENOTDIR
from importlib import import_module
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from ducklake_core.errors import CatalogError, NotALakeError, UnsupportedFeatureError, UsageError
from ducklake_core.format.arguments import optional
from ducklake_core.format.types.names import storable
from ducklake_core.format.types.text import similar_in_brackets

SQLITE_HEADER = b"SQLite format 3\0"
"""First bytes of a SQLite database."""
_SPELLINGS = (
    "sqlite:///lake.sqlite, duckdb:///lake.ducklake, postgresql+psycopg://user@host/database, mysql+pymysql://user@host/database, "
    "ducklake:lake.ducklake, ducklake:sqlite:lake.sqlite, ducklake:postgres:dbname=lake host=... or ducklake:mysql:db=lake host=..."
)
_OWN_DIALECTS = {"duckdb": "duckdb+ducklake", "mysql": "mysql+ducklake"}
"""Databases for which this library uses its own SQLAlchemy dialect, even if others are installed."""
_SECRET_WORDS = ("password", "passwd", "secret", "token", "scram_client_key", "scram_server_key")
# user:password@host, or a password option of a connection string.
_SERVER_ADDRESS = re.compile(r":/+[^/]*:.*@|//[^/]*:[^/]*@|^[^/\\]*:.*@|(password|passwd|pwd|token)\s*=", re.IGNORECASE | re.DOTALL)
_MASK = "masked_secret"
_NAMES_ARE_DECODED = make_url("sqlite:///%20").database == " "

_WORD = re.compile(r'\s*(?:"((?:[^"\\]|\\["\\])*)"|([^\s="]+))')
_NAMES = {"passwd": "password", "db": "database", "socket": "unix_socket"}
_MODES = ("disabled", "preferred", "required", "verify_ca", "verify_identity")
_PARAMETERS = frozenset({"unix_socket", "ssl_mode", "ssl_ca", "ssl_capath", "ssl_cert", "ssl_key", "ssl_cipher", "charset"})
_LONGEST_SECONDS = 31_536_000
_SECONDS = frozenset({"connect_timeout", "read_timeout", "write_timeout"})

_ABSENT = frozenset({ENOENT, ENOTDIR, EBADF, ELOOP})
_DATABASES = ("sqlite", "postgresql", "postgres", "mysql", "mariadb", "duckdb")


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogAddress:
    """The address of a metadata database. ``str()`` and ``repr()`` never show a password.

    Attributes:
        url: SQLAlchemy URL; the path of a file is absolute.
        metadata_schema: Database schema that holds the metadata tables, None for DuckDB's default (``public`` on PostgreSQL,
            ``main`` in a DuckDB file).
    """

    url: URL
    metadata_schema: str | None = None

    def __str__(self) -> str:
        # libpq accepts secrets as parameters too, such as sslpassword. The mask is inserted last, because *** would be percent-encoded.
        shown = self.url.update_query_dict(dict.fromkeys(self._secret_parameters, _MASK))
        return shown.render_as_string(hide_password=True).replace(f"={_MASK}", "=***")

    def __repr__(self) -> str:
        return f"CatalogAddress({str(self)!r}, metadata_schema={self.metadata_schema!r})"

    @property
    def _secret_parameters(self) -> tuple[str, ...]:
        return tuple(name for name in self.url.query if any(word in name.lower() for word in _SECRET_WORDS))

    @property
    def engine_url(self) -> URL:
        """Return the URL for the engine of SQLAlchemy."""
        return self.url.set(drivername=_OWN_DIALECTS.get(self.url.get_backend_name(), self.url.drivername))

    @property
    def default_data_path(self) -> str | None:
        """Return DuckDB's default directory for data files: next to a DuckDB file; None for other databases."""
        return f"{self.url.database}.files/" if self.url.get_backend_name() == "duckdb" else None

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the strings that no message may contain."""
        found = [] if self.url.password is None else [str(self.url.password)]
        if self.url.get_backend_name() == "postgresql" and (of_environment := os.environ.get("PGPASSWORD")):
            found.append(of_environment)
        for name in self._secret_parameters:
            values = self.url.query[name]
            found += [values] if isinstance(values, str) else list(values)
        return tuple(found)


def parse_catalog_url(text: str | os.PathLike[str], metadata_schema: str | None = None) -> CatalogAddress:
    """Parse the address of a catalog.

    >>> str(parse_catalog_url("ducklake:postgres:dbname=lake host=db user=me password=secret"))
    'postgresql+psycopg://me:***@db/lake'
    >>> str(parse_catalog_url("postgresql://me@db/lake?sslpassword=secret"))
    'postgresql+psycopg://me@db/lake?sslpassword=***'
    >>> str(parse_catalog_url("postgresql://me@db:5433/lake"))
    'postgresql+psycopg://me@db:5433/lake'
    >>> str(parse_catalog_url("ducklake:mysql:db=lake host=db user=me passwd=secret"))
    'mysql+pymysql://me:***@db/lake'
    >>> str(parse_catalog_url("ducklake:sqlite:/lakes/lake.sqlite"))
    'sqlite:////lakes/lake.sqlite'
    >>> str(parse_catalog_url("ducklake:/lakes/lake.ducklake"))
    'duckdb:////lakes/lake.ducklake'

    Args:
        text: A SQLAlchemy URL, an address as in DuckDB's ATTACH, with or without the leading ``ducklake:``, or a path of a file.
        metadata_schema: Database schema of the metadata tables, for PostgreSQL and DuckDB files; None for the default.

    Raises:
        UsageError: The address is not valid.
        UnsupportedFeatureError: This library does not support catalogs in the database.
    """
    if isinstance(text, os.PathLike):
        optional(storable, "metadata_schema", metadata_schema)
        path = os.fspath(text)
        return (_sqlite if _is_sqlite(path) else _duckdb)(path, metadata_schema)
    if not isinstance(text, str):
        # The value may contain a password.
        raise UsageError(f"catalog must be a string, not {type(text).__name__}", parameter="catalog")
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise UsageError("The catalog address contains a NUL character or half of a surrogate pair. Remove it", parameter="catalog")
    optional(storable, "metadata_schema", metadata_schema)
    spelled = text.strip()
    if ":" not in spelled and os.path.isdir(spelled):
        raise UsageError(f"The catalog address {spelled!r} is a directory. Write the path of its catalog file", parameter="catalog")
    if ":" not in spelled and os.path.isfile(spelled):
        return parse_catalog_url(Path(spelled), metadata_schema)
    kind, separator, rest = spelled.removeprefix("ducklake:").partition(":")
    if not separator or rest.startswith("//") or "+" in kind:
        return _from_url(spelled, metadata_schema)
    match kind.lower():
        case "sqlite":
            return _sqlite(rest, metadata_schema)
        case "postgres" | "postgresql":
            return _postgres(rest, metadata_schema)
        case "mysql" | "mariadb":
            return _mysql(mysql_url_of_text(rest), metadata_schema)
        case "duckdb":
            return _duckdb(rest, metadata_schema)
        case _ if spelled.startswith("ducklake:") or kind.lower() in ("md", "quack"):
            raise _unsupported(kind)
        case _:
            raise UsageError(f"The catalog address cannot be parsed. Write {_SPELLINGS}")


def _from_url(text: str, metadata_schema: str | None) -> CatalogAddress:
    if text.startswith("ducklake:") and "://" not in text:
        return _duckdb(text.removeprefix("ducklake:"), metadata_schema)
    try:
        # Invalid UTF-8 would be replaced, and the address would name another file.
        unquote(text, errors="strict")
        url = _decoded(make_url(text.removeprefix("ducklake:")))
    except (ArgumentError, ValueError):
        # The message of SQLAlchemy repeats the whole address, including the password.
        raise UsageError(f"The catalog address cannot be parsed. Write {_SPELLINGS}") from None
    is_server = url.get_backend_name() in ("postgresql", "postgres", "mysql", "mariadb")
    user, _, rest = text.partition("://")[2].partition("@")
    # With a password in the address, a question mark may belong to it, so that the rest is no query.
    if is_server and ("@" in (url.host or "") or "@" in (rest if ":" in user else rest.partition("?")[0])):
        # The end of the password would be parsed as the host, which messages show.
        raise UsageError(
            "the catalog address has more than one @: write %40 for each that belongs to the user, the password or the database "
            "(urllib.parse.quote(password, safe='') encodes all such characters)"
        )
    if "\0" in (url.database or ""):
        raise UsageError("The database name in the catalog address contains a NUL character. Remove it")
    match url.get_backend_name():
        case "sqlite" if url.host:
            path = "/".join(filter(None, (url.host, url.database)))
            raise UsageError(f"The path of a SQLite catalog follows three slashes, or four if it is absolute. Write sqlite:///{path}")
        case "sqlite":
            return _sqlite(url.database or "", metadata_schema)
        case "postgresql" | "postgres":
            return _postgres_url(url, metadata_schema)
        case "mysql" | "mariadb":
            return _mysql(plain_mysql_url(url), metadata_schema)
        case "duckdb":
            return _duckdb_url(url, metadata_schema)
        case name:
            raise _unsupported(name)


def _decoded(url: URL) -> URL:
    """Return the URL with a decoded database name: SQLAlchemy 2.0 keeps ``%20`` in it, 2.1 decodes it."""
    return url.set(database=unquote(url.database)) if url.database and not _NAMES_ARE_DECODED else url


def _unsupported(name: str) -> UnsupportedFeatureError:
    why = {
        "md": "MotherDuck as catalog database is not supported: only DuckDB itself can reach it, with MotherDuck's own extension",
        "quack": "a DuckDB server (quack) as catalog database is not supported: only DuckDB itself can reach it",
    }.get(name.lower(), f"{name} as catalog database is not supported{similar_in_brackets(name, _DATABASES)}")
    return UnsupportedFeatureError(f"{why}. Use SQLite, PostgreSQL, MySQL, MariaDB or a DuckDB file", dialect=name)


def _sqlite(path: str, metadata_schema: str | None) -> CatalogAddress:
    if metadata_schema not in (None, "main"):
        raise UnsupportedFeatureError(
            f"metadata_schema is {metadata_schema!r}, but a SQLite catalog has no schemas. Remove metadata_schema",
            metadata_schema=metadata_schema,
        )
    if not path or path == ":memory:" or path.startswith("file:"):
        raise UsageError(
            "A SQLite catalog needs the path of a file, because every connection to a database in memory opens another database"
        )
    _check_is_a_file(path)
    return CatalogAddress(url=URL.create("sqlite", database=str(Path(path).absolute())))


def _is_sqlite(path: str) -> bool:
    """Return whether a file is a SQLite database, by its first bytes; a file that is missing or empty, by its name."""
    try:
        with open(path, "rb") as file:
            header = file.read(len(SQLITE_HEADER))
    except OSError:
        header = b""
    return header == SQLITE_HEADER if header else path.lower().endswith((".sqlite", ".sqlite3", ".db"))


def _check_is_a_file(path: str) -> None:
    """Reject an address of a server that was given as a path: messages show paths, so its password would leak."""
    if _SERVER_ADDRESS.search(path) and not os.path.lexists(path):
        raise UsageError(
            f"The catalog address is the path of a file, but looks like the address of a server with a password. Write {_SPELLINGS}"
        )


def _duckdb(path: str, metadata_schema: str | None) -> CatalogAddress:
    if not path or path.startswith(":memory:"):
        raise UsageError(
            "A DuckDB catalog needs the path of a file, because every connection to a database in memory opens another database"
        )
    _check_is_a_file(path)
    return CatalogAddress(url=URL.create("duckdb", database=str(Path(path).absolute())), metadata_schema=metadata_schema or None)


def _duckdb_url(url: URL, metadata_schema: str | None) -> CatalogAddress:
    query = dict(url.query)
    in_query = query.pop("metadata_schema", None)
    if url.host or query:
        raise UnsupportedFeatureError(
            "a DuckDB catalog is a file on this machine and takes no options: write duckdb:///lake.ducklake, or duckdb:////directory/"
            "lake.ducklake for an absolute path"
        )
    return _duckdb(url.database or "", metadata_schema or (str(in_query) if in_query else None))


def _mysql(url: URL, metadata_schema: str | None) -> CatalogAddress:
    reject_metadata_schema(metadata_schema)
    return CatalogAddress(url=url)


def _postgres(conninfo: str, metadata_schema: str | None) -> CatalogAddress:
    from psycopg import Error as PsycopgError
    from psycopg.conninfo import conninfo_to_dict

    try:
        given = {key: str(value) for key, value in conninfo_to_dict(conninfo).items() if value is not None}
    except PsycopgError:
        raise UsageError("The PostgreSQL connection string cannot be parsed. Write key=value pairs, such as dbname=lake host=...") from None
    url = URL.create(
        "postgresql+psycopg", username=given.pop("user", None), password=given.pop("password", None), database=given.pop("dbname", None)
    )
    host, port = given.get("host", ""), given.get("port", "")
    # Socket directories and lists of hosts must stay in the query part of a SQLAlchemy URL.
    if host and "/" not in host and "," not in host and (not port or port.isdigit()):
        url = url.set(host=given.pop("host"), port=int(given.pop("port")) if port else None)
    return CatalogAddress(url=url.update_query_dict(given), metadata_schema=metadata_schema)


def _postgres_url(url: URL, metadata_schema: str | None) -> CatalogAddress:
    query = dict(url.query)
    in_query = query.pop("metadata_schema", None)
    password = query.pop("password", None)
    driver = url.drivername.partition("+")[2]
    if driver not in ("", "psycopg"):
        raise UnsupportedFeatureError(f"The PostgreSQL driver {driver!r} is not supported. Write postgresql+psycopg://", driver=driver)
    plain = url.set(drivername="postgresql+psycopg", query=query, password=url.password if password is None else str(password))
    return CatalogAddress(url=plain, metadata_schema=metadata_schema or (str(in_query) if in_query else None))


def mysql_url_of_text(text: str) -> URL:
    """Convert a MySQL connection string of DuckDB to a URL.

    >>> mysql_url_of_text('host=db user=me db=lake port=3307 socket="/run/my sql.sock"').query["unix_socket"]
    '/run/my sql.sock'

    Raises:
        UsageError: The string is not valid. The message does not repeat it, because it may contain a password.
        UnsupportedFeatureError: A parameter is unknown.
    """
    given: dict[str, str] = {}
    position = 0
    while position < len(text.rstrip()):
        name = _WORD.match(text, position)
        value = _WORD.match(text, name.end() + 1) if name is not None and text[name.end() : name.end() + 1] == "=" else None
        if name is None or value is None:
            raise UsageError("The MySQL connection string cannot be parsed. Write key=value pairs, such as db=lake host=...")
        key = _unquoted(name).lower()
        given[_NAMES.get(key, key)] = _unquoted(value)
        position = value.end()
    port = given.pop("port", None)
    if port is not None and not port.isdecimal():
        raise UsageError("The port in the MySQL connection string is not a number. Write, for example, port=3306")
    url = URL.create(
        "mysql+pymysql",
        username=given.pop("user", None),
        password=given.pop("password", None),
        host=given.pop("host", None),
        port=None if port is None else int(port),
        database=given.pop("database", None),
    )
    return plain_mysql_url(url.update_query_dict(given))


def plain_mysql_url(url: URL) -> URL:
    """Check a MySQL URL and return it in its normal form.

    Raises:
        UsageError: The database is missing, or a parameter has an invalid value.
        UnsupportedFeatureError: The driver is not PyMySQL, or a parameter is unknown.
    """
    driver = url.drivername.partition("+")[2]
    if driver not in ("", "pymysql"):
        raise UnsupportedFeatureError(f"The MySQL driver {driver!r} is not supported. Write mysql+pymysql://", driver=driver)
    query = {name: value if isinstance(value, str) else value[-1] for name, value in url.query.items()}
    if "metadata_schema" in query:
        raise _no_schemas(query["metadata_schema"])
    password = query.pop("password", None)
    if unknown := sorted(query.keys() - _PARAMETERS - _SECONDS):
        known = ", ".join(sorted(_PARAMETERS | _SECONDS))
        raise UnsupportedFeatureError(
            f"The address of the MySQL catalog has the unknown parameter {unknown[0]!r}. Supported parameters are {known}"
        )
    if query.pop("charset", "utf8mb4").lower() != "utf8mb4":
        raise UnsupportedFeatureError("charset of a MySQL catalog is always utf8mb4. Remove charset")
    if query.get("ssl_mode", "preferred").lower() not in _MODES:
        raise UsageError(f"ssl_mode of a MySQL catalog must be one of {', '.join(_MODES)}")
    if any(not query[name].isdecimal() or not 0 < int(query[name][:18]) <= _LONGEST_SECONDS for name in _SECONDS & query.keys()):
        raise UsageError("Timeouts of a MySQL catalog must be whole seconds, from 1 to one year")
    if not url.database:
        raise UsageError("The address of a MySQL catalog needs the name of a database. Write mysql+pymysql://user@host/database")
    return url.set(drivername="mysql+pymysql", query=query, password=url.password if password is None else password)


def reject_metadata_schema(metadata_schema: str | None) -> None:
    """Reject a metadata schema for MySQL, where a schema is a database.

    Raises:
        UnsupportedFeatureError: A schema was given.
    """
    if metadata_schema is not None:
        raise _no_schemas(metadata_schema)


def _no_schemas(metadata_schema: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"metadata_schema is {metadata_schema!r}, but a MySQL database has no schemas. Use another database in the address",
        metadata_schema=metadata_schema,
    )


def _unquoted(found: re.Match[str]) -> str:
    return found[2] if found[1] is None else re.sub(r"\\(.)", r"\1", found[1])


def driver_module(package: str, catalog: str, extra: str) -> ModuleType:
    """Import the driver of a database.

    Args:
        package: Name of the package.
        catalog: Kind of catalog that needs it, for the message.
        extra: The extra of ``ducklake-dagster`` that installs it.

    Raises:
        UnsupportedFeatureError: The package is not installed.
    """
    try:
        return import_module(package)
    except ImportError as error:
        raise UnsupportedFeatureError(
            f"{catalog} needs the package {package}. Install it with: pip install 'ducklake-dagster[{extra}]'", package=package
        ) from error


def file_exists(path: str, shown: str) -> bool:
    """Return whether the file of a catalog exists.

    Args:
        path: Path of the file.
        shown: Name of the file in errors.

    Raises:
        NotALakeError: The path is a directory.
        CatalogError: The operating system denies access.
    """
    try:
        found = os.stat(path)
    except ValueError:
        return False
    except OSError as error:
        if error.errno in _ABSENT:
            return False
        raise CatalogError(
            f"The catalog file {shown} cannot be accessed ({error.strerror}). Check the path and its permissions",
            parameter="catalog",
            path=path,
        ) from error
    if stat.S_ISDIR(found.st_mode):
        raise NotALakeError(f"{shown} is a directory, so it holds no DuckLake catalog. Pass the path of a file", path=path)
    return True


def forbidden(path: str, shown: str, *, write: bool = False) -> CatalogError | None:
    """Return the error for a file without permission, which a retry cannot fix; None if access is allowed or the file is missing.

    Args:
        path: Path of the file.
        shown: Name of the file in the error.
        write: Whether write access is needed too; default False.
    """
    if not os.path.exists(path):
        return None
    for mode, deed in ((os.R_OK, "read"), *(((os.W_OK, "written"),) if write else ())):
        if not os.access(path, mode, effective_ids=os.access in os.supports_effective_ids):
            return CatalogError(
                f"The catalog file {shown} may not be {deed} by this user. Check its permissions",
                failure="fatal",
                parameter="catalog",
                path=path,
            )
    return None
