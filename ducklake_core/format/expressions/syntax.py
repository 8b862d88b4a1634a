"""Parse SQL text of conditions and expressions, and read the columns and constants in it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import NamedTuple

from sqlglot import Dialect, Token, TokenType, exp
from sqlglot.errors import SqlglotError

from ducklake_core.errors import UsageError
from ducklake_core.format.expressions.comparison import infinity_of, integer_range
from ducklake_core.format.expressions.literals import number_literal, text_literal, to_scale
from ducklake_core.format.expressions.predicates import MAX_LEVELS, Literal
from ducklake_core.format.types.data_types import (
    BOOLEAN,
    DATE,
    FLOATS,
    INTEGERS,
    JSON,
    PRIMITIVES,
    TIMESTAMP,
    TIMESTAMP_NS,
    TIMESTAMPS,
    TIMESTAMPTZ,
    DataType,
    DecimalType,
)
from ducklake_core.format.types.text import parse_failure
from ducklake_core.format.values.temporal import civil_from_days, date_text, days_from_civil, instant, timestamp_text, wall_clock

MAX_BRACKETS = 30
"""Maximum nesting of parentheses, function calls and CASEs; sqlglot's parser needs up to 28 stack frames for each level."""
_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END})

TYPE_NAMES = {
    "INT": "int32", "TINYINT": "int8", "SMALLINT": "int16", "BIGINT": "int64", "INT128": "int128", "UTINYINT": "uint8",
    "USMALLINT": "uint16", "UINT": "uint32", "UBIGINT": "uint64", "UINT128": "uint128", "FLOAT": "float32", "DOUBLE": "float64",
    "BOOLEAN": "boolean", "DATE": "date", "TIME": "time", "TIMESTAMP": "timestamp", "TIMESTAMPNTZ": "timestamp",
    "TIMESTAMP_S": "timestamp_s", "TIMESTAMP_MS": "timestamp_ms", "TIMESTAMP_NS": "timestamp_ns", "TIMESTAMPTZ": "timestamptz",
    "TEXT": "varchar", "VARCHAR": "varchar", "VARBINARY": "blob", "BLOB": "blob", "UUID": "uuid", "JSON": "json",
}  # fmt: skip

_REJECTED: dict[type, str] = {
    exp.Query: "a subquery",
    exp.Exists: "a subquery",
    exp.AggFunc: "an aggregate",
    exp.Window: "a window function",
    exp.Placeholder: "a placeholder",
    exp.Parameter: "a parameter",
    exp.Alias: "an alias",
    exp.Star: "a star",
    exp.Rand: "a random value",
}


def shown(text: str) -> str:
    """Return a text for messages, cut where it is long."""
    return repr(text) if len(text) <= 500 else f"{text[:300]!r} ... {text[-100:]!r} ({len(text):,} characters)"


# Words that begin or separate clauses. Words such as TABLE are names of columns as well.
_RESERVED = frozenset(
    {"CASE", "CAST", "EXCEPT", "FETCH", "FOR", "FROM", "GROUP", "HAVING", "INTERSECT", "INTO", "LIMIT", "OFFSET", "ON", "ORDER", "PIVOT",
     "QUALIFY", "RETURNING", "SELECT", "TABLE", "TO", "UNION", "USING", "WHEN", "WHERE", "WINDOW", "WITH"}
)  # fmt: skip
_BEFORE_NAME = frozenset({"(", ",", "AND", "BY", "DISTINCT", "NOT", "OR", "SET", "ON", "WHEN", "THEN", "ELSE", "BETWEEN", *_RESERVED})
_AFTER_NAME = frozenset({")", ",", "AND", "AS", "ASC", "BETWEEN", "DESC", "FROM", "ILIKE", "IN", "IS", "LIKE", "NOT", "OR", "THEN", "END"})
_COMPARED = frozenset({"=", "<>", "!=", "<", ">", "<=", ">=", "||", "::"})


