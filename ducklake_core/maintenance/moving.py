"""Move a lake: copy its catalog to another database, and change the directory of its files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.migrations.copying import Digest, copy_catalog, store_data_path, stored_data_path
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.writing.expiry import every_file
from ducklake_core.errors import CatalogError, CommitRetriesExhaustedError, NotFoundError, StorageError, UsageError
from ducklake_core.format.files.inlined_rows import column_values
from ducklake_core.format.files.paths import absolute_directory, as_directory, check_new_data_path, is_inside, moved_path, printable
from ducklake_core.format.state import LakeInfo, Snapshot
from ducklake_core.format.types.names import join_name
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.text import counted, short_repr
from ducklake_core.maintenance.groups import run_write
from ducklake_core.maintenance.health import format_bytes
from ducklake_core.maintenance.request import ProgressMeter, listed_with_progress
from ducklake_core.planning.lake_changes import plan_lake_changes
from ducklake_core.storage.filesystems import Storage

_COPIERS = 8
_CHUNK_BYTES = 8 << 20
_END_BYTES = 64 << 10
_SHOWN_FILES = 3
_MAX_CHECKS = 10
_COPY, _MOVE = "copy_to", "move_data"
Rows: TypeAlias = Callable[[str, int], tuple[Schema, Iterable[pa.RecordBatch]]]
"""Returns the columns and rows of a table of a lake at a snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyResult:
    """The outcome of copying a lake. Printing it shows a summary.

    Attributes:
        catalog: Address of the copy, without its password.
        data_path: Data path of the copy.
        snapshots: Number of snapshots.
        catalog_rows: Number of rows of the metadata tables, which were read again and compared.
        inlined_rows: Number of inlined rows and deletes, which were read again and compared.
        files_copied: Number of copied files, without those of an earlier attempt; None if the files stay where they are.
        bytes_copied: Bytes of copied files.
        files_elsewhere: Number of files outside of the data path of the lake, which are not copied: both lakes refer to them. 0 if no
            file is copied.
        tables_compared: Number of tables at snapshots whose rows were compared, None if they were not.
    """

    catalog: str
    data_path: str
    snapshots: int
    catalog_rows: int
    inlined_rows: int
    files_copied: int | None = None
    bytes_copied: int = 0
    files_elsewhere: int = 0
    tables_compared: int | None = None

    def lines(self) -> list[str]:
        """Return a summary."""
        inlined = f" and {counted(self.inlined_rows, 'inlined row')}" if self.inlined_rows else ""
        rows = counted(self.catalog_rows, "catalog row")
        found = [f"copied {counted(self.snapshots, 'snapshot')} to {self.catalog} ({rows}{inlined}, compared)"]
        if self.files_copied is None:
            found.append(f"the files stay in {printable(self.data_path)}: use only one of the two catalogs for writing and maintenance")
        else:
            found.append(f"copied {counted(self.files_copied, 'file')} ({format_bytes(self.bytes_copied)}) to {printable(self.data_path)}")
        if self.files_elsewhere:
            found.append(
                f"{counted(self.files_elsewhere, 'file')} outside of the data path not copied: both lakes refer to them, and each may "
                "delete files that the other one needs. Run maintenance on only one of the two lakes"
            )
        if self.tables_compared is not None:
            found.append(f"compared all rows of {counted(self.tables_compared, 'table state')}")
        return found

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = short_repr


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveResult:
    """The outcome of changing the data path. Printing it shows a summary.

    Attributes:
        old_path: Former data path.
        new_path: Data path that is stored now.
        files: Number of files below the data path, each of which exists in the new one with its size.
        files_elsewhere: Number of files outside of the data path, which stay where they are.
        paths_changed: Number of absolute paths in the catalog that were changed.
        files_copied: Number of copied files; 0 if the files were moved before.
        bytes_copied: Bytes of copied files.
    """

    old_path: str
    new_path: str
    files: int
    files_elsewhere: int = 0
    paths_changed: int = 0
    files_copied: int = 0
    bytes_copied: int = 0

    def lines(self) -> list[str]:
        """Return a summary."""
        found = [f"the data path is {printable(self.new_path)} ({counted(self.files, 'file')} checked), was {printable(self.old_path)}"]
        if self.files_copied:
            copied = f"copied {counted(self.files_copied, 'file')} ({format_bytes(self.bytes_copied)})"
            found.append(f"{copied}; delete the old files when no program uses them")
        if self.files_elsewhere:
            found.append(f"{counted(self.files_elsewhere, 'file')} outside of the data path not moved")
        return found

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = short_repr


@dataclass(frozen=True, slots=True)
class _Move:
    """Files below the data path: full path, new path and size."""

    files: Mapping[str, tuple[str, int | None]]
    elsewhere: int


