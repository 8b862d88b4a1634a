"""Codes, severity and remedies of the findings of an integrity check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from ducklake_core.format.types.text import counted, short_repr

if TYPE_CHECKING:
    import pyarrow as pa


Severity: TypeAlias = Literal["error", "warning", "notice"]
_BACKUP = "restore the catalog from a backup, or repair the row by hand"
_REPAIR = "repair it with lake.check(repair=True)"
_LOST = "restore the file from a backup, or delete its rows (docs/operations/recovery.md)"
_REWRITE = "write the rows of the file again"

CheckLevel: TypeAlias = Literal["catalog", "footers", "rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault of a lake.

    Attributes:
        code: Stable name of the kind of fault (docs/reference/check-findings.md lists all of them).
        what: Description, with the actual and the expected state.
        table: ``schema.table``, None for the lake or an unknown table.
        path: Path of the file.
        data_file_id: Id of the data file.
        column_id: Id of the column.
        is_repairable: Whether ``check(repair=True)`` repairs it.
    """

    code: str
    what: str
    table: str | None = None
    path: str | None = None
    table_id: int | None = None
    data_file_id: int | None = None
    column_id: int | None = None
    is_repairable: bool = False

    @property
    def severity(self) -> Severity:
        """``error``: rows are, or will be, wrong or unreadable; ``warning``: slow, or a risk; ``notice``: no action is necessary."""
        return CODES[self.code].severity

    @property
    def mend(self) -> str:
        """Return the advice for repairing it."""
        return CODES[self.code].mend

    def __str__(self) -> str:
        where = "".join(f" {one}" for one in (self.table, self.path) if one)
        return f"{self.severity} {self.code}{where}: {self.what}; {self.mend}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The outcome of a check.

    Attributes:
        level: Level of the check.
        snapshot_id: Id of the newest snapshot, which was checked.
        findings: Faults before the repair, errors first.
        tables: Number of live tables that were checked.
        files: Number of data and delete files in the catalog.
        bytes_read: Bytes of the files whose rows were read.
        repairs: Descriptions of the repairs; empty unless requested.
        repair_snapshot_id: Id of the snapshot of the repairs, None if there were none.
    """

    level: CheckLevel
    snapshot_id: int
    findings: tuple[Finding, ...] = ()
    tables: int = 0
    files: int = 0
    bytes_read: int = 0
    repairs: tuple[str, ...] = ()
    repair_snapshot_id: int | None = None

    @property
    def is_sound(self) -> bool:
        """Return whether there is neither an error nor a warning."""
        return all(finding.severity == "notice" for finding in self.findings)

    @property
    def by_code(self) -> Mapping[str, int]:
        """Number of findings by code."""
        return dict(Counter(finding.code for finding in self.findings))

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings with severity ``error``."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __bool__(self) -> bool:
        """Return True, also without findings. Use :attr:`is_sound` to test for faults."""
        return True

    def lines(self) -> list[str]:
        """Return a line for each finding and repair, and a summary."""
        counts = Counter(finding.severity for finding in self.findings)
        summary = ", ".join(counted(counts[one], one) for one in ("error", "warning", "notice") if counts[one]) or "nothing found"
        depth = {"catalog": "the catalog alone", "footers": "catalog and footers", "rows": "catalog, footers and rows"}[self.level]
        last = f"{summary} in {counted(self.tables, 'table')} and {counted(self.files, 'file')} at snapshot {self.snapshot_id} ({depth})"
        repairs = [f"repaired: {one}" for one in self.repairs]
        made = [f"repairs were committed as snapshot {self.repair_snapshot_id}"] if self.repair_snapshot_id is not None else []
        return [*map(str, self.findings), *repairs, last, *made]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = short_repr

    def to_arrow(self) -> pa.Table:
        """Return a table with one row for each finding."""
        import pyarrow as pa

        names = ("code", "severity", "table", "path", "what", "mend")
        numbers = ("table_id", "data_file_id", "column_id")
        columns = {name: pa.array([getattr(one, name) for one in self.findings], pa.string()) for name in names}
        columns |= {name: pa.array([getattr(one, name) for one in self.findings], pa.int64()) for name in numbers}
        return pa.table({**columns, "is_repairable": pa.array([one.is_repairable for one in self.findings], pa.bool_())})


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of finding."""

    severity: Severity
    meaning: str
    mend: str


