"""Tables as DuckDB scans them: it says which columns it needs and which rows, and gets a stream of Arrow batches.

Columns go by their places (``c0``, ``c1`` ...), so that the text of a filter has no names in it that could be taken for something else::

    c0 INTEGER   c1 VARCHAR   c2 DOUBLE      what is scanned: a dataset, only of the columns and files that are asked for
    SELECT c0 AS "day", c1 AS "carrier", CASE ... c2 END AS "delay"     the view under the table's own name

DuckDB takes every such scan for one row, and so joins a dozen of them in any order. The view of a table that is joined therefore begins
with rows that are not there, from which DuckDB's optimizer concludes how many there are::

    SELECT CASE WHEN n < 0 THEN NULL END AS c0, ... FROM range(5000) AS r(n) WHERE n < 0  UNION ALL  SELECT c0, ... FROM (the scan)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.dataset as pds

from ducklake_core.engines.arrow.other_libraries import with_integer_strings
from ducklake_core.engines.duckdb.pushed_filters import pruning_predicate
from ducklake_core.engines.duckdb.variants import taken_in
from ducklake_core.format.expressions.predicates import Predicate
from ducklake_core.format.types.arrow_types import to_arrow_schema
from ducklake_core.format.types.data_types import (
    BOOLEAN,
    DATE,
    INT128,
    INTEGERS,
    TIMESTAMPS,
    UINT128,
    VARCHAR,
    DecimalType,
    Field,
    holds_variants,
)
from ducklake_core.format.types.names import quoted_path
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.type_names import duckdb_type

_ONE_IN = 5
"""DuckDB's guess of how many rows a condition lets through."""

ReadRows: TypeAlias = Callable[[Sequence[str], Predicate | None], pa.RecordBatchReader]
"""Reads columns of a table, in this order; rows for which the predicate is not true may be left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """A table that queries may name.

    Attributes:
        row_count: About how many rows it has, for the order of joins; None where nothing is joined.
    """

    schema_name: str
    name: str
    columns: Schema
    read: ReadRows
    row_count: int | None = None


@dataclass(slots=True)
class Failures:
    """Errors of scans, which DuckDB turns into texts."""

    first: BaseException | None = None

    def watched(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches; an error on the way is noted."""
        try:
            yield from batches
        except Exception as error:
            self.first = self.first or error
            raise


class TableDataset(pds.Dataset):  # type: ignore[misc]
    """A table as DuckDB knows datasets of Arrow: its schema, and scans with columns and a filter."""

    def __init__(self, source: TableSource, failures: Failures) -> None:
        self._source = source
        self._failures = failures
        self._fields = tuple(source.columns)
        self._schema = _shared_schema(source.columns)

    @property
    def schema(self) -> pa.Schema:
        """The columns by their places."""
        return self._schema

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any) -> TableScanner:  # noqa: A002 - Arrow's name
        """A scan of some columns."""
        names = list(self._schema.names if columns is None else columns)
        return TableScanner(dataset=self, columns=names, filter=filter)

    def read(self, columns: Sequence[str], filter: Any) -> pa.RecordBatchReader:  # noqa: A002
        """The rows that a scan gives."""
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
    """One scan, as DuckDB asks for it."""

    dataset: TableDataset
    columns: Sequence[str]
    filter: Any = field(default=None)

    @property
    def projected_schema(self) -> pa.Schema:
        """The columns of the scan."""
        return pa.schema([self.dataset.schema.field(name) for name in self.columns])

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows."""
        return self.dataset.read(self.columns, self.filter)


def view_of(source: TableSource, key: str, planned_rows: int | None = None) -> str:
    """The query that gives a dataset the table's own names.

    Args:
        source: The table.
        key: The dataset's name.
        planned_rows: How many rows DuckDB is to plan with, None when that does not matter.
    """
    columns = [f"{_output(column, place)} AS {quoted_path((column.name,))}" for place, column in enumerate(source.columns)]
    rows = key if planned_rows is None else f"({_counted(len(columns), key, planned_rows)})"
    return f"SELECT {', '.join(columns)} FROM {rows}"  # noqa: S608 - names are quoted


def _counted(column_count: int, key: str, planned_rows: int) -> str:
    """The dataset after no rows of a function of which DuckDB knows how many it gives.

    They come first, as DuckDB takes numbers of distinct values from the first part; and they depend on ``n``, as conditions on constants
    would be evaluated before the plan is made, and leave the dataset alone. Of any condition DuckDB expects a fifth of the rows.
    """
    names = [f"c{place}" for place in range(column_count)]
    nothing = ", ".join(f"CASE WHEN n < 0 THEN NULL END AS {name}" for name in names)
    numbers = f"system.main.range({_ONE_IN * max(planned_rows, 1)}) AS r(n)"
    return f"SELECT {nothing} FROM {numbers} WHERE n < 0 UNION ALL SELECT {', '.join(names)} FROM {key}"  # noqa: S608


def _output(column: Field, place: int) -> str:
    own = f"c{place}"
    if holds_variants(column.type):
        own = taken_in(own, column.type)
    if any(node.type in (INT128, UINT128) for node in column.walk()):
        return f"CAST({own} AS {duckdb_type(column.type)})"
    if holds_variants(column.type):
        return own
    # Arrow orders NaN in another way, and knows no filters of its extension types: such filters stay with DuckDB.
    return own if _is_comparable(column) else f"CASE WHEN {own} IS NULL THEN NULL ELSE {own} END"


def _is_comparable(column: Field) -> bool:
    return isinstance(column.type, DecimalType) or column.type in (*INTEGERS, *TIMESTAMPS, VARCHAR, BOOLEAN, DATE)


def _shared_schema(columns: Schema) -> pa.Schema:
    plain = to_arrow_schema(columns, physical=False)
    nothing = pa.RecordBatchReader.from_batches(plain, iter(()))
    shared = with_integer_strings(nothing).schema
    return pa.schema([one.with_name(f"c{place}").with_nullable(True) for place, one in enumerate(shared)])
