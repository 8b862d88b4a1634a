"""Find rows and files that no surviving snapshot needs, and remove or schedule them (specification: Expire Snapshots).

A row lives from its ``begin_snapshot`` up to, but not including, its ``end_snapshot``. It is needed while a surviving snapshot lies there::

    snapshots     3 ----- 5 ----- 8 ----- 9      5 and 8 are expired
    row [4, 9)        |===============|          no survivor inside: the row is removed
    row [3, 9)    |===================|          3 survives: the row stays
    row [8, -)                    |==========    live: the row stays

Catalog rows are deleted at once; files are scheduled and deleted later, because a reader may still use them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from sqlalchemy import Connection, Row, Select, bindparam, delete, exists, func, insert, inspect, literal_column, or_, select, union
from sqlalchemy.schema import DropTable

from ducklake_core.catalog.changes import DeleteRows
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.postgres_catalog import has_older_transactions, oldest_transaction
from ducklake_core.catalog.database.statements import PlainStatements
from ducklake_core.catalog.database.tables import CatalogTables, inlined_delete_name, inlined_owner
from ducklake_core.catalog.reading.completeness import complete_rows
from ducklake_core.catalog.reading.integrity_scan import names_with_rows, registered_names, tables_that_may_go
from ducklake_core.catalog.writing.head import chunks, conditions_of
from ducklake_core.catalog.writing.writer import apply_changes, drop_leftovers
from ducklake_core.errors import CatalogCorruptError
from ducklake_core.format.changes import parse_changes
from ducklake_core.format.files import paths
from ducklake_core.format.files.paths import file_key, spellings
from ducklake_core.format.state import LakeInfo
from ducklake_core.format.types.text import END

FileKind: TypeAlias = Literal["data", "delete"]
# Objects without rows that depend on them: each ended row is removed by its own lifetime. The value is the column of the id.
_VERSIONED = {"schema": "schema_id", "view": "view_id", "tag": "object_id", "view_column_tag": "view_id", "macro": "macro_id"}
_OF_DEAD_TABLES = (
    "table",
    "table_stats",
    "table_column_stats",
    "partition_info",
    "partition_column",
    "column",
    "column_tag",
    "sort_info",
    "sort_expression",
    "schema_versions",
    "inlined_data_tables",
    "column_mapping",
)
_OF_DATA_FILES = ("file_column_stats", "file_variant_stats", "file_partition_value", "data_file")

_NAMES = {
    "data_file": "names of data files",
    "delete_file": "names of delete files",
    "files_scheduled_for_deletion": "names of files that are scheduled for deletion",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnneededFile:
    """A data or delete file that no surviving snapshot reads.

    Attributes:
        id: ``data_file_id`` or ``delete_file_id``.
        path: Full path.
        reason: Reason why no snapshot reads it, for reports.
    """

    id: int
    kind: FileKind
    table_id: int
    table: str
    path: str
    file_size_bytes: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadTable:
    """A dropped table that no surviving snapshot shows."""

    id: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unneeded:
    """Everything that leaves the catalog together with expired snapshots.

    Attributes:
        files: Files to schedule for deletion.
        shared: Files to keep although their rows are removed: they were added twice, and another row still names them.
        tables: Dropped tables to remove, with their statistics, columns and inlined rows.
        ended: (metadata table, object id, begin_snapshot, end_snapshot) of schemas, views, tags and macros.
    """

    files: tuple[UnneededFile, ...] = ()
    shared: tuple[UnneededFile, ...] = ()
    tables: tuple[DeadTable, ...] = ()
    ended: tuple[tuple[str, int, int, int], ...] = ()

    def ids(self, kind: FileKind) -> tuple[int, ...]:
        """Return the ids of the rows to remove, of data files or of delete files."""
        return tuple(file.id for file in (*self.files, *self.shared) if file.kind == kind)

    def with_files(self, more: Unneeded) -> Unneeded:
        """Return a copy with the files of another instance added."""
        return replace(self, files=(*self.files, *more.files), shared=(*self.shared, *more.shared))


class Lifetimes:
    """The surviving snapshots, to check whether a lifetime contains one.

    >>> Lifetimes([3, 7]).meet(4, 7), Lifetimes([3, 7]).meet(4, 8), Lifetimes([3, 7]).meet(8, None)
    (False, True, True)
    """

    def __init__(self, surviving: Iterable[int]) -> None:
        self._surviving = sorted(surviving)

    def meet(self, begin: object, end: object) -> bool:
        """Return whether a surviving snapshot is at or after ``begin`` and before ``end``.

        Live rows (no end) and rows with damaged values count as needed: only what is certainly unneeded may be removed.
        """
        if not isinstance(begin, int) or not isinstance(end, int):
            return True
        position = bisect_left(self._surviving, begin)
        return position < len(self._surviving) and self._surviving[position] < end


def unneeded(connection: Connection, tables: CatalogTables, info: LakeInfo, expired: Collection[int] = ()) -> Unneeded:
    """Find everything in the catalog that no snapshot needs, or would need without the snapshots ``expired``.

    Args:
        connection: A read or write transaction.
        tables: The metadata tables.
        info: Settings of the lake, for full paths.
        expired: Ids of snapshots that count as expired although their rows may still exist; default none.
    """
    found = _not_needed_by(connection, tables, info, expired)
    return found.with_files(_stray_delete_files(connection, tables, info, known=found.ids("delete")))


def _snapshot_ids(connection: Connection, tables: CatalogTables) -> Sequence[int]:
    snapshot = tables["snapshot"]
    query = select(snapshot.c.snapshot_id).order_by(snapshot.c.snapshot_id)
    return [number for (number,) in complete_rows(connection, query, "snapshots")]


def _not_needed_by(connection: Connection, tables: CatalogTables, info: LakeInfo, expired: Collection[int]) -> Unneeded:
    versions = list(complete_rows(connection, _table_versions(tables), "tables"))
    files: Sequence[Row[Any]] = list(complete_rows(connection, _ended_files(tables), "data files"))
    deletes: Sequence[Row[Any]] = list(complete_rows(connection, _ended_delete_files(tables), "delete files"))
    ended = {
        name: list(complete_rows(connection, _ended(tables, name, column), f"rows of ducklake_{name}"))
        for name, column in _VERSIONED.items()
        if name in tables
    }
    # Read after the rows. If a concurrent commit ends more of them meanwhile, its snapshots are among the survivors; the other order
    # could miss a snapshot that needs a row.
    lifetimes = Lifetimes(set(_snapshot_ids(connection, tables)).difference(expired))

    filled = _schemas_with_live_objects(connection, tables) if ended["schema"] else frozenset[int]()
    known = {row.table_id: row for row in versions}
    needed = {row.table_id for row in versions if lifetimes.meet(row.begin_snapshot, row.end_snapshot)}
    dead = tuple(DeadTable(id=i, name=f"{row.schema_name}.{row.table_name}") for i, row in sorted(known.items()) if i not in needed)
    dead_ids = [table.id for table in dead]
    if dead_ids:
        files = _with_all_of(connection, tables, "data_file", files, dead_ids)
        deletes = _with_all_of(connection, tables, "delete_file", deletes, dead_ids)
    dead_set = set(dead_ids)
    describe = _Describer(info, known, dead_set)
    dead_files = [row for row in files if row.table_id in dead_set or not lifetimes.meet(row.begin_snapshot, row.end_snapshot)]
    dead_file_ids = {row.data_file_id for row in dead_files}
    dead_deletes = [
        row
        for row in deletes
        if row.table_id in dead_set or row.data_file_id in dead_file_ids or not lifetimes.meet(row.begin_snapshot, row.end_snapshot)
    ]
    expired_files = [
        *(describe.file(row, "data", row.data_file_id) for row in dead_files),
        *(describe.file(row, "delete", row.delete_file_id) for row in dead_deletes),
    ]
    return replace(
        _files_that_go(connection, tables, info, expired_files),
        tables=dead,
        ended=tuple(
            (name, row.id, row.begin_snapshot, row.end_snapshot)
            for name, rows in ended.items()
            for row in rows
            if not lifetimes.meet(row.begin_snapshot, row.end_snapshot) and not (name == "schema" and row.id in filled)
        ),
    )


def _schemas_with_live_objects(connection: Connection, tables: CatalogTables) -> frozenset[int]:
    """Return the ids of schemas that are live or contain live objects, and of their parents: a check repairs such a schema by its row."""
    sources = [tables[name] for name in ("table", "view", "macro") if name in tables]
    queries = [select(source.c.schema_id).where(source.c.end_snapshot.is_(None)) for source in sources]
    found = set(connection.execute(union(*queries)).scalars())
    schema = tables["schema"]
    parents = select(schema.c.schema_id, schema.c.end_snapshot, tables.optional("schema", "parent_schema_id").label("parent"))
    rows = connection.execute(parents).all()
    above = {row.schema_id: row.parent for row in rows}
    found.update(row.schema_id for row in rows if row.end_snapshot is None)
    pending = [above.get(number) for number in found]
    while pending:
        parent = pending.pop()
        if parent is not None and parent not in found:
            found.add(parent)
            pending.append(above.get(parent))
    return frozenset(found)


def _files_that_go(connection: Connection, tables: CatalogTables, info: LakeInfo, expired: Sequence[UnneededFile]) -> Unneeded:
    """Split files whose rows are removed by whether other rows name them too."""
    own = {f"{kind}_file": {file.id: file.path for file in expired if file.kind == kind} for kind in ("data", "delete")}
    elsewhere = named_elsewhere(connection, tables, info, own)
    return Unneeded(
        files=tuple(file for file in expired if file.path not in elsewhere),
        shared=tuple(file for file in expired if file.path in elsewhere),
    )


def _stray_delete_files(connection: Connection, tables: CatalogTables, info: LakeInfo, known: Collection[int] = ()) -> Unneeded:
    """Find delete files whose data file has no row, except those that are known already."""
    file, deletes = tables["data_file"], tables["delete_file"]
    query = _file_columns(tables, "delete_file").where(~exists().where(file.c.data_file_id == deletes.c.data_file_id))
    rows = [row for row in connection.execute(query) if row.delete_file_id not in known]
    if not rows:
        return Unneeded()
    describe = _Describer(info, {row.table_id: row for row in connection.execute(_table_versions(tables))}, set())
    reason = "the catalog does not know its data file"
    strays = [replace(describe.file(row, "delete", row.delete_file_id), reason=reason) for row in rows]
    return _files_that_go(connection, tables, info, strays)


def lock_snapshots(connection: Connection, database: Database, snapshot_ids: Sequence[int]) -> set[int]:
    """Lock snapshots against expiry and pinning until the transaction ends, and return the ids of those that still exist."""
    snapshot = database.tables["snapshot"]
    found: set[int] = set()
    for condition in conditions_of(snapshot.c.snapshot_id, sorted(snapshot_ids)):
        query = select(snapshot.c.snapshot_id).where(condition)
        # A catalog file has one writer anyway, and DuckDB has no FOR UPDATE.
        locking = query.with_for_update() if database.abilities.concurrent_writers else query
        found.update(connection.execute(locking).scalars())
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededSnapshots:
    """Snapshots that an open transaction of another program needs: the one that it reads, and all that were committed since.

    DuckDB commits as the snapshot after the one that it reads, unless that exists, and finds conflicts in the snapshots since.

    Attributes:
        first: Id of the first of them.
        transaction: Description of the transaction.
    """

    first: int
    transaction: str


def needed_by_transactions(connection: Connection, database: Database) -> NeededSnapshots | None:
    """Return the snapshots that open transactions of other programs need, None if they need only the newest.

    Transactions that begin after this read the newest snapshot.
    """
    # Only PostgreSQL shows the snapshots of other transactions: the age of their oldest visible xmin.
    if connection.dialect.name != "postgresql":
        return None
    oldest = oldest_transaction(connection)
    if oldest is None:
        return None
    # Rows with a younger xmin were committed after that transaction began, so it reads the snapshot before the first of them.
    number = database.tables["snapshot"].c.snapshot_id
    later = connection.execute(select(func.min(number)).where(func.age(literal_column("xmin")) <= oldest.age)).scalar()
    if later is None:
        return None
    read = connection.execute(select(func.max(number)).where(number < later)).scalar()
    return NeededSnapshots(first=later if read is None else read, transaction=str(oldest))


def expire(connection: Connection, database: Database, info: LakeInfo, snapshot_ids: Sequence[int]) -> tuple[tuple[int, ...], Unneeded]:
    """Delete snapshots and everything that only they needed, and schedule files for deletion, in the caller's write transaction.

    Args:
        connection: The write transaction.
        database: The catalog.
        info: Settings of the lake.
        snapshot_ids: Snapshots to expire. Unknown ids and the newest snapshot are ignored.

    Returns:
        The ids that were deleted, and everything that was removed with them.
    """
    # Never the newest: it has the counters from which the next commit takes its ids.
    others = _snapshot_ids(connection, database.tables)[:-1]
    wanted = set(snapshot_ids)
    expired = tuple(number for number in others if number in wanted)
    deletions = [DeleteRows(table=name, where={"snapshot_id": expired}) for name in ("snapshot", "snapshot_changes")]
    apply_changes(PlainStatements(connection), database, deletions)
    found = _not_needed_by(connection, database.tables, info, expired)
    _forget(connection, database, found)
    # After the data files were deleted: a concurrent flush may have given one of them another delete file in the meantime.
    strays = _stray_delete_files(connection, database.tables, info)
    apply_changes(PlainStatements(connection), database, _deletions((), strays.ids("delete"), ()))
    found = found.with_files(strays)
    _schedule(connection, database, info, found.files)
    return expired, found


def _table_versions(tables: CatalogTables) -> Select[Any]:
    table, schema, named = tables["table"], tables["schema"], tables.schemas
    return (
        select(
            table.c.table_id,
            table.c.table_name,
            table.c.begin_snapshot,
            table.c.end_snapshot,
            table.c.path,
            table.c.path_is_relative,
            func.coalesce(named.c.schema_name, schema.c.schema_name).label("schema_name"),
            schema.c.path.label("schema_path"),
            schema.c.path_is_relative.label("schema_path_is_relative"),
        )
        .select_from(
            table.outerjoin(schema, schema.c.schema_id == table.c.schema_id).outerjoin(named, named.c.schema_id == table.c.schema_id)
        )
        .order_by(table.c.table_id, table.c.begin_snapshot)
    )


def _file_columns(tables: CatalogTables, name: str) -> Select[Any]:
    source = tables[name]
    keys = ("delete_file_id", "data_file_id") if name == "delete_file" else ("data_file_id",)
    columns = (*keys, "table_id", "begin_snapshot", "end_snapshot", "path", "path_is_relative", "file_size_bytes")
    return select(*(source.c[column] for column in columns)).order_by(source.c[keys[0]])


def _ended_files(tables: CatalogTables) -> Select[Any]:
    return _file_columns(tables, "data_file").where(tables["data_file"].c.end_snapshot.is_not(None))


def _ended_delete_files(tables: CatalogTables) -> Select[Any]:
    # A data file that ends as a whole leaves its delete file without an end.
    file, deletes = tables["data_file"], tables["delete_file"]
    ended = select(file.c.data_file_id).where(file.c.end_snapshot.is_not(None))
    return _file_columns(tables, "delete_file").where(or_(deletes.c.end_snapshot.is_not(None), deletes.c.data_file_id.in_(ended)))


def _ended(tables: CatalogTables, name: str, id_column: str) -> Select[Any]:
    source = tables[name]
    columns = (source.c[id_column].label("id"), source.c.begin_snapshot, source.c.end_snapshot)
    return select(*columns).where(source.c.end_snapshot.is_not(None)).distinct()


def _with_all_of(
    connection: Connection, tables: CatalogTables, name: str, rows: Sequence[Row[Any]], table_ids: Sequence[int]
) -> Sequence[Row[Any]]:
    """Return the rows together with the rows of all other files of some tables."""
    key = f"{name}_id"
    found = {getattr(row, key): row for row in rows}
    for condition in conditions_of(tables[name].c.table_id, table_ids):
        query = _file_columns(tables, name).where(condition)
        found.update((getattr(row, key), row) for row in complete_rows(connection, query, "files of dropped tables"))
    return [found[number] for number in sorted(found)]


class _Describer:
    """Convert rows of files to values with full paths and reasons."""

    def __init__(self, info: LakeInfo, versions: dict[int, Row[Any]], dead: set[int]) -> None:
        self._info = info
        self._versions = versions
        self._dead = dead

    def file(self, row: Row[Any], kind: FileKind, number: int) -> UnneededFile:
        table = self._versions.get(row.table_id)
        name = f"{table.schema_name}.{table.table_name}" if table is not None else f"table {row.table_id}"
        if row.table_id in self._dead:
            reason = "its table was dropped, and no snapshot shows the table any more"
        elif row.end_snapshot is None:
            reason = "its data file is needed by no snapshot"
        else:
            reason = f"only snapshots {row.begin_snapshot} to {row.end_snapshot - 1} read it, and all of them have expired"
        return UnneededFile(
            id=number,
            kind=kind,
            table_id=row.table_id,
            table=name,
            path=self._path(row, table),
            file_size_bytes=row.file_size_bytes or 0,
            reason=reason,
        )

    def _path(self, row: Row[Any], table: Row[Any] | None) -> str:
        base = self._info.data_path
        if table is not None:
            base = paths.join(base, table.schema_path, table.schema_path_is_relative is not False)
            base = paths.join(base, table.path, table.path_is_relative is not False)
        return paths.join(base, row.path, row.path_is_relative is not False)


def _forget(connection: Connection, database: Database, found: Unneeded) -> None:
    tables = database.tables
    data_files, delete_files = found.ids("data"), found.ids("delete")
    dead = tuple(table.id for table in found.tables)
    if dead or data_files:
        present = frozenset(inspect(connection).get_table_names(schema=tables.schema))
        _drop_inlined(connection, database, frozenset(dead), present)
        _forget_inlined_deletes(connection, tables, found, present)
    apply_changes(PlainStatements(connection), database, _deletions(data_files, delete_files, dead))
    for name, id_column in _VERSIONED.items():
        lifetimes = [{"b_id": i, "b_begin": b, "b_end": e} for kind, i, b, e in found.ended if kind == name]
        if lifetimes:
            source = tables[name]
            statement = delete(source).where(
                source.c[id_column] == bindparam("b_id"),
                source.c.begin_snapshot == bindparam("b_begin"),
                source.c.end_snapshot == bindparam("b_end"),
            )
            connection.execute(statement, lifetimes)
    _forget_orphans(connection, tables, found)
    if database.abilities.commits_at_ddl:
        drop_leftovers(connection, database)


def _deletions(data_files: tuple[int, ...], delete_files: tuple[int, ...], dead: tuple[int, ...]) -> Iterator[DeleteRows]:
    if data_files:
        yield from (DeleteRows(table=name, where={"data_file_id": data_files}) for name in _OF_DATA_FILES)
    if delete_files:
        yield DeleteRows(table="delete_file", where={"delete_file_id": delete_files})
    if dead:
        yield from (DeleteRows(table=name, where={"table_id": dead}) for name in _OF_DEAD_TABLES)


def _forget_orphans(connection: Connection, tables: CatalogTables, found: Unneeded) -> None:
    """Delete rows that belong to deleted macros and column mappings."""
    owners = [("macro_impl", "macro", "macro_id"), ("macro_parameters", "macro", "macro_id")] if found.ended else []
    owners += [("name_mapping", "column_mapping", "mapping_id")] if found.tables else []
    for part, owner, key in owners:
        # Without NULLs: NOT IN a list with NULL is never true, and nothing would be deleted.
        alive = select(tables[owner].c[key]).where(tables[owner].c[key].is_not(None))
        connection.execute(delete(tables[part]).where(tables[part].c[key].not_in(alive)))


def _forget_inlined_deletes(connection: Connection, tables: CatalogTables, found: Unneeded, present: AbstractSet[str]) -> None:
    """Delete the inlined deletes of removed data files, in tables that stay."""
    files: dict[int, list[int]] = defaultdict(list)
    for file in (*found.files, *found.shared):
        if file.kind == "data":
            files[file.table_id].append(file.id)
    for table_id in files.keys() - {table.id for table in found.tables}:
        if inlined_delete_name(table_id) in present:
            deletes = tables.inlined_delete(table_id)
            for condition in conditions_of(deletes.c.file_id, files[table_id]):
                connection.execute(delete(deletes).where(condition))


def _drop_inlined(connection: Connection, database: Database, dead: AbstractSet[int], present: AbstractSet[str]) -> None:
    tables = database.tables
    registered = tables["inlined_data_tables"]
    names: set[str] = {inlined_delete_name(table_id) for table_id in dead}
    for condition in conditions_of(registered.c.table_id, sorted(dead)):
        names.update(connection.execute(select(registered.c.table_name).where(condition)).scalars())
    # A flush unregisters superseded tables but does not drop them.
    names.update(name for name in present if (owner := inlined_owner(name)) is not None and owner in dead)
    for name in sorted(names & present):
        database.definitions.drop(connection, DropTable(tables.inlined_data(name), if_exists=database.abilities.commits_at_ddl))


def superseded_tables(connection: Connection, database: Database) -> list[str]:
    """Return the tables of inlined rows that flushes unregistered before the oldest surviving snapshot.

    A session of DuckDB that reads a snapshot from before such a flush queries the table, though it is empty, and fails without it. So does
    a transaction on a server that began before the flush.
    """
    tables = database.tables
    if database.abilities.concurrent_writers:
        oldest = connection.execute(select(func.min(tables["snapshot"].c.snapshot_time))).scalar()
        if oldest is None or has_older_transactions(connection, oldest):
            return []
    # Tables are listed before the registered names are read: in the other order, a table that a commit creates and registers in between
    # would look unregistered.
    present = inspect(connection).get_table_names(schema=tables.schema)
    registered = registered_names(connection, tables)
    left = {name: owner for name in present if name not in registered and (owner := inlined_owner(name)) is not None}
    flushed = _flushed_lately(connection, tables) if left else None
    return [] if flushed is None else sorted(name for name, owner in left.items() if owner not in flushed)


def drop_superseded(connection: Connection, database: Database, name: str) -> None:
    """Drop a table of :func:`superseded_tables` if it is empty, without waiting for transactions that use it.

    Raises:
        CatalogError: Another transaction uses the table.
    """
    table = database.tables.inlined_data(name)
    with tables_that_may_go():
        if database.abilities.concurrent_writers:
            # NOWAIT: a waiting exclusive lock would make all later readers of the table wait too.
            quoted = connection.dialect.identifier_preparer.format_table(table)
            connection.exec_driver_sql(f"LOCK TABLE {quoted} IN ACCESS EXCLUSIVE MODE NOWAIT")
        if not names_with_rows(connection, database.tables, [name]):
            database.definitions.drop(connection, DropTable(table, if_exists=True))


def _flushed_lately(connection: Connection, tables: CatalogTables) -> AbstractSet[int] | None:
    """Return the ids of tables with a flush after the oldest surviving snapshot that may have unregistered tables of inlined rows.

    Returns:
        None if such a flush of any table may be unknown: its snapshot has expired, or its changes cannot be read.
    """
    snapshot, changes = tables["snapshot"], tables["snapshot_changes"]
    query = select(snapshot.c.snapshot_id, snapshot.c.schema_version).order_by(snapshot.c.snapshot_id)
    # A flush that unregisters a table raises the schema version.
    moves = [
        (former.snapshot_id, later.snapshot_id)
        for former, later in pairwise(complete_rows(connection, query, "snapshots"))
        if former.schema_version != later.schema_version
    ]
    if any(later - former > 1 for former, later in moves):
        return None
    flushed: set[int] = set()
    for condition in conditions_of(changes.c.snapshot_id, [later for _, later in moves]):
        for (text,) in connection.execute(select(changes.c.changes_made).where(condition)):
            try:
                flushed.update(parse_changes(text).inline_flush)
            except CatalogCorruptError:
                return None
    return flushed


def _schedule(connection: Connection, database: Database, info: LakeInfo, files: Sequence[UnneededFile]) -> None:
    if not files:
        return
    now = database.now(connection)
    rows = []
    for file in files:
        path, is_relative = paths.relative_to(info.data_path, file.path)
        rows.append({"data_file_id": file.id, "path": path, "path_is_relative": is_relative, "schedule_start": now})
    connection.execute(insert(database.tables["files_scheduled_for_deletion"]), rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledFile:
    """One row of the schedule.

    Attributes:
        stored_path: Path as stored: relative to the data path, or absolute.
        path: Full path.
        scheduled: Time, in UTC, from which no snapshot needs it; the end of the calendar if the row has none, so that it never looks old.
    """

    stored_path: str
    is_relative: bool
    path: str
    scheduled: datetime


def scheduled_files(connection: Connection, tables: CatalogTables, info: LakeInfo) -> Iterator[ScheduledFile]:
    """Return the whole schedule, in no order.

    The caller compares the times: databases that store them as strings would compare them letter by letter.
    """
    schedule = tables["files_scheduled_for_deletion"]
    query = select(schedule.c.path, schedule.c.path_is_relative, schedule.c.schedule_start)
    for row in complete_rows(connection, query, "files that are scheduled for deletion"):
        is_relative = row.path_is_relative is not False
        yield ScheduledFile(
            stored_path=row.path,
            is_relative=is_relative,
            path=paths.join(info.data_path, row.path, is_relative),
            scheduled=row.schedule_start or END,
        )


def still_referenced(connection: Connection, tables: CatalogTables, info: LakeInfo, full_paths: Iterable[str]) -> set[str]:
    """Return the full paths that a row of data_file or delete_file names, ended or not, in any spelling of the protocol.

    Queries those paths only. Paths with ``..`` or doubled slashes are found by :func:`named_by_any_row`.

    Args:
        connection: A transaction.
        tables: The metadata tables.
        info: Settings of the lake.
        full_paths: Paths to find.
    """
    wanted = _by_key(full_paths)
    # A row stores a path relative to one of the directories above the file, or a full one, so every suffix of the path is a candidate.
    tails = sorted({tail for paths_of in wanted.values() for path in paths_of for tail in (*_tails(path), *spellings(path))})
    found: set[str] = set()
    for name in ("data_file", "delete_file"):
        query = _paths_query(tables, name)
        for chunk in chunks(tails):
            for row in complete_rows(connection, query.where(tables[name].c.path.in_(chunk)), _NAMES[name]):
                found.update(wanted.get(file_key(_full(info, row)), ()))
    return found


def named_by_any_row(
    connection: Connection,
    tables: CatalogTables,
    info: LakeInfo,
    full_paths: Iterable[str],
    *,
    identity: Callable[[str], object | None] = lambda _path: None,
) -> set[str]:
    """Return the full paths that any row names, in every spelling. Reads the names of all files; see :func:`still_referenced`.

    Args:
        connection: A transaction.
        tables: The metadata tables.
        info: Settings of the lake.
        full_paths: Paths to find.
        identity: Returns a value that is equal for all paths of one file, None when unknown. Links give a directory several paths, and
            some file systems ignore case. By default only spellings are compared.
    """
    wanted = _by_key(full_paths)
    names: dict[str, list[str]] = {}
    for paths_of in wanted.values():
        for path in paths_of:
            names.setdefault(paths.file_name(path).casefold(), []).append(path)
    found: set[str] = set()
    for name in ("data_file", "delete_file") if wanted else ():
        for row in complete_rows(connection, _paths_query(tables, name), _NAMES[name]):
            alike = names.get(_file_name(row.path, name).casefold())
            if alike is None:
                continue
            full = _full(info, row)
            same = wanted.get(file_key(full), ())
            found.update(same)
            others = [path for path in alike if path not in same]
            if others and (one := identity(full)) is not None:
                found.update(path for path in others if identity(path) == one)
    return found


def named_elsewhere(
    connection: Connection, tables: CatalogTables, info: LakeInfo, files: Mapping[str, Mapping[int, str]], *, after: int | None = None
) -> set[str]:
    """Return the full paths that another row of data_file or delete_file names too, ended or not: files that were added twice.

    Args:
        connection: A transaction.
        tables: The metadata tables.
        info: Settings of the lake.
        files: Full paths to check, by metadata table and id of the row that names them; these rows do not count.
        after: Snapshot id; rows that begin at it or before do not count either. None, the default, reads the names of all files.
    """
    wanted = _by_key(path for own in files.values() for path in own.values())
    # In two steps, because nearly all rows differ by file name already: full paths need joins with table and schema.
    names = {paths.file_name(path).casefold() for alike in wanted.values() for path in alike}
    found: set[str] = set()
    for name, own in files.items() if wanted else ():
        file = tables[name]
        number = file.c[f"{name}_id"]
        names_of = select(number, file.c.path) if after is None else select(number, file.c.path).where(file.c.begin_snapshot > after)
        rows = complete_rows(connection, names_of, _NAMES[name])
        others = (row for row in rows if row[0] not in own and isinstance(row.path, str))
        alike = [row[0] for row in others if paths.file_name(row.path).casefold() in names]
        for chunk in chunks(alike):
            for row in complete_rows(connection, _paths_query(tables, name).where(number.in_(chunk)), _NAMES[name]):
                found.update(wanted.get(file_key(_full(info, row)), ()))
    return found


def _by_key(full_paths: Iterable[str]) -> dict[str, list[str]]:
    wanted: dict[str, list[str]] = {}
    for path in full_paths:
        wanted.setdefault(file_key(path), []).append(path)
    return wanted


def _full(info: LakeInfo, row: Any) -> str:
    base = paths.join(info.data_path, row.schema_path, row.schema_path_is_relative is not False)
    base = paths.join(base, row.table_path, row.table_path_is_relative is not False)
    return paths.join(base, row.path, row.path_is_relative is not False)


def every_file(connection: Connection, tables: CatalogTables, info: LakeInfo) -> Iterator[tuple[str, int | None]]:
    """Yield full path and size in bytes of all data files and delete files, ended or not; a file that several rows name may repeat."""
    for name in ("data_file", "delete_file"):
        for row in complete_rows(connection, _paths_query(tables, name).add_columns(tables[name].c.file_size_bytes), _NAMES[name]):
            _file_name(row.path, name)
            yield _full(info, row), row.file_size_bytes


def every_file_name(connection: Connection, tables: CatalogTables) -> Iterator[str]:
    """Return the last part of every path in the catalog: data files and delete files, ended or not, and scheduled files."""
    for name, what in _NAMES.items():
        for (path,) in complete_rows(connection, select(tables[name].c.path), what):
            yield _file_name(path, name)
            # Paths of lakes on Windows, and paths with query parameters of the store.
            if "\\" in path or "?" in path:
                yield re.split(r"[/\\]", path.partition("?")[0])[-1]


def _file_name(path: object, name: str) -> str:
    if not isinstance(path, str):
        raise CatalogCorruptError(
            f"Nothing was expired or deleted, because the path {path!r} of a row of ducklake_{name} is invalid. Correct it, "
            "or restore it from a backup"
        )
    return paths.file_name(path)


def forget_scheduled(connection: Connection, tables: CatalogTables, files: Sequence[ScheduledFile]) -> None:
    """Delete every row of the schedule for these files."""
    schedule = tables["files_scheduled_for_deletion"]
    for is_relative in (True, False):
        stored = sorted({file.stored_path for file in files if file.is_relative == is_relative})
        flag = schedule.c.path_is_relative.is_(None) if is_relative else None
        matches = schedule.c.path_is_relative == is_relative
        for chunk in chunks(stored):
            connection.execute(delete(schedule).where(schedule.c.path.in_(chunk), matches if flag is None else matches | flag))


def _tails(path: str) -> Iterator[str]:
    """Return a path and all of its suffixes that begin after a slash.

    >>> list(_tails("s3://b/main/t/x.parquet"))
    ['s3://b/main/t/x.parquet', '/b/main/t/x.parquet', 'b/main/t/x.parquet', 'main/t/x.parquet', 't/x.parquet', 'x.parquet']
    """
    yield path
    yield from (path[position + 1 :] for position, letter in enumerate(path) if letter == "/")


def _paths_query(tables: CatalogTables, name: str) -> Select[Any]:
    file, table, schema = tables[name], tables["table"], tables["schema"]
    return (
        select(
            file.c.path,
            file.c.path_is_relative,
            table.c.path.label("table_path"),
            table.c.path_is_relative.label("table_path_is_relative"),
            schema.c.path.label("schema_path"),
            schema.c.path_is_relative.label("schema_path_is_relative"),
        )
        .select_from(file.outerjoin(table, table.c.table_id == file.c.table_id).outerjoin(schema, schema.c.schema_id == table.c.schema_id))
        .distinct()
    )
