"""Write docs/reference/compatibility.md: each function, parameter and option of DuckDB's extension, and its counterpart in this library.

Fails if a name or a test of the rows does not exist. ``--check`` compares the page with the rows. tests/project/test_compatibility.py also
compares the rows with the installed extension.
"""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import ducklake_core

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "compatibility.md"


class Row(NamedTuple):
    """One parameter, or a function itself (``""``).

    Attributes:
        duckdb: The parameter's name in DuckDB; positional parameters have the names of its documentation.
        core: ``Class.method`` or ``Class.method(parameter)`` of :mod:`ducklake_core`, or words.
        test: ``folder/file::test`` below tests, empty where words say why there is none.
    """

    duckdb: str
    core: str
    test: str = ""


_CATALOG = Row("catalog", "the object `lake` itself")


def _maintained(operation: str, test: str) -> list[Row]:
    return [Row("dry_run", f"DuckLake.{operation}(dry_run)", test), Row("older_than", f"DuckLake.{operation}(older_than)", test)]


def _feed(operation: str) -> list[Row]:
    test = "behaviour/change_feed/test_histories.py::test_every_range_reports_the_changes"
    return [
        _CATALOG,
        Row("schema_name", "DuckLake.table(name)", test),
        Row("table_name", "DuckLake.table(name)", test),
        Row("start_snapshot", f"Table.{operation}(start)", test),
        Row("end_snapshot", f"Table.{operation}(end)", test),
    ]


_MERGE = "behaviour/maintenance/test_merge.py::test_limits_and_options"
_REWRITE = "behaviour/maintenance/test_rewrite.py::test_thresholds_and_scopes"
_FLUSH = "behaviour/maintenance/test_flush.py::test_only_the_requested_tables_are_flushed"
_ADD = "behaviour/lake/adding/test_same_catalog.py::test_the_catalog_is_the_reference_s"
_REJECT = "behaviour/lake/adding/test_rejected_files.py::test_files_that_cannot_be_added_raise"
_LIST = "behaviour/lake/test_listings.py::test_listings_through_history"
_OPTIONS = "behaviour/lake/test_listings.py::test_options_and_settings"
_COMMIT = "behaviour/lake/test_face.py::test_commit_messages_can_be_required"
_OPEN = "behaviour/lake/test_opening.py::test_open_creates_once"

_DATA_PATH = "unit/catalog/database/test_bootstrap.py::test_data_path_must_be_the_stored_one_unless_overridden"

