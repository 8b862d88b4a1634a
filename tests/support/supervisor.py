"""Ends the servers of a test run, and removes their folders, once the process that started them has ended.

Fixtures stop their servers when a run ends by itself. After Ctrl-C pytest-xdist kills its workers, which then run no fixture's end, and the
servers lead process groups of their own, so that the terminal's signal does not reach them. One supervisor per process of a run, started as
a program with the module's own file, reads from a pipe what to end. It acts when the pipe closes or its parent is another process,
which happens however the parent ended; a forked child may hold the pipe for longer.
"""

from __future__ import annotations

import atexit
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

_SECONDS_TO_END = 10
_supervisors: dict[int, subprocess.Popen[bytes]] = {}
"""One for each process that starts servers; a forked child is another process."""


def watch(process: int, number: signal.Signals = signal.SIGTERM) -> None:
    """End a process, and the group that it leads, when this process has ended.

    Args:
        process: The process id.
        number: The first signal; what remains after some seconds is killed.
    """
    _send(f"process {process} {number.value}")


def watch_folder(folder: Path) -> None:
    """Remove a folder when this process has ended."""
    _send(f"folder {folder}")


def release(process: int) -> None:
    """Forget a process that has ended."""
    _send(f"ended {process}")


def _send(line: str) -> None:
    supervisor = _supervisors.get(os.getpid())
    if supervisor is None:
        command = [sys.executable, "-I", __file__, str(os.getpid())]
        supervisor = _supervisors[os.getpid()] = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        atexit.register(_end, supervisor, os.getpid())
    assert supervisor.stdin is not None
    supervisor.stdin.write(f"{line}\n".encode())
    supervisor.stdin.flush()


def _end(supervisor: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() == owner and supervisor.stdin is not None:
        supervisor.stdin.close()
        supervisor.wait()


def main(parent: int) -> None:
    """Read what to end, until the parent has ended, and end it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    received = b""
    while os.getppid() == parent:
        if select.select([0], [], [], 0.5)[0]:
            part = os.read(0, 65536)
            if not part:
                break
            received += part
    processes: dict[int, int] = {}
    folders = []
    for kind, _, rest in (line.partition(" ") for line in received.decode().splitlines()):
        match kind:
            case "process":
                process, _, number_of_signal = rest.partition(" ")
                processes[int(process)] = int(number_of_signal)
            case "ended":
                processes.pop(int(rest), None)
            case _:
                folders.append(rest)
    for process, number_of_signal in processes.items():
        _signal(process, number_of_signal)
    until = time.monotonic() + _SECONDS_TO_END
    while any(_signal(process, 0) for process in processes) and time.monotonic() < until:
        time.sleep(0.1)
    for process in processes:
        _signal(process, signal.SIGKILL)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _signal(process: int, number: int) -> bool:
    """Send a signal to a process and to the group that it leads; False when neither is there."""
    found = False
    for send in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            send(process, number)
            found = True
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]))
