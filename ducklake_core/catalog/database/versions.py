"""Read catalogs of earlier versions in the shape of the newest one (specification: Migrations).

Readers are written for the tables of the newest version. For an earlier catalog, each table is replaced by a subquery that adds missing
columns and computes changed ones::

    newest table         0.1 to 0.3 catalog                        shown as
    data_file            partial_file_info                         partial_max, computed from the text
    partition_column     column_id is a position (0.1)             column_id of the column at that position
    schema_versions      one row for the whole lake, or none       one row for each table and version
    table that is new    missing                                   an empty subquery
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    FromClause,
    MetaData,
    Select,
    String,
    Table,
    and_,
    case,
    false,
    func,
    inspect,
    literal,
    null,
    or_,
    select,
    union,
    union_all,
)
from sqlalchemy import cast as sql_cast
from typing_extensions import override

from ducklake_core.catalog.database.tables import PREFIX, CatalogTables, metadata_tables
from ducklake_core.errors import CatalogVersionError
from ducklake_core.format.versions import FormatVersion, format_version

NAN_COUNT = "nan_count"
"""Column of file statistics in the specification of version 0.1."""
SCHEMA_SNAPSHOT = "schema_snapshot"
"""Column of ``inlined_data_tables`` in the specification of version 0.1, instead of ``schema_version``."""
_DIGITS = "0123456789"
_PARTIAL_MAX = "partial_max:"

PARTIAL_FILE_INFO = "partial_file_info"
"""Column of ``data_file`` before 0.4; readers see it after all other columns."""
DEFAULTS: dict[tuple[str, str], str | bool] = {
    ("schema", "path"): "",
    ("schema", "path_is_relative"): True,
    ("table", "path"): "",
    ("table", "path_is_relative"): True,
    ("name_mapping", "is_partition"): False,
    ("column", "default_value_type"): "literal",
}
"""Values of columns that an earlier version lacks; NULL for every other column."""

_ADDED_LATER = frozenset(
    {"column_mapping", "name_mapping", "schema_versions", "macro", "macro_impl", "macro_parameters"}
    | {"sort_info", "sort_expression", "file_variant_stats", "view_column_tag"}
)
FORMER_NAMES = {"file_column_stats": "file_column_statistics"}
"""Metadata tables with another name in earlier versions."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The metadata tables that exist in a catalog. Read from the database, because development versions are not documented.

    Attributes:
        version: Version that the catalog stores.
        tables: Name without prefix and names of columns in order, for each existing table.
    """

    version: str
    tables: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """Return the names of columns by table."""
        return dict(self.tables)

    def has(self, table: str, column: str) -> bool:
        """Return whether a table has a column."""
        return column in self.columns.get(table, ())

    def stored_name(self, table: str) -> str | None:
        """Return the name in this catalog of a table of the newest version, None when it is missing."""
        return next((name for name in (table, FORMER_NAMES.get(table)) if name in self.columns), None)

    def lost(self) -> list[str]:
        """Return the tables that every version has, but this catalog lacks."""
        names = (name for name in metadata_tables(None) if name not in _ADDED_LATER)
        return [PREFIX + name for name in names if self.stored_name(name) is None]

    def differences(self, version: FormatVersion) -> list[str]:
        """Return descriptions of the differences from the tables of a version, including the order of columns."""
        wanted = {name: tuple(column.name for column in table.c) for name, table in metadata_tables(None, version).items()}
        missing = [f"{PREFIX}{name} is missing" for name in wanted if name not in self.columns]
        changed = [
            f"{PREFIX}{name} has the columns {', '.join(self.columns[name])}, not {', '.join(columns)}"
            for name, columns in wanted.items()
            if name in self.columns and self.columns[name] != columns
        ]
        return [*missing, *changed]


def read_layout(connection: Connection, schema: str | None, version: str) -> Layout:
    """Read the names and columns of the metadata tables of a catalog.

    Args:
        connection: An open transaction.
        schema: Database schema of the tables; None for the default.
        version: Version that the catalog stores.
    """
    names = [*metadata_tables(schema), *FORMER_NAMES.values()]
    found = inspect(connection).get_multi_columns(schema=schema, filter_names=[PREFIX + name for name in names])
    columns = {name.removeprefix(PREFIX): tuple(column["name"] for column in listed) for (_, name), listed in found.items() if listed}
    return Layout(version, tuple(sorted(columns.items())))


def stored_version(tables: CatalogTables) -> ColumnElement[Any]:
    """Return the stored version of the catalog as a part of a statement, for :func:`check_same_version`."""
    metadata = tables["metadata"]
    return select(metadata.c.value).where(metadata.c.key == "version").limit(1).scalar_subquery()


def check_same_version(found: str | None, version: FormatVersion) -> None:
    """Reject a catalog that was migrated since it was opened. Queries on the tables of another version may even return wrong rows.

    Args:
        found: Result of :func:`stored_version`; None when the catalog stores none.
        version: Version of the catalog when it was opened.

    Raises:
        CatalogVersionError: The versions differ.
    """
    if found not in (None, version.name):
        raise CatalogVersionError(
            f"The catalog had version {version} when it was opened, but another client has migrated it to {found}. This call has changed "
            "nothing; open the lake again (DuckLake.connect(...) or lake.reopen())",
            found=found,
            supported=version.name,
        )


class EarlierTables(CatalogTables):
    """Tables of an earlier version that read like those of the newest one: subqueries add missing columns and tables.

    Only for reading: :meth:`Database.write` rejects earlier versions.

    Attributes:
        layout: The existing tables.
        stored: The existing tables, by their own names without prefix.
    """

    def __init__(self, schema: str | None, layout: Layout) -> None:
        super().__init__(schema)
        self.version = format_version(layout.version)
        self.layout = layout
        self.stored = stored_tables(schema, layout)
        # Readers use only attributes that every FROM element has, so a subquery can replace a table.
        self._shown = {name: cast("Table", self._show(name)) for name in super().__iter__()}

    @override
    def __getitem__(self, name: str) -> Table:
        return self._shown[name]

    def _show(self, name: str) -> FromClause:
        current = super().__getitem__(name)
        stored_name = self.layout.stored_name(name)
        if stored_name is None:
            selects = [select(*(_missing(name, column) for column in current.c)).where(false())]
        else:
            stored = self.stored[stored_name]
            columns = [self._column(name, column, stored) for column in current.c]
            if name == "data_file" and PARTIAL_FILE_INFO in stored.c:
                columns.append(stored.c[PARTIAL_FILE_INFO].label(PARTIAL_FILE_INFO))
            selects = [select(*columns).select_from(stored)]
        if name == "schema_versions":
            known = [query for query in selects if self.layout.has(name, "table_id")]
            selects = [*known, table_schema_versions(self.stored)]
        return union_all(*selects).subquery(name) if len(selects) > 1 else selects[0].subquery(name)

    def _column(self, table: str, column: Column[Any], stored: Table) -> ColumnElement[Any]:
        own = stored.c.get(column.name)
        if (table, column.name) == ("data_file", "partial_max") and PARTIAL_FILE_INFO in stored.c:
            merged = newest_snapshot(stored.c[PARTIAL_FILE_INFO])
            return (merged if own is None else func.coalesce(own, merged)).label(column.name)
        if (table, column.name) == ("partition_column", "column_id") and self.layout.version == "0.1":
            return partition_column_id(self.stored).label(column.name)
        if (table, column.name) == ("inlined_data_tables", "schema_version") and SCHEMA_SNAPSHOT in stored.c:
            return schema_version_of(self.stored).label(column.name)
        if (table, column.name) == ("file_column_stats", "contains_nan") and NAN_COUNT in stored.c:
            return contains_nan(stored).label(column.name)
        return _missing(table, column) if own is None else own.label(column.name)


@lru_cache(maxsize=16)
def stored_tables(schema: str | None, layout: Layout) -> Mapping[str, Table]:
    """Return the existing metadata tables, by their own names without prefix. Every step of a migration uses the same ones."""
    current = metadata_tables(schema)
    by_stored_name = {layout.stored_name(name): table for name, table in current.items()}
    metadata = MetaData(schema=schema)
    return {
        name: Table(PREFIX + name, metadata, *(Column(column, _type(by_stored_name.get(name), column)) for column in columns))
        for name, columns in layout.tables
    }


@lru_cache(maxsize=16)
def earlier_tables(schema: str | None, layout: Layout) -> EarlierTables:
    """Return the tables for readers of one layout in a database schema."""
    return EarlierTables(schema, layout)


def _type(current: Table | None, column: str) -> Any:
    return current.c[column].type if current is not None and column in current.c else String()


def _missing(table: str, column: Column[Any]) -> ColumnElement[Any]:
    default = DEFAULTS.get((table, column.name))
    return (sql_cast(null(), column.type) if default is None else literal(default, column.type)).label(column.name)


def newest_snapshot(partial_file_info: ColumnElement[str]) -> ColumnElement[int]:
    """Return ``partial_max`` of a data file from the text that stored it before 0.4.

    The text has two forms: ``partial_max:N`` for flushed files, and ``snapshot:rows|snapshot:rows`` for merged files, which counts the rows
    up to and including each snapshot, so the last snapshot is the newest. DuckDB's own migration understands only the first form and
    loses the snapshots of rows in merged files.
    """
    last_count = func.rtrim(func.rtrim(partial_file_info, _DIGITS), ":")
    upto = case((partial_file_info.like(f"{_PARTIAL_MAX}%"), partial_file_info), else_=last_count)
    # SQL of all databases has no "last number of a string": trim its digits to get the prefix, and remove the prefix. The prefix contains a
    # separator, so it occurs once.
    return sql_cast(func.replace(upto, func.rtrim(upto, _DIGITS), ""), BigInteger)


def partition_column_id(stored: Mapping[str, Table]) -> ColumnElement[int]:
    """Return the column id of a partition key in version 0.1, which stores the position among the top-level columns instead.

    The position refers to the columns at the time when the table got its partition keys. DuckDB's migration uses the columns of the newest
    snapshot, which is wrong after a column was dropped.
    """
    key, info, column = stored["partition_column"], stored["partition_info"], stored["column"]
    place = func.row_number().over(partition_by=info.c.partition_id, order_by=(column.c.column_order, column.c.column_id))
    placed = (
        select(info.c.partition_id, column.c.column_id, (place - 1).label("place"))
        .join(column, and_(column.c.table_id == info.c.table_id, column.c.parent_column.is_(None)))
        .where(column.c.begin_snapshot <= info.c.begin_snapshot)
        .where(or_(column.c.end_snapshot.is_(None), column.c.end_snapshot > info.c.begin_snapshot))
        .subquery("placed")
    )
    found = select(placed.c.column_id).where(placed.c.partition_id == key.c.partition_id, placed.c.place == key.c.column_id)
    return found.correlate(key).scalar_subquery()


def contains_nan(stored: Table) -> ColumnElement[bool]:
    """Return whether a file contains NaN, from the flag or the number of NaN values."""
    return or_(func.coalesce(stored.c.contains_nan, false()), func.coalesce(sql_cast(stored.c[NAN_COUNT], BigInteger), 0) > 0)


def schema_version_of(stored: Mapping[str, Table]) -> ColumnElement[int]:
    """Return the schema version of a table of inlined rows that is registered by the snapshot that created it.

    Some writers stored the schema version in the column of the snapshot. Then the name of the table ends with that number.
    """
    registered, snapshot = stored["inlined_data_tables"], stored["snapshot"]
    number = sql_cast(registered.c[SCHEMA_SNAPSHOT], BigInteger)
    found = select(snapshot.c.schema_version).where(snapshot.c.snapshot_id == number).correlate(registered).scalar_subquery()
    named = literal("ducklake_inlined_data_") + sql_cast(registered.c.table_id, String) + "_" + sql_cast(number, String)
    return case((registered.c.table_name == named, number), else_=func.coalesce(found, number))


def table_schema_versions(stored: Mapping[str, Table]) -> Select[Any]:
    """Return rows of ``schema_versions`` for each table from rows for the whole lake: all versions during the life of the table.

    Includes versions whose snapshots were expired. DuckDB's migration leaves those out, so it considers files with different columns equal
    and fails to compact them.
    """
    table = stored["table"]
    lake = union_all(*_lake_schema_versions(stored)).subquery("lake")
    is_live = and_(
        table.c.begin_snapshot <= lake.c.begin_snapshot, or_(table.c.end_snapshot.is_(None), table.c.end_snapshot > lake.c.begin_snapshot)
    )
    return select(lake.c.begin_snapshot, lake.c.schema_version, table.c.table_id).join_from(lake, table, is_live)


def _lake_schema_versions(stored: Mapping[str, Table]) -> tuple[Select[Any], Select[Any]]:
    """Return the known versions, and versions before the second known one, counted backwards: each change of columns made one."""
    known = _known_schema_versions(stored)
    first, oldest = select(func.min(known.c.begin_snapshot)).scalar_subquery(), select(func.min(known.c.schema_version)).scalar_subquery()
    changes = union(
        *(select(stored[name].c.begin_snapshot.label("at")) for name in ("schema", "table", "column", "partition_info")),
        select(stored["column"].c.end_snapshot),
    ).subquery("changes")
    later = func.row_number().over(order_by=changes.c.at.desc()) - 1
    return (
        select(known.c.begin_snapshot, known.c.schema_version).where(known.c.begin_snapshot > first),
        select(changes.c.at, oldest - later).where(changes.c.at <= first),
    )


def _known_schema_versions(stored: Mapping[str, Table]) -> FromClause:
    versions, snapshot = stored.get("schema_versions"), stored["snapshot"]
    if versions is None:
        begun = func.min(snapshot.c.snapshot_id).label("begin_snapshot")
        return select(begun, snapshot.c.schema_version).group_by(snapshot.c.schema_version).subquery("known")
    rows = select(versions.c.begin_snapshot, versions.c.schema_version)
    if "table_id" in versions.c:
        rows = rows.where(versions.c.table_id.is_(None))
    return rows.subquery("known")