FUNCTIONS: dict[str, list[Row]] = {
    "ducklake_snapshots": [_CATALOG, Row("", "DuckLake.snapshots", _LIST)],
    "ducklake_current_snapshot": [_CATALOG, Row("", "DuckLake.snapshot", _LIST)],
    "ducklake_last_committed_snapshot": [
        _CATALOG,
        Row("", "TransactionResult.snapshot", "behaviour/lake/test_face.py::test_first_write_creates_schema_and_table_and_rows_at_once"),
    ],
    "ducklake_table_info": [_CATALOG, Row("", "DuckLake.tables", "behaviour/lake/test_inspection.py::test_listings_are_those_of_duckdb")],
    "ducklake_table_insertions": _feed("insertions"),
    "ducklake_table_deletions": _feed("deletions"),
    "ducklake_table_changes": _feed("changes"),
    "ducklake_list_files": [
        _CATALOG,
        Row("table_name", "DuckLake.table(name)", _LIST),
        Row("schema", "DuckLake.table(name)", _LIST),
        Row("snapshot_version", "DuckLake.table(at)", _LIST),
        Row("snapshot_time", "DuckLake.table(at)", "behaviour/lake/test_face.py::test_time_travel_and_history"),
        Row("", "Table.list_files", _LIST),
    ],
    "ducklake_options": [_CATALOG, Row("", "DuckLake.scoped_options", _OPTIONS)],
    "ducklake_settings": [_CATALOG, Row("", "DuckLake.settings", _OPTIONS)],
    "ducklake_set_option": [
        _CATALOG,
        Row("name", "DuckLake.set_option(name)", _OPTIONS),
        Row("value", "DuckLake.set_option(value)", _OPTIONS),
        Row("schema", "DuckLake.set_option(schema)", "behaviour/lake/test_options_taken_away.py::test_the_wider_scope_is_effective_again"),
        Row(
            "table_name", "DuckLake.set_option(table)", "behaviour/lake/test_options_taken_away.py::test_the_wider_scope_is_effective_again"
        ),
    ],
    "ducklake_set_commit_message": [
        _CATALOG,
        Row("author", "DuckLake.transaction(author)", _COMMIT),
        Row("commit_message", "DuckLake.transaction(message)", _COMMIT),
        Row("extra_info", "DuckLake.transaction(extra_info)", "behaviour/lake/test_commit_ids.py::test_reserved_keys_of_extra_info_raise"),
    ],
    "ducklake_commit": [
        _CATALOG,
        Row("snapshot", "a transaction commits when its block ends"),
        Row("max_retry_count", "no parameter: [conflicts are replanned](../how-to/row-changes.md#other-writers)"),
        Row("retry_wait_ms", "no parameter: [conflicts are replanned](../how-to/row-changes.md#other-writers)"),
        Row("retry_backoff", "no parameter: [conflicts are replanned](../how-to/row-changes.md#other-writers)"),
    ],
    "ducklake_add_data_files": [
        _CATALOG,
        Row("table_name", "DuckLake.add_data_files(table)", _ADD),
        Row("files", "DuckLake.add_data_files(paths)", _ADD),
        Row("schema", "DuckLake.add_data_files(table)", _ADD),
        Row("hive_partitioning", "DuckLake.add_data_files(hive_partitioning)", _ADD),
        Row("allow_missing", "DuckLake.add_data_files(allow_missing)", _REJECT),
        Row("ignore_extra_columns", "DuckLake.add_data_files(ignore_extra_columns)", _REJECT),
    ],
    "ducklake_cleanup_old_files": [
        _CATALOG,
        Row("cleanup_all", "DuckLake.cleanup_old_files(cleanup_all)", "behaviour/maintenance/test_cleanup.py::test_floor"),
        *_maintained("cleanup_old_files", "behaviour/maintenance/test_cleanup.py::test_floor"),
    ],
    "ducklake_delete_orphaned_files": [
        _CATALOG,
        Row("cleanup_all", "DuckLake.delete_orphaned_files(cleanup_all)", "behaviour/maintenance/test_orphans.py::test_floor_and_option"),
        *_maintained("delete_orphaned_files", "behaviour/maintenance/test_orphans.py::test_floor_and_option"),
    ],
    "ducklake_expire_snapshots": [
        _CATALOG,
        Row(
            "versions", "DuckLake.expire_snapshots(versions)", "behaviour/maintenance/test_expire.py::test_newest_snapshot_is_never_expired"
        ),
        Row("dry_run", "DuckLake.expire_snapshots(dry_run)", "behaviour/maintenance/test_expire.py::test_dry_run_changes_nothing"),
        Row(
            "older_than", "DuckLake.expire_snapshots(older_than)", "behaviour/maintenance/test_expire.py::test_times_are_compared_as_times"
        ),
    ],
    "ducklake_merge_adjacent_files": [
        _CATALOG,
        Row("table_name", "DuckLake.merge_adjacent_files(table)", _MERGE),
        Row("schema", "DuckLake.merge_adjacent_files(schema)", _MERGE),
        Row("max_compacted_files", "DuckLake.merge_adjacent_files(max_compacted_files)", _MERGE),
        Row("min_file_size", "DuckLake.merge_adjacent_files(min_file_size)", _MERGE),
        Row("max_file_size", "DuckLake.merge_adjacent_files(max_file_size)", _MERGE),
    ],
    "ducklake_rewrite_data_files": [
        _CATALOG,
        Row("table_name", "DuckLake.rewrite_data_files(table)", _REWRITE),
        Row("schema", "DuckLake.rewrite_data_files(schema)", _REWRITE),
        Row("delete_threshold", "DuckLake.rewrite_data_files(delete_threshold)", _REWRITE),
    ],
    "ducklake_flush_inlined_data": [
        _CATALOG,
        Row("table_name", "DuckLake.flush_inlined_data(table)", _FLUSH),
        Row("schema_name", "DuckLake.flush_inlined_data(schema)", _FLUSH),
    ],
}
"""By function of the extension; ``ducklake_scan`` is DuckDB's own way of reading files and takes no call by users."""

