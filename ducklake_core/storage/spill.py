"""Keep rows in memory up to a limit and spill the rest to an unnamed temporary file.

======================== ================================================================================================
:class:`HeldBatches`     gives rows back in the order in which they came, any number of times
:class:`PartitionBuffer` gives rows back partition by partition, once
:class:`ExternalSort`    gives rows back sorted, once
:class:`SpillFile`       the file of each of them: record batches, encrypted where the lake is
======================== ================================================================================================
"""

from __future__ import annotations

import heapq
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import IO, TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ducklake_core.errors import StorageError

if TYPE_CHECKING:
    from ducklake_core.storage.encryption.reading import Cipher


Numbers: TypeAlias = npt.NDArray[np.int64]
Places: TypeAlias = Callable[[pa.RecordBatch], pa.Array | None]
"""Return the positions of the rows that come first, second and so on; None when they are in order. Equal rows keep their order."""
STAGE_BLOCKS = 64
"""Blocks whose rows are sorted together while runs are merged, in addition to one of each run."""
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SpillLimits:
    """Limits of rows that wait in memory and on the local disk.

    Attributes:
        memory_bytes: Arrow bytes in memory; rows beyond them go to the disk.
        block_bytes: Arrow bytes of a block on the disk. At least one block of each run is in memory while runs are merged.
        disk_bytes: Bytes on the disk after which no further run is written; None for no limit but the free space.
    """

    memory_bytes: int = 128 * _MIB
    block_bytes: int = _MIB
    disk_bytes: int | None = None


HELD_ROWS = SpillLimits(memory_bytes=64 * _MIB)
"""Inlined rows of a table that is flushed: they wait until no connection to the catalog is open."""
FLUSHED_ROWS = SpillLimits()
"""Rows of a flush that are split by partition."""
SORTED_ROWS = SpillLimits()
"""Rows that are sorted or clustered; so many are sorted at once."""
PARTITIONED_ROWS = SpillLimits(disk_bytes=8 * 1024 * _MIB)
"""Rows of a write whose partitions have no open file. Beyond the limits each of these partitions gets a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpilledBatch:
    """Position of one record batch in the file.

    Attributes:
        offset: Its first byte.
        length: Its bytes.
    """

    offset: int
    length: int


class SpillFile:
    """Holds record batches of one schema until it is closed.

    The file is unlinked as soon as it is created, so that nothing remains if the process is killed. ``TMPDIR`` sets its
    directory.

    Args:
        encrypted: Whether batches are encrypted, under a key that only this object knows: rows of an encrypted lake must not lie
            on a disk in plain form.
    """

    def __init__(self, *, encrypted: bool = False) -> None:
        self._cipher: Cipher | None = None
        if encrypted:
            from ducklake_core.storage.encryption.reading import Cipher

            self._cipher = Cipher(secrets.token_bytes(32))
        self._file: IO[bytes] | None = None
        self._schema: pa.Schema | None = None
        self.bytes = 0

    def append(self, batch: pa.RecordBatch) -> SpilledBatch:
        """Write a batch at the end.

        Raises:
            StorageError: The disk has no room, or there is no directory for temporary files. The file is as it was before.
        """
        # The message without the schema: all batches of the file share one.
        message = memoryview(batch.serialize()).cast("B")
        content = message if self._cipher is None else memoryview(self._cipher.encrypt_module(message))
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="ducklake-spill-", buffering=0)  # noqa: SIM115 - open until close()
                self._schema = batch.schema
            written = 0
            # A file without a buffer may take less than it is given.
            while written < len(content):
                written += os.pwrite(self._file.fileno(), content[written:], self.bytes + written)
        except OSError as error:
            raise StorageError(
                f"rows that do not fit into memory cannot be kept on the local disk, which took {self.bytes:,} bytes of them ({error}). "
                "Set TMPDIR to a directory with more space"
            ) from error
        place = SpilledBatch(offset=self.bytes, length=len(content))
        self.bytes += len(content)
        return place

    def read(self, place: SpilledBatch) -> pa.RecordBatch:
        """Read a batch back.

        Raises:
            StorageError: The disk does not return what was written.
        """
        assert self._file is not None
        content = bytearray(place.length)
        view, done = memoryview(content), 0
        try:
            while done < place.length:
                count = os.preadv(self._file.fileno(), [view[done:]], place.offset + done)
                if not count:
                    raise OSError(f"the spill file ends at byte {place.offset + done}")
                done += count
        except OSError as error:
            raise StorageError(f"rows cannot be read back from the local disk: {error}") from error
        plain = content if self._cipher is None else self._cipher.decrypt_module(view, 0)[0]
        return pa.ipc.read_record_batch(pa.py_buffer(plain), self._schema)

    def truncate(self, size: int) -> None:
        """Forget all bytes from ``size`` on."""
        self.bytes = size
        if self._file is not None:
            self._file.truncate(size)

    def close(self) -> None:
        """Free the disk."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self.bytes = 0


