"""Stores that fail, hang or lie under each maintenance operation: no row is lost, and a later run does the rest."""

from __future__ import annotations

import io
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError, StorageError
from ducklake_core.maintenance.orphans import delete_orphaned_files
from ducklake_core.storage.filesystems import Deletion, Storage
from ducklake_core.storage.uploads import StoredFile
from tests.faults.upkeep import NOW, OPERATIONS, Shown, is_sound, nothing_is_lost, plant_orphan, prepare, shown
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import spread


@dataclass(frozen=True, slots=False)
class Watched(Storage):
    """A store that reports each call to a function first."""

    before: Callable[[str, str], None] = field(default=lambda call, path: None)

    def open_output(self, path: str) -> pa.NativeFile:
        self.before("write", path)
        return super().open_output(path)

    def open_input(self, path: str) -> pa.NativeFile:
        self.before("read", path)
        return super().open_input(path)

    def _unlinked(self, path: str) -> bool:
        return False

    def _delete_one(self, path: str) -> None:
        self.before("delete", path)
        super()._delete_one(path)

    def size(self, path: str) -> int:
        self.before("size", path)
        return super().size(path)

    def list(self, prefix: str) -> Iterator[StoredFile]:
        self.before("list", prefix)
        yield from super().list(prefix)


def run(lake: DuckLake, operation: str) -> Any:
    """Run an operation on a bad store: it raises an error of the library, or its result lists failures."""
    try:
        return OPERATIONS[operation](lake)
    except DuckLakeError:
        return None


def with_good_store(lake: DuckLake, operation: str, before: Shown) -> None:
    """Assert that the operation does the rest, nothing is lost, and only orphaned files remain."""
    lake._storage = Storage()
    nothing_is_lost(lake, before)
    result = OPERATIONS[operation](lake)
    assert not getattr(result, "failed_steps", ()), result
    nothing_is_lost(lake, before)
    is_sound(lake)
    lake.close()


def failing(draw: random.Random, part: float) -> Callable[[str, str], None]:
    lock = threading.Lock()

    def fail(call: str, path: str) -> None:
        with lock:
            unlucky = draw.random() < part
        if unlucky:
            raise StorageError(f"cannot {call} {path}: the store is away", path=path)

    return fail


@pytest.mark.parametrize("operation", spread(OPERATIONS, 1))
def test_stores_that_fail(sqlite_address: LakeAddress, operation: str) -> None:
    _fail_often(sqlite_address, operation, seeds=range(3))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", [100, 110, 120, 130])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_stores_that_fail_often(lake_address: LakeAddress, operation: str, first: int) -> None:
    _fail_often(lake_address, operation, seeds=range(first, first + 10))


def _fail_often(address: LakeAddress, operation: str, seeds: range) -> None:
    prepare(address, operation)
    lake = DuckLake.connect(address.url)
    before = shown(lake)
    for seed in seeds:
        draw = random.Random(seed)
        lake._storage = Watched(before=failing(draw, draw.choice((0.05, 0.3, 0.9))))
        found = run(lake, operation)
        if operation == "check" and found is not None:
            assert {one.code for one in found} <= {"file-unreachable", "rows-unreadable"}, str(found)
        lake._storage = Storage()
        nothing_is_lost(lake, before)
    with_good_store(lake, operation, before)


@pytest.mark.parametrize("operation", spread([operation for operation in OPERATIONS if operation not in ("expire", "repair")], 2))
def test_stores_that_hang(sqlite_address: LakeAddress, operation: str) -> None:
    """While a call hangs, other clients read and commit: no transaction is open and no lock is held."""
    prepare(sqlite_address, operation)
    lake, other = DuckLake.connect(sqlite_address.url), DuckLake.connect(sqlite_address.url)
    before = shown(lake)
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(call: str, path: str) -> None:
        hangs.set()
        assert goes_on.wait(240)

    lake._storage = Watched(before=hang)
    running = threading.Thread(target=run, args=(lake, operation))
    running.start()
    assert hangs.wait(240)
    try:
        other.write("free", pa.table({"n": [1]}))
        with attached(sqlite_address) as duck:
            duck.run("INSERT INTO free VALUES (2)")
    finally:
        goes_on.set()
        running.join()
    assert sorted(other.table("free").scan().to_arrow()["n"].to_pylist()) == [1, 2]
    other.drop_table("free")
    other.close()
    with_good_store(lake, operation, before)


class _Lost(io.BytesIO):
    """Takes everything, and keeps nothing."""


