"""Which row groups of a file a predicate can skip, from the statistics in the file's own footer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ducklake_core.format.expressions import pruning
from ducklake_core.format.expressions.predicates import Predicate
from ducklake_core.format.files.data_files import ColumnStatistics
from ducklake_core.format.types.arrow_types import NO_KEY_TYPES, to_arrow_type
from ducklake_core.format.types.data_types import FLOATS, Field
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values import leaf_values as values


def row_group_runs(
    metadata: pq.FileMetaData,
    file_schema: pa.Schema,
    read_schema: Schema,
    places: Sequence[int | None],
    predicate: Predicate | None,
    *,
    rows: tuple[int, int] | None = None,
    only: np.ndarray | None = None,
) -> Iterator[tuple[int, list[int]]]:
    """Runs of neighbouring row groups to read, each with the position in the file of its first row.

    Args:
        metadata: The file's footer.
        file_schema: The file's Arrow schema.
        read_schema: Columns that the predicate is bound to.
        places: Place in the file of each of them.
        predicate: Rows wanted; None for all.
        rows: When given, only row groups that begin in this range of positions.
        only: When given, only row groups that hold one of these positions, which ascend.
    """
    usable = _usable_columns(metadata, file_schema, read_schema, places, predicate)
    position = start = 0
    run: list[int] = []
    for index in range(metadata.num_row_groups):
        count = metadata.row_group(index).num_rows
        wanted = (rows is None or rows[0] <= position < rows[1]) and (only is None or _holds(only, position, count))
        if wanted and _may_match(predicate, metadata.row_group(index), usable):
            if not run:
                start = position
            run.append(index)
        elif run:
            yield start, run
            run = []
        position += count
    if run:
        yield start, run


def _holds(positions: np.ndarray, start: int, count: int) -> bool:
    first, last = np.searchsorted(positions, [start, start + count])
    return bool(last > first)


def _may_match(predicate: Predicate | None, group: pq.RowGroupMetaData, usable: list[tuple[int, Field]]) -> bool:
    return predicate is None or not usable or pruning.may_match(predicate, _statistics(group, usable), group.num_rows)


def _usable_columns(
    metadata: pq.FileMetaData, file_schema: pa.Schema, read_schema: Schema, places: Sequence[int | None], predicate: Predicate | None
) -> list[tuple[int, Field]]:
    """Leaf index and column, for top-level columns that the predicate reads and the file holds in their present type."""
    if predicate is None:
        return []
    wanted = pruning.columns(predicate)
    paths = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
    # A column called a.b and the field b of a struct a have the same path.
    counts = Counter(paths)
    leaf_of = {path: i for i, path in enumerate(paths) if counts[path] == 1}
    found: list[tuple[int, Field]] = []
    for column, place in zip(read_schema, places, strict=True):
        if column.id not in wanted or place is None or not column.is_leaf or column.type in NO_KEY_TYPES:
            continue
        held = file_schema.field(place)
        # Statistics in another type would have to be converted like the values; only NaN-free types are worth it.
        if held.type == to_arrow_type(column.type, physical=True) and column.type not in FLOATS and held.name in leaf_of:
            found.append((leaf_of[held.name], column))
    return found


def _statistics(group: pq.RowGroupMetaData, columns: list[tuple[int, Field]]) -> dict[int, ColumnStatistics]:
    result: dict[int, ColumnStatistics] = {}
    for leaf, column in columns:
        chunk = group.column(leaf)
        found = chunk.statistics
        if found is None or not found.has_null_count:
            continue
        bounds = (
            (values.stat_text(found.min_raw, column.type), values.stat_text(found.max_raw, column.type))
            if found.has_min_max
            else (None, None)
        )
        result[column.id] = ColumnStatistics(
            column_id=column.id,
            column_size_bytes=0,
            value_count=group.num_rows - found.null_count,
            null_count=found.null_count,
            min_value=bounds[0],
            max_value=bounds[1],
        )
    return result
