"""Queries by DuckDB in this process, with virtual columns where a query names them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa

from ducklake_core.engines.duckdb.query import Sources, Target, run
from ducklake_core.errors import NotFoundError, UsageError
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema
from ducklake_core.planning.virtual import FILE_INDEX, VIRTUAL_SCHEMA
from ducklake_core.sql.names import TAKE_TEXTS, sources
from ducklake_core.sql.time_travel import identifiers, keyword, tokens_of

if TYPE_CHECKING:
    from ducklake_core.sql.names import Names
    from ducklake_core.staging.context import LakeContext

_BEFORE_STARS = ("SELECT", "DISTINCT", "ALL", ",", ".")
_ALL_COLUMNS = {"NATURAL", "PIVOT", "UNPIVOT", "SUMMARIZE", "DESCRIBE", "COLUMNS", "TABLE"}


def rows_in_process(
    lake: LakeContext, names: Names, sql: str, *, target: Target | None = None, by_name: bool = False
) -> pa.RecordBatchReader:
    """The rows of a query, as a stream.

    DuckDB's views have no columns that ``*`` does not show. A query that names virtual columns, and would not run without them, gets them
    beside the tables' own, unless it asks for all columns of anything.

    Args:
        lake: The lake.
        names: What the query may name.
        sql: The query.
        target: See :func:`ducklake_core.engines.duckdb.query.run`, as for ``by_name``.

    Raises:
        UnsupportedFeatureError: DuckDB is not installed.
        UsageError: DuckDB refuses the query, or fails while it runs; or a virtual column is named beside all columns.
    """
    text, found = sources(lake, names, sql)
    try:
        return run(text, found, target=target, by_name=by_name)
    except (UsageError, NotFoundError) as problem:
        texts = [text, *found.texts]
        extended = _with_virtual(found, {name for one in texts for name in identifiers(one)})
        if extended == found:
            raise
        read = {folded(table.name) for table in extended.tables} | TAKE_TEXTS
        if any(_takes_all_columns(one) for one in texts if read & set(identifiers(one))):
            named = ", ".join(name for name in VIRTUAL_SCHEMA.names if name in identifiers(text))
            raise UsageError(
                f"{problem.message}; {named}: virtual columns are known to queries that name their columns, without *"
            ) from problem
        return run(text, extended, target=target, by_name=by_name)


def _with_virtual(found: Sources, mentioned: set[str]) -> Sources:
    wanted = [column for column in VIRTUAL_SCHEMA if column.name in mentioned and column != FILE_INDEX]
    tables = []
    for table in found.tables:
        more = [column for column in wanted if table.columns.find(column.name) is None]
        tables.append(replace(table, columns=Schema(columns=(*table.columns, *more))) if more else table)
    return replace(found, tables=tuple(tables))


def _takes_all_columns(sql: str) -> bool:
    """Whether a query may show all columns of something.

    >>> [_takes_all_columns(f"{sql} FROM t") for sql in ("SELECT t.*", "SELECT count(*), rowid * 2", "", "SELECT unnest([1, *COLUMNS(a)])")]
    [True, False, True, True]
    """
    words = [keyword(token) for token in tokens_of(sql)]
    counts = Counter(words)
    has_star = any(word == "*" and before in _BEFORE_STARS for before, word in pairwise(words))
    return has_star or counts["FROM"] > counts["SELECT"] or bool(_ALL_COLUMNS & counts.keys())
