"""Prune files in SQL: find files without matching rows by bounds that the database can compare safely.

The catalog stores bounds as strings. A string that the database would order differently from the value, such as a number with an exponent
or a time with a year of five digits, must not exclude a file. So each bound becomes a key that is NULL unless its form is known, and only
a condition that is TRUE excludes a file; NULL (unknown) keeps it::

    predicate    a > 10 AND b = 'x'           a < 5 OR b = 'x'
    excluded if  max(a) <= 10                 min(a) >= 5
                 OR 'x' outside bounds(b)     AND 'x' outside bounds(b)
    as a value   Exclusion(bounds=(a, b))     Exclusion(others=(AllOf((a), (b)),))

Conditions on different columns read different rows of file_column_stats. ``bounds`` are joined by OR, so one scan of the statistics
evaluates all of them; each part of ``AllOf`` needs a set of files of its own, and the sets are intersected.

On PostgreSQL one statement returns these sets as packed numbers of 8 bytes (:func:`packed_rows`)::

    bit 63           bits 62..48                       bits 47..0
    0                groups that exclude the file      data file id
    1 (a position)   0                                 ctid of the statistics row: page and line; follows the word of its file

The positions let the next statement fetch exactly the statistics rows of the remaining files, without an index.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import islice
from typing import Any, Literal, TypeAlias

import numpy as np
from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnClause,
    ColumnElement,
    FromClause,
    LargeBinary,
    Row,
    Select,
    Text,
    and_,
    any_,
    case,
    cast,
    collate,
    false,
    func,
    literal,
    literal_column,
    null,
    or_,
    select,
    true,
)
from sqlalchemy.types import UserDefinedType

from ducklake_core.catalog.database.abilities import Abilities
from ducklake_core.format.cache import Derived
from ducklake_core.format.expressions.comparison import FLIPPED, Fitted, fit
from ducklake_core.format.expressions.predicates import (
    And,
    ColumnReference,
    Comparison,
    Constant,
    InList,
    InRanges,
    IsNull,
    Not,
    Operator,
    Or,
    Predicate,
    StartsWith,
    terms,
)
from ducklake_core.format.expressions.predicates import Literal as LiteralValue
from ducklake_core.format.expressions.ranges import Span, coarser, in_spans, necessary, ranges, spans_of_ranges
from ducklake_core.format.types.data_types import (
    DATE,
    INTEGERS,
    TIMESTAMP,
    TIMESTAMP_MS,
    TIMESTAMP_NS,
    TIMESTAMP_S,
    TIMESTAMPS,
    TIMESTAMPTZ,
    VARCHAR,
    VARIANT,
    DataType,
)

# Longer IN lists become this many ranges, which contain several values each.
_MAX_RANGES = 100
# Longer conditions, and those on more columns, are reduced to the ranges that they imply for each column.
_MAX_TERMS = 60
_MAX_COLUMNS = 8
# From this number of comparisons on, two tests whether the bounds are valid pay off.
_MANY = 2
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Numbers with at most 18 digits always fit into BIGINT.
_INTEGER_DIGITS = 18
_LONGEST: dict[DataType, int] = {
    TIMESTAMP_S: len("2013-02-01 00:00:00"),
    TIMESTAMP_MS: len("2013-02-01 00:00:00.123"),
    TIMESTAMP: len("2013-02-01 00:00:00.123456"),
    TIMESTAMPTZ: len("2013-02-01 00:00:00.123456+00"),
}

WORK_MEMORY = "256MB"
"""Memory of the server for a hash table of excluded files. Without enough memory it scans the list for every file."""
# Bits 48 to 62 of a word.
_MAX_GROUPS = 15
# Limits of columns with positions, and of columns that exclude files: each takes 8 or 16 MB for a million files.
_MAX_WITH_POSITIONS = 4
_MAX_PACKED_COLUMNS = 12
_IDS = 1 << 48
# The two highest bytes of a word with a position; tidsend adds four bytes for the page and two for the line.
_IS_POSITION = b"\x80\x00"
_position: ColumnClause[Any] = literal_column("ctid")
Positions: TypeAlias = Literal["none", "of rows that exclude nothing", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The expressions for the bounds of one column in one file: strings, NULL for unknown.

    ``are_valid`` is set if both are known to be valid for the type of the column.
    """

    low: ColumnElement[str]
    high: ColumnElement[str]
    are_valid: bool = False
    null_count: ColumnElement[int] | None = None
    value_count: ColumnElement[int] | None = None
    record_count: ColumnElement[int] | None = None
    derived: Derived = field(default_factory=Derived, init=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfBounds:
    """A proof that no row of a file matches, by the bounds or the counts of one column.

    Attributes:
        column: The column.
        condition: Returns the condition on the bounds.
        are_ordered: Returns the condition that the lower bound is not above the upper one, which would make both useless; None for
            conditions on counts.
        are_valid: Returns the condition that both bounds are valid for the type; None if the database cannot check it.
        comparisons: Number of comparisons with bounds in ``condition``.
    """

    column: ColumnReference
    condition: Callable[[Bounds], ColumnElement[bool]]
    are_ordered: Callable[[Bounds], ColumnElement[bool]] | None = None
    are_valid: Callable[[Bounds], ColumnElement[bool]] | None = None
    comparisons: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AllOf:
    """A conjunction: a file is excluded if every part excludes it."""

    parts: tuple[Exclusion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """A disjunction: a file is excluded if any of the parts excludes it.

    A value and not yet SQL, so that all conditions in ``bounds`` become one scan of the statistics, which may have no index.
    """

    bounds: tuple[OutOfBounds, ...] = ()
    others: tuple[AllOf, ...] = ()


def any_of(conditions: Sequence[OutOfBounds], bounds: Bounds) -> ColumnElement[bool]:
    """Return the condition that any of some conditions on one column holds for its bounds."""
    counts = [one.condition(bounds) for one in conditions if one.are_ordered is None]
    values = [one for one in conditions if one.are_ordered is not None]
    if not values:
        return or_(*counts)
    found = _any_by_value(values, bounds)
    if values[0].are_valid is not None and sum(one.comparisons for one in values) >= _MANY:
        # Bounds are nearly always valid. Then each string is checked once instead of in every comparison.
        found = case((values[0].are_valid(bounds), _any_by_value(values, replace(bounds, are_valid=True))), else_=found)
    return or_(*counts, found)


def _any_by_value(conditions: Sequence[OutOfBounds], bounds: Bounds) -> ColumnElement[bool]:
    # The order of bounds depends only on the type of the column, so one test is enough for all conditions.
    are_ordered = conditions[0].are_ordered
    assert are_ordered is not None
    return and_(or_(*(one.condition(bounds) for one in conditions)), are_ordered(bounds))


FilesWhere = Callable[[Sequence[OutOfBounds]], ColumnElement[bool] | None]
"""Returns the condition on a file that any of some conditions on bounds holds for it; None when there are no such bounds."""


def condition_of(exclusion: Exclusion | bool | None, files_where: FilesWhere) -> ColumnElement[bool] | None:
    """Return the condition that a file is excluded; None when nothing excludes a file.

    Args:
        exclusion: The exclusion; True for all files, None for none.
        files_where: Builds the condition for bounds, on statistics or partition values.
    """
    if not isinstance(exclusion, Exclusion):
        return true() if exclusion else None
    found = [files_where(exclusion.bounds)] if exclusion.bounds else []
    for other in exclusion.others:
        # A part without a condition excludes nothing, and then neither does the conjunction.
        parts = [condition_of(part, files_where) for part in other.parts]
        found.append(None if any(part is None for part in parts) else and_(*(part for part in parts if part is not None)))
    conditions = [part for part in found if part is not None]
    return or_(*conditions) if conditions else None


def excluded(predicate: Predicate, abilities: Abilities) -> Exclusion | bool | None:
    """Return the exclusion of a predicate; True when no file can match, None when SQL cannot exclude any file.

    A long predicate is reduced to the ranges that it implies for each column: databases reject deep conditions and are slow to parse long
    ones.

    Args:
        predicate: The predicate.
        abilities: Abilities of the database.
    """
    if terms(predicate) <= _MAX_TERMS:
        return _excluded(predicate, abilities)
    by_column = necessary(predicate)
    if any(not spans for spans in by_column.values()):
        return True
    return _any([_outside(column, spans, abilities) for column, spans in islice(by_column.items(), _MAX_COLUMNS)])


def _outside(column: ColumnReference, spans: Sequence[Span], abilities: Abilities) -> Exclusion | bool | None:
    most = max(1, _MAX_RANGES // 2)
    return _all([_excluded(in_spans(column, [span]), abilities) for span in coarser(spans, most)])


def _excluded(predicate: Predicate, abilities: Abilities) -> Exclusion | bool | None:
    match predicate:
        case Constant(value=value):
            return None if value else True
        # A row must satisfy every operand, so a file that any operand excludes is excluded; for OR all must exclude it.
        case And(operands=operands):
            return _any([_excluded(operand, abilities) for operand in operands])
        case Or(operands=operands):
            return _all([_excluded(operand, abilities) for operand in operands])
        case Comparison(left=ColumnReference() as column, operator=operator, right=LiteralValue() as value):
            return _compared(column, operator, value, abilities)
        case Comparison(left=LiteralValue() as value, operator=operator, right=ColumnReference() as column):
            return _compared(column, FLIPPED[operator], value, abilities)
        case InList(operand=column, values=values) if values:
            return _all([_between(column, low, high, abilities) for low, high in ranges(values, column.type, _MAX_RANGES)])
        case InRanges(operand=column):
            return _outside(column, spans_of_ranges(predicate), abilities)
        case StartsWith(operand=column, prefix=prefix) if column.type == VARCHAR and prefix:
            return _one(
                column, lambda bounds: _outside_prefix(bounds, prefix, abilities), lambda bounds: _are_ordered(bounds, VARCHAR, abilities)
            )
        # DuckDB counts NULLs of variants as values.
        case IsNull(operand=ColumnReference(type=data_type)) | Not(operand=IsNull(operand=ColumnReference(type=data_type))) if (
            data_type == VARIANT
        ):
            return None
        case IsNull(operand=ColumnReference() as column) if len(column.path) == 1:
            return _one(column, lambda bounds: _lacks(bounds.null_count, bounds.value_count, bounds.record_count))
        case Not(operand=IsNull(operand=ColumnReference() as column)) if len(column.path) == 1:
            return _one(column, lambda bounds: _lacks(bounds.value_count, bounds.null_count, bounds.record_count))
        case _:
            return None


def _one(
    column: ColumnReference,
    condition: Callable[[Bounds], ColumnElement[bool]],
    are_ordered: Callable[[Bounds], ColumnElement[bool]] | None = None,
    are_valid: Callable[[Bounds], ColumnElement[bool]] | None = None,
) -> Exclusion:
    return Exclusion(bounds=(OutOfBounds(column=column, condition=condition, are_ordered=are_ordered, are_valid=are_valid),))


def _any(parts: Sequence[Exclusion | bool | None]) -> Exclusion | bool | None:
    if any(part is True for part in parts):
        return True
    found = [part for part in parts if isinstance(part, Exclusion)]
    if not found:
        return None
    return Exclusion(
        bounds=tuple(leaf for part in found for leaf in part.bounds), others=tuple(other for part in found for other in part.others)
    )


def _all(parts: Sequence[Exclusion | bool | None]) -> Exclusion | bool | None:
    if any(part is None for part in parts):
        return None
    found = tuple(part for part in parts if isinstance(part, Exclusion))
    if not found:
        return True
    columns = {leaf.column for part in found for leaf in part.bounds}
    if len(columns) == 1 and not any(part.others for part in found):
        # All conditions are on one column: one statistics row decides, so no intersection of files is needed.
        alternatives = [[leaf.condition for leaf in part.bounds] for part in found]
        leaf = next((leaf for part in found for leaf in part.bounds if leaf.are_ordered is not None), found[0].bounds[0])

        def excluding(bounds: Bounds) -> ColumnElement[bool]:
            return and_(*(or_(*(one(bounds) for one in any_)) for any_ in alternatives))

        count = sum(leaf.comparisons for part in found for leaf in part.bounds)
        return Exclusion(bounds=(replace(leaf, condition=excluding, comparisons=count),))
    return found[0] if len(found) == 1 else Exclusion(others=(AllOf(parts=found),))


def _between(column: ColumnReference, low: LiteralValue, high: LiteralValue, abilities: Abilities) -> Exclusion | bool | None:
    if low == high:
        return _compared(column, "=", low, abilities)
    return _any([_compared(column, ">=", low, abilities), _compared(column, "<=", high, abilities)])


def _lacks(
    count: ColumnElement[int] | None, other: ColumnElement[int] | None, record_count: ColumnElement[int] | None
) -> ColumnElement[bool]:
    """Return the condition that a count is zero and reliable.

    DuckDB writes zero for both counts of types that it does not count, so the other count must be equal to the number of rows.
    """
    return false() if count is None or other is None or record_count is None else and_(count == 0, other > 0, other == record_count)


def _compared(column: ColumnReference, operator: Operator, value: LiteralValue, abilities: Abilities) -> Exclusion | bool | None:
    if value.value is None:
        return True
    fitted = fit(operator, value, column.type)
    if isinstance(fitted, bool):
        return None if fitted else True
    if fitted is None or fitted.operator == "<>":
        return None
    wanted = _wanted(fitted, column.type)
    if wanted is None:
        return None

    def outside(bounds: Bounds) -> ColumnElement[bool]:
        above, below = _keys(bounds, column.type, abilities)
        match fitted.operator:
            case "=":
                return or_(above > wanted, below < wanted)
            case "<" | "<=":
                return above > wanted
            case _:
                return below < wanted

    are_valid = _are_integers if column.type in INTEGERS and abilities.validates_input else None
    return _one(column, outside, lambda bounds: _are_ordered(bounds, column.type, abilities), are_valid)


def _text(bound: ColumnElement[str], abilities: Abilities) -> ColumnElement[str]:
    """Return the bound, NULL if it is not a string: SQLite cells may have any type, and blobs sort after all strings."""
    return case((func.typeof(bound) == "text", bound)) if abilities.has_untyped_cells else bound


def _are_ordered(bounds: Bounds, data_type: DataType, abilities: Abilities) -> ColumnElement[bool]:
    low, high = _keys(bounds, data_type, abilities)
    return func.coalesce(low <= high, true())


def _keys(bounds: Bounds, data_type: DataType, abilities: Abilities) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    """Return the keys of both bounds, built once for all comparisons with them."""

    def keys() -> tuple[ColumnElement[Any], ColumnElement[Any]]:
        if bounds.are_valid:
            return cast(bounds.low, BigInteger), cast(bounds.high, BigInteger)
        return _key(bounds.low, data_type, abilities), _key(bounds.high, data_type, abilities)

    return bounds.derived.get_or_make(data_type, keys)


def _key(bound: ColumnElement[str], data_type: DataType, abilities: Abilities) -> ColumnElement[Any]:
    """Return an expression that sorts like the value of a bound; NULL when the string has an unexpected form."""
    if data_type in INTEGERS:
        return integer_key(bound, abilities)
    text = _text(bound, abilities)
    return collate(text, abilities.binary_collation) if data_type == VARCHAR else _prefix(text, data_type, abilities)


def _wanted(fitted: Fitted, data_type: DataType) -> ColumnElement[Any] | None:
    """Return a constant in the form of :func:`_key`; None if it has no such form."""
    if data_type in INTEGERS and isinstance(fitted.value, int):
        return literal(fitted.value, BigInteger) if abs(fitted.value) < 10**_INTEGER_DIGITS else None
    if data_type == VARCHAR and isinstance(fitted.value, str) and "\0" not in fitted.value:
        return literal(fitted.value)
    if (data_type == DATE or data_type in TIMESTAMPS) and isinstance(fitted.value, int):
        text = _day_text(fitted.value) if data_type == DATE else _second_text(fitted.value, data_type)
        return None if text is None else literal(text)
    return None


def integer_key(text: ColumnElement[str], abilities: Abilities) -> ColumnElement[Any]:
    """Return the number that a bound contains; NULL if the whole bound is not a number of 64 bits."""
    if abilities.validates_input:
        return case((_is_integer(text), cast(text, BigInteger)))
    if abilities.has_regular_expressions:
        return case((and_(text.regexp_match("^-?[0-9]+$"), func.length(text) <= _INTEGER_DIGITS), cast(text, BigInteger)))
    # SQLite casts any cell. A number that reads like the cell again is the whole cell, a string, and fits; this takes a third of the time
    # of patterns.
    return case((cast(cast(text, BigInteger), Text) == text, cast(text, BigInteger)))


def _is_integer(text: ColumnElement[str]) -> ColumnElement[bool]:
    return func.pg_input_is_valid(text, "bigint", type_=Boolean)


def _are_integers(bounds: Bounds) -> ColumnElement[bool]:
    return and_(_is_integer(bounds.low), _is_integer(bounds.high))


def _prefix(text: ColumnElement[str], data_type: DataType, abilities: Abilities) -> ColumnElement[Any]:
    """Return day or second of a time, which sort like the time if the year has four digits and the zone is UTC."""
    length = len("2013-02-01") if data_type == DATE else len("2013-02-01 00:00:00")
    start = func.substr(text, 1, length)
    if abilities.has_regular_expressions:
        day, clock = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])", r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
        is_well_formed = start.regexp_match(f"^{day}$" if data_type == DATE else f"^{day} {clock}$")
    else:
        # SQLite has no regular expressions, but its functions return the canonical text of a time, and NULL for an invalid one.
        is_well_formed = (func.date(start) if data_type == DATE else func.datetime(start)) == start
    if data_type == DATE:
        ends_right = func.length(text) == length
    elif data_type == TIMESTAMPTZ:
        ends_right = text.like("%+00")
    else:
        ends_right = and_(text.not_like("%+%"), func.substr(text, length).not_like("%-%"))
    if data_type in _LONGEST:
        # A file may store finer times than the column has. They are rounded when they are read, so their bounds do not apply.
        ends_right = and_(ends_right, func.length(text) <= _LONGEST[data_type])
    return case((and_(is_well_formed, ends_right), collate(start, abilities.binary_collation)))


def _day_text(days: int) -> str | None:
    try:
        return f"{_EPOCH + timedelta(days=days):%Y-%m-%d}".rjust(10, "0")
    except OverflowError:
        return None


def _second_text(units: int, data_type: DataType) -> str | None:
    try:
        at = _EPOCH + timedelta(microseconds=units // 1000 if data_type == TIMESTAMP_NS else units)
    except OverflowError:
        return None
    return f"{at:%Y-%m-%d %H:%M:%S}".rjust(19, "0")


def _outside_prefix(bounds: Bounds, prefix: str, abilities: Abilities) -> ColumnElement[bool]:
    """Return the condition that no value between the bounds starts with a prefix.

    Either all values sort before the prefix, or the lower bound sorts after it without starting with it.
    """
    if "\0" in prefix:
        return false()
    low, high = (_key(bound, VARCHAR, abilities) for bound in (bounds.low, bounds.high))
    past = and_(low > literal(prefix), func.substr(bounds.low, 1, len(prefix)) != prefix)
    return or_(high < literal(prefix), past)


class _PositionArray(UserDefinedType[Any]):
    """An array of physical positions of rows (``tid[]``)."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "tid[]"


def groups_of(exclusion: Exclusion) -> list[Sequence[OutOfBounds]]:
    """Return the groups of conditions on bounds from all parts of an exclusion, in order. Each group is one bit of a packed word."""
    own: list[Sequence[OutOfBounds]] = [exclusion.bounds] if exclusion.bounds else []
    return [*own, *(group for other in exclusion.others for part in other.parts for group in groups_of(part))]


def packed_columns(exclusion: Exclusion, wanted: frozenset[int]) -> tuple[frozenset[int], bool]:
    """Return the columns whose statistics to pack, and whether they include all requested columns, so that positions are useful.

    Args:
        exclusion: The exclusion.
        wanted: Ids of the columns whose statistics the caller reads afterwards.
    """
    if len(wanted) <= _MAX_WITH_POSITIONS:
        return wanted, True
    excluding = dict.fromkeys(one.column.column_id for group in groups_of(exclusion) for one in group)
    return frozenset(islice(excluding, _MAX_PACKED_COLUMNS)), False


def limited(exclusion: Exclusion, columns: frozenset[int]) -> Exclusion:
    """Return the part of an exclusion that uses only some columns and fits into the bits of a word.

    Leaving out parts of a disjunction is safe, because it only excludes fewer files.

    Args:
        exclusion: The exclusion.
        columns: Ids of the columns.
    """
    bounds = tuple(one for one in exclusion.bounds if one.column.column_id in columns)
    remaining, others = _MAX_GROUPS - 1, []
    for other in exclusion.others:
        parts = tuple(limited(part, columns) for part in other.parts)
        counts = [len(groups_of(part)) for part in parts]
        if all(counts) and sum(counts) <= remaining:
            others.append(AllOf(parts=parts))
            remaining -= sum(counts)
    return Exclusion(bounds=bounds, others=tuple(others))


def packed_files(file: FromClause, excluded: ColumnElement[bool] | None) -> Select[Any]:
    """Select one row: the number of files (``total``), of those with an id (``numbered``), and the packed ids of the remaining ones.

    Args:
        file: The metadata table of data files.
        excluded: Condition that a file is excluded; None for none.
    """
    number = file.c.data_file_id
    left = number if excluded is None else case((excluded, null()), else_=number)
    packed = _joined(func.int8send(left)).label("files")
    columns: list[ColumnElement[Any]] = [func.count().label("total"), func.count(number).label("numbered"), packed]
    return select(*columns).select_from(file)


def packed_rows(
    stats: FromClause, table_id: int, columns: Iterable[int], outside: Sequence[ColumnElement[bool]], positions: Positions
) -> Select[Any]:
    """Select one row with all relevant statistics rows packed as ``statistics``; see the module for the layout.

    Args:
        stats: The metadata table.
        table_id: The table.
        columns: Ids of the columns. This condition comes before the one on the table, because it excludes more rows.
        outside: Conditions of the groups of the exclusion.
        positions: The rows whose positions to include.
    """
    if not outside:
        return select(null().label("statistics"))
    number = stats.c.data_file_id
    bits: list[ColumnElement[Any]] = [case((one, literal(_IDS << bit, BigInteger)), else_=0) for bit, one in enumerate(outside)]
    if len(outside) == 1 and positions != "all":
        bits = [literal(_IDS, BigInteger)]
    held = func.int8send(number + reduce(operator.add, bits))
    position = literal(_IS_POSITION, LargeBinary).op("||")(func.tidsend(_position))
    packed: ColumnElement[Any]
    if positions == "all":
        packed = held.op("||")(position)
    else:
        packed = case((or_(*outside), held), else_=null() if positions == "none" else func.int8send(number).op("||")(position))
    # As a CASE: in WHERE, the database could evaluate it first, on the rows of all columns.
    packed = case((and_(number >= 0, number < _IDS), packed))
    wanted = stats.c.column_id.in_(sorted(columns)), stats.c.table_id == table_id
    return select(_joined(packed).label("statistics")).select_from(stats).where(*wanted)


def _joined(binary: ColumnElement[Any]) -> ColumnElement[bytes]:
    return func.string_agg(binary, literal(b"", LargeBinary))


def is_at(positions: Sequence[str]) -> ColumnElement[bool]:
    """Return the condition that a row is at one of some physical positions."""
    return _position == any_(cast(literal("{" + ",".join(f'"{position}"' for position in positions) + "}", Text), _PositionArray()))


class PackedSets:
    """The unpacked result of :func:`packed_files` and :func:`packed_rows`.

    Args:
        row: The row of both queries.
        exclusion: The exclusion whose groups are the bits.
        has_positions: Whether the positions of all requested statistics rows are included.

    Attributes:
        total: Number of live files.
        by_partition: Number of files excluded by partition values.
        kept: Ids of the remaining files, ascending.
    """

    def __init__(self, row: Row[Any], exclusion: Exclusion, *, has_positions: bool) -> None:
        self.has_positions = has_positions
        live, self._words = _words(row.files), _words(row.statistics)
        self.total: int = row.total
        self.by_partition = self.total - len(live)
        groups = (_ids(self._words[(self._words & (_IDS << bit)) != 0]) for bit in range(len(groups_of(exclusion))))
        self.kept = array("q", np.sort(live[np.isin(live, _excluded_ids(exclusion, groups), invert=True)]).astype(np.int64).tobytes())

    def positions(self) -> list[str]:
        """Return the physical positions of the statistics rows of the remaining files."""
        # A position is a negative number (bit 63 is set), and the word before it has the id of its file.
        after = np.flatnonzero(self._words < 0)
        found = _ids(self._words[after[np.isin(_ids(self._words[after - 1]), self.kept)]])
        return [f"({position >> 16},{position & 0xFFFF})" for position in found.tolist()]


def _excluded_ids(exclusion: Exclusion, groups: Iterator[np.ndarray]) -> np.ndarray:
    found = [next(groups)] if exclusion.bounds else []
    found += [reduce(np.intersect1d, [_excluded_ids(part, groups) for part in other.parts]) for other in exclusion.others]
    return found[0] if len(found) == 1 else np.concatenate([np.empty(0, np.int64), *found])


def _ids(words: np.ndarray) -> np.ndarray:
    """Return the lower 48 bits of words: ids or positions."""
    return words & (_IDS - 1)


def _words(packed: bytes | None) -> np.ndarray:
    """Return big-endian numbers of 8 bytes, as the database sends them, as an array."""
    return np.frombuffer(packed or b"", ">i8").astype(np.int64)
