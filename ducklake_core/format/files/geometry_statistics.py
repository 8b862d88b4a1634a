"""Bounding boxes and types of geometries, the ``extra_stats`` of files and tables (specification: ducklake_file_column_stats)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

import numpy as np

from ducklake_core.format.types.arrow_types import ArrowArray
from ducklake_core.format.values.wkb import geometry_parts

_AXES = "xyzm"
_STEP = Decimal("0.000001")
_EXACT = Context(prec=400)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometryStatistics:
    """Statistics of some geometries; without any field set, there is none but NULL.

    Attributes:
        bounds: Least and greatest coordinate by axis, for the axes ``x``, ``y``, ``z`` and ``m`` that any geometry has.
        types: Names of the types of geometry, such as ``point`` and ``polygon_z``.
    """

    bounds: tuple[tuple[str, float, float], ...] = ()
    types: frozenset[str] = frozenset()

    @property
    def is_finite(self) -> bool:
        """Whether the catalog can hold the bounds; DuckDB has no text for infinite ones."""
        return all(math.isfinite(bound) for _, low, high in self.bounds for bound in (low, high))

    def to_json(self) -> str:
        """The text for the catalog, in the form that DuckDB reads.

        Bounds have six decimals there. They are rounded outwards: rounded to the nearest they would leave geometries outside.

        >>> GeometryStatistics(bounds=(("x", -1.0000004, 2.0000004), ("y", 0.5, 0.5)), types=frozenset({"point"})).to_json()[:83]
        '{"bbox": {"xmin": -1.000001, "xmax": 2.000001, "ymin": 0.500000, "ymax": 0.500000, '
        """
        found = {axis: (low, high) for axis, low, high in self.bounds}
        texts = []
        for axis in _AXES:
            low, high = found.get(axis, (None, None))
            texts += [f'"{axis}min": {_text(low, ROUND_FLOOR)}', f'"{axis}max": {_text(high, ROUND_CEILING)}']
        types = ", ".join(json.dumps(name) for name in sorted(self.types))
        return f'{{"bbox": {{{", ".join(texts)}}}, "types": [{types}]}}'


def read_geometry_statistics(text: str | None) -> GeometryStatistics | None:
    """The statistics in a cell of the catalog; None for what is none, which counts as unknown.

    >>> read_geometry_statistics(GeometryStatistics(types=frozenset({"point"})).to_json())
    GeometryStatistics(bounds=(), types=frozenset({'point'}))
    """
    if text is None:
        return None
    try:
        held: Any = json.loads(text)
        box, types = held["bbox"], held["types"]
        pairs = [(axis, box[f"{axis}min"], box[f"{axis}max"]) for axis in _AXES]
        bounds = tuple((axis, float(low), float(high)) for axis, low, high in pairs if low is not None and high is not None)
        return GeometryStatistics(bounds=bounds, types=frozenset(map(str, types)))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def geometry_statistics(array: ArrowArray) -> GeometryStatistics:
    """Bounds and types of an array of WKB; coordinates that are NaN, as those of empty points, have no bounds."""
    found: dict[str, tuple[float, float]] = {}
    types: set[str] = set()
    for name, axes, vertices in geometry_parts(array):
        types.add(name)
        known = vertices[~np.isnan(vertices[:, :2]).any(axis=1)]
        for place, axis in enumerate(axes):
            values = known[:, place]
            values = values[~np.isnan(values)]
            if len(values):
                low, high = found.get(axis, (math.inf, -math.inf))
                found[axis] = (min(low, float(values.min())), max(high, float(values.max())))
    return GeometryStatistics(bounds=_ordered(found), types=frozenset(types))


def merged_geometry_statistics(parts: Iterable[GeometryStatistics]) -> GeometryStatistics:
    """Bounds and types of all parts together."""
    found: dict[str, tuple[float, float]] = {}
    types: set[str] = set()
    for part in parts:
        types |= part.types
        for axis, low, high in part.bounds:
            before = found.get(axis, (math.inf, -math.inf))
            found[axis] = (min(before[0], low), max(before[1], high))
    return GeometryStatistics(bounds=_ordered(found), types=frozenset(types))


def _ordered(found: dict[str, tuple[float, float]]) -> tuple[tuple[str, float, float], ...]:
    return tuple((axis, *found[axis]) for axis in _AXES if axis in found)


def _text(bound: float | None, rounding: str) -> str:
    return "null" if bound is None else f"{Decimal(bound).quantize(_STEP, rounding=rounding, context=_EXACT):f}"