def copy_lake(
    database: Database,
    info: LakeInfo,
    storage: Storage,
    target: Database,
    *,
    data_path: str | None,
    indexes: bool,
    progress: ProgressMeter,
) -> CopyResult:
    """Copy a lake; see ``DuckLake.copy_to`` for the parameters."""
    old = absolute_directory(info.data_path)
    new = old if data_path is None else _new_path(old, data_path)
    copied: list[int] = []
    elsewhere = 0

    def copy_files(connection: object) -> None:
        nonlocal elsewhere
        if data_path is not None:
            move = _files(connection, database, info, old, new)
            copied.extend(_copy_files(move, storage, new, _COPY, progress))
            elsewhere = move.elsewhere
        progress.begin(_COPY, "copy catalog", "rows", None)

    def attempt() -> CopyResult:
        found = copy_catalog(
            database,
            info,
            target,
            new,
            moves=data_path is not None,
            indexes=indexes,
            before=copy_files,
            advance=lambda name, rows: progress.advance(rows, table=name),
        )
        return CopyResult(
            catalog=str(target.address),
            data_path=new,
            snapshots=found.snapshots,
            catalog_rows=found.rows,
            inlined_rows=found.inlined_rows,
            files_copied=None if data_path is None else len(copied),
            bytes_copied=sum(copied),
            files_elsewhere=elsewhere,
        )

    return run_write(attempt, f"copy the lake to {target.address}")


def move_data(
    database: Database, info: LakeInfo, storage: Storage, data_path: str, *, copy_files: bool, progress: ProgressMeter
) -> MoveResult:
    """Store another data path; see ``DuckLake.move_data`` for the parameters."""
    database.check_writable()
    with database.read() as connection:
        stored = stored_data_path(connection, database.tables)
    old = absolute_directory(as_directory(stored))
    new = _new_path(old, data_path)
    info = replace(info, data_path=old)
    copied: list[int] = []
    for _ in range(_MAX_CHECKS):
        with database.read() as connection:
            move = _files(connection, database, info, old, new)
        if copy_files:
            copied += _copy_files(move, storage, new, _MOVE, progress)
        _check_files(move, storage, new, progress)

        def attempt(move: _Move = move) -> int | None:
            with database.without_commits() as connection:
                if _files(connection, database, info, old, new) != move or stored_data_path(connection, database.tables) != stored:
                    return None
                return store_data_path(connection, database.tables, old, new)

        changed = run_write(attempt, f"store the data path {printable(new)}")
        if changed is not None:
            return MoveResult(
                old_path=old,
                new_path=new,
                files=len(move.files),
                files_elsewhere=move.elsewhere,
                paths_changed=changed,
                files_copied=len(copied),
                bytes_copied=sum(copied),
            )
    raise CommitRetriesExhaustedError(
        f"The data path of {database.address} was not changed, because other writers kept adding files. Stop them, and try again"
    )


def _new_path(old: str, data_path: str) -> str:
    check_new_data_path(data_path)
    new = absolute_directory(data_path)
    if new == old or is_inside(old, new) or is_inside(new, old):
        raise UsageError(
            f"data_path {printable(new)} is the data path of the lake, or one of the two contains the other. Choose a separate directory",
            parameter="data_path",
        )
    return new


def _files(connection: object, database: Database, info: LakeInfo, old: str, new: str) -> _Move:
    files: dict[str, tuple[str, int | None]] = {}
    elsewhere = set()
    for path, size in every_file(connection, database.tables, info):  # type: ignore[arg-type]
        moved = moved_path(path, old, new)
        if moved == path:
            elsewhere.add(path)
        else:
            files[path] = (moved, size)
    return _Move(files, len(elsewhere))


def _missing(move: _Move, storage: Storage, new: str, operation: str, progress: ProgressMeter) -> Iterator[tuple[str, str, str]]:
    """Yield old path, new path and problem of each file that the new data path lacks or has with another size."""
    there = {file.path: file.size for file in listed_with_progress(storage.list(new), operation, progress)}
    for path, (moved, size) in move.files.items():
        found = there.get(moved)
        if found is None:
            yield path, moved, "is missing"
        elif size is not None and found != size:
            yield path, moved, f"has {found:,} bytes instead of {size:,}"


def _check_files(move: _Move, storage: Storage, new: str, progress: ProgressMeter) -> None:
    lost = [f"{printable(moved)} {problem}" for _, moved, problem in _missing(move, storage, new, _MOVE, progress)]
    if lost:
        more = f" and {counted(len(lost) - _SHOWN_FILES, 'more file')}" if len(lost) > _SHOWN_FILES else ""
        raise NotFoundError(
            f"The data path was not changed, because {counted(len(lost), 'file')} of {len(move.files):,} cannot be found in "
            f"{printable(new)}: {', '.join(lost[:_SHOWN_FILES])}{more}. Copy the files first, or set copy_files",
            path=printable(new),
            parameter="copy_files",
        )


