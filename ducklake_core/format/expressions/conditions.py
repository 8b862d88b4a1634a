"""Conditions built from Python values and column names, and their binding to a table's columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias, assert_never

from ducklake_core.errors import UsageError
from ducklake_core.format.expressions.predicates import MAX_LEVELS, Operator, Predicate, negation
from ducklake_core.format.expressions.ranges import all_of, any_of
from ducklake_core.format.types.names import dotted, quoted_path, split_path
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.text import shown

ColumnPath: TypeAlias = str | tuple[str, ...]
"""A column of the table by its name, or a field of a struct by the names down to it."""
NO_TRUTH = (
    "a condition is neither true nor false before it meets rows: write & for and, | for or, ~ for not, with parentheses around each "
    "comparison; .isin(values) for in; .between(low, high) for a chain such as 1 <= c <= 5"
)
_PARENTHESES = "put parentheses around each comparison, as in (col('a') > 5) & (col('b') < 3)"
_FOREIGN_CONDITIONS = {
    "pyarrow": "a pyarrow expression",
    "pyspark": "a Spark column",
    "polars": "a polars expression",
    "ibis": "an expression",
}


class Combinable:
    """Operand of ``&``, ``|`` and ``~``: a condition or a boolean column."""

    __slots__ = ()

    def as_condition(self) -> Condition:
        """Return the condition that this is."""
        assert isinstance(self, Condition)
        return self

    def __and__(self, other: Combinable | str) -> AllOf:
        """Return the condition that both hold; a string is SQL text."""
        return AllOf(conditions=(*_parts_of(self, AllOf), *_parts_of(other, AllOf)))

    def __or__(self, other: Combinable | str) -> AnyOf:
        """Return the condition that either holds; a string is SQL text."""
        return AnyOf(conditions=(*_parts_of(self, AnyOf), *_parts_of(other, AnyOf)))

    def __rand__(self, other: str) -> AllOf:
        """Return the condition that both hold; a string is SQL text."""
        return AllOf(conditions=(*_parts_of(other, AllOf), *_parts_of(self, AllOf)))

    def __ror__(self, other: str) -> AnyOf:
        """Return the condition that either holds; a string is SQL text."""
        return AnyOf(conditions=(*_parts_of(other, AnyOf), *_parts_of(self, AnyOf)))

    def __invert__(self) -> Condition:
        """Return the negated condition. It is NULL if the condition is NULL, so neither matches such a row."""
        own = self.as_condition()
        # Inside Not may be SQL text, which cannot stand alone as a condition.
        return Not(condition=own) if not isinstance(own, Not) or isinstance(own.condition, str) else own.condition

    def __bool__(self) -> NoReturn:
        """Raise an error: ``and``, ``or``, ``not``, ``in`` and chained comparisons cannot build conditions."""
        raise UsageError(NO_TRUTH)


def _parts_of(operand: Combinable | str, kind: type[AllOf | AnyOf]) -> tuple[Condition | str, ...]:
    """Return the operand of a chain, flat, so that a chain of any length is one level."""
    if isinstance(operand, str):
        return (operand,)
    if not isinstance(operand, Combinable):
        raise UsageError(f"{shown(operand)} is not a condition; {_PARENTHESES}")
    condition = operand.as_condition()
    return condition.conditions if isinstance(condition, AllOf | AnyOf) and type(condition) is kind else (condition,)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison(Combinable):
    """A comparison of a column with a Python value or another column; NULL if either side is NULL."""

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
    """The column begins with a prefix."""

    column: ColumnPath
    prefix: str

    def __repr__(self) -> str:
        return f"{_shown_column(self.column)}.starts_with({self.prefix!r})"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OneOf(Combinable):
    """The column has one of the values. Without values, no row matches."""

    column: ColumnPath
    values: tuple[object, ...]

    def __repr__(self) -> str:
        return f"{_shown_column(self.column)}.isin({list(self.values)!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class InIntervals(Combinable):
    """The column is in one of the half-open intervals, ``start <= column < end``. Without intervals, no row matches."""

    column: ColumnPath
    intervals: tuple[tuple[object, object], ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Not(Combinable):
    """The condition is false; NULL if it is NULL. A string is SQL text."""

    condition: Condition | str

    def __repr__(self) -> str:
        return f"Not(condition={self.condition!r})" if isinstance(self.condition, str) else f"~{_within_brackets(self.condition)}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AllOf(Combinable):
    """All of the conditions are true. Without conditions, every row matches. A string is SQL text."""

    conditions: tuple[Condition | str, ...]

    def __repr__(self) -> str:
        return _chain(self.conditions, "&") or f"AllOf(conditions={self.conditions!r})"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AnyOf(Combinable):
    """At least one of the conditions is true. Without conditions, no row matches. A string is SQL text."""

    conditions: tuple[Condition | str, ...]

    def __repr__(self) -> str:
        return _chain(self.conditions, "|") or f"AnyOf(conditions={self.conditions!r})"


Condition: TypeAlias = Comparison | IsNull | StartsWith | OneOf | InIntervals | Not | AllOf | AnyOf


def bind(where: str | Predicate | Condition | Column, schema: Schema) -> Predicate:
    """Bind a condition in any of its forms to the columns of a schema.

    Args:
        where: SQL text in DuckDB's dialect, a condition built from :func:`col`, or a predicate that was bound before.
        schema: The columns that the condition may name; names match without regard to case.

    Raises:
        NotFoundError: The schema does not have a column that the condition names.
        UsageError: The text is not one condition, or a value cannot be compared with its column.
    """
    # The parser is imported with the first condition: importing sqlglot takes a fifth of the time of a process that reads once.
    from ducklake_core.format.expressions import parser

    if isinstance(where, str | Predicate):
        return parser.parse_predicate(where, schema)
    if isinstance(where, Combinable):
        return bound(where.as_condition(), schema)
    raise UsageError(f'{where!r} is not a condition. Write it as SQL text, such as "k = 5".')


def bound(condition: Condition | str, schema: Schema) -> Predicate:
    """Return the condition on the columns of a schema.

    >>> from ducklake_core.format.expressions.sql import to_sql
    >>> from ducklake_core.format.types.data_types import INT32, Field
    >>> schema = Schema(columns=(Field(id=1, name="n", type=INT32),))
    >>> to_sql(bound(AllOf(conditions=(InIntervals(column="n", intervals=((1, 5), (5, 9))), "n <> 3")), schema), "duckdb")
    '(((("n" >= 1) AND ("n" < 5)) OR (("n" >= 5) AND ("n" < 9))) AND ("n" <> 3))'

    Raises:
        NotFoundError: The schema lacks a column of the condition.
        UsageError: A value cannot be compared with its column, a string is not a condition, or conditions are nested too deeply.
    """
    from ducklake_core.format.expressions import parser

    return parser.limited(_bound(condition, schema, 1), condition)


def _bound(condition: Condition | str, schema: Schema, level: int) -> Predicate:
    from ducklake_core.format.expressions import parser

    if level > MAX_LEVELS:
        raise UsageError(
            f"The condition is nested too deeply: AND, OR and NOT may alternate on at most {MAX_LEVELS} levels. Use isin(...) for values "
            "of one column, or split the condition"
        )
    match condition:
        case str():
            return parser.parse_predicate(condition, schema)
        # The parser types a comparison of two columns; compare takes constants only.
        case Comparison(column=column, operator=operator, value=OtherColumn(column=other)):
            return parser.parse_predicate(f"{quoted_path(_path(column))} {operator} {quoted_path(_path(other))}", schema)
        case Comparison(column=column, operator=operator, value=value):
            return parser.compare(schema, column, operator, value)
        case IsNull(column=column):
            return parser.is_null(schema, column)
        case StartsWith(column=column, prefix=prefix):
            return parser.starts_with(schema, column, prefix)
        case OneOf(column=column, values=values):
            return parser.one_of(schema, column, values)
        case InIntervals(column=column, intervals=intervals):
            return any_of(_within(schema, column, start, end) for start, end in intervals)
        case Not(condition=inner):
            return negation(_bound(inner, schema, level + 1))
        case AllOf(conditions=conditions):
            return all_of([_bound(one, schema, level + 1) for one in conditions])
        case AnyOf(conditions=conditions):
            return any_of([_bound(one, schema, level + 1) for one in conditions])
        case _:
            assert_never(condition)


def _within(schema: Schema, column: ColumnPath, start: object, end: object) -> Predicate:
    from ducklake_core.format.expressions.parser import compare

    return all_of((compare(schema, column, ">=", start), compare(schema, column, "<", end)))


def _shown_column(column: ColumnPath) -> str:
    return f"col({dotted(_path(column))!r})"


def _path(column: ColumnPath) -> tuple[str, ...]:
    return (column,) if isinstance(column, str) else column


def _within_brackets(condition: Condition) -> str:
    """Return the operand of an operator; a method call needs no parentheses."""
    simple = isinstance(condition, IsNull | StartsWith | OneOf | InIntervals | Not)
    return repr(condition) if simple else f"({condition!r})"


def _chain(conditions: tuple[Condition | str, ...], sign: str) -> str:
    """Return a chain as Python reads it back; empty where Python could not."""
    # Python evaluates from the left: one of the first two operands has to be a condition, because strings have no ``&``.
    if len(conditions) < 2 or all(isinstance(one, str) for one in conditions[:2]):
        return ""
    return f" {sign} ".join(repr(one) if isinstance(one, str) else _within_brackets(one) for one in conditions)


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant value; made by :func:`lit`."""

    value: object

    def __repr__(self) -> str:
        return f"lit({self.value!r})"


