"""Evaluate casts of variants with DuckDB, whose rules this library does not have for objects, arrays and every pair of types."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from ducklake_core.engines.duckdb_instance import INEXACT_IN_ARROW, require_duckdb, shared_connection, variant_of
from ducklake_core.errors import SchemaError, UnsupportedFeatureError
from ducklake_core.format.expressions.predicates import VariantComparison
from ducklake_core.format.expressions.sql import nested_sql
from ducklake_core.format.types.data_types import VARCHAR, DataType, Field
from ducklake_core.format.types.schema import duckdb_type
from ducklake_core.format.values.arrow_cast import cast_array


def is_available() -> bool:
    """Return whether DuckDB is installed."""
    return find_spec("duckdb") is not None


def compare_variants(predicate: VariantComparison, array: Any) -> pa.BooleanArray:
    """Return the outcome of a comparison for every variant.

    Args:
        predicate: The comparison; its column is the array.
        array: The variants.

    Raises:
        UnsupportedFeatureError: DuckDB is not installed, or has no such cast.
        SchemaError: A value cannot be cast; the message contains DuckDB's reason.
    """
    field = predicate.left
    named = replace(predicate, left=replace(field, column=replace(field.column, path=("v",))))
    return _computed(nested_sql(named, "duckdb"), array).cast(pa.bool_())


def cast_variants(array: Any, wanted: DataType, *, lenient: bool) -> Any:
    """Return variants as values of a type, in its logical Arrow form.

    Args:
        array: The variants.
        wanted: The type.
        lenient: Whether values that cannot be cast become NULL, as with TRY_CAST.

    Raises:
        UnsupportedFeatureError: DuckDB is not installed, or has no such cast.
        SchemaError: A value cannot be cast; the message contains DuckDB's reason.
    """
    sql = f"{'TRY_CAST' if lenient else 'CAST'}(v AS {duckdb_type(wanted)})"
    if wanted in INEXACT_IN_ARROW:
        sql = f"CAST({sql} AS VARCHAR)"
    found = _computed(sql, array)
    return found.cast(pa.string()) if wanted == VARCHAR else cast_array(found, Field(id=0, name="value", type=wanted))


def _computed(sql: str, array: Any) -> Any:
    duckdb = require_duckdb()
    rows = pa.table({"c0": array.storage if isinstance(array, pa.ExtensionArray) else array})
    # The conversion rejects NULL binaries, so that a NULL variant must not reach it.
    value = f"CASE WHEN c0 IS NULL THEN NULL ELSE {variant_of('c0')} END AS v"
    with shared_connection() as connection:
        connection.register("__ducklake_variants", rows)
        try:
            # DuckDB keeps the row order of a scan of Arrow data, so that the results line up with the input.
            found = connection.sql(f"SELECT {sql} AS found FROM (SELECT {value} FROM __ducklake_variants)").to_arrow_table()  # noqa: S608
        except duckdb.NotImplementedException as problem:
            raise UnsupportedFeatureError(f"{sql}: {str(problem).splitlines()[0]}", expression=sql) from problem
        except duckdb.Error as problem:
            raise SchemaError(f"{sql}: {str(problem).splitlines()[0]}", expression=sql) from problem
    return found.column("found").combine_chunks()
