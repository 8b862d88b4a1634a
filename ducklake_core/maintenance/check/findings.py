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
    "cell-invalid": Code("error", "a cell of the catalog has an invalid value", _BACKUP),
    "cell-missing": Code("error", "a required cell of the catalog is NULL", _BACKUP),
    "snapshot-counters": Code("error", "the newest snapshot would assign ids that are in use", _BACKUP),
    "snapshot-changes": Code("error", "the changes of a snapshot cannot be read, so that concurrent commits of DuckDB fail", _BACKUP),
    "snapshot-unknown": Code("error", "a row begins or ends at a snapshot that was never committed", _BACKUP),
    "lifetime-backwards": Code("error", "a row ends before it begins", _BACKUP),
    "setting-twice": Code("error", "a setting of the lake, or an option of one scope, exists twice", "delete one of the rows"),
    "option-scope": Code("error", "an option has an unknown or incomplete scope, so that DuckDB cannot attach the lake", "delete the row"),
    "hold-invalid": Code("warning", "a hold cannot be read, so that no snapshot expires", "delete its row of ducklake_metadata"),
    "hold-of-no-snapshot": Code(
        "warning",
        "the snapshot of a hold has expired, because DuckDB's expiry ignores holds",
        "remove the hold (lake.holds.remove), or put it on another snapshot",
    ),
    "running-write-invalid": Code(
        "warning", "a row of a running write cannot be read, so that no orphan is deleted", "delete its row of ducklake_metadata"
    ),
    "option-invalid": Code("warning", "an option has an invalid value", "set the option again"),
    # Schemas, tables, columns
    "name-twice": Code(
        "error", "two schemas, or two tables, views or macros of a schema, have the same name", "rename or drop one of them with DuckDB"
    ),
    "table-twice": Code("error", "a table exists twice at a snapshot", _BACKUP),
    "schema-missing": Code(
        "error",
        "a table, view, macro or schema is in a schema that does not exist, so that DuckDB cannot attach the lake",
        f"if the schema was dropped, {_REPAIR}; otherwise {_BACKUP}",
    ),
    "columns-missing": Code("error", "a table has no columns, so that DuckDB cannot attach the lake", _BACKUP),
    "column-twice": Code("error", "a table has two columns with the same id or name", _BACKUP),
    "columns-invalid": Code("error", "the columns of a table do not form a schema", _BACKUP),
    "columns-of-the-past": Code(
        "warning",
        "the columns of a table at an earlier snapshot do not form a schema, so that DuckDB cannot read it",
        "expire the snapshot",
    ),
    "type-unknown": Code("error", "a column has an unknown type, so that DuckDB cannot attach the lake", _BACKUP),
    "default-invalid": Code("error", "the default of a column is not a value of its type: rows cannot be read or written", _BACKUP),
    "view-invalid": Code("error", "the column names of a view cannot be read", "drop the view, and create it again"),
    "macro-invalid": Code("error", "a macro has no usable definition, so that DuckDB cannot attach the lake", _BACKUP),
    "comment-twice": Code("warning", "a comment or tag exists twice", "delete one of the rows"),
    "dropped-table-alive": Code("warning", "files or columns of a dropped table are still live", _REPAIR),
    "partition-key-invalid": Code(
        "error",
        "a partition key has an unknown column, an unsupported transform, or exists twice",
        "set the partitioning again",
    ),
    "sort-order-invalid": Code(
        "error", "the sort order of a table is invalid, exists twice, or has no table", "set the sort order again (table.set_sorted_by)"
    ),
    "schema-version-missing": Code(
        "error",
        "a change of columns has no schema version: DuckDB reads inlined rows with the earlier columns, and cannot flush them",
        "insert the rows of the finding into ducklake_schema_versions",
    ),
    "schema-version-unknown": Code("warning", "a file has no schema version, so that DuckDB's compaction crashes", _BACKUP),
    # Files as the catalog has them
    "table-unknown": Code("error", "a file or column belongs to a table that the catalog does not contain", _BACKUP),
    "file-numbers": Code("error", "counts, sizes or snapshots of a file are impossible", _BACKUP),
    "file-named-twice": Code("error", "a file of a DuckLake writer is in the catalog twice", "delete one of the rows"),
    "file-added-twice": Code(
        "warning", "an added file is in the catalog twice, so its rows are duplicated", "delete the rows of one of them"
    ),
    "path-forbidden": Code("error", "a file is outside of the paths that the lake may name", "see allowed_paths in docs/how-to/opening.md"),
    "file-format-unknown": Code("warning", "a file is registered with another format than Parquet, but is read as Parquet", _BACKUP),
    "mapping-invalid": Code("error", "a column mapping maps to nothing, from nothing, or twice: values read as NULL", _BACKUP),
    "mapping-unknown": Code("error", "a file has a column mapping that does not exist", _BACKUP),
    "mapping-missing": Code(
        "warning",
        "a file has neither a column mapping nor field ids: its values may be assigned to other columns",
        "restore its mapping_id from a backup of the catalog, or write the rows of the file again",
    ),
    "encryption-key-missing": Code(
        "error", "a file of an encrypted lake has no usable key", "restore the key from a backup of the catalog"
    ),
    "partition-unknown": Code("error", "a file has partition keys that its table never had", _BACKUP),
    "partition-values-incomplete": Code("error", "a file lacks partition values of its partition keys", _BACKUP),
    "partition-values-wrong": Code("error", "rows of a file do not belong to its partition", _REWRITE),
    "row-ids-overlap": Code("error", "two files contain the same row ids", _REWRITE),
    "row-id-beyond-next": Code(
        "error", "rows have ids that the table will assign again", "set next_row_id of ducklake_table_stats above them"
    ),
    "delete-files-two": Code(
        "error",
        "a data file has two live delete files: DuckDB reads its rows twice",
        "rewrite the file (lake.rewrite_data_files(table, delete_threshold=0))",
    ),
    "delete-files-of-the-past": Code(
        "warning", "a data file has two delete files at an earlier snapshot, at which DuckDB reads its rows twice", "expire the snapshot"
    ),
    "delete-file-orphaned": Code(
        "warning",
        "a delete file belongs to a data file that the catalog does not contain",
        "the next expiry that expires something schedules it",
    ),
    "delete-file-of-other-table": Code("error", "a delete file and its data file belong to different tables", _BACKUP),
    "delete-format-unknown": Code("error", "a delete file has an unsupported format", _BACKUP),
    "delete-count": Code("error", "a delete file deletes no rows, or more than the data file has", _BACKUP),
    # Statistics
    "statistics-orphaned": Code("warning", "statistics or partition values belong to a file that the catalog does not contain", _REPAIR),
    "statistics-column-unknown": Code("warning", "statistics of a file belong to a column that its table never had", _REPAIR),
    "statistics-table-wrong": Code("warning", "statistics of a file belong to another table than the file", _REPAIR),
    "statistics-twice": Code("error", "a file has two rows of statistics for one column", _REPAIR),
    "statistics-counts": Code(
        "error", "the counts of values and NULLs of a column differ from its file, so that filters lose rows", _REPAIR
    ),
    "statistics-invalid": Code("error", "the bounds of a column of a file are invalid, or the lower is above the upper", _REPAIR),
    "statistics-narrow": Code("error", "the bounds of a column exclude values of its file, so that filters lose rows", _REPAIR),
    "table-statistics-missing": Code(
        "error", "a table with rows has no statistics, so that row ids begin at 0 again", "restore the row of ducklake_table_stats"
    ),
    "table-statistics-twice": Code("error", "a table has two rows of statistics", "delete the one with the smaller next_row_id"),
    "table-statistics-stale": Code("warning", "the statistics of a table count too few rows", _REPAIR),
    "table-statistics-orphaned": Code("warning", "statistics belong to a table that the catalog does not contain", _REPAIR),
    "table-bounds-invalid": Code("error", "the bounds of a column of a table are invalid, exist twice, or have no column", _REPAIR),
    "table-bounds-narrow": Code("error", "the statistics of a column of a table exclude existing values: DuckDB loses rows", _REPAIR),
    "table-bounds-unknown": Code(
        "warning", "a column of a table has no bounds although it has values: DuckDB's next insert makes them too narrow", _REPAIR
    ),
    # Rows in the catalog
    "inlined-table-missing": Code(
        "error", "a registered table of inlined rows does not exist", "unregister it, or restore it from a backup"
    ),
    "inlined-table-invalid": Code(
        "error",
        "a table of inlined rows is registered twice, or for another table than its name states",
        "delete the row, or one of the rows",
    ),
    "inlined-table-dead": Code("warning", "an unused table of inlined rows or deletes exists", "drop it; if that is safe, " + _REPAIR),
    "inlined-row-twice": Code("error", "an inlined row is visible twice at a snapshot", _BACKUP),
    "inlined-delete-beyond": Code("error", "the catalog deletes rows that a file does not have", _BACKUP),
    "inlined-delete-orphaned": Code(
        "warning", "the catalog deletes rows of a file that the table does not have", "if no table has the file, " + _REPAIR
    ),
    "inlined-delete-twice": Code(
        "error",
        "a row is deleted twice in the catalog, or there and in a delete file: DuckDB counts too few rows, or reads deleted rows again",
        "flush the table (lake.flush_inlined_data(table))",
    ),
    # Schedule and objects in the store
    "scheduled-live": Code("error", "a file that the lake needs is scheduled for deletion", _REPAIR),
    "scheduled-twice": Code("notice", "a file is scheduled for deletion twice", "no action is necessary: cleanup handles it"),
    "orphaned-file": Code(
        "notice", "a file of a DuckLake writer below the data path is not in the catalog", "delete it with lake.delete_orphaned_files()"
    ),
    "foreign-file": Code("notice", "a file of another program is below the data path", "move it, or ignore the finding"),
    # Footers
    "file-missing": Code("error", "a file of the catalog is missing", f"if all files were moved, use lake.move_data(); if not, {_LOST}"),
    "file-unreachable": Code("error", "a file cannot be read from the store", "check the store, the permissions and the credentials"),
    "file-size": Code("error", "the size of a file differs from the catalog", _LOST),
    "footer-unreadable": Code("error", "the footer of a file cannot be read", _LOST),
    "footer-size": Code("error", "the footer size of a file differs from the catalog, so that DuckDB cannot read it", _BACKUP),
    "record-count": Code("error", "the number of rows of a file differs from the catalog", _LOST),
    "row-group-count": Code("warning", "the number of row groups of a file differs from the catalog", _BACKUP),
    "file-differs": Code("error", "the bounds of columns belong to another file than the one in the store", _LOST),
    "row-ids-missing": Code("error", "a file neither contains row ids nor has a first one in the catalog", _REWRITE),
    "snapshot-ids-missing": Code("error", "a file with rows of several snapshots lacks the snapshot ids of its rows", _REWRITE),
    # Rows
    "rows-unreadable": Code("error", "rows of a file, or inlined rows, cannot be read", _LOST),
    "delete-file-invalid": Code("error", "a delete file belongs to another data file", _BACKUP),
    "row-id-twice": Code("error", "two visible rows of a table have the same row id", _REWRITE),
    "null-not-allowed": Code("error", "a NOT NULL column contains NULLs", "set a value in these rows with an update"),
    "value-out-of-range": Code(
        "error", "a row contains a value outside the range of its type, such as the time 25:00", "set a value in these rows with an update"
    ),
    "snapshot-ids-wrong": Code("error", "a file contains rows of later snapshots than the catalog states", _REWRITE),
}
