"""Prune files in SQL: find files that cannot hold a matching row by bounds that the database compares safely."""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
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

# More values of an IN list than this become ranges that hold some of them each.
_MAX_RANGES = 100
# Longer conditions, and those on more columns, are cut down to what they say about each column.
_MAX_TERMS = 60
_MAX_COLUMNS = 8
# So many comparisons with bounds take longer than two tests whether they can be read.
_MANY = 2
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Shorter than any text that could leave the range of BIGINT.
_INTEGER_DIGITS = 18
_LONGEST: dict[DataType, int] = {
    TIMESTAMP_S: len("2013-02-01 00:00:00"),
    TIMESTAMP_MS: len("2013-02-01 00:00:00.123"),
    TIMESTAMP: len("2013-02-01 00:00:00.123456"),
    TIMESTAMPTZ: len("2013-02-01 00:00:00.123456+00"),
}

WORK_MEMORY = "256MB"
"""What the server may hold of excluded files: where they do not fit it looks through all of them for each file."""
_MAX_GROUPS = 15
# Of so many columns the places come too, and so many may exclude files: a million files take 8 or 16 MB for each.
_MAX_PLACED = 4
_MAX_PACKED_COLUMNS = 12
_IDS = 1 << 48
_IS_PLACE = b"\x80\x00"
_place: ColumnClause[Any] = literal_column("ctid")
Places: TypeAlias = Literal["none", "of rows that exclude nothing", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Where the bounds of one column in one file are: text columns of some rows, NULL for unknown.

    ``are_valid`` says that both are known to be texts of the column's type.
    """

    low: ColumnElement[str]
    high: ColumnElement[str]
    are_valid: bool = False
    null_count: ColumnElement[int] | None = None
    value_count: ColumnElement[int] | None = None
    record_count: ColumnElement[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfBounds:
    """No row of a file matches because of the bounds, or the counts, of one column.

    Attributes:
        column: The column.
        condition: What says so.
        in_order: Whether the bounds are not swapped, which would make both unknown; None for conditions on counts.
        are_valid: Whether both bounds are texts of the column's type; None where the database cannot tell that by itself.
        comparisons: How many conditions on bounds it is made of.
    """

    column: ColumnReference
    condition: Callable[[Bounds], ColumnElement[bool]]
    in_order: Callable[[Bounds], ColumnElement[bool]] | None = None
    are_valid: Callable[[Bounds], ColumnElement[bool]] | None = None
    comparisons: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AllOf:
    """Each of these has to hold."""

    parts: tuple[Exclusion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """When a file surely holds no matching row: any of these is enough.

    Kept as a value, so that all conditions on bounds side by side become one question to the database, which has no index.
    """

    bounds: tuple[OutOfBounds, ...] = ()
    others: tuple[AllOf, ...] = ()


def any_of(conditions: Sequence[OutOfBounds], bounds: Bounds) -> ColumnElement[bool]:
    """Any of these conditions, all on one column, holds for its bounds."""
    counts = [one.condition(bounds) for one in conditions if one.in_order is None]
    values = [one for one in conditions if one.in_order is not None]
    if not values:
        return or_(*counts)
    found = _any_by_value(values, bounds)
    if values[0].are_valid is not None and sum(one.comparisons for one in values) >= _MANY:
        # Nearly all are, and then each text is tested once instead of every time that it is compared.
        found = case((values[0].are_valid(bounds), _any_by_value(values, replace(bounds, are_valid=True))), else_=found)
    return or_(*counts, found)


def _any_by_value(conditions: Sequence[OutOfBounds], bounds: Bounds) -> ColumnElement[bool]:
    # How bounds compare is a matter of the column's type, the same for all: one test of their order is enough.
    in_order = conditions[0].in_order
    assert in_order is not None
    return and_(or_(*(one.condition(bounds) for one in conditions)), in_order(bounds))


FilesWhere = Callable[[Sequence[OutOfBounds]], ColumnElement[bool] | None]
"""The condition on a file that any of these conditions on bounds holds for it; None when there are no bounds of these columns."""


def condition_of(exclusion: Exclusion | bool | None, files_where: FilesWhere) -> ColumnElement[bool] | None:
    """The condition on a file that it is excluded; None when nothing excludes a file."""
    if not isinstance(exclusion, Exclusion):
        return true() if exclusion else None
    found = [files_where(exclusion.bounds)] if exclusion.bounds else []
    for other in exclusion.others:
        parts = [condition_of(part, files_where) for part in other.parts]
        found.append(None if any(part is None for part in parts) else and_(*(part for part in parts if part is not None)))
    conditions = [part for part in found if part is not None]
    return or_(*conditions) if conditions else None


def excluded(predicate: Predicate, abilities: Abilities) -> Exclusion | bool | None:
    """When a file surely holds no matching row; True when that is so for all files, None when nothing can be said in SQL.

    Of a long condition it is what the condition says about each column alone: databases refuse deep conditions, and take long to
    read long ones.
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
                column, lambda bounds: _outside_prefix(bounds, prefix, abilities), lambda bounds: _in_order(bounds, VARCHAR, abilities)
            )
        # DuckDB counts nulls of variants as values.
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
    in_order: Callable[[Bounds], ColumnElement[bool]] | None = None,
    are_valid: Callable[[Bounds], ColumnElement[bool]] | None = None,
) -> Exclusion:
    return Exclusion(bounds=(OutOfBounds(column=column, condition=condition, in_order=in_order, are_valid=are_valid),))


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
        # All about one column: one look at its bounds decides.
        alternatives = [[leaf.condition for leaf in part.bounds] for part in found]
        leaf = next((leaf for part in found for leaf in part.bounds if leaf.in_order is not None), found[0].bounds[0])

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
    """No row of that kind, as long as all are of the other: DuckDB writes two zeros for types that it does not count."""
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
    return _one(column, outside, lambda bounds: _in_order(bounds, column.type, abilities), are_valid)


