"""Sort and cluster rows as DuckDB orders them, with spilling for more rows than fit in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.engines.arrow.readable import with_integer_strings
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.engines.duckdb_instance import line_of, require_duckdb, shared_connection
from ducklake_core.errors import SchemaError, UnsupportedFeatureError
from ducklake_core.format.layout.sorting import WRITE_UNSORTED, SortOrder
from ducklake_core.format.types.data_types import FLOATS, INT128, UINT128, Field
from ducklake_core.format.types.names import folded, quoted_path
from ducklake_core.format.types.schema import Schema, duckdb_type, from_arrow_field, to_arrow_field, to_arrow_schema
from ducklake_core.format.values.arrow_cast import cast_to
from ducklake_core.storage.spill import SORTED_ROWS, ExternalSort, Places

SAMPLED_ROWS = 100_000
"""Approximate number of sampled rows that determine where the ranges of a column begin."""
CURVE_COLUMN = "_ducklake_internal_curve"
_FOR_WRITERS = f"write a Spark DataFrame, or {WRITE_UNSORTED}"
_FOR_MAINTENANCE = "change the table's sort order"
_MAX_BITS = 10
_WORD_BITS = 64
Codes = npt.NDArray[np.uint64]


def sorted_rows(rows: pa.RecordBatch, orders: Sequence[SortOrder], schema: Schema, table: str) -> pa.RecordBatch:
    """Return the rows in order; equal ones stay as they are. Arguments and errors are those of :func:`sorted_places`."""
    places = sorted_places(rows, orders, schema, table)
    return rows if places is None else rows.take(places)


def sorted_places(
    rows: pa.RecordBatch, orders: Sequence[SortOrder], schema: Schema, table: str, remedy: str = _FOR_WRITERS
) -> pa.Array | None:
    """Return the row indexes in sorted order, or None when the order does not change. Equal rows keep their order.

    Args:
        rows: With some of the table's columns, by name. A column that is missing is the same in all rows.
        orders: What to sort by, the most significant first.
        schema: The table's columns.
        table: ``schema.table`` for messages.
        remedy: End of error messages: what to do about a key that cannot be followed. Default: what a writer can do.

    Raises:
        SchemaError: A value does not fit its column.
        UnsupportedFeatureError: Arrow cannot sort by the type of a key, DuckDB rejects an expression, or it is not installed.
    """
    keys: dict[str, pa.Array] = {}
    sort_keys: list[tuple[str, str]] = []
    names = {folded(name): name for name in rows.schema.names}
    for number, order in enumerate(orders):
        if order.column is None:
            # A column that is missing is the same in all rows, and so is an expression of such columns.
            if not any(folded(name) in names for name in order.columns):
                continue
            values, column = _computed_values(rows, order, schema, table, remedy)
        else:
            given = names.get(folded(order.column))
            if given is None:
                continue
            column = schema.column(order.column)
            values = comparable_values(rows.column(given), column)
        for suffix, array, descending in _parts(values, column, order):
            keys[f"{number}{suffix}"] = array
            sort_keys.append((f"{number}{suffix}", "descending" if descending else "ascending"))
    if not sort_keys:
        return None
    try:
        return pc.sort_indices(pa.RecordBatch.from_pydict(keys), sort_keys=sort_keys)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        expressions = ", ".join(order.expression for order in orders)
        raise UnsupportedFeatureError(
            f"the table {table} is sorted by {expressions}, but Arrow cannot sort values of these types ({error}); {remedy}", table=table
        ) from error


def _computed_values(rows: pa.RecordBatch, order: SortOrder, schema: Schema, table: str, remedy: str) -> tuple[pa.Array, Field]:
    """Return the values of an expression, computed by DuckDB, with a column of their type.

    Raises:
        UnsupportedFeatureError: DuckDB is not installed, or rejects the expression.
    """
    names = {folded(name): name for name in rows.schema.names}
    needed = [schema.column(name) for name in order.columns]
    given = Schema(columns=tuple(column for column in needed if folded(column.name) in names))
    selected = pa.RecordBatch.from_arrays([rows.column(names[folded(column.name)]) for column in given], names=given.names)
    data = pa.Table.from_batches([cast_to(selected, given, physical=False)])
    for column in needed:
        if column.name not in given.names:
            data = data.append_column(
                to_arrow_field(column, physical=False).with_nullable(True), pa.nulls(len(rows), to_arrow_field(column, physical=False).type)
            )
    try:
        duckdb = require_duckdb()
    except UnsupportedFeatureError as error:
        raise _rejected(order, table, f"which needs the package duckdb, on Spark on its executors; install it, or {remedy}") from error
    with shared_connection("UTC") as connection:
        try:
            # DuckDB keeps the row order of a scan of Arrow data, so that the values line up with the rows.
            typed = connection.from_arrow(with_integer_strings(data.to_reader()).read_all()).project(", ".join(map(_typed, needed)))
            relation = typed.project(f"({order.expression}) AS found")
            is_wide = str(relation.types[0]) in ("HUGEINT", "UHUGEINT")
            found = (relation.project("CAST(found AS VARCHAR) AS found") if is_wide else relation).to_arrow_table()
        except duckdb.Error as error:
            raise _rejected(order, table, f"which DuckDB cannot evaluate ({line_of(error)}); {remedy}") from error
    if is_wide:
        found = found.cast(pa.schema([to_arrow_field(Field(name="found", type=INT128), physical=False)]))
    values = found.column("found").combine_chunks()
    column = from_arrow_field(found.schema.field("found"))
    return comparable_values(values, column), column


def _typed(column: Field) -> str:
    name = quoted_path((column.name,))
    wide = any(node.type in (INT128, UINT128) for node in column.walk())
    return f"CAST({name} AS {duckdb_type(column.type)}) AS {name}" if wide else name


def comparable_values(values: pa.Array, column: Field) -> pa.Array:
    """Return values of a column in the form in which Arrow compares them.

    Raises:
        SchemaError: A value does not fit the column.
    """
    selected = pa.RecordBatch.from_arrays([values], names=[column.name])
    found = cast_to(selected, Schema(columns=(column,)), physical=False).column(0)
    return found.storage if isinstance(found, pa.ExtensionArray) else found


def is_sortable(order: SortOrder, schema: Schema) -> bool:
    """Return whether this process can sort by a key, which it tries with two rows of NULL.

    >>> from ducklake_core.format.types.data_types import INT64, INTERVAL
    >>> order = SortOrder(expression="a", column="a", columns=("a",))
    >>> [is_sortable(order, Schema(columns=(Field(id=1, name="a", type=one),))) for one in (INT64, INTERVAL)]
    [True, False]

    Args:
        order: The key.
        schema: The table's columns.
    """
    own = Schema(columns=tuple(replace(schema.column(name), nullable=True) for name in order.columns))
    physical = to_arrow_schema(own, physical=True)
    rows = pa.RecordBatch.from_arrays([pa.nulls(2, field.type) for field in physical], schema=physical)
    try:
        sorted_places(rows, [order], own, "")
    except (SchemaError, UnsupportedFeatureError):
        return False
    return True


def _parts(values: pa.Array, column: Field, order: SortOrder) -> list[tuple[str, pa.Array, bool]]:
    """Return the columns that order by one key: where NULL goes, where NaN goes, then the values."""
    parts = [("null", pc.is_null(values), order.nulls_first)] if values.null_count else []
    if column.type in FLOATS:
        nan = pc.fill_null(pc.is_nan(values), False)
        if pc.any(nan).as_py():
            parts.append(("nan", nan, order.descending))
    return [*parts, ("value", values, order.descending)]


def _rejected(order: SortOrder, table: str, reason: str) -> UnsupportedFeatureError:
    message = f"cannot write to {table}: the table is sorted by {order.expression}, {reason}"
    return UnsupportedFeatureError(message, table=table, expression=order.expression)


def sorted_by(rows: Iterable[pa.RecordBatch], orders: Sequence[SortOrder], columns: Schema, state: WriteState) -> Iterator[pa.RecordBatch]:
    """Yield the rows of existing files in a sort order; equal rows keep their order.

    Args:
        rows: The rows, with the table's columns by name.
        orders: The sort keys, the most significant first.
        columns: The table's columns.
        state: The write, for messages and encryption of spilled rows.

    Raises:
        UnsupportedFeatureError: This process cannot sort by one of the keys.
        StorageError: The local disk has no space for them.
    """
    yield from _sorted(rows, lambda batch: sorted_places(batch, orders, columns, state.table, _FOR_MAINTENANCE), encrypted=state.encrypted)


def sorted_along(rows: Iterable[pa.RecordBatch], curve: HilbertCurve, *, encrypted: bool) -> Iterator[pa.RecordBatch]:
    """Yield the rows in the order of the curve.

    Raises:
        StorageError: The local disk has no space for them.
    """
    numbered = (curve.numbered(batch) for batch in rows)
    for batch in _sorted(numbered, lambda batch: pc.sort_indices(batch.column(CURVE_COLUMN)), encrypted=encrypted):
        yield pa.RecordBatch.from_arrays(batch.columns[:-1], names=batch.schema.names[:-1])


def _sorted(rows: Iterable[pa.RecordBatch], places: Places, *, encrypted: bool) -> Iterator[pa.RecordBatch]:
    sort = ExternalSort(places, SORTED_ROWS, encrypted=encrypted)
    try:
        for batch in rows:
            sort.add(batch)
        yield from sort.rows()
    finally:
        sort.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class HilbertCurve:
    """A curve through some columns.

    Attributes:
        schema: The columns, by name.
        bounds: For each the values at which its ranges begin, ascending, without NULL.
        bits: Each column has fewer than 2 to the power of this many bounds.
    """

    schema: Schema
    bounds: tuple[pa.Array, ...]
    bits: int

    def numbered(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with their position on the curve as the last column, :data:`CURVE_COLUMN`."""
        codes = [
            _codes(comparable_values(rows.column(column.name), column), bounds)
            for column, bounds in zip(self.schema, self.bounds, strict=True)
        ]
        return rows.append_column(CURVE_COLUMN, pa.array(hilbert_index(codes, self.bits)))


