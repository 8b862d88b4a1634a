"""Which rows of which files a DELETE, an overwrite or an upsert hides: found per file, written as delete files at once.

One file is one work unit, so that memory is bounded by one file's positions; only small values leave it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ducklake_core.commit.actions import InlinedDeletion, StagedDeleteFile
from ducklake_core.engines.arrow.keys import KeySet
from ducklake_core.engines.arrow.read import read_inlined, read_task
from ducklake_core.errors import CatalogCorruptError, CorruptFileError, UsageError
from ducklake_core.format.files import paths
from ducklake_core.format.files.data_files import DataFile, DeleteFile
from ducklake_core.format.files.encryption_key import EncryptionKey
from ducklake_core.format.types.schema import Schema
from ducklake_core.planning.plan import FileTask, ScanPlan, ScanProjection
from ducklake_core.storage.delete_files import DeletedPositions, DeletionVectors, deleted_positions, read_delete_file, write_delete_file
from ducklake_core.storage.filesystems import Storage, printable
from ducklake_core.storage.parquet_input import open_parquet
from ducklake_core.storage.recent_deletes import process_memory

_POSITION = "file_row_number"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTarget:
    """Where and as what delete files are written: small and picklable, without any catalog address.

    Attributes:
        directory: Full directory of the table, with a trailing slash; delete files go there, never below.
        data_path: Full data path of the lake, with a trailing slash.
        write_id: Mark of this write (see format/files/paths.py), by which its files can be swept.
        assumed_snapshot: Snapshot id written beside new positions of cumulative files: the one after the base.
        encrypted: Whether each file is encrypted, under a key that its writer makes.
        inlined_rows: So many rows of one data file need no delete file: the catalog hides them.
        vectors: Whether deletes are written as deletion vectors.
    """

    directory: str
    data_path: str
    write_id: str
    assumed_snapshot: int
    encrypted: bool = False
    inlined_rows: int = 0
    vectors: DeletionVectors = field(default_factory=DeletionVectors)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedFile:
    """A data file of which no row is left.

    Attributes:
        data_file_id: The file.
        new_count: Rows that this transaction deletes; those deleted before are not counted.
    """

    data_file_id: int
    new_count: int


FileDeletion: TypeAlias = StagedDeleteFile | InlinedDeletion | EndedFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletions:
    """The outcome of a delete, ready to be committed.

    Attributes:
        delete_files: Files in place, one for each data file that keeps some rows.
        inlined_deletes: Data files of which so few rows go that the catalog hides them.
        ended: Data files of which all rows are gone.
        inlined: Physical tables of inlined rows with the ids of the rows to end.
    """

    delete_files: tuple[StagedDeleteFile, ...] = ()
    inlined_deletes: tuple[InlinedDeletion, ...] = ()
    ended: tuple[EndedFile, ...] = ()
    inlined: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def row_count(self) -> int:
        """Rows that are visible before and gone after."""
        files: tuple[FileDeletion, ...] = (*self.delete_files, *self.inlined_deletes, *self.ended)
        return sum(file.new_count for file in files) + sum(len(row_ids) for _, row_ids in self.inlined)

    def then(self, later: Deletions) -> Deletions:
        """Both, where the later one was found among the rows that this one leaves, and its delete files hold this one's too."""
        by_file: dict[int, list[FileDeletion]] = {}
        for deletions in (self, later):
            files: tuple[FileDeletion, ...] = (*deletions.delete_files, *deletions.inlined_deletes, *deletions.ended)
            for one in files:
                by_file.setdefault(one.data_file_id, []).append(one)
        rows: dict[str, list[int]] = {}
        for name, row_ids in (*self.inlined, *later.inlined):
            rows.setdefault(name, []).extend(row_ids)
        return collect((one for of_file in by_file.values() for one in _one_of_each_file(of_file)), physical_rows(rows))


def _one_of_each_file(of_file: Sequence[FileDeletion]) -> Iterator[FileDeletion]:
    """Combine successive deletions of one data file."""
    ended = next((one for one in of_file if isinstance(one, EndedFile)), None)
    if ended is not None:
        yield replace(ended, new_count=sum(one.new_count for one in of_file))
        return
    files = [one for one in of_file if isinstance(one, StagedDeleteFile)]
    few = [one for one in of_file if isinstance(one, InlinedDeletion)]
    if files:
        yield reduce(_grown, files)
    if few:
        yield replace(few[0], positions=tuple(sorted(position for one in few for position in one.positions)))


def _grown(earlier: StagedDeleteFile, later: StagedDeleteFile) -> StagedDeleteFile:
    """The later of two delete files that a transaction has written for one data file, in the place of what the first one replaces."""
    return replace(
        later,
        new_count=earlier.new_count + later.new_count,
        min_snapshot=earlier.min_snapshot,
        replaces=earlier.replaces,
        replaces_path=earlier.replaces_path,
        replaces_path_is_relative=earlier.replaces_path_is_relative,
    )