class HeldBatches:
    """Holds record batches of one schema, in the order in which they came, until it is closed.

    Args:
        limits: Of memory.
        encrypted: Whether what is written to the disk is encrypted.
    """

    def __init__(self, limits: SpillLimits, *, encrypted: bool = False) -> None:
        self._limits = limits
        self._spill = SpillFile(encrypted=encrypted)
        self._batches: list[pa.RecordBatch | SpilledBatch] = []
        self._held_bytes = 0
        self.num_rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch.

        Raises:
            StorageError: The local disk has no room.
        """
        self.num_rows += batch.num_rows
        if self._held_bytes + batch.nbytes <= self._limits.memory_bytes:
            self._held_bytes += batch.nbytes
            self._batches.append(batch)
        else:
            self._batches.append(self._spill.append(batch))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all batches, any number of times.

        Raises:
            StorageError: The local disk does not return what was written.
        """
        for batch in self._batches:
            yield self._spill.read(batch) if isinstance(batch, SpilledBatch) else batch

    def close(self) -> None:
        """Forget all batches, and free the disk."""
        self._batches = []
        self._spill.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartitionRun:
    """Rows sorted by partition.

    Attributes:
        partitions: The partitions that occur, ascending.
        ends: Where the rows of each end.
        blocks: The rows, in memory or on disk.
        block_ends: Where the rows of each block end.
    """

    partitions: Numbers
    ends: Numbers
    blocks: Sequence[pa.RecordBatch | SpilledBatch]
    block_ends: Numbers


