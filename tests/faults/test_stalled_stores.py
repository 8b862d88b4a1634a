"""An S3 server behind a proxy that stops to forward: calls end in time, and Ctrl-C ends them at once."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError, StorageError, StoreUnavailableError, UsageError
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.stores import classify_store_error
from tests.support.s3 import BUCKET, S3Server

ROOT = Path(__file__).parents[2]
QUICK = {"config_kwargs": {"response_checksum_validation": "when_required", "read_timeout": 1}, "call_timeout": 3}


class Staller:
    """Forwards connections to a server until ``stalls`` is set, or loses the answers to requests that contain ``lost``."""

    def __init__(self, endpoint: str) -> None:
        found = urlsplit(endpoint)
        self._server = (found.hostname, found.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.stalls = threading.Event()
        self.lost: bytes | None = None
        self.losses = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                loses = threading.Event()
                for source, target, up in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._forward, args=(source, target, up, loses), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, up: bool, loses: threading.Event) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if up and self.lost is not None and self.lost in data:
                    loses.set()
                    self.losses += 1
                while self.stalls.is_set():
                    time.sleep(0.05)
                if not up and loses.is_set():
                    break
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        if not up:
            for end in (source, target):
                end.close()

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def staller(s3: S3Server) -> Iterator[Staller]:
    found = Staller(s3.endpoint)
    yield found
    found.stalls.clear()
    found.close()


def options(s3: S3Server, staller: Staller) -> dict[str, Any]:
    return s3.options(endpoint_url=staller.endpoint, **QUICK)


def test_calls_to_a_stalled_store_end_in_time(s3: S3Server, staller: Staller) -> None:
    storage = s3.storage(endpoint_url=staller.endpoint, **QUICK)
    calls = ("read", "write", "list", "size", "exists", "delete")
    for call in calls:
        with storage.open_output(f"s3://{BUCKET}/stalled-{call}/x") as file:
            file.write(b"abc")
    staller.stalls.set()
    began = time.monotonic()
    with ThreadPoolExecutor(len(calls)) as threads:
        failures = list(threads.map(lambda call: _failure(storage, call, f"s3://{BUCKET}/stalled-{call}/x"), calls))
    assert time.monotonic() - began < 15
    assert "within" in str(failures[-1]) or "imeout" in str(failures[-1])
    for failure in failures[:-1]:
        assert isinstance(failure, StoreUnavailableError)
        assert failure.retriable
        assert "check that the store is reachable" in str(failure)


def _failure(storage: Storage, call: str, path: str) -> object:
    if call == "delete":
        return storage.delete([path]).failed[0][1]
    try:
        _call(storage, call, path)
    except DuckLakeError as error:
        return error
    return None


def _call(storage: Storage, call: str, path: str) -> None:
    match call:
        case "read":
            with storage.open_input(path) as file:
                file.read()
        case "write":
            with storage.reporting("write", path), storage.open_output(path + "2") as file:
                file.write(b"abc")
        case "list":
            list(storage.list(path))
        case "size":
            storage.size(path)
        case _:
            storage.exists(path)


_WORK = """
import sys, pyarrow as pa
from ducklake_core import DuckLake
catalog, work, options = sys.argv[1], sys.argv[2], eval(sys.argv[3])
lake = DuckLake.connect(catalog, storage_options=options)
print("ready", flush=True)
sys.stdin.readline()
try:
    if work == "read":
        lake.table("t").to_arrow()
    elif work == "sql":
        lake.sql("SELECT * FROM t").to_arrow()
    elif work == "write":
        lake.write("t", pa.table({"n": range(100_000)}), inline=False)
    else:
        lake.delete_orphaned_files(older_than="1 hour")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("work", ["read", "sql", "write", "sweep"])
