"""A pooler in front of PostgreSQL that gives each transaction another session, as PgBouncer does with ``pool_mode = transaction``."""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import make_url

from tests.support.oracle import LakeAddress
from tests.support.postgres import PostgresServer

_SOCKET = ".s.PGSQL.5432"
_PROTOCOL = 196_608
_SESSIONS = 4
_READY = b"Z"
_ENDS_WITH_READY = b"QS"
Message = tuple[bytes, bytes]


@dataclass
class _Link:
    """A connection and what has come of its next message."""

    end: socket.socket
    held: bytes = b""

    def receive(self) -> list[Message] | None:
        """Whole messages (kind, and all of its bytes), None at the end."""
        try:
            data = self.end.recv(65_536)
        except OSError:
            data = b""
        self.held += data
        found: list[Message] = []
        while len(self.held) >= 5 and len(self.held) > (length := struct.unpack("!I", self.held[1:5])[0]):
            found.append((self.held[:1], self.held[: length + 1]))
            self.held = self.held[length + 1 :]
        return found if data else None

    def close(self) -> None:
        with suppress(OSError):
            self.end.close()


@dataclass
class Pooler:
    """Sessions that the clients share, the one that was idle for longest first.

    Attributes:
        transactions: How many were carried out.
    """

    server: str
    folder: Path
    user: str
    database: str
    transactions: int = 0
    _greeting: bytes = b""
    _idle: deque[_Link] = field(default_factory=deque)
    _change: threading.Condition = field(default_factory=threading.Condition)

    def url(self, address: LakeAddress) -> str:
        """The lake's address by way of the pooler."""
        found = make_url(address.url)
        return f"postgresql+psycopg://{found.username}@/{found.database}?host={quote(str(self.folder), safe='')}"

    def open_sessions(self) -> None:
        """Open all sessions, and keep the server's parameters for every client."""
        for _ in range(_SESSIONS):
            link = _Link(socket.socket(socket.AF_UNIX))
            link.end.connect(self.server)
            words = ("user", self.user, "database", self.database, "application_name", "pooled")
            body = struct.pack("!I", _PROTOCOL) + b"".join(word.encode() + b"\0" for word in words) + b"\0"
            link.end.sendall(struct.pack("!I", len(body) + 4) + body)
            messages: list[Message] = []
            while not messages or messages[-1][0] != _READY:
                messages += link.receive() or []
            self._greeting = b"".join(content for kind, content in messages if kind == b"S")
            self._idle.append(link)

    def serve(self, listener: socket.socket) -> None:
        """Accept until the listener is closed."""
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._speak, args=(_Link(client),), daemon=True).start()

    def _speak(self, client: _Link) -> None:
        (length,) = struct.unpack("!I", client.end.recv(4))
        client.end.recv(length - 4)
        # As poolers do, with a key of its own: sessions have no client for long.
        key = struct.pack("!II", 7, 7)
        client.end.sendall(
            b"R" + struct.pack("!II", 8, 0) + self._greeting + b"K" + struct.pack("!I", 12) + key + _READY + struct.pack("!I", 5) + b"I"
        )
        while (messages := client.receive()) is not None and all(kind != b"X" for kind, _ in messages):
            if messages:
                self._transaction(client, messages)
        client.close()

    def _transaction(self, client: _Link, messages: list[Message] | None) -> None:
        with self._change:
            self._change.wait_for(lambda: self._idle)
            session = self._idle.popleft()
        expected, status = 0, b"T"
        while messages is not None:
            expected += sum(kind in _ENDS_WITH_READY for kind, _ in messages)
            session.end.sendall(b"".join(content for _, content in messages))
            messages = []
            while not messages:
                readable, _, _ = select.select([client.end, session.end], [], [])
                for kind, content in (session.receive() or []) if session.end in readable else []:
                    client.end.sendall(content)
                    if kind == _READY:
                        expected, status = expected - 1, content[-1:]
                if expected == 0 and status == b"I":
                    self._release(session)
                    return
                if client.end in readable and (messages := client.receive()) is None:
                    break
        session.close()

    def _release(self, session: _Link) -> None:
        with self._change:
            self.transactions += 1
            self._idle.append(session)
            self._change.notify()

    def close(self) -> None:
        """Close unused sessions."""
        for session in self._idle:
            session.close()


@contextmanager
def pooler_to(server: PostgresServer, address: LakeAddress, folder: Path) -> Iterator[Pooler]:
    """A pooler to a lake's database, reached through a socket in the folder."""
    pooler = Pooler(server=f"{server.socket}/{_SOCKET}", folder=folder, user=server.user, database=make_url(address.url).database or "")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / _SOCKET))
    listener.listen()
    pooler.open_sessions()
    threading.Thread(target=pooler.serve, args=(listener,), daemon=True).start()
    try:
        yield pooler
    finally:
        listener.close()
        pooler.close()
