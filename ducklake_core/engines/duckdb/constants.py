"""Expressions without columns that DuckDB computes once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from ducklake_core.engines.duckdb.instance import new_instance
from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions.predicates import Literal
from ducklake_core.format.types.data_types import DataType
from ducklake_core.format.types.type_names import duckdb_type
from ducklake_core.format.values.value_text import from_cast_text

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def constant(tree: exp.Expression, data_type: DataType) -> Literal:
    """The value of an expression, in a type.

    Raises:
        UnsupportedFeatureError: DuckDB is not installed, or its value changes from row to row or with the session.
        UsageError: DuckDB refuses to compute it.
    """
    sql = tree.sql(dialect="duckdb")
    with new_instance() as connection:
        _check_constant(sql, tree, connection)
        return Literal(value=_value(sql, data_type, connection), type=data_type)


def query_constant(sql: str, data_type: DataType) -> object:
    """The value that an expression without columns has in a query that begins now, in a type; None for NULL.

    Raises:
        UnsupportedFeatureError: DuckDB is not installed.
        UsageError: DuckDB refuses to compute it.
    """
    with new_instance() as connection:
        return _value(sql, data_type, connection)


def _value(sql: str, data_type: DataType, connection: DuckDBPyConnection) -> object:
    import duckdb

    try:
        found = connection.execute(f"SELECT CAST(CAST(({sql}) AS {duckdb_type(data_type)}) AS VARCHAR)").fetchone()
    except duckdb.Error as problem:
        raise UsageError(f"DuckDB does not compute {sql}: {str(problem).splitlines()[0]}") from problem
    text = None if found is None else found[0]
    return None if text is None else from_cast_text(text, data_type)


def _check_constant(sql: str, tree: exp.Expression, connection: DuckDBPyConnection) -> None:
    tokens = [token.text.lower() for token in DuckDB().tokenize(sql)]
    rows = connection.execute("SELECT DISTINCT function_name FROM duckdb_functions() WHERE stability <> 'CONSISTENT'").fetchall()
    changing = {name for (name,) in rows} | {"uuid", "getvariable", "current_setting", "getenv"}
    found = next((token for token in tokens if token in changing), None)
    if found is not None or tree.find(exp.CurrentUser):
        raise UnsupportedFeatureError(f"{found or 'current_user'} has no constant value")
