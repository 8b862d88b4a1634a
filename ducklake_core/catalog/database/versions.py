"""Read catalogs of earlier versions in the shape of the newest one (specification: Migrations)."""

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
"""Column of bounds in version 0.1 as it was specified."""
SCHEMA_SNAPSHOT = "schema_snapshot"
"""Column of ``inlined_data_tables`` in version 0.1 as it was specified, in place of ``schema_version``."""
_DIGITS = "0123456789"
_PARTIAL_MAX = "partial_max:"

PARTIAL_FILE_INFO = "partial_file_info"
"""Column of ``data_file`` before 0.4; the readers' table has it after all others."""
DEFAULTS: dict[tuple[str, str], str | bool] = {
    ("schema", "path"): "",
    ("schema", "path_is_relative"): True,
    ("table", "path"): "",
    ("table", "path_is_relative"): True,
    ("name_mapping", "is_partition"): False,
    ("column", "default_value_type"): "literal",
}
"""The values that stand for a column which rows of an earlier version lack; NULL for every other column."""

_ADDED_LATER = frozenset(
    {"column_mapping", "name_mapping", "schema_versions", "macro", "macro_impl", "macro_parameters"}
    | {"sort_info", "sort_expression", "file_variant_stats", "view_column_tag"}
)
FORMER_NAMES = {"file_column_stats": "file_column_statistics"}
"""Metadata tables that had another name once."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The metadata tables of a catalog as they are. Found by looking, as development versions are not written down anywhere.

    Attributes:
        version: What the catalog says of itself.
        tables: Name without prefix and names of columns in order, for each table that is there.
    """

    version: str
    tables: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """Names of columns by table."""
        return dict(self.tables)

    def has(self, table: str, column: str) -> bool:
        """Whether there is such a column."""
        return column in self.columns.get(table, ())

    def stored_name(self, table: str) -> str | None:
        """The name that a table of the newest version has here, None when there is none."""
        return next((name for name in (table, FORMER_NAMES.get(table)) if name in self.columns), None)

    def lost(self) -> list[str]:
        """Tables that every version has, but this catalog has not."""
        names = (name for name in metadata_tables(None) if name not in _ADDED_LATER)
        return [PREFIX + name for name in names if self.stored_name(name) is None]

    def differences(self, version: FormatVersion) -> list[str]:
        """How the tables differ from those of a version, whose order of columns counts."""
        wanted = {name: tuple(column.name for column in table.c) for name, table in metadata_tables(None, version).items()}
        missing = [f"{PREFIX}{name} is missing" for name in wanted if name not in self.columns]
        changed = [
            f"{PREFIX}{name} has the columns {', '.join(self.columns[name])}, not {', '.join(columns)}"
            for name, columns in wanted.items()
            if name in self.columns and self.columns[name] != columns
        ]
        return [*missing, *changed]


def read_layout(connection: Connection, schema: str | None, version: str) -> Layout:
    """Look at the metadata tables of a catalog."""
    names = [*metadata_tables(schema), *FORMER_NAMES.values()]
    found = inspect(connection).get_multi_columns(schema=schema, filter_names=[PREFIX + name for name in names])
    columns = {name.removeprefix(PREFIX): tuple(column["name"] for column in listed) for (_, name), listed in found.items() if listed}
    return Layout(version, tuple(sorted(columns.items())))


def stored_version(tables: CatalogTables) -> ColumnElement[Any]:
    """What :func:`check_same_version` looks at, as a part of a statement: the version that the catalog says."""
    metadata = tables["metadata"]
    return select(metadata.c.value).where(metadata.c.key == "version").limit(1).scalar_subquery()


def check_same_version(found: str | None, version: FormatVersion) -> None:
    """Refuse to go on with the tables of one version after a migration to another: they may answer wrongly, and not only fail.

    Args:
        found: What :func:`stored_version` gave; None when the catalog says no version.
        version: The one that it had when it was opened.

    Raises:
        CatalogVersionError: It is another one.
    """
    if found not in (None, version.name):
        raise CatalogVersionError(
            f"the catalog had version {version} when it was opened and has {found} now: someone migrated it; this call has changed "
            "nothing; open the lake again (DuckLake.connect(...) or lake.reopen())",
            found=found,
            supported=version.name,
        )


