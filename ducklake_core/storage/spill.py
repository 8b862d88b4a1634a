"""Keep record batches in memory up to a limit and spill the rest to an unnamed temporary file."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import pyarrow as pa

from ducklake_core.errors import StorageError

if TYPE_CHECKING:
    from ducklake_core.storage.encryption.modules import Cipher


HELD_BYTES = 64 * 1024 * 1024
"""Arrow bytes of batches that are held in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpilledBatch:
    """Where one record batch lies in the file.

    Attributes:
        offset: Its first byte.
        length: Its bytes.
    """

    offset: int
    length: int


class SpillFile:
    """Holds record batches of one schema until it is closed.

    The file is unlinked as soon as it is there, so that nothing stays behind when the process is killed. It lies where
    ``tempfile`` puts files: ``TMPDIR`` names the directory.

    Args:
        encrypted: Whether batches are encrypted, under a key that only this object knows: rows of an encrypted lake must not lie
            on a disk in plain form.
    """

    def __init__(self, *, encrypted: bool = False) -> None:
        self._cipher: Cipher | None = None
        if encrypted:
            from ducklake_core.storage.encryption.modules import Cipher

            self._cipher = Cipher(secrets.token_bytes(32))
        self._file: IO[bytes] | None = None
        self._schema: pa.Schema | None = None
        self.bytes = 0

    def append(self, batch: pa.RecordBatch) -> SpilledBatch:
        """Write a batch at the end.

        Raises:
            OSError: The disk has no room, or there is no directory for temporary files. The file is as it was before.
        """
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="ducklake-spill-", buffering=0)  # noqa: SIM115 - open until close()
            self._schema = batch.schema
        message = memoryview(batch.serialize()).cast("B")
        content = message if self._cipher is None else memoryview(self._cipher.encrypt_module(message))
        written = 0
        # A file without a buffer may take less than it is given.
        while written < len(content):
            written += os.pwrite(self._file.fileno(), content[written:], self.bytes + written)
        place = SpilledBatch(offset=self.bytes, length=len(content))
        self.bytes += len(content)
        return place

    def read(self, place: SpilledBatch) -> pa.RecordBatch:
        """Read a batch back."""
        assert self._file is not None
        content = bytearray(place.length)
        view, done = memoryview(content), 0
        while done < place.length:
            count = os.preadv(self._file.fileno(), [view[done:]], place.offset + done)
            if not count:
                raise OSError(f"the spill file ends at byte {place.offset + done}")
            done += count
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
