"""Fold chains of AND and OR over one column into ascending ranges of values."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from ducklake_core.errors import DuckLakeError
from ducklake_core.format.expressions.comparison import FLIPPED, Domain, Fitted, common_domain, domain_of, fit, key_of
from ducklake_core.format.expressions.predicates import (
    And,
    ColumnReference,
    Comparison,
    InList,
    InRanges,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    Range,
    StartsWith,
    conjunction,
    disjunction,
    negation,
)
from ducklake_core.format.types.data_types import VARCHAR, DataType

_Edge: TypeAlias = tuple[int, Any, int]
# A span is a pair of edges, tuples that have the order of the values:
#
#            inclusive      exclusive      no bound
#   start    (1, key, 0)    (1, key, 1)    (0, 0, 0)  sorts before every other start
#   end      (0, key, 1)    (0, key, 0)    (1, 0, 0)  sorts after every other end
#
# Starts are compared with starts and ends with ends, as tuples. Only _is_empty and _meet compare a start with an end.
_FIRST: _Edge = (0, 0, 0)
_LAST: _Edge = (1, 0, 0)

# Fewer ranges than this stay comparisons, which every engine can push down to its files.
_MIN_RANGES = 8
# Two comparisons are a range already.
_MIN_COMPARISONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Values from a start to an end: ``(1, key, 1 if exclusive)`` and ``(0, key, 1 if inclusive)``, with the column's own values."""

    start: _Edge = _FIRST
    end: _Edge = _LAST
    low: object = field(default=None, compare=False)
    high: object = field(default=None, compare=False)

    @property
    def is_point(self) -> bool:
        """Return whether the range holds only one value."""
        return self.start[0] == 1 and self.end[0] == 0 and bool(self.start[1] == self.end[1])


def spans_of(predicate: Predicate) -> tuple[ColumnReference, list[Span]] | None:
    """Return the values of one column for which a condition is true; it is false for all others, and NULL for NULL.

    Returns:
        The column and disjoint spans, ascending; None for a condition that is not such a set.
    """
    match predicate:
        case Comparison(left=ColumnReference() as column, operator=operator, right=Literal() as literal):
            return _compared(column, operator, literal)
        case Comparison(left=Literal() as literal, operator=operator, right=ColumnReference() as column):
            return _compared(column, FLIPPED[operator], literal)
        case InList(operand=column, values=values, has_null=False):
            points = [_compared(column, "=", value) for value in values]
            return None if any(point is None for point in points) else (column, united(s for p in points if p is not None for s in p[1]))
        case InRanges(operand=column, ranges=found):
            return column, [_of_range(one, column.type) for one in found]
        case And(operands=operands) | Or(operands=operands):
            # The first operand alone: for most long chains it shows already that they are not a set of one column.
            parts = [spans_of(operand) for operand in operands[:1]]
            if parts[0] is None:
                return None
            parts += [spans_of(operand) for operand in operands[1:]]
            known = [part for part in parts if part is not None]
            if len(known) < len(parts) or len({column for column, _ in known}) > 1:
                return None
            sets = [spans for _, spans in known]
            return known[0][0], united(span for spans in sets for span in spans) if isinstance(predicate, Or) else common(sets)
        case _:
            return None


def _compared(column: ColumnReference, operator: Operator, literal: Literal) -> tuple[ColumnReference, list[Span]] | None:
    domain = domain_of(column.type)
    if literal.value is None or domain is None or common_domain(column.type, literal.type) is None:
        return None
    try:
        fitted = fit(operator, literal, column.type)
        if isinstance(fitted, bool):
            return column, [Span()] if fitted else []
        if fitted is None:
            return None
        key, value = key_of(fitted.value, column.type, domain), fitted.value
    except (DuckLakeError, ValueError, ArithmeticError):
        return None
    return column, _spans(fitted, key, value)


def _spans(fitted: Fitted, key: Any, value: object) -> list[Span]:
    below, above = Span(end=(0, key, 0), high=value), Span(start=(1, key, 1), low=value)
    match fitted.operator:
        case "=":
            return [Span(start=(1, key, 0), end=(0, key, 1), low=value, high=value)]
        case "<>":
            return [below, above]
        case "<":
            return [below]
        case "<=":
            return [Span(end=(0, key, 1), high=value)]
        case ">":
            return [above]
        case ">=":
            return [Span(start=(1, key, 0), low=value)]


