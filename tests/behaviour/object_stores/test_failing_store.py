"""A store that fails every third call: each transaction is in the lake as a whole or not at all, and what is left over is swept."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.catalog.writing.expiry import every_file_name
from ducklake_core.errors import StorageError
from tests.behaviour.object_stores.work import objects
from tests.faults.checks import read
from tests.faults.work import NAMES, Model, frame, work
from tests.support.object_stores import ObjectStore, s3_store
from tests.support.oracle import LakeAddress
from tests.support.s3 import S3Server

_NOW = timedelta(0)


@pytest.mark.slow
def test_every_third_call_to_the_server_fails(sqlite_address: LakeAddress, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    address = store.lake(sqlite_address, "every_third")
    lake = store.create(address)
    model = Model()
    lake.create_table("added", frame(frozenset()).schema, partition_by=["owner"])
    for name in NAMES[1:]:
        lake.write(name, frame(model.tables()[name]))
    of, function = store.call
    real, calls, failures = getattr(of, function), 0, 0

    async def call(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            raise PermissionError("the store is away")
        return await real(*given, **named)

    for attempt in range(12):
        with monkeypatch.context() as patched:
            patched.setattr(of, function, call)
            calls = attempt
            try:
                work(lake, model)
                model = model.after()
            except StorageError as error:
                assert "the store is away" in str(error)
                failures += 1
        other = DuckLake.connect(address.url, storage_options=store.options)
        assert read(other) == model.tables()
        other.close()
    assert failures > 0
    lake.delete_orphaned_files(older_than=_NOW, min_age=_NOW)
    with lake.reader() as reader:
        assert objects(lake) == set(every_file_name(reader.connection, lake.database.tables))
    assert read(lake) == model.tables()
    if store.know is not None:
        with store.attached(address) as duck:
            assert {name: frozenset(duck.rows(f"SELECT k, owner FROM {name}")) for name in model.tables()} == model.tables()
    work(lake, model)
    assert read(lake) == model.after().tables()
    lake.close()


@pytest.mark.slow
def test_a_file_that_goes_while_it_is_read_fails_its_table_alone(s3: S3Server, sqlite_address: LakeAddress) -> None:
    """The server lists the file and breaks off its answer; the client raises an error of its own class."""
    store = s3_store(s3)
    lake = store.create(store.lake(sqlite_address, "lost_files"))
    for name in ("broken", "whole"):
        for number in range(3):
            lake.write(name, pa.table({"n": [number]}))
    next((s3.root / "lake" / "lost_files").rglob("broken/*.parquet")).unlink()
    result = lake.merge_adjacent_files()
    (failed,) = result.failed_steps
    assert "main.broken" in str(failed)
    assert "cannot read" in str(failed)
    assert lake.table("whole").info().file_count == 1
