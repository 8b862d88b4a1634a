"""Uploads to an object store that fail, or are given up: no object, and no parts of one, are left behind."""

from __future__ import annotations

import gc
import itertools
from typing import Any

import pyarrow as pa
import pytest
import s3fs

from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.engines.arrow.writer import DatasetWriter
from ducklake_core.errors import StorageError
from ducklake_core.format.options import Options
from ducklake_core.format.types.schema import from_arrow_schema, with_ids
from ducklake_core.storage.delete_files import write_delete_file
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.unfinished import unfinished_uploads
from tests.support.s3 import BUCKET, S3Server

# Random bytes do not compress, and parts have at least 5 MiB.
PART = 5 * 2**20
DATA = pa.table({"v": pa.array([bytes([n]) * 7 + n.to_bytes(4, "big") * 250_000 for n in range(14)])})


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the calls that uploads make; those that begin with ``!`` are to fail."""
    made: list[str] = []
    real = s3fs.S3File._call_s3

    def call(self: Any, method: str, *given: Any, **named: Any) -> Any:
        made.append(method)
        if f"!{method}:{made.count(method)}" in made:
            raise PermissionError(f"{method} is not allowed")
        return real(self, method, *given, **named)

    monkeypatch.setattr(s3fs.S3File, "_call_s3", call)
    return made


def state_of(storage: Storage, directory: str, **options: Any) -> WriteState:
    schema = with_ids(from_arrow_schema(DATA.schema))
    return WriteState(table="main.t", directory=directory, schema=schema, storage=storage, options=Options(**options))


def test_a_write_that_is_given_up(s3: S3Server, calls: list[str]) -> None:
    storage = s3.storage(default_block_size=PART)
    directory = f"s3://{BUCKET}/given_up/"

    def half() -> None:
        with DatasetWriter(state_of(storage, directory, parquet_compression="uncompressed", parquet_row_group_size=2)) as writer:
            for batch in 6 * DATA.to_batches():
                writer.write(batch)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    gc.collect()
    assert "upload_part" in calls
    assert "complete_multipart_upload" not in calls
    assert "put_object" not in calls
    assert list(storage.list(directory)) == []
    assert list(unfinished_uploads(storage, directory)) == []


def test_an_upload_that_is_forgotten(s3: S3Server, calls: list[str]) -> None:
    storage = s3.storage(default_block_size=PART)
    directory = f"s3://{BUCKET}/forgotten/"
    sink = storage.open_output(f"{directory}x")
    sink.write(bytes(3 * PART))
    del sink
    gc.collect()
    assert "upload_part" in calls
    assert not storage.exists(f"{directory}x")
    assert list(unfinished_uploads(storage, directory)) == []


def test_a_delete_file_fails(s3: S3Server, calls: list[str]) -> None:
    storage = s3.storage()
    calls.append("!put_object:1")
    with pytest.raises(StorageError, match="is not allowed"):
        write_delete_file(storage, f"s3://{BUCKET}/deletes/x.parquet", "data.parquet", list(itertools.islice(itertools.count(), 10)))
    assert list(storage.list(f"s3://{BUCKET}/deletes/")) == []
