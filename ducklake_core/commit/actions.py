"""Staged changes of a transaction: frozen values that say what the user wants, before any id is known.

Ids of objects that the transaction itself creates are negative and local to it; resolution gives them real ids in
every attempt.  Column ids are per table and final from the start, because data files carry them as field ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ducklake_core.commit.definition_actions import Definition
from ducklake_core.commit.moved_rows import FlushInlined, RewriteFiles
from ducklake_core.format.files.added_files import AddedFile
from ducklake_core.format.files.data_files import WrittenFile
from ducklake_core.format.files.encryption_key import EncryptionKey
from ducklake_core.format.files.inlined_rows import InlinedRows
from ducklake_core.format.files.name_mapping import NameMapping
from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.state import InlinedTable
from ducklake_core.format.types.schema import Schema


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
