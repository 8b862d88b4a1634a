"""Read and write delete files, with a cache of those read last (specification: Delete Files)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ducklake_core.errors import CorruptFileError, UnsupportedFeatureError
from ducklake_core.format.cache import BoundedCache
from ducklake_core.format.files.data_files import (
    DELETE_PATH_FIELD_ID,
    DELETE_POSITION_FIELD_ID,
    SNAPSHOT_ID_COLUMN,
    SNAPSHOT_ID_FIELD_ID,
    DataFile,
    DeleteFile,
    EncryptionKey,
)
from ducklake_core.format.files.paths import file_name
from ducklake_core.format.options import Options
from ducklake_core.format.versions import FormatVersion
from ducklake_core.storage.deletion_vectors import (
    encode_container,
    encode_deletion_vector,
    is_container,
    read_container,
    read_deletion_vector,
)
from ducklake_core.storage.filesystems import Storage, printable
from ducklake_core.storage.parquet_files import ONE_PAGE, decoding, encrypting_sink, open_parquet, read_twice
from ducklake_core.storage.uploads import discard

_SMALL_BYTES = 1 << 18
_ROW_GROUP_ROWS = 1 << 20

_MAX_POSITIONS = 2_000_000
"""Of 8 bytes each, or 16 with the snapshots that deleted them."""
_FILE_POSITIONS = 500
"""A file counts as so many positions more, for its names and arrays."""
_SHARE = 4
"""A file of more than one position in so many is not remembered: it would push out all others."""
_Key: TypeAlias = tuple[Storage, str, int, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenDeletes:
    """Properties of a delete file for its row in the catalog."""

    file_size_bytes: int
    footer_size: int
    row_group_count: int | None
    format: str = "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionVectors:
    """Setting for the format of new delete files: Parquet or deletion vectors.

    Attributes:
        wanted: Whether the table's option requests deletion vectors. Ignored in encrypted lakes, because vectors cannot be encrypted.
        of_several_snapshots: Whether a file may hold deletes of several snapshots in the lake's version.
    """

    wanted: bool = False
    of_several_snapshots: bool = False

    @classmethod
    def by(cls, options: Options, version: FormatVersion, *, encrypted: bool) -> DeletionVectors:
        """Derive the setting from the options of a table and the version and encryption of its lake."""
        return cls(wanted=options.write_deletion_vectors and not encrypted, of_several_snapshots=version.shared_deletion_vectors)

    def format(self, snapshots: np.ndarray | None) -> str:
        """Return the format of a delete file: ``parquet`` or ``puffin``.

        Args:
            snapshots: The snapshot of each delete, None where all are of one.
        """
        return "puffin" if self.wanted and (snapshots is None or self.of_several_snapshots) else "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedPositions:
    """Contents of a delete file.

    Attributes:
        positions: 0-based positions in the data file, int64, strictly increasing.
        snapshots: The snapshot that deleted each position, int64; None when the file does not say, which means the
            file's own ``begin_snapshot``.
        data_files: Paths of data files that the file names in addition to its positions; a deletion vector names none.
    """

    positions: np.ndarray
    snapshots: np.ndarray | None = None
    data_files: tuple[str, ...] = ()

    def visible_at(self, snapshot_id: int) -> np.ndarray:
        """Return positions deleted at or before a snapshot."""
        if self.snapshots is None:
            return self.positions
        # DuckDB applies the snapshot column if the file has one, regardless of partial_max.
        return self.positions[self.snapshots <= snapshot_id]


def write_delete_file(
    storage: Storage,
    path: str,
    data_file_path: str,
    positions: np.ndarray,
    snapshots: np.ndarray | None = None,
    key: EncryptionKey | None = None,
    *,
    as_vector: bool = False,
) -> WrittenDeletes:
    """Write a delete file.

    Args:
        storage: Where to write.
        path: Full path of the new file.
        data_file_path: Full path of the data file whose rows are deleted; written next to every position.
        positions: Positions, strictly increasing.
        snapshots: For a cumulative file, the snapshot that deleted each position; makes the third column.
        key: Encrypts the file; None for a plain one.
        as_vector: Whether it is a deletion vector, or several in a Puffin file, instead of a Parquet file.

    Raises:
        CorruptFileError: The positions are not strictly increasing: readers reject such a file.
        StorageError: The file cannot be written.
    """
    # Readers reject a delete file whose positions are not sorted, and one position twice would count as two deletes.
    positions = np.asarray(positions, dtype=np.int64)
    if len(positions) and (positions[0] < 0 or bool(np.any(np.diff(positions) <= 0))):
        raise CorruptFileError(f"positions for the delete file {printable(path)} are not strictly increasing", path=printable(path))
    if as_vector:
        content, footer = (
            (encode_deletion_vector(positions), 0) if snapshots is None else encode_container(positions, snapshots, data_file_path)
        )
        _store(storage, path, content)
        return WrittenDeletes(file_size_bytes=len(content), footer_size=footer, row_group_count=None, format="puffin")
    table = _positions_table(data_file_path, positions, snapshots)
    sink = pa.BufferOutputStream()
    if key is None:
        pq.write_table(table, sink, compression="snappy", store_schema=False, write_page_checksum=True, row_group_size=_ROW_GROUP_ROWS)
    else:
        encrypting = encrypting_sink(sink, path, key)
        whole = pa.PythonFile(encrypting, mode="w")
        pq.write_table(table, whole, compression="snappy", store_schema=False, row_group_size=_ROW_GROUP_ROWS, **ONE_PAGE)
        encrypting.finish()
    written = sink.getvalue()
    _store(storage, path, written)
    return WrittenDeletes(
        file_size_bytes=written.size,
        footer_size=int.from_bytes(written.slice(written.size - 8, 4).to_pybytes(), "little"),
        row_group_count=-(-len(positions) // _ROW_GROUP_ROWS),
    )


def _positions_table(data_file_path: str, positions: np.ndarray, snapshots: np.ndarray | None) -> pa.Table:
    fields = [_field("file_path", pa.string(), DELETE_PATH_FIELD_ID), _field("pos", pa.int64(), DELETE_POSITION_FIELD_ID)]
    arrays: list[pa.Array[Any]] = [pa.repeat(pa.scalar(data_file_path, pa.string()), len(positions)), pa.array(positions)]
    if snapshots is not None:
        fields.append(_field(SNAPSHOT_ID_COLUMN, pa.int64(), SNAPSHOT_ID_FIELD_ID))
        arrays.append(pa.array(np.asarray(snapshots, dtype=np.int64)))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _store(storage: Storage, path: str, content: bytes | pa.Buffer) -> None:
    output: pa.NativeFile | None = None
    try:
        output = storage.open_output(path)
        with storage.reporting("write", path):
            output.write(content)
            output.close()
    except BaseException:
        # Half a file that no catalog names.
        if output is not None:
            discard(output)
            with suppress(OSError, pa.ArrowException):
                output.close()
        storage.discard([path])
        raise


def _field(name: str, data_type: pa.DataType, field_id: int) -> pa.Field[Any]:
    return pa.field(name, data_type, metadata={b"PARQUET:field_id": str(field_id).encode()})


def read_delete_file(storage: Storage, file: DeleteFile) -> DeletedPositions:
    """Return all positions of a delete file, with the snapshots that deleted them.

    Raises:
        UnsupportedFeatureError: The file is encrypted in a foreign form, or neither Parquet nor a deletion vector.
        CorruptFileError: It does not have the columns or the order of a delete file.
        NotFoundError: The file does not exist.
        StorageError: It cannot be read.
    """
    where = printable(file.path)
    match (file.format or "parquet").lower():
        case "parquet":
            found = read_twice(lambda: _read_parquet(storage, file))
        case "puffin":
            # DuckDB writes them plain into encrypted lakes too, with a key that opens nothing.
            found = read_twice(lambda: _read_vector(storage, file))
        case other:
            raise UnsupportedFeatureError(f"the delete file {where} has the format {other!r}, which is not supported", path=where)
    if len(found.positions) and (found.positions[0] < 0 or bool(np.any(np.diff(found.positions) <= 0))):
        raise CorruptFileError(f"the positions in the delete file {where} are not strictly increasing", path=where)
    if file.committed_at is not None and found.snapshots is not None:
        return replace(found, snapshots=np.where(found.snapshots == file.partial_max, file.committed_at, found.snapshots))
    return found


Reading = Callable[[Storage, DeleteFile, DataFile], DeletedPositions]


def deleted_positions(storage: Storage, file: DataFile, snapshot_id: int, *, read: Reading | None = None) -> np.ndarray:
    """Return positions of a data file that are deleted at a snapshot, ascending: of all its delete files and of the catalog.

    Args:
        storage: How to open delete files.
        file: The data file.
        snapshot_id: The snapshot that is read.
        read: Reads a delete file, :func:`read_deletes_of` when None.

    Raises:
        CorruptFileError: As :func:`read_deletes_of`.
    """
    reading = read or read_deletes_of
    parts = [_visible(reading(storage, delete_file, file), delete_file, snapshot_id) for delete_file in file.delete_files]
    if file.inlined_deletes:
        parts.append(np.asarray(file.inlined_deletes, dtype=np.int64))
    match parts:
        case []:
            return np.empty(0, dtype=np.int64)
        case [single]:
            return single
        case _:
            return np.unique(np.concatenate(parts))


def _visible(found: DeletedPositions, delete_file: DeleteFile, snapshot_id: int) -> np.ndarray:
    # Deletes of an open transaction (id below 0) are visible to it, whatever snapshot they are to be of.
    return found.positions if delete_file.id < 0 else found.visible_at(snapshot_id)


def read_deletes_of(storage: Storage, delete_file: DeleteFile, file: DataFile) -> DeletedPositions:
    """Return all positions of a delete file, after a check that it belongs to the data file.

    Raises:
        CorruptFileError: The delete file is of another data file: it names one, or deletes rows that this file does not have.
            DuckDB would take its positions for this file's.
    """
    found = read_delete_file(storage, delete_file)
    where, data_file = printable(delete_file.path), printable(file.path)
    # Only the last part of the path: a lake may be moved, and its delete files keep the paths of their time.
    strange = [path for path in found.data_files if file_name(path) != file_name(file.path)]
    if strange:
        raise CorruptFileError(
            f"the delete file {where} deletes rows of {printable(strange[0])}, but the catalog attaches it to {data_file}", path=where
        )
    if len(found.positions) and found.positions[-1] >= file.record_count:
        raise CorruptFileError(
            f"the delete file {where} deletes position {found.positions[-1]} of {data_file}, but the catalog counts "
            f"{file.record_count} rows",
            path=where,
        )
    return found


def _read_vector(storage: Storage, file: DeleteFile) -> DeletedPositions:
    with storage.open_input(file.path) as source, storage.reporting("read", file.path):
        content = source.read()
    where = printable(file.path)
    if not is_container(content):
        return DeletedPositions(positions=read_deletion_vector(content, where))
    found = read_container(content, where)
    newest = None if found.snapshots is None or not len(found.snapshots) else int(found.snapshots.max())
    if None not in (newest, file.partial_max) and newest != file.partial_max:
        message = f"the newest deletes in the Puffin file {where} are of snapshot {newest}, but the catalog has snapshot {file.partial_max}"
        raise CorruptFileError(message, path=where)
    return DeletedPositions(positions=found.positions, snapshots=found.snapshots, data_files=found.data_files)


def _read_parquet(storage: Storage, file: DeleteFile) -> DeletedPositions:
    where = printable(file.path)
    with open_parquet(storage, file.path, file.encryption_key) as source, decoding(storage, file.path, "the delete file"):
        table = _read_columns(source, where)
    if any(column.null_count for column in table.columns):
        raise CorruptFileError(f"the delete file {where} holds NULLs", path=where)
    names, positions, *snapshots = (column.combine_chunks() for column in table.columns)
    return DeletedPositions(
        positions=positions.to_numpy(zero_copy_only=False),
        snapshots=snapshots[0].to_numpy(zero_copy_only=False) if snapshots else None,
        data_files=tuple(names.unique().to_pylist()),
    )


def _read_columns(source: pa.NativeFile, where: str) -> pa.Table:
    """Return the columns path, position and, if the file has it, snapshot."""
    is_small = source.size() <= _SMALL_BYTES
    # One request for all of it, and no other threads: most of these files are tiny, and there may be thousands of them.
    file = pq.ParquetFile(
        pa.BufferReader(source.read_buffer()) if is_small else source,
        arrow_extensions_enabled=False,
        pre_buffer=not is_small,
        page_checksum_verification=True,
    )
    schema = file.schema_arrow
    types = [field.type for field in schema]
    if len(types) not in (2, 3) or not _is_text(types[0]) or not pa.types.is_integer(types[1]):
        raise CorruptFileError(f"the delete file {where} has not the columns of one: {', '.join(schema.names)}", path=where)
    # DuckDB finds the snapshot column by its name and place, and ignores a third column of another name.
    wanted = [*schema.names[:2], *(name for name in schema.names[2:] if name == SNAPSHOT_ID_COLUMN)]
    wanted_types = [pa.string(), *(pa.int64() for _ in wanted[1:])]
    table = file.read(columns=wanted, use_threads=False).select(wanted)
    if table.schema.types == wanted_types:
        return table
    return table.cast(pa.schema(list(zip(wanted, wanted_types, strict=True))))


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def _key(storage: Storage, delete_file: DeleteFile, file: DataFile) -> _Key:
    # The data file is a part of the key, because the content was checked against its rows.
    return storage, delete_file.path, delete_file.file_size_bytes, file.path, file.record_count


class RecentDeleteFiles:
    """The content of the delete files that were read last.

    Args:
        max_positions: Maximum number of deleted positions that are kept.
    """

    def __init__(self, max_positions: int) -> None:
        self._max_positions = max_positions
        self._cache = BoundedCache[_Key, DeletedPositions](max_positions, lambda found: len(found.positions) + _FILE_POSITIONS)

    def clear(self) -> None:
        """Keep nothing."""
        self._cache.clear()

    def recall(self, storage: Storage, delete_file: DeleteFile, file: DataFile) -> DeletedPositions | None:
        """Return the kept content of a delete file of this data file, None when it is not kept."""
        return self._cache.get(_key(storage, delete_file, file))

    def read(self, storage: Storage, delete_file: DeleteFile, file: DataFile) -> DeletedPositions:
        """Read a delete file as :func:`read_deletes_of` does, from memory where it is kept."""
        found = self.recall(storage, delete_file, file)
        if found is None:
            found = read_deletes_of(storage, delete_file, file)
            if len(found.positions) * _SHARE <= self._max_positions:
                self._cache[_key(storage, delete_file, file)] = found
        return found


process_memory = RecentDeleteFiles(_MAX_POSITIONS)
"""The cache of this process."""
