"""Servers that tests start: they end for certain, find another port, and are named when something fails."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import chain, repeat
from pathlib import Path

import psutil
import pytest

from tests.support import servers

ROOT = Path(__file__).parents[2]
LISTEN = "import socket, sys; s = socket.socket(); s.bind(('127.0.0.1', int(sys.argv[1]))); print('listens', flush=True); s.listen();"
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


def test_a_taken_port_is_left_alone(monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    ports = chain([taken], repeat(servers.free_port()))
    monkeypatch.setattr(servers, "free_port", lambda: next(ports))
    with servers.serving("late", lambda port: python(f"{LISTEN} import time; time.sleep(600)", port)) as server:
        assert server.port != taken
        assert server.last_words() == "listens\n"


def test_a_program_that_does_not_start_reports_its_output() -> None:
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


_WAITS = """
import json, pathlib, time
from tests.support import servers

def test_waits(postgres, s3):
    servers_of_run = [postgres.handle.get_pid(), *(server.process.pid for server in servers._RUNNING.values())]
    started_servers = {"processes": servers_of_run, "folder": str(postgres.data)}
    file = pathlib.Path(__file__).with_name("started")
    file.write_text(json.dumps(started_servers))
    time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1], ids=["alone", "with a worker"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_a_run_that_is_ended_leaves_no_server(tmp_path: Path, number: signal.Signals, workers: int) -> None:
    """The signal goes to pytest and its workers, as Ctrl-C in a terminal does."""
    (tmp_path / "test_waits.py").write_text(_WAITS)
    options = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), "-p", "tests.conftest", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, "-n", str(workers), "test_waits.py"]
    with (tmp_path / "log").open("wb") as log:
        run = subprocess.Popen(
            command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    started = tmp_path / "started"
    try:
        assert _within(600, lambda: (started.exists() and started.read_text()) or run.poll() is not None)
        assert run.poll() is None, (tmp_path / "log").read_text()
        started_servers = json.loads(started.read_text())
        assert len(started_servers["processes"]) == 2
        assert all(map(alive, started_servers["processes"]))
        os.killpg(run.pid, number)
        run.wait(120)
        assert _within(60, lambda: not any(map(alive, started_servers["processes"])) and not Path(started_servers["folder"]).exists())
    finally:
        servers.end(run)


def _within(seconds: float, condition: Callable[[], object]) -> bool:
    until = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < until:
        time.sleep(0.1)
    return bool(found)
