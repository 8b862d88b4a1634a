"""Which rows of a write go into the catalog instead of a file (specification: Data Inlining)."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ducklake_core.catalog.inlined_ddl import may_inline
from ducklake_core.catalog.inlined_encoding import is_readable
from ducklake_core.engines import engine_of
from ducklake_core.format.inlined_rows import MOST_BYTES, InlinedRows, inlined_rows_of

if TYPE_CHECKING:
    from ducklake_core.arrow.write_state import WriteState
    from ducklake_core.format.schema import Schema


def inlined_part(data: Any, state: WriteState, inline: bool | None = None) -> tuple[InlinedRows | None, Any]:
    """The rows of a frame as values for the catalog, or else the frame to write to files.

    A frame goes into the catalog as a whole, when it has no more rows than the option ``data_inlining_row_limit``
    says, all columns have types that the catalog can hold, and the reference can read every value there and flush it. A Spark
    DataFrame only does when that is asked for: to count its rows first may compute it twice.

    Args:
        data: The frame; of a stream or a DataFrame, only as many rows are read as it takes to know that it is too long.
        state: The write.
        inline: False for no frame, True for DataFrames as well.

    Raises:
        SchemaError: The rows do not fit the table.
        UsageError: A row does not satisfy the promise.
    """
    limit = state.options.data_inlining_row_limit
    engine = engine_of(data)
    if not limit or inline is False or (engine == "spark" and inline is None) or not may_inline(state.schema):
        return None, data
    if engine == "spark":
        from ducklake_core.spark.few_rows import few_rows

        few = few_rows(data, limit, MOST_BYTES)
    else:
        few, data = _few_rows(data, limit)
    if few is None or not few.num_rows:
        return None, data
    from ducklake_core.arrow.fitting import check_promise, fitted

    if not few.num_columns:
        raise state.without_columns()
    logical = fitted(few, state, physical=False)
    if state.promise is not None:
        check_promise(logical, state, state.promise)
    rows = inlined_rows_of(logical, state.schema)
    return (rows, None) if are_usable(rows, state.schema, state) else (None, data)


def are_usable(rows: InlinedRows, schema: Schema, state: WriteState) -> bool:
    """Whether the reference reads all values of rows that have the columns of a schema, once they are in the catalog, and flushes them."""
    if state.flush is not None and not state.flush.allows(rows, schema, state.partition_spec):
        return False
    nested = [(values, column.type) for values, column in zip(rows.columns, schema, strict=True) if not column.is_leaf]
    return all(is_readable(value, kind) for values, kind in nested for value in values)


def _few_rows(data: Any, limit: int) -> tuple[pa.Table | None, Any]:
    """The rows as a table, None when there are more than so many, or too many bytes of them; and a frame that still has them all."""
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return (data if data.num_rows <= limit and data.nbytes <= MOST_BYTES else None), data
    seen: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in data:
        seen.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows > limit or size > MOST_BYTES:
            return None, pa.RecordBatchReader.from_batches(data.schema, chain(seen, data))
    table = pa.Table.from_batches(seen, data.schema)
    return table, table
