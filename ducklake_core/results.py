"""What the verbs of the face report: small values, taken from the very commit they are about."""

from __future__ import annotations

from dataclasses import dataclass

from ducklake_core.catalog.state import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """What one write did to one table.

    Attributes:
        table: ``schema.table``.
        table_id: Id of the table; 0 when ``repeated`` and that commit knows no table of the name.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionResult:
    """What a transaction became.

    Attributes:
        snapshot: Its snapshot, None when it changed nothing.
        writes: One result per table that was written to, in the order of first use.
        repeated: Whether an earlier run had committed the same commit id, so that nothing was done; ``writes`` is empty then.
    """

    snapshot: Snapshot | None
    writes: tuple[WriteResult, ...] = ()
    repeated: bool = False


def single_result(result: TransactionResult, table: str, table_id: int) -> WriteResult:
    """The result of a transaction that wrote to one table."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSettings:
    """What holds for a lake since it was created.

    Attributes:
        catalog_type: Kind of its catalog database: ``sqlite``, ``postgresql`` or ``duckdb``.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSummary:
    """One column over a table's live data files, from file statistics alone.

    Rows hidden by deletes still count, as in the catalog's own statistics; inlined rows do not.

    Attributes:
        value_count: Non-null values, None when a file does not say. Likewise ``null_count``.
        min_value: Smallest lower bound in the column's Python form, None when unknown. Likewise ``max_value``.
    """

    column: str
    column_id: int
    value_count: int | None
    null_count: int | None
    min_value: object = None
    max_value: object = None
