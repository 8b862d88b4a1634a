"""Find the positions of rows that a delete, overwrite or upsert removes, and write them as delete files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial, reduce
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.commit.actions import CumulativeDeletes, GatheredDeletes, InlinedDeletion, StagedDeleteFile
from ducklake_core.engines.arrow.decoding import OpenFile
from ducklake_core.engines.arrow.evaluate import hashable
from ducklake_core.engines.arrow.read import read_inlined, read_task
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.errors import CatalogCorruptError, CorruptFileError, SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.format.files import paths
from ducklake_core.format.files.data_files import DataFile, DeleteFile, DeleteHistory, EncryptionKey
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import NO_KEY_TYPES, Schema, to_arrow_type
from ducklake_core.format.types.text import shown
from ducklake_core.format.values.arrow_cast import cast_to
from ducklake_core.planning.plan import FileTask, ScanPlan, ScanProjection
from ducklake_core.storage.delete_files import (
    DeletedPositions,
    DeletionVectors,
    deleted_positions,
    process_memory,
    read_delete_file,
    read_deletes_of,
    write_delete_file,
)
from ducklake_core.storage.filesystems import Storage, printable
from ducklake_core.storage.parquet_files import open_parquet

_POSITION = "file_row_number"

_FOUND = "found"
_MAX_PLACES = 1 << 22
"""Maximum distance between the integers of a batch for a lookup table, which takes a byte for each integer in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTarget:
    """The location and form of delete files: small and picklable, without any catalog address.

    Attributes:
        directory: Full directory of the table, with a trailing slash; delete files go there, never below.
        data_path: Full data path of the lake, with a trailing slash.
        write_id: Mark of this write (see format/files/paths.py), by which its files can be swept.
        assumed_snapshot: Snapshot id stored with new positions of cumulative files: the one after the base.
        encrypted: Whether each file is encrypted, under a key that its writer makes.
        inlined_rows: Up to this many rows of one data file need no delete file, because the catalog hides them; 0 by default.
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
    """A data file without visible rows.

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
        inlined_deletes: Data files that lose so few rows that the catalog hides them.
        ended: Data files that lose all rows.
        inlined: Physical tables of inlined rows with the ids of the rows to end.
    """

    delete_files: tuple[StagedDeleteFile, ...] = ()
    inlined_deletes: tuple[InlinedDeletion, ...] = ()
    ended: tuple[EndedFile, ...] = ()
    inlined: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def row_count(self) -> int:
        """Return the number of rows that are visible before and deleted after."""
        files: tuple[FileDeletion, ...] = (*self.delete_files, *self.inlined_deletes, *self.ended)
        return sum(file.new_count for file in files) + sum(len(row_ids) for _, row_ids in self.inlined)

    def then(self, later: Deletions) -> Deletions:
        """Return both as one; the later one was found among the rows that this one leaves, and its delete files include this one's."""
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
    # Of one data file, each deletion hides rows that the earlier ones leave visible:
    #
    #   ... then EndedFile                the file ends; the counts of all add up
    #   StagedDeleteFile, then another    the last one contains all positions, and replaces what the first one replaces
    #   InlinedDeletion, next to either   positions in the catalog; one entry with all of them
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
    """Return the later of two delete files of one data file in a transaction, which replaces what the first one replaces."""
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
    found = map(partial(delete_in_file, shape=shape, target=target, storage=storage, keys=keys), plan.tasks)
    return collect(list(found), matching_inlined(plan, keys))


def position_shape(plan: ScanPlan, keys: KeySet | None = None) -> ScanProjection:
    """Return the shape of reads that find positions: key columns, if any, and the position."""
    return replace(plan.shape, schema=keys.schema if keys else Schema(columns=()), virtual=(_POSITION,), prunes_only=keys is not None)


