"""Checks that read rows: those of the run's partitions, or of a few partitions by turns, or of the whole table."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import dagster as dg

from ducklake_core.errors import UsageError
from ducklake_dagster.check_base import LakeCheck, Subject, Verdict, judged
from ducklake_dagster.naming import name_list

if TYPE_CHECKING:
    import pyarrow as pa

    from ducklake_core import Scan
    from ducklake_dagster.stored_partitions import Part

_MOST_EXAMPLES = 5
_MOST_IN_TEXT = 100


@dataclass(frozen=True, kw_only=True)
class _ScanCheck(LakeCheck):
    """Reads rows: in this process up to ``max_rows``, with Spark any number.

    Attributes:
        sample: Outside of runs of partitions look at so many partitions that have rows, others for every snapshot; all rows for None.
        max_rows: Most rows that are read in this process. With more of them the check does not pass, and says what to do.
    """

    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR
    sample: int | None = None
    max_rows: int = 5_000_000

    reads_rows: ClassVar[bool] = True

    def refuse_nonsense(self) -> None:
        """Refuse numbers that make no sense."""
        self.refuse_negative(max_rows=self.max_rows)
        if self.sample is not None and self.sample < 1:
            raise UsageError(f"{type(self).__name__}: sample is a number of partitions, 1 at least, not {self.sample}", parameter="sample")

    def _verdict(self, subject: Subject) -> Verdict:
        """Count rows that should not be, and show some."""
        keys = self._keys(subject)
        part = subject.stored.whole() if keys is None else subject.stored.together(keys)
        rows = part.row_count() if keys is None or not part.is_mixed else part.count()
        facts: dict[str, Any] = {"ducklake/rows_checked": rows}
        if subject.keys is None and keys is not None:
            facts["ducklake/partitions_checked"] = dg.MetadataValue.json(list(keys))
        if subject.session is None and rows > self.max_rows:
            advice = "run it for partitions, set sample=, or give build_lake_checks a spark_key"
            fault = f"{rows} rows are more than max_rows={self.max_rows}, which are read in this process: {advice}"
            return Verdict(passed=False, description=fault, metadata=facts)
        count, examples = self._wrong(subject, part)
        facts["ducklake/rows_wrong"] = count
        if examples:
            facts["ducklake/examples"] = dg.MetadataValue.json([_shown_row(row) for row in examples])
        return judged([f"{count} {self.fault()}"] if count else [], f"{rows} rows were looked at", facts)

    def _keys(self, subject: Subject) -> Sequence[str] | None:
        if subject.keys is not None or self.sample is None:
            return subject.keys
        if subject.table.partitions_def is None:
            raise UsageError("sample= is a number of partitions, and the asset has none", parameter="sample")
        present = sorted(subject.stored.keys_with_rows())
        # The same for one snapshot, so that a failure can be looked into.
        return sorted(random.Random(subject.state.snapshot_id).sample(present, min(self.sample, len(present))))  # noqa: S311 - no secret

    @abstractmethod
    def _wrong(self, subject: Subject, part: Part) -> tuple[int, list[dict[str, Any]]]:
        """How many rows are wrong, and a few of them."""

    @abstractmethod
    def fault(self) -> str:
        """What is wrong with such rows, after their number."""


@dataclass(frozen=True, kw_only=True)
class UniqueKey(_ScanCheck):
    """No two rows have the same values in the key columns. Rows with NULL in one of them are left out, as in SQL.

    Attributes:
        key: Column or columns.
    """

    name: str = "unique_key"
    key: str | Sequence[str]

    def refuse_nonsense(self) -> None:
        """Refuse a key without columns."""
        super().refuse_nonsense()
        if not name_list("UniqueKey: key", self.key):
            raise UsageError("UniqueKey: key names no column", parameter="key")

    def text(self) -> str:
        """What holds."""
        return f"No two rows have the same {', '.join(name_list('key', self.key))}."

    def fault(self) -> str:
        """What is wrong."""
        return f"values of {', '.join(name_list('key', self.key))} occur more than once"

    def _wrong(self, subject: Subject, part: Part) -> tuple[int, list[dict[str, Any]]]:
        """Group rows by key."""
        scan = _scan(part, name_list("key", self.key))
        if subject.session is not None:
            from pyspark.sql import functions as f

            frame = scan.to_spark(subject.session())
            twice = frame.na.drop().groupBy(*map(_ticked, frame.columns)).count().filter(f.col("count") > 1)
            return _of_spark(twice, frame.columns)
        import pyarrow.compute as pc

        rows = _in_memory(scan).drop_null()
        keys = rows.column_names
        counted = rows.append_column("_rows", _ones(rows.num_rows)).group_by(keys).aggregate([("_rows", "sum")])
        twice = counted.filter(pc.greater(counted.column("_rows_sum"), 1)).select(keys)
        return twice.num_rows, twice.slice(0, _MOST_EXAMPLES).to_pylist()


@dataclass(frozen=True, kw_only=True)
class Reference(_ScanCheck):
    """Values of columns occur in columns of another table. Rows with NULL in one of them are left out, as in SQL.

    Attributes:
        key: Column or columns of the asset's table.
        table: The other table, ``table`` or ``schema.table``, which is read as a whole, in these columns.
        other_key: Its columns, in the order of ``key``; of the same names for None.
    """

    name: str = "reference"
    key: str | Sequence[str]
    table: str
    other_key: str | Sequence[str] | None = None

    def refuse_nonsense(self) -> None:
        """Refuse keys that do not fit together."""
        super().refuse_nonsense()
        mine, others = self._keys_of_both()
        if not mine or len(mine) != len(others):
            raise UsageError(
                f"Reference: key and other_key must name the same number of columns, not {mine} and {others}", parameter="other_key"
            )

    def text(self) -> str:
        """What holds."""
        mine, others = self._keys_of_both()
        return f"Every {', '.join(mine)} is a {', '.join(others)} of {self.table}."

    def fault(self) -> str:
        """What is wrong."""
        return f"rows have a {', '.join(name_list('key', self.key))} that {self.table} lacks"

    def _wrong(self, subject: Subject, part: Part) -> tuple[int, list[dict[str, Any]]]:
        """Look for rows without a partner."""
        mine, others = self._keys_of_both()
        opened = subject.other_table(self.table)
        other, scan = opened.scan(list(others)), _scan(part, mine)
        if subject.session is not None:
            session = subject.session()
            frame = scan.to_spark(session).na.drop()
            names = [f"_key_{place}" for place in range(len(others))]
            partner = other.to_spark(session).toDF(*names).na.drop().distinct()
            matched = [frame[_ticked(name)] == partner[theirs] for name, theirs in zip(frame.columns, names, strict=True)]
            return _of_spark(frame.join(partner, matched, "left_anti"), frame.columns)
        if (total := other.count()) > self.max_rows:
            raise UsageError(f"{self.table} has {total} rows, more than max_rows={self.max_rows}: give build_lake_checks a spark_key")
        rows, partner = _in_memory(scan).drop_null(), _in_memory(other).drop_null()
        partner = partner.rename_columns(rows.column_names).cast(rows.schema).group_by(rows.column_names).aggregate([])
        lonely = rows.join(partner, rows.column_names, join_type="left anti")
        return lonely.num_rows, lonely.slice(0, _MOST_EXAMPLES).to_pylist()

    def _keys_of_both(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        mine = tuple(name_list("Reference: key", self.key))
        return mine, mine if self.other_key is None else tuple(name_list("Reference: other_key", self.other_key))


@dataclass(frozen=True, kw_only=True)
class RowCondition(_ScanCheck):
    """A condition holds for every row, or for all but a few; where it is NULL it counts as held, as in a SQL CHECK.

    Files whose statistics prove it are not read.

    Attributes:
        holds: SQL in DuckDB's dialect, such as ``"delivered >= ordered"``.
        max_rows_wrong: Most rows for which it may be false.
    """

    name: str = "condition"
    holds: str
    max_rows_wrong: int = 0

    def refuse_nonsense(self) -> None:
        """Refuse a negative number."""
        super().refuse_nonsense()
        self.refuse_negative(max_rows_wrong=self.max_rows_wrong)

    def text(self) -> str:
        """What holds."""
        return f"Every row satisfies: {self.holds}."

    def fault(self) -> str:
        """What is wrong."""
        return f"rows do not satisfy: {self.holds}"

    def _wrong(self, subject: Subject, part: Part) -> tuple[int, list[dict[str, Any]]]:
        """Count rows for which it is false."""
        scan = _scan(part, None, f"NOT ({self.holds})")
        if subject.session is not None:
            frame = scan.to_spark(subject.session())
            count, examples = _of_spark(frame, frame.columns)
        else:
            count = scan.count()
            examples = scan.head(_MOST_EXAMPLES).to_pylist() if count else []
        return (count, examples) if count > self.max_rows_wrong else (0, [])


def _shown_row(row: dict[str, Any]) -> dict[str, str]:
    return {name: str(value)[:_MOST_IN_TEXT] for name, value in row.items()}


def _scan(part: Part, columns: Sequence[str] | None, where: str | None = None) -> Scan:
    from ducklake_core import AllOf

    conditions = tuple(one for one in (part.condition(), where) if one is not None)
    return part.stored.opened.scan(None if columns is None else list(columns), AllOf(conditions=conditions) if conditions else None)


def _in_memory(scan: Scan) -> pa.Table:
    found: pa.Table = scan.to_arrow()
    return found


def _ones(count: int) -> pa.Array:
    import pyarrow as pa

    return pa.repeat(1, count)


def _of_spark(frame: Any, columns: Sequence[str]) -> tuple[int, list[dict[str, Any]]]:
    count = int(frame.count())
    return count, [row.asDict() for row in frame.select(*map(_ticked, columns)).limit(_MOST_EXAMPLES).collect()] if count else []


def _ticked(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
