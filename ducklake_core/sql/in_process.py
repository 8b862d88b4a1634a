"""Queries by DuckDB in this process, with virtual columns where a query names them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ducklake_core.engines.duckdb.query import Sources, Target, run
from ducklake_core.errors import DuckLakeError, NotFoundError, UsageError
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema
from ducklake_core.planning.virtual import FILE_INDEX, VIRTUAL_SCHEMA
from ducklake_core.sql.names import TAKE_TEXTS, sources
from ducklake_core.sql.time_travel import identifiers
from ducklake_core.view_sql.parsing import CATALOG, PLACEHOLDER

if TYPE_CHECKING:
    from ducklake_core.sql.names import Names
    from ducklake_core.staging.context import LakeContext

_ALL_COLUMNS = (exp.Columns, exp.Pivot, exp.Summarize, exp.Describe, exp.Command)


def rows_in_process(
    lake: LakeContext, names: Names, sql: str, *, target: Target | None = None, by_name: bool = False, describe: bool = False
) -> pa.RecordBatchReader:
    """Return the rows of a query, or DuckDB's description of its columns, as a stream.

    DuckDB's views have no columns that ``*`` does not show. A query that names virtual columns, and would not run without them, gets them
    beside the tables' own, unless it shows all columns of anything, or whole rows.

    Args:
        lake: The lake.
        names: What the query may name.
        sql: The query.
        target: See :func:`ducklake_core.engines.duckdb.query.run`, as for ``by_name``.
        describe: Return the names and types of the columns instead, as ``DESCRIBE`` does.

    Raises:
        UnsupportedFeatureError: DuckDB is not installed.
        UsageError: DuckDB refuses the query, or fails while it runs; or a virtual column is named beside all columns or whole rows.
    """
    text, found = sources(lake, names, sql)
    statement = f"DESCRIBE {text}" if describe else text
    try:
        return run(statement, found, target=target, by_name=by_name)
    except (UsageError, NotFoundError) as problem:
        texts = [text, *found.texts]
        extended = with_virtual_columns(found, texts)
        missing = missing_virtual(texts, problem)
        if not missing or extended == found:
            raise
        check_named_alone(texts, extended, missing, problem)
        return run(statement, extended, target=target, by_name=by_name)


def missing_virtual(texts: Sequence[str], problem: DuckLakeError) -> list[str]:
    """The virtual columns that texts name and that were not found."""
    mentioned = {name for one in texts for name in identifiers(one)}
    return [name for name in VIRTUAL_SCHEMA.names if name in mentioned and name in problem.message.lower()]


def check_named_alone(texts: Sequence[str], extended: Sources, named: Sequence[str], problem: DuckLakeError | None) -> None:
    """Refuse texts that show all columns of something, or whole rows, as the virtual columns that they name would be among them.

    Args:
        texts: Queries or statements.
        extended: What they may name, with the virtual columns.
        named: Names of these.
        problem: What is wrong without them.

    Raises:
        UsageError: They do.
    """
    read = {folded(table.name) for table in extended.tables}
    own = {folded(column.name) for table in extended.tables for column in table.columns}
    if any(_shows_all_columns(one, read, own) for one in texts if (read | TAKE_TEXTS) & identifiers(one)):
        known = "virtual columns are known to queries that name their columns, without * and whole rows"
        before = "" if problem is None else f"{problem.message}; "
        raise UsageError(f"{before}{', '.join(named)}: {known}") from problem


def with_virtual_columns(found: Sources, texts: Sequence[str]) -> Sources:
    """What texts may name, with the virtual columns that they name."""
    mentioned = {name for one in texts for name in identifiers(one)}
    wanted = [column for column in VIRTUAL_SCHEMA if column.name in mentioned and column != FILE_INDEX]
    tables = []
    for table in found.tables:
        more = [column for column in wanted if table.columns.find(column.name) is None]
        tables.append(replace(table, columns=Schema(columns=(*table.columns, *more))) if more else table)
    return replace(found, tables=tuple(tables))


def _shows_all_columns(sql: str, tables: Collection[str], columns: Collection[str]) -> bool:
    """Whether a query may show all columns of something, by ``*`` or as a row, which is what the name of a table stands for.

    >>> [_shows_all_columns(f"SELECT {shown} FROM t AS a", {"t"}, {"k"}) for shown in ("a.*", "a", "count(*), k", "trim(BOTH FROM k)")]
    [True, True, False, False]

    Args:
        sql: The query; one that cannot be parsed may show anything.
        tables: Folded names of the tables.
        columns: Folded names of their columns, which win over those of tables.
    """
    try:
        tree = sqlglot.parse_one(sql.replace(PLACEHOLDER, CATALOG), read="duckdb")
    except SqlglotError:
        return True
    if tree.find(*_ALL_COLUMNS) or any(_reaches(star, tables) for star in tree.find_all(exp.Star)):
        return True
    # What a function finds in a text is not in the tree.
    if any(call.name.lower() == "query" for call in tree.find_all(exp.Anonymous)):
        return True
    rows = {folded(table.alias_or_name) for table in tree.find_all(exp.Table) if folded(table.name) in tables}.difference(columns)
    has_rows = any(not column.table and folded(column.name) in rows for column in tree.find_all(exp.Column))
    return has_rows or any(join.method == "NATURAL" for join in tree.find_all(exp.Join))


def _reaches(star: exp.Star, tables: Collection[str]) -> bool:
    """Whether one of the tables is among what ``*`` shows; subqueries beside it say themselves what they show."""
    if isinstance(star.parent, exp.Count):
        return False
    select = star.find_ancestor(exp.Select)
    if select is None:
        return True
    clauses = [select.args.get("from_") or select.args.get("from"), *(select.args.get("joins") or ())]
    inner = (exp.Select, exp.SetOperation)
    nodes = (node for clause in clauses if clause is not None for node in clause.walk(prune=lambda node: isinstance(node, inner)))
    return any(isinstance(node, exp.Table) and (not node.name or folded(node.name) in tables) for node in nodes)
