"""Expose tables to DuckDB as Arrow streams, and translate the filters that it pushes down.

DuckDB pushes a filter down as a pyarrow expression. The parts of it that ``engines.arrow.pushdown`` supports prune files, and every
batch is filtered with the whole expression afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.dataset as pds

from ducklake_core.engines.arrow.pushdown import FilterColumns, columns_at, parsed_arrow, predicate_of
from ducklake_core.engines.arrow.readable import with_integer_strings
from ducklake_core.engines.duckdb.functions import taken_in
from ducklake_core.format.expressions.predicates import Predicate
from ducklake_core.format.types.data_types import (
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

if TYPE_CHECKING:
    from ducklake_core.planning.explanation import Explanation


_ONE_IN = 5
"""DuckDB expects one in this many rows to satisfy a condition that it knows nothing about."""
ReadRows: TypeAlias = Callable[[Sequence[str], Predicate | None], pa.RecordBatchReader]
"""Reads columns of a table, in this order; it may skip rows for which the predicate is not true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """A table that queries may name.

    Attributes:
        row_count: Approximate number of rows, for the order of joins; None if nothing is joined.
        is_frame: Whether it is a frame of the caller, and no table of the lake; by default False.
        virtual: Names of virtual columns of a frame. All other tables have all virtual columns.
        explain: Plans a scan under some conditions, with the files that it reads and skips; None for rows that are in no file.
    """

    schema_name: str
    name: str
    columns: Schema
    read: ReadRows
    row_count: int | None = None
    is_frame: bool = False
    virtual: tuple[str, ...] = ()
    explain: Callable[[Sequence[str]], Explanation] | None = None


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
            parsed = None if filter is None else parsed_arrow(filter, lambda name: int(name.removeprefix("c")))
            # DuckDB 2.0 does not request the columns of a filter that it needs for nothing else; 1.5 does.
            needed = list(dict.fromkeys((*columns, *(f"c{index}" for index in columns_at(parsed)))))
            predicate = None if parsed is None else predicate_of(parsed, FilterColumns(self._fields, self._schema))
            reader = with_integer_strings(self._source.read([self._fields[int(name[1:])].name for name in needed], predicate))
        except Exception as error:
            self._failures.first = self._failures.first or error
            raise
        schema = pa.schema([self._schema.field(name) for name in needed])
        batches = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in self._failures.watched(iter(reader)))
        if filter is not None:
            batches = (found for batch in batches for found in _filtered(batch, columns, filter))
        return pa.RecordBatchReader.from_batches(pa.schema([self._schema.field(name) for name in columns]), batches)


def explained_table(source: TableSource, number: int) -> pds.Dataset:
    """Return an empty dataset with a table's columns, each under a name that states the number of the table and its index."""
    named = [one.with_name(f"t{number}{one.name}") for one in _shared_schema(source.columns)]
    # Schema.empty_table() has no values of extension types in lists.
    # DuckDB 2.0 pushes filters down to datasets, but not to tables.
    return pds.dataset(pa.Table.from_batches([], pa.schema(named)))


def _filtered(batch: pa.RecordBatch, columns: Sequence[str], condition: Any) -> Iterator[pa.RecordBatch]:
    """Return the rows that meet a condition. `RecordBatch.filter` raises if no row is left and a column has UUIDs in lists."""
    source = pds.dataset(pa.Table.from_batches([batch]))
    yield from source.scanner(columns=list(columns), filter=condition, use_threads=False).to_batches()


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
