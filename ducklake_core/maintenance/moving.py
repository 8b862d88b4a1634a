"""Move a lake: copy its catalog to another database, and change the directory of its files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.migrations.copying import copy_catalog, store_data_path, stored_data_path
from ducklake_core.catalog.writing.expiry import every_file
from ducklake_core.errors import CommitRetriesExhaustedError, NotFoundError, StorageError, UsageError
from ducklake_core.format.files.paths import absolute_directory, as_directory, check_new_data_path, is_inside, moved_path, printable
from ducklake_core.format.state import LakeInfo
from ducklake_core.format.types.text import counted, short_repr
from ducklake_core.maintenance.groups import run_write
from ducklake_core.maintenance.health import format_bytes
from ducklake_core.maintenance.request import ProgressMeter, listed_with_progress
from ducklake_core.storage.filesystems import Storage

_COPIERS = 8
_CHUNK_BYTES = 8 << 20
_SHOWN_FILES = 3
_MAX_CHECKS = 10
_COPY, _MOVE = "copy_to", "move_data"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyResult:
    """The outcome of copying a lake. Printing it shows a summary.

    Attributes:
        catalog: Address of the copy, without its password.
        data_path: Data path of the copy.
        snapshots: Number of snapshots.
        catalog_rows: Number of rows of the metadata tables, which were read again and compared.
        inlined_rows: Number of inlined rows and deletes, which were read again and compared.
        files_copied: Number of copied files; 0 if the files stay where they are.
        bytes_copied: Bytes of copied files.
        tables_compared: Number of tables at snapshots whose rows were compared, None if they were not.
    """

    catalog: str
    data_path: str
    snapshots: int
    catalog_rows: int
    inlined_rows: int
    files_copied: int = 0
    bytes_copied: int = 0
    tables_compared: int | None = None

    def lines(self) -> list[str]:
        """Return a summary."""
        inlined = f" and {counted(self.inlined_rows, 'inlined row')}" if self.inlined_rows else ""
        rows = counted(self.catalog_rows, "catalog row")
        found = [f"copied {counted(self.snapshots, 'snapshot')} to {self.catalog} ({rows}{inlined}, compared)"]
        if self.files_copied:
            found.append(f"copied {counted(self.files_copied, 'file')} ({format_bytes(self.bytes_copied)}) to {printable(self.data_path)}")
        else:
            found.append(f"the files stay in {printable(self.data_path)}: use only one of the two catalogs for writing and maintenance")
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

    def copy_files(connection: object) -> None:
        if data_path is not None:
            move = _files(connection, database, info, old, new)
            copied.extend(_copy_files(move, storage, new, _COPY, progress))
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
            files_copied=len(copied),
            bytes_copied=sum(copied),
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
        )


def _copy_files(move: _Move, storage: Storage, new: str, operation: str, progress: ProgressMeter) -> list[int]:
    """Copy the files that the new data path lacks, and return their sizes. Files of an earlier attempt are kept."""
    wanted = [(path, moved) for path, moved, _ in _missing(move, storage, new, operation, progress)]
    known = sum(move.files[path][1] or 0 for path, _ in wanted)
    progress.begin(operation, "copy files", "files", len(wanted), work=known)
    sizes = []
    with ThreadPoolExecutor(_COPIERS, thread_name_prefix="ducklake-copy") as pool:
        for (path, _), size in zip(wanted, pool.map(lambda one: _copy_file(storage, *one), wanted), strict=True):
            expected = move.files[path][1]
            if expected not in (None, size):
                raise StorageError(
                    f"File {printable(path)} has {size:,} bytes, but the catalog states {expected:,}. Run lake.check(level='footers')",
                    path=printable(path),
                )
            sizes.append(size)
            progress.advance(size=size, work=size)
    return sizes


def _copy_file(storage: Storage, path: str, target: str) -> int:
    size = 0
    with storage.open_input(path) as source, storage.open_output(target) as sink:
        while chunk := source.read(_CHUNK_BYTES):
            sink.write(chunk)
            size += len(chunk)
    return size
