"""Changes of the rows of one table: each call is one snapshot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from ducklake_core.merge_builder import Merge, MergeClause
from ducklake_core.staging.arguments import CommitOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_core.results import WriteResult
    from ducklake_core.staging.arguments import At, FrameLike, MissingColumns, RestoredColumns, Where
    from ducklake_core.staging.verbs.rows import RowVerbs


class TableRowChanges(ABC):
    """Verbs that change rows of a table in place, each as one commit. Part of :class:`~ducklake_core.table.Table`."""

    @property
    @abstractmethod
    def name(self) -> str:
        """``schema.table``."""

    def delete(self, where: Where, *, spark: SparkSession | None = None, **commit: Unpack[CommitOptions]) -> WriteResult:
        """Delete the rows for which ``where`` is true. ``where=None`` deletes all rows.

        With ``spark``, a session, the rows are found by its executors.
        """
        return self._change(lambda tx: tx.delete(self.name, where, spark=spark), commit)

    def update(
        self, values: Mapping[str, object], *, where: Where = None, spark: SparkSession | None = None, **commit: Unpack[CommitOptions]
    ) -> WriteResult:
        """Change columns of the rows for which ``where`` is true (all without it), in one commit. Rows keep their row ids.

        Args:
            values: For each column the value that it gets: SQL text over the columns of the row (DuckDB dialect;
                ``{"price": "price * 1.1", "name": "'new'"}``), or a Python value other than a text as a constant.
            where: SQL text, or a condition built with :func:`ducklake_core.col`.
            spark: A Spark session, whose executors do the work, and which evaluates what Arrow does not (see
                docs/row-changes.md). Without it the work is done in this process.

        Raises:
            UnsupportedFeatureError: An expression that only a SQL engine can evaluate, and no session.
            SchemaError: A value that does not fit its column, NULL in a NOT NULL column.
            NotFoundError: A column that does not exist.
        """
        return self._change(lambda tx: tx.update(self.name, values, where=where, spark=spark), commit)

    def merge(
        self, source: FrameLike, *, on: str | Sequence[str], missing_columns: MissingColumns | None = None, **commit: Unpack[CommitOptions]
    ) -> Merge[WriteResult]:
        """Change, delete and add rows by what a source says, in one commit: name the branches, then ``execute()``.

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

        def carry_out(clauses: Sequence[MergeClause]) -> WriteResult:
            return self._change(lambda tx: tx.merge_clauses(self.name, source, on, clauses, missing_columns=missing_columns), commit)

        return Merge(self.name, carry_out)

    def restore(
        self, at: At, *, columns: RestoredColumns | None = None, spark: SparkSession | None = None, **commit: Unpack[CommitOptions]
    ) -> WriteResult:
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
        return self._change(lambda tx: tx.restore(self.name, at=at, columns=columns, spark=spark), commit)

    @abstractmethod
    def _change(self, verb: Callable[[RowVerbs], None], commit: Mapping[str, Any]) -> WriteResult:
        """Run a verb as a transaction of its own."""

    @abstractmethod
    def _check_writable(self) -> None:
        """Raise where nothing can be written through this object."""