@dataclass(frozen=True, slots=False)
class Liar(Storage):
    """A store that lies about its work."""

    lie: str = ""

    def open_output(self, path: str) -> pa.NativeFile:
        if self.lie == "takes files and loses them":
            return pa.PythonFile(_Lost(), mode="w")
        return super().open_output(path)

    def open_input(self, path: str) -> pa.NativeFile:
        if self.lie == "gives half of a file" and path.endswith(".parquet"):
            whole = Path(path).read_bytes()
            return pa.BufferReader(whole[: len(whole) // 2])
        if self.lie == "gives another file" and path.endswith(".parquet"):
            others = sorted(Path(path).parent.rglob("*.parquet"))
            return pa.BufferReader(others[(others.index(Path(path)) + 1) % len(others)].read_bytes())
        return super().open_input(path)

    def size(self, path: str) -> int:
        size = super().size(path)
        return size + 7 if self.lie == "reports wrong sizes" else size

    def delete(self, paths: Any) -> Deletion:
        if self.lie == "deletes nothing":
            return Deletion(deleted=tuple(paths), missing=(), failed=())
        return super().delete(paths)

    def list(self, prefix: str) -> Iterator[StoredFile]:
        for number, file in enumerate(super().list(prefix)):
            if self.lie != "leaves out files" or number % 2:
                yield file
            if self.lie == "lists files twice":
                yield file


LIES = (
    "takes files and loses them", "gives half of a file", "reports wrong sizes", "deletes nothing", "leaves out files", "lists files twice",
)  # fmt: skip
"""Lies that every operation detects. Only a check detects another file of as many rows and bytes."""


@pytest.mark.parametrize("operation", spread([operation for operation in OPERATIONS if operation not in ("expire", "repair")], 1))
@pytest.mark.parametrize("lie", spread(LIES, 2))
def test_stores_that_lie(sqlite_address: LakeAddress, operation: str, lie: str) -> None:
    prepare(sqlite_address, operation)
    lake = DuckLake.connect(sqlite_address.url)
    before = shown(lake)
    lake._storage = Liar(lie=lie)
    run(lake, operation)
    with_good_store(lake, operation, before)


@pytest.mark.parametrize("lie", ["gives half of a file", "gives another file", "leaves out files"])
@pytest.mark.parametrize("level", ["footers", "rows"])
def test_a_check_finds_the_lie(sqlite_address: LakeAddress, lie: str, level: Literal["footers", "rows"]) -> None:
    """Except for an incomplete listing, which a check does not use."""
    prepare(sqlite_address, "check")
    lake = DuckLake.connect(sqlite_address.url)
    lake._storage = Liar(lie=lie)
    assert lake.check(level=level).is_sound == (lie == "leaves out files")
    lake.close()


@pytest.mark.parametrize("by", ["us", "DuckDB"])
def test_files_of_as_many_rows_and_bytes_that_were_exchanged(sqlite_address: LakeAddress, by: str) -> None:
    """Bounds show the exchange without reading a row; a repair changes nothing, as the statistics are right."""
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.set_option("data_inlining_row_limit", 0)
    lake.create_table("t", pa.schema({"k": pa.string(), "n": pa.int64(), "x": pa.float64()}))
    for letter in "ab":
        if by == "DuckDB":
            with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
                duck.run(f"INSERT INTO t SELECT {letter!r}, n, n / 4 FROM range(3) r(n)")
        else:
            lake.write("t", pa.table({"k": [letter] * 3, "n": range(3), "x": [0.0, 0.25, 0.5]}))
    one, other = sorted(Path(sqlite_address.data_path).rglob("*.parquet"))
    assert one.stat().st_size == other.stat().st_size
    assert lake.check(level="rows").findings == ()
    held = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(held)
    assert lake.check().findings == ()
    for level in ("footers", "rows"):
        found = lake.check(level=level, repair=True)
        assert found.by_code == {"file-differs": 2}, str(found)
        assert (found.repairs, found.bytes_read) == ((), 0)
    lake.close()


def test_a_merge_into_a_store_that_loses_files(sqlite_address: LakeAddress) -> None:
    """Sources are forgotten by a merge, so that their place is taken by nothing that the store does not have."""
    prepare(sqlite_address, "merge")
    lake = DuckLake.connect(sqlite_address.url)
    newest = lake.snapshot().id
    lake._storage = Liar(lie="takes files and loses them")
    result = lake.merge_adjacent_files()
    assert any("was written, but is missing" in failure for failure in result.failures)
    assert lake.snapshot().id == newest
    lake.close()


@dataclass(frozen=True, slots=False)
class Elsewhere(Storage):
    """A store that spells what it lists in a way of its own."""

    spelling: str = ""

    def list(self, prefix: str) -> Iterator[StoredFile]:
        for file in super().list(prefix):
            yield StoredFile(path=self.spelling + file.path.rpartition("/")[2], size=file.size, modified=file.modified)


@pytest.mark.parametrize("spelling", ["hdfs://nodes/", "/another/place/", "unknown+scheme://x/"])
def test_a_sweep_stops_on_paths_that_it_does_not_know(sqlite_address: LakeAddress, spelling: str) -> None:
    prepare(sqlite_address, "merge")
    lake = DuckLake.connect(sqlite_address.url)
    orphan = plant_orphan(sqlite_address, 1)
    for dry_run in (True, False):
        with pytest.raises(StorageError, match="not below the data path"):
            delete_orphaned_files(lake.database, lake.info, Elsewhere(spelling=spelling), older_than=NOW, min_age=NOW, dry_run=dry_run)
    assert orphan.exists()
    lake.close()
