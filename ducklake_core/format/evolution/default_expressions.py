"""Defaults that are expressions, as scalars that writers evaluate (specification: ducklake_column, default_value_type).

``now()`` and its like have one value for a whole statement, so they become constants before anything is written; ``uuid()`` and
``random()`` have one for each row, so they stay functions. What a scalar cannot say, an engine may compute once where it is constant.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.expressions.scalar_parser import scalar_of
from ducklake_core.format.expressions.scalars import Scalar
from ducklake_core.format.expressions.sql_constants import unwrapped
from ducklake_core.format.types.data_types import DATE, TIME, TIMESTAMP, TIMESTAMP_MS, TIMESTAMP_NS, TIMESTAMP_S, Field

_MOMENTS = frozenset({"now", "transaction_timestamp", "get_current_timestamp", "CurrentTimestamp"})
_LOCAL = {
    "Localtimestamp": "TIMESTAMP",
    "current_localtimestamp": "TIMESTAMP",
    "Localtime": "TIME",
    "current_localtime": "TIME",
    "CurrentDate": "DATE",
    "CurrentTime": "TIMETZ",
}
_OF_COLUMNS = {
    DATE: "DATE",
    TIME: "TIME",
    TIMESTAMP: "TIMESTAMP",
    TIMESTAMP_S: "TIMESTAMP",
    TIMESTAMP_MS: "TIMESTAMP",
    TIMESTAMP_NS: "TIMESTAMP",
}
_FORMS: dict[str, Callable[[datetime], str]] = {
    "TIMESTAMPTZ": lambda moment: moment.isoformat(sep=" "),
    "TIMESTAMP": lambda moment: moment.replace(tzinfo=None).isoformat(sep=" "),
    "DATE": lambda moment: moment.date().isoformat(),
    "TIME": lambda moment: moment.time().isoformat(),
    "TIMETZ": lambda moment: moment.timetz().isoformat(),
}


def statement_tree(column: Field, moment: datetime) -> exp.Expression:
    """The default of a column as sqlglot's tree, in which what depends on the time of the statement is constant.

    Times without a zone are those of the time zone of ``moment``.

    Raises:
        UnsupportedFeatureError: It cannot be parsed, or reads columns or tables.
    """
    try:
        root = sqlglot.parse_one(column.default or "", read="duckdb")
    except SqlglotError as problem:
        raise refusal(column, "it cannot be parsed") from problem
    assert isinstance(root, exp.Expression)
    if root.find(exp.Column, exp.Query):
        raise refusal(column, "it reads columns or tables")
    if _name(unwrapped(root)) in {*_MOMENTS, "CurrentTime"} and column.type in _OF_COLUMNS:
        # As the column is assigned, so that no cast is left that depends on the zone of a session.
        return _constant(moment, _OF_COLUMNS[column.type])
    found = root.transform(lambda node: _at(node, moment))
    assert isinstance(found, exp.Expression)
    return found


def default_scalar(column: Field, moment: datetime) -> Scalar:
    """The default of a column as something that writers evaluate for each row.

    >>> from datetime import UTC
    >>> from ducklake_core.format.types.data_types import UUID
    >>> field = Field(name="at", type=DATE, default="now()", default_is_expression=True)
    >>> default_scalar(field, datetime(1970, 1, 3, tzinfo=UTC)).value
    2
    >>> default_scalar(Field(name="id", type=UUID, default="gen_random_uuid()", default_is_expression=True), datetime.now(UTC)).function
    'uuid'

    Raises:
        UnsupportedFeatureError: Only a SQL engine can evaluate it.
    """
    tree = statement_tree(column, moment)
    try:
        return scalar_of(tree, column.default or "")
    except UnsupportedFeatureError as problem:
        raise refusal(column, f"only a SQL engine evaluates {problem.message}") from problem


def refusal(column: Field, reason: str) -> UnsupportedFeatureError:
    """The error for a default that cannot be evaluated."""
    return UnsupportedFeatureError(
        f"column {column.name!r} is missing in the data and its default {column.default} cannot be evaluated: {reason}; give the column a "
        "value",
        column=column.name,
        expression=column.default,
        reason=reason,
    )


def _name(node: exp.Expression) -> str:
    return str(node.this).lower() if isinstance(node, exp.Anonymous) else type(node).__name__


def _at(node: exp.Expression, moment: datetime) -> exp.Expression:
    if isinstance(node, exp.Cast) and _name(unwrapped(node.this)) in _MOMENTS:
        kind = node.to.sql("duckdb")
        return _constant(moment, kind) if kind in _FORMS else node
    name = _name(node)
    if name in _MOMENTS:
        return _constant(moment, "TIMESTAMPTZ")
    return _constant(moment, _LOCAL[name]) if name in _LOCAL else node


def _constant(moment: datetime, kind: str) -> exp.Expression:
    return exp.cast(exp.Literal.string(_FORMS[kind](moment)), kind, dialect="duckdb")
