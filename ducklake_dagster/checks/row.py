"""Check rows, columns, partitions and freshness by the statistics of the catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from statistics import mean, pstdev
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import dagster as dg

from ducklake_core import folded
from ducklake_core.errors import DuckLakeError, NotFoundError, UsageError
from ducklake_dagster.checks.base import LakeCheck, Subject, Verdict, judged, labelled, rows_of_parts
from ducklake_dagster.config.values import age_of, is_count, is_number, shown_age
from ducklake_dagster.statistics.partitions import Part, stored_form

if TYPE_CHECKING:
    from ducklake_core import Condition, Field, Snapshot


BoundValue: TypeAlias = int | float | Decimal | str | date | datetime
"""A bound of a column."""

# Partitions that CompletePartitions counts in files when statistics do not show whether they have rows.
_MAX_MIXED = 50


@dataclass(frozen=True, kw_only=True)
class RowCount(LakeCheck):
    """The number of rows of each of the run's partitions, or of the whole table, is within bounds.

    Attributes:
        minimum: Minimum number of rows, None for none.
        maximum: Maximum number of rows, None for none.
        whole_table: Whether to check the whole table even in a run of partitions.
    """

    name: str = "row_count"
    minimum: int | None = None
    maximum: int | None = None
    whole_table: bool = False

    judges_changes: ClassVar[bool] = True

    def reject_nonsense(self) -> None:
        """Reject bounds below 0, a check without bounds, and bounds that no number satisfies."""
        self.reject_negative(minimum=self.minimum, maximum=self.maximum)
        if self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:
            raise UsageError(f"RowCount: minimum {self.minimum} is greater than maximum {self.maximum}", parameter="minimum")

    def text(self) -> str:
        """Return the sentence that is true when the check passes."""
        what = "The table" if self.whole_table else "The table, or each of the run's partitions,"
        if self.minimum is None or self.maximum is None:
            return f"{what} has {f'at most {self.maximum}' if self.minimum is None else f'at least {self.minimum}'} rows."
        return f"{what} has {self.minimum} to {self.maximum} rows."

    def _verdict(self, subject: Subject) -> Verdict:
        """Compare with the bounds."""
        parts = [subject.stored.whole()] if self.whole_table else subject.parts()
        faults, total = [], 0
        for part in parts:
            rows = part.row_count()
            total += rows
            if self.minimum is not None and rows < self.minimum:
                faults.append(labelled(part, f"a row count of {rows} is less than {self.minimum}"))
            elif self.maximum is not None and rows > self.maximum:
                faults.append(labelled(part, f"a row count of {rows} is more than {self.maximum}"))
        return judged(faults, f"{rows_of_parts(total, parts)}", {_rows_key(parts): total})


@dataclass(frozen=True, kw_only=True)
class RowCountChange(LakeCheck):
    """Compare the number of rows in each of the run's partitions, or in the whole table, with the number before the last change.

    Attributes:
        max_drop: Maximum fraction of rows that may disappear in one commit, such as 0.3 for 30 %; None for no limit.
        max_growth: Maximum growth in one commit as a fraction of the rows before; None for no limit.
        min_rows: Minimum number of rows of the whole table, None for none.
    """

    name: str = "row_count_change"
    max_drop: float | None = None
    max_growth: float | None = None
    min_rows: int | None = None

    judges_changes: ClassVar[bool] = True

    def reject_nonsense(self) -> None:
        """Reject bounds below 0, and a check without bounds."""
        self.reject_negative(max_drop=self.max_drop, max_growth=self.max_growth, min_rows=self.min_rows)
        self.reject_above_all(max_drop=self.max_drop)

    def text(self) -> str:
        """Return the sentence that is true when the check passes."""
        return "The number of rows of the table, or of each of the run's partitions, is similar to the number before the last change."

    def _verdict(self, subject: Subject) -> Verdict:
        """Compare with the state before."""
        parts = subject.parts()
        least = subject.stored.whole().row_count() if self.min_rows is not None else 0
        faults = [f"a row count of {least} is less than {self.min_rows}"] if self.min_rows is not None and least < self.min_rows else []
        total, total_before, oldest = 0, 0, None
        for part in parts:
            rows, found = part.row_count(), part.rows_before()
            snapshot_id, before = found or (None, 0)
            total, total_before = total + rows, total_before + before
            oldest = snapshot_id if oldest is None or (snapshot_id is not None and snapshot_id < oldest) else oldest
            if (fault := self._fault(rows, before)) is not None:
                faults.append(labelled(part, fault))
        metadata = {_rows_key(parts): total, "ducklake/rows_before": total_before}
        if oldest is not None:
            metadata["ducklake/compared_with_snapshot"] = oldest
        return judged(faults, f"{rows_of_parts(total, parts)}, {f'{total_before:,}' if total_before else 'none known'} before", metadata)

    def _fault(self, rows: int, before: int) -> str | None:
        change = (rows - before) / before if before else 0.0
        if self.max_drop is not None and -change > self.max_drop:
            return f"{-change:.1%} of the rows disappeared, more than {self.max_drop:.1%}"
        if self.max_growth is not None and change > self.max_growth:
            return f"the rows grew by {change:.1%}, more than {self.max_growth:.1%}"
        return None


@dataclass(frozen=True, kw_only=True)
class RowCountAnomaly(LakeCheck):
    """Compare the number of rows in each of the run's partitions, or in the whole table, with the numbers after earlier commits to it.

    The expected numbers are the mean of those numbers, plus and minus some standard deviations. A partition that was changed by fewer
    than ``min_commits`` earlier commits passes. The number of rows of a whole table that grows is not comparable; use partitions for it.

    Attributes:
        commits: Maximum number of earlier commits to compare with.
        min_commits: Minimum number of earlier commits.
        max_deviations: Number of standard deviations that are expected.
        tolerance: Fraction of the mean that is expected in any case, such as 0.05 for 5 %.
    """

    name: str = "row_count_anomaly"
    commits: int = 10
    min_commits: int = 3
    max_deviations: float = 3.0
    tolerance: float = 0.05

    judges_changes: ClassVar[bool] = True

    def reject_nonsense(self) -> None:
        """Reject numbers of commits below 1, and negative numbers."""
        self.reject_negative(max_deviations=self.max_deviations, tolerance=self.tolerance)
        if not (is_count(self.min_commits) and is_count(self.commits) and self.min_commits <= self.commits):
            raise UsageError(
                f"RowCountAnomaly: commits ({self.commits!r}) and min_commits ({self.min_commits!r}) must be whole numbers of at least 1, "
                "and min_commits must not be greater than commits",
                parameter="commits",
            )

    def text(self) -> str:
        """Return the sentence that is true when the check passes."""
        return "The number of rows of the table, or of each of the run's partitions, is usual for its earlier commits."

    def _verdict(self, subject: Subject) -> Verdict:
        """Compare with the numbers after earlier commits."""
        parts = subject.parts()
        faults, total, compared = [], 0, 0
        expected: tuple[float, float] | None = None
        for part in parts:
            rows = part.row_count()
            total += rows
            expected = self._expected(part.earlier_counts(self.commits))
            if expected is None:
                continue
            compared += 1
            low, high = expected
            if not low <= rows <= high:
                faults.append(labelled(part, f"{rows:,} rows; {low:,.0f} to {high:,.0f} were expected from earlier commits"))
        metadata: dict[str, Any] = {_rows_key(parts): total}
        if expected is not None and len(parts) == 1:
            metadata |= {"ducklake/expected_minimum": expected[0], "ducklake/expected_maximum": expected[1]}
        usual = (
            f"as expected from up to {self.commits} earlier commits" if compared else f"not compared: fewer than {self.min_commits} commits"
        )
        return judged(faults, f"{rows_of_parts(total, parts)}, {usual}", metadata)

    def _expected(self, counts: Sequence[int]) -> tuple[float, float] | None:
        if len(counts) < self.min_commits:
            return None
        usual = mean(counts)
        distance = max(self.max_deviations * pstdev(counts), self.tolerance * usual)
        return max(usual - distance, 0.0), usual + distance


@dataclass(frozen=True, kw_only=True)
class NullFraction(LakeCheck):
    """The fraction of NULLs of columns is within bounds, in each of the run's partitions or in the whole table.

    Deleted rows count as long as their file exists, as in the catalog's own statistics. A column without statistics fails the check,
    because nothing is known about it.

    Attributes:
        limits: Maximum fraction of NULLs by column name; 0.0 allows none.
    """

    name: str = "null_fraction"
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR
    limits: Mapping[str, float]

    judges_changes: ClassVar[bool] = True

    def reject_nonsense(self) -> None:
        """Reject values that are not fractions, and a check without columns."""
        limits = _mapping(self.limits)
        if not limits or not all(is_number(limit) and 0 <= limit <= 1 for limit in limits.values()):
            raise UsageError(f"NullFraction: limits must map column names to fractions from 0 to 1, not {self.limits!r}")

    def text(self) -> str:
        """Return the sentence that is true when the check passes."""
        return f"Fractions of NULLs of {', '.join(self.limits)} are within bounds, by the statistics of the table's files."

    def columns(self) -> Iterable[str]:
        """Return the columns."""
        return self.limits

    def _verdict(self, subject: Subject) -> Verdict:
        """Add up NULLs."""
        faults: list[str] = []
        metadata: dict[str, Any] = {}
        parts = subject.parts()
        for column, limit in self.limits.items():
            worst = 0.0
            for part in parts:
                fraction = _null_fraction(part, column)
                if isinstance(fraction, str):
                    faults.append(labelled(part, fraction))
                    continue
                worst = max(worst, fraction)
                if fraction > limit:
                    faults.append(labelled(part, f"{fraction:.2%} of {column!r} is NULL, more than {limit:.2%}"))
            metadata[f"null_fraction/{column}"] = worst
        return judged(list(dict.fromkeys(faults)), f"NULLs of {', '.join(self.limits)} are within bounds", metadata)


@dataclass(frozen=True, kw_only=True)
class ColumnBounds(LakeCheck):
    """Values of columns lie between bounds, in the run's partitions or in the whole table. NULLs are ignored.

    The check reads the statistics of files, and counts rows only in files whose statistics do not decide it.

    Attributes:
        bounds: Minimum and maximum by column name, both inclusive; None for no bound on that side.
    """

    name: str = "bounds"
    bounds: Mapping[str, tuple[BoundValue | None, BoundValue | None]]

    judges_changes: ClassVar[bool] = True

    def reject_nonsense(self) -> None:
        """Reject values that are not pairs of bounds."""
        bounds = _mapping(self.bounds)
        if not bounds or any(not _is_pair(pair) for pair in bounds.values()):
            raise UsageError(f"ColumnBounds: bounds must map column names to (minimum, maximum), not {self.bounds!r}")

    def text(self) -> str:
        """Return the sentence that is true when the check passes."""
        spans = (f"{column} in {_shown(low)} to {_shown(high)}" for column, (low, high) in self.bounds.items())
        return f"Values lie between bounds: {'; '.join(spans)}."

    def columns(self) -> Iterable[str]:
        """Return the columns."""
        return self.bounds

    def _verdict(self, subject: Subject) -> Verdict:
        """Compare the bounds of files, then count rows where these do not prove it."""
        faults: list[str] = []
        metadata: dict[str, Any] = {}
        for column, (low, high) in self.bounds.items():
            outside = sum(_outside(part, column, low, high) for part in subject.parts())
            metadata[f"outside/{column}"] = outside
            if outside:
                faults.append(f"{outside} values of {column!r} are outside of {_shown(low)} to {_shown(high)}")
        return judged(faults, f"values of {', '.join(self.bounds)} are within bounds", metadata)


def _mapping(value: object) -> Mapping[Any, Any]:
    """Return the value, or an empty mapping when it is not a mapping."""
    return value if isinstance(value, Mapping) else {}


def _is_pair(value: object) -> bool:
    """Return whether a value is a pair of minimum and maximum. One of them may be None; neither is NaN."""
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        return False
    least, greatest = value
    if type(least) is type(greatest) and least is not None and least > greatest:
        return False
    return any(bound is not None for bound in value) and all(bound == bound for bound in value)  # noqa: PLR0124 - NaN differs from itself


def _shown(bound: BoundValue | None) -> str:
    return "..." if bound is None else str(bound)


def _rows_key(parts: list[Part]) -> str:
    return "dagster/row_count" if all(part.keys is None for part in parts) else "dagster/partition_row_count"


def _column(part: Part, name: str) -> tuple[int, Field]:
    """Return the position of a column in the statistics, and the column.

    Raises:
        UsageError: The column does not exist, or has no statistics of its own.
    """
    statistics = part.stored.statistics
    found = statistics.schema.find(name)
    if found is None:
        raise UsageError(f"column {name!r} does not exist", column=name)
    if not found.is_leaf:
        raise UsageError(f"column {name!r} has no statistics of its own", column=name)
    return statistics.column_names.index(found.name), found


def _null_fraction(part: Part, name: str) -> float | str:
    """Return the fraction of NULLs, or the reason why it is unknown."""
    from ducklake_core import col

    try:
        place, column = _column(part, name)
    except UsageError as error:
        return error.message
    if part.is_mixed:
        # Statistics of a file count the NULLs of all partitions in it, so the rows are read.
        rows = part.count()
        return part.count(col(column.name).is_null()) / rows if rows else 0.0
    visible = part.visible()
    rows, counts = sum(one.row_count for one in visible), [one.null_counts[place] for one in visible]
    if None in counts:
        return f"the files have no statistics of {name!r}"
    return sum(count for count in counts if count is not None) / rows if rows else 0.0


def _outside(part: Part, name: str, low: BoundValue | None, high: BoundValue | None) -> int:
    """Return the number of values of a column outside of bounds."""
    from ducklake_core import AnyOf, col

    place, column = _column(part, name)
    least, greatest = (None if bound is None else stored_form(bound, str(column.type)) for bound in (low, high))
    try:
        if not part.is_mixed and all(_proves(one.ranges[place], least, greatest) for one in part.visible()):
            return 0
    except TypeError:
        raise UsageError(f"column {column.name!r} is {column.type} and cannot be compared with {low!r} to {high!r}", column=name) from None
    # Two comparisons rather than NOT BETWEEN: bounds may be missing on one side, and NULL must count on neither.
    sides: list[Condition] = [col(column.name) < low] if low is not None else []
    sides += [col(column.name) > high] if high is not None else []
    return part.count(AnyOf(conditions=tuple(sides)))


def _proves(found: Any, least: Any, greatest: Any) -> bool:
    """Return whether all values of a range are between the bounds."""
    if not found.has_values:
        return True
    above = least is None or (found.low is not None and found.low >= least)
    return above and (greatest is None or (found.high is not None and found.high <= greatest))


@dataclass(frozen=True, kw_only=True)
class Freshness(LakeCheck):
    """Rows of the run's partitions, or of the table, were changed recently.

    Attributes:
        max_age: Maximum time since the last change, as a timedelta or a string such as ``"26 hours"``.
    """

    name: str = "freshness"
    max_age: timedelta | str

    def reject_nonsense(self) -> None:
        """Reject a string that is not a duration."""
        self.reject_negative(max_age=age_of(self.max_age).total_seconds())

    def text(self) -> str:
        """Return the sentence that is true when the check passes."""
        return f"Rows of the table were changed in the last {shown_age(age_of(self.max_age))}."

    def _verdict(self, subject: Subject) -> Verdict:
        """Compare the last commit that changed rows with the catalog's clock."""
        state, most = subject.state, age_of(self.max_age)
        changes = [change for part in subject.parts() if (change := part.last_change()) is not None]
        if not changes:
            oldest = state.health.oldest_snapshot
            known = f"no snapshot since {oldest.isoformat(timespec='seconds')} changed rows"
            # Commits before the oldest snapshot were expired, so the last change is at least as old as that snapshot.
            passed = state.now - oldest <= most
            return Verdict(passed=passed, description=f"{known}; earlier snapshots were expired or did not exist")
        # The partition that was changed longest ago decides.
        last = min(changes, key=lambda change: change.id)
        age = state.now - last.time
        facts = {
            "ducklake/last_row_change": dg.MetadataValue.timestamp(last.time),
            "ducklake/age_hours": round(age / timedelta(hours=1), 3),
        }
        return Verdict(passed=age <= most, description=f"rows were last changed {shown_age(age)} ago", metadata=facts)


