"""An encrypted file seen as the plain Parquet file that it hides (data flow: the package's docstring)."""

from __future__ import annotations

import io
from bisect import bisect_right

import pyarrow as pa

from ducklake_core.errors import CorruptFileError
from ducklake_core.storage.encryption.chunks import ChunkPlace, chunk_places, decrypt_chunk
from ducklake_core.storage.encryption.footer import ENCRYPTED_MAGIC, PLAIN_MAGIC, read_encrypted_footer, with_length
from ducklake_core.storage.encryption.modules import Cipher
from ducklake_core.storage.filesystems import Storage

# As much as readers fetch from the end of a file before they know how long its footer is.
_GAP = 64 << 10


class PlainImage(io.RawIOBase):
    """A read-only file of plain Parquet, decrypted a column chunk at a time as it is read."""

    def __init__(self, source: pa.NativeFile, key: bytes, path: str, where: str, storage: Storage) -> None:
        """Read the footer.

        Args:
            source: The encrypted file; closed with this one.
            key: Its key.
            path: Its path, to report what the store raises.
            where: Its path as messages may show it.
            storage: That it was opened with.

        Raises:
            CorruptFileError: It is not such a file, or the key is another file's.
            UnsupportedFeatureError: It is encrypted in another form.
        """
        super().__init__()
        self._source, self._cipher, self._path, self._where, self._storage = source, Cipher(key), path, where, storage
        footer = read_encrypted_footer(source, self._cipher, where)
        self._places = chunk_places(footer.metadata, len(ENCRYPTED_MAGIC), footer.start, where)
        self._starts = [place.start for place in self._places]
        self._footer = with_length(footer.plain, PLAIN_MAGIC)
        self._footer_start = footer.start + _GAP
        self._position = 0
        self._last: tuple[ChunkPlace, bytes] | None = None

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """Place of the next byte."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to a place; nothing is read."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._footer_start + len(self._footer)}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """The next bytes, fewer at the end of the file."""
        start, last = self._position, self._footer_start + len(self._footer)
        end = last if size is None or size < 0 else min(start + size, last)
        if start >= end:
            return b""
        self._position = end
        if start >= self._footer_start:
            return self._footer[start - self._footer_start : end - self._footer_start]
        first = max(bisect_right(self._starts, start) - 1, 0)
        place = self._places[first] if self._places else None
        if place is not None and (place.start, place.end) == (start, end):
            # What pyarrow asks for: one chunk as a whole, once.
            return self._decrypted(place).ljust(end - start, b"\0")
        return self._assembled(start, end, first)

    def _assembled(self, start: int, end: int, first: int) -> bytes:
        """A part of the image that is not just one chunk."""
        image = bytearray(end - start)
        self._put(image, start, 0, PLAIN_MAGIC)
        self._put(image, start, self._footer_start, self._footer)
        for place in self._places[first:]:
            if place.start >= end:
                break
            if place.end > start:
                if self._last is None or self._last[0] is not place:
                    self._last = (place, self._decrypted(place))
                self._put(image, start, place.start, self._last[1])
        return bytes(image)

    @staticmethod
    def _put(image: bytearray, image_start: int, start: int, content: bytes) -> None:
        """Copy what of the content, standing at a place, lies inside a part of the image."""
        begin, end = max(start, image_start), min(start + len(content), image_start + len(image))
        if begin < end:
            image[begin - image_start : end - image_start] = content[begin - start : end - start]

    def _decrypted(self, place: ChunkPlace) -> bytes:
        length = place.end - place.start
        with self._storage.reporting("read", self._path):
            encrypted = self._source.read_at(length, place.start)
        if len(encrypted) < length:
            raise CorruptFileError(f"{self._where} ends within a column chunk: it was cut while it was read", path=self._where)
        return decrypt_chunk(memoryview(encrypted), place, self._cipher, self._where)

    def close(self) -> None:
        """Close the encrypted file as well."""
        self._last = None
        self._source.close()
        super().close()

    def __repr__(self) -> str:
        return f"PlainImage({self._where})"
