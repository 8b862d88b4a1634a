"""Scans and tables as a person reads them. No file is opened for it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TypeAlias

from ducklake_core.errors import DuckLakeError, UnsupportedFeatureError
from ducklake_core.format.expressions.columns import Column
from ducklake_core.format.expressions.conditions import Combinable, Condition
from ducklake_core.format.expressions.predicate_sql import to_sql
from ducklake_core.format.expressions.predicates import Predicate
from ducklake_core.format.state import TableState
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.message_text import one_line, visible
from ducklake_core.format.types.names import folded, join_name
from ducklake_core.format.types.schema_text import schema_html
from ducklake_core.planning.planner import scan_columns
from ducklake_core.planning.table_info import Size
from ducklake_core.planning.virtual import VIRTUAL_SCHEMA

RowCondition: TypeAlias = str | Predicate | Condition | Column


def condition_text(where: RowCondition) -> str:
    """A condition in one line, as it was given."""
    if isinstance(where, str):
        return one_line(where)
    if isinstance(where, Combinable):
        return one_line(repr(where))
    try:
        return one_line(to_sql(where, "duckdb"))
    except UnsupportedFeatureError:
        return one_line(repr(where))


def scan_text(table: TableState, columns: Sequence[str] | None, where: RowCondition | None, row_limit: int | None) -> str:
    """A scan in one line."""
    asked = [*([] if columns is None else [f"columns {visible(', '.join(columns))}"]), *_rows_asked(where, row_limit)]
    what = f"Scan of {visible(join_name(table.schema_name, table.name))} at snapshot {table.snapshot_id}"
    return f"<{what}: {'; '.join(asked)}>" if asked else f"<{what}>"


def _rows_asked(where: RowCondition | None, row_limit: int | None) -> list[str]:
    condition = [] if where is None else [f"where {condition_text(where)}"]
    return [*condition, *([] if row_limit is None else [f"at most {row_limit:,} rows"])]


def scan_html(table: TableState, columns: Sequence[str] | None, where: RowCondition | None, row_limit: int | None) -> str:
    """A scan for a notebook: what is asked, and the columns that come of it; neither catalog nor files are asked."""
    title = f"<b>Scan of {escape(join_name(table.schema_name, table.name))}</b> at snapshot {table.snapshot_id}"
    asked = "".join(f"<br>{escape(one)}" for one in _rows_asked(where, row_limit))
    hint = "<br><i>head() shows rows, explain() which files are read</i>"
    return f"<div>{title}{asked}{hint}{schema_html(_returned(table, columns), table.column_comments)}</div>"


def _returned(table: TableState, columns: Sequence[str] | None) -> list[Field]:
    try:
        schema, virtual = scan_columns(table.schema, columns)
    except DuckLakeError:
        # What is wrong with the columns is told when the scan runs; those that there are can be chosen from.
        return list(table.schema)
    found = {folded(column.name): column for column in (*schema, *VIRTUAL_SCHEMA.select(virtual))}
    return [found[folded(name)] for name in (schema.names if columns is None else columns)]


def table_html(table: TableState, size: Size | str) -> str:
    """A table for a notebook; ``size`` is what the catalog knows of it, or why it cannot be asked."""
    title = f"<b>{escape(join_name(table.schema_name, table.name))}</b> at snapshot {table.snapshot_id}"
    comment = "" if table.comment is None else f"<br>{escape(table.comment)}"
    return f"<div>{title}{comment}<br>{escape(_size_text(size))}{schema_html(table.schema, table.column_comments)}</div>"


def _size_text(size: Size | str) -> str:
    if isinstance(size, str):
        return f"size unknown: {size}"
    info = size.info
    # Files that also hold rows of later snapshots would have to be opened.
    about = "" if size.plan is None else "about "
    parts = [f"{about}{info.row_count:,} rows", f"{info.file_count:,} files", f"{info.file_size_bytes:,} bytes"]
    if info.partition_by:
        parts.append(f"partitioned by {', '.join(info.partition_by)}")
    return ", ".join(parts)