CODES: dict[str, Code] = {
    # Rows of the catalog
    "cell-invalid": Code("error", "a cell has an invalid value", _BACKUP),
    "cell-missing": Code("error", "a required cell is NULL", _BACKUP),
    "snapshot-counters": Code("error", "the next ids are in use", _BACKUP),
    "snapshot-changes": Code("error", "changes cannot be read: DuckDB's concurrent commits fail", _BACKUP),
    "snapshot-unknown": Code("error", "a row begins or ends at an unknown snapshot", _BACKUP),
    "lifetime-backwards": Code("error", "a row ends before it begins", _BACKUP),
    "setting-twice": Code("error", "a setting or option exists twice", "delete one of the rows"),
    "option-scope": Code("error", "the scope of an option is unknown: DuckDB cannot attach", "delete the row"),
    "hold-invalid": Code("warning", "a hold cannot be read: no snapshot expires", "delete its row of ducklake_metadata"),
    "hold-of-no-snapshot": Code(
        "warning",
        "DuckDB expired a held snapshot",
        "remove the hold (lake.holds.remove), or put it on another snapshot",
    ),
    "running-write-invalid": Code("warning", "a running write cannot be read: no orphan is deleted", "delete its row of ducklake_metadata"),
    "option-invalid": Code("warning", "an option has an invalid value", "set the option again"),
    # Schemas, tables, columns
    "name-twice": Code("error", "two objects have the same name", "rename or drop one of them with DuckDB"),
    "table-twice": Code("error", "a table exists twice at a snapshot", _BACKUP),
    "schema-missing": Code(
        "error",
        "an object is in no existing schema: DuckDB cannot attach",
        f"if the schema was dropped, {_REPAIR}; otherwise {_BACKUP}",
    ),
    "columns-missing": Code("error", "a table has no columns: DuckDB cannot attach", _BACKUP),
    "column-twice": Code("error", "two columns have the same id or name", _BACKUP),
    "columns-invalid": Code("error", "columns do not form a schema", _BACKUP),
    "columns-of-the-past": Code(
        "warning",
        "columns at an earlier snapshot do not form a schema",
        "expire the snapshot",
    ),
    "type-unknown": Code("error", "a column has an unknown type: DuckDB cannot attach", _BACKUP),
    "default-invalid": Code("error", "a default is not a value of its type: the table is unusable", _BACKUP),
    "view-invalid": Code("error", "column names of a view cannot be read", "drop the view, and create it again"),
    "macro-invalid": Code("error", "a macro has no usable definition: DuckDB cannot attach", _BACKUP),
    "comment-twice": Code("warning", "a comment or tag exists twice", "delete one of the rows"),
    "dropped-table-alive": Code("warning", "files or columns of a dropped table are live", _REPAIR),
    "partition-key-invalid": Code(
        "error",
        "a partition key is unknown, unsupported or repeated",
        "set the partitioning again",
    ),
    "sort-order-invalid": Code(
        "error", "a sort order is invalid, repeated or has no table", "set the sort order again (table.set_sorted_by)"
    ),
    "schema-version-missing": Code(
        "error",
        "a change of columns has no version: DuckDB reads and flushes inlined rows wrongly",
        "insert the rows of the finding into ducklake_schema_versions",
    ),
    "schema-version-unknown": Code("warning", "a file has no schema version: DuckDB's compaction crashes", _BACKUP),
    # Files as the catalog has them
    "table-unknown": Code("error", "a file or column has no table", _BACKUP),
    "file-numbers": Code("error", "counts, sizes or snapshots of a file are impossible", _BACKUP),
    "file-named-twice": Code("error", "a DuckLake file is in the catalog twice", "delete one of the rows"),
    "file-added-twice": Code("warning", "an added file is in the catalog twice: its rows are doubled", "delete the rows of one of them"),
    "path-forbidden": Code("error", "a file is outside of the allowed paths", "see allowed_paths in docs/how-to/opening.md"),
    "file-format-unknown": Code("warning", "a file is registered as another format, but read as Parquet", _BACKUP),
    "mapping-invalid": Code("error", "a column mapping is empty or repeated: values read as NULL", _BACKUP),
    "mapping-unknown": Code("error", "a column mapping does not exist", _BACKUP),
    "mapping-missing": Code(
        "warning",
        "a file has no mapping and no field ids: columns may be confused",
        "restore its mapping_id from a backup of the catalog, or write the rows of the file again",
    ),
    "encryption-key-missing": Code("error", "an encrypted file has no usable key", "restore the key from a backup of the catalog"),
    "partition-unknown": Code("error", "a file has keys that its table never had", _BACKUP),
    "partition-values-incomplete": Code("error", "a file lacks partition values", _BACKUP),
    "partition-values-wrong": Code("error", "rows do not belong to the partition of their file", _REWRITE),
    "row-ids-overlap": Code("error", "two files contain the same row ids", _REWRITE),
    "row-id-beyond-next": Code("error", "row ids will be assigned again", "set next_row_id of ducklake_table_stats above them"),
    "delete-files-two": Code(
        "error",
        "a data file has two live delete files: DuckDB doubles its rows",
        "rewrite the file (lake.rewrite_data_files(table, delete_threshold=0))",
    ),
    "delete-files-of-the-past": Code("warning", "a data file has two delete files at an earlier snapshot", "expire the snapshot"),
    "delete-file-orphaned": Code(
        "warning",
        "a delete file has no data file",
        "the next expiry that expires something schedules it",
    ),
    "delete-file-of-other-table": Code("error", "a delete file and its data file have different tables", _BACKUP),
    "delete-format-unknown": Code("error", "a delete file has an unsupported format", _BACKUP),
    "delete-count": Code("error", "a delete file deletes no rows, or too many", _BACKUP),
    # Statistics
    "statistics-orphaned": Code("warning", "statistics or partition values have no file", _REPAIR),
    "statistics-column-unknown": Code("warning", "statistics have no column", _REPAIR),
    "statistics-table-wrong": Code("warning", "statistics and their file have different tables", _REPAIR),
    "statistics-twice": Code("error", "a column of a file has statistics twice", _REPAIR),
    "statistics-counts": Code("error", "counts of values or NULLs differ from the file: filters lose rows", _REPAIR),
    "statistics-invalid": Code("error", "bounds of a file are invalid or reversed", _REPAIR),
    "statistics-narrow": Code("error", "bounds of a file exclude values: filters lose rows", _REPAIR),
    "table-statistics-missing": Code(
        "error", "a table with rows has no statistics: row ids begin at 0 again", "restore the row of ducklake_table_stats"
    ),
    "table-statistics-twice": Code("error", "a table has statistics twice", "delete the one with the smaller next_row_id"),
    "table-statistics-stale": Code("warning", "a table's row count is too small", _REPAIR),
    "table-statistics-orphaned": Code("warning", "statistics have no table", _REPAIR),
    "table-bounds-invalid": Code("error", "bounds of a table are invalid, repeated or have no column", _REPAIR),
    "table-bounds-narrow": Code("error", "bounds of a table exclude values: DuckDB loses rows", _REPAIR),
    "table-bounds-unknown": Code("warning", "a column with values has no bounds: DuckDB's next insert makes them too narrow", _REPAIR),
    # Rows in the catalog
    "inlined-table-missing": Code("error", "a table of inlined rows does not exist", "unregister it, or restore it from a backup"),
    "inlined-table-invalid": Code(
        "error",
        "a table of inlined rows is registered twice or wrongly",
        "delete the row, or one of the rows",
    ),
    "inlined-table-dead": Code("warning", "a table of inlined rows or deletes is unused", "drop it; if that is safe, " + _REPAIR),
    "inlined-row-twice": Code("error", "an inlined row is visible twice", _BACKUP),
    "inlined-delete-beyond": Code("error", "deleted rows are not in the file", _BACKUP),
    "inlined-delete-orphaned": Code("warning", "deleted rows are in no file of the table", "if no table has the file, " + _REPAIR),
    "inlined-delete-twice": Code(
        "error",
        "a row is deleted twice: DuckDB miscounts, or reads deleted rows",
        "flush the table (lake.flush_inlined_data(table))",
    ),
    # Schedule and objects in the store
    "scheduled-live": Code("error", "a file that is needed is scheduled for deletion", _REPAIR),
    "scheduled-twice": Code("notice", "a file is scheduled for deletion twice", "no action is necessary: cleanup handles it"),
    "orphaned-file": Code("notice", "a DuckLake file is not in the catalog", "delete it with lake.delete_orphaned_files()"),
    "foreign-file": Code("notice", "a file of another program is below the data path", "move it, or ignore the finding"),
    # Footers
    "file-missing": Code("error", "a file is missing", f"if all files were moved, use lake.move_data(); if not, {_LOST}"),
    "file-unreachable": Code("error", "a file cannot be read from the store", "check the store, the permissions and the credentials"),
    "file-size": Code("error", "the size of a file differs from the catalog", _LOST),
    "footer-unreadable": Code("error", "a footer cannot be read", _LOST),
    "footer-size": Code("error", "the footer size differs from the catalog: DuckDB cannot read the file", _BACKUP),
    "record-count": Code("error", "the number of rows differs from the catalog", _LOST),
    "row-group-count": Code("warning", "the number of row groups differs from the catalog", _BACKUP),
    "file-differs": Code("error", "the bounds belong to another file", _LOST),
    "row-ids-missing": Code("error", "a file has no row ids", _REWRITE),
    "snapshot-ids-missing": Code("error", "a file of several snapshots lacks their ids", _REWRITE),
    # Rows
    "rows-unreadable": Code("error", "rows cannot be read", _LOST),
    "delete-file-invalid": Code("error", "a delete file names another data file", _BACKUP),
    "row-id-twice": Code("error", "two visible rows have the same row id", _REWRITE),
    "null-not-allowed": Code("error", "a NOT NULL column contains NULLs", "set a value in these rows with an update"),
    "value-out-of-range": Code(
        "error", "a value is outside the range of its type, such as 25:00", "set a value in these rows with an update"
    ),
    "snapshot-ids-wrong": Code("error", "a file contains rows of later snapshots", _REWRITE),
}
