"""An S3 store of which every third call fails: each transaction is in the lake as a whole or not at all, and what is left over is swept."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import s3fs

from ducklake_core import DuckLake
from ducklake_core.catalog.scheduled import every_file_name
from ducklake_core.errors import StorageError
from tests.faults.checks import read
from tests.faults.work import Model, frame, work
from tests.stores.test_lakes_on_s3 import new_lake
from tests.stores.work import objects
from tests.support.oracle import LakeAddress
from tests.support.s3 import S3Server, attached_on_s3, s3_lake

_NOW = timedelta(0)


@pytest.mark.slow
def test_every_third_call_to_the_server_fails(sqlite_address: LakeAddress, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    address = s3_lake(sqlite_address, "every_third")
    lake = new_lake(address, s3)
    model = Model()
    lake.create_table("added", frame(frozenset()).schema, partition_by=["owner"])
    for name in ("replaced", "thinned"):
        lake.write(name, frame(model.tables()[name]))
    real, calls, failures = s3fs.S3FileSystem._call_s3, 0, 0

    async def call(self: Any, method: str, *given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            raise PermissionError(f"{method}: the store is away")
        return await real(self, method, *given, **named)

    for turn in range(12):
        with monkeypatch.context() as patched:
            patched.setattr(s3fs.S3FileSystem, "_call_s3", call)
            calls = turn
            try:
                work(lake, model)
                model = model.after()
            except StorageError as error:
                assert "the store is away" in str(error)
                failures += 1
        other = DuckLake.connect(address.url, storage_options=s3.options())
        assert read(other) == model.tables()
        other.close()
    assert failures > 0
    lake.delete_orphaned_files(older_than=_NOW, min_age=_NOW)
    with lake.reader() as reader:
        assert objects(lake) == set(every_file_name(reader.connection, lake.database.tables))
    assert read(lake) == model.tables()
    with attached_on_s3(address, s3) as duck:
        assert {name: frozenset(duck.rows(f"SELECT k, owner FROM {name}")) for name in model.tables()} == model.tables()
    work(lake, model)
    assert read(lake) == model.after().tables()
    lake.close()
