"""Define the metadata tables of each catalog version, their column types and indexes (specification: Tables)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta, timezone
from functools import cached_property, lru_cache, partial
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    DateTime,
    FromClause,
    Index,
    MetaData,
    Select,
    String,
    Table,
    Text,
    Uuid,
    case,
    cast,
    func,
    inspect,
    literal_column,
    null,
    or_,
    select,
    type_coerce,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateIndex
from sqlalchemy.sql import quoted_name
from sqlalchemy.types import NullType, TypeDecorator, TypeEngine
from typing_extensions import override

from ducklake_core.catalog.database.abilities import abilities_of
from ducklake_core.errors import CatalogCorruptError
from ducklake_core.format.versions import NEWEST, FormatVersion, InlinedColumns

PREFIX = "ducklake_"
_Statement = TypeVar("_Statement")
_LATER = (1, 1)
INLINED_SYSTEM_COLUMNS = 3
"""Number of system columns of a table of inlined rows, before the user's columns."""
# One line a table: column names in order; a plain name is BIGINT, otherwise name:type; ! is NOT NULL, * is the primary key; + is new in
# version 1.1.
_LAYOUT = {
    "metadata": "key:varchar! value:varchar! scope:varchar scope_id",
    "snapshot": "snapshot_id* snapshot_time:timestamptz schema_version next_catalog_id next_file_id",
    "snapshot_changes": "snapshot_id* changes_made:varchar author:varchar commit_message:varchar commit_extra_info:varchar",
    "schema": "schema_id* schema_uuid:uuid begin_snapshot end_snapshot schema_name:varchar path:varchar path_is_relative:boolean "
    "parent_schema_id+",
    "table": "table_id table_uuid:uuid begin_snapshot end_snapshot schema_id table_name:varchar path:varchar path_is_relative:boolean",
    "view": "view_id view_uuid:uuid begin_snapshot end_snapshot schema_id view_name:varchar dialect:varchar sql:varchar "
    "column_aliases:varchar",
    "tag": "object_id begin_snapshot end_snapshot key:varchar value:varchar",
    "column_tag": "table_id column_id begin_snapshot end_snapshot key:varchar value:varchar",
    "view_column_tag+": "view_id column_name:varchar begin_snapshot end_snapshot key:varchar value:varchar",
    "data_file": "data_file_id* table_id begin_snapshot end_snapshot file_order path:varchar path_is_relative:boolean file_format:varchar "
    "record_count file_size_bytes footer_size row_id_start partition_id encryption_key:varchar mapping_id partial_max row_group_count+",
    "file_column_stats": "data_file_id table_id column_id column_size_bytes value_count null_count min_value:varchar max_value:varchar "
    "contains_nan:boolean extra_stats:varchar min_is_exact:boolean+ max_is_exact:boolean+",
    "file_variant_stats": "data_file_id table_id column_id variant_path:varchar shredded_type:varchar column_size_bytes value_count "
    "null_count min_value:varchar max_value:varchar contains_nan:boolean extra_stats:varchar",
    "delete_file": "delete_file_id* table_id begin_snapshot end_snapshot data_file_id path:varchar path_is_relative:boolean format:varchar "
    "delete_count file_size_bytes footer_size encryption_key:varchar partial_max row_group_count+",
    "column": "column_id begin_snapshot end_snapshot table_id column_order column_name:varchar column_type:varchar initial_default:varchar "
    "default_value:varchar nulls_allowed:boolean parent_column default_value_type:varchar default_value_dialect:varchar",
    "table_stats": "table_id record_count next_row_id file_size_bytes",
    "table_column_stats": "table_id column_id contains_null:boolean contains_nan:boolean min_value:varchar max_value:varchar "
    "extra_stats:varchar min_is_exact:boolean+ max_is_exact:boolean+",
    "partition_info": "partition_id table_id begin_snapshot end_snapshot",
    "partition_column": "partition_id table_id partition_key_index column_id transform:varchar",
    "file_partition_value": "data_file_id table_id partition_key_index partition_value:varchar",
    "files_scheduled_for_deletion": "data_file_id path:varchar path_is_relative:boolean schedule_start:timestamptz",
    "inlined_data_tables": "table_id table_name:varchar schema_version",
    "column_mapping": "mapping_id table_id type:varchar",
    "name_mapping": "mapping_id column_id source_name:varchar target_field_id parent_column is_partition:boolean",
    "schema_versions": "begin_snapshot schema_version table_id",
    "macro": "schema_id macro_id macro_name:varchar begin_snapshot end_snapshot",
    "macro_impl": "macro_id impl_id dialect:varchar sql:varchar type:varchar",
    "macro_parameters": "macro_id impl_id column_id parameter_name:varchar parameter_type:varchar default_value:varchar "
    "default_value_type:varchar",
    "sort_info": "sort_id table_id begin_snapshot end_snapshot",
    "sort_expression": "sort_id table_id sort_key_index expression:varchar dialect:varchar sort_direction:varchar null_order:varchar",
}
_INLINED_DELETES_NAME = re.compile(rf"{PREFIX}inlined_delete_(?P<owner>\d+)", re.ASCII)
_INLINED_NAME = re.compile(rf"{PREFIX}inlined_data_(?P<owner>\d+)_(?P<version>\d+)(?:_[0-9a-f]{{12}})?", re.ASCII)
"""The optional last part distinguishes the tables of several commit attempts, on databases that do not roll back DDL."""

