"""Filters that DuckDB pushes into a scan, as predicates by which files are left out.

DuckDB hands a pyarrow expression to the scan, of which only the text can be looked at::

    ((c0 > 1) and (c1 == "a"))      is_in(c0, {value_set=int64:[ 1, 2 ], null_matching_behavior=MATCH})

What is not understood here, is left to the expression itself: a part of an AND less leaves out fewer files and no row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ducklake_core.errors import DuckLakeError
from ducklake_core.format.expressions.folding import all_of
from ducklake_core.format.expressions.literals import text_literal
from ducklake_core.format.expressions.predicates import ColumnReference, Comparison, InList, Literal, Operator, Predicate
from ducklake_core.format.types.data_types import BLOB, Field
from ducklake_core.format.values.time_zones import in_zone

_OPERATORS: dict[str, Operator] = {"==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_VALUE = r'"(?P<text>[^"\\]*)"|(?P<plain>[-+.:0-9A-Za-z]+(?: [-+.:0-9Z]+)?)'
_COMPARISON = re.compile(rf"\(c(?P<column>\d+) (?P<operator>==|!=|<=|>=|<|>) (?:{_VALUE})\)")
_IN = re.compile(
    r"is_in\(c(?P<column>\d+), \{value_set=[a-z0-9]+(?:\([^)]*\))?:\[(?P<values>[^\[\]{}]*)\], null_matching_behavior=MATCH\}\)"
)


def pruning_predicate(filter_text: str, columns: Sequence[Field]) -> Predicate | None:
    """The parts of a filter that are understood, None when there are none.

    >>> from ducklake_core.format.types.data_types import INT64, VARCHAR
    >>> fields = [Field(id=1, name="n", type=INT64), Field(id=2, name="s", type=VARCHAR)]
    >>> found = pruning_predicate('((c0 > 1) and (c1 == "a") and is_null(c1, {nan_is_null=false}))', fields)
    >>> [(part.left.path, part.operator, part.right.value) for part in found.operands]
    [(('n',), '>', 1), (('s',), '=', 'a')]
    """
    found = [part for part in (_part(text, columns) for text in _conjuncts(filter_text)) if part is not None]
    return all_of(found) if found else None


@dataclass(slots=True)
class _Reader:
    """Splits nested brackets, outside of quoted texts."""

    text: str

    def operands(self) -> list[str] | None:
        """What an AND in brackets joins, None when it is something else."""
        if not (self.text.startswith("(") and self.text.endswith(")")):
            return None
        parts, depth, start, quoted = [], 0, 1, False
        place = 1
        inner = self.text[:-1]
        while place < len(inner):
            letter = inner[place]
            if quoted:
                place += letter == "\\"
                quoted = letter != '"'
            elif letter == '"':
                quoted = True
            else:
                depth += (letter in "([{") - (letter in ")]}")
                if depth < 0:
                    return None
                if not depth and inner.startswith(" and ", place):
                    parts.append(inner[start:place])
                    start = place + 5
                    place = start - 1
            place += 1
        return None if not parts or depth or quoted else [*parts, inner[start:]]


def _conjuncts(text: str) -> list[str]:
    found, waiting = [], [text]
    while waiting:
        part = waiting.pop(0)
        operands = _Reader(part).operands()
        if operands is None:
            found.append(part)
        else:
            waiting = [*operands, *waiting]
    return found


def _part(text: str, columns: Sequence[Field]) -> Predicate | None:
    try:
        match = _COMPARISON.fullmatch(text)
        if match is not None:
            column = columns[int(match["column"])]
            value = _literal(match["text"], match["plain"], column)
            return None if value is None else Comparison(left=_reference(column), operator=_OPERATORS[match["operator"]], right=value)
        match = _IN.fullmatch(text)
        if match is None:
            return None
        column = columns[int(match["column"])]
        values = [_quoted_literal(value.strip(), column) for value in match["values"].split(",\n")]
        known = tuple(value for value in values if value is not None)
        return InList(operand=_reference(column), values=known) if len(known) == len(values) else None
    except (DuckLakeError, ValueError, ArithmeticError):
        return None


def _quoted_literal(text: str, column: Field) -> Literal | None:
    match = re.fullmatch(_VALUE, text)
    return None if match is None else _literal(match["text"], match["plain"], column)


def _literal(quoted: str | None, plain: str | None, column: Field) -> Literal | None:
    text = quoted if quoted is not None else plain
    if text is None or text == "null" or column.type == BLOB:
        return None
    # Arrow writes instants in UTC.
    with in_zone("UTC"):
        return text_literal(text, column.type)


def _reference(column: Field) -> ColumnReference:
    return ColumnReference(column_id=column.id, path=(column.name,), type=column.type)