ATTACH: list[Row] = [
    Row("DATA_PATH", "DuckLake.connect(data_path)", _DATA_PATH),
    Row("OVERRIDE_DATA_PATH", "DuckLake.connect(override_data_path)", _DATA_PATH),
    Row(
        "METADATA_SCHEMA",
        "DuckLake.connect(metadata_schema)",
        "behaviour/lake/test_metadata_schema.py::test_duckdb_and_ducklake_core_write_in_any_metadata_schema",
    ),
    Row(
        "READ_ONLY",
        "DuckLake.connect(read_only)",
        "behaviour/lake/test_opening.py::test_a_read_only_lake_rejects_every_write",
    ),
    Row(
        "ENCRYPTED",
        "DuckLake.create(encrypted)",
        "behaviour/lake/test_encrypted_writes.py::test_duckdb_and_ducklake_core_write_alternately",
    ),
    Row("CREATE_IF_NOT_EXISTS", "DuckLake.open(create)", _OPEN),
    Row("SNAPSHOT_VERSION", "DuckLake.at(at)", "behaviour/lake/test_opening.py::test_a_whole_lake_at_one_snapshot"),
    Row("SNAPSHOT_TIME", "DuckLake.at(at)", "behaviour/lake/test_opening.py::test_a_whole_lake_at_one_snapshot"),
    Row(
        "DATA_INLINING_ROW_LIMIT", "DuckLake.set_option(name)", "behaviour/lake/test_inlining.py::test_writes_within_the_limits_are_inlined"
    ),
    Row(
        "AUTOMATIC_MIGRATION",
        "DuckLake.migrate",
        "behaviour/maintenance/test_migrate.py::test_every_snapshot_shows_the_same_rows_afterwards",
    ),
    Row("METADATA_CATALOG", "no parameter: nothing is attached"),
    Row("METADATA_PATH", "DuckLake.connect(catalog)", _OPEN),
    Row("METADATA_PARAMETERS", "parameters of the database's address"),
]

_URL = "unit/catalog/database/test_url.py::test_spellings"
_SHREDDED = "behaviour/types/test_shredded_variants.py::test_files_are_left_out"
_IN_SQL = "behaviour/sql/test_variants_and_geometries.py"

CATALOGS: list[Row] = [
    Row("ducklake:file.ducklake", "DuckLake.connect(catalog)", _URL),
    Row("ducklake:sqlite:", "DuckLake.connect(catalog)", _URL),
    Row("ducklake:postgres:", "DuckLake.connect(catalog)", _URL),
    Row("ducklake:mysql:", "DuckLake.connect(catalog)", "behaviour/lake/test_mysql.py::test_duckdb_reads_it_by_its_own_extension"),
    Row(
        "ducklake:md:",
        "not offered: only DuckDB reaches MotherDuck",
        "unit/catalog/database/test_url.py::test_unsupported_databases_raise",
    ),
]