@dataclass(frozen=True, kw_only=True)
class CompletePartitions(LakeCheck):
    """All partitions of the definition have rows; the run's partitions do not matter. An unpartitioned asset passes.

    Attributes:
        max_missing: Maximum number of partitions without rows, 0 by default.
        allowed: Partitions that may have no rows, such as holidays.
    """

    name: str = "partitions"
    max_missing: int = 0
    allowed: tuple[str, ...] = ()

    def reject_nonsense(self) -> None:
        """Reject a negative number."""
        self.reject_negative(max_missing=self.max_missing)

    def text(self) -> str:
        """Return the sentence that is true when the check passes."""
        return "Every partition has rows." if not self.max_missing else f"At most {self.max_missing} partitions have no rows."

    def _verdict(self, subject: Subject) -> Verdict:
        """Find partitions that no file and no inlined row belongs to."""
        if subject.table.partitions_def is None:
            return Verdict(passed=True, description="the asset has no partitions")
        stored, allowed = subject.stored, set(self.allowed)
        present = set(stored.keys_with_rows())
        absent = [key for key in stored.all_keys() if key not in present and key not in allowed]
        parts = [stored.part(key) for key in absent]
        unsure = [part for part in parts if part.is_mixed]
        missing = [part.label for part in parts if not part.is_mixed]
        if len(unsure) <= _MAX_MIXED:
            missing += [part.label for part in unsure if part.row_count() == 0]
            unsure = []
        facts: dict[str, Any] = {"ducklake/missing_partitions": len(missing)}
        if unsure:
            facts["ducklake/partitions_not_told_apart"] = len(unsure)
        if len(missing) > self.max_missing:
            return judged([f"partition {key} has no rows" for key in sorted(missing)], "", facts)
        remark = f"; files of several partitions may have rows of {len(unsure)} more" if unsure else ""
        return Verdict(passed=True, description=f"{len(missing)} partitions have no rows{remark}", metadata=facts)


