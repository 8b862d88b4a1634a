"""Results of public operations: small values from the commit or from the catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from ducklake_core.format.expressions.pruning import ValueRange
from ducklake_core.format.state import Snapshot
from ducklake_core.format.types.names import folded, join_name, split_name
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.text import counted, short_repr, visible


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """The outcome of one write for one table.

    Attributes:
        table: ``schema.table``.
        table_id: Id of the table. 0 if the write is ``repeated`` and the earlier commit has no such table, or if no table was created
            because the data has no rows and no column types.
        snapshot: The snapshot of the write; if nothing changed, the snapshot that it was compared with.
        committed: Whether a snapshot was committed; False if there was nothing to change.
        repeated: Whether the ``commit_id`` was committed before. Then nothing was written, and the counts below are 0.
        created_table: Whether the write created the table.
        schema_changes: Changes of the table's columns, as readable strings.
        rows_added: Rows written to files or to the catalog, and rows of added files.
        rows_inlined: Added and updated rows that are stored in the catalog.
        rows_updated: Rows with new values under the same row id.
        rows_deleted: Rows that were deleted or replaced.
        files_added: Data files that were written or added.
        files_removed: Data files that were removed because all of their rows were deleted.
        delete_files_added: Delete files that were written.
        bytes_added: Bytes of the data files that were written or added.
        attempts: Number of commit attempts.
    """

    table: str
    table_id: int
    snapshot: Snapshot
    committed: bool = True
    repeated: bool = False
    created_table: bool = False
    schema_changes: tuple[str, ...] = ()
    rows_added: int = 0
    rows_inlined: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    files_added: int = 0
    files_removed: int = 0
    delete_files_added: int = 0
    bytes_added: int = 0
    attempts: int = 1

    @property
    def snapshot_id(self) -> int:
        """Id of :attr:`snapshot`."""
        return self.snapshot.id

    @property
    def rows_inserted(self) -> int:
        """Rows with new row ids: the same number as :attr:`rows_added`."""
        return self.rows_added

    def __repr__(self) -> str:
        return f"<WriteResult: {self}>"

    def __str__(self) -> str:
        where = f"{visible(self.table)} at snapshot {self.snapshot_id}"
        if self.repeated:
            return f"{where}: already committed with the same commit id"
        if not self.committed:
            return f"{where}: nothing to change"
        return f"{where}: {', '.join(self._done()) or 'no rows changed'}"

    def _done(self) -> list[str]:
        counts = (
            (self.rows_added, "row", "added"), (self.rows_updated, "row", "updated"), (self.rows_deleted, "row", "deleted"),
            (self.rows_inlined, "row", "stored in the catalog"), (self.files_added, "file", f"added ({self.bytes_added:,} bytes)"),
            (self.files_removed, "file", "removed"), (self.delete_files_added, "delete file", "added"),
        )  # fmt: skip
        changes = ["created", *map(visible, self.schema_changes)] if self.created_table else list(map(visible, self.schema_changes))
        return [*changes, *(f"{counted(count, noun)} {change}" for count, noun, change in counts if count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionResult:
    """The outcome of a transaction.

    Attributes:
        snapshot: Its snapshot, None if nothing changed.
        writes: One result per written table, in the order of first use.
        repeated: Whether the commit id was committed before. Then nothing was written, and ``writes`` is empty.
    """

    snapshot: Snapshot | None
    writes: tuple[WriteResult, ...] = ()
    repeated: bool = False

    def __repr__(self) -> str:
        return f"<TransactionResult: {self}>"

    def __str__(self) -> str:
        if self.snapshot is None:
            return "nothing to change"
        if self.repeated:
            return f"snapshot {self.snapshot.id}: already committed with the same commit id"
        return "; ".join((f"snapshot {self.snapshot.id}", *(str(write) for write in self.writes)))


def with_not_created(result: TransactionResult, names: Sequence[str], base: Snapshot) -> TransactionResult:
    """Add results of writes that created no table, because the data had no rows and no column types.

    Args:
        result: The result of a transaction.
        names: Names of the tables.
        base: The snapshot that the transaction was planned on.
    """
    known = {folded(write.table) for write in result.writes}
    wanted = {folded(table): table for table in (join_name(*split_name(name)) for name in names)}
    snapshot = result.snapshot or base
    added = (WriteResult(table=wanted[key], table_id=0, snapshot=snapshot, committed=False) for key in wanted if key not in known)
    return result if result.repeated else replace(result, writes=(*result.writes, *added))


def single_result(result: TransactionResult, table: str, table_id: int) -> WriteResult:
    """Return the result of a transaction that wrote to one table."""
    if not result.repeated:
        return result.writes[0]
    assert result.snapshot is not None
    return WriteResult(table=table, table_id=table_id, snapshot=result.snapshot, repeated=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInfo:
    """The size of a table at one snapshot.

    Attributes:
        table: ``schema.table``.
        row_count: Visible rows, including inlined rows and without deleted rows.
        file_count: Live data files.
        file_size_bytes: Bytes of these files.
        delete_file_count: Live delete files.
        delete_file_size_bytes: Bytes of these files.
        deleted_row_count: Rows of live data files that delete files or the catalog hide.
        inlined_row_count: Visible rows that are stored in the catalog.
        partition_by: Partition keys, such as ``month(day)``; empty for none.
    """

    table: str
    table_id: int
    table_uuid: str
    snapshot_id: int
    row_count: int
    file_count: int
    file_size_bytes: int
    delete_file_count: int = 0
    delete_file_size_bytes: int = 0
    deleted_row_count: int = 0
    inlined_row_count: int = 0
    partition_by: tuple[str, ...] = ()
    comment: str | None = None

    __repr__ = short_repr


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSettings:
    """Settings of a lake.

    Attributes:
        catalog_type: Kind of its catalog database: ``sqlite``, ``postgresql``, ``mysql`` or ``duckdb``.
        version: Catalog version.
        data_path: Base of all relative paths, as the catalog stores it; ``lake.info.data_path`` is the path that the object uses.
        encrypted: Whether data files are encrypted.
        created_by: Program that created the catalog, None if unknown.
    """

    catalog_type: str
    version: str
    data_path: str
    encrypted: bool
    created_by: str | None = None

    __repr__ = short_repr


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSummary:
    """Statistics of one column over a table's live data files, from the catalog.

    Deleted rows count, inlined rows do not.

    Attributes:
        value_count: Number of non-null values, None if a file has no statistics.
        null_count: Number of NULLs, None if a file has no statistics.
        min_value: Smallest lower bound as a Python value, None if unknown.
        max_value: Largest upper bound as a Python value, None if unknown.
    """

    column: str
    column_id: int
    value_count: int | None
    null_count: int | None
    min_value: object = None
    max_value: object = None

    __repr__ = short_repr


RowChange: TypeAlias = Literal["added", "removed"]
TableChange: TypeAlias = Literal["created", "dropped", "replaced", "changed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRows:
    """Rows that may be visible at only one of two snapshots: rows of one data file, or inlined rows.

    Attributes:
        change: ``added`` rows are visible at the later snapshot only, ``removed`` rows at the earlier one only. An update removes a row
            and adds one.
        first_snapshot: First commit of the range that may have made the change.
        last_snapshot: Last commit of the range that may have made the change.
        snapshots: Commits in between that report changed rows of the table, ascending. Empty if one of them has expired or has no
            readable change log, so that any of them may have made the change.
        row_count: Maximum number of changed rows.
        ranges: Bounds of the requested columns, in that order.
        data_file_id: Id of the file, None for inlined rows.
    """

    change: RowChange
    first_snapshot: int
    last_snapshot: int
    snapshots: tuple[int, ...]
    row_count: int
    ranges: tuple[ValueRange, ...] = ()
    data_file_id: int | None = None

    __repr__ = short_repr


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedTable:
    """The possible changes of one table, by its name.

    Attributes:
        name: ``schema.table``.
        id_before: Id of the table with this name at the earlier snapshot; None if there was none or the snapshot has expired.
        id_after: Id of the table with this name at the later snapshot, None if there is none.
        schema: Columns at the later snapshot, or at the earlier one if the table was dropped; empty if neither is known.
        rows: Rows that may have changed; empty if only columns, files or the layout changed.
        unknown: Reason why any row may have changed, in addition to ``rows``; None if ``rows`` is complete.
        other_snapshots: Commits that changed columns, layout or files of the table but no rows, ascending.
        row_count: Visible rows at the later snapshot, None if the catalog does not store the number.
        file_size_bytes: Bytes of its live data files at the later snapshot.
        partition_by: Partition keys at the later snapshot, such as ``month(day)``.
        column_comments: Comments of columns at the later snapshot, by column id.
        schema_before: Columns of removed rows if another table had the name; None if ``schema`` applies.
    """

    name: str
    id_before: int | None
    id_after: int | None
    schema: Schema
    rows: tuple[ChangedRows, ...] = ()
    unknown: str | None = None
    other_snapshots: tuple[int, ...] = ()
    row_count: int | None = None
    file_size_bytes: int | None = None
    partition_by: tuple[str, ...] = ()
    column_comments: Mapping[int, str] = field(default_factory=dict)
    schema_before: Schema | None = None

    __repr__ = short_repr

    @property
    def change(self) -> TableChange:
        """Kind of change: ``created``, ``dropped``, ``replaced`` (another table has the name now) or ``changed``."""
        match self.id_before, self.id_after:
            case (_, None):
                return "dropped"
            case (None, _):
                return "created"
            case (before, after):
                return "changed" if before == after else "replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeChanges:
    """The changes in a lake after one snapshot and up to another.

    Attributes:
        after: The earlier snapshot. Its own changes are not included.
        until: The later snapshot. Its changes are included.
        before: The earlier snapshot, None if it has expired.
        snapshots: Commits of the range that have not expired, ascending.
        expired: First and last id of each range of expired snapshots.
        tables: Changed tables, in the requested order, or by name.
    """

    after: int
    until: int
    before: Snapshot | None = None
    snapshots: tuple[Snapshot, ...] = ()
    expired: tuple[tuple[int, int], ...] = ()
    tables: tuple[ChangedTable, ...] = ()

    __repr__ = short_repr


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDeletes:
    """Rows of a data file that one delete file or one inlined delete hides.

    Attributes:
        begin_snapshot: Snapshot from which rows are hidden.
        end_snapshot: Snapshot at which another delete file replaced this one, None if it is live.
        complete_from: Snapshot from which all ``row_count`` rows are hidden; between ``begin_snapshot`` and it, only some are.
        row_count: Number of hidden rows.
    """

    begin_snapshot: int
    row_count: int
    end_snapshot: int | None = None
    complete_from: int = 0

    __repr__ = short_repr


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRows:
    """Rows of one data file, or inlined rows that were added and deleted together.

    Attributes:
        begin_snapshot: First snapshot that shows some of them.
        end_snapshot: First snapshot that shows none of them any more, None if they are live.
        complete_from: Snapshot from which all of them are shown; between ``begin_snapshot`` and it, only some are, because files were
            merged.
        row_count: Number of rows, including deleted rows.
        file_size_bytes: Bytes of the file, 0 for inlined rows.
        deletes: Deletes of these rows.
        ranges: Bounds of the requested columns, in that order, including deleted rows.
        null_counts: Number of NULLs of the same columns, None where unknown.
        data_file_id: Id of the file, None for inlined rows.
    """

    begin_snapshot: int
    row_count: int
    end_snapshot: int | None = None
    complete_from: int = 0
    file_size_bytes: int = 0
    deletes: tuple[StoredDeletes, ...] = ()
    ranges: tuple[ValueRange, ...] = ()
    null_counts: tuple[int | None, ...] = ()
    data_file_id: int | None = None

    __repr__ = short_repr

    def is_visible_at(self, snapshot_id: int) -> bool:
        """Return whether a snapshot shows some of these rows."""
        return _spans(self.begin_snapshot, self.end_snapshot, snapshot_id)

    def rows_at(self, snapshot_id: int) -> int | None:
        """Return the number of rows that a snapshot shows; None if only the files contain the number.

        Args:
            snapshot_id: Id of the snapshot.
        """
        if not self.is_visible_at(snapshot_id):
            return 0
        deletes = [one for one in self.deletes if _spans(one.begin_snapshot, one.end_snapshot, snapshot_id)]
        if snapshot_id < max(self.complete_from, *(one.complete_from for one in deletes), 0):
            return None
        return self.row_count - sum(one.row_count for one in deletes)

    @property
    def snapshots(self) -> frozenset[int]:
        """Return the snapshots that may have added or deleted some of these rows. Some of them may only have moved rows, as a merge
        does."""
        ends = {self.begin_snapshot, self.complete_from, self.end_snapshot}
        for one in self.deletes:
            ends |= {one.begin_snapshot, one.complete_from, one.end_snapshot}
        return frozenset(end for end in ends if end is not None)


def _spans(begin: int, end: int | None, snapshot_id: int) -> bool:
    return begin <= snapshot_id and (end is None or snapshot_id < end)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatistics:
    """Statistics of the rows of a table, from the catalog, for all snapshots that have not expired.

    Attributes:
        name: ``schema.table``.
        schema: Columns at the newest snapshot.
        column_names: Requested columns, as the table spells them; None for a column that does not exist.
        rows: All rows that any snapshot shows.
    """

    name: str
    table_id: int
    schema: Schema
    column_names: tuple[str | None, ...] = ()
    rows: tuple[StoredRows, ...] = ()

    __repr__ = short_repr


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeStatistics:
    """Statistics of the rows of several tables, from the catalog.

    Attributes:
        snapshot_id: The newest snapshot, whose table names are used.
        tables: The requested tables, in that order, without those that do not exist.
    """

    snapshot_id: int
    tables: tuple[TableStatistics, ...] = ()

    __repr__ = short_repr
