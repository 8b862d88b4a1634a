"""What a check finds, as values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from ducklake_core.format.types.message_text import short_repr
from ducklake_core.maintenance.check.codes import CODES, Severity

if TYPE_CHECKING:
    import pyarrow as pa

CheckLevel: TypeAlias = Literal["catalog", "footers", "rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it must be.

    Attributes:
        code: Stable name of what it is (docs/health.md lists all of them).
        what: What is there, and what was expected.
        table: ``schema.table`` that it is about, None for the lake or an unknown table.
        path: The file that it is about.
        data_file_id: Id of the data file. Likewise ``column_id``.
        is_repairable: Whether ``check(repair=True)`` mends it.
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
        """``error``: rows are, or will be, wrong or unreadable; ``warning``: slow, or a danger for later; ``notice``: nothing is wrong."""
        return CODES[self.code].severity

    @property
    def mend(self) -> str:
        """How to mend it."""
        return CODES[self.code].mend

    def __str__(self) -> str:
        where = "".join(f" {one}" for one in (self.table, self.path) if one)
        return f"{self.severity} {self.code}{where}: {self.what}; {self.mend}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The outcome of a check.

    Attributes:
        level: How deep it looked.
        snapshot_id: The newest snapshot, at which it looked.
        findings: Errors first.
        tables: Live tables that were looked at. Likewise ``files``: data and delete files that the catalog names.
        bytes_read: Bytes of the files of which rows were read.
        repairs: What was mended, in words; empty unless it was asked for. Findings are those before the repair.
        repair_snapshot_id: The snapshot that holds the repairs, None when there were none.
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
        """Whether there is neither an error nor a warning."""
        return all(finding.severity == "notice" for finding in self.findings)

    @property
    def by_code(self) -> Mapping[str, int]:
        """Number of findings by code."""
        return dict(Counter(finding.code for finding in self.findings))

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings by which rows are, or will be, wrong or unreadable."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __bool__(self) -> bool:
        """Always true: an empty result is a result. Ask :attr:`is_sound`."""
        return True

    def lines(self) -> list[str]:
        """Each finding, each repair, and the sum, in words."""
        counts = Counter(finding.severity for finding in self.findings)
        said = ", ".join(f"{counts[one]} {one}s" for one in ("error", "warning", "notice") if counts[one]) or "nothing found"
        depth = {"catalog": "the catalog alone", "footers": "catalog and footers", "rows": "catalog, footers and rows"}[self.level]
        last = f"{said} in {self.tables} tables and {self.files} files at snapshot {self.snapshot_id} ({depth})"
        repairs = [f"mended: {one}" for one in self.repairs]
        made = [f"the repairs are snapshot {self.repair_snapshot_id}"] if self.repair_snapshot_id is not None else []
        return [*map(str, self.findings), *repairs, last, *made]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = short_repr

    def to_arrow(self) -> pa.Table:
        """One row for each finding."""
        import pyarrow as pa

        texts = ("code", "severity", "table", "path", "what", "mend")
        numbers = ("table_id", "data_file_id", "column_id")
        columns = {name: pa.array([getattr(one, name) for one in self.findings], pa.string()) for name in texts}
        columns |= {name: pa.array([getattr(one, name) for one in self.findings], pa.int64()) for name in numbers}
        return pa.table({**columns, "is_repairable": pa.array([one.is_repairable for one in self.findings], pa.bool_())})
