"""What DuckDB shows of a lake: every table at every snapshot.

Its change feed is not compared: it tells of deletes, and of what is an update, by which of them are inlined and which files were rewritten,
so that it changes with its own maintenance.
"""

from __future__ import annotations

from collections import Counter

import duckdb

from tests.property.histories.divergences import reference_failure
from tests.property.histories.play import Shown
from tests.support.oracle import Oracle, quoted

_CATALOG = "__ducklake_metadata_lake"


def their_reading(duck: Oracle, known: Shown) -> Shown:
    """Every table at every snapshot that is left and not known, but where DuckDB fails by a fault of its own."""
    tables = _tables(duck)
    found: Shown = {key: rows for key, rows in known.items() if key[0] in tables}
    read = {number for number, _ in known}
    for number, names in tables.items():
        for schema, table in names if number not in read else ():
            name = f"{quoted(schema)}.{quoted(table)}"
            try:
                rows = duck.rows(f"SELECT rowid, COLUMNS(*)::VARCHAR FROM {name} AT (VERSION => {number})")
            except duckdb.Error as error:
                reference_failure(error, name, reading=True)
                continue
            found[number, name] = Counter(map(repr, rows))
    return found


def _tables(duck: Oracle) -> dict[int, list[tuple[str, str]]]:
    """Schemas and names of the tables of every snapshot that is left; one statement, as each opens the catalog."""
    query = (
        f"SELECT n.snapshot_id, s.schema_name, t.table_name FROM {_CATALOG}.ducklake_snapshot n "
        f"LEFT JOIN {_CATALOG}.ducklake_table t "
        "ON t.begin_snapshot <= n.snapshot_id AND (t.end_snapshot IS NULL OR t.end_snapshot > n.snapshot_id) "
        f"LEFT JOIN (SELECT DISTINCT schema_id, schema_name FROM {_CATALOG}.ducklake_schema) s USING (schema_id) ORDER BY ALL"
    )
    found: dict[int, list[tuple[str, str]]] = {}
    for number, schema, table in duck.rows(query):
        names = found.setdefault(int(str(number)), [])
        if table is not None:
            names.append((str(schema), str(table)))
    return found
