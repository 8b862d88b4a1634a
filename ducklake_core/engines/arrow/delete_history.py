"""All deletes of a data file in one cumulative delete file, which shows at every snapshot what all of them together showed."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from ducklake_core.commit.moved_rows import CumulativeDeletes, GatheredDeletes
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.errors import CorruptFileError
from ducklake_core.format.files import paths
from ducklake_core.format.files.delete_history import DeleteHistory
from ducklake_core.format.files.encryption_key import EncryptionKey
from ducklake_core.storage.delete_files import read_deletes_of, write_delete_file
from ducklake_core.storage.filesystems import printable


def write_deletes(
    positions: np.ndarray, snapshots: np.ndarray, data_file: str, state: WriteState, end_snapshot: int | None = None
) -> CumulativeDeletes:
    """Write a delete file of positions, ascending, with the snapshot that deleted each.

    Args:
        data_file: Full path of the data file.
        state: Where and how files of the table are written.
        end_snapshot: When the data file ended.
    """
    kind = state.vectors.format(snapshots)
    name = paths.new_delete_file_name(state.write_id, kind)
    key = EncryptionKey.random() if state.encrypted else None
    written = write_delete_file(state.storage, state.directory + name, data_file, positions, snapshots, key, as_vector=kind == "puffin")
    return CumulativeDeletes(
        path=name,
        delete_count=len(positions),
        min_snapshot=int(snapshots.min()),
        max_snapshot=int(snapshots.max()),
        end_snapshot=end_snapshot,
        encryption_key=key,
        **asdict(written),
    )


def gather_deletes(history: DeleteHistory, data_path: str, state: WriteState) -> GatheredDeletes:
    """Write one delete file with all that ever deleted rows of a data file.

    A row that is deleted stays deleted, so that each position needs its first snapshot alone; the delete files that are replaced
    were of the same data file, whatever snapshots they were live at.

    Args:
        history: What deleted rows of it.
        data_path: The lake's, to which paths of the catalog are relative.
        state: Where and how files of the table are written.

    Raises:
        CorruptFileError: A delete file is not one of this data file, or the catalog deletes rows that the file does not have.
    """
    file = history.file
    parts = [(np.array([p for p, _ in history.inlined], np.int64), np.array([s for _, s in history.inlined], np.int64))]
    for delete_file in file.delete_files:
        held = read_deletes_of(state.storage, delete_file, file)
        begun = np.full(len(held.positions), delete_file.begin_snapshot, np.int64)
        parts.append((held.positions, begun if held.snapshots is None else held.snapshots))
    positions, snapshots = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.lexsort((snapshots, positions))
    positions, snapshots = positions[order], snapshots[order]
    first = np.concatenate([[True], np.diff(positions) != 0])
    positions, snapshots = positions[first], snapshots[first]
    if positions[0] < 0 or positions[-1] >= file.record_count:
        raise CorruptFileError(
            f"the catalog deletes row {positions[-1] if positions[0] >= 0 else positions[0]} of {printable(file.path)}, which has "
            f"{file.record_count} rows",
            path=printable(file.path),
        )
    replaced = tuple((one.id, *paths.relative_to(data_path, one.path)) for one in file.delete_files)
    deletes = write_deletes(positions, snapshots, file.path, state, file.end_snapshot)
    return GatheredDeletes(data_file_id=file.id, file=deletes, replaced=replaced)
