"""Checks on when rows changed, which partitions have any, and which columns there are, from the catalog's statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import dagster as dg

from ducklake_core import folded
from ducklake_core.errors import UsageError
from ducklake_dagster.check_base import LakeCheck, Subject, Verdict, judged
from ducklake_dagster.setting_values import age_of, shown_age

_MOST_MIXED = 50


@dataclass(frozen=True, kw_only=True)
class Freshness(LakeCheck):
    """Somebody changed rows of the run's partitions, or of the table, not long ago.

    Attributes:
        max_age: Longest time since, a timedelta or a text such as ``"26 hours"``.
    """

    name: str = "freshness"
    max_age: timedelta | str

    def refuse_nonsense(self) -> None:
        """Refuse a text that is no time."""
        self.refuse_negative(max_age=age_of(self.max_age).total_seconds())

    def text(self) -> str:
        """What holds."""
        return f"Somebody changed rows of the table in the last {shown_age(age_of(self.max_age))}."

    def _verdict(self, subject: Subject) -> Verdict:
        """Compare the last commit that changed rows with the catalog's clock."""
        state, most = subject.state, age_of(self.max_age)
        changes = [change for part in subject.parts() if (change := part.last_change()) is not None]
        if not changes:
            oldest = state.snapshots[0].time
            known = f"no snapshot since {oldest.isoformat(timespec='seconds')} changed rows"
            # Snapshots of before were expired: the rows are at least as old as the oldest one.
            passed = state.now - oldest <= most
            return Verdict(passed=passed, description=f"{known}, and earlier ones were expired or there were none")
        last = min(changes, key=lambda change: change.id)
        age = state.now - last.time
        facts = {
            "ducklake/last_row_change": dg.MetadataValue.timestamp(last.time),
            "ducklake/age_hours": round(age / timedelta(hours=1), 3),
        }
        return Verdict(passed=age <= most, description=f"rows were last changed {shown_age(age)} ago", metadata=facts)


@dataclass(frozen=True, kw_only=True)
class CompletePartitions(LakeCheck):
    """Partitions of the definition have rows; always about the whole table. An unpartitioned asset passes.

    Attributes:
        max_missing: Most partitions without rows.
        allowed: Partitions that may be without rows, such as holidays.
    """

    name: str = "partitions"
    max_missing: int = 0
    allowed: tuple[str, ...] = ()

    def refuse_nonsense(self) -> None:
        """Refuse a negative number."""
        self.refuse_negative(max_missing=self.max_missing)

    def text(self) -> str:
        """What holds."""
        return "Every partition has rows." if not self.max_missing else f"At most {self.max_missing} partitions have no rows."

    def _verdict(self, subject: Subject) -> Verdict:
        """Look for partitions that no file and no inlined row belongs to."""
        if subject.table.partitions_def is None:
            return Verdict(passed=True, description="the asset has no partitions")
        stored, allowed = subject.stored, set(self.allowed)
        present = set(stored.keys_with_rows())
        absent = [key for key in stored.all_keys() if key not in present and key not in allowed]
        parts = [stored.part(key) for key in absent]
        unsure = [part for part in parts if part.is_mixed]
        missing = [part.label for part in parts if not part.is_mixed]
        if len(unsure) <= _MOST_MIXED:
            missing += [part.label for part in unsure if part.row_count() == 0]
            unsure = []
        facts: dict[str, Any] = {"ducklake/missing_partitions": len(missing)}
        if unsure:
            facts["ducklake/partitions_not_told_apart"] = len(unsure)
        if len(missing) > self.max_missing:
            return judged([f"partition {key} has no rows" for key in sorted(missing)], "", facts)
        told = f"; files of several partitions may have rows of {len(unsure)} more" if unsure else ""
        return Verdict(passed=True, description=f"{len(missing)} partitions have no rows{told}", metadata=facts)


@dataclass(frozen=True, kw_only=True)
class ColumnContract(LakeCheck):
    """The table has the columns that somebody relies on, with their types.

    Attributes:
        types: DuckLake types by column name, such as ``{"id": "int64"}``; for None those of ``dagster/column_schema`` in the
            asset's metadata.
        exactly: Whether other columns are refused.
    """

    name: str = "columns"
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR
    types: Mapping[str, str] | None = None
    exactly: bool = False

    def text(self) -> str:
        """What holds."""
        return f"The table has the declared columns{' and no others' if self.exactly else ''}."

    def _verdict(self, subject: Subject) -> Verdict:
        """Compare the table's columns with the declared ones."""
        from ducklake_core import data_type_of

        declared = self.types
        if declared is None:
            schema = subject.table.declared
            if schema is None:
                raise UsageError("the asset's metadata declares no columns: set dagster/column_schema, or types= of ColumnContract")
            declared = {column.name: column.type for column in schema.columns}
        found, faults = subject.stored.statistics.schema, []
        for name, wanted in declared.items():
            column = found.find(name)
            if column is None:
                faults.append(f"there is no column {name!r}")
            elif (expected := str(data_type_of(wanted))) != str(column.type):
                faults.append(f"column {column.name!r} is {column.type}, not {expected}")
        if self.exactly:
            known = {folded(name) for name in declared}
            faults += [f"column {name!r} is not declared" for name in found.names if folded(name) not in known]
        return judged(faults, f"the table has the {len(declared)} declared columns", {"ducklake/columns": len(found.names)})
