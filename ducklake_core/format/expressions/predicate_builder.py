"""Predicates built from Python values instead of SQL text: nothing has to be quoted, so nothing can be injected."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from numbers import Integral
from uuid import UUID as Uuid

from ducklake_core.errors import UsageError
from ducklake_core.format.expressions.comparison import common_domain, domain_of
from ducklake_core.format.expressions.literals import number_literal, text_literal
from ducklake_core.format.expressions.predicate_parser import bind_column
from ducklake_core.format.expressions.predicates import (
    FALSE,
    ColumnReference,
    Comparison,
    InList,
    IsNull,
    Literal,
    Operator,
    Predicate,
    StartsWith,
    conjunction,
)
from ducklake_core.format.expressions.sql_constants import zoned
from ducklake_core.format.types.data_types import (
    BLOB,
    BOOLEAN,
    DATE,
    FLOAT64,
    INT128,
    JSON,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NS,
    TIMESTAMPTZ,
    UUID,
    VARCHAR,
    DataType,
)
from ducklake_core.format.types.message_text import shown
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.time_zones import is_utc, session_zone

_MOST_BITS = 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def compare(schema: Schema, column: str | tuple[str, ...], operator: Operator, value: object) -> Predicate:
    """``column operator value``; a column below structs is a tuple of names.

    >>> from ducklake_core.format.types.data_types import INT32, Field
    >>> from ducklake_core.format.expressions.predicate_parser import to_sql
    >>> schema = Schema(columns=(Field(id=1, name="day", type=DATE), Field(id=2, name="n", type=INT32)))
    >>> to_sql(compare(schema, "day", ">=", date(2013, 2, 1)), "duckdb"), to_sql(compare(schema, "N", "<", 5), "spark")
    ('("day" >= DATE \\'2013-02-01\\')', '(`n` < 5)')

    Raises:
        NotFoundError: There is no such column.
        UsageError: The value cannot be compared with the column; None cannot with any (see :func:`is_null`).
    """
    bound = _bound(schema, column)
    return Comparison(left=bound, operator=operator, right=literal(value, bound.type))


def between(schema: Schema, column: str | tuple[str, ...], start: object, end: object) -> Predicate:
    """``start <= column < end``: the half-open range that time partitions have."""
    return conjunction((compare(schema, column, ">=", start), compare(schema, column, "<", end)))


def one_of(schema: Schema, column: str | tuple[str, ...], values: Iterable[object]) -> Predicate:
    """Whether the column has one of the values; FALSE when there are none."""
    bound = _bound(schema, column)
    literals = tuple(literal(value, bound.type) for value in values)
    return InList(operand=bound, values=literals) if literals else FALSE


def is_null(schema: Schema, column: str | tuple[str, ...]) -> Predicate:
    """Whether the column is NULL."""
    return IsNull(operand=_bound(schema, column))


def starts_with(schema: Schema, column: str | tuple[str, ...], prefix: str) -> Predicate:
    """Whether the text of a column begins with a prefix.

    Raises:
        UsageError: The column holds no text.
    """
    bound = _bound(schema, column)
    if bound.type not in (VARCHAR, JSON):
        raise UsageError(f"column {'.'.join(bound.path)!r} of type {bound.type} holds no text that could start with {shown(prefix)}")
    return StartsWith(operand=bound, prefix=prefix)


def _bound(schema: Schema, column: str | tuple[str, ...]) -> ColumnReference:
    return bind_column((column,) if isinstance(column, str) else column, schema)


def literal(value: object, data_type: DataType) -> Literal:
    """A Python value as a constant to compare with a column of ``data_type``; beside a ``timestamptz`` a naive datetime is
    meant in the effective time zone.

    >>> from ducklake_core.format.types.data_types import INT32
    >>> literal("2013-02-01", DATE).value, literal(datetime(1970, 1, 1, 0, 0, 1), TIMESTAMP).value, literal(1.5, INT32).type
    (15737, 1000000, PrimitiveType(name='float64'))

    Raises:
        UsageError: It cannot be compared with such a column.
    """
    found = text_literal(value, data_type) if isinstance(value, str) else _typed(value, data_type)
    if found is not None and found.type != data_type and data_type == TIMESTAMPTZ:
        found = zoned(found)
    elif found is not None and found.type == TIMESTAMPTZ and domain_of(data_type) == "point in time" and is_utc(session_zone()):
        found = Literal(value=found.value, type=TIMESTAMP)
    if found is None or common_domain(data_type, found.type) is None:
        raise UsageError(f"{shown(value)} cannot be compared with a column of type {data_type}")
    return found


def literal_of(value: object) -> Literal:
    """A Python value as a constant of its own type; None is NULL.

    Raises:
        UsageError: No constant can be made of it.
    """
    if value is None:
        return Literal(value=None, type=BOOLEAN)
    if not isinstance(value, bool) and isinstance(value, Integral) and int(value).bit_length() <= _MOST_BITS:
        return number_literal(str(int(value)))
    found = _typed(value, UUID if isinstance(value, Uuid) else TIME)
    if found is None:
        raise UsageError(f"{shown(value)} cannot be a constant: write it as SQL text, such as \"'text'\"")
    return found


def _typed(value: object, data_type: DataType) -> Literal | None:
    match value:
        case bool():
            return Literal(value=value, type=BOOLEAN)
        case Integral() if int(value).bit_length() <= _MOST_BITS:
            # Those of NumPy too.
            return Literal(value=int(value), type=INT128)
        case float():
            return Literal(value=value, type=FLOAT64)
        case Decimal() if value.is_finite():
            return number_literal(f"{value:f}")
        case bytes():
            return Literal(value=value, type=BLOB)
        case datetime():
            return _point_in_time(value)
        case date():
            return Literal(value=value.toordinal() - _EPOCH.toordinal(), type=DATE)
        case time() if value.tzinfo is None:
            return text_literal(value.isoformat(), data_type)
        case Uuid():
            return text_literal(str(value), data_type)
        case _:
            return None


def _point_in_time(value: datetime) -> Literal | None:
    if value != value:  # noqa: PLR0124 - as NaN
        # What pandas has for NULL is an instance of datetime.
        return None
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    elapsed = aware - _EPOCH
    units = (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds
    # Its times are finer than those of Python, which Arrow makes of nanoseconds where pandas is installed.
    finer: int = getattr(value, "nanosecond", 0)
    if not finer:
        return Literal(value=units, type=TIMESTAMPTZ if value.tzinfo else TIMESTAMP)
    return None if value.tzinfo else Literal(value=units * 1000 + finer, type=TIMESTAMP_NS)