STATEMENTS: list[Row] = [
    Row("FROM t AT (VERSION => 3)", "DuckLake.sql(sql)", "behaviour/sql/test_queries.py::test_answers"),
    Row("INSERT, UPDATE, DELETE, MERGE", "DuckLake.sql(sql)", "behaviour/sql/test_statements.py::test_statements_do_what_duckdb_does"),
    Row("UPDATE ... FROM, DELETE ... USING, subqueries", "DuckLake.sql(sql)", "behaviour/sql/test_computed_changes.py::test_one_by_one"),
    Row("MERGE ... BY NAME, DEFAULT", "DuckLake.sql(sql)", "behaviour/sql/test_computed_changes.py::test_one_by_one"),
    Row("CREATE, DROP, ALTER, COMMENT", "DuckLake.sql(sql)", "behaviour/sql/test_statements.py::test_statements_do_what_duckdb_does"),
    Row("BEGIN ... COMMIT", "Transaction.sql(sql)", "behaviour/sql/test_statements.py::test_several_in_a_transaction"),
    Row("DEFAULT now()", "Table.append(data)", "behaviour/lake/test_computed_defaults.py::test_rows_in_process"),
    Row("macro(x) in a condition", "Table.scan(where)", "behaviour/lake/test_macros_in_conditions.py::test_conditions"),
    Row(
        "a VARIANT in a table",
        "Table.append(data)",
        "behaviour/types/test_shredded_variants.py::test_catalogs_equal_those_of_duckdb",
    ),
    Row("a VARIANT in a query", "DuckLake.sql(sql)", f"{_IN_SQL}::test_answers"),
    Row("v.a = 100 of a VARIANT", "Table.scan(where)", _SHREDDED),
    Row("geometry && box", "Table.scan(where)", _SHREDDED),
    Row("st_intersects(geometry, constant)", "Table.scan(where)", f"{_IN_SQL}::test_relations_are_those_of_duckdb"),
]


def page() -> str:
    """Return the page.

    Raises:
        LookupError: A name of this library, or a test, does not exist.
    """
    lines = [
        "# DuckDB functions",
        "",
        "Each function and `ATTACH` option of DuckDB's `ducklake` extension, with the call of `ducklake_core` that does the same.",
        "[SQL](sql.md) lists the statements, and [differences](differences.md) the calls that behave differently.",
        "`.ci/compatibility.py` generates the page, and checks that every parameter has a counterpart with a test.",
        "",
        "| function | `ducklake_core` |",
        "|---|---|",
    ]
    for function, rows in FUNCTIONS.items():
        lines.append(f"| `{function}` | {_calls([row for row in rows if row is not _CATALOG])} |")
    lines += ["", "## ATTACH", "", "| option | `ducklake_core` |", "|---|---|"]
    lines += [f"| `{row.duckdb}` | {_call(row)} |" for row in (*ATTACH, *CATALOGS)]
    for row in STATEMENTS:
        _call(row)
    lines.append("")
    return "\n".join(lines)


def _calls(rows: list[Row]) -> str:
    """Return the calls of the parameters of one function, with the parameters of one method together."""
    methods: dict[str, list[str]] = {}
    words: dict[str, str] = {}
    for row in rows:
        call = _call(row)
        if call != f"`{row.core}`":
            words.setdefault(call, row.duckdb)
            continue
        method, _, parameter = row.core.removesuffix(")").partition("(")
        found = methods.setdefault(method, [])
        if parameter and parameter not in found:
            found.append(parameter)
    calls = [f"`{method}({', '.join(parameters)})`" if parameters else f"`{method}`" for method, parameters in methods.items()]
    return ", ".join([*calls, *(f"`{name}`: {text}" for text, name in words.items())])


def _call(row: Row) -> str:
    if row.test:
        _check_test(row.test)
    return f"`{row.core}`" if _is_known(row.core) else row.core


def _is_known(text: str) -> bool:
    """Return whether a cell is a name, which has to exist in :mod:`ducklake_core`, and not a sentence."""
    name, parameter = _split(text)
    owner, _, method = name.partition(".")
    if not method.isidentifier() or not hasattr(ducklake_core, owner):
        return False
    found = inspect.getattr_static(getattr(ducklake_core, owner), method, None)
    if found is None:
        raise LookupError(f"ducklake_core has no {name}")
    if parameter and parameter not in inspect.signature(getattr(getattr(ducklake_core, owner), method)).parameters:
        raise LookupError(f"{name} has no parameter {parameter}")
    return True


def _split(text: str) -> tuple[str, str]:
    name, _, parameter = text.rstrip(")").partition("(")
    return name, parameter


def _check_test(test: str) -> None:
    file, _, name = test.partition("::")
    if name not in _tests_of(file):
        raise LookupError(f"tests/{file} has no test {name}")


@cache
def _tests_of(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))


if __name__ == "__main__":
    text = page()
    if "--check" in sys.argv and PAGE.read_text() != text:
        sys.exit("docs/reference/compatibility.md does not match the code: run python .ci/compatibility.py")
    PAGE.write_text(text)
