"""Alterations of one table: each call is one snapshot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from ducklake_core.staging.arguments import CommitOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_core.format.evolution.schema_edits import ColumnName
    from ducklake_core.format.state import Snapshot, TableState
    from ducklake_core.format.types.type_parser import TypeLike
    from ducklake_core.staging.verbs.tables import DefinitionVerbs


class TableAlterations(ABC):
    """Verbs that alter a table, each as one commit.

    Part of :class:`~ducklake_core.table.Table`; the verbs of a transaction say more about each.

    A ``column`` is a name, or a path below structs, lists and maps: ``"s.z"`` or ``("s", "z")``. ``commit`` takes author, message,
    extra_info and commit_id, as in :meth:`DuckLake.transaction`. Returned is the snapshot, None where nothing had to be changed; this
    object stays at the snapshot it was opened at (:meth:`Table.refresh` gives the altered one).
    """

    _state: TableState

    @property
    @abstractmethod
    def name(self) -> str:
        """``schema.table``."""

    def add_column(
        self,
        column: ColumnName,
        data_type: TypeLike,
        *,
        default: object = None,
        if_not_exists: bool = False,
        **commit: Unpack[CommitOptions],
    ) -> Snapshot | None:
        """Add a nullable column or field at the end; rows that are there have its default. See :meth:`Transaction.add_column`."""
        return self._alter(lambda tx: tx.add_column(self.name, column, data_type, default=default, if_not_exists=if_not_exists), commit)

    def drop_column(self, column: ColumnName, *, if_exists: bool = False, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Drop a column or field. Earlier snapshots keep it."""
        return self._alter(lambda tx: tx.drop_column(self.name, column, if_exists=if_exists), commit)

    def rename_column(self, column: ColumnName, new_name: str, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Rename a column or field; ``new_name`` is the name as it is, without a path."""
        return self._alter(lambda tx: tx.rename_column(self.name, column, new_name), commit)

    def set_column_type(self, column: ColumnName, data_type: TypeLike, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Give a column or field a type that can hold its values; a struct may gain and lose fields by it."""
        return self._alter(lambda tx: tx.set_column_type(self.name, column, data_type), commit)

    def set_default(
        self, column: ColumnName, value: object = None, *, expression: str | None = None, **commit: Unpack[CommitOptions]
    ) -> Snapshot | None:
        """Give a column another default for new rows: a value, or SQL that is computed when rows lack it."""
        return self._alter(lambda tx: tx.set_default(self.name, column, value, expression=expression), commit)

    def drop_default(self, column: ColumnName, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Take away a column's default."""
        return self._alter(lambda tx: tx.drop_default(self.name, column), commit)

    def set_not_null(self, column: ColumnName, *, spark: SparkSession | None = None, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Make a column NOT NULL, after its data proves that it can be; with ``spark``, a session, its executors look."""
        return self._alter(lambda tx: tx.set_not_null(self.name, column, spark=spark), commit)

    def drop_not_null(self, column: ColumnName, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Let a column be NULL."""
        return self._alter(lambda tx: tx.drop_not_null(self.name, column), commit)

    def set_partitioned_by(self, keys: Sequence[str], **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Partition new files by other keys: ``"carrier"``, ``"month(day)"``, ``"bucket(8, id)"``."""
        return self._alter(lambda tx: tx.set_partitioned_by(self.name, keys), commit)

    def reset_partitioned_by(self, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """No longer partition new files."""
        return self._alter(lambda tx: tx.reset_partitioned_by(self.name), commit)

    def set_sorted_by(self, keys: Sequence[str], **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Sort new files by other keys: ``"day DESC NULLS FIRST"``, ``"lower(carrier)"``."""
        return self._alter(lambda tx: tx.set_sorted_by(self.name, keys), commit)

    def reset_sorted_by(self, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """No longer sort new files."""
        return self._alter(lambda tx: tx.reset_sorted_by(self.name), commit)

    def set_comment(self, text: str | None, *, column: ColumnName | None = None, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Comment on the table or one of its columns; None takes the comment away."""
        return self._alter(lambda tx: tx.set_comment(self.name, text, column=column), commit)

    def set_tag(self, key: str, value: str | None, *, column: ColumnName | None = None, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Give the table a tag: a text under a key; None takes the tag away. A column can have the tag ``comment`` alone."""
        return self._alter(lambda tx: tx.set_tag(self.name, key, value, column=column), commit)

    @abstractmethod
    def _alter(self, verb: Callable[[DefinitionVerbs], None], commit: Mapping[str, Any]) -> Snapshot | None:
        """One verb as a snapshot of its own; refuses a table that was opened at a snapshot."""