def _copy_files(move: _Move, storage: Storage, new: str, operation: str, progress: ProgressMeter) -> list[int]:
    """Copy the files that the new data path lacks, and return their sizes.

    A file of an earlier attempt is kept if it has the same size and the same last bytes, which contain the footer of a Parquet file. That
    suffices because data files never change and their names are unique: the target can only hold another file under that name if another
    program damaged it, which comparing the rows or ``lake.check(level="rows")`` finds.
    """
    wanted = [(path, moved) for path, moved, _ in _missing(move, storage, new, operation, progress)]
    missing = {path for path, _ in wanted}
    present = [(path, moved) for path, (moved, _) in move.files.items() if path not in missing]
    sizes = []
    pool = ThreadPoolExecutor(_COPIERS, thread_name_prefix="ducklake-copy")
    try:
        if present:
            progress.begin(operation, "compare files", "files", len(present))
        for pair, is_same in zip(present, pool.map(lambda one: _has_same_end(storage, *one), present), strict=True):
            wanted += [] if is_same else [pair]
            progress.advance()
        progress.begin(operation, "copy files", "files", len(wanted), work=sum(move.files[path][1] or 0 for path, _ in wanted))
        for (path, _), size in zip(wanted, pool.map(lambda one: _copy_file(storage, *one), wanted), strict=True):
            expected = move.files[path][1]
            if expected not in (None, size):
                raise StorageError(
                    f"File {printable(path)} has {size:,} bytes, but the catalog states {expected:,}. Run lake.check(level='footers')",
                    path=printable(path),
                )
            sizes.append(size)
            progress.advance(size=size, work=size)
    finally:
        # After an error, only the files that are being copied are waited for.
        pool.shutdown(cancel_futures=True)
    return sizes


def _has_same_end(storage: Storage, path: str, target: str) -> bool:
    """Return whether a file of the new data path ends like the old one, or the old one was moved there, so that it is missing."""
    try:
        wanted = _end(storage, path)
    except NotFoundError:
        return True
    return _end(storage, target) == wanted


def _end(storage: Storage, path: str) -> bytes:
    with storage.open_input(path) as file:
        file.seek(max(0, file.size() - _END_BYTES))
        return bytes(file.read())


def _copy_file(storage: Storage, path: str, target: str) -> int:
    size = 0
    with storage.open_input(path) as source, storage.open_output(target) as sink:
        while chunk := source.read(_CHUNK_BYTES):
            sink.write(chunk)
            size += len(chunk)
    return size


def compare_rows(
    copy: Database, info: LakeInfo, snapshots: Sequence[Snapshot], rows: Rows, rows_of_copy: Rows, progress: ProgressMeter
) -> int:
    """Compare the rows of every table at the snapshots of a copy at which it changed, and return the number of table states.

    A table is read as a whole at each of these snapshots. The change feed would read each row once, but it does not contain the files that
    a merge or a rewrite made, and ends at expired snapshots.

    Args:
        copy: Catalog of the copy.
        info: Settings of the copy.
        snapshots: Snapshots of the copy.
        rows: Reads the lake.
        rows_of_copy: Reads the copy.
        progress: Counts the snapshots.

    Raises:
        CatalogError: A table has other rows in the copy.
    """
    known: dict[int, tuple[str, str]] = {}
    count, before = 0, snapshots[0].id
    progress.begin(_COPY, "compare rows", "snapshots", len(snapshots))
    for snapshot in snapshots:
        changed: set[int | None] = {*snapshot.change_set.touched_ids}
        with copy.read() as connection:
            reader = CatalogReader(connection, info, copy.tables)
            tables = reader.table_names(snapshot.id)
            if snapshot.id > before + 1:
                # Commits in between, which have expired, may have changed tables that this one does not name.
                changed |= {one.id_after for one in plan_lake_changes(reader, before, snapshot.id).tables}
        before = snapshot.id
        for number, name in tables.items():
            if known.get(number) == name and number not in changed:
                continue
            full = join_name(*name)
            if _state(rows, full, snapshot.id) != _state(rows_of_copy, full, snapshot.id):
                raise CatalogError(
                    f"Table {full} at snapshot {snapshot.id} has other rows in the copy {copy.address} than in the lake. Do not use the "
                    "copy: delete it, run lake.check(level='rows'), and copy again",
                    table=full,
                    snapshot_id=snapshot.id,
                )
            count += 1
        known = tables
        progress.advance()
    return count


def _state(rows: Rows, table: str, snapshot_id: int) -> tuple[Schema, Digest]:
    schema, batches = rows(table, snapshot_id)
    columns = list(schema)
    return schema, Digest.of(
        row
        for batch in batches
        for row in zip(*(column_values(batch.column(place), column) for place, column in enumerate(columns)), strict=True)
    )
