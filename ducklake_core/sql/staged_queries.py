"""Queries inside an open transaction, over its base snapshot and what it has staged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from ducklake_core.engines.arrow.readable import Readable
from ducklake_core.errors import DuckLakeError, SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.format.types.data_types import NULL, Field
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.text import shown
from ducklake_core.format.types.type_parser import data_type_of
from ducklake_core.format.values.temporal import in_zone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_core.engines.duckdb.relations import TableSource
    from ducklake_core.format.expressions.predicates import Predicate
    from ducklake_core.sql.names import Names, ScanTable
    from ducklake_core.staging.arguments import FrameLike
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
    """

    lake: LakeContext
    catalog: Callable[[], StagedCatalog]
    table: Callable[[str], TransactionTable]
    coordinator: CommitCoordinator
    is_done: bool
    frames: tuple[TableSource, ...] = ()

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
        rows: FrameLike = rows_in_process(self.lake, self.names(), query, target=target, by_name=by_name)
        return rows

    def columns_of(self, query: str) -> Schema:
        """Return the columns of a query with DuckDB's types, some of which Arrow lacks.

        Raises:
            SchemaError: A type that no column of a lake has, or a name given twice.
        """
        from ducklake_core.engines.duckdb_instance import require_duckdb
        from ducklake_core.sql.query import rows_in_process

        require_duckdb("the rows of a query need an engine. Pass a Spark session with spark=")
        described = rows_in_process(self.lake, self.names(), query, describe=True).read_all()
        columns: list[Field] = []
        for name, kind in zip(described["column_name"].to_pylist(), described["column_type"].to_pylist(), strict=True):
            try:
                # DuckDB describes an untyped NULL as "NULL", with the quotes.
                columns.append(Field(name=name, type=NULL if kind == '"NULL"' else data_type_of(kind)))
            except DuckLakeError as problem:
                message = f"column {name!r} of the query has type {kind}, which DuckLake does not support. Cast it, for example to VARCHAR"
                raise SchemaError(message, column=name) from problem
        return Schema(columns=tuple(columns))

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
                is_staged=True,
            )
            for one in staged.values()
        ]
        views = {one.state.id: one.state for one in catalog.views}
        base_views = tuple(one for one in names.views if one.id not in views and not catalog.is_dropped_view(one.id))
        return replace(names, tables=(*kept, *own), views=(*base_views, *views.values()), macros=catalog.macros_now())

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

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream, computed again for each call, inside the transaction's block."""
        with in_zone(self._zone):
            rows = self._queries.rows_of(self._sql)
        assert isinstance(rows, pa.RecordBatchReader)
        return rows
