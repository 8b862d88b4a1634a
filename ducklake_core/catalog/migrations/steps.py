"""Plans a migration: the steps to take on a catalog of an earlier version, which print themselves (specification: Migrations).

The steps follow from the difference between the tables that are there and those of the version that is wanted, in the order in which the
released versions differ, so that development versions need no list of their own. What DuckDB would do one version after
another is done at once; the tables end with the same columns in the same order, which DuckDB's inserts rely on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from sqlalchemy import BigInteger, ColumnClause, Connection, String, Table, bindparam, column, delete, func, insert, or_, select, update
from sqlalchemy.schema import CreateTable as CreateTableStatement

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.earlier_rows import newest_snapshot, partition_column_id, table_schema_versions
from ducklake_core.catalog.database.earlier_tables import DEFAULTS, PARTIAL_FILE_INFO, stored_tables
from ducklake_core.catalog.database.tables import PREFIX, metadata_tables
from ducklake_core.catalog.database.versions import Layout
from ducklake_core.catalog.migrations.ddl import AddColumn as AddColumnStatement
from ducklake_core.catalog.migrations.ddl import DropColumn as DropColumnStatement
from ducklake_core.catalog.migrations.ddl import RenameTable as RenameTableStatement
from ducklake_core.catalog.migrations.inlined_types import ChangeInlinedType, change_inlined_type, changed_inlined_types
from ducklake_core.catalog.migrations.specified_columns import (
    ReplaceNanCount,
    ReplaceSchemaSnapshot,
    SpecifiedColumn,
    replace_column,
    replaced_columns,
)
from ducklake_core.catalog.migrations.to_1_1 import (
    AddSchemaVersion,
    ClearBounds,
    RenameInlinedColumn,
    Repair,
    RestoreDefault,
    inlined_renames,
    lost_defaults,
    missing_schema_versions,
    run_repair,
    wrong_bounds,
)
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.writing.head import chunks
from ducklake_core.format.state import LakeInfo
from ducklake_core.format.versions import V1_0, V1_1, FormatVersion, format_version


@dataclass(frozen=True, slots=True)
class RenameTable:
    """The table ``former`` is called ``table`` from now on."""

    former: str
    table: str

    def __str__(self) -> str:
        return f"rename {PREFIX}{self.former} to {PREFIX}{self.table}"


@dataclass(frozen=True, slots=True)
class CreateTable:
    """A table that the version does not have, empty."""

    table: str

    def __str__(self) -> str:
        return f"create {PREFIX}{self.table}"


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A column that the version does not have, NULL in every row."""

    table: str
    column: str

    def __str__(self) -> str:
        return f"add {PREFIX}{self.table}.{self.column}"


@dataclass(frozen=True, slots=True)
class FillColumn:
    """Fill a new column with the value that rows without it had."""

    table: str
    column: str
    value: str | bool

    def __str__(self) -> str:
        return f"set {PREFIX}{self.table}.{self.column} to {self.value!r}"


@dataclass(frozen=True, slots=True)
class NumberPartitionColumns:
    """Partition keys name their column by its id, no longer by its place."""

    def __str__(self) -> str:
        return f"name the columns of partition keys by id in {PREFIX}partition_column"


@dataclass(frozen=True, slots=True)
class EndReplacedColumns:
    """A version of a column ends where the next one begins; DuckDB 1.3 left both live when it renamed a column."""

    def __str__(self) -> str:
        return f"end the versions of columns in {PREFIX}column that a later version has replaced"


@dataclass(frozen=True, slots=True)
class SpreadSchemaVersions:
    """Schema versions are kept for each table."""

    def __str__(self) -> str:
        return f"fill {PREFIX}schema_versions with a row for each table and schema version"


@dataclass(frozen=True, slots=True)
class KeepNewestSnapshots:
    """``partial_max`` of data files from ``partial_file_info``, which is dropped then.

    Attributes:
        forgotten: Ids of files that do not store the snapshot with each row: with a ``partial_max`` nobody could read them.
    """

    forgotten: tuple[int, ...] = ()

    def __str__(self) -> str:
        but = f"; {len(self.forgotten)} files lose the history of their rows" if self.forgotten else ""
        return f"replace {PREFIX}data_file.{PARTIAL_FILE_INFO} by partial_max, the newest snapshot among the rows{but}"


@dataclass(frozen=True, slots=True)
class SetVersion:
    """The last step: the catalog says that it is of another version."""

    former: str
    version: str

    def __str__(self) -> str:
        return f"set the version from {self.former} to {self.version}"


Step: TypeAlias = (
    RenameTable
    | CreateTable
    | AddColumn
    | FillColumn
    | NumberPartitionColumns
    | EndReplacedColumns
    | SpreadSchemaVersions
    | KeepNewestSnapshots
    | SpecifiedColumn
    | ChangeInlinedType
    | Repair
    | SetVersion
)


def steps_between(
    connection: Connection, database: Database, info: LakeInfo, layout: Layout, target: FormatVersion, forgotten: tuple[int, ...] = ()
) -> tuple[Step, ...]:
    """The steps from the catalog as it is, which the database follows, to a later version.

    Args:
        layout: Its tables.
        target: The version.
        forgotten: Ids of data files whose rows of several snapshots cannot be told apart.

    Raises:
        UnsupportedFeatureError: It cannot be brought there.
    """
    reader = CatalogReader(connection, info, database.tables)
    renames: tuple[Step, ...] = ()
    repairs: tuple[Step, ...] = ()
    if target.number >= V1_1.number:
        renames = tuple(inlined_renames(connection, database.tables, target.inlined_columns))
        repairs = (
            *missing_schema_versions(connection, database.tables),
            *lost_defaults(connection, database.tables),
            *wrong_bounds(connection, database.tables),
        )
    types = changed_inlined_types(reader, database.abilities)
    # DuckDB files cannot alter a table after its rows were changed in the same transaction.
    return (*renames, *_steps(layout, target, forgotten), *types, *repairs, SetVersion(layout.version, target.name))


