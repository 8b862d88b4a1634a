"""Statements within a transaction."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from ducklake_core.engines.arrow.readable import Readable
from ducklake_core.errors import DuckLakeError, SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.format.types.data_types import NULL, Field
from ducklake_core.format.types.message_text import shown
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.type_parser import data_type_of
from ducklake_core.format.values.time_zones import in_zone
from ducklake_core.staging.staged_table import ChangeRows, StagedTable
from ducklake_core.staging.verbs.rows import RowVerbs
from ducklake_core.staging.verbs.tables import DefinitionVerbs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_core.format.expressions.predicates import Predicate
    from ducklake_core.sql.names import Names, ScanTable
    from ducklake_core.sql.row_changes import ChangeComputed, ComputedChange
    from ducklake_core.staging.arguments import FrameLike, MissingColumns
    from ducklake_core.staging.context import LakeContext
    from ducklake_core.staging.namespace import StagedCatalog
    from ducklake_core.staging.publish import CommitCoordinator
    from ducklake_core.staging.reads import TransactionTable


class StatementVerbs(RowVerbs, DefinitionVerbs):
    """SQL staged by a :class:`Transaction`."""

    @abstractmethod
    def table(self, name: str) -> TransactionTable:
        """Reads of a table as the transaction has made it so far."""

    @abstractmethod
    def append(self, name: str, data: FrameLike, *, missing_columns: MissingColumns | None = None) -> None:
        """Add rows to a table."""

    def sql(self, sql: str, *, spark: SparkSession | None = None, timezone: str | None = None) -> Readable | None:
        """Run one statement of SQL in DuckDB's dialect: it sees what the transaction has done, and is committed with it.

        Args:
            sql: A statement as :meth:`DuckLake.sql` takes it. A query gives rows as the transaction has made them, until its block ends.
            spark: A session for the work; queries on it see the committed tables only, and are refused where the transaction changed one.
            timezone: Time zone of the statement; see :meth:`DuckLake.sql`.

        Raises:
            UsageError: The text is not one statement, or the engine refuses it.
            UnsupportedFeatureError: Something that is not understood, by its name; or no engine for a query.
        """
        from ducklake_core.sql.query import statement_zone
        from ducklake_core.sql.time_travel import is_query

        zone = statement_zone(timezone, spark)
        if is_query(sql):
            if spark is not None:
                raise UnsupportedFeatureError("a query in a transaction runs in this process: leave spark out, or use lake.sql")
            return StagedQuery(self._queries(), sql, zone)
        with in_zone(zone):
            _Statement(self, self._queries(), sql, spark, self._change_computed).carry_out()
        return None

    def _queries(self) -> StagedQueries:
        return StagedQueries(
            lake=self._lake,
            catalog=lambda: self._catalog,
            table=self.table,
            coordinator=self._coordinator,
            is_done=self.repeated is not None,
        )

    def _change_computed(self, name: str, text: str, compute: Callable[[StagedTable], ComputedChange]) -> None:
        """Stage a change of rows that are computed from what the transaction sees.

        They are good as long as nobody changes what they were computed from, so the commit fails when others have.

        Args:
            name: The table.
            text: What tells the change from others.
            compute: Computes it, and says which tables were read.
        """
        if self._is_done("change", name, text):
            return
        with self._whole_or_nothing():
            staged = self._catalog.table(name)
            computed = compute(staged)
            for read in {staged.name, *computed.tables}:
                other = self._catalog.table(read)
                other.guarded = True
                self._coordinator.note_read(other)
            self._select(staged, ChangeRows(request=computed.request, source=computed.source))


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedQueries:
    """Queries over what a transaction has made.

    Attributes:
        lake: The lake.
        catalog: What is staged; it refuses when the block has ended.
        table: Reads of a table inside the transaction.
        coordinator: Reads of rows with their ids.
        is_done: Whether an earlier run has committed the transaction, so that nothing is staged.
    """

    lake: LakeContext
    catalog: Callable[[], StagedCatalog]
    table: Callable[[str], TransactionTable]
    coordinator: CommitCoordinator
    is_done: bool

    def rows_of(
        self, query: str, target: Sequence[tuple[str, Field]] | None = None, *, by_name: bool = False, spark: SparkSession | None = None
    ) -> FrameLike:
        """The rows of a query, as a stream or as a DataFrame of a session.

        Args:
            query: The query; it sees what the transaction has done.
            target: Columns that the rows are for, in their order; values are cast to them as DuckDB casts what is inserted.
            by_name: Whether the names of the query's columns say which of them they are for.
            spark: The session.
        """
        from ducklake_core.engines.duckdb.instance import require_duckdb
        from ducklake_core.sql.in_process import rows_in_process

        if spark is not None:
            return self._rows_on_spark(query, target, spark, by_name=by_name)
        require_duckdb("rows of a query need an engine: give a Spark session (spark)")
        rows: FrameLike = rows_in_process(self.lake, self.names(), query, target=target, by_name=by_name)
        return rows

    def columns_of(self, query: str) -> Schema:
        """Return the columns of a query with DuckDB's types, some of which Arrow lacks.

        Raises:
            SchemaError: A type that no column of a lake has, or a name given twice.
        """
        from ducklake_core.engines.duckdb.instance import require_duckdb
        from ducklake_core.sql.in_process import rows_in_process

        require_duckdb("rows of a query need an engine: give a Spark session (spark)")
        described = rows_in_process(self.lake, self.names(), query, describe=True).read_all()
        columns: list[Field] = []
        for name, kind in zip(described["column_name"].to_pylist(), described["column_type"].to_pylist(), strict=True):
            try:
                columns.append(Field(name=name, type=NULL if kind == '"NULL"' else data_type_of(kind)))
            except DuckLakeError as problem:
                message = f"column {name!r} of the query has type {kind}, which DuckLake does not support. Cast it, for example to VARCHAR"
                raise SchemaError(message, column=name) from problem
        return Schema(columns=tuple(columns))

    def _rows_on_spark(self, query: str, target: Sequence[tuple[str, Field]] | None, spark: SparkSession, *, by_name: bool) -> FrameLike:
        from ducklake_core.sql.query import Query
        from ducklake_core.sql.time_travel import identifiers

        mentioned = identifiers(query)
        changed = next((one.name for one in self.catalog().tables if one.steps and folded(one.state.name) in mentioned), None)
        if changed is not None:
            raise UnsupportedFeatureError(f"Spark does not see what the transaction has done to {changed}: leave spark out", table=changed)
        frame = Query(self.lake, query, self.catalog().base.id, spark).to_spark()
        if target is None or by_name:
            return frame
        if len(frame.columns) != len(target):
            raise UsageError(f"the query has {len(frame.columns)} columns, for {len(target)} of the table")
        return frame.toDF(*(name for name, _ in target))

    def schema(self, name: str) -> Schema:
        """The columns of a table as the transaction has made it."""
        return self.catalog().table(name).state.schema

    def without_macros(self, text: str) -> str:
        """An expression with macros of the base snapshot in place of their calls."""
        from ducklake_core.catalog.reading.macros_in_conditions import without_macro_calls

        with self.lake.reader() as reader:
            return without_macro_calls(reader, text, self.catalog().base.id)

    def read_with_ids(self, name: str, columns: Sequence[str], where: Predicate | None) -> pa.RecordBatchReader:
        """Columns and virtual columns of a table as the transaction has made it; those that it has not are the row id."""
        catalog = self.catalog()
        return self.coordinator.read_with_ids(catalog.table(name), catalog.base, columns, where)

    def has(self, name: str) -> bool:
        """Whether there is a table or view of a name, as the transaction has made it."""
        return self.catalog().find_table(name) is not None or self.catalog().find_view(name) is not None

    def names(self) -> Names:
        """What the transaction sees: the base snapshot, with what is staged in place of it."""
        from ducklake_core.sql.names import NamedTable, lake_names

        catalog = self.catalog()
        with self.lake.reader() as reader:
            names = lake_names(self.lake, reader, catalog.base.id)
        if self.is_done:
            return names
        staged = {one.state.id: one for one in catalog.tables}
        kept = [one for one in names.tables if one.id not in staged and not catalog.is_dropped(one.id)]
        own = [
            NamedTable(
                id=one.state.id,
                schema_name=one.state.schema_name,
                name=one.state.name,
                open=self._opener(one.name),
                added_rows=one.rows.row_count,
            )
            for one in staged.values()
        ]
        views = {one.state.id: one.state for one in catalog.views}
        base_views = tuple(one for one in names.views if one.id not in views and not catalog.is_dropped_view(one.id))
        return replace(names, tables=(*kept, *own), views=(*base_views, *views.values()), macros=catalog.macros_now(names.macros))

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
        """The rows as a stream, computed anew each time, inside the transaction's block."""
        with in_zone(self._zone):
            rows = self._queries.rows_of(self._sql)
        assert isinstance(rows, pa.RecordBatchReader)
        return rows


