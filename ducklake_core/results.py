"""Results of public operations: small values, taken from the commit that they describe, or from the catalog alone."""

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
        table_id: Id of the table; 0 when ``repeated`` and that commit knows no table of the name, and when there were no rows and no
            column types to create the table with.
        snapshot: The snapshot that the write became, or, when nothing changed, the one it was compared with.
        committed: False when there was nothing to change, so that no snapshot was made.
        repeated: True when the same ``commit_id`` had been committed before; nothing was written this time, and the
            counts below are 0.
        created_table: Whether the write created the table.
        schema_changes: Readable differences that were applied to the table's columns.
        rows_added: Rows written, to files or into the catalog, or in files that were added as they are.
        rows_inlined: Those of them, and of the updated rows, that went into the catalog.
        rows_updated: Rows that have other values now, under the same row id.
        rows_deleted: Rows that were there before and no longer are.
        files_added: Data files written or added.
        files_removed: Data files that ended with this write because all of their rows were deleted.
        delete_files_added: Files of deleted positions written.
        bytes_added: Bytes of the data files written or added.
        attempts: How often the commit was tried.
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

    def __repr__(self) -> str:
        return f"<WriteResult: {self}>"

    def __str__(self) -> str:
        where = f"{visible(self.table)} at snapshot {self.snapshot_id}"
        if self.repeated:
            return f"{where}: committed before under the same commit id"
        if not self.committed:
            return f"{where}: nothing to change"
        return f"{where}: {', '.join(self._done()) or 'no rows changed'}"

    def _done(self) -> list[str]:
        counts = (
            (self.rows_added, "row", "added"), (self.rows_updated, "row", "updated"), (self.rows_deleted, "row", "deleted"),
            (self.rows_inlined, "row", "kept in the catalog"), (self.files_added, "file", f"added ({self.bytes_added:,} bytes)"),
            (self.files_removed, "file", "removed"), (self.delete_files_added, "delete file", "added"),
        )  # fmt: skip
        changes = ["created", *map(visible, self.schema_changes)] if self.created_table else list(map(visible, self.schema_changes))
        return [*changes, *(f"{counted(count, noun)} {done}" for count, noun, done in counts if count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionResult:
    """The outcome of a transaction.

    Attributes:
        snapshot: Its snapshot, None when it changed nothing.
        writes: One result per table that was written to, in the order of first use.
        repeated: Whether an earlier run had committed the same commit id, so that nothing was done; ``writes`` is empty then.
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
            return f"snapshot {self.snapshot.id}: committed before under the same commit id"
        return "; ".join((f"snapshot {self.snapshot.id}", *(str(write) for write in self.writes)))


def with_not_created(result: TransactionResult, names: Sequence[str], base: Snapshot) -> TransactionResult:
    """Add results for writes that had no rows and no column types to create their table with.

    Args:
        result: The result of a transaction.
        names: Names of the tables, as they were given.
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
    """A table's size at one snapshot.

    Attributes:
        table: ``schema.table``.
        row_count: Visible rows: deleted rows left out, inlined rows counted.
        file_count: Live data files.
        file_size_bytes: Their bytes.
        delete_file_count: Live delete files; ``delete_file_size_bytes`` are their bytes.
        deleted_row_count: Rows of live data files that are hidden by delete files or deletes held in the catalog.
        inlined_row_count: Visible rows that live in the catalog itself.
        partition_by: Partition keys as a user writes them, empty for none.
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
    """Settings that a lake has had since it was created.

    Attributes:
        catalog_type: Kind of its catalog database: ``sqlite``, ``postgresql``, ``mysql`` or ``duckdb``.
        version: Catalog version.
        data_path: Base of all relative paths, as stored or as overridden for this session.
        encrypted: Whether data files are encrypted.
        created_by: What created the catalog, None when it does not say.
    """

    catalog_type: str
    version: str
    data_path: str
    encrypted: bool
    created_by: str | None = None

    __repr__ = short_repr


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSummary:
    """One column over a table's live data files, from file statistics alone.

    Rows hidden by deletes still count, as in the catalog's own statistics; inlined rows do not.

    Attributes:
        value_count: Non-null values, None if a file has no statistics. The same holds for ``null_count``.
        min_value: Smallest lower bound in the column's Python form, None when unknown. The same holds for ``max_value``.
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
    """Rows that may be visible at one of the two snapshots only: in one data file, or rows that the catalog itself holds.

    Attributes:
        change: ``removed`` rows are visible at the earlier snapshot only; an update removes a row and adds one.
        first_snapshot: The first commit of the range that may have made the change; ``last_snapshot`` is the last one.
        snapshots: Those commits between them that say they changed rows of the table, ascending. Empty when a commit between them was
            expired or has no readable log, so that any writer may have made the change.
        row_count: Rows changed, at most.
        ranges: One for each column requested, in that order.
        data_file_id: The file, None for rows in the catalog.
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
    """One name of a table, and what may differ under it.

    Attributes:
        name: ``schema.table``.
        id_before: Id of the table that had the name at the earlier snapshot, None for none or when that snapshot was
            expired.
        id_after: Id of the table that has it at the later one, None for none.
        schema: Columns at the later snapshot, or at the earlier one when no table has the name any more; empty when neither is known.
        rows: What may have changed; empty when only columns, files or the layout changed.
        unknown: Why any row of the table may have changed, whatever ``rows`` says; None when ``rows`` is complete.
        other_snapshots: Commits that changed columns, layout or files of the table and none of its rows, ascending.
        row_count: Visible rows at the later snapshot, None when the catalog alone does not determine them.
        file_size_bytes: Bytes of its live data files there.
        partition_by: Partition keys there, as a user writes them.
        column_comments: Comments of its columns there, by column id.
        schema_before: Columns of removed rows, where the name stood for another table; None where ``schema`` holds for them.
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
        """The change of the name itself; ``changed`` when it stands for the same table as before."""
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
        after: The earlier snapshot; its own changes are not part of the answer.
        until: The later snapshot; its changes are.
        before: The earlier snapshot's row, None when it was expired.
        snapshots: Commits of the range that were not expired, ascending.
        expired: First and last id of every gap that expiry left among them.
        tables: Tables with changes, in the order of the request, or by name.
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
    """Rows of a data file that one delete file, or one commit through the catalog, hides.

    Attributes:
        begin_snapshot: From here on rows are hidden; ``end_snapshot``: here another delete file took its place, None for still there.
        complete_from: From this snapshot on all ``row_count`` rows are hidden; between the first one and it only some.
    """

    begin_snapshot: int
    row_count: int
    end_snapshot: int | None = None
    complete_from: int = 0

    __repr__ = short_repr


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRows:
    """Rows of one data file, or rows that the catalog itself holds and that came and went together.

    Attributes:
        begin_snapshot: The first snapshot that shows some of them.
        end_snapshot: The first one that no longer shows any; None while they are there.
        complete_from: From this snapshot on all of them are shown; between the first one and it only some, because files were merged.
        row_count: Rows, deleted ones too.
        file_size_bytes: Bytes of the file, 0 for rows in the catalog.
        deletes: What hides rows of them.
        ranges: Bounds of the columns that were requested, in that order; deleted rows still count.
        null_counts: NULLs of the same columns, None where the catalog does not say.
        data_file_id: The file, None for rows in the catalog.
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
        """Return whether a snapshot shows some of them."""
        return _spans(self.begin_snapshot, self.end_snapshot, snapshot_id)

    def rows_at(self, snapshot_id: int) -> int | None:
        """Return rows that a snapshot shows, without deleted ones; None when they can be counted only in the files."""
        if not self.is_visible_at(snapshot_id):
            return 0
        deletes = [one for one in self.deletes if _spans(one.begin_snapshot, one.end_snapshot, snapshot_id)]
        if snapshot_id < max(self.complete_from, *(one.complete_from for one in deletes), 0):
            return None
        return self.row_count - sum(one.row_count for one in deletes)

    @property
    def snapshots(self) -> frozenset[int]:
        """Return the snapshots that may have added or deleted some of these rows. Some may have moved rows only, as a merge does."""
        ends = {self.begin_snapshot, self.complete_from, self.end_snapshot}
        for one in self.deletes:
            ends |= {one.begin_snapshot, one.complete_from, one.end_snapshot}
        return frozenset(end for end in ends if end is not None)


def _spans(begin: int, end: int | None, snapshot_id: int) -> bool:
    return begin <= snapshot_id and (end is None or snapshot_id < end)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatistics:
    """Statistics of the rows of a table from the catalog, at the newest snapshot and at every earlier one that is kept.

    Attributes:
        name: ``schema.table``.
        schema: Columns at the newest snapshot.
        column_names: The columns that were requested as the table spells them; None for one that it does not have.
        rows: Everything that some snapshot shows.
    """

    name: str
    table_id: int
    schema: Schema
    column_names: tuple[str | None, ...] = ()
    rows: tuple[StoredRows, ...] = ()

    __repr__ = short_repr


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeStatistics:
    """Statistics of the rows of several tables from the catalog.

    Attributes:
        snapshot_id: The newest snapshot, at which ``tables`` have their names.
        tables: In the order they were requested; names that are not there are left out.
    """

    snapshot_id: int
    tables: tuple[TableStatistics, ...] = ()

    __repr__ = short_repr
