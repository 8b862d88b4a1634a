"""Plan the steps that bring a catalog of an earlier version to a newer one (specification: Migrations).

Steps are values that print themselves, so that a dry run can show the plan. Their order matters: DuckDB files cannot alter a table after
its rows were changed in the same transaction, so all DDL comes before the changes of rows of the same table::

    rename columns of inlined tables | create, rename, add columns | replace columns | fill columns | change types | repairs | version
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, assert_never

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnClause,
    ColumnElement,
    Connection,
    Date,
    DateTime,
    Double,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    and_,
    bindparam,
    cast,
    column,
    delete,
    func,
    insert,
    inspect,
    or_,
    select,
    true,
    update,
)
from sqlalchemy import column as sql_column
from sqlalchemy.dialects.postgresql import JSON, REAL
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateTable as CreateTableStatement
from sqlalchemy.schema import ExecutableDDLElement
from sqlalchemy.sql.compiler import DDLCompiler
from sqlalchemy.types import TypeEngine

from ducklake_core.catalog.database.abilities import Abilities
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.tables import INLINED_SYSTEM_COLUMNS, PREFIX, CatalogTables, metadata_tables
from ducklake_core.catalog.database.versions import (
    DEFAULTS,
    NAN_COUNT,
    PARTIAL_FILE_INFO,
    SCHEMA_SNAPSHOT,
    Layout,
    newest_snapshot,
    partition_column_id,
    schema_version_of,
    stored_tables,
    table_schema_versions,
)
from ducklake_core.catalog.inlined.ddl import physical_table
from ducklake_core.catalog.inlined.rows import TableVersions
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.writing.head import chunks, conditions_of
from ducklake_core.errors import DuckLakeError, UnsupportedFeatureError
from ducklake_core.format.files import paths
from ducklake_core.format.files.data_files import parse_row_counts
from ducklake_core.format.state import LakeInfo
from ducklake_core.format.types.data_types import DataType
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import parse_leaf_type
from ducklake_core.format.values.leaf_values import from_text
from ducklake_core.format.versions import V1_0, V1_1, FormatVersion, InlinedColumns, format_version

_ROWS_PER_FETCH = 2000
_DEFAULTS = ("initial_default", "default_value", "default_value_type", "default_value_dialect")


class AlterTable(ExecutableDDLElement):
    """ALTER TABLE. Tables are altered in place, so their grants and indexes stay.

    Args:
        table: The table.
        action: Returns the SQL of the change; it gets the compiler, which quotes names.
    """

    def __init__(self, table: Table, action: Callable[[DDLCompiler], str]) -> None:
        self.table = table
        self.action = action


@compiles(AlterTable)
def _alter_table(element: AlterTable, compiler: DDLCompiler, **_: Any) -> str:
    return f"ALTER TABLE {compiler.preparer.format_table(element.table)} {element.action(compiler)}"


def add_column(table: Table, column: Column[Any]) -> AlterTable:
    """Append a column, NULL in every row."""
    return AlterTable(table, lambda compiler: f"ADD COLUMN {compiler.preparer.quote(column.name)} {_type_sql(compiler, column)}")


def drop_column(table: Table, name: str) -> AlterTable:
    """Remove a column."""
    return AlterTable(table, lambda compiler: f"DROP COLUMN {compiler.preparer.quote(name)}")


def change_type(table: Table, column: Column[Any], value: ColumnElement[Any]) -> AlterTable:
    """Change the type of a column, with an expression that converts its values. PostgreSQL only."""

    def action(compiler: DDLCompiler) -> str:
        converted = compiler.sql_compiler.process(value, literal_binds=True)
        return f"ALTER COLUMN {compiler.preparer.quote(column.name)} TYPE {_type_sql(compiler, column)} USING {converted}"

    return AlterTable(table, action)


def rename_table(table: Table, name: str) -> AlterTable:
    """Rename a table."""
    return AlterTable(table, lambda compiler: f"RENAME TO {compiler.preparer.quote(name)}")


def rename_column(table: Table, former: str, name: str) -> AlterTable:
    """Rename a column."""
    return AlterTable(table, lambda compiler: f"RENAME COLUMN {compiler.preparer.quote(former)} TO {compiler.preparer.quote(name)}")


def _type_sql(compiler: DDLCompiler, column: Column[Any]) -> str:
    return str(compiler.dialect.type_compiler_instance.process(column.type))


class LockTables(ExecutableDDLElement):
    """Lock tables against reads and writes of other clients until the transaction ends. PostgreSQL only."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self.tables = tables


