"""Which rows of a write go into the catalog instead of a file (specification: Data Inlining)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ducklake_core.catalog.inlined.ddl import may_inline
from ducklake_core.catalog.inlined.encoding import is_readable
from ducklake_core.format.files.inlined_rows import MOST_BYTES, InlinedRows, inlined_rows_of
from ducklake_core.format.types.data_types import VARIANT

if TYPE_CHECKING:
    from ducklake_core.engines.arrow.write_state import WriteState
    from ducklake_core.engines.frame import Frame
    from ducklake_core.format.types.schema import Schema


def inlined_part(frame: Frame, state: WriteState, inline: bool | None = None) -> tuple[InlinedRows | None, Frame]:
    """The rows of a frame as values for the catalog, or else the frame to write to files.

    A frame goes into the catalog as a whole, when it has no more rows than the option ``data_inlining_row_limit``
    says, all columns have types that the catalog can hold, and DuckDB can read every value there and flush it. A Spark
    DataFrame only does when that is asked for: to count its rows first may compute it twice.

    Args:
        frame: Of a stream or a DataFrame, only as many rows are read as it takes to know that it is too long.
        state: The write.
        inline: False for no frame, True for DataFrames as well.

    Returns:
        The values, or None; and a frame that still has all rows.

    Raises:
        SchemaError: The rows do not fit the table.
        UsageError: A row does not satisfy the row_constraint.
    """
    limit = state.options.data_inlining_row_limit
    asked = inline if inline is not None else frame.inlines_unasked
    if not limit or not asked or not may_inline(state.schema, state.format_version):
        return None, frame
    few, frame = frame.few_rows(limit, MOST_BYTES)
    if few is None or not few.num_rows:
        return None, frame
    from ducklake_core.engines.arrow.fitting import check_row_constraint, fitted, with_computed_defaults

    logical = fitted(with_computed_defaults(few, state), state, physical=False)
    if state.row_constraint is not None:
        check_row_constraint(logical, state, state.row_constraint)
    rows = inlined_rows_of(logical, state.schema)
    return (rows if are_usable(rows, state.schema, state) else None), frame


def are_usable(rows: InlinedRows, schema: Schema, state: WriteState) -> bool:
    """Whether DuckDB reads all values of rows that have the columns of a schema, once they are in the catalog, and flushes them."""
    if state.flush is not None and not state.flush.allows(rows, schema, state.partition_spec):
        return False
    most = state.format_version.inlined_limits.most_row_bytes
    if most is not None and any(sum(map(_most_bytes, row)) > most for row in rows.rows()):
        return False
    columns = zip(rows.columns, schema, strict=True)
    doubtful = [(values, column.type) for values, column in columns if column.type == VARIANT or not column.is_leaf]
    return all(is_readable(value, kind) for values, kind in doubtful for value in values)


def _most_bytes(value: object) -> int:
    """How long a value may be in a statement.

    >>> _most_bytes("ä"), _most_bytes(b"\\0"), _most_bytes([1, None]), _most_bytes(2.5)
    (4, 1, 36, 8)
    """
    match value:
        case str():
            return 4 * len(value)
        case bytes():
            return len(value)
        case list() | dict():
            return 4 * len(str(value))
        case _:
            return 8
