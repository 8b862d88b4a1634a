"""Sizes of all tables of a lake: one query for files, one more for what the catalog itself holds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Dialect,
    FromClause,
    Select,
    Subquery,
    UnaryExpression,
    and_,
    case,
    func,
    inspect,
    or_,
    select,
    text,
)
from sqlalchemy.sql import operators

from ducklake_core.catalog.database.existing import existing_query
from ducklake_core.catalog.database.tables import PREFIX, CatalogTables, inlined_delete_name
from ducklake_core.catalog.reading.listed_ids import among
from ducklake_core.catalog.reading.visibility import live
from ducklake_core.format.state import InlinedCounts, TableListing

# SQLite allows 500 terms in a compound SELECT.
_TABLES_PER_STATEMENT = 200
_FEW = 1
"""Up to so many tables the database is asked for each; for more, it lists all that it has."""


def listing_query(tables: CatalogTables, dialect: Dialect, snapshot_id: int, only: Collection[int] | None = None) -> Select[Any]:
    """One row for each table live at a snapshot, or for those with some ids: names and sums over its files."""
    table, schema, tag = tables["table"], tables.schemas, tables["tag"]
    data, deletes = _data_files(tables, dialect, snapshot_id, only), _delete_files(tables, snapshot_id, only)
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
        yield among(source.c.table_id, only)


def _data_files(tables: CatalogTables, dialect: Dialect, snapshot_id: int, only: Collection[int] | None) -> Subquery:
    file = tables["data_file"]
    group: ColumnElement[int] = file.c.table_id
    if only is None and dialect.name == "sqlite":
        # An index of files by table would have SQLite look up the row of each file by itself, which takes longer than sorting.
        group = UnaryExpression(group, operator=operators.custom_op("+"))
    return (
        select(
            file.c.table_id,
            func.count().label("file_count"),
            func.sum(file.c.record_count).label("record_count"),
            func.sum(file.c.file_size_bytes).label("file_size_bytes"),
            func.sum(case((file.c.partial_max > snapshot_id, 1), else_=0)).label("partial_files"),
        )
        .where(live(file, snapshot_id), *_among(file, only))
        .group_by(group)
        .subquery("data")
    )


def _delete_files(tables: CatalogTables, snapshot_id: int, only: Collection[int] | None) -> Subquery:
    deletes, file, snapshot = tables["delete_file"], tables["data_file"], tables["snapshot"]
    # A file that a later commit wrote may hold deletes of that commit, whatever snapshot it claims for them (committed_at).
    next_file_id = select(snapshot.c.next_file_id).where(snapshot.c.snapshot_id == snapshot_id).scalar_subquery()
    is_later = and_(deletes.c.partial_max.is_not(None), deletes.c.delete_file_id >= next_file_id)
    # The delete file of a data file that ended as a whole stays live in the catalog: it must not count.
    return (
        select(
            deletes.c.table_id,
            func.count().label("delete_file_count"),
            func.sum(deletes.c.delete_count).label("delete_count"),
            func.sum(deletes.c.file_size_bytes).label("delete_file_size_bytes"),
            func.sum(case((or_(deletes.c.partial_max > snapshot_id, is_later), 1), else_=0)).label("partial_delete_files"),
        )
        .join(file, file.c.data_file_id == deletes.c.data_file_id)
        .where(live(deletes, snapshot_id), live(file, snapshot_id), *_among(deletes, only))
        .group_by(deletes.c.table_id)
        .subquery("deletes")
    )


def table_listings(rows: Iterable[Any]) -> Iterator[TableListing]:
    """The values of rows of :func:`listing_query`; looking up each cell by its name would take as long as all the rest."""
    for row in rows:
        table_id, uuid, name, schema_id, schema_name, *sums, comment = row
        file_count, record_count, file_size_bytes, partial_files, *of_deletes = sums
        delete_file_count, delete_count, delete_file_size_bytes, partial_delete_files = of_deletes
        # Sums of BIGINT are numeric on PostgreSQL.
        yield TableListing(
            id=table_id,
            uuid=uuid or "",
            name=name,
            schema_id=schema_id,
            schema_name=schema_name,
            record_count=int(record_count or 0),
            file_count=int(file_count or 0),
            file_size_bytes=int(file_size_bytes or 0),
            delete_file_count=int(delete_file_count or 0),
            delete_file_size_bytes=int(delete_file_size_bytes or 0),
            delete_count=int(delete_count or 0),
            is_exact=not (partial_files or partial_delete_files),
            comment=comment,
        )


def inlined_counts(
    connection: Connection, tables: CatalogTables, table_ids: Sequence[int], snapshot_id: int, *, with_deletes: bool = True
) -> dict[int, InlinedCounts]:
    """Visible inlined rows, and positions of live data files deleted through the catalog, of some tables."""
    wanted = set(table_ids)
    counts: dict[int, InlinedCounts] = {}
    queries = list(_count_texts(connection, tables, wanted, snapshot_id, with_deletes=with_deletes))
    for start in range(0, len(queries), _TABLES_PER_STATEMENT):
        # A colon in the name of a schema or table is no parameter.
        together = " UNION ALL ".join(queries[start : start + _TABLES_PER_STATEMENT]).replace(":", r"\:")
        for row in connection.execute(text(together)):
            before = counts.get(row.table_id, InlinedCounts())
            rows, deleted = (0, row.number) if row.is_deletes else (row.number, 0)
            counts[row.table_id] = InlinedCounts(row_count=before.row_count + rows, deleted_count=before.deleted_count + deleted)
    return {table_id: found for table_id, found in counts.items() if found != InlinedCounts()}


def _count_texts(connection: Connection, tables: CatalogTables, wanted: set[int], snapshot_id: int, *, with_deletes: bool) -> Iterator[str]:
    """A statement for each table of inlined rows or deletes: as text, as a thousand selects of SQLAlchemy take a second to compile."""
    quote = connection.dialect.identifier_preparer
    prefix = f"{quote.quote_schema(tables.schema)}." if tables.schema else ""
    at, names = int(snapshot_id), tables.inlined
    for table_id, name in _registered(connection, tables, wanted):
        source = prefix + quote.quote(tables.inlined_data(name).name)
        is_live = f"{names.begin_snapshot} <= {at} AND ({names.end_snapshot} IS NULL OR {names.end_snapshot} > {at})"
        yield f"SELECT 0 AS is_deletes, {table_id} AS table_id, (SELECT count(*) FROM {source} WHERE {is_live}) AS number"  # noqa: S608
    file = prefix + quote.quote(f"{PREFIX}data_file")
    is_live = f"f.begin_snapshot <= {at} AND (f.end_snapshot IS NULL OR f.end_snapshot > {at})"
    for table_id in _with_inlined_deletes(connection, tables, wanted) if with_deletes else ():
        source = prefix + quote.quote(inlined_delete_name(table_id))
        positions = (
            f"SELECT DISTINCT d.file_id, d.row_id FROM {source} d JOIN {file} f ON f.data_file_id = d.file_id "  # noqa: S608
            f"WHERE d.begin_snapshot <= {at} AND {is_live}"
        )
        yield f"SELECT 1 AS is_deletes, {table_id} AS table_id, (SELECT count(*) FROM ({positions}) p) AS number"  # noqa: S608


def _registered(connection: Connection, tables: CatalogTables, wanted: set[int]) -> list[tuple[int, str]]:
    registered = tables["inlined_data_tables"]
    query = select(registered.c.table_id, registered.c.table_name)
    if len(wanted) <= _FEW:
        query = query.where(registered.c.table_id.in_(wanted))
    return [(int(row.table_id), row.table_name) for row in connection.execute(query) if row.table_id in wanted]


def _with_inlined_deletes(connection: Connection, tables: CatalogTables, wanted: set[int]) -> list[int]:
    if len(wanted) <= _FEW:
        query = existing_query(tables, connection.dialect)
        return [number for number in sorted(wanted) if connection.execute(query, {"name": inlined_delete_name(number)}).first() is not None]
    existing = set(inspect(connection).get_table_names(schema=tables.schema))
    return [number for number in sorted(wanted) if inlined_delete_name(number) in existing]