@compiles(LockTables)
def _lock_tables(element: LockTables, compiler: DDLCompiler, **_: Any) -> str:
    names = ", ".join(compiler.preparer.format_table(table) for table in element.tables)
    return f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedFile:
    """A merged data file of a version before 0.4, whose row stores the number of rows up to each snapshot.

    Attributes:
        path: Full path.
        has_visible_history: Whether a surviving snapshot must see only some of its rows.
    """

    id: int
    path: str
    has_visible_history: bool


def counted_files(connection: Connection, tables: CatalogTables, info: LakeInfo) -> list[CountedFile]:
    """Return all such files, including those of dropped tables, by id."""
    file, table, schema, snapshot = (tables[name] for name in ("data_file", "table", "schema", "snapshot"))
    if PARTIAL_FILE_INFO not in file.c:
        return []
    oldest = select(func.min(snapshot.c.snapshot_id)).scalar_subquery()
    query = (
        select(
            file.c.data_file_id,
            file.c.path,
            file.c.path_is_relative,
            file.c[PARTIAL_FILE_INFO],
            table.c.path.label("table_path"),
            table.c.path_is_relative.label("table_path_is_relative"),
            schema.c.path.label("schema_path"),
            schema.c.path_is_relative.label("schema_path_is_relative"),
            oldest.label("oldest"),
        )
        .select_from(file.join(table, table.c.table_id == file.c.table_id).join(schema, schema.c.schema_id == table.c.schema_id))
        .where(file.c[PARTIAL_FILE_INFO].is_not(None))
        .order_by(file.c.data_file_id)
    )
    found: dict[int, CountedFile] = {}
    for row in connection.execute(query):
        counts = parse_row_counts(row.partial_file_info)
        if counts:
            base = paths.join(info.data_path, row.schema_path, row.schema_path_is_relative is not False)
            base = paths.join(base, row.table_path, row.table_path_is_relative is not False)
            path = paths.join(base, row.path, row.path_is_relative is not False)
            # A renamed table has several rows, all with the same directory.
            found[row.data_file_id] = CountedFile(id=row.data_file_id, path=path, has_visible_history=counts[-1][0] > row.oldest)
    return list(found.values())


_BYTES, _TEXT, _REAL = "bytea", "varchar", "real"
_TYPES: dict[str, TypeEngine[Any]] = {_BYTES: LargeBinary(), _TEXT: String(), _REAL: REAL()}


@dataclass(frozen=True, slots=True)
class ChangeInlinedType:
    """Change one column of one table of inlined rows to the present type."""

    table_name: str
    column: str
    to: str

    def __str__(self) -> str:
        return f"store {self.table_name}.{self.column} as {self.to}"


def changed_inlined_types(reader: CatalogReader, abilities: Abilities) -> Iterator[ChangeInlinedType]:
    """Yield the columns whose type must change; only on PostgreSQL, because the other databases need no change."""
    if not abilities.folds_names:
        return
    registered = reader.catalog["inlined_data_tables"]
    rows = reader.connection.execute(select(registered).order_by(registered.c.table_id, registered.c.schema_version)).all()
    found = inspect(reader.connection).get_multi_columns(schema=reader.catalog.schema, filter_names=[row.table_name for row in rows])
    stored = {name: columns[INLINED_SYSTEM_COLUMNS:] for (_, name), columns in found.items()}
    versions = {row.table_id: TableVersions.read(reader, row.table_id) for row in rows}
    for row in rows:
        fields = versions[row.table_id].schema_at(row.schema_version)
        wanted = list(physical_table(reader.catalog, abilities, row.table_name, fields).c)[INLINED_SYSTEM_COLUMNS:]
        for there, target in zip(stored.get(row.table_name, ()), wanted, strict=False):
            to = _replacement(there["type"], target.type)
            if to is not None:
                yield ChangeInlinedType(row.table_name, there["name"], to)