@dataclass(slots=True)
class _RunReader:
    """Reads a run once, from its beginning to its end."""

    run: _PartitionRun
    spill: SpillFile
    block: int = -1
    batch: pa.RecordBatch | None = field(default=None)

    def rows(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range that begins where the last one ended."""
        while start < end:
            if self.block < 0 or start >= self.run.block_ends[self.block]:
                self.block += 1
                block = self.run.blocks[self.block]
                self.batch = self.spill.read(block) if isinstance(block, SpilledBatch) else block
            assert self.batch is not None
            first = int(self.run.block_ends[self.block]) - self.batch.num_rows
            until = min(end, int(self.run.block_ends[self.block]))
            yield self.batch.slice(start - first, until - start)
            start = until


class PartitionBuffer:
    """Gathers rows of many partitions, in memory and on the local disk.

    Args:
        limits: Of memory and disk.
        encrypted: Whether what is written to the disk is encrypted.
    """

    def __init__(self, limits: SpillLimits, *, encrypted: bool = False) -> None:
        self._limits = limits
        self._spill = SpillFile(encrypted=encrypted)
        self._runs: list[_PartitionRun] = []
        self._batches: list[pa.RecordBatch] = []
        self._numbers: list[Numbers] = []
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._batches or self._runs)

    def add(self, batch: pa.RecordBatch, numbers: Numbers) -> None:
        """Take rows, each with the number of its partition.

        Raises:
            StorageError: The rows in memory exceed their limit, and the disk does not take them. They stay in memory.
        """
        self._batches.append(batch)
        self._numbers.append(numbers)
        self._bytes += batch.nbytes
        if self._bytes >= self._limits.memory_bytes:
            self._write_run()

    def _write_run(self) -> None:
        """Move the rows in memory to the disk."""
        before, most = self._spill.bytes, self._limits.disk_bytes
        # Checked before a run, so that a run is always whole; the limit may be exceeded by one run.
        if most is not None and before >= most:
            raise StorageError(f"rows that wait for their partitions take {before:,} bytes on the local disk, of at most {most:,}")
        run = self._sorted()
        try:
            blocks = tuple(self._spill.append(block) for block in run.blocks if isinstance(block, pa.RecordBatch))
        except StorageError:
            with suppress(OSError):
                self._spill.truncate(before)
            self._keep(run)
            raise
        self._runs.append(_PartitionRun(partitions=run.partitions, ends=run.ends, blocks=blocks, block_ends=run.block_ends))

    def partitions(self) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        """Yield all rows, by partition; to be read in order, and once. The buffer is empty afterwards."""
        runs = self._runs
        if self._batches:
            runs.append(self._sorted())
        self._runs = []
        readers = [_RunReader(run, self._spill) for run in runs]
        # Of one partition the runs come in the order in which they were made.
        places = heapq.merge(*(_ranges(run, number) for number, run in enumerate(runs)))
        for partition, parts in groupby(places, key=itemgetter(0)):
            yield partition, (rows for _, run, start, end in parts for rows in readers[run].rows(start, end))
        self.close()

    def close(self) -> None:
        """Forget all rows, and free the disk."""
        self._batches, self._numbers, self._runs, self._bytes = [], [], [], 0
        self._spill.close()

    def _keep(self, run: _PartitionRun) -> None:
        """Put the only run that is in memory back where rows are gathered."""
        counts = np.diff(run.ends, prepend=0)
        self._batches = [block for block in run.blocks if isinstance(block, pa.RecordBatch)]
        self._numbers = [np.repeat(run.partitions, counts)]
        self._bytes = sum(batch.nbytes for batch in self._batches)

    def _sorted(self) -> _PartitionRun:
        """Return the rows in memory as a run, taken out of the buffer."""
        batches, numbers = self._batches, np.concatenate(self._numbers)
        self._batches, self._numbers, rows_bytes, self._bytes = [], [], self._bytes, 0
        if bool(np.all(numbers[1:] >= numbers[:-1])):
            rows = pa.Table.from_batches(batches)
        else:
            order = np.argsort(numbers, kind="stable")
            numbers = numbers[order]
            rows = _taken(batches, pa.array(order))
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        # A reader holds one block of each run, so blocks of equal bytes bound the memory of reading back, however wide rows are.
        most = max(1, int(len(numbers) * self._limits.block_bytes / max(rows_bytes, 1)))
        blocks = tuple(rows.to_batches(max_chunksize=most))
        return _PartitionRun(
            partitions=numbers[starts],
            ends=np.append(starts[1:], len(numbers)),
            blocks=blocks,
            block_ends=np.cumsum([block.num_rows for block in blocks]),
        )


def _ranges(run: _PartitionRun, number: int) -> Iterator[tuple[int, int, int, int]]:
    """Return partition, number of the run, first row and end of its rows there."""
    ends = run.ends.tolist()
    starts = [0, *ends[:-1]]
    return ((partition, number, start, end) for partition, start, end in zip(run.partitions.tolist(), starts, ends, strict=True))


def _taken(batches: list[pa.RecordBatch], order: pa.Array) -> pa.Table:
    """Return the rows in another order, column by column, so that at most one column is in memory three times."""
    schema = batches[0].schema
    columns = [pa.concat_arrays([batch.column(place) for batch in batches]).take(order) for place in range(len(schema))]
    return pa.Table.from_arrays(columns, schema=schema)


@dataclass(slots=True)
class _SortedRun:
    """Sorted rows on the disk, read once from their beginning to their end.

    Attributes:
        blocks: Where they are.
        ends: Rows up to the end of each block.
        ranks: For each block how many blocks of all runs end before it.
        next: The next block to read.
        given: Rows that were given back.
        head: Rows that were read and not given back yet.
    """

    blocks: list[SpilledBatch] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    next: int = 0
    given: int = 0
    head: list[pa.RecordBatch] = field(default_factory=list)

    def read(self, spill: SpillFile, rank: int) -> None:
        """Read every block that may hold rows up to the end of the block with a rank."""
        while self.next < len(self.blocks) and (not self.next or self.ranks[self.next - 1] <= rank):
            self.head.append(spill.read(self.blocks[self.next]))
            self.next += 1


# The external sort. Runs are sorted in memory and written in blocks. For the merge only the last row of each block is kept:
#
#   run 0   [ block 0, last row 4 ] [ block 1, last row 9 ]
#   run 1   [ block 0, last row 6 ] [ block 1, last row 8 ]
#
# Sorting these last rows ranks the blocks by their ends (4, 6, 8, 9). All rows up to the end of the block with rank r are complete once
# each run is read up to its first block of a higher rank. So a stage reads those blocks, sorts what they hold with one call of the same
# sort function, gives out the rows up to that end, and keeps the rest as heads. No row is compared in Python.
class ExternalSort:
    """Takes rows and gives them back in order.

    Args:
        places: The order.
        limits: Of memory.
        encrypted: Whether what is written to the disk is encrypted.
    """

    def __init__(self, places: Places, limits: SpillLimits, *, encrypted: bool = False) -> None:
        self._places = places
        self._limits = limits
        self._spill = SpillFile(encrypted=encrypted)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._runs: list[_SortedRun] = []
        self._lasts: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows; all batches have the same schema.

        Raises:
            StorageError: The local disk has no room.
        """
        if not batch.num_rows:
            return
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= self._limits.memory_bytes:
            self._write_run()

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order, in batches; to be read once.

        Raises:
            StorageError: The local disk has no room, or does not give back what it was given.
        """
        try:
            if self._runs:
                yield from self._merged()
            elif self._waiting:
                yield from self._blocks(*self._sorted())
        finally:
            self.close()

    def close(self) -> None:
        """Forget all rows, and free the disk."""
        self._waiting, self._runs, self._lasts, self._waiting_bytes = [], [], [], 0
        self._spill.close()

    def _sorted(self) -> tuple[pa.RecordBatch, int]:
        rows, size = pa.concat_batches(self._waiting), self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0
        places = self._places(rows)
        return (rows if places is None else rows.take(places)), size

    def _write_run(self) -> None:
        run, count = _SortedRun(), 0
        for block in self._blocks(*self._sorted()):
            run.blocks.append(self._spill.append(block))
            count += block.num_rows
            run.ends.append(count)
            # A copy: a slice would keep the whole run in memory.
            self._lasts.append(block.take(pa.array([block.num_rows - 1])))
        self._runs.append(run)

    def _merged(self) -> Iterator[pa.RecordBatch]:
        if self._waiting:
            self._write_run()
        ending = self._ranked()
        for first in range(0, len(ending), STAGE_BLOCKS):
            rank = min(first + STAGE_BLOCKS, len(ending)) - 1
            yield from self._up_to(rank, *ending[rank])

    def _ranked(self) -> list[tuple[int, int]]:
        """Return (run, block) of all blocks in the order in which they end; each run gets the ranks of its own."""
        blocks = [(number, block) for number, run in enumerate(self._runs) for block in range(len(run.blocks))]
        places = self._places(pa.concat_batches(self._lasts))
        self._lasts = []
        ending = blocks if places is None else [blocks[place] for place in places.to_pylist()]
        for run in self._runs:
            run.ranks = [0] * len(run.blocks)
        for rank, (number, block) in enumerate(ending):
            self._runs[number].ranks[block] = rank
        return ending

    def _up_to(self, rank: int, number: int, block: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows that were not given yet, up to the last one of a block."""
        for run in self._runs:
            run.read(self._spill, rank)
        counts = [sum(batch.num_rows for batch in run.head) for run in self._runs]
        bounds = np.cumsum([0, *counts])
        rows = pa.concat_batches([batch for run in self._runs for batch in run.head])
        last = int(bounds[number]) + self._runs[number].ends[block] - self._runs[number].given - 1
        found = self._places(rows)
        places = np.arange(rows.num_rows) if found is None else found.to_numpy()
        # Equal rows keep their order, as concatenation follows the order of the runs and the sort is stable.
        chosen = places[: int(np.flatnonzero(places == last)[0]) + 1]
        of_runs = np.bincount(np.searchsorted(bounds, chosen, side="right") - 1, minlength=len(self._runs)).tolist()
        for run, start, count, taken in zip(self._runs, bounds.tolist(), counts, of_runs, strict=False):
            run.given += taken
            run.head = [rows.slice(start + taken, count - taken)] if count > taken else []
        given = rows.take(pa.array(chosen))
        yield from self._blocks(given, given.nbytes)

    def _blocks(self, rows: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
        most = max(1, int(rows.num_rows * self._limits.block_bytes / max(size, 1)))
        for start in range(0, rows.num_rows, most):
            yield rows.slice(start, most)
