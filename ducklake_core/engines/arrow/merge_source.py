"""The rows of a MERGE's source, kept so that they are the same however often they are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.engines.arrow.merge_keys import SOUGHT, SourceKeys
from ducklake_core.engines.arrow.read import read_plan
from ducklake_core.engines.arrow.row_request import ChangeRequest
from ducklake_core.engines.arrow.source_index import distinct_values
from ducklake_core.format.expressions.predicates import FALSE, ColumnReference, Comparison, InList, Literal, Predicate, conjunction
from ducklake_core.format.files.data_files import WrittenFile
from ducklake_core.format.types.data_types import FLOATS, Field
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.leaf_values import from_text, order_key, python_values
from ducklake_core.planning.plan import ScanPlan, empty_plan, written_plan
from ducklake_core.storage.filesystems import Storage

_LISTED = 100
"""Up to so many different keys are looked for one by one; more only as a range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSource:
    """A source: rows in memory, or files that a Spark session has written beside the table and that nothing names.

    Attributes:
        schema: Its columns.
        rows: The rows, when they are in memory.
        files: The files, when they are not, relative to ``directory``.
        session: The Spark session that reads them.
        storage: How to reach them.
    """

    schema: Schema
    rows: pa.Table | None = None
    files: tuple[WrittenFile, ...] = ()
    directory: str = ""
    session: Any = field(default=None, repr=False)
    storage: Storage = field(default_factory=Storage)

    def narrowing(self, request: ChangeRequest) -> Predicate | None:
        """A predicate that holds for every row of the target that a row of the source can match; None when all rows matter."""
        if any(clause.when == "not matched by source" for clause in request.clauses):
            return None
        if (self.rows is not None and not self.rows.num_rows) or (self.rows is None and not self.files):
            return FALSE
        if request.by_row_id:
            return request.where
        known = self._known_keys(request)
        parts = [self._bounds(request.target.columns[ours], theirs, known.get(theirs)) for ours, theirs in request.keys]
        found = conjunction(part for part in parts if part is not None)
        return found if any(part is not None for part in parts) else None

    def keys(self, request: ChangeRequest) -> SourceKeys | None:
        """By which readers leave out rows of the target that match nothing; None when all rows matter, or the source is large."""
        if any(clause.when == "not matched by source" for clause in request.clauses) or self._row_count > SOUGHT:
            return None
        parts = tuple((request.target.columns[ours], self.schema.columns[theirs]) for ours, theirs in request.keys)
        if self.rows is not None:
            held: list[Any] = [self.rows.column(theirs).combine_chunks() for _, theirs in request.keys]
            return SourceKeys(parts=parts, rows=tuple(held))
        names = tuple(dict.fromkeys(column.name for _, column in parts))
        return SourceKeys(parts=parts, plan=self.scan(names))

    @property
    def _row_count(self) -> int:
        return self.rows.num_rows if self.rows is not None else sum(file.record_count for file in self.files)

    def _known_keys(self, request: ChangeRequest) -> dict[int, Any]:
        """The key columns by their place, as far as they are few enough to be held."""
        places = dict.fromkeys(theirs for _, theirs in request.keys)
        if self.rows is not None:
            return {place: self.rows.column(place).combine_chunks() for place in places}
        if self._row_count > SOUGHT:
            return {}
        plan = self.scan(tuple(self.schema.columns[place].name for place in places))
        table = pa.Table.from_batches(read_plan(plan, self.storage), plan.shape.arrow_schema())
        return {place: table.column(number).combine_chunks() for number, place in enumerate(places)}

    def scan(self, names: Sequence[str]) -> ScanPlan:
        """A scan of some columns of a source in files."""
        return written_plan(empty_plan("source", 0, self.schema), names, self.directory, self.files)

    def _bounds(self, target: Field, place: int, known: Any) -> Predicate | None:
        column = self.schema.columns[place]
        if column.type in FLOATS or target.type in FLOATS:
            # NaN equals NaN here, and no bounds say so.
            return None
        reference = ColumnReference(column_id=target.id, path=(target.name,), type=target.type)
        if known is not None:
            distinct: Any = distinct_values(known)
            values = python_values(distinct, column.type) if len(distinct) <= _LISTED else _ends(distinct, column)
            if len(distinct) <= _LISTED:
                literals = tuple(Literal(value=value, type=column.type) for value in values)
                return InList(operand=reference, values=literals) if literals else FALSE
        else:
            values = self._ends_in_files(column)
        if len(values) != 2:
            return None
        low, high = (Literal(value=value, type=column.type) for value in values)
        return conjunction(
            (Comparison(left=reference, operator=">=", right=low), Comparison(left=reference, operator="<=", right=high)),
        )

    def _ends_in_files(self, column: Field) -> Sequence[object]:
        lows: list[object] = []
        highs: list[object] = []
        for file in self.files:
            statistics = next(one for one in file.statistics if one.column_id == column.id)
            if statistics.value_count == 0:
                continue
            if statistics.min_value is None or statistics.max_value is None:
                return []
            lows.append(from_text(statistics.min_value, column.type))
            highs.append(from_text(statistics.max_value, column.type))
        return [min(lows, key=order_key), max(highs, key=order_key)] if lows else []


def _ends(distinct: Any, column: Field) -> Sequence[object]:
    plain = distinct.storage if isinstance(distinct, pa.ExtensionArray) else distinct
    try:
        bounds: Any = pc.min_max(plain)
    except pa.ArrowNotImplementedError:
        return []
    return python_values(pa.array([bounds["min"], bounds["max"]], plain.type), column.type)