def change_inlined_type(connection: Connection, schema: str | None, step: ChangeInlinedType) -> None:
    """Execute a change of a type.

    Args:
        connection: An open write transaction.
        schema: Database schema of the tables.
        step: The step.
    """
    table = Table(step.table_name, MetaData(schema=schema))
    connection.execute(select(func.set_config("DateStyle", "ISO", True), func.set_config("TimeZone", "UTC", True)))
    connection.execute(change_type(table, Column(step.column, _TYPES[step.to]), _converted(sql_column(step.column), step.to)))


def _replacement(there: TypeEngine[Any], wanted: TypeEngine[Any]) -> str | None:
    match wanted, there:
        case LargeBinary(), (String() | JSON()):
            return _BYTES
        case String(), (Date() | DateTime()):
            return _TEXT
        case REAL(), Double():
            return _REAL
        case _:
            return None


def _converted(value: ColumnElement[Any], to: str) -> ColumnElement[Any]:
    text = cast(value, Text)
    if to == _BYTES:
        return func.convert_to(text, "UTF8")
    # PostgreSQL writes BC at the end, DuckDB "(BC)" after the date.
    return func.regexp_replace(text, r"^(\S+)(.*) BC$", r"\1 (BC)\2") if to == _TEXT else cast(value, REAL)


_BOUNDS, _INLINED = "file_column_stats", "inlined_data_tables"


@dataclass(frozen=True, slots=True)
class ReplaceNanCount:
    """Replace the number of NaN values in file statistics by a flag."""

    def __str__(self) -> str:
        return f"replace {PREFIX}{_BOUNDS}.{NAN_COUNT} by contains_nan"


@dataclass(frozen=True, slots=True)
class ReplaceSchemaSnapshot:
    """Register tables of inlined rows by schema version instead of snapshot."""

    def __str__(self) -> str:
        return f"replace {PREFIX}{_INLINED}.{SCHEMA_SNAPSHOT} by schema_version"


SpecifiedColumn: TypeAlias = ReplaceNanCount | ReplaceSchemaSnapshot


def replaced_columns(layout: Layout) -> Iterator[SpecifiedColumn]:
    """Yield the steps for existing columns of the 0.1 specification, to run after the tables have the names and columns of the target."""
    former = layout.stored_name(_BOUNDS)
    if former is not None and layout.has(former, NAN_COUNT):
        yield ReplaceNanCount()
    if layout.has(_INLINED, SCHEMA_SNAPSHOT):
        yield ReplaceSchemaSnapshot()


def replace_column(connection: Connection, tables: Mapping[str, Table], stored: Mapping[str, Table], step: SpecifiedColumn) -> None:
    """Execute the replacement of a column.

    Values are read, then the column is dropped, then rows are updated, because DuckDB files cannot alter a table after its rows were
    changed in the same transaction.

    Args:
        connection: An open write transaction.
        tables: The metadata tables of the target version.
        stored: The tables before the first step.
        step: The step.
    """
    match step:
        case ReplaceNanCount():
            _replace_nan_count(connection, tables[_BOUNDS])
        case ReplaceSchemaSnapshot():
            _replace_schema_snapshot(connection, tables[_INLINED], stored)
        case _:
            assert_never(step)


def _replace_nan_count(connection: Connection, bounds: Table) -> None:
    count: ColumnClause[int] = column(NAN_COUNT, BigInteger)
    names = select(bounds.c.table_id, bounds.c.column_id, bounds.c.data_file_id)
    files: dict[tuple[int, int], list[int]] = defaultdict(list)
    for table_id, column_id, file_id in connection.execute(names.where(count > 0, bounds.c.contains_nan.is_not(true()))):
        files[table_id, column_id].append(file_id)
    connection.execute(drop_column(bounds, NAN_COUNT))
    for (table_id, column_id), ids in files.items():
        same = (bounds.c.table_id == table_id, bounds.c.column_id == column_id)
        for some in conditions_of(bounds.c.data_file_id, ids):
            connection.execute(update(bounds).where(*same, some).values(contains_nan=True))


