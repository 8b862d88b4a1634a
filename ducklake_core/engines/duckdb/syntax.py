"""Whether DuckDB can parse SQL, without running any of it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ducklake_core.engines.duckdb.instance import new_instance, require_duckdb
from ducklake_core.errors import UnsupportedFeatureError


def syntax_errors(queries: Sequence[str]) -> list[str | None]:
    """What DuckDB says of each query that it cannot parse, with its version; None for all others, and where DuckDB is not installed.

    Nothing is looked up: tables and functions need not be there. What fails for another reason than its syntax, as being too deep, counts
    as parsed.
    """
    nothing: list[str | None] = [None] * len(queries)
    if not queries:
        return nothing
    try:
        duckdb, connection = require_duckdb(), new_instance()
    except UnsupportedFeatureError:
        return nothing
    try:
        return [_syntax_error(connection.execute("SELECT json_serialize_sql($1)", [query]).fetchall()[0][0]) for query in queries]
    except duckdb.Error:
        # It has been built without JSON.
        return nothing
    finally:
        connection.close()


def _syntax_error(answer: str) -> str | None:
    said = json.loads(answer)
    if not said.get("error"):
        count = len(said.get("statements", ()))
        return None if count == 1 else f"DuckDB {require_duckdb().__version__} finds {count} statements in it, not one query"
    if said.get("error_subtype") != "SYNTAX_ERROR":
        return None
    return f"DuckDB {require_duckdb().__version__} says: {said.get('error_message')}"
