"""Build the state of one table from catalog rows: columns, partition keys, sort keys, options, tables of inlined rows."""

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
"""Key of the tag that is the comment of an object."""

LAKE_SETTINGS = ("version", "created_by", "data_path", "encrypted")
"""Keys of metadata rows that are settings of the lake and not options."""


class SettingRow(NamedTuple):
    """A row of one of three kinds.

    =========  =======================  ================  ======
    kind       key                      value             scope
    =========  =======================  ================  ======
    option     name                     value             scope
    inlined    table of inlined rows    schema version    None
    columns    None                     schema version    None
    =========  =======================  ================  ======
    """

    key: str | None
    value: str | None
    scope: str | None
    kind: str


Among: TypeAlias = Callable[[ColumnElement[int]], ColumnElement[bool]]
"""Returns the condition that a column with a table id is one of the requested tables."""


def this_table(table_id: int) -> ColumnElement[int]:
    """Return a constant column ``table_id``, as a literal, because the number of parameters of a statement is limited."""
    return literal_column(str(int(table_id)), Integer).label("table_id")


class TableRowSource(Protocol):
    """The source of the rows of a table: a statement for each table, or one for many tables at once."""

    catalog: CatalogTables

    def rows_of_table(self, kind: tuple[object, ...], build: Callable[[Among], Select[Any]], table_id: int) -> Sequence[Row[Any]]:
        """Return the rows of one kind of a table.

        Args:
            kind: Identifies the statement.
            build: Builds the statement for some tables, with a column ``table_id`` and the order of the rows of a table.
            table_id: The table.
        """
        ...

    def setting_rows(self, schema_id: int, table_id: int) -> Sequence[SettingRow]:
        """Return the rows of kind ``option``, ``inlined`` and ``columns``."""
        ...

    def has_table(self, name: str) -> bool:
        """Return whether the database has a table that is not a metadata table."""
        ...


def table_state(source: TableRowSource, info: LakeInfo, rows: Sequence[Row[Any]], snapshot_id: int) -> TableState:
    """Build the state of a table, in five statements.

    Args:
        source: Source of the further rows.
        info: Settings of the lake.
        rows: The row of the table joined with its tags, see ``CatalogReader.table``.
        snapshot_id: The snapshot.
    """
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
    """Return the tags from the row of an object joined with its tags; a tag with the value NULL was removed."""
    return {row.tag_key: row.tag_value for row in rows if row.tag_value is not None}


def column_row(row: Row[Any]) -> ColumnRow:
    """Return the value of one row of ``ducklake_column``."""
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


# In the order in which `column_rows` unpacks them.
_OF_COLUMN = (
    "table_id", "end_snapshot", "column_id", "parent_column", "column_order", "column_name", "column_type", "nulls_allowed",
    "initial_default", "default_value", "default_value_type", "default_value_dialect", "begin_snapshot",
)  # fmt: skip


def column_query(tables: CatalogTables) -> Select[Any]:
    """Return the query for rows of ``ducklake_column`` of many tables, for :func:`column_rows`."""
    column = tables["column"]
    return select(*(column.c[name] for name in _OF_COLUMN))


def column_rows(rows: Iterable[Any]) -> Iterator[tuple[int, int | None, ColumnRow]]:
    """Yield table id, end snapshot and value of each row of :func:`column_query`. Unpacking by position is twice as fast as by name."""
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
        # Duplicate rows, and rows with two comments, are one column.
        schema=build_schema(dict.fromkeys(column_row(row) for row in rows)),
        comments={row.column_id: row.comment for row in rows if row.comment is not None},
        # Ids of dropped columns count: existing files contain values under those ids.
        next_id=1 + (rows[0].highest if rows else 0),
    )


def _columns_query(tables: CatalogTables, snapshot_id: int, among: Among) -> Select[Any]:
    column, tag = tables["column"], tables["column_tag"]
    ever = tables["column"].alias("ever")
    # DuckDB supports no other tags of columns.
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
    """Return all specs that have keys, and the id of the effective one."""
    rows = source.rows_of_table(("specs", snapshot_id), lambda among: _specs_query(source.catalog, snapshot_id, among), table_id)
    # RESET PARTITIONED BY stores a spec without keys.
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
    """Return the last names of deleted columns that an old spec uses."""
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
            # NULL becomes an empty string, which a write to the table rejects as an unknown sort order.
            expression=row.expression or "",
            direction=row.sort_direction or "",
            null_order=row.null_order or "",
            dialect=row.dialect or "",
        )
        for row in source.rows_of_table(("sort keys", snapshot_id), sorting, table_id)
    )


def options_query(tables: CatalogTables, schema_id: int | None, table_id: int | None) -> Select[Any]:
    """Return the query for options of every scope that applies to a table: key, value, scope."""
    metadata = tables["metadata"]
    scopes = or_(
        metadata.c.scope.is_(None),
        and_(metadata.c.scope == "schema", metadata.c.scope_id == schema_id),
        and_(metadata.c.scope == "table", metadata.c.scope_id == table_id),
    )
    return select(metadata.c.key, metadata.c.value, metadata.c.scope).where(
        scopes, metadata.c.key.not_in(LAKE_SETTINGS), is_option(metadata)
    )


def effective_options(rows: Iterable[Any]) -> dict[str, str]:
    """Return the options from rows of :func:`options_query`; the narrowest scope wins."""
    rank = {None: 0, "schema": 1, "table": 2}
    return {row.key.lower(): row.value for row in sorted(rows, key=lambda row: rank.get(row.scope, 0))}


def _inlined_table(name: str | None, version: str | None, table_id: int) -> InlinedTable:
    if not name or version is None or not version.isdecimal():
        raise CatalogCorruptError(
            f"table {table_id} has the table of inlined rows {name!r} with the schema version {version!r}", table_id=table_id
        )
    return InlinedTable(name=name, schema_version=int(version))


def inlined_tables_of(registered: Iterable[tuple[str | None, str | None]], table_id: int) -> tuple[InlinedTable, ...]:
    """Return the tables of inlined rows of a table, by schema version.

    Args:
        registered: Names and schema versions.
        table_id: The table, for messages.

    Raises:
        CatalogCorruptError: One has no name or version, or is registered for two versions.
    """
    found = {_inlined_table(name, version, table_id) for name, version in registered}
    if len({item.name for item in found}) < len(found):
        raise CatalogCorruptError(f"table {table_id} has a table of inlined rows that is registered for two versions", table_id=table_id)
    return tuple(sorted(found, key=lambda item: item.schema_version))


def settings_query(tables: CatalogTables, schema_id: int, table_id: int) -> CompoundSelect[Any]:
    """Return one query for options, tables of inlined rows and the schema version of the columns, to save round trips."""
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
    """Return options, tables of inlined rows, and the schema version of the columns."""
    rows = source.setting_rows(schema_id, table_id)
    inlined = inlined_tables_of(((row.key, row.value) for row in rows if row.kind == "inlined"), table_id)
    columns_version = next((int(row.value) for row in rows if row.kind == "columns" and row.value is not None), 0)
    return effective_options(row for row in rows if row.kind == "option"), inlined, columns_version
