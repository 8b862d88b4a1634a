"""Which definitions changed between two snapshots, and which tables a name stood for before."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import or_, select, union

from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.reading.visibility import may_be_named, same_name

# What belongs to a table, with the column that holds its id.
_OF_TABLES = {
    "table": "table_id",
    "column": "table_id",
    "partition_info": "table_id",
    "sort_info": "table_id",
    "column_tag": "table_id",
    "tag": "object_id",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerTable:
    """A table that is no longer there, and its last snapshots: from ``begin`` to before ``end``, of which ``last`` is the newest that was
    not expired, None when they all were."""

    id: int
    begin: int
    end: int
    last: int | None


def changed_definitions(reader: CatalogReader, after: int) -> set[int]:
    """Ids of tables, and of whatever else has tags, of which any row of the definition began or ended after a snapshot: one statement."""
    queries = []
    for name, column in _OF_TABLES.items():
        source = reader.catalog[name]
        queries.append(select(source.c[column].label("id")).where(or_(source.c.begin_snapshot > after, source.c.end_snapshot > after)))
    return set(reader.connection.execute(union(*queries)).scalars())


def former_tables(reader: CatalogReader, schema: str, name: str, snapshot_id: int) -> list[FormerTable]:
    """Tables that had a name when they were dropped, and are not there at a snapshot, the one that was dropped last first."""
    table, owner = reader.catalog["table"], reader.catalog.schemas
    query = (
        select(table.c.table_id, table.c.table_name, table.c.begin_snapshot, table.c.end_snapshot, owner.c.schema_name)
        .select_from(table.join(owner, owner.c.schema_id == table.c.schema_id))
        .where(table.c.end_snapshot.is_not(None), may_be_named(table.c.table_name, name))
        .order_by(table.c.end_snapshot.desc(), table.c.begin_snapshot.desc())
    )
    rows = [row for row in reader.connection.execute(query) if same_name(row.table_name, name) and same_name(row.schema_name, schema)]
    ids = {row.table_id for row in rows}
    versions = (
        reader.connection.execute(select(table.c.table_id, table.c.end_snapshot).where(table.c.table_id.in_(ids))).all() if ids else []
    )
    # A table that was renamed away is not dropped, or was dropped by its other name.
    last = {number: [row.end_snapshot for row in versions if row.table_id == number] for number in ids}
    dropped = [row for row in dict.fromkeys(rows) if None not in last[row.table_id] and row.end_snapshot == max(last[row.table_id])]
    kept = [snapshot.id for snapshot in reader.snapshots(until=snapshot_id)] if dropped else []
    return [
        FormerTable(
            id=row.table_id,
            begin=row.begin_snapshot,
            end=row.end_snapshot,
            last=max((number for number in kept if row.begin_snapshot <= number < row.end_snapshot), default=None),
        )
        for row in dropped
    ]
