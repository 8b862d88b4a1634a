"""Parquet files opened for writing, encrypted on the way when they have a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.files.encryption_key import EncryptionKey
from ducklake_core.storage.filesystems import printable

if TYPE_CHECKING:
    import pyarrow as pa

    from ducklake_core.storage.encryption.encrypting import EncryptingSink


ONE_PAGE = {"data_page_size": 1 << 30, "max_rows_per_page": 1 << 31}
"""For pyarrow: encrypted column chunks have one page. Where a filter finds nothing in a dictionary, DuckDB fails to skip another."""


def encrypting_sink(sink: pa.NativeFile, path: str, key: EncryptionKey) -> EncryptingSink:
    """A sink for a plain Parquet file that writes the encrypted one to another.

    Args:
        sink: Takes the encrypted file.
        path: Its path, for messages.
        key: Its key.

    Raises:
        UnsupportedFeatureError: The packages for it are missing here.
    """
    where = printable(path)
    try:
        from ducklake_core.storage.encryption.encrypting import EncryptingSink
    except ModuleNotFoundError as error:
        raise UnsupportedFeatureError(
            f"{where} is to be encrypted, and this machine lacks the package {error.name!r}: install it here, on executors too", path=where
        ) from error
    return EncryptingSink(sink, key, where)
