"""Read the input of maintenance decisions: sizes and counts of a lake, histories of files, and all files that the catalog names."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
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
from ducklake_core.catalog.reading.completeness import complete_rows
from ducklake_core.catalog.reading.file_rows import Streams, data_file_of, delete_file_of, name_mappings
from ducklake_core.catalog.reading.files import is_in
from ducklake_core.catalog.reading.integrity_scan import InlinedTables, inlined_tables, tables_that_may_go
from ducklake_core.catalog.reading.reader import CatalogReader, all_of
from ducklake_core.catalog.reading.table_rows import this_table
from ducklake_core.catalog.reading.visibility import committed_at, live
from ducklake_core.errors import CatalogCorruptError
from ducklake_core.format.files.data_files import DeleteFile, DeleteHistory
from ducklake_core.format.files.name_mapping import NameMapping
from ducklake_core.format.files.paths import file_key, file_name, join
from ducklake_core.format.state import TableState
from ducklake_core.format.types.schema import Schema, build_schema

FILE_SIZE_BANDS = (1 << 20, 16 << 20, 128 << 20, 512 << 20)
"""Upper limits (exclusive), in bytes, of the size bands in which files are counted; the last band has no limit."""

CLUSTERED_KEY = "clustered_by"
"""Key in ``commit_extra_info`` of a rewrite: ids of the columns by which it clustered files."""

_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeGauges:
    """Sums and counts at the newest snapshot.

    Attributes:
        tables: Schema and name of the live tables, by table id.
        files: Row of sums over data files, by table id.
        delete_files: Row of sums over delete files, by table id.
        inlined: Counts of inlined rows and deletes, by table id and kind.
        lake: Counts of the whole lake.
        missing: Names of registered tables of inlined rows that do not exist.
        oldest_scheduled: Earliest time in the schedule; None when it is empty.
    """

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
    """Return all sums at the newest snapshot; None when the lake has no snapshot.

    Args:
        connection: An open read transaction.
        tables: The metadata tables.
        small_file_bytes: Size in bytes below which a file counts as small.
    """
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
    """Select every table of the catalog, and whether its row is live."""
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
    """Return counts by table id and kind (visible ``rows``, ``ended`` rows, ``deletes`` of rows of live files), in one statement."""
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
    """Select the number of scheduled files, of distinct paths, and the earliest time.

    Times that are stored as text have two forms, with a blank or a T, which do not sort together: each has its own minimum.
    """
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
    """Select the number of rows of unknown files, and of statistics of unknown tables."""
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
    """Select the number of duplicate rows, and of files whose partition values do not match their partition keys."""
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


class SchemaVersions:
    """The schema versions of the columns of a table, by the snapshots from which they applied.

    >>> versions = SchemaVersions([(1, 1), (7, 3)])
    >>> versions.at(0), versions.at(6), versions.at(7)
    (None, 1, 3)
    """

    def __init__(self, versions: list[tuple[int, int]]) -> None:
        self._versions = sorted(versions)

    def at(self, snapshot_id: int) -> int | None:
        """Return the schema version of the table at a snapshot; None before the first known one."""
        position = bisect_right(self._versions, (snapshot_id, 2**63))
        return self._versions[position - 1][1] if position else None


def schema_versions(reader: CatalogReader, table_id: int) -> SchemaVersions:
    """Return the schema versions of a table."""
    versions = reader.catalog["schema_versions"]
    query = select(versions.c.table_id, versions.c.begin_snapshot, versions.c.schema_version)
    rows = reader.rows_of_table(("schema versions",), lambda among: query.where(among(versions.c.table_id)), table_id)
    return SchemaVersions([(row.begin_snapshot, row.schema_version) for row in rows])


def schema_at(reader: CatalogReader, table: TableState, snapshot_id: int) -> Schema:
    """Return the columns of a table at an earlier snapshot."""
    rows = (row for row, end in reader.column_history(table.id) if row.begin_snapshot <= snapshot_id and (end is None or end > snapshot_id))
    return build_schema(dict.fromkeys(rows))


def delete_files_of(reader: CatalogReader, table: TableState, file_ids: Collection[int] | None = None) -> dict[int, list[DeleteFile]]:
    """Return every delete file of data files of a table, live or ended, by the id of the data file.

    Args:
        reader: Reader of the catalog.
        table: State of the table.
        file_ids: Ids of the data files; None for all.
    """
    deletes = reader.catalog["delete_file"]
    every = select(deletes, committed_at(reader.catalog, deletes))
    # A reader of many tables reads all rows once, so its statement must not depend on the files of one table.
    some = every if reader.holds_many or file_ids is None else every.where(is_in(deletes.c.data_file_id, sorted(file_ids)))
    rows = reader.rows_of_table(("every delete file",), lambda among: some.where(among(deletes.c.table_id)), table.id)
    found: dict[int, list[DeleteFile]] = {}
    for row in sorted(rows, key=lambda row: row.delete_file_id):
        found.setdefault(row.data_file_id, []).append(delete_file_of(row, table, reader.info.encrypted))
    return found


def oldest_snapshot_id(reader: CatalogReader) -> int:
    """Return the id of the oldest snapshot that has not expired."""
    snapshot = reader.catalog["snapshot"]
    return int(reader.connection.execute(select(func.min(snapshot.c.snapshot_id))).scalar_one())


def clustered_snapshots(reader: CatalogReader, snapshot_ids: Collection[int], column_ids: Sequence[int]) -> frozenset[int]:
    """Return the snapshots that clustered files by some columns, according to their extra information.

    Args:
        reader: Reader of the catalog.
        snapshot_ids: Snapshots to check.
        column_ids: Ids of the columns, in order.
    """
    changes = reader.catalog["snapshot_changes"]
    query = select(changes.c.snapshot_id, changes.c.commit_extra_info).where(is_in(changes.c.snapshot_id, sorted(snapshot_ids)))
    rows = reader.connection.execute(query).all()
    return frozenset(row.snapshot_id for row in rows if row.commit_extra_info and _clusters(row.commit_extra_info, list(column_ids)))


def _clusters(extra_info: str, column_ids: list[int]) -> bool:
    try:
        stored = json.loads(extra_info)
    except ValueError:
        return False
    return isinstance(stored, dict) and stored.get(CLUSTERED_KEY) == column_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCounts:
    """Number of rows, and of ended rows, of one table of inlined rows."""

    rows: int
    ended: int


def inlined_row_counts(reader: CatalogReader, table: TableState) -> dict[str, StoredCounts]:
    """Return the counts of each registered table of inlined rows, by its name."""
    names = [item.name for item in table.inlined_tables]
    counted = zip(names, reader.stored_inlined_counts(table), strict=True)
    return {name: StoredCounts(rows=int(row.n), ended=int(row.ended)) for name, row in counted}


def inlined_deletes_of(reader: CatalogReader, table: TableState) -> dict[int, list[tuple[int, int]]]:
    """Return (position, snapshot) of all inlined deletes by data file id, including files that no longer exist.

    Raises:
        CatalogCorruptError: A position, file or snapshot is not a number.
    """
    if not table.has_inlined_deletes:
        return {}

    def positions(table_id: int, _name: str) -> Select[Any]:
        source = reader.catalog.inlined_delete(table_id)
        return select(this_table(table_id), source.c.file_id, source.c.row_id, source.c.begin_snapshot)

    found: dict[int, list[tuple[int, int]]] = {}
    for row in reader.rows_of_inlined(("deletes", "every"), positions, table):
        file_id, position, snapshot = row.file_id, row.row_id, row.begin_snapshot
        if not all(isinstance(number, int) for number in (file_id, position, snapshot)):
            raise CatalogCorruptError(
                f"table {table.qualified_name} has a row deleted through the catalog whose file, position or snapshot is no number",
                table=table.qualified_name,
            )
        found.setdefault(file_id, []).append((position, snapshot))
    return found


def delete_histories(
    reader: CatalogReader, table: TableState, file_ids: Collection[int], inlined: dict[int, list[tuple[int, int]]]
) -> list[DeleteHistory]:
    """Return the delete histories of some data files of a table, by id; files without a row are left out.

    Args:
        reader: Reader of the catalog.
        table: State of the table.
        file_ids: Ids of the data files.
        inlined: Result of :func:`inlined_deletes_of`.
    """
    if not file_ids:
        return []
    wanted, file = frozenset(file_ids), reader.catalog["data_file"]
    of_file = delete_files_of(reader, table, wanted)
    some = select(file) if reader.holds_many else select(file).where(is_in(file.c.data_file_id, sorted(wanted)))
    rows = reader.rows_of_table(("every data file",), lambda among: some.where(among(file.c.table_id)), table.id)
    files = [data_file_of(row, table, Streams({}), reader.info.encrypted) for row in rows if row.data_file_id in wanted]
    return [
        DeleteHistory(file=replace(one, delete_files=tuple(of_file.get(one.id, ()))), inlined=tuple(sorted(inlined.get(one.id, []))))
        for one in sorted(files, key=lambda one: one.id)
    ]


def named_already(reader: CatalogReader, paths: Collection[str]) -> tuple[str, str] | None:
    """Return the first full path that belongs to the lake, with a description: a data file of any snapshot, or a scheduled file.

    Reads the names of all data files once, as a stream.
    """
    wanted = {file_key(path): path for path in paths}
    # The file name alone excludes most files, before their directory is looked up.
    names = {file_name(path) for path in paths}
    for rows in (_data_files(reader, names), _scheduled_files(reader, names)):
        # Closed explicitly, because an abandoned generator would keep the cursor of the server open.
        with closing(rows):
            found = next(((wanted[key], how) for path, how in rows if (key := file_key(path)) in wanted), None)
        if found is not None:
            return found
    return None


def named_files(reader: CatalogReader, paths: Collection[str]) -> frozenset[str]:
    """Return the paths that the catalog names: data files and delete files of any snapshot, and scheduled files.

    Compares file names only, which are unique for files of DuckLake writers. Reads the names of all files once, as a stream.
    """
    wanted = {file_name(path): path for path in paths}
    found: set[str] = set()
    for table in ("data_file", "delete_file", "files_scheduled_for_deletion"):
        rows = complete_rows(reader.connection, select(reader.catalog[table].c.path), "names of files", at_once=_AT_ONCE)
        # The path of a damaged row may be NULL or not a string.
        names = (file_name(row.path) for row in rows if isinstance(row.path, str))
        found.update(path for name in names if (path := wanted.get(name)) is not None)
    return frozenset(found)


def _data_files(reader: CatalogReader, names: set[str]) -> Generator[tuple[str, str]]:
    # Read before the stream begins: a DuckDB file has one cursor.
    directories = _tables(reader)
    file = reader.catalog["data_file"]
    query = select(file.c.path, file.c.path_is_relative, file.c.table_id)
    with reader.connection.execute(query.execution_options(yield_per=_AT_ONCE)) as rows:
        for row in rows:
            if file_name(row.path) in names:
                directory, table = directories.get(row.table_id, ("", f"with id {row.table_id}"))
                yield join(directory, row.path, bool(row.path_is_relative)), f"a data file of table {table}"


def _scheduled_files(reader: CatalogReader, names: set[str]) -> Generator[tuple[str, str]]:
    scheduled = reader.catalog["files_scheduled_for_deletion"]
    query = select(scheduled.c.path, scheduled.c.path_is_relative)
    with reader.connection.execute(query.execution_options(yield_per=_AT_ONCE)) as rows:
        for row in rows:
            if file_name(row.path) in names:
                yield join(reader.info.data_path, row.path, bool(row.path_is_relative)), "scheduled for deletion"


def _tables(reader: CatalogReader) -> dict[int, tuple[str, str]]:
    """Return directory and name of every table, including dropped ones. All rows of one table have the same directory."""
    table, schema = reader.catalog["table"], reader.catalog["schema"]
    names = {row.schema_id: row.schema_name for row in reader.connection.execute(select(reader.catalog.schemas))}
    schemas = {
        row.schema_id: (join(reader.info.data_path, row.path, bool(row.path_is_relative)), names.get(row.schema_id, row.schema_name))
        for row in reader.connection.execute(select(schema))
    }
    found: dict[int, tuple[str, str]] = {}
    for row in reader.connection.execute(select(table)):
        base, name = schemas.get(row.schema_id, (reader.info.data_path, str(row.schema_id)))
        found[row.table_id] = join(base, row.path, bool(row.path_is_relative)), f"{name}.{row.table_name}"
    return found


def mappings_of_table(reader: CatalogReader, table_id: int, table: str) -> tuple[NameMapping, ...]:
    """Return all name mappings of a table, including those of ended files.

    Args:
        reader: An open read transaction.
        table_id: The table.
        table: ``schema.table`` for messages.
    """
    mapping = reader.catalog["column_mapping"]
    ids = reader.connection.execute(select(mapping.c.mapping_id).where(mapping.c.table_id == table_id)).scalars().all()
    return name_mappings(reader, ids, table)