def _steps(layout: Layout, target: FormatVersion, forgotten: tuple[int, ...]) -> Iterator[Step]:
    # DuckDB files cannot alter a table after its rows were changed in the same transaction.
    fills: list[FillColumn] = []
    for name, table in metadata_tables(None, target).items():
        former = layout.stored_name(name)
        if former is None:
            yield CreateTable(name)
            continue
        if former != name:
            yield RenameTable(former, name)
        for missing in table.c:
            if not layout.has(former, missing.name):
                yield AddColumn(name, missing.name)
                default = DEFAULTS.get((name, missing.name))
                fills += [] if default is None else [FillColumn(name, missing.name, default)]
    yield from replaced_columns(layout)
    if layout.has("data_file", PARTIAL_FILE_INFO):
        yield KeepNewestSnapshots(forgotten)
    yield from fills
    if layout.version == "0.1":
        yield NumberPartitionColumns()
    if format_version(layout.version).number < V1_0.number:
        yield EndReplacedColumns()
        yield SpreadSchemaVersions()


def run_step(connection: Connection, schema: str | None, layout: Layout, target: FormatVersion, step: Step) -> None:
    """Carry out one step in an open transaction.

    Args:
        schema: Database schema of the metadata tables.
        layout: The tables as they were before the first step.
        target: The version that they are brought to.
        step: One of :func:`steps_between`, all of which are to be run in their order.
    """
    tables, stored = metadata_tables(schema, target), stored_tables(schema, layout)
    match step:
        case RenameTable(former=former, table=name):
            connection.execute(RenameTableStatement(stored[former], PREFIX + name))
        case CreateTable(table=name):
            connection.execute(CreateTableStatement(tables[name]))
        case AddColumn(table=name, column=added):
            connection.execute(AddColumnStatement(tables[name], tables[name].c[added]))
        case FillColumn(table=name, column=filled, value=value):
            connection.execute(update(tables[name]).values({filled: value}))
        case NumberPartitionColumns():
            connection.execute(update(stored["partition_column"]).values(column_id=partition_column_id(stored)))
        case EndReplacedColumns():
            _end_replaced_columns(connection, tables["column"])
        case SpreadSchemaVersions():
            _spread_schema_versions(connection, tables["schema_versions"], stored)
        case KeepNewestSnapshots(forgotten=forgotten):
            _keep_newest_snapshots(connection, tables["data_file"], forgotten)
        case ReplaceNanCount() | ReplaceSchemaSnapshot():
            replace_column(connection, tables, stored, step)
        case ChangeInlinedType():
            change_inlined_type(connection, schema, step)
        case SetVersion(version=version):
            metadata = tables["metadata"]
            if not connection.execute(update(metadata).where(metadata.c.key == "version").values(value=version)).rowcount:
                connection.execute(insert(metadata), {"key": "version", "value": version})
        case RenameInlinedColumn() | AddSchemaVersion() | RestoreDefault() | ClearBounds():
            run_repair(connection, tables, step)
        case _:
            assert_never(step)


def _end_replaced_columns(connection: Connection, versions: Table) -> None:
    same = (versions.c.table_id, versions.c.column_id)
    following = func.lead(versions.c.begin_snapshot).over(partition_by=same, order_by=versions.c.begin_snapshot)
    ordered = select(*same, versions.c.begin_snapshot, versions.c.end_snapshot, following.label("following")).subquery()
    is_replaced = or_(ordered.c.end_snapshot.is_(None), ordered.c.end_snapshot > ordered.c.following)
    for row in connection.execute(select(ordered).where(ordered.c.following.is_not(None), is_replaced)).all():
        which = (
            versions.c.table_id == row.table_id,
            versions.c.column_id == row.column_id,
            versions.c.begin_snapshot == row.begin_snapshot,
        )
        connection.execute(update(versions).where(*which).values(end_snapshot=row.following))


def _spread_schema_versions(connection: Connection, versions: Table, stored: dict[str, Table]) -> None:
    columns = ["begin_snapshot", "schema_version", "table_id"]
    connection.execute(insert(versions).from_select(columns, table_schema_versions(stored)))
    connection.execute(delete(versions).where(versions.c.table_id.is_(None)))


def _keep_newest_snapshots(connection: Connection, file: Table, forgotten: tuple[int, ...]) -> None:
    info: ColumnClause[str] = column(PARTIAL_FILE_INFO, String)
    left = frozenset(forgotten)
    said = select(file.c.data_file_id.label("of"), newest_snapshot(info).label("newest")).where(
        info.is_not(None), file.c.partial_max.is_(None)
    )
    found = [{"of": row.of, "newest": row.newest} for row in connection.execute(said) if row.of not in left]
    connection.execute(DropColumnStatement(file, PARTIAL_FILE_INFO))
    of, newest = bindparam("of", type_=BigInteger), bindparam("newest", type_=BigInteger)
    for some in chunks(found):
        connection.execute(update(file).where(file.c.data_file_id == of).values(partial_max=newest), some)