class EarlierTables(CatalogTables):
    """Reads like the tables of the newest version: columns and tables that are missing are filled in, by subqueries.

    Only for reading: :meth:`Database.write` refuses earlier versions.

    Attributes:
        layout: What is there.
        stored: The tables as they are, by their own names without prefix.
    """

    def __init__(self, schema: str | None, layout: Layout) -> None:
        super().__init__(schema)
        self.version = format_version(layout.version)
        self.layout = layout
        self.stored = stored_tables(schema, layout)
        # Readers use what every FROM element has, so that a subquery may stand where the newest version has a table.
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
            said = newest_snapshot(stored.c[PARTIAL_FILE_INFO])
            return (said if own is None else func.coalesce(own, said)).label(column.name)
        if (table, column.name) == ("partition_column", "column_id") and self.layout.version == "0.1":
            return partition_column_id(self.stored).label(column.name)
        if (table, column.name) == ("inlined_data_tables", "schema_version") and SCHEMA_SNAPSHOT in stored.c:
            return schema_version_of(self.stored).label(column.name)
        if (table, column.name) == ("file_column_stats", "contains_nan") and NAN_COUNT in stored.c:
            return contains_nan(stored).label(column.name)
        return _missing(table, column) if own is None else own.label(column.name)


def stored_tables(schema: str | None, layout: Layout) -> dict[str, Table]:
    """The metadata tables as they are, by their own names without prefix."""
    current = CatalogTables(schema)
    by_stored_name = {layout.stored_name(name): table for name, table in current.items()}
    metadata = MetaData(schema=schema)
    return {
        name: Table(PREFIX + name, metadata, *(Column(column, _type(by_stored_name.get(name), column)) for column in columns))
        for name, columns in layout.tables
    }


@lru_cache(maxsize=16)
def earlier_tables(schema: str | None, layout: Layout) -> EarlierTables:
    """The readers' tables of one layout in a database schema."""
    return EarlierTables(schema, layout)


def _type(current: Table | None, column: str) -> Any:
    return current.c[column].type if current is not None and column in current.c else String()


def _missing(table: str, column: Column[Any]) -> ColumnElement[Any]:
    default = DEFAULTS.get((table, column.name))
    return (sql_cast(null(), column.type) if default is None else literal(default, column.type)).label(column.name)


def newest_snapshot(partial_file_info: ColumnElement[str]) -> ColumnElement[int]:
    """``partial_max`` of a data file, from the text that said so before 0.4.

    ``partial_max:N`` says it outright (flushed files); ``snapshot:rows|snapshot:rows`` counts the rows of the file up to and
    including each snapshot (merged files), so that the last snapshot is the newest. DuckDB's own migration understands
    only the first form, and forgets which rows of merged files are of which snapshot.
    """
    last_count = func.rtrim(func.rtrim(partial_file_info, _DIGITS), ":")
    upto = case((partial_file_info.like(f"{_PARTIAL_MAX}%"), partial_file_info), else_=last_count)
    # What trimming the digits leaves is a prefix that holds a separator, so it occurs once.
    return sql_cast(func.replace(upto, func.rtrim(upto, _DIGITS), ""), BigInteger)


def partition_column_id(stored: Mapping[str, Table]) -> ColumnElement[int]:
    """The id of a partition key's column in version 0.1, whose ``column_id`` is the column's place among the top-level columns.

    The place counts the columns that the table had when it got the partition keys. DuckDB's migration counts those of the
    newest snapshot, which are others once a column was dropped.
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
    """Whether there is NaN in a file, where bounds have their number too."""
    return or_(func.coalesce(stored.c.contains_nan, false()), func.coalesce(sql_cast(stored.c[NAN_COUNT], BigInteger), 0) > 0)


def schema_version_of(stored: Mapping[str, Table]) -> ColumnElement[int]:
    """The schema version of a table of inlined rows that is known by the snapshot which made it; the table's name ends with the version.

    A number that ends the name is the version itself: some writers kept it under the name of the snapshot.
    """
    registered, snapshot = stored["inlined_data_tables"], stored["snapshot"]
    number = sql_cast(registered.c[SCHEMA_SNAPSHOT], BigInteger)
    found = select(snapshot.c.schema_version).where(snapshot.c.snapshot_id == number).correlate(registered).scalar_subquery()
    named = literal("ducklake_inlined_data_") + sql_cast(registered.c.table_id, String) + "_" + sql_cast(number, String)
    return case((registered.c.table_name == named, number), else_=func.coalesce(found, number))


def table_schema_versions(stored: Mapping[str, Table]) -> Select[Any]:
    """Rows of ``schema_versions`` for each table, from rows for the whole lake: the versions of the lake during the table's life.

    Also for versions whose snapshots have expired, which DuckDB's migration leaves out: without them it takes files of
    different columns for alike, and cannot compact them.
    """
    table = stored["table"]
    lake = union_all(*_lake_schema_versions(stored)).subquery("lake")
    is_live = and_(
        table.c.begin_snapshot <= lake.c.begin_snapshot, or_(table.c.end_snapshot.is_(None), table.c.end_snapshot > lake.c.begin_snapshot)
    )
    return select(lake.c.begin_snapshot, lake.c.schema_version, table.c.table_id).join_from(lake, table, is_live)


def _lake_schema_versions(stored: Mapping[str, Table]) -> tuple[Select[Any], Select[Any]]:
    """The versions that are known, and those before the second known one, counted back: each change of columns made one."""
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
