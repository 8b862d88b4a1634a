"""Azure: accounts in paths, kinds of credentials, and uploads in blocks that are invisible until they are committed."""

from __future__ import annotations

import gc
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ducklake_core import DuckLake
from ducklake_core.engines.spark.scan_schema import hadoop_path
from ducklake_core.errors import NotFoundError, StorageError, UnsupportedFeatureError
from ducklake_core.format.files.paths import check_location, file_key, may_be_same, spellings
from ducklake_core.storage.filesystems import Storage, StorageOptions
from ducklake_dagster.config.resources import AzureStorage
from tests.behaviour.object_stores.secrets import assert_secretless, chain
from tests.behaviour.object_stores.work import found, numbered, table_of
from tests.support.azure import ACCOUNT, CONTAINER, KEY, AzureServer, azure_server, sas_token
from tests.support.object_stores import WRONG, azure_store
from tests.support.oracle import LakeAddress

BLOCK = 2**20


def storage_of(**options: Any) -> Storage:
    return Storage(options=StorageOptions(by_protocol={"az": options}))


@pytest.mark.parametrize(
    "path",
    [
        "abfs://files/main/t/a b%20ü#?.parquet",
        "abfss://files/main/t/a b%20ü#?.parquet",
        "az://files/main/t/a b%20ü#?.parquet",
        "azure://files/main/t/a b%20ü#?.parquet",
        "abfss://files@Account.dfs.core.windows.net/main/t/a b%20ü#?.parquet",
        "azure://account.blob.core.windows.net/files/main/t/a b%20ü#?.parquet",
    ],
)
def test_spellings(path: str) -> None:
    config = AzureStorage(data_path="abfs://files/", account_name="account", account_key=KEY)
    storage = Storage(options=StorageOptions(by_protocol=dict.fromkeys(config.protocols(), config.fsspec_options())))
    filesystem, inside = storage.filesystem(path)
    assert (filesystem.account_name, filesystem.account_key) == ("account", KEY)
    assert inside == "files/main/t/a b%20ü#?.parquet"
    plain = f"abfs://{inside}"
    assert file_key(path) == file_key(plain) == f"abfs:/{inside}"
    assert may_be_same(path, plain)
    assert may_be_same(path, "t/a b%20ü#?.parquet")
    assert {path, plain, f"azure://{inside}"} <= {*spellings(path)}
    assert KEY not in repr(config) + repr(storage) + str(config)
    hadoop = hadoop_path(path, {"abfs": "abfss"})
    host = {"@": "Account.dfs.core.windows.net", ".blob.": "account.blob.core.windows.net"}
    at = next((name for mark, name in host.items() if mark in path), "")
    assert hadoop == (f"abfss://files@{at}/{inside.removeprefix('files/')}" if at else f"abfss://{inside}")


def test_another_account_is_another_store() -> None:
    lake = "abfss://files@account.dfs.core.windows.net/lake/"
    for same in ("az://files@account.dfs.core.windows.net/x", "azure://ACCOUNT.blob.core.windows.net/files/x", "az://files/x"):
        check_location(same, lake, what="data file 7")
    for other in ("abfss://files@other.dfs.core.windows.net/x", "az://other.blob.core.windows.net/files/x", "s3://files/x", "/x"):
        with pytest.raises(UnsupportedFeatureError, match="another kind of store"):
            check_location(other, lake, what="data file 7")
    with pytest.raises(UnsupportedFeatureError, match="another kind of store"):
        check_location("abfss://files@account.dfs.core.windows.net/x", "az://files/lake/", what="data file 7")
    with pytest.raises(UnsupportedFeatureError, match="in the account other, but the storage options are for the account account"):
        storage_of(account_name="account", account_key=KEY).open_input("abfss://files@other.dfs.core.windows.net/x")


def test_the_account_of_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "az://account.blob.core.windows.net/files/x"
    filesystem, _ = storage_of(account_key=KEY).filesystem(path)
    assert filesystem.account_name == "account"
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "other")
    with pytest.raises(UnsupportedFeatureError, match="for the account other"):
        storage_of(account_key=KEY).filesystem(path)


def with_sas(azure: AzureServer, token: str) -> dict[str, dict[str, str]]:
    return {"abfs": {"connection_string": f"BlobEndpoint={azure.endpoint};SharedAccessSignature={token}"}}


