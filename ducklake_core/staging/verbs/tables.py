"""The verbs of a transaction that change definitions: schemas and tables, and what others add for columns and views."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ducklake_core.commit import alterations
from ducklake_core.engines.arrow.frame import no_columns
from ducklake_core.engines.frame import Frame, columns_of, frame_of
from ducklake_core.errors import AlreadyExistsError
from ducklake_core.format.evolution.defaults import checked_defaults
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.names import schema_path, split_name
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.type_parser import data_type_of
from ducklake_core.staging.arguments import FrameLike
from ducklake_core.staging.verbs.columns import AlterationVerbs
from ducklake_core.staging.verbs.macros import MacroVerbs
from ducklake_core.staging.verbs.tags import TagVerbs
from ducklake_core.staging.verbs.views import ViewVerbs

if TYPE_CHECKING:
    import pyarrow as pa

    from ducklake_core.format.types.type_parser import TypeLike


class DefinitionVerbs(AlterationVerbs, ViewVerbs, MacroVerbs, TagVerbs):
    """Definitions staged by a :class:`Transaction`."""

    def create_schema(self, name: str, *, if_not_exists: bool = False) -> None:
        """Create a schema; ``sales.europe`` is one in another, ``"sales.europe"`` in quotes one whose name has a dot.

        Raises:
            AlreadyExistsError: It exists.
            NotFoundError: The schema around it does not.
            UnsupportedFeatureError: It would be in another one, and the lake is of version 1.0.
        """
        if self._is_done("create schema", name, is_schema=True):
            return
        path = schema_path(name)
        if self._catalog.find_schema(path) is None:
            self._catalog.create_schema(path)
        elif not if_not_exists:
            raise AlreadyExistsError(f"there is a schema {name!r} already at snapshot {self._catalog.base.id}", schema=name)

    def drop_schema(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Drop a schema that is empty, or with ``cascade`` together with its tables, views and macros and the schemas in it.

        Raises:
            NotFoundError: No such schema.
            UsageError: It is not empty.
        """
        if self._is_done("drop schema", name, is_schema=True):
            return
        state = self._catalog.schema_called(name, if_exists=if_exists)
        if state is not None:
            self._catalog.drop_schema(state, cascade=cascade)

    def create_table(
        self,
        name: str,
        schema: Schema | pa.Schema | Mapping[str, TypeLike] | FrameLike,
        *,
        partition_by: Sequence[str] = (),
        comment: str | None = None,
        or_replace: bool = False,
        if_not_exists: bool = False,
    ) -> None:
        """Create a table, which later calls of this transaction may write to and alter.

        Args:
            name: ``table`` or ``schema.table``.
            schema: Columns of DuckLake, an Arrow schema, a mapping of names to types, or anything with rows whose columns are taken.
            partition_by: Partition keys.
            comment: The table's comment.
            or_replace: Whether to drop a table of that name first.
            if_not_exists: Whether to leave a table (or view) of that name as it is.

        Raises:
            AlreadyExistsError: It exists, or a view has the name.
            NotFoundError: Its schema does not.
            SchemaError: A column that no table can have.
            UsageError: A partition key or default that no table can have.
            UnsupportedFeatureError: A default of a nested, variant or geometry column.
        """
        if self._is_done("create", name):
            return
        schema_name, table_name = split_name(name)
        owner = self._catalog.schema(schema_name)
        columns = checked_defaults(_columns(schema))
        if self._catalog.find_table(name) is not None:
            if if_not_exists:
                return
            if not or_replace:
                raise AlreadyExistsError(f"there is a table {name} already at snapshot {self._catalog.base.id}", table=name)
            with self._catalog.whole_or_nothing():
                self._check_computed(name, columns)
                self._catalog.drop_table(name)
                self._catalog.create_table(owner, table_name, columns, partition_by, comment)
            return
        if if_not_exists and self._catalog.find_view(name) is not None:
            return
        self._check_computed(name, columns)
        self._catalog.create_table(owner, table_name, columns, partition_by, comment)

    def _check_computed(self, table: str, columns: Schema) -> None:
        """Let DuckDB bind defaults that are expressions."""
        for column in columns:
            if column.default is not None and column.default_is_expression:
                self._check_expression(table, column.default, columns, column)

    def create_table_as(
        self,
        name: str,
        data: FrameLike,
        *,
        schema: Schema | pa.Schema | Mapping[str, TypeLike] | FrameLike | None = None,
        partition_by: Sequence[str] = (),
        comment: str | None = None,
        or_replace: bool = False,
    ) -> None:
        """Create a table of the columns and rows of a frame, which may read from a table of that name (``scan.to_reader()``).

        Args:
            name: ``table`` or ``schema.table``.
            data: Rows as :meth:`DuckLake.write` takes them.
            schema: Columns of the table, as for :meth:`create_table`; those of the data when None.
            partition_by: Partition keys of the table.
            comment: Comment of the table.
            or_replace: Drop a table of that name in the same snapshot.

        Raises:
            AlreadyExistsError: It exists, or a view has the name.
            NotFoundError: Its schema does not exist.
        """
        with self._catalog.whole_or_nothing():
            frame = frame_of(data)
            if not frame.schema.columns:
                raise no_columns(frame.kind)
            columns = frame.schema if schema is None else schema
            self.create_table(name, columns, partition_by=partition_by, comment=comment, or_replace=or_replace)
            self.write_frame(name, frame, create=False)

    @abstractmethod
    def write_frame(self, name: str, frame: Frame, *, create: bool = True) -> None:
        """Write a frame to a table; see :meth:`Transaction.write`."""

    def rename_table(self, name: str, new_name: str) -> None:
        """Rename a table within its schema; ``new_name`` is the name as it is, without a schema. Files stay where they are.

        Raises:
            NotFoundError: No such table.
            AlreadyExistsError: A table or view has the new name.
        """
        if self._is_done("rename", name, new_name):
            return
        with self._whole_or_nothing():
            staged = self._catalog.table(name)
            step = staged.alteration(partial(alterations.rename_table, name=new_name))
            self._catalog.move_table(staged, new_name)
            self._stage(staged, step)

    def drop_table(self, name: str, *, if_exists: bool = False) -> None:
        """Drop a table, with what this transaction has written to it. Earlier snapshots keep it until they expire.

        Raises:
            NotFoundError: No such table.
        """
        if self._is_done("drop", name) or (if_exists and self._catalog.find_table(name) is None):
            return
        self._catalog.drop_table(name)


def _columns(given: Any) -> Schema:
    # Schemas of polars are mappings too, to types of their own.
    if isinstance(given, Mapping) and not hasattr(given, "__arrow_c_schema__"):
        return Schema(columns=tuple(Field(name=name, type=data_type_of(data_type)) for name, data_type in given.items()))
    return columns_of(given)
