"""Addresses of MySQL and MariaDB databases: SQLAlchemy URLs, and the text that DuckDB's ``mysql`` extension takes."""

from __future__ import annotations

import re

from sqlalchemy.engine import URL

from ducklake_core.errors import UnsupportedFeatureError, UsageError

_WORD = re.compile(r'\s*(?:"((?:[^"\\]|\\["\\])*)"|([^\s="]+))')
_NAMES = {"passwd": "password", "db": "database", "socket": "unix_socket"}
_MODES = ("disabled", "preferred", "required", "verify_ca", "verify_identity")
_PARAMETERS = frozenset({"unix_socket", "ssl_mode", "ssl_ca", "ssl_capath", "ssl_cert", "ssl_key", "ssl_cipher", "charset"})
_LONGEST_SECONDS = 31_536_000
_SECONDS = frozenset({"connect_timeout", "read_timeout", "write_timeout"})


def mysql_url_of_text(text: str) -> URL:
    """The URL that stands for a text of DuckDB.

    >>> mysql_url_of_text('host=db user=me db=lake port=3307 socket="/run/my sql.sock"').query["unix_socket"]
    '/run/my sql.sock'

    Raises:
        UsageError: It is no such text; it is not repeated, as it may hold a password.
        UnsupportedFeatureError: A parameter that is not known.
    """
    given: dict[str, str] = {}
    position = 0
    while position < len(text.rstrip()):
        name = _WORD.match(text, position)
        value = _WORD.match(text, name.end() + 1) if name is not None and text[name.end() : name.end() + 1] == "=" else None
        if name is None or value is None:
            raise UsageError("cannot read the MySQL connection text: write key=value pairs such as db=lake host=...")
        key = _said(name).lower()
        given[_NAMES.get(key, key)] = _said(value)
        position = value.end()
    port = given.pop("port", None)
    if port is not None and not port.isdecimal():
        raise UsageError("cannot read the MySQL connection text: the port is no number")
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
    """A URL in the one form that is used, checked.

    Raises:
        UsageError: It names no database, or a parameter has a value that it cannot have.
        UnsupportedFeatureError: Another driver than PyMySQL, or a parameter that is not known.
    """
    driver = url.drivername.partition("+")[2]
    if driver not in ("", "pymysql"):
        raise UnsupportedFeatureError(f"the MySQL driver {driver!r} is not supported: write mysql+pymysql://", driver=driver)
    query = {name: value if isinstance(value, str) else value[-1] for name, value in url.query.items()}
    if "metadata_schema" in query:
        raise _no_schemas(query["metadata_schema"])
    password = query.pop("password", None)
    if unknown := sorted(query.keys() - _PARAMETERS - _SECONDS):
        known = ", ".join(sorted(_PARAMETERS | _SECONDS))
        raise UnsupportedFeatureError(f"the address of a MySQL catalog has the parameter {unknown[0]!r}: known are {known}")
    if query.pop("charset", "utf8mb4").lower() != "utf8mb4":
        raise UnsupportedFeatureError("a MySQL catalog holds text of every language: leave charset out, it is utf8mb4")
    if query.get("ssl_mode", "preferred").lower() not in _MODES:
        raise UsageError(f"ssl_mode of a MySQL catalog is one of {', '.join(_MODES)}")
    if any(not query[name].isdecimal() or not 0 < int(query[name][:18]) <= _LONGEST_SECONDS for name in _SECONDS & query.keys()):
        raise UsageError("timeouts of a MySQL catalog are whole seconds, from one to those of a year")
    if not url.database:
        raise UsageError("a MySQL catalog needs the name of a database: write mysql+pymysql://user@host/database")
    return url.set(drivername="mysql+pymysql", query=query, password=url.password if password is None else password)


def refuse_metadata_schema(metadata_schema: str | None) -> None:
    """MySQL calls its databases schemas.

    Raises:
        UnsupportedFeatureError: One is asked for.
    """
    if metadata_schema is not None:
        raise _no_schemas(metadata_schema)


def _no_schemas(metadata_schema: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"metadata_schema {metadata_schema!r}: a MySQL database has no schemas inside; name another database in the address",
        metadata_schema=metadata_schema,
    )


def _said(found: re.Match[str]) -> str:
    return found[2] if found[1] is None else re.sub(r"\\(.)", r"\1", found[1])
