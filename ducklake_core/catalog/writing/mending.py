"""Carries out the repairs of a check in one transaction, as a snapshot that changes no row of any table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, inspect, select, update
from sqlalchemy.schema import DropTable

from ducklake_core.catalog.changes import CatalogChange
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.statements import PlainStatements
from ducklake_core.catalog.database.tables import inlined_delete_name
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
        orphans: (metadata table, its owner, key): rows go whose owner is not there.
        record_counts: (table id, rows): the statistics of a table count at least so many.
        inlined: (name, table id) of tables to drop, unless the catalog knows the table by now.
        inlined_deletes: (table id, data file id): inlined deletes to forget, unless the table has the file by now.
        unscheduled: Stored paths to take out of the schedule, those that the catalog still names.
    """

    changes: tuple[CatalogChange, ...] = ()
    orphans: tuple[tuple[str, str, str], ...] = ()
    record_counts: tuple[tuple[int, int], ...] = ()
    inlined: tuple[tuple[str, int], ...] = ()
    inlined_deletes: tuple[tuple[int, int], ...] = ()
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


def mend(connection: Connection, database: Database, info: LakeInfo, mending: Mending, said: MendingSnapshot) -> int:
    """Change the catalog; another commit at the same time makes this transaction, or the other one, fail and try again.

    Returns:
        Id of the snapshot that holds the changes. Its counters tell other sessions to read statistics anew.
    """
    newest = CatalogReader(connection, info, database.tables).latest_snapshot()
    _insert_snapshot(connection, database, newest, said)
    tables = database.tables
    apply_changes(PlainStatements(connection, {}), database, mending.changes)
    for name, owner, key in mending.orphans:
        known = select(tables[owner].c[key]).where(tables[owner].c[key] == tables[name].c[key]).exists()
        connection.execute(delete(tables[name]).where(~known))
    stats = tables["table_stats"]
    for table_id, count in mending.record_counts:
        connection.execute(update(stats).where(stats.c.table_id == table_id, stats.c.record_count < count).values(record_count=count))
    _drop(connection, database, mending.inlined)
    _forget_inlined_deletes(connection, database, mending.inlined_deletes)
    _unschedule(connection, database, info, mending.unscheduled)
    return newest.id + 1


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


def _drop(connection: Connection, database: Database, inlined: Sequence[tuple[str, int]]) -> None:
    if not inlined:
        return
    tables = database.tables
    known = set(connection.execute(select(tables["table"].c.table_id)).scalars())
    there = set(inspect(connection).get_table_names(schema=tables.schema))
    registered = tables["inlined_data_tables"]
    for name, table_id in inlined:
        if table_id not in known and name in there:
            connection.execute(delete(registered).where(registered.c.table_name == name))
            if not database.abilities.commits_at_ddl:
                connection.execute(DropTable(tables.inlined_data(name)))
    if database.abilities.commits_at_ddl:
        drop_leftovers(connection, database)


def _forget_inlined_deletes(connection: Connection, database: Database, forgotten: Sequence[tuple[int, int]]) -> None:
    files = database.tables["data_file"]
    numbers: dict[int, list[int]] = defaultdict(list)
    for table_id, number in forgotten:
        numbers[table_id].append(number)
    there = set(inspect(connection).get_table_names(schema=database.tables.schema)) if forgotten else set()
    for table_id, found in numbers.items():
        if inlined_delete_name(table_id) not in there:
            continue
        deletes = database.tables.inlined_delete(table_id)
        has_file = select(files.c.data_file_id).where(files.c.data_file_id == deletes.c.file_id, files.c.table_id == table_id).exists()
        for condition in conditions_of(deletes.c.file_id, found):
            connection.execute(delete(deletes).where(condition, ~has_file))


def _unschedule(connection: Connection, database: Database, info: LakeInfo, stored: frozenset[str]) -> None:
    found = [file for file in scheduled_files(connection, database.tables, info) if file.stored_path in stored] if stored else []
    named = named_by_any_row(connection, database.tables, info, [file.path for file in found])
    kept = [file for file in found if file.path in named]
    if kept:
        forget_scheduled(connection, database.tables, kept)
