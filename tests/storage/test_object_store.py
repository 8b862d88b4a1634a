"""Data files in a real S3 server: written, read, listed and deleted through fsspec, with credentials that show nowhere."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_core.arrow.write import write_table
from ducklake_core.arrow.write_state import WriteState
from ducklake_core.errors import DuckLakeError, NotFoundError
from ducklake_core.format.arrow_types import from_arrow_schema
from ducklake_core.format.partitioning import PartitionField, PartitionSpec
from ducklake_core.format.schema import with_ids
from ducklake_core.storage.filesystems import Storage, StorageOptions
from ducklake_core.storage.parquet_footer import read_footer

KEY, SECRET = "access-key-of-test", "secret-key-of-test"
TABLE = pa.table({"k": ["ä/1", "b", "ä/1"], "v": pa.array([1, 2, 3])})


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An S3 server over a local directory with one bucket, called ``lake``."""
    root = tmp_path_factory.mktemp("s3")
    (root / "lake").mkdir()
    port = _free_port()
    command = [
        str(Path(sys.executable).parent / "rclone"),
        "serve",
        "s3",
        "--addr",
        f"127.0.0.1:{port}",
        "--auth-key",
        f"{KEY},{SECRET}",
        str(root),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
        server.terminate()


def storage_of(endpoint: str, secret: str = SECRET) -> Storage:
    options = {
        "key": KEY,
        "secret": secret,
        "endpoint_url": endpoint,
        "client_kwargs": {"region_name": "us-east-1"},
        # This server answers a range with the checksum of the whole object.
        "config_kwargs": {"response_checksum_validation": "when_required"},
    }
    return Storage(options=StorageOptions(by_protocol={"s3": options}))


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_files_of_a_partitioned_table(endpoint: str, scheme: str) -> None:
    storage = storage_of(endpoint)
    spec = PartitionSpec(id=1, fields=(PartitionField(column="k", column_id=1, transform="identity"),))
    directory = f"{scheme}://lake/{scheme}/main/t/"
    state = WriteState(
        table="main.t", directory=directory, schema=with_ids(from_arrow_schema(TABLE.schema)), partition_spec=spec, storage=storage
    )
    files = write_table(TABLE, state)
    assert {file.path.rpartition("/")[0]: file.record_count for file in files} == {"k=%C3%A4%2F1": 2, "k=b": 1}
    assert {f.path: f.size for f in storage.list(directory)} == {directory + file.path: file.file_size_bytes for file in files}
    for file in files:
        path = directory + file.path
        footer = read_footer(storage, path)
        assert (footer.record_count, footer.footer_size) == (file.record_count, file.footer_size)
        with storage.open_input(path) as source:
            assert set(pq.ParquetFile(source).read().column("k").to_pylist()) == {file.partition_values[0]}
    result = storage.delete([*(directory + file.path for file in files), f"{directory}nothing"])
    assert (len(result.deleted), result.missing, result.failed) == (2, (f"{directory}nothing",), ())
    assert list(storage.list(directory)) == []
    with pytest.raises(NotFoundError):
        storage.open_input(directory + files[0].path)


def test_refused_credentials_are_not_shown(endpoint: str) -> None:
    wrong = storage_of(endpoint, secret="a-wrong-secret-key")
    state = WriteState(table="main.t", directory="s3://lake/x/", schema=with_ids(from_arrow_schema(TABLE.schema)), storage=wrong)
    with pytest.raises(DuckLakeError) as caught:
        write_table(TABLE, state)
    assert "s3://lake/x/" in str(caught.value)
    assert "a-wrong-secret-key" not in repr(caught.value) + str(caught.value)