def test_ctrl_c_ends_calls_to_a_stalled_store(s3: S3Server, staller: Staller, tmp_path: Path, work: str) -> None:
    """With the default timeouts."""
    catalog, given = f"sqlite:///{tmp_path}/lake.sqlite", s3.options(endpoint_url=staller.endpoint)
    with DuckLake.create(catalog, data_path=f"s3://{BUCKET}/ctrl-c-{work}/", storage_options=given) as lake:
        lake.write("t", pa.table({"n": range(1000)}), inline=False)
    command = [sys.executable, "-c", _WORK, catalog, work, repr(given)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        staller.stalls.set()
        print(file=child.stdin, flush=True)
        time.sleep(3)
        began = time.monotonic()
        child.send_signal(signal.SIGINT)
        message = child.stdout.readline()
        took = time.monotonic() - began
        child.kill()
    assert message == "interrupted\n"
    assert took < 20


def test_a_lost_answer_to_a_completed_upload_is_settled(s3: S3Server, staller: Staller) -> None:
    storage = s3.storage(endpoint_url=staller.endpoint, **QUICK, default_block_size=5 * 2**20)
    path, data = f"s3://{BUCKET}/completed/x", b"x" * (12 * 2**20)
    staller.lost = b"<CompleteMultipartUpload"
    with storage.open_output(path) as file:
        file.write(data)
    assert staller.losses
    assert storage.size(path) == len(data)


def test_a_missing_bucket_is_an_error(s3: S3Server, tmp_path: Path) -> None:
    storage = s3.storage()
    assert list(storage.list(f"s3://{BUCKET}/nothing-here/")) == []
    with pytest.raises(StorageError, match="bucket"):
        list(storage.list("s3://no-such-bucket/x/"))
    catalog = f"sqlite:///{tmp_path}/lake.sqlite"
    with (
        DuckLake.create(catalog, data_path="s3://no-such-bucket/x/", storage_options=s3.options()) as lake,
        pytest.raises(StorageError, match="bucket"),
    ):
        lake.delete_orphaned_files(older_than="1 hour")


@pytest.mark.parametrize("path", ["s3://", "s3:///", "gs://", "http://host/x/", "https://host/x/", "s3://KEY:SECRET@bucket/x/"])
def test_impossible_data_paths_are_rejected(tmp_path: Path, path: str) -> None:
    with pytest.raises(UsageError, match="data_path") as caught:
        DuckLake.create(f"sqlite:///{tmp_path}/lake.sqlite", data_path=path)
    assert "SECRET" not in str(caught.value)
    assert not (tmp_path / "lake.sqlite").exists()


def test_credentials_in_a_stored_data_path_are_hidden(tmp_path: Path) -> None:
    import sqlite3

    catalog = f"sqlite:///{tmp_path}/lake.sqlite"
    DuckLake.create(catalog, data_path="s3://bucket/x/").close()
    with sqlite3.connect(tmp_path / "lake.sqlite") as connection:
        connection.execute("UPDATE ducklake_metadata SET value = 's3://KEY:SECRET@bucket/x/' WHERE key = 'data_path'")
    connection.close()
    with DuckLake.connect(catalog) as lake:
        assert "SECRET" not in f"{lake.info} {lake!r}"
    with pytest.raises(UsageError) as caught:
        DuckLake.connect(catalog, data_path="s3://other/")
    assert "SECRET" not in f"{caught.value} {caught.value.details}"


def test_every_name_of_s3_is_the_stored_data_path(tmp_path: Path) -> None:
    catalog = f"sqlite:///{tmp_path}/lake.sqlite"
    DuckLake.create(catalog, data_path="s3://bucket/x/").close()
    for name in ("s3a", "s3n", "S3"):
        DuckLake.connect(catalog, data_path=f"{name}://bucket/x").close()


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (OSError(16, "An error occurred (SlowDown) when calling PutObject: Please reduce your request rate."), "fewer writers"),
        (PermissionError("The provided token has expired."), "renew the credentials"),
        (TimeoutError("x"), "is reachable"),
        (ConnectionResetError("x"), "is reachable"),
        (PermissionError("Access Denied"), None),
        (FileNotFoundError("The specified bucket does not exist"), None),
    ],
)
def test_transient_errors_get_advice_that_fits(error: Exception, advice: str | None) -> None:
    found = classify_store_error(error)
    assert found.transient is (advice is not None)
    assert advice is None or advice in str(found.advice)
