"""What the catalog says at one snapshot, as plain values: the currency between catalog, scan, commit and maintenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from ducklake_core.format.changes import Changes, parse_changes
from ducklake_core.format.locations import check_location
from ducklake_core.format.partitioning import PartitionSpec
from ducklake_core.format.schema import Schema
from ducklake_core.format.sorting import SortKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One row of ducklake_snapshot with its row of ducklake_snapshot_changes.

    Attributes:
        id: ``snapshot_id``.
        time: When it was committed, by the database's clock, in UTC.
        schema_version: Grows by one with every commit that changes a catalog object.
        next_catalog_id: Next id for schemas, tables, views, macros, partition specs and sort keys.
        next_file_id: Next id for data files, delete files and name mappings.
        changes: The ``changes_made`` text, empty when the row is missing.
        author: Who committed, as the writer said; None when unsaid. Likewise ``message`` and ``extra_info``.
    """

    id: int
    time: datetime
    schema_version: int
    next_catalog_id: int
    next_file_id: int
    changes: str = ""
    author: str | None = None
    message: str | None = None
    extra_info: str | None = None

    @property
    def change_set(self) -> Changes:
        """What ``changes`` says: tables, views, schemas and macros by id, or by name where they were created.

        Raises:
            CatalogCorruptError: The text cannot be read.
        """
        return parse_changes(self.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeInfo:
    """Lake-wide settings, from ducklake_metadata.

    Attributes:
        version: Catalog version, ``1.0``.
        data_path: Base of all relative paths, with a trailing slash, as stored or as overridden for this session.
        encrypted: Whether data files are encrypted.
        created_by: What created the catalog.
        allowed_paths: Places beside the data path that the user of this session lets the catalog name (format/locations.py).
    """

    version: str
    data_path: str
    encrypted: bool
    created_by: str | None = None
    allowed_paths: tuple[str, ...] = ()

    def checked_location(self, path: str, what: str, **details: object) -> str:
        """A full path, unless it is one that this lake has no business to name.

        Raises:
            UnsupportedFeatureError: It leaves the data path through ``..``, or is in another kind of store, and is not allowed.
        """
        check_location(path, self.data_path, self.allowed_paths, what=what, **details)
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaState:
    """A schema ("namespace") at one snapshot; ``path`` is the full directory with a trailing slash."""

    id: int
    uuid: str
    name: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InlinedTable:
    """One registered table of inlined rows: its physical name and the schema version that its columns follow."""

    name: str
    schema_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table at one snapshot: everything a reader or writer needs except its files.

    Attributes:
        id: ``table_id``.
        name: Table name as written; ``schema_name`` likewise.
        path: Full directory of the table with a trailing slash.
        schema: Columns live at the snapshot.
        snapshot_id: The snapshot this state was read at.
        schema_version: Schema version of that snapshot.
        next_column_id: 1 + the highest column id the table ever had.
        partition_spec: Keys that new files are partitioned by, None for none.
        partition_specs: Every spec the table ever had by ``partition_id``, to read files of older specs.
        sort_keys: Sort order of new files.
        inlined_tables: Registered tables of inlined rows, by schema version ascending.
        columns_version: Schema version at which columns, name or keys changed last; tables of inlined rows of earlier versions may lack
            columns.
        has_inlined_deletes: Whether ``ducklake_inlined_delete_<id>`` exists.
        options: Options in force for this table (table over schema over global scope), by lower-case name.
        comment: The table's ``comment`` tag.
        column_comments: ``comment`` tags of columns by column id.
    """

    id: int
    uuid: str
    name: str
    schema_id: int
    schema_name: str
    path: str
    schema: Schema
    snapshot_id: int
    schema_version: int
    next_column_id: int
    partition_spec: PartitionSpec | None = None
    partition_specs: Mapping[int, PartitionSpec] = field(default_factory=dict)
    sort_keys: tuple[SortKey, ...] = ()
    inlined_tables: tuple[InlinedTable, ...] = ()
    columns_version: int = 0
    has_inlined_deletes: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    column_comments: Mapping[int, str] = field(default_factory=dict)

    @property
    def qualified_name(self) -> str:
        """``schema.table`` for messages."""
        return f"{self.schema_name}.{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatistics:
    """ducklake_table_stats: gross row count (deletes never subtract), next row id, bytes."""

    table_id: int
    record_count: int
    next_row_id: int
    file_size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumnStatistics:
    """ducklake_table_column_stats: bounds over everything ever written to one leaf column. None is unknown."""

    table_id: int
    column_id: int
    contains_null: bool | None
    contains_nan: bool | None
    min_value: str | None
    max_value: str | None
    extra_stats: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableListing:
    """A table's row in a listing of the lake: sizes of what is live at the snapshot, from one query for all tables.

    Attributes:
        record_count: Rows in live data files, deleted ones included.
        file_count: Live data files, ``file_size_bytes`` their bytes.
        delete_file_count: Live delete files of live data files; ``delete_file_size_bytes`` and ``delete_count`` are theirs.
        is_exact: False when a live file also holds rows or deletes of later snapshots, so that only a scan can count.
        has_inlined_tables: Whether any table of inlined rows is registered.
    """

    id: int
    uuid: str
    name: str
    schema_id: int
    schema_name: str
    record_count: int = 0
    file_count: int = 0
    file_size_bytes: int = 0
    delete_file_count: int = 0
    delete_file_size_bytes: int = 0
    delete_count: int = 0
    is_exact: bool = True
    has_inlined_tables: bool = False
    comment: str | None = None

    @property
    def qualified_name(self) -> str:
        """``schema.table``."""
        return f"{self.schema_name}.{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InlinedCounts:
    """What one table holds in the catalog itself at a snapshot: visible rows, and positions deleted in live data files."""

    row_count: int = 0
    deleted_count: int = 0
