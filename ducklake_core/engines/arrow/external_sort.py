"""Sort more rows than fit in memory: sorted runs on the local disk, merged block by block.

Every run is a sorted part of the rows in blocks, and the last row of every block stays in memory. Sorted, these rows say in which
order blocks end, so that the rows up to the end of some blocks can be told from all others::

    run 0    |a c d|f k m|        the blocks end in the order  d  e  m  z
    run 1    |b b e|g g z|        up to e: block 0 of both runs and what block 1 of run 0 has of it

Equal rows keep the order in which they came: runs are in that order, and so is every run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from ducklake_core.errors import StorageError
from ducklake_core.storage.spill_file import SpilledBatch, SpillFile

Places: TypeAlias = Callable[[pa.RecordBatch], pa.Array | None]
"""Where the rows stand that come first, second and so on; None when they are in order. Equal rows keep theirs."""

RUN_BYTES = 128 * 1024 * 1024
"""Arrow bytes of rows that are sorted at once."""

BLOCK_BYTES = 1024 * 1024
"""Arrow bytes of a block: at least one of each run is in memory while runs are merged."""

STAGE_BLOCKS = 64
"""Blocks whose rows are sorted together while runs are merged, beside one of each run."""


@dataclass(slots=True)
class _Run:
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


class ExternalSort:
    """Takes rows and gives them back in order.

    Args:
        places: The order.
        encrypted: Whether what is written to the disk is encrypted.
    """

    def __init__(self, places: Places, *, encrypted: bool = False) -> None:
        self._places = places
        self._spill = SpillFile(encrypted=encrypted)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._runs: list[_Run] = []
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
        if self._waiting_bytes >= RUN_BYTES:
            self._write_run()

    def rows(self) -> Iterator[pa.RecordBatch]:
        """All rows in order, in batches; to be read once.

        Raises:
            StorageError: The local disk has no room, or does not give back what it was given.
        """
        try:
            if self._runs:
                yield from self._merged()
            elif self._waiting:
                yield from _blocks(*self._sorted())
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
        run, count = _Run(), 0
        for block in _blocks(*self._sorted()):
            try:
                run.blocks.append(self._spill.append(block))
            except OSError as error:
                raise StorageError(
                    f"rows cannot be sorted: the local disk took {self._spill.bytes} bytes of them and no more ({error}); name a "
                    "directory with more room by TMPDIR, or make smaller groups with a smaller target_file_size"
                ) from error
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
        """(run, block) of all blocks in the order in which they end; each run gets the ranks of its own."""
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
        """The rows that were not given yet, up to the last one of a block."""
        for run in self._runs:
            run.read(self._spill, rank)
        counts = [sum(batch.num_rows for batch in run.head) for run in self._runs]
        bounds = np.cumsum([0, *counts])
        rows = pa.concat_batches([batch for run in self._runs for batch in run.head])
        last = int(bounds[number]) + self._runs[number].ends[block] - self._runs[number].given - 1
        found = self._places(rows)
        places = np.arange(rows.num_rows) if found is None else found.to_numpy()
        chosen = places[: int(np.flatnonzero(places == last)[0]) + 1]
        of_runs = np.bincount(np.searchsorted(bounds, chosen, side="right") - 1, minlength=len(self._runs)).tolist()
        for run, start, count, taken in zip(self._runs, bounds.tolist(), counts, of_runs, strict=False):
            run.given += taken
            run.head = [rows.slice(start + taken, count - taken)] if count > taken else []
        given = rows.take(pa.array(chosen))
        yield from _blocks(given, given.nbytes)


def _blocks(rows: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    most = max(1, int(rows.num_rows * BLOCK_BYTES / max(size, 1)))
    for start in range(0, rows.num_rows, most):
        yield rows.slice(start, most)
