"""Carry out repairs of an integrity check in one transaction, as a snapshot that changes no row of any table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, case, delete, insert, inspect, or_, select, update
from sqlalchemy.schema import DropTable

from ducklake_core.catalog.changes import CatalogChange
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.statements import PlainStatements
from ducklake_core.catalog.database.tables import CatalogTables, inlined_delete_name, is_inlined_table
from ducklake_core.catalog.reading.integrity_scan import known_tables
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.writing.expiry import forget_scheduled, named_by_any_row, scheduled_files
from ducklake_core.catalog.writing.head import conditions_of
from ducklake_core.catalog.writing.writer import apply_changes, drop_leftovers
from ducklake_core.format.changes import Changes, encode_changes
from ducklake_core.format.state import LakeInfo, Snapshot
from ducklake_core.format.types.names import folded


@dataclass(frozen=True, slots=True, kw_only=True)
class ReopenedSchema:
    """A dropped schema to restore, as if it had never been dropped.

    Attributes:
        ended: The snapshot that dropped it.
        name: Its name; ``path`` is that name below its parents, as changes of a snapshot spell it.
        parent: Id of the schema that contains it, None for a schema at the top.
    """

    schema_id: int
    parent: int | None
    ended: int
    name: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Repairs:
    """The repairs to carry out. Each condition is checked again in the transaction, because the check that found them ran earlier.

    Attributes:
        changes: Changes of catalog rows to apply without a further check.
        orphans: (metadata table, its owner, key): delete rows whose owner is missing; a table is missing without a row and a column.
        record_counts: (table id, rows): raise the row count in the statistics of a table to at least this number.
        inlined: (name, table id): drop tables of inlined rows, unless the catalog knows the table by now.
        inlined_deletes: (table id, data file id): remove inlined deletes, unless the data file exists by now.
        unscheduled: Stored paths to remove from the schedule, if the catalog still names them.
        schemas: Dropped schemas to restore, unless another schema has the name by now.
        ended: (metadata table, table id, snapshot): live rows of a dropped table to end at the snapshot that dropped it.
    """

    changes: tuple[CatalogChange, ...] = ()
    orphans: tuple[tuple[str, str, str], ...] = ()
    record_counts: tuple[tuple[int, int], ...] = ()
    inlined: tuple[tuple[str, int], ...] = ()
    inlined_deletes: tuple[tuple[int, int], ...] = ()
    unscheduled: frozenset[str] = frozenset()
    schemas: tuple[ReopenedSchema, ...] = ()
    ended: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The repairs that were not made, because a concurrent change made them unnecessary or wrong.

    Attributes:
        inlined: Names of tables that were not dropped.
        inlined_deletes: (table id, data file id) of inlined deletes that were not removed.
        unscheduled: Stored paths that were not removed from the schedule, or were missing in it.
        schemas: Ids of dropped schemas that were not restored.
    """

    inlined: frozenset[str] = frozenset()
    inlined_deletes: frozenset[tuple[int, int]] = frozenset()
    unscheduled: frozenset[str] = frozenset()
    schemas: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairSnapshot:
    """Author, message and stored extra information of the snapshot of a repair."""

    author: str | None
    message: str
    extra_info: str | None


def newest_snapshot_id(connection: Connection, database: Database, info: LakeInfo) -> int:
    """Return the id of the newest snapshot."""
    return CatalogReader(connection, info, database.tables).latest_snapshot().id


def apply_repairs(
    connection: Connection, database: Database, info: LakeInfo, repairs: Repairs, snapshot: RepairSnapshot
) -> tuple[int, Left]:
    """Repair the catalog as a new snapshot, so that of two concurrent commits one fails and tries again.

    Args:
        connection: A write transaction.
        database: The catalog.
        info: Settings of the lake.
        repairs: The repairs.
        snapshot: Author and message of the snapshot.

    Returns:
        Id of the snapshot, whose counters make sessions of DuckDB read statistics again; and the repairs that were not made.
    """
    newest = CatalogReader(connection, info, database.tables).latest_snapshot()
    tables = database.tables
    reopened = _reopen(connection, tables, repairs.schemas)
    _insert_snapshot(connection, database, newest, snapshot, reopened)
    apply_changes(PlainStatements(connection), database, repairs.changes)
    for name, owner, key in repairs.orphans:
        owners = (owner, "column") if owner == "table" else (owner,)
        known = (select(tables[one].c[key]).where(tables[one].c[key] == tables[name].c[key]).exists() for one in owners)
        connection.execute(delete(tables[name]).where(~or_(*known)))
    stats = tables["table_stats"]
    for table_id, count in repairs.record_counts:
        connection.execute(update(stats).where(stats.c.table_id == table_id, stats.c.record_count < count).values(record_count=count))
    _end(connection, tables, repairs.ended)
    left = Left(
        inlined=_drop(connection, database, repairs.inlined),
        inlined_deletes=_forget_inlined_deletes(connection, database, repairs.inlined_deletes),
        unscheduled=_unschedule(connection, database, info, repairs.unscheduled),
        schemas=frozenset(schema.schema_id for schema in repairs.schemas if schema not in reopened),
    )
    return newest.id + 1, left


