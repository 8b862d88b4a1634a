"""Statistics of a column of a file that somebody else wrote, as those of the table's column."""

from __future__ import annotations

import math
from decimal import Decimal

import pyarrow.parquet as pq

from ducklake_core.errors import CorruptFileError, SchemaError, UnsupportedFeatureError
from ducklake_core.format.files.data_files import ColumnStatistics
from ducklake_core.format.files.statistics import truncate_bounds
from ducklake_core.format.types.data_types import DATE, TIME_NS, TIMESTAMP_NS, DataType, DecimalType, Field
from ducklake_core.format.values.leaf_values import order_key, stat_value, to_text
from ducklake_core.storage.external_columns import ForeignLeaf, Unit

_NANOSECONDS: dict[Unit, int] = {"ms": 1_000_000, "us": 1000, "ns": 1}


def external_statistics(metadata: pq.FileMetaData, leaf: ForeignLeaf, column: Field) -> ColumnStatistics:
    """Convert the bounds of a footer to the catalog's texts for the table's column; None where there are none.

    Whether there is NaN is never known, as in DuckDB.

    Args:
        metadata: The file's footer.
        leaf: The file's column.
        column: The leaf of the table that it stands for.
    """
    chunks = [metadata.row_group(number).column(leaf.position) for number in range(metadata.num_row_groups)]
    slots = sum(chunk.num_values for chunk in chunks)
    nulls = _null_count(chunks, leaf)
    low, high = _bounds(chunks, leaf, column.type)
    kept = truncate_bounds(low, high, column.type)
    return ColumnStatistics(
        column_id=column.id,
        column_size_bytes=sum(chunk.total_compressed_size for chunk in chunks),
        value_count=None if nulls is None else slots - nulls,
        null_count=nulls,
        min_value=kept.min_value,
        max_value=kept.max_value,
        exact_min=kept.exact_min,
        exact_max=kept.exact_max,
        # Footers may cut what they hold, and few say so.
        min_is_exact=False,
        max_is_exact=False,
    )


def _null_count(chunks: list[pq.ColumnChunkMetaData], leaf: ForeignLeaf) -> int | None:
    counts = [chunk.statistics.null_count if chunk.is_stats_set and chunk.statistics.has_null_count else None for chunk in chunks]
    if None in counts:
        return 0 if leaf.never_null and not any(counts) else None
    return int(sum(count for count in counts if count is not None))


def _bounds(chunks: list[pq.ColumnChunkMetaData], leaf: ForeignLeaf, wanted: DataType) -> tuple[str | None, str | None]:
    nothing = (None, None)
    if not leaf.has_bounds:
        return nothing
    lows: list[object] = []
    highs: list[object] = []
    for chunk in chunks:
        found = chunk.statistics if chunk.is_stats_set else None
        if found is not None and found.has_null_count and found.null_count == chunk.num_values:
            continue
        if found is None or not found.has_min_max:
            return nothing
        try:
            low, high = _value(found.min_raw, leaf, wanted, upper=False), _value(found.max_raw, leaf, wanted, upper=True)
        except (CorruptFileError, UnicodeDecodeError, ValueError, ArithmeticError):
            # Not the bounds of such values, whatever they are.
            return nothing
        if low is None or high is None or _is_nan(low) or _is_nan(high):
            return nothing
        lows.append(low)
        highs.append(high)
    if not lows:
        return nothing
    # DuckDB's rewrite keeps dates of a column that became one of timestamps, whose bounds may be texts of dates.
    said = DATE if leaf.type == DATE else wanted
    try:
        return to_text(min(lows, key=order_key), said), to_text(max(highs, key=order_key), said)
    except (SchemaError, UnsupportedFeatureError, ArithmeticError):
        return nothing


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _value(raw: object, leaf: ForeignLeaf, wanted: DataType, *, upper: bool) -> object | None:
    """A bound in the Python form of the table's type; rounded outwards where that is coarser."""
    if leaf.unit is None:
        value = stat_value(raw, leaf.type)
        return value.quantize(Decimal(1).scaleb(-wanted.scale)) if isinstance(wanted, DecimalType) and isinstance(value, Decimal) else value
    if not isinstance(raw, int):
        raise CorruptFileError(f"statistics of a column of times hold {raw!r}")
    nanoseconds = raw * _NANOSECONDS[leaf.unit]
    if wanted in (TIMESTAMP_NS, TIME_NS):
        return nanoseconds
    return -(-nanoseconds // 1000) if upper else nanoseconds // 1000
