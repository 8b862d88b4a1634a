"""Values and frames that the caller passes with SQL: parameters become constants, frames become tables that the SQL may name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from sqlglot import TokenType

from ducklake_core.engines.arrow.frame import ArrowFrame, arrow_frame, is_a
from ducklake_core.engines.arrow.merge import source_ids
from ducklake_core.engines.arrow.readable import Readable
from ducklake_core.engines.duckdb.relations import TableSource
from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.arguments import COMMIT_OPTIONS
from ducklake_core.format.expressions.conditions import is_missing, python_value
from ducklake_core.format.expressions.parser import literal_of
from ducklake_core.format.expressions.sql import literal_text, quoted
from ducklake_core.format.types.names import DEFAULT_SCHEMA, folded
from ducklake_core.format.values.arrow_cast import cast_to
from ducklake_core.sql.time_travel import command, identifiers, statements_of, tokens_of

if TYPE_CHECKING:
    from ducklake_core.staging.arguments import FrameLike, SqlParameters

Result = TypeVar("Result")


def with_parameters(sql: str, parameters: SqlParameters) -> str:
    """Return the SQL with constants in place of its parameters.

    >>> with_parameters("SELECT * FROM t WHERE a = ? AND b > ?", ["it's", -1])
    "SELECT * FROM t WHERE a =  'it''s'  AND b >  (-1) "
    >>> with_parameters("SELECT $low, $low", {"low": None})
    'SELECT  NULL ,  NULL '

    Args:
        sql: A statement; ``?``, ``?1`` and ``$1`` are parameters by position, which begins at 1, and ``$name`` is one by name.
        parameters: The values: a sequence for positions, a mapping for names. None for SQL without parameters.

    Raises:
        UsageError: A parameter has no value, a value has no parameter, or a value cannot be a constant of SQL.
    """
    if parameters is None and "?" not in sql and "$" not in sql:
        return sql
    if parameters is not None and (isinstance(parameters, str | bytes) or not isinstance(parameters, Mapping | Sequence)):
        raise UsageError(
            f"parameters must be a list of values, or a dict of values by name, not {type(parameters).__name__}", parameter="parameters"
        )
    found = list(_found(sql))
    values: dict[int | str, object] = {}
    if parameters is not None:
        values.update(parameters if isinstance(parameters, Mapping) else enumerate(parameters, 1))
    keys = {key for _, _, key in found}
    missing = [key for key in dict.fromkeys(key for _, _, key in found) if key not in values]
    if missing:
        given = "no parameters were given" if parameters is None else f"the parameters are {', '.join(map(repr, values)) or 'empty'}"
        raise UsageError(f"the SQL has a parameter {_shown(missing[0])} without a value: {given}", parameter="parameters")
    unused = [key for key in values if key not in keys]
    if unused:
        raise UsageError(f"the SQL has no parameter {_shown(unused[0])}", parameter="parameters")
    pieces, done = [], 0
    for start, end, key in found:
        pieces += [sql[done:start], f" {_constant(values[key], key)} "]
        done = end
    return "".join([*pieces, sql[done:]])


def _found(sql: str) -> Iterator[tuple[int, int, int | str]]:
    """Yield the start, the end and the key of each parameter."""
    word, rest = command(sql)
    if word in ("EXPLAIN", "CALL") and rest:
        # Behind these words, the rest of the text is one token.
        skipped = sql.index(rest, tokens_of(sql)[0].end + 1)
        yield from ((start + skipped, end + skipped, key) for start, end, key in _found(rest))
        return
    tokens = tokens_of(sql)
    position = 0
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        # sqlglot reads ``?::`` as an operator of another dialect.
        if token.token_type not in (TokenType.PLACEHOLDER, TokenType.PARAMETER, TokenType.QDCOLON):
            continue
        if after is not None and after.start == token.end + 1 and after.text.isidentifier() and token.text == "$":
            yield token.start, after.end + 1, after.text
        elif after is not None and after.start == token.end + 1 and after.token_type == TokenType.NUMBER:
            yield token.start, after.end + 1, int(after.text)
        else:
            position += 1
            yield token.start, token.start + 1, position


def _shown(key: int | str) -> str:
    return f"${key}" if isinstance(key, str) else f"number {key}"


def _constant(given: Any, key: int | str) -> str:
    value = python_value(given)
    if is_missing(value):
        return "NULL"
    match value:
        case str():
            return quoted(value, "duckdb")
        case timedelta():
            if getattr(value, "nanoseconds", 0):
                raise UsageError(f"the value of parameter {_shown(key)} has nanoseconds, but an interval keeps microseconds: {value!r}")
            return f"(INTERVAL '{value.days} days' + INTERVAL '{value.seconds * 1_000_000 + value.microseconds} microseconds')"
        case list() | tuple():
            return f"[{', '.join(_constant(one, key) for one in value)}]"
        case Integral() if not -(2**127) <= int(value) < 2**128:
            raise UsageError(f"the value of parameter {_shown(key)} is an integer of more than 128 bits")
        case dict() if value and all(isinstance(name, str) for name in value):
            return "{" + ", ".join(f"{quoted(name, 'duckdb')}: {_constant(one, key)}" for name, one in value.items()) + "}"
    try:
        literal = literal_of(value)
    except UsageError as problem:
        raise UsageError(f"the value of parameter {_shown(key)} has no constant in SQL: {type(value).__name__}") from problem
    text = literal_text(literal.value, literal.type, "duckdb")
    # Behind another minus sign, a negative number would begin a comment.
    return f"({text})" if text.startswith("-") else text


def each_statement(
    sql: str, parameters: SqlParameters, frames: Mapping[str, FrameLike], *, commit_id: str | None = None
) -> list[tuple[str, Mapping[str, FrameLike]]]:
    """Return the statements of a text, each with the frames that it names; the last one also has those that none names.

    Args:
        sql: The text.
        parameters: Values of parameters.
        frames: The frames by name.
        commit_id: The commit id of the caller.

    Raises:
        UsageError: There are several statements, and parameters or a commit id.
    """
    statements = statements_of(sql)
    if len(statements) < 2:
        return [(statements[0] if statements else sql, frames)]
    for name, value in (("parameters", parameters), ("commit_id", commit_id)):
        if value is not None:
            raise UsageError(f"{name} can be given for one statement only, but the SQL has {len(statements)}", parameter=name)
    words = [identifiers(one) for one in statements]
    unnamed = {name: frame for name, frame in frames.items() if not any(folded(name) in one for one in words)}
    shared = {name for name in frames if sum(folded(name) in one for one in words) > 1}
    frames = {name: _replayable(name, data) if name in shared else data for name, data in frames.items()}
    named = [{name: frame for name, frame in frames.items() if folded(name) in one} for one in words]
    named[-1] |= unnamed
    return list(zip(statements, named, strict=True))


def run_each(statements: Iterable[tuple[str, Mapping[str, FrameLike]]], run: Callable[[str, Mapping[str, FrameLike]], Result]) -> Result:
    """Run statements one after another, and return the result of the last one.

    Args:
        statements: At least one statement, with its frames.
        run: Runs a statement.
    """
    *others, last = statements
    for one in others:
        result = run(*one)
        if isinstance(result, Readable):
            # The rows are not returned, but an error in the query, such as that of error('...'), ends the call.
            with closing(result.to_reader()) as rows:
                for _ in rows:
                    pass
    return run(*last)


def frame_sources(sql: str, frames: Mapping[str, FrameLike]) -> tuple[TableSource, ...]:
    """Return the caller's frames as tables of the schema ``main``; their rows are held in memory.

    Args:
        sql: The statement that names them.
        frames: The frames by name.

    Raises:
        UsageError: A value that is not a frame, or that the SQL does not name.
        UnsupportedFeatureError: A value is a Spark DataFrame.
    """
    named: Collection[str] = identifiers(sql) if frames else ()
    sources = []
    for name, data in frames.items():
        frame = _frame(name, data)
        if folded(name) not in named:
            raise UsageError(f"Unexpected argument {name!r}. The SQL does not name a table {name}", parameter=name)
        sources.append(_source(name, frame))
    return tuple(sources)


def _replayable(name: str, data: FrameLike) -> FrameLike:
    """Return a frame that several statements can read: a stream can be read only once."""
    frame = _frame(name, data)
    return frame.replayable().data if isinstance(frame.data, pa.RecordBatchReader) else data


def _frame(name: str, data: FrameLike) -> ArrowFrame:
    try:
        if is_a(data, "pyspark", "DataFrame"):
            raise UnsupportedFeatureError(
                f"{name} is a Spark DataFrame, which lake.sql does not read: write it with lake.write, or use spark.sql"
            )
        return arrow_frame(data)
    except UsageError as problem:
        options = ", ".join(COMMIT_OPTIONS)
        message = f"Unexpected argument {name!r}. Commit options are {options}; other names stand for frames that the SQL reads"
        raise UsageError(f"{message}: {problem.message}", parameter=name) from problem


def _source(name: str, frame: ArrowFrame) -> TableSource:
    columns = source_ids(frame.schema)
    data = frame.replayable().data
    assert isinstance(data, pa.Table)
    rows = cast_to(data, columns, physical=False, exact=True)
    return TableSource(
        schema_name=DEFAULT_SCHEMA,
        name=name,
        columns=columns,
        read=lambda names, _: rows.select(list(names)).to_reader(),
        row_count=rows.num_rows,
        is_frame=True,
    )