def _text(bound: ColumnElement[str], abilities: Abilities) -> ColumnElement[str]:
    """The bound, NULL where it is no text: blobs are greater than every text."""
    return case((func.typeof(bound) == "text", bound)) if abilities.has_untyped_cells else bound


def _in_order(bounds: Bounds, data_type: DataType, abilities: Abilities) -> ColumnElement[bool]:
    low, high = _keys(bounds, data_type, abilities)
    return func.coalesce(low <= high, true())


def _keys(bounds: Bounds, data_type: DataType, abilities: Abilities) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    if bounds.are_valid:
        return cast(bounds.low, BigInteger), cast(bounds.high, BigInteger)
    return _key(bounds.low, data_type, abilities), _key(bounds.high, data_type, abilities)


def _key(bound: ColumnElement[str], data_type: DataType, abilities: Abilities) -> ColumnElement[Any]:
    """An expression that orders like the value of a bound's text; NULL when the text has an unexpected form."""
    text = _text(bound, abilities)
    if data_type in INTEGERS:
        return _integer(text, abilities)
    return collate(text, abilities.binary_collation) if data_type == VARCHAR else _prefix(text, data_type, abilities)


def _wanted(fitted: Fitted, data_type: DataType) -> ColumnElement[Any] | None:
    """A constant in the form of :func:`_key`; None where there is none."""
    if data_type in INTEGERS and isinstance(fitted.value, int):
        return literal(fitted.value, BigInteger) if abs(fitted.value) < 10**_INTEGER_DIGITS else None
    if data_type == VARCHAR and isinstance(fitted.value, str) and "\0" not in fitted.value:
        return literal(fitted.value)
    if (data_type == DATE or data_type in TIMESTAMPS) and isinstance(fitted.value, int):
        text = _day_text(fitted.value) if data_type == DATE else _second_text(fitted.value, data_type)
        return None if text is None else literal(text)
    return None


def _integer(text: ColumnElement[str], abilities: Abilities) -> ColumnElement[Any]:
    if abilities.validates_input:
        return case((_is_integer(text), cast(text, BigInteger)))
    digits = func.substr(text, 2)
    if abilities.has_regular_expressions:
        looks_right = text.regexp_match("^-?[0-9]+$")
    else:
        unsigned = and_(text != "", text.op("NOT GLOB")("*[^0-9]*"))
        looks_right = or_(unsigned, and_(text.op("GLOB")("-*"), digits != "", digits.op("NOT GLOB")("*[^0-9]*")))
    return case((and_(looks_right, func.length(text) <= _INTEGER_DIGITS), cast(text, BigInteger)))


