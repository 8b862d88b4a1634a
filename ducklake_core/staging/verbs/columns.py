"""The verbs of a transaction that alter a table: columns, keys and comments."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ducklake_core.commit import alterations
from ducklake_core.commit.alterations import Alteration
from ducklake_core.errors import AlreadyExistsError, NotFoundError, UsageError
from ducklake_core.format.evolution.schema_edits import column_path, find_node
from ducklake_core.format.layout.sort_parser import is_column
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.type_parser import data_type_of
from ducklake_core.staging.verbs.base import OpenTransaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_core.format.evolution.schema_edits import ColumnName
    from ducklake_core.format.types.type_parser import TypeLike


class AlterationVerbs(OpenTransaction):
    """Alterations staged by a :class:`Transaction`.

    A ``column`` is a name, or a path below structs, lists and maps: ``"s.z"`` or ``("s", "z")``. Several alterations become one
    change: what is written is the difference between the table at the start and at the end.
    """

    def add_column(
        self, table: str, column: ColumnName, data_type: TypeLike, *, default: object = None, if_not_exists: bool = False
    ) -> None:
        """Add a nullable column, or a field of a struct, at the end; rows that are there have its default.

        Args:
            table: ``table`` or ``schema.table``.
            column: The new column.
            data_type: A type of DuckLake or DuckDB as text, an Arrow type, or one of our own.
            default: Value for rows that lack it, those that are there included.
            if_not_exists: Whether to do nothing when it is there.

        Raises:
            AlreadyExistsError: There is one of that name.
            NotFoundError: No such table, or no such struct.
            UsageError: The default is not a value of the type.
        """
        path = column_path(column)
        try:
            self._alter(table, partial(alterations.add_column, path=path, data_type=data_type_of(data_type), default=default))
        except AlreadyExistsError:
            if not if_not_exists:
                raise

    def drop_column(self, table: str, column: ColumnName, *, if_exists: bool = False) -> None:
        """Drop a column or field. Earlier snapshots keep it; files are not touched.

        Raises:
            NotFoundError: It does not exist.
            UsageError: The table is partitioned or sorted by it.
            SchemaError: It is the only one.
        """
        path = column_path(column)
        if if_exists and not self.repeated:
            try:
                find_node(self._catalog.table(table).state.schema, path)
            except NotFoundError:
                self._catalog.table(table)
                return
        self._alter(table, partial(alterations.drop_column, path=path))

    def rename_column(self, table: str, column: ColumnName, new_name: str) -> None:
        """Rename a column or field; ``new_name`` is the name as it is, without a path.

        Raises:
            NotFoundError: It does not exist.
            AlreadyExistsError: The name is taken.
        """
        self._alter(table, partial(alterations.rename_column, path=column_path(column), name=new_name))

    def set_column_type(self, table: str, column: ColumnName, data_type: TypeLike) -> None:
        """Give a column or field a type that can hold its values; a struct may gain and lose fields by it.

        Allowed is what DuckDB's extension allows (docs/definitions.md).

        Raises:
            SchemaError: The type cannot hold the column's values.
        """
        wanted = data_type_of(data_type)
        self._alter(table, partial(alterations.set_column_type, path=column_path(column), data_type=wanted))

    def set_default(self, table: str, column: ColumnName, value: object = None, *, expression: str | None = None) -> None:
        """Give a column another default for new rows; rows that are there stay as they are.

        Args:
            table: The table.
            column: The column.
            value: The value, None for none.
            expression: Instead of a value, SQL that is computed when rows lack the column, such as ``now()`` or ``uuid()``
                (docs/definitions.md).

        Raises:
            UsageError: A value of another type, or an expression that DuckDB rejects.
            UnsupportedFeatureError: A nested, variant or geometry column.
        """
        path = column_path(column)
        if expression is None:
            self._alter(table, partial(alterations.set_default, path=path, value=value))
            return
        if value is not None:
            raise UsageError("give a value or an expression as the default, not both")
        with self._whole_or_nothing():
            self._alter(table, partial(alterations.set_default_expression, path=path, expression=expression))
            if not self.repeated:
                column_now = find_node(self._catalog.table(table).state.schema, path)
                if column_now.default is not None and column_now.default_is_expression:
                    self._check_expression(table, column_now.default, Schema(columns=()), column_now)

    def drop_default(self, table: str, column: ColumnName) -> None:
        """Take away a column's default: rows that lack it get NULL from now on."""
        self.set_default(table, column, None)

    def set_not_null(self, table: str, column: ColumnName, *, spark: SparkSession | None = None) -> None:
        """Make a column NOT NULL, after the data proves that it can be.

        Rows that others add until the commit are looked at as well. With ``spark``, a session, its executors look.

        Raises:
            SchemaError: A row has NULL in it, or it is a field.
            UsageError: It is NOT NULL already.
        """
        path = column_path(column)
        self._alter(table, partial(alterations.set_nullable, path=path, nullable=False), proves=path, session=spark)

    def drop_not_null(self, table: str, column: ColumnName) -> None:
        """Let a column be NULL.

        Raises:
            UsageError: It is not NOT NULL.
        """
        self._alter(table, partial(alterations.set_nullable, path=column_path(column), nullable=True))

    def set_partitioned_by(self, table: str, keys: Sequence[str]) -> None:
        """Partition new files by other keys: ``"carrier"``, ``"month(day)"``, ``"bucket(8, id)"``. Files that are there stay.

        DuckDB does not find rows of older files by equality with a column that a bucket key has come to (docs/definitions.md).

        Raises:
            NotFoundError: No such column.
            UsageError: No keys, or a transform that the column's type does not have.
        """
        if not keys:
            raise UsageError(f"give the partition keys of {table}, or call reset_partitioned_by", table=table)
        self._alter(table, partial(alterations.set_partitioned_by, keys=_listed(keys)))

    def reset_partitioned_by(self, table: str) -> None:
        """No longer partition new files."""
        self._alter(table, partial(alterations.set_partitioned_by, keys=()))

    def set_sorted_by(self, table: str, keys: Sequence[str]) -> None:
        """Sort new files by other keys: ``"day DESC NULLS FIRST"``, ``"lower(carrier)"``.

        Raises:
            NotFoundError: A key names a column that the table does not have.
            UsageError: No keys, text that is not a key, or a key that DuckDB rejects.
        """
        if not keys:
            raise UsageError(f"give the sort keys of {table}, or call reset_sorted_by", table=table)
        with self._whole_or_nothing():
            self._alter(table, partial(alterations.set_sorted_by, keys=_listed(keys)))
            if not self.repeated:
                state = self._catalog.table(table).state
                for key in state.sort_keys:
                    if not is_column(key):
                        self._check_expression(table, key.expression, state.schema)

    def reset_sorted_by(self, table: str) -> None:
        """No longer sort new files."""
        self._alter(table, partial(alterations.set_sorted_by, keys=()))

    def _alter(self, table: str, alteration: Alteration, *, proves: tuple[str, ...] | None = None, session: Any = None) -> None:
        if self._is_done("alter", table, *_told(alteration)):
            return
        with self._whole_or_nothing():
            staged = self._catalog.table(table)
            self._stage(staged, staged.alteration(alteration, proves=proves, session=session))


def _told(alteration: Alteration) -> tuple[object, ...]:
    """Which alteration it is, as a value that is the same in every run."""
    return (alteration.func.__name__, alteration.keywords) if isinstance(alteration, partial) else ()


def _listed(keys: Sequence[str]) -> Sequence[str]:
    # A text is left as it is, to be refused by what reads the keys.
    return keys if isinstance(keys, str) else tuple(keys)
