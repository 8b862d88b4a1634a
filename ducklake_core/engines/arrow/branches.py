"""ORs of very many branches over Arrow batches: each row is compared with the few branches that its own values leave.

    (a = 1 AND ts > x) OR (a = 2 AND ts > y) OR ...

The branches make a table by the value of ``a``: a row's branch is found by one look-up, and its constants are laid beside the row, so
that all rows are compared at once. Branches of another form than the rest are evaluated on just their own rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.engines.arrow.comparable import comparable
from ducklake_core.engines.arrow.evaluate import Data, column_of, compared, evaluate, to_scalar
from ducklake_core.errors import DuckLakeError
from ducklake_core.format.expressions.comparison import FLIPPED, Fitted, common_domain, domain_of, fit, key_of
from ducklake_core.format.expressions.folding import all_of, any_of
from ducklake_core.format.expressions.predicates import And, ColumnReference, Comparison, InList, InRanges, Literal, Operator, Or, Predicate
from ducklake_core.format.expressions.ranges import Span, spans_between, spans_of_ranges
from ducklake_core.format.expressions.remembered import remembered
from ducklake_core.format.types.data_types import FLOATS

# Below this many branches of one column plain evaluation is as fast.
_LEAST_BRANCHES = 8
_LEAST_ALIKE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Term:
    """A comparison of a column with a value of its own type."""

    column: ColumnReference
    operator: Operator
    value: object


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class _Alike:
    """Branches that compare the same columns in the same way: places of their keys, and for each comparison their values."""

    terms: tuple[tuple[ColumnReference, Operator], ...]
    values: tuple[tuple[object, ...], ...]
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class Branches:
    """Operands of an OR that each ask a column for some values.

    Attributes:
        column: That column.
        keys: The values, all different; a branch is what has to hold for the rows of one of them.
        whole: Places of keys whose rows all match.
        alike: Branches that are evaluated together.
        others: Branches that are evaluated one by one, by the places of their keys.
        operands: The operands as they were.
    """

    column: ColumnReference
    keys: tuple[object, ...]
    whole: tuple[int, ...]
    alike: tuple[_Alike, ...]
    others: Mapping[int, Predicate]
    operands: tuple[Predicate, ...]


@remembered
def branches_of(predicate: Or) -> tuple[tuple[Branches, ...], tuple[Predicate, ...]]:
    """The branches of an OR by the columns that tell them apart, and the operands that are none; found once for each predicate."""
    left: tuple[Predicate, ...] = predicate.operands
    found: list[Branches] = []
    while len(left) >= _LEAST_BRANCHES:
        keyed = [_keyed(operand) for operand in left]
        counts: dict[ColumnReference, set[object]] = {}
        for keys in keyed:
            for column, values in keys.items():
                counts.setdefault(column, set()).update(values)
        if not counts:
            break
        column = max(counts, key=lambda column: len(counts[column]))
        mine = [(operand, keys[column]) for operand, keys in zip(left, keyed, strict=True) if column in keys]
        if len(mine) < _LEAST_BRANCHES:
            break
        found.append(_branches(column, mine))
        left = tuple(operand for operand, keys in zip(left, keyed, strict=True) if column not in keys)
    return tuple(found), left


def _keyed(operand: Predicate) -> dict[ColumnReference, tuple[object, ...]]:
    """For each column that the operand asks for values, which; told apart by their keys, which tell 0.0 from no other zero."""
    parts = operand.operands if isinstance(operand, And) else (operand,)
    found: dict[ColumnReference, tuple[object, ...]] = {}
    for part in parts:
        values = _values(part)
        if values is not None and values[0] not in found:
            found[values[0]] = values[1]
    return found


def _values(part: Predicate) -> tuple[ColumnReference, tuple[object, ...]] | None:
    match part:
        case Comparison(left=ColumnReference() as column, operator="=", right=Literal() as literal):
            literals: tuple[Literal, ...] = (literal,)
        case InList(operand=column, values=literals, has_null=False):
            pass
        case _:
            return None
    if column.type in FLOATS or domain_of(column.type) is None:
        return None
    values: list[object] = []
    for literal in literals:
        term = _term(column, "=", literal)
        if isinstance(term, _Term):
            values.append(term.value)
        elif term is not False:
            return None
    return column, tuple(values)


def _term(column: ColumnReference, operator: Operator, literal: Literal) -> _Term | bool | None:
    if literal.value is None or common_domain(column.type, literal.type) is None:
        return None
    try:
        fitted = fit(operator, literal, column.type)
    except (DuckLakeError, ValueError, ArithmeticError):
        return None
    return _Term(column=column, operator=fitted.operator, value=fitted.value) if isinstance(fitted, Fitted) else fitted


def _branches(column: ColumnReference, operands: Sequence[tuple[Predicate, tuple[object, ...]]]) -> Branches:
    rests: dict[object, list[Predicate]] = {}
    for operand, values in operands:
        rest = _without(operand, column)
        for value in values:
            rests.setdefault(value, []).append(rest)
    # The same few rests may stand beside very many values.
    joined: dict[tuple[int, ...], Predicate] = {}
    whole: list[int] = []
    shapes: dict[tuple[tuple[ColumnReference, Operator], ...], list[tuple[int, list[_Term]]]] = {}
    others: dict[int, Predicate] = {}
    for place, found in enumerate(rests.values()):
        key = tuple(id(rest) for rest in found)
        if key not in joined:
            joined[key] = any_of(found) if len(found) > 1 else found[0]
        rest = joined[key]
        terms = _terms(rest)
        if terms is None:
            others[place] = rest
        elif not terms:
            whole.append(place)
        else:
            shapes.setdefault(tuple((term.column, term.operator) for term in terms), []).append((place, terms))
    alike = []
    for shape, members in shapes.items():
        if len(members) < _LEAST_ALIKE:
            others |= {place: _predicate(terms) for place, terms in members}
        else:
            columns = tuple(tuple(terms[n].value for _, terms in members) for n in range(len(shape)))
            alike.append(_Alike(terms=shape, values=columns, places=tuple(place for place, _ in members)))
    return Branches(
        column=column,
        keys=tuple(rests),
        whole=tuple(whole),
        alike=tuple(alike),
        others=others,
        operands=tuple(operand for operand, _ in operands),
    )


def _without(operand: Predicate, column: ColumnReference) -> Predicate:
    """The rest of an operand, without its condition on the values of the column."""
    if not isinstance(operand, And):
        return all_of(())
    parts = list(operand.operands)
    del parts[next(place for place, part in enumerate(parts) if (_values(part) or (None,))[0] == column)]
    return all_of(parts)


def _terms(rest: Predicate) -> list[_Term] | None:
    """Comparisons with constants that are all a branch asks for; None when it asks for something else."""
    if rest == all_of(()):
        return []
    found: list[_Term] = []
    for part in rest.operands if isinstance(rest, And) else (rest,):
        match part:
            case Comparison(left=ColumnReference() as column, operator=operator, right=Literal() as literal):
                term = _term(column, operator, literal)
            case Comparison(left=Literal() as literal, operator=operator, right=ColumnReference() as column):
                term = _term(column, FLIPPED[operator], literal)
            case _:
                return None
        if not isinstance(term, _Term):
            return None
        found.append(term)
    return sorted(found, key=lambda term: (term.column.column_id, term.operator))


def _predicate(terms: Sequence[_Term]) -> Predicate:
    return all_of(
        Comparison(left=term.column, operator=term.operator, right=Literal(value=term.value, type=term.column.type)) for term in terms
    )


def outcome_of_branches(branches: Branches, batch: Data, *, filtering: bool) -> pa.BooleanArray:
    """The outcome of the branches' OR for every row; see :func:`~ducklake_core.engines.arrow.evaluate.evaluate`."""
    array = column_of(branches.column, batch)
    branch = _branch_of_rows(branches, array)
    outcome = np.zeros(len(branch), bool)
    unknown = np.zeros(len(branch), bool)

    def put(rows: np.ndarray, found: pa.BooleanArray) -> None:
        outcome[rows] = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
        unknown[rows] = found.is_null().to_numpy(zero_copy_only=False)

    outcome[np.isin(branch, branches.whole)] = True
    for alike in branches.alike:
        slots = np.full(len(branches.keys) + 1, -1)
        slots[list(alike.places)] = np.arange(len(alike.places))
        rows = np.flatnonzero(slots[branch] >= 0)
        if len(rows):
            put(rows, _compared_alike(alike, batch.take(pa.array(rows)), slots[branch[rows]]))
    order = np.argsort(branch, kind="stable") if branches.others else branch
    ends = np.searchsorted(branch[order], np.arange(len(branches.keys) + 1)) if branches.others else branch
    for place, rest in branches.others.items():
        rows = order[ends[place] : ends[place + 1]]
        if len(rows):
            put(rows, evaluate(rest, batch.take(pa.array(rows)), filtering=filtering))
    if array.null_count and not filtering:
        # Where the column is NULL every branch may be NULL, and only all of them tell.
        rows = array.is_null().to_numpy(zero_copy_only=False).nonzero()[0]
        few = batch.take(pa.array(rows))
        put(rows, reduce(pc.or_kleene, (evaluate(operand, few) for operand in branches.operands)))
    return pa.array(outcome, mask=unknown)


