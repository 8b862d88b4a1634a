"""A planned scan: the exact files and inlined rows that answer it, as picklable values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from ducklake_core.format.expressions.predicates import Predicate
from ducklake_core.format.files.data_files import DataFile, WrittenFile
from ducklake_core.format.files.name_mapping import NameMapping
from ducklake_core.format.types.arrow_types import to_arrow_schema
from ducklake_core.format.types.schema import Schema
from ducklake_core.planning.virtual import VIRTUAL_SCHEMA, needed_virtual


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask:
    """Read one data file.

    Attributes:
        file: The file with everything that hides rows of it.
        snapshot_filter: When set, only rows whose embedded snapshot id is at most this are visible.
        native_obstacle: Why Spark's own Parquet reader does not give exactly the right rows and types for this projection; None when it
            does.
        trusts_bounds: Whether Spark's reader may leave out parts of the file by the bounds in its footer.
        all_rows_match: Whether statistics prove that every row satisfies the predicate, so that none need be evaluated.
        rows: When set, a part of the file: the row groups that begin at a position from the first up to, not including, the
            second number.
        index: Number of the file in the plan, where the scan reads it; a number is as large as four fields, and plans hold a million.
    """

    file: DataFile
    snapshot_filter: int | None = None
    native_obstacle: str | None = "nobody has looked whether Spark can read the file"
    trusts_bounds: bool = True
    all_rows_match: bool = False
    rows: tuple[int, int] | None = None
    index: int = 0

    @property
    def native(self) -> bool:
        """Whether Spark's own Parquet reader may read the file."""
        return self.native_obstacle is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLifetime:
    """A top-level column and the snapshots from which on, and up to which, the table has it (None: still)."""

    column_id: int
    begin_snapshot: int = 0
    end_snapshot: int | None = None


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class ScanProjection:
    """The part of a scan that all its tasks share: small and picklable, as it travels with each of them.

    Attributes:
        table: ``schema.table`` for messages.
        snapshot_id: The snapshot that is read.
        schema: Columns to return.
        read_schema: Columns to read: those to return and those that the predicate needs.
        virtual: Virtual columns to return after the columns.
        predicate: Rows to keep; None for all.
        column_lifetimes: The top-level columns of the table in order, dropped ones too as far as files may be older than their
            end: files without field ids are mapped by position.
        mappings: Name mappings of those files that have one.
    """

    table: str
    snapshot_id: int
    schema: Schema
    read_schema: Schema
    virtual: tuple[str, ...] = ()
    predicate: Predicate | None = None
    column_lifetimes: tuple[ColumnLifetime, ...] = ()
    mappings: tuple[NameMapping, ...] = ()

    def positions_at(self, snapshot_id: int) -> dict[int, int]:
        """Place of each column among those that the table had at a snapshot, by column id."""
        lives = (
            life
            for life in self.column_lifetimes
            if life.begin_snapshot <= snapshot_id and (life.end_snapshot is None or snapshot_id < life.end_snapshot)
        )
        return {life.column_id: place for place, life in enumerate(lives)}

    @property
    def read_virtual(self) -> tuple[str, ...]:
        """Virtual columns to make: those to return, then those that only the predicate needs."""
        return (*self.virtual, *(name for name in needed_virtual(self.predicate) if name not in self.virtual))

    def virtual_column(self, batch: pa.RecordBatch, name: str) -> pa.Array[Any]:
        """A virtual column of a batch in the shape of this scan; found by place, because a table may have a column of the same name."""
        return batch.column(len(self.schema) + self.virtual.index(name))

    def arrow_schema(self) -> pa.Schema:
        """Schema of the batches that the scan returns."""
        return _arrow_schema(self.schema, self.virtual)


@lru_cache(maxsize=64)
def _arrow_schema(schema: Schema, virtual: tuple[str, ...]) -> pa.Schema:
    columns = [field.remove_metadata() for field in to_arrow_schema(VIRTUAL_SCHEMA.select(virtual))]
    return pa.schema([*to_arrow_schema(schema), *columns])


@dataclass(frozen=True, slots=True, kw_only=True)
class PruningReport:
    """How many live files were considered, kept and left out, and by which means ("partition", "statistics", a limit of rows)."""

    files_total: int
    files_kept: int
    pruned_by_partition: int = 0
    pruned_by_statistics: int = 0
    not_needed_for_limit: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """A planned scan: files and inlined rows to read.

    Attributes:
        table: ``schema.table`` for messages.
        snapshot_id: The snapshot that is read.
        schema: Columns to return, in order; virtual columns are listed apart.
        read_schema: Columns to read from files: the projection and what the predicate needs.
        virtual: Virtual columns to return after the columns.
        predicate: Rows to keep, bound to ``read_schema``; None for all.
        tasks: Files to read.
        inlined: Inlined rows visible at the snapshot, not yet filtered: columns of ``read_schema``, then ``rowid``,
            ``snapshot_id``, ``inlined_table`` (the physical table that holds the row) and ``file_index`` (its number, after
            those of the files); None when there are none.
        pruning: What was left out and why.
    """

    table: str
    snapshot_id: int
    schema: Schema
    read_schema: Schema
    virtual: tuple[str, ...] = ()
    predicate: Predicate | None = None
    tasks: tuple[FileTask, ...] = ()
    inlined: pa.Table | None = None
    pruning: PruningReport
    column_lifetimes: tuple[ColumnLifetime, ...] = ()
    mappings: tuple[NameMapping, ...] = ()

    @property
    def shape(self) -> ScanProjection:
        """The part that every task needs."""
        return ScanProjection(
            table=self.table,
            snapshot_id=self.snapshot_id,
            schema=self.schema,
            read_schema=self.read_schema,
            virtual=self.virtual,
            predicate=self.predicate,
            column_lifetimes=self.column_lifetimes,
            mappings=self.mappings,
        )


def empty_plan(table: str, snapshot_id: int, schema: Schema) -> ScanPlan:
    """A scan of a table that has no files yet."""
    report = PruningReport(files_total=0, files_kept=0)
    return ScanPlan(table=table, snapshot_id=snapshot_id, schema=schema, read_schema=schema, virtual=("file_row_number",), pruning=report)


def written_plan(plan: ScanPlan, columns: Sequence[str], directory: str, files: Sequence[WrittenFile]) -> ScanPlan:
    """A scan of files that are written to the same table but not committed.

    Args:
        plan: A scan of the table with at least these columns.
        columns: Names to return.
        directory: Full directory of the table, with a trailing slash.
        files: The files, which hold these columns in their present types.
    """
    schema = plan.read_schema.select(columns)
    tasks = tuple(FileTask(file=_uncommitted(file, number, directory, plan.snapshot_id)) for number, file in enumerate(files))
    report = PruningReport(files_total=len(tasks), files_kept=len(tasks))
    return replace(plan, schema=schema, read_schema=schema, virtual=(), predicate=None, tasks=tasks, inlined=None, pruning=report)


def _uncommitted(file: WrittenFile, number: int, directory: str, snapshot_id: int) -> DataFile:
    return DataFile(
        id=-1 - number,
        table_id=-1,
        directory=directory,
        relative_path=file.path,
        record_count=file.record_count,
        file_size_bytes=file.file_size_bytes,
        footer_size=file.footer_size,
        row_id_start=None,
        begin_snapshot=snapshot_id + 1,
        encryption_key=file.encryption_key,
        row_group_count=file.row_group_count,
    )