def collect(found: Iterable[FileDeletion | None], inlined: tuple[tuple[str, tuple[int, ...]], ...]) -> Deletions:
    """Return the results of all files as one value, in the order of data files."""
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
    """Find the matching positions of one data file and write its delete file; this is the work unit of a delete.

    Args:
        task: The file with everything that hides rows of it.
        shape: The projection of :func:`position_shape`.
        target: Where to write the delete file.
        storage: How to reach files.
        keys: When given, only rows whose key is among these match; None (the default) for no condition on keys.
        threads: Whether to decode columns in parallel; True by default, False on executors, which have one core for a task.

    Returns:
        None when no visible row matches.
    """
    if keys is None and (task.all_rows_match or shape.predicate is None):
        deleted = len(deleted_positions(storage, task.file, shape.snapshot_id, read=process_memory.read))
        return (
            EndedFile(data_file_id=task.file.id, new_count=task.file.record_count - deleted) if deleted < task.file.record_count else None
        )
    parts: list[np.ndarray] = []
    for batch in read_task(task, shape, storage, threads=threads):
        matching = batch if keys is None else batch.filter(keys.contains(batch))
        parts.append(shape.virtual_column(matching, _POSITION).to_numpy(zero_copy_only=False))
    positions = np.sort(np.concatenate(parts)) if parts else np.empty(0, dtype=np.int64)
    return write_position_deletes(task.file, positions, shape, target, storage) if len(positions) else None


def _check_count(file: DataFile, shape: ScanProjection, storage: Storage) -> None:
    """Check the row count against the file's footer: with a wrong count, rows that no caller deletes would end with their file."""
    with open_parquet(storage, file.path, file.encryption_key) as source, storage.reporting("read the footer of", file.path):
        held = OpenFile(source, printable(file.path), shape.table).rows
    if held != file.record_count:
        raise CorruptFileError(
            f"{printable(file.path)} of table {shape.table} has {held:,} rows, but the catalog has record_count "
            f"{file.record_count:,}. Correct record_count in ducklake_data_file before you delete rows",
            path=printable(file.path),
            table=shape.table,
        )


def write_position_deletes(
    file: DataFile, positions: np.ndarray, shape: ScanProjection, target: DeleteTarget, storage: Storage
) -> FileDeletion:
    """Write the delete file of one data file; return an inlined deletion for few rows, or the end of the file if no row is left.

    A data file has at most one live delete file. The outcomes::

        hidden + new = all rows of the file      EndedFile             no delete file at all
        new <= target.inlined_rows               InlinedDeletion       positions in the catalog
        no delete file before                    StagedDeleteFile      positions only
        a delete file before                     StagedDeleteFile      earlier positions + new ones, each with its snapshot

    Args:
        file: The data file with what hides rows of it at the base snapshot.
        positions: Visible positions to delete, ascending and distinct.
        shape: Names table and base snapshot.
        target: Where to write.
        storage: How to reach the files.
    """
    hidden = deleted_positions(storage, file, shape.snapshot_id, read=process_memory.read)
    if len(hidden) + len(positions) >= file.record_count:
        _check_count(file, shape, storage)
        return EndedFile(data_file_id=file.id, new_count=len(positions))
    # A file of this transaction (a negative id) has no row in the catalog yet that an inlined delete could name.
    if len(positions) <= target.inlined_rows and file.id >= 0:
        return InlinedDeletion(data_file_id=file.id, positions=tuple(positions.tolist()))
    old = _only_delete_file(file, shape.table)
    deletes, new_count, replaced = DeletedPositions(positions=positions), len(positions), dict[str, Any]()
    if old is not None:
        earlier = process_memory.read(storage, old, file)
        if old.id < 0 and earlier.snapshots is None:
            # The first delete file of the data file, grown before it is committed.
            deletes = DeletedPositions(positions=np.sort(np.concatenate([earlier.positions, positions])))
        else:
            deletes, new_count, replaced = _cumulative(old, earlier, positions, target)
    kind = target.vectors.format(deletes.snapshots)
    name = paths.new_delete_file_name(target.write_id, kind)
    key = EncryptionKey.random() if target.encrypted else None
    written = write_delete_file(
        storage, target.directory + name, file.path, deletes.positions, deletes.snapshots, key, as_vector=kind == "puffin"
    )
    return StagedDeleteFile(
        data_file_id=file.id,
        path=name,
        delete_count=len(deletes.positions),
        new_count=new_count,
        encryption_key=key,
        **replaced,
        **asdict(written),
    )


