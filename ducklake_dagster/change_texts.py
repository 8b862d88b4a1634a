"""What a commit did, for people: verbs and names of tables in place of the catalog's kinds and ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ducklake_core.errors import DuckLakeError

if TYPE_CHECKING:
    from ducklake_core import LakeChanges, Snapshot

_VERBS = {
    "created_table": "created",
    "dropped_table": "dropped",
    "altered_table": "altered",
    "inserted_into_table": "added rows to",
    "inlined_insert": "added rows to",
    "deleted_from_table": "deleted rows of",
    "inlined_delete": "deleted rows of",
    "inline_flush": "wrote inlined rows to files of",
    "merge_adjacent": "merged files of",
    "rewrite_delete": "rewrote files of",
}


def changes_text(snapshot: Snapshot, names: Mapping[int, str]) -> str:
    """A sentence about a commit; tables without a known name have their id.

    Args:
        snapshot: The commit.
        names: Tables by id.
    """
    try:
        changes = snapshot.change_set
    except DuckLakeError:
        # Another writer may have stored what nobody can read.
        return snapshot.changes
    done: dict[str, list[str]] = {}
    for kind, verb in _VERBS.items():
        tables = getattr(changes, kind)
        if not tables:
            continue
        found = done.setdefault(verb, [])
        for table in tables:
            name = names.get(table, f"table {table}") if isinstance(table, int) else f"{table.schema}.{table.name}"
            if name not in found:
                found.append(name)
    return "; ".join(f"{verb} {', '.join(found)}" for verb, found in done.items()) or snapshot.changes


def table_names(changes: LakeChanges) -> dict[int, str]:
    """Names of the changed tables by id."""
    return {number: table.name for table in changes.tables for number in (table.id_before, table.id_after) if number is not None}
