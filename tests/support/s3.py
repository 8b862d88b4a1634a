"""A real S3 server over a local directory, and lakes in it that DuckDB reads and writes too."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from duckdb_extensions import import_extension

from ducklake_core.storage.filesystems import Storage, StorageOptions
from tests.support.oracle import LakeAddress, Oracle, attached

KEY, SECRET = "access-key-of-test", "secret-key-of-test"
BUCKET = "lake"


@dataclass(frozen=True, kw_only=True)
class S3Server:
    """Where the server is, and the directory that holds its one bucket, called ``lake``."""

    endpoint: str
    root: Path

    def options(self, secret: str = SECRET, **more: Any) -> dict[str, dict[str, Any]]:
        """Storage options, as a user gives them."""
        options = {
            "key": KEY,
            "secret": secret,
            "endpoint_url": self.endpoint,
            "client_kwargs": {"region_name": "us-east-1"},
            # This server answers a range with the checksum of the whole object.
            "config_kwargs": {"response_checksum_validation": "when_required"},
        }
        return {"s3": {**options, **more}}

    def storage(self, secret: str = SECRET, **more: Any) -> Storage:
        """The same as a Storage."""
        return Storage(options=StorageOptions(by_protocol=self.options(secret, **more)))

    def on_disk(self, path: str) -> Path:
        """Where the server keeps an object."""
        return self.root / path.partition("://")[2]


@contextmanager
def s3_server(root: Path) -> Iterator[S3Server]:
    """Serve a directory until the end of the block."""
    (root / BUCKET).mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    rclone = str(Path(sys.executable).parent / "rclone")
    command = [rclone, "serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key", f"{KEY},{SECRET}", str(root)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield S3Server(endpoint=f"http://127.0.0.1:{port}", root=root)
        server.terminate()


def s3_lake(address: LakeAddress, prefix: str, scheme: str = "s3") -> LakeAddress:
    """The same catalog, its files in the bucket."""
    return replace(address, data_path=f"{scheme}://{BUCKET}/{prefix}/")


@contextmanager
def attached_on_s3(address: LakeAddress, server: S3Server, options: str = "") -> Iterator[Oracle]:
    """DuckDB attached to a lake whose files are on the server."""
    with attached(address, options, before=lambda connection: _know(connection, server)) as duck:
        yield duck


def _know(connection: Any, server: S3Server) -> None:
    import_extension("httpfs", con=connection)
    connection.execute("LOAD httpfs")
    host = server.endpoint.removeprefix("http://")
    known = {"KEY_ID": KEY, "SECRET": SECRET, "ENDPOINT": host, "URL_STYLE": "path", "REGION": "us-east-1"}
    settings = ", ".join(f"{name} '{value}'" for name, value in known.items())
    connection.execute(f"CREATE SECRET (TYPE s3, {settings}, USE_SSL false)")