def lit(value: object) -> Constant:
    """Return a constant for ``update`` and ``merge``, where a plain string is SQL: ``{"status": lit("active")}``.

    A string takes the type of its column, as a quoted string in SQL does.

    Args:
        value: A Python value; None is NULL.
    """
    return Constant(value)


def foreign_kind(value: object) -> str | None:
    """Return the name of another library's condition, such as "a Spark column"; None for anything else."""
    return _FOREIGN_CONDITIONS.get(type(value).__module__.partition(".")[0])


class Column(Combinable):
    """A column in a condition, created by :func:`col`. A boolean column is a condition itself.

    Comparisons follow SQL: if the column is NULL, none of them is true, not even ``!=``. NaN equals NaN and is greater than every
    number, as in DuckDB.
    """

    __slots__ = ("_path",)

    def __init__(self, path: ColumnPath) -> None:
        self._path = path

    def __repr__(self) -> str:
        return f"col({dotted_name(self._path)!r})"

    def __hash__(self) -> int:
        return hash(self._path)

    def __reduce__(self) -> tuple[type[Column], tuple[ColumnPath]]:
        return (Column, (self._path,))

    @property
    def path(self) -> str | tuple[str, ...]:
        """The name of the column, or the names from the column to a field of a struct."""
        return self._path

    def as_condition(self) -> Condition:
        """Return the condition that the boolean column is true."""
        return Comparison(column=self._path, operator="=", value=True)

    # Comparisons return conditions and do not compare two Column objects; __hash__ uses the path.
    def __eq__(self, other: object) -> Comparison:  # type: ignore[override]
        return self._compared("=", other)

    def __ne__(self, other: object) -> Comparison:  # type: ignore[override]
        return self._compared("<>", other)

    def __lt__(self, other: object) -> Comparison:
        return self._compared("<", other)

    def __le__(self, other: object) -> Comparison:
        return self._compared("<=", other)

    def __gt__(self, other: object) -> Comparison:
        return self._compared(">", other)

    def __ge__(self, other: object) -> Comparison:
        return self._compared(">=", other)

    def isin(self, values: Iterable[object]) -> Condition:
        """Return the condition that the column has one of the values. Without values, no row matches.

        Raises:
            UsageError: ``values`` is a string instead of a list, or contains None. Add ``| col(...).is_null()`` to include NULL.
        """
        if isinstance(values, str | bytes | Mapping | Column) or not isinstance(values, Iterable):
            raise UsageError(f"{self}.isin needs a list of values, not {shown(values)}", column=dotted_name(self._path))
        # A set has another order in each process; a condition that is repeated must be the same one.
        ordered = sorted(values, key=repr) if isinstance(values, set | frozenset) else values
        return OneOf(column=self._path, values=tuple(self._constant(value) for value in ordered))

    def between(self, low: object, high: object) -> Condition:
        """Return the condition ``low <= column <= high``, with both ends included, as in SQL."""
        return AllOf(conditions=(self._compared(">=", low), self._compared("<=", high)))

    def is_null(self) -> Condition:
        """Return the condition that the column is NULL."""
        return IsNull(column=self._path)

    def is_not_null(self) -> Condition:
        """Return the condition that the column has a value; NaN is one."""
        return Not(condition=self.is_null())

    def starts_with(self, prefix: str) -> Condition:
        """Return the condition that the column begins with ``prefix``. ``%`` and ``_`` are ordinary characters.

        Raises:
            UsageError: The prefix is not a string.
        """
        if not isinstance(prefix, str):
            raise UsageError(f"{self}.starts_with needs a string, not {shown(prefix)}", column=dotted_name(self._path))
        return StartsWith(column=self._path, prefix=prefix)

    def _compared(self, operator: Operator, other: object) -> Comparison:
        value = OtherColumn(column=other.path) if isinstance(other, Column) else self._constant(other)
        return Comparison(column=self._path, operator=operator, value=value)

    def _constant(self, value: object) -> object:
        if isinstance(value, Combinable):
            raise UsageError(f"{self} is compared with {shown(value)}, which is a condition; {NO_TRUTH}", column=dotted_name(self._path))
        plain = python_value(value)
        if is_missing(plain):
            raise UsageError(
                f"{self} is compared with {shown(value)}: NULL equals nothing, so no row would ever match; write {self}.is_null() or "
                f"{self}.is_not_null()",
                column=dotted_name(self._path),
            )
        if isinstance(plain, Mapping | set | frozenset) or (isinstance(plain, Iterable) and not isinstance(plain, str | bytes)):
            raise UsageError(
                f"{self} is compared with {shown(value)}, which is several values: write {self}.isin(...), or {self}.between(low, high)",
                column=dotted_name(self._path),
            )
        return plain


