"""Conditions on values inside of variants, for all rows of a batch at once: by type, as each row may hold another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ducklake_core.engines.arrow import variant_sql
from ducklake_core.engines.arrow.evaluate import Data, column_of, evaluate
from ducklake_core.errors import SchemaError, UnsupportedFeatureError
from ducklake_core.format.expressions.comparison import are_comparable
from ducklake_core.format.expressions.nested_sql import nested_sql
from ducklake_core.format.expressions.predicates import ColumnReference, Comparison, VariantComparison, VariantIsNull
from ducklake_core.format.expressions.scalars import CastTo, Compare
from ducklake_core.format.types.data_types import JSON, DecimalType, PrimitiveType
from ducklake_core.format.values.variant_shredding import column_types, typed_values
from ducklake_core.format.values.variant_slots import ARRAY, NULL, OBJECT, Slots, VariantBuffer


def variant_outcome(predicate: VariantComparison | VariantIsNull, batch: Data) -> pa.BooleanArray:
    """The outcome for every row. DuckDB, where it is installed, evaluates casts that this library does not have.

    Raises:
        SchemaError: A value does not compare with the constant, or cannot be cast.
        CorruptFileError: A value is no variant.
    """
    field = predicate.left if isinstance(predicate, VariantComparison) else predicate.operand
    array: Any = column_of(field.column, batch)
    try:
        return _outcome(predicate, field.path, array)
    except (SchemaError, UnsupportedFeatureError):
        if field.cast is None or isinstance(predicate, VariantIsNull) or not variant_sql.is_available():
            raise
        return variant_sql.compare_variants(predicate, array)


def _outcome(predicate: VariantComparison | VariantIsNull, path: tuple[str | int, ...], array: Any) -> pa.BooleanArray:
    buffer = VariantBuffer(array)
    slots = _at(buffer, path)
    slots = slots.where(slots.kinds != NULL)
    found, known = np.zeros(len(array), bool), np.zeros(len(array), bool)
    if isinstance(predicate, VariantIsNull):
        found[:] = True
        found[slots.places] = False
        return pa.array(found)
    for data_type, chosen in column_types(buffer, slots):
        part = slots.where(chosen)
        outcome = _compared(buffer, part, data_type, predicate)
        found[part.places] = outcome.fill_null(False).to_numpy(zero_copy_only=False)
        known[part.places] = outcome.is_valid().to_numpy(zero_copy_only=False)
    return pa.array(found, mask=~known)


def _at(buffer: VariantBuffer, path: tuple[str | int, ...]) -> Slots:
    """The values at a path; places are rows."""
    slots = buffer.root()
    for step in path:
        parents = slots.where(slots.kinds == (OBJECT if isinstance(step, str) else ARRAY))
        if isinstance(step, str):
            children = buffer.fields(parents).get(step)
        else:
            elements, counts = buffer.elements(parents)
            first = np.cumsum(counts) - counts
            children = elements.where(first[counts >= step] + step - 1)
        if children is None:
            return slots.where(np.empty(0, np.int64))
        slots = children.moved(parents.places[children.places])
    return slots


def _compared(
    buffer: VariantBuffer, slots: Slots, data_type: PrimitiveType | DecimalType | None, predicate: VariantComparison
) -> pa.BooleanArray:
    cast, right = predicate.left.cast, predicate.right
    if data_type is None or (cast is None and not are_comparable(data_type, right.type)):
        held = "an object, an array or a value" if data_type is None else data_type
        raise SchemaError(
            f"{nested_sql(predicate, 'duckdb')}: a row has {held} there, which does not compare with {right.type}; cast it, or leave "
            "such rows out before",
            column=predicate.left.column.path[0],
        )
    if cast == JSON:
        # A string becomes a string of JSON, in quotes, and not what it contains.
        raise UnsupportedFeatureError(f"a cast from variant to json in {nested_sql(predicate, 'duckdb')}", cast="variant to json")
    values = typed_values(buffer, slots, data_type)
    column = ColumnReference(column_id=0, path=("value",), type=data_type)
    batch = pa.record_batch([values], names=["value"])
    if cast is None:
        return evaluate(Comparison(left=column, operator=predicate.operator, right=right), batch)
    from ducklake_core.engines.arrow.scalars import outcome

    wanted = CastTo(operand=column, type=cast, lenient=predicate.left.lenient)
    return outcome(Compare(left=wanted, operator=predicate.operator, right=right), batch)
