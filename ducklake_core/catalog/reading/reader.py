"""Read what the catalog contains at one snapshot (specification: Queries)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Dialect,
    FromClause,
    Row,
    Select,
    Subquery,
    UnaryExpression,
    and_,
    bindparam,
    case,
    func,
    inspect,
    or_,
    select,
    text,
    union_all,
)
from sqlalchemy.sql import operators

from ducklake_core.catalog.database.bootstrap import existing_query
from ducklake_core.catalog.database.tables import PREFIX, CatalogTables, inlined_delete_name
from ducklake_core.catalog.database.versions import check_same_version
from ducklake_core.catalog.reading.snapshots import newest_until, snapshot_of, snapshot_query, snapshots_of
from ducklake_core.catalog.reading.table_rows import (
    COMMENT,
    Among,
    SettingRow,
    column_row,
    effective_options,
    options_query,
    settings_query,
    table_state,
    tags_of,
)
from ducklake_core.catalog.reading.visibility import among, live, may_be_named, same_name
from ducklake_core.errors import CatalogCorruptError, NotFoundError, UsageError
from ducklake_core.format.files import paths
from ducklake_core.format.state import (
    InlinedCounts,
    LakeInfo,
    SchemaState,
    Snapshot,
    TableColumnStatistics,
    TableListing,
    TableState,
)
from ducklake_core.format.types.names import similar_entries
from ducklake_core.format.types.schema import ColumnRow
from ducklake_core.format.types.text import similar_in_brackets

HISTORY = ("history",)
"""Kind of the rows of all columns that a table ever had; the statement does not depend on table and snapshot."""

# SQLite allows 500 terms in a compound SELECT, but terms may be compound themselves.
TERMS = 200
Found = TypeVar("Found")
"""Maximum number of statements in one UNION ALL."""

# SQLite allows 500 terms in a compound SELECT.
_TABLES_PER_STATEMENT = 200
_FEW = 1
"""Maximum number of tables that are looked up one by one; for more, all tables of the database are listed."""


class CatalogReader:
    """Reader of the catalog within one read transaction.

    Args:
        connection: A connection of ``Database.read()``; results stay valid after it is closed.
        info: Settings of the lake.
        tables: The metadata tables, ``Database.tables``.
    """

    holds_many = False
    """True if one statement reads the rows of many tables."""

    def __init__(self, connection: Connection, info: LakeInfo, tables: CatalogTables) -> None:
        self.connection = connection
        self.info = info
        self.catalog = tables

    def snapshots(self, after: int | None = None, until: int | None = None, most: int | None = None) -> list[Snapshot]:
        """Return the surviving snapshots, by id ascending.

        Args:
            after: Only snapshots above this id; None, the default, for no limit.
            until: Only snapshots up to this id; None, the default, for no limit.
            most: Maximum number of snapshots, the first ones; None, the default, for all.
        """
        query = self.snapshot_query().order_by(self.catalog["snapshot"].c.snapshot_id)
        if after is not None:
            query = query.where(self.catalog["snapshot"].c.snapshot_id > after)
        if until is not None:
            query = query.where(self.catalog["snapshot"].c.snapshot_id <= until)
        if most is not None:
            query = query.limit(most)
        return self.snapshots_of(query)

    def last_snapshots(self, most: int) -> list[Snapshot]:
        """Return the newest snapshots, by id ascending.

        Args:
            most: Maximum number of snapshots.
        """
        newest_first = self.snapshot_query().order_by(self.catalog["snapshot"].c.snapshot_id.desc()).limit(most)
        return self.snapshots_of(newest_first)[::-1]

    def snapshot_times(self) -> list[tuple[int, datetime | None]]:
        """Return id and time in UTC of every snapshot, by id ascending; None for a missing time in an edited catalog.

        Raises:
            CatalogCorruptError: The lake has no snapshot.
        """
        snapshot = self.catalog["snapshot"]
        query = select(snapshot.c.snapshot_id, snapshot.c.snapshot_time).order_by(snapshot.c.snapshot_id)
        found = [(number, time) for number, time in self.connection.execute(query)]
        if not found:
            raise CatalogCorruptError("The catalog contains no snapshot. Restore it from a backup")
        return found

    def latest_snapshot(self) -> Snapshot:
        """Return the newest snapshot.

        Raises:
            CatalogCorruptError: The lake has no snapshot.
        """

        def build() -> Select[Any]:
            return self.snapshot_query().order_by(self.catalog["snapshot"].c.snapshot_id.desc()).limit(1)

        row = self.connection.execute(self.catalog.statement("newest", build)).first()
        if row is None:
            raise CatalogCorruptError("The catalog contains no snapshot. Restore it from a backup")
        return self.snapshot_of(row)

    def snapshot(self, *, version: int | None = None, timestamp: datetime | None = None) -> Snapshot:
        """Return the snapshot with an id, or the newest one committed at or before a time.

        Args:
            version: Snapshot id.
            timestamp: Time with a zone. Exactly one of both must be given.

        Raises:
            NotFoundError: The snapshot does not exist, or was expired.
            UsageError: Neither or both are given, or the time has no zone.
        """
        if (version is None) == (timestamp is None):
            raise UsageError("A snapshot is selected by an id or a time, not both. Remove one of them")
        if version is not None:
            row = self.connection.execute(self.snapshot_query().where(self.catalog["snapshot"].c.snapshot_id == version)).first()
            if row is None:
                raise NotFoundError(
                    f"there is no snapshot {version}: it was never committed, or it has expired. List snapshots with lake.snapshots()",
                    snapshot_id=version,
                )
            return self.snapshot_of(row)
        assert timestamp is not None
        if timestamp.tzinfo is None:
            raise UsageError(f"The time {timestamp.isoformat()} has no zone. Pass an aware datetime, for example with tzinfo=UTC")
        row = newest_until(self.connection, self.catalog, timestamp)
        if row is None:
            first = self.connection.execute(self.snapshot_query().order_by(self.catalog["snapshot"].c.snapshot_id).limit(1)).first()
            began = "" if first is None else f". The first snapshot, {first.snapshot_id}, is of {self.snapshot_of(first).time.isoformat()}"
            raise NotFoundError(f"there is no snapshot at or before {timestamp.astimezone(UTC).isoformat()}{began}", timestamp=timestamp)
        return self.snapshot_of(row)

    def snapshot_query(self) -> Select[Any]:
        """Return the query for snapshots, whose rows :meth:`snapshot_of` reads."""
        return snapshot_query(self.catalog)

    def snapshots_of(self, query: Select[Any]) -> list[Snapshot]:
        """Return the snapshots of a query that was made from :meth:`snapshot_query`.

        Raises:
            CatalogVersionError: The catalog was migrated since it was opened.
        """
        rows = self.connection.execute(query).all()
        if rows:
            check_same_version(rows[-1].version, self.catalog.version)
        return snapshots_of(rows)

    def snapshot_of(self, row: Row[Any]) -> Snapshot:
        """Return the snapshot of a row of :meth:`snapshot_query`.

        Raises:
            CatalogVersionError: The catalog was migrated since it was opened.
        """
        check_same_version(row.version, self.catalog.version)
        return snapshot_of(row)

    def schemas(self, snapshot_id: int) -> list[SchemaState]:
        """Return the schemas at a snapshot, by name."""
        schema, tag = self.catalog.schemas, self.catalog["tag"]
        is_tag = and_(tag.c.object_id == schema.c.schema_id, live(tag, snapshot_id))
        query = select(schema, tag.c.key.label("tag_key"), tag.c.value.label("tag_value")).select_from(schema.outerjoin(tag, is_tag))
        found: dict[int, list[Row[Any]]] = {}
        for row in self.connection.execute(query.where(live(schema, snapshot_id))):
            found.setdefault(row.schema_id, []).append(row)
        return sorted((self._schema_state(rows) for rows in found.values()), key=lambda state: state.name)

    def _schema_state(self, rows: Sequence[Row[Any]]) -> SchemaState:
        row, tags = rows[0], tags_of(rows)
        return SchemaState(
            id=row.schema_id,
            uuid=row.schema_uuid or "",
            name=row.schema_name,
            path=paths.join(self.info.data_path, row.path, row.path_is_relative is not False),
            comment=tags.pop(COMMENT, None),
            tags=tags,
        )

    def schema(self, *names: str, snapshot_id: int) -> SchemaState:
        """Return a schema by its case-insensitive path.

        Args:
            names: Possible paths; the first existing one is returned.
            snapshot_id: The snapshot.

        Raises:
            NotFoundError: None of them exists at that snapshot.
        """
        known, name = self.schemas(snapshot_id), names[0]
        found = next((state for one in names for state in known if same_name(state.name, one)), None)
        if found is None:
            near = similar_in_brackets(name, [state.name for state in known])
            raise NotFoundError(f"there is no schema {name!r} at snapshot {snapshot_id}{near}", schema=name, snapshot_id=snapshot_id)
        return found

    def tables(self, snapshot_id: int, only: Collection[int] | None = None) -> list[TableListing]:
        """Return tables with their sizes, by schema and name, in one query.

        Args:
            snapshot_id: The snapshot.
            only: Ids of the tables; None, the default, for all.
        """
        rows = self.connection.execute(listing_query(self.catalog, self.connection.dialect, snapshot_id, only)).all()
        return sorted(table_listings(rows), key=lambda item: (item.schema_name, item.name))

    def inlined_counts(self, listings: Iterable[TableListing], snapshot_id: int) -> dict[int, InlinedCounts]:
        """Return the numbers of inlined rows and deletes by table id; tables without any are left out."""
        return inlined_counts(self.connection, self.catalog, [item.id for item in listings], snapshot_id)

    def inlined_row_counts(self, table_ids: Collection[int], snapshot_id: int) -> dict[int, int]:
        """Return the numbers of inlined rows by table id, in two statements; tables without any are left out."""
        found = inlined_counts(self.connection, self.catalog, list(table_ids), snapshot_id, with_deletes=False)
        return {table_id: one.row_count for table_id, one in found.items()}

    def table(self, schema: str, name: str, snapshot_id: int, *, suggest: bool = True) -> TableState:
        """Return a table by its case-insensitive name.

        Args:
            schema: Path of the schema.
            name: Name of the table.
            snapshot_id: The snapshot.
            suggest: Whether the error names similar tables, which takes another query; default True.

        Raises:
            NotFoundError: The table does not exist at that snapshot.
        """
        tables = self.catalog
        query = self._table_query(snapshot_id).where(
            may_be_named(tables["table"].c.table_name, name), may_be_named(tables.schemas.c.schema_name, schema)
        )
        rows = [r for r in self.connection.execute(query) if same_name(r.table_name, name) and same_name(r.schema_name, schema)]
        if rows:
            return self._state(rows, snapshot_id)
        if suggest:
            self._reject_view(schema, name, snapshot_id)
        near = self._similar_tables(schema, name, snapshot_id) if suggest else ""
        raise NotFoundError(
            f"there is no table {schema}.{name} at snapshot {snapshot_id}{near}", table=f"{schema}.{name}", snapshot_id=snapshot_id
        )

    def _reject_view(self, schema: str, name: str, snapshot_id: int) -> None:
        """Raise an error that states what to do if the name belongs to a view."""
        view, schemas = self.catalog["view"], self.catalog.schemas
        query = select(schemas.c.schema_name, view.c.view_name).join(schemas, schemas.c.schema_id == view.c.schema_id)
        query = query.where(live(view, snapshot_id), live(schemas, snapshot_id), may_be_named(view.c.view_name, name))
        for row in self.connection.execute(query):
            if same_name(row.view_name, name) and same_name(row.schema_name, schema):
                where = f"{row.schema_name}.{row.view_name}"
                raise NotFoundError(
                    f"{where} is a view, not a table (snapshot {snapshot_id}). Open it with lake.view(...), or query it with lake.sql(...)",
                    view=where,
                    snapshot_id=snapshot_id,
                )

    def _similar_tables(self, schema: str, name: str, snapshot_id: int) -> str:
        """Return tables with a similar name, or with this name in another schema, for a message."""
        return similar_entries(schema, name, self.table_names(snapshot_id).values())

    def table_names(self, snapshot_id: int) -> dict[int, tuple[str, str]]:
        """Return schema and name of all tables at a snapshot by table id, sorted by name."""
        table, schema = self.catalog["table"], self.catalog.schemas
        query = select(table.c.table_id, schema.c.schema_name, table.c.table_name).join(schema, schema.c.schema_id == table.c.schema_id)
        rows = self.connection.execute(query.where(live(table, snapshot_id), live(schema, snapshot_id)))
        found = {table_id: (schema_name, name) for table_id, schema_name, name in rows.all()}
        return dict(sorted(found.items(), key=lambda item: item[1]))

    def table_by_id(self, table_id: int, snapshot_id: int) -> TableState:
        """Return a table by id.

        Raises:
            NotFoundError: The table does not exist at that snapshot.
        """
        table = self.catalog["table"]
        query = ("table", snapshot_id), lambda among: self._table_query(snapshot_id).where(among(table.c.table_id))
        rows = self.rows_of_table(*query, table_id)
        if not rows:
            raise NotFoundError(
                f"there is no table with id {table_id} at snapshot {snapshot_id}", table_id=table_id, snapshot_id=snapshot_id
            )
        return self._state(rows, snapshot_id)

    def _table_query(self, snapshot_id: int) -> Select[Any]:
        schema = self.catalog.schemas
        table, at, tag = (self.catalog[name] for name in ("table", "snapshot", "tag"))
        is_tag = and_(tag.c.object_id == table.c.table_id, live(tag, snapshot_id))
        return (
            select(
                table.c.table_id,
                table.c.table_uuid,
                table.c.table_name,
                table.c.path.label("table_path"),
                table.c.path_is_relative.label("table_path_is_relative"),
                schema.c.schema_id,
                schema.c.schema_name,
                schema.c.path.label("schema_path"),
                schema.c.path_is_relative.label("schema_path_is_relative"),
                at.c.schema_version,
                at.c.snapshot_time,
                tag.c.key.label("tag_key"),
                tag.c.value.label("tag_value"),
            )
            .select_from(
                table.join(schema, schema.c.schema_id == table.c.schema_id)
                .outerjoin(tag, is_tag)
                .outerjoin(at, at.c.snapshot_id == snapshot_id)
            )
            .where(live(table, snapshot_id), live(schema, snapshot_id))
        )

    def _state(self, rows: Sequence[Row[Any]], snapshot_id: int) -> TableState:
        _check_one(rows, snapshot_id)
        return table_state(self, self.info, rows, snapshot_id)

    def once(self, _kind: tuple[object, ...], read: Callable[[], Found]) -> Found:
        """Return what a function reads about the whole lake; a reader of many tables calls it once for each kind."""
        return read()

    def rows_of_table(self, kind: tuple[object, ...], build: Callable[[Among], Select[Any]], table_id: int) -> Sequence[Row[Any]]:
        """Return the rows of a table from a statement of its own; see :class:`TableRowSource`."""
        if kind == HISTORY:
            query = self.catalog.statement("column history", lambda: build(lambda column: column == bindparam("owner")))
            return self.connection.execute(query, {"owner": table_id}).all()
        return self.connection.execute(build(lambda column: column == table_id)).all()

    def rows_of_inlined(self, kind: tuple[object, ...], build: Callable[[int, str], Select[Any]], table: TableState) -> Sequence[Row[Any]]:
        """Return rows of the tables of inlined rows or deletes of a table.

        Args:
            kind: Identifies the statement; begins with ``"data"`` or ``"deletes"``.
            build: Builds the statement from the id of the table and the name of one of these tables, with a column ``table_id``.
            table: The table.
        """
        return [row for name in self._inlined_names(kind, table) for row in self.connection.execute(build(table.id, name))]

    def stored_inlined_counts(self, table: TableState) -> Sequence[Row[Any]]:
        """Return the number of rows (``n``) and of ended rows (``ended``) of each table of inlined rows of a table."""
        sources = [self.catalog.inlined_data(item.name) for item in table.inlined_tables]
        counts: list[tuple[ColumnElement[Any], ...]] = [
            (func.count().label("n"), func.count(source.c.end_snapshot).label("ended")) for source in sources
        ]
        queries = (select(*columns).select_from(source) for columns, source in zip(counts, sources, strict=True))
        return [self.connection.execute(query).one() for query in queries]

    def _inlined_names(self, kind: tuple[object, ...], table: TableState) -> list[str]:
        if kind[0] == "deletes":
            return [inlined_delete_name(table.id)] if table.has_inlined_deletes else []
        return [item.name for item in table.inlined_tables]

    def setting_rows(self, schema_id: int, table_id: int) -> Sequence[SettingRow]:
        """Return options and inlined tables of a table, in one statement; see :class:`TableRowSource`."""
        return [SettingRow(*row) for row in self.connection.execute(settings_query(self.catalog, schema_id, table_id))]

    def has_table(self, name: str) -> bool:
        """Return whether the database has a table that is not a metadata table."""
        return self.connection.execute(existing_query(self.catalog, self.connection.dialect), {"name": name}).first() is not None

    def column_history(self, table_id: int) -> list[tuple[ColumnRow, int | None]]:
        """Return every row of every column that the table ever had, with its end snapshot (None for live rows), oldest first."""
        column = self.catalog["column"]
        # Rows that begin and end with one snapshot existed only within its transaction; they sort before the row that it left.
        ordering = (column.c.begin_snapshot, column.c.column_id, column.c.end_snapshot.is_(None), column.c.end_snapshot)
        rows = self.rows_of_table(HISTORY, lambda among: select(column).where(among(column.c.table_id)).order_by(*ordering), table_id)
        return [(column_row(row), row.end_snapshot) for row in rows]

    def next_row_id(self, table_id: int) -> int:
        """Return the row id of the next row of a table."""
        stats = self.catalog["table_stats"]
        return self.connection.execute(select(stats.c.next_row_id).where(stats.c.table_id == table_id)).scalar() or 0

    def column_statistics(self, table_id: int, snapshot_id: int) -> dict[int, TableColumnStatistics]:
        """Return the statistics of a table by column id; columns whose statistics are unknown at the snapshot are missing.

        They are unknown at every snapshot but the newest, because DuckDB's rewrites make them forget deleted rows.
        """
        stats, snapshot = self.catalog["table_column_stats"], self.catalog["snapshot"]
        query = self.catalog.statement(
            "column statistics",
            lambda: select(stats).where(
                stats.c.table_id == bindparam("owner"),
                select(func.max(snapshot.c.snapshot_id)).scalar_subquery() <= bindparam("at"),
            ),
        )
        rows = self.connection.execute(query, {"owner": table_id, "at": snapshot_id}).mappings()
        return {row["column_id"]: TableColumnStatistics(**row) for row in rows}

    def lowest_bounds(self, snapshot_id: int, column_ids: Collection[int]) -> Iterator[tuple[int, int, str]]:
        """Yield table id, column id and lowest lower bound, compared as strings; first of all rows ever written, then of live files.

        Args:
            snapshot_id: The snapshot.
            column_ids: Ids of columns, of any table.
        """
        stats, file, total = (self.catalog[name] for name in ("file_column_stats", "data_file", "table_column_stats"))
        of_tables = select(total.c.table_id, total.c.column_id, total.c.min_value.label("low")).where(among(total.c.column_id, column_ids))
        of_files = (
            select(stats.c.table_id, stats.c.column_id, func.min(stats.c.min_value).label("low"))
            .join(file, file.c.data_file_id == stats.c.data_file_id)
            .where(live(file, snapshot_id), among(stats.c.column_id, column_ids))
            .group_by(stats.c.table_id, stats.c.column_id)
        )
        for query in (of_tables, of_files):
            for row in self.connection.execute(query):
                if row.low is not None:
                    yield row.table_id, row.column_id, str(row.low)

    def options(self, schema_id: int | None = None, table_id: int | None = None) -> Mapping[str, str]:
        """Return the effective options of the lake, a schema or a table, by lower-case name.

        Args:
            schema_id: The schema, which overrides the lake; None, the default, for none.
            table_id: The table, which overrides the schema; None, the default, for none.
        """
        return effective_options(self.connection.execute(options_query(self.catalog, schema_id, table_id)))


def expired_since(table: TableState) -> NotFoundError:
    """Return the error for a table whose snapshot was expired: the remaining catalog rows must not be read as the whole table."""
    return NotFoundError(
        f"Snapshot {table.snapshot_id}, at which {table.qualified_name} was opened, has expired. Open the table again",
        table=table.qualified_name,
        snapshot_id=table.snapshot_id,
    )


def check_same_snapshot(table: TableState, time: datetime | None) -> None:
    """Reject a table that was read from another history, whose ids have other meanings now.

    Args:
        table: State of the table at its snapshot.
        time: Commit time of the snapshot that has this id now.

    Raises:
        NotFoundError: The times differ, so it is another snapshot.
    """
    if table.snapshot_time not in (None, time):
        raise NotFoundError(
            f"snapshot {table.snapshot_id}, at which {table.qualified_name} was opened, is another commit now: the catalog was replaced, "
            "by a backup or a new lake; open the table again",
            table=table.qualified_name,
            snapshot_id=table.snapshot_id,
        )


def _check_one(rows: Sequence[Row[Any]], snapshot_id: int) -> None:
    """Reject rows of several tables. Rows of one table differ only in the last two columns, key and value of a tag."""
    first = rows[0]
    if len({tuple(row)[:-2] for row in rows}) > 1:
        raise CatalogCorruptError(
            f"there are two tables {first.schema_name}.{first.table_name} at snapshot {snapshot_id} (ids "
            f"{', '.join(str(row.table_id) for row in rows)}). Rename or drop one of them with DuckDB",
            table=f"{first.schema_name}.{first.table_name}",
            snapshot_id=snapshot_id,
        )


def object_tags(reader: CatalogReader, object_id: int, snapshot_id: int) -> dict[str, str]:
    """Return the tags of a table or view at a snapshot; a tag with the value NULL was removed."""
    tag = reader.catalog["tag"]
    rows = reader.connection.execute(select(tag.c.key, tag.c.value).where(tag.c.object_id == object_id, live(tag, snapshot_id)))
    return {row.key: row.value for row in rows if row.value is not None}


def column_tags(reader: CatalogReader, table_id: int, snapshot_id: int) -> dict[int, dict[str, str]]:
    """Return the tags of the columns of a table at a snapshot, by column id; columns without any are left out."""
    tag = reader.catalog["column_tag"]
    found: dict[int, dict[str, str]] = {}
    for row in reader.connection.execute(select(tag).where(tag.c.table_id == table_id, live(tag, snapshot_id))):
        if row.value is not None:
            found.setdefault(row.column_id, {})[row.key] = row.value
    return found


def all_of(queries: Sequence[Select[Any]]) -> Select[Any]:
    """Return one statement for the rows of one or more statements with the same columns."""
    # Nested, because databases limit the terms of one UNION ALL but not those of its subqueries.
    level = list(queries)
    while len(level) > 1:
        parts = (union_all(*level[start : start + TERMS]).subquery() for start in range(0, len(level), TERMS))
        level = [select(part) for part in parts]
    return level[0]


def listing_query(tables: CatalogTables, dialect: Dialect, snapshot_id: int, only: Collection[int] | None = None) -> Select[Any]:
    """Return the query for one row per live table: names and sums over its files.

    Args:
        tables: The metadata tables.
        dialect: SQLAlchemy dialect of the database.
        snapshot_id: The snapshot.
        only: Ids of the tables; None, the default, for all.
    """
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
        # The unary + hides the column from SQLite's planner: with the index by table it would fetch each row by itself, which takes longer
        # than sorting.
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
    # A file from a later commit may contain deletes of that commit, whatever snapshot it stores for them; see committed_at().
    next_file_id = select(snapshot.c.next_file_id).where(snapshot.c.snapshot_id == snapshot_id).scalar_subquery()
    is_later = and_(deletes.c.partial_max.is_not(None), deletes.c.delete_file_id >= next_file_id)
    # The delete file of a data file that ended as a whole stays live in the catalog and must not count.
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
    """Yield the values of rows of :func:`listing_query`. Rows are unpacked by position, because lookups by name are slow."""
    for row in rows:
        table_id, uuid, name, schema_id, schema_name, *sums, comment = row
        file_count, record_count, file_size_bytes, partial_files, *of_deletes = sums
        delete_file_count, delete_count, delete_file_size_bytes, partial_delete_files = of_deletes
        # PostgreSQL returns sums of BIGINT as numeric.
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
    """Return the numbers of visible inlined rows and of inlined deletes of live data files, by table id.

    Args:
        connection: An open transaction.
        tables: The metadata tables.
        table_ids: Ids of the tables.
        snapshot_id: The snapshot.
        with_deletes: Whether to count deletes too; default True.
    """
    wanted = set(table_ids)
    counts: dict[int, InlinedCounts] = {}
    queries = list(_count_queries(connection, tables, wanted, snapshot_id, with_deletes=with_deletes))
    for start in range(0, len(queries), _TABLES_PER_STATEMENT):
        # text() would treat a colon in a name as a parameter.
        together = " UNION ALL ".join(queries[start : start + _TABLES_PER_STATEMENT]).replace(":", r"\:")
        for row in connection.execute(text(together)):
            before = counts.get(row.table_id, InlinedCounts())
            rows, deleted = (0, row.number) if row.is_deletes else (row.number, 0)
            counts[row.table_id] = InlinedCounts(row_count=before.row_count + rows, deleted_count=before.deleted_count + deleted)
    return {table_id: found for table_id, found in counts.items() if found != InlinedCounts()}


def _count_queries(
    connection: Connection, tables: CatalogTables, wanted: set[int], snapshot_id: int, *, with_deletes: bool
) -> Iterator[str]:
    """Yield a statement for each table of inlined rows or deletes, as text: compiling a thousand selects takes a second."""
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