@dataclass(frozen=True, kw_only=True)
class ColumnContract(LakeCheck):
    """The table has the declared columns, with their types.

    Attributes:
        types: DuckLake types by column name, such as ``{"id": "int64"}``. Default: the types of ``dagster/column_schema`` in the
            asset's metadata.
        exactly: Whether other columns are rejected, False by default.
    """

    name: str = "columns"
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR
    types: Mapping[str, str] | None = None
    exactly: bool = False

    def text(self) -> str:
        """Return the sentence that is true when the check passes."""
        return f"The table has the declared columns{' and no others' if self.exactly else ''}."

    def _verdict(self, subject: Subject) -> Verdict:
        """Compare the table's columns with the declared ones."""
        from ducklake_core import data_type_of

        declared = self.types
        if declared is None:
            schema = subject.table.declared
            if schema is None:
                raise UsageError(
                    "the asset's metadata declares no columns: set dagster/column_schema in the metadata, or types= of ColumnContract"
                )
            declared = {column.name: column.type for column in schema.columns}
        found, faults = subject.stored.statistics.schema, []
        for name, wanted in declared.items():
            column = found.find(name)
            if column is None:
                faults.append(f"column {name!r} does not exist")
            elif (expected := str(data_type_of(wanted))) != str(column.type):
                faults.append(f"column {column.name!r} is {column.type}, not {expected}")
        if self.exactly:
            known = {folded(name) for name in declared}
            faults += [f"column {name!r} is not declared" for name in found.names if folded(name) not in known]
        return judged(faults, f"the table has the {len(declared)} declared columns", {"ducklake/columns": len(found.names)})