def quoting_hint(text: str) -> str:
    """Return the advice to quote a reserved word that stands where SQL expects a name; empty if there is none.

    >>> quoting_hint("select = 1"), quoting_hint("SELECT sum(a) FROM t GROUP BY group")
    ('. If select is a name, write it in double quotes: "select"', '. If group is a name, write it in double quotes: "group"')
    >>> quoting_hint("a = 1 AND"), quoting_hint("WHERE a = 1"), quoting_hint("SELECT * FROM t WHERE")
    ('', '', '')
    """
    try:
        tokens = [one.text if one.token_type not in (TokenType.STRING, TokenType.IDENTIFIER) else "''" for one in _tokens(text)]
    except SqlglotError:
        return ""
    words = ["", *(token.upper() for token in tokens), ""]
    for place, (before, word, after) in enumerate(zip(words, words[1:], words[2:], strict=False)):
        # GROUP BY is one token.
        is_begin = not before or before.split()[-1] in _BEFORE_NAME or before in _COMPARED
        if word in _RESERVED and is_begin and (before == "," or (before and not after) or after in _AFTER_NAME or after in _COMPARED):
            name = tokens[place]
            return f'. If {name} is a name, write it in double quotes: "{name}"'
    return ""


def _tokens(text: str) -> list[Token]:
    return list(Dialect.get_or_raise("duckdb").tokenize(text))


def parse_text(text: str, what: str = "condition") -> exp.Expression:
    """Parse one condition or expression over the columns of a row into sqlglot's tree.

    Args:
        text: SQL in DuckDB's dialect.
        what: What the text is, for messages.

    Raises:
        UsageError: The text cannot be parsed, holds several statements, is nested more deeply than :data:`MAX_BRACKETS` and
            :data:`MAX_LEVELS` allow, or is not an expression over one row.
    """
    try:
        return _parsed(text, what)
    except UsageError as problem:
        hint = quoting_hint(text)
        if not hint:
            raise
        raise UsageError(f"{problem.message}{hint}") from problem


def _parsed(text: str, what: str) -> exp.Expression:
    statements = _statements(text, what)
    if not statements:
        example = ". Write SQL over the columns of a row, such as \"country = 'DE'\"" if what == "condition" else ""
        raise UsageError(f"the {what} is empty{example}")
    if len(statements) != 1:
        raise UsageError(f"{shown(text)} must be one SQL {what}, not {len(statements)}. Remove the semicolon and what follows it")
    root = statements[0]
    kinds = set()
    for node in _nodes(root, text, what):
        # Some parsers of sqlglot accept text from which a required part is missing.
        if node.error_messages():
            raise UsageError(f"cannot read the {what} {shown(text)}: a part of {node.key.upper()} is missing")
        kinds.add(type(node))
    for rejected, name in _REJECTED.items():
        if any(issubclass(kind, rejected) for kind in kinds):
            advice = ". Use ducklake_core.col for values, as in col('id') == 5" if rejected in (exp.Placeholder, exp.Parameter) else ""
            raise UsageError(f"the {what} {shown(text)} holds {name}; only the columns of one row can be used{advice}")
    if not isinstance(root, exp.Condition):
        raise UsageError(f"{shown(text)} is not a SQL {what}")
    return root


def _statements(text: str, what: str) -> list[exp.Expression]:
    dialect = Dialect.get_or_raise("duckdb")
    try:
        tokens = list(dialect.tokenize(text))
        # Counted before parsing, so that the limit does not depend on how deep the caller's own stack is.
        if _brackets(tokens) > MAX_BRACKETS:
            raise _too_deep(text, what)
        try:
            found = dialect.parser().parse_into(exp.Condition, tokens, text)
        except SqlglotError:
            # Parsed again as a statement, which gives better messages: they name its kind and count from the beginning of the text.
            found = dialect.parser().parse(tokens, text)
    except SqlglotError as problem:
        raise UsageError(f"cannot read the {what} {shown(text)}: {parse_failure(problem)}") from problem
    except RecursionError:
        raise _too_deep(text, what) from None
    return [statement for statement in found if isinstance(statement, exp.Expression)]


