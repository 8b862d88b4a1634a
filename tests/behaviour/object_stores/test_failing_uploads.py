"""Uploads during which any one call fails, to each store: no file appears, and the next attempt is complete."""

from __future__ import annotations

import gc
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.engines.arrow.writer import write_table
from ducklake_core.errors import StorageError
from ducklake_core.format.options import Options
from ducklake_core.format.types.schema import from_arrow_schema, with_ids
from ducklake_core.storage.filesystems import Storage, StorageOptions
from ducklake_core.storage.unfinished import unfinished_uploads
from tests.support.object_stores import ObjectStore
from tests.support.parameters import slow

# A part of S3's has at least 5 MiB, and what repeats is neither compressed nor put into a dictionary.
DATA = pa.table({"v": pa.array([bytes([n]) * 7 + n.to_bytes(4, "big") * 750_000 for n in range(4)])})


# gcsfs sends parts in a form that its own client warns of.
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
@pytest.mark.parametrize("store", [slow("s3"), "azure", slow("gcs")], indirect=True)
@pytest.mark.parametrize("rows", [1, slow(4)], ids=["small", "in parts"])
def test_each_call_fails_once(store: ObjectStore, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    data = DATA.slice(0, rows) if rows > 1 else DATA.set_column(0, "v", pa.array([b"x"] * 4)).slice(0, 1)
    ((protocol, options),) = store.options.items()
    storage = Storage(options=StorageOptions(by_protocol={protocol: {**options, **store.small_parts}}))
    directory = f"{store.schemes[0]}://lake/failing/{rows}/"
    state = WriteState(
        table="main.t",
        directory=directory,
        schema=with_ids(from_arrow_schema(data.schema)),
        storage=storage,
        options=Options(parquet_compression="uncompressed", parquet_row_group_size=1),
    )
    of, function = store.call
    real, calls, failing = getattr(of, function), 0, 0

    async def call(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise PermissionError("not allowed")
        return await real(*given, **named)

    while True:
        calls, failing = 0, failing + 1
        with monkeypatch.context() as patched:
            patched.setattr(of, function, call)
            try:
                files = write_table(data, state)
            except StorageError as error:
                assert "not allowed" in str(error)
            else:
                break
            gc.collect()
        assert list(storage.list(directory)) == []
        assert list(unfinished_uploads(storage, directory)) == []
    assert calls == failing - 1 >= rows
    (stored,) = storage.list(directory)
    assert [stored.path] == [directory + file.path for file in files]
    with storage.open_input(stored.path) as source:
        assert pq.ParquetFile(source).read().column("v").to_pylist() == data.column("v").to_pylist()