def _cumulative(
    old: DeleteFile, earlier: DeletedPositions, positions: np.ndarray, target: DeleteTarget
) -> tuple[DeletedPositions, int, dict[str, Any]]:
    """Add positions to those of a committed delete file, each with its snapshot.

    Returns:
        All positions, the number of new ones, and the facts about the replaced delete file that the commit needs.
    """
    # Inlined deletes stay in the catalog, as in DuckDB; a flush moves them into a delete file.
    snapshots = earlier.snapshots if earlier.snapshots is not None else np.full(len(earlier.positions), old.begin_snapshot, dtype=np.int64)
    # The earlier file may also contain positions that a later snapshot than the base deleted: that snapshot is a conflict, and the commit
    # plans again.
    added = np.setdiff1d(positions, earlier.positions, assume_unique=True)
    combined = np.concatenate([earlier.positions, added])
    order = np.argsort(combined, kind="stable")
    new = np.full(len(added), target.assumed_snapshot, dtype=np.int64)
    path, is_relative = paths.relative_to(target.data_path, old.path)
    replaced = {
        "min_snapshot": int(snapshots.min()) if len(snapshots) else None,
        "assumed_snapshot": target.assumed_snapshot,
        "replaces": old.id,
        "replaces_path": path,
        "replaces_path_is_relative": is_relative,
    }
    return DeletedPositions(positions=combined[order], snapshots=np.concatenate([snapshots, new])[order]), len(added), replaced


def _only_delete_file(file: DataFile, table: str) -> DeleteFile | None:
    if len(file.delete_files) > 1:
        ids = [one.id for one in file.delete_files]
        raise CatalogCorruptError(
            f"data file {file.id} of table {table} has {len(ids)} live delete files ({ids}), but at most one is allowed. Rewrite the "
            "file first",
            table=table,
            data_file_id=file.id,
        )
    return file.delete_files[0] if file.delete_files else None


def rewrite_delete_file(staged: StagedDeleteFile, new_snapshot: int, target: DeleteTarget, storage: Storage) -> StagedDeleteFile:
    """Return the same delete file for another snapshot id, under a new name, for a commit that lands later than assumed.

    The old file is left for the caller's sweep. Each position has the snapshot that deletes it. If the commit lands later than assumed,
    the snapshots in between would lose rows that they have. DuckDB does not rewrite the file, so that its history is wrong after a retry.

    Args:
        staged: The delete file that was written for an assumed snapshot.
        new_snapshot: Id of the snapshot that the commit will make.
        target: Where to write the new file.
        storage: How to reach files.

    Raises:
        UsageError: The file carries no snapshot ids, so there is nothing to rewrite.
    """
    if staged.assumed_snapshot is None:
        raise UsageError("a delete file without snapshot ids is valid at any snapshot and need not be rewritten")
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
    """Return inlined rows that match, by physical table, with their row ids ascending."""
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
    """Return inlined rows by physical table, in the order that a commit takes them."""
    return tuple((name, tuple(sorted(row_ids))) for name, row_ids in sorted(found.items()))


@dataclass(frozen=True, slots=True)
class KeySet:
    """Keys as columns of the table; made by :func:`key_set`.

    Attributes:
        schema: The key columns, with the table's types.
        keys: One row per distinct key, in comparable Arrow types; ascending where the key is one column of integers.
    """

    schema: Schema
    keys: pa.Table

    def values(self) -> list[pa.Array[Any] | None]:
        """Return the values of each column, in any order; None where :func:`hashable` gives them another type."""
        found = [column.combine_chunks() for column in self.keys.columns]
        return [None if pa.types.is_decimal256(to_arrow_type(one.type)) else values for one, values in zip(self.schema, found, strict=True)]

    def contains(self, batch: pa.RecordBatch) -> pa.Array[Any]:
        """Return for each row of a batch that begins with the key columns whether its key is in the set; a NULL key never is."""
        columns = [_comparable(column) for column in batch.columns[: len(self.schema)]]
        if len(columns) == 1:
            return _among(columns[0], self.keys.column(0).combine_chunks())
        names = self.keys.column_names
        rows = pa.table([*columns, pa.array(range(batch.num_rows), pa.int64())], names=[*names, _FOUND])
        # Arrow's joins do not match NULL with NULL, as in SQL.
        matched = rows.join(self.keys, keys=names, join_type="left semi").column(_FOUND)
        return pc.is_in(rows.column(_FOUND).combine_chunks(), value_set=matched.combine_chunks())


