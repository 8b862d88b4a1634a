"""Checks of column mappings: how columns are found in files that were added from elsewhere."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from ducklake_core.catalog.reading.mappings import BY_NAME
from ducklake_core.errors import CorruptFileError
from ducklake_core.format.files.locations import printable
from ducklake_core.format.files.name_mapping import path_value
from ducklake_core.format.types.names import folded
from ducklake_core.maintenance.check.facts import CatalogRow, Facts


def check_mappings(facts: Facts) -> None:
    """Mappings that files name, as the catalog has them."""
    known = {(row.mapping_id, row.table_id) for row in facts.every.rows("column_mapping")}
    for row in facts.files.values():
        if row.mapping_id is not None and (row.mapping_id, row.table_id) not in known:
            what = f"data file {row.data_file_id} has the mapping {row.mapping_id}"
            facts.report(
                "mapping-unknown", what, table=facts.table_of(row), path=printable(facts.path_of(row)), data_file_id=row.data_file_id
            )
    for (mapping_id, table_id), says in wrong_mappings(facts).items():
        facts.report("mapping-invalid", f"mapping {mapping_id} {says}", table=facts.tables[table_id])


def wrong_mappings(facts: Facts) -> dict[tuple[int, int], str]:
    """What is wrong with mappings that files name, by the ids of mapping and table, for those of which something is."""
    known = {(row.mapping_id, row.table_id): row for row in facts.every.rows("column_mapping")}
    columns = columns_of_mappings(facts)
    used = dict.fromkeys((row.mapping_id, row.table_id) for row in facts.files.values() if row.table_id in facts.tables)
    found = {key: _wrong(known[key], columns.get(key[0], []), facts.tables[key[1]].column_ids) for key in used if key in known}
    return {key: says for key, says in found.items() if says}


def columns_of_mappings(facts: Facts) -> dict[int, list[CatalogRow]]:
    """Rows of ``ducklake_name_mapping`` by mapping."""
    found: dict[int, list[CatalogRow]] = defaultdict(list)
    for row in facts.every.rows("name_mapping"):
        found[row.mapping_id].append(row)
    return found


def _wrong(mapping: CatalogRow, columns: list[CatalogRow], ids: set[int]) -> str:
    if mapping.type != BY_NAME:
        return f"is of the type {mapping.type!r}, of which only {BY_NAME!r} is known"
    if not columns:
        return "has no columns"
    unknown = sorted({row.target_field_id for row in columns} - ids, key=str)
    if unknown:
        return f"maps to column {unknown[0]}, which the table never had"
    around = {row.parent_column for row in columns if row.parent_column is not None} - {row.column_id for row in columns}
    if around:
        return f"has a column below column {min(around)}, which it does not have"
    twice = [number for number, count in Counter(row.target_field_id for row in columns).items() if count > 1]
    return f"maps to column {twice[0]} twice" if twice else ""


def misses_columns(columns: Iterable[CatalogRow], path: str, names: Iterable[str]) -> str:
    """Which column of a mapping is not in a file, in words; empty when all are.

    Args:
        columns: Rows of the mapping.
        path: The file's path, whose directories may hold values.
        names: Top-level columns of the file.
    """
    there = {folded(name) for name in names}
    for row in columns:
        if row.is_partition:
            try:
                path_value(path, row.source_name)
            except CorruptFileError:
                return f"the path has no directory {row.source_name}=..."
        elif row.parent_column is None and folded(row.source_name) not in there:
            return f"the file has no column {row.source_name!r}"
    return ""
