"""Servers of other programs in processes of their own: started on a free port, ended for certain, named when a test fails."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support import supervisor

# Limits belong to hangs: a loaded machine needs many times what an idle one does.
_SECONDS_TO_START = 900
_SECONDS_TO_END = 20
_ATTEMPTS = 5
# Below the ports that systems give to outgoing connections, so that only another server can take one meanwhile.
_PORTS = range(15_000, 32_000)
_RUNNING: dict[str, Server] = {}


@dataclass(frozen=True, kw_only=True)
class Server:
    """A running program that listens on a port of this machine."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    def last_words(self, characters: int = 4000) -> str:
        """The end of what the program has printed."""
        return self.log.read_text(errors="replace")[-characters:]


@contextmanager
def serving(
    name: str,
    command: Callable[[int], Sequence[str]],
    *,
    answers: Callable[[int], bool] | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Iterator[Server]:
    """Run a program until the end of the block.

    Args:
        name: What to call it when a test fails.
        command: The command for a port. It is called again with another port when the program ended before it answered.
        answers: Returns True once the program is ready, polled; by default once it accepts connections.
        environment: The program's variables instead of those of this process.
        folder: Where the program runs; by default a temporary one, so that nothing stays of what it writes there.
    """
    with tempfile.TemporaryDirectory(prefix="ducklake-server-") as logs:
        supervisor.watch_folder(Path(logs))
        server = _started(name, command, answers or _accepts, environment, folder, Path(logs))
        try:
            yield server
        finally:
            _RUNNING.pop(name, None)
            end(server.process)


def running_servers(characters: int = 2000) -> str:
    """The servers that run now, with the end of what each has printed."""
    return "\n".join(
        f"{server.name}: port {server.port}, process {server.process.pid}, "
        f"{'running' if server.process.poll() is None else f'ENDED with {server.process.returncode}'}\n{server.last_words(characters)}"
        for server in _RUNNING.values()
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads a session of its own, with all of its group: terminated first, then killed. Never raises."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        # After the leader has ended there may be others of its group, so the second signal is sent in any case.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_SECONDS_TO_END)
    supervisor.release(process.pid)


def free_port() -> int:
    """Return a free port of this machine, which another process may still take."""
    choose = random.SystemRandom()
    while True:
        port = choose.choice(_PORTS)
        with closing(socket.socket()) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _started(
    name: str,
    command: Callable[[int], Sequence[str]],
    answers: Callable[[int], bool],
    environment: Mapping[str, str] | None,
    folder: Path | None,
    logs: Path,
) -> Server:
    failures = []
    for attempt in range(_ATTEMPTS):
        port, log = free_port(), logs / f"{attempt}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command(port), stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=folder or logs, start_new_session=True
            )
        supervisor.watch(process.pid)
        server = Server(name=name, port=port, process=process, log=log)
        try:
            if _comes_up(server, answers):
                _RUNNING[name] = server
                return server
            failures.append(f"port {port}: {server.last_words()}")
        except BaseException:
            end(process)
            raise
        end(process)
    raise AssertionError(f"{name} ended before it answered, on each of {_ATTEMPTS} ports:\n" + "\n".join(failures))


def _comes_up(server: Server, answers: Callable[[int], bool]) -> bool:
    """Wait until the program answers; return False when it has ended, as it does when another process has its port."""
    until = time.monotonic() + _SECONDS_TO_START
    while time.monotonic() < until:
        answered = answers(server.port)
        if server.process.poll() is not None:
            return False
        # Another process may have taken the port and answer instead, before the program has found that out.
        if answered and _listens(server):
            return True
        time.sleep(0.05)
    raise AssertionError(f"{server.name} does not answer on port {server.port}:\n{server.last_words()}")


def _listens(server: Server) -> bool:
    """Return True where the program, or a process that it started, listens on the port."""
    with suppress(psutil.Error):
        program = psutil.Process(server.process.pid)
        for process in (program, *program.children(recursive=True)):
            with suppress(psutil.Error):
                if any(line.status == psutil.CONN_LISTEN and line.laddr.port == server.port for line in process.net_connections("tcp")):
                    return True
    return False


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True
