"""Delete files: which row positions of a data file are gone, and since when (specification: Delete Files)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ducklake_core.errors import CorruptFileError, UnsupportedFeatureError
from ducklake_core.format.files import DELETE_PATH_FIELD_ID, DELETE_POSITION_FIELD_ID, SNAPSHOT_ID_COLUMN, SNAPSHOT_ID_FIELD_ID, DeleteFile
from ducklake_core.storage.filesystems import Storage, printable
from ducklake_core.storage.roaring import read_deletion_vector


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedPositions:
    """Contents of a delete file.

    Attributes:
        positions: 0-based positions in the data file, int64, strictly increasing.
        snapshots: The snapshot that deleted each position, int64; None when the file does not say, which means the
            file's own ``begin_snapshot``.
    """

    positions: np.ndarray
    snapshots: np.ndarray | None = None

    def visible_at(self, snapshot_id: int) -> np.ndarray:
        """Positions deleted at or before a snapshot."""
        if self.snapshots is None:
            return self.positions
        # The reference applies the snapshot column whenever it is there, whatever partial_max says.
        return self.positions[self.snapshots <= snapshot_id]


def write_delete_file(
    storage: Storage,
    path: str,
    data_file_path: str,
    positions: np.ndarray,
    snapshots: np.ndarray | None = None,
) -> tuple[int, int]:
    """Write a delete file.

    Args:
        storage: Where to write.
        path: Full path of the new file.
        data_file_path: Full path of the data file whose rows are deleted; written beside every position.
        positions: Positions, strictly increasing.
        snapshots: For a cumulative file, the snapshot that deleted each position; makes the third column.

    Returns:
        Size of the file and length of its footer, in bytes.

    Raises:
        CorruptFileError: The positions are not strictly increasing: readers refuse such a file.
        StorageError: The file cannot be written.
    """
    positions = np.asarray(positions, dtype=np.int64)
    if len(positions) and (positions[0] < 0 or bool(np.any(np.diff(positions) <= 0))):
        raise CorruptFileError(f"positions for the delete file {printable(path)} are not strictly increasing", path=printable(path))
    fields = [_field("file_path", pa.string(), DELETE_PATH_FIELD_ID), _field("pos", pa.int64(), DELETE_POSITION_FIELD_ID)]
    arrays: list[pa.Array[Any]] = [pa.repeat(pa.scalar(data_file_path, pa.string()), len(positions)), pa.array(positions)]
    if snapshots is not None:
        fields.append(_field(SNAPSHOT_ID_COLUMN, pa.int64(), SNAPSHOT_ID_FIELD_ID))
        arrays.append(pa.array(np.asarray(snapshots, dtype=np.int64)))
    table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="snappy", store_schema=False)
    content = sink.getvalue()
    output = storage.open_output(path)
    try:
        with storage.reporting("write", path), output:
            output.write(content)
    except BaseException:
        # Half a file that no catalog names.
        storage.delete([path])
        raise
    return content.size, int.from_bytes(content.slice(content.size - 8, 4).to_pybytes(), "little")


def _field(name: str, data_type: pa.DataType, field_id: int) -> pa.Field[Any]:
    return pa.field(name, data_type, metadata={b"PARQUET:field_id": str(field_id).encode()})


def read_delete_file(storage: Storage, file: DeleteFile) -> DeletedPositions:
    """All positions of a delete file, with the snapshots that deleted them.

    Raises:
        UnsupportedFeatureError: The file is encrypted, or neither Parquet nor a deletion vector.
        CorruptFileError: It does not have the columns or the order of a delete file.
        NotFoundError: It is not there.
        StorageError: It cannot be read.
    """
    where = printable(file.path)
    if file.encryption_key is not None:
        raise UnsupportedFeatureError(f"the delete file {where} is encrypted: encrypted lakes are not supported", path=where)
    match (file.format or "parquet").lower():
        case "parquet":
            return _read_parquet(storage, file.path)
        case "puffin":
            with storage.open_input(file.path) as source:
                return DeletedPositions(positions=read_deletion_vector(source.read(), where))
        case other:
            raise UnsupportedFeatureError(f"the delete file {where} has the format {other!r}, which is not supported", path=where)


def read_positions(storage: Storage, file: DeleteFile, snapshot_id: int) -> np.ndarray:
    """Positions that a delete file hides at a snapshot, ascending; errors as in :func:`read_delete_file`."""
    return read_delete_file(storage, file).visible_at(snapshot_id)


def _read_parquet(storage: Storage, path: str) -> DeletedPositions:
    where = printable(path)
    try:
        with storage.open_input(path) as source:
            table = _read_columns(pq.ParquetFile(source, arrow_extensions_enabled=False), where)
    except pa.ArrowInvalid as error:
        raise CorruptFileError(f"the delete file {where} is not a readable Parquet file: {error}", path=where) from error
    columns = [column.combine_chunks() for column in table.columns]
    if any(column.null_count for column in columns):
        raise CorruptFileError(f"the delete file {where} holds NULLs", path=where)
    positions = columns[0].to_numpy(zero_copy_only=False)
    if len(positions) and (positions[0] < 0 or bool(np.any(np.diff(positions) <= 0))):
        raise CorruptFileError(f"the positions in the delete file {where} are not strictly increasing", path=where)
    snapshots = columns[1].to_numpy(zero_copy_only=False) if len(columns) > 1 else None
    return DeletedPositions(positions=positions, snapshots=snapshots)


def _read_columns(file: pq.ParquetFile, where: str) -> pa.Table:
    schema = file.schema_arrow
    if len(schema) not in (2, 3) or not pa.types.is_integer(schema.field(1).type):
        raise CorruptFileError(f"the delete file {where} has not the columns of one: {', '.join(schema.names)}", path=where)
    # The reference finds the snapshot column by its name and place, and ignores a third column of another name.
    wanted = [schema.names[1], *(name for name in schema.names[2:] if name == SNAPSHOT_ID_COLUMN)]
    return file.read(columns=wanted).select(wanted).cast(pa.schema([(name, pa.int64()) for name in wanted]))
