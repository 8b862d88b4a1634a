"""Rows made to fit the table that they are written to, or refused with its name."""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.arrow.write_state import WriteState
from ducklake_core.errors import DuckLakeError, UsageError
from ducklake_core.format import pruning
from ducklake_core.format.arrow_cast import cast_to
from ducklake_core.format.predicate_sql import to_sql
from ducklake_core.format.predicates import Predicate

Data = TypeVar("Data", pa.RecordBatch, pa.Table)


def fitted(data: Data, state: WriteState, *, physical: bool = True) -> Data:
    """The rows in the table's columns; see :func:`~ducklake_core.format.arrow_cast.cast_to`.

    Raises:
        SchemaError: The rows do not fit the table.
    """
    try:
        return cast_to(data, state.schema, physical=physical)
    except DuckLakeError as error:
        error.message = f"cannot write to {state.table}: {error.message}"
        raise


def check_promise(data: pa.RecordBatch | pa.Table, state: WriteState, promise: Predicate) -> None:
    """Refuse rows outside of what a write promised.

    Args:
        data: Fitted rows.
        state: The write.
        promise: What every row must satisfy.

    Raises:
        UsageError: A row does not.
    """
    from ducklake_core.arrow.evaluate import evaluate

    kept = pc.fill_null(evaluate(promise, cast_to(data, state.schema, physical=False)), False)
    if pc.all(kept).as_py() is not False:
        return
    row = data.filter(pc.invert(kept)).slice(0, 1)
    by_id = state.schema.by_id()
    named = pruning.columns(promise)
    columns = [c.name for c in state.schema if named & {node.id for node in c.walk()}] or [by_id[i].name for i in named]
    values = ", ".join(f"{name} = {row.column(name)[0].as_py()!r}" for name in columns)
    raise UsageError(
        f"cannot write to {state.table}: the row with {values} is outside of what was promised, {to_sql(promise, 'duckdb')}; "
        "filter the data, or write to the slice it belongs to",
        table=state.table,
    )
