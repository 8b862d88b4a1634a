"""Parquet files opened for reading, encrypted or not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from ducklake_core.errors import CorruptFileError, UnsupportedFeatureError
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


def read_schema(storage: Storage, path: str, key: EncryptionKey | None = None, table: str | None = None) -> pa.Schema:
    """Columns of a Parquet file, from its footer.

    Args:
        storage: Where it is.
        path: Its path.
        key: From its catalog row; None for a plain file.
        table: Its table, for the error.

    Raises:
        NotFoundError: There is no such file.
        StorageError: It cannot be read.
        CorruptFileError: It is no Parquet file.
    """
    with open_parquet(storage, path, key) as source, decoding(storage, path, table=table):
        return pq.read_schema(source)


@contextmanager
def decoding(storage: Storage, path: str, what: str = "", table: str | None = None) -> Iterator[None]:
    """Tell failures of the store, which may pass, from those of a file that is not what it should be.

    Args:
        storage: Where the file is.
        path: Its path.
        what: The kind of file, before its path in the error.
        table: Its table, for the error.

    Raises:
        StorageError: The store failed within the block.
        CorruptFileError: What was read cannot be decoded.
    """
    with storage.reporting("read", path):
        try:
            yield
        except (pa.ArrowInvalid, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            where = printable(path)
            name = f"{what} {where}".lstrip() + (f" of table {table}" if table else "")
            about = {"table": table} if table else {}
            raise CorruptFileError(f"{name} is not a readable Parquet file: {error}", path=where, **about) from error