def _branch_of_rows(branches: Branches, array: pa.Array) -> np.ndarray:
    """For every row the place of its key, -1 for none."""
    plain = comparable(array, branches.column.type)
    places = pc.index_in(plain, _keys(branches, plain.type))
    return np.asarray(pc.fill_null(places, -1).to_numpy(zero_copy_only=False), np.int64)


def _compared_alike(alike: _Alike, batch: Data, slots: np.ndarray) -> pa.BooleanArray:
    """All comparisons of rows with the constants of their own branches."""
    picked = pa.array(slots)
    parts = []
    for place, (column, operator) in enumerate(alike.terms):
        plain = comparable(column_of(column, batch), column.type)
        parts.append(compared(plain, _compared_with(alike, place, plain.type).take(picked), operator))
    return reduce(pc.and_kleene, parts)


@remembered
def _keys(branches: Branches, arrow: pa.DataType) -> pa.Array:
    return _constants(branches.keys, branches.column, arrow)


@remembered
def _compared_with(alike: _Alike, place: int, arrow: pa.DataType) -> pa.Array:
    return _constants(alike.values[place], alike.terms[place][0], arrow)


def _constants(values: Sequence[object], column: ColumnReference, arrow: pa.DataType) -> pa.Array:
    return pa.array([to_scalar(value, column.type, arrow).as_py() for value in values], arrow)


