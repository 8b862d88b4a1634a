"""Turn DuckDB's errors about a statement into errors that name the caller's tables and columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ducklake_core.engines.duckdb_instance import line_of, lines_of
from ducklake_core.errors import DuckLakeError, NotFoundError, UsageError
from ducklake_core.format.expressions.syntax import quoting_hint
from ducklake_core.format.types.names import DEFAULT_SCHEMA, folded, similar_entries
from ducklake_core.format.types.text import similar, similar_in_brackets

if TYPE_CHECKING:
    from ducklake_core.engines.duckdb.query import Sources

_MISSING_COLUMN = re.compile(
    r'(?:Referenced column|(?:Table|Values list) ".*?" does not have a column named|Column) "(?P<name>.+?)"'
    r"(?:$| not found in FROM| does not exist on | in \w+ list not found)"
)
_MISSING_FUNCTION = re.compile(r"(?:\w+ )?(?:Function|Macro) with name (.*?) does not exist")
_EXTENSION_FUNCTION = re.compile(r'(?:\w+ )?Function with name "(.*?)" is not in the catalog, but it exists in the (\w+) extension')
_RUNS_ELSEWHERE = re.compile(r"is not in the catalog, but it exists in the \w+ extension|file system operations are disabled")
_MISSING_CATALOG = re.compile(r'Catalog "(.*?)" does not exist')
_MISSING_TABLE = re.compile(r"Table with name (.*?) does not exist")
_MISSING_ALIAS = re.compile(r'Referenced table "(.*?)" not found')
_IN_QUOTES = re.compile(r'"((?:[^"]|"")+)"')


def error_of(problem: Exception, sql: str, sources: Sources, rejected: Sequence[str] = (), what: str = "query") -> DuckLakeError:
    """Return the error for a statement that DuckDB rejects, or that fails while it runs.

    Args:
        problem: DuckDB's error.
        sql: The statement.
        sources: The tables, views and macros that it may name.
        rejected: The reasons for views and macros that could not be created.
        what: Word for the statement in messages. Default: query.
    """
    import duckdb

    reasons = [line_of(problem), *rejected]
    unreadable = _unreadable(reasons, sources)
    if unreadable is not None:
        return unreadable
    # A DuckDB with the extension, or with access to the file, can run it.
    details = {"runs_elsewhere": True} if any(_RUNS_ELSEWHERE.search(reason) for reason in reasons) else {}
    missing = _missing(problem, sources) if isinstance(problem, duckdb.BinderException | duckdb.CatalogException) else None
    if missing is None and isinstance(problem, duckdb.CatalogException):
        missing = re.sub(r' because schema ".*" does not exist', "", line_of(problem))
    if missing is not None:
        return NotFoundError("; ".join([missing, *rejected]), sql=sql, **details)
    hint = quoting_hint(sql) if isinstance(problem, duckdb.ParserException) else ""
    message = f"DuckDB cannot run the {what}: {line_of(problem)}{hint}"
    return UsageError("; ".join([message, *rejected]), sql=sql, **details)


def _unreadable(reasons: Sequence[str], sources: Sources) -> DuckLakeError | None:
    """Return the error of a view that cannot be read, if DuckDB misses its name."""
    missing = {folded(found[1].strip('"').rpartition(".")[2]) for text in reasons if (found := _MISSING_TABLE.search(text))}
    return next((error for name, error in sources.unreadable if folded(name) in missing), None)


def _missing(problem: Exception, sources: Sources) -> str | None:
    """Return which name does not exist. DuckDB's remark about a schema would mislead: its instance has only those that the query uses."""
    line, others = line_of(problem), _candidates(problem)
    if found := _MISSING_FUNCTION.match(line):
        name = found[1].strip('"')
        return f"there is no function or macro {name} at this snapshot{similar_in_brackets(name, others)}"
    if found := _EXTENSION_FUNCTION.match(line):
        return f"there is no function {found[1]} here: it belongs to DuckDB's extension {found[2]}, which lake.sql does not load"
    if found := _MISSING_CATALOG.match(line):
        return f"there is no schema {found[1]} at this snapshot. If it is a name of the lake: in SQL the lake is called lake"
    if found := _MISSING_TABLE.match(line):
        name = found[1].strip('"')
        schema, _, table = name.rpartition(".")
        views = {(folded(view.schema_name), folded(view.name)) for view in sources.views}
        if (folded(schema or DEFAULT_SCHEMA), folded(table)) in views:
            return f"the view {name} cannot be read"
        near = similar_entries(schema or DEFAULT_SCHEMA, table, sources.listed)
        return f"there is no table or view {name} at this snapshot{near}. List them with SHOW ALL TABLES"
    if found := _MISSING_ALIAS.match(line):
        near = f" (did you mean {' or '.join(map(repr, others))}?)" if others else ""
        return f"the query reads no table {found[1]!r}{near}"
    if found := _MISSING_COLUMN.match(line):
        name = found["name"]
        known = [*(column.name for table in sources.tables for column in table.columns), *others]
        # The query may read a view that does not have the column of its table.
        near = similar(name, [one for one in known if folded(one) != folded(name)])
        advice = f" ({near})" if near else f". If it is a string, write it in single quotes, as in '{name}'"
        return f"there is no column {name!r}{advice}"
    return None


def _candidates(problem: Exception) -> list[str]:
    """Return the names that DuckDB lists below its message."""
    listed = [line for line in lines_of(problem)[1:] if line.startswith(("Candidate ", "Did you mean"))]
    return [name.replace('""', '"') for line in listed for name in _IN_QUOTES.findall(line)]
