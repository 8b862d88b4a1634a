"""Conditions on what lies inside of variants and geometries as SQL of DuckDB, for messages and plans."""

from __future__ import annotations

from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.expressions.predicate_sql import Dialect, column_sql, literal_text, quoted
from ducklake_core.format.expressions.predicates import BoxOverlap, NestedTest, VariantComparison, VariantField, VariantIsNull
from ducklake_core.format.types.data_types import DataType, PrimitiveType

_TYPE_NAMES = {
    "int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "int128": "HUGEINT", "uint8": "UTINYINT",
    "uint16": "USMALLINT", "uint32": "UINTEGER", "uint64": "UBIGINT", "uint128": "UHUGEINT", "float32": "FLOAT", "float64": "DOUBLE",
}  # fmt: skip


def nested_sql(predicate: NestedTest, dialect: Dialect) -> str:
    """A condition on what lies inside of a value, which only DuckDB has."""
    column = column_sql(predicate.operand if isinstance(predicate, BoxOverlap) else _field(predicate).column, "duckdb")
    if isinstance(predicate, BoxOverlap):
        text = _geometry_sql(predicate, column)
    else:
        field = _field(predicate)
        value = column + "".join(f"[{quoted(step, 'duckdb') if isinstance(step, str) else step}]" for step in field.path)
        if field.cast is not None:
            value = f"{'TRY_CAST' if field.lenient else 'CAST'}({value} AS {_type_name(field.cast)})"
        if isinstance(predicate, VariantIsNull):
            text = f"({value} IS NULL)"
        else:
            text = f"({value} {predicate.operator} {literal_text(predicate.right.value, predicate.right.type, 'duckdb')})"
    if dialect != "duckdb":
        raise UnsupportedFeatureError(f"Spark cannot evaluate {text} beside conditions that only it can evaluate", expression=text)
    return text


def _geometry_sql(predicate: BoxOverlap, column: str) -> str:
    constant = f"{quoted(predicate.constant, 'duckdb')}::GEOMETRY"
    if predicate.relation is None:
        return f"({column} && {constant})"
    return f"{predicate.relation}({', '.join((constant, column) if predicate.constant_first else (column, constant))})"


def _type_name(data_type: DataType) -> str:
    return _TYPE_NAMES.get(data_type.name, data_type.name.upper()) if isinstance(data_type, PrimitiveType) else str(data_type).upper()


def _field(predicate: VariantComparison | VariantIsNull) -> VariantField:
    return predicate.left if isinstance(predicate, VariantComparison) else predicate.operand
