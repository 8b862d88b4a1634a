"""The object stores of a test run, as the tests that treat all alike see them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from aiobotocore.client import AioBaseClient
from azure.core.pipeline.transport import AioHttpTransport

from ducklake_core import DuckLake
from tests.support import azure, s3
from tests.support.azure import AzureServer
from tests.support.gcs import GCSFileSystem
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.s3 import S3Server

WRONG = "YS13cm9uZy1zZWNyZXQtb2YtdGVzdA=="
Options = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class ObjectStore:
    """One bucket (or container) called ``lake`` of a server that runs.

    Attributes:
        name: ``s3``, ``azure`` or ``gcs``.
        schemes: How its paths begin, the first being one that DuckDB knows as well, if it knows any.
        options: Storage options, as a user gives them.
        wrong: The same with a secret (:data:`WRONG`) that the server does not accept, if it checks secrets.
        secrets: What must show nowhere.
        call: Class and name of the asynchronous function through which its package sends every request.
        small_parts: Options that make it send files in parts as small as it can.
        know: Configures a DuckDB connection for the server, if DuckDB supports it.
    """

    name: str
    schemes: tuple[str, ...]
    options: Options
    wrong: Options | None
    secrets: tuple[str, ...]
    call: tuple[type, str]
    small_parts: Mapping[str, Any]
    know: Callable[[Any], None] | None

    def lake(self, address: LakeAddress, prefix: str, scheme: str | None = None) -> LakeAddress:
        """The same catalog, its files in a directory of the bucket."""
        return replace(address, data_path=f"{scheme or self.schemes[0]}://lake/{prefix}/")

    def create(self, address: LakeAddress, *, encrypted: bool = False) -> DuckLake:
        """A new lake whose rows go to files."""
        lake = DuckLake.create(address.url, data_path=address.data_path, storage_options=self.options, encrypted=encrypted)
        lake.set_option("data_inlining_row_limit", 0)
        return lake

    @contextmanager
    def attached(self, address: LakeAddress, options: str = "") -> Iterator[Oracle]:
        """DuckDB attached to a lake whose files are here."""
        assert self.know is not None
        with attached(address, options, before=self.know) as duck:
            yield duck


def s3_store(server: S3Server) -> ObjectStore:
    return ObjectStore(
        name="s3",
        schemes=("s3", "s3a", "s3n"),
        options=server.options(),
        wrong=server.options(WRONG),
        secrets=(s3.SECRET, WRONG),
        call=(AioBaseClient, "_make_api_call"),
        small_parts={"default_block_size": 5 * 2**20},
        know=server.know,
    )


def azure_store(server: AzureServer) -> ObjectStore:
    return ObjectStore(
        name="azure",
        schemes=("az", "abfs", "abfss", "azure"),
        options=server.options(),
        wrong=server.options(WRONG),
        secrets=(azure.KEY, WRONG),
        call=(AioHttpTransport, "send"),
        small_parts={"blocksize": 5 * 2**20},
        know=server.know,
    )


def gcs_store(endpoint: str) -> ObjectStore:
    return ObjectStore(
        name="gcs",
        schemes=("gs", "gcs"),
        options={"gs": {"token": "anon", "endpoint_url": endpoint, "project": "test"}},
        wrong=None,
        secrets=(),
        call=(GCSFileSystem, "_request"),
        small_parts={"block_size": 5 * 2**20},
        know=None,
    )
