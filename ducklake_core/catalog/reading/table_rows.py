"""From catalog rows to the state of one table: columns, partition keys, sort keys, options, tables of inlined rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Integer,
    Row,
    Select,
    String,
    and_,
    cast,
    func,
    literal,
    literal_column,
    null,
    or_,
    select,
    union_all,
)

from ducklake_core.catalog.database.tables import CatalogTables, inlined_delete_name
from ducklake_core.catalog.reading.running_writes import is_option
from ducklake_core.catalog.reading.visibility import live
from ducklake_core.errors import CatalogCorruptError, UnsupportedFeatureError
from ducklake_core.format.files import paths
from ducklake_core.format.files.partitioning import PartitionField, PartitionSpec, parse_transform
from ducklake_core.format.layout.sorting import SortKey
from ducklake_core.format.state import InlinedTable, LakeInfo, TableState
from ducklake_core.format.types.schema import ColumnRow, Schema, build_schema

COMMENT = "comment"
"""The key of the tag that is an object's comment."""

LAKE_SETTINGS = ("version", "created_by", "data_path", "encrypted")
"""Keys of metadata rows that are no options."""


class SettingRow(NamedTuple):
    """An option; or a table of inlined rows (``key``) with its schema version; or the schema version of a table's columns (``value``)."""

    key: str | None
    value: str | None
    scope: str | None
    kind: str


Among: TypeAlias = Callable[[ColumnElement[int]], ColumnElement[bool]]
"""The condition that a column with the id of a table is of the tables that are asked for."""


def this_table(table_id: int) -> ColumnElement[int]:
    """The column ``table_id`` of rows that do not say which table they are of; no parameter, of which a statement has only so many."""
    return literal_column(str(int(table_id)), Integer).label("table_id")


class TableRowSource(Protocol):
    """Where rows of a table come from: a statement for each table, or one for many tables at once."""

    catalog: CatalogTables

    def rows_of_table(self, kind: tuple[object, ...], build: Callable[[Among], Select[Any]], table_id: int) -> Sequence[Row[Any]]:
        """Rows of a table.

        Args:
            kind: Tells the statements apart.
            build: Makes the statement for some tables, with a column ``table_id`` and in the order in which a table's rows are wanted.
            table_id: The table.
        """
        ...

    def setting_rows(self, schema_id: int, table_id: int) -> Sequence[SettingRow]:
        """Rows of kind ``option``, ``inlined`` and ``columns``."""
        ...

    def has_table(self, name: str) -> bool:
        """Whether the database has a table beside the metadata tables."""
        ...


def table_state(source: TableRowSource, info: LakeInfo, rows: Sequence[Row[Any]], snapshot_id: int) -> TableState:
    """Everything about a table that has one row for each of its tags (see ``CatalogReader.table``), in five statements."""
    row, tags = rows[0], tags_of(rows)
    try:
        columns = _columns(source, row.table_id, snapshot_id)
    except (CatalogCorruptError, UnsupportedFeatureError) as error:
        message = f"table {row.schema_name}.{row.table_name} at snapshot {snapshot_id}: {error.message}"
        raise type(error)(message, **error.details, table=f"{row.schema_name}.{row.table_name}") from error
    if not columns.schema.columns:
        raise CatalogCorruptError(
            f"table {row.schema_name}.{row.table_name} has no columns at snapshot {snapshot_id}", table_id=row.table_id
        )
    specs, current = _partition_specs(source, row.table_id, snapshot_id, columns.schema)
    options, inlined, columns_version = _options_and_inlined(source, row.schema_id, row.table_id)
    schema_path = paths.join(info.data_path, row.schema_path, row.schema_path_is_relative is not False)
    return TableState(
        id=row.table_id,
        uuid=row.table_uuid or "",
        name=row.table_name,
        schema_id=row.schema_id,
        schema_name=row.schema_name,
        path=paths.join(schema_path, row.table_path, row.table_path_is_relative is not False),
        schema=columns.schema,
        snapshot_id=snapshot_id,
        schema_version=row.schema_version or 0,
        snapshot_time=row.snapshot_time,
        next_column_id=columns.next_id,
        partition_spec=specs.get(current) if current is not None else None,
        partition_specs=specs,
        sort_keys=_sort_keys(source, row.table_id, snapshot_id),
        inlined_tables=inlined,
        columns_version=columns_version,
        has_inlined_deletes=source.has_table(inlined_delete_name(row.table_id)),
        options=options,
        comment=tags.pop(COMMENT, None),
        column_comments=columns.comments,
        tags=tags,
        format_version=source.catalog.version,
    )


def tags_of(rows: Iterable[Row[Any]]) -> dict[str, str]:
    """The tags of rows that are one object joined with its tags; a tag whose value is NULL was taken away."""
    return {row.tag_key: row.tag_value for row in rows if row.tag_value is not None}