def _is_integer(text: ColumnElement[str]) -> ColumnElement[bool]:
    return func.pg_input_is_valid(text, "bigint", type_=Boolean)


def _are_integers(bounds: Bounds) -> ColumnElement[bool]:
    return and_(_is_integer(bounds.low), _is_integer(bounds.high))


def _prefix(text: ColumnElement[str], data_type: DataType, abilities: Abilities) -> ColumnElement[Any]:
    """Day or second of a time, which orders like the time itself as long as it is of a year of four digits and in UTC."""
    length = len("2013-02-01") if data_type == DATE else len("2013-02-01 00:00:00")
    start = func.substr(text, 1, length)
    if abilities.has_regular_expressions:
        day, clock = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])", r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
        looks_right = start.regexp_match(f"^{day}$" if data_type == DATE else f"^{day} {clock}$")
    else:
        # SQLite gives the usual text of a time, and NULL for what is none.
        looks_right = (func.date(start) if data_type == DATE else func.datetime(start)) == start
    if data_type == DATE:
        ends_right = func.length(text) == length
    elif data_type == TIMESTAMPTZ:
        ends_right = text.like("%+00")
    else:
        ends_right = and_(text.not_like("%+%"), func.substr(text, length).not_like("%-%"))
    if data_type in _LONGEST:
        # The bound of a file with finer times is none of what is read, which is rounded.
        ends_right = and_(ends_right, func.length(text) <= _LONGEST[data_type])
    return case((and_(looks_right, ends_right), collate(start, abilities.binary_collation)))


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
    """No value between the bounds starts with the prefix: all sort before it, or the least is past everything with it."""
    if "\0" in prefix:
        return false()
    low, high = (_key(bound, VARCHAR, abilities) for bound in (bounds.low, bounds.high))
    past = and_(low > literal(prefix), func.substr(bounds.low, 1, len(prefix)) != prefix)
    return or_(high < literal(prefix), past)


