"""What a whole lake weighs and what needs care, as sums: a fixed number of statements whatever the lake holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Row,
    Select,
    String,
    and_,
    case,
    cast,
    func,
    literal,
    or_,
    select,
)

from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.catalog.reading.inlined_tables import InlinedTables, inlined_tables, tables_that_may_go
from ducklake_core.catalog.reading.unions import all_of
from ducklake_core.catalog.reading.visibility import live

FILE_SIZE_BANDS = (1 << 20, 16 << 20, 128 << 20, 512 << 20)
"""Upper ends (excluded) in bytes of the bands that files are counted in; the last band has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeGauges:
    """Rows of the statements, by table id where they are of a table. ``lake`` has the counts of the lake as a whole, ``missing`` the
    names of tables of inlined rows that are registered and not there."""

    snapshot_id: int
    snapshot_count: int
    oldest_snapshot: datetime | None
    newest_snapshot: datetime | None
    tables: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    files: Mapping[int, Row[Any]] = field(default_factory=dict)
    delete_files: Mapping[int, Row[Any]] = field(default_factory=dict)
    inlined: Mapping[tuple[int, str], int] = field(default_factory=dict)
    lake: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    oldest_scheduled: datetime | None = None


def read_gauges(connection: Connection, tables: CatalogTables, small_file_bytes: int) -> LakeGauges | None:
    """All sums at the newest snapshot; None when the lake has no snapshot."""
    snapshot = tables["snapshot"]
    number = snapshot.c.snapshot_id
    ends = select(func.min(number).label("first"), func.max(number).label("last"), func.count().label("number")).subquery()
    found = select(snapshot, ends.c.number).join(ends, or_(number == ends.c.first, number == ends.c.last)).order_by(number)
    rows = connection.execute(found).all()
    if not rows:
        return None
    newest = rows[-1].snapshot_id
    names = connection.execute(_names(tables, newest)).all()
    known = {row.table_id for row in names}
    inlined = inlined_tables(connection, tables, known)
    scheduled = connection.execute(_scheduled(tables)).one()
    return LakeGauges(
        snapshot_id=newest,
        snapshot_count=rows[0].number,
        oldest_snapshot=rows[0].snapshot_time,
        newest_snapshot=rows[-1].snapshot_time,
        tables={row.table_id: (row.schema_name, row.table_name) for row in names if row.is_live},
        files={row.table_id: row for row in connection.execute(_files(tables, newest, small_file_bytes))},
        delete_files={row.table_id: row for row in connection.execute(_delete_files(tables, newest))},
        inlined=_inlined(connection, tables, inlined, newest),
        lake={
            "scheduled_files": scheduled.number,
            "scheduled_twice": scheduled.number - scheduled.distinct_number,
            "dropped_tables": len(known - {row.table_id for row in names if row.is_live}),
            "dead_inlined_tables": len(inlined.dead),
            **connection.execute(_orphans(tables)).one()._mapping,  # noqa: SLF001 - SQLAlchemy's documented name
            **connection.execute(_doubles(tables, newest)).one()._mapping,  # noqa: SLF001
        },
        missing=tuple(name for _, name in inlined.missing),
        oldest_scheduled=min((time for time in (scheduled.oldest, scheduled.oldest_iso) if time is not None), default=None),
    )


def _names(tables: CatalogTables, snapshot_id: int) -> Select[Any]:
    """Every table that the catalog knows, and whether the row is of one that is there now."""
    table, schema = tables["table"], tables.schemas
    source = table.outerjoin(schema, and_(schema.c.schema_id == table.c.schema_id, live(schema, snapshot_id)))
    is_live = case((and_(live(table, snapshot_id), schema.c.schema_id.is_not(None)), 1), else_=0)
    return select(table.c.table_id, table.c.table_name, schema.c.schema_name, is_live.label("is_live")).select_from(source)


def _files(tables: CatalogTables, snapshot_id: int, small_file_bytes: int) -> Select[Any]:
    file = tables["data_file"]
    size, is_live = file.c.file_size_bytes, live(file, snapshot_id)
    bands = []
    for place, (low, high) in enumerate(zip((None, *FILE_SIZE_BANDS), (*FILE_SIZE_BANDS, None), strict=True)):
        bounds = [is_live, *([size >= low] if low is not None else []), *([size < high] if high is not None else [])]
        bands.append(_count(and_(*bounds)).label(f"band_{place}"))
    return select(
        file.c.table_id,
        _count(is_live).label("file_count"),
        _sum(is_live, size).label("file_size_bytes"),
        _sum(is_live, file.c.record_count).label("record_count"),
        _count(and_(is_live, size < small_file_bytes)).label("small_file_count"),
        _sum(and_(is_live, size < small_file_bytes), size).label("small_file_bytes"),
        _count(~is_live).label("ended_file_count"),
        _sum(~is_live, size).label("ended_file_bytes"),
        *bands,
    ).group_by(file.c.table_id)