def column_row(row: Row[Any]) -> ColumnRow:
    """The value of one row of ``ducklake_column``."""
    return ColumnRow(
        column_id=row.column_id,
        parent_column=row.parent_column,
        column_order=row.column_order,
        column_name=row.column_name,
        column_type=row.column_type,
        nulls_allowed=row.nulls_allowed is not False,
        initial_default=row.initial_default,
        default_value=row.default_value,
        default_value_type=row.default_value_type,
        default_value_dialect=row.default_value_dialect,
        begin_snapshot=row.begin_snapshot,
    )


# The order in which `column_rows` reads them.
_OF_COLUMN = (
    "table_id", "end_snapshot", "column_id", "parent_column", "column_order", "column_name", "column_type", "nulls_allowed",
    "initial_default", "default_value", "default_value_type", "default_value_dialect", "begin_snapshot",
)  # fmt: skip


def column_query(tables: CatalogTables) -> Select[Any]:
    """Rows of ``ducklake_column`` of many tables, which :func:`column_rows` reads."""
    column = tables["column"]
    return select(*(column.c[name] for name in _OF_COLUMN))


def column_rows(rows: Iterable[Any]) -> Iterator[tuple[int, int | None, ColumnRow]]:
    """Table, last snapshot and value of each row of :func:`column_query`; looking up each cell by its name would take twice as long."""
    for table_id, end, number, parent, order, name, kind, nullable, initial, default, default_type, dialect, begin in rows:
        yield (
            table_id,
            end,
            ColumnRow(
                column_id=number,
                parent_column=parent,
                column_order=order,
                column_name=name,
                column_type=kind,
                nulls_allowed=nullable is not False,
                initial_default=initial,
                default_value=default,
                default_value_type=default_type,
                default_value_dialect=dialect,
                begin_snapshot=begin,
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    schema: Schema
    comments: Mapping[int, str]
    next_id: int


def _columns(source: TableRowSource, table_id: int, snapshot_id: int) -> _Columns:
    rows = source.rows_of_table(("columns", snapshot_id), lambda among: _columns_query(source.catalog, snapshot_id, among), table_id)
    return _Columns(
        # A row that is there twice, or has two comments, is one column.
        schema=build_schema(dict.fromkeys(column_row(row) for row in rows)),
        comments={row.column_id: row.comment for row in rows if row.comment is not None},
        next_id=1 + (rows[0].highest if rows else 0),
    )


def _columns_query(tables: CatalogTables, snapshot_id: int, among: Among) -> Select[Any]:
    column, tag = tables["column"], tables["column_tag"]
    ever = tables["column"].alias("ever")
    # Of columns DuckDB allows no other tags.
    is_comment = and_(
        tag.c.table_id == column.c.table_id, tag.c.column_id == column.c.column_id, tag.c.key == COMMENT, live(tag, snapshot_id)
    )
    numbers = select(ever.c.table_id, func.max(ever.c.column_id).label("highest")).where(among(ever.c.table_id))
    highest = numbers.group_by(ever.c.table_id).subquery()
    return (
        select(column, tag.c.value.label("comment"), highest.c.highest)
        .select_from(column.join(highest, highest.c.table_id == column.c.table_id).outerjoin(tag, is_comment))
        .where(among(column.c.table_id), live(column, snapshot_id))
    )


def _partition_specs(
    source: TableRowSource, table_id: int, snapshot_id: int, schema: Schema
) -> tuple[dict[int, PartitionSpec], int | None]:
    """All specs that have keys, and the id of the one in force."""
    rows = source.rows_of_table(("specs", snapshot_id), lambda among: _specs_query(source.catalog, snapshot_id, among), table_id)
    # A spec without keys is what RESET PARTITIONED BY leaves behind.
    keyed = [row for row in rows if row.column_id is not None]
    names = {column.id: column.name for column in schema}
    names |= _former_names(source, table_id, {row.column_id for row in keyed} - names.keys())
    fields: dict[int, list[PartitionField]] = {}
    for row in keyed:
        transform, buckets = parse_transform(row.transform)
        field = PartitionField(column_id=row.column_id, column=names[row.column_id], transform=transform, buckets=buckets)
        fields.setdefault(row.partition_id, []).append(field)
    specs = {number: PartitionSpec(id=number, fields=tuple(keys)) for number, keys in fields.items()}
    return specs, next((row.partition_id for row in reversed(rows) if row.is_live), None)


def _specs_query(tables: CatalogTables, snapshot_id: int, among: Among) -> Select[Any]:
    info, key = tables["partition_info"], tables["partition_column"]
    return (
        select(info.c.table_id, info.c.partition_id, live(info, snapshot_id).label("is_live"), key.c.column_id, key.c.transform)
        .select_from(info.outerjoin(key, and_(key.c.partition_id == info.c.partition_id, key.c.table_id == info.c.table_id)))
        .where(among(info.c.table_id))
        .order_by(info.c.partition_id, key.c.partition_key_index)
    )


def _former_names(source: TableRowSource, table_id: int, column_ids: set[int]) -> dict[int, str]:
    """Names of columns that an old spec used and that are gone."""
    if not column_ids:
        return {}
    column = source.catalog["column"]

    def named(among: Among) -> Select[Any]:
        query = select(column.c.table_id, column.c.column_id, column.c.column_name).where(among(column.c.table_id))
        return query.order_by(column.c.begin_snapshot)

    rows = source.rows_of_table(("names",), named, table_id)
    found = {row.column_id: row.column_name for row in rows if row.column_id in column_ids}
    lost = sorted(column_ids - found.keys())
    if lost:
        raise CatalogCorruptError(f"partition keys of table {table_id} name columns {lost} that never existed", table_id=table_id)
    return found


def _sort_keys(source: TableRowSource, table_id: int, snapshot_id: int) -> tuple[SortKey, ...]:
    info, key = source.catalog["sort_info"], source.catalog["sort_expression"]

    def sorting(among: Among) -> Select[Any]:
        joined = select(key).join(info, and_(key.c.sort_id == info.c.sort_id, key.c.table_id == info.c.table_id))
        return joined.where(among(info.c.table_id), live(info, snapshot_id)).order_by(key.c.sort_key_index)

    return tuple(
        SortKey(
            # A NULL is refused as what it is where the table is written: no order.
            expression=row.expression or "",
            direction=row.sort_direction or "",
            null_order=row.null_order or "",
            dialect=row.dialect or "",
        )
        for row in source.rows_of_table(("sort keys", snapshot_id), sorting, table_id)
    )


def options_query(tables: CatalogTables, schema_id: int | None, table_id: int | None) -> Select[Any]:
    """Options of every scope that holds for a table: key, value, scope."""
    metadata = tables["metadata"]
    scopes = or_(
        metadata.c.scope.is_(None),
        and_(metadata.c.scope == "schema", metadata.c.scope_id == schema_id),
        and_(metadata.c.scope == "table", metadata.c.scope_id == table_id),
    )
    return select(metadata.c.key, metadata.c.value, metadata.c.scope).where(
        scopes, metadata.c.key.not_in(LAKE_SETTINGS), is_option(metadata)
    )


def options_in_force(rows: Iterable[Any]) -> dict[str, str]:
    """Rows of :func:`options_query`, the narrowest scope winning."""
    rank = {None: 0, "schema": 1, "table": 2}
    return {row.key.lower(): row.value for row in sorted(rows, key=lambda row: rank.get(row.scope, 0))}


def _inlined_table(name: str | None, version: str | None, table_id: int) -> InlinedTable:
    if not name or version is None or not version.isdecimal():
        raise CatalogCorruptError(
            f"table {table_id} has the table of inlined rows {name!r} with the schema version {version!r}", table_id=table_id
        )
    return InlinedTable(name=name, schema_version=int(version))


def inlined_tables_of(registered: Iterable[tuple[str | None, str | None]], table_id: int) -> tuple[InlinedTable, ...]:
    """The tables of inlined rows of a table by their names and schema versions, by schema version.

    Raises:
        CatalogCorruptError: One has no name or version, or is registered for two versions.
    """
    found = {_inlined_table(name, version, table_id) for name, version in registered}
    if len({item.name for item in found}) < len(found):
        raise CatalogCorruptError(f"table {table_id} has a table of inlined rows that is registered for two versions", table_id=table_id)
    return tuple(sorted(found, key=lambda item: item.schema_version))


def settings_query(tables: CatalogTables, schema_id: int, table_id: int) -> CompoundSelect[Any]:
    """Options, tables of inlined rows and the schema version of the columns, because a round trip costs more than the rows."""
    inlined = tables["inlined_data_tables"]
    registered = select(inlined.c.table_name, cast(inlined.c.schema_version, String), null(), literal("inlined")).where(
        inlined.c.table_id == table_id
    )
    versions = tables["schema_versions"]
    changed = select(null(), cast(func.max(versions.c.schema_version), String), null(), literal("columns")).where(
        versions.c.table_id == table_id
    )
    options = options_query(tables, schema_id, table_id).add_columns(literal("option").label("kind"))
    return union_all(options, registered, changed)


def _options_and_inlined(source: TableRowSource, schema_id: int, table_id: int) -> tuple[dict[str, str], tuple[InlinedTable, ...], int]:
    """Both, and the schema version of the columns."""
    rows = source.setting_rows(schema_id, table_id)
    inlined = inlined_tables_of(((row.key, row.value) for row in rows if row.kind == "inlined"), table_id)
    columns_version = next((int(row.value) for row in rows if row.kind == "columns" and row.value is not None), 0)
    return options_in_force(row for row in rows if row.kind == "option"), inlined, columns_version
