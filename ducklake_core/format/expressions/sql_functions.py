"""Calls in parsed SQL of functions that grow with one column, in the spellings that DuckDB takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from sqlglot import exp

from ducklake_core.format.expressions.monotonic import MonotonicTransform, Truncated, Unit, Year, cast_of, has_calendar
from ducklake_core.format.expressions.predicates import ColumnReference
from ducklake_core.format.expressions.sql_constants import data_type_of, unwrapped
from ducklake_core.format.types.data_types import DataType

_UNITS: dict[str, Unit] = {
    "year": "year", "years": "year", "quarter": "quarter", "quarters": "quarter", "month": "month", "months": "month", "mon": "month",
    "week": "week", "weeks": "week", "day": "day", "days": "day", "hour": "hour", "hours": "hour", "minute": "minute",
    "minutes": "minute", "second": "second", "seconds": "second",
}  # fmt: skip
_PARTS = ("date_part", "datepart")


@dataclass(frozen=True, slots=True, kw_only=True)
class CastCall:
    """``CAST(argument AS type)``, or ``TRY_CAST``."""

    argument: exp.Expression
    type: DataType
    is_try: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateCall:
    """``date_trunc(unit, argument)``."""

    argument: exp.Expression
    unit: Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class YearCall:
    """``year(argument)``."""

    argument: exp.Expression


def call_of(node: exp.Expression) -> CastCall | TruncateCall | YearCall | None:
    """The call that a node is, None for any other expression."""
    node = unwrapped(node)
    match node:
        case exp.Cast():
            target = data_type_of(node.to)
            # Other arguments make it a variant, such as a cast with a format.
            plain = not any(value for name, value in node.args.items() if name not in ("this", "to", "safe"))
            return CastCall(argument=node.this, type=target, is_try=isinstance(node, exp.TryCast)) if target and plain else None
        case exp.TimestampTrunc() | exp.DateTrunc():
            unit = _unit(node.args.get("unit"))
            return TruncateCall(argument=node.this, unit=unit) if unit and not node.args.get("zone") else None
        case exp.Year():
            return YearCall(argument=node.this)
        case exp.Extract() if _unit(node.this) == "year":
            return YearCall(argument=node.expression)
        case exp.Anonymous() if node.name.lower() in _PARTS and len(node.expressions) == 2 and _unit(node.expressions[0]) == "year":
            return YearCall(argument=node.expressions[1])
        case _:
            return None


def function_of(call: CastCall | TruncateCall | YearCall, column: ColumnReference) -> MonotonicTransform | None:
    """The call's function of its column; None where it does not grow with it, or depends on the session's time zone."""
    match call:
        case CastCall():
            return cast_of(column, call.type, is_try=call.is_try)
        case TruncateCall():
            return Truncated(column=column, unit=call.unit) if has_calendar(column) else None
        case YearCall():
            return Year(column=column) if has_calendar(column) else None
        case _:
            assert_never(call)


def _unit(node: object) -> Unit | None:
    return _UNITS.get(node.name.lower()) if isinstance(node, exp.Var | exp.Literal) else None
