"""Rows of many partitions in any order, given back partition by partition: an external sort by partition number.

Rows are gathered unsplit, up to some bytes. Then they are sorted by partition and written to the local disk as one run, in
blocks. In the end all runs are read side by side, each from its first block to its last::

    run 0    |1 1 1 2|2 5 5 9|         partition 1: rows of run 0, run 1 and of the last run
    run 1    |1 2 2 2|9 9|             partition 2: ...
    last     |1 5 9|                   never leaves memory

Rows of one partition keep the order in which they came.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.layout.transforms import partition_arrays
from ducklake_core.format.types.schema import Schema
from ducklake_core.storage.spill_file import SpilledBatch, SpillFile

BLOCK_BYTES = 1024 * 1024
"""Arrow bytes of a block: one of each run is in memory while runs are read."""

Numbers = npt.NDArray[np.int64]
PartitionValues = tuple[str | None, ...]


def partition_codes(spec: PartitionSpec, schema: Schema, batch: pa.RecordBatch) -> tuple[Numbers, list[PartitionValues]]:
    """For each row which partition it is in, and the values of these partitions."""
    codes = np.zeros(batch.num_rows, np.int64)
    firsts = np.zeros(1, np.int64)
    keys = partition_arrays(spec, schema, batch)
    for key in keys:
        encoded = key.dictionary_encode(null_encoding="encode")
        _, firsts, codes = np.unique(codes * len(encoded.dictionary) + np.asarray(encoded.indices), return_index=True, return_inverse=True)
    return codes, list(zip(*(key.take(pa.array(firsts)).to_pylist() for key in keys), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
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

    run: _Run
    spill: SpillFile
    block: int = -1
    batch: pa.RecordBatch | None = field(default=None)

    def rows(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The rows of a range that begins where the last one ended."""
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
    """Gathers rows, in memory and on the local disk.

    Args:
        encrypted: Whether what is written to the disk is encrypted.
    """

    def __init__(self, *, encrypted: bool = False) -> None:
        self._spill = SpillFile(encrypted=encrypted)
        self._runs: list[_Run] = []
        self._batches: list[pa.RecordBatch] = []
        self._numbers: list[Numbers] = []
        self.bytes = 0

    @property
    def spilled_bytes(self) -> int:
        """Bytes on the disk."""
        return self._spill.bytes

    def __bool__(self) -> bool:
        return bool(self._batches or self._runs)

    def add(self, batch: pa.RecordBatch, numbers: Numbers) -> None:
        """Take rows, each with the number of its partition; ``bytes`` grows by theirs."""
        self._batches.append(batch)
        self._numbers.append(numbers)
        self.bytes += batch.nbytes

    def spill(self) -> bool:
        """Move the rows in memory to the disk; False when the disk has no room for them, and they stay in memory."""
        before = self._spill.bytes
        run = self._sorted()
        try:
            blocks = tuple(self._spill.append(block) for block in run.blocks if isinstance(block, pa.RecordBatch))
        except OSError:
            with suppress(OSError):
                self._spill.truncate(before)
            self._keep(run)
            return False
        self._runs.append(_Run(partitions=run.partitions, ends=run.ends, blocks=blocks, block_ends=run.block_ends))
        return True

    def partitions(self) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        """All rows, by partition; to be read in order, and once. The buffer is empty afterwards."""
        runs = self._runs
        if self._batches:
            runs.append(self._sorted())
        self._runs = []
        readers = [_RunReader(run, self._spill) for run in runs]
        # Of one partition the runs come in the order in which they were made.
        places = heapq.merge(*(_places(run, number) for number, run in enumerate(runs)))
        for partition, parts in groupby(places, key=itemgetter(0)):
            yield partition, (rows for _, run, start, end in parts for rows in readers[run].rows(start, end))
        self.close()

    def close(self) -> None:
        """Forget all rows, and free the disk."""
        self._batches, self._numbers, self._runs, self.bytes = [], [], [], 0
        self._spill.close()

    def _keep(self, run: _Run) -> None:
        """Put the only run that is in memory back where rows are gathered."""
        counts = np.diff(run.ends, prepend=0)
        self._batches = [block for block in run.blocks if isinstance(block, pa.RecordBatch)]
        self._numbers = [np.repeat(run.partitions, counts)]
        self.bytes = sum(batch.nbytes for batch in self._batches)

    def _sorted(self) -> _Run:
        """The rows in memory as a run, taken out of the buffer."""
        batches, numbers = self._batches, np.concatenate(self._numbers)
        self._batches, self._numbers, rows_bytes, self.bytes = [], [], self.bytes, 0
        if bool(np.all(numbers[1:] >= numbers[:-1])):
            rows = pa.Table.from_batches(batches)
        else:
            order = np.argsort(numbers, kind="stable")
            numbers = numbers[order]
            rows = _taken(batches, pa.array(order))
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        most = max(1, int(len(numbers) * BLOCK_BYTES / max(rows_bytes, 1)))
        blocks = tuple(rows.to_batches(max_chunksize=most))
        return _Run(
            partitions=numbers[starts],
            ends=np.append(starts[1:], len(numbers)),
            blocks=blocks,
            block_ends=np.cumsum([block.num_rows for block in blocks]),
        )


def _places(run: _Run, number: int) -> Iterator[tuple[int, int, int, int]]:
    """Partition, number of the run, first row and end of its rows there."""
    ends = run.ends.tolist()
    starts = [0, *ends[:-1]]
    return ((partition, number, start, end) for partition, start, end in zip(run.partitions.tolist(), starts, ends, strict=True))


def _taken(batches: list[pa.RecordBatch], order: pa.Array) -> pa.Table:
    """The rows in another order, column by column, so that only one column is there three times."""
    schema = batches[0].schema
    columns = [pa.concat_arrays([batch.column(place) for batch in batches]).take(order) for place in range(len(schema))]
    return pa.Table.from_arrays(columns, schema=schema)
