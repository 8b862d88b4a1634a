"""Open Parquet files for reading and writing, encrypted or not, and re-read them before reporting damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from ducklake_core.errors import CorruptFileError, UnsupportedFeatureError
from ducklake_core.format.files.data_files import EncryptionKey
from ducklake_core.storage.filesystems import Storage, printable
from ducklake_core.storage.footers import MAGIC, TAIL, Footer, read_footer_of

if TYPE_CHECKING:
    from ducklake_core.storage.encryption.encrypting import EncryptingSink


Found = TypeVar("Found")

ONE_PAGE = {"data_page_size": 1 << 30, "max_rows_per_page": 1 << 31}
"""For pyarrow: encrypted column chunks have one page. Where a filter finds nothing in a dictionary, DuckDB fails to skip another."""


def open_parquet(storage: Storage, path: str, key: EncryptionKey | None = None) -> pa.NativeFile:
    """Return a Parquet file for random reads, decrypted on the way when it has a key.

    Args:
        storage: Storage of the file.
        path: Its path.
        key: Key from the catalog; None for a plain file.

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
            from ducklake_core.storage.encryption.reading import PlainImage
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
    """Return columns of a Parquet file, from its footer.

    Args:
        storage: Storage of the file.
        path: Its path.
        key: Key from the catalog; None for a plain file.
        table: Its table, for the error.

    Raises:
        NotFoundError: There is no such file.
        StorageError: It cannot be read.
        CorruptFileError: The file is not a Parquet file.
    """
    with open_parquet(storage, path, key) as source, decoding(storage, path, table=table):
        return pq.read_schema(source)


@contextmanager
def decoding(storage: Storage, path: str, what: str = "", table: str | None = None) -> Iterator[None]:
    """Distinguish failures of the store, which may pass, from those of a damaged file.

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


def read_footer(storage: Storage, path: str, key: EncryptionKey | None = None) -> Footer:
    """Read and check the footer of a file.

    Args:
        storage: Storage of the file.
        path: Its path.
        key: Key from the catalog; None for a plain file.

    Raises:
        NotFoundError: There is no such file.
        CorruptFileError: It is not a (whole) Parquet file, or its footer contradicts itself.
        UnsupportedFeatureError: It is encrypted with a key that the catalog does not have.
        StorageError: It cannot be read.
    """

    def read() -> Footer:
        with open_parquet(storage, path, key) as source, storage.reporting("read the footer of", path):
            return read_footer_of(source, printable(path))

    return read_twice(read)


def footer_size(metadata: pq.FileMetaData) -> int:
    """Return the size of the footer thrift that a writer has just put at the end of its file, without reading the file again."""
    sink = pa.BufferOutputStream()
    metadata.write_metadata_file(sink)
    # A metadata file is a magic, the footer, its length and the magic again.
    return int(sink.getvalue().size) - len(MAGIC) - TAIL


def read_twice(read: Callable[[], Found]) -> Found:
    """Call ``read``, and once more when it finds the file damaged.

    Raises:
        CorruptFileError: The file looks damaged both times.
    """
    try:
        return read()
    except CorruptFileError:
        return read()


def encrypting_sink(sink: pa.NativeFile, path: str, key: EncryptionKey) -> EncryptingSink:
    """Return a sink for a plain Parquet file that writes the encrypted one to another.

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