@dataclass(frozen=True, kw_only=True)
class ColumnSchemaChange(LakeCheck):
    """The table has the columns and types that it had before the last commit that changed rows, whichever client changed them.

    Dagster's ``build_column_schema_change_checks`` compares the events of two materializations instead. The check passes again after the
    next commit to the rows. A table of one commit passes.
    """

    name: str = "column_schema_change"

    def text(self) -> str:
        """Return the sentence that is true when the check passes."""
        return "The table has the columns and types that it had before the last change of its rows."

    def _verdict(self, subject: Subject) -> Verdict:
        """Compare with the columns of the snapshot before the last commit."""
        stored, state = subject.stored, subject.state
        columns = stored.statistics.schema.columns
        facts: dict[str, Any] = {"ducklake/columns": len(columns)}
        last = stored.whole().last_change()
        earlier = state.history.before(last.id) if last is not None else None
        if earlier is None:
            return Verdict(passed=True, description="there is no earlier snapshot to compare with", metadata=facts)
        facts["ducklake/compared_with_snapshot"] = earlier
        # Most tables did not change, so that their former columns need not be read.
        if not any(_may_alter(snapshot, subject) for snapshot in state.history.since(earlier)):
            return Verdict(passed=True, description=f"the same {_columns(len(columns))} as at snapshot {earlier}", metadata=facts)
        try:
            before = stored.table_at(earlier).schema.columns
        except NotFoundError:
            return Verdict(passed=True, description=f"the table did not exist at snapshot {earlier}", metadata=facts)
        old, new = ({folded(column.name): column for column in found} for found in (before, columns))
        faults = [f"column {column.name!r} ({column.type}) was added" for name, column in new.items() if name not in old]
        faults += [f"column {column.name!r} ({column.type}) was removed" for name, column in old.items() if name not in new]
        faults += [
            f"column {column.name!r} was {old[name].type} and is {column.type}"
            for name, column in new.items()
            if name in old and str(old[name].type) != str(column.type)
        ]
        return judged(faults, f"the same {_columns(len(columns))} as at snapshot {earlier}", facts)


def _columns(count: int) -> str:
    return f"{count} column{'' if count == 1 else 's'}"


def _may_alter(snapshot: Snapshot, subject: Subject) -> bool:
    """Return whether a commit may have changed the columns of the table."""
    try:
        changes = snapshot.change_set
    except DuckLakeError:
        # Another writer stored changes that this library cannot parse.
        return True
    name = folded(subject.table.address.table)
    return subject.stored.statistics.table_id in changes.altered_table or any(folded(made.name) == name for made in changes.created_table)
