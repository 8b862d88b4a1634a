"""Sizes of all tables of a lake: one query for files, one more for what the catalog itself holds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Row,
    Select,
    Subquery,
    and_,
    bindparam,
    case,
    func,
    inspect,
    literal,
    select,
    union_all,
)

from ducklake_core.catalog.database.tables import CatalogTables, inlined_delete_name
from ducklake_core.catalog.reading.visibility import live
from ducklake_core.format.state import InlinedCounts, TableListing

# SQLite allows 500 terms in a compound SELECT.
_TABLES_PER_STATEMENT = 200


def listing_query(tables: CatalogTables, snapshot_id: int, only: Collection[int] | None = None) -> Select[Any]:
    """One row for each table live at a snapshot, or for those with some ids: names and sums over its files."""
    table, schema, tag = tables["table"], tables.schemas, tables["tag"]
    data, deletes = _data_files(tables, snapshot_id, only), _delete_files(tables, snapshot_id, only)
    is_comment = and_(tag.c.object_id == table.c.table_id, tag.c.key == "comment", live(tag, snapshot_id))
    return (
        select(
            table.c.table_id,
            table.c.table_uuid,
            table.c.table_name,
            schema.c.schema_id,
            schema.c.schema_name,
            *(column for column in data.c if column.name != "table_id"),
            *(column for column in deletes.c if column.name != "table_id"),
            tag.c.value.label("comment"),
        )
        .select_from(
            table.join(schema, schema.c.schema_id == table.c.schema_id)
            .outerjoin(data, data.c.table_id == table.c.table_id)
            .outerjoin(deletes, deletes.c.table_id == table.c.table_id)
            .outerjoin(tag, is_comment)
        )
        .where(live(table, snapshot_id), live(schema, snapshot_id), *_among(table, only))
    )


def _among(source: FromClause, only: Collection[int] | None) -> Iterator[ColumnElement[bool]]:
    if only is not None:
        yield source.c.table_id.in_(bindparam(None, sorted(only), expanding=True, literal_execute=True))


def _data_files(tables: CatalogTables, snapshot_id: int, only: Collection[int] | None) -> Subquery:
    file = tables["data_file"]
    return (
        select(
            file.c.table_id,
            func.count().label("file_count"),
            func.sum(file.c.record_count).label("record_count"),
            func.sum(file.c.file_size_bytes).label("file_size_bytes"),
            func.sum(case((file.c.partial_max > snapshot_id, 1), else_=0)).label("partial_files"),
        )
        .where(live(file, snapshot_id), *_among(file, only))
        .group_by(file.c.table_id)
        .subquery("data")
    )


def _delete_files(tables: CatalogTables, snapshot_id: int, only: Collection[int] | None) -> Subquery:
    deletes, file = tables["delete_file"], tables["data_file"]
    # The delete file of a data file that ended as a whole stays live in the catalog: it must not count.
    return (
        select(
            deletes.c.table_id,
            func.count().label("delete_file_count"),
            func.sum(deletes.c.delete_count).label("delete_count"),
            func.sum(deletes.c.file_size_bytes).label("delete_file_size_bytes"),
            func.sum(case((deletes.c.partial_max > snapshot_id, 1), else_=0)).label("partial_delete_files"),
        )
        .join(file, file.c.data_file_id == deletes.c.data_file_id)
        .where(live(deletes, snapshot_id), live(file, snapshot_id), *_among(deletes, only))
        .group_by(deletes.c.table_id)
        .subquery("deletes")
    )


def table_listing(row: Row[Any]) -> TableListing:
    """The value of one row of :func:`listing_query`."""
    # Sums of BIGINT are numeric on PostgreSQL.
    return TableListing(
        id=row.table_id,
        uuid=row.table_uuid or "",
        name=row.table_name,
        schema_id=row.schema_id,
        schema_name=row.schema_name,
        record_count=int(row.record_count or 0),
        file_count=int(row.file_count or 0),
        file_size_bytes=int(row.file_size_bytes or 0),
        delete_file_count=int(row.delete_file_count or 0),
        delete_file_size_bytes=int(row.delete_file_size_bytes or 0),
        delete_count=int(row.delete_count or 0),
        is_exact=not (row.partial_files or row.partial_delete_files),
        comment=row.comment,
    )


def inlined_counts(connection: Connection, tables: CatalogTables, table_ids: Sequence[int], snapshot_id: int) -> dict[int, InlinedCounts]:
    """Visible inlined rows, and positions of live data files deleted through the catalog, of some tables."""
    wanted = set(table_ids)
    counts: dict[int, InlinedCounts] = {}
    queries = list(_count_queries(connection, tables, wanted, snapshot_id))
    for start in range(0, len(queries), _TABLES_PER_STATEMENT):
        for row in connection.execute(union_all(*queries[start : start + _TABLES_PER_STATEMENT])):
            before = counts.get(row.table_id, InlinedCounts())
            rows, deleted = (row.number, 0) if row.kind == "rows" else (0, row.number)
            counts[row.table_id] = InlinedCounts(row_count=before.row_count + rows, deleted_count=before.deleted_count + deleted)
    return {table_id: found for table_id, found in counts.items() if found != InlinedCounts()}


def _count_queries(connection: Connection, tables: CatalogTables, wanted: set[int], snapshot_id: int) -> Iterator[Select[Any]]:
    registered, file = tables["inlined_data_tables"], tables["data_file"]
    for row in connection.execute(select(registered.c.table_id, registered.c.table_name)).all():
        if row.table_id in wanted:
            source = tables.inlined_data(row.table_name)
            number = select(func.count()).select_from(source).where(live(source, snapshot_id)).scalar_subquery()
            yield select(literal("rows").label("kind"), literal(row.table_id).label("table_id"), number.label("number"))
    existing = set(inspect(connection).get_table_names(schema=tables.schema))
    for table_id in sorted(wanted):
        if inlined_delete_name(table_id) not in existing:
            continue
        source = tables.inlined_delete(table_id)
        positions = (
            select(source.c.file_id, source.c.row_id)
            .join(file, file.c.data_file_id == source.c.file_id)
            .where(source.c.begin_snapshot <= snapshot_id, live(file, snapshot_id))
            .distinct()
            .subquery()
        )
        number = select(func.count()).select_from(positions).scalar_subquery()
        yield select(literal("deletes").label("kind"), literal(table_id).label("table_id"), number.label("number"))