_TIME_TEXT = re.compile(
    r"(?P<day>\d{4}-\d{2}-\d{2})[ T](?P<clock>\d{2}:\d{2}(?::\d{2})?)(?:\.(?P<fraction>\d{1,9}))?"
    r"\s*(?:(?P<utc>Z|UTC)|(?P<sign>[+-])(?P<hours>\d{2})(?::?(?P<minutes>\d{2}))?(?::?\d{2})?)?",
    re.IGNORECASE | re.ASCII,
)
_TRUTH = {"1": True, "true": True, "t": True, "0": False, "false": False, "f": False}

_INDEXES = {
    "ducklake_file_column_stats_by_column": ("file_column_stats", ("table_id", "column_id", "data_file_id")),
    "ducklake_data_file_by_table": ("data_file", ("table_id", "data_file_id")),
    "ducklake_delete_file_by_table": ("delete_file", ("table_id", "data_file_id")),
    "ducklake_file_partition_value_by_table": ("file_partition_value", ("table_id", "data_file_id")),
    "ducklake_table_by_id": ("table", ("table_id",)),
    "ducklake_column_by_table": ("column", ("table_id",)),
    "ducklake_table_stats_by_table": ("table_stats", ("table_id",)),
    "ducklake_table_column_stats_by_table": ("table_column_stats", ("table_id", "column_id")),
    "ducklake_schema_versions_by_table": ("schema_versions", ("table_id",)),
    "ducklake_inlined_data_tables_by_table": ("inlined_data_tables", ("table_id",)),
}
"""Indexes by name: their metadata table and columns."""
# MySQL has no CREATE INDEX IF NOT EXISTS.
_WITHOUT_IF = frozenset({"mysql", "mariadb"})


def create_indexes(connection: Connection, tables: CatalogTables) -> tuple[str, ...]:
    """Create the indexes that are missing, and return the names of all."""
    knows_if = connection.dialect.name not in _WITHOUT_IF
    for name, (table, columns) in _INDEXES.items():
        index = tables.statement(name, partial(_index, tables[table], name, columns))
        known = () if knows_if else inspect(connection).get_indexes(tables[table].name, schema=tables.schema)
        if not any(found["name"] == name for found in known):
            connection.execute(CreateIndex(index, if_not_exists=knows_if))
    return tuple(_INDEXES)


