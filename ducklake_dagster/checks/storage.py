"""Check the storage of a lake: files, deletes, inlined rows, snapshots, and the catalog itself."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

import dagster as dg

from ducklake_core import folded
from ducklake_dagster.checks.base import LakeCheck, Subject, Verdict, absent_table, judged
from ducklake_dagster.config.values import age_of, shown_age
from ducklake_dagster.statistics.lake_state import LakeState

if TYPE_CHECKING:
    from ducklake_core import TableHealth


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gauges:
    table: TableHealth
    state: LakeState


@dataclass(frozen=True, kw_only=True)
class _StorageCheck(LakeCheck):
    """A check of the whole table, or of the lake; the run's partitions do not matter."""

    def _verdict(self, subject: Subject) -> Verdict:
        """Judge the gauges of the table."""
        health = subject.state.table(subject.table.address.sql)
        if health is None:
            return Verdict(passed=False, description=absent_table(subject.table))
        return self._judge(_Gauges(table=health, state=subject.state))

    @abstractmethod
    def _judge(self, gauges: _Gauges) -> Verdict:
        """Judge one table."""


@dataclass(frozen=True, kw_only=True)
class FileSize(_StorageCheck):
    """Data files are large enough on average. A table with one file passes.

    Attributes:
        min_average_bytes: Minimum average size of data files, in bytes.
    """

    name: str = "file_size"
    min_average_bytes: int

    def reject_nonsense(self) -> None:
        """Reject a negative size."""
        self.reject_negative(min_average_bytes=self.min_average_bytes)

    def text(self) -> str:
        """Return the sentence that is true when the check passes."""
        return f"Data files have {self.min_average_bytes:,} bytes or more on average."

    def _judge(self, gauges: _Gauges) -> Verdict:
        """Compare the average."""
        table = gauges.table
        average = int(table.average_file_bytes)
        facts = {"ducklake/table_files": table.file_count, "ducklake/avg_file_bytes": average}
        passed = table.file_count < 2 or average >= self.min_average_bytes
        return Verdict(passed=passed, description=f"{table.file_count} files of {average} bytes on average", metadata=facts)


@dataclass(frozen=True, kw_only=True)
class SmallFiles(LakeCheck):
    """Only a fraction of the files of the run's partitions, or of the table, are small.

    Attributes:
        max_ratio: Maximum fraction of files that may be small; half of them by default.
        below_bytes: Size in bytes below which a file is small, 16 MiB by default.
        min_files: Minimum number of small files for the check to fail, 8 by default.
    """

    name: str = "small_files"
    max_ratio: float = 0.5
    below_bytes: int = 16 << 20
    min_files: int = 8

    def reject_nonsense(self) -> None:
        """Reject negative numbers."""
        self.reject_negative(max_ratio=self.max_ratio, below_bytes=self.below_bytes, min_files=self.min_files)
        self.reject_above_all(max_ratio=self.max_ratio)

    def text(self) -> str:
        """Return the sentence that is true when the check passes."""
        return f"At most {self.max_ratio:.0%} of the files, or fewer than {self.min_files}, are smaller than {self.below_bytes:,} bytes."

    def _verdict(self, subject: Subject) -> Verdict:
        """Count files of the newest snapshot."""
        parts = subject.parts()
        # Count each file once: a file with rows of several partitions belongs to several parts.
        rows = {one.data_file_id: one for part in parts for one in (*part.rows, *part.mixed) if one.is_visible_at(subject.stored.now)}
        sizes = [one.file_size_bytes for number, one in rows.items() if number is not None]
        small = sum(size < self.below_bytes for size in sizes)
        ratio = small / len(sizes) if sizes else 0.0
        facts = {"ducklake/table_files": len(sizes), "ducklake/small_files": small, "ducklake/small_file_ratio": round(ratio, 6)}
        passed = small < self.min_files or ratio <= self.max_ratio
        return Verdict(passed=passed, description=f"{small} of {len(sizes)} files are small", metadata=facts)


@dataclass(frozen=True, kw_only=True)
class DeleteRatio(_StorageCheck):
    """Only a fraction of the rows in files are deleted.

    Attributes:
        maximum: Maximum fraction of the rows in files that are deleted.
    """

    name: str = "delete_ratio"
    maximum: float

    def reject_nonsense(self) -> None:
        """Reject a value that is not a fraction."""
        self.reject_negative(maximum=self.maximum)
        self.reject_above_all(maximum=self.maximum)

    def text(self) -> str:
        """Return the sentence that is true when the check passes."""
        return f"At most {self.maximum:.1%} of the rows in files are deleted."

    def _judge(self, gauges: _Gauges) -> Verdict:
        """Compare the ratio."""
        ratio = gauges.table.delete_ratio
        facts = {"ducklake/delete_ratio": round(ratio, 6), "ducklake/delete_files": gauges.table.delete_file_count}
        return Verdict(passed=ratio <= self.maximum, description=f"{ratio:.1%} of the rows in files are deleted", metadata=facts)


