"""The end of an encrypted file: where its footer lies, how it is encrypted, and what it says."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from ducklake_core.errors import CorruptFileError, UnsupportedFeatureError
from ducklake_core.storage.encryption.compact import BadStructError, Struct, read_struct
from ducklake_core.storage.encryption.modules import BadModuleError, Cipher

PLAIN_MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
CRYPTO_METADATA = bytes.fromhex("1c1c000000")
"""FileCryptoMetaData as DuckDB writes it: AES_GCM_V1 without any associated data, and no key metadata."""
_TAIL = 8
# Enough for the footers of most files, so that one request brings the whole of them.
_FIRST_GUESS = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class DecryptedFooter:
    """The footer of an encrypted file.

    Attributes:
        start: Place in the encrypted file where the footer begins and the column chunks have ended.
        plain: The decrypted footer thrift.
        metadata: The same, parsed; offsets and sizes of chunks are those in the encrypted file.
    """

    start: int
    plain: bytes
    metadata: pq.FileMetaData


def with_length(footer: bytes, magic: bytes) -> bytes:
    """A footer as it stands at the end of a file."""
    return b"".join((footer, len(footer).to_bytes(4, "little"), magic))


def read_encrypted_footer(source: pa.NativeFile, cipher: Cipher, where: str) -> DecryptedFooter:
    """Read the footer with the file's key.

    Args:
        source: The encrypted file.
        cipher: With its key.
        where: The file, for messages.

    Raises:
        CorruptFileError: The file is not encrypted, is cut, or was encrypted with another key.
        UnsupportedFeatureError: It is encrypted in another form than DuckDB writes.
    """
    start, content = _encrypted_footer(source, where)
    begin = _end_of_crypto_metadata(content, where)
    try:
        plain, end = cipher.decrypt_module(memoryview(content), begin)
    except BadModuleError as error:
        reason = f"the footer of {where} cannot be decrypted: the catalog's key is not the file's, or the file was changed ({error})"
        raise CorruptFileError(reason, path=where) from None
    if end != len(content):
        raise CorruptFileError(f"the footer of {where} has {len(content) - end} bytes too many", path=where)
    try:
        metadata = pq.read_metadata(pa.BufferReader(PLAIN_MAGIC + with_length(plain, PLAIN_MAGIC)))
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptFileError(f"the footer of {where} cannot be read: {error}", path=where) from error
    return DecryptedFooter(start=start, plain=plain, metadata=metadata)


def _encrypted_footer(source: pa.NativeFile, where: str) -> tuple[int, bytes]:
    """Where the encrypted footer begins, and its bytes up to its length."""
    size = source.size()
    tail = source.read_at(min(size, _FIRST_GUESS), max(size - _FIRST_GUESS, 0))
    magic = tail[-4:]
    if magic == PLAIN_MAGIC:
        raise CorruptFileError(f"{where} is not encrypted, although the catalog has a key for it", path=where)
    if size < len(ENCRYPTED_MAGIC) + _TAIL or magic != ENCRYPTED_MAGIC:
        raise CorruptFileError(f"{where} does not end as an encrypted Parquet file does: it was cut, or is something else", path=where)
    length = int.from_bytes(tail[-_TAIL:-4], "little")
    start = size - _TAIL - length
    if start < len(ENCRYPTED_MAGIC):
        raise CorruptFileError(f"{where} is shorter than its footer: it was cut", path=where)
    inside = len(tail) - _TAIL - length
    return start, tail[inside:-_TAIL] if inside >= 0 else source.read_at(length, start)


def _end_of_crypto_metadata(content: bytes, where: str) -> int:
    if content.startswith(CRYPTO_METADATA):
        return len(CRYPTO_METADATA)
    try:
        crypto, end = read_struct(content)
    except BadStructError as error:
        raise CorruptFileError(f"{where} does not say how it is encrypted: {error}", path=where) from None
    algorithm = crypto.struct(1)
    gcm = algorithm.struct(1) if algorithm is not None else None
    if gcm is None:
        raise UnsupportedFeatureError(f"{where} is encrypted with another algorithm than AES_GCM_V1, which is not supported", path=where)
    if gcm != Struct():
        raise UnsupportedFeatureError(
            f"{where} is encrypted with associated data (AAD), as DuckDB does not write it; this is not supported", path=where
        )
    # Field 2, metadata of the key, says nothing to a reader that has the key.
    return end
