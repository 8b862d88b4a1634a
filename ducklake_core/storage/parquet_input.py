"""Parquet files opened for reading, encrypted or not."""

from __future__ import annotations

import pyarrow as pa

from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.files.encryption_key import EncryptionKey
from ducklake_core.storage.filesystems import Storage, printable


def open_parquet(storage: Storage, path: str, key: EncryptionKey | None = None) -> pa.NativeFile:
    """A Parquet file for random reads, decrypted on the way when it has a key.

    Args:
        storage: Where it is.
        path: Its path.
        key: From its catalog row; None for a plain file.

    Raises:
        NotFoundError: There is no such file.
        StorageError: It cannot be opened.
        CorruptFileError: There is a key, but the file is not encrypted with it, or is not whole.
        CatalogCorruptError: The key is invalid.
        UnsupportedFeatureError: The file is encrypted in a form that DuckDB does not write, or the packages for it are
            missing here.
    """
    source = storage.open_input(path)
    if key is None:
        return source
    where = printable(path)
    try:
        raw = key.raw(where)
        try:
            from ducklake_core.storage.encryption.image import PlainImage
        except ModuleNotFoundError as error:
            raise UnsupportedFeatureError(
                f"{where} is encrypted, and this machine lacks the package {error.name!r}: install it here, on executors too", path=where
            ) from error
        with storage.reporting("read the footer of", path):
            return pa.PythonFile(PlainImage(source, raw, path, where, storage), mode="r")
    except BaseException:
        source.close()
        raise
