"""Measure how well files separate the values of columns, from the bounds in the catalog."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ducklake_core.catalog.reading.definitions import macros, without_macro_calls
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.engines.arrow.sorting import is_sortable
from ducklake_core.errors import DuckLakeError, UnsupportedFeatureError, UsageError
from ducklake_core.format.files.data_files import ColumnStatistics
from ducklake_core.format.layout.sorting import SortOrder, sort_orders
from ducklake_core.format.state import TableState
from ducklake_core.format.types.data_types import (
    BLOB,
    BOOLEAN,
    DATE,
    FLOATS,
    INT128,
    INTEGERS,
    TIME,
    TIMESTAMPS,
    UINT128,
    UUID,
    VARCHAR,
    DecimalType,
    Field,
)
from ducklake_core.format.types.names import join_name
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.text import counted
from ducklake_core.format.values.value_text import from_text, order_key

MAX_COLUMNS = 8
"""Maximum number of columns of a curve. Each further column reduces the gain of the others."""
WORTH = 1.5
"""Files are clustered if a range now reads at least this many times the files that it would read afterwards."""
_CLUSTERED = (*(one for one in INTEGERS if one not in (INT128, UINT128)), *FLOATS, DATE, TIME, *TIMESTAMPS, VARCHAR, UUID, BOOLEAN, BLOB)
Statistics = Mapping[int, ColumnStatistics]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringGain:
    """The gain of clustering, measured in files that a query of a typical range reads.

    A typical range of a column is as wide as the bounds of one file. The numbers are averages over files and columns.

    Attributes:
        columns: Names of the columns.
        files: Number of files before clustering.
        files_after: Number of files after clustering; an estimate in a dry run.
        touched: Number of files that a typical range reads before clustering.
        touched_after: Number of files that a typical range reads after clustering; an estimate in a dry run.
        parts: Unit of ``files_after`` and ``touched_after``: files, or row groups of the one file of a merge.
    """

    columns: tuple[str, ...]
    files: int
    files_after: int
    touched: float
    touched_after: float
    parts: Literal["files", "row groups"] = "files"

    @property
    def is_worth_it(self) -> bool:
        """Return whether the gain justifies clustering the files."""
        return self.touched > WORTH * self.touched_after

    def __str__(self) -> str:
        return (
            f"a range of {' or '.join(self.columns)} reads {self.touched:.1f} of {counted(self.files, 'file')}, "
            f"and {self.touched_after:.1f} of {self.files_after:,}{'' if self.parts == 'files' else ' row groups'} after clustering"
        )


def clustered_columns(table: TableState, names: Sequence[str]) -> tuple[Field, ...]:
    """Return the columns with some names.

    Raises:
        NotFoundError: A column does not exist.
        UsageError: A column is repeated, or there are too many.
        UnsupportedFeatureError: Files have no bounds, or no useful bounds, for a column.
    """
    columns = tuple(table.schema.column(name) for name in names)
    if len({column.id for column in columns}) < len(columns):
        raise UsageError(f"cluster_by contains a column twice: {', '.join(names)}. Remove the repetition", parameter="cluster_by")
    if len(columns) > MAX_COLUMNS:
        raise UsageError(
            f"cluster_by has {len(columns)} columns, but supports at most {MAX_COLUMNS}. Remove the least selective ones",
            parameter="cluster_by",
        )
    for column in columns:
        if not column.is_leaf or (column.type not in _CLUSTERED and not isinstance(column.type, DecimalType)):
            raise UnsupportedFeatureError(
                f"Column {column.name!r} of type {column.type} cannot be used in cluster_by, because files have no bounds for it. "
                "Use columns "
                "of numbers, times, strings, UUIDs or booleans",
                column=column.name,
            )
    return columns


def expected_gain(columns: Sequence[Field], statistics: Sequence[Statistics], files_after: int) -> ClusteringGain:
    """Return the expected gain of clustering.

    A curve through d columns cuts n files into the n-th root of d slabs of each column.

    Args:
        columns: The columns.
        statistics: Statistics of each file, by column id.
        files_after: Number of files after clustering.
    """
    touched = touched_files(columns, statistics)
    after = files_after ** ((len(columns) - 1) / len(columns))
    names = tuple(column.name for column in columns)
    return ClusteringGain(columns=names, files=len(statistics), files_after=files_after, touched=touched, touched_after=min(touched, after))


def gain_of_merge(columns: Sequence[Field], statistics: Sequence[Statistics], row_groups: int) -> ClusteringGain:
    """Return the expected gain of clustering within the one file of a merge.

    Args:
        columns: The columns.
        statistics: Statistics of each merged file, by column id.
        row_groups: Number of row groups of the new file.
    """
    touched, after = touched_files(columns, statistics), row_groups ** ((len(columns) - 1) / len(columns))
    names = tuple(column.name for column in columns)
    return ClusteringGain(
        columns=names, files=len(statistics), files_after=row_groups, touched=touched, touched_after=after, parts="row groups"
    )


def touched_files(columns: Sequence[Field], statistics: Sequence[Statistics]) -> float:
    """Return the number of files that a typical range reads and clustering could avoid, including the one with its own values.

    A range that ends where another begins reads both in any case: one file may be too small for all equal values.
    """
    if not statistics:
        return 0.0
    return sum(_touched(column, [one.get(column.id) for one in statistics]) for column in columns) / len(columns)


def _touched(column: Field, found: Sequence[ColumnStatistics | None]) -> float:
    bounds = [_bounds(one, column) for one in found]
    known = [pair for pair in bounds if isinstance(pair, tuple)]
    unknown = sum(pair is None for pair in bounds)
    # Two sorted lists count the files that meet a range by bisection, instead of comparing all pairs.
    lows, highs = sorted(low for low, _ in known), sorted(high for _, high in known)
    single = Counter(low for low, high in known if low == high)
    touched = [
        # Files that begin below its end, except those that end at or below its beginning.
        bisect_left(lows, high) - bisect_right(highs, low) + (1 + single[low] if low == high else 0) + unknown
        for low, high in known
    ]
    # Every range reads a file with unknown bounds, and its own range is unknown.
    return sum([*touched, *[len(found)] * unknown]) / max(1, len(known) + unknown)


def _bounds(found: ColumnStatistics | None, column: Field) -> tuple[Any, Any] | bool | None:
    """Return lowest and highest value; None if they are unknown, False if the file has no values."""
    if found is None:
        return None
    if found.value_count == 0:
        return False
    if found.min_value is None or found.max_value is None:
        return None
    try:
        return order_key(from_text(found.min_value, column.type)), order_key(from_text(found.max_value, column.type))
    except DuckLakeError:
        return None


def sort_order(reader: CatalogReader, table: TableState) -> tuple[SortOrder, ...]:
    """Return the table's sort order up to the first key that this process cannot sort by.

    A sort order makes reading faster, but is not guaranteed.
    """
    found: list[SortOrder] = []
    for key in table.sort_keys:
        try:
            (order,) = sort_orders([key], table.schema, join_name(table.schema_name, table.name))
            if order.column is None:
                called = without_macro_calls(order.expression, lambda: macros(reader, table.snapshot_id))
                order = replace(order, expression=str(called))
        except (UnsupportedFeatureError, UsageError):
            break
        if not is_sortable(order, table.schema):
            break
        found.append(order)
    return tuple(found)


def order_in_files(orders: Sequence[SortOrder], table: TableState, schema: Schema) -> tuple[SortOrder, ...]:
    """Return the part of a sort order that applies to files with the columns of an earlier or the present schema.

    It ends before the first expression of a column that the files have and one that they do not have, or that has other fields there.

    Args:
        orders: A sort order of the table, see :func:`sort_order`.
        table: The table.
        schema: Columns of the files.
    """
    former = {column.id: column for column in schema}
    found: list[SortOrder] = []
    for order in orders:
        now = {name: table.schema.column(name) for name in order.columns}
        then = {name: former[column.id] for name, column in now.items() if column.id in former}
        has_other_fields = any(one.type != now[name].type and not (one.is_leaf and now[name].is_leaf) for name, one in then.items())
        if len(then) == len(now) and (order.column is not None or not has_other_fields):
            found.append(order.in_columns(now, then))
        elif then:
            break
        # A missing column has the same value in all rows, so that a key of missing columns does not matter.
    return tuple(found)
