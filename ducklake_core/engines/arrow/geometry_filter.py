"""Relations between geometries, which the package shapely knows from the library that DuckDB's spatial extension uses too (GEOS)."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa

from ducklake_core.errors import SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions.nested_sql import nested_sql
from ducklake_core.format.expressions.predicates import BoxOverlap
from ducklake_core.format.values.wkb import overlaps

RELATIONS = {
    "st_intersects": "intersects", "st_within": "within", "st_contains": "contains", "st_covers": "covers", "st_coveredby": "covered_by",
    "st_equals": "equals", "st_touches": "touches", "st_crosses": "crosses", "st_overlaps": "overlaps",
}  # fmt: skip
"""Functions of shapely, by those of DuckDB's spatial extension."""
_TURNED = {"intersects": "intersects", "within": "contains", "covered_by": "covers", "touches": "touches", "overlaps": "overlaps"}
"""The same relation with its arguments exchanged: a constant that comes first is looked at only once."""


def related(predicate: BoxOverlap, array: Any) -> pa.BooleanArray:
    """Whether the relation holds between each geometry and the constant; NULL for NULL.

    Raises:
        UnsupportedFeatureError: The package shapely is not installed.
        UsageError: The constant is no geometry.
        SchemaError: A geometry of which the relation cannot be told.
    """
    text = nested_sql(predicate, "duckdb")
    shapely = require_shapely(text)
    try:
        constant = shapely.from_wkt(predicate.constant)
    except shapely.errors.ShapelyError as error:
        raise UsageError(f"{predicate.constant!r} is no geometry in well-known text: {error}") from error
    shapely.prepare(constant)
    near = overlaps(array, predicate.box)
    found = near.fill_null(False).to_numpy(zero_copy_only=False)
    places = np.flatnonzero(found)
    function = RELATIONS[predicate.relation or "st_intersects"]
    found[places] = _outcomes(shapely, function, array.take(pa.array(places)), constant, predicate.constant_first, text)
    return pa.array(found, mask=array.is_null().to_numpy(zero_copy_only=False))


def _outcomes(shapely: ModuleType, function: str, array: Any, constant: Any, constant_first: bool, text: str) -> Any:
    try:
        shapes = shapely.from_wkb(array.to_numpy(zero_copy_only=False))
        if constant_first:
            return getattr(shapely, function)(constant, shapes)
        if function in _TURNED:
            return getattr(shapely, _TURNED[function])(constant, shapes)
        return getattr(shapely, function)(shapes, constant)
    except shapely.errors.ShapelyError as error:
        raise SchemaError(f"{text} cannot be told of a geometry: {error}") from error


def require_shapely(what: str) -> ModuleType:
    """The package, which is no dependency.

    Raises:
        UnsupportedFeatureError: It is not installed.
    """
    try:
        return import_module("shapely")
    except ImportError as error:
        raise UnsupportedFeatureError(
            f"{what} needs the package shapely, also on Spark's executors: pip install 'ducklake-dagster[spatial]'; "
            "without it the boxes alone can be compared: column && constant",
            package="shapely",
        ) from error
