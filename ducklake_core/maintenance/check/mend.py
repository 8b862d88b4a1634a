"""Mends what a check found, where that is safe whatever else is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import assert_never

from ducklake_core.catalog.changes import DeleteRows, UpdateRows
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.writing.mending import (
    Left,
    Mending,
    MendingSnapshot,
    ReopenedSchema,
    inlined_tables_there,
    mend,
    newest_snapshot_id,
)
from ducklake_core.commit.request import CommitMessage, new_commit_id, stored_extra_info
from ducklake_core.format.state import LakeInfo
from ducklake_core.maintenance.attempts import run_write
from ducklake_core.maintenance.check.repairs import (
    DropInlinedTable,
    EndWithTable,
    ForgetFileStatistics,
    ForgetInlinedDeletes,
    ForgetOrphans,
    ForgetTableBounds,
    RaiseRecordCount,
    ReopenSchema,
    Repair,
    Unschedule,
    WidenTableBounds,
)


def carry_out(
    database: Database, info: LakeInfo, repairs: Sequence[Repair], checked_snapshot: int, commit: CommitMessage
) -> tuple[tuple[str, ...], int]:
    """Carry out repairs in one transaction.

    Args:
        database: The catalog's database.
        info: The lake's settings.
        repairs: What to do.
        checked_snapshot: The newest snapshot when the lake was checked.
        commit: What the caller says about the snapshot of the repairs.

    Returns:
        What was done, in words, and the snapshot that holds it.
    """

    extra_info = commit.get("extra_info")
    # A repair may be carried out again, as it finds nothing to do then: no commit id is needed to look for it.
    stored = None if extra_info is None else stored_extra_info(new_commit_id(), extra_info)

    def attempt() -> tuple[tuple[str, ...], int]:
        with database.write() as connection:
            moved = newest_snapshot_id(connection, database, info) != checked_snapshot
            # Bounds that enclosed everything may not enclose what was committed since.
            due = list(dict.fromkeys(_without_bounds(one) if moved else one for one in repairs))
            message = commit.get("message") or f"repaired by a check: {len(due)} repairs"
            said = MendingSnapshot(author=commit.get("author"), message=message, extra_info=stored)
            number, left = mend(connection, database, info, _mending(due), said)
        with database.read() as connection:
            # Where a table cannot be dropped within a transaction it may still be in use.
            left = replace(left, inlined=left.inlined | inlined_tables_there(connection, database))
        return tuple(str(one) for one in due if not _is_left(one, left)), number

    return run_write(attempt, "mend the catalog")


def _is_left(repair: Repair, left: Left) -> bool:
    match repair:
        case DropInlinedTable(name=name):
            return name in left.inlined
        case ForgetInlinedDeletes(table_id=number, data_file_id=file):
            return (number, file) in left.inlined_deletes
        case Unschedule(stored_path=path):
            return path in left.unscheduled
        case ReopenSchema(schema_id=number):
            return number in left.schemas
        case _:
            return False


def _without_bounds(repair: Repair) -> Repair:
    return ForgetTableBounds(repair.table_id, repair.column_id) if isinstance(repair, WidenTableBounds) else repair


def _mending(repairs: Iterable[Repair]) -> Mending:
    changes: list[DeleteRows | UpdateRows] = []
    orphans, counts, inlined, deletes, unscheduled = [], [], [], [], []
    schemas: list[ReopenedSchema] = []
    ended: list[tuple[str, int, int]] = []
    for repair in repairs:
        match repair:
            case ForgetFileStatistics(data_file_id=number, column_id=column):
                changes.append(DeleteRows(table="file_column_stats", where={"data_file_id": number, "column_id": column}))
            case ForgetTableBounds(table_id=number, column_id=column):
                changes.append(DeleteRows(table="table_column_stats", where={"table_id": number, "column_id": column}))
            case WidenTableBounds():
                names = ("contains_null", "contains_nan", "min_value", "max_value")
                where = {"table_id": repair.table_id, "column_id": repair.column_id}
                # Whether a row has the new bounds as its values is not known.
                values = {name: getattr(repair, name) for name in names} | {"min_is_exact": None, "max_is_exact": None}
                changes.append(UpdateRows(table="table_column_stats", where=where, values=values))
            case ForgetOrphans(table=name, owner=owner, key=key):
                orphans.append((name, owner, key))
            case RaiseRecordCount(table_id=number, record_count=count):
                counts.append((number, count))
            case DropInlinedTable(name=name, table_id=number):
                inlined.append((name, number))
            case ForgetInlinedDeletes(table_id=number, data_file_id=file):
                deletes.append((number, file))
            case Unschedule(stored_path=path):
                unscheduled.append(path)
            case ReopenSchema():
                schemas.append(ReopenedSchema(**asdict(repair)))
            case EndWithTable(table=name, table_id=number, ended=end):
                ended.append((name, number, end))
            case _:
                assert_never(repair)
    return Mending(
        changes=tuple(changes),
        orphans=tuple(orphans),
        record_counts=tuple(counts),
        inlined=tuple(inlined),
        inlined_deletes=tuple(deletes),
        unscheduled=frozenset(unscheduled),
        schemas=tuple(schemas),
        ended=tuple(ended),
    )
