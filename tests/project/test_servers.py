"""Servers that tests start: they end for certain, find another port, and are named when something fails."""

from __future__ import annotations

import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import chain, repeat

import psutil
import pytest

from tests.support import servers

LISTEN = "import socket, sys; s = socket.socket(); s.bind(('127.0.0.1', int(sys.argv[1]))); s.listen(); print('listens', flush=True);"
STUBBORN = f"""
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if child := os.fork():
    print(child, flush=True)
    {LISTEN}
time.sleep(600)
"""


def python(program: str, port: int) -> list[str]:
    return [sys.executable, "-c", program, str(port)]


@pytest.fixture
def taken() -> Iterator[int]:
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def alive(process: int) -> bool:
    try:
        return bool(psutil.Process(process).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_a_server_that_does_not_want_to_end_is_killed_with_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "_SECONDS_TO_END", 0.2)
    with servers.serving("stubborn", lambda port: python(STUBBORN, port)) as server:
        child = int(server.last_words().split()[0])
        assert alive(child)
    assert server.process.poll() is not None
    until = time.monotonic() + 60
    while alive(child) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(child)


def test_a_port_that_somebody_took_is_left_to_him(monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    ports = chain([taken], repeat(servers.free_port()))
    monkeypatch.setattr(servers, "free_port", lambda: next(ports))
    with servers.serving("late", lambda port: python(f"{LISTEN} import time; time.sleep(600)", port)) as server:
        assert server.port != taken
        assert server.last_words() == "listens\n"


def test_a_program_that_does_not_start_says_why() -> None:
    with pytest.raises(AssertionError, match=r"broken ended before it answered(.|\n)*no such thing"):  # noqa: SIM117
        with servers.serving("broken", lambda port: python("raise SystemExit('no such thing')", port)):
            pass


def test_running_servers_are_named() -> None:
    with servers.serving("here", lambda port: python(f"{LISTEN} import time; time.sleep(600)", port)) as server:
        until = time.monotonic() + 60
        while "listens" not in server.last_words() and time.monotonic() < until:
            time.sleep(0.05)
        assert f"here: port {server.port}, process {server.process.pid}, running\nlistens" in servers.running_servers()
    assert "here:" not in servers.running_servers()


def test_a_run_that_is_ended_ends_its_servers() -> None:
    # Where Spark runs it is Spark's own, which raises KeyboardInterrupt too.
    assert signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, signal.SIG_IGN)
