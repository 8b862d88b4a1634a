"""A connection to a server that can be cut and restored, as in an outage of the network or the server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tests.support.servers import free_port


@dataclass
class Line:
    """Forwards connections to a port of this machine. While it is cut, it does not answer.

    Attributes:
        server: Path of a socket, or host and port, that it leads to.
        port: Where it listens.
    """

    server: str | tuple[str, int]
    port: int
    _listener: socket.socket | None = None
    _ends: set[socket.socket] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def restore(self) -> None:
        """Accept connections."""
        listener = socket.create_server(("127.0.0.1", self.port), reuse_port=False)
        self._listener = listener
        threading.Thread(target=self._serve, args=(listener,), daemon=True).start()

    def cut(self) -> None:
        """Reject new connections, and close the open ones."""
        if self._listener is not None:
            # A thread that waits in accept keeps the port, unless it is woken.
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        with self._lock:
            ends, self._ends = self._ends, set()
        for end in ends:
            _close(end)

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Cut until the end of the block."""
        self.cut()
        try:
            yield
        finally:
            self.restore()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX if isinstance(self.server, str) else socket.AF_INET)
            server.connect(self.server)
            with self._lock:
                self._ends |= {client, server}
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        with self._lock:
            self._ends -= {source, target}
        _close(source)
        _close(target)


@contextmanager
def line_to(server: str | tuple[str, int]) -> Iterator[Line]:
    """A line to a server until the end of the block."""
    line = Line(server=server, port=free_port())
    line.restore()
    try:
        yield line
    finally:
        line.cut()


def _close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
