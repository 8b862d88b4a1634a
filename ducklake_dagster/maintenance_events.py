"""What maintenance left of a table, as observations of its asset, so that the numbers are plotted where the asset is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from ducklake_core import folded

if TYPE_CHECKING:
    from ducklake_core import DuckLake, TableInfo
    from ducklake_dagster.asset_tables import AssetTable


def table_observations(lake: DuckLake, tables: Sequence[AssetTable], did: str) -> Iterator[dg.AssetObservation]:
    """An observation of every asset whose table exists.

    Args:
        lake: The lake after maintenance.
        tables: Assets.
        did: What was done, for the description.
    """
    if not tables:
        return
    known = {folded(info.table): info for info in lake.tables()}
    snapshots = len(lake.snapshots())
    for table in tables:
        info = known.get(folded(table.address.sql))
        if info is not None:
            yield dg.AssetObservation(asset_key=table.key, description=did, metadata=_numbers(info, snapshots))


def _numbers(info: TableInfo, snapshots: int) -> dict[str, Any]:
    stored = info.row_count - info.inlined_row_count + info.deleted_row_count
    return {
        "dagster/row_count": info.row_count,
        "dagster/size_bytes": info.file_size_bytes,
        "ducklake/snapshot_id": info.snapshot_id,
        "ducklake/table_files": info.file_count,
        "ducklake/avg_file_bytes": info.file_size_bytes // info.file_count if info.file_count else 0,
        "ducklake/delete_files": info.delete_file_count,
        "ducklake/delete_ratio": round(info.deleted_row_count / stored, 6) if stored > 0 else 0.0,
        "ducklake/inlined_rows": info.inlined_row_count,
        "ducklake/lake_snapshots": snapshots,
    }
