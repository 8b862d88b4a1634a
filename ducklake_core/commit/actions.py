"""Staged changes of a transaction as frozen values, before ids are assigned.

Ids of existing objects are those of the catalog. Objects that the transaction itself creates have negative ids, which an attempt replaces
by real ones (see ``resolution``), so that the same actions can be resolved again on a newer head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ducklake_core.format.files.data_files import EncryptionKey, WrittenFile
from ducklake_core.format.files.inlined_rows import InlinedRows
from ducklake_core.format.files.name_mapping import AddedFile, NameMapping
from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.layout.sorting import SortKey
from ducklake_core.format.macro_definitions import MacroImplementation, MacroKind
from ducklake_core.format.state import InlinedTable
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSchema:
    """Create a schema.

    Attributes:
        schema_id: Local id, negative.
        name: Path of names from the top, such as ``sales.eu``.
        path: Its directory, relative to the data path.
        parent_id: Schema that contains it, possibly a local id; None at the top.
        or_existing: Whether an equal schema that another writer created meanwhile is accepted instead.
    """

    schema_id: int
    name: str
    uuid: str
    path: str
    parent_id: int | None = None
    or_existing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropSchema:
    """Drop an (empty) schema."""

    schema_id: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TagSchema:
    """Change a tag of a schema; the value None removes it. ``schema_id`` may be negative."""

    schema_id: int
    name: str
    key: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable:
    """Create a table.

    Attributes:
        table_id: Local id, negative; ``schema_id`` may be a local id too.
        path: Its directory, relative to the schema's directory.
        tags: Tags by key, other than the comment.
        options: Options to store for the table.
        first_row_id: First row id of new rows; above 0 when rows bring their own ids.
        altered: Whether the transaction altered the table after creating it, which DuckDB logs.
        inlined: Whether to create an empty table of inlined rows too, as DuckDB does if its inlining limit is above 0 and the types
            allow it.
        or_existing: As in :class:`CreateSchema`.
        transient_columns: Nodes that files of the transaction contain but the final table does not, each with the id of its parent column.
    """

    table_id: int
    schema_id: int
    schema_name: str
    name: str
    uuid: str
    path: str
    schema: Schema
    partition_spec: PartitionSpec | None = None
    comment: str | None = None
    column_comments: tuple[tuple[int, str], ...] = ()
    tags: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    first_row_id: int = 0
    sort_keys: tuple[SortKey, ...] = ()
    altered: bool = False
    inlined: bool = False
    or_existing: bool = False
    transient_columns: tuple[tuple[Field, int | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTable:
    """End a table and everything that belongs to it."""

    table_id: int
    schema_name: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChange:
    """Change the partition keys of new files; None removes them."""

    spec: PartitionSpec | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SortChange:
    """Change the sort order of new files; no keys remove it."""

    keys: tuple[SortKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTable:
    """Change the definition of a committed table; one action holds all changes of the transaction.

    Attributes:
        name: The table's name at the base.
        new_name: Its name from now on, None when it stays.
        ended: Column ids whose live row ends.
        added: Nodes to insert, each without its children and with the id of its parent column (None on top level).
        schema: The columns that result.
        partitioning: None when the keys stay.
        sorting: None when the sort order stays.
        tags: Column id (None for the table itself), key and value of changed tags, including comments; the value None removes a tag.
        not_null: Ids of the columns that become NOT NULL; the data at the base was checked.
        inlined: Whether to create an empty table of inlined rows with these columns, as in :class:`CreateTable`.
        unbounded: Ids of the columns whose stored bounds are invalid for the new type.
        transient_columns: As in :class:`CreateTable`.
    """

    table_id: int
    schema_id: int
    schema_name: str
    name: str
    new_name: str | None = None
    ended: tuple[int, ...] = ()
    added: tuple[tuple[Field, int | None], ...] = ()
    schema: Schema
    partitioning: PartitionChange | None = None
    sorting: SortChange | None = None
    tags: tuple[tuple[int | None, str, str | None], ...] = ()
    not_null: frozenset[int] = frozenset()
    inlined: bool = False
    unbounded: tuple[int, ...] = ()
    transient_columns: tuple[tuple[Field, int | None], ...] = ()

    @property
    def changes_columns(self) -> bool:
        """Return whether any row of a column changes."""
        return bool(self.ended or self.added or self.transient_columns)

    @property
    def changes_table(self) -> bool:
        """Return whether anything but the name changes."""
        return self.changes_columns or self.partitioning is not None or self.sorting is not None or bool(self.tags)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateView:
    """Create a view. ``view_id`` is negative, ``schema_id`` may be; ``altered`` is as in :class:`CreateTable`."""

    view_id: int
    schema_id: int
    schema_name: str
    name: str
    uuid: str
    dialect: str
    sql: str
    column_aliases: tuple[str, ...] = ()
    comment: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    column_comments: tuple[tuple[str, str], ...] = ()
    altered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterView:
    """Rename a view or change its tags.

    Attributes:
        name: Its name at the base.
        new_name: Its name from now on, None when it stays.
        tags: Column (None for the view itself), key and value of changed tags, including comments; the value None removes a tag.
    """

    view_id: int
    schema_id: int
    schema_name: str
    name: str
    new_name: str | None = None
    tags: tuple[tuple[str | None, str, str | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DropView:
    """End a view and its tags."""

    view_id: int
    schema_name: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateMacro:
    """Create a macro. ``macro_id`` is negative, ``schema_id`` may be."""

    macro_id: int
    schema_id: int
    schema_name: str
    name: str
    implementations: tuple[MacroImplementation, ...]

    @property
    def kind(self) -> MacroKind:
        """Return the kind: scalar macros return values, table macros return rows."""
        return self.implementations[0].kind


@dataclass(frozen=True, slots=True, kw_only=True)
class DropMacro:
    """End a macro."""

    macro_id: int
    schema_name: str
    name: str
    kind: MacroKind


Definition: TypeAlias = (
    CreateSchema
    | DropSchema
    | TagSchema
    | CreateTable
    | AlterTable
    | DropTable
    | CreateView
    | AlterView
    | DropView
    | CreateMacro
    | DropMacro
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CumulativeDeletes:
    """A delete file, written but not committed, that contains every delete of a data file with its snapshot.

    Attributes:
        path: Path relative to the table's directory.
        delete_count: Number of positions in it.
        min_snapshot: The snapshot of the oldest delete in it; ``max_snapshot`` is that of the newest.
        end_snapshot: The snapshot at which the data file ended, None while it is live.
        encryption_key: Key of the file; None when it is not encrypted.
        row_group_count: Number of its row groups.
        format: ``parquet`` or ``puffin``.
    """

    path: str
    delete_count: int
    file_size_bytes: int
    footer_size: int
    min_snapshot: int
    max_snapshot: int
    end_snapshot: int | None = None
    encryption_key: EncryptionKey | None = None
    row_group_count: int | None = None
    format: str = "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOption:
    """Set or remove an option. Options belong to no snapshot.

    Attributes:
        key: Name in lower case.
        value: Value as stored; None removes the option.
        scope: ``schema`` or ``table``; None for the lake.
        scope_id: Id of the schema or table; negative for one that the transaction creates, None for the lake.
    """

    key: str
    value: str | None
    scope: Literal["schema", "table"] | None = None
    scope_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredDeletes:
    """One delete file that replaces all delete files and inlined deletes of a committed data file.

    Attributes:
        data_file_id: The data file.
        file: The delete file.
        replaced: (delete_file_id, path relative to the data path or absolute, path_is_relative) of each delete file that it replaces.
    """

    data_file_id: int
    file: CumulativeDeletes
    replaced: tuple[tuple[int, str, bool], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushedFile:
    """A file of rows that were inlined; it stores the row id and snapshot of each row.

    Attributes:
        output: The written file.
        row_id_start: First row id; None when the row ids are not consecutive.
        begin_snapshot: The snapshot of the oldest row; ``partial_max`` is that of the newest.
        partition_id: Spec of the table of inlined rows, None for none.
        deletes: Delete file of the row versions in it that have ended; None when none has.
    """

    output: WrittenFile
    row_id_start: int | None
    begin_snapshot: int
    partial_max: int
    partition_id: int | None = None
    deletes: CumulativeDeletes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushInlined:
    """Replace inlined rows and inlined deletes of one table by files.

    Rows that the same transaction ends stay in the catalog.

    Attributes:
        files: Files of the rows.
        inlined_tables: Tables of inlined rows to empty.
        superseded: Tables of inlined rows with former columns, which get no new rows: each is unregistered once it is empty.
        until: Newest snapshot to flush; rows and deletes of later snapshots stay.
        gathered: Delete files of inlined deletes.
        deletes_of: Data files whose inlined deletes are removed, including data files that no longer exist.
    """

    table_id: int
    files: tuple[FlushedFile, ...]
    inlined_tables: tuple[str, ...]
    superseded: tuple[str, ...] = ()
    until: int
    gathered: tuple[GatheredDeletes, ...] = ()
    deletes_of: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenSource:
    """A data file whose live rows were rewritten.

    Attributes:
        data_file_id: The file.
        delete_file_ids: Its live delete files when it was read.
        gathered: All of its deletes in one file, if it had inlined deletes or several delete files; else None.
        has_inlined_deletes: Whether it has inlined deletes, which are removed once they are gathered.
    """

    data_file_id: int
    delete_file_ids: frozenset[int]
    gathered: GatheredDeletes | None = None
    has_inlined_deletes: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteFiles:
    """Replace files of one table that have deleted rows by files without them; in one transaction with other compactions only.

    Attributes:
        sources: Files that end. Snapshots before this one keep reading them.
        outputs: (file, partition spec or None) that replace them; the files embed row ids.
    """

    table_id: int
    sources: tuple[RewrittenSource, ...]
    outputs: tuple[tuple[WrittenFile, int | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendFiles:
    """Add written files to a table.

    Attributes:
        schema: Columns that the files were written with; the types of their statistics.
        partition_spec: Spec that the files were written with; an id of 0 means the spec that the transaction itself creates.
        reads_base_rows: Whether the rows were computed from rows of the table at the base, as by a merge.
        local_ids: Negative ids, one for each file, by which other actions on the table name it; empty when none does.
    """

    table_id: int
    schema: Schema
    files: tuple[WrittenFile, ...]
    partition_spec: PartitionSpec | None = None
    reads_base_rows: bool = False
    local_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AddFiles:
    """Add files of other writers to a table, without rewriting them.

    Attributes:
        files: The files, each with the id of its mapping in ``mappings``.
        mappings: Mappings from names in the files to columns: existing ones with their ids, new ones with negative ids.
        exclusive: Paths, as stored in the catalog, that no other writer may have added meanwhile.
        local_ids: As in :class:`AppendFiles`.
    """

    table_id: int
    schema: Schema
    files: tuple[tuple[AddedFile, int], ...]
    mappings: tuple[NameMapping, ...]
    exclusive: frozenset[str] = frozenset()
    partition_spec: PartitionSpec | None = None
    local_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertInlined:
    """Add rows to a table within the catalog.

    Attributes:
        schema: The table's columns, which the rows have.
        rows: The rows.
        inlined_table: The newest table of inlined rows with these columns at the base snapshot. None when there is none: the commit
            creates one, or uses the one that the transaction created with the table or its new columns.
        columns_version: Schema version of the last change of the table's columns up to the base snapshot.
        row_ids: Row ids of updated rows, which do not change; None for new rows, which get the next free ones.
        reads_base_rows: As in :class:`AppendFiles`.
    """

    table_id: int
    schema: Schema
    rows: InlinedRows
    inlined_table: InlinedTable | None = None
    columns_version: int = 0
    row_ids: tuple[int, ...] | None = None
    reads_base_rows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EndFiles:
    """End whole data files: all of their rows are deleted."""

    table_id: int
    data_file_ids: tuple[int, ...]
    row_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedDeleteFile:
    """A delete file that is written but not committed.

    Attributes:
        data_file_id: The data file whose rows it hides; negative for a file of the same transaction.
        path: Path relative to the table's directory.
        delete_count: Number of positions in it, including older ones.
        new_count: Number of positions that this transaction deletes.
        min_snapshot: Smallest snapshot among its older positions; None when it has none (two-column file).
        assumed_snapshot: Snapshot id stored with the new positions of a cumulative (three-column) file; None for a two-column file. If
            the commit gets another snapshot id, the file is written again first.
        replaces: ``delete_file_id`` of the file that this one replaces; None for the first delete of the data file.
        replaces_path: Path of that file relative to the data path (or absolute), to schedule it for deletion.
        replaces_path_is_relative: Whether ``replaces_path`` is relative.
        encryption_key: Key of the file; None when it is not encrypted.
        row_group_count: Number of its row groups.
        format: ``parquet`` or ``puffin``.
    """

    data_file_id: int
    path: str
    delete_count: int
    new_count: int
    file_size_bytes: int
    footer_size: int
    min_snapshot: int | None = None
    assumed_snapshot: int | None = None
    replaces: int | None = None
    replaces_path: str | None = None
    replaces_path_is_relative: bool = True
    encryption_key: EncryptionKey | None = None
    row_group_count: int | None = None
    format: str = "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddDeleteFiles:
    """Hide rows of data files that remain in the table."""

    table_id: int
    files: tuple[StagedDeleteFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InlinedDeletion:
    """Rows of one data file that are deleted through the catalog.

    Attributes:
        data_file_id: The data file.
        positions: Positions in it, ascending; none of them is hidden already.
    """

    data_file_id: int
    positions: tuple[int, ...]

    @property
    def new_count(self) -> int:
        """Return the number of positions that this transaction deletes."""
        return len(self.positions)


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineDeletes:
    """Hide rows of data files through the catalog, without a delete file; used for few rows."""

    table_id: int
    files: tuple[InlinedDeletion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndInlined:
    """Delete inlined rows, given as pairs of a table of inlined rows and row ids."""

    table_id: int
    rows: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedDeletes:
    """Everything that deletes rows of a source of a merge. It leaves the catalog with the source.

    Attributes:
        data_file_id: The source.
        live: Ids of its live delete files when it was read.
        replaced: (delete_file_id, path relative to the data path or absolute, path_is_relative) of each of its delete files.
        has_inlined_deletes: Whether it has inlined deletes.
    """

    data_file_id: int
    live: frozenset[int]
    replaced: tuple[tuple[int, str, bool], ...]
    has_inlined_deletes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedFile:
    """Source data files and the one file that replaces them.

    Attributes:
        sources: (data_file_id, path relative to the data path or absolute, path_is_relative) of each source.
        output: The written file.
        row_id_start: First row id when the row ids of the sources are consecutive; None when the output embeds them.
        begin_snapshot: That of the first source.
        partial_max: Highest snapshot id among the rows.
        partition_id: Spec of the sources.
        shared: Ids of the sources whose files other catalog rows name too, so that they are not scheduled for deletion.
        deleted: The sources that have deleted rows.
        deletes: Delete file of the output; None when none of its rows is deleted.
    """

    sources: tuple[tuple[int, str, bool], ...]
    output: WrittenFile
    row_id_start: int | None
    begin_snapshot: int
    partial_max: int
    partition_id: int | None
    shared: frozenset[int] = frozenset()
    deleted: tuple[MergedDeletes, ...] = ()
    deletes: CumulativeDeletes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeFiles:
    """Merge data files of one table; in one transaction with other compactions only."""

    table_id: int
    schema: Schema
    merges: tuple[MergedFile, ...]


Action: TypeAlias = (
    Definition
    | SetOption
    | AppendFiles
    | AddFiles
    | InsertInlined
    | EndFiles
    | AddDeleteFiles
    | InlineDeletes
    | EndInlined
    | MergeFiles
    | FlushInlined
    | RewriteFiles
)
