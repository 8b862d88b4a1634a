"""Checks of macros, which DuckDB parses when it attaches."""

from __future__ import annotations

from collections import defaultdict

from ducklake_core.engines.duckdb.syntax import syntax_errors
from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.types.type_names import parse_leaf_type
from ducklake_core.maintenance.check.facts import CatalogRow, Facts, is_live


def check_macros(facts: Facts) -> None:
    """Their schemas, definitions and parameters; names are checked with those of tables."""
    bodies, parameters = _by_macro(facts, "macro_impl"), _by_macro(facts, "macro_parameters")
    schemas = {row.schema_id for row in _live(facts, "schema")}
    live = _live(facts, "macro")
    unparsed = _unparsed([one for row in live for one in bodies[row.macro_id]])
    for row in live:
        own = bodies[row.macro_id]
        if row.schema_id not in schemas:
            facts.report_schema_missing(f"macro {row.macro_name!r} is in schema {row.schema_id}, which is not there", row.schema_id)
        wrong = (
            ["no definition"] if not own else [f"a definition of type {one.type!r}" for one in own if one.type not in ("scalar", "table")]
        )
        wrong += ["a definition without SQL" for one in own if not one.sql]
        wrong += ["a definition without a dialect" for one in own if one.dialect is None]
        if {one.impl_id for one in parameters[row.macro_id]} - {one.impl_id for one in own} and own:
            wrong.append("parameters of no definition of it")
        wrong += ["a parameter without a name" for one in parameters[row.macro_id] if not one.parameter_name]
        wrong += [f"a parameter of type {one.parameter_type!r}" for one in parameters[row.macro_id] if not _is_type(one.parameter_type)]
        wrong += [f"a definition {one.sql!r}, of which {says}" for one, says in unparsed if one.macro_id == row.macro_id]
        if wrong:
            facts.report("macro-invalid", f"macro {row.macro_name!r} has {', '.join(wrong)}")


def _unparsed(bodies: list[CatalogRow]) -> list[tuple[CatalogRow, str]]:
    """Definitions that the installed DuckDB cannot parse, with what it says. It parses them whatever their dialect."""
    known = [one for one in bodies if one.sql and one.type in ("scalar", "table")]
    said = syntax_errors([one.sql if one.type == "table" else f"SELECT {one.sql}" for one in known])
    return [(one, says) for one, says in zip(known, said, strict=True) if says is not None]


def _by_macro(facts: Facts, name: str) -> dict[int, list[CatalogRow]]:
    found: dict[int, list[CatalogRow]] = defaultdict(list)
    for row in facts.every.rows(name):
        found[row.macro_id].append(row)
    return found


def _is_type(text: str | None) -> bool:
    """Whether DuckDB takes a text for the type of a parameter; of nested types it writes the outermost word alone."""
    if text in (None, "", "unknown", "list", "struct", "map"):
        return True
    try:
        parse_leaf_type(str(text))
    except UnsupportedFeatureError:
        return False
    return True


def _live(facts: Facts, name: str) -> list[CatalogRow]:
    return [row for row in facts.every.rows(name) if row.begin_snapshot is not None and is_live(row, facts.newest)]