def _of_range(one: Range, data_type: DataType) -> Span:
    domain = domain_of(data_type)
    assert domain is not None
    start = _FIRST if one.low is None else (1, key_of(one.low, data_type, domain), int(not one.low_inclusive))
    end = _LAST if one.high is None else (0, key_of(one.high, data_type, domain), int(one.high_inclusive))
    return Span(start=start, end=end, low=one.low, high=one.high)


def _is_empty(start: _Edge, end: _Edge) -> bool:
    if start[0] == 0 or end[0] == 1:
        return False
    return bool(start[1] > end[1]) or (bool(start[1] == end[1]) and (start[2] == 1 or end[2] == 0))


def _meet(end: _Edge, start: _Edge) -> bool:
    """Return whether nothing lies between the end of one span and the start of another that does not begin before it."""
    if start[0] == 0 or end[0] == 1:
        return True
    return bool(start[1] < end[1]) or (bool(start[1] == end[1]) and (start[2] == 0 or end[2] == 1))


def united(spans: Iterable[Span]) -> list[Span]:
    """Return all values of the spans, as disjoint spans that do not touch, ascending."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda span: span.start):
        if found and _meet(found[-1].end, span.start):
            last = found[-1]
            if span.end > last.end:
                found[-1] = Span(start=last.start, end=span.end, low=last.low, high=span.high)
        else:
            found.append(span)
    return found


def common(sets: Sequence[list[Span]]) -> list[Span]:
    """Return the values that all of the sets have."""
    found = sets[0]
    for spans in sets[1:]:
        found = _intersection(found, spans)
    return found


def _intersection(first: list[Span], second: list[Span]) -> list[Span]:
    found: list[Span] = []
    i = j = 0
    while i < len(first) and j < len(second):
        one, other = first[i], second[j]
        later = one if one.start >= other.start else other
        earlier = one if one.end <= other.end else other
        if not _is_empty(later.start, earlier.end):
            found.append(Span(start=later.start, end=earlier.end, low=later.low, high=earlier.high))
        if earlier is one:
            i += 1
        else:
            j += 1
    return found


def in_spans(column: ColumnReference, spans: Sequence[Span]) -> Predicate:
    """Return the condition that a column is in one of the spans, which are disjoint and ascend; NULL for NULL."""
    if all(span.is_point for span in spans):
        values = tuple(Literal(value=span.low, type=column.type) for span in spans)
        if len(values) == 1:
            return Comparison(left=column, operator="=", right=values[0])
        return InList(operand=column, values=values)
    if len(spans) == 1 and spans[0] != Span():
        return conjunction(_comparisons(column, spans[0]))
    ranges = (Range(low=s.low, low_inclusive=s.start[2] == 0, high=s.high, high_inclusive=s.end[2] == 1) for s in spans)
    return InRanges(operand=column, ranges=tuple(ranges))


def _comparisons(column: ColumnReference, span: Span) -> list[Predicate]:
    found: list[Predicate] = []
    if span.start[0] == 1:
        low = Literal(value=span.low, type=column.type)
        found.append(Comparison(left=column, operator=">" if span.start[2] else ">=", right=low))
    if span.end[0] == 0:
        high = Literal(value=span.high, type=column.type)
        found.append(Comparison(left=column, operator="<=" if span.end[2] else "<", right=high))
    return found


def necessary(predicate: Predicate) -> dict[ColumnReference, list[Span]]:
    """Return ranges of values by column; outside of them the condition is not true.

    >>> from ducklake_core.format.types.data_types import INT32
    >>> a, b = (ColumnReference(column_id=n, path=(name,), type=INT32) for n, name in enumerate("ab"))
    >>> def both(n):
    ...     return And(operands=tuple(Comparison(left=c, operator="=", right=Literal(value=n, type=INT32)) for c in (a, b)))
    >>> branches = [both(1), both(9)]
    >>> [(column.path, [(span.low, span.high) for span in spans]) for column, spans in necessary(Or(operands=tuple(branches))).items()]
    [(('a',), [(1, 1), (9, 9)]), (('b',), [(1, 1), (9, 9)])]
    """
    match predicate:
        case And(operands=operands):
            found: dict[ColumnReference, list[Span]] = {}
            for operand in operands:
                for column, spans in necessary(operand).items():
                    found[column] = _intersection(found[column], spans) if column in found else spans
            return found
        case Or(operands=operands):
            return _necessary_for_any([necessary(operand) for operand in operands])
        case StartsWith(operand=column, prefix=prefix) if column.type == VARCHAR and prefix:
            return {column: [_with_prefix(prefix)]}
        case _:
            known = spans_of(predicate)
            return {} if known is None else {known[0]: known[1]}


def _necessary_for_any(parts: list[dict[ColumnReference, list[Span]]]) -> dict[ColumnReference, list[Span]]:
    shared = {column for column in parts[0] if all(column in part for part in parts)} if parts else set()
    return {column: united(span for part in parts for span in part[column]) for column in parts[0] if column in shared} if shared else {}


def _with_prefix(prefix: str) -> Span:
    """Return the span from the prefix to the first string that sorts after all strings with this prefix."""
    last = ord(prefix[-1]) + 1
    start: _Edge = (1, prefix, 0)
    # No string can hold half of a surrogate pair or a character beyond U+10FFFF, so there is no upper end.
    if 0xD800 <= last <= 0xDFFF or last > 0x10FFFF:
        return Span(start=start, low=prefix)
    after = prefix[:-1] + chr(last)
    return Span(start=start, end=(0, after, 0), low=prefix, high=after)


def coarser(spans: Sequence[Span], most: int) -> list[Span]:
    """Return at most ``most`` spans, which hold all values of the given ones."""
    size = -(-len(spans) // most) or 1
    chunks = (spans[start : start + size] for start in range(0, len(spans), size))
    return [Span(start=chunk[0].start, end=chunk[-1].end, low=chunk[0].low, high=chunk[-1].high) for chunk in chunks]


def spans_of_ranges(predicate: InRanges) -> list[Span]:
    """Return the ranges as spans, made once."""
    return predicate.derived.get_or_make("spans", lambda: [_of_range(one, predicate.operand.type) for one in predicate.ranges])


def spans_between(spans: Sequence[Span], low: Any, high: Any) -> tuple[bool, bool]:
    """Return whether a value between two inclusive bounds may be in one of the ascending spans, and whether every one surely is.

    Args:
        spans: Disjoint spans, ascending.
        low: Lower bound of the values, included; None for no bound.
        high: Upper bound of the values, included; None for no bound.
    """
    start: _Edge = _FIRST if low is None else (1, low, 0)
    end: _Edge = _LAST if high is None else (0, high, 1)
    # The first span that does not end before the bounds begin.
    first = bisect_left(spans, True, key=lambda span: not _is_empty(start, span.end))
    if first == len(spans) or _is_empty(spans[first].start, end):
        return False, False
    return True, spans[first].start <= start and spans[first].end >= end


def any_of(predicates: Iterable[Predicate]) -> Predicate:
    """Return the condition that any of the predicates holds, in its shortest form."""
    whole = disjunction(predicates)
    if not isinstance(whole, Or):
        return whole
    # Equalities and lists of one column become one list, which is looked up; many ranges become one search. Evaluated one by one, 5,000
    # equalities would be 5,000 passes over the rows.
    lists: dict[ColumnReference, list[InList]] = {}
    for operand in whole.operands:
        found = _as_list(operand)
        if found is not None:
            lists.setdefault(found.operand, []).append(found)
    rest = [operand for operand in whole.operands if _as_list(operand) is None]
    joined = [_one_list(column, found) for column, found in lists.items()]
    return disjunction(_with_ranges([*joined, *rest]))


def _as_list(predicate: Predicate) -> InList | None:
    match predicate:
        case Comparison(left=ColumnReference() as column, operator="=", right=Literal() as literal) if literal.value is not None:
            return InList(operand=column, values=(literal,))
        case Comparison(left=Literal() as literal, operator="=", right=ColumnReference() as column) if literal.value is not None:
            return InList(operand=column, values=(literal,))
        case InList():
            return predicate
        case _:
            return None


def _one_list(column: ColumnReference, lists: list[InList]) -> Predicate:
    values = tuple(dict.fromkeys(value for one in lists for value in one.values))
    has_null = any(one.has_null for one in lists)
    if len(lists) == 1 and len(values) == 1 and not has_null:
        return Comparison(left=column, operator="=", right=values[0])
    return InList(operand=column, values=values, has_null=has_null)


def _with_ranges(operands: list[Predicate]) -> list[Predicate]:
    """Return the operands of an OR, those about the ranges of one column as one where they are many."""
    sets: dict[ColumnReference, list[tuple[int, list[Span]]]] = {}
    for place, operand in enumerate(operands):
        known = spans_of(operand)
        if known is not None:
            sets.setdefault(known[0], []).append((place, known[1]))
    replaced: dict[int, Predicate | None] = {}
    for column, found in sets.items():
        few = len(found) < _MIN_RANGES and not any(isinstance(operands[place], InRanges) for place, _ in found)
        if len(found) < 2 or few:
            continue
        replaced |= {place: None for place, _ in found}
        replaced[found[0][0]] = in_spans(column, united(span for _, spans in found for span in spans))
    kept = [replaced.get(place, operand) for place, operand in enumerate(operands)]
    return [operand for operand in kept if operand is not None]


def all_of(predicates: Iterable[Predicate]) -> Predicate:
    """Return the condition that all of the predicates hold, in its shortest form."""
    whole = conjunction(predicates)
    if not isinstance(whole, And) or len(whole.operands) < _MIN_COMPARISONS:
        return whole
    # The counterpart of any_of: inequalities of one column become NOT IN, and ranges their intersection.
    excluded: dict[ColumnReference, list[tuple[int, InList]]] = {}
    sets: dict[ColumnReference, list[tuple[int, list[Span]]]] = {}
    for place, operand in enumerate(whole.operands):
        not_in = _as_excluded_list(operand)
        known = spans_of(operand) if not_in is None and isinstance(operand, Comparison | InRanges) else None
        if not_in is not None:
            excluded.setdefault(not_in.operand, []).append((place, not_in))
        elif known is not None:
            sets.setdefault(known[0], []).append((place, known[1]))
    changed: dict[int, Predicate | None] = {}
    for column, lists in excluded.items():
        if len(lists) > 1:
            changed |= {place: None for place, _ in lists}
            changed[lists[0][0]] = negation(_one_list(column, [one for _, one in lists]))
    for column, found in sets.items():
        if len(found) >= _MIN_COMPARISONS:
            changed |= {place: None for place, _ in found}
            changed[found[0][0]] = in_spans(column, common([spans for _, spans in found]))
    kept = [changed.get(place, operand) for place, operand in enumerate(whole.operands)]
    return conjunction(operand for operand in kept if operand is not None)


def _as_excluded_list(predicate: Predicate) -> InList | None:
    match predicate:
        case Comparison(operator="<>"):
            return _as_list(replace(predicate, operator="="))
        case Not(operand=InList() as found):
            return found
        case _:
            return None


def sorted_keys(predicate: InList, column_type: DataType) -> Mapping[Domain | None, Sequence[Any]]:
    """Return the ascending keys of the constants but NULL, by the domain in which they compare with the column (None for no domain)."""

    def sort() -> Mapping[Domain | None, Sequence[Any]]:
        return {
            domain: [] if domain is None else sorted({key_of(literal.value, literal.type, domain) for literal in found})
            for domain, found in _by_domain(predicate.values, column_type).items()
        }

    return predicate.derived.get_or_make(("keys", column_type), sort)


def _by_domain(values: Sequence[Literal], column_type: DataType) -> dict[Domain | None, list[Literal]]:
    found: dict[Domain | None, list[Literal]] = {}
    for literal in values:
        if literal.value is not None:
            found.setdefault(common_domain(column_type, literal.type), []).append(literal)
    return found


def any_between(keys: Sequence[Any], low: Any, high: Any) -> bool:
    """Return whether one of the ascending keys is at least ``low`` and at most ``high``; None means no bound.

    >>> any_between([1, 5, 9], 2, 4), any_between([1, 5, 9], 2, 5), any_between([1, 5, 9], None, 0), any_between([], None, None)
    (False, True, False, False)
    """
    index = 0 if low is None else bisect_left(keys, low)
    return index < len(keys) and (high is None or bool(keys[index] <= high))


def ranges(values: Sequence[Literal], column_type: DataType, most: int) -> list[tuple[Literal, Literal]]:
    """Return at most ``most`` ranges per domain that hold all constants but NULL: first and last value, equal for a single one.

    >>> from ducklake_core.format.types.data_types import INT32
    >>> found = ranges([Literal(value=n, type=INT32) for n in (9, 1, 5, 6, 2)], INT32, 2)
    >>> [(low.value, high.value) for low, high in found]
    [(1, 5), (6, 9)]

    Args:
        values: Constants of a list.
        column_type: Type of the column that they are compared with.
        most: Maximum number of ranges per domain.
    """
    found: list[tuple[Literal, Literal]] = []
    for domain, literals in _by_domain(values, column_type).items():
        if domain is None or len(literals) <= most:
            found += [(literal, literal) for literal in literals]
            continue
        keyed = sorted(((key_of(literal.value, literal.type, domain), literal) for literal in literals), key=lambda pair: pair[0])
        size = -(-len(keyed) // most)
        chunks = (keyed[start : start + size] for start in range(0, len(keyed), size))
        found += [(chunk[0][1], chunk[-1][1]) for chunk in chunks]
    return found