def _delete_files(tables: CatalogTables, snapshot_id: int) -> Select[Any]:
    deletes, file = tables["delete_file"], tables["data_file"]
    source = deletes.join(file, file.c.data_file_id == deletes.c.data_file_id)
    return (
        select(
            deletes.c.table_id,
            func.count().label("delete_file_count"),
            func.sum(deletes.c.file_size_bytes).label("delete_file_bytes"),
            func.sum(deletes.c.delete_count).label("deleted_row_count"),
        )
        .select_from(source)
        .where(live(deletes, snapshot_id), live(file, snapshot_id))
        .group_by(deletes.c.table_id)
    )


def _inlined(connection: Connection, tables: CatalogTables, there: InlinedTables, snapshot_id: int) -> dict[tuple[int, str], int]:
    """Numbers by table id and kind: ``rows`` that are visible, ``ended`` ones, ``deletes`` of rows of live files; one statement."""
    queries: list[Select[Any]] = []
    for table_id, name in there.data:
        source = tables.inlined_data(name)
        ended = source.c.end_snapshot <= snapshot_id
        queries.append(_number(table_id, "rows", source, live(source, snapshot_id)))
        queries.append(_number(table_id, "ended", source, ended))
    file = tables["data_file"]
    for table_id, _ in there.deletes:
        source = tables.inlined_delete(table_id)
        joined = source.join(file, file.c.data_file_id == source.c.file_id)
        queries.append(_number(table_id, "deletes", joined, and_(source.c.begin_snapshot <= snapshot_id, live(file, snapshot_id))))
    counts: dict[tuple[int, str], int] = {}
    with tables_that_may_go():
        for row in connection.execute(all_of(queries)) if queries else ():
            counts[row.table_id, row.kind] = counts.get((row.table_id, row.kind), 0) + row.number
    return counts


def _number(table_id: int, kind: str, source: FromClause, condition: ColumnElement[bool]) -> Select[Any]:
    columns: list[ColumnElement[Any]] = [literal(table_id).label("table_id"), literal(kind).label("kind"), func.count().label("number")]
    return select(*columns).select_from(source).where(condition)


def _scheduled(tables: CatalogTables) -> Select[Any]:
    """How many files, how many of them by distinct paths, and the earliest time, of texts of either form where times are text."""
    schedule = tables["files_scheduled_for_deletion"]
    time = schedule.c.schedule_start
    is_iso = cast(time, String).like("%T%")
    columns: list[ColumnElement[Any]] = [
        func.count().label("number"),
        func.count(schedule.c.path.distinct()).label("distinct_number"),
        func.min(case((~is_iso, time)), type_=time.type).label("oldest"),
        func.min(case((is_iso, time)), type_=time.type).label("oldest_iso"),
    ]
    return select(*columns).select_from(schedule)


def _orphans(tables: CatalogTables) -> Select[Any]:
    """Rows that belong to a file that the catalog does not know, and tables whose statistics outlived them."""
    file, table = tables["data_file"], tables["table"]

    def lost(name: str) -> Any:
        rows = tables[name]
        known = select(file.c.data_file_id).where(file.c.data_file_id == rows.c.data_file_id).exists()
        return select(func.count()).select_from(rows).where(~known).scalar_subquery()

    stats = tables["table_stats"]
    of_table = select(table.c.table_id).where(table.c.table_id == stats.c.table_id).exists()
    return select(
        lost("file_column_stats").label("orphaned_column_statistics"),
        lost("file_partition_value").label("orphaned_partition_values"),
        lost("delete_file").label("orphaned_delete_files"),
        select(func.count()).select_from(stats).where(~of_table).scalar_subquery().label("orphaned_table_statistics"),
    )


def _doubles(tables: CatalogTables, snapshot_id: int) -> Select[Any]:
    """What must not be there twice, and files whose partition values are not those of their partition keys."""
    file, deletes, table = tables["data_file"], tables["delete_file"], tables["table"]

    def surplus(source: FromClause, *keys: ColumnElement[Any]) -> Any:
        twice = (
            select((func.count() - 1).label("more")).where(live(source, snapshot_id)).group_by(*keys).having(func.count() > 1).subquery()
        )
        return select(func.coalesce(func.sum(twice.c.more), 0)).scalar_subquery()

    value, key = tables["file_partition_value"], tables["partition_column"]
    values = select(value.c.data_file_id, func.count().label("number")).group_by(value.c.data_file_id).subquery("found_values")
    keys = select(key.c.partition_id, func.count().label("number")).group_by(key.c.partition_id).subquery("wanted_values")
    source = file.outerjoin(values, values.c.data_file_id == file.c.data_file_id).outerjoin(
        keys, keys.c.partition_id == file.c.partition_id
    )
    odd = func.coalesce(values.c.number, 0) != func.coalesce(keys.c.number, 0)
    return select(
        surplus(file, file.c.table_id, file.c.path, file.c.path_is_relative).label("files_named_twice"),
        surplus(deletes, deletes.c.data_file_id).label("surplus_delete_files"),
        surplus(table, table.c.schema_id, func.lower(table.c.table_name)).label("tables_named_twice"),
        select(func.count()).select_from(source).where(live(file, snapshot_id), odd).scalar_subquery().label("odd_partition_values"),
    )


def _count(condition: ColumnElement[bool]) -> Any:
    return func.sum(case((condition, 1), else_=0))


def _sum(condition: ColumnElement[bool], value: ColumnElement[int]) -> Any:
    return func.coalesce(func.sum(case((condition, value), else_=0)), 0)
