"""Chains of AND and OR made short: what they say about one column becomes a list of values or of ranges.

    k = 1 OR k = 2 OR k = 3                         k IN (1, 2, 3)
    (t >= 1 AND t < 2) OR (t >= 2 AND t < 3) ...    one list of ranges, adjacent ones joined
    k <> 1 AND k <> 2                               NOT k IN (1, 2)

Each has the same outcome as the chain for every row, NULL included.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

from ducklake_core.errors import UsageError
from ducklake_core.format.expressions.predicates import (
    MOST_LEVELS,
    And,
    ColumnReference,
    Comparison,
    InList,
    InRanges,
    Literal,
    Not,
    Or,
    Predicate,
    conjunction,
    disjunction,
    negation,
    walk,
)
from ducklake_core.format.expressions.ranges import Span, common, in_spans, spans_of, united

# Fewer ranges than this stay comparisons, which every engine can push down to its files.
_LEAST_RANGES = 8
# Two comparisons are a range already.
_LEAST_COMPARISONS = 3
# Predicates of no more parts than this are taken as they were built.
_SMALL = 50


def any_of(predicates: Iterable[Predicate]) -> Predicate:
    """Any of the predicates, as short as it can be said."""
    whole = disjunction(predicates)
    if not isinstance(whole, Or):
        return whole
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
    """The operands of an OR, those about the ranges of one column as one where they are many."""
    sets: dict[ColumnReference, list[tuple[int, list[Span]]]] = {}
    for place, operand in enumerate(operands):
        known = spans_of(operand)
        if known is not None:
            sets.setdefault(known[0], []).append((place, known[1]))
    gone: dict[int, Predicate | None] = {}
    for column, found in sets.items():
        few = len(found) < _LEAST_RANGES and not any(isinstance(operands[place], InRanges) for place, _ in found)
        if len(found) < 2 or few:
            continue
        gone |= {place: None for place, _ in found}
        gone[found[0][0]] = in_spans(column, united(span for _, spans in found for span in spans))
    kept = [gone.get(place, operand) for place, operand in enumerate(operands)]
    return [operand for operand in kept if operand is not None]


def all_of(predicates: Iterable[Predicate]) -> Predicate:
    """All of the predicates, as short as it can be said."""
    whole = conjunction(predicates)
    if not isinstance(whole, And) or len(whole.operands) < _LEAST_COMPARISONS:
        return whole
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
        if len(found) >= _LEAST_COMPARISONS:
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


def normalized(predicate: Predicate) -> Predicate:
    """A predicate that was built by hand, flat and short; built without recursion, however it is nested.

    Raises:
        UsageError: AND, OR and NOT alternate on more than :data:`~ducklake_core.format.expressions.predicates.MOST_LEVELS` levels.
    """
    if _is_small(predicate):
        return predicate
    work: list[Predicate | tuple[type, int]] = [predicate]
    done: list[tuple[Predicate, int]] = []
    while work:
        item = work.pop()
        if isinstance(item, tuple):
            kind, count = item
            parts = done[len(done) - count :]
            del done[len(done) - count :]
            depth = 1 + max((depth for _, depth in parts), default=0)
            if depth > MOST_LEVELS:
                raise UsageError(f"the condition is nested too deeply: AND, OR and NOT may alternate on at most {MOST_LEVELS} levels")
            operands = [part for part, _ in parts]
            done.append((negation(operands[0]) if kind is Not else any_of(operands) if kind is Or else all_of(operands), depth))
        elif isinstance(item, And | Or):
            operands = _flat(item)
            work += [(type(item), len(operands)), *reversed(operands)]
        elif isinstance(item, Not):
            inner, negations = item.operand, 1
            while isinstance(inner, Not):
                inner, negations = inner.operand, negations + 1
            work += [(Not, 1), inner] if negations % 2 else [inner]
        else:
            done.append((item, 1))
    return done[0][0]


def _is_small(predicate: Predicate) -> bool:
    """Whether it has a few parts only, so that it cannot be deep either."""
    return next(islice(walk(predicate), _SMALL, None), None) is None


def _flat(chain: And | Or) -> list[Predicate]:
    kind, found, waiting = type(chain), list[Predicate](), list[Predicate]([chain])
    while waiting:
        item = waiting.pop()
        if isinstance(item, And | Or) and type(item) is kind:
            waiting += reversed(item.operands)
        else:
            found.append(item)
    return found