def key_set(source: pa.Table, on: Sequence[str], table: Schema) -> KeySet:
    """Return the keys of a source.

    Args:
        source: Rows with at least the key columns.
        on: Names of the key columns.
        table: The table's columns; keys are compared in their types.

    Raises:
        UsageError: A key is NULL, or occurs more than once.
        SchemaError: The source lacks a key column, or a key does not fit the type of its column.
        UnsupportedFeatureError: A key column has a nested type.
        NotFoundError: The table lacks the column.
    """
    schema = table.select(on)
    for column in schema:
        if not column.is_leaf or column.type in NO_KEY_TYPES:
            raise UnsupportedFeatureError(
                f"column {column.name!r} of type {column.type} cannot be a key. Use a column of a simple type, or DuckDB: "
                f"lake.sql('MERGE INTO t USING rows ON t.{column.name} = rows.{column.name} ...', rows=rows)",
                column=column.name,
            )
    by_name = {folded(name): name for name in source.column_names}
    missing = [column.name for column in schema if folded(column.name) not in by_name]
    if missing:
        raise SchemaError(f"the data has no column {missing[0]!r}, which is part of the key. Add it, or change the key", column=missing[0])
    held = cast_to(source.select([by_name[folded(column.name)] for column in schema]), schema, physical=False, exact=True)
    columns = [_comparable(column.combine_chunks()) for column in held.columns]
    for column, values in zip(schema, columns, strict=True):
        if values.null_count:
            raise null_key(column.name, values.null_count)
    keys = pa.table(columns, names=[f"key{index}" for index in range(len(columns))])
    distinct = keys.group_by(keys.column_names).aggregate([]) if len(keys) else keys
    if len(distinct) != len(keys):
        numbered = keys.append_column(_FOUND, pa.array(range(len(keys)), pa.int64()))
        repeated = numbered.group_by(keys.column_names).aggregate([(_FOUND, "min"), (_FOUND, "count")])
        row = pc.min(repeated.filter(pc.field(f"{_FOUND}_count") > 1).column(f"{_FOUND}_min")).as_py()
        raise repeated_key(schema.names, [column[row].as_py() for column in held.columns], len(keys) - len(distinct))
    found = distinct.select(keys.column_names)
    return KeySet(schema, found.sort_by("key0") if len(columns) == 1 and _is_small_integer(columns[0].type) else found)


def null_key(column: str, count: int) -> UsageError:
    """Return the error about rows without a key."""
    rows = "1 row" if count == 1 else f"{count:,} rows"
    return UsageError(
        f"key column {column!r} is NULL in {rows} of the data, but rows are matched by their key. Add the keys, or remove these rows",
        column=column,
    )


def repeated_key(columns: Sequence[str], values: Sequence[object], surplus: int) -> UsageError:
    """Return the error about rows with the same key.

    Args:
        columns: Names of the key columns.
        values: A key that occurs more than once.
        surplus: Number of rows that repeat a key of an earlier row.
    """
    key = ", ".join(f"{name} = {shown(value)}" for name, value in zip(columns, values, strict=True))
    rows = "1 row repeats" if surplus == 1 else f"{surplus:,} rows repeat"
    return UsageError(
        f"key ({key}) occurs more than once in the data; {rows} a key in all. Keep one row for each key", columns=list(columns), key=key
    )


def _is_small_integer(data_type: pa.DataType) -> bool:
    """Return whether 64 bits with a sign hold its values."""
    return bool(pa.types.is_integer(data_type) and data_type != pa.uint64())