def col(name: str | tuple[str, ...]) -> Column:
    """Return a column for a condition. Every ``where`` argument accepts the conditions that are built from it.

    >>> condition = (col("delay") > 5) & (col("carrier").isin(["UA", "B6"]) | col("box.size").is_null())
    >>> condition
    (col('delay') > 5) & (col('carrier').isin(['UA', 'B6']) | col('box.size').is_null())
    >>> ~col("dest").starts_with("J")
    ~col('dest').starts_with('J')

    Args:
        name: Name without regard to case; a field of a struct is ``s.a``. A part with dots or quotes is double-quoted
            (``col('"odd.name"')``), or the parts are given as a tuple.

    Raises:
        UsageError: The name is not valid.
    """
    if isinstance(name, tuple):
        if not name or not all(name) or not _are_strings(name):
            raise UsageError(f"a column name must be a string, or a tuple of strings for a field of a struct, not {shown(name)}")
        return Column(name if len(name) > 1 else name[0])
    if not isinstance(name, str):
        raise UsageError(f"a column name must be a string, or a tuple of strings for a field of a struct, not {shown(name)}")
    parts = split_path(name)
    return Column(parts if len(parts) > 1 else parts[0])


def _are_strings(parts: tuple[object, ...]) -> bool:
    return all(isinstance(part, str) for part in parts)


