"""UPDATE, DELETE and MERGE: by the verbs in their own language where they know it, else computed by DuckDB where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from ducklake_core.errors import DuckLakeError, NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_core.format.types.names import folded, join_name
from ducklake_core.planning.virtual import ROW_ID
from ducklake_core.sql.parts import name_of
from ducklake_core.sql.plain_changes import Plain
from ducklake_core.sql.row_clauses import row_statement
from ducklake_core.sql.time_travel import identifiers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_core.engines.arrow.merge_source import MergeSource
    from ducklake_core.engines.arrow.row_request import ChangeRequest
    from ducklake_core.engines.duckdb.query import Sources
    from ducklake_core.format.types.schema import Schema
    from ducklake_core.sql.statements import StagedQueries, StatementVerbs
    from ducklake_core.staging.staged_table import StagedTable


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedChange:
    """A change of rows that are named by their ids; ``tables`` are the names of those that it was computed from."""

    request: ChangeRequest
    source: MergeSource
    tables: tuple[str, ...]


ChangeComputed: TypeAlias = Callable[[str, str, Callable[["StagedTable"], ComputedChange]], None]
"""Stages what a function computes for the table of a name; the text tells the change from others."""


def change_rows(tx: StatementVerbs, queries: StagedQueries, sql: str, spark: SparkSession | None, change_computed: ChangeComputed) -> None:
    """Carry out an UPDATE, DELETE or MERGE.

    Raises:
        UnsupportedFeatureError: A part that the verbs do not know, and DuckDB is not installed.
        UsageError: It cannot be parsed, or is refused.
        NotFoundError: A table or column that does not exist.
    """
    statement = row_statement(sql)
    table = name_of(statement.target)
    plain = Plain(statement=statement, table=table, schema=queries.schema(table))
    try:
        carry_out = _by_verb(tx, queries, plain, spark)
    except DuckLakeError as refusal:
        if spark is not None:
            raise
        _computed(queries, sql, table, refusal, change_computed)
    else:
        carry_out()


def _by_verb(tx: StatementVerbs, queries: StagedQueries, plain: Plain, spark: SparkSession | None) -> Callable[[], None]:
    """What carries out a statement that the verbs know.

    Raises:
        DuckLakeError: They do not, or a part is wrong.
    """
    from ducklake_core.engines.arrow.merge_request import merge_request
    from ducklake_core.engines.arrow.row_request import update_request
    from ducklake_core.engines.frame import frame_of

    table, schema = plain.table, plain.schema
    match plain.statement.kind:
        case "UPDATE":
            values, where = plain.assignments(), plain.where()
            if spark is None:
                known = {name: queries.without_macros(str(value)) for name, value in values.items()}
                update_request(table, schema, known, None if where is None else queries.without_macros(where)).change()
            return lambda: tx.update(table, values, where=where, spark=spark)
        case "DELETE":
            where = plain.where()
            if spark is None and where is not None:
                _check_condition(queries.without_macros(where), schema)
            return lambda: tx.delete(table, where, spark=spark)
        case _:
            on = plain.on()
            frame = frame_of(queries.rows_of(plain.source, spark=spark))
            clauses = plain.clauses(frame.schema)
            if spark is None and clauses:
                merge_request(table, schema, frame.schema, on, clauses).change()
            return lambda: tx.merge_clauses(table, frame.data, on, clauses) if clauses else None


def _check_condition(where: str, schema: Schema) -> None:
    """Refuse a condition that needs an engine, by a look at no rows."""
    from ducklake_core.engines.arrow.evaluate import evaluate
    from ducklake_core.engines.arrow.row_change import nullable_schema
    from ducklake_core.format.expressions.predicate_parser import parse_predicate
    from ducklake_core.format.values.arrow_cast import null_array
    from ducklake_core.planning.virtual import with_virtual

    columns = with_virtual(schema)
    arrow = nullable_schema(columns)
    nothing = pa.RecordBatch.from_arrays([null_array(0, one.type) for one in arrow], schema=arrow)
    evaluate(parse_predicate(where, columns), nothing)


def _computed(queries: StagedQueries, sql: str, table: str, refusal: DuckLakeError, change_computed: ChangeComputed) -> None:
    """Let DuckDB compute the change.

    Raises:
        UnsupportedFeatureError: The refusal, with what to install.
    """
    from ducklake_core.engines.duckdb.instance import require_duckdb
    from ducklake_core.sql.names import sources

    try:
        require_duckdb()
    except UnsupportedFeatureError as missing:
        if not isinstance(refusal, UnsupportedFeatureError) or "package" in refusal.details:
            raise refusal from missing
        message = f"{refusal.message}. With DuckDB in this process it is computed: pip install 'ducklake-dagster[duckdb]'"
        raise UnsupportedFeatureError(message, **refusal.details) from refusal
    text, found = sources(queries.lake, queries.names(), sql)
    try:
        found = _checked(text, found)
    except DuckLakeError as problem:
        raise (refusal if isinstance(refusal, NotFoundError) else problem) from refusal
    change_computed(table, sql, lambda staged: _change(queries, text, found, staged))


def _checked(text: str, found: Sources) -> Sources:
    """What a statement may name, with virtual columns where it names them, once DuckDB has looked at it.

    Raises:
        UsageError: DuckDB refuses it, or it names virtual columns beside all columns.
        NotFoundError: It names something that does not exist.
    """
    from ducklake_core.engines.duckdb.session import check_statement
    from ducklake_core.sql.in_process import check_named_alone, missing_virtual, with_virtual_columns

    named = identifiers(text)
    problem = None
    try:
        check_statement(text, found)
    except (UsageError, NotFoundError) as refused:
        problem = refused
    # DuckDB's own tables have row ids, and views of ours have not.
    if problem is None and ROW_ID.name not in named:
        return found
    texts = [text, *found.texts]
    extended = with_virtual_columns(found, texts)
    missing = [ROW_ID.name] if problem is None else missing_virtual(texts, problem)
    if not missing or extended == found:
        if problem is not None:
            raise problem
        return found
    check_named_alone(texts, extended, missing, problem)
    check_statement(text, extended)
    return extended


def _change(queries: StagedQueries, text: str, found: Sources, staged: StagedTable) -> ComputedChange:
    """What becomes of the rows of a table, as DuckDB computes it over what the transaction sees."""
    from ducklake_core.engines.duckdb.relations import TableSource
    from ducklake_core.sql.computed_changes import computed_change
    from ducklake_core.view_sql.sources import OTHER_SNAPSHOTS

    state, name = staged.state, staged.name
    tables = [one for one in found.tables if one.schema_name != OTHER_SNAPSHOTS]
    of_name = {(folded(one.schema_name), folded(one.name)): one for one in tables}
    named = of_name.get((folded(state.schema_name), folded(state.name)))
    table = TableSource(
        schema_name=state.schema_name,
        name=state.name,
        columns=state.schema if named is None else named.columns,
        read=lambda columns, where: queries.read_with_ids(name, columns, where),
        row_count=None if named is None else named.row_count,
    )
    request, source = computed_change(row_statement(text), text, table, state.schema, found)
    return ComputedChange(request=request, source=source, tables=tuple(join_name(one.schema_name, one.name) for one in tables))
