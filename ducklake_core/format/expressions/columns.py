"""Columns as users name them in Python: ``col("delay") > 5`` instead of SQL text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ducklake_core.errors import UsageError
from ducklake_core.format.expressions.conditions import (
    NO_TRUTH,
    AllOf,
    ColumnPath,
    Combinable,
    Comparison,
    Condition,
    IsNull,
    Not,
    OneOf,
    OtherColumn,
    StartsWith,
)
from ducklake_core.format.expressions.predicates import Operator
from ducklake_core.format.types.message_text import shown
from ducklake_core.format.types.names import dotted, split_path


class Column(Combinable):
    """A column by its name, not yet of any table. Made by :func:`col`; a boolean one is a condition itself.

    Comparisons are SQL's: where the column is NULL, none of them holds, ``!=`` included. NaN equals NaN and is greater than every
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
        """The name, or the names from the column down to the field of a struct."""
        return self._path

    def as_condition(self) -> Condition:
        """The boolean column is true."""
        return Comparison(column=self._path, operator="=", value=True)

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
        """The column has one of the values: of a list, a set, a NumPy or Arrow array; no row when there are none.

        Raises:
            UsageError: A text, which is one value and no list, or None among the values: ``| col(...).is_null()`` keeps those rows.
        """
        if isinstance(values, str | bytes | Mapping | Column) or not isinstance(values, Iterable):
            raise UsageError(f"{self}.isin takes a list of values, not {shown(values)}", column=dotted_name(self._path))
        # A set has another order in each process; a condition that is repeated must be the same one.
        ordered = sorted(values, key=repr) if isinstance(values, set | frozenset) else values
        return OneOf(column=self._path, values=tuple(self._constant(value) for value in ordered))

    def between(self, low: object, high: object) -> Condition:
        """``low <= column <= high``, both ends included, as in SQL."""
        return AllOf(conditions=(self._compared(">=", low), self._compared("<=", high)))

    def is_null(self) -> Condition:
        """The column is NULL."""
        return IsNull(column=self._path)

    def is_not_null(self) -> Condition:
        """The column has a value; NaN is one."""
        return Not(condition=self.is_null())

    def starts_with(self, prefix: str) -> Condition:
        """The text of the column begins with ``prefix``, letter by letter: ``%`` and ``_`` stand for themselves.

        Raises:
            UsageError: The prefix is no text.
        """
        if not isinstance(prefix, str):
            raise UsageError(f"{self}.starts_with takes a text, not {shown(prefix)}", column=dotted_name(self._path))
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
    """A column, to build a condition from wherever a ``where`` is taken.

    >>> condition = (col("delay") > 5) & (col("carrier").isin(["UA", "B6"]) | col("box.size").is_null())
    >>> condition
    (col('delay') > 5) & (col('carrier').isin(['UA', 'B6']) | col('box.size').is_null())
    >>> ~col("dest").starts_with("J")
    ~col('dest').starts_with('J')

    Args:
        name: Name without regard to case; a field of a struct is ``s.a``. A part with dots or quotes is double-quoted
            (``col('"odd.name"')``), or the parts are given as a tuple.

    Raises:
        UsageError: A name that cannot be read.
    """
    if isinstance(name, tuple):
        if not name or not all(name) or not _are_texts(name):
            raise UsageError(f"a column is named by its text, or by a tuple of its parts, not by {shown(name)}")
        return Column(name if len(name) > 1 else name[0])
    if not isinstance(name, str):
        raise UsageError(f"a column is named by its text, or by a tuple of its parts, not by {shown(name)}")
    parts = split_path(name)
    return Column(parts if len(parts) > 1 else parts[0])


def _are_texts(parts: tuple[object, ...]) -> bool:
    return all(isinstance(part, str) for part in parts)


def dotted_name(path: ColumnPath) -> str:
    """The name as :func:`col` takes it."""
    return dotted((path,) if isinstance(path, str) else path)


def python_value(value: Any) -> object:
    """A constant of Arrow or NumPy as Python has it; everything else as it is.

    >>> import numpy as np, pyarrow as pa
    >>> python_value(np.float32(0.5)), python_value(pa.scalar("a")), python_value(np.datetime64("2020-01-01"))
    (0.5, 'a', datetime.date(2020, 1, 1))

    Raises:
        UsageError: A time of NumPy that Python's types cannot hold.
    """
    if hasattr(value, "as_py"):
        return value.as_py()
    if type(value).__module__ != "numpy":
        return value
    if type(value).__name__ == "datetime64":
        return _python_time(value)
    return value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value


def _python_time(value: Any) -> object:
    unit = str(value.dtype).removeprefix("datetime64[").removesuffix("]")
    plain = value if unit in ("D", "us") else value.astype("datetime64[D]" if unit in ("Y", "M", "W") else "datetime64[us]")
    found: object = plain.item()
    # Beyond the years of Python's calendar it is a number.
    if isinstance(found, int) or (found is not None and bool(plain != value)):
        raise UsageError(f"{shown(value)} has no exact form in Python: give a datetime, a pandas.Timestamp, or SQL text")
    return found


def is_missing(value: object) -> bool:
    """Whether a value stands for NULL: None, and pandas' NaT and NA. NaN is a value."""
    return value is None or type(value).__name__ in ("NaTType", "NAType")