def inlined_tables_there(connection: Connection, database: Database) -> frozenset[str]:
    """Return the names of all tables of inlined rows and deletes in the database."""
    return frozenset(name for name in inspect(connection).get_table_names(schema=database.tables.schema) if is_inlined_table(name))


def _reopen(connection: Connection, tables: CatalogTables, schemas: Sequence[ReopenedSchema]) -> list[ReopenedSchema]:
    """Restore schemas and return those that were: the others were restored already, or a new schema has their name."""
    if not schemas:
        return []
    schema, reopened = tables["schema"], []
    parent = tables.optional("schema", "parent_schema_id").label("parent")
    live = select(parent, schema.c.schema_name).where(schema.c.end_snapshot.is_(None))
    taken = {(row.parent, folded(row.schema_name)) for row in connection.execute(live)}
    for one in schemas:
        if (one.parent, folded(one.name)) not in taken:
            row = update(schema).where(schema.c.schema_id == one.schema_id, schema.c.end_snapshot == one.ended)
            if connection.execute(row.values(end_snapshot=None, schema_name=one.name)).rowcount:
                reopened.append(one)
                taken.add((one.parent, folded(one.name)))
    return reopened


def _end(connection: Connection, tables: CatalogTables, ended: Sequence[tuple[str, int, int]]) -> None:
    """End live rows of dropped tables. A row that begins after its table ended ends where it begins, so that no snapshot shows it."""
    table = tables["table"]
    for name, table_id, end in ended:
        rows = tables[name]
        is_there = select(table.c.table_id).where(table.c.table_id == table_id, table.c.end_snapshot.is_(None)).exists()
        last = case((rows.c.begin_snapshot > end, rows.c.begin_snapshot), else_=end)
        connection.execute(
            update(rows).where(rows.c.table_id == table_id, rows.c.end_snapshot.is_(None), ~is_there).values(end_snapshot=last)
        )


def _insert_snapshot(
    connection: Connection, database: Database, newest: Snapshot, snapshot: RepairSnapshot, reopened: Sequence[ReopenedSchema]
) -> None:
    row = {
        "snapshot_id": newest.id + 1,
        "snapshot_time": database.now(connection),
        "schema_version": newest.schema_version + bool(reopened),
        "next_catalog_id": newest.next_catalog_id,
        # Sessions of DuckDB cache statistics by this number.
        "next_file_id": newest.next_file_id + 1,
    }
    connection.execute(insert(database.tables["snapshot"]), [row])
    changes = {
        "snapshot_id": newest.id + 1,
        "changes_made": encode_changes(Changes(created_schema=tuple(schema.path for schema in reopened))),
        "author": snapshot.author,
        "commit_message": snapshot.message,
        "commit_extra_info": snapshot.extra_info,
    }
    connection.execute(insert(database.tables["snapshot_changes"]), [changes])


def _drop(connection: Connection, database: Database, inlined: Sequence[tuple[str, int]]) -> frozenset[str]:
    """Drop tables of inlined rows and return the names of those that stay. On MySQL the drop follows the COMMIT."""
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
    """Remove inlined deletes and return those that stay, because the data file exists by now."""
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
    """Remove paths from the schedule and return those that were not removed: no row names them, or the schedule lacks them."""
    found = [file for file in scheduled_files(connection, database.tables, info) if file.stored_path in stored] if stored else []
    named = named_by_any_row(connection, database.tables, info, [file.path for file in found])
    needed = [file for file in found if file.path in named]
    if needed:
        forget_scheduled(connection, database.tables, needed)
    return stored - {file.stored_path for file in needed}
