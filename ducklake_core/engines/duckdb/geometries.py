"""Functions of geometries that DuckDB has in its spatial extension alone, for queries in this process.

Relations are those of the package shapely, where it is installed; constants are casts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ducklake_core.engines.arrow.geometry_filter import RELATIONS, require_shapely
from ducklake_core.format.types.names import folded

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_CONSTANTS = {
    "st_geomfromtext": "(t) AS CAST(t AS GEOMETRY)",
    "st_makeenvelope": "(a, b, c, d) AS "
    "CAST(format('POLYGON (({} {}, {} {}, {} {}, {} {}, {} {}))', a, b, a, d, c, d, c, b, a, b) AS GEOMETRY)",
}
_CALL = re.compile(r"\bst_[a-z]+(?=\s*\()", re.IGNORECASE)


def make_functions(connection: DuckDBPyConnection, texts: Collection[str], known: Collection[str]) -> None:
    """Make the functions that texts call and DuckDB lacks.

    Args:
        connection: The instance.
        texts: A query, with the texts of the views and macros that it may name.
        known: Names of macros of the lake, which take precedence.

    Raises:
        UnsupportedFeatureError: A relation is called, and the package shapely is not installed.
    """
    called = {found.lower() for text in texts for found in _CALL.findall(text)} - {folded(name) for name in known}
    for name in sorted(called & _CONSTANTS.keys()):
        connection.execute(f"CREATE MACRO main.{name}{_CONSTANTS[name]}")
    for name in sorted(called & RELATIONS.keys()):
        shapely = require_shapely(name)
        own = f"__ducklake_{name}"
        function: Callable[..., Any] = partial(_outcomes, getattr(shapely, RELATIONS[name]), shapely.from_wkb)
        # The stubs know functions of Python values alone.
        untyped: Any = connection
        untyped.create_function(own, function, ["BLOB", "BLOB"], "BOOLEAN", type="arrow", null_handling="special")
        connection.execute(f"CREATE MACRO main.{name}(a, b) AS {own}(st_aswkb(a), st_aswkb(b))")


def _outcomes(relation: Callable[..., Any], shapes: Callable[..., Any], left: Any, right: Any) -> pa.Array:
    """The outcome for each pair; NULL where one of them is."""
    first, second = (side.to_numpy(zero_copy_only=False) if isinstance(side, pa.Array) else side.to_numpy() for side in (left, right))
    missing = [a is None or b is None for a, b in zip(first, second, strict=True)]
    return pa.array(relation(shapes(first), shapes(second)), mask=pa.array(missing).to_numpy(zero_copy_only=False))
