"""An emulator of Google Cloud Storage in a process of its own, with one bucket, called ``lake``."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

# Else gcsfs asks for the kind of bucket by a protocol that emulators do not speak, for a minute.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")

_SERVE = "import sys; from gcp_storage_emulator.server import create_server as c; c('127.0.0.1', int(sys.argv[1]), True, 'lake').run()"


@contextmanager
def gcs_server() -> Iterator[str]:
    """Serve from memory until the end of the block; gives the endpoint."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, "-c", _SERVE, str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        for _ in range(400):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
        server.terminate()
