"""The command ``ducklake`` in processes of its own that need not import anything: forks of a process that has imported the command.

A fork runs and ends as ``python -m ducklake_core.cli`` does: with the arguments, variables and descriptors that it is given, standard
streams as Python opens them, and the flush of these streams when the interpreter ends.
"""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_MESSAGE_BYTES = 1 << 20


class ForkedCommand:
    """Runs command lines, one at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def start(self, arguments: list[str], stdout: int, stderr: int, variables: Mapping[str, str]) -> None:
        """Start a command with these descriptors, which the caller may close afterwards."""
        message = json.dumps({"arguments": arguments, "variables": {**os.environ, **variables}})
        socket.send_fds(self._connection, [message.encode()], [stdout, stderr])
        assert self._connection.recv(1) == b"+"

    def wait(self) -> int:
        """Return the exit code of the command that was started last."""
        return int(self._connection.recv(_MESSAGE_BYTES))

    def run(self, arguments: list[str], stdout: int, **variables: str) -> tuple[int, str]:
        """Run a command, and return its exit code and what it wrote to its standard error."""
        with tempfile.TemporaryFile() as errors:
            self.start(arguments, stdout, errors.fileno(), variables)
            code = self.wait()
            errors.seek(0)
            return code, errors.read().decode()


@contextmanager
def forked_command() -> Iterator[ForkedCommand]:
    """Start the process that is forked; it ends with its connection."""
    own, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "tests.support.forked_command", str(its.fileno())]
    with subprocess.Popen(command, pass_fds=[its.fileno()]), own:
        its.close()
        yield ForkedCommand(own)


def _serve(connection: socket.socket) -> None:
    """Fork for each message; return in the fork, and exit when the other end is closed."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES, 2)
        if not message:
            sys.exit()
        if (child := os.fork()) == 0:
            _become(json.loads(message), descriptors)
            connection.close()
            return
        for one in descriptors:
            os.close(one)
        connection.send(b"+")
        _, status = os.waitpid(child, 0)
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(message: dict[str, object], descriptors: list[int]) -> None:
    for number, one in enumerate(descriptors, start=1):
        os.dup2(one, number)
        os.close(one)
    os.environ.clear()
    os.environ.update(message["variables"])  # type: ignore[call-overload]
    sys.argv[1:] = message["arguments"]  # type: ignore[call-overload]
    sys.stdout, sys.stderr = _stream(1, "strict"), _stream(2, "backslashreplace")


def _stream(descriptor: int, errors: str) -> io.TextIOWrapper:
    """Open a standard stream as Python does when it starts."""
    raw = io.FileIO(descriptor, "w", closefd=False)
    is_unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    binary = raw if is_unbuffered else io.BufferedWriter(raw)
    is_line_buffered = raw.isatty() or descriptor == 2
    return io.TextIOWrapper(binary, "utf-8", errors, line_buffering=is_line_buffered, write_through=is_unbuffered)  # type: ignore[type-var]


if __name__ == "__main__":
    from ducklake_core.cli import app as imported
    from ducklake_core.cli import main

    assert imported
    _serve(socket.socket(fileno=int(sys.argv[1])))
    main()