def find_positions(plan: ScanPlan, target: DeleteTarget, storage: Storage, keys: KeySet | None = None) -> Deletions:
    """Find and hide the rows of a plan.

    Args:
        plan: Files and inlined rows that may match, at the transaction's base snapshot.
        target: Where to write delete files.
        storage: How to reach the files.
        keys: When given, only rows whose key is among these match (and the plan's predicate, if it has one).

    Returns:
        Delete files that are in place, whole files to end, inlined rows to end.

    Raises:
        UnsupportedFeatureError: The predicate needs a SQL engine.
        StorageError: A file cannot be read or written; files written so far stay and are swept by the write id.
    """
    shape = position_shape(plan, keys)
    found = [delete_in_file(task, shape, target, storage, keys) for task in plan.tasks]
    return collect(found, matching_inlined(plan, keys))


def position_shape(plan: ScanPlan, keys: KeySet | None = None) -> ScanProjection:
    """The shape of reads that find positions: key columns, if any, and the position."""
    return replace(plan.shape, schema=keys.schema if keys else Schema(columns=()), virtual=(_POSITION,))


def collect(found: Iterable[FileDeletion | None], inlined: tuple[tuple[str, tuple[int, ...]], ...]) -> Deletions:
    """The results of all files as one value, in the order of data files."""
    every = sorted((one for one in found if one is not None), key=lambda one: one.data_file_id)
    return Deletions(
        delete_files=tuple(one for one in every if isinstance(one, StagedDeleteFile)),
        inlined_deletes=tuple(one for one in every if isinstance(one, InlinedDeletion)),
        ended=tuple(one for one in every if isinstance(one, EndedFile)),
        inlined=inlined,
    )


def delete_in_file(
    task: FileTask, shape: ScanProjection, target: DeleteTarget, storage: Storage, keys: KeySet | None = None, *, threads: bool = True
) -> FileDeletion | None:
    """The work unit: find the matching positions of one data file and write its delete file.

    Returns:
        None when no visible row matches.
    """
    if keys is None and (task.all_rows_match or shape.predicate is None):
        gone = len(deleted_positions(storage, task.file, shape.snapshot_id, read=process_memory.read))
        return EndedFile(data_file_id=task.file.id, new_count=task.file.record_count - gone) if gone < task.file.record_count else None
    parts: list[np.ndarray] = []
    for batch in read_task(task, shape, storage, threads=threads):
        matching = batch if keys is None else batch.filter(keys.contains(batch))
        parts.append(shape.virtual_column(matching, _POSITION).to_numpy(zero_copy_only=False))
    positions = np.sort(np.concatenate(parts)) if parts else np.empty(0, dtype=np.int64)
    return write_position_deletes(task.file, positions, shape, target, storage) if len(positions) else None


def _check_count(file: DataFile, shape: ScanProjection, storage: Storage) -> None:
    """With a wrong count in the catalog, rows that nobody asked to delete would end together with their file."""
    with open_parquet(storage, file.path, file.encryption_key) as source, storage.reporting("read the footer of", file.path):
        held = pq.read_metadata(source).num_rows
    if held != file.record_count:
        raise CorruptFileError(
            f"{printable(file.path)} of table {shape.table} holds {held} rows, but the catalog counts {file.record_count}: "
            "correct record_count of its row in ducklake_data_file before rows are deleted",
            path=printable(file.path),
            table=shape.table,
        )


def write_position_deletes(
    file: DataFile, positions: np.ndarray, shape: ScanProjection, target: DeleteTarget, storage: Storage
) -> FileDeletion:
    """Write the delete file of one data file, or say that the catalog hides so few rows, or that nothing of it is left.

    Args:
        file: The data file with what hides rows of it at the base snapshot.
        positions: Visible positions that go, ascending and distinct.
        shape: Names table and base snapshot.
        target: Where to write.
        storage: How to reach the files.
    """
    hidden = deleted_positions(storage, file, shape.snapshot_id, read=process_memory.read)
    if len(hidden) + len(positions) >= file.record_count:
        _check_count(file, shape, storage)
        return EndedFile(data_file_id=file.id, new_count=len(positions))
    # The catalog knows no position of a file that it does not have yet.
    if len(positions) <= target.inlined_rows and file.id >= 0:
        return InlinedDeletion(data_file_id=file.id, positions=tuple(positions.tolist()))
    old = _only_delete_file(file, shape.table)
    if old is None:
        return _write(file, positions, None, target, storage)
    earlier = process_memory.read(storage, old, file)
    if old.id < 0 and earlier.snapshots is None:
        # The first delete file of the data file, grown before it is committed.
        grown = _write(file, np.sort(np.concatenate([earlier.positions, positions])), None, target, storage)
        return replace(grown, new_count=len(positions))
    # A position that only the catalog hides stays out of the file, as with DuckDB: flushing moves it here.
    snapshots = earlier.snapshots if earlier.snapshots is not None else np.full(len(earlier.positions), old.begin_snapshot, dtype=np.int64)
    # What a later snapshot than the base has deleted already is in the file as well: that snapshot makes the commit plan again.
    positions = np.setdiff1d(positions, earlier.positions, assume_unique=True)
    combined = np.concatenate([earlier.positions, positions])
    order = np.argsort(combined, kind="stable")
    new = np.full(len(positions), target.assumed_snapshot, dtype=np.int64)
    every = DeletedPositions(positions=combined[order], snapshots=np.concatenate([snapshots, new])[order])
    path, is_relative = paths.relative_to(target.data_path, old.path)
    return replace(
        _write(file, every.positions, every.snapshots, target, storage),
        new_count=len(positions),
        min_snapshot=int(snapshots.min()) if len(snapshots) else None,
        assumed_snapshot=target.assumed_snapshot,
        replaces=old.id,
        replaces_path=path,
        replaces_path_is_relative=is_relative,
    )


