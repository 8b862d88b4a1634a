"""Repair findings if that changes no row of any snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TypeAlias, assert_never

from ducklake_core.catalog.changes import DeleteRows, UpdateRows
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.writing.repair import (
    Left,
    ReopenedSchema,
    Repairs,
    RepairSnapshot,
    apply_repairs,
    inlined_tables_there,
    newest_snapshot_id,
)
from ducklake_core.commit.request import CommitMessage, new_commit_id, stored_extra_info
from ducklake_core.format.state import LakeInfo
from ducklake_core.format.types.text import counted
from ducklake_core.maintenance.groups import run_write


def carry_out(
    database: Database, info: LakeInfo, repairs: Sequence[Repair], checked_snapshot: int, commit: CommitMessage
) -> tuple[tuple[str, ...], int]:
    """Carry out repairs in one transaction.

    Args:
        database: The catalog's database.
        info: The lake's settings.
        repairs: The repairs.
        checked_snapshot: Id of the newest snapshot when the lake was checked.
        commit: Author, message and extra_info of the snapshot.

    Returns:
        Descriptions of the repairs, and the id of their snapshot.
    """

    extra_info = commit.get("extra_info")
    # A repeated repair finds nothing to do, so no commit id is needed.
    stored = None if extra_info is None else stored_extra_info(new_commit_id(), extra_info)

    def attempt() -> tuple[tuple[str, ...], int]:
        with database.write() as connection:
            moved = newest_snapshot_id(connection, database, info) != checked_snapshot
            # The computed bounds may not include what was committed since.
            due = list(dict.fromkeys(_without_bounds(one) if moved else one for one in repairs))
            message = commit.get("message") or f"repaired by a check: {counted(len(due), 'repair')}"
            snapshot = RepairSnapshot(author=commit.get("author"), message=message, extra_info=stored)
            number, left = apply_repairs(connection, database, info, _repairs(due), snapshot)
        with database.read() as connection:
            # If the database cannot drop tables within a transaction, the table may still be in use.
            left = replace(left, inlined=left.inlined | inlined_tables_there(connection, database))
        return tuple(str(one) for one in due if not _is_left(one, left)), number

    return run_write(attempt, "repair the catalog")


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


def _repairs(repairs: Iterable[Repair]) -> Repairs:
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
                # It is unknown whether a row has the new bounds as its values.
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
    return Repairs(
        changes=tuple(changes),
        orphans=tuple(orphans),
        record_counts=tuple(counts),
        inlined=tuple(inlined),
        inlined_deletes=tuple(deletes),
        unscheduled=frozenset(unscheduled),
        schemas=tuple(schemas),
        ended=tuple(ended),
    )


@dataclass(frozen=True, slots=True)
class ForgetFileStatistics:
    """Delete the statistics of one column of a file, so that the file is no longer pruned by them."""

    data_file_id: int
    column_id: int

    def __str__(self) -> str:
        return f"deleted the statistics of column {self.column_id} of data file {self.data_file_id}"


@dataclass(frozen=True, slots=True)
class ForgetOrphans:
    """Delete rows of a metadata table that belong to a file or table that the catalog does not contain."""

    table: str
    owner: str
    key: str

    def __str__(self) -> str:
        return f"deleted the rows of ducklake_{self.table} without a row in ducklake_{self.owner}"


@dataclass(frozen=True, slots=True)
class RaiseRecordCount:
    """Raise the row count in the statistics of a table to the rows of all its files and inlined rows."""

    table_id: int
    record_count: int

    def __str__(self) -> str:
        return f"raised the row count of table {self.table_id} to {self.record_count:,}"


@dataclass(frozen=True, slots=True)
class ForgetTableBounds:
    """Delete the table-wide statistics of a column permanently. Readers treat a missing row as unknown."""

    table_id: int
    column_id: int

    def __str__(self) -> str:
        return f"deleted the table-wide statistics of column {self.column_id} of table {self.table_id}"


@dataclass(frozen=True, slots=True)
class WidenTableBounds:
    """Widen the statistics of a column of a table to include all of its files, including those of earlier snapshots."""

    table_id: int
    column_id: int
    contains_null: bool | None
    contains_nan: bool | None
    min_value: str | None
    max_value: str | None

    def __str__(self) -> str:
        bounds = f"{self.min_value!r} to {self.max_value!r}"
        return f"widened the table-wide statistics of column {self.column_id} of table {self.table_id} to {bounds}"


@dataclass(frozen=True, slots=True)
class DropInlinedTable:
    """Drop a table of inlined rows or deletes whose lake table is not in the catalog."""

    name: str
    table_id: int

    def __str__(self) -> str:
        return f"dropped {self.name}, whose table {self.table_id} is not in the catalog"


@dataclass(frozen=True, slots=True)
class ForgetInlinedDeletes:
    """Delete the inlined deletes of a file that no table has. They would hide rows of a later file with that id."""

    table_id: int
    data_file_id: int

    def __str__(self) -> str:
        return f"deleted the inlined deletes of data file {self.data_file_id} in table {self.table_id}, because no table has that file"


@dataclass(frozen=True, slots=True)
class Unschedule:
    """Remove a file that the lake needs from the schedule for deletion."""

    stored_path: str
    path: str

    def __str__(self) -> str:
        return f"removed {self.path} from the schedule for deletion"


@dataclass(frozen=True, slots=True)
class ReopenSchema:
    """Undo the drop of a schema that still contains live tables, views, macros or schemas.

    Attributes:
        ended: The snapshot that dropped it.
        name: Its new name, at earlier snapshots, too.
        path: Path with the new name.
        parent: Id of its parent schema, None for a top-level schema.
    """

    schema_id: int
    parent: int | None
    ended: int
    name: str
    path: str

    def __str__(self) -> str:
        return f"undid the drop of schema {self.path} at snapshot {self.ended}, because it is not empty"


@dataclass(frozen=True, slots=True)
class EndWithTable:
    """End the live rows of a dropped table in a metadata table at the snapshot that dropped the table."""

    table: str
    table_id: int
    ended: int

    def __str__(self) -> str:
        return f"ended the rows of dropped table {self.table_id} in ducklake_{self.table} at snapshot {self.ended}"


Repair: TypeAlias = (
    ForgetFileStatistics
    | ForgetOrphans
    | RaiseRecordCount
    | ForgetTableBounds
    | WidenTableBounds
    | DropInlinedTable
    | ForgetInlinedDeletes
    | Unschedule
    | ReopenSchema
    | EndWithTable
)
