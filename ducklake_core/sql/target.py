"""The operations of a transaction that statements of SQL use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from ducklake_core.format.evolution.schema_edits import ColumnName
    from ducklake_core.format.macros import MacroKind
    from ducklake_core.format.types.schema import Schema
    from ducklake_core.format.types.type_parser import TypeLike
    from ducklake_core.merge_builder import MergeClause
    from ducklake_core.staging.arguments import FrameLike, MissingColumns, SchemaEvolution, Where


# A protocol, because the module of Transaction imports this package.
class StatementTarget(Protocol):
    """The methods of :class:`Transaction` that SQL statements call."""

    def append(
        self,
        name: str,
        data: FrameLike,
        *,
        schema_evolution: SchemaEvolution = "strict",
        missing_columns: MissingColumns | None = None,
        inline: bool | None = None,
    ) -> None:
        """Add rows to a table; see :meth:`DuckLake.write` for the arguments."""

    def delete(self, name: str, where: Where, *, spark: SparkSession | None = None) -> None:
        """Delete the rows for which ``where`` is true; all rows when it is None. It may name virtual columns, such as ``rowid``."""

    def update(self, name: str, values: Mapping[str, object], *, where: Where = None, spark: SparkSession | None = None) -> None:
        """Change columns of the rows for which ``where`` is true; see :meth:`Table.update`."""

    def merge_clauses(
        self,
        name: str,
        source: FrameLike,
        on: str | Sequence[str],
        clauses: Sequence[MergeClause],
        *,
        missing_columns: MissingColumns | None = None,
    ) -> None:
        """Stage a merge whose branches are known."""

    def create_schema(self, name: str, *, if_not_exists: bool = False) -> None:
        """Create a schema; ``sales.europe`` is one in another, ``"sales.europe"`` in quotes one whose name has a dot."""

    def drop_schema(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Drop a schema that is empty, or with ``cascade`` together with its tables, views and macros and the schemas in it."""

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
        """Create a table, which later calls of this transaction may write to and alter."""

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
        """Create a table of the columns and rows of a frame, which may read from a table of that name (``scan.to_reader()``)."""

    def rename_table(self, name: str, new_name: str) -> None:
        """Rename a table within its schema; ``new_name`` is the name as it is, without a schema. Files stay where they are."""

    def drop_table(self, name: str, *, if_exists: bool = False) -> None:
        """Drop a table, with what this transaction has written to it. Earlier snapshots keep it until they expire."""

    def add_column(
        self, table: str, column: ColumnName, data_type: TypeLike, *, default: object = None, if_not_exists: bool = False
    ) -> None:
        """Add a nullable column, or a field of a struct, at the end; existing rows have its default."""

    def drop_column(self, table: str, column: ColumnName, *, if_exists: bool = False) -> None:
        """Drop a column or field. Earlier snapshots keep it; files are not touched."""

    def rename_column(self, table: str, column: ColumnName, new_name: str) -> None:
        """Rename a column or field; ``new_name`` is the name as it is, without a path."""

    def set_column_type(self, table: str, column: ColumnName, data_type: TypeLike) -> None:
        """Give a column or field a type that can hold its values; a struct may gain and lose fields by it."""

    def set_default(self, table: str, column: ColumnName, value: object = None, *, expression: str | None = None) -> None:
        """Give a column another default for new rows; existing rows do not change."""

    def drop_default(self, table: str, column: ColumnName) -> None:
        """Remove a column's default: rows that lack it get NULL from now on."""

    def set_not_null(self, table: str, column: ColumnName, *, spark: SparkSession | None = None) -> None:
        """Make a column NOT NULL, after the data proves that it can be."""

    def drop_not_null(self, table: str, column: ColumnName) -> None:
        """Let a column be NULL."""

    def set_partitioned_by(self, table: str, keys: Sequence[str]) -> None:
        """Partition new files by other keys: ``"carrier"``, ``"month(day)"``, ``"bucket(8, id)"``. Existing files stay."""

    def reset_partitioned_by(self, table: str) -> None:
        """Stop partitioning new files."""

    def set_sorted_by(self, table: str, keys: Sequence[str]) -> None:
        """Sort new files by other keys: ``"day DESC NULLS FIRST"``, ``"lower(carrier)"``."""

    def reset_sorted_by(self, table: str) -> None:
        """Stop sorting new files."""

    def create_view(
        self,
        name: str,
        sql: str,
        *,
        columns: Sequence[str] = (),
        comment: str | None = None,
        or_replace: bool = False,
        if_not_exists: bool = False,
    ) -> None:
        """Create a view."""

    def rename_view(self, name: str, new_name: str) -> None:
        """Rename a view within its schema; ``new_name`` is the name as it is, without a schema."""

    def drop_view(self, name: str, *, if_exists: bool = False) -> None:
        """Drop a view. Views that read it stay, and fail when they are read."""

    def create_macro(
        self,
        name: str,
        definitions: Mapping[str, str],
        *,
        kind: MacroKind = "scalar",
        or_replace: bool = False,
        if_not_exists: bool = False,
    ) -> None:
        """Create a macro, which DuckDB calls: an expression or a query under a name, with parameters."""

    def drop_macro(self, name: str, *, kind: MacroKind = "scalar", if_exists: bool = False) -> None:
        """Drop a macro with all of its definitions."""

    def set_comment(self, name: str, text: str | None, *, column: ColumnName | None = None) -> None:
        """Comment on a table, a view or a column of either; None removes the comment."""

    def set_schema_comment(self, name: str, text: str | None) -> None:
        """Comment on a schema; None removes the comment. DuckDB neither writes nor shows comments on schemas."""
