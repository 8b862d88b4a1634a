"""Expose tables to DuckDB as Arrow streams, and translate the filters that it pushes down.

DuckDB pushes a filter down as a pyarrow expression, whose structure pyarrow does not expose. Its printed form is therefore parsed:
parts that are understood prune files, and every batch is filtered with the original expression afterwards. A part that is not
understood costs time, but never a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.dataset as pds

from ducklake_core.engines.arrow.readable import with_integer_strings
from ducklake_core.engines.duckdb.functions import taken_in
from ducklake_core.errors import DuckLakeError
from ducklake_core.format.expressions.literals import text_literal
from ducklake_core.format.expressions.predicates import ColumnReference, Comparison, InList, Literal, Operator, Predicate
from ducklake_core.format.expressions.ranges import all_of
from ducklake_core.format.types.data_types import (
    BLOB,
    BOOLEAN,
    DATE,
    INT128,
    INTEGERS,
    TIMESTAMPS,
    TIMETZ,
    UINT128,
    VARCHAR,
    DecimalType,
    Field,
    holds_variants,
)
from ducklake_core.format.types.names import quoted_path
from ducklake_core.format.types.schema import Schema, duckdb_type, to_arrow_schema
from ducklake_core.format.values.temporal import in_zone

_ONE_IN = 5
"""DuckDB expects one in this many rows to satisfy a condition that it knows nothing about."""
ReadRows: TypeAlias = Callable[[Sequence[str], Predicate | None], pa.RecordBatchReader]
"""Reads columns of a table, in this order; it may skip rows for which the predicate is not true."""

_OPERATORS: dict[str, Operator] = {"==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_VALUE = r'"(?P<text>[^"\\]*)"|(?P<plain>[-+.:0-9A-Za-z]+(?: [-+.:0-9Z]+)?)'
_COMPARISON = re.compile(rf"\(c(?P<column>\d+) (?P<operator>==|!=|<=|>=|<|>) (?:{_VALUE})\)")
_IN = re.compile(
    r"is_in\(c(?P<column>\d+), \{value_set=[a-z0-9]+(?:\([^)]*\))?:\[(?P<values>[^\[\]{}]*)\], null_matching_behavior=MATCH\}\)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """A table that queries may name.

    Attributes:
        row_count: Approximate number of rows, for the order of joins; None if nothing is joined.
    """

    schema_name: str
    name: str
    columns: Schema
    read: ReadRows
    row_count: int | None = None


@dataclass(slots=True)
class Failures:
    """The first error of a scan: DuckDB reports errors only as text, and the caller needs the original exception."""

    first: BaseException | None = None

    def watched(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches; note an error on the way."""
        try:
            yield from batches
        except Exception as error:
            self.first = self.first or error
            raise


