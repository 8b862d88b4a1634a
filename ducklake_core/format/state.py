"""Describe a lake at one snapshot as plain values, which catalog, scans, commits and maintenance exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from operator import attrgetter
from typing import NamedTuple

from ducklake_core.format.changes import Changes, parse_changes
from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.files.paths import check_location, without_credentials
from ducklake_core.format.layout.sorting import SortKey
from ducklake_core.format.types.names import split_path
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.text import one_line
from ducklake_core.format.versions import DEFAULT_VERSION, USUAL_LIMITS, FormatVersion, InlinedLimits, format_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One row of ducklake_snapshot with its row of ducklake_snapshot_changes.

    Attributes:
        id: ``snapshot_id``.
        time: Time of the commit by the database's clock, in UTC.
        schema_version: Increases by one with every commit that changes a catalog object.
        next_catalog_id: Next id for schemas, tables, views, macros, partition specs and sort keys.
        next_file_id: Next id for data files, delete files and name mappings.
        changes: Content of ``changes_made``; empty if the row is missing.
        author: Author of the commit, or None.
        message: Commit message, or None.
        extra_info: Extra information of the commit, or None.
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

    def __repr__(self) -> str:
        details = [one_line(text) for text in (self.changes, self.message) if text]
        by = "" if self.author is None else f" by {one_line(self.author)}"
        # The time may be missing in a catalog that was edited, which a message about it has to survive.
        return f"<Snapshot {self.id} of {self.time!s:.19} UTC{by}{': ' if details else ''}{'; '.join(details)}>"

    @property
    def change_set(self) -> Changes:
        """The parsed ``changes``: tables, views, schemas and macros by id; created ones by name.

        Raises:
            CatalogCorruptError: The text cannot be read.
        """
        return parse_changes(self.changes)


def is_same_snapshot(one: Snapshot, other: Snapshot) -> bool:
    """Return whether both are the same commit. An id alone does not show this, because it is assigned again after a backup is restored.

    Compares the commit id in ``extra_info``, or the time in microseconds if there is none.
    """
    return one is other or _identity(one) == _identity(other)


_identity = attrgetter("id", "time", "schema_version", "next_catalog_id", "next_file_id", "changes", "extra_info")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LakeInfo:
    """Lake-wide settings, from ducklake_metadata.

    Attributes:
        version: Catalog version, ``1.0`` or ``1.1``; an earlier one for a lake that can only be read.
        data_path: Base of all relative paths, with a trailing slash, as stored or as overridden for this session.
        encrypted: Whether data files are encrypted.
        created_by: Program that created the catalog.
        stored_data_path: The data path as stored in the catalog; None if it is not needed.
        inlined_limits: Limits of the catalog's database for tables of inlined rows.
        allowed_paths: Further paths that the catalog may name in this session (format/files/paths.py).
    """

    version: str
    data_path: str
    encrypted: bool
    created_by: str | None = None
    stored_data_path: str | None = None
    inlined_limits: InlinedLimits = USUAL_LIMITS
    allowed_paths: tuple[str, ...] = ()

    def __repr__(self) -> str:
        shown = {one.name: getattr(self, one.name) for one in fields(self)}
        # A catalog written elsewhere may have credentials in its data path.
        for name in ("data_path", "stored_data_path"):
            shown[name] = shown[name] and without_credentials(shown[name])
        shown["allowed_paths"] = tuple(map(without_credentials, self.allowed_paths))
        return f"LakeInfo({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def format_version(self) -> FormatVersion:
        """Return the abilities of the lake's format version."""
        return replace(format_version(self.version), inlined_limits=self.inlined_limits)

    def checked_location(self, path: str, what: str, **details: object) -> str:
        """Return a full path after the check that this lake may name it.

        Raises:
            UnsupportedFeatureError: The path leaves the data path through ``..`` or is in another kind of store, and no allowed path
                includes it.
        """
        check_location(path, self.data_path, self.allowed_paths, what=what, **details)
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaState:
    """A schema ("namespace") at one snapshot.

    Attributes:
        name: Path of the schema: ``sales.europe`` for ``europe`` in ``sales``, ``"sales.europe"`` for a top-level schema with a dot in its
            name. :attr:`parts` has the names without quotes.
        path: The full directory with a trailing slash.
        comment: Its ``comment`` tag. DuckDB neither writes nor shows comments and tags of schemas.
        tags: Its other tags by key.
    """

    id: int
    uuid: str
    name: str
    path: str
    comment: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the enclosing schemas, outermost first, and of the schema itself."""
        return split_path(self.name)


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
        name: Table name as written.
        schema_name: The path of its schema (:attr:`SchemaState.name`).
        path: Full directory of the table with a trailing slash.
        schema: Columns live at the snapshot.
        snapshot_id: The snapshot this state was read at.
        schema_version: Schema version of that snapshot.
        snapshot_time: When it was committed, which with its id identifies it across histories; None while it is not committed.
        next_column_id: 1 + the highest column id the table ever had.
        partition_spec: Keys that new files are partitioned by, None for none.
        partition_specs: Every spec the table ever had by ``partition_id``, to read files of older specs.
        sort_keys: Sort order of new files.
        inlined_tables: Registered tables of inlined rows, by schema version ascending.
        columns_version: Schema version at which columns, name or keys changed last; tables of inlined rows of earlier versions may lack
            columns.
        has_inlined_deletes: Whether ``ducklake_inlined_delete_<id>`` exists.
        options: Effective options of this table (table over schema over global scope), by lower-case name.
        comment: The table's ``comment`` tag.
        column_comments: ``comment`` tags of columns by column id.
        tags: Its other tags by key.
        format_version: The version of the lake.
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
    # Not compared: two states of one snapshot are equal whether or not its time is known.
    snapshot_time: datetime | None = field(default=None, compare=False)
    partition_spec: PartitionSpec | None = None
    partition_specs: Mapping[int, PartitionSpec] = field(default_factory=dict)
    sort_keys: tuple[SortKey, ...] = ()
    inlined_tables: tuple[InlinedTable, ...] = ()
    columns_version: int = 0
    has_inlined_deletes: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    column_comments: Mapping[int, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    format_version: FormatVersion = DEFAULT_VERSION

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
    """ducklake_table_column_stats: bounds over everything ever written to one leaf column.

    None is unknown. ``min_is_exact`` and ``max_is_exact`` say whether the bounds are values of the column.
    """

    table_id: int
    column_id: int
    contains_null: bool | None
    contains_nan: bool | None
    min_value: str | None
    max_value: str | None
    extra_stats: str | None = None
    min_is_exact: bool | None = None
    max_is_exact: bool | None = None


class TableListing(NamedTuple):
    """A table's row in a listing of the lake: sizes of what is live at the snapshot, from one query for all tables.

    A tuple, as there may be very many.

    Attributes:
        record_count: Rows in live data files, deleted ones included.
        file_count: Live data files, ``file_size_bytes`` their bytes.
        delete_file_count: Live delete files of live data files; ``delete_file_size_bytes`` and ``delete_count`` are sums over them.
        is_exact: False when a live file also holds rows or deletes of later snapshots, so that only a scan can count.
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
    comment: str | None = None

    @property
    def qualified_name(self) -> str:
        """``schema.table``."""
        return f"{self.schema_name}.{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InlinedCounts:
    """Counts of what one table holds in the catalog itself at a snapshot: visible rows, and positions deleted in live data files."""

    row_count: int = 0
    deleted_count: int = 0