class _Places(UserDefinedType[Any]):
    """An array of places of rows."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "tid[]"


def groups_of(exclusion: Exclusion) -> list[Sequence[OutOfBounds]]:
    """The conditions on bounds that stand side by side, from all parts of an exclusion, in their order."""
    own: list[Sequence[OutOfBounds]] = [exclusion.bounds] if exclusion.bounds else []
    return [*own, *(group for other in exclusion.others for part in other.parts for group in groups_of(part))]


def packed_columns(exclusion: Exclusion, wanted: frozenset[int]) -> tuple[frozenset[int], bool]:
    """The columns whose statistics are packed, and whether they are all that are wanted, so that their places are of use."""
    if len(wanted) <= _MAX_PLACED:
        return wanted, True
    excluding = dict.fromkeys(one.column.column_id for group in groups_of(exclusion) for one in group)
    return frozenset(islice(excluding, _MAX_PACKED_COLUMNS)), False


def limited(exclusion: Exclusion, columns: frozenset[int]) -> Exclusion:
    """What some columns say of an exclusion, and no more than there are bits for: it excludes no file that the whole does not."""
    bounds = tuple(one for one in exclusion.bounds if one.column.column_id in columns)
    room, others = _MAX_GROUPS - 1, []
    for other in exclusion.others:
        parts = tuple(limited(part, columns) for part in other.parts)
        counts = [len(groups_of(part)) for part in parts]
        if all(counts) and sum(counts) <= room:
            others.append(AllOf(parts=parts))
            room -= sum(counts)
    return Exclusion(bounds=bounds, others=tuple(others))


def packed_files(file: FromClause, excluded: ColumnElement[bool] | None) -> Select[Any]:
    """One row for files: how many there are (``total``) and have an id (``numbered``), and the ids of those that are not excluded."""
    number = file.c.data_file_id
    left = number if excluded is None else case((excluded, null()), else_=number)
    packed = _joined(func.int8send(left)).label("files")
    columns: list[ColumnElement[Any]] = [func.count().label("total"), func.count(number).label("numbered"), packed]
    return select(*columns).select_from(file)


def packed_rows(
    stats: FromClause, table_id: int, columns: Iterable[int], outside: Sequence[ColumnElement[bool]], places: Places
) -> Select[Any]:
    """One row for rows of statistics, which has all of them as ``statistics``.

    Args:
        stats: The metadata table.
        table_id: The table.
        columns: Ids of the columns. What leaves out most rows is asked first: the database keeps the order.
        outside: The conditions of the exclusion's groups.
        places: Which come along.
    """
    if not outside:
        return select(null().label("statistics"))
    number = stats.c.data_file_id
    bits: list[ColumnElement[Any]] = [case((one, literal(_IDS << bit, BigInteger)), else_=0) for bit, one in enumerate(outside)]
    if len(outside) == 1 and places != "all":
        bits = [literal(_IDS, BigInteger)]
    held = func.int8send(number + reduce(operator.add, bits))
    place = literal(_IS_PLACE, LargeBinary).op("||")(func.tidsend(_place))
    packed: ColumnElement[Any]
    if places == "all":
        packed = held.op("||")(place)
    else:
        packed = case((or_(*outside), held), else_=null() if places == "none" else func.int8send(number).op("||")(place))
    # Were it a condition of the query, the database would ask it of the rows of all columns, before the equalities.
    packed = case((and_(number >= 0, number < _IDS), packed))
    wanted = stats.c.column_id.in_(sorted(columns)), stats.c.table_id == table_id
    return select(_joined(packed).label("statistics")).select_from(stats).where(*wanted)


def _joined(binary: ColumnElement[Any]) -> ColumnElement[bytes]:
    return func.string_agg(binary, literal(b"", LargeBinary))


def is_at(places: Sequence[str]) -> ColumnElement[bool]:
    """The row is at one of some places."""
    return _place == any_(cast(literal("{" + ",".join(f'"{place}"' for place in places) + "}", Text), _Places()))


class PackedSets:
    """What one statement has found out about the files of a table.

    Args:
        row: ``packed_files`` and ``packed_rows``.
        exclusion: The exclusion whose groups the bits are.
        has_places: Whether the rows are all that are wanted of a file that may stay.

    Attributes:
        total: Number of live files.
        by_partition: How many of them are excluded without a look at statistics.
        kept: Ids of the files that nothing excludes, ascending.
    """

    def __init__(self, row: Row[Any], exclusion: Exclusion, *, has_places: bool) -> None:
        self.has_places = has_places
        live, self._words = _words(row.files), _words(row.statistics)
        self.total: int = row.total
        self.by_partition = self.total - len(live)
        groups = (_ids(self._words[(self._words & (_IDS << bit)) != 0]) for bit in range(len(groups_of(exclusion))))
        self.kept = array("q", np.sort(live[np.isin(live, _excluded_ids(exclusion, groups), invert=True)]).astype(np.int64).tobytes())

    def places(self) -> list[str]:
        """Where the rows of statistics of the kept files are."""
        after = np.flatnonzero(self._words < 0)
        found = _ids(self._words[after[np.isin(_ids(self._words[after - 1]), self.kept)]])
        return [f"({place >> 16},{place & 0xFFFF})" for place in found.tolist()]


def _excluded_ids(exclusion: Exclusion, groups: Iterator[np.ndarray]) -> np.ndarray:
    found = [next(groups)] if exclusion.bounds else []
    found += [reduce(np.intersect1d, [_excluded_ids(part, groups) for part in other.parts]) for other in exclusion.others]
    return found[0] if len(found) == 1 else np.concatenate([np.empty(0, np.int64), *found])


def _ids(words: np.ndarray) -> np.ndarray:
    """What the lower bits of words say: ids, or places."""
    return words & (_IDS - 1)


def _words(packed: bytes | None) -> np.ndarray:
    """Numbers of eight bytes, as the database sends them: the first byte is the highest."""
    return np.frombuffer(packed or b"", ">i8").astype(np.int64)
