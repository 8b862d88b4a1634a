"""The partitions of few changed rows, by the rows themselves where their files hold those of several partitions."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from ducklake_core.errors import DuckLakeError
from ducklake_dagster.touched_partitions import partition_columns, point_of

if TYPE_CHECKING:
    from ducklake_core import ChangedTable, DuckLake, ValueRange
    from ducklake_dagster.asset_tables import AssetTable

_MOST_ROWS = 20_000
_MOST_FILES = 100


def changed_values(
    lake: DuckLake, table: AssetTable, changed: ChangedTable, until: int, foreign: Container[int]
) -> list[tuple[int, tuple[ValueRange, ...]]] | None:
    """The values of partition columns in rows that changed, each with a commit that changed it; ascending by commit.

    Args:
        lake: The lake.
        table: A partitioned asset.
        changed: The changes of its table.
        until: The last snapshot to look at.
        foreign: The commits to look at.

    Returns:
        None when there are too many rows or files to read, or when the rows cannot tell: the table was replaced, commits were expired, or
        a file is not there any more.
    """
    known = all(rows.snapshots for rows in changed.rows)
    rows = sum(one.row_count for one in changed.rows)
    if changed.change != "changed" or not known or rows > _MOST_ROWS or len(changed.rows) > _MOST_FILES:
        return None
    try:
        # Rows that came and went may leave nothing to read.
        return _read(lake, table, changed, until, foreign) or None
    except DuckLakeError:
        # Bounds of files answer instead.
        return None


def _read(
    lake: DuckLake, table: AssetTable, changed: ChangedTable, until: int, foreign: Container[int]
) -> list[tuple[int, tuple[ValueRange, ...]]]:
    opened = lake.table(changed.name, at=until)
    columns = [opened.schema.column(column) for column in partition_columns(table)]
    names = ["snapshot_id", *(column.name for column in columns)]
    first = min(rows.first_snapshot for rows in changed.rows)
    found: set[tuple[object, ...]] = set()
    for batch in opened.changes(first, until, columns=names).to_batches():
        found.update(zip(*(batch.column(name).to_pylist() for name in names), strict=True))
    points: list[tuple[int, Sequence[object]]] = [(int(str(number)), values) for number, *values in found]
    return sorted(
        (
            (number, tuple(point_of(value, str(column.type)) for value, column in zip(values, columns, strict=True)))
            for number, values in points
            if number in foreign
        ),
        key=lambda point: point[0],
    )
