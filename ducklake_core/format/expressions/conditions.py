"""Conditions built from Python values and names of columns, for tables that need not exist yet: bound to a schema when they are used.

Each is a small frozen value. ``&``, ``|`` and ``~`` combine them; Python's ``and``, ``or``, ``not`` and ``in`` cannot, and say so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn, TypeAlias, assert_never

from ducklake_core.errors import UsageError
from ducklake_core.format.expressions.folding import all_of, any_of, normalized
from ducklake_core.format.expressions.predicate_builder import compare, is_null, one_of, starts_with
from ducklake_core.format.expressions.predicates import Operator, Predicate, negation
from ducklake_core.format.types.message_text import shown
from ducklake_core.format.types.names import dotted, quoted_path
from ducklake_core.format.types.schema import Schema

ColumnPath: TypeAlias = str | tuple[str, ...]
"""A column of the table by its name, or a field of a struct by the names down to it."""

NO_TRUTH = (
    "a condition is neither true nor false before it meets rows: write & for and, | for or, ~ for not, with parentheses around each "
    "comparison; .isin(values) for in; .between(low, high) for a chain such as 1 <= c <= 5"
)
_PARENTHESES = "put parentheses around each comparison, as in (col('a') > 5) & (col('b') < 3)"


class Combinable:
    """What ``&``, ``|`` and ``~`` work on: a condition, or a boolean column in its place."""

    __slots__ = ()

    def as_condition(self) -> Condition:
        """The condition that this is."""
        assert isinstance(self, Condition)
        return self

    def __and__(self, other: Combinable | str) -> AllOf:
        """Both conditions; a text is SQL."""
        return AllOf(conditions=(*_parts_of(self, AllOf), *_parts_of(other, AllOf)))

    def __or__(self, other: Combinable | str) -> AnyOf:
        """Either condition; a text is SQL."""
        return AnyOf(conditions=(*_parts_of(self, AnyOf), *_parts_of(other, AnyOf)))

    def __rand__(self, other: str) -> AllOf:
        """Both conditions; a text is SQL."""
        return AllOf(conditions=(*_parts_of(other, AllOf), *_parts_of(self, AllOf)))

    def __ror__(self, other: str) -> AnyOf:
        """Either condition; a text is SQL."""
        return AnyOf(conditions=(*_parts_of(other, AnyOf), *_parts_of(self, AnyOf)))

    def __invert__(self) -> Condition:
        """SQL NOT: what is NULL for a row stays NULL, so that neither a condition nor its opposite keeps the row."""
        own = self.as_condition()
        return Not(condition=own) if not isinstance(own, Not) or isinstance(own.condition, str) else own.condition

    def __bool__(self) -> NoReturn:
        """Refused: ``and``, ``or``, ``not``, ``in`` and chained comparisons cannot build conditions."""
        raise UsageError(NO_TRUTH)


def _parts_of(operand: Combinable | str, kind: type[AllOf | AnyOf]) -> tuple[Condition | str, ...]:
    """The operand of a chain, flat, so that a chain of any length is one level."""
    if isinstance(operand, str):
        return (operand,)
    if not isinstance(operand, Combinable):
        raise UsageError(f"{shown(operand)} is no condition; {_PARENTHESES}")
    condition = operand.as_condition()
    return condition.conditions if isinstance(condition, AllOf | AnyOf) and type(condition) is kind else (condition,)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison(Combinable):
    """The column compared with a Python value, or with another column; NULL when either side is NULL."""

    column: ColumnPath
    operator: Operator
    value: object

    def __repr__(self) -> str:
        sign = {"=": "==", "<>": "!="}.get(self.operator, self.operator)
        return f"{_shown_column(self.column)} {sign} {self.value!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherColumn:
    """A column on the right side of a :class:`Comparison`."""

    column: ColumnPath

    def __repr__(self) -> str:
        return _shown_column(self.column)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class IsNull(Combinable):
    """The column is NULL. NaN is not."""

    column: ColumnPath

    def __repr__(self) -> str:
        return f"{_shown_column(self.column)}.is_null()"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StartsWith(Combinable):
    """The text of the column begins with a prefix, letter by letter."""

    column: ColumnPath
    prefix: str

    def __repr__(self) -> str:
        return f"{_shown_column(self.column)}.starts_with({self.prefix!r})"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OneOf(Combinable):
    """The column has one of the values; no row when there are none."""

    column: ColumnPath
    values: tuple[object, ...]

    def __repr__(self) -> str:
        return f"{_shown_column(self.column)}.isin({list(self.values)!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class InIntervals(Combinable):
    """The column lies in one of the half-open intervals, ``start <= column < end``; no row when there are none."""

    column: ColumnPath
    intervals: tuple[tuple[object, object], ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Not(Combinable):
    """The condition is false; where it is NULL, so is this. A text is SQL."""

    condition: Condition | str

    def __repr__(self) -> str:
        return f"Not(condition={self.condition!r})" if isinstance(self.condition, str) else f"~{_within_brackets(self.condition)}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AllOf(Combinable):
    """Every one of the conditions; every row when there are none. A text is SQL."""

    conditions: tuple[Condition | str, ...]

    def __repr__(self) -> str:
        return _chain(self.conditions, "&") or f"AllOf(conditions={self.conditions!r})"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AnyOf(Combinable):
    """Any of the conditions; no row when there are none. A text is SQL."""

    conditions: tuple[Condition | str, ...]

    def __repr__(self) -> str:
        return _chain(self.conditions, "|") or f"AnyOf(conditions={self.conditions!r})"


Condition: TypeAlias = Comparison | IsNull | StartsWith | OneOf | InIntervals | Not | AllOf | AnyOf


def bound(condition: Condition | str, schema: Schema) -> Predicate:
    """The condition on the columns of a schema.

    >>> from ducklake_core.format.expressions.predicate_sql import to_sql
    >>> from ducklake_core.format.types.data_types import INT32, Field
    >>> schema = Schema(columns=(Field(id=1, name="n", type=INT32),))
    >>> to_sql(bound(AllOf(conditions=(InIntervals(column="n", intervals=((1, 5), (5, 9))), "n <> 3")), schema), "duckdb")
    '(((("n" >= 1) AND ("n" < 5)) OR (("n" >= 5) AND ("n" < 9))) AND ("n" <> 3))'

    Raises:
        NotFoundError: A column that the schema does not have.
        UsageError: A value that cannot be compared with its column, a text that is no condition, or conditions that are nested too deeply.
    """
    return normalized(_bound(condition, schema))


def _bound(condition: Condition | str, schema: Schema) -> Predicate:
    from ducklake_core.format.expressions.predicate_parser import parse_predicate

    match condition:
        case str():
            return parse_predicate(condition, schema)
        case Comparison(column=column, operator=operator, value=OtherColumn(column=other)):
            return parse_predicate(f"{quoted_path(_path(column))} {operator} {quoted_path(_path(other))}", schema)
        case Comparison(column=column, operator=operator, value=value):
            return compare(schema, column, operator, value)
        case IsNull(column=column):
            return is_null(schema, column)
        case StartsWith(column=column, prefix=prefix):
            return starts_with(schema, column, prefix)
        case OneOf(column=column, values=values):
            return one_of(schema, column, values)
        case InIntervals(column=column, intervals=intervals):
            return any_of(_within(schema, column, start, end) for start, end in intervals)
        case Not(condition=inner):
            return negation(_bound(inner, schema))
        case AllOf(conditions=conditions):
            return all_of(_each(conditions, schema))
        case AnyOf(conditions=conditions):
            return any_of(_each(conditions, schema))
        case _:
            assert_never(condition)


def _each(conditions: Iterable[Condition | str], schema: Schema) -> list[Predicate]:
    return [_bound(condition, schema) for condition in conditions]


def _within(schema: Schema, column: ColumnPath, start: object, end: object) -> Predicate:
    return all_of((compare(schema, column, ">=", start), compare(schema, column, "<", end)))


def _shown_column(column: ColumnPath) -> str:
    return f"col({dotted(_path(column))!r})"


def _path(column: ColumnPath) -> tuple[str, ...]:
    return (column,) if isinstance(column, str) else column


def _within_brackets(condition: Condition) -> str:
    """The operand of an operator; a method call needs no parentheses."""
    simple = isinstance(condition, IsNull | StartsWith | OneOf | InIntervals | Not)
    return repr(condition) if simple else f"({condition!r})"


def _chain(conditions: tuple[Condition | str, ...], sign: str) -> str:
    """A chain as Python reads it back; empty where Python could not."""
    if len(conditions) < 2 or all(isinstance(one, str) for one in conditions[:2]):
        return ""
    return f" {sign} ".join(repr(one) if isinstance(one, str) else _within_brackets(one) for one in conditions)


_FOREIGN_CONDITIONS = {
    "pyarrow": "a pyarrow expression",
    "pyspark": "a Spark column",
    "polars": "a polars expression",
    "ibis": "an expression",
}


def foreign_kind(value: object) -> str | None:
    """What another library's condition is called, None for anything else."""
    return _FOREIGN_CONDITIONS.get(type(value).__module__.partition(".")[0])
