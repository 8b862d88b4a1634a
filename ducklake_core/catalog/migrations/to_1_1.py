"""What a catalog needs beside new columns to be of version 1.1: tables of inlined rows, schema versions, defaults and bounds.

The plan only reads, and refuses what cannot be migrated before anything changes (specification: Upgrading to DuckLake 1.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import BigInteger, Column, Connection, MetaData, Table, and_, delete, func, insert, inspect, select, update

from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.catalog.migrations.ddl import RenameColumn as RenameColumnStatement
from ducklake_core.catalog.writing.head import chunks
from ducklake_core.errors import DuckLakeError, UnsupportedFeatureError
from ducklake_core.format.types.data_types import DataType
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.type_names import parse_leaf_type
from ducklake_core.format.values.leaf_values import from_text
from ducklake_core.format.versions import InlinedColumns

_ROWS_PER_FETCH = 2000
_DEFAULTS = ("initial_default", "default_value", "default_value_type", "default_value_dialect")


@dataclass(frozen=True, slots=True)
class RenameInlinedColumn:
    """A leading column of a table of inlined rows gets its name of version 1.1."""

    table_name: str
    former: str
    name: str

    def __str__(self) -> str:
        return f"rename {self.table_name}.{self.former} to {self.name}"


@dataclass(frozen=True, slots=True)
class AddSchemaVersion:
    """A schema version that a table of inlined rows is of, and that the table has no row for."""

    table_id: int
    schema_version: int
    begin_snapshot: int

    def __str__(self) -> str:
        return f"add schema version {self.schema_version} of table {self.table_id}, from snapshot {self.begin_snapshot} on"


@dataclass(frozen=True, slots=True)
class RestoreDefault:
    """A field of a struct that lost its default when it was renamed gets it back.

    Attributes:
        begin_snapshot: When it was renamed; ``former`` is the begin of the row that has the default.
    """

    table_id: int
    column_id: int
    begin_snapshot: int
    former: int

    def __str__(self) -> str:
        return f"restore the default of field {self.column_id} of table {self.table_id} from snapshot {self.begin_snapshot} on"


@dataclass(frozen=True, slots=True)
class ClearBounds:
    """Bounds of a column that are no values of its type, from before the type was changed.

    Attributes:
        files: Ids of the data files with such bounds.
        whole_table: Whether the bounds of the whole table are among them.
    """

    table_id: int
    column_id: int
    files: tuple[int, ...]
    whole_table: bool

    def __str__(self) -> str:
        whole = " and of the whole table" if self.whole_table else ""
        return f"clear the bounds of column {self.column_id} of table {self.table_id} in {len(self.files)} files{whole}: of another type"


Repair: TypeAlias = RenameInlinedColumn | AddSchemaVersion | RestoreDefault | ClearBounds


def inlined_renames(connection: Connection, tables: CatalogTables, wanted: InlinedColumns) -> Iterator[RenameInlinedColumn]:
    """The leading columns of all tables of inlined rows that have other names.

    Raises:
        UnsupportedFeatureError: A table that is not there, has other columns, or one of a user with a name that is wanted.
    """
    registered, table = tables["inlined_data_tables"], tables["table"]
    owner = and_(table.c.table_id == registered.c.table_id, table.c.end_snapshot.is_(None))
    query = select(registered.c.table_name, table.c.table_name.label("owner")).select_from(registered.outerjoin(table, owner))
    rows = connection.execute(query.order_by(registered.c.table_name)).all()
    found = inspect(connection).get_multi_columns(schema=tables.schema, filter_names=[row.table_name for row in rows]) if rows else {}
    columns = {name: [column["name"] for column in listed] for (_, name), listed in found.items()}
    for row in rows:
        yield from _renames(row.table_name, row.owner, columns.get(row.table_name, []), tables.inlined, wanted)


def _renames(
    name: str, owner: str | None, columns: list[str], before: InlinedColumns, wanted: InlinedColumns
) -> Iterator[RenameInlinedColumn]:
    if not columns:
        raise _refused(name, owner, "it is registered, but not there")
    own = {folded(column) for column in columns[len(wanted.names) :]}
    for there, former, new in zip((*columns, None, None, None), before.names, wanted.names, strict=False):
        if there is not None and folded(there) == new:
            continue
        if there is None or folded(there) != former:
            raise _refused(name, owner, f"its leading columns are {', '.join(columns[: len(wanted.names)])}")
        if new in own:
            raise _refused(name, owner, f"it has a column {new!r}, which is reserved: rename it, and flush the inlined rows, first")
        yield RenameInlinedColumn(name, there, new)


def _refused(name: str, owner: str | None, reason: str) -> UnsupportedFeatureError:
    of = f" of table {owner!r}" if owner else ""
    return UnsupportedFeatureError(
        f"cannot migrate: the inlined rows in {name}{of} cannot be brought to version 1.1: {reason}; nothing was changed",
        inlined_table=name,
    )


def missing_schema_versions(connection: Connection, tables: CatalogTables) -> list[AddSchemaVersion]:
    """Of tables of inlined rows that have an earlier version; only where the snapshot before the one that began it still exists."""
    snapshot, registered, versions = tables["snapshot"], tables["inlined_data_tables"], tables["schema_versions"]
    following = func.lag(snapshot.c.snapshot_id).over(order_by=snapshot.c.snapshot_id)
    stepped = func.lag(snapshot.c.schema_version).over(order_by=snapshot.c.snapshot_id)
    steps = select(snapshot.c.snapshot_id, snapshot.c.schema_version, following.label("id_before"), stepped.label("before")).subquery(
        "steps"
    )
    known = select(versions.c.table_id).where(
        versions.c.table_id == registered.c.table_id, versions.c.schema_version == registered.c.schema_version
    )
    earlier = (
        select(func.count())
        .select_from(versions)
        .where(versions.c.table_id == registered.c.table_id, versions.c.begin_snapshot <= steps.c.snapshot_id)
        .scalar_subquery()
    )
    query = (
        select(registered.c.table_id, registered.c.schema_version, steps.c.snapshot_id)
        .join(steps, and_(registered.c.schema_version > steps.c.before, registered.c.schema_version <= steps.c.schema_version))
        .where(steps.c.id_before == steps.c.snapshot_id - 1, ~known.exists(), earlier > 1)
        .distinct()
        .order_by(registered.c.table_id, registered.c.schema_version)
    )
    return [AddSchemaVersion(row.table_id, row.schema_version, row.snapshot_id) for row in connection.execute(query)]


def lost_defaults(connection: Connection, tables: CatalogTables) -> list[RestoreDefault]:
    """Versions of fields without an ``initial_default`` that an earlier version of them has: a default of a field cannot change."""
    column = tables["column"]
    query = select(column.c.table_id, column.c.column_id, column.c.begin_snapshot, column.c.initial_default).where(
        column.c.parent_column.is_not(None)
    )
    found: list[RestoreDefault] = []
    former: Any = None
    for row in connection.execute(query.order_by(column.c.table_id, column.c.column_id, column.c.begin_snapshot)):
        if row.initial_default is not None:
            former = row
        elif former is not None and (former.table_id, former.column_id) == (row.table_id, row.column_id):
            found.append(RestoreDefault(row.table_id, row.column_id, row.begin_snapshot, former.begin_snapshot))
    return found


def wrong_bounds(connection: Connection, tables: CatalogTables) -> list[ClearBounds]:
    """Bounds that are no values of the newest type of their column, of columns that had another one."""
    column = tables["column"]
    changed = (
        select(column.c.table_id, column.c.column_id)
        .group_by(column.c.table_id, column.c.column_id)
        .having(func.count(column.c.column_type.distinct()) > 1)
        .subquery("changed")
    )
    query = select(column.c.table_id, column.c.column_id, column.c.column_type).join(
        changed, and_(changed.c.table_id == column.c.table_id, changed.c.column_id == column.c.column_id)
    )
    types: dict[tuple[int, int], DataType] = {}
    for row in connection.execute(query.order_by(column.c.begin_snapshot)).all():
        with suppress(DuckLakeError):
            types[row.table_id, row.column_id] = parse_leaf_type(row.column_type)
    files, whole = _wrong_in(connection, tables, "file_column_stats", types), _wrong_in(connection, tables, "table_column_stats", types)
    return [ClearBounds(*key, tuple(files.get(key, ())), key in whole) for key in sorted(files.keys() | whole.keys())]


def _wrong_in(
    connection: Connection, tables: CatalogTables, name: str, types: Mapping[tuple[int, int], DataType]
) -> dict[tuple[int, int], list[int]]:
    stats = tables[name]
    found: dict[tuple[int, int], list[int]] = {}
    for chunk in chunks(sorted({column for _, column in types})):
        query = select(stats).where(stats.c.column_id.in_(chunk)).execution_options(yield_per=_ROWS_PER_FETCH)
        with connection.execute(query) as rows:
            for row in rows:
                key = (row.table_id, row.column_id)
                if key in types and not all(_is_value(bound, types[key]) for bound in (row.min_value, row.max_value)):
                    found.setdefault(key, []).append(getattr(row, "data_file_id", -1))
    return found


def _is_value(bound: object, data_type: DataType) -> bool:
    if bound is None:
        return True
    try:
        from_text(str(bound), data_type)
    except (DuckLakeError, ValueError, ArithmeticError):
        return False
    return True


def run_repair(connection: Connection, tables: CatalogTables, step: Repair) -> None:
    """Carry out one of them in an open transaction.

    Args:
        tables: The metadata tables as they are now.
    """
    match step:
        case RenameInlinedColumn():
            inlined = Table(step.table_name, MetaData(schema=tables.schema), Column(step.former, BigInteger))
            connection.execute(RenameColumnStatement(inlined, step.former, step.name))
        case AddSchemaVersion(table_id=table_id, schema_version=version, begin_snapshot=begin):
            row = {"begin_snapshot": begin, "schema_version": version, "table_id": table_id}
            connection.execute(insert(tables["schema_versions"]), row)
        case RestoreDefault():
            _restore_default(connection, tables["column"], step)
        case ClearBounds():
            _clear_bounds(connection, tables, step)


def _restore_default(connection: Connection, column: Table, step: RestoreDefault) -> None:
    field = (column.c.table_id == step.table_id, column.c.column_id == step.column_id)
    defaults = (column.c[name] for name in _DEFAULTS)
    former = connection.execute(select(*defaults).where(*field, column.c.begin_snapshot == step.former)).mappings().first()
    if former is not None:
        connection.execute(update(column).where(*field, column.c.begin_snapshot == step.begin_snapshot).values(dict(former)))


def _clear_bounds(connection: Connection, tables: CatalogTables, step: ClearBounds) -> None:
    stats, whole = tables["file_column_stats"], tables["table_column_stats"]
    for chunk in chunks(step.files):
        of_files = (stats.c.table_id == step.table_id, stats.c.column_id == step.column_id, stats.c.data_file_id.in_(chunk))
        connection.execute(update(stats).where(*of_files).values(min_value=None, max_value=None))
    if step.whole_table:
        # Without bounds it would say that the column has no values yet: the next insert would begin them anew.
        connection.execute(delete(whole).where(whole.c.table_id == step.table_id, whole.c.column_id == step.column_id))
