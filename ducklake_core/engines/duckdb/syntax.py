"""Parse SQL with DuckDB, and compute constant expressions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from ducklake_core.engines.duckdb_instance import line_of, require_duckdb, shared_connection
from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions.predicates import Literal
from ducklake_core.format.expressions.sql import quoted
from ducklake_core.format.types.data_types import DataType
from ducklake_core.format.types.schema import duckdb_type
from ducklake_core.format.values.value_text import from_cast_text

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def syntax_errors(queries: Sequence[str]) -> list[str | None]:
    """Return DuckDB's message and version for each query that it cannot parse, and None for all others and where DuckDB is not installed.

    DuckDB binds no names, so that tables and functions need not exist. A query that fails for another reason than its syntax, such as its
    depth, counts as parsed.
    """
    nothing: list[str | None] = [None] * len(queries)
    if not queries:
        return nothing
    try:
        duckdb, connection = require_duckdb(), shared_connection()
    except UnsupportedFeatureError:
        return nothing
    try:
        return [_syntax_error(connection.execute("SELECT json_serialize_sql($1)", [query]).fetchall()[0][0]) for query in queries]
    except duckdb.Error:
        # This build of DuckDB lacks the json extension, which has json_serialize_sql().
        return nothing
    finally:
        connection.close()


def _syntax_error(answer: str) -> str | None:
    parsed = json.loads(answer)
    if not parsed.get("error"):
        count = len(parsed.get("statements", ()))
        return None if count == 1 else f"DuckDB {require_duckdb().__version__} finds {count} statements in it, not one query"
    if parsed.get("error_subtype") != "SYNTAX_ERROR":
        return None
    return f"DuckDB {require_duckdb().__version__} reports: {parsed.get('error_message')}"


def constant(tree: exp.Expression, data_type: DataType) -> Literal:
    """Return the value of an expression, in a type.

    Raises:
        UnsupportedFeatureError: DuckDB is not installed, or its value changes from row to row or with the session.
        UsageError: DuckDB rejects or fails to compute it.
    """
    sql = tree.sql(dialect="duckdb")
    with shared_connection() as connection:
        _check_constant(sql, tree, connection)
        return Literal(value=_value(sql, data_type, connection), type=data_type)


def query_constant(sql: str, data_type: DataType) -> object:
    """Return the value that an expression without columns has in a query that begins now, in a type; None for NULL.

    Raises:
        UnsupportedFeatureError: DuckDB is not installed.
        UsageError: DuckDB rejects or fails to compute it.
    """
    with shared_connection() as connection:
        return _value(sql, data_type, connection)


def argument_value(sql: str) -> Any:
    """Return the value of an argument without columns, in Python: times as instants in UTC, intervals as strings, None for NULL.

    Raises:
        UnsupportedFeatureError: DuckDB is not installed.
        UsageError: DuckDB rejects or fails to compute it.
    """
    with shared_connection() as connection:
        kind, text = _computed(f"FROM (SELECT ({sql}) AS v) SELECT typeof(v), to_json(v)::VARCHAR", sql, connection)
        if kind.startswith(("TIMESTAMP", "DATE")) and text is not None:
            (microseconds,) = _computed(f"SELECT epoch_us(CAST(({sql}) AS TIMESTAMPTZ))", sql, connection)
            return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds)
        return None if text is None else json.loads(text)


@cache
def words_of_sql() -> frozenset[str]:
    """Return the words of DuckDB's SQL, in lower case."""
    with shared_connection() as connection:
        return frozenset(word for (word,) in connection.execute("SELECT keyword_name FROM duckdb_keywords()").fetchall())


def constant_text(kind: str, text: str | None) -> str:
    """Return the SQL of a value from its type and its text in DuckDB."""
    return "NULL" if text is None else f"CAST({quoted(text, 'duckdb')} AS {kind})"


def _computed(query: str, sql: str, connection: DuckDBPyConnection) -> tuple[Any, ...]:
    import duckdb

    try:
        found = connection.execute(query).fetchone()
    except duckdb.Error as problem:
        raise UsageError(f"DuckDB cannot compute {sql}: {line_of(problem)}") from problem
    assert found is not None
    return tuple(found)


def _value(sql: str, data_type: DataType, connection: DuckDBPyConnection) -> object:
    (text,) = _computed(f"SELECT CAST(CAST(({sql}) AS {duckdb_type(data_type)}) AS VARCHAR)", sql, connection)
    return None if text is None else from_cast_text(text, data_type)


def _check_constant(sql: str, tree: exp.Expression, connection: DuckDBPyConnection) -> None:
    # Compared by token, so that functions without parentheses (current_date) are found too. A string that equals the name of such a
    # function is rejected unnecessarily, which is the safe side.
    tokens = [token.text.lower() for token in DuckDB().tokenize(sql)]
    rows = connection.execute("SELECT DISTINCT function_name FROM duckdb_functions() WHERE stability <> 'CONSISTENT'").fetchall()
    changing = {name for (name,) in rows} | {"uuid", "getvariable", "current_setting", "getenv"}
    found = next((token for token in tokens if token in changing), None)
    if found is not None or tree.find(exp.CurrentUser):
        raise UnsupportedFeatureError(f"{found or 'current_user'} is not constant, so it cannot be used here. Use a constant value")
