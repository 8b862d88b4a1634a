"""Record batches that wait for their use: few in memory, more on the local disk."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ducklake_core.errors import StorageError
from ducklake_core.storage.spill_file import SpilledBatch, SpillFile

HELD_BYTES = 64 * 1024 * 1024
"""Arrow bytes of batches that are held in memory."""


class HeldBatches:
    """Holds record batches of one schema, in the order in which they came, until it is closed.

    Args:
        encrypted: Whether what is written to the disk is encrypted.
    """

    def __init__(self, *, encrypted: bool = False) -> None:
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
        if self._held_bytes + batch.nbytes <= HELD_BYTES:
            self._held_bytes += batch.nbytes
            self._batches.append(batch)
            return
        try:
            self._batches.append(self._spill.append(batch))
        except OSError as error:
            raise StorageError(
                f"the local disk took {self._spill.bytes} bytes of rows and no more ({error}); name a directory with more room by TMPDIR"
            ) from error

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """All batches, any number of times.

        Raises:
            StorageError: The local disk does not give back what it was given.
        """
        for batch in self._batches:
            try:
                yield self._spill.read(batch) if isinstance(batch, SpilledBatch) else batch
            except OSError as error:
                raise StorageError(f"rows cannot be read back from the local disk: {error}") from error

    def close(self) -> None:
        """Forget all batches, and free the disk."""
        self._batches = []
        self._spill.close()