def in_ranges(predicate: InRanges, batch: Data) -> pa.BooleanArray:
    """Whether each row's value lies in one of the ranges, found by a search."""
    column = predicate.operand
    array = column_of(column, batch)
    plain = comparable(array, column.type)
    spans = spans_of_ranges(predicate)
    if not (pa.types.is_integer(plain.type) or pa.types.is_floating(plain.type)) or pa.types.is_float16(plain.type):
        return _in_spans_by_key(column, plain, spans)
    values = pc.fill_null(plain, 0).to_numpy(zero_copy_only=False)
    return pa.array(_in_spans(values, spans), mask=plain.is_null().to_numpy(zero_copy_only=False))


def _in_spans(values: np.ndarray, spans: Sequence[Span]) -> np.ndarray:
    bounded = [span for span in spans if span.start[0] == 1]
    lows = np.array([span.low for span in bounded], values.dtype)
    exclusive = np.array([span.start[2] == 1 for span in bounded], bool)
    place = np.searchsorted(lows, values, side="right") - 1
    # A value that a span begins right after belongs to the span before it, if to any.
    same = np.zeros(len(values), bool) if not len(lows) else (place >= 0) & _equal(lows[np.maximum(place, 0)], values) & exclusive[place]
    place = place - same + (len(spans) - len(bounded))
    highs = np.array([0 if span.end[0] else span.high for span in spans], values.dtype)
    inclusive, endless = (np.array([span.end[n] == 1 for span in spans], bool) for n in (2, 0))
    at = np.maximum(place, 0)
    inside = endless[at] | _before(values, highs[at]) | (inclusive[at] & _equal(values, highs[at]))
    return np.asarray((place >= 0) & inside)


def _equal(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.asarray((left == right) | (np.isnan(left) & np.isnan(right)) if left.dtype.kind == "f" else left == right)


def _before(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """NaN is the greatest number."""
    return np.asarray((left < right) | (np.isnan(right) & ~np.isnan(left)) if left.dtype.kind == "f" else left < right)


def _in_spans_by_key(column: ColumnReference, plain: pa.Array, spans: Sequence[Span]) -> pa.BooleanArray:
    """For values that only Python orders: each different one is looked up once."""
    domain = domain_of(column.type)
    assert domain is not None
    coded = plain.dictionary_encode()
    keys = [None if value is None else key_of(value, column.type, domain) for value in coded.dictionary.to_pylist()]
    found = pa.array([None if key is None else spans_between(spans, key, key)[0] for key in keys], pa.bool_())
    return found.take(coded.indices)
