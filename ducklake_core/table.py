"""A table of a lake, at its newest state or at one snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ducklake_core.catalog.files import data_files
from ducklake_core.catalog.state import Snapshot, TableState
from ducklake_core.catalog.tags import column_tags, object_tags
from ducklake_core.catalog.visibility import same_name
from ducklake_core.errors import UsageError
from ducklake_core.format.files import DataFile
from ducklake_core.format.names import join_name
from ducklake_core.format.options import Options
from ducklake_core.format.sorting import SortKey
from ducklake_core.merge import Merge, MergeClause
from ducklake_core.results import ColumnSummary, TableInfo, WriteResult, single_result
from ducklake_core.table_alterations import TableAlterations
from ducklake_core.table_sizes import column_summaries, table_size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_core.adding import Paths
    from ducklake_core.catalog.feed import Bound
    from ducklake_core.format.partitioning import PartitionSpec
    from ducklake_core.format.schema import Schema
    from ducklake_core.format.sorting import SortKey
    from ducklake_core.lake import DuckLake, Partitions, SchemaEvolution, Where
    from ducklake_core.lake_listing import At
    from ducklake_core.scan.change_feed import ChangeFeed
    from ducklake_core.scan.change_plan import FeedKind
    from ducklake_core.scan.scan import Scan

RestoredColumns: TypeAlias = Literal["now", "then"]
_TABLE_CHANGES = (
    "dropped_table", "inserted_into_table", "deleted_from_table", "altered_table", "inlined_insert", "inlined_delete", "inline_flush",
    "merge_adjacent", "rewrite_delete",
)  # fmt: skip


class Table(TableAlterations):
    """A table. Made by :meth:`DuckLake.table`; reads happen at the snapshot it was opened at, writes at the newest one."""

    def __init__(self, lake: DuckLake, state: TableState, *, at: At = None) -> None:
        self._lake = lake
        self._state = state
        self._at = at

    def __repr__(self) -> str:
        return f"<Table {self.name} at snapshot {self.snapshot_id}>"

    @property
    def name(self) -> str:
        """``schema.table``, parts with dots or quotes double-quoted."""
        return join_name(self._state.schema_name, self._state.name)

    @property
    def state(self) -> TableState:
        """Everything the catalog says about the table at :attr:`snapshot_id`, except its files."""
        return self._state

    @property
    def snapshot_id(self) -> int:
        """The snapshot that reads of this object see."""
        return self._state.snapshot_id

    @property
    def schema(self) -> Schema:
        """The columns with their ids; ``schema.to_arrow()`` gives the Arrow schema."""
        return self._state.schema

    @property
    def partition_spec(self) -> PartitionSpec | None:
        """Keys that new files are partitioned by."""
        return self._state.partition_spec

    @property
    def sort_keys(self) -> tuple[SortKey, ...]:
        """Order that DuckDB gives to new files: expression, direction (``ASC``, ``DESC``) and ``NULLS_FIRST`` or ``NULLS_LAST``."""
        return self._state.sort_keys

    @property
    def comment(self) -> str | None:
        """The table's comment, None for none."""
        return self._state.comment

    @property
    def column_comments(self) -> dict[str, str]:
        """Comments of columns by name."""
        return {column.name: self._state.column_comments[column.id] for column in self.schema if column.id in self._state.column_comments}

    @property
    def options(self) -> Options:
        """Options in force for the table (table over schema over lake, then the defaults), as typed values."""
        return Options.from_mapping(self._state.options)

    def tags(self) -> dict[str, str]:
        """All tags of the table by key, the comment included."""
        with self._lake.reader() as reader:
            return object_tags(reader, self._state.id, self.snapshot_id)

    def column_tags(self) -> dict[str, dict[str, str]]:
        """All tags of columns by the column's name, comments included; columns without any are left out."""
        with self._lake.reader() as reader:
            found = column_tags(reader, self._state.id, self.snapshot_id)
        return {column.name: found[column.id] for column in self.schema if column.id in found}

    def list_files(self) -> list[DataFile]:
        """Live data files by id, each with its delete files, sizes, partition values and (masked) encryption key.

        Positions that are deleted through the catalog stand in ``inlined_deletes``; inlined rows are in no file.
        """
        with self._lake.reader() as reader:
            return [file for file, _ in data_files(reader, self._state)]

    def refresh(self) -> Table:
        """The same table (by id, so renames do not matter) at the newest snapshot."""
        with self._lake.reader() as reader:
            state = reader.table_by_id(self._state.id, reader.latest_snapshot().id)
        return Table(self._lake, state)

    def info(self) -> TableInfo:
        """Rows, files and bytes, as :meth:`DuckLake.table_info` gives them."""
        with self._lake.reader() as reader:
            size = table_size(reader, self._state)
        return size.counted(self._lake.storage)

    def column_summaries(self) -> dict[str, ColumnSummary]:
        """Counts and bounds of every leaf column (dotted paths), from file statistics alone."""
        with self._lake.reader() as reader:
            return column_summaries(reader, self._state)

    def snapshots(self) -> list[Snapshot]:
        """Snapshots whose changes touch this table, by id ascending."""
        with self._lake.reader() as reader:
            return [snapshot for snapshot in reader.snapshots() if self._touched_by(snapshot)]

    def _touched_by(self, snapshot: Snapshot) -> bool:
        changes = snapshot.change_set
        created = any(
            same_name(name.schema, self._state.schema_name) and same_name(name.name, self._state.name) for name in changes.created_table
        )
        return created or any(self._state.id in getattr(changes, kind) for kind in _TABLE_CHANGES)

    def scan(self, columns: Sequence[str] | None = None, where: Where = None) -> Scan:
        """A lazy scan at this object's snapshot: ``.to_arrow()``, ``.to_batches()``, ``.to_spark(session)``, ``.plan()``.

        Args:
            columns: Columns to return, in order, all when None; may name ``rowid``, ``snapshot_id``, ``filename`` and
                ``file_row_number``.
            where: SQL text (DuckDB dialect) or a predicate.
        """
        from ducklake_core.scan.scan import Scan

        return Scan(table=self._state, columns=columns, where=where, reader=self._lake.reader, storage=self._lake.storage)

    def insertions(self, start: Bound, end: At = None, *, columns: Sequence[str] | None = None, where: Where = None) -> ChangeFeed:
        """The rows that were added from ``start`` to ``end``, both included; see :meth:`changes` for the arguments.

        Columns are ``snapshot_id`` (the snapshot that added the row), ``rowid``, then the table's. Rows that were deleted again
        are there as well; an updated row is there with its new values.
        """
        return self._feed("insertions", start, end, columns, where)

    def deletions(self, start: Bound, end: At = None, *, columns: Sequence[str] | None = None, where: Where = None) -> ChangeFeed:
        """The rows that were deleted from ``start`` to ``end``, both included; see :meth:`changes` for the arguments.

        Columns are ``snapshot_id`` (the snapshot that deleted the row), ``rowid``, then the table's; an updated row is there with
        its old values.
        """
        return self._feed("deletions", start, end, columns, where)

    def changes(self, start: Bound, end: At = None, *, columns: Sequence[str] | None = None, where: Where = None) -> ChangeFeed:
        """What was changed from ``start`` to ``end``, both included.

        Lazy like a scan: ``.to_arrow()``, ``.to_batches()``, ``.to_reader()``, ``.to_spark(session)``, ``.plan()``. Columns are
        ``snapshot_id``, ``rowid``, ``change_type``, then the table's as they are at ``end``. ``change_type`` is ``insert``, ``delete``,
        or for a row that one snapshot deleted and added under the same row id ``update_preimage`` and ``update_postimage``.
        Merging, flushing and rewriting files are no changes. See docs/change-feed.md.

        Args:
            start: The first snapshot: its id, or a time with a zone, which means the first snapshot at or after it.
            end: The last snapshot: its id, or a time with a zone, which means the last snapshot at or before it; this object's
                snapshot when None. Nothing comes of a range that ends before it starts.
            columns: Columns to return, in order, all when None.
            where: SQL text (DuckDB dialect) or a predicate over the columns of the feed.

        Raises:
            NotFoundError: When the feed runs or is planned: a snapshot of the range was expired, so that changes would be missing.
                At once: ``end`` does not exist, or the table did not exist then.
        """
        return self._feed("changes", start, end, columns, where)

    def _feed(self, kind: FeedKind, start: Bound, end: At, columns: Sequence[str] | None, where: Where) -> ChangeFeed:
        from ducklake_core.scan.change_feed import ChangeFeed

        state = self._state if end is None else self._state_at(end)
        return ChangeFeed(
            table=state, kind=kind, start=start, columns=columns, where=where, reader=self._lake.reader, storage=self._lake.storage
        )

    def _state_at(self, at: At) -> TableState:
        snapshot = self._lake.snapshot(at)
        with self._lake.reader() as reader:
            return reader.table_by_id(self._state.id, snapshot.id)

    def append(self, data: Any, *, schema_evolution: SchemaEvolution = "strict", inline: bool | None = None, **commit: Any) -> WriteResult:
        """Add rows. ``inline`` is as in :meth:`DuckLake.write`; ``commit`` takes author, message, extra_info and commit_id."""
        return self._write(data, mode="append", schema_evolution=schema_evolution, inline=inline, **commit)

    def overwrite(
        self,
        data: Any,
        *,
        where: Where = None,
        partitions: Partitions | None = None,
        schema_evolution: SchemaEvolution = "strict",
        **commit: Any,
    ) -> WriteResult:
        """Replace the rows that match ``where``, or those of ``partitions``, (all without either) by ``data``, in one commit.

        Args:
            data: Rows that are all within what is replaced; one outside is an error before anything is committed.
            where: SQL text or a predicate.
            partitions: Partitions of the table's present keys, each by the values of all keys, named as in ``partition_by``:
                ``[{"carrier": "UA", "month(day)": 3}]``; None is NULL.
            schema_evolution: As in :meth:`DuckLake.write`; ``commit`` too.
        """
        return self._write(data, mode="overwrite", where=where, partitions=partitions, schema_evolution=schema_evolution, **commit)

    def upsert(self, data: Any, *, on: Sequence[str], schema_evolution: SchemaEvolution = "strict", **commit: Any) -> WriteResult:
        """Replace the rows whose ``on`` columns equal those of a row of ``data``, and add the others, in one commit."""
        return self._write(data, mode="upsert", on=on, schema_evolution=schema_evolution, **commit)

    def delete(self, where: Where, *, spark: Any = None, **commit: Any) -> WriteResult:
        """Delete the rows for which ``where`` is true. ``where=None`` deletes all rows.

        With ``spark``, a session, the rows are found by its executors.
        """
        self._check_writable()
        with self._lake.transaction(**commit) as tx:
            tx.delete(self.name, where, spark=spark)
        return single_result(tx.result, self.name, self._state.id)

    def add_data_files(
        self,
        paths: Paths,
        *,
        hive_partitioning: bool | None = None,
        allow_missing: bool = False,
        ignore_extra_columns: bool = False,
        allow_duplicates: bool = False,
        spark: SparkSession | None = None,
        **commit: Any,
    ) -> WriteResult:
        """Make Parquet files that somebody else wrote part of the table, as they are and where they are. No row is read or copied.

        **From then on the files belong to the lake**: once their rows are deleted, overwritten, merged or expired, ``cleanup_old_files``
        deletes the files themselves, whoever wrote them and whoever else reads them. Nothing may change them any more.

        Columns are found by name without regard to case. A column of a file has the table's type or one that the reference
        widens to it: fewer bits of the same kind of number, unsigned ones in a wider signed column, decimals with fewer digits, any
        unit of timestamps.

        Args:
            paths: A file, a folder with everything below it (hidden files and ``_SUCCESS`` are left out), a pattern (``*``, ``?``,
                ``**``), or several of these. Files without rows are left out.
            hive_partitioning: Whether directories ``key=value`` of a path are columns of the table: in every path (True), where
                they are called like one (None), or nowhere (False). They win over a column of the file.
            allow_missing: Whether files may lack columns, which then have their initial default, or NULL.
            ignore_extra_columns: Whether files may have columns that the table does not have.
            allow_duplicates: Whether a file may be added that is in the catalog already. Its rows are then there twice, and deleting
                one entry deletes the file of both: for experiments only.
            spark: Reads the footers on the executors of a session, for very many files; otherwise threads of this process do.
            commit: author, message, extra_info and commit_id, as in :meth:`DuckLake.write`.

        Raises:
            NotFoundError: Nothing is there.
            CorruptFileError: A file is no Parquet file, or is cut.
            SchemaError: A column is missing, unknown, of another type, or has NULLs that the table does not allow.
            UsageError: The table is partitioned, and neither path nor statistics tell the value of a key for all rows of a file.
            AlreadyExistsError: A file belongs to the lake already, or is scheduled for deletion.
            UnsupportedFeatureError: A place that the lake may not name, an encrypted lake, or a column that only DuckDB adds.
        """
        self._check_writable()
        with self._lake.transaction(**commit) as tx:
            tx.add_data_files(
                self.name,
                paths,
                hive_partitioning=hive_partitioning,
                allow_missing=allow_missing,
                ignore_extra_columns=ignore_extra_columns,
                allow_duplicates=allow_duplicates,
                spark=spark,
            )
        return single_result(tx.result, self.name, self._state.id)

    def update(self, values: Mapping[str, Any], *, where: Where = None, spark: Any = None, **commit: Any) -> WriteResult:
        """Change columns of the rows for which ``where`` is true (all without it), in one commit. Rows keep their row ids.

        Args:
            values: For each column the value that it gets: SQL text over the columns of the row (DuckDB dialect;
                ``{"price": "price * 1.1", "name": "'new'"}``), or a Python value other than a text as a constant.
            where: SQL text or a predicate.
            spark: A Spark session, whose executors do the work, and which evaluates what Arrow does not (see
                docs/row-changes.md). Without it the work is done in this process.

        Raises:
            UnsupportedFeatureError: An expression that only a SQL engine can evaluate, and no session.
            SchemaError: A value that does not fit its column, NULL in a NOT NULL column.
            NotFoundError: A column that does not exist.
        """
        self._check_writable()
        with self._lake.transaction(**commit) as tx:
            tx.update(self.name, values, where=where, spark=spark)
        return single_result(tx.result, self.name, self._state.id)

    def merge(self, source: Any, *, on: str | Sequence[str], **commit: Any) -> Merge[WriteResult]:
        """Change, delete and add rows by what a source says, in one commit: name the branches, then ``execute()``.

        Args:
            source: pyarrow Table or RecordBatchReader, or a Spark DataFrame, whose session does the work then.
            on: Names of columns that both have, or a condition over ``t.column`` (the table) and ``s.column`` (the source)
                with at least one equality of a column of each. NULL equals nothing.

        Returns:
            The merge, to which branches are added; see :class:`~ducklake_core.merge.Merge`. ``commit`` is as for
            :meth:`append`.
        """
        self._check_writable()

        def carry_out(clauses: Sequence[MergeClause]) -> WriteResult:
            with self._lake.transaction(**commit) as tx:
                tx.merge_clauses(self.name, source, on, clauses)
            return single_result(tx.result, self.name, self._state.id)

        return Merge(self.name, carry_out)

    def restore(self, at: At, *, columns: RestoredColumns | None = None, spark: Any = None, **commit: Any) -> WriteResult:
        """Make the rows those of an earlier snapshot, as a new snapshot: history stays as it is, and can be gone back to as well.

        Rows that are the same are left alone; those that came since are deleted, and those that went are written again with
        the row ids that they had.

        Args:
            at: Id of the snapshot, or a time with a zone, which means the last snapshot at or before it.
            columns: What becomes of the columns when they were changed since: ``"then"`` makes them those of the snapshot again,
                values of columns that were dropped included; ``"now"`` leaves them as they are, where earlier rows have what
                they would have today. Must be said then.
            spark: A Spark session, whose executors do the work. Without it the work is done in this process.

        Raises:
            NotFoundError: There is no such snapshot (any more), or the table did not exist then.
            UsageError: The columns were changed since, and ``columns`` says nothing; or ``"then"`` takes away a column that the
                table is partitioned or sorted by now.
        """
        self._check_writable()
        with self._lake.transaction(**commit) as tx:
            tx.restore(self.name, at=at, columns=columns, spark=spark)
        return single_result(tx.result, self.name, self._state.id)

    def _write(self, data: Any, **how: Any) -> WriteResult:
        self._check_writable()
        return self._lake.write(self.name, data, create=False, **how)

    def _check_writable(self) -> None:
        if self._at is not None:
            raise UsageError(
                f"table {self.name} was opened at snapshot {self.snapshot_id} and cannot be written; open it without at=...",
                table=self.name,
                snapshot_id=self.snapshot_id,
            )
