"""Staged changes of a transaction as frozen values, before ids are assigned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ducklake_core.format.files.data_files import EncryptionKey, WrittenFile
from ducklake_core.format.files.inlined_rows import InlinedRows
from ducklake_core.format.files.name_mapping import AddedFile, NameMapping
from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.layout.sorting import SortKey
from ducklake_core.format.macros import MacroImplementation, MacroKind
from ducklake_core.format.state import InlinedTable
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSchema:
    """``schema_id`` is negative; ``name`` is the schema's path; ``path`` is its directory, relative to the data path.

    ``parent_id`` is the schema that it is in, which may be negative.
    ``or_existing`` says that one which another writer has created alike meanwhile will do.
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
    """Change a tag of a schema; None takes it away. ``schema_id`` may be negative."""

    schema_id: int
    name: str
    key: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable:
    """``table_id`` is negative; ``schema_id`` may be; ``path`` is relative to the schema's directory.

    ``inlined`` says that an empty table of inlined rows is made with it, as DuckDB does while its inlining limit is
    above 0 and the types allow it. ``altered`` says that the transaction has altered it since, which DuckDB logs.
    ``or_existing`` is as for a schema. ``tags`` are its other tags by key; ``options`` are stored for it.
    Its row ids begin at ``first_row_id``, because its rows may bring their own.
    ``transient_columns`` are nodes that files of the transaction have and the table has not in the end, each with the id of its
    parent column.
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
    """Other partition keys for new files; None for none at all."""

    spec: PartitionSpec | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SortChange:
    """Another sort order for new files; empty for none at all."""

    keys: tuple[SortKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTable:
    """Everything that a transaction changes of a committed table's definition.

    Attributes:
        name: The table's name at the base.
        new_name: Its name from now on, None when it stays.
        ended: Column ids whose live row ends.
        added: Nodes to insert, each without its children and with the id of its parent column (None on top level).
        schema: The columns that result.
        partitioning: None when the keys stay; likewise ``sorting``.
        tags: Column id (None for the table itself), key and text of changed tags, comments among them; None takes one away.
        not_null: Ids of the columns that are NOT NULL from now on, of which the data at the base was checked.
        inlined: Whether a new, empty table of inlined rows with these columns is made, as in :class:`CreateTable`.
        unbounded: Ids of the columns whose bounds mean nothing for values of their new type.
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
        """Whether any row of a column changes."""
        return bool(self.ended or self.added or self.transient_columns)

    @property
    def changes_table(self) -> bool:
        """Whether anything changes but the name."""
        return self.changes_columns or self.partitioning is not None or self.sorting is not None or bool(self.tags)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateView:
    """``view_id`` is negative; ``schema_id`` may be. ``altered`` is as for a table."""

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
        tags: Column (None for the view itself), key and text of changed tags, comments among them; None takes one away.
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
    """``macro_id`` is negative; ``schema_id`` may be."""

    macro_id: int
    schema_id: int
    schema_name: str
    name: str
    implementations: tuple[MacroImplementation, ...]

    @property
    def kind(self) -> MacroKind:
        """Whether it makes values or rows."""
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
    """A delete file that is in place but not committed, and that holds every delete of a data file with its snapshot.

    Attributes:
        path: Path relative to the table's directory.
        delete_count: Positions in it.
        min_snapshot: The snapshot of the oldest delete in it; ``max_snapshot`` is that of the newest.
        end_snapshot: The snapshot at which the data file ended, None while it is live.
        encryption_key: Opens it; None for a plain one.
        row_group_count: Its row groups.
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
class GatheredDeletes:
    """All deletes of one committed data file in one delete file, in place of its delete files and of those that the catalog holds.

    Attributes:
        data_file_id: The data file.
        file: The delete file.
        replaced: (delete_file_id, path relative to the data path or absolute, path_is_relative) of each delete file that goes.
    """

    data_file_id: int
    file: CumulativeDeletes
    replaced: tuple[tuple[int, str, bool], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushedFile:
    """A file of rows that were inlined; each row has its row id and snapshot in it.

    Attributes:
        output: The written file.
        row_id_start: First row id, None when the row ids are not consecutive.
        begin_snapshot: The snapshot of the oldest row; ``partial_max`` is that of the newest.
        partition_id: Spec of the table of inlined rows, None for none.
        deletes: Row versions in it that have ended, None when none has.
    """

    output: WrittenFile
    row_id_start: int | None
    begin_snapshot: int
    partial_max: int
    partition_id: int | None = None
    deletes: CumulativeDeletes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushInlined:
    """Inlined rows and inlined deletes of one table become files; never in one transaction with other changes.

    Attributes:
        files: What the rows became.
        inlined_tables: Physical tables whose rows go.
        superseded: Those of the registered tables that get no more rows: each is forgotten when it is empty.
        until: Rows and deletes of later snapshots stay.
        gathered: What inlined deletes of data files became.
        deletes_of: Data files whose inlined deletes go, those that exist no more among them.
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
    """A data file whose live rows were written anew.

    Attributes:
        data_file_id: The file.
        delete_file_ids: Its live delete files when it was read.
        gathered: Its deletes in one file, where the catalog held some of them, or several files did.
        has_inlined_deletes: Whether the catalog holds deletes of its rows, which go when they are gathered.
    """

    data_file_id: int
    delete_file_ids: frozenset[int]
    gathered: GatheredDeletes | None = None
    has_inlined_deletes: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteFiles:
    """Files without deleted rows in place of files with them, of one table; never in one transaction with other changes.

    Attributes:
        sources: Files that end. Snapshots before this one keep reading them.
        outputs: (file, partition spec or None) that take their place; rows have their row ids in them.
    """

    table_id: int
    sources: tuple[RewrittenSource, ...]
    outputs: tuple[tuple[WrittenFile, int | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendFiles:
    """Add written files to a table. Types behind the statistics come from ``schema``, the table's columns.

    ``schema`` and ``partition_spec`` are what the files were written with; an id of 0 means the spec that the transaction
    itself creates with the table. ``reads_base_rows`` says that the rows depend on those that the table had at the base, as a merge's do.
    ``local_ids`` are ids below 0, one for each file, by which other actions on the table name it; empty when none does.
    """

    table_id: int
    schema: Schema
    files: tuple[WrittenFile, ...]
    partition_spec: PartitionSpec | None = None
    reads_base_rows: bool = False
    local_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AddFiles:
    """Add files that somebody else wrote to a table, as they are.

    Attributes:
        files: The files; each names its mapping by its place in ``mappings``.
        mappings: What finds the columns: mappings of the catalog with their ids, and new ones with an id below 0.
        exclusive: Paths, as the catalog has them, that nobody else may have added meanwhile.
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
        inlined_table: The newest table of inlined rows with these columns at the base snapshot, None when there is none: then one
            is made. A table or columns that the transaction itself makes bring their own.
        columns_version: Schema version at which the table's columns changed last before the base snapshot.
        row_ids: Ids of rows that have one already (updated rows keep theirs); None for new rows, which get the next ones.
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
    """A delete file that is in place but not committed.

    Attributes:
        data_file_id: The data file whose rows it hides; below 0 for one of the same transaction.
        path: Path relative to the table's directory.
        delete_count: All positions in it, older ones included.
        new_count: Positions that this transaction deletes.
        min_snapshot: Smallest snapshot among its older positions; None when it has none (two-column file).
        assumed_snapshot: The snapshot id written beside the new positions of a cumulative (three-column) file; None
            for a two-column file. When the commit lands on another id the file is written again first.
        replaces: ``delete_file_id`` of the file that this one takes the place of, None for the first delete.
        replaces_path: Path of that file relative to the data path (or absolute), to schedule it for deletion.
        replaces_path_is_relative: Whether ``replaces_path`` is relative.
        encryption_key: Opens it; None for a plain one.
        row_group_count: Its row groups.
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
    """Hide rows of data files that stay."""

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
        """Positions that this transaction deletes."""
        return len(self.positions)


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineDeletes:
    """Hide few rows of data files that stay, without a file."""

    table_id: int
    files: tuple[InlinedDeletion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndInlined:
    """Delete inlined rows: physical table name and row ids, in pairs."""

    table_id: int
    rows: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedFile:
    """Source data files and the one file that replaces them.

    Attributes:
        sources: (data_file_id, path relative to the data path or absolute, path_is_relative) of each source.
        output: The written file.
        row_id_start: First row id when the sources' row ids are consecutive, None when the output embeds them.
        begin_snapshot: The first source's.
        partial_max: Highest snapshot id among the rows.
        partition_id: Spec of the sources.
        shared: Ids of the sources whose files other rows name too, so that they are not scheduled for deletion.
    """

    sources: tuple[tuple[int, str, bool], ...]
    output: WrittenFile
    row_id_start: int | None
    begin_snapshot: int
    partial_max: int
    partition_id: int | None
    shared: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeFiles:
    """Compaction of one table; never in one transaction with other changes."""

    table_id: int
    schema: Schema
    merges: tuple[MergedFile, ...]


Action: TypeAlias = (
    Definition
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
