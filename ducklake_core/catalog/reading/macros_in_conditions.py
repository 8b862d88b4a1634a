"""Conditions of users that call macros of the lake."""

from __future__ import annotations

from typing import TypeVar

from ducklake_core.catalog.reading.macros import macros
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.format.macro_calls import called_functions, with_macros
from ducklake_core.format.types.names import DEFAULT_SCHEMA, folded

Given = TypeVar("Given")


def without_macro_calls(reader: CatalogReader, given: Given, snapshot_id: int) -> Given | str:
    """A condition or expression with scalar macros of the schema ``main`` put in place of their calls; anything but SQL as it is.

    The catalog is asked only where the text calls a function that DuckDB does not have.

    Raises:
        UsageError: No definition of a macro takes the arguments.
        UnsupportedFeatureError: A macro that cannot be put in place of its call.
    """
    names = called_functions(given) if isinstance(given, str) else frozenset()
    if not names or not isinstance(given, str):
        return given
    known = {
        folded(macro.name): tuple(one for one in macro.implementations if one.kind == "scalar" and one.dialect.lower() == "duckdb")
        for macro in macros(reader, snapshot_id)
        if folded(macro.name) in names and folded(macro.schema_name) == DEFAULT_SCHEMA and macro.kind == "scalar"
    }
    if not known:
        return given
    # What they call may be macros as well.
    every = {folded(macro.name): macro.implementations for macro in macros(reader, snapshot_id) if macro.kind == "scalar"}
    return with_macros(given, every | known)
