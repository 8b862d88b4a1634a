"""Schemas, tables and views of a lake: each call is one snapshot. Options: no call is one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from ducklake_core.errors import AlreadyExistsError, CommitConflictError
from ducklake_core.format.types.names import join_name, split_name
from ducklake_core.inspection import Listings
from ducklake_core.maintenance import lake_options
from ducklake_core.results import TransactionResult, WriteResult, single_result
from ducklake_core.sql.verbs import SqlVerbs
from ducklake_core.staging.arguments import At, CommitOptions, FrameLike
from ducklake_core.transaction import Transaction

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from ducklake_core.format.evolution.schema_edits import ColumnName
    from ducklake_core.format.macros import MacroKind
    from ducklake_core.format.state import Snapshot
    from ducklake_core.format.types.schema import Schema
    from ducklake_core.format.types.type_parser import TypeLike
    from ducklake_core.table import Table
    from ducklake_core.view import View


class Definitions(Listings, SqlVerbs):
    """Verbs that create and drop the objects of a lake, and set its options. Part of :class:`~ducklake_core.lake.DuckLake`.

    ``commit`` takes author, message, extra_info and commit_id, as in :meth:`DuckLake.transaction`; several definitions become one
    snapshot within a transaction, which has the same verbs. None is returned where nothing had to be changed.
    """

    def create_schema(self, name: str, *, if_not_exists: bool = False, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Create a schema.

        Raises:
            AlreadyExistsError: It exists.
        """
        try:
            return self._define(lambda tx: tx.create_schema(name, if_not_exists=if_not_exists), commit)
        except AlreadyExistsError:
            # Another writer may have been faster.
            if if_not_exists:
                return None
            raise

    def drop_schema(self, name: str, *, cascade: bool = False, if_exists: bool = False, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Drop a schema, which must be empty unless ``cascade`` drops its tables, views and macros too.

        Raises:
            NotFoundError: No such schema.
            UsageError: It is not empty.
        """
        return self._define(lambda tx: tx.drop_schema(name, cascade=cascade, if_exists=if_exists), commit)

    def create_table(
        self,
        name: str,
        schema: Schema | pa.Schema | Mapping[str, TypeLike],
        *,
        partition_by: Sequence[str] = (),
        comment: str | None = None,
        or_replace: bool = False,
        if_not_exists: bool = False,
        **commit: Unpack[CommitOptions],
    ) -> Table:
        """Create an empty table.

        Args:
            schema: Columns of DuckLake, an Arrow schema, a mapping of names to types, or anything with rows whose columns are
                taken (Arrow table, Spark DataFrame).
            partition_by: Partition keys: ``"carrier"``, ``"month(day)"``, ``"bucket(8, id)"``.
            or_replace: Whether to drop a table of that name in the same snapshot.
            if_not_exists: Whether to leave a table of that name as it is.

        Raises:
            AlreadyExistsError: It exists, or a view has the name.
            NotFoundError: Its schema does not.
            SchemaError: A column or partition key that no DuckLake table can have.
        """
        if not (if_not_exists and self.has_table(name)):
            try:
                self._define(
                    lambda tx: tx.create_table(name, schema, partition_by=partition_by, comment=comment, or_replace=or_replace), commit
                )
            except AlreadyExistsError:
                # It may also be a view that has the name.
                if not (if_not_exists and self.has_table(name)):
                    raise
        return self.table(name)

    def create_table_as(
        self,
        name: str,
        data: FrameLike,
        *,
        schema: Schema | pa.Schema | Mapping[str, TypeLike] | FrameLike | None = None,
        partition_by: Sequence[str] = (),
        comment: str | None = None,
        or_replace: bool = False,
        **commit: Unpack[CommitOptions],
    ) -> WriteResult:
        """Create a table of the columns and rows of a frame, in one snapshot.

        Args:
            schema: Columns of the table, as for :meth:`create_table`; those of the data when None.
            data: Rows as :meth:`DuckLake.write` takes them, such as those of a scan: ``lake.table("t").scan(...).to_reader()``.
            or_replace: Whether to drop a table of that name in the same snapshot; the frame may still read from it.

        Raises:
            AlreadyExistsError: It exists, or a view has the name.
            NotFoundError: Its schema does not.
        """
        with self.transaction(**commit) as tx:
            tx.create_table_as(name, data, schema=schema, partition_by=partition_by, comment=comment, or_replace=or_replace)
        return single_result(tx.result, name, 0)

    def rename_table(self, name: str, new_name: str, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Rename a table within its schema; ``new_name`` is the name as it is, without a schema.

        Raises:
            NotFoundError: No such table.
            AlreadyExistsError: A table or view has the new name.
        """
        return self._define(lambda tx: tx.rename_table(name, new_name), commit)

    def drop_table(self, name: str, *, if_exists: bool = False, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Drop a table. Earlier snapshots keep it until they expire.

        Raises:
            NotFoundError: No such table.
        """
        return self._define(lambda tx: tx.drop_table(name, if_exists=if_exists), commit)

    def undrop_table(
        self,
        name: str,
        *,
        at: At = None,
        new_name: str | None = None,
        spark: SparkSession | None = None,
        **commit: Unpack[CommitOptions],
    ) -> Table:
        """Make a table that was dropped anew, with the definition, rows and row ids that it had.

        It is a new table, with an id of its own: its files are written again, because those of the dropped table are deleted once the
        snapshots that show it expire. Options that were set for the table come back as they are now.

        Args:
            name: ``table`` or ``schema.table``, as it was called when it was dropped (or at the snapshot ``at``).
            at: Snapshot to take it from, by id or time; the last one that shows it when None.
            new_name: Its name in the same schema from now on, without a schema; the old one when None.
            spark: A Spark session, whose executors do the work. Without it the work is done in this process.

        Raises:
            NotFoundError: No table of that name was dropped, every snapshot that shows it was expired, or its schema is gone.
            AlreadyExistsError: A table or view has the name, or the table was not dropped.
        """
        self._define(lambda tx: tx.undrop_table(name, at=at, new_name=new_name, spark=spark), commit)
        return self.table(name if new_name is None else join_name(split_name(name)[0], new_name))

    def restore(self, at: At, *, spark: SparkSession | None = None, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Make the whole lake what it was at an earlier snapshot, as a new snapshot: history stays, and can be gone back to as well.

        Tables have the rows, columns, names, keys, sort orders, comments and tags that they had. What was made since is dropped, what
        was dropped comes back: tables as by :meth:`undrop_table`, schemas, views and macros too. Options have no history and stay.
        Whatever another writer commits meanwhile is looked at as well, and undone.

        Args:
            at: Id of the snapshot, or a time with a zone, which means the last snapshot at or before it.
            spark: A Spark session, whose executors do the work. Without it the work is done in this process.

        Returns:
            The snapshot, None when the lake is as it was.

        Raises:
            NotFoundError: There is no such snapshot, or it was expired.
            CommitConflictError: Other writers committed something in between every time.
        """
        for last in (False, False, False, True):
            try:
                return self._define(lambda tx: tx.restore_lake(at=at, spark=spark), commit)
            except CommitConflictError:
                if last:
                    raise
        raise AssertionError("the loop above returns or raises")

    def create_view(
        self,
        name: str,
        sql: str,
        *,
        columns: Sequence[str] = (),
        comment: str | None = None,
        or_replace: bool = False,
        if_not_exists: bool = False,
        **commit: Unpack[CommitOptions],
    ) -> View:
        """Create a view: a SELECT in DuckDB's SQL under a name, with the names of its columns if they shall not be the query's.

        Raises:
            AlreadyExistsError: A view or table has the name.
            NotFoundError: Its schema does not exist, or something that it reads.
            UsageError: Not one SELECT.
        """
        self._define(
            lambda tx: tx.create_view(name, sql, columns=columns, comment=comment, or_replace=or_replace, if_not_exists=if_not_exists),
            commit,
        )
        return self.view(name)

    def create_macro(
        self,
        name: str,
        definitions: Mapping[str, str],
        *,
        kind: MacroKind = "scalar",
        or_replace: bool = False,
        if_not_exists: bool = False,
        **commit: Unpack[CommitOptions],
    ) -> Snapshot | None:
        """Create a macro for DuckDB: for each list of parameters an expression, or with ``kind="table"`` a SELECT.

        ``lake.create_macro("late", {"minutes, least INTEGER := 15": "minutes > least"})``; see :meth:`Transaction.create_macro`.

        Raises:
            AlreadyExistsError: A macro of that kind has the name.
            NotFoundError: Its schema does not exist.
            UsageError: Parameters or SQL that DuckDB would not take.
        """
        return self._define(
            lambda tx: tx.create_macro(name, definitions, kind=kind, or_replace=or_replace, if_not_exists=if_not_exists), commit
        )

    def drop_macro(
        self, name: str, *, kind: MacroKind = "scalar", if_exists: bool = False, **commit: Unpack[CommitOptions]
    ) -> Snapshot | None:
        """Drop a macro with all of its definitions.

        Raises:
            NotFoundError: No such macro of that kind.
        """
        return self._define(lambda tx: tx.drop_macro(name, kind=kind, if_exists=if_exists), commit)

    def rename_view(self, name: str, new_name: str, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Rename a view within its schema; ``new_name`` is the name as it is, without a schema.

        Raises:
            NotFoundError: No such view.
            AlreadyExistsError: A view or table has the new name.
        """
        return self._define(lambda tx: tx.rename_view(name, new_name), commit)

    def drop_view(self, name: str, *, if_exists: bool = False, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Drop a view.

        Raises:
            NotFoundError: No such view.
        """
        return self._define(lambda tx: tx.drop_view(name, if_exists=if_exists), commit)

    def set_comment(
        self, name: str, text: str | None, *, column: ColumnName | None = None, **commit: Unpack[CommitOptions]
    ) -> Snapshot | None:
        """Comment on a table, a view or a column of a table; None takes the comment away.

        Raises:
            NotFoundError: No such table, view or column.
        """
        return self._define(lambda tx: tx.set_comment(name, text, column=column), commit)

    def set_tag(
        self, name: str, key: str, value: str | None, *, column: ColumnName | None = None, **commit: Unpack[CommitOptions]
    ) -> Snapshot | None:
        """Give a table or a view a tag: a text under a key; None takes the tag away.

        The tag ``comment`` is the comment, which is the only one that DuckDB shows, and the only one that a column can have.

        Raises:
            NotFoundError: No such table, view or column.
            UnsupportedFeatureError: Another tag of a column than its comment: DuckDB cannot attach a lake that has one.
        """
        return self._define(lambda tx: tx.set_tag(name, key, value, column=column), commit)

    def set_schema_comment(self, name: str, text: str | None, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Comment on a schema; None takes the comment away. DuckDB neither writes nor shows comments on schemas.

        Raises:
            NotFoundError: No such schema.
        """
        return self._define(lambda tx: tx.set_schema_comment(name, text), commit)

    def set_schema_tag(self, name: str, key: str, value: str | None, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Give a schema a tag: a text under a key; None takes the tag away. :meth:`schemas` gives them.

        Raises:
            NotFoundError: No such schema.
        """
        return self._define(lambda tx: tx.set_schema_tag(name, key, value), commit)

    def set_option(self, name: str, value: str | int | bool, *, table: str | None = None, schema: str | None = None) -> None:
        """Store an option for the lake, a schema or a table. Makes no snapshot.

        Raises:
            UsageError: Unknown option or a value it cannot have.
        """
        lake_options.set_option(self._database, self._info, name, value, table=table, schema=schema)
        self.table_cache.forget_options()

    def unset_option(self, name: str, *, table: str | None = None, schema: str | None = None) -> bool:
        """Take away an option that was set for the lake, a schema or a table: what holds for more, or the default, is in force again.

        Makes no snapshot.

        Returns:
            Whether the option was set there.

        Raises:
            UsageError: Unknown option.
            NotFoundError: No such table or schema.
        """
        self._database.check_writable()
        was_set = lake_options.unset_option(self._database, self._info, name, table=table, schema=schema)
        self.table_cache.forget_options()
        return was_set

    def _forget_definitions(self) -> None:
        self.table_cache.forget()

    def _carry_out(self, verb: Callable[[Transaction], object], commit: Mapping[str, Any]) -> TransactionResult:
        """Call a verb of a transaction of its own."""
        transaction = self.transaction(**commit)
        with transaction as tx:
            verb(tx)
        return transaction.result

    def _define(self, verb: Callable[[Transaction], None], commit: Mapping[str, Any]) -> Snapshot | None:
        return self._carry_out(verb, commit).snapshot

    @abstractmethod
    def transaction(
        self,
        *,
        author: str | None = None,
        message: str | None = None,
        extra_info: str | Mapping[str, object] | None = None,
        commit_id: str | None = None,
    ) -> Transaction:
        """Several changes as one snapshot."""