def _only_delete_file(file: DataFile, table: str) -> DeleteFile | None:
    if len(file.delete_files) > 1:
        ids = [one.id for one in file.delete_files]
        raise CatalogCorruptError(
            f"data file {file.id} of table {table} has {len(ids)} live delete files ({ids}), where one is allowed; rewrite the file first",
            table=table,
            data_file_id=file.id,
        )
    return file.delete_files[0] if file.delete_files else None


def _write(file: DataFile, positions: np.ndarray, snapshots: np.ndarray | None, target: DeleteTarget, storage: Storage) -> StagedDeleteFile:
    kind = target.vectors.format(snapshots)
    name = paths.new_delete_file_name(target.write_id, kind)
    key = EncryptionKey.random() if target.encrypted else None
    written = write_delete_file(storage, target.directory + name, file.path, positions, snapshots, key, as_vector=kind == "puffin")
    return StagedDeleteFile(
        data_file_id=file.id,
        path=name,
        delete_count=len(positions),
        new_count=len(positions),
        encryption_key=key,
        **asdict(written),
    )


def rewrite_delete_file(staged: StagedDeleteFile, new_snapshot: int, target: DeleteTarget, storage: Storage) -> StagedDeleteFile:
    """The same delete file for another snapshot id, under a new name; for a commit that lands later than assumed.

    The old file is left for the caller's sweep. Without this the snapshots between would miss rows that they have: the
    reference does not rewrite, and its history is wrong after a retry.

    Raises:
        UsageError: The file carries no snapshot ids, so there is nothing to rewrite.
    """
    if staged.assumed_snapshot is None:
        raise UsageError("a delete file without snapshot ids is valid at any snapshot; there is nothing to rewrite")
    path = target.directory + staged.path
    held = read_delete_file(
        storage,
        DeleteFile(
            id=-1,
            data_file_id=staged.data_file_id,
            path=path,
            format=staged.format,
            delete_count=staged.delete_count,
            file_size_bytes=staged.file_size_bytes,
            footer_size=staged.footer_size,
            begin_snapshot=new_snapshot,
            encryption_key=staged.encryption_key,
        ),
    )
    assert held.snapshots is not None
    snapshots = np.where(held.snapshots == staged.assumed_snapshot, new_snapshot, held.snapshots)
    name = paths.new_delete_file_name(target.write_id, staged.format)
    (data_file_path,) = held.data_files or ("",)
    key = EncryptionKey.random() if target.encrypted else None
    is_vector = staged.format == "puffin"
    written = write_delete_file(storage, target.directory + name, data_file_path, held.positions, snapshots, key, as_vector=is_vector)
    return replace(staged, path=name, assumed_snapshot=new_snapshot, encryption_key=key, **asdict(written))


def matching_inlined(plan: ScanPlan, keys: KeySet | None = None) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Inlined rows that match, by physical table, with their row ids ascending."""
    if plan.inlined is None or not plan.inlined.num_rows:
        return ()
    shape = replace(plan.shape, schema=keys.schema if keys else Schema(columns=()), virtual=("rowid", "filename"))
    found: dict[str, list[int]] = {}
    for batch in read_inlined(plan.inlined, shape):
        matching: pa.RecordBatch = batch if keys is None else batch.filter(keys.contains(batch))
        row_ids, names = (shape.virtual_column(matching, name) for name in ("rowid", "filename"))
        for row_id, name in zip(row_ids.to_pylist(), names.to_pylist(), strict=True):
            found.setdefault(name, []).append(row_id)
    return physical_rows(found)


def physical_rows(found: Mapping[str, Iterable[int]]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Inlined rows by physical table, in the order that a commit takes them."""
    return tuple((name, tuple(sorted(row_ids))) for name, row_ids in sorted(found.items()))