@dataclass(frozen=True, kw_only=True)
class InlinedRows(_StorageCheck):
    """The table has few rows that are inlined in the catalog.

    Attributes:
        maximum: Maximum number of inlined rows.
    """

    name: str = "inlined_rows"
    maximum: int

    def reject_nonsense(self) -> None:
        """Reject a negative number."""
        self.reject_negative(maximum=self.maximum)

    def text(self) -> str:
        """Return the sentence that is true when the check passes."""
        return f"At most {self.maximum} rows of the table are in the catalog."

    def _judge(self, gauges: _Gauges) -> Verdict:
        """Compare the number."""
        rows = gauges.table.inlined_row_count
        return Verdict(passed=rows <= self.maximum, description=f"{rows} rows are in the catalog", metadata={"ducklake/inlined_rows": rows})


@dataclass(frozen=True, kw_only=True)
class SnapshotBacklog(_StorageCheck):
    """The lake does not keep too many or too old snapshots.

    Attributes:
        maximum: Maximum number of snapshots; None for no limit.
        max_age: Maximum age of the oldest snapshot, as a timedelta or a string such as ``"30 days"``; None for no limit.
    """

    name: str = "snapshots"
    maximum: int | None = None
    max_age: timedelta | str | None = None

    def reject_nonsense(self) -> None:
        """Reject negative numbers, and a check without limits."""
        self.reject_negative(maximum=self.maximum, max_age=_seconds(self.max_age))

    def text(self) -> str:
        """Return the sentence that is true when the check passes."""
        return f"The lake keeps {_limits(self.maximum, self.max_age, 'snapshots')}."

    def _judge(self, gauges: _Gauges) -> Verdict:
        """Compare number and age."""
        health = gauges.state.health
        return _backlog("snapshots are kept", health.snapshot_count, health.at - health.oldest_snapshot, self.maximum, self.max_age)


@dataclass(frozen=True, kw_only=True)
class ScheduledFiles(_StorageCheck):
    """Not too many files wait for deletion, and not for too long.

    Attributes:
        maximum: Maximum number of files; None for no limit.
        max_age: Maximum time that a file waits, as a timedelta or a string such as ``"7 days"``; None for no limit.
    """

    name: str = "scheduled_files"
    maximum: int | None = None
    max_age: timedelta | str | None = None

    def reject_nonsense(self) -> None:
        """Reject negative numbers, and a check without limits."""
        self.reject_negative(maximum=self.maximum, max_age=_seconds(self.max_age))

    def text(self) -> str:
        """Return the sentence that is true when the check passes."""
        return f"The lake has {_limits(self.maximum, self.max_age, 'files scheduled for deletion')}."

    def _judge(self, gauges: _Gauges) -> Verdict:
        """Compare number and age."""
        health = gauges.state.health
        age = health.at - health.oldest_scheduled if health.oldest_scheduled is not None else timedelta(0)
        return _backlog("files are scheduled for deletion", health.scheduled_file_count, age, self.maximum, self.max_age)


@dataclass(frozen=True, kw_only=True)
class SoundCatalog(_StorageCheck):
    """``lake.check()`` finds neither an error nor a warning about the table, or about the lake as a whole."""

    name: str = "catalog"
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR
    checks_catalog: ClassVar[bool] = True

    def text(self) -> str:
        """Return the sentence that is true when the check passes."""
        return "lake.check() finds no damage of the catalog."

    def _judge(self, gauges: _Gauges) -> Verdict:
        """Report the findings about the table, and those about no table in particular."""
        table, findings = gauges.table, gauges.state.findings or ()
        # Findings spell a table without quotes.
        names = (folded(table.table), folded(f"{table.schema}.{table.name}"))
        wrong = [one for one in findings if one.severity != "notice"]
        mine = [str(one) for one in wrong if one.table is None or folded(one.table) in names]
        return judged(mine, "nothing was found", {"ducklake/findings": len(mine)})


def _seconds(age: timedelta | str | None) -> float | None:
    return None if age is None else age_of(age).total_seconds()


def _limits(most: int | None, age: timedelta | str | None, what: str) -> str:
    parts = [f"at most {most} {what}"] if most is not None else []
    parts += [f"no {what} of more than {shown_age(age_of(age))}"] if age is not None else []
    return " and ".join(parts)


def _backlog(what: str, count: int, age: timedelta, most: int | None, max_age: timedelta | str | None) -> Verdict:
    faults = [f"{count} {what}, more than {most}"] if most is not None and count > most else []
    if max_age is not None and age > age_of(max_age):
        faults.append(f"the oldest is {shown_age(age)} old")
    name = "lake_snapshots" if "snapshots" in what else "scheduled_files"
    return judged(faults, f"{count} {what}", {f"ducklake/{name}": count, "ducklake/oldest_hours": round(age / timedelta(hours=1), 3)})
