"""Schemas, tables and views of a lake: each call is one snapshot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ducklake_core.errors import AlreadyExistsError
from ducklake_core.lake_listing import At, Listings
from ducklake_core.results import WriteResult, single_result
from ducklake_core.transaction import Transaction

if TYPE_CHECKING:
    import pyarrow as pa

    from ducklake_core.catalog.state import Snapshot
    from ducklake_core.format.macro_text import MacroKind
    from ducklake_core.format.schema import Schema
    from ducklake_core.format.schema_edits import ColumnName
    from ducklake_core.format.type_parser import TypeLike
    from ducklake_core.table import Table
    from ducklake_core.view import View


class Definitions(Listings, ABC):
    """What makes and drops the objects of a lake. Part of :class:`~ducklake_core.lake.DuckLake`.

    ``commit`` takes author, message, extra_info and commit_id, as in :meth:`DuckLake.transaction`; several definitions become one
    snapshot within a transaction, which has the same verbs. None is returned where nothing had to be changed.
    """

    def create_schema(self, name: str, *, if_not_exists: bool = False, **commit: Any) -> Snapshot | None:
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

    def drop_schema(self, name: str, *, cascade: bool = False, if_exists: bool = False, **commit: Any) -> Snapshot | None:
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
        **commit: Any,
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
        data: Any,
        *,
        partition_by: Sequence[str] = (),
        comment: str | None = None,
        or_replace: bool = False,
        **commit: Any,
    ) -> WriteResult:
        """Create a table of the columns and rows of a frame, in one snapshot.

        Args:
            data: A Spark DataFrame, an Arrow table or reader, or the rows of a scan: ``lake.table("t").scan(...).to_reader()``.
            or_replace: Whether to drop a table of that name in the same snapshot; the frame may still read from it.

        Raises:
            AlreadyExistsError: It exists, or a view has the name.
            NotFoundError: Its schema does not.
        """
        with self.transaction(**commit) as tx:
            tx.create_table_as(name, data, partition_by=partition_by, comment=comment, or_replace=or_replace)
        return single_result(tx.result, name, 0)

    def rename_table(self, name: str, new_name: str, **commit: Any) -> Snapshot | None:
        """Rename a table within its schema; ``new_name`` is the name as it is, without a schema.

        Raises:
            NotFoundError: No such table.
            AlreadyExistsError: A table or view has the new name.
        """
        return self._define(lambda tx: tx.rename_table(name, new_name), commit)

    def drop_table(self, name: str, *, if_exists: bool = False, **commit: Any) -> Snapshot | None:
        """Drop a table. Earlier snapshots keep it until they expire.

        Raises:
            NotFoundError: No such table.
        """
        return self._define(lambda tx: tx.drop_table(name, if_exists=if_exists), commit)

    def create_view(
        self,
        name: str,
        sql: str,
        *,
        columns: Sequence[str] = (),
        comment: str | None = None,
        or_replace: bool = False,
        if_not_exists: bool = False,
        **commit: Any,
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
        **commit: Any,
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

    def drop_macro(self, name: str, *, kind: MacroKind = "scalar", if_exists: bool = False, **commit: Any) -> Snapshot | None:
        """Drop a macro with all of its definitions.

        Raises:
            NotFoundError: No such macro of that kind.
        """
        return self._define(lambda tx: tx.drop_macro(name, kind=kind, if_exists=if_exists), commit)

    def rename_view(self, name: str, new_name: str, **commit: Any) -> Snapshot | None:
        """Rename a view within its schema; ``new_name`` is the name as it is, without a schema.

        Raises:
            NotFoundError: No such view.
            AlreadyExistsError: A view or table has the new name.
        """
        return self._define(lambda tx: tx.rename_view(name, new_name), commit)

    def drop_view(self, name: str, *, if_exists: bool = False, **commit: Any) -> Snapshot | None:
        """Drop a view.

        Raises:
            NotFoundError: No such view.
        """
        return self._define(lambda tx: tx.drop_view(name, if_exists=if_exists), commit)

    def set_comment(self, name: str, text: str | None, *, column: ColumnName | None = None, **commit: Any) -> Snapshot | None:
        """Comment on a table, a view or a column of a table; None takes the comment away.

        Raises:
            NotFoundError: No such table, view or column.
        """
        return self._define(lambda tx: tx.set_comment(name, text, column=column), commit)

    def _define(self, verb: Callable[[Transaction], None], commit: Mapping[str, Any]) -> Snapshot | None:
        with self.transaction(**commit) as tx:
            verb(tx)
        return tx.result.snapshot

    @abstractmethod
    def transaction(
        self,
        *,
        author: str | None = None,
        message: str | None = None,
        extra_info: str | Mapping[str, Any] | None = None,
        commit_id: str | None = None,
    ) -> Transaction:
        """Several changes as one snapshot."""

    @abstractmethod
    def has_table(self, name: str, *, at: At = None) -> bool:
        """Whether ``table`` or ``schema.table`` exists."""

    @abstractmethod
    def table(self, name: str, *, at: At = None) -> Table:
        """A table by its name."""
