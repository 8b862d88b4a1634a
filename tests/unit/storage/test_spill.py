"""Rows that exceed the memory for them: their order, their encryption on the local disk, and full disks."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ducklake_core.errors import StorageError
from ducklake_core.storage import spill
from ducklake_core.storage.spill import ExternalSort, HeldBatches, PartitionBuffer, SpillFile, SpillLimits

LIMITS = SpillLimits(memory_bytes=20_000, block_bytes=1000)


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("spread", [1, 5, 10_000])
def test_rows_come_in_order_and_equal_ones_as_they_were(monkeypatch: pytest.MonkeyPatch, spread: int, *, encrypted: bool) -> None:
    monkeypatch.setattr(spill, "STAGE_BLOCKS", 3)
    limits = SpillLimits(memory_bytes=2_000, block_bytes=100)
    chance = random.Random(spread)
    for count in (0, 1, 50, 2_000):
        rows = [(chance.choice([None, *range(spread)]), number) for number in range(count)]
        sort = ExternalSort(lambda batch: pc.sort_indices(batch, sort_keys=[("k", "ascending")]), limits, encrypted=encrypted)
        start = 0
        while start < count:
            part = rows[start : start + chance.randint(1, 200)]
            start += len(part)
            keys = pa.array([key for key, _ in part], pa.int64())
            sort.add(pa.RecordBatch.from_pydict({"k": keys, "n": pa.array([number for _, number in part])}))
        found = [(row["k"], row["n"]) for batch in sort.rows() for row in batch.to_pylist()]
        assert found == sorted(rows, key=lambda row: (row[0] is None, row[0] or 0))


def numbered(step: int) -> pa.RecordBatch:
    values = np.arange(200) + step * 200
    return pa.record_batch({"v": values, "t": [f"text {value}" for value in values]})


def values_of(batches: object) -> list[int]:
    return [value for batch in batches for value in batch.column("v").to_pylist()]  # type: ignore[attr-defined]


def fill(buffer: PartitionBuffer, *, disk_is_full: Callable[[int], bool] = lambda _step: False) -> dict[int, list[int]]:
    """Add the rows of 40 steps to a buffer; the rows by partition."""
    chance = np.random.default_rng(7)
    wanted: dict[int, list[int]] = {}
    for step in range(40):
        numbers = chance.integers(0, 30, 200)
        rows = numbered(step)
        with pytest.MonkeyPatch.context() as patch:
            if disk_is_full(step):
                patch.setattr(os, "pwrite", full_disk)
            try:
                buffer.add(rows, numbers)
            except StorageError:
                assert disk_is_full(step)
        for number, value in zip(numbers.tolist(), rows.column("v").to_pylist(), strict=True):
            wanted.setdefault(number, []).append(value)
    return wanted


def full_disk(*_: object) -> int:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_partition_buffer_returns_all_rows_by_partition_in_their_order(encrypted: bool) -> None:
    buffer = PartitionBuffer(LIMITS, encrypted=encrypted)
    wanted = fill(buffer)
    found = {number: values_of(pieces) for number, pieces in buffer.partitions()}
    assert found == wanted
    assert list(found) == sorted(found)
    assert not buffer


def test_rows_stay_in_memory_while_the_disk_is_full() -> None:
    buffer = PartitionBuffer(LIMITS)
    wanted = fill(buffer, disk_is_full=lambda step: 10 < step < 20 or step == 39)
    assert {number: values_of(pieces) for number, pieces in buffer.partitions()} == wanted


def test_a_partition_buffer_takes_rows_up_to_its_limit_on_the_disk() -> None:
    buffer = PartitionBuffer(SpillLimits(memory_bytes=1, block_bytes=1000, disk_bytes=60_000))
    steps, taken = iter(range(40)), 0

    def add_all() -> None:
        nonlocal taken
        for step in steps:
            taken += 1
            buffer.add(numbered(step), np.zeros(200, np.int64))

    with pytest.raises(StorageError, match=r"for their partitions take 6\d,\d{3} bytes on the local disk, of at most 60,000"):
        add_all()
    assert {number: values_of(pieces) for number, pieces in buffer.partitions()} == {0: list(range(200 * taken))}


@pytest.mark.parametrize("encrypted", [False, True])
def test_held_batches_are_returned_any_number_of_times(encrypted: bool) -> None:
    held = HeldBatches(LIMITS, encrypted=encrypted)
    for step in range(40):
        held.add(numbered(step))
    assert [values_of(held.to_batches()) for _ in range(2)] == [list(range(8000))] * 2
    assert held.num_rows == 8000
    held.close()


@pytest.mark.parametrize("take", ["hold", "sort", "split"])
def test_a_full_disk_is_an_error_that_names_the_directory(take: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", full_disk)
    limits = SpillLimits(memory_bytes=1)
    held, sort, buffer = HeldBatches(limits), ExternalSort(lambda _: None, limits), PartitionBuffer(limits)
    calls: dict[str, Callable[[], None]] = {
        "hold": lambda: held.add(numbered(0)),
        "sort": lambda: sort.add(numbered(0)),
        "split": lambda: buffer.add(numbered(0), np.zeros(200, np.int64)),
    }
    with pytest.raises(StorageError, match=r"local disk, which took 0 bytes of them .*No space left on device\)\. Set TMPDIR") as raised:
        calls[take]()
    for container in (held, sort, buffer):
        container.close()
    assert isinstance(raised.value.__cause__, OSError)


def test_a_file_that_was_cut_is_an_error() -> None:
    file = SpillFile()
    slices = [file.append(numbered(step)) for step in range(2)]
    file.truncate(slices[0].length + 10)
    assert file.read(slices[0]).num_rows == 200
    with pytest.raises(StorageError, match="rows cannot be read back from the local disk"):
        file.read(slices[1])
    file.close()


def test_encrypted_rows_are_not_readable_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: (tmp_path / "spill").open("w+b", buffering=0))
    for encrypted in (True, False):
        file = SpillFile(encrypted=encrypted)
        index = file.append(pa.record_batch({"s": ["a very secret text"]}))
        assert (b"secret" in (tmp_path / "spill").read_bytes()) is not encrypted
        assert file.read(index).column("s").to_pylist() == ["a very secret text"]
        file.close()