def _index(table: Table, name: str, columns: Sequence[str]) -> Index:
    # Of a copy, because an Index attaches itself to its table, and tables are created without.
    copy = table.to_metadata(MetaData(schema=table.schema))
    return Index(name, *(copy.c[column] for column in columns))


def time_to_text(value: datetime) -> str:
    """Return the UTC text of a point in time that DuckDB stores in databases without a suitable type.

    >>> time_to_text(datetime(2024, 7, 1, 20, 0, 0, 120000, tzinfo=UTC)), time_to_text(datetime(2024, 7, 1, tzinfo=UTC))
    ('2024-07-01 20:00:00.12+00', '2024-07-01 00:00:00+00')
    """
    at = value.astimezone(UTC)
    fraction = f".{at.microsecond:06d}".rstrip("0").rstrip(".")
    return f"{at:%Y-%m-%d %H:%M:%S}{fraction}+00"


@lru_cache(maxsize=256)
def time_from_text(text: str) -> datetime:
    """Return the point in time of any text form that DuckDB reads; without a zone it is UTC.

    >>> time_from_text("2024-07-01T20:00:00Z").isoformat(), time_from_text("2024-07-01 22:00:00.5+02").isoformat()
    ('2024-07-01T20:00:00+00:00', '2024-07-01T20:00:00.500000+00:00')

    Raises:
        CatalogCorruptError: The text is not a time.
    """
    found = _TIME_TEXT.fullmatch(text.strip())
    if found is None:
        raise CatalogCorruptError(f"The catalog contains {text!r} where a time is expected", text=text)
    micros = int((found["fraction"] or "0").ljust(6, "0")[:6])
    offset = timedelta(hours=int(found["hours"] or 0), minutes=int(found["minutes"] or 0))
    try:
        at = datetime.fromisoformat(f"{found['day']} {found['clock']}").replace(microsecond=micros)
        return at.replace(tzinfo=timezone(-offset if found["sign"] == "-" else offset)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise CatalogCorruptError(f"The catalog contains {text!r} where a time is expected: {error}", text=text) from error


class CatalogBoolean(TypeDecorator[bool]):
    """BOOLEAN, or 0 and 1 if DuckDB declares the column BIGINT."""

    impl = Boolean
    cache_ok = True

    @override
    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(BigInteger() if abilities_of(dialect).boolean_as_integer else Boolean())

    @override
    def process_bind_param(self, value: bool | None, dialect: Dialect) -> Any:
        # A copied row may contain values that were read without the conversion of results.
        known = _truth(value)
        return int(known) if known is not None and abilities_of(dialect).boolean_as_integer else known

    @override
    def process_result_value(self, value: Any, _dialect: Dialect) -> bool | None:
        return _truth(value)


def _truth(value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    if type(value) is int and value in (0, 1):
        return value == 1
    # SQLite does not enforce the types of columns.
    found = _TRUTH.get(str(value).strip().lower())
    if found is None:
        raise CatalogCorruptError(
            f"The catalog contains {value!r} where true or false is expected. Correct the value, or restore it from a backup",
            text=str(value),
        )
    return found


class CatalogUuid(TypeDecorator[str]):
    """UUID as lower-case dashed text."""

    impl = String
    cache_ok = True

    @override
    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(String() if abilities_of(dialect).uuid_as_text else Uuid(as_uuid=False, native_uuid=True))

    @override
    def process_bind_param(self, value: str | UUID | None, _dialect: Dialect) -> str | None:
        return None if value is None else str(value)

    @override
    def process_result_value(self, value: Any, _dialect: Dialect) -> str | None:
        return None if value is None else str(value)


class CatalogTimestamp(TypeDecorator[datetime]):
    """TIMESTAMPTZ as an aware datetime in UTC. Databases that store it as text must never compare or sort by it in SQL."""

    impl = DateTime
    cache_ok = True

    @override
    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(String() if abilities_of(dialect).timestamp_as_text else DateTime(timezone=True))

    @override
    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        at = value.replace(tzinfo=UTC) if value.tzinfo is None else value
        return time_to_text(at) if abilities_of(dialect).timestamp_as_text else at

    @override
    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return time_from_text(str(value)) if abilities_of(dialect).timestamp_as_text else value.astimezone(UTC)

    @override
    def result_processor(self, dialect: Dialect, coltype: Any) -> Callable[[Any], Any] | None:
        own = self.impl_instance.result_processor(dialect, coltype)
        # Decided once per result: checking the abilities for each cell takes longer than the rest, and a lake may have many snapshots.
        if own is not None:
            return super().result_processor(dialect, coltype)
        return _from_cell if abilities_of(dialect).timestamp_as_text else _in_utc


def _from_cell(value: Any) -> datetime | None:
    """Return the point in time of a text; the usual form, ``2024-07-01 20:00:00.12+00``, without a regular expression.

    >>> _from_cell("2024-07-01 20:00:00.12+00") == time_from_text("2024-07-01 20:00:00.12+00")
    True
    """
    if value is None:
        return None
    text = str(value)
    if text[-3:] == "+00" and text[4:17:3] == "-- ::" and text[19] in ".+":
        with suppress(ValueError):
            return datetime.fromisoformat(text)
    return time_from_text(text)


def _in_utc(value: datetime | None) -> datetime | None:
    return None if value is None else value.astimezone(UTC)


_TYPES: dict[str, type[TypeEngine[Any]]] = {
    "": BigInteger,
    "varchar": String,
    "boolean": CatalogBoolean,
    "uuid": CatalogUuid,
    "timestamptz": CatalogTimestamp,
}


class CatalogTables(Mapping[str, Table]):
    """The metadata tables of one catalog by name without prefix: ``tables["data_file"].c.record_count``."""

    def __init__(self, schema: str | None, version: FormatVersion = NEWEST) -> None:
        self.schema = schema
        self.version = version
        self.metadata = MetaData(schema=schema)
        self._statements: dict[str, Any] = {}
        self._later: dict[str, frozenset[str]] = {}
        self._tables = {
            name.rstrip("+"): Table(PREFIX + name.rstrip("+"), self.metadata, *_columns(layout, version))
            for name, layout in _LAYOUT.items()
            if _has(version, name)
        }

    def __getitem__(self, name: str) -> Table:
        return self._tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    @cached_property
    def schemas(self) -> FromClause:
        """Return the schemas, each with its path as ``schema_name``; every query for names of schemas uses this."""
        return schemas_by_path(self["schema"])

    def statement(self, name: str, build: Callable[[], _Statement]) -> _Statement:
        """Return a statement that is built once, because building it takes longer than its execution.

        Args:
            name: Name of the statement.
            build: Builds it.
        """
        if name not in self._statements:
            self._statements[name] = build()
        found: _Statement = self._statements[name]
        return found

    def optional(self, table: str, column: str) -> ColumnElement[Any]:
        """Return a column that not every version has; NULL if this version lacks it."""
        there = self[table].c.get(column)
        return (cast(null(), LATEST_TABLES[table].c[column].type) if there is None else there).label(column)

    def fitting(self, table: str, rows: Sequence[Mapping[str, object]]) -> Sequence[Mapping[str, object]]:
        """Return rows without the columns that only later versions have."""
        if not rows or self.version.number == NEWEST.number:
            return rows
        if table not in self._later:
            self._later[table] = frozenset(LATEST_TABLES[table].c.keys()).difference(self[table].c.keys())
        later = self._later[table]
        return [{name: value for name, value in row.items() if name not in later} for row in rows] if later else rows

    @property
    def inlined(self) -> InlinedColumns:
        """Return the names of the system columns of tables of inlined rows."""
        return self.version.inlined_columns

    def inlined_data(self, name: str, columns: Iterable[str] = ()) -> Table:
        """Return a registered table of inlined rows.

        System columns are ``c.row_id``, ``c.begin_snapshot`` and ``c.end_snapshot``, under whatever names this version gives them. The
        user's columns follow, to be found by position, untyped (as stored).

        Args:
            name: Name of the table.
            columns: Names of the user's columns; default none.

        Raises:
            CatalogCorruptError: The name is empty.
        """
        if not name or not isinstance(name, str):
            raise CatalogCorruptError(
                "The catalog table ducklake_inlined_data_tables has a row without a table name. Delete the row, or restore it from a backup"
            )
        system = [Column(column, BigInteger, key=key) for key, column in asdict(self.inlined).items()]
        # Always quoted: databases have reserved words that SQLAlchemy does not know, such as NOTHING and RETURNING in SQLite.
        own = (Column(quoted_name(column, quote=True), NullType(), key=f"column {place}") for place, column in enumerate(columns))
        return Table(name, MetaData(schema=self.schema), *system, *own)

    def whole(self, name: str) -> Select[Any]:
        """Return a query of all columns of a table of the database, under their names there."""
        return select(literal_column("*")).select_from(Table(name, MetaData(schema=self.schema)))

    def system_columns(self, name: str) -> Iterable[Column[Any]]:
        """Return the columns that every table of inlined rows or deletes has, by the name of one."""
        owner = inlined_deletes_owner(name)
        return self.inlined_data(name).c if owner is None else self.inlined_delete(owner).c

    def inlined_delete(self, table_id: int) -> Table:
        """Return the table of inlined deletes of a table. It exists only after the first such delete."""
        columns = (Column(column, BigInteger) for column in ("file_id", "row_id", "begin_snapshot"))
        return Table(inlined_delete_name(table_id), MetaData(schema=self.schema), *columns)


def inlined_data_name(table_id: int, schema_version: int) -> str:
    """Return the name of the table of inlined rows for one version of the columns of a table.

    >>> inlined_data_name(4, 2)
    'ducklake_inlined_data_4_2'
    """
    return f"ducklake_inlined_data_{table_id}_{schema_version}"


def inlined_delete_name(table_id: int) -> str:
    """Return the name of the table of inlined deletes of a table.

    >>> inlined_delete_name(4)
    'ducklake_inlined_delete_4'
    """
    return f"{PREFIX}inlined_delete_{table_id}"


def inlined_owner(name: str) -> int | None:
    """Return the id of the table to which a table of inlined rows belongs, by its name; None for any other table.

    >>> inlined_owner("ducklake_inlined_data_4_17"), inlined_owner("ducklake_inlined_delete_4"), inlined_owner("ducklake_inlined_data_x_1")
    (4, None, None)
    """
    found = _INLINED_NAME.fullmatch(name)
    return None if found is None else int(found["owner"])


def inlined_version(name: str) -> int:
    """Return the schema version of a table of inlined rows, by its name.

    >>> inlined_version("ducklake_inlined_data_4_17"), inlined_version("ducklake_inlined_data_4_17_0123456789ab")
    (17, 17)
    """
    found = _INLINED_NAME.fullmatch(name)
    assert found is not None
    return int(found["version"])


def inlined_deletes_owner(name: str) -> int | None:
    """Return the id of the table to which a table of inlined deletes belongs, by its name; None for any other table.

    >>> inlined_deletes_owner("ducklake_inlined_delete_4"), inlined_deletes_owner("ducklake_inlined_data_4_17")
    (4, None)
    """
    found = _INLINED_DELETES_NAME.fullmatch(name)
    return None if found is None else int(found["owner"])


def is_inlined_table(name: str) -> bool:
    """Return whether a table of the database contains inlined rows or deletes, by its name."""
    return inlined_owner(name) is not None or inlined_deletes_owner(name) is not None


def may_be_in_the_making(name: str, *, schema_version: int, next_catalog_id: int) -> bool:
    """Return whether a running commit may have created a table of inlined rows or deletes, on databases that commit at DDL.

    A running commit uses a later schema version or new ids, so a name with older numbers does not belong to it.

    Args:
        name: Name of the table.
        schema_version: Schema version of the newest snapshot.
        next_catalog_id: Next catalog id of the newest snapshot.

    >>> names = ("ducklake_inlined_data_3_7", "ducklake_inlined_data_3_8", "ducklake_inlined_delete_4")
    >>> [may_be_in_the_making(name, schema_version=7, next_catalog_id=4) for name in names]
    [False, True, True]
    """
    owner = inlined_owner(name)
    if owner is not None:
        return owner >= next_catalog_id or inlined_version(name) > schema_version
    owner = inlined_deletes_owner(name)
    return owner is not None and owner >= next_catalog_id


@lru_cache(maxsize=32)
def metadata_tables(schema: str | None, version: FormatVersion = NEWEST) -> CatalogTables:
    """Return the metadata tables of a version in a database schema (None for the default of the connection)."""
    return CatalogTables(schema, version)


def _has(version: FormatVersion, item: str) -> bool:
    return version.number >= _LATER or not item.endswith("+")


def _columns(layout: str, version: FormatVersion) -> Iterator[Column[Any]]:
    for item in layout.split():
        if not _has(version, item):
            continue
        name, _, kind = item.rstrip("*!+").partition(":")
        key = item.endswith("*")
        yield Column(name, _TYPES[kind](), primary_key=key, autoincrement=False, nullable=not (key or item.endswith("!")))


LATEST_TABLES = metadata_tables(None)
"""All columns that any version has."""


def schemas_by_path(schema: Table) -> FromClause:
    """Return the rows of ``ducklake_schema`` with the full path in ``schema_name`` (see ``format.types.names``).

    A nested schema is visible only while every schema around it is, so its lifetime is the intersection of all of them::

        a      [1, -)             ->  a      [1, -)
        b in a [3, 9)             ->  a.b    [3, 9)
        c in b [2, -)             ->  a.b.c  [3, 9)

    Schemas without a name, and those inside a missing schema or inside themselves, have no path and are left out.
    """
    top = _rows(schema, _quoted(schema.c.schema_name))
    parent = schema.c.get("parent_schema_id")
    if parent is None:
        return top.subquery("schemas")
    around = top.where(parent.is_(None)).cte("schemas", recursive=True)
    inner = schema.alias("inner_schema")
    name = around.c.schema_name + "." + _quoted(inner.c.schema_name)
    begin = case((inner.c.begin_snapshot < around.c.begin_snapshot, around.c.begin_snapshot), else_=inner.c.begin_snapshot)
    is_longer = or_(inner.c.end_snapshot.is_(None), inner.c.end_snapshot > around.c.end_snapshot)
    end = case((is_longer, func.coalesce(around.c.end_snapshot, inner.c.end_snapshot)), else_=inner.c.end_snapshot)
    return around.union_all(
        _rows(inner, name, begin_snapshot=begin, end_snapshot=end).join(around, around.c.schema_id == inner.c.parent_schema_id)
    )


def _rows(schema: FromClause, name: ColumnElement[str], **others: ColumnElement[Any]) -> Select[Any]:
    # Both halves of a recursive query need the same type; concatenation changes VARCHAR to TEXT in some databases.
    others = {**others, "schema_name": cast(name, Text)}
    columns = (others.get(column.name, column).label(column.name) for column in schema.c)
    return select(*columns).where(schema.c.schema_name.is_not(None))


def _quoted(column: ColumnElement[str]) -> ColumnElement[str]:
    """Return a name as it is written in a path: quoted if it contains a dot or a quote."""
    name = type_coerce(column, String)
    is_odd = or_(name.contains("."), name.contains('"'))
    return case((is_odd, '"' + func.replace(name, '"', '""') + '"'), else_=name)
