"""Queries inside an open transaction, over its base snapshot and staged changes, and the operations of a transaction that SQL uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

import pyarrow as pa

from ducklake_core.engines.arrow.readable import Readable, rows_html, rows_text
from ducklake_core.errors import DuckLakeError, UnsupportedFeatureError, UsageError
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.text import shown
from ducklake_core.format.values.temporal import in_zone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_core.engines.duckdb.relations import TableSource
    from ducklake_core.format.evolution.schema_edits import ColumnName
    from ducklake_core.format.expressions.predicates import Predicate
    from ducklake_core.format.macro_definitions import MacroKind
    from ducklake_core.format.types.data_types import Field
    from ducklake_core.format.types.schema import Schema
    from ducklake_core.format.types.type_parser import TypeLike
    from ducklake_core.merge_builder import MergeClause
    from ducklake_core.sql.names import Names, ScanTable
    from ducklake_core.staging.arguments import FrameLike, MissingColumns, SchemaEvolution, Where
    from ducklake_core.staging.context import LakeContext
    from ducklake_core.staging.namespace import StagedCatalog
    from ducklake_core.staging.publish import CommitCoordinator
    from ducklake_core.staging.reads import TransactionTable


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedQueries:
    """Queries over what a transaction has made.

    Attributes:
        lake: The lake.
        catalog: What is staged; raises an error after the block has ended.
        table: Reads of a table inside the transaction.
        coordinator: Reads of rows with their ids.
        is_done: Whether an earlier run has committed the transaction, so that nothing is staged.
        frames: Frames of the caller that the statement names.
        files: Whether the statement may read files.
    """

    lake: LakeContext
    catalog: Callable[[], StagedCatalog]
    table: Callable[[str], TransactionTable]
    coordinator: CommitCoordinator
    is_done: bool
    frames: tuple[TableSource, ...] = ()
    files: bool = False

    def rows_of(
        self, query: str, target: Sequence[tuple[str, Field]] | None = None, *, by_name: bool = False, spark: SparkSession | None = None
    ) -> FrameLike:
        """Return the rows of a query, as a stream or as a DataFrame of a session.

        Args:
            query: The query; it sees what the transaction has done.
            target: Columns that the rows are for, in their order; values are cast to them as DuckDB casts what is inserted.
            by_name: Whether the query's columns are matched to ``target`` by name.
            spark: The session.
        """
        from ducklake_core.engines.duckdb_instance import require_duckdb
        from ducklake_core.sql.query import rows_in_process

        if spark is not None:
            return self._rows_on_spark(query, target, spark, by_name=by_name)
        require_duckdb("the rows of a query need an engine. Pass a Spark session with spark=")
        rows: FrameLike = rows_in_process(self.lake, self.names(), query, target=target, by_name=by_name, files=self.files)
        return rows

    def columns_of(self, query: str) -> Schema:
        """Return the columns of a query with DuckDB's types, some of which Arrow lacks.

        Raises:
            SchemaError: A type that no column of a lake has, or a name given twice.
        """
        from ducklake_core.engines.duckdb_instance import require_duckdb
        from ducklake_core.sql.query import columns_in_process

        require_duckdb("the rows of a query need an engine. Pass a Spark session with spark=")
        return columns_in_process(self.lake, self.names(), query, files=self.files)

    def check(self, query: str) -> None:
        """Let DuckDB bind a query, if it is installed.

        Raises:
            NotFoundError: A table, column or function does not exist.
            UsageError: DuckDB rejects the query.
        """
        from ducklake_core.engines.duckdb_instance import is_installed
        from ducklake_core.sql.query import check_in_process

        # A repeated transaction may name what its first run has renamed or dropped since.
        if is_installed() and not self.is_done:
            check_in_process(self.lake, self.names(), query, files=self.files)

    def check_view(self, query: str) -> None:
        """Let DuckDB bind the query of a view, as :meth:`check` does.

        Raises:
            NotFoundError: A table does not exist.
            UsageError: DuckDB rejects the query.
        """
        try:
            self.check(query)
        except DuckLakeError as problem:
            # Functions of extensions and files are unknown here, but not to a DuckDB that reads the view.
            if not problem.details.get("runs_elsewhere"):
                raise

    def _rows_on_spark(self, query: str, target: Sequence[tuple[str, Field]] | None, spark: SparkSession, *, by_name: bool) -> FrameLike:
        from ducklake_core.sql.query import Query
        from ducklake_core.sql.time_travel import identifiers

        mentioned = identifiers(query)
        # Spark reads committed files, and would not see rows that are only staged.
        changed = next((one.name for one in self.catalog().tables if one.steps and folded(one.state.name) in mentioned), None)
        if changed is not None:
            raise UnsupportedFeatureError(
                f"Spark does not see the changes of this transaction to {changed}. Leave spark out", table=changed
            )
        frame = Query(self.lake, query, self.catalog().base.id, spark).to_spark()
        if target is None or by_name:
            return frame
        if len(frame.columns) != len(target):
            raise UsageError(
                f"the query has {len(frame.columns)} columns, but the table has {len(target)}. Select one column for each, or use BY NAME"
            )
        return frame.toDF(*(name for name, _ in target))

    def schema(self, name: str) -> Schema:
        """Return the columns of a table as the transaction has made it."""
        return self.catalog().table(name).state.schema

    def without_macros(self, text: str) -> str:
        """Return an expression with macros, as the transaction leaves them, in place of their calls."""
        from ducklake_core.catalog.reading.definitions import without_macro_calls

        return without_macro_calls(text, self.catalog().macros_now)

    def read_with_ids(self, name: str, columns: Sequence[str], where: Predicate | None) -> pa.RecordBatchReader:
        """Read columns and virtual columns of a table as the transaction has made it; any other name is the row id."""
        catalog = self.catalog()
        return self.coordinator.read_with_ids(catalog.table(name), catalog.base, columns, where)

    def has(self, name: str) -> bool:
        """Return whether there is a table or view of a name, as the transaction has made it."""
        return self.kind_of(name) is not None

    def kind_of(self, name: str) -> Literal["table", "view"] | None:
        """Return the object of a name, including the changes of the transaction."""
        if self.catalog().find_table(name) is not None:
            return "table"
        return "view" if self.catalog().find_view(name) is not None else None

    def names(self) -> Names:
        """Return what the transaction sees: the base snapshot, with what is staged in its place."""
        from ducklake_core.sql.names import NamedTable, lake_names

        catalog = self.catalog()
        with self.lake.reader() as reader:
            names = replace(lake_names(self.lake, reader, catalog.base.id), frames=self.frames)
        # An earlier run committed the transaction: the lake has its changes, and nothing is staged.
        if self.is_done:
            return names
        # By id, so that a renamed table is found under its new name only.
        staged = {one.state.id: one for one in catalog.tables}
        kept = [one for one in names.tables if one.id not in staged and not catalog.is_dropped(one.id)]
        own = [
            NamedTable(
                id=one.state.id,
                schema_name=one.state.schema_name,
                name=one.state.name,
                open=self._opener(one.name),
                added_rows=one.rows.row_count,
                staged=one.state,
            )
            for one in staged.values()
        ]
        views = {one.state.id: one.state for one in catalog.views}
        base_views = tuple(one for one in names.views if one.id not in views and not catalog.is_dropped_view(one.id))
        return replace(
            names,
            tables=(*kept, *own),
            views=(*base_views, *views.values()),
            macros=catalog.macros_now(),
            schemas=lambda: [one.name for one in catalog.schemas_now()],
        )

    def _opener(self, name: str) -> Callable[[], tuple[Schema, ScanTable]]:
        def opened() -> tuple[Schema, ScanTable]:
            table = self.table(name)
            return table.schema, lambda columns, where: table.scan(columns=columns, where=where)

        return opened


class StagedQuery(Readable):
    """Rows of a query as a transaction has made them. Made by :meth:`Transaction.sql`."""

    def __init__(self, queries: StagedQueries, sql: str, zone: str) -> None:
        self._queries = queries
        self._sql = sql
        self._zone = zone

    def __repr__(self) -> str:
        return f"<StagedQuery {shown(self._sql)}>"

    def _repr_html_(self) -> str:
        return rows_html(self)

    def show(self) -> None:
        """Print the first rows, with the types of the columns."""
        print(rows_text(self))  # noqa: T201

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream, computed again for each call, inside the transaction's block."""
        with in_zone(self._zone):
            rows = self._queries.rows_of(self._sql)
        assert isinstance(rows, pa.RecordBatchReader)
        return rows


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

    def set_option(self, name: str, value: str | int | bool, *, table: str | None = None) -> None:
        """Set an option for the lake or a table."""

    def unset_option(self, name: str, *, table: str | None = None) -> bool:
        """Remove an option of the lake or a table; return whether it was set."""

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
