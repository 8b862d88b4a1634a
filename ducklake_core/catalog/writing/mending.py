"""Carries out the repairs of a check in one transaction, as a snapshot that changes no row of any table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, inspect, or_, select, update
from sqlalchemy.schema import DropTable

from ducklake_core.catalog.changes import CatalogChange
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.statements import PlainStatements
from ducklake_core.catalog.database.tables import inlined_delete_name, is_inlined_table
from ducklake_core.catalog.reading.inlined_tables import known_tables
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.writing.head import conditions_of
from ducklake_core.catalog.writing.leftovers import drop_leftovers
from ducklake_core.catalog.writing.scheduled import forget_scheduled, named_by_any_row, scheduled_files
from ducklake_core.catalog.writing.writer import apply_changes
from ducklake_core.format.state import LakeInfo, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Mending:
    """What is to be changed.

    Attributes:
        changes: Rows to change as they are.
        orphans: (metadata table, its owner, key): rows go whose owner is not there; of a table neither its row nor a column.
        record_counts: (table id, rows): the statistics of a table count at least so many.
        inlined: (name, table id) of tables to drop, unless the catalog knows the table by now.
        inlined_deletes: (table id, data file id): inlined deletes to forget, unless a table has the file by now.
        unscheduled: Stored paths to take out of the schedule, those that the catalog still names.
    """

    changes: tuple[CatalogChange, ...] = ()
    orphans: tuple[tuple[str, str, str], ...] = ()
    record_counts: tuple[tuple[int, int], ...] = ()
    inlined: tuple[tuple[str, int], ...] = ()
    inlined_deletes: tuple[tuple[int, int], ...] = ()
    unscheduled: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What is as it was after all, since the catalog needs it by now.

    Attributes:
        inlined: Names of tables that were not dropped.
        inlined_deletes: (table id, data file id) of inlined deletes that stay.
        unscheduled: Stored paths that the schedule has as before, or had no more.
    """

    inlined: frozenset[str] = frozenset()
    inlined_deletes: frozenset[tuple[int, int]] = frozenset()
    unscheduled: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class MendingSnapshot:
    """What is said about the snapshot of a repair: who made it, why, and further text as it is stored."""

    author: str | None
    message: str
    extra_info: str | None


def newest_snapshot_id(connection: Connection, database: Database, info: LakeInfo) -> int:
    """Id of the newest snapshot."""
    return CatalogReader(connection, info, database.tables).latest_snapshot().id


def mend(connection: Connection, database: Database, info: LakeInfo, mending: Mending, said: MendingSnapshot) -> tuple[int, Left]:
    """Change the catalog; another commit at the same time makes this transaction, or the other one, fail and try again.

    Returns:
        Id of the snapshot that holds the changes, whose counters tell other sessions to read statistics anew; and what was left alone.
    """
    newest = CatalogReader(connection, info, database.tables).latest_snapshot()
    _insert_snapshot(connection, database, newest, said)
    tables = database.tables
    apply_changes(PlainStatements(connection, {}), database, mending.changes)
    for name, owner, key in mending.orphans:
        owners = (owner, "column") if owner == "table" else (owner,)
        known = (select(tables[one].c[key]).where(tables[one].c[key] == tables[name].c[key]).exists() for one in owners)
        connection.execute(delete(tables[name]).where(~or_(*known)))
    stats = tables["table_stats"]
    for table_id, count in mending.record_counts:
        connection.execute(update(stats).where(stats.c.table_id == table_id, stats.c.record_count < count).values(record_count=count))
    left = Left(
        inlined=_drop(connection, database, mending.inlined),
        inlined_deletes=_forget_inlined_deletes(connection, database, mending.inlined_deletes),
        unscheduled=_unschedule(connection, database, info, mending.unscheduled),
    )
    return newest.id + 1, left


def inlined_tables_there(connection: Connection, database: Database) -> frozenset[str]:
    """Names of all tables of inlined rows and deletes that the database has."""
    return frozenset(name for name in inspect(connection).get_table_names(schema=database.tables.schema) if is_inlined_table(name))


def _insert_snapshot(connection: Connection, database: Database, newest: Snapshot, said: MendingSnapshot) -> None:
    row = {
        "snapshot_id": newest.id + 1,
        "snapshot_time": database.now(connection),
        "schema_version": newest.schema_version,
        "next_catalog_id": newest.next_catalog_id,
        # Sessions of DuckDB keep statistics by this number.
        "next_file_id": newest.next_file_id + 1,
    }
    connection.execute(insert(database.tables["snapshot"]), [row])
    changes = {
        "snapshot_id": newest.id + 1,
        "changes_made": "",
        "author": said.author,
        "commit_message": said.message,
        "commit_extra_info": said.extra_info,
    }
    connection.execute(insert(database.tables["snapshot_changes"]), [changes])


def _drop(connection: Connection, database: Database, inlined: Sequence[tuple[str, int]]) -> frozenset[str]:
    """Drop them; the names of those that stay. On MySQL they are dropped after the COMMIT."""
    if not inlined:
        return frozenset()
    tables = database.tables
    known = known_tables(connection, tables)
    there = inlined_tables_there(connection, database)
    registered = tables["inlined_data_tables"]
    for name, table_id in inlined:
        if table_id not in known and name in there:
            connection.execute(delete(registered).where(registered.c.table_name == name))
            if not database.abilities.commits_at_ddl:
                connection.execute(DropTable(tables.inlined_data(name)))
    if database.abilities.commits_at_ddl:
        drop_leftovers(connection, database)
    return frozenset(name for name, table_id in inlined if table_id in known)


def _forget_inlined_deletes(connection: Connection, database: Database, forgotten: Sequence[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """Delete them; those that stay, as a table has the file by now."""
    if not forgotten:
        return frozenset()
    files, there = database.tables["data_file"], inlined_tables_there(connection, database)
    numbers: dict[int, list[int]] = defaultdict(list)
    for table_id, number in forgotten:
        numbers[table_id].append(number)
    found: set[int] = set()
    for condition in conditions_of(files.c.data_file_id, sorted({number for _, number in forgotten})):
        found.update(connection.execute(select(files.c.data_file_id).where(condition)).scalars())
    for table_id, lost in numbers.items():
        if inlined_delete_name(table_id) in there:
            deletes = database.tables.inlined_delete(table_id)
            for condition in conditions_of(deletes.c.file_id, sorted({*lost} - found)):
                connection.execute(delete(deletes).where(condition))
    return frozenset(one for one in forgotten if one[1] in found)


def _unschedule(connection: Connection, database: Database, info: LakeInfo, stored: frozenset[str]) -> frozenset[str]:
    """Take them out of the schedule; those that are not taken out: nothing names them any more, or the schedule does not."""
    found = [file for file in scheduled_files(connection, database.tables, info) if file.stored_path in stored] if stored else []
    named = named_by_any_row(connection, database.tables, info, [file.path for file in found])
    needed = [file for file in found if file.path in named]
    if needed:
        forget_scheduled(connection, database.tables, needed)
    return stored - {file.stored_path for file in needed}