def sampled_curve(batches: Iterable[pa.RecordBatch], schema: Schema, rows: int) -> HilbertCurve:
    """Return a curve whose ranges hold about equally many of the rows.

    Args:
        batches: The rows; a sample of about :data:`SAMPLED_ROWS` is kept in memory.
        schema: The columns, at least two.
        rows: Approximate number of rows.
    """
    bits = min(_MAX_BITS, _WORD_BITS // len(schema))
    # A fixed seed makes the layout reproducible. A random sample does not fall in step with a pattern of the data, as every n-th row could.
    chance, random = min(1.0, SAMPLED_ROWS / max(1, rows)), np.random.default_rng(0)
    kept: list[list[pa.Array]] = [[] for _ in schema]
    for batch in batches:
        chosen = pa.array(np.flatnonzero(random.random(batch.num_rows) < chance))
        for values, column in zip(kept, schema, strict=True):
            values.append(comparable_values(batch.column(column.name).take(chosen), column))
    return HilbertCurve(schema=schema, bounds=tuple(_bounds(values, 2**bits) for values in kept), bits=bits)


def _bounds(parts: Sequence[pa.Array], ranges: int) -> pa.Array:
    # There is no part if every row is deleted.
    values = pa.concat_arrays(parts).drop_null() if parts else pa.nulls(0)
    if not len(values):
        return values
    ascending = values.take(pc.sort_indices(values))
    places = np.unique(np.arange(1, ranges) * len(ascending) // ranges)
    # A frequent value may begin several ranges, which become one. unique() keeps the order.
    return pc.unique(ascending.take(pa.array(places)))


def _codes(values: pa.Array, bounds: pa.Array) -> Codes:
    """Return for each value the number of bounds that are not above it; NULL comes last, as NaN does among numbers."""
    both = pa.concat_arrays([bounds, values])
    # sort_indices() is stable, and the bounds come first: of equal values, the bound precedes.
    places = pc.sort_indices(both).to_numpy()
    is_bound = places < len(bounds)
    passed = np.cumsum(is_bound, dtype=np.uint64)
    codes = np.empty(len(values), np.uint64)
    codes[places[~is_bound].astype(np.int64) - len(bounds)] = passed[~is_bound]
    return codes


def hilbert_index(codes: Sequence[Codes], bits: int) -> Codes:
    """Return the positions of points on a Hilbert curve that fills the whole space.

    >>> square = [np.array([0, 0, 1, 1], np.uint64), np.array([0, 1, 1, 0], np.uint64)]
    >>> hilbert_index(square, 1).tolist()
    [0, 1, 2, 3]

    Args:
        codes: One array for each dimension, of numbers below 2 to the power of ``bits``.
        bits: Times the number of dimensions at most 64.
    """
    # J. Skilling, "Programming the Hilbert curve" (2004), for whole arrays at once: undo the excess rotations of each bit plane, from the
    # highest plane down; Gray-encode the axes; then interleave their bits, the first axis first.
    axes = [axis.astype(np.uint64) for axis in codes]
    one, none = np.uint64(1), np.uint64(0)
    for bit in range(bits - 1, 0, -1):
        high, below = np.uint64(1 << bit), np.uint64((1 << bit) - 1)
        for number in range(len(axes)):
            is_set = (axes[number] & high) != none
            exchanged = np.where(is_set, none, (axes[0] ^ axes[number]) & below)
            axes[0] = np.where(is_set, axes[0] ^ below, axes[0] ^ exchanged)
            if number:
                axes[number] = axes[number] ^ exchanged
    for number in range(1, len(axes)):
        axes[number] = axes[number] ^ axes[number - 1]
    turned = np.zeros_like(axes[0])
    for bit in range(bits - 1, 0, -1):
        turned = np.where((axes[-1] & np.uint64(1 << bit)) != none, turned ^ np.uint64((1 << bit) - 1), turned)
    index = np.zeros_like(axes[0])
    for bit in range(bits - 1, -1, -1):
        for axis in axes:
            index = (index << one) | (((axis ^ turned) >> np.uint64(bit)) & one)
    return index
