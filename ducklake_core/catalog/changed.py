"""Find the data files, inlined rows and table names that differ between two snapshots, for all tables at once.

The number of statements does not depend on the number of tables, because a sensor compares thousands of tables in every tick. Results may
contain more rows than needed (false positives); callers compare dates and values exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    FromClause,
    Row,
    Select,
    String,
    Table,
    and_,
    cast,
    func,
    inspect,
    literal,
    literal_column,
    null,
    or_,
    select,
    true,
    union,
    union_all,
)

from ducklake_core.catalog.database.abilities import Abilities, abilities_of
from ducklake_core.catalog.database.tables import INLINED_SYSTEM_COLUMNS, inlined_delete_name
from ducklake_core.catalog.inlined.cells import parse_leaf
from ducklake_core.catalog.inlined.rows import TableVersions
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.reading.table_rows import column_query, column_rows
from ducklake_core.catalog.reading.visibility import among
from ducklake_core.errors import DuckLakeError, UnsupportedFeatureError
from ducklake_core.format.expressions.pruning import ValueRange
from ducklake_core.format.files.partitioning import PartitionField, PartitionSpec, parse_transform
from ducklake_core.format.state import InlinedTable
from ducklake_core.format.types.data_types import BLOB, GEOMETRY, JSON, VARCHAR, VARIANT, DataType, Field
from ducklake_core.format.types.schema import ColumnRow, Schema

# Databases reject longer lists. A longer list becomes a range, and the caller filters the rows.
_MAX_LISTED = 20_000
_FEW = 50

# SQLite allows 500 terms in a compound SELECT.
_TABLES_PER_STATEMENT = 200
_WITHOUT_TEXT = (VARIANT, GEOMETRY, BLOB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """The snapshots between which files are compared.

    Attributes:
        after: Last snapshot whose changes do not count.
        until: Last snapshot whose changes count.
        next_file_id: Files with ids from this one on were created after the earliest snapshot whose state is known.
    """

    after: int
    until: int
    next_file_id: int

    def holds(self, snapshot_id: int | None) -> bool:
        """Return whether changes of that snapshot count."""
        return snapshot_id is not None and self.after < snapshot_id <= self.until


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTable:
    """A table under one name, and the snapshots in which it had the name."""

    table_id: int
    schema_name: str
    name: str
    begin_snapshot: int
    end_snapshot: int | None

    def live_at(self, snapshot_id: int) -> bool:
        """Return whether the table had the name at a snapshot."""
        return self.begin_snapshot <= snapshot_id and (self.end_snapshot is None or self.end_snapshot > snapshot_id)


def named_tables(
    reader: CatalogReader, after: int, until: int, *, only: Collection[int] | None = None, renamed_or: Collection[int] | None = None
) -> list[NamedTable]:
    """Return every name that a table had from snapshot ``after`` to snapshot ``until``.

    Args:
        reader: Reader of the catalog.
        after: The first snapshot.
        until: The last snapshot.
        only: Ids of tables; None, the default, for all.
        renamed_or: Ids of tables that are returned besides those that lost or got a name after the first snapshot; None, the default, for
            all tables.
    """
    table, schema = reader.catalog["table"], reader.catalog.schemas
    query = (
        select(
            table.c.table_id,
            table.c.table_name,
            schema.c.schema_name,
            table.c.begin_snapshot,
            table.c.end_snapshot,
            schema.c.begin_snapshot.label("schema_begin"),
            schema.c.end_snapshot.label("schema_end"),
        )
        .select_from(table.join(schema, schema.c.schema_id == table.c.schema_id))
        .where(table.c.begin_snapshot <= until, or_(table.c.end_snapshot.is_(None), table.c.end_snapshot > after))
        .order_by(table.c.table_id, table.c.begin_snapshot)
    )
    if only is not None:
        query = query.where(one_of(table.c.table_id, only))
    if renamed_or is not None:
        query = query.where(
            or_(
                one_of(table.c.table_id, renamed_or),
                *(source.c.begin_snapshot > after for source in (table, schema)),
                *(source.c.end_snapshot.is_not(None) for source in (table, schema)),
            )
        )
    return [
        NamedTable(
            table_id=table_id,
            schema_name=schema_name,
            name=name,
            begin_snapshot=max(begin, schema_begin),
            # The name ends with the table or with its schema, whichever is earlier.
            end_snapshot=end if schema_end is None else schema_end if end is None else min(end, schema_end),
        )
        for table_id, name, schema_name, begin, end, schema_begin, schema_end in reader.connection.execute(query).all()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """The columns of a table at any snapshot, and its partition specs by id.

    Attributes:
        current_specs: (spec, begin, end) for each time in which a spec applied to new files.
        comments: (column id, comment, begin, end).
    """

    versions: TableVersions
    specs: Mapping[int, PartitionSpec]
    current_specs: tuple[tuple[int, int, int | None], ...] = ()
    comments: tuple[tuple[int, str, int, int | None], ...] = ()

    def schema_at(self, snapshot_id: int) -> Schema:
        """Return the columns at a snapshot; empty when they cannot be read, so that no values are compared."""
        try:
            return self.versions.schema_of(snapshot_id)
        except DuckLakeError:
            return Schema(columns=())

    def comments_at(self, snapshot_id: int) -> dict[int, str]:
        """Return the comments of columns at a snapshot, by column id."""
        return {i: text for i, text, begin, end in self.comments if begin <= snapshot_id and (end is None or end > snapshot_id)}

    def partition_by_at(self, snapshot_id: int) -> tuple[str, ...]:
        """Return the partition keys at a snapshot, as a user writes them."""
        spec = self.spec_at(snapshot_id) if self.current_specs else None
        return tuple(field.expression for field in spec.fields) if spec is not None else ()

    def spec_at(self, snapshot_id: int) -> PartitionSpec | None:
        """Return the partition spec for new files at a snapshot, None for none."""
        live = (number for number, begin, end in self.current_specs if begin <= snapshot_id and (end is None or end > snapshot_id))
        return next((self.specs[number] for number in live if number in self.specs), None)


def definitions(reader: CatalogReader, table_ids: Collection[int]) -> dict[int, Definition]:
    """Return columns and partition specs of tables by table id, in four statements."""
    if not table_ids:
        return {}
    versions, history, specs = _versions(reader, table_ids), _history(reader, table_ids), _specs(reader, table_ids)
    comments = _comments(reader, table_ids)
    found = {}
    for table_id in table_ids:
        columns = history.get(table_id, [])
        names = {row.column_id: row.column_name for row, _ in columns}
        keyed, spans = specs.get(table_id, ({}, ()))
        found[table_id] = Definition(
            versions=TableVersions(table_id, versions.get(table_id, []), columns),
            specs={number: spec for number, keys in keyed.items() if (spec := _spec(number, keys, names)) is not None},
            current_specs=tuple(spans),
            comments=tuple(comments.get(table_id, ())),
        )
    return found


def _versions(reader: CatalogReader, table_ids: Collection[int]) -> dict[int, list[tuple[int, int]]]:
    source = reader.catalog["schema_versions"]
    query = select(source.c.table_id, source.c.schema_version, source.c.begin_snapshot).where(one_of(source.c.table_id, table_ids))
    found: dict[int, list[tuple[int, int]]] = {}
    for table_id, schema_version, begin_snapshot in reader.connection.execute(query).all():
        found.setdefault(table_id, []).append((schema_version, begin_snapshot))
    return found


def _history(reader: CatalogReader, table_ids: Collection[int]) -> dict[int, list[tuple[ColumnRow, int | None]]]:
    column = reader.catalog["column"]
    query = column_query(reader.catalog).where(one_of(column.c.table_id, table_ids)).order_by(column.c.table_id, column.c.begin_snapshot)
    found: dict[int, list[tuple[ColumnRow, int | None]]] = {}
    for table_id, end_snapshot, row in column_rows(reader.connection.execute(query).all()):
        found.setdefault(table_id, []).append((row, end_snapshot))
    return found


def _comments(reader: CatalogReader, table_ids: Collection[int]) -> dict[int, list[tuple[int, str, int, int | None]]]:
    tag = reader.catalog["column_tag"]
    found: dict[int, list[tuple[int, str, int, int | None]]] = {}
    for row in reader.connection.execute(select(tag).where(tag.c.key == "comment", one_of(tag.c.table_id, table_ids))):
        if row.value is not None:
            found.setdefault(row.table_id, []).append((row.column_id, row.value, row.begin_snapshot, row.end_snapshot))
    return found


def _specs(
    reader: CatalogReader, table_ids: Collection[int]
) -> dict[int, tuple[dict[int, list[Row[Any]]], list[tuple[int, int, int | None]]]]:
    info, key = reader.catalog["partition_info"], reader.catalog["partition_column"]
    query = (
        select(info.c.table_id, info.c.partition_id, info.c.begin_snapshot, info.c.end_snapshot, key.c.column_id, key.c.transform)
        .select_from(info.join(key, and_(key.c.partition_id == info.c.partition_id, key.c.table_id == info.c.table_id)))
        .where(one_of(info.c.table_id, table_ids))
        .order_by(info.c.partition_id, key.c.partition_key_index)
    )
    found: dict[int, tuple[dict[int, list[Row[Any]]], list[tuple[int, int, int | None]]]] = {}
    rows: Iterable[Row[Any]] = reader.connection.execute(query)
    for row in rows:
        keyed, spans = found.setdefault(row.table_id, ({}, []))
        keyed.setdefault(row.partition_id, []).append(row)
        spans.append((row.partition_id, row.begin_snapshot, row.end_snapshot))
    return found


def _spec(number: int, keys: Sequence[Row[Any]], names: Mapping[int, str]) -> PartitionSpec | None:
    """Return the spec; None if this library cannot read it, so that statistics are used for its files instead."""
    fields = []
    for row in keys:
        try:
            transform, buckets = parse_transform(row.transform)
        except UnsupportedFeatureError:
            return None
        name = names.get(row.column_id, "")
        fields.append(PartitionField(column_id=row.column_id, column=name, transform=transform, buckets=buckets))
    return PartitionSpec(id=number, fields=tuple(fields))


class DataFileRow(NamedTuple):
    """The columns of ``ducklake_data_file`` that a comparison needs. A tuple, because there may be millions."""

    data_file_id: int
    table_id: int
    begin_snapshot: int
    end_snapshot: int | None
    partial_max: int | None
    record_count: int
    partition_id: int | None


def changed_data_files(
    reader: CatalogReader,
    edges: Edges,
    tables: Collection[int] | None,
    *,
    moved: Collection[int],
    hit: Collection[int],
    rewritten: Collection[int],
) -> list[DataFileRow]:
    """Return the rows of ``ducklake_data_file`` that may contain changed rows.

    Args:
        reader: Reader of the catalog.
        edges: The snapshots to compare.
        tables: Tables to compare; the result may contain files of other tables. None for all tables.
        moved: Tables that lost or got a name: all of their files are returned.
        hit: Files with inlined deletes of the range.
        rewritten: Tables whose inlined deletes a later rewrite may have removed: every file that ended since is returned.
    """
    file = reader.catalog["data_file"]
    # New files, files with new rows of partial (merged or flushed) ones, and files that ended in the range.
    wanted = [
        file.c.data_file_id >= edges.next_file_id,
        file.c.begin_snapshot > edges.after,
        file.c.partial_max > edges.after,
        file.c.end_snapshot.between(edges.after + 1, edges.until),
    ]
    wanted += [one_of(file.c.table_id, moved)] if moved else []
    wanted += [one_of(file.c.data_file_id, hit)] if hit else []
    wanted += [and_(one_of(file.c.table_id, rewritten), file.c.end_snapshot > edges.until)] if rewritten else []
    # As a separate condition. Within the OR, PostgreSQL would expect half of all files and fetch them one by one through an index.
    of_tables = [one_of(file.c.table_id, tables)] if tables is not None and len(tables) <= _FEW else []
    found = union(select(file.c.data_file_id).where(or_(*wanted), *of_tables), _hit_by_delete_files(reader, edges))
    query = select(*(file.c[name] for name in DataFileRow._fields))
    query = query.where(file.c.begin_snapshot <= edges.until, file.c.data_file_id.in_(found), *of_tables)
    return [DataFileRow._make(row) for row in reader.connection.execute(query.order_by(file.c.data_file_id)).all()]


def changed_delete_files(reader: CatalogReader, edges: Edges) -> list[Row[Any]]:
    """Return the rows of ``ducklake_delete_file`` that may hide more rows than at the first snapshot."""
    deletes = reader.catalog["delete_file"]
    columns = ("delete_file_id", "data_file_id", "table_id", "begin_snapshot", "partial_max", "delete_count")
    query = select(*(deletes.c[name] for name in columns)).where(_newer(reader, edges))
    return list(reader.connection.execute(query.order_by(deletes.c.delete_file_id)))


def all_data_files(reader: CatalogReader, table_ids: Collection[int]) -> list[Row[Any]]:
    """Return every row of ``ducklake_data_file`` of some tables, of all snapshots, by id."""
    file = reader.catalog["data_file"]
    names = ("data_file_id", "table_id", "begin_snapshot", "end_snapshot", "partial_max", "record_count", "file_size_bytes", "partition_id")
    query = select(*(file.c[name] for name in names)).where(one_of(file.c.table_id, table_ids))
    return list(reader.connection.execute(query.order_by(file.c.data_file_id)))


def all_delete_files(reader: CatalogReader, table_ids: Collection[int]) -> list[Row[Any]]:
    """Return every row of ``ducklake_delete_file`` of some tables, of all snapshots, by id."""
    deletes = reader.catalog["delete_file"]
    names = ("delete_file_id", "data_file_id", "table_id", "begin_snapshot", "end_snapshot", "partial_max", "delete_count")
    query = select(*(deletes.c[name] for name in names)).where(one_of(deletes.c.table_id, table_ids))
    return list(reader.connection.execute(query.order_by(deletes.c.delete_file_id)))


def _hit_by_delete_files(reader: CatalogReader, edges: Edges) -> Any:
    return select(reader.catalog["delete_file"].c.data_file_id).where(_newer(reader, edges))


def _newer(reader: CatalogReader, edges: Edges) -> ColumnElement[bool]:
    """Return the condition that a delete file may be new.

    A cumulative file replaces an earlier one and keeps its begin snapshot, so its id may be the only sign.
    """
    deletes = reader.catalog["delete_file"]
    later = or_(deletes.c.delete_file_id >= edges.next_file_id, deletes.c.begin_snapshot > edges.after, deletes.c.partial_max > edges.after)
    return and_(deletes.c.begin_snapshot <= edges.until, later)


def partition_values(reader: CatalogReader, files: Collection[DataFileRow | Row[Any]]) -> dict[int, dict[int, str | None]]:
    """Return the stored partition values by file id and key index."""
    found: dict[int, dict[int, str | None]] = {}
    if files:
        value = reader.catalog["file_partition_value"]
        query = select(value.c.data_file_id, value.c.partition_key_index, value.c.partition_value)
        for row in reader.connection.execute(query.where(_belongs_to(value, files))):
            found.setdefault(row.data_file_id, {})[row.partition_key_index] = row.partition_value
    return found


def file_bounds(
    reader: CatalogReader, files: Collection[DataFileRow | Row[Any]], columns: Iterable[int]
) -> dict[tuple[int, int], Row[Any]]:
    """Return the statistics rows by file id and column id, for columns with these ids in any table."""
    wanted = sorted(set(columns))
    if not files or not wanted:
        return {}
    stats = reader.catalog["file_column_stats"]
    names = ("data_file_id", "column_id", "value_count", "null_count", "min_value", "max_value", "contains_nan")
    query = select(*(stats.c[name] for name in names)).where(stats.c.column_id.in_(wanted), _belongs_to(stats, files))
    return {(row.data_file_id, row.column_id): row for row in reader.connection.execute(query)}


def _belongs_to(source: FromClause, files: Collection[DataFileRow | Row[Any]]) -> ColumnElement[bool]:
    """Return the condition that a row belongs to one of the files, with the table ids, because the optional index begins with the table."""
    return and_(
        one_of(source.c.table_id, {file.table_id for file in files}), one_of(source.c.data_file_id, [file.data_file_id for file in files])
    )


def logs_of(reader: CatalogReader, snapshot_ids: Collection[int]) -> dict[int, str]:
    """Return ``changes_made`` by snapshot id; expired snapshots are missing."""
    if not snapshot_ids:
        return {}
    changes = reader.catalog["snapshot_changes"]
    query = select(changes.c.snapshot_id, changes.c.changes_made).where(one_of(changes.c.snapshot_id, snapshot_ids))
    return {row.snapshot_id: row.changes_made or "" for row in reader.connection.execute(query)}


def one_of(column: ColumnElement[int], ids: Collection[int]) -> ColumnElement[bool]:
    """Return the condition that a column is one of the ids; for more than 20,000 ids that it is in their range, so callers must filter."""
    if not ids:
        return ~true()
    if len(ids) > _MAX_LISTED:
        return column.between(min(ids), max(ids))
    return among(column, ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class InlinedGroup:
    """Inlined rows of one table with equal begin snapshot, end snapshot and values of the requested columns."""

    table_id: int
    begin_snapshot: int
    end_snapshot: int | None
    row_count: int
    ranges: tuple[ValueRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InlinedDeletes:
    """Rows of one data file that one snapshot deleted through the catalog."""

    table_id: int
    data_file_id: int
    begin_snapshot: int
    row_count: int


def registered_tables(reader: CatalogReader) -> dict[int, list[InlinedTable]]:
    """Return the tables of inlined rows by the id of the table that they belong to."""
    source = reader.catalog["inlined_data_tables"]
    query = select(source.c.table_id, source.c.table_name, source.c.schema_version).order_by(source.c.table_id, source.c.schema_version)
    found: dict[int, list[InlinedTable]] = {}
    for row in reader.connection.execute(query):
        found.setdefault(row.table_id, []).append(InlinedTable(name=row.table_name, schema_version=row.schema_version))
    return found


def changed_inlined_rows(
    reader: CatalogReader,
    edges: Edges,
    sources: Mapping[int, Sequence[InlinedTable]],
    columns: Mapping[int, Sequence[Field | None]],
    known: Mapping[int, Definition],
    moved: Collection[int],
) -> list[InlinedGroup]:
    """Return the inlined rows that are visible at exactly one of the two snapshots, in groups.

    Args:
        reader: Reader of the catalog.
        edges: The two snapshots.
        sources: Tables of inlined rows to read, by table id; one statement for every 200 of them.
        columns: Columns whose values are requested, by table id; None for a column that does not exist.
        known: Definitions of the same tables.
        moved: Tables whose rows are returned if they are visible at either snapshot.
    """
    return _groups(reader, sources, columns, known, lambda table_id: _differs(edges, everything=table_id in moved))


def _groups(
    reader: CatalogReader,
    sources: Mapping[int, Sequence[InlinedTable]],
    columns: Mapping[int, Sequence[Field | None]],
    known: Mapping[int, Definition],
    condition_of: Callable[[int], Any],
) -> list[InlinedGroup]:
    cells = _Cells(reader, sources, columns, known)
    width = max((len(wanted) for wanted in columns.values()), default=0)
    queries = [cells.query(table_id, source, width, condition_of(table_id)) for table_id, tables in sources.items() for source in tables]
    found: list[InlinedGroup] = []
    for start in range(0, len(queries), _TABLES_PER_STATEMENT):
        rows = reader.connection.execute(union_all(*queries[start : start + _TABLES_PER_STATEMENT]))
        found += [cells.group(row) for row in rows]
    return found


def all_inlined_rows(
    reader: CatalogReader,
    sources: Mapping[int, Sequence[InlinedTable]],
    columns: Mapping[int, Sequence[Field | None]],
    known: Mapping[int, Definition],
) -> list[InlinedGroup]:
    """Return all inlined rows of all snapshots, in groups; arguments as in :func:`changed_inlined_rows`."""
    return _groups(reader, sources, columns, known, lambda _table_id: lambda _source: true())


def _differs(edges: Edges, *, everything: bool) -> Any:
    """Return a function from a table of inlined rows to the condition on its begin and end snapshots."""

    def condition(source: Table) -> ColumnElement[bool]:
        begin, end = source.c.begin_snapshot, source.c.end_snapshot
        # Rows that began and ended within the range are visible at neither snapshot and are left out.
        before = and_(begin <= edges.after, or_(end.is_(None), end > edges.after))
        now = and_(begin <= edges.until, or_(end.is_(None), end > edges.until))
        if everything:
            return or_(before, now)
        ended = and_(begin <= edges.after, end.between(edges.after + 1, edges.until))
        return or_(ended, and_(now, begin > edges.after))

    return condition


class _Cells:
    """Read columns of tables of inlined rows as strings, each parsed with the type that the column had in that table."""

    def __init__(
        self,
        reader: CatalogReader,
        sources: Mapping[int, Sequence[InlinedTable]],
        columns: Mapping[int, Sequence[Field | None]],
        known: Mapping[int, Definition],
    ) -> None:
        self._reader = reader
        self._abilities = abilities_of(reader.connection.dialect)
        self._columns = columns
        self._known = known
        self._folded = self._folded_names(sources) if self._abilities.folds_names else {}
        self._stored: dict[str, tuple[int, tuple[Field | None, ...]]] = {}

    def _folded_names(self, sources: Mapping[int, Sequence[InlinedTable]]) -> dict[str, list[str]]:
        """Return the column names as PostgreSQL stores them. DuckDB does not quote plain names, so only their order is reliable."""
        names = [source.name for tables in sources.values() for source in tables]
        if not any(field is not None and field.name != field.name.lower() for fields in self._columns.values() for field in fields):
            return {}
        found = inspect(self._reader.connection).get_multi_columns(schema=self._reader.catalog.schema, filter_names=names)
        return {name: [column["name"] for column in columns][INLINED_SYSTEM_COLUMNS:] for (_, name), columns in found.items()}

    def query(self, table_id: int, source: InlinedTable, width: int, condition: Any) -> Select[Any]:
        stored = self._stored_fields(table_id, source)
        self._stored[source.name] = (table_id, tuple(field for field, _ in stored))
        table = self._reader.catalog.inlined_data(source.name, [name for _, name in stored if name is not None])
        own = iter(list(table.c)[INLINED_SYSTEM_COLUMNS:])
        # All parts of the UNION need the same number of columns, so missing ones are NULL.
        strings = [_as_text(next(own), field, self._abilities) if field is not None else cast(null(), String) for field, _ in stored]
        strings += [cast(null(), String)] * (width - len(strings))
        grouped = (table.c.begin_snapshot, table.c.end_snapshot, *(text for text in strings))
        labelled = [text.label(f"value_{place}") for place, text in enumerate(strings)]
        return (
            select(
                literal(source.name).label("source"),
                table.c.begin_snapshot.label("begin_snapshot"),
                table.c.end_snapshot.label("end_snapshot"),
                func.count().label("row_count"),
                *labelled,
            )
            .where(condition(table))
            .group_by(*grouped)
        )

    def _stored_fields(self, table_id: int, source: InlinedTable) -> list[tuple[Field | None, str | None]]:
        """Return the requested columns as this table stores them, with their names; None for missing or unreadable columns."""
        try:
            schema = self._known[table_id].versions.schema_at(source.schema_version)
        except DuckLakeError:
            return [(None, None) for _ in self._columns.get(table_id, ())]
        by_id = {column.id: (place, column) for place, column in enumerate(schema)}
        names = self._folded.get(source.name)
        found: list[tuple[Field | None, str | None]] = []
        for wanted in self._columns.get(table_id, ()):
            place, column = by_id.get(wanted.id, (0, None)) if wanted is not None else (0, None)
            if column is None or not column.is_leaf or column.type in _WITHOUT_TEXT or (names is not None and len(names) != len(by_id)):
                found.append((None, None))
            else:
                found.append((column, names[place] if names is not None else column.name))
        return found

    def group(self, row: Any) -> InlinedGroup:
        table_id, stored = self._stored[row.source]
        values = tuple(row)[4:]
        wanted = self._columns.get(table_id, ())
        return InlinedGroup(
            table_id=table_id,
            begin_snapshot=row.begin_snapshot,
            end_snapshot=row.end_snapshot,
            row_count=row.row_count,
            ranges=tuple(
                ValueRange() if old is None or new is None else self._range(text, old, new)
                for text, old, new in zip(values, stored, wanted, strict=False)
            ),
        )

    def _range(self, text: str | None, old: Field, new: Field) -> ValueRange:
        if text is None:
            return ValueRange(has_values=False)
        try:
            plain = bytes.fromhex(text).decode() if _is_hexadecimal(old.type, self._abilities) else text
            value = parse_leaf(plain, new.type)
        except (DuckLakeError, ValueError):
            return ValueRange()
        return ValueRange(low=value, high=value)


def _is_hexadecimal(data_type: DataType, abilities: Abilities) -> bool:
    return abilities.inlined_text_as_bytes and data_type in (VARCHAR, JSON)


def _as_text(stored: Any, column: Field, abilities: Abilities) -> Any:
    if _is_hexadecimal(column.type, abilities):
        return func.encode(stored, literal_column("'hex'"))
    return cast(stored, String)


def changed_inlined_deletes(reader: CatalogReader, edges: Edges, table_ids: Collection[int]) -> list[InlinedDeletes]:
    """Return the inlined deletes of the range, in two statements: one lists the existing tables, one reads all of them."""
    if not table_ids:
        return []
    existing = set(inspect(reader.connection).get_table_names(schema=reader.catalog.schema))
    present = [table_id for table_id in sorted(table_ids) if inlined_delete_name(table_id) in existing]
    found: list[InlinedDeletes] = []
    for start in range(0, len(present), _TABLES_PER_STATEMENT):
        queries = [_deletes_query(reader, edges, table_id) for table_id in present[start : start + _TABLES_PER_STATEMENT]]
        found += [
            InlinedDeletes(table_id=row.table_id, data_file_id=row.file_id, begin_snapshot=row.begin_snapshot, row_count=row.row_count)
            for row in reader.connection.execute(union_all(*queries))
        ]
    return found


def _deletes_query(reader: CatalogReader, edges: Edges, table_id: int) -> Select[Any]:
    source = reader.catalog.inlined_delete(table_id)
    return (
        select(literal(table_id).label("table_id"), source.c.file_id, source.c.begin_snapshot, func.count().label("row_count"))
        .where(source.c.begin_snapshot.between(edges.after + 1, edges.until))
        .group_by(source.c.file_id, source.c.begin_snapshot)
    )
