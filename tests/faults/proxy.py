"""A proxy between a client and a server of databases that cuts the line at a COMMIT, before the server has it or after it was answered."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from sqlalchemy import make_url

from tests.support.mysql import MySQLServer
from tests.support.oracle import LakeAddress
from tests.support.postgres import PostgresServer

_SOCKET = ".s.PGSQL.5432"
Cut = Literal["before", "after"]


@dataclass
class Proxy:
    """Forwards every connection until the cut.

    Attributes:
        names_commit: The answer to a COMMIT names the command.
        cut: When to cut off the next COMMIT of a connection that has written; None for never.
        dead: Reject new connections after the cut, as when a network is down.
        cuts: How often it did.
    """

    server: str
    folder: Path
    names_commit: bool = True
    cut: Cut | None = None
    dead: bool = False
    cuts: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _down: bool = False

    def url(self, address: LakeAddress) -> str:
        """The lake's address by way of the proxy."""
        found = make_url(address.url)
        if address.backend == "mysql":
            return f"mysql+pymysql://{found.username}@localhost/{found.database}?unix_socket={quote(str(self.folder / 's'), safe='')}"
        return f"postgresql+psycopg://{found.username}@/{found.database}?host={quote(str(self.folder), safe='')}"

    def serve(self, listener: socket.socket) -> None:
        """Accept until the listener is closed."""
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            if self._down:
                client.close()
                continue
            server = socket.socket(socket.AF_UNIX)
            server.connect(self.server)
            line = _Line(proxy=self, client=client, server=server)
            threading.Thread(target=line.upward, daemon=True).start()
            threading.Thread(target=line.downward, daemon=True).start()

    def take_cut(self) -> Cut | None:
        """Cut the connection at the first COMMIT."""
        with self._lock:
            if self.cut is None:
                return None
            taken, self.cut = self.cut, None
            self.cuts += 1
            self._down = self.dead
            return taken


@dataclass
class _Line:
    """One connection: bytes up to the server, bytes down to the client."""

    proxy: Proxy
    client: socket.socket
    server: socket.socket
    wrote: bool = False
    silent: bool = False

    def upward(self) -> None:
        while data := _received(self.client):
            self.wrote = self.wrote or b"INSERT INTO" in data
            match self.proxy.take_cut() if self.wrote and b"COMMIT" in data else None:
                case "before":
                    break
                case "after":
                    self.silent = True
                case None:
                    pass
            if not _was_sent(self.server, data):
                break
        self._close()

    def downward(self) -> None:
        while data := _received(self.server):
            if self.silent and (b"COMMIT" in data or not self.proxy.names_commit):
                break
            if not _was_sent(self.client, data):
                break
        self._close()

    def _close(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _received(end: socket.socket) -> bytes:
    try:
        return end.recv(65_536)
    except OSError:
        return b""


def _was_sent(end: socket.socket, data: bytes) -> bool:
    """False where the other direction has closed the line meanwhile."""
    try:
        end.sendall(data)
    except OSError:
        return False
    return True


@contextmanager
def proxy_to(server: PostgresServer | MySQLServer, folder: Path) -> Iterator[Proxy]:
    """A proxy to a server, reached through a socket in the folder."""
    if isinstance(server, PostgresServer):
        proxy, name = Proxy(server=f"{server.socket}/{_SOCKET}", folder=folder), _SOCKET
    else:
        proxy, name = Proxy(server=server.socket, folder=folder, names_commit=False), "s"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / name))
    listener.listen()
    threading.Thread(target=proxy.serve, args=(listener,), daemon=True).start()
    try:
        yield proxy
    finally:
        listener.close()
