"""Record batches that do not fit in memory, in a temporary file on the local disk that has no name."""

from __future__ import annotations

import os
import secrets
import tempfile
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from ducklake_core.storage.encryption.modules import Cipher


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
