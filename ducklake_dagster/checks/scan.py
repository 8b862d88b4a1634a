"""Check rows by reading them: rows of a run's partitions, of a sample of partitions, or of the whole table."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import dagster as dg

from ducklake_core.errors import UsageError
from ducklake_dagster.assets.settings import name_list
from ducklake_dagster.checks.base import LakeCheck, Subject, Verdict, judged
from ducklake_dagster.config.values import reject_no_text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from ducklake_core import Scan, Table
    from ducklake_dagster.statistics.partitions import Part


_MAX_EXAMPLES = 5
_MAX_IN_TEXT = 100


@dataclass(frozen=True, kw_only=True)
class _ScanCheck(LakeCheck):
    """A check that reads rows: up to ``max_rows`` in this process, any number with Spark.

    Attributes:
        sample: Number of partitions with rows to read in a run without partitions, chosen again for every snapshot; None for all rows.
        max_rows: Maximum number of rows to read in this process. With more rows, the check fails and its description contains advice.
    """

    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR
    sample: int | None = None
    max_rows: int = 5_000_000

    reads_rows: ClassVar[bool] = True

    def reject_nonsense(self) -> None:
        """Reject invalid numbers."""
        self.reject_negative(max_rows=self.max_rows)
        if self.sample is not None and self.sample < 1:
            raise UsageError(
                f"{type(self).__name__}: sample must be a number of partitions of at least 1, not {self.sample}", parameter="sample"
            )

    def _verdict(self, subject: Subject) -> Verdict:
        """Count wrong rows, and show some of them."""
        keys = self._keys(subject)
        part = subject.stored.whole() if keys is None else subject.stored.together(keys)
        rows = part.row_count() if keys is None or not part.is_mixed else part.count()
        facts: dict[str, Any] = {"ducklake/rows_checked": rows}
        if subject.keys is None and keys is not None:
            facts["ducklake/partitions_checked"] = dg.MetadataValue.json(list(keys))
        if subject.session is None and rows > self.max_rows:
            advice = "Run the check for partitions, set sample=, raise max_rows, or set spark_key= of build_lake_checks"
            fault = f"{rows:,} rows are more than max_rows={self.max_rows:,}, the limit of reading them in this process. {advice}"
            return Verdict(passed=False, description=fault, metadata=facts)
        with _explained(self):
            count, examples = self._wrong(subject, part)
        facts["ducklake/rows_wrong"] = count
        if examples:
            facts["ducklake/examples"] = dg.MetadataValue.json([_shown_row(row) for row in examples])
        return judged([f"{count} {self.fault()}"] if count else [], f"{rows:,} rows were checked", facts)

    def _keys(self, subject: Subject) -> Sequence[str] | None:
        if subject.keys is not None or self.sample is None:
            return subject.keys
        if subject.table.partitions_def is None:
            raise UsageError("sample= needs a partitioned asset. Remove it from the check of this asset", parameter="sample")
        present = sorted(subject.stored.keys_with_rows())
        # The snapshot is the seed, so that a failure can be repeated as long as the table does not change.
        return sorted(random.Random(subject.state.snapshot_id).sample(present, min(self.sample, len(present))))  # noqa: S311 - not a secret

    @abstractmethod
    def _wrong(self, subject: Subject, part: Part) -> tuple[int, list[dict[str, Any]]]:
        """Return the number of wrong rows, and a few of them."""

    @abstractmethod
    def fault(self) -> str:
        """Return what is wrong with such rows, as the rest of a sentence after their number."""


@dataclass(frozen=True, kw_only=True)
class UniqueKey(_ScanCheck):
    """No two rows have the same values in the key columns. Rows with NULL in one of them are ignored, as in SQL.

    Attributes:
        key: Column or columns.
    """

    name: str = "unique_key"
    key: str | Sequence[str]

    def reject_nonsense(self) -> None:
        """Reject a key without columns."""
        super().reject_nonsense()
        if not name_list("UniqueKey: key", self.key):
            raise UsageError("UniqueKey: key is empty. Set it to one or more columns", parameter="key")

    def text(self) -> str:
        """Return the sentence that is true when the check passes."""
        return f"No two rows have the same {', '.join(name_list('key', self.key))}."

    def fault(self) -> str:
        """Return what is wrong with such rows."""
        return f"values of {', '.join(name_list('key', self.key))} occur more than once"

    def _wrong(self, subject: Subject, part: Part) -> tuple[int, list[dict[str, Any]]]:
        """Group rows by key."""
        scan = _scan(part, name_list("key", self.key))
        if subject.session is not None:
            frame = scan.to_spark(subject.session())
            keys = _places(frame.columns)
            counted = _without_nulls(frame.toDF(*keys)).groupBy(*keys).count().filter("count > 1")
            return _of_spark(counted.select(*keys).toDF(*frame.columns), frame.columns)
        import pyarrow.compute as pc

        rows = _in_memory(scan).drop_null()
        keys = _places(rows.column_names)
        counted = rows.rename_columns(keys).group_by(keys).aggregate([([], "count_all")])
        twice = counted.filter(pc.greater(counted.column("count_all"), 1)).select(keys).rename_columns(rows.column_names)
        return twice.num_rows, twice.slice(0, _MAX_EXAMPLES).to_pylist()


@dataclass(frozen=True, kw_only=True)
class Reference(_ScanCheck):
    """Values of columns occur in columns of another table. Rows with NULL in one of them are ignored, as in SQL.

    Attributes:
        key: Column or columns of the asset's table.
        table: The other table, ``table`` or ``schema.table``. All of its rows are read, in these columns.
        other_key: Columns of the other table, in the order of ``key``. Default: the same names.
    """

    name: str = "reference"
    key: str | Sequence[str]
    table: str
    other_key: str | Sequence[str] | None = None

    def reject_nonsense(self) -> None:
        """Reject keys with different numbers of columns."""
        super().reject_nonsense()
        reject_no_text("Reference: table", self.table)
        mine, others = self._keys_of_both()
        if not mine or len(mine) != len(others):
            raise UsageError(
                f"Reference: key and other_key must name the same number of columns, not {mine} and {others}", parameter="other_key"
            )

    def text(self) -> str:
        """Return the sentence that is true when the check passes."""
        mine, others = self._keys_of_both()
        return f"Every {', '.join(mine)} is a {', '.join(others)} of {self.table}."

    def fault(self) -> str:
        """Return what is wrong with such rows."""
        return f"rows have a {', '.join(name_list('key', self.key))} that {self.table} lacks"

    def _wrong(self, subject: Subject, part: Part) -> tuple[int, list[dict[str, Any]]]:
        """Find rows without a partner."""
        mine, others = self._keys_of_both()
        opened = subject.other_table(self.table)
        _reject_mixed_strings(part.stored.opened, mine, opened, others)
        other, scan = opened.scan(list(others)), _scan(part, mine)
        if subject.session is not None:
            session = subject.session()
            frame = _without_nulls(scan.to_spark(session))
            names = _places(others)
            partner = _without_nulls(other.to_spark(session).toDF(*names)).distinct()
            matched = [frame[_ticked(name)] == partner[other_name] for name, other_name in zip(frame.columns, names, strict=True)]
            return _of_spark(frame.join(partner, matched, "left_anti"), frame.columns)
        # The other table is read as a whole, even in a run of one partition.
        if (total := other.count()) > self.max_rows:
            raise UsageError(
                f"{self.table} has {total:,} rows, more than max_rows={self.max_rows:,}. Raise max_rows, or set spark_key= of "
                "build_lake_checks"
            )
        rows, partner = _in_memory(scan).drop_null(), _in_memory(other).drop_null()
        partner = partner.rename_columns(rows.column_names).cast(rows.schema).group_by(rows.column_names).aggregate([])
        lonely = rows.join(partner, rows.column_names, join_type="left anti")
        return lonely.num_rows, lonely.slice(0, _MAX_EXAMPLES).to_pylist()

    def _keys_of_both(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        mine = tuple(name_list("Reference: key", self.key))
        return mine, mine if self.other_key is None else tuple(name_list("Reference: other_key", self.other_key))


@dataclass(frozen=True, kw_only=True)
class RowCondition(_ScanCheck):
    """A condition is true for every row, or for all but a few. A row for which it is NULL passes, as in a SQL CHECK.

    Files whose statistics prove the condition are not read.

    Attributes:
        holds: SQL in DuckDB's dialect, such as ``"delivered >= ordered"``.
        max_rows_wrong: Maximum number of rows for which it may be false, 0 by default.
    """

    name: str = "condition"
    holds: str
    max_rows_wrong: int = 0

    def reject_nonsense(self) -> None:
        """Reject a negative number, and an empty condition."""
        super().reject_nonsense()
        self.reject_negative(max_rows_wrong=self.max_rows_wrong)
        reject_no_text("RowCondition: holds", self.holds)

    def text(self) -> str:
        """Return the sentence that is true when the check passes."""
        return f"Every row satisfies: {self.holds}."

    def fault(self) -> str:
        """Return what is wrong with such rows."""
        return f"rows do not satisfy: {self.holds}"

    def _wrong(self, subject: Subject, part: Part) -> tuple[int, list[dict[str, Any]]]:
        """Count rows for which it is false."""
        scan = _scan(part, None, f"NOT ({self.holds})")
        if subject.session is not None:
            frame = scan.to_spark(subject.session())
            count, examples = _of_spark(frame, frame.columns)
        else:
            count = scan.count()
            examples = scan.head(_MAX_EXAMPLES).to_pylist() if count else []
        return (count, examples) if count > self.max_rows_wrong else (0, [])


def _shown_row(row: dict[str, Any]) -> dict[str, str]:
    return {name: str(value)[:_MAX_IN_TEXT] for name, value in row.items()}


def _scan(part: Part, columns: Sequence[str] | None, where: str | None = None) -> Scan:
    from ducklake_core import AllOf

    conditions = tuple(one for one in (part.condition(), where) if one is not None)
    return part.stored.opened.scan(None if columns is None else list(columns), AllOf(conditions=conditions) if conditions else None)


def _reject_mixed_strings(table: Table, columns: Sequence[str], other: Table, others: Sequence[str]) -> None:
    """Reject a comparison of strings with other values: engines cast them in different directions.

    Raises:
        UsageError: A varchar column is compared with a column of another type.
    """
    for mine, other_name in zip(columns, others, strict=True):
        found, partner = table.schema.find(mine), other.schema.find(other_name)
        types = [str(column.type) for column in (found, partner) if column is not None]
        if len(types) == 2 and types.count("varchar") == 1:
            raise UsageError(
                f"column {mine!r} of {table.name} is {types[0]}, but {other_name!r} of {other.name} is {types[1]}. Compare columns of "
                "the same type"
            )


def _in_memory(scan: Scan) -> pa.Table:
    found: pa.Table = scan.to_arrow()
    return found


def _places(columns: Sequence[str]) -> list[str]:
    """Return names for columns during the count, which do not clash with columns that the engine adds."""
    return [f"key_{place}" for place in range(len(columns))]


@contextmanager
def _explained(check: LakeCheck) -> Iterator[None]:
    """Name the check in errors of an engine about its columns, and keep them from ending the step of all checks."""
    import pyarrow as pa

    try:
        yield
    except pa.ArrowException as error:
        raise UsageError(f"check {check.name} does not support these columns: {error}") from error
    except Exception as error:
        # By name, because importing pyspark only to catch its error takes seconds.
        if not any(kind.__name__ == "AnalysisException" and kind.__module__.startswith("pyspark.") for kind in type(error).__mro__):
            raise
        raise UsageError(f"check {check.name} does not support these columns: {error}") from error


def _without_nulls(frame: DataFrame) -> DataFrame:
    """Return rows without NULL in a column; ``na.drop`` would also drop NaN."""
    return frame.filter(" AND ".join(f"{_ticked(name)} IS NOT NULL" for name in frame.columns))


def _of_spark(frame: Any, columns: Sequence[str]) -> tuple[int, list[dict[str, Any]]]:
    count = int(frame.count())
    return count, [row.asDict() for row in frame.select(*map(_ticked, columns)).limit(_MAX_EXAMPLES).collect()] if count else []


def _ticked(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