def _among(values: pa.Array[Any], keys: pa.Array[Any]) -> pa.Array[Any]:
    """Return whether each value is a key; NULL never is. Integers that lie close together use a lookup table instead of a hash.

    >>> _among(pa.array([5, None, 7]), pa.array([1, 5])).to_pylist()
    [True, False, False]
    """
    if not _is_small_integer(values.type) or values.null_count == len(values):
        return pc.is_in(values, value_set=keys)
    # The keys ascend, so that only those between the smallest and the largest value of the batch matter:
    #
    #   low=5                high=12            is_key[value - low]
    #   | 5 | 6 | 7 | 8 | 9 | 10 | 11 | 12 |    keys {6, 9}: F T F F T F F F
    bounds = pc.min_max(values).as_py()
    low, high = bounds["min"], bounds["max"]
    numbers = keys.to_numpy().astype(np.int64, copy=False)
    near = numbers[np.searchsorted(numbers, low) : np.searchsorted(numbers, high, side="right")]
    if not len(near):
        return pa.repeat(pa.scalar(False), len(values))
    if high - low > _MAX_PLACES:
        return pc.is_in(values, value_set=pa.array(near, values.type))
    is_key = np.zeros(high - low + 1, dtype=bool)
    is_key[near - low] = True
    found = is_key[values.fill_null(low).to_numpy().astype(np.int64, copy=False) - low]
    return pa.array(found) if not values.null_count else pc.and_(pa.array(found), values.is_valid())


def _comparable(array: pa.Array[Any]) -> pa.Array[Any]:
    """Return the same values in a type that Arrow's set operations support."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return hashable(array)


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


def first_deletes(history: DeleteHistory, storage: Storage) -> tuple[np.ndarray, np.ndarray]:
    """Return the deleted positions of a data file, ascending, and the snapshot that first deleted each.

    A deleted row stays deleted. The delete files belong to the same data file, whatever snapshots they were live at.

    Args:
        history: What deleted rows of it.
        storage: How to open files.

    Raises:
        CorruptFileError: A delete file is not one of this data file, or the catalog deletes rows that the file does not have.
    """
    file = history.file
    parts = [(np.array([p for p, _ in history.inlined], np.int64), np.array([s for _, s in history.inlined], np.int64))]
    for delete_file in file.delete_files:
        held = read_deletes_of(storage, delete_file, file)
        begun = np.full(len(held.positions), delete_file.begin_snapshot, np.int64)
        parts.append((held.positions, begun if held.snapshots is None else held.snapshots))
    positions, snapshots = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    # Sorted by position and then by snapshot, the first entry of each position has the earliest snapshot.
    order = np.lexsort((snapshots, positions))
    positions, snapshots = positions[order], snapshots[order]
    first = np.diff(positions, prepend=-1) != 0
    positions, snapshots = positions[first], snapshots[first]
    if not len(positions):
        return positions, snapshots
    if positions[0] < 0 or positions[-1] >= file.record_count:
        raise CorruptFileError(
            f"the catalog deletes row {positions[-1] if positions[0] >= 0 else positions[0]} of {printable(file.path)}, but the file has "
            f"only {file.record_count:,} rows. Run lake.check() to find the damage",
            path=printable(file.path),
        )
    return positions, snapshots


def gather_deletes(history: DeleteHistory, data_path: str, state: WriteState) -> GatheredDeletes:
    """Write one delete file with all that ever deleted rows of a data file.

    Args:
        history: What deleted rows of it.
        data_path: The lake's, to which paths of the catalog are relative.
        state: Where and how files of the table are written.

    Raises:
        CorruptFileError: A delete file is not one of this data file, or the catalog deletes rows that the file does not have.
    """
    file = history.file
    positions, snapshots = first_deletes(history, state.storage)
    replaced = tuple((one.id, *paths.relative_to(data_path, one.path)) for one in file.delete_files)
    deletes = write_deletes(positions, snapshots, file.path, state, file.end_snapshot)
    return GatheredDeletes(data_file_id=file.id, file=deletes, replaced=replaced)