def dotted_name(path: ColumnPath) -> str:
    """Return the name as :func:`col` takes it."""
    return dotted((path,) if isinstance(path, str) else path)


def python_value(value: Any) -> object:
    """Return the Python value of an Arrow scalar, a NumPy scalar or array, or a buffer of bytes; return other values unchanged.

    >>> import numpy as np, pyarrow as pa
    >>> python_value(np.float32(0.5)), python_value(pa.scalar("a")), python_value(np.datetime64("2020-01-01"))
    (0.5, 'a', datetime.date(2020, 1, 1))

    Raises:
        UsageError: Python's types cannot hold a NumPy time.
    """
    # Recognized by attribute and module, so that NumPy, Arrow and pandas need not be imported here.
    if hasattr(value, "as_py"):
        return value.as_py()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if type(value).__module__ != "numpy":
        return value
    if type(value).__name__ == "datetime64":
        return _python_time(value)
    if not hasattr(value, "item"):
        return value
    return list(value) if getattr(value, "shape", ()) else value.item()


def _python_time(value: Any) -> object:
    unit = str(value.dtype).removeprefix("datetime64[").removesuffix("]")
    plain = value if unit in ("D", "us") else value.astype("datetime64[D]" if unit in ("Y", "M", "W") else "datetime64[us]")
    found: object = plain.item()
    # Beyond the years of Python's calendar it is a number.
    if isinstance(found, int) or (found is not None and bool(plain != value)):
        raise UsageError(f"{shown(value)} has no exact form in Python: give a datetime, a pandas.Timestamp, or SQL text")
    return found


def is_missing(value: object) -> bool:
    """Return whether a value stands for NULL: None, and pandas' NaT and NA. NaN is a value."""
    return value is None or type(value).__name__ in ("NaTType", "NAType")
