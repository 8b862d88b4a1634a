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
_LOST = "restore the file from a backup, or delete its rows"
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
    def fix(self) -> str:
        """Return the advice for repairing it."""
        return CODES[self.code].fix

    def __str__(self) -> str:
        where = "".join(f" {one}" for one in (self.table, self.path) if one)
        return f"{self.severity} {self.code}{where}: {self.what}; {self.fix}"


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

        names = ("code", "severity", "table", "path", "what", "fix")
        numbers = ("table_id", "data_file_id", "column_id")
        columns = {name: pa.array([getattr(one, name) for one in self.findings], pa.string()) for name in names}
        columns |= {name: pa.array([getattr(one, name) for one in self.findings], pa.int64()) for name in numbers}
        return pa.table({**columns, "is_repairable": pa.array([one.is_repairable for one in self.findings], pa.bool_())})


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of finding."""

    severity: Severity
    fix: str


CODES: dict[str, Code] = {
    # Rows of the catalog
    "cell-invalid": Code("error", _BACKUP),
    "cell-missing": Code("error", _BACKUP),
    "snapshot-counters": Code("error", _BACKUP),
    "snapshot-changes": Code("error", _BACKUP),
    "snapshot-unknown": Code("error", _BACKUP),
    "lifetime-backwards": Code("error", _BACKUP),
    "setting-twice": Code("error", "delete one of the rows"),
    "option-scope": Code("error", "delete the row"),
    "hold-invalid": Code("warning", "delete its row of ducklake_metadata"),
    "hold-of-no-snapshot": Code("warning", "remove the hold (lake.holds.remove), or put it on another snapshot"),
    "running-write-invalid": Code("warning", "delete its row of ducklake_metadata"),
    "option-invalid": Code("warning", "set the option again"),
    # Schemas, tables, columns
    "name-twice": Code("error", "rename or drop one of them with DuckDB"),
    "table-twice": Code("error", _BACKUP),
    "schema-missing": Code("error", f"if the schema was dropped, {_REPAIR}; otherwise {_BACKUP}"),
    "columns-missing": Code("error", _BACKUP),
    "column-twice": Code("error", _BACKUP),
    "columns-invalid": Code("error", _BACKUP),
    "columns-of-the-past": Code("warning", "expire the snapshot"),
    "type-unknown": Code("error", _BACKUP),
    "default-invalid": Code("error", _BACKUP),
    "view-invalid": Code("error", "drop the view, and create it again"),
    "macro-invalid": Code("error", _BACKUP),
    "comment-twice": Code("warning", "delete one of the rows"),
    "dropped-table-alive": Code("warning", _REPAIR),
    "partition-key-invalid": Code("error", "set the partitioning again"),
    "sort-order-invalid": Code("error", "set the sort order again (table.set_sorted_by)"),
    "schema-version-missing": Code("error", "insert the rows of the finding into ducklake_schema_versions"),
    "schema-version-unknown": Code("warning", _BACKUP),
    # Files as the catalog has them
    "table-unknown": Code("error", _BACKUP),
    "file-numbers": Code("error", _BACKUP),
    "file-named-twice": Code("error", "delete one of the rows"),
    "file-added-twice": Code("warning", "delete the rows of one of them"),
    "path-forbidden": Code("error", "open the lake with this path in allowed_paths if you trust it"),
    "file-format-unknown": Code("warning", _BACKUP),
    "mapping-invalid": Code("error", _BACKUP),
    "mapping-unknown": Code("error", _BACKUP),
    "mapping-missing": Code("warning", "restore its mapping_id from a backup of the catalog, or write the rows of the file again"),
    "encryption-key-missing": Code("error", "restore the key from a backup of the catalog"),
    "partition-unknown": Code("error", _BACKUP),
    "partition-values-incomplete": Code("error", _BACKUP),
    "partition-values-wrong": Code("error", _REWRITE),
    "row-ids-overlap": Code("error", _REWRITE),
    "row-id-beyond-next": Code("error", "set next_row_id of ducklake_table_stats above them"),
    "delete-files-two": Code("error", "rewrite the file (lake.rewrite_data_files(table, delete_threshold=0))"),
    "delete-files-of-the-past": Code("warning", "expire the snapshot"),
    "delete-file-orphaned": Code("warning", "the next expiry that expires something schedules it"),
    "delete-file-of-other-table": Code("error", _BACKUP),
    "delete-format-unknown": Code("error", _BACKUP),
    "delete-count": Code("error", _BACKUP),
    # Statistics
    "statistics-orphaned": Code("warning", _REPAIR),
    "statistics-column-unknown": Code("warning", _REPAIR),
    "statistics-table-wrong": Code("warning", _REPAIR),
    "statistics-twice": Code("error", _REPAIR),
    "statistics-counts": Code("error", _REPAIR),
    "statistics-invalid": Code("error", _REPAIR),
    "statistics-narrow": Code("error", _REPAIR),
    "table-statistics-missing": Code("error", "restore the row of ducklake_table_stats"),
    "table-statistics-twice": Code("error", "delete the one with the smaller next_row_id"),
    "table-statistics-stale": Code("warning", _REPAIR),
    "table-statistics-orphaned": Code("warning", _REPAIR),
    "table-bounds-invalid": Code("error", _REPAIR),
    "table-bounds-narrow": Code("error", _REPAIR),
    "table-bounds-unknown": Code("warning", _REPAIR),
    # Rows in the catalog
    "inlined-table-missing": Code("error", "unregister it, or restore it from a backup"),
    "inlined-table-invalid": Code("error", "delete the row, or one of the rows"),
    "inlined-table-dead": Code("warning", "drop it; if that is safe, " + _REPAIR),
    "inlined-row-twice": Code("error", _BACKUP),
    "inlined-delete-beyond": Code("error", _BACKUP),
    "inlined-delete-orphaned": Code("warning", "if no table has the file, " + _REPAIR),
    "inlined-delete-twice": Code("error", "flush the table (lake.flush_inlined_data(table))"),
    # Schedule and objects in the store
    "scheduled-live": Code("error", _REPAIR),
    "scheduled-twice": Code("notice", "no action is necessary: cleanup handles it"),
    "orphaned-file": Code("notice", "delete it with lake.delete_orphaned_files()"),
    "foreign-file": Code("notice", "move it, or ignore the finding"),
    # Footers
    "file-missing": Code("error", f"if all files were moved, use lake.move_data(); if not, {_LOST}"),
    "file-unreachable": Code("error", "check the store, the permissions and the credentials"),
    "file-size": Code("error", _LOST),
    "footer-unreadable": Code("error", _LOST),
    "footer-size": Code("error", _BACKUP),
    "record-count": Code("error", _LOST),
    "row-group-count": Code("warning", _BACKUP),
    "file-differs": Code("error", _LOST),
    "row-ids-missing": Code("error", _REWRITE),
    "snapshot-ids-missing": Code("error", _REWRITE),
    # Rows
    "rows-unreadable": Code("error", _LOST),
    "delete-file-invalid": Code("error", _BACKUP),
    "row-id-twice": Code("error", _REWRITE),
    "null-not-allowed": Code("error", "set a value in these rows with an update"),
    "value-out-of-range": Code("error", "set a value in these rows with an update"),
    "snapshot-ids-wrong": Code("error", _REWRITE),
}
