"""What a whole lake weighs and what needs care, as sums: a fixed number of statements whatever the lake holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Row,
    RowMapping,
    Select,
    String,
    and_,
    case,
    cast,
    func,
    inspect,
    literal,
    or_,
    select,
    union_all,
)

from ducklake_core.catalog.database.abilities import abilities_of
from ducklake_core.catalog.database.tables import CatalogTables, inlined_deletes_owner, inlined_owner, may_be_in_the_making
from ducklake_core.catalog.reading.visibility import live

# SQLite allows 500 terms in a compound SELECT, but terms may be compound themselves.
TERMS = 200
"""Statements that one UNION ALL joins."""
FILE_SIZE_BANDS = (1 << 20, 16 << 20, 128 << 20, 512 << 20)
"""Upper ends (excluded) in bytes of the bands that files are counted in; the last band has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InlinedTables:
    """Tables of inlined rows and deletes as the database has them.

    Attributes:
        data: (table id, name) of those with rows that are registered and there, for the table that their name is of.
        deletes: (table id, name) of those with deletes of tables that the catalog knows.
        missing: (table id, name) of those that are registered and not there.
        dead: (table id, name) of those with rows that are there and not registered, or of tables that the catalog does not know.
            Empty ones of known tables are what a flush leaves to sessions that have seen them; and where tables are seen before the COMMIT
            (MySQL), those that a commit may be making are not told.
    """

    data: tuple[tuple[int, str], ...] = ()
    deletes: tuple[tuple[int, str], ...] = ()
    missing: tuple[tuple[int, str], ...] = ()
    dead: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeGauges:
    """Rows of the statements, by table id where they are of a table. ``lake`` has the counts of the lake as a whole."""

    snapshot_id: int
    snapshot_count: int
    oldest_snapshot: datetime | None
    newest_snapshot: datetime | None
    tables: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    files: Mapping[int, Row[Any]] = field(default_factory=dict)
    delete_files: Mapping[int, Row[Any]] = field(default_factory=dict)
    inlined: Mapping[tuple[int, str], int] = field(default_factory=dict)
    lake: Mapping[str, int] = field(default_factory=dict)
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
            "missing_inlined_tables": len(inlined.missing),
            "dead_inlined_tables": len(inlined.dead),
            **connection.execute(_orphans(tables)).one()._mapping,  # noqa: SLF001 - SQLAlchemy's documented name
            **connection.execute(_doubles(tables, newest)).one()._mapping,  # noqa: SLF001
        },
        oldest_scheduled=min((time for time in (scheduled.oldest, scheduled.oldest_iso) if time is not None), default=None),
    )


def inlined_tables(connection: Connection, tables: CatalogTables, known: Iterable[int]) -> InlinedTables:
    """Tables of inlined rows and deletes, those that are missing and those that nothing reads; three statements, or four.

    Args:
        connection: An open transaction.
        tables: The metadata tables.
        known: Ids of all tables of the catalog, dropped ones too.
    """
    counters = newest_counters(connection, tables)
    registered = tables["inlined_data_tables"]
    wanted = {(row.table_id, row.table_name) for row in connection.execute(select(registered.c.table_id, registered.c.table_name))}
    there = set(inspect(connection).get_table_names(schema=tables.schema))
    ids, names = set(known), {name for _, name in wanted}
    own = [(owner, name) for name in there if (owner := inlined_owner(name)) is not None]
    deletes = [(owner, name) for name in there if (owner := inlined_deletes_owner(name)) is not None]
    unknown = [one for one in (*own, *deletes) if one[0] not in ids]
    kept = in_the_making((name for _, name in unknown), counters)
    forgotten = [one for one in own if one[1] not in names and one[0] in ids]
    filled = _with_rows(connection, tables, [name for _, name in forgotten])
    return InlinedTables(
        data=tuple(sorted(one for one in wanted.intersection(own) if one[0] in ids)),
        deletes=tuple(sorted(one for one in deletes if one[0] in ids)),
        missing=tuple(sorted(one for one in wanted if one[1] not in there)),
        dead=tuple(sorted({*(one for one in forgotten if one[1] in filled), *(one for one in unknown if one[1] not in kept)})),
    )


def newest_counters(connection: Connection, tables: CatalogTables) -> RowMapping | None:
    """The schema version and the next catalog id of the newest snapshot; None where a COMMIT shows tables, or without a snapshot."""
    if not abilities_of(connection.dialect).commits_at_ddl:
        return None
    snapshot = tables["snapshot"]
    counters = select(snapshot.c.schema_version, snapshot.c.next_catalog_id).order_by(snapshot.c.snapshot_id.desc()).limit(1)
    return connection.execute(counters).mappings().one_or_none()


def in_the_making(names: Iterable[str], counters: RowMapping | None) -> frozenset[str]:
    """Those of some tables of inlined rows and deletes that commits under way may have been making when the counters were read."""
    return frozenset() if counters is None else frozenset(name for name in names if may_be_in_the_making(name, **counters))


def _with_rows(connection: Connection, tables: CatalogTables, names: Sequence[str]) -> frozenset[str]:
    """Those of some tables of inlined rows that have any."""
    if not names:
        return frozenset()
    queries = [
        select(literal(name).label("name")).where(select(literal(1)).select_from(tables.inlined_data(name)).exists()) for name in names
    ]
    return frozenset(connection.execute(all_of(queries)).scalars())


def all_of(queries: Sequence[Select[Any]]) -> Select[Any]:
    """One statement for the rows of any number (but none) of statements with the same columns."""
    level = list(queries)
    while len(level) > 1:
        parts = (union_all(*level[start : start + TERMS]).subquery() for start in range(0, len(level), TERMS))
        level = [select(part) for part in parts]
    return level[0]


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
