"""Conditions on what lies inside of variants and geometries, in parsed SQL.

``v.a = 100``, ``v.l[1].k::INT > 3``, ``g && 'POINT(1 2)'::GEOMETRY``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from sqlglot import exp

from ducklake_core.errors import UsageError
from ducklake_core.format.expressions.syntax import data_type_of, unwrapped
from ducklake_core.format.types.data_types import DataType

_EXTRACT = "variant_extract"
_FROM_STRING = ("st_geomfromtext",)
_ENVELOPE = "st_makeenvelope"
_OVERLAPS = "st_intersects_extent"
_RELATIONS = (
    *("st_intersects", "st_within", "st_contains", "st_covers", "st_coveredby"),
    *("st_equals", "st_touches", "st_crosses", "st_overlaps"),
)
"""Each is true only where the boxes about both overlap; of empty geometries only ``st_equals`` may be."""
# The vertices of well-known text are what stands between parentheses and commas.
_VERTEX = re.compile(r"[^(),]+")
_WORD = re.compile(r"[a-z]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedPath:
    """A column, and steps into it; with the cast that stands around it."""

    names: tuple[str, ...]
    steps: tuple[str | int, ...] = ()
    cast: DataType | None = None
    lenient: bool = False


def nested_path(node: exp.Expression) -> NestedPath | None:
    """Return the path that a node spells; None when it is something else, such as a cast to a type that tables do not have.

    Names up to the first step that is none may be those of a column and of fields of structs.
    """
    node = unwrapped(node)
    if isinstance(node, exp.Cast):
        target = data_type_of(node.to)
        inner = nested_path(node.this)
        if target is None or inner is None or inner.cast is not None:
            return None
        return replace(inner, cast=target, lenient=isinstance(node, exp.TryCast))
    match node:
        case exp.Column() if not isinstance(node.this, exp.Star):
            return NestedPath(names=tuple(part.name for part in node.parts))
        case exp.Dot() if isinstance(node.expression, exp.Identifier):
            return _extended(node.this, node.expression.name)
        case exp.Bracket() if len(node.expressions) == 1:
            # sqlglot counts from 0.
            step = _step(node.expressions[0], 1 - int(node.args.get("offset") or 0))
            return None if step is None else _extended(node.this, step)
        case exp.StructExtract() if isinstance(node.expression, exp.Literal) and node.expression.is_string:
            return _extended(node.this, node.expression.name)
        case exp.Anonymous() if node.name.lower() == _EXTRACT and len(node.expressions) == 2:
            step = _step(node.expressions[1], 0)
            return _extended(node.expressions[0], step) if isinstance(step, str) else None
        case _:
            return None


def _step(node: exp.Expression, first: int) -> str | int | None:
    node = unwrapped(node)
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string:
        return node.name
    return int(node.name) + first if node.name.isdecimal() else None


def _extended(node: exp.Expression, step: str | int) -> NestedPath | None:
    base = nested_path(node)
    if base is None or base.cast is not None:
        return None
    if isinstance(step, str) and not base.steps:
        return replace(base, names=(*base.names, step))
    return replace(base, steps=(*base.steps, step))


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxTest:
    """``subject && constant``, or a relation that is true only if that is."""

    subject: exp.Expression
    box: tuple[float, float, float, float] | None
    constant: str
    relation: str | None
    constant_first: bool


def box_test(node: exp.Expression) -> BoxTest | None:
    """Return the test of boxes with a constant that a node is, None for anything else.

    Raises:
        UsageError: The constant cannot be read.
    """
    match node:
        case exp.ArrayOverlaps():
            left, right, relation = node.this, node.expression, None
        case exp.Anonymous() if node.name.lower() in (_OVERLAPS, *_RELATIONS) and len(node.expressions) == 2:
            left, right = node.expressions
            relation = None if node.name.lower() == _OVERLAPS else node.name.lower()
        case _:
            return None
    for subject, constant in ((left, right), (right, left)):
        text = geometry_text(constant)
        box = None if text is None else box_of(text)
        # Two empty geometries are equal although no boxes overlap, so st_equals with an empty constant is left to the engine.
        if text is not None and (box is not None or relation != "st_equals"):
            return BoxTest(subject=subject, box=box, constant=text, relation=relation, constant_first=constant is left)
    return None


def geometry_text(node: exp.Expression) -> str | None:
    """Return the text of a geometry that is a constant: ``'...'::GEOMETRY``, ``st_geomfromtext('...')`` or ``st_makeenvelope(...)``."""
    node = unwrapped(node)
    match node:
        case exp.Cast() if isinstance(unwrapped(node.this), exp.Literal) and node.to.this == exp.DataType.Type.GEOMETRY:
            return str(unwrapped(node.this).name)
        case exp.Anonymous() if (
            node.name.lower() in _FROM_STRING and len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Literal)
        ):
            return node.expressions[0].name
        case exp.Anonymous() if node.name.lower() == _ENVELOPE and len(node.expressions) == 4:
            numbers = [_number(part) for part in node.expressions]
            if any(number is None for number in numbers):
                return None
            a, b, c, d = numbers
            # The arguments are the lower left and the upper right corner.
            return f"POLYGON (({a} {b}, {a} {d}, {c} {d}, {c} {b}, {a} {b}))"
        case _:
            return None


def _number(node: exp.Expression) -> str | None:
    node = unwrapped(node)
    sign = ""
    if isinstance(node, exp.Neg):
        sign, node = "-", unwrapped(node.this)
    return sign + node.name if isinstance(node, exp.Literal) and not node.is_string else None


def box_of(text: str) -> tuple[float, float, float, float] | None:
    """Return the least x and y, greatest x and y of a geometry in well-known text; None for one without a place.

    >>> box_of("LINESTRING Z (0 1 9, 2 -3 9)"), box_of("POINT EMPTY"), box_of("GEOMETRYCOLLECTION(POINT(1 2), POINT EMPTY)")
    ((0.0, -3.0, 2.0, 1.0), None, (1.0, 2.0, 1.0, 2.0))

    Raises:
        UsageError: It is none.
    """
    places = []
    kind = _WORD.match(text.strip())
    if kind is None or text.count("(") != text.count(")"):
        raise UsageError(f"{text!r} is not a geometry in well-known text")
    for vertex in _VERTEX.findall(text):
        words = vertex.split()
        if not words or (_WORD.match(words[0]) and words[0].lower() not in ("nan", "inf", "infinity")):
            continue
        try:
            numbers = [float(word) for word in words]
        except ValueError:
            raise UsageError(f"{text!r} is not a geometry in well-known text") from None
        if not 2 <= len(numbers) <= 4:
            raise UsageError(f"{text!r} is not a geometry in well-known text")
        if not any(math.isnan(number) for number in numbers[:2]):
            places.append(numbers[:2])
    if not places:
        return None
    across, along = zip(*places, strict=True)
    return min(across), min(along), max(across), max(along)
