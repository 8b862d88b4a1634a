"""Read COPY ... FROM a file as the query of its rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import TokenType

from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions.sql import quoted
from ducklake_core.format.types.names import quoted_path
from ducklake_core.format.types.schema import duckdb_type
from ducklake_core.sql.parts import bracketed, comma_separated, name_of, names_at, reject
from ducklake_core.sql.time_travel import keyword, tokens_of

if TYPE_CHECKING:
    from ducklake_core.format.types.data_types import Field

_SUFFIXES = {".parquet": "PARQUET", ".json": "JSON", ".jsonl": "JSON", ".ndjson": "JSON"}
_READERS = {"PARQUET": "read_parquet", "JSON": "read_json", "CSV": "read_csv"}
_OPTION = re.compile(r"^(\w*)\s*(.*)$", re.DOTALL)
_RENAMED = {"delimiter": "delim", "null": "nullstr"}
"""Options of COPY that the functions call otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFrom:
    """The parts of COPY ... FROM.

    Attributes:
        table: ``schema.table``.
        columns: Names of the columns in the statement; None for all columns of the table.
        query: Makes the query of the rows for the columns.
    """

    table: str
    columns: tuple[str, ...] | None
    query: Callable[[Sequence[Field]], str]


def copy_from(sql: str, *, files: bool) -> CopyFrom:
    """Read COPY table (columns) FROM 'file' (options).

    Args:
        sql: The statement.
        files: Whether SQL may read files.

    Raises:
        UnsupportedFeatureError: SQL may not read files, or the format is not supported.
        UsageError: The statement has no table, or no file.
    """
    tokens = tokens_of(sql)
    parts = names_at(tokens, 1)
    place = 2 * len(parts)
    columns = None
    if parts and place < len(tokens) and tokens[place].token_type == TokenType.L_PAREN:
        end = bracketed(tokens, place)
        columns = tuple(token.text for token in tokens[place + 1 : end - 1] if token.token_type != TokenType.COMMA)
        place = end
    behind = tokens[place : place + 2]
    if not parts or len(behind) < 2 or keyword(behind[0]) != "FROM" or behind[1].token_type != TokenType.STRING:
        raise UsageError("cannot parse the SQL. Write COPY table FROM 'file' (options), or COPY (query) TO 'file' (options)")
    if not files:
        raise UnsupportedFeatureError("SQL cannot read files: pass files=True for COPY ... FROM, or write a frame")
    path, options = behind[1].text, _options(sql, tokens[place + 2 :])
    suffixes = [kind for suffix, kind in _SUFFIXES.items() if path.lower().endswith(suffix)]
    kind = options.pop("format", suffixes[0] if suffixes else "csv").strip("'").upper()
    if kind not in _READERS:
        reject(f"COPY FROM a file of format {kind}", "INSERT INTO table FROM a function that reads it")

    def query(target: Sequence[Field]) -> str:
        arguments = [quoted(path, "duckdb"), *(f"{_RENAMED.get(name, name)} = {value}" for name, value in options.items())]
        if kind != "PARQUET":
            # Values are read as the table's types, and not as what DuckDB would detect.
            types = [f"{quoted(column.name, 'duckdb')}: {quoted(duckdb_type(column.type), 'duckdb')}" for column in target]
            arguments.append(f"columns = {{{', '.join(types)}}}")
        # JSON has names, so that the order of the columns is that of the table.
        chosen = ", ".join(quoted_path((column.name,)) for column in target) if kind == "JSON" else "*"
        return f"SELECT {chosen} FROM {_READERS[kind]}({', '.join(arguments)})"  # noqa: S608 - it is the caller's own SQL

    return CopyFrom(table=name_of(parts), columns=columns, query=query)


def _options(sql: str, tokens: Sequence[Any]) -> dict[str, str]:
    """Return the options in brackets behind the file, in DuckDB's spelling; one without a value is switched on."""
    rest = tokens[1:] if tokens and keyword(tokens[0]) == "WITH" else tokens
    if not rest:
        return {}
    if rest[0].token_type != TokenType.L_PAREN or bracketed(rest, 0) != len(rest):
        raise UsageError("cannot parse the SQL. Write the options of COPY in brackets: COPY table FROM 'file' (HEADER, DELIMITER ';')")
    found = {}
    for option in comma_separated(sql, rest[1:-1]):
        name, value = _OPTION.findall(option.strip())[0]
        found[name.lower()] = value or "true"
    return found
