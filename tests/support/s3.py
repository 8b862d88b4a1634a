"""A real S3 server over a local directory, and lakes in it that DuckDB reads and writes too."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from duckdb_extensions import import_extension

from ducklake_core.storage.filesystems import Storage, StorageOptions
from tests.support.oracle import LakeAddress
from tests.support.servers import serving

KEY, SECRET = "access-key-of-test", "secret-key-of-test"
BUCKET = "lake"


@dataclass(frozen=True, kw_only=True)
class S3Server:
    """Address of the server, and the directory that holds its one bucket, ``lake``."""

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

    def know(self, connection: Any) -> None:
        """Configure a DuckDB connection for the server."""
        import_extension("httpfs", con=connection)
        connection.execute("LOAD httpfs")
        host = self.endpoint.removeprefix("http://")
        known = {"KEY_ID": KEY, "SECRET": SECRET, "ENDPOINT": host, "URL_STYLE": "path", "REGION": "us-east-1"}
        settings = ", ".join(f"{name} '{value}'" for name, value in known.items())
        connection.execute(f"CREATE SECRET (TYPE s3, {settings}, USE_SSL false)")

    def on_disk(self, path: str) -> Path:
        """Return the file in which the server keeps an object."""
        return self.root / path.partition("://")[2]


@contextmanager
def s3_server(root: Path) -> Iterator[S3Server]:
    """Serve a directory until the end of the block."""
    (root / BUCKET).mkdir()
    rclone = str(Path(sys.executable).parent / "rclone")

    def command(port: int) -> list[str]:
        return [rclone, "serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key", f"{KEY},{SECRET}", str(root)]

    with serving("S3 (rclone)", command) as server:
        yield S3Server(endpoint=f"http://127.0.0.1:{server.port}", root=root)


def s3_lake(address: LakeAddress, prefix: str, scheme: str = "s3") -> LakeAddress:
    """The same catalog, its files in the bucket."""
    return replace(address, data_path=f"{scheme}://{BUCKET}/{prefix}/")