def _replace_schema_snapshot(connection: Connection, table: Table, stored: Mapping[str, Table]) -> None:
    registered = stored[_INLINED]
    found = connection.execute(select(registered.c.table_id, registered.c.table_name, schema_version_of(stored).label("version"))).all()
    connection.execute(drop_column(table, SCHEMA_SNAPSHOT))
    for row in found:
        same = (table.c.table_id == row.table_id, table.c.table_name == row.table_name)
        connection.execute(update(table).where(*same).values(schema_version=row.version))


@dataclass(frozen=True, slots=True)
class RenameInlinedColumn:
    """Rename a system column of a table of inlined rows to its name in version 1.1."""

    table_name: str
    former: str
    name: str

    def __str__(self) -> str:
        return f"rename {self.table_name}.{self.former} to {self.name}"


@dataclass(frozen=True, slots=True)
class AddSchemaVersion:
    """Add the missing row for the schema version of a table of inlined rows."""

    table_id: int
    schema_version: int
    begin_snapshot: int

    def __str__(self) -> str:
        return f"add schema version {self.schema_version} of table {self.table_id}, from snapshot {self.begin_snapshot} on"


@dataclass(frozen=True, slots=True)
class RestoreDefault:
    """Restore the default of a struct field that lost it when it was renamed.

    Attributes:
        begin_snapshot: Begin of the row of the renamed field.
        former: Begin of the earlier row, which has the default.
    """

    table_id: int
    column_id: int
    begin_snapshot: int
    former: int

    def __str__(self) -> str:
        return f"restore the default of field {self.column_id} of table {self.table_id} from snapshot {self.begin_snapshot} on"


@dataclass(frozen=True, slots=True)
class ClearBounds:
    """Clear bounds of a column that are not values of its type, because they were stored before the type changed.

    Attributes:
        files: Ids of the data files with such bounds.
        whole_table: Whether the bounds of the whole table are invalid too.
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
    """Yield the system columns of all tables of inlined rows that must be renamed.

    Args:
        connection: An open transaction.
        tables: The metadata tables.
        wanted: Names of the system columns in the target version.

    Raises:
        UnsupportedFeatureError: A table is missing, has unexpected columns, or a user column with a reserved name.
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
        raise _rejected(name, owner, "it is registered, but does not exist")
    own = {folded(column) for column in columns[len(wanted.names) :]}
    for there, former, new in zip((*columns, None, None, None), before.names, wanted.names, strict=False):
        if there is not None and folded(there) == new:
            continue
        if there is None or folded(there) != former:
            raise _rejected(name, owner, f"its leading columns are {', '.join(columns[: len(wanted.names)])}")
        if new in own:
            raise _rejected(name, owner, f"it has a column {new!r}, which is reserved: rename it, and flush the inlined rows, first")
        yield RenameInlinedColumn(name, there, new)


def _rejected(name: str, owner: str | None, reason: str) -> UnsupportedFeatureError:
    of = f" of table {owner!r}" if owner else ""
    return UnsupportedFeatureError(
        f"The lake cannot be migrated, because the inlined rows in {name}{of} do not fit version 1.1: {reason}. Nothing was changed",
        inlined_table=name,
    )


def missing_schema_versions(connection: Connection, tables: CatalogTables) -> list[AddSchemaVersion]:
    """Return the missing schema versions of tables of inlined rows.

    Only for tables with an earlier version, and only if the snapshot before the one that began the version still exists, because the
    beginning is unknown otherwise.
    """
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
    """Return the rows of struct fields without the ``initial_default`` of an earlier row, because the default of a field cannot change."""
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
    """Return the bounds that are not values of the newest type of their column, of columns whose type changed."""
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
    for chunk in chunks(sorted({column_id for _, column_id in types})):
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
    """Execute one repair in an open transaction.

    Args:
        connection: The write transaction.
        tables: The metadata tables of the target version.
        step: The repair.
    """
    match step:
        case RenameInlinedColumn():
            inlined = Table(step.table_name, MetaData(schema=tables.schema), Column(step.former, BigInteger))
            connection.execute(rename_column(inlined, step.former, step.name))
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
        # A row without bounds would mean that the column has no values yet, and the next insert of DuckDB would start new bounds.
        connection.execute(delete(whole).where(whole.c.table_id == step.table_id, whole.c.column_id == step.column_id))