def _brackets(tokens: Sequence[Token]) -> int:
    """Return the maximum number of parentheses, brackets and CASEs within each other."""
    deepest = depth = 0
    before: TokenType | None = None
    for token in tokens:
        # After a dot it is the name of a field.
        if before != TokenType.DOT:
            depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
            deepest = max(deepest, depth)
        before = token.token_type
    return deepest


def _nodes(root: exp.Expression, text: str, what: str) -> Iterator[exp.Expression]:
    """Yield all nodes of a tree, each before those below it; a chain of AND or of OR is one level, however long it is."""
    waiting = [(root, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth > MAX_LEVELS:
            raise _too_deep(text, what)
        yield node
        for value in node.args.values():
            for child in value if isinstance(value, list) else (value,):
                if isinstance(child, exp.Expression):
                    same = isinstance(node, exp.Paren) or (isinstance(node, exp.And | exp.Or) and type(unwrapped(child)) is type(node))
                    waiting.append((child, depth if same else depth + 1))


def _too_deep(text: str, what: str) -> UsageError:
    return UsageError(
        f"The {what} {shown(text)} is nested too deeply: at most {MAX_BRACKETS} parentheses, function calls and CASEs may stand within "
        f"each other, and at most {MAX_LEVELS} operators may be applied to the result of one another. Join conditions into one flat "
        "chain of AND or OR, list values with IN (...), or combine conditions with ducklake_core.col"
    )


def operands_of(chain: exp.Expression) -> list[exp.Expression]:
    """Return the operands of a chain of AND or of OR, in order; parentheses do not interrupt it."""
    kind, found, waiting = type(chain), list[exp.Expression](), [chain]
    while waiting:
        node = unwrapped(waiting.pop())
        if type(node) is kind:
            waiting += [node.expression, node.this]
        else:
            found.append(node)
    return found


def conjuncts(text: str) -> list[str]:
    """Return the conditions that a condition joins by AND, as SQL."""
    found: list[str] = []
    waiting = [parse_text(text)]
    while waiting:
        node = unwrapped(waiting.pop())
        if isinstance(node, exp.And):
            waiting += [node.expression, node.this]
        else:
            found.append(node.sql(dialect="duckdb"))
    return found


def equal_sides(text: str) -> tuple[str, str] | None:
    """Return both sides of an equality, as SQL; None for any other condition."""
    node = unwrapped(parse_text(text))
    return (node.this.sql(dialect="duckdb"), node.expression.sql(dialect="duckdb")) if isinstance(node, exp.EQ) else None


def column_path(node: exp.Expression) -> tuple[str, ...] | None:
    """Return the names of a column or of a field of structs, None when the node is something else."""
    node = unwrapped(node)
    match node:
        case exp.Column() if not isinstance(node.this, exp.Star):
            return tuple(part.name for part in node.parts)
        case exp.Dot() if isinstance(node.expression, exp.Identifier):
            return _extended(node.this, node.expression.name)
        case exp.Bracket() if len(node.expressions) == 1 and _is_text(node.expressions[0]):
            return _extended(node.this, node.expressions[0].name)
        case exp.StructExtract() if _is_text(node.expression):
            return _extended(node.this, node.expression.name)
        case _:
            return None


def _is_text(node: object) -> bool:
    return isinstance(node, exp.Literal) and node.is_string


def _extended(node: exp.Expression, name: str) -> tuple[str, ...] | None:
    base = column_path(node)
    return None if base is None else (*base, name)


def unwrapped(node: exp.Expression) -> exp.Expression:
    """Return the node inside its parentheses."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


class QuotedText(NamedTuple):
    """A quoted string whose type comes from what it is compared with."""

    text: str


def constant_of(node: exp.Expression) -> QuotedText | Literal | None:
    """Return the constant that a node spells, None when it is none or only an engine can compute it."""
    node = unwrapped(node)
    match node:
        case exp.Literal() if node.is_string:
            return QuotedText(node.name)
        case exp.Literal():
            return number_literal(node.name)
        case exp.Neg() if isinstance(unwrapped(node.this), exp.Literal) and not unwrapped(node.this).is_string:
            return number_literal("-" + unwrapped(node.this).name)
        case exp.Boolean():
            return Literal(value=bool(node.this), type=BOOLEAN)
        case exp.Null():
            return Literal(value=None, type=BOOLEAN)
        case exp.Cast() if not isinstance(node, exp.TryCast):
            inner, target = constant_of(node.this), data_type_of(node.to)
            return None if inner is None or target is None else _cast(inner, target)
        case _:
            return None


def data_type_of(node: exp.DataType) -> DataType | None:
    """Return the type that a cast names, None for one that is not a table's leaf type."""
    name = str(node.this.value) if isinstance(node.this, exp.DataType.Type) else ""
    if name == "DECIMAL":
        sizes = [int(part.name) for part in node.expressions] or [18, 3]
        return DecimalType(precision=sizes[0], scale=sizes[1] if len(sizes) > 1 else 0)
    return PRIMITIVES.get(TYPE_NAMES.get(name, ""))


def zoned(constant: Literal) -> Literal | None:
    """Return the instant at which a date or timestamp begins in the effective time zone, None for other types and for no instant."""
    value = constant.value
    if not isinstance(value, int) or (constant.type != DATE and constant.type not in TIMESTAMPS):
        return None
    if constant.type == TIMESTAMPTZ:
        return constant
    if abs(value) >= infinity_of(constant.type):
        limit = infinity_of(TIMESTAMPTZ)
        return Literal(value=limit if value > 0 else -limit, type=TIMESTAMPTZ)
    if constant.type == TIMESTAMP_NS and value % 1000:
        return None
    wall = value * 86_400_000_000 if constant.type == DATE else value // 1000 if constant.type == TIMESTAMP_NS else value
    moment = instant(wall) if abs(wall) < infinity_of(TIMESTAMPTZ) else None
    return None if moment is None or abs(moment) >= infinity_of(TIMESTAMPTZ) else Literal(value=moment, type=TIMESTAMPTZ)


def _is_exact_number(data_type: DataType) -> bool:
    """Return whether values of a type are integers or decimals; days and microseconds are not."""
    return data_type in INTEGERS or isinstance(data_type, DecimalType)


def _cast(constant: QuotedText | Literal, target: DataType) -> Literal | None:
    """Return a constant cast to another type if the cast is exact. None leaves the cast to the engine."""
    if isinstance(constant, QuotedText):
        # Whether a string is JSON is checked where it is cast.
        return None if target == JSON else text_literal(constant.text, target)
    value = constant.value
    if value is None or constant.type == target:
        return Literal(value=value, type=target)
    # 2**26 days in microseconds fit 64 bits, with infinity and its neighbors out of reach.
    if constant.type == DATE and target == TIMESTAMP and isinstance(value, int) and abs(value) < 2**26:
        return Literal(value=value * 86_400_000_000, type=TIMESTAMP)
    if target == TIMESTAMPTZ:
        return zoned(constant)
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not _is_exact_number(constant.type):
        return None
    if target in INTEGERS:
        whole, (low, high) = int(Decimal(value).to_integral_value(rounding=ROUND_HALF_UP)), integer_range(target)
        return Literal(value=whole, type=target) if low <= whole <= high else None
    if isinstance(target, DecimalType):
        try:
            return Literal(value=to_scale(Decimal(value), target), type=target)
        except ValueError:
            return None
    return text_literal(str(value), target) if target in FLOATS else None


# Computed constants
#
#   now() - INTERVAL 1 DAY        ->  CAST('2026-11-26 10:00:00+00' AS TIMESTAMPTZ)
#   date_trunc('month', today())  ->  CAST('2026-11-01' AS DATE)
#
# Times without a zone and dates move on the calendar; instants move on the calendar of the effective time zone, as in DuckDB.

_COMPUTED = re.compile(r"(?i)\b(now|today|current_\w+|get_current_timestamp|transaction_timestamp|localtimestamp|interval)\b")
_NOW = ("now", "get_current_timestamp", "transaction_timestamp")
_DAY = 86_400_000_000
_MONTHS = {"month": 1, "months": 1, "quarter": 3, "quarters": 3, "year": 12, "years": 12}
_DAYS = {"day": 1, "days": 1, "week": 7, "weeks": 7}
_MICROSECONDS = {
    "microsecond": 1, "microseconds": 1, "millisecond": 1000, "milliseconds": 1000, "second": 1_000_000, "seconds": 1_000_000,
    "minute": 60_000_000, "minutes": 60_000_000, "hour": 3_600_000_000, "hours": 3_600_000_000,
}  # fmt: skip
_LAST_YEAR = 9999
"""Computed times are folded from the year 1 up to this one."""


class _Span(NamedTuple):
    months: int = 0
    days: int = 0
    microseconds: int = 0

    def negated(self) -> _Span:
        return _Span(-self.months, -self.days, -self.microseconds)


def with_folded_times(root: exp.Expression, text: str) -> exp.Expression:
    """Return an expression with the values of its computed constants of time, such as ``now() - INTERVAL 1 DAY``.

    Args:
        root: The parsed expression.
        text: Its SQL text.
    """
    if _COMPUTED.search(text) is None:
        return root
    now = time.time_ns() // 1000

    def folded(node: exp.Expression) -> exp.Expression:
        value = _time_of(node, now) if constant_of(node) is None else None
        return node if value is None else _spelled(value)

    return root.copy().transform(folded, copy=False)


def _spelled(value: Literal) -> exp.Expression:
    assert isinstance(value.value, int)
    text = date_text(value.value) if value.type == DATE else timestamp_text(value.value)
    if value.type == TIMESTAMPTZ:
        text += "+00"
    return exp.Cast(this=exp.Literal.string(text), to=exp.DataType.build(str(value.type), dialect="duckdb"))


def _time_of(node: exp.Expression, now: int) -> Literal | None:
    """Return the date, timestamp or instant that a node is, None if it is something else or not in the calendar of four-digit years."""
    found = _computed_time(unwrapped(node), now)
    if found is None or not isinstance(found.value, int):
        return None
    day = found.value if found.type == DATE else found.value // _DAY
    return found if days_from_civil(1, 1, 2) <= day < days_from_civil(_LAST_YEAR, 12, 31) else None


def _computed_time(node: exp.Expression, now: int) -> Literal | None:
    match node:
        case exp.CurrentTimestamp(this=None):
            return Literal(value=now, type=TIMESTAMPTZ)
        case exp.Anonymous() if node.name.lower() in _NOW and not node.expressions:
            return Literal(value=now, type=TIMESTAMPTZ)
        case exp.CurrentDate(this=None):
            return Literal(value=wall_clock(now) // _DAY, type=DATE)
        case exp.Localtimestamp(this=None):
            return Literal(value=wall_clock(now), type=TIMESTAMP)
        case exp.Cast() if not isinstance(node, exp.TryCast):
            inner = _time_of(node.this, now)
            return _plain_time(node) if inner is None else _as_time(inner, data_type_of(node.to))
        case exp.TimestampTrunc() | exp.DateTrunc() if not node.args.get("zone"):
            inner = _time_of(node.this, now)
            return None if inner is None else _truncated(inner, str(node.args["unit"].name).lower())
        case exp.Add() | exp.Sub():
            return _moved(node, now)
        case _:
            return _plain_time(node)


def _plain_time(node: exp.Expression) -> Literal | None:
    constant = constant_of(node)
    return constant if isinstance(constant, Literal) and constant.type in (DATE, TIMESTAMP, TIMESTAMPTZ) else None


def _as_time(value: Literal, wanted: DataType | None) -> Literal | None:
    assert isinstance(value.value, int)
    if wanted == value.type:
        return value
    wall = value.value * _DAY if value.type == DATE else wall_clock(value.value) if value.type == TIMESTAMPTZ else value.value
    if wanted == DATE:
        return Literal(value=wall // _DAY, type=DATE)
    if wanted == TIMESTAMP:
        return Literal(value=wall, type=TIMESTAMP)
    return zoned(value) if wanted == TIMESTAMPTZ else None


def _moved(node: exp.Expression, now: int) -> Literal | None:
    """Return a time plus or minus an interval, or a date plus or minus a number of days."""
    sign = -1 if isinstance(node, exp.Sub) else 1
    start, other = _time_of(node.this, now), unwrapped(node.expression)
    if start is None and sign == 1:
        start, other = _time_of(node.expression, now), unwrapped(node.this)
    if start is None:
        return None
    assert isinstance(start.value, int)
    number = constant_of(other)
    if start.type == DATE and isinstance(number, Literal) and number.type in INTEGERS and isinstance(number.value, int):
        return Literal(value=start.value + sign * number.value, type=DATE)
    span = _span(other)
    if span is None:
        return None
    span = span if sign == 1 else span.negated()
    if start.type == TIMESTAMPTZ:
        if not span.months and not span.days:
            return Literal(value=start.value + span.microseconds, type=TIMESTAMPTZ)
        return zoned(Literal(value=_on_calendar(wall_clock(start.value), span), type=TIMESTAMP))
    wall = start.value * _DAY if start.type == DATE else start.value
    return Literal(value=_on_calendar(wall, span), type=TIMESTAMP)


def _span(node: exp.Expression) -> _Span | None:
    """Return an interval of one unit; None for any other."""
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Expression):
        return None
    amount, unit = unwrapped(node.this), node.args.get("unit")
    negative = isinstance(amount, exp.Neg)
    text = amount.this.name if negative else amount.name if isinstance(amount, exp.Literal) else ""
    if not re.fullmatch(r"-?\d{1,9}", text) or not isinstance(unit, exp.Var):
        return None
    count, name = int(text) * (-1 if negative else 1), unit.name.lower()
    if name in _MONTHS:
        return _Span(months=count * _MONTHS[name])
    if name in _DAYS:
        return _Span(days=count * _DAYS[name])
    return _Span(microseconds=count * _MICROSECONDS[name]) if name in _MICROSECONDS else None


def _on_calendar(wall: int, span: _Span) -> int:
    day, rest = divmod(wall, _DAY)
    if span.months:
        year, month, number = civil_from_days(day)
        years, place = divmod(year * 12 + month - 1 + span.months, 12)
        first, after = (days_from_civil(n // 12, n % 12 + 1, 1) for n in (years * 12 + place, years * 12 + place + 1))
        # Months differ in length: one month after the 31st of January is the last day of February.
        day = first + min(number, after - first) - 1
    return (day + span.days) * _DAY + rest + span.microseconds


def _truncated(value: Literal, unit: str) -> Literal | None:
    """Return the start of the unit that contains a timestamp, an instant (in the effective zone) or a date."""
    assert isinstance(value.value, int)
    wall = value.value * _DAY if value.type == DATE else wall_clock(value.value) if value.type == TIMESTAMPTZ else value.value
    day, (year, month, _) = wall // _DAY, civil_from_days(wall // _DAY)
    match unit:
        case "year":
            start = days_from_civil(year, 1, 1) * _DAY
        case "quarter":
            start = days_from_civil(year, (month - 1) // 3 * 3 + 1, 1) * _DAY
        case "month":
            start = days_from_civil(year, month, 1) * _DAY
        case "week":
            # 1970-01-01 was a Thursday; weeks begin on Monday.
            start = (day - (day + 3) % 7) * _DAY
        case "day":
            start = day * _DAY
        case "hour" | "minute" | "second":
            start = wall - wall % _MICROSECONDS[unit]
        case _:
            return None
    if value.type == TIMESTAMPTZ:
        return zoned(Literal(value=start, type=TIMESTAMP))
    return Literal(value=start, type=TIMESTAMP) if value.type == TIMESTAMP else _truncated_date(start, unit)


def _truncated_date(start: int, unit: str) -> Literal:
    if unit in ("hour", "minute", "second"):
        return Literal(value=start, type=TIMESTAMP)
    return Literal(value=start // _DAY, type=DATE)
