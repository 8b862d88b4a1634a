"""All metadata of a lake as plain rows, made comparable between lakes that went through the same steps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from sqlalchemy import inspect, select

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.url import parse_catalog_url
from tests.support.oracle import LakeAddress

IGNORED: Mapping[str, Mapping[str, str]] = {
    "metadata": {"value of created_by": "names the implementation"},
    "snapshot": {"snapshot_time": "the time of the commit"},
    "snapshot_changes": {"commit_extra_info": "the library stores a commit id"},
    "schema": {"schema_uuid": "random"},
    "view": {"view_uuid": "random"},
    "table": {"table_uuid": "random"},
    "data_file": {
        "path": "random file name; the directory is compared",
        "file_size_bytes": "writers encode differently",
        "footer_size": "writers encode differently",
    },
    "delete_file": {
        "path": "random file name; the directory is compared",
        "file_size_bytes": "writers encode differently",
        "footer_size": "writers encode differently",
    },
    "file_column_stats": {"column_size_bytes": "writers encode differently"},
    "table_stats": {"file_size_bytes": "writers encode differently"},
    "files_scheduled_for_deletion": {"path": "random file name", "schedule_start": "the time of the commit"},
}
"""Columns that are left out of the comparison, each with its reason."""

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_INLINED_NAME = re.compile(r"(ducklake_inlined_data_\d+_\d+)_[0-9a-f]{12}")
_FILE_NAME = re.compile(r"ducklake-[0-9a-f-]{36}(-delete)?\.parquet$")


_ADDITIONS = {"inline_flush": ("deleted_from_table", "merge_adjacent"), "inlined_insert": ("deleted_from_table",)}
"""Entries of ``changes_made`` that the library adds to others of the same table, for DuckDB to see conflicts (decision 31)."""

Dump: TypeAlias = dict[str, list[dict[str, Any]]]


def dump_catalog(address: LakeAddress, by_duckdb: Dump | None = None) -> Dump:
    """Return the rows of all metadata tables that have any, sorted, with ignored columns left out and random names replaced.

    Args:
        address: The lake.
        by_duckdb: The dump of a lake in which DuckDB took the same steps. What the library adds to the changes of a snapshot is left out,
            where DuckDB does not log it in that snapshot.
    """
    changes = {} if by_duckdb is None else {row["snapshot_id"]: row["changes_made"] for row in by_duckdb["snapshot_changes"]}
    database = Database(parse_catalog_url(address.url))
    dump: Dump = {}
    with database.read() as connection:
        for name, table in database.tables.items():
            rows = [dict(row) for row in connection.execute(select(table)).mappings()]
            if name == "snapshot_changes":
                rows = [{**row, "changes_made": _without_additions(row["changes_made"], changes.get(row["snapshot_id"]))} for row in rows]
            if rows:
                dump[name] = _sorted(_comparable(name, row) for row in rows)
        names = sorted(n for n in inspect(connection).get_table_names() if n.startswith("ducklake_inlined_"))
        for name in names:
            columns = [(c["name"], str(c["type"])) for c in inspect(connection).get_columns(name)]
            dump[plain_inlined_name(name)] = [{"columns": columns}]
    database.close()
    return dump


def plain_inlined_name(name: str) -> str:
    """The name of a table of inlined rows, without the random end that it has on MySQL."""
    return _INLINED_NAME.sub(r"\1", name)


def _comparable(table: str, row: dict[str, Any]) -> dict[str, Any]:
    ignored = IGNORED.get(table, {})
    kept = {key: value for key, value in row.items() if key not in ignored or key == "path"}
    if isinstance(kept.get("path"), str):
        kept["path"] = _UUID.sub("uuid", _FILE_NAME.sub(lambda found: f"file{found[1] or ''}.parquet", kept["path"]))
    if table == "inlined_data_tables":
        kept["table_name"] = plain_inlined_name(kept["table_name"])
    if kept.get("encryption_key") is not None:
        kept["encryption_key"] = f"{len(kept['encryption_key'])} characters"  # random
    if table == "metadata" and row["key"] in ("created_by", "data_path"):
        kept["value"] = "..."
    return kept


def _without_additions(changes: str | None, by_duckdb: str | None) -> str | None:
    """Return the changes of a snapshot without the library's additions that are not among those of DuckDB."""
    if not changes or by_duckdb is None:
        return changes
    entries, expected = changes.split(","), set(by_duckdb.split(","))

    def is_addition(entry: str) -> bool:
        kind, _, table = entry.partition(":")
        return any(f"{cause}:{table}" in entries for cause in _ADDITIONS.get(kind, ()))

    return ",".join(entry for entry in entries if entry in expected or not is_addition(entry))


def _sorted(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: [(value is None, str(type(value)), str(value)) for value in row.values()])