def test_credentials(
    sqlite_address: LakeAddress, azure: AzureServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    store = azure_store(azure)
    address = store.lake(sqlite_address, "credentials", "azure")
    token = sas_token()
    lake = DuckLake.create(address.url, data_path=address.data_path, storage_options=with_sas(azure, token))
    lake.set_option("data_inlining_row_limit", 0)
    lake.write("t", table_of(numbered(0, 10)))
    reported: list[object] = [lake, lake.storage]
    assert store.wrong is not None
    signature = token.partition("sig=")[2].partition("&")[0]
    rejected = [store.wrong, with_sas(azure, sas_token(write=False)), with_sas(azure, token.replace(signature, "AAAA" + signature[4:]))]
    for number, options in enumerate(rejected):
        denied = DuckLake.connect(address.url, storage_options=options)
        with pytest.raises(StorageError) as caught:
            denied.write("t", table_of(numbered(10, 20)))
        reported += chain(caught.value)
        if number != 1:
            with pytest.raises(StorageError) as caught:
                found(denied)
            reported += chain(caught.value)
        else:
            failed = denied.storage.delete([file.path for file in denied.table("t").list_files()]).failed
            assert len(failed) == 1
            reported += failed
        denied.close()
    malformed = DuckLake.connect(address.url, storage_options={"az": {"connection_string": f"AccountKey={WRONG}"}})
    with pytest.raises(StorageError, match="cannot reach the store of azure://lake/credentials/") as caught:
        found(malformed)
    reported += chain(caught.value)
    malformed.close()
    assert_secretless(store, *reported, caplog.text)
    for text in (*(f"{one} {one!r}" for one in reported), caplog.text):
        assert signature not in text
        assert signature[4:] not in text
    # By the chain of the store's own package.
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azure.connection_string())
    other = DuckLake.connect(address.url)
    other.table("t").append(table_of(numbered(10, 20)))
    assert found(other) == found(lake) == numbered(0, 20)
    with pytest.raises(NotFoundError):
        other.storage.open_input("az://lake/credentials/nothing")
    with pytest.raises(NotFoundError):
        other.storage.size("az://lake/credentials/nothing")
    assert list(other.storage.list("az://lake/nothing/")) == []
    other.close()
    lake.close()


def blobs(azure: AzureServer, prefix: str, *include: str) -> list[str]:
    with azure.client() as client:
        return [blob.name for blob in client.get_container_client(CONTAINER).list_blobs(name_starts_with=prefix, include=[*include])]


def test_an_upload_that_is_given_up(azure: AzureServer) -> None:
    storage = storage_of(connection_string=azure.connection_string(), blocksize=BLOCK)
    sink = storage.open_output(f"az://{CONTAINER}/given_up/x")
    sink.write(bytes(3 * BLOCK))
    del sink
    gc.collect()
    assert blobs(azure, "given_up/") == []
    # The blocks are there, until Azure forgets them.
    assert blobs(azure, "given_up/", "uncommittedblobs") == ["given_up/x"]


@pytest.fixture(scope="module")
def encrypted_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AzureServer, Path]]:
    """A server that speaks TLS, and the certificate that it shows."""
    folder = tmp_path_factory.mktemp("azure")
    with azure_server(certificate=folder) as server:
        yield server, folder / "cert.pem"


WORK = """
import json, sys
from ducklake_core import DuckLake
from tests.behaviour.object_stores.work import change, found, maintain, table_of
lake = DuckLake.create(sys.argv[1], data_path=sys.argv[2], storage_options={"abfs": json.loads(sys.argv[3])})
lake.set_option("data_inlining_row_limit", 0)
expected = change(lake, table_of, None)
maintain(lake, expected, None)
assert found(lake) == expected
"""


@pytest.mark.slow
@pytest.mark.parametrize("by", ["account_key", "sas_token", "connection_string", "wrong"])
def test_credentials_over_tls(sqlite_address: LakeAddress, encrypted_server: tuple[AzureServer, Path], by: str) -> None:
    """Run in a process of its own, as the certificate is read when a package is imported."""
    server, certificate = encrypted_server
    host = server.endpoint.removeprefix("https://")
    options = {
        "account_key": {"account_name": ACCOUNT, "account_host": host, "account_key": KEY},
        "sas_token": {"account_name": ACCOUNT, "account_host": host, "sas_token": sas_token()},
        "connection_string": {"connection_string": server.connection_string()},
        "wrong": {"account_name": ACCOUNT, "account_host": host, "account_key": WRONG},
    }[by]
    data_path = f"abfss://{CONTAINER}@{ACCOUNT}.dfs.core.windows.net/{by}/"
    command = [sys.executable, "-c", WORK, sqlite_address.url, data_path, json.dumps(options)]
    done = subprocess.run(
        command, env={**os.environ, "SSL_CERT_FILE": str(certificate)}, capture_output=True, text=True, timeout=200, check=False
    )
    assert (done.returncode == 0) == (by != "wrong"), done.stderr[-4000:]
    if by == "wrong":
        assert "StorageError" in done.stderr
        assert WRONG not in done.stderr + done.stdout
    else:
        assert done.stderr == ""
