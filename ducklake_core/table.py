"""A table of a lake, at its newest state or at one snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from ducklake_core.catalog.feed import last_row_change, row_changes, snapshots_about
from ducklake_core.catalog.reading.files import data_files
from ducklake_core.catalog.reading.reader import column_tags, object_tags
from ducklake_core.errors import DuckLakeError, NotFoundError, UsageError
from ducklake_core.format import arguments
from ducklake_core.format.files.data_files import DataFile
from ducklake_core.format.layout.sorting import SortKey
from ducklake_core.format.options import Options
from ducklake_core.format.state import Snapshot, TableState
from ducklake_core.format.types.names import join_name, storable
from ducklake_core.format.types.text import visible
from ducklake_core.merge_builder import Merge, MergeClause
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
    resolve_at,
)
from ducklake_core.staging.context import LakeContext
from ducklake_core.staging.scanned import Scanned
from ducklake_core.transaction import Transaction, autocommit, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_core.catalog.feed import Bound
    from ducklake_core.format.evolution.schema_edits import ColumnName
    from ducklake_core.format.files.partitioning import PartitionSpec
    from ducklake_core.format.layout.sorting import SortKey
    from ducklake_core.format.types.schema import Schema
    from ducklake_core.format.types.type_parser import TypeLike
    from ducklake_core.planning.plan import FeedKind
    from ducklake_core.scan import ChangeFeed, Scan
    from ducklake_core.staging.adding import Paths
    from ducklake_core.staging.arguments import RestoredColumns


class Table(Scanned):
    """A table. Made by :meth:`DuckLake.table`; reads happen at the snapshot it was opened at, writes at the newest one.

    It is also an Arrow stream of all its rows (``__arrow_c_stream__``), so libraries that take one read it as it is.
    """

    def __init__(self, lake: LakeContext, state: TableState, *, at: At = None) -> None:
        self._lake = lake
        self._state = state
        self._at = at

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
        return join_name(self._state.schema_name, self._state.name)

    @property
    def state(self) -> TableState:
        """The definition of the table at :attr:`snapshot_id`, without its files."""
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
        """The table's comment, or None."""
        return self._state.comment

    @property
    def column_comments(self) -> dict[str, str]:
        """Comments of columns by name."""
        return {column.name: self._state.column_comments[column.id] for column in self.schema if column.id in self._state.column_comments}

    @property
    def options(self) -> Options:
        """Effective options of the table (table over schema over lake, then the defaults), as typed values."""
        return Options.from_mapping(self._state.options)

    def tags(self) -> dict[str, str]:
        """Return all tags of the table by key, the comment included."""
        with self._lake.reader() as reader:
            return object_tags(reader, self._state.id, self.snapshot_id)

    def column_tags(self) -> dict[str, dict[str, str]]:
        """Return all tags of columns by the column's name, comments included; columns without any are left out."""
        with self._lake.reader() as reader:
            found = column_tags(reader, self._state.id, self.snapshot_id)
        return {column.name: found[column.id] for column in self.schema if column.id in found}

    def list_files(self) -> list[DataFile]:
        """Return live data files by id, each with its delete files, sizes, partition values and (masked) encryption key.

        Positions that are deleted through the catalog stand in ``inlined_deletes``; inlined rows are in no file.
        """
        with self._lake.reader() as reader:
            return [file for file, _ in data_files(reader, self._state)]

    def refresh(self) -> Table:
        """Return the same table (by id, so renames do not matter) at the newest snapshot."""
        with self._lake.reader() as reader:
            state = self._same(reader.table_by_id(self._state.id, reader.latest_snapshot().id))
        return Table(self._lake, state)

    def _same(self, state: TableState) -> TableState:
        """Return the state unless its uuid shows that it belongs to another table with this id."""
        if state.uuid != self._state.uuid:
            raise NotFoundError(
                f"table {self.name} is gone: the catalog was replaced, by a backup or a new lake, and {state.qualified_name} has its id",
                table=self.name,
            )
        return state

    def info(self) -> TableInfo:
        """Return rows, files and bytes, as :meth:`DuckLake.table_info` gives them."""
        with self._lake.reader() as reader:
            size = table_size(reader, self._state)
        return self._lake.counted(size)

    def column_summaries(self) -> dict[str, ColumnSummary]:
        """Return counts and bounds of every leaf column (dotted paths), from file statistics alone."""
        with self._lake.reader() as reader:
            return column_summaries(reader, self._state)

    def snapshots(self) -> list[Snapshot]:
        """Return snapshots that changed this table, its rows or its files, or gave it a name, by id ascending."""
        with self._lake.reader() as reader:
            return snapshots_about(reader, self._state)

    def last_row_change(self, *, author: str | None = None) -> Snapshot | None:
        """Return the newest snapshot, up to the opened one, that added or deleted rows of this table; None when it expired or never was.

        The last thousand snapshots are looked through first, and ten times as many each time: one statement where the table was changed
        by one of them, and four whatever the number of others in a history of a million.

        Args:
            author: Only commits of this author.
        """
        arguments.optional(storable, "author", author)
        with self._lake.reader() as reader:
            return last_row_change(reader, self._state.id, resolve_at(reader, self._at).id, author)

    def row_changes(self, after: int = -1, *, author: str | None = None, limit: int | None = None) -> list[Snapshot]:
        """Return snapshots after one, up to the opened one, that added or deleted rows of this table, newest first, without expired ones.

        One statement, which looks through the log of changes from there on; with a limit, as :meth:`last_row_change` does.

        Args:
            after: Snapshot id.
            author: Only commits of this author.
            limit: How many at most.
        """
        arguments.optional(storable, "author", author)
        after, limit = arguments.whole_number("after", after), arguments.optional(arguments.row_count, "limit", limit)
        with self._lake.reader() as reader:
            return row_changes(reader, self._state.id, after, resolve_at(reader, self._at).id, author, limit)

    def scan(self, columns: Sequence[str] | None = None, where: Where = None, limit: int | None = None) -> Scan:
        """Return a lazy scan at this object's snapshot: ``.to_arrow()``, ``.to_pandas()``, ``.to_spark(session)``, ``.explain()`` and more.

        Args:
            columns: Columns to return, in order, all when None; may name ``rowid``, ``snapshot_id``, ``filename`` and
                ``file_row_number``.
            where: SQL text (DuckDB dialect), or a condition built with :func:`ducklake_core.col`.
            limit: Rows to return at most, whichever; reading ends with them.
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

    def insertions(self, start: Bound, end: At = None, *, columns: Sequence[str] | None = None, where: Where = None) -> ChangeFeed:
        """Return the rows that were added from ``start`` to ``end``, both included; see :meth:`changes` for the arguments.

        Columns are ``snapshot_id`` (the snapshot that added the row), ``rowid``, then the table's. Rows that were deleted again
        are there as well; an updated row is there with its new values.

        Args:
            start: The first snapshot: its id, or a time with a zone.
            end: The last snapshot; this object's when None (the default).
            columns: Columns to return, in order; all when None (the default).
            where: Rows to keep; all when None (the default).
        """
        return self._feed("insertions", start, end, columns, where)

    def deletions(self, start: Bound, end: At = None, *, columns: Sequence[str] | None = None, where: Where = None) -> ChangeFeed:
        """Return the rows that were deleted from ``start`` to ``end``, both included; see :meth:`changes` for the arguments.

        Columns are ``snapshot_id`` (the snapshot that deleted the row), ``rowid``, then the table's; an updated row is there with
        its old values.

        Args:
            start: The first snapshot: its id, or a time with a zone.
            end: The last snapshot; this object's when None (the default).
            columns: Columns to return, in order; all when None (the default).
            where: Rows to keep; all when None (the default).
        """
        return self._feed("deletions", start, end, columns, where)

    def changes(self, start: Bound, end: At = None, *, columns: Sequence[str] | None = None, where: Where = None) -> ChangeFeed:
        """Read the changes from ``start`` to ``end``, both included.

        Lazy like a scan: ``.to_arrow()``, ``.to_batches()``, ``.to_reader()``, ``.to_spark(session)``, ``.plan()``. Columns are
        ``snapshot_id``, ``rowid``, ``change_type``, then the table's as they are at ``end``. ``change_type`` is ``insert``, ``delete``,
        or for a row that one snapshot deleted and added under the same row id ``update_preimage`` and ``update_postimage``.
        Merging, flushing and rewriting files are no changes. See docs/how-to/change-feed.md.

        Args:
            start: The first snapshot: its id, or a time with a zone, which means the first snapshot at or after it.
            end: The last snapshot: its id, or a time with a zone, which means the last snapshot at or before it; this object's
                snapshot when None. Nothing comes of a range that ends before it starts.
            columns: Columns to return, in order, all when None.
            where: SQL text (DuckDB dialect), or a condition built with :func:`ducklake_core.col`, over the columns of the feed.

        Raises:
            NotFoundError: When the feed runs or is planned: a snapshot of the range was expired, so that changes would be missing.
                At once: ``end`` does not exist, or the table did not exist then.
        """
        return self._feed("changes", start, end, columns, where)

    def _feed(self, kind: FeedKind, start: Bound, end: At, columns: Sequence[str] | None, where: Where) -> ChangeFeed:
        from ducklake_core.scan import ChangeFeed

        state = self._state if end is None else self._state_at(end)
        return ChangeFeed(
            table=state,
            kind=kind,
            start=arguments.snapshot("start", start),
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
        """Add rows. The arguments are as in :meth:`DuckLake.write`; ``commit`` takes author, message, extra_info and commit_id.

        Args:
            data: Rows, as :meth:`DuckLake.write` takes them.
            schema_evolution: ``strict`` (the default) or ``additive``.
            missing_columns: ``error`` or ``null``, for columns that ``data`` lacks.
            inline: Whether few rows are kept in the catalog; Arrow data only when None (the default).
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.
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
        """Replace the rows that match ``where``, or those of ``partitions``, (all without either) by ``data``, in one commit.

        Args:
            data: Rows that are all within what is replaced; one outside is an error before anything is committed. Without rows, what is
                replaced is deleted, and the columns of ``data`` do not matter.
            where: SQL text, or a condition built with :func:`ducklake_core.col`.
            partitions: Partitions of the table's present keys, each by the values of all keys, named as in ``partition_by``:
                ``[{"carrier": "UA", "month(day)": 3}]``; None is NULL. ``"in_data"`` replaces those partitions that rows of ``data``
                are in, and leaves all others alone (dynamic partition overwrite).
            schema_evolution: As in :meth:`DuckLake.write`; ``missing_columns``, ``inline`` and ``commit`` too.
            concurrent_appends: What happens when another writer commits rows to the replaced slice after this call has read it:
                ``fail`` raises a conflict, ``replace`` replaces these rows too. Rows outside of the slice are never in the way.
            read_at: Id of the snapshot that ``data`` was computed from. With it, rows that were committed to the slice after that
                snapshot count as well, and not only those that come while this call runs.

        Raises:
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
        """Replace the rows whose ``on`` columns equal those of a row of ``data``, and add the others, in one commit.

        Columns that ``data`` lacks keep their values in the rows that match, whatever ``missing_columns`` says: the rows are updated and
        keep their row ids. New rows get the column's default or, where ``missing_columns="null"`` or ``schema_evolution="additive"``
        allows it, NULL.

        Args:
            data: The rows; no two with the same key.
            on: Name of the key column, or names of several.
            schema_evolution: As in :meth:`DuckLake.write`; ``missing_columns``, ``inline`` and ``commit`` too.
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
        """Make Parquet files of another writer part of the table, as they are and where they are. No row is read or copied.

        **From then on the files belong to the lake**: once their rows are deleted, overwritten, merged or expired, ``cleanup_old_files``
        deletes the files themselves, regardless of who wrote them and who else reads them. Nothing may change them any more.

        Columns are found by name without regard to case. A column of a file has the table's type or one that DuckDB
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
            for_duckdb: Whether DuckDB must be able to read the files (the default). False also adds files with repeated columns that
                lack the annotation LIST, as protobuf and Thrift writers make them: this library and Spark read them, DuckDB returns
                NULL or fails.
            spark: Reads the footers on the executors of a session, for very many files; otherwise threads of this process do.
            commit: author, message, extra_info and commit_id, as in :meth:`DuckLake.write`.

        Raises:
            NotFoundError: Nothing is there.
            CorruptFileError: A file is no Parquet file, or is cut.
            SchemaError: A column is missing, unknown, of another type, or has NULLs that the table does not allow.
            UsageError: The table is partitioned, and neither path nor statistics determine the value of a key for all rows of a file.
            AlreadyExistsError: A file belongs to the lake already, or is scheduled for deletion.
            UnsupportedFeatureError: A place that the lake may not name, an encrypted lake, or a column that only DuckDB adds.
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
        return single_result(tx.result, self.name, self._state.id)

    def _write(self, data: FrameLike, request: WriteRequest, commit: Mapping[str, Any]) -> WriteResult:
        self._check_writable()
        return write(self._lake, data, request, commit)

    def _transaction(self, commit: Mapping[str, Any]) -> Transaction:
        """Return a transaction for one change of the table."""
        self._check_writable()
        return autocommit(self._lake, commit)

    def _check_writable(self) -> None:
        self._lake.database.check_not_read_only()
        if self._at is not None:
            raise UsageError(
                f"table {self.name} was opened at snapshot {self.snapshot_id} and cannot be written; open it without at=...",
                table=self.name,
                snapshot_id=self.snapshot_id,
            )

    # Change rows

    def delete(self, where: Where, *, spark: SparkSession | None = None, **commit: Unpack[CommitOptions]) -> WriteResult:
        """Delete the rows for which ``where`` is true. ``where=None`` deletes all rows.

        With ``spark``, a session, the rows are found by its executors.

        Args:
            where: SQL text, or a condition built with :func:`ducklake_core.col`; None for all rows.
            spark: Session whose executors find the rows; this process does when None (the default).
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.
        """
        with self._transaction(commit) as tx:
            tx.delete(self.name, where, spark=spark)
        return single_result(tx.result, self.name, self._state.id)

    def update(
        self, values: Mapping[str, object], *, where: Where = None, spark: SparkSession | None = None, **commit: Unpack[CommitOptions]
    ) -> WriteResult:
        """Change columns of the rows for which ``where`` is true (all without it), in one commit. Rows keep their row ids.

        Args:
            values: For each column the value that it gets: SQL text over the columns of the row (DuckDB dialect;
                ``{"price": "price * 1.1", "name": "'new'"}``), or a Python value other than a string as a constant.
            where: SQL text, or a condition built with :func:`ducklake_core.col`.
            spark: A Spark session, whose executors do the work, and which evaluates what Arrow does not (see
                docs/how-to/row-changes.md). Without it the work is done in this process.

        Raises:
            UnsupportedFeatureError: An expression that only a SQL engine can evaluate, and no session.
            SchemaError: A value that does not fit its column, NULL in a NOT NULL column.
            NotFoundError: A column that does not exist.
        """
        with self._transaction(commit) as tx:
            tx.update(self.name, values, where=where, spark=spark)
        return single_result(tx.result, self.name, self._state.id)

    def merge(
        self, source: FrameLike, *, on: str | Sequence[str], missing_columns: MissingColumns | None = None, **commit: Unpack[CommitOptions]
    ) -> Merge[WriteResult]:
        """Change, delete and add rows from a source, in one commit: name the branches, then ``execute()``.

        Args:
            source: Rows as :meth:`DuckLake.write` takes them. Those in this process are held in memory; a Spark DataFrame's session
                does the work.
            on: Name or names of columns that both have, or a condition over ``t.column`` (the table) and ``s.column`` (the source)
                with at least one equality of a column of each. NULL equals nothing.
            missing_columns: What ``when_not_matched_insert()`` does when the source lacks columns of the table that have no default:
                ``error`` (the default) raises :class:`SchemaError`, ``null`` writes NULL. Values that are named one by one are written as
                they are named.

        Returns:
            The merge, to which branches are added; see :class:`~ducklake_core.merge_builder.Merge`. ``commit`` is as for
            :meth:`append`.
        """
        self._check_writable()
        arguments.check_commit(commit)

        def carry_out(clauses: Sequence[MergeClause]) -> WriteResult:
            with self._transaction(commit) as tx:
                tx.merge_clauses(self.name, source, on, clauses, missing_columns=missing_columns)
            return single_result(tx.result, self.name, self._state.id)

        return Merge(self.name, carry_out)

    def restore(
        self, at: At, *, columns: RestoredColumns | None = None, spark: SparkSession | None = None, **commit: Unpack[CommitOptions]
    ) -> WriteResult:
        """Make the rows those of an earlier snapshot, as a new snapshot: history stays as it is, and later snapshots can be restored too.

        Rows that are the same are left alone; those that came since are deleted, and those that went are written again with
        the row ids that they had.

        Args:
            at: Id of the snapshot, or a time with a zone, which means the last snapshot at or before it.
            columns: What becomes of the columns when they were changed since: ``"then"`` makes them those of the snapshot again,
                values of columns that were dropped included; ``"now"`` leaves them as they are, where earlier rows have what
                they would have today. Required then.
            spark: A Spark session, whose executors do the work. Without it the work is done in this process.

        Raises:
            NotFoundError: There is no such snapshot (any more), or the table did not exist then.
            UsageError: The columns were changed since, and ``columns`` is not given; or ``"then"`` takes away a column that the
                table is partitioned or sorted by now.
        """
        with self._transaction(commit) as tx:
            tx.restore(self.name, at=at, columns=columns, spark=spark)
        return single_result(tx.result, self.name, self._state.id)

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
        """Add a nullable column or field at the end; rows that are there have its default. See :meth:`Transaction.add_column`.

        Args:
            column: Name of the new column, or path of a field.
            data_type: Type of DuckLake or DuckDB as a string, or an Arrow type.
            default: Value of rows that lack it; NULL when None (the default).
            if_not_exists: Whether to do nothing when it exists, instead of raising. Default: False.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.
        """
        with self._transaction(commit) as tx:
            tx.add_column(self.name, column, data_type, default=default, if_not_exists=if_not_exists)
        return tx.result.snapshot

    def drop_column(self, column: ColumnName, *, if_exists: bool = False, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Drop a column or field. Earlier snapshots keep it.

        Args:
            column: Name of the column, or path of a field.
            if_exists: Whether to do nothing when there is no such column, instead of raising. Default: False.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.
        """
        with self._transaction(commit) as tx:
            tx.drop_column(self.name, column, if_exists=if_exists)
        return tx.result.snapshot

    def rename_column(self, column: ColumnName, new_name: str, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Rename a column or field; ``new_name`` is the name as it is, without a path.

        Args:
            column: Name of the column, or path of a field.
            new_name: The new name, without a path.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.
        """
        with self._transaction(commit) as tx:
            tx.rename_column(self.name, column, new_name)
        return tx.result.snapshot

    def set_column_type(self, column: ColumnName, data_type: TypeLike, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Give a column or field a type that can hold its values; a struct may gain and lose fields by it.

        Args:
            column: Name of the column, or path of a field.
            data_type: Type of DuckLake or DuckDB as a string, or an Arrow type.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.
        """
        with self._transaction(commit) as tx:
            tx.set_column_type(self.name, column, data_type)
        return tx.result.snapshot

    def set_default(
        self, column: ColumnName, value: object = None, *, expression: str | None = None, **commit: Unpack[CommitOptions]
    ) -> Snapshot | None:
        """Give a column another default for new rows: a value, or SQL that is computed when rows lack it.

        Args:
            column: Name of the column, or path of a field.
            value: The value; None for no default.
            expression: SQL instead of a value, computed for each statement.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.
        """
        with self._transaction(commit) as tx:
            tx.set_default(self.name, column, value, expression=expression)
        return tx.result.snapshot

    def drop_default(self, column: ColumnName, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Take away a column's default.

        Args:
            column: Name of the column, or path of a field.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.
        """
        with self._transaction(commit) as tx:
            tx.drop_default(self.name, column)
        return tx.result.snapshot

    def set_not_null(self, column: ColumnName, *, spark: SparkSession | None = None, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Make a column NOT NULL, after its data proves that it can be; with ``spark``, a session, its executors look.

        Args:
            column: Name of the column, or path of a field.
            spark: Session whose executors check the rows; this process does when None (the default).
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.
        """
        with self._transaction(commit) as tx:
            tx.set_not_null(self.name, column, spark=spark)
        return tx.result.snapshot

    def drop_not_null(self, column: ColumnName, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Let a column be NULL.

        Args:
            column: Name of the column, or path of a field.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.
        """
        with self._transaction(commit) as tx:
            tx.drop_not_null(self.name, column)
        return tx.result.snapshot

    def set_partitioned_by(self, keys: Sequence[str], **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Partition new files by other keys: ``"carrier"``, ``"month(day)"``, ``"bucket(8, id)"``.

        Args:
            keys: The partition keys, in order.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.
        """
        with self._transaction(commit) as tx:
            tx.set_partitioned_by(self.name, keys)
        return tx.result.snapshot

    def reset_partitioned_by(self, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """No longer partition new files."""
        with self._transaction(commit) as tx:
            tx.reset_partitioned_by(self.name)
        return tx.result.snapshot

    def set_sorted_by(self, keys: Sequence[str], **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Sort new files by other keys: ``"day DESC NULLS FIRST"``, ``"lower(carrier)"``.

        Args:
            keys: The sort keys, in order.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.
        """
        with self._transaction(commit) as tx:
            tx.set_sorted_by(self.name, keys)
        return tx.result.snapshot

    def reset_sorted_by(self, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """No longer sort new files."""
        with self._transaction(commit) as tx:
            tx.reset_sorted_by(self.name)
        return tx.result.snapshot

    def set_comment(self, text: str | None, *, column: ColumnName | None = None, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Comment on the table or one of its columns; None takes the comment away.

        Args:
            text: The comment; None deletes it.
            column: Name of a column, or path of a field; the table when None (the default).
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.
        """
        with self._transaction(commit) as tx:
            tx.set_comment(self.name, text, column=column)
        return tx.result.snapshot

    def set_tag(self, key: str, value: str | None, *, column: ColumnName | None = None, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Give the table a tag: a string under a key; None takes the tag away. A column can have the tag ``comment`` alone.

        Args:
            key: Key of the tag.
            value: The value; None deletes the tag.
            column: Name of a column, or path of a field; the table when None (the default).
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.
        """
        with self._transaction(commit) as tx:
            tx.set_tag(self.name, key, value, column=column)
        return tx.result.snapshot
