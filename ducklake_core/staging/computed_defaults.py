"""Which columns of a write get computed defaults, and what computes them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.evolution.default_expressions import default_scalar, refusal, statement_tree
from ducklake_core.format.evolution.defaults import OWN_TEXTS, canonical_default
from ducklake_core.format.expressions.literals import text_literal
from ducklake_core.format.types.data_types import TIMESTAMPTZ
from ducklake_core.format.types.names import folded

if TYPE_CHECKING:
    from ducklake_core.engines.arrow.row_request import ChangeRequest
    from ducklake_core.format.expressions.scalars import Scalar
    from ducklake_core.format.types.data_types import Field
    from ducklake_core.format.types.schema import Schema


def computed_defaults(schema: Schema, given: Collection[str], moment: datetime) -> tuple[tuple[int, Scalar], ...]:
    """Return values for columns that some rows lack, by column id: of defaults that depend on the statement (expressions, and instants
    that name no time zone), and of constants that are not in their type's own form, such as ``1.5`` for an integer.

    Args:
        schema: The table's columns.
        given: Names of the columns that every row has.
        moment: The time of the statement, in the zone that times without a zone are meant in.

    Raises:
        UnsupportedFeatureError: A default that neither this library evaluates nor DuckDB, where it is installed, computes once.
        UsageError: DuckDB refuses to compute it.
        SchemaError: Its value does not fit the column.
    """
    names = {folded(name) for name in given}
    missing = (column for column in schema if column.default is not None and folded(column.name) not in names)
    return tuple((column.id, _computed(column, moment)) for column in missing if not _is_plain(column))


def inserted_columns(request: ChangeRequest) -> list[str]:
    """Names of the columns that every branch of a change which inserts rows gives a value."""
    inserts = [{place for place, _ in clause.values} for clause in request.clauses if clause.action == "insert"]
    given = set.intersection(*inserts) if inserts else range(len(request.target.columns))
    return [request.target.columns[place].name for place in given]


def _is_plain(column: Field) -> bool:
    """Return whether the stored default is the value's own text."""
    if column.default_is_expression or column.type == TIMESTAMPTZ:
        return False
    return column.type in OWN_TEXTS or canonical_default(column) == column.default


def _computed(column: Field, moment: datetime) -> Scalar:
    from ducklake_core.engines.arrow.scalars import check_scalar

    if not column.default_is_expression:
        # DuckDB stores the text as it was written and reads it in the zone of the session that inserts.
        return text_literal(column.default or "", column.type)
    try:
        scalar = default_scalar(column, moment)
        check_scalar(scalar, pa.RecordBatch.from_arrays([pa.nulls(0)], names=["rows"]), column)
    except UnsupportedFeatureError as problem:
        from ducklake_core.engines.duckdb.constants import constant

        try:
            return constant(statement_tree(column, moment), column.type)
        except UnsupportedFeatureError as refused:
            raise refusal(column, f"{_reason(problem)}, and {refused.message}") from problem
    return scalar


def _reason(problem: UnsupportedFeatureError) -> str:
    return str(problem.details.get("reason", problem.message))