class TableDataset(pds.Dataset):  # type: ignore[misc]
    """A table in the form of an Arrow dataset, which DuckDB scans with columns and a filter.

    Columns have their indexes as names (c0, c1, ...), so that no name of a table needs quoting in the printed filters.
    """

    def __init__(self, source: TableSource, failures: Failures) -> None:
        self._source = source
        self._failures = failures
        self._fields = tuple(source.columns)
        self._schema = _shared_schema(source.columns)

    @property
    def schema(self) -> pa.Schema:
        """Return the columns under their indexes as names."""
        return self._schema

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any) -> TableScanner:  # noqa: A002 - Arrow's name
        """Return a scan of some columns."""
        names = list(self._schema.names if columns is None else columns)
        return TableScanner(dataset=self, columns=names, filter=filter)

    def read(self, columns: Sequence[str], filter: Any) -> pa.RecordBatchReader:  # noqa: A002
        """Return the rows that a scan gives."""
        try:
            predicate = None if filter is None else pruning_predicate(str(filter), self._fields)
            reader = with_integer_strings(self._source.read([self._fields[int(name[1:])].name for name in columns], predicate))
        except Exception as error:
            self._failures.first = self._failures.first or error
            raise
        schema = pa.schema([self._schema.field(name) for name in columns])
        batches = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in self._failures.watched(iter(reader)))
        return pa.RecordBatchReader.from_batches(schema, batches if filter is None else (batch.filter(filter) for batch in batches))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableScanner:
    """One scan that DuckDB requests."""

    dataset: TableDataset
    columns: Sequence[str]
    filter: Any = field(default=None)

    @property
    def projected_schema(self) -> pa.Schema:
        """Return the columns of the scan."""
        return pa.schema([self.dataset.schema.field(name) for name in self.columns])

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows."""
        return self.dataset.read(self.columns, self.filter)


def view_of(source: TableSource, key: str, planned_rows: int | None = None) -> str:
    """Return the query that gives a dataset the table's own names.

    Args:
        source: The table.
        key: The dataset's name.
        planned_rows: Row count for DuckDB's optimizer; None (the default) for no information.
    """
    columns = [f"{_output(column, place)} AS {quoted_path((column.name,))}" for place, column in enumerate(source.columns)]
    rows = key if planned_rows is None else f"({_counted(len(columns), key, planned_rows)})"
    return f"SELECT {', '.join(columns)} FROM {rows}"  # noqa: S608 - names are quoted


def _counted(column_count: int, key: str, planned_rows: int) -> str:
    """Return the dataset after an empty result of a function whose row count DuckDB knows.

    DuckDB has no way to state the row count of an Arrow scan, but it adds the counts of a UNION ALL. The empty part comes first, because
    DuckDB takes the number of distinct values from the first part. Its columns and its condition depend on ``n``, because DuckDB evaluates
    constant ones before it plans, and would drop the part. DuckDB expects a fifth of the rows of any condition.
    """
    names = [f"c{place}" for place in range(column_count)]
    nothing = ", ".join(f"CASE WHEN n < 0 THEN NULL END AS {name}" for name in names)
    numbers = f"system.main.range({_ONE_IN * max(planned_rows, 1)}) AS r(n)"
    return f"SELECT {nothing} FROM {numbers} WHERE n < 0 UNION ALL SELECT {', '.join(names)} FROM {key}"  # noqa: S608


def _output(column: Field, place: int) -> str:
    own = f"c{place}"
    if holds_variants(column.type):
        own = taken_in(own, column.type)
    if any(node.type in (INT128, UINT128, TIMETZ) for node in column.walk()):
        return f"CAST({own} AS {duckdb_type(column.type)})"
    if holds_variants(column.type):
        return own
    # Arrow orders NaN differently, and cannot filter extension types. The CASE keeps DuckDB from pushing down filters of such columns.
    return own if _is_comparable(column) else f"CASE WHEN {own} IS NULL THEN NULL ELSE {own} END"


def _is_comparable(column: Field) -> bool:
    return isinstance(column.type, DecimalType) or column.type in (*INTEGERS, *TIMESTAMPS, VARCHAR, BOOLEAN, DATE)


def _shared_schema(columns: Schema) -> pa.Schema:
    plain = to_arrow_schema(columns, physical=False)
    nothing = pa.RecordBatchReader.from_batches(plain, iter(()))
    shared = with_integer_strings(nothing).schema
    return pa.schema([one.with_name(f"c{place}").with_nullable(True) for place, one in enumerate(shared)])


def pruning_predicate(filter_text: str, columns: Sequence[Field]) -> Predicate | None:
    """Return the supported parts of a filter, None when there are none.

    >>> from ducklake_core.format.types.data_types import INT64, VARCHAR
    >>> fields = [Field(id=1, name="n", type=INT64), Field(id=2, name="s", type=VARCHAR)]
    >>> found = pruning_predicate('((c0 > 1) and (c1 == "a") and is_null(c1, {nan_is_null=false}))', fields)
    >>> [(part.left.path, part.operator, part.right.value) for part in found.operands]
    [(('n',), '>', 1), (('s',), '=', 'a')]
    """
    found = [part for part in (_part(text, columns) for text in _conjuncts(filter_text)) if part is not None]
    return all_of(found) if found else None


@dataclass(slots=True)
class _Reader:
    """Splits nested brackets outside of quoted strings."""

    text: str

    def operands(self) -> list[str] | None:
        """Return the operands of an AND in brackets, None when it is something else."""
        if not (self.text.startswith("(") and self.text.endswith(")")):
            return None
        parts, depth, start, quoted = [], 0, 1, False
        place = 1
        inner = self.text[:-1]
        while place < len(inner):
            letter = inner[place]
            if quoted:
                place += letter == "\\"
                quoted = letter != '"'
            elif letter == '"':
                quoted = True
            else:
                depth += (letter in "([{") - (letter in ")]}")
                if depth < 0:
                    return None
                if not depth and inner.startswith(" and ", place):
                    parts.append(inner[start:place])
                    start = place + 5
                    place = start - 1
            place += 1
        return None if not parts or depth or quoted else [*parts, inner[start:]]


def _conjuncts(text: str) -> list[str]:
    found, waiting = [], [text]
    while waiting:
        part = waiting.pop(0)
        operands = _Reader(part).operands()
        if operands is None:
            found.append(part)
        else:
            waiting = [*operands, *waiting]
    return found


def _part(text: str, columns: Sequence[Field]) -> Predicate | None:
    try:
        match = _COMPARISON.fullmatch(text)
        if match is not None:
            column = columns[int(match["column"])]
            value = _literal(match["text"], match["plain"], column)
            return None if value is None else Comparison(left=_reference(column), operator=_OPERATORS[match["operator"]], right=value)
        match = _IN.fullmatch(text)
        if match is None:
            return None
        column = columns[int(match["column"])]
        values = [_quoted_literal(value.strip(), column) for value in match["values"].split(",\n")]
        known = tuple(value for value in values if value is not None)
        return InList(operand=_reference(column), values=known) if len(known) == len(values) else None
    except (DuckLakeError, ValueError, ArithmeticError):
        return None


def _quoted_literal(text: str, column: Field) -> Literal | None:
    match = re.fullmatch(_VALUE, text)
    return None if match is None else _literal(match["text"], match["plain"], column)


def _literal(quoted: str | None, plain: str | None, column: Field) -> Literal | None:
    text = quoted if quoted is not None else plain
    if text is None or text == "null" or column.type == BLOB:
        return None
    # Arrow prints instants in UTC, whatever the effective time zone is.
    with in_zone("UTC"):
        return text_literal(text, column.type)


def _reference(column: Field) -> ColumnReference:
    return ColumnReference(column_id=column.id, path=(column.name,), type=column.type)
