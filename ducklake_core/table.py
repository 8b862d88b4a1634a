"""Read and change one table of a lake: the class :class:`Table`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack
from uuid import NAMESPACE_OID, uuid5

from ducklake_core.catalog.feed import last_row_change, row_changes, snapshots_about
from ducklake_core.catalog.reading.files import data_files
from ducklake_core.catalog.reading.options import resolve_bound
from ducklake_core.catalog.reading.reader import column_tags, object_tags
from ducklake_core.errors import DuckLakeError, NotFoundError, UsageError
from ducklake_core.format import arguments
from ducklake_core.format.files.data_files import DataFile
from ducklake_core.format.layout.sorting import SortKey
from ducklake_core.format.options import Options
from ducklake_core.format.state import Snapshot, TableState
from ducklake_core.format.types.names import join_name, storable
from ducklake_core.format.types.text import visible
from ducklake_core.planning.table_info import column_summaries, table_size
from ducklake_core.results import ColumnSummary, TableInfo, WriteResult, single_result
from ducklake_core.staging.arguments import (
    At,
    CommitOptions,
    ConcurrentAppends,
    FrameLike,
    MissingColumns,
    Partitions,
    SchemaEvolution,
    Where,
    WriteRequest,
    checked_at,
    resolve_at,
)
from ducklake_core.staging.context import LakeContext
from ducklake_core.staging.scanned import Scanned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_core.catalog.feed import Bound
    from ducklake_core.format.evolution.schema_edits import ColumnName
    from ducklake_core.format.files.partitioning import PartitionSpec
    from ducklake_core.format.layout.sorting import SortKey
    from ducklake_core.format.types.schema import Schema
    from ducklake_core.format.types.type_parser import TypeLike
    from ducklake_core.merge_builder import Merge, MergeClause
    from ducklake_core.planning.plan import FeedKind
    from ducklake_core.scan import ChangeFeed, Scan
    from ducklake_core.staging.adding import Paths
    from ducklake_core.staging.arguments import RestoredColumns
    from ducklake_core.transaction import Transaction


@arguments.none_means_default
class Table(Scanned):
    """A table, returned by :meth:`DuckLake.table`. Writes use the newest snapshot.

    Reads use the snapshot at which the table was opened; after a write through this object, the snapshot of the write.

    It is also an Arrow stream of all its rows (``__arrow_c_stream__``), which many libraries read directly.
    """

    def __init__(self, lake: LakeContext, state: TableState, *, at: At = None) -> None:
        self._lake = lake
        self._known = state
        self._written_at = state.snapshot_id
        self._at = at

    @property
    def _state(self) -> TableState:
        if self._known.snapshot_id < self._written_at:
            with self._lake.reader() as reader:
                self._known = self._same(reader.table_by_id(self._known.id, self._written_at))
        return self._known

    def __repr__(self) -> str:
        return f"<Table {visible(self.name)} at snapshot {self.snapshot_id}>"

    def _repr_html_(self) -> str:
        from ducklake_core.planning.explanation import table_html

        try:
            with self._lake.reader() as reader:
                size = table_size(reader, self._state)
        except DuckLakeError as error:
            return table_html(self._state, error.message)
        return table_html(self._state, size)

    @property
    def name(self) -> str:
        """``schema.table``, parts with dots or quotes double-quoted."""
        return join_name(self._known.schema_name, self._known.name)

    @property
    def state(self) -> TableState:
        """The definition of the table at :attr:`snapshot_id`, without its files."""
        return self._state

    @property
    def snapshot_id(self) -> int:
        """Id of the snapshot that reads use: that of the newest write through this object, otherwise the one at which it was opened."""
        return self._state.snapshot_id

    @property
    def schema(self) -> Schema:
        """The columns with their ids. ``schema.to_arrow()`` returns the Arrow schema."""
        return self._state.schema

    @property
    def partition_spec(self) -> PartitionSpec | None:
        """Partition keys of new files, None if they are not partitioned."""
        return self._state.partition_spec

    @property
    def sort_keys(self) -> tuple[SortKey, ...]:
        """Sort order of new files: expression, direction (``ASC``, ``DESC``) and ``NULLS_FIRST`` or ``NULLS_LAST``."""
        return self._state.sort_keys

    @property
    def comment(self) -> str | None:
        """The table's comment, or None."""
        return self._state.comment

    @property
    def column_comments(self) -> dict[str, str]:
        """Comments of columns by name."""
        return {column.name: self._state.column_comments[column.id] for column in self.schema if column.id in self._state.column_comments}

    @property
    def options(self) -> Options:
        """Effective options of the table as typed values. A table's option overrides the schema's, the lake's and the default."""
        return Options.from_mapping(self._state.options)

    def tags(self) -> dict[str, str]:
        """Return all tags of the table by key, including the comment."""
        with self._lake.reader() as reader:
            return object_tags(reader, self._state.id, self.snapshot_id)

    def column_tags(self) -> dict[str, dict[str, str]]:
        """Return all tags of columns by column name, including comments. Columns without tags are omitted."""
        with self._lake.reader() as reader:
            found = column_tags(reader, self._state.id, self.snapshot_id)
        return {column.name: found[column.id] for column in self.schema if column.id in found}

    def list_files(self) -> list[DataFile]:
        """Return live data files by id, each with its delete files, sizes, partition values and (masked) encryption key.

        ``inlined_deletes`` contains the positions that are deleted in the catalog. Inlined rows are in no file.
        """
        with self._lake.reader() as reader:
            return [file for file, _ in data_files(reader, self._state)]

    def refresh(self) -> Table:
        """Return the same table at the newest snapshot. It is identified by its id, so that it may have been renamed.

        Raises:
            NotFoundError: The table was dropped.
        """
        with self._lake.reader() as reader:
            state = self._same(reader.table_by_id(self._known.id, reader.latest_snapshot().id))
        return Table(self._lake, state)

    def _same(self, state: TableState) -> TableState:
        """Return the state, or raise an error if its uuid shows that another table has this id."""
        if state.uuid != self._known.uuid:
            raise NotFoundError(
                f"Table {self.name} no longer exists: the catalog was replaced by a backup or a new lake, where "
                f"{state.qualified_name} has its id. Open the lake and the table again",
                table=self.name,
            )
        return state

    def info(self) -> TableInfo:
        """Return the number of rows, files and bytes; see :meth:`DuckLake.table_info`."""
        with self._lake.reader() as reader:
            size = table_size(reader, self._state)
        return self._lake.counted(size)

    def column_summaries(self) -> dict[str, ColumnSummary]:
        """Return counts and bounds of every leaf column (as dotted paths), from file statistics."""
        with self._lake.reader() as reader:
            return column_summaries(reader, self._state)

    def snapshots(self) -> list[Snapshot]:
        """Return the snapshots that changed this table, its files or its name, by ascending id."""
        with self._lake.reader() as reader:
            return snapshots_about(reader, self._state)

    def last_row_change(self, *, author: str | None = None) -> Snapshot | None:
        """Return the newest snapshot, up to :attr:`snapshot_id`, that added or deleted rows of this table.

        Searches the newest thousand snapshots first, then ten times as many in each further query.

        Args:
            author: Consider only commits of this author. Default: all.

        Returns:
            The snapshot, None if it has expired or no rows were ever added.
        """
        arguments.optional(storable, "author", author)
        with self._lake.reader() as reader:
            return last_row_change(reader, self._state.id, resolve_at(reader, self._at).id, author)

    def row_changes(self, after: int = -1, *, author: str | None = None, limit: int | None = None) -> list[Snapshot]:
        """Return snapshots that added or deleted rows of this table, newest first, up to :attr:`snapshot_id`.

        Expired snapshots are missing. Needs one catalog query; with ``limit`` it searches as :meth:`last_row_change` does.

        Args:
            after: Return only snapshots after this id. Default: all.
            author: Consider only commits of this author. Default: all.
            limit: Maximum number of snapshots. Default: no limit.
        """
        arguments.optional(storable, "author", author)
        after, limit = arguments.whole_number("after", after), arguments.optional(arguments.row_count, "limit", limit)
        with self._lake.reader() as reader:
            return row_changes(reader, self._state.id, after, resolve_at(reader, self._at).id, author, limit)

    def scan(self, columns: Sequence[str] | None = None, where: Where = None, limit: int | None = None) -> Scan:
        """Return a lazy scan at this table's snapshot: ``.to_arrow()``, ``.to_pandas()``, ``.to_spark(session)``, ``.explain()`` and more.

        Args:
            columns: Names of the columns to return, in order. May include the virtual columns ``rowid``, ``snapshot_id``, ``filename``
                and ``file_row_number``. Default: all columns of the table.
            where: SQL text (DuckDB dialect), or a condition built with :func:`ducklake_core.col`. Default: all rows.
            limit: Maximum number of rows to return. No order is defined. Default: no limit.

        Raises:
            UsageError: ``limit`` is not a number of rows.
        """
        from ducklake_core.scan import Scan

        return Scan(
            table=self._state,
            columns=arguments.optional(arguments.names, "columns", columns),
            where=arguments.optional(arguments.condition, "where", where),
            row_limit=arguments.optional(arguments.row_count, "limit", limit),
            reader=self._lake.reader,
            storage=self._lake.storage,
        )

    def insertions(self, start: Bound | str, end: At = None, *, columns: Sequence[str] | None = None, where: Where = None) -> ChangeFeed:
        """Return the rows that were added from ``start`` to ``end``, both inclusive.

        The columns are ``snapshot_id`` (the snapshot that added the row), ``rowid``, then those of the table. The feed includes rows
        that were deleted later, and updated rows with their new values.

        Args:
            start: First snapshot: an id, a time for the first snapshot at or after it, or the name of a hold.
            end: Last snapshot: an id, a time for the last snapshot at or before it, or the name of a hold. Default: this table's
                snapshot.
            columns: Names of the columns to return, in order. Default: all.
            where: Condition on the columns of the feed. Default: all rows.

        Raises:
            NotFoundError: As in :meth:`changes`.
        """
        return self._feed("insertions", start, end, columns, where)

    def deletions(self, start: Bound | str, end: At = None, *, columns: Sequence[str] | None = None, where: Where = None) -> ChangeFeed:
        """Return the rows that were deleted from ``start`` to ``end``, both inclusive.

        The columns are ``snapshot_id`` (the snapshot that deleted the row), ``rowid``, then those of the table. The feed includes
        updated rows with their old values.

        Args:
            start: First snapshot: an id, a time for the first snapshot at or after it, or the name of a hold.
            end: Last snapshot: an id, a time for the last snapshot at or before it, or the name of a hold. Default: this table's
                snapshot.
            columns: Names of the columns to return, in order. Default: all.
            where: Condition on the columns of the feed. Default: all rows.

        Raises:
            NotFoundError: As in :meth:`changes`.
        """
        return self._feed("deletions", start, end, columns, where)

    def changes(self, start: Bound | str, end: At = None, *, columns: Sequence[str] | None = None, where: Where = None) -> ChangeFeed:
        """Return the changes from ``start`` to ``end``, both inclusive.

        The feed is lazy like a scan: ``.to_arrow()``, ``.to_batches()``, ``.to_reader()``, ``.to_spark(session)``, ``.plan()``. The
        columns are ``snapshot_id``, ``rowid``, ``change_type``, then those of the table at ``end``. ``change_type`` is ``insert`` or
        ``delete``. If one snapshot deleted and added a row with the same row id, the types are ``update_preimage`` and
        ``update_postimage``. Merging, flushing and rewriting files are not changes. See docs/how-to/change-feed.md.

        Args:
            start: First snapshot: an id, a time for the first snapshot at or after it, or the name of a hold.
            end: Last snapshot: an id, a time for the last snapshot at or before it, or the name of a hold. Default: this table's
                snapshot. The feed is empty if ``end`` is just before ``start``, or a time before it.
            columns: Names of the columns to return, in order. Default: all.
            where: SQL text (DuckDB dialect), or a condition built with :func:`ducklake_core.col`, over the columns of the feed.
                Default: all changes.

        Raises:
            NotFoundError: ``end`` or the table at ``end`` does not exist. When the feed runs or is planned: a snapshot of the range has
                expired, so that changes would be missing.
        """
        return self._feed("changes", start, end, columns, where)

    def _feed(self, kind: FeedKind, start: Bound | str, end: At, columns: Sequence[str] | None, where: Where) -> ChangeFeed:
        from ducklake_core.scan import ChangeFeed

        # The range after the newest snapshot is empty: start is one above end.
        if type(start) is int and type(end) is int and start > end + 1:
            raise UsageError(f"start is snapshot {start}, after end, snapshot {end}. Pass the earlier snapshot first", parameter="start")
        state = self._state if end is None else self._state_at(end)
        first = checked_at(start, "start")
        # Only the name of a hold needs the catalog.
        if not isinstance(first, int | datetime):
            with self._lake.reader() as reader:
                first = resolve_bound(reader, "start", first)
        return ChangeFeed(
            table=state,
            kind=kind,
            start=first,
            columns=arguments.optional(arguments.names, "columns", columns),
            where=arguments.optional(arguments.condition, "where", where),
            reader=self._lake.reader,
            storage=self._lake.storage,
        )

    def _state_at(self, at: At) -> TableState:
        with self._lake.reader() as reader:
            return self._same(reader.table_by_id(self._state.id, resolve_at(reader, at).id))

    def append(
        self,
        data: FrameLike,
        *,
        schema_evolution: SchemaEvolution = "strict",
        missing_columns: MissingColumns | None = None,
        inline: bool | None = None,
        **commit: Unpack[CommitOptions],
    ) -> WriteResult:
        """Append rows.

        Args:
            data: Rows, as in :meth:`DuckLake.write`.
            schema_evolution: ``strict`` or ``additive``, as in :meth:`DuckLake.write`. Default: ``strict``.
            missing_columns: ``error`` or ``null``: treatment of columns that ``data`` lacks, as in :meth:`DuckLake.write`. Default:
                ``error`` under ``strict``, ``null`` under ``additive``.
            inline: Whether to store few rows in the catalog: None for Arrow data only, True for Spark DataFrames, too. Default: None.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Returns:
            Snapshot id, rows, files and bytes of the write.

        Raises:
            SchemaError: Data and table do not match; the message lists every difference.
            CommitConflictError: Another writer changed the table's columns meanwhile.
        """
        request = WriteRequest(name=self.name, schema_evolution=schema_evolution, missing_columns=missing_columns, inline=inline)
        return self._write(data, request, commit)

    def overwrite(
        self,
        data: FrameLike,
        *,
        where: Where = None,
        partitions: Partitions | None = None,
        schema_evolution: SchemaEvolution = "strict",
        missing_columns: MissingColumns | None = None,
        inline: bool | None = None,
        concurrent_appends: ConcurrentAppends = "fail",
        read_at: int | None = None,
        **commit: Unpack[CommitOptions],
    ) -> WriteResult:
        """Replace rows of the table by ``data``, in one commit: the rows that match ``where``, those of ``partitions``, or all rows.

        Args:
            data: New rows. All of them must be in the replaced slice. If there are none, the slice is deleted, and the columns of
                ``data`` are ignored.
            where: SQL text (DuckDB dialect), or a condition built with :func:`ducklake_core.col`. Default: all rows.
            partitions: Partitions of the table's current keys, each with the values of all keys, named as in ``partition_by``:
                ``[{"carrier": "UA", "month(day)": 3}]``; None is NULL. ``"in_data"`` replaces the partitions that ``data`` has rows
                for, and keeps all others (dynamic partition overwrite).
            schema_evolution: ``strict`` or ``additive``, as in :meth:`DuckLake.write`. Default: ``strict``.
            missing_columns: ``error`` or ``null``, as in :meth:`DuckLake.write`.
            inline: Whether to store few rows in the catalog, as in :meth:`append`.
            concurrent_appends: Treatment of rows that another writer commits to the replaced slice after this call has read it:
                ``fail`` raises :class:`CommitConflictError`, ``replace`` replaces them, too. Rows outside the slice never conflict.
                Default: ``fail``.
            read_at: Id of the snapshot from which ``data`` was computed. With it, rows that were committed to the slice after that
                snapshot are concurrent, too, and not only those committed during this call.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Returns:
            Snapshot id, rows, files and bytes of the write.

        Raises:
            SchemaError: Data and table do not match; the message lists every difference.
            UsageError: A row of ``data`` is outside the slice. Nothing was committed.
            CommitConflictError: Another writer has added rows to the slice meanwhile, or changed the table's columns.
        """
        request = WriteRequest(
            name=self.name,
            mode="overwrite",
            where=where,
            partitions=partitions,
            schema_evolution=schema_evolution,
            missing_columns=missing_columns,
            inline=inline,
            concurrent_appends=concurrent_appends,
            read_at=read_at,
        )
        return self._write(data, request, commit)

    def upsert(
        self,
        data: FrameLike,
        *,
        on: str | Sequence[str],
        schema_evolution: SchemaEvolution = "strict",
        missing_columns: MissingColumns | None = None,
        inline: bool | None = None,
        **commit: Unpack[CommitOptions],
    ) -> WriteResult:
        """Update the rows whose key is in ``data``, and insert the other rows of ``data``, in one commit.

        Matched rows keep their row ids and their values of columns that ``data`` lacks. For such columns, new rows get the default.
        Without a default they get NULL, if ``missing_columns="null"`` or ``schema_evolution="additive"`` is set.

        Args:
            data: Rows, as in :meth:`DuckLake.write`. Keys must be unique and not NULL.
            on: Name of the key column, or names of several.
            schema_evolution: ``strict`` or ``additive``, as in :meth:`DuckLake.write`. Default: ``strict``.
            missing_columns: ``error`` or ``null``, as in :meth:`DuckLake.write`.
            inline: Whether to store few rows in the catalog, as in :meth:`append`.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Returns:
            Snapshot id, rows, files and bytes of the write.

        Raises:
            UsageError: A key of ``data`` is NULL or repeated; the message shows it.
            SchemaError: Data and table do not match; the message lists every difference.
            CommitConflictError: Another writer changed the same rows, or rows with the same keys, meanwhile.
        """
        request = WriteRequest(
            name=self.name,
            mode="upsert",
            on=on,
            schema_evolution=schema_evolution,
            missing_columns=missing_columns,
            inline=inline,
        )
        return self._write(data, request, commit)

    def add_data_files(
        self,
        paths: Paths,
        *,
        hive_partitioning: bool | None = None,
        allow_missing: bool = False,
        ignore_extra_columns: bool = False,
        allow_duplicates: bool = False,
        for_duckdb: bool = True,
        spark: SparkSession | None = None,
        **commit: Unpack[CommitOptions],
    ) -> WriteResult:
        """Add existing Parquet files to the table without copying them. Reads only their footers.

        **The files belong to the lake afterwards**: once their rows are deleted, overwritten, merged or expired, ``cleanup_old_files``
        deletes the files, even if other programs read them. Do not modify the files after adding them.

        Columns are matched by name without regard to case. A column of a file must have the table's type or a type that DuckDB widens
        to it: fewer bits of the same kind of number, unsigned integers in a wider signed column, decimals with fewer digits, any unit
        of timestamps.

        Args:
            paths: A file, a folder with everything below it (except hidden files and ``_SUCCESS``), a pattern (``*``, ``?``, ``**``),
                or a list of these. Files without rows are skipped.
            hive_partitioning: Whether ``key=value`` directories in a path are columns of the table: True for all such directories, None
                for those with the name of a column, False for none. They take precedence over a column of the file. Default: None.
            allow_missing: Whether files may lack columns, which then have their initial default or NULL. Default: False.
            ignore_extra_columns: Whether files may have columns that the table lacks. Default: False.
            allow_duplicates: Whether a file may be added that the catalog already contains. The table then has its rows twice, and
                deleting one entry deletes the file of both, so use it only for experiments. Default: False.
            for_duckdb: Whether DuckDB must be able to read the files. False also adds files with repeated columns without the annotation
                LIST, as protobuf and Thrift writers create them: this library and Spark read them, DuckDB returns NULL or fails. Default:
                True.
            spark: Spark session whose executors read the footers, for very many files. Default: threads of this process read them.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Returns:
            Snapshot id, rows, files and bytes of the files.

        Raises:
            NotFoundError: A path does not exist, or matches no file.
            CorruptFileError: A file is not a Parquet file, or is truncated.
            SchemaError: A column is missing, unknown, of another type, or has NULLs that the table does not allow.
            UsageError: The table is partitioned, and neither path nor statistics determine the partition of all rows of a file.
            AlreadyExistsError: A file already belongs to the lake, or is scheduled for deletion.
            UnsupportedFeatureError: The lake may not name the path, the lake is encrypted, or a file has a column that only DuckDB adds.
        """
        with self._transaction(commit) as tx:
            tx.add_data_files(
                self.name,
                paths,
                hive_partitioning=hive_partitioning,
                allow_missing=allow_missing,
                ignore_extra_columns=ignore_extra_columns,
                allow_duplicates=allow_duplicates,
                for_duckdb=for_duckdb,
                spark=spark,
            )
        return single_result(tx.result, self.name, self._known.id)

    def _write(self, data: FrameLike, request: WriteRequest, commit: Mapping[str, Any]) -> WriteResult:
        self._check_writable()
        from ducklake_core.transaction import write

        result = write(self._lake, data, request, commit)
        self._written_at = max(self._written_at, result.snapshot_id)
        return result

    @contextmanager
    def _transaction(self, commit: Mapping[str, Any]) -> Iterator[Transaction]:
        """Open a transaction for one change of the table, and read the table at its snapshot afterwards."""
        self._check_writable()
        from ducklake_core.transaction import autocommit

        with autocommit(self._lake, commit) as tx:
            yield tx
        if tx.result.snapshot is not None:
            self._written_at = max(self._written_at, tx.result.snapshot.id)

    def _check_writable(self) -> None:
        self._lake.database.check_not_read_only()
        if self._at is not None:
            raise UsageError(
                f"Table {self.name} cannot be written, because it was opened at snapshot {self.snapshot_id}. Open it without at=...",
                table=self.name,
                snapshot_id=self.snapshot_id,
            )

    # Change rows

    def delete(self, where: Where, *, spark: SparkSession | None = None, **commit: Unpack[CommitOptions]) -> WriteResult:
        """Delete the rows that match a condition.

        Args:
            where: SQL text (DuckDB dialect), or a condition built with :func:`ducklake_core.col`. None deletes all rows.
            spark: Spark session whose executors find the rows. Default: this process finds them.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Returns:
            Snapshot id, rows, files and bytes of the write.

        Raises:
            NotFoundError: A column of the condition does not exist.
            UnsupportedFeatureError: Arrow cannot evaluate the condition, and ``spark`` is not given.
            CommitConflictError: Another writer changed the same rows meanwhile.
        """
        with self._transaction(commit) as tx:
            tx.delete(self.name, where, spark=spark)
        return single_result(tx.result, self.name, self._known.id)

    def update(
        self, values: Mapping[str, object], *, where: Where = None, spark: SparkSession | None = None, **commit: Unpack[CommitOptions]
    ) -> WriteResult:
        """Update columns of the rows that match a condition, in one commit. Rows keep their row ids.

        Args:
            values: New value of each column. A string is SQL over the columns of the row (DuckDB dialect): ``"price * 1.1"``, ``"now()"``,
                ``"'new'"``. :func:`ducklake_core.lit` makes a constant of a string, :func:`ducklake_core.col` names a column, and any
                other Python value is a constant: ``{"status": lit("new"), "before": col("status"), "count": 0}``.
            where: SQL text (DuckDB dialect), or a condition built with :func:`ducklake_core.col`. Default: all rows.
            spark: Spark session that evaluates the expressions, including those that Arrow does not support
                (docs/how-to/row-changes.md). Default: this process does the work.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Returns:
            Snapshot id, rows, files and bytes of the write.

        Raises:
            UnsupportedFeatureError: Arrow cannot evaluate an expression, and ``spark`` is not given.
            SchemaError: A value does not fit its column, or a NOT NULL column would get NULL.
            NotFoundError: A column does not exist.
            CommitConflictError: Another writer changed the same rows meanwhile.
        """
        with self._transaction(commit) as tx:
            tx.update(self.name, values, where=where, spark=spark)
        return single_result(tx.result, self.name, self._known.id)

    def merge(
        self, source: FrameLike, *, on: str | Sequence[str], missing_columns: MissingColumns | None = None, **commit: Unpack[CommitOptions]
    ) -> Merge[WriteResult]:
        """Update, delete and insert rows from a source, in one commit. Add the branches to the result, then call ``execute()``.

        Args:
            source: Rows, as in :meth:`DuckLake.write`. Rows of this process are held in memory; the session of a Spark DataFrame does
                the work.
            on: Name or names of columns that both sides have, or a condition over ``t.column`` (the table) and ``s.column`` (the
                source) with at least one equality between the two. NULL equals nothing.
            missing_columns: Treatment of columns without a default that the source lacks, in ``when_not_matched_insert()``: ``error``
                raises :class:`SchemaError`, ``null`` writes NULL. Branches with explicit values are not affected. Default: ``error``.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Returns:
            The merge, to which branches are added; see :class:`~ducklake_core.merge_builder.Merge`.
        """
        self._check_writable()
        arguments.check_commit(commit)

        from ducklake_core.merge_builder import Merge

        def carry_out(clauses: Sequence[MergeClause]) -> WriteResult:
            with self._transaction(commit) as tx:
                tx.merge_clauses(self.name, source, on, clauses, missing_columns=missing_columns)
            return single_result(tx.result, self.name, self._known.id)

        return Merge(self.name, carry_out)

    def apply_changes(self, changes: ChangeFeed, *, on: str | Sequence[str], **commit: Unpack[CommitOptions]) -> WriteResult:
        """Apply the changes of another table to this one, exactly once, in one commit. The tables may be in different lakes.

        Of several changes of a key, only the newest counts: its row is written, or deleted if the key has no row any more. Applying
        changes again that this table has already leads to the same rows. The changes are held in memory.

        Args:
            changes: Changes of the other table, from :meth:`Table.changes`. With fewer columns, the other columns of this table keep
                their values.
            on: Name of the key column, or names of several. Keys must be unique in the other table, and not NULL.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id. Default of ``commit_id``: an id
                that is derived from both tables and the range and columns of the changes, so that the same call a second time does nothing.

        Returns:
            Snapshot id, rows, files and bytes of the write; ``repeated`` is set if the changes were applied before.

        Raises:
            UsageError: ``changes`` is not a complete change feed, or a key is NULL or not unique.
            NotFoundError: This table lacks a column of the changes, or a snapshot of the changes has expired.
            CommitConflictError: Another writer changed the same rows meanwhile.
        """
        arguments.check_commit(commit)
        options: dict[str, Any] = dict(commit)
        if options.get("commit_id") is None and hasattr(changes, "kind"):
            shape = changes.plan().plan.shape
            what = (changes.table.uuid, shape.start, shape.end, changes.columns, changes.where, self._known.uuid, arguments.names("on", on))
            options["commit_id"] = f"changes-{uuid5(NAMESPACE_OID, repr(what))}"
        with self._transaction(options) as tx:
            tx.apply_changes(self.name, changes, on=on)
        return single_result(tx.result, self.name, self._known.id)

    def restore(
        self, at: At, *, columns: RestoredColumns | None = None, spark: SparkSession | None = None, **commit: Unpack[CommitOptions]
    ) -> WriteResult:
        """Restore the rows of an earlier snapshot. Commits a new snapshot, so that later snapshots can be restored, too.

        Unchanged rows stay where they are. Rows added since are deleted, and deleted rows are written again with their row ids.

        Args:
            at: Snapshot id, time or name of a hold (:data:`At`) for the last snapshot at or before it.
            columns: Treatment of columns that have changed since; required in this case. ``"then"`` restores the columns of the
                snapshot, including dropped columns with their values. ``"now"`` keeps the current columns and converts the earlier
                rows.
            spark: Spark session whose executors do the work. Default: this process does the work.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Returns:
            Snapshot id, rows, files and bytes of the write.

        Raises:
            NotFoundError: The snapshot does not exist or has expired, or it does not have the table.
            UsageError: The columns have changed since, and ``columns`` is not given; or ``"then"`` would remove a column by which the
                table is partitioned or sorted now.
        """
        with self._transaction(commit) as tx:
            tx.restore(self.name, at=at, columns=columns, spark=spark)
        return single_result(tx.result, self.name, self._known.id)

    # Alter the table

    def add_column(
        self,
        column: ColumnName,
        data_type: TypeLike,
        *,
        default: object = None,
        if_not_exists: bool = False,
        **commit: Unpack[CommitOptions],
    ) -> Snapshot | None:
        """Add a nullable column or field at the end. Existing rows have the default. See :meth:`Transaction.add_column`.

        Args:
            column: Name of the new column, or path of a field.
            data_type: Type as a string (of DuckLake or DuckDB), or an Arrow type.
            default: Value of existing rows and of new rows that lack the column. Default: NULL.
            if_not_exists: Whether to do nothing if the column exists. Default: False, which raises an error.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            AlreadyExistsError: The column exists.
            SchemaError: The type is not supported, or the default does not fit it.
        """
        with self._transaction(commit) as tx:
            tx.add_column(self.name, column, data_type, default=default, if_not_exists=if_not_exists)
        return tx.result.snapshot

    def drop_column(self, column: ColumnName, *, if_exists: bool = False, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Drop a column or field. Earlier snapshots keep it.

        Args:
            column: Name of the column, or path of a field.
            if_exists: Whether to do nothing if the column does not exist. Default: False, which raises an error.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: The column does not exist.
            UsageError: The table is partitioned or sorted by the column, or it is the only one.
        """
        with self._transaction(commit) as tx:
            tx.drop_column(self.name, column, if_exists=if_exists)
        return tx.result.snapshot

    def rename_column(self, column: ColumnName, new_name: str, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Rename a column or field.

        Args:
            column: Name of the column, or path of a field.
            new_name: New name, without a path.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: The column does not exist.
            AlreadyExistsError: Another column has the new name.
        """
        with self._transaction(commit) as tx:
            tx.rename_column(self.name, column, new_name)
        return tx.result.snapshot

    def set_column_type(self, column: ColumnName, data_type: TypeLike, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Change the type of a column or field to a wider type. A struct may gain and lose fields.

        Args:
            column: Name of the column, or path of a field.
            data_type: Type as a string (of DuckLake or DuckDB), or an Arrow type.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: The column does not exist.
            SchemaError: The new type cannot represent all values of the old one.
        """
        with self._transaction(commit) as tx:
            tx.set_column_type(self.name, column, data_type)
        return tx.result.snapshot

    def set_default(
        self, column: ColumnName, value: object = None, *, expression: str | None = None, **commit: Unpack[CommitOptions]
    ) -> Snapshot | None:
        """Set the default of a column for new rows: a value, or SQL that is computed for each statement.

        Args:
            column: Name of the column, or path of a field.
            value: The value. Default: no default.
            expression: SQL to compute, instead of ``value``.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: The column does not exist.
            SchemaError: The value does not fit the column.
        """
        with self._transaction(commit) as tx:
            tx.set_default(self.name, column, value, expression=expression)
        return tx.result.snapshot

    def drop_default(self, column: ColumnName, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Remove the default of a column.

        Args:
            column: Name of the column, or path of a field.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: The column does not exist.
        """
        with self._transaction(commit) as tx:
            tx.drop_default(self.name, column)
        return tx.result.snapshot

    def set_not_null(self, column: ColumnName, *, spark: SparkSession | None = None, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Make a column NOT NULL, after a check that it has no NULL.

        Args:
            column: Name of the column, or path of a field.
            spark: Spark session whose executors check the rows. Default: this process checks them.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: The column does not exist.
            SchemaError: The column has NULLs.
        """
        with self._transaction(commit) as tx:
            tx.set_not_null(self.name, column, spark=spark)
        return tx.result.snapshot

    def drop_not_null(self, column: ColumnName, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Make a column nullable.

        Args:
            column: Name of the column, or path of a field.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: The column does not exist.
        """
        with self._transaction(commit) as tx:
            tx.drop_not_null(self.name, column)
        return tx.result.snapshot

    def set_partitioned_by(self, keys: Sequence[str], **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Set the partition keys of new files: ``"carrier"``, ``"month(day)"``, ``"bucket(8, id)"``.

        Args:
            keys: Partition keys, in order.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: A column does not exist.
            SchemaError: A key does not fit the type of its column.
        """
        with self._transaction(commit) as tx:
            tx.set_partitioned_by(self.name, keys)
        return tx.result.snapshot

    def reset_partitioned_by(self, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Stop partitioning new files. Existing files keep their partitions."""
        with self._transaction(commit) as tx:
            tx.reset_partitioned_by(self.name)
        return tx.result.snapshot

    def set_sorted_by(self, keys: Sequence[str], **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Set the sort order of new files: ``"day DESC NULLS FIRST"``, ``"lower(carrier)"``.

        Args:
            keys: Sort keys, in order.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: A column does not exist.
        """
        with self._transaction(commit) as tx:
            tx.set_sorted_by(self.name, keys)
        return tx.result.snapshot

    def reset_sorted_by(self, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Stop sorting new files."""
        with self._transaction(commit) as tx:
            tx.reset_sorted_by(self.name)
        return tx.result.snapshot

    def set_comment(self, text: str | None, *, column: ColumnName | None = None, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Set or delete the comment on the table or on one of its columns.

        Args:
            text: The comment; None deletes it.
            column: Name of a column, or path of a field. Default: the table.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: The column does not exist.
        """
        with self._transaction(commit) as tx:
            tx.set_comment(self.name, text, column=column)
        return tx.result.snapshot

    def set_tag(self, key: str, value: str | None, *, column: ColumnName | None = None, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Set or delete a tag, a string under a key, on the table or on one of its columns. Columns can only have the tag ``comment``.

        Args:
            key: Key of the tag.
            value: Value of the tag; None deletes the tag.
            column: Name of a column, or path of a field. Default: the table.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: The column does not exist.
            UnsupportedFeatureError: ``column`` is given, and ``key`` is not ``comment``.
        """
        with self._transaction(commit) as tx:
            tx.set_tag(self.name, key, value, column=column)
        return tx.result.snapshot
