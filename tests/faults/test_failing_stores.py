"""Stores that fail, disks that are full, clocks that jump: each transaction is in the lake as a whole or not at all."""

from __future__ import annotations

import errno
import itertools
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import ducklake_core.catalog.database.sqlite_catalog
import ducklake_core.catalog.writing.head
from ducklake_core import DuckLake
from ducklake_core.errors import CatalogError, DuckLakeError, StorageError
from ducklake_core.storage.filesystems import Storage
from tests.faults.checks import check, read
from tests.faults.work import Model, frame, prepare, work
from tests.support.oracle import LakeAddress
from tests.support.parameters import spread


@dataclass(frozen=True)
class EveryThird(Storage):
    """A store on which every third call fails."""

    calls: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    lock: ClassVar[threading.Lock] = threading.Lock()

    def _take(self, path: str) -> None:
        with self.lock:
            number = next(self.calls)
        if number % 3 == 0:
            raise StorageError(f"cannot reach {path}: the store is away", path=path)

    def open_output(self, path: str) -> pa.NativeFile:
        self._take(path)
        return super().open_output(path)

    def open_input(self, path: str) -> pa.NativeFile:
        self._take(path)
        return super().open_input(path)

    def _unlinked(self, path: str) -> bool:
        return False

    def _delete_one(self, path: str) -> None:
        self._take(path)
        super()._delete_one(path)

    def size(self, path: str) -> int:
        self._take(path)
        return super().size(path)


@pytest.mark.parametrize("inlining", spread([0, 10], 1), ids=["files", "inlined"])
def test_every_third_call_fails(sqlite_address: LakeAddress, inlining: int) -> None:
    model = prepare(sqlite_address.url, sqlite_address.data_path, inlining)
    lake = DuckLake.connect(sqlite_address.url)
    lake._storage = EveryThird()
    failures = 0
    for _ in range(12):
        try:
            work(lake, model)
            model = model.after()
        except StorageError:
            failures += 1
        assert read(DuckLake.connect(sqlite_address.url)) == model.tables()
    assert failures
    check(sqlite_address, model)
    lake._storage = Storage()
    work(lake, model)
    check(sqlite_address, model.after())


@contextmanager
def _full_disk(limit: int) -> Iterator[None]:
    """No file of this process may grow beyond some bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_a_file_that_cannot_be_finished(postgres: Any, tmp_path: Any) -> None:
    address = postgres.lake(tmp_path)
    model = prepare(address.url, address.data_path, 0)
    lake = DuckLake.connect(address.url)
    big = pa.table({"k": pa.array(range(2_000_000), pa.int64()), "owner": pa.array([1] * 2_000_000, pa.int32())})

    def half() -> None:
        with lake.transaction() as tx:
            tx.append("added", frame(model.after().added))
            tx.append("replaced", big)

    with _full_disk(1_000_000), pytest.raises(StorageError, match="cannot write"):
        half()
    check(address, model)
    work(lake, model)
    check(address, model.after())


def test_a_full_catalog_disk(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    model = prepare(sqlite_address.url, sqlite_address.data_path, 0)
    lake = DuckLake.connect(sqlite_address.url)
    real = ducklake_core.catalog.database.sqlite_catalog._opened

    def full(file: str) -> Any:
        connection = real(file)
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    monkeypatch.setattr("ducklake_core.catalog.database.sqlite_catalog._opened", full)
    lake.close()

    def fill() -> None:
        nonlocal model
        for _ in range(200):
            work(lake, model)
            model = model.after()

    with pytest.raises(CatalogError, match="full"):
        fill()
    monkeypatch.undo()
    check(sqlite_address, model)
    work(lake, model)
    check(sqlite_address, model.after())


class _Clock(datetime):
    """A clock that jumps: a year ahead, two years back, and on."""

    jumps: ClassVar[Iterator[timedelta]]

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return datetime.now(tz) + next(cls.jumps)


def test_a_clock_that_jumps(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    model = prepare(sqlite_address.url, sqlite_address.data_path, 10)
    lake = DuckLake.connect(sqlite_address.url)
    first = datetime.now(UTC)
    _Clock.jumps = itertools.cycle([timedelta(hours=1), timedelta(days=-700), timedelta(minutes=-1), timedelta(0)])
    monkeypatch.setattr(ducklake_core.catalog.writing.head, "datetime", _Clock)
    for _ in range(6):
        work(lake, model)
        model = model.after()
    monkeypatch.undo()
    times = [snapshot.time for snapshot in lake.snapshots()]
    assert times == sorted(times)
    # Time travel goes by these times: what was there before the clock went wrong is what it was.
    assert read_added(lake, first) == frozenset()
    assert lake.snapshot(times[-1]).id == lake.snapshot().id
    check(sqlite_address, model)


def read_added(lake: DuckLake, moment: datetime) -> frozenset[tuple[int, int]]:
    rows = lake.table("added", at=moment).scan().to_arrow().to_pylist()
    return frozenset((row["k"], row["owner"]) for row in rows)


def test_disks_that_are_full_while_deletes_are_written(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    model = prepare(sqlite_address.url, sqlite_address.data_path, 0)
    lake = DuckLake.connect(sqlite_address.url)
    _no_space_for(monkeypatch, "-delete.parquet")
    with pytest.raises(DuckLakeError, match="No space left"):
        work(lake, model)
    monkeypatch.undo()
    check(sqlite_address, model)


def _no_space_for(monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    real: Callable[[Storage, str], pa.NativeFile] = Storage.open_output

    def open_output(self: Storage, path: str) -> pa.NativeFile:
        if path.endswith(suffix):
            with self.reporting("create", path):
                raise OSError(errno.ENOSPC, "No space left on device", path)
        return real(self, path)

    monkeypatch.setattr(Storage, "open_output", open_output)


def test_models_differ() -> None:
    """Each transaction changes every table, so that half of one would be seen."""
    model = Model()
    for name, rows in model.after().tables().items():
        assert rows != model.tables()[name]