class _Statement:
    """One statement that changes something."""

    def __init__(
        self, tx: StatementVerbs, queries: StagedQueries, sql: str, spark: SparkSession | None, change_computed: ChangeComputed
    ) -> None:
        from ducklake_core.sql.time_travel import main_word, tokens_of

        tokens = tokens_of(sql)
        self._tx = tx
        self._change_computed = change_computed
        self._queries = queries
        self._sql = sql[: tokens[-1].end + 1]
        self._tokens = tokens[main_word(tokens) :]
        self._spark = spark

    def carry_out(self) -> None:
        from ducklake_core.sql import definition_statements as definitions
        from ducklake_core.sql.parts import parse_statement, refuse
        from ducklake_core.sql.row_changes import change_rows
        from ducklake_core.sql.time_travel import keyword

        words = [keyword(token) for token in self._tokens[:4]]
        if words[0] == "COMMENT":
            definitions.comment(self._tx, self._tokens)
        elif words[0] == "CREATE" and {"MACRO", "FUNCTION"} & set(words[1:]):
            definitions.create_macro(self._tx, self._sql, self._tokens)
        elif words[0] == "ALTER" and definitions.alter_layout(self._tx, self._sql, self._tokens):
            pass
        elif words[0] == "INSERT":
            self._insert()
        elif words[0] in ("UPDATE", "DELETE", "MERGE"):
            change_rows(self._tx, self._queries, self._sql, self._spark, self._change_computed)
        elif words[0] in ("TRUNCATE", "CREATE", "DROP", "ALTER"):
            self._parsed(parse_statement(self._sql))
        else:
            refuse(words[0])

    def _parsed(self, node: exp.Expression) -> None:
        from ducklake_core.sql import definition_statements as definitions
        from ducklake_core.sql.parts import only, refuse, table_name

        match node:
            case exp.TruncateTable():
                only(node, "expressions")
                self._tx.delete(table_name(node.expressions[0]), None, spark=self._spark)
            case exp.Create(kind="TABLE") if node.expression is not None:
                self._create_as(node)
            case exp.Create():
                definitions.create(self._tx, self._sql, self._tokens, node)
            case exp.Drop():
                definitions.drop(self._tx, self._tokens, node)
            case exp.Alter():
                definitions.alter(self._tx, node)
            case _:
                refuse(" ".join(token.text for token in self._tokens[:6]))

    def _insert(self) -> None:
        from ducklake_core.sql.row_statements import insert_of

        insert = insert_of(self._sql)
        schema = self._queries.schema(insert.table)
        target = [(name, schema.column(name)) for name in insert.given(schema)]
        rows = self._queries.rows_of(insert.query_for(target), target, by_name=insert.by_name, spark=self._spark)
        # Columns that an INSERT does not name get their default or NULL, as in every SQL.
        self._tx.append(insert.table, rows, missing_columns="null")

    def _create_as(self, node: exp.Create) -> None:
        from ducklake_core.sql.definition_statements import partition_keys
        from ducklake_core.sql.parts import find_word, only, table_name, text_between

        only(node, "this", "kind", "expression", "replace", "exists", "properties", "refresh")
        name = table_name(node.this)
        if node.args.get("exists") and self._queries.has(name):
            return
        query = text_between(self._sql, self._tokens, find_word(self._tokens, "AS") + 1)
        # Spark's types are those of its frame.
        columns = self._queries.columns_of(query) if self._spark is None else None
        target = None if columns is None else [(column.name, column) for column in columns]
        rows = self._queries.rows_of(query, target, spark=self._spark)
        keys = partition_keys(self._sql, self._tokens, node)
        self._tx.create_table_as(name, rows, schema=columns, partition_by=keys, or_replace=bool(node.args.get("replace")))