@dataclass(frozen=True, slots=True)
class RenameTable:
    """Rename a metadata table from ``former`` to ``table``."""

    former: str
    table: str

    def __str__(self) -> str:
        return f"rename {PREFIX}{self.former} to {PREFIX}{self.table}"


@dataclass(frozen=True, slots=True)
class CreateTable:
    """Create an empty metadata table that the earlier version lacks."""

    table: str

    def __str__(self) -> str:
        return f"create {PREFIX}{self.table}"


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Add a column that the earlier version lacks, NULL in every row."""

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
    """Store the id of the column of a partition key instead of its position."""

    def __str__(self) -> str:
        return f"name the columns of partition keys by id in {PREFIX}partition_column"


@dataclass(frozen=True, slots=True)
class EndReplacedColumns:
    """End each row of a column where the next one begins. DuckDB 1.3 left both live when it renamed a column."""

    def __str__(self) -> str:
        return f"end the versions of columns in {PREFIX}column that a later version has replaced"


@dataclass(frozen=True, slots=True)
class SpreadSchemaVersions:
    """Store schema versions for each table instead of for the lake."""

    def __str__(self) -> str:
        return f"fill {PREFIX}schema_versions with a row for each table and schema version"


@dataclass(frozen=True, slots=True)
class KeepNewestSnapshots:
    """Compute ``partial_max`` of data files from ``partial_file_info``, and drop that column.

    Attributes:
        forgotten: Ids of files that do not store the snapshot of each row. They get no ``partial_max``, because readers would need those
            snapshots.
    """

    forgotten: tuple[int, ...] = ()

    def __str__(self) -> str:
        but = f"; {len(self.forgotten)} files lose the history of their rows" if self.forgotten else ""
        return f"replace {PREFIX}data_file.{PARTIAL_FILE_INFO} by partial_max, the newest snapshot among the rows{but}"


@dataclass(frozen=True, slots=True)
class SetVersion:
    """Store the new version, as the last step."""

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
    """Return the steps from the present state of the catalog to a later version, in order.

    Args:
        connection: An open transaction.
        database: The catalog.
        info: Settings of the lake.
        layout: The existing tables.
        target: The target version.
        forgotten: Ids of data files that do not store the snapshot of each row; default none.

    Raises:
        UnsupportedFeatureError: The catalog cannot be migrated to the target.
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
    """Execute one step in an open transaction.

    Args:
        connection: The write transaction.
        schema: Database schema of the metadata tables.
        layout: The tables before the first step.
        target: The target version.
        step: A step of :func:`steps_between`. All steps must run in their order.
    """
    tables, stored = metadata_tables(schema, target), stored_tables(schema, layout)
    match step:
        case RenameTable(former=former, table=name):
            connection.execute(rename_table(stored[former], PREFIX + name))
        case CreateTable(table=name):
            connection.execute(CreateTableStatement(tables[name]))
        case AddColumn(table=name, column=added):
            connection.execute(add_column(tables[name], tables[name].c[added]))
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


def _spread_schema_versions(connection: Connection, versions: Table, stored: Mapping[str, Table]) -> None:
    columns = ["begin_snapshot", "schema_version", "table_id"]
    connection.execute(insert(versions).from_select(columns, table_schema_versions(stored)))
    connection.execute(delete(versions).where(versions.c.table_id.is_(None)))


def _keep_newest_snapshots(connection: Connection, file: Table, forgotten: tuple[int, ...]) -> None:
    info: ColumnClause[str] = column(PARTIAL_FILE_INFO, String)
    left = frozenset(forgotten)
    merged = select(file.c.data_file_id.label("of"), newest_snapshot(info).label("newest")).where(
        info.is_not(None), file.c.partial_max.is_(None)
    )
    found = [{"of": row.of, "newest": row.newest} for row in connection.execute(merged) if row.of not in left]
    connection.execute(drop_column(file, PARTIAL_FILE_INFO))
    of, newest = bindparam("of", type_=BigInteger), bindparam("newest", type_=BigInteger)
    for some in chunks(found):
        connection.execute(update(file).where(file.c.data_file_id == of).values(partial_max=newest), some)
