"""The metadata tables of each catalog version and the tables of inlined rows (specification: Tables).

The order of columns is part of the format: DuckDB inserts without column lists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property, lru_cache
from typing import Any, TypeVar

from sqlalchemy import BigInteger, Column, ColumnElement, FromClause, MetaData, String, Table, cast, null
from sqlalchemy.sql import quoted_name
from sqlalchemy.types import NullType, TypeEngine

from ducklake_core.catalog.database.column_types import CatalogBoolean, CatalogTimestamp, CatalogUuid
from ducklake_core.catalog.database.schema_paths import schemas_by_path
from ducklake_core.errors import CatalogCorruptError
from ducklake_core.format.versions import NEWEST, FormatVersion, InlinedColumns

PREFIX = "ducklake_"
_Statement = TypeVar("_Statement")
_LATER = (1, 1)
INLINED_SYSTEM_COLUMNS = 3
"""How many columns of a table of inlined rows are not the user's."""

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

_TYPES: dict[str, type[TypeEngine[Any]]] = {
    "": BigInteger,
    "varchar": String,
    "boolean": CatalogBoolean,
    "uuid": CatalogUuid,
    "timestamptz": CatalogTimestamp,
}

TABLE_NAMES = tuple(name for name in _LAYOUT if not name.endswith("+"))
"""Names of the metadata tables that every version has, without their prefix."""


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
        """The schemas, each with its path as ``schema_name``; what reads names of schemas reads this."""
        return schemas_by_path(self["schema"])

    def statement(self, name: str, build: Callable[[], _Statement]) -> _Statement:
        """A statement that is built once: what every call asks should cost no more than its answer."""
        if name not in self._statements:
            self._statements[name] = build()
        found: _Statement = self._statements[name]
        return found

    def optional(self, table: str, column: str) -> ColumnElement[Any]:
        """A column that not every version has: NULL where this one has it not."""
        there = self[table].c.get(column)
        return (cast(null(), LATEST_TABLES[table].c[column].type) if there is None else there).label(column)

    def fitting(self, table: str, rows: Sequence[Mapping[str, object]]) -> Sequence[Mapping[str, object]]:
        """Rows without the columns that later versions have and this one has not."""
        if not rows or self.version.number == NEWEST.number:
            return rows
        if table not in self._later:
            self._later[table] = frozenset(LATEST_TABLES[table].c.keys()).difference(self[table].c.keys())
        later = self._later[table]
        return [{name: value for name, value in row.items() if name not in later} for row in rows] if later else rows

    @property
    def inlined(self) -> InlinedColumns:
        """How the leading columns of tables of inlined rows are called."""
        return self.version.inlined_columns

    def inlined_data(self, name: str, columns: Iterable[str] = ()) -> Table:
        """A registered table of inlined rows: ``c.row_id``, ``c.begin_snapshot`` and ``c.end_snapshot``, whatever they are called in this
        version, then the user's columns, which are found by their place, untyped (as stored).

        Raises:
            CatalogCorruptError: It is registered without a name.
        """
        if not name or not isinstance(name, str):
            raise CatalogCorruptError("ducklake_inlined_data_tables has a row without the name of a table")
        system = [Column(column, BigInteger, key=key) for key, column in asdict(self.inlined).items()]
        # Databases have more words of their own than SQLAlchemy knows: NOTHING and RETURNING in SQLite.
        own = (Column(quoted_name(column, quote=True), NullType(), key=f"column {place}") for place, column in enumerate(columns))
        return Table(name, MetaData(schema=self.schema), *system, *own)

    def inlined_delete(self, table_id: int) -> Table:
        """The table of positions deleted through the catalog; it exists only once the first such delete was made."""
        columns = (Column(column, BigInteger) for column in ("file_id", "row_id", "begin_snapshot"))
        return Table(inlined_delete_name(table_id), MetaData(schema=self.schema), *columns)


def inlined_data_name(table_id: int, schema_version: int) -> str:
    """Name of the table that holds a table's inlined rows of one version of its columns.

    >>> inlined_data_name(4, 2)
    'ducklake_inlined_data_4_2'
    """
    return f"ducklake_inlined_data_{table_id}_{schema_version}"


def inlined_delete_name(table_id: int) -> str:
    """Name of the table that holds a table's inlined file deletes.

    >>> inlined_delete_name(4)
    'ducklake_inlined_delete_4'
    """
    return f"{PREFIX}inlined_delete_{table_id}"


def inlined_owner(name: str) -> int | None:
    """The id of the table that a physical table of inlined rows belongs to, by its name; None for any other table.

    >>> inlined_owner("ducklake_inlined_data_4_17"), inlined_owner("ducklake_inlined_delete_4"), inlined_owner("ducklake_inlined_data_x_1")
    (4, None, None)
    """
    found = _INLINED_NAME.fullmatch(name)
    return None if found is None else int(found["owner"])


def inlined_version(name: str) -> int:
    """The schema version that a physical table of inlined rows is of.

    >>> inlined_version("ducklake_inlined_data_4_17"), inlined_version("ducklake_inlined_data_4_17_0123456789ab")
    (17, 17)
    """
    found = _INLINED_NAME.fullmatch(name)
    assert found is not None
    return int(found["version"])


def inlined_deletes_owner(name: str) -> int | None:
    """The id of the table that a physical table of inlined deletes belongs to, by its name; None for any other table.

    >>> inlined_deletes_owner("ducklake_inlined_delete_4"), inlined_deletes_owner("ducklake_inlined_data_4_17")
    (4, None)
    """
    found = _INLINED_DELETES_NAME.fullmatch(name)
    return None if found is None else int(found["owner"])


def is_inlined_table(name: str) -> bool:
    """Whether a table of the database holds inlined rows or deletes, by its name."""
    return inlined_owner(name) is not None or inlined_deletes_owner(name) is not None


def may_be_in_the_making(name: str, *, schema_version: int, next_catalog_id: int) -> bool:
    """Whether a commit that is under way can be making a table of inlined rows or deletes, where tables are seen before the COMMIT.

    Whoever commits next takes the next schema version and ids that were never given out: a name that says less is of no such commit.

    >>> names = ("ducklake_inlined_data_3_7", "ducklake_inlined_data_3_8", "ducklake_inlined_delete_4")
    >>> [may_be_in_the_making(name, schema_version=7, next_catalog_id=4) for name in names]
    [False, True, True]
    """
    owner = inlined_owner(name)
    if owner is not None:
        return owner >= next_catalog_id or inlined_version(name) > schema_version
    owner = inlined_deletes_owner(name)
    return owner is not None and owner >= next_catalog_id


_INLINED_DELETES_NAME = re.compile(rf"{PREFIX}inlined_delete_(?P<owner>\d+)", re.ASCII)
_INLINED_NAME = re.compile(rf"{PREFIX}inlined_data_(?P<owner>\d+)_(?P<version>\d+)(?:_[0-9a-f]{{12}})?", re.ASCII)
"""The last part tells apart what several attempts to commit have made, on databases where a table does not vanish with its attempt."""


@lru_cache(maxsize=32)
def metadata_tables(schema: str | None, version: FormatVersion = NEWEST) -> CatalogTables:
    """The metadata tables of a version in a database schema (None: the connection's own)."""
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
