"""Repairs of a catalog, as values. No repair changes a row of a table at any snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class ForgetFileStatistics:
    """Forget the statistics of one column of a file: nothing is pruned by them any more."""

    data_file_id: int
    column_id: int

    def __str__(self) -> str:
        return f"forgot the statistics of column {self.column_id} of data file {self.data_file_id}"


@dataclass(frozen=True, slots=True)
class ForgetOrphans:
    """Delete rows of a metadata table that belong to a file, or a table, that the catalog does not know."""

    table: str
    owner: str
    key: str

    def __str__(self) -> str:
        return f"deleted the rows of ducklake_{self.table} that belong to nothing in ducklake_{self.owner}"


@dataclass(frozen=True, slots=True)
class RaiseRecordCount:
    """Count at least so many rows in the statistics of a table: the rows of all its files and of the catalog."""

    table_id: int
    record_count: int

    def __str__(self) -> str:
        return f"table {self.table_id} counts at least {self.record_count} rows now"


@dataclass(frozen=True, slots=True)
class ForgetTableBounds:
    """Forget the table-wide statistics of a column, for good: readers take a missing row for unknown."""

    table_id: int
    column_id: int

    def __str__(self) -> str:
        return f"forgot the table-wide statistics of column {self.column_id} of table {self.table_id}"


@dataclass(frozen=True, slots=True)
class WidenTableBounds:
    """Give a column of a table statistics that enclose all of its files, those of earlier snapshots too."""

    table_id: int
    column_id: int
    contains_null: bool | None
    contains_nan: bool | None
    min_value: str | None
    max_value: str | None

    def __str__(self) -> str:
        bounds = f"{self.min_value!r} to {self.max_value!r}"
        return f"the table-wide statistics of column {self.column_id} of table {self.table_id} are {bounds} now"


@dataclass(frozen=True, slots=True)
class DropInlinedTable:
    """Drop a table of inlined rows or deletes whose lake table the catalog does not know."""

    name: str
    table_id: int

    def __str__(self) -> str:
        return f"dropped {self.name}, whose table {self.table_id} is not in the catalog"


@dataclass(frozen=True, slots=True)
class ForgetInlinedDeletes:
    """Delete the inlined deletes of rows of a file that no table has: they hide nothing, until a file gets that number."""

    table_id: int
    data_file_id: int

    def __str__(self) -> str:
        return f"forgot the inlined deletes of data file {self.data_file_id} in table {self.table_id}, as no table has that file"


@dataclass(frozen=True, slots=True)
class Unschedule:
    """Take a file that the lake needs out of the schedule for deletion."""

    stored_path: str
    path: str

    def __str__(self) -> str:
        return f"took {self.path} out of the schedule for deletion"


@dataclass(frozen=True, slots=True)
class ReopenSchema:
    """Take back the drop of a schema that still contains live tables, views, macros or schemas.

    Attributes:
        ended: The snapshot that dropped it.
        name: Its name from now on, at earlier snapshots too; ``path`` is that name below its parents.
        parent: Id of the schema that contains it, None for a schema at the top.
    """

    schema_id: int
    parent: int | None
    ended: int
    name: str
    path: str

    def __str__(self) -> str:
        return f"took back the drop of schema {self.path} at snapshot {self.ended}, as it is not empty"


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
