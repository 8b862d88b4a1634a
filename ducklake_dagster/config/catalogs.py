"""Describe the catalog of a lake: a database of one of four kinds, as configuration or as an address."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from pydantic import Field

from ducklake_core.errors import CatalogError, UsageError
from ducklake_dagster.config.values import SECRET, SecretiveConfig, reveal


class SqliteCatalog(SecretiveConfig):
    """A catalog in one SQLite file, for one machine."""

    metadata_schema: ClassVar[None] = None
    kind: Literal["sqlite"] = "sqlite"
    path: str = Field(description="Path of the catalog file. A relative path starts at the working directory of the code location.")

    def located(self, directory: str) -> SqliteCatalog:
        """Return the catalog with an absolute path.

        Args:
            directory: Directory at which a relative path starts.
        """
        return SqliteCatalog(path=os.path.join(directory, self.path))

    def url(self) -> str:
        """Return the SQLAlchemy URL."""
        return f"sqlite:///{quote(self.path)}"

    def is_missing(self) -> bool:
        """Return whether the catalog file is certainly missing."""
        return _is_missing(self.path)

    def prepare(self) -> None:
        """Create the directory of a catalog file."""
        _make_directory_of(self.path)


class DuckDBCatalog(SecretiveConfig):
    """A catalog in one DuckDB file, for one machine. Needs the ``duckdb`` extra. Only one process opens the file at a time; others wait."""

    kind: Literal["duckdb"] = "duckdb"
    path: str = Field(description="Path of the catalog file. A relative path starts at the working directory of the code location.")
    metadata_schema: str | None = Field(default=None, description="Database schema of the catalog tables. Default: main.")

    def located(self, directory: str) -> DuckDBCatalog:
        """Return the catalog with an absolute path.

        Args:
            directory: Directory at which a relative path starts.
        """
        return DuckDBCatalog(path=os.path.join(directory, self.path), metadata_schema=self.metadata_schema)

    def url(self) -> str:
        """Return the SQLAlchemy URL."""
        return f"duckdb:///{quote(self.path)}"

    def is_missing(self) -> bool:
        """Return whether the catalog file is certainly missing."""
        return _is_missing(self.path)

    def prepare(self) -> None:
        """Create the directory of a catalog file."""
        _make_directory_of(self.path)


def _is_missing(path: str) -> bool:
    try:
        return not Path(path).exists()
    except OSError:
        # No permission, or no valid file name: opening the catalog reports it.
        return False


def _make_directory_of(path: str) -> None:
    directory = Path(path).absolute().parent
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CatalogError(
            f"Cannot create directory {directory} for catalog file {Path(path).name}: {error.strerror}. Correct the path of the catalog, "
            "or give this user permission to create the directory",
            path=str(directory),
        ) from error


class PostgresCatalog(SecretiveConfig):
    """A catalog in a PostgreSQL database, for any number of writers."""

    kind: Literal["postgres"] = "postgres"
    host: str = Field(default="localhost", description="Host name of the server, or the directory of its local socket.")
    port: int = Field(default=5432, description="Port of the server.")
    database: str = Field(description="Name of the database. It must exist.")
    user: str | None = Field(default=None, description="User name. Default: the user of the process.")
    password: str | None = Field(default=None, repr=False, json_schema_extra=SECRET, description="Password; use an environment variable.")
    metadata_schema: str | None = Field(default=None, description="PostgreSQL schema of the catalog tables. Default: public.")
    options: dict[str, str] = Field(default_factory=dict, description="Other libpq connection parameters, such as sslmode.")

    def located(self, directory: str) -> PostgresCatalog:  # noqa: ARG002 - the same for every catalog
        """Return the catalog itself: a server has no relative path."""
        return self

    def url(self) -> str:
        """Return the SQLAlchemy URL, which includes the password: never log it."""
        user = quote(self.user or "", safe="")
        login = f"{user}:{quote(reveal(self.password), safe='')}@" if self.password else f"{user}@" if user else ""
        options = {name: reveal(value) for name, value in self.options.items()}
        # Host and port are parameters because a socket directory cannot be the host part of a URL.
        parameters = {"host": self.host, "port": str(self.port), **options}
        return f"postgresql+psycopg://{login}/{quote(self.database, safe='')}?{urlencode(parameters, quote_via=quote)}"

    def is_missing(self) -> bool:
        """Return False: only the server knows whether a catalog exists."""
        return False

    def prepare(self) -> None:
        """Do nothing: the database itself must exist."""


class MySQLCatalog(SecretiveConfig):
    """A catalog in a MySQL or MariaDB database, for any number of writers. Needs the ``mysql`` extra."""

    metadata_schema: ClassVar[None] = None
    kind: Literal["mysql"] = "mysql"
    host: str = Field(default="localhost", description="Host name of the server.")
    port: int = Field(default=3306, description="Port of the server.")
    database: str = Field(description="Name of the database. It must exist.")
    user: str | None = Field(default=None, description="User name. Default: the user of the process.")
    password: str | None = Field(default=None, repr=False, json_schema_extra=SECRET, description="Password; use an environment variable.")
    options: dict[str, str] = Field(
        default_factory=dict, description="Other connection parameters, such as ssl_mode, ssl_ca or unix_socket."
    )

    def located(self, directory: str) -> MySQLCatalog:  # noqa: ARG002 - the same for every catalog
        """Return the catalog itself: a server has no relative path."""
        return self

    def url(self) -> str:
        """Return the SQLAlchemy URL, which includes the password: never log it."""
        user = quote(self.user or "", safe="")
        login = f"{user}:{quote(reveal(self.password), safe='')}@" if self.password else f"{user}@" if user else ""
        options = {name: reveal(value) for name, value in self.options.items()}
        parameters = f"?{urlencode(options, quote_via=quote)}" if options else ""
        # An IPv6 address needs brackets, and its colons must not be quoted.
        host = f"[{self.host}]" if ":" in self.host else quote(self.host, safe="")
        return f"mysql+pymysql://{login}{host}:{self.port}/{quote(self.database, safe='')}{parameters}"

    def is_missing(self) -> bool:
        """Return False: only the server knows whether a catalog exists."""
        return False

    def prepare(self) -> None:
        """Do nothing: the database itself must exist."""


class AddressCatalog(SecretiveConfig):
    """A catalog by its address, which may be known only when a run begins, as in ``catalog=dg.EnvVar("LAKE_ADDRESS")``."""

    kind: Literal["address"] = "address"
    address: str = Field(
        repr=False,
        json_schema_extra=SECRET,
        description="Address: sqlite:///file, duckdb:///file, postgresql://user@host/database or mysql://user@host/database.",
    )

    @property
    def metadata_schema(self) -> str | None:
        """Return the schema that holds the catalog tables, from the address."""
        return self._meant.metadata_schema

    @property
    def _meant(self) -> PlainCatalog:
        return catalog_of(reveal(self.address))

    def located(self, directory: str) -> SqliteCatalog | DuckDBCatalog | PostgresCatalog | MySQLCatalog:
        """Return the catalog that the address means, with an absolute path where it is a file.

        Args:
            directory: Directory at which a relative path starts.
        """
        return self._meant.located(directory)

    def url(self) -> str:
        """Return the SQLAlchemy URL, which includes the password: never log it."""
        return self._meant.url()

    def is_missing(self) -> bool:
        """Return whether the catalog file is certainly missing."""
        return self._meant.is_missing()

    def prepare(self) -> None:
        """Create the directory of a catalog file."""
        self._meant.prepare()


PlainCatalog: TypeAlias = SqliteCatalog | DuckDBCatalog | PostgresCatalog | MySQLCatalog
Catalog: TypeAlias = PlainCatalog | AddressCatalog


def catalog_of(address: str) -> PlainCatalog:
    """Return the configuration that an address stands for.

    >>> catalog_of("duckdb:////lakes/a.ducklake?metadata_schema=sales").path
    '/lakes/a.ducklake'
    >>> catalog_of("postgresql+psycopg://me@db:5433/lake?sslmode=require").options
    {'sslmode': 'require'}
    >>> catalog_of("mysql+pymysql://me@db/lake?ssl_mode=required").url()
    'mysql+pymysql://me@db:3306/lake?ssl_mode=required'

    Raises:
        UsageError: The address has another form. The message does not repeat it, as it may contain a password.
    """
    scheme, _, rest = address.partition("://")
    kind = scheme.lower().partition("+")[0]
    try:
        # Invalid UTF-8 would be replaced by other characters and name another catalog.
        unquote(address, errors="strict")
        parts = urlsplit(address)
        parameters = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        found = _of_file(kind, rest, parameters) or _of_server(kind, parts, parameters)
    except ValueError:
        raise UsageError(f"the address of the catalog, which begins with {scheme}, is not well formed") from None
    if found is None:
        raise UsageError(
            "the address of the catalog is not supported: use sqlite:///file, duckdb:///file, "
            "postgresql+psycopg://user@host/database or mysql+pymysql://user@host/database, or pass SqliteCatalog, DuckDBCatalog, "
            "PostgresCatalog or MySQLCatalog"
        )
    return found


def _of_file(kind: str, rest: str, parameters: Mapping[str, str]) -> PlainCatalog | None:
    if not rest.startswith("/") or len(rest) == 1:
        return None
    path = unquote(rest[1:].partition("?")[0])
    if kind == "duckdb" and not parameters.keys() - {"metadata_schema"}:
        return DuckDBCatalog(path=path, metadata_schema=parameters.get("metadata_schema"))
    return SqliteCatalog(path=path) if kind == "sqlite" and not parameters else None


def _of_server(kind: str, parts: SplitResult, parameters: Mapping[str, str]) -> PlainCatalog | None:
    if not parts.path.strip("/"):
        return None
    login: dict[str, Any] = {
        "database": unquote(parts.path[1:]),
        "user": None if parts.username is None else unquote(parts.username),
        "password": None if parts.password is None else unquote(parts.password),
    }
    if kind in ("postgresql", "postgres"):
        return PostgresCatalog(
            host=parameters.get("host") or parts.hostname or "localhost",
            port=int(parameters.get("port") or parts.port or 5432),
            metadata_schema=parameters.get("metadata_schema"),
            options={name: value for name, value in parameters.items() if name not in ("host", "port", "metadata_schema")},
            **login,
        )
    if kind in ("mysql", "mariadb") and "metadata_schema" not in parameters:
        return MySQLCatalog(host=parts.hostname or "localhost", port=parts.port or 3306, options=dict(parameters), **login)
    return None
