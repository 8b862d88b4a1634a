"""An emulator of Google Cloud Storage in a process of its own, with one bucket, called ``lake``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.servers import serving

# Otherwise gcsfs requests the kind of bucket by a protocol that emulators do not support, for a minute.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")

from gcsfs import GCSFileSystem

__all__ = ["GCSFileSystem", "gcs_server"]

# The emulator knows everything about an upload except that it may be given up.
_SERVE = """
import sys
from http import HTTPStatus
from gcp_storage_emulator import server
for pattern, handlers in server.HANDLERS:
    if pattern.startswith("^/upload/"):
        handlers["DELETE"] = lambda request, response, storage: setattr(response, "status", HTTPStatus.NO_CONTENT)
server.create_server("127.0.0.1", int(sys.argv[1]), True, "lake").run()
"""


@contextmanager
def gcs_server() -> Iterator[str]:
    """Serve from memory until the end of the block; gives the endpoint."""
    with serving("Google Cloud Storage (emulator)", lambda port: [sys.executable, "-c", _SERVE, str(port)]) as server:
        yield f"http://127.0.0.1:{server.port}"
